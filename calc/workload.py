"""The requests of a traffic simulation: when they come, and how long prompt and output are.

Drawn from laws, with the same requests for the same seed. Arrivals, prompts, outputs and prefixes
have streams of their own: another rate keeps lengths and gaps, so that two rates differ by nothing
but the rate (common random numbers).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from .clock import TICKS
from .errors import RooflmError, check_choice, nearest, printable
from .lengths import parse_lengths
from .units import LARGEST, parse_count, parse_share, show_number
from .yamlfile import is_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Draw: TypeAlias = Callable[[int, np.random.Generator], NDArray[np.int64]]

MOST_REQUESTS = 10**7
"""Requests of one workload; each takes some 0.2 kB."""
LAST_ARRIVAL = 10**12
"""Seconds after which nothing arrives: later is a slip of a rate or of a unit."""
LEAST_BURSTINESS = 1e-3
"""Least shape of the gaps: below it nearly all of them are 0."""
WIDEST = 10.0
"""Largest standard deviation of the log of a length: e**10 is a factor of 22,000 either way."""

Arrivals: TypeAlias = Literal["poisson", "constant", "burst", "at-once"]
ARRIVALS = ("poisson", "constant", "burst", "at-once")
"""Ways to arrive; `at-once` is another word for `burst`."""

LAWS = ("uniform", "lognormal", "exponential")
FORMS = (
    "Write 512, 1024@0.8, uniform:256-1024, lognormal:MEAN,SIGMA or lognormal:MEAN,SIGMA,MAX, "
    "exponential:MEAN or @FILE."
)
"""Forms of a length."""

Stream: TypeAlias = Literal["arrivals", "prompts", "outputs", "prefixes"]
_STREAMS = ("arrivals", "prompts", "outputs", "prefixes")
_SIGMA = re.compile(r"[0-9]{0,9}\.?[0-9]{1,9}")


@dataclass
class Workload:
    """Requests in the order of their arrival, a list for each property."""

    arrival: list[int]
    """Ticks at which they come, ascending; -1 where that depends on one before (`clients`)."""
    prompt: list[int]
    """Tokens of the prompt, at least 1."""
    output: list[int]
    """Tokens of the output, at least 1."""
    priority: list[int] = field(default_factory=list[int])
    """Lower goes first; empty where all are alike."""
    prefix: list[str] = field(default_factory=list[str])
    """Name of what the first tokens of the prompt are shared under, "" for none; or empty."""
    prefix_tokens: list[int] = field(default_factory=list[int])
    """Leading tokens of the prompt that are the same in all requests of its prefix."""
    session: list[str] = field(default_factory=list[str])
    """Conversation, "" for none; or empty. The prompt of a turn begins with prompt and output of
    the turn before, as far as it is long enough."""
    clients: int = 0
    """Clients of a closed loop, or 0: request i comes `think` after request i - clients has ended,
    and its arrival is -1 from the second round on."""
    think: int = 0
    """Ticks between the end of a client's request and its next one."""
    told: tuple[str, ...] = ()
    """Sentences that say how it was made."""


@dataclass(frozen=True)
class Lengths:
    """A law of lengths."""

    text: str
    """As it was typed."""
    mean: float
    """Mean [tokens]; of a lognormal law before lengths are rounded, which moves it by less than
    half a token."""
    most: int
    """Largest length that can be drawn [tokens]; 10**12 where the law has no end."""
    draw: Draw
    """Draw a number of lengths [tokens] by a generator: whole numbers of at least 1."""


# Lengths


