"""Servers under live traffic: requests routed to them, and what they tell put together.

One server, replicas of it behind a router, or machines that compute prompts and hand their caches
to others that decode. A run ends when all requests are done, or is interrupted and keeps what it
has.
"""

from __future__ import annotations

import gc
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from .clock import ROWS, TICKS, WIDTH, Late, Limits, StepCost, Trace, new_trace
from .errors import RooflmError
from .scheduler import Server

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .workload import Workload

Routing = Literal["round-robin", "least-loaded", "prefix-aware"]
ROUTINGS: tuple[Routing, ...] = ("round-robin", "least-loaded", "prefix-aware")

COLUMNS = (
    "steps", "decoding", "late", "first_s", "rise_s", "prompt_tokens", "start_s", "free_units",
    "waiting", "held_tokens", "taken_units",
)  # fmt: skip
"""What is kept of the steps between two events, see `clock.WIDTH`."""


@dataclass(frozen=True)
class Pool:
    """Equal servers."""

    cost: StepCost
    limits: Limits
    servers: int = 1
    routing: Routing = "round-robin"
    reserve: str = ""
    """Caches are in one piece each, reserved in a way of `sharing_server.RESERVES`; paged if ""."""
    longest: int = 0
    """Tokens that a request may have at most, where that is reserved."""


@dataclass(frozen=True)
class Handing:
    """Machines that compute prompts, and how their caches go to those that decode."""

    prefill: Pool
    transfer: Callable[[int], int]
    """Ticks in which the cache of a prompt of so many tokens is sent; one at a time."""


@dataclass
class StepLog:
    """What a server told of its steps, in arrays."""

    parts: list[NDArray[np.float64]] = field(default_factory=list["NDArray[np.float64]"])
    late: list[NDArray[np.float64]] = field(default_factory=list["NDArray[np.float64]"])

    def record(self, rows: list[int], late: list[Late]) -> None:
        """Keep rows of steps as seconds and counts."""
        import numpy as np

        if rows:
            part = np.fromiter(rows, dtype=float, count=len(rows)).reshape(-1, WIDTH)
            part[:, (3, 4, 6)] /= float(TICKS)
            self.parts.append(part)
        if late:
            part = np.array(late, dtype=float)
            part[:, 1:] /= float(TICKS)
            self.late.append(part)

    def table(self) -> dict[str, NDArray[np.float64]]:
        """Put the columns together."""
        import numpy as np

        if len(self.parts) != 1:
            # Kept as one from now on: parts and whole together would be twice as much.
            whole = np.concatenate(self.parts) if self.parts else np.zeros((0, len(COLUMNS)))
            self.parts[:] = [whole]
        return dict(zip(COLUMNS, self.parts[0].T, strict=True))

    def late_tokens(self) -> NDArray[np.float64]:
        """List how many tokens came late, after what time, and when [s]."""
        import numpy as np

        return np.concatenate(self.late) if self.late else np.zeros((0, 3))


@dataclass
class Run:
    """What became of a workload."""

    workload: Workload
    arrival: list[int]
    """When each request came, those of clients included; -1 where it has not [ticks]."""
    trace: Trace
    steps: list[StepLog]
    """Of each server; those that compute prompts for others come last."""
    servers: list[Server]
    decoders: int
    """Servers that decode."""
    ready: list[int] | None = None
    """When each prompt was computed, where others do that [ticks]."""
    complete: bool = True
    """All requests are done; False after an interrupt."""

    @property
    def end(self) -> float:
        """When the last server stopped [s]."""
        return max(server.clock for server in self.servers) / TICKS


Tell = Callable[[int], None]
"""Told of how many requests are done."""


