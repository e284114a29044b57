"""What the steps of a live server take: the time of a pass as lines in the tokens of its caches.

Time of a pass = operators that depend on its rows alone (tables) + the head (a table of the rows
of logits) + what a layer and a sequence cost + attention and states, which depend on what each
sequence sees. Between two events only the tokens in the caches grow, and the time of attention,
the larger of moving and computing, is a line in them with at most a few knees. All figures are
those of `case.figures` for the same pass of sequences of different lengths.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

from .attention import Attention, causal_pairs
from .case import Case, held_weights, slowest
from .clock import TICKS, Counted, Kind, Limits
from .errors import RooflmError
from .estimate import (
    Constants,
    attention_computing,
    attention_moving,
    message_time,
    operator_time,
    refuse_unmeasured,
)
from .layout import parts
from .memory import activations_bytes
from .mla import MLA
from .model import sequence_state_bytes
from .passes import DECODE_TOKENS, Operator, Segment, decode
from .readings import total
from .timing import Rates, bandwidth_time, compute_time
from .timing import operator_time as bound_time

SEEN = ("attention", "recurrence")
"""Parts whose time depends on what each sequence sees."""


@dataclass(frozen=True)
class Seen:
    """An operator that depends on what sequences see: of one layer, `count` of them are equal."""

    mixer: Any
    op: Operator
    kind: Kind | None
    """None where it sees everything, or a state."""
    fixed: tuple[float, float]
    """FLOPs and bytes of a decoding sequence beside its tokens."""
    each: tuple[float, float]
    """FLOPs and bytes of a token that it sees."""


@dataclass
class Steps:
    """Ticks of the steps of a case: what the event clock of a server asks for."""

    case: Case
    """One rank, the slowest, of the deployment."""
    constants: Constants | None
    """Of the engine; None for bounds."""
    seen: Sequence[Seen]
    kinds: tuple[Kind, ...]
    """Of layers that see no more than a limit, in the order in which `run` is told of them."""
    rates: Rates
    bytes_per_token: float
    """Of the caches of a sequence that keep everything, for moving them [B]."""
    limited_bytes: tuple[tuple[int, float], ...]
    """Tokens that others keep at most, and bytes of each."""
    bytes_per_sequence: float
    """Of its states [B]."""
    host_bytes_per_s: float
    _rows: list[float] = field(default_factory=list[float])
    """Seconds of what depends on the rows of a pass, by their number."""
    sent_s: list[float] = field(default_factory=list[float])
    """Seconds of messages in it."""
    _heads: list[float] = field(default_factory=list[float])
    _lines: dict[int, tuple[int, list[Lines]]] = field(
        default_factory=dict[int, "tuple[int, list[Lines]]"]
    )
    _chunks: dict[tuple[int, int], tuple[float, ...]] = field(
        default_factory=dict[tuple[int, int], "tuple[float, ...]"]
    )

    def __post_init__(self) -> None:
        self._curves = [self._curve(one) for one in self.seen]
        one = self.seen[0] if len(self.seen) == 1 else None
        plain = one is not None and one.kind is None and type(one.mixer) is Attention
        self._plain = self._curves[0] if plain else None
        # By its tokens, what a prompt adds to a pass where its attention has a kernel of its own.
        self._alone: dict[int, float] | None = {} if plain and self._curves[0].separate else None
        layers, constants = self.case.model.layers, self.constants
        self._layers, self._sequence = (0.0, 0.0), 0.0
        if constants is not None:
            self._sequence = constants.sequence_s
            prefill = constants.prefill_layer_s
            short = layers * constants.layer_s
            self._layers = (short, short if prefill is None else layers * prefill)

    def _prompt(self, new: int) -> float:
        """Seconds that a whole prompt adds to a pass besides its rows and its head."""
        curve = self._curves[0]
        moved = curve.weights + curve.each_bytes * new
        attention = curve.time(curve.each_flops * PLAIN_PAIRS(0, new), moved, new)
        return curve.count * attention + self._layers[True] + self._sequence

    def run(self, sequences: int, tokens: int, more: Sequence[Counted]) -> tuple[int, int, int]:
        """Tell the ticks of a decode step, how much longer each next one is, and for how many."""
        lines = self._lines.get(sequences)
        if lines is None:
            lines = self._lines[sequences] = self._decode_lines(sequences)
        ticks, each_kind = lines
        found = each_kind[0]
        if len(found.ends) == 1:
            ticks += found.fixed[0] + found.each[0] * tokens
            rise, most = found.each[0] * sequences, ENDLESS
        else:
            piece = bisect_left(found.ends, tokens)
            ticks += found.fixed[piece] + found.each[piece] * tokens
            rise = found.each[piece] * sequences
            most = (found.ends[piece] - tokens) // (sequences or 1) + 1
        if more:
            # Kinds beyond those that are seen are kept, and take no time.
            for found, counted in zip(each_kind[1:], more, strict=False):
                growing, value = counted.growing, counted.tokens + counted.growing
                piece = bisect_left(found.ends, value)
                ticks += found.fixed[piece] + found.each[piece] * value
                rise += found.each[piece] * growing
                if growing:
                    most = min(most, (found.ends[piece] - value) // growing + 1)
        return ticks, rise, most

    def mixed(
        self, sequences: int, tokens: int, more: Sequence[Counted],
        chunks: Sequence[tuple[int, int]], ends: int,
    ) -> int:  # fmt: skip
        """Tell the ticks of a step that computes prompts as well."""
        if len(chunks) == 1 and self._alone is not None:
            ((new, cached),) = chunks
            if new > DECODE_TOKENS and not cached:
                # A whole prompt, whose attention is a kernel of its own.
                known = self._alone.get(new)
                if known is None:
                    known = self._alone[new] = self._prompt(new)
                rows, heads = sequences + new, sequences + ends
                if rows >= len(self._rows) or heads >= len(self._heads):
                    self.row_time(rows)
                    self.head_time(heads)
                seconds = known + self._rows[rows] + self._heads[heads]
                seconds += sequences * self._sequence
                if sequences:
                    curve = self._curves[0]
                    flops = curve.fixed_flops * sequences + curve.each_flops * tokens
                    moved = curve.weights + curve.fixed_bytes * sequences
                    seconds += curve.count * curve.time(flops, moved + curve.each_bytes * tokens, 0)
                return round(seconds * TICKS)
        rows, context = sequences, 0
        for new, cached in chunks:
            rows += new
            if new > DECODE_TOKENS and new + cached > context:
                context = new + cached
        heads = sequences + ends
        if rows >= len(self._rows) or heads >= len(self._heads):
            self.row_time(rows)
            self.head_time(heads)
        seconds = self._rows[rows] + self._heads[heads] + self._layers[context > 0]
        seconds += (sequences + len(chunks)) * self._sequence
        if self._plain is not None:
            # One kind of attention that sees everything: pairs and tokens are sums.
            curve = self._plain
            pairs = seen = tokens
            prompt_pairs = prompt_seen = 0
            for chunk in chunks:
                found = PLAIN_PAIRS(chunk[1], chunk[0])
                if curve.separate and chunk[0] > DECODE_TOKENS:
                    prompt_pairs += found
                    prompt_seen += chunk[0] + chunk[1]
                else:
                    pairs += found
                    seen += chunk[0] + chunk[1]
            flops = curve.fixed_flops * sequences + curve.each_flops * pairs
            moved = curve.weights + curve.fixed_bytes * sequences + curve.each_bytes * seen
            if prompt_seen:
                if seen:
                    seconds += curve.count * curve.time(flops, moved, 0)
                flops = curve.each_flops * prompt_pairs
                moved = curve.weights + curve.each_bytes * prompt_seen
            seconds += curve.count * curve.time(flops, moved, context)
            return round(seconds * TICKS)
        long = [self._chunk(chunk) for chunk in chunks if chunk[0] > DECODE_TOKENS]
        short = [self._chunk(chunk) for chunk in chunks if chunk[0] <= DECODE_TOKENS]
        both = bool(long) and bool(sequences or short)
        place = 0
        for curve in self._curves:
            value = tokens
            if curve.which:
                counted = more[curve.which - 1]
                value = counted.tokens + counted.growing
            flops = curve.fixed_flops * sequences + curve.each_flops * value
            moved = curve.weights + curve.fixed_bytes * sequences + curve.each_bytes * value
            for work in short:
                flops += work[place]
                moved += work[place + 1]
            if both and curve.separate:
                seconds += curve.count * curve.time(flops, moved, 0)
                flops, moved = 0.0, curve.weights
            for work in long:
                flops += work[place]
                moved += work[place + 1]
            seconds += curve.count * curve.time(flops, moved, context)
            place += 2
        return round(seconds * TICKS)

    def moved(self, tokens: int) -> int:
        """Tell the ticks in which the cache of a sequence goes to host memory or comes back."""
        held = self.bytes_per_token * tokens + self.bytes_per_sequence
        held += sum(min(tokens, limit) * size for limit, size in self.limited_bytes)
        return round(bandwidth_time(held, self.host_bytes_per_s) * TICKS)

    def row_time(self, rows: int) -> float:
        """Seconds of what depends on the rows of a pass alone."""
        if rows >= len(self._rows):
            self._tabulate(rows)
        return self._rows[rows]

    def head_time(self, rows: int) -> float:
        """Seconds of the rows of logits of a pass."""
        if rows >= len(self._heads):
            import numpy as np

            B = np.arange(1, 2 * rows + 65, dtype=float)
            segments = [Segment(B, 1, 0)]
            inner = {op.name for op in self.case.ledger([Segment(1, 1, 0, head_rows=0)])}
            ops = [op for op in self.case.ledger(segments) if op.name not in inner]
            own = [op for op in ops if self.constants is None or op.part != "communication"]
            sent = self._sent(segments, B) - self._sent([Segment(B, 1, 0, head_rows=0)], B)
            self._heads = [0.0, *(self._sum(own, segments, B, B) + sent).tolist()]
        return self._heads[rows]

    def _tabulate(self, rows: int) -> None:
        """Tabulate the times of passes of up to so many rows, and more to come."""
        import numpy as np

        T = np.arange(1, max(2 * rows, 4096) + 1, dtype=float)
        segments = [Segment(1, T, 0, head_rows=0)]
        ops = [op for op in self.case.ledger(segments) if op.part not in SEEN]
        sent = self._sent(segments, T)
        if self.constants is None:
            self.sent_s = [0.0, *(0 * T + total(op.count * op.seconds for op in ops)).tolist()]
        else:
            self.sent_s = [0.0, *sent.tolist()]
        own = [op for op in ops if self.constants is None or op.part != "communication"]
        self._rows = [0.0, *(self._sum(own, segments, T, T) + sent).tolist()]

    def _sent(self, segments: Sequence[Segment], like: Any) -> Any:
        """Seconds of the messages of a pass with the engine; bounds have theirs in the ledger."""
        if self.constants is None or self.case.rank is None:
            return 0 * like
        from .communication import rank_messages

        rank, precision = self.case.rank, self.case.precision
        sent = rank_messages(rank, segments, precision, self.case.links)
        return 0 * like + total(m.count * message_time(m, self.constants) for m in sent)

    def _sum(
        self, ops: Sequence[Operator], segments: Sequence[Segment], rows: Any, like: Any
    ) -> Any:
        rates, constants = self.rates, self.constants
        if constants is None:
            times = (op.count * bound_time(op, rates) for op in ops)
        else:
            precision = self.case.precision
            times = (
                op.count * operator_time(op, segments, rates, constants, precision, rows)
                for op in ops
            )
        return total(times) + 0 * like

    def _curve(self, one: Seen) -> Curve:
        """Read the time of an operator at a few points, between which it is straight."""
        constants, op = self.constants, one.op
        which = 0 if one.kind is None else 1 + self.kinds.index(one.kind)
        numbers = (which, op.count, one.fixed[0], one.each[0], op.weight_bytes, one.fixed[1],
                   one.each[1])  # fmt: skip
        peak = self.rates.peak(op.compute)
        knee, starts, separate = 0.0, (0.0, 0.0), False
        if constants is None:
            moving, computing = partial(bandwidth_time, bytes_per_s=self.rates.bytes_per_s), None
            per_flop = compute_time(1.0, peak)
        elif op.part == "attention":
            separate = constants.separate_attention
            knee = constants.kernels["decode"].small_bytes
            starts = (constants.kernels["decode"].start_s, constants.kernels["prefill"].start_s)
            moving = partial(
                attention_moving, head_width=op.head_width, rates=self.rates, constants=constants
            )
            per_flop = attention_computing(1.0, None, peak, constants)
            computing = partial(attention_computing, 1.0, peak=peak, constants=constants)
        else:
            kernel = constants.kernels["recurrence"]
            starts = (kernel.start_s, kernel.start_s)
            moving = partial(bandwidth_time, bytes_per_s=kernel.memory * self.rates.bytes_per_s)
            per_flop, computing = compute_time(1.0, kernel.compute * peak), None
        at_knee = moving(knee) if knee else 0.0
        slow = at_knee / knee if knee else 0.0
        fast = (moving(knee + FAR) - at_knee) / FAR
        line = (knee, slow, at_knee - fast * knee, fast)
        return Curve(*numbers, starts, separate, *line, per_flop, computing)

    def _chunk(self, chunk: tuple[int, int]) -> tuple[float, ...]:
        """FLOPs and bytes beside weights that a chunk of a prompt adds to each operator seen."""
        known = self._chunks.get(chunk)
        if known is None:
            new, cached = chunk
            known = tuple(n for one in self.seen for n in self._work(one, new, cached))
            if len(self._chunks) >= MOST_CHUNKS:
                self._chunks.clear()
            self._chunks[chunk] = known
        return known

    def _work(self, one: Seen, new: int, cached: int) -> tuple[float, float]:
        mixer, each = one.mixer, one.each
        if type(mixer) is Attention:
            if one.kind is None:
                return each[0] * PLAIN_PAIRS(cached, new), each[1] * (new + cached)
            return each[0] * mixer.pairs(cached, new), each[1] * mixer.seen_tokens(cached, new)
        segment = Segment(1, new, cached)
        if type(mixer) is MLA:
            return mixer.core_flops([segment]), each[1] * (new + cached)
        op = _find(mixer, self.case, [segment], one.op.name)
        return op.flops, _bytes(op, self.constants) - op.weight_bytes

    def _decode_lines(self, sequences: int) -> tuple[int, list[Lines]]:
        """Draw the lines of a decode step of so many sequences, and what it takes beside them."""
        seconds = self.row_time(sequences) + self.head_time(sequences)
        seconds += self._layers[0] + sequences * self._sequence
        attends: list[Curve] = []
        for one, curve in zip(self.seen, self._curves, strict=True):
            if one.op.part == "attention":
                attends.append(curve)
            else:
                seconds += curve.count * curve.decode_time(sequences, 0)
        lines = [
            _draw([curve for curve in attends if curve.which == which], sequences)
            for which in range(1 + len(self.kinds))
        ]
        return round(seconds * TICKS), lines


@dataclass(slots=True)
class Curve:
    """Time of an operator by its FLOPs and bytes: the larger of two lines, one with a knee."""

    which: int
    """Place of what it sees: 0 everything, or of a kind."""
    count: float
    fixed_flops: float
    each_flops: float
    weights: float
    fixed_bytes: float
    each_bytes: float
    starts: tuple[float, float]
    """Of a pass of decoding, and of one with a prompt [s]."""
    separate: bool
    """Prompts and decoding have a kernel each."""
    knee: float
    """Bytes up to which a byte takes `slow`."""
    slow: float
    base: float
    """From there on the bytes take base + fast * bytes [s]."""
    fast: float
    per_flop: float
    computing: Callable[[int], float] | None
    """Seconds of a FLOP in a pass with a prompt of some context; `per_flop` if None."""
    known: dict[int, float] = field(default_factory=dict[int, float])

    def time(self, flops: float, moved: float, context: int) -> float:
        """Seconds of one run; context: longest of the prompts in the pass, 0 without [tokens]."""
        # As `_moving`, without a call: the simulation asks for each prompt.
        moving = self.slow * moved if moved <= self.knee else self.base + self.fast * moved
        per_flop, start = self.per_flop, self.starts[0]
        if context:
            start = self.starts[1]
            if self.computing is not None:
                found = self.known.get(context)
                if found is None:
                    found = self.known[context] = self.computing(context)
                per_flop = found
        computing = flops * per_flop
        return start + (moving if moving > computing else computing)

    def decode_time(self, sequences: int, tokens: float) -> float:
        """Seconds of one run in a decode step; tokens: what all sequences see together."""
        flops, moved = self._work(sequences, tokens)
        return self.time(flops, moved, 0)

    def knees(self, sequences: int) -> list[float]:
        """Find the tokens at which the time of a decode step bends."""
        bends = [0.0, float(ENDLESS)]
        small = (self.knee - self._work(sequences, 0)[1]) / self.each_bytes
        if small > 0:
            bends.insert(1, small)
        found = bends[1:-1]
        for low, high in pairwise(bends):
            a, b = self._lead(sequences, low), self._lead(sequences, high)
            if a * b < 0:
                found.append(low + (high - low) * a / (a - b))
        return found

    def _work(self, sequences: int, tokens: float) -> tuple[float, float]:
        flops = self.fixed_flops * sequences + self.each_flops * tokens
        return flops, self.weights + self.fixed_bytes * sequences + self.each_bytes * tokens

    def _moving(self, moved: float) -> float:
        return self.slow * moved if moved <= self.knee else self.base + self.fast * moved

    def _lead(self, sequences: int, tokens: float) -> float:
        """By how much moving takes longer than computing [s]."""
        flops, moved = self._work(sequences, tokens)
        return self._moving(moved) - self.per_flop * flops


@dataclass
class Lines:
    """Lines in the tokens that sequences see: up to each of `ends`, fixed + each * tokens."""

    ends: list[int]
    fixed: list[int]
    each: list[int]


def _draw(curves: Sequence[Curve], sequences: int) -> Lines:
    """Draw the time of attention operators as lines in the tokens that all sequences see."""
    knees = sorted({knee for curve in curves for knee in curve.knees(sequences)})
    ends = [*(int(k) for k in knees if k < ENDLESS), ENDLESS]
    lines = Lines([], [], [])
    before = 0
    for end in ends:
        # Two whole numbers of tokens within the piece: a line goes through both.
        a, b = before + 1, min(end, max(4 * before, MANY))
        if b <= a:
            b = a + 1
        at_a, at_b = (
            sum(curve.count * curve.decode_time(sequences, tokens) for curve in curves)
            for tokens in (a, b)
        )
        each = (at_b - at_a) / (b - a)
        lines.ends.append(end)
        lines.each.append(round(each * TICKS))
        lines.fixed.append(round((at_b - each * b) * TICKS))
        before = end
    return lines


PLAIN_PAIRS: Callable[[int, int], int] = getattr(causal_pairs, "__wrapped__")  # noqa: B009
"""Query-key pairs without the conversions of grids: it is asked for each prompt."""
FAR = 1e12
"""Bytes between two points of a line."""
ENDLESS = 2**50
"""Tokens that no caches hold."""
MANY = 2**26
MOST_CHUNKS = 65_536
"""Different chunks of prompts whose work is kept."""


def make_steps(case: Case, basis: str, host_bytes_per_s: float = 0.0) -> Steps:
    """Make the step times of a case.

    basis: estimate or bound; host_bytes_per_s: of the bus to host memory, for sequences that are
    swapped [B/s]. Raises `RooflmError` for what is not simulated, and for estimates where there
    are none.
    """
    refuse(case)
    one = slowest(case, decode(1, 1024))
    constants = None
    if basis == "estimate":
        constants = one.constants
        if constants is None:
            raise RooflmError(one.no_estimate, "--basis", "Take --basis bound.")
        for segments in (decode(1, 1024), [Segment(1, 2048, 0)]):
            refuse_unmeasured(one.ledger(segments), segments, one.rates, constants)
    elif one.rates.flops_per_s is None:
        raise RooflmError("its compute rate is not known", "--on")
    seen = [
        found
        for group in one.model.groups
        for mixer in parts(group.mixer)
        for found in _seen(mixer, group.count, one, constants)
    ]
    kinds = tuple(dict.fromkeys(s.kind for s in seen if s.kind is not None))
    token, limited, state = cache_sizes(one)
    return Steps(
        one, constants, seen, kinds, one.rates, token, tuple(limited.items()), state,
        host_bytes_per_s,
    )  # fmt: skip


def refuse(case: Case) -> None:
    """Raise `RooflmError` for what live traffic is not simulated with."""
    layout, model = case.layout, case.model
    if case.lecture or case.time_model != "operator":
        what = "live traffic is simulated with the step times of the full accounting"
        raise RooflmError(what, "--time-model", "Leave out --accounting and --time-model.")
    if model.denoises:
        raise RooflmError("denoising passes have no tokens that come one by one", "MODEL")
    if model.adapters is not None:
        raise RooflmError("adapters are not simulated", "--lora")
    if case.offloads:
        raise RooflmError("layers in host memory are not simulated", "--gpu-layers")
    if layout is not None and (layout.dp > 1 or layout.pp > 1 or layout.cp > 1):
        what = "one server is ranks of --tp and --ep; stages and groups are not simulated"
        raise RooflmError(what, "--pp", "Take --tp, and --replicas for several servers.")


def _seen(mixer: Any, count: int, case: Case, constants: Constants | None) -> list[Seen]:
    """List the operators of a layer that depend on what sequences see, as lines."""
    probes = [_ops(mixer, case, [Segment(1, 1, S - 1)]) for S in PROBES]
    found: list[Seen] = []
    for place, first in enumerate(probes[0]):
        kind = _kind(mixer) if first.part == "attention" else None
        views = [seen_tokens(kind, S) for S in PROBES]
        pairs = [
            (o[place].flops, _bytes(o[place], constants) - o[place].weight_bytes) for o in probes
        ]
        fixed: list[float] = []
        each: list[float] = []
        for values in zip(*pairs, strict=True):
            slope = 0.0
            if first.part == "attention":
                slope = (values[1] - values[0]) / (views[1] - views[0])
            start = values[1] - slope * views[1]
            if any(
                abs(start + slope * v - value) > 1e-9 * abs(value) + 1e-9
                for v, value in zip(views, values, strict=True)
            ):
                what = f"layers of {mixer.kind} attention are not simulated under live traffic"
                raise RooflmError(what, "MODEL", "Their steps: rooflm sweep.")
            fixed.append(start)
            each.append(slope)
        op = Operator(
            first.name, first.part, count, first.compute, weight_bytes=first.weight_bytes,
            head_width=first.head_width,
        )  # fmt: skip
        found.append(Seen(mixer, op, kind, (fixed[0], fixed[1]), (each[0], each[1])))
    return found


PROBES = (2, 3, 17, 100, 1000, 4099, 20_011, 300_007)
"""Contexts at which the work of a decode step is compared with a line."""


def _kind(mixer: Any) -> Kind | None:
    """Tell what a decode step of a layer sees."""
    if getattr(mixer, "chunk", None) is not None:
        return Kind(int(mixer.chunk), wraps=True)
    limit = mixer.window_tokens
    return None if limit is None else Kind(int(limit))


def seen_tokens(kind: Kind | None, S: float) -> float:
    """Tokens that a decode step at a context sees."""
    if kind is None:
        return S
    return (S - 1) % kind.limit + 1 if kind.wraps else min(S, kind.limit)


def _ops(mixer: Any, case: Case, segments: Sequence[Segment]) -> list[Operator]:
    made: list[Operator] = list(mixer.operators(case.model.D, 1, segments, case.precision))
    unknown = {op.part for op in made} & {"index", "compress"}
    if unknown:
        what = f"layers of {mixer.kind} attention are not simulated under live traffic"
        raise RooflmError(what, "MODEL", "Their steps: rooflm sweep.")
    return [op for op in made if op.part in SEEN]


def _find(mixer: Any, case: Case, segments: Sequence[Segment], name: str) -> Operator:
    return next(op for op in _ops(mixer, case, segments) if op.name == name)


def _bytes(op: Operator, constants: Constants | None) -> float:
    """Bytes that the time of an operator is made of: an engine's state kernels move activations."""
    if constants is not None and op.part == "recurrence":
        return op.operator_bytes
    return op.compulsory_bytes


