"""estimates: when groups that wait are to start, by what was learned of those that came before."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import Any, ClassVar, Final

import msgspec
import numpy as np
from pydantic import BaseModel

from kbatch.engine.decisions import StartEstimate
from kbatch.engine.plugin import Plugin, View
from kbatch.engine.plugins.estimates import line, runs, waits
from kbatch.engine.plugins.estimates.arguments import EstimatesArguments
from kbatch.engine.plugins.estimates.state import Known, Learned, Run, Told
from kbatch.engine.plugins.estimates.windows import Windows
from kbatch.model.expected import Expected, end_after
from kbatch.model.jobs import Job
from kbatch.resources import Resources
from kbatch.times import SECOND

_APART: Final = 30 * SECOND
"""What is foreseen is looked at again for groups that were told no sooner than this after the last time, and told again
when it has moved by more than this."""
_PART: Final = 10
"""And by more than such a part of what is left to wait."""
_MOST_RUNNING: Final = 50_000
_MOST_AMOUNT: Final = 1 << 62


class Estimates(Plugin):
    """Tells when groups that wait are to start. It learns, of groups that have ended, how long they ran over what was
    said of them (by queue, name without digits and size); with that it foresees who starts when, were all nodes one;
    and it learns, of groups that were told, how far that was from what came of it. It decides nothing, but that the
    room of pods of which nobody says how long they run is expected when such pods have ended before.

    `time` is the middle of what is known, `latest` what nine of ten stay within. The first `most` groups are told.
    """

    name: ClassVar[str] = "estimates"
    Arguments: ClassVar[type[BaseModel]] = EstimatesArguments
    State: ClassVar[type[msgspec.Struct] | None] = Known
    Lasting: ClassVar[type[msgspec.Struct] | None] = Learned
    wake_decides: ClassVar[bool] = False

    def __init__(self, arguments: EstimatesArguments, view: View) -> None:
        # Not the base's: nobody changes what is kept, so that it need not be copied.
        self.arguments: EstimatesArguments = arguments
        self.view = view
        kept = view.plugin_state(self.name)
        self.state: Known = kept if isinstance(kept, Known) else Known()
        learned = self.state.learned
        self._runs, self._waits = Windows(learned.runs), Windows(learned.waits)
        self._levels: dict[str, int] = learned.levels
        self._running = self.state.running
        self._told = self.state.told
        self._lined, self._moved = self.state.lined, self.state.moved
        self._anew: set[str] = set()
        self._lengths: dict[str, int | None] = {}
        self._planned: set[str] = set()
        self._expected = Expected(view.model, view.now)

    @classmethod
    def lasting(cls, state: Any) -> msgspec.Struct | None:
        """What was learned."""
        return state.learned if isinstance(state, Known) else None

    @classmethod
    def resumed(cls, lasting: Any) -> msgspec.Struct | None:
        """Nobody was told anything yet."""
        return Known(lasting) if isinstance(lasting, Learned) else None

    # --- what is learned ----------------------------------------------------------------------------------------------

    def prepare(self) -> Iterable[None]:
        """Take in which groups have come to nodes and which have ended since the cycle before."""
        if self.view.emptied:
            return
        model = self.view.model
        holders: dict[str, Job] = {}
        for queue in model.queues.values():
            holders.update(queue.holders)
        yield
        gone = [key for key in self._running if key not in holders]
        come = [key for key in holders if key not in self._running]
        if gone or (come and len(self._running) < _MOST_RUNNING):
            self._running, self._moved = dict(self._running), True
        for number, key in enumerate(gone, start=1):
            run = self._running.pop(key)
            job = model.jobs.get(key)
            # Who is not there any more, or waits again, was taken away: that says nothing of how long such groups run.
            if job is not None and not job.waiting and job.succeeded + job.failed:
                runs.learn(self._runs, _kinds(job, run.said), run.said, max(1, self.view.now - run.since))
            if not number % 100:
                yield
        for number, key in enumerate(come[: max(0, _MOST_RUNNING - len(self._running))], start=1):
            job = holders[key]
            if not job.orphan:
                since = job.started if job.started is not None else self.view.now
                self._running[key] = Run(min(since, self.view.now), self._said(job.tasks.values()))
            if not number % 100:
                yield
        self._settle()

    def _settle(self) -> None:
        """Take in who of those that were told has started meanwhile, is gone, or is late."""
        now, jobs = self.view.now, self.view.model.jobs
        for key, told in list(self._told.items()):
            job = jobs.get(key)
            if job is None or job.over:
                self._forget(key)
            elif job.whole():
                self._started(key, min(now, job.bound_since or now))
            elif told.heard and not told.late and told.latest < now:
                self._learn_level(told.queue, late=True)
                self._seen(told, (now - told.since) * 3 // 2)  # more than it is already, nobody knows by how much
                self._put(key, msgspec.structs.replace(told, late=True))

    def _started(self, key: str, at: int) -> None:
        told = self._told[key]
        self._forget(key)
        self._moved = True
        if not told.heard or at <= told.since:
            return  # nobody has heard when it starts
        self._seen(told, max(0, at - told.since))
        if not told.late:
            self._learn_level(told.queue, late=at > told.latest)

    def _seen(self, told: Told, waited: int) -> None:
        kinds = waits.kinds_of(told.queue, told.foreseen, planned=told.by_plan)
        waits.learn(self._waits, kinds, told.foreseen, waited)

    def _learn_level(self, queue: str, *, late: bool) -> None:
        level = waits.level_after(self._levels.get(queue, waits.LEVEL), late=late)
        self._levels = {**self._levels, queue: level}

    def _put(self, key: str, told: Told) -> None:
        if self._told is self.state.told:
            self._told = dict(self._told)
        self._told[key] = told

    def _forget(self, key: str) -> None:
        if self._told is self.state.told:
            self._told = dict(self._told)
        del self._told[key]

    def _said(self, tasks: Iterable[Any]) -> int | None:
        """For how long pods are said to run at most; None: of some nobody says anything."""
        lengths = [self._expected.length(task) for task in tasks]
        known = [length for length in lengths if length is not None]
        return max(known) if known and len(known) == len(lengths) else None

    def run_time(self, job: Job) -> int | None:
        """See the base class: of groups of which nobody says anything, by those that were like it."""
        if job.key not in self._lengths:
            run = self._running.get(job.key)
            ran = self.view.now - run.since if run is not None else 0
            self._lengths[job.key] = runs.length(self._runs, _kinds(job, None), None, ran)
        return self._lengths[job.key]

    # --- what is told -------------------------------------------------------------------------------------------------

    def starts(self) -> Generator[None, None, tuple[Mapping[str, StartEstimate], set[str]]]:
        """See the base class."""
        now = self.view.now
        placed = {job.key for job in self.view.live() if not job.missing()}
        new = False
        if len(self._told) < self.arguments.most:
            # Of the model and not of `live`: which groups a cycle looks at depends on what is remembered.
            for number, (key, job) in enumerate(self.view.model.live.items(), start=1):
                if key not in self._told and key not in placed and self._may_start(job):
                    new = True
                    break
                if not number % 500:
                    yield
        due = any(self._past(key, told, placed) for key, told in self._told.items())
        if new or due or (self._moved and self._told and now >= self._lined + _APART):
            live = (job for job in self.view.model.live.values() if job.key not in placed and self._may_start(job))
            line_of = nsmallest(self.arguments.most, live, key=lambda job: (-job.priority, job.created, job.key))
            yield
            bases = yield from self._bases(line_of)
            for job, base in zip(line_of, bases, strict=True):
                told = self._told.get(job.key)
                if told is None or not told.planned:
                    self._tell(job, base, planned=False)
            # Who may not start any more is told so once, and gives no reason to foresee anything.
            lined = {job.key for job in line_of}
            for key, told in list(self._told.items()):
                if key not in lined and not told.planned and self._past(key, told, placed):
                    self._tell(self.view.model.jobs[key], None, planned=False)
            self._lined, self._moved = now, False
        estimates = {key: told.estimate for key, told in self._told.items()}
        return {key: each for key, each in estimates.items() if each is not None}, self._anew

    def _past(self, key: str, told: Told, placed: Collection[str]) -> bool:
        """Whether a group was told to start by now that waits for its room."""
        return told.base is not None and told.time <= self.view.now and key not in placed

    def start_planned(self, job: Job, at: int) -> StartEstimate | None:
        """See the base class."""
        self._planned.add(job.key)
        self._tell(job, at, planned=True)
        return self._told[job.key].estimate

    def _tell(self, job: Job, base: int | None, *, planned: bool) -> None:
        """Tell a group when it starts, where it has not been told or something else."""
        now, told = self.view.now, self._told.get(job.key)
        if told is not None and not told.heard and base is not None:
            told = None
        elif told is not None and told.since == now and told.planned != planned:
            told = None  # nobody has heard it
        if told is not None and told.planned == planned and not self._moved_on(told, base):
            return
        if base is None:
            nothing = Told(job.queue, now, -1, now, False, planned, planned, None, now, now, now)
            self._say(job.key, nothing if told is None else msgspec.structs.replace(told, base=None, made=now))
            return
        wait = max(0, base - now)
        kinds = waits.kinds_of(job.queue, wait, planned=planned)
        middle, most = waits.told(self._waits, kinds, self._levels, job.queue, wait)
        if told is None:
            first = Told(job.queue, now, wait, now + most, False, planned, planned, base, now, now + middle, now + most)
            self._say(job.key, first)
            return
        middle = max(middle, _APART)  # what was told has passed, or has moved: not again at once
        again = msgspec.structs.replace(
            told, planned=planned, base=base, made=now, time=now + middle, until=now + max(middle, most)
        )
        self._say(job.key, again)

    def _say(self, key: str, told: Told) -> None:
        self._put(key, told)
        self._anew.add(key)

    def _moved_on(self, told: Told, base: int | None) -> bool:
        """Whether what is foreseen now is another thing than what was told."""
        if base is None or told.base is None:
            return base is not told.base
        now = self.view.now
        if told.time <= now:
            return True
        apart = abs(base - told.base)
        return apart > _APART and apart * _PART > told.time - now

    def _may_start(self, job: Job) -> bool:
        """Whether time alone may let the group start: it lacks nothing but room, as far as is known of all groups."""
        if job.asks_nothing or job.suspended_by or job.over or job.whole():
            return False
        queue = self.view.queues.get(job.queue)
        if queue is None or queue.record.queue is None or not queue.record.open:
            return False
        wants, capability = _wants(job), queue.record.capability or {}
        if not wants or any(amount > self.view.total.get(name, 0) for name, amount in wants.items()):
            return False
        least = (self.view.model.demand(job).least or {}) if capability else {}
        if any(amount > capability.get(name, amount) for name, amount in least.items()):
            return False
        there = job.holding + job.succeeded + len(job.waiting) + sum(some.count for some in job.to_come)
        return there >= job.minimum or bool(job.min_resources)

    def _bases(self, jobs: list[Job]) -> Generator[None, None, list[int | None]]:
        """When these would start, were all nodes one; None: not as far as anybody knows."""
        view, now = self.view, self.view.now
        wants = [_wants(job) for job in jobs]
        names = sorted({name for each in wants for name in each})
        if not names:
            return []

        def amounts(of: Resources) -> line.Amounts:
            return np.array([min(of.get(name, 0), _MOST_AMOUNT) for name in names], np.int64)

        free = {name: view.total.get(name, 0) for name in names}
        for queue in view.queues.values():
            for name in names:
                free[name] -= queue.allocated.get(name, 0)
        ends: list[tuple[int, line.Amounts]] = []
        for number, (key, run) in enumerate(self._running.items(), start=1):
            job = view.model.jobs.get(key)
            end = self._end(job, run) if job is not None else None
            if job is not None and end is not None:
                ends.append((end, amounts(job.bound)))
            if not number % 200:
                yield
        lengths = [self._length(job) for job in jobs]
        rows = np.array([amounts(each) for each in wants], np.int64).reshape(len(jobs), len(names))
        found = yield from line.starts(now, amounts(free), ends, rows, lengths)
        # Who would fit, and was told so before, waits for something else than room: of that nothing is known.
        return [
            None if at is not None and at <= now and job.key in self._told else at
            for job, at in zip(jobs, found, strict=True)
        ]  # fmt: skip

    def _end(self, job: Job, run: Run) -> int | None:
        """When a group that runs is expected to have ended: always after now."""
        length = runs.length(self._runs, _kinds(job, run.said), run.said, self.view.now - run.since)
        return None if length is None else end_after(run.since, length, self.view.now)

    def _length(self, job: Job) -> int | None:
        """For how long a group that waits would run."""
        said = self._said(job.waiting) if job.waiting else self._expected.of_group(job)
        return runs.length(self._runs, _kinds(job, said), said)

    # --- what lasts ---------------------------------------------------------------------------------------------------

    def left(self) -> Known:
        """All of it; who starts in this cycle has started now."""
        for job in self.view.live():
            if job.key in self._told and job.whole:
                self._started(job.key, self.view.now)
        for key in [key for key, told in self._told.items() if told.planned and key not in self._planned]:
            self._put(key, msgspec.structs.replace(self._told[key], planned=False))
            self._moved = True
        state, learned = self.state, self.state.learned
        runs_, waits_ = self._runs.all, self._waits.all
        if runs_ is not learned.runs or waits_ is not learned.waits or self._levels is not learned.levels:
            learned = Learned(runs_, waits_, self._levels)
        found = Known(learned, self._running, self._told, self._lined, self._moved)
        return state if _same(found, state) else found

    def wake(self) -> int | None:
        """When somebody is to be told something else, with all as it is."""
        self.left()
        now = self.view.now
        instants = [told.time for told in self._told.values() if told.base is not None]
        instants += [told.latest + 1 for told in self._told.values() if told.heard and not told.late]
        if self._moved and self._told:
            instants.append(self._lined + _APART)
        return min((instant for instant in instants if instant > now), default=None)


def _same(one: Known, other: Known) -> bool:
    """Whether the one is made of the very parts of the other."""
    same = one.learned is other.learned and one.running is other.running and one.told is other.told
    return same and (one.lined, one.moved) == (other.lined, other.moved)


def _kinds(job: Job, said: int | None) -> Sequence[str]:
    return runs.kinds_of(job.queue, job.name, job.minimum, said=said is not None)


def _wants(job: Job) -> Resources:
    """What the group lacks of what it asks for."""
    wants = dict(job.outstanding)
    if not job.roles or not wants:
        for name, amount in job.asked.items():
            wants[name] = max(amount, wants.get(name, 0))
    return wants
