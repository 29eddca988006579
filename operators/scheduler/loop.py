"""The scheduling loop: wait until something could be decided, run a cycle, hand out what it decides.

Driven by events, with a gap between two cycles so that a burst of events makes one cycle; otherwise asleep until an
unchanged cluster could be decided otherwise, or for the schedule period. The event loop gets a turn whenever a few
milliseconds have gone into a cycle: binds go out, and the Lease is renewed, while it is still at work. The same goes
for what follows a cycle: telling how the groups stand, and catching up with what has happened meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol

from kbatch.engine import (
    CycleState,
    GroupError,
    Memo,
    Outcome,
    Policy,
    QueueStanding,
    Report,
    Snapshot,
    Step,
    Transaction,
    Verdict,
    cycle,
    take_snapshot,
)
from kbatch.engine.decisions import Observer
from kbatch.metrics import SchedulerMetrics
from kbatch.times import SECOND
from operators.scheduler.cache import Cache
from operators.scheduler.packed import Packed
from operators.scheduler.standing import Standing
from operators.scheduler.story import Story

_log = logging.getLogger(__name__)

TURN_SECONDS: Final = 0.01
"""A cycle that yields nothing to carry out lets go of the event loop after so long."""

SHORT_SECONDS: Final = 0.002
"""The same after a transaction, so that its binds go out; many small ones share a turn of the loop."""

CROWDED_SECONDS: Final = 0.25
"""The gap while decisions wait to be carried out anyway: the processor is then the binds'. For so long a cycle that
decides more than can be sent goes no faster than that: the next one would not begin sooner."""

SHARE: Final = 3
CROWDED_SHARE: Final = 8
"""A cycle begins no sooner than so many times what the last one took after its start, the second while decisions wait:
what a long one leaves of a processor is for binds and watches."""

QUIET_SECONDS: Final = 1.0
"""News that no decision waits for begin a cycle after about so long, however long the period is."""

LONGEST_PAUSE: Final = 2.0
"""But no more seconds than this after its end."""

WRONG: Final = 5 * SECOND
"""A clock that is set back by more than this was wrong before."""

LONGEST_REST: Final = 10.0
"""After cycles that failed one after the other, the wait grows up to this."""

LEAST_REST: Final = 0.05
"""It begins with no less than this, and that much is left after the end of a failed cycle, however long that took."""

Decide = Callable[[Snapshot, Policy, Memo, Observer], Generator[Step, None, Outcome]]


class Hands(Protocol):
    """Who carries decisions out (`kbatch`'s is the `Dispatcher`)."""

    def submit(self, transaction: Transaction) -> bool:
        """Begin to carry it out; False where that has to wait."""

    def paused_until(self) -> float | None:
        """When what had to wait may be submitted again, on the monotonic clock."""

    def crowded(self) -> bool:
        """Whether so much waits to be carried out that deciding more now would start nothing sooner."""

    async def relieved(self) -> None:
        """Return when little of it waits."""


class Scheduler:
    """Runs cycles until it is told to stop.

    Args:
        cache: what to decide on.
        policy: gives the policy in force; asked before each cycle.
        hands: get each transaction at once.
        report: gets a cycle's verdict on each group, by the group's key in the model; goes over them in pieces.
        gap: seconds between the starts of two cycles, at least.
        failed: told of each error that left a group out.
        queues: told what a cycle says of queues, by name, where that is anything new.
        starts: told at which instant (microseconds) a cycle was, what it said of groups, and of which it plans when
            they start.
        left: told what a cycle has left to the next, and by which policy.
        begin: with what cycles go on that are the first under a policy.
        period: seconds after which a cycle runs though nothing has happened.
        decide: the engine.
    """

    def __init__(
        self,
        cache: Cache,
        policy: Callable[[], Policy],
        hands: Hands,
        report: Callable[[Report], Iterable[None]],
        *,
        metrics: SchedulerMetrics,
        gap: float = 0.05,
        period: float = 1.0,
        decide: Decide = cycle,
        failed: Callable[[GroupError], None] = lambda _: None,
        queues: Callable[[Mapping[str, QueueStanding]], None] = lambda _: None,
        starts: Callable[[int, Report, Mapping[str, int | None]], None] = lambda _now, _report, _planned: None,
        left: Callable[[CycleState, Policy], None] = lambda _state, _policy: None,
        begin: Callable[[CycleState, Policy], CycleState] = lambda state, _policy: state,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.cycles = 0
        """How many have ended well."""
        self._cache = cache
        self._policy = policy
        self._hands = hands
        self._report = report
        self._metrics = metrics
        self._gap = gap
        self._period = period
        self._decide = decide
        self._failed = failed
        self._queues = queues
        self._starts = starts
        self._left = left
        self._begin = begin
        self._under: Policy | None = None
        self._wall = wall
        self._now = 0
        self._memo, self._state = Memo(), CycleState()
        self._spent = 0.0
        self._failures = 0
        self._why = ""
        self._started = 0
        self._story = Story()
        self._standing = Standing(cache.model, metrics, wall)
        self._packed = Packed(metrics)

    @property
    def state(self) -> CycleState:
        """What the last cycle has left to the next."""
        return self._state

    def resume(self, state: CycleState) -> None:
        """Go on from this state, before the first cycle."""
        self._state = state

    def failing(self) -> str | None:
        """What is wrong with the last cycle, for health; None if it went well."""
        return f"the last {self._failures} cycles failed: {self._why}" if self._failures else None

    async def run(self, stopping: asyncio.Event) -> None:
        """Decide until `stopping` is set. An exception of the engine ends its cycle, never the loop."""
        self._cache.changed.set()  # the first cycle does not wait for an event
        wake: float | None = None
        while not stopping.is_set():
            if not await self._something(stopping, wake):
                return
            await self._cache.caught_up()
            began = time.monotonic()
            self._cache.changed.clear()
            self._cache.stirred = False
            try:
                wake = await self.cycle()
                self._failures = 0
            except Exception as error:  # noqa: BLE001 - see above: the loop outlives the engine's mistakes
                self._failures += 1
                self._metrics.failures.inc()
                self._why = f"{type(error).__name__}: {error}"
                _log.exception("cycle failed, %d in a row", self._failures)
                self._memo = Memo()
                wake = None
                self._cache.changed.set()  # what it was begun for has not been decided; `_rest` sees to the pace
            await self._rest(stopping, began)

    async def _rest(self, stopping: asyncio.Event, began: float) -> None:
        """Wait until the next cycle may begin."""
        if self._failures:
            rest = min(LONGEST_REST, max(self._gap, LEAST_REST) * 2 ** min(self._failures, 12))
            rest = crowded = max(rest, time.monotonic() - began + LEAST_REST)
        else:
            rest = max(self._gap, min(SHARE * self._spent, self._spent + LONGEST_PAUSE))
            crowded = max(CROWDED_SECONDS, rest, min(CROWDED_SHARE * self._spent, self._spent + LONGEST_PAUSE))
        while not stopping.is_set():
            left = began + rest - time.monotonic()
            if left <= 0 and self._hands.crowded():
                left = min(self._gap, began + crowded - time.monotonic())
            if left <= 0:
                return
            await _sleep(stopping, left)

    async def _something(self, stopping: asyncio.Event, wake: float | None) -> bool:
        """Wait for news, the instant `wake` (microseconds) or the period; False when it is time to stop."""
        seconds = self._period
        if wake is not None:
            seconds = min(seconds, max(0.0, wake / SECOND - self._wall()))
        paused = self._hands.paused_until()
        if paused is not None:
            seconds = min(seconds, max(0.0, paused - time.monotonic()))
        changed = asyncio.ensure_future(self._cache.changed.wait())
        stop = asyncio.ensure_future(stopping.wait())
        until = time.monotonic() + seconds
        try:
            while not (changed.done() or stop.done()):
                left = min(until - time.monotonic(), QUIET_SECONDS)
                await asyncio.wait({changed, stop}, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED)
                if self._cache.stirred or time.monotonic() >= until:
                    break
        finally:
            changed.cancel()
            stop.cancel()
        return not stopping.is_set()

    async def cycle(self) -> int | None:
        """One cycle; when (microseconds) an unchanged cluster should be looked at again, None for never."""
        self._tell_time()
        policy = self._policy()
        if policy is not self._under:
            self._state, self._under = self._begin(self._state, policy), policy
        verdicts: dict[str, Verdict] = {}
        transactions: list[Transaction] = []
        at_ease = time.monotonic() + CROWDED_SECONDS
        with _uncollected(), self._cache.held() as model:
            slices = _Slices(self._metrics)
            deciding = self._decide(
                take_snapshot(model, self._now, self._state), policy, self._memo, _Spans(self._metrics, slices)
            )
            self._started += 1  # not before there is a snapshot: the decision log counts what the engine is asked
            number = self._started
            try:
                with contextlib.closing(deciding):
                    while True:
                        item = _next(deciding)
                        if isinstance(item, Verdict):
                            verdicts[item.job or item.group] = item
                        elif isinstance(item, Transaction) and self._hands.submit(item):
                            self._decided(item)
                            transactions.append(item)
                        if isinstance(item, Outcome):
                            break
                        if isinstance(item, Transaction) and self._hands.crowded():
                            await slices.let_go(self._relieved(at_ease))
                        await slices.turn(SHORT_SECONDS if isinstance(item, Transaction) else TURN_SECONDS)
            except BaseException:
                self._story.decided(number, transactions)  # they are being carried out all the same
                raise
            self._spent = slices.end()
            self._metrics.cycle.observe(self._spent)
            report = Report(verdicts, item.whole, item.gone)
            self._story.tell(number, transactions, report)
            self._memo, self._state = item.memo, item.state
            self._left(item.state, policy)
            self._starts(self._now, report, item.planned)
            self.cycles += 1
            if transactions:
                self._cache.changed.set()  # what follows from them; that they are confirmed is no news
            self._standing.take(self._now, report)
            placed = {one.group for one in transactions if one.binds}
            self._standing.attempted(report, placed, item.errors)
            for error in item.errors:
                self._metrics.group_errors.labels(error.phase).inc()
                self._failed(error)
            if item.queues is not None:
                self._queues(item.queues)
            for _ in self._report(report):
                await slices.turn(TURN_SECONDS)
            for _ in self._packed.look(model):
                await slices.turn(TURN_SECONDS)
            for _ in self._cache.catching_up():
                await slices.turn(TURN_SECONDS)
        return item.next_wake

    async def _relieved(self, until: float) -> None:
        """Let what is decided be carried out, until little of it waits or that time of the monotonic clock."""
        left = until - time.monotonic()
        if left > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._hands.relieved()

    def _tell_time(self) -> None:
        """The engine's time does not step back with the wall clock, unless that was far ahead: then it was wrong.

        Objects get their times from clocks that are right: judged by a wrong one, all that waits for a time would be
        late at once.
        """
        wall = int(self._wall() * SECOND)
        if wall < self._now - WRONG:
            _log.warning("the clock was set back by %.0f s", (self._now - wall) / SECOND)
            self._memo = Memo()  # it may know of times to wait for that are far away now
            self._now = wall
        else:
            self._now = max(self._now, wall)

    def _decided(self, transaction: Transaction) -> None:
        counter = self._metrics.decisions
        if transaction.binds:
            counter.labels("bind").inc(len(transaction.binds))
        if transaction.evictions:
            counter.labels("evict").inc(len(transaction.evictions))
        for nomination in transaction.nominations:
            counter.labels("nominate" if nomination.node else "withdraw").inc()


class _Slices:
    """The stretches of a cycle between which the event loop has its turns, timed. `others` is what those took."""

    def __init__(self, metrics: SchedulerMetrics) -> None:
        self.others = 0.0
        self._metrics = metrics
        self._spent = 0.0
        self._began = time.perf_counter()

    async def turn(self, seconds: float) -> None:
        """Give the event loop a turn, if the last one is longer ago than this."""
        if time.perf_counter() - self._began > seconds:
            await self.let_go(asyncio.sleep(0))

    async def let_go(self, until: Awaitable[None]) -> None:
        """Leave the event loop to others until then."""
        self.end()
        let_go = self._began
        await until
        self._began = time.perf_counter()
        self.others += self._began - let_go

    def end(self) -> float:
        """A slice ends here; the seconds of all so far."""
        now = time.perf_counter()
        self._metrics.slice.observe(now - self._began)
        self._spent += now - self._began
        self._began = now
        return self._spent


class _Spans:
    """Times the parts of a cycle into a histogram, without what others did while the cycle had let go."""

    def __init__(self, metrics: SchedulerMetrics, slices: _Slices) -> None:
        self._slices = slices
        self._metrics = metrics

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        began, others = time.perf_counter(), self._slices.others
        try:
            yield
        finally:
            seconds = time.perf_counter() - began - (self._slices.others - others)
            self._metrics.span.labels(name).observe(max(0.0, seconds))


@contextmanager
def _uncollected() -> Iterator[None]:
    """Let the garbage collector wait: it would look at all that a cycle has made, which may take longer than a slice.

    A cycle leaves nothing to collect: what it has made is gone when it ends.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _next(deciding: Generator[Step, None, Outcome]) -> Step | Outcome:
    """What the generator gives next, its return value included."""
    try:
        return next(deciding)
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome


async def _sleep(stopping: asyncio.Event, seconds: float) -> None:
    if seconds > 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await stopping.wait()