def run(
    workload: Workload, pool: Pool, handing: Handing | None = None, tell: Tell | None = None
) -> Run:
    """Serve a workload; an interrupt leaves what was done by then.

    pool: of the servers that decode, and compute prompts unless `handing` says who does; tell: told
    of the progress. Raises `RooflmError` for requests that can never be served.
    """
    _refuse_misfits(workload, pool, handing)
    requests = len(workload.prompt)
    arrival = list(workload.arrival)
    done = 0

    def progress() -> None:
        if tell is not None:
            tell(done)

    trace = new_trace(requests)
    made = Run(workload, arrival, trace, [], [], pool.servers)

    def noted(i: int, now: int) -> None:
        nonlocal done
        done += 1
        if workload.clients and i + workload.clients < requests:
            j = i + workload.clients
            arrival[j] = now + workload.think
            _submit(made, made.servers[j % workload.clients % pool.servers], j)

    ended = noted if workload.clients or tell is not None else None
    # Nothing in a run refers to itself: looking for that would walk over all requests again and
    # again.
    collects = gc.isenabled()
    gc.disable()
    try:
        if handing is None:
            _add(made, pool, trace, ended, progress)
            _serve(made, pool, arrival)
        else:
            _hand_over(made, pool, handing, ended, progress)
    except KeyboardInterrupt:
        made.complete = False
        if len(made.servers) < pool.servers:
            # Prompts were still computed elsewhere: nobody has got a token.
            trace.first[:] = trace.finish[:] = [-1] * requests
            made.servers, made.steps, made.ready = [], [], None
            _add(made, pool, trace, None, progress)
    finally:
        if collects:
            gc.enable()
    for server in made.servers:
        server.flush()
    return made


def _add(
    made: Run, pool: Pool, trace: Trace, ended: Callable[[int, int], None] | None,
    progress: Callable[[], None],
) -> None:  # fmt: skip
    """Start the servers of a pool."""
    for _ in range(pool.servers):
        steps = StepLog()

        def record(rows: list[int], late: list[Late], steps: StepLog = steps) -> None:
            steps.record(rows, late)
            if len(rows) >= ROWS * WIDTH:
                progress()

        server = _server(made.workload, pool)(
            pool.cost, pool.limits, trace, record=record, ended=ended,
            ranked=bool(made.workload.priority),
        )  # fmt: skip
        made.steps.append(steps)
        made.servers.append(server)


def _server(workload: Workload, pool: Pool) -> Callable[..., Server]:
    """Choose the server whose caches are as they are asked for."""
    from .sharing_server import ReservingServer, SharingServer, keys_of, reserved_tokens

    if pool.reserve and (any(workload.prefix) or any(workload.session)):
        what = "caches in one piece share nothing"
        raise RooflmError(what, "--contiguous", "Leave out one of the options.")
    if pool.reserve:

        def size_of(prompt: int, output: int) -> int:
            return reserved_tokens(pool.reserve, prompt, output, pool.longest)

        return partial(ReservingServer, size_of=size_of)
    if any(workload.prefix) or any(workload.session):
        limits = pool.limits
        if not limits.whole_blocks:
            what = "prefixes are shared where all layers keep all tokens; this model's do not"
            raise RooflmError(what, "--prefix", "Leave it out.")
        if limits.swap or limits.first == "static":
            option = "--swap" if limits.swap else "--scheduler"
            raise RooflmError("caches that are shared are not simulated with it", option)
        return partial(SharingServer, keys=keys_of(workload, limits.block))
    return Server


def _submit(
    made: Run, server: Server, i: int, arrival: int | None = None, generated: int = 0
) -> None:
    work = made.workload
    priority = work.priority[i] if work.priority else 0
    came = made.arrival[i] if arrival is None else arrival
    server.submit(i, came, work.prompt[i], work.output[i], priority, generated)


def _serve(made: Run, pool: Pool, arrival: Sequence[int]) -> None:
    """Route the requests to servers, and let these run."""
    work, servers = made.workload, made.servers
    opening = range(len(arrival)) if not work.clients else range(min(work.clients, len(arrival)))
    if pool.servers == 1 and not work.clients and not work.priority:
        servers[0].submit_all(arrival, work.prompt, work.output)
    elif pool.servers == 1 or pool.routing == "round-robin":
        for i in opening:
            _submit(made, servers[i % pool.servers], i)
    else:
        for i in opening:
            for server in servers:
                server.advance(arrival[i])
            _submit(made, _choose(servers, pool.routing, i, work.prompt[i]), i)
    for server in servers:
        server.advance()


def _choose(servers: Sequence[Server], routing: Routing, i: int, prompt: int) -> Server:
    """Choose a server for a request.

    least-loaded: the fewest requests. prefix-aware: the longest beginning of its prompt in a cache,
    of the servers with no more than `CROWDED` times the fewest requests and a few.
    """
    from .sharing_server import SharingServer

    least = min(server.load for server in servers)
    if routing == "prefix-aware":
        near = [s for s in servers if s.load <= CROWDED * least + FEW]

        def rank(server: Server) -> tuple[int, int]:
            shares = isinstance(server, SharingServer)
            return (-server.found_in(i, prompt) if shares else 0, server.load)

        return min(near, key=rank)
    return min(servers, key=lambda s: s.load)