def parse_law(text: str, option: str) -> Lengths:
    """Read a law of lengths, in any of `FORMS`.

    `512`: all alike. `uniform:A-B`: each whole number from A to B alike. `lognormal:MEAN,SIGMA`:
    MEAN is the mean in tokens, SIGMA the standard deviation of the log; rounded, at least 1, and
    at most MAX where one is given (longer ones are cut to it). `exponential:MEAN`: geometric, from
    1 on, with that mean. `N@R`: uniform from int(R N) to N, the range ratio of InferenceX
    (github.com/SemiAnalysisAI/InferenceX, utils/bench_serving/benchmark_serving.py) and of vLLM's
    benchmark before its ratio went either way. `@FILE`, or the name of a file: one length a
    line, drawn with replacement.

    >>> parse_law("uniform:1k-3k", "--prompt").mean
    2000.0
    """
    name, colon, rest = text.strip().partition(":")
    if colon and name.lower() in LAWS:
        return _LAWS[name.lower()](text, rest, option)
    if text.strip().startswith("@"):
        path = text.strip()[1:]
        if not is_file(path):
            raise RooflmError(f"no file '{printable(path, 100)}'", option, "@ takes a file.")
        return _of_file(path, option)
    nominal, at, ratio = text.partition("@")
    if at and not is_file(text):
        most = parse_count(nominal, option)
        # The benchmarks multiply floats and cut, and so does this.
        least = max(1, int(most * parse_share(ratio, option, whole=True)))
        return _uniform_from(text, least, most)
    if re.match(r"[0-9.]", text.strip()) and not is_file(text):
        if "-" in text:
            fix = f"Write uniform:{printable(text.strip(), 40)}."
            raise RooflmError(f"'{printable(text, 40)}' is not a length", option, fix)
        value = parse_count(text, option)
        return _uniform_from(text, value, value)
    if is_file(text):
        return _of_file(text, option)
    what = f"'{printable(text, 40)}' is not a length"
    close = nearest(name, LAWS)
    raise RooflmError(what, option, f"{close} {FORMS}" if close else FORMS)