def cache_sizes(case: Case) -> tuple[float, dict[int, float], float]:
    """Tell what a sequence keeps on a rank: bytes of a token, by the tokens kept, and its states.

    Returns bytes of a token of the layers that keep everything, those of layers that keep no more
    than a limit, by the limit, and bytes of a sequence beside them [B].
    """
    growing, limited = 0.0, dict[int, float]()
    for group in case.model.groups:
        for mixer in parts(group.mixer):
            token = group.count * mixer.token_bytes(case.precision)
            if not token:
                continue
            if mixer.window_tokens is None:
                growing += token
            else:
                limit = int(mixer.window_tokens)
                limited[limit] = limited.get(limit, 0.0) + token
    return growing, limited, float(sequence_state_bytes(case.model, case.precision))


def cache_units(case: Case, block: int) -> tuple[int, tuple[Kind, ...], int]:
    """Tell what blocks of a sequence take on a rank, in whole bytes, and its states [B].

    block: tokens of a block.
    """
    growing, limited, state = cache_sizes(case)
    kinds = tuple(Kind(limit, _whole(block * token)) for limit, token in limited.items())
    return _whole(block * growing), kinds, _whole(state)


def cache_room(case: Case, tokens: int, sequences: int) -> dict[str, float]:
    """Tell what the fullest rank has left for caches, and what the rest is [B].

    tokens, sequences: most of a step, whose activations are held. Raises `RooflmError` where
    nothing is left.
    """
    held: dict[str, float] = {}
    for one in case.members:
        segments = [Segment(1, tokens, 0), Segment(sequences, 1, 0)]
        kinds = {
            "weights_bytes": float(held_weights(one)),
            "activations_bytes": float(activations_bytes(one.ledger(segments))),
            "reserve_bytes": float(case.reserve_bytes),
        }
        if sum(kinds.values()) > sum(held.values()):
            held = kinds
    limit = float(case.limit[0])
    left = limit - sum(held.values())
    if left <= 0:
        what = f"weights and activations take {sum(held.values()) / 1e9:,.1f} GB, and there are "
        raise RooflmError(
            f"{what}{limit / 1e9:,.1f} GB: no room for caches", "--on", "Spread it: --tp 2."
        )
    return {**held, "cache_pool_bytes": left, "capacity_bytes": limit}


def make_limits(steps: Steps, pool_bytes: float, like: Limits, beside: float = 0.0) -> Limits:
    """Fill in what the caches of a case take of a pool.

    pool_bytes: for caches [B]; like: the policy, and the block; beside: of the cache of a draft
    for each token [B]. With one kind of cache a unit is a block of it, else a byte.
    """
    units, kept, fixed = cache_units(steps.case, like.block)
    units += _whole(like.block * beside)
    # Layers that see no more than a limit are counted for the time, and for what they keep.
    kinds = tuple(replace(kind, units=0) for kind in steps.kinds) + kept
    if not kept and not fixed:
        return replace(like, pool=int(pool_bytes // units), units=1, kinds=kinds)
    return replace(like, pool=int(pool_bytes), units=units, kinds=kinds, fixed=fixed)


def _whole(size: float) -> int:
    """Round up to whole bytes."""
    return int(-(-size // 1))