CROWDED = 1.5
FEW = 4
"""A server with more than so many times the fewest requests, and so many more, is not chosen for
what it has in its cache."""


def _hand_over(
    made: Run, pool: Pool, handing: Handing, ended: Callable[[int, int], None] | None,
    progress: Callable[[], None],
) -> None:  # fmt: skip
    """Compute all prompts on machines of their own, send the caches, and decode."""
    from .workload import Workload

    work, requests = made.workload, len(made.workload.prompt)
    first = Workload(
        work.arrival, work.prompt, [1] * requests, work.priority, work.prefix, work.prefix_tokens,
        work.session,
    )  # fmt: skip
    prompts = Run(first, made.arrival, made.trace, [], [], 0)
    before = handing.prefill
    _add(prompts, before, made.trace, None, progress)
    _serve(prompts, before, made.arrival)
    made.ready = list(made.trace.finish)
    # The caches go over one link, one after the other, in the order in which they are ready.
    free = 0
    order = sorted(range(requests), key=lambda i: made.trace.finish[i])
    for i in order:
        ready = made.trace.finish[i]
        free = max(free, ready) + handing.transfer(work.prompt[i])
        made.trace.first[i] = free
        made.trace.finish[i] = -1
    # What was computed elsewhere is not shared here.
    made.workload = replace(work, prefix=[], prefix_tokens=[], session=[])
    _add(made, pool, made.trace, ended, progress)
    made.workload = work
    waits = sorted(order, key=lambda i: made.trace.first[i])
    for turn, i in enumerate(waits):
        server = made.servers[turn % pool.servers]
        if pool.routing != "round-robin":
            for one in made.servers:
                one.advance(made.trace.first[i])
            server = min(made.servers, key=lambda s: s.load)
        if work.output[i] == 1:
            made.trace.finish[i] = made.trace.first[i]
            if ended is not None:
                ended(i, made.trace.first[i])
            continue
        _submit(made, server, i, made.trace.first[i], generated=1)
    for server in made.servers:
        server.advance()
    made.servers += prompts.servers
    made.steps += prompts.steps


def _refuse_misfits(workload: Workload, pool: Pool, handing: Handing | None) -> None:
    """Raise `RooflmError` for what can never be served."""
    from .sharing_server import reserved_tokens

    if not workload.prompt:
        raise RooflmError("there are no requests", "--requests", "Say --requests 2000.")
    if workload.clients and handing is not None:
        what = "clients that wait for their answers are not simulated where caches are handed over"
        raise RooflmError(what, "--clients", "Say --rate.")
    if workload.clients and pool.routing != "round-robin" and pool.servers > 1:
        what = "clients that wait for their answers stay with one server"
        raise RooflmError(what, "--routing-policy", "Leave it out, or say --rate.")
    one = Server(pool.cost, pool.limits, new_trace(0))
    room = pool.limits.pool - pool.limits.watermark
    # What a request takes grows with its tokens: where the longest fits, all do.
    wholes = list(map(operator.add, workload.prompt, workload.output))
    longest = max(wholes)
    if handing is not None:
        before = handing.prefill
        need = Server(before.cost, before.limits, new_trace(0)).hold(max(workload.prompt))
        if need > before.limits.pool - before.limits.watermark:
            held = f"a prompt of {max(workload.prompt):,} tokens"
            what = f"{held} never fits where prompts are computed"
            raise RooflmError(what, "--prefill-on", "Take a larger machine, or shorter prompts.")
    i = wholes.index(longest)
    prompt, output = workload.prompt[i], workload.output[i]
    need = one.hold(longest - (pool.limits.first != "static"))
    if pool.reserve:
        need = max(reserved_tokens(pool.reserve, prompt, output, pool.longest), longest - 1)
        room = min(room, pool.longest)
    if need > room:
        held = f"{prompt:,} tokens of prompt and {output:,} of output"
        what = f"request {i + 1} ({held}) never fits: it takes {need:,} of {room:,} units"
        if pool.reserve == "longest" and longest > pool.longest:
            fix = "Say a longer --max-len."
            raise RooflmError(what, "--max-len", fix)
        raise RooflmError(what, "--prompt", "Take shorter requests, or more memory.")
