"""What decides who may come in queue: the room, shares, caps and quotas that are left beside what others were promised.

Asked of one group (`of`), or of all rows of the backlog at once (`of_rows`): the same comparisons. While groups come in
queue the sums only shrink, so that whoever was refused in a cycle stays so until its end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from kbatch.engine.admission.demand import Quotas
from kbatch.engine.admission.weaker import Weaker
from kbatch.engine.carryover.backlog import MOST, Backlog, Entry, Index, Standing
from kbatch.engine.carryover.giving import Giving
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.session.guarding import attempt, working
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.queues import QueueState
from kbatch.model.quota import Excess
from kbatch.resources import Resources, add_to

Standings = npt.NDArray[np.int8]

_LIMIT: Final = MOST - 1
"""No more than this is said to be left: it is less than the most that a column holds, and twice of it fits beside."""


class Sums:
    """One run of `enqueue`: what is left, and what groups in queue have coming (`promised`, in all and by queue)."""

    def __init__(self, context: CycleContext) -> None:
        session = self._session = context.session
        self._feasibility = context.feasibility
        self.room = session.usable()
        self.promised: Resources = {}
        self.by_queue: dict[str, Resources] = {}
        self.quotas = Quotas(session)
        self.weaker = Weaker(session, context.backlog.levels)
        self.reclaims = session.policy.has("reclaim")
        self.preempts = session.policy.has("preempt")

    def promise(self, queue: str, kept: Mapping[str, int]) -> None:
        """A group of this queue is in queue: so much more is kept from others."""
        add_to(self.promised, kept)
        add_to(self.by_queue.setdefault(queue, {}), kept)

    # --- one group ----------------------------------------------------------------------------------------------------

    def of(self, entry: Entry) -> Generator[Turn, None, Standing]:
        """What keeps a group out; `SENT_BACK` and ageing are no sums."""
        if entry.fixed is not None:
            return Standing.FIXED
        session, least = self._session, entry.least
        queue = session.queue(entry.job.queue)
        if self.over_capability(entry, queue) is not None:
            return Standing.CAPABILITY
        if self.over_quota(entry) is not None:
            return Standing.QUOTA
        job = session.job(entry.job.key)
        if session.admission(job, entry.kept) is not None:
            return Standing.LIMITED
        if self._feasibility.hopeless(job):
            return Standing.HOPELESS
        if entry.stated and any(amount > session.total.get(name, 0) for name, amount in least.items()):
            return Standing.TOO_LARGE
        if entry.strict and entry.triable and not (yield from self._feasibility.attempting(job)).fits:
            return Standing.UNFIT
        if self.short(least, {}) is None:
            return Standing.PASSES
        beyond = self.beyond(queue, least)
        if self.reclaims and beyond is None and self.out_of_reach(queue, least) is None:
            return Standing.PASSES
        if self.preempts and self.short(least, self.weaker.of(entry.giving)) is None:
            return Standing.PASSES
        if entry.triable and not (yield from self._feasibility.attempting(job)).fits:
            return Standing.UNFIT
        if self.reclaims and beyond is not None and least[beyond] > queue.deserved.get(beyond, 0):
            return Standing.BEYOND_SHARE
        return Standing.WAITING

    def over_quota(self, entry: Entry) -> Excess | None:
        """The first limit of a quota of its namespace that it would pass."""
        job = entry.job
        return self.quotas.exceeded(self.quotas.asked_of(job)) if self.quotas.of(job.namespace) else None

    def over_capability(self, entry: Entry, queue: QueueState) -> str | None:
        """In which dimension it would pass its queue's hard cap, with what could be freed for it gone."""
        capability = queue.record.capability
        if not capability:
            return None
        promised = self.by_queue.get(queue.name, {})
        freed: Resources | None = None
        for name in sorted(entry.least):
            hard, amount = capability.get(name), entry.least[name]
            if hard is None or not amount:
                continue
            over = queue.allocated.get(name, 0) + promised.get(name, 0) + amount - hard
            if over > 0:
                freed = self._freed(entry.giving) if freed is None else freed
                if over > freed.get(name, 0):
                    return name
        return None

    def short(self, least: Mapping[str, int], more: Mapping[str, int]) -> str | None:
        """A dimension in which the room less what is promised, and `more`, is not enough."""
        found: str | None = None
        room, promised = self.room, self.promised
        for name, amount in least.items():
            if amount > 0 and amount > room.get(name, 0) - promised.get(name, 0) + more.get(name, 0):
                found = name if found is None or name < found else found
        return found

    def free(self, name: str) -> int:
        """The room of a dimension less what is promised; below 0 where more is promised than there is."""
        return self.room.get(name, 0) - self.promised.get(name, 0)

    def beyond(self, queue: QueueState, least: Mapping[str, int]) -> str | None:
        """The first dimension in which the queue's share, less what it holds and was promised, is not enough."""
        promised = self.by_queue.get(queue.name, {})
        for name in sorted(least):
            left = queue.deserved.get(name, 0) - queue.allocated.get(name, 0) - promised.get(name, 0)
            if least[name] > max(0, left):
                return name
        return None

    def out_of_reach(self, queue: QueueState, least: Mapping[str, int]) -> str | None:
        """The first dimension in which all the room, with what other queues could give up, would not hold the group
        beside what its own queue was promised. What others were promised beyond their shares keeps no room from it.
        """
        names = sorted(least)
        reach = zip(names, self._within_reach(queue, names), strict=True)
        return next((name for name, most in reach if least[name] > max(0, most)), None)

    # --- all rows -----------------------------------------------------------------------------------------------------

    def of_rows(self, backlog: Backlog, rows: Index) -> Generator[Turn, None, Standings]:
        """`of`, for these rows of the backlog; `SENT_BACK` where only the time keeps a group out.

        A group for which that raises is in the session's `failed` then, and what is said of it means nothing.
        """
        session = self._session
        names = sorted(backlog.least)
        # A dimension to a line: to compare many rows line by line takes a fourth of the time that it takes row by row.
        least = np.stack([backlog.least[name][rows] for name in names]) if names else np.zeros((0, len(rows)), np.int64)
        queues = [session.queues.get(name) if name is not None else None for name in backlog.queues]
        queue = backlog.queue[rows]
        giving = backlog.giving[rows]
        found: Standings = np.full(len(rows), Standing.WAITING, np.int8)
        share = _table(
            [
                [
                    each.deserved.get(name, 0) - each.allocated.get(name, 0) - self._promised(each, name)
                    if each is not None else 0
                    for name in names
                ]
                for each in queues
            ]
        )  # fmt: skip
        free = np.array([[_clip(self.free(name))] for name in names], np.int64).reshape(len(names), 1)
        gives = list(map(self._freed, backlog.givings)) or [{}]
        freed = backlog.freed.table(names, gives, lambda each: [_clip(each.get(name, 0)) for name in names])
        yield TURN
        beyond = least > np.maximum(share.T, 0)[:, queue]
        if self.reclaims:
            deserved = _table(
                [[each.deserved.get(name, 0) if each is not None else 0 for name in names] for each in queues]
            )
            first = np.argmax(beyond, axis=0) if names else np.zeros(len(rows), np.intp)
            at = np.arange(len(rows))
            past = beyond.any(axis=0) & (least[first, at] > deserved[queue, first]) if names else beyond.any(axis=0)
            found[past] = Standing.BEYOND_SHARE
        passes = (least <= np.maximum(free, 0)).all(axis=0)
        if self.reclaims:
            within = ~beyond.any(axis=0)
            if (within & ~passes).any():
                reach = _table([self._within_reach(each, names) for each in queues])
                within &= (least <= np.maximum(reach.T, 0)[:, queue]).all(axis=0)
            passes |= within
        if self.preempts:
            passes |= (least <= np.maximum(free + freed.T, 0)[:, giving]).all(axis=0)
        yield TURN
        strict = backlog.strict[rows]
        tried = rows[(strict | ~passes) & backlog.triable[rows] & ~backlog.fixed[rows]]
        yield from self._find_out(backlog, tried, backlog.unfit, self._is_unfit, 20)
        unfit = backlog.triable[rows] & (backlog.unfit[backlog.shape[rows]] == 1)
        found[unfit] = Standing.UNFIT
        passes &= ~(strict & unfit)
        found[passes] = Standing.PASSES
        found[passes & (backlog.back[rows] > session.now)] = Standing.SENT_BACK
        total = np.array([[_clip(session.total.get(name, 0))] for name in names], np.int64).reshape(len(names), 1)
        found[backlog.stated[rows] & (least > total).any(axis=0)] = Standing.TOO_LARGE
        yield from self._find_out(backlog, rows[~backlog.fixed[rows]], backlog.hopeless, self._is_hopeless, 5)
        found[backlog.hopeless[backlog.shape[rows]] == 1] = Standing.HOPELESS
        if len(backlog.limits):
            found[self._limited(backlog, rows)] = Standing.LIMITED
            yield TURN
        asked = yield from self._over_quota(backlog, rows)
        if asked is not None:
            found[asked] = Standing.QUOTA
        over = self._over(backlog, names, queues)
        if over is not None:
            left = over.T[:, queue]
            beyond = (least > left + freed.T[:, giving]) & (left < _LIMIT) & (least > 0)
            found[beyond.any(axis=0)] = Standing.CAPABILITY
        found[backlog.fixed[rows]] = Standing.FIXED
        return found

    def _limited(self, backlog: Backlog, rows: Index) -> npt.NDArray[np.bool_]:
        """Which of the rows plugins keep out of the queue: they are asked once for all that are alike to them."""
        session = self._session
        numbers, first = np.unique(backlog.limit[rows], return_index=True)
        out = np.zeros(len(backlog.limits) + 1, np.bool_)  # the last is of those that nobody limits: its number is -1
        for number, row in zip(numbers.tolist(), rows[first].tolist(), strict=True):
            if number >= 0:
                entry = backlog.entry(row)
                job = session.job(entry.job.key)
                out[number] = attempt(session, job, partial(session.admission, job, entry.kept), None) is not None
        found: npt.NDArray[np.bool_] = out[backlog.limit[rows]]
        return found

    def _within_reach(self, queue: QueueState | None, names: list[str]) -> list[int]:
        """The most that groups of a queue could get, of the room and from other queues: see `out_of_reach`."""
        if queue is None:
            return [0] * len(names)
        given = self.weaker.reclaimable(queue.name)
        return [self.room.get(name, 0) - self._promised(queue, name) + given.get(name, 0) for name in names]

    def _promised(self, queue: QueueState, name: str) -> int:
        promised = self.by_queue.get(queue.name)
        return promised.get(name, 0) if promised else 0

    def _freed(self, giving: Giving | None) -> Resources:
        """What could be freed for such a group by those that matter less, where they may be evicted for it."""
        return self.weaker.of(giving) if giving is not None and self.preempts else {}

    def _over(
        self, backlog: Backlog, names: list[str], queues: list[QueueState | None]
    ) -> npt.NDArray[np.int64] | None:
        """By queue and dimension what is left of the hard cap; None where no queue has one."""
        if not any(queue is not None and queue.record.capability for queue in queues):
            return None
        return _table(
            [
                [
                    queue.record.capability[name] - queue.allocated.get(name, 0) - self._promised(queue, name)
                    if queue is not None and queue.record.capability and name in queue.record.capability else _LIMIT
                    for name in names
                ]
                for queue in queues
            ]
        )  # fmt: skip

    def _over_quota(self, backlog: Backlog, rows: Index) -> Generator[Turn, None, npt.NDArray[np.bool_] | None]:
        """Which of the rows would pass a quota; None where there are no quotas."""
        limited = np.array([name is not None and bool(self.quotas.of(name)) for name in backlog.namespaces], np.bool_)
        if not limited.any():
            return None
        those = np.flatnonzero(limited[backlog.namespace[rows]])
        for row in rows[those][backlog.quota[rows[those]] < 0].tolist():
            backlog.quota[row] = backlog.quotas.take(self.quotas.asked_of(backlog.entry(row).job))
            if self._session.due(2):
                yield TURN
        over = backlog.over_quota(self.quotas.mark)
        for number, asked in enumerate(backlog.quotas):
            if asked is not None and over[number] < 0:
                over[number] = self.quotas.exceeded(asked) is not None
                if self._session.due(5):
                    yield TURN
        found: npt.NDArray[np.bool_] = np.zeros(len(rows), np.bool_)
        found[those] = over[backlog.quota[rows[those]]] > 0
        return found

    def _find_out(
        self,
        backlog: Backlog,
        rows: Index,
        known: npt.NDArray[np.int8],
        ask: Callable[[JobState], Generator[Turn, None, bool]],
        work: int,
    ) -> Iterator[Turn]:
        """Ask about each shape of these rows of which nothing is known: of the first of its groups for which that does
        not raise; `work` in units of `Pace`.
        """
        session = self._session
        while found := _first_of_each(backlog.shape[rows], known, rows):
            for row, shape in found:
                job = session.job(backlog.entry(row).job.key)
                answer = yield from working(session, job, partial(ask, job), None)
                if answer is None:
                    rows = rows[rows != row]  # the next of its shape, then
                else:
                    known[shape] = answer
                if session.due(work):
                    yield TURN

    def _is_hopeless(self, job: JobState) -> Generator[Turn, None, bool]:
        """Whether the emptied nodes could not hold the group by number or sum."""
        yield from ()
        return self._feasibility.hopeless(job)

    def _is_unfit(self, job: JobState) -> Generator[Turn, None, bool]:
        """Whether the emptied nodes do not take the group."""
        return not (yield from self._feasibility.attempting(job)).fits


def _first_of_each(shapes: Index, known: npt.NDArray[np.int8], rows: Index) -> list[tuple[int, int]]:
    """Of each shape of which nothing is known one row."""
    unknown = known[shapes] < 0
    if not unknown.any():
        return []
    numbers, first = np.unique(shapes[unknown], return_index=True)
    return list(zip(rows[unknown][first].tolist(), numbers.tolist(), strict=True))


def _clip(amount: int) -> int:
    """An amount as a column holds it, with room for one more beside it."""
    return amount if -_LIMIT <= amount <= _LIMIT else _LIMIT if amount > 0 else -_LIMIT


def _table(rows: list[list[int]]) -> npt.NDArray[np.int64]:
    """Amounts as a table; at least one row, so that it can be asked for."""
    try:
        found = np.array(rows or [[]], np.int64)
    except OverflowError:
        found = np.array([[_clip(amount) for amount in row] for row in rows], np.int64)
    np.minimum(found, _LIMIT, out=found)
    return np.maximum(found, -_LIMIT, out=found)
