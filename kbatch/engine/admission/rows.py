"""The same comparisons as in `Sums.of` for all rows of the backlog at once: nobody has to look at a hundred thousand
groups one by one to find the few that may come in queue.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from kbatch.engine.admission.by_queue import QueueTables, tabulated
from kbatch.engine.admission.sums import Sums
from kbatch.engine.admission.tables import LIMIT, all_of, any_of, clip, first_of_each, table
from kbatch.engine.carryover.backlog import Backlog, Contents, Index
from kbatch.engine.carryover.standing import Code
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.session.guarding import attempt, working
from kbatch.engine.state.jobs import JobState
from kbatch.model.nodes import Column, Mask

Standings = npt.NDArray[np.int8]

_MANY: Final = 1000
_ALIKE: Final = 4
"""Of so many rows, and so many of each kind in the mean, one of each kind is compared with the sums."""


@dataclass(eq=False, slots=True)
class _Way:
    """One way in which groups come in queue.

    Attributes:
        passes: of each row, whether it would by what there is in all.
        more: by dimension what counts for each row besides the room; None: nothing.
        own: of the room is kept what was promised to groups of the own queue alone.
    """

    passes: Mask
    more: Callable[[], Sequence[Column]] | None = None
    own: bool = False


@dataclass(eq=False, slots=True)
class _Givings:
    """What counts for each of the backlog's `givings` besides the room, by dimension.

    Attributes:
        mark: equal as long as nothing has changed that it depends on.
        freed: what could be freed. whole: with what such a group overtakes.
        overtaken: that alone; None: nobody overtakes anybody.
        never: of each whether nobody is evicted for it; None: of none.
    """

    mark: Hashable
    freed: Column
    whole: Column
    overtaken: Column | None
    never: Mask | None

    def of(self, giving: Index) -> Sequence[Column | int]:
        """By dimension what rows of these `givings` overtake."""
        if self.overtaken is None:
            return [0] * len(self.freed)
        return [more[giving] for more in self.overtaken]


class Rows:
    """One run of `enqueue`: the rows of the backlog, beside the sums."""

    def __init__(self, context: CycleContext, sums: Sums) -> None:
        self._session = context.session
        self._feasibility = context.feasibility
        self._sums = sums
        self._tables: QueueTables | None = None
        self._givings: _Givings | None = None
        self._over: tuple[Hashable, Standings] | None = None
        self._namespaces: tuple[int, Mask] | None = None

    def all_are_in(self) -> None:
        """Nobody else is let in: from now on those that have come in count among whom others overtake."""
        self._sums.all_are_in()
        self._givings = None

    def standings(self, backlog: Backlog, rows: Index) -> Generator[Turn, None, Standings]:
        """`Sums.of`, for these rows of the backlog; `SENT_BACK` where only the time keeps a group out.

        A group for which that raises is in the session's `failed` then, and what is said of it means nothing.
        """
        kind = backlog.kind[rows]
        by_kind = yield from self.of_kinds(backlog, rows, kind)
        if by_kind is not None:
            found = by_kind[kind]
        else:
            found = yield from self._of_each(backlog, rows)
        found[(found == Code.PASSES) & (backlog.back[rows] > self._session.now)] = Code.SENT_BACK
        return found

    def of_kinds(self, backlog: Backlog, rows: Index, kind: Index) -> Generator[Turn, None, Standings | None]:
        """What keeps out the rows of each kind (`kind`: of each of the rows), by the kind's number; with a look at the
        first of each, whatever the time keeps out. None: each row is to be looked at.
        """
        kinds = len(backlog.kinds)
        few = len(rows) < max(1, _MANY, _ALIKE * kinds)
        if few or self.any_quota(backlog):
            return None
        first = np.full(kinds, -1, np.intp)
        first[kind[::-1]] = rows[::-1]
        used = np.flatnonzero(first >= 0)
        failed = len(self._session.failed)
        found: Standings = np.zeros(kinds, np.int8)
        found[used] = yield from self._of_each(backlog, first[used])
        if len(self._session.failed) > failed:
            return None  # another one of its kind is to be asked
        return found

    def _of_each(self, backlog: Backlog, rows: Index) -> Generator[Turn, None, Standings]:
        """`Sums.of`, for these rows, with a look at each."""
        if not len(rows):
            return np.zeros(0, np.int8)
        session, those = self._session, backlog.contents(rows)
        names = sorted(backlog.least)
        # One dimension after the other: numpy is slower at looking across a table than along its lines.
        least = [those.least[name] for name in names]
        yield TURN
        givings = self._givings_of(backlog, names)
        by_queue = self._tables_for(backlog, names)
        yield TURN
        ways, past = yield from self._ways(backlog, rows, those, names, by_queue, givings)
        passes = any_of((way.passes for way in ways), len(rows))
        yield from self._confine(backlog, rows, names, least, ways, passes)
        found: Standings = np.full(len(rows), Code.WAITING, np.int8)
        found[past] = Code.BEYOND_SHARE
        strict, fixed, triable, shape = those.strict, those.fixed, those.triable, those.shape
        tried = rows[(strict | ~passes) & triable & ~fixed]
        yield from self._find_out(backlog, tried, backlog.unfit, self._is_unfit, 20)
        unfit = triable & (backlog.unfit[shape] == 1)
        found[unfit] = Code.UNFIT
        passes &= ~(strict & unfit)
        found[passes] = Code.PASSES
        total = [clip(session.total.get(name, 0)) for name in names]
        large = any_of((asked > most for asked, most in zip(least, total, strict=True)), len(rows))
        found[those.stated & large] = Code.TOO_LARGE
        yield from self._find_out(backlog, rows[~fixed], backlog.hopeless, self._is_hopeless, 5)
        found[backlog.hopeless[shape] == 1] = Code.HOPELESS
        if len(backlog.limits):
            found[self._limited(backlog, rows, fixed)] = Code.LIMITED
            yield TURN
        passing = yield from self._over_quota(backlog, rows, those.namespace)
        if passing is not None:
            found[passing] = Code.QUOTA
        yield TURN
        for at, most in by_queue.caps.items():
            asked, left = least[at], most[those.queue]
            capped = (asked > left + givings.whole[at][those.giving]) & (left < LIMIT) & (asked > 0)
            found[capped] = Code.CAPABILITY
        found[fixed] = Code.FIXED
        return found

    def _ways(
        self,
        backlog: Backlog,
        rows: Index,
        those: Contents,
        names: list[str],
        by_queue: QueueTables,
        givings: _Givings,
    ) -> Generator[Turn, None, tuple[list[_Way], Mask]]:
        """The ways in which groups may come in queue: by the room; by their queue's share, where reclaim can fetch it;
        by what preempt can free. And which of the rows ask for more than the whole share. `those`: what stands in the
        rows.
        """
        least, queue, giving = [those.least[name] for name in names], those.queue, those.giving
        free = [clip(self._sums.free(name)) for name in names]
        overtaken = givings.of(giving)
        never = givings.never[giving] if givings.never is not None else None
        beyond, past = self._beyond_share(by_queue, least, queue, overtaken)
        if never is not None:
            past &= ~never  # a larger share would not help them
        yield TURN
        ways = [_Way(all_of((asked <= max(left, 0) for asked, left in zip(least, free, strict=True)), len(rows)))]
        confined = yield from self._any_confined(backlog, rows[ways[0].passes])
        if self._sums.reclaims and (confined or np.count_nonzero(ways[0].passes) < len(rows)):
            within = ~beyond
            if confined or np.count_nonzero(within & ~ways[0].passes):
                if by_queue.reach is None:
                    by_queue.reach = table([self._sums.within_reach(each, names) for each in by_queue.queues]).T
                from_others = self._given_to(by_queue, names, queue, never)
                for asked, most, other, more in zip(least, by_queue.reach, from_others, overtaken, strict=False):
                    within &= asked <= np.maximum(np.minimum(most[queue] + other, LIMIT) + more, 0)
            given = partial(self._given_to, by_queue, names, queue, never)
            ways.append(_Way(within, given, own=True))
            yield TURN
        if self._sums.preempts:
            made = zip(least, free, givings.whole, strict=True)
            enough = all_of((asked <= np.maximum(left + more, 0)[giving] for asked, left, more in made), len(rows))
            ways.append(_Way(enough, lambda: [more[giving] for more in givings.freed]))
        yield TURN
        return ways, past

    def _confine(
        self, backlog: Backlog, rows: Index, names: list[str], least: list[Column], ways: Sequence[_Way], passes: Mask
    ) -> Iterator[Turn]:
        """Leave out of `passes` the rows that pass by what there is in all, and by nothing that is on the nodes which
        their pods may use.
        """
        at = np.flatnonzero(passes)
        there = yield from self._there(backlog, rows[at], names)
        if there is None:
            return
        found = np.zeros(len(at), np.bool_)
        nothing = [np.zeros(len(rows), np.int64)] * len(names)
        for way in ways:
            held = way.passes[at]
            for asked, (left, own), more in zip(least, there, way.more() if way.more else nothing, strict=True):
                held &= asked[at] <= np.maximum((own if way.own else left) + more[at], 0)
            found |= held
        passes[at] = found

    def _there(
        self, backlog: Backlog, rows: Index, names: list[str]
    ) -> Generator[Turn, None, list[tuple[Column, Column]] | None]:
        """By dimension what is left to each of the rows on the nodes that it is confined to, and what would be if other
        queues were promised nothing; `LIMIT` for those that are confined to none. None: all are.
        """
        if not (yield from self._any_confined(backlog, rows)):
            return None
        numbers = np.maximum(backlog.place[backlog.shape[rows]], 0).astype(np.int64)
        givings = len(backlog.givings)
        codes = np.where(numbers > 0, numbers * givings + backlog.giving[rows], 0)
        pairs, which = np.unique(codes, return_inverse=True)
        left: list[list[int]] = []
        own: list[list[int]] = []
        for number, giving in [divmod(pair, givings) for pair in pairs.tolist()]:
            if not number:
                left.append([LIMIT] * len(names))
                own.append([LIMIT] * len(names))
                continue
            place, of = self._sums.confined.place(backlog.places[number - 1]), backlog.givings.thing(giving)
            left.append([clip(place.left(name, of.queue, of.priority)) for name in names])
            own.append([clip(place.left(name, of.queue, of.priority, own=True)) for name in names])
            if self._session.due(2):
                yield TURN
        return [
            (all_of_it[which], but_own[which]) for all_of_it, but_own in zip(table(left).T, table(own).T, strict=True)
        ]

    def _any_confined(self, backlog: Backlog, rows: Index) -> Generator[Turn, None, bool]:
        """Whether the pods of any of these rows may use some of the nodes only."""
        yield from self._find_out(backlog, rows[~backlog.fixed[rows]], backlog.place, partial(self._place, backlog), 5)
        return bool(np.count_nonzero(backlog.place[backlog.shape[rows]] > 0))

    def _given_to(self, by_queue: QueueTables, names: list[str], queue: Index, never: Mask | None) -> Sequence[Column]:
        """By dimension what other queues could give up for each of the rows, which are of these queues; nothing for
        those that are marked in `never`.
        """
        if by_queue.given is None:
            given = [self._sums.weaker.reclaimable(each.name) if each is not None else {} for each in by_queue.queues]
            by_queue.given = table([[clip(each.get(name, 0)) for name in names] for each in given]).T
        found = [column[queue] for column in by_queue.given]
        return found if never is None else [np.where(never, 0, column) for column in found]

    def _givings_of(self, backlog: Backlog, names: list[str]) -> _Givings:
        """What counts for each of the backlog's `givings` besides the room; it does not change in a cycle."""
        mark = backlog.givings.version, tuple(names)
        if self._givings is None or self._givings.mark != mark:
            sums = self._sums
            gives = list(map(sums.freed, backlog.givings))
            rows = backlog.freed.table(names, gives, lambda each: [clip(each.get(name, 0)) for name in names])
            overtaken = [sums.overtaken(each.queue, each.priority) if each else {} for each in backlog.givings]
            more = None
            if any(overtaken):
                more = table([[clip(each.get(name, 0)) for name in names] for each in overtaken]).T
            whole = rows.T if more is None else np.minimum(rows.T + more, LIMIT)
            never = np.array([each is not None and each.never for each in backlog.givings], np.bool_)
            self._givings = _Givings(mark, rows.T, whole, more, never if np.count_nonzero(never) else None)
        return self._givings

    def _tables_for(self, backlog: Backlog, names: list[str]) -> QueueTables:
        """What is left to the backlog's queues. A statement changes what they hold, a promise what is left of it."""
        session = self._session
        mark = backlog.queues.version, tuple(names), self._sums.moves, session.steps
        if self._tables is None or self._tables.mark != mark:
            queues = [session.queues.get(name) if name is not None else None for name in backlog.queues]
            self._tables = tabulated(mark, names, queues, self._sums.by_queue)
        return self._tables

    def _beyond_share(
        self, by_queue: QueueTables, least: list[Column], queue: Index, overtaken: Sequence[Column | int]
    ) -> tuple[Mask, Mask]:
        """Which rows ask for more than what is left of their queue's share, with what they overtake; and where reclaim
        is configured, for more than the whole share, in the first of the dimensions in which they ask for more than is
        left.
        """
        beyond = np.zeros(len(queue), np.bool_)
        past = np.zeros(len(queue), np.bool_)
        for asked, whole, rest, more in zip(least, by_queue.deserved, by_queue.left, overtaken, strict=False):
            over = asked > np.maximum(rest[queue] + more, 0)
            if self._sums.reclaims:
                past |= over & ~beyond & (asked > whole[queue])
            beyond |= over
        return beyond, past

    def _limited(self, backlog: Backlog, rows: Index, fixed: Mask) -> Mask:
        """Which of the rows plugins keep out of the queue: they are asked once for all that are alike to them, and not
        of those that are fixed, whose queue may not be there.
        """
        session = self._session
        open_ = rows[~fixed]
        numbers, first = np.unique(backlog.limit[open_], return_index=True)
        out = np.zeros(len(backlog.limits) + 1, np.bool_)  # the last is of those that nobody limits: its number is -1
        for number, row in zip(numbers.tolist(), open_[first].tolist(), strict=True):
            if number >= 0:
                entry = backlog.entry(row)
                job = session.job(entry.job.key)
                out[number] = (
                    attempt(session, job, partial(session.plugins.admission, job, entry.kept), None) is not None
                )
        found: Mask = out[backlog.limit[rows]]
        return found

    def any_quota(self, backlog: Backlog) -> bool:
        """Whether quotas tell rows of one kind apart."""
        return bool(np.count_nonzero(self._limited_namespaces(backlog)))

    def _over_quota(self, backlog: Backlog, rows: Index, namespace: Index) -> Generator[Turn, None, Mask | None]:
        """Which of the rows would pass a quota; None where there are no quotas."""
        quotas, quota = self._sums.quotas, backlog.quota
        limited = self._limited_namespaces(backlog)
        if not np.count_nonzero(limited):
            return None
        which = limited[namespace]
        those = rows[which]
        for row in those[quota[those] < 0].tolist():
            quota[row] = backlog.quotas.take(quotas.asked_of(backlog.entry(row).job))
            if self._session.due(2):
                yield TURN
        mark = quotas.moves, backlog.namespaces.version, backlog.quotas.version
        if self._over is None or self._over[0] != mark:
            over = backlog.over_quota(quotas.mark)
            for number in np.flatnonzero(over[: len(backlog.quotas)] < 0).tolist():
                asked = backlog.quotas.get(number)
                if asked is not None:
                    over[number] = quotas.exceeded(asked) is not None
                    if self._session.due(5):
                        yield TURN
            self._over = mark, over
        over = self._over[1]
        found: Mask = np.zeros(len(rows), np.bool_)
        found[which] = over[quota[those]] > 0
        return found

    def _limited_namespaces(self, backlog: Backlog) -> Mask:
        """By number of a namespace whether it has quotas; they are the same for the whole cycle."""
        version = backlog.namespaces.version
        if self._namespaces is None or self._namespaces[0] != version:
            known = [name is not None and bool(self._sums.quotas.of(name)) for name in backlog.namespaces]
            self._namespaces = version, np.array(known, np.bool_)
        return self._namespaces[1]

    def _find_out(
        self,
        backlog: Backlog,
        rows: Index,
        known: npt.NDArray[np.int8] | npt.NDArray[np.int32],
        ask: Callable[[JobState], Generator[Turn, None, int]],
        work: int,
    ) -> Iterator[Turn]:
        """Ask about each shape of these rows of which nothing is known: of the first of its groups for which that does
        not raise; `work` in units of `Pace`.
        """
        session = self._session
        while found := first_of_each(backlog.shape[rows], known, rows):
            for row, shape in found:
                job = session.job(backlog.entry(row).job.key)
                answer = yield from working(session, job, partial(ask, job), None)
                if answer is None:
                    rows = rows[rows != row]  # the next of its shape, then
                else:
                    known[shape] = answer
                if session.due(work):
                    yield TURN

    def _place(self, backlog: Backlog, job: JobState) -> Generator[Turn, None, int]:
        """The number of the nodes that the group is confined to; 0: to none."""
        yield from ()
        key = self._sums.confined.mask_of(job)
        return 0 if key is None else backlog.number_of_place(key)

    def _is_hopeless(self, job: JobState) -> Generator[Turn, None, bool]:
        """Whether the emptied nodes could not hold the group by number or sum."""
        yield from ()
        return self._feasibility.hopeless(job)

    def _is_unfit(self, job: JobState) -> Generator[Turn, None, bool]:
        """Whether the emptied nodes do not take the group."""
        return not (yield from self._feasibility.attempting(job)).fits