def _of_file(path: str, option: str) -> Lengths:
    import numpy as np

    values = np.array(parse_lengths(path, option), dtype=np.int64)

    def draw(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return values[rng.integers(0, len(values), n)]

    return Lengths(f"@{path}", float(values.mean()), int(values.max()), draw)


def _uniform(text: str, rest: str, option: str) -> Lengths:
    pieces = rest.split("-")
    if len(pieces) != 2:
        raise RooflmError(
            f"'{printable(text, 40)}' is not a range", option, "Write uniform:256-1024."
        )
    least, most = (parse_count(piece, option) for piece in pieces)
    if most < least:
        raise RooflmError(f"the range '{printable(text, 40)}' ends before it begins", option)
    return _uniform_from(text, least, most)


def _uniform_from(text: str, least: int, most: int) -> Lengths:
    import numpy as np

    def draw(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return rng.integers(least, most, n, dtype=np.int64, endpoint=True)

    return Lengths(text.strip(), (least + most) / 2, most, draw)


def _lognormal(text: str, rest: str, option: str) -> Lengths:
    import numpy as np

    pieces = rest.split(",")
    if not 2 <= len(pieces) <= 3:
        fix = "Write lognormal:MEAN,SIGMA or lognormal:MEAN,SIGMA,MAX."
        raise RooflmError(f"'{printable(text, 40)}' is not a length", option, fix)
    mean = parse_count(pieces[0], option)
    word = pieces[1].strip()
    sigma = float(word) if _SIGMA.fullmatch(word) else math.inf
    if not sigma <= WIDEST:
        what = f"the sigma '{printable(word, 40)}' is not a number from 0 to {WIDEST:.0f}"
        raise RooflmError(what, option, "It is that of the log of the length: 0.5 or 1, say.")
    most = parse_count(pieces[2], option) if len(pieces) == 3 else LARGEST
    # The mean of exp(N(m, s)) is exp(m + s**2 / 2).
    middle = math.log(mean) - sigma * sigma / 2

    def draw(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        drawn = np.exp(middle + sigma * rng.standard_normal(n))
        return np.clip(np.rint(drawn), 1, most).astype(np.int64)

    return Lengths(text.strip(), lognormal_mean(mean, sigma, most), most, draw)


def lognormal_mean(mean: float, sigma: float, most: float) -> float:
    """Mean of a lognormal length that is cut to a largest: E[min(X, c)].

    mean: of X [tokens]; sigma: standard deviation of ln X [1]; most: c [tokens]. Returns [tokens]:
    mean P((ln c - m)/s - s) + c (1 - P((ln c - m)/s)), with m = ln mean - s**2/2 and P the normal
    distribution function. Lengths are rounded afterwards, which is left out here.

    >>> round(lognormal_mean(1000, 1, 1000), 1)
    617.1
    """
    if sigma == 0:
        return float(min(mean, most))
    z = (math.log(most / mean) + sigma * sigma / 2) / sigma
    below, above = math.erfc((sigma - z) / math.sqrt(2)) / 2, math.erfc(z / math.sqrt(2)) / 2
    return mean * below + most * above


def _exponential(text: str, rest: str, option: str) -> Lengths:
    import numpy as np

    mean = parse_count(rest, option)

    def draw(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return np.minimum(rng.geometric(1 / mean, n), LARGEST).astype(np.int64)

    return Lengths(text.strip(), float(mean), 1 if mean == 1 else LARGEST, draw)


_LAWS: dict[str, Callable[[str, str, str], Lengths]] = {
    "uniform": _uniform,
    "lognormal": _lognormal,
    "exponential": _exponential,
}


# Arrivals


def open_loop(
    rate: float, requests: int, prompt: Lengths, output: Lengths, seed: int,
    arrivals: Arrivals = "poisson", burstiness: float = 1.0,
) -> Workload:  # fmt: skip
    """Make requests that come whatever the server does.

    rate: requests a second, or infinite for all at once; seed: of all that is drawn; arrivals and
    burstiness: see `draw_arrivals`.
    """
    _check_number(requests)
    times = draw_arrivals(rate, requests, seed, arrivals, burstiness)
    return Workload(
        arrival=times,
        prompt=_drawn(prompt, requests, seed, "prompts"),
        output=_drawn(output, requests, seed, "outputs"),
        told=(
            f"{requests:,} requests {say_arrivals(rate, arrivals, burstiness)}, seed {seed}",
            _said(prompt, output),
        ),
    )


def draw_arrivals(
    rate: float, requests: int, seed: int, arrivals: Arrivals = "poisson", burstiness: float = 1.0
) -> list[int]:
    """Draw arrivals [ticks], ascending.

    `poisson`: gaps are drawn from a gamma law with mean 1 / rate and shape `burstiness`, as vLLM's
    benchmark does (`vllm bench serve --burstiness`): 1 is a Poisson process, less comes in bursts,
    infinity is constant. The first request comes after a gap. vLLM stretches the gaps so that the
    last request comes at requests / rate; here they are as drawn, and the rate of a sample is off
    by about its 1 / sqrt(requests burstiness). `constant`: request i comes at i / rate, exactly.
    `burst`: all at 0.

    >>> [t / TICKS for t in draw_arrivals(2, 3, seed=0, arrivals="constant")]
    [0.0, 0.5, 1.0]
    """
    import numpy as np

    check_choice(arrivals, ARRIVALS, "--arrivals")
    if not rate > 0:
        raise RooflmError(f"a rate of {rate:g} a second is not above 0", "--rate")
    if not (LEAST_BURSTINESS <= burstiness <= 1 / LEAST_BURSTINESS or burstiness == math.inf):
        what = f"a burstiness of {burstiness:g} is not between {LEAST_BURSTINESS:g} and "
        raise RooflmError(f"{what}{1 / LEAST_BURSTINESS:g}, or inf", "--burstiness")
    if arrivals != "poisson" and burstiness != 1:
        fix = "Leave it out, or say --arrivals poisson."
        what = f"a burstiness means nothing to requests that come {arrivals}"
        raise RooflmError(what, "--burstiness", fix)
    if arrivals in ("burst", "at-once") or rate == math.inf:
        return [0] * requests
    if requests / rate > LAST_ARRIVAL:
        what = f"{requests:,} requests at {rate:g} a second last longer than {LAST_ARRIVAL:.0e} s"
        raise RooflmError(what, "--rate", "Is it a slip?")
    if arrivals == "constant" or burstiness == math.inf:
        return spaced(1 / exact(rate), requests)
    gaps = _stream(seed, "arrivals").standard_gamma(burstiness, requests)
    times = np.cumsum(gaps) * (TICKS / rate / burstiness)
    return [int(t) for t in np.rint(times).tolist()]


def spaced(gap: Fraction, requests: int) -> list[int]:
    """Space requests evenly: i gaps [s] to the nearest tick, so that no error adds up."""
    return [round_half_even(i * gap.numerator * TICKS, gap.denominator) for i in range(requests)]


def closed_loop(
    clients: int, rounds: int, prompt: Lengths, output: Lengths, seed: int,
    think: float = 0.0, stagger: float = 0.0,
) -> Workload:  # fmt: skip
    """Make requests of clients that wait for an answer before they ask again.

    clients: that ask at once; rounds: requests of each; think: seconds between an answer and the
    next request; stagger: client k starts k stagger seconds late, 0: all start at once.
    """
    for value, option in ((clients, "--clients"), (rounds, "--rounds")):
        if value < 1:
            raise RooflmError(f"{value} is below 1", option)
    for value, option in ((think, "--think"), (stagger, "--stagger")):
        if not 0 <= value <= LAST_ARRIVAL / clients:
            raise RooflmError(f"{value:g} s is no time to wait", option)
    requests = clients * rounds
    _check_number(requests)
    start = f", each {stagger:g} s after the one before" if stagger else " at once"
    wait = f"{think:g} s after" if think else "as soon as"
    return Workload(
        arrival=spaced(exact(stagger), clients) + [-1] * (requests - clients),
        prompt=_drawn(prompt, requests, seed, "prompts"),
        output=_drawn(output, requests, seed, "outputs"),
        clients=clients,
        think=round(exact(think) * TICKS),
        told=(
            f"{clients:,} clients start{start} and send {rounds:,} requests each, the next "
            f"{wait} one has ended, seed {seed}"
            if clients > 1
            else f"1 client sends {rounds:,} requests, the next {wait} one has ended, seed {seed}",
            _said(prompt, output),
        ),
    )


def shared_prefix(workload: Workload, tokens: int, groups: int, seed: int) -> Workload:
    """Give each request one of some prefixes, as system prompts are shared.

    tokens: of a prefix, which are the first of the prompt and not in addition to it; groups: how
    many prefixes there are, each as likely as the others. A prompt that is not longer than a prefix
    shares all but its last token.
    """
    if tokens < 1 or groups < 1:
        raise RooflmError("a shared prefix has at least 1 token and 1 group", "--prefix")
    if workload.prefix:
        raise RooflmError("the requests have prefixes of their own already", "--prefix")
    drawn = _stream(seed, "prefixes").integers(0, groups, len(workload.prompt)).tolist()
    names = {k: f"prefix-{k}" for k in set(drawn)}
    own = [min(tokens, prompt - 1) for prompt in workload.prompt]
    cut = sum(n < tokens for n in own)
    said = f"the first {tokens:,} tokens of a prompt are one of {groups:,} prefixes"
    return replace(
        workload,
        prefix=[names[k] if n else "" for k, n in zip(drawn, own, strict=True)],
        prefix_tokens=own,
        told=(*workload.told, said + (f", fewer in {cut:,} short prompts" if cut else "")),
    )


def check(workload: Workload) -> None:
    """Raise `RooflmError` for requests that cannot be."""
    w, n = workload, len(workload.arrival)
    if not n:
        raise RooflmError("there are no requests", "requests")
    _check_number(n)
    optional: dict[str, Sequence[Any]] = {
        "priority": w.priority, "prefix": w.prefix, "prefix_tokens": w.prefix_tokens,
        "session": w.session,
    }  # fmt: skip
    for name, values in {"prompt": w.prompt, "output": w.output, **optional}.items():
        if len(values) != n and (values or name not in optional):
            raise RooflmError(f"{len(values):,} values for {n:,} requests", name)
    for name, values in (("prompt", w.prompt), ("output", w.output)):
        if not 1 <= min(values) <= max(values) <= LARGEST:
            raise RooflmError(f"a request has fewer than 1 or more than {LARGEST:.0e} tokens", name)
    if w.clients < 0 or w.think < 0:
        raise RooflmError("clients or the time they think are below 0", "clients")
    known = w.arrival[: w.clients] if w.clients else w.arrival
    if known[0] < 0 or not _ascending(known):
        raise RooflmError("arrivals do not ascend from 0 on", "arrival")
    if any(t != -1 for t in w.arrival[len(known) :]):
        what = "only the first request of each client of a closed loop has an arrival"
        raise RooflmError(what, "arrival")
    if len(w.prefix) != len(w.prefix_tokens):
        raise RooflmError("prefixes have names and tokens, or neither", "prefix")
    for name, tokens, prompt in zip(w.prefix, w.prefix_tokens, w.prompt, strict=False):
        if not 0 <= tokens <= prompt:
            what = f"a prefix of {tokens:,} tokens is longer than its prompt of {prompt:,}"
            raise RooflmError(what if tokens > 0 else "a prefix is shorter than 0", "prefix_tokens")
        if tokens and not name:
            raise RooflmError(f"a prefix of {tokens:,} tokens has no name", "prefix")


# Numbers


def exact(value: float) -> Fraction:
    """Take a float for the number that was typed: 0.1 is a tenth."""
    return Fraction(repr(float(value)))


def round_half_even(numerator: int, denominator: int) -> int:
    """Divide whole numbers to the nearest, ties to even: as `round` of a fraction, but faster.

    >>> [round_half_even(n, 2) for n in (1, 3, 5)]
    [0, 2, 2]
    """
    quotient, rest = divmod(numerator, denominator)
    twice = 2 * rest
    return quotient + (twice > denominator or (twice == denominator and quotient & 1 == 1))


def say_arrivals(rate: float, arrivals: Arrivals, burstiness: float = 1.0) -> str:
    """Say how requests come, after their number."""
    if arrivals in ("burst", "at-once") or rate == math.inf:
        return "come at once"
    pace = f"come at {show_number(rate)} a second"
    if arrivals == "constant" or burstiness == math.inf:
        return f"{pace}, evenly spaced"
    law = "Poisson" if burstiness == 1 else f"gamma gaps of shape {burstiness:g}"
    return f"{pace}, at random ({law})"


def _said(prompt: Lengths, output: Lengths) -> str:
    return (
        f"prompts of {prompt.text} tokens (mean {show_number(prompt.mean)}), "
        f"outputs of {output.text} (mean {show_number(output.mean)})"
    )


def _check_number(requests: int) -> None:
    if not 1 <= requests <= MOST_REQUESTS:
        what = f"{requests:,} requests are not between 1 and {MOST_REQUESTS:,}"
        raise RooflmError(what, "--requests")


def _stream(seed: int, name: Stream) -> np.random.Generator:
    """Take the stream of a seed that draws one thing."""
    import numpy as np

    if seed < 0:
        raise RooflmError(f"the seed {seed} is below 0", "--seed")
    children = np.random.SeedSequence(seed).spawn(len(_STREAMS))
    return np.random.default_rng(children[_STREAMS.index(name)])


def _drawn(law: Lengths, requests: int, seed: int, name: Stream) -> list[int]:
    return law.draw(requests, _stream(seed, name)).tolist()


def _ascending(values: list[int]) -> bool:
    return all(map(operator.le, values, islice(values, 1, None)))
