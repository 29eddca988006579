"""enqueue: who comes in queue, so that its pods may be created and placed.

Queues in queue order, first come first served inside a queue; where preempt is configured the higher priority comes
first, for it would evict the other at once. A group that does not fit blocks nobody. What a group
will need at least (its minResources beyond what its pods hold; without minResources, what its pods and templates say)
must fit its queue's capability (less important pods of the queue not counted where preempt can evict them), its
namespace's quotas, and one of: the room that is there less what is promised
already; the queue's deserved share less what it holds and was promised (where reclaim can fetch it); with what less
important pods of its own queue could give (where preempt can). What less important groups of its queue were promised
keeps it out no more than their pods do, if they hold nothing yet. A group whose pods may use some of the nodes only is
compared with the room there, too (see `admission.confined`).

Reclaim can fetch what queues above their share hold of groups that may go: as wholes, beyond their minimum, or past
their lifetime. A group in queue that ran and has lost all its pods since is asked again, in its turn: it stays only
where there is room for it.

Where starts are planned (see the arguments of `backfill`), the first groups that lack nothing but room come in too, so
that their pods are there when they start: as many as there may be planned starts.

Groups that wait stand in the backlog. There all of them are compared with the sums at once, and only those that these
would let in are looked at, one by one.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterator
from functools import partial
from itertools import compress
from typing import Any, Final

import numpy as np

from kbatch.api.reasons import QuotaExceeded, Reason
from kbatch.engine.actions.base import Action
from kbatch.engine.actions.comers import Comer, Line, Lines
from kbatch.engine.actions.entries import entry_of, is_plain
from kbatch.engine.actions.in_queue import InQueue
from kbatch.engine.admission.demand import Needs, needs
from kbatch.engine.admission.rows import Rows, Standings
from kbatch.engine.admission.sums import Sums
from kbatch.engine.carryover.backlog import Entry, Index
from kbatch.engine.carryover.standing import Code, Standing
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Step, Turn
from kbatch.engine.diagnosis.backlog import TRIED, plain_reason, reason_of, reasons_of_waiting
from kbatch.engine.reservation.ageing import limited
from kbatch.engine.reservation.clocks import ousted
from kbatch.engine.session.guarding import attempt, working
from kbatch.engine.state.jobs import JobState
from kbatch.model.nodes import Mask
from kbatch.resources import Resources

_AT_ONCE: Final = 200
"""Of so many groups why they wait is worked out at once: a millisecond."""

_WAITS: Final = frozenset({Standing.WAITING, Standing.BEYOND_SHARE})
"""What a group overcomes by its age."""


_IN_VAIN: Final = 24
"""After so many refusals those are looked at again who are still in line: that takes about as long as they do."""

_STANDINGS: Final = tuple(Standing(code) for code in range(len(Standing)))
"""By their codes."""


class Enqueue(Action):
    """The action."""

    name = "enqueue"

    def run(self, context: CycleContext) -> Iterator[Step]:
        """Run the action."""
        return _run(context)


def _run(context: CycleContext) -> Iterator[Turn]:
    """Run the action. It makes no transactions: being in queue is part of a verdict."""
    return _Admission(context).open()


def _overcome(standings: Standings) -> Mask:
    """Where one of `_WAITS` stands: `np.isin` takes ten times as long for two."""
    found: Mask = standings == Code.WAITING
    found |= standings == Code.BEYOND_SHARE
    return found


class _Admission:
    """One run of the action."""

    def __init__(self, context: CycleContext) -> None:
        self.context = context
        self.session = context.session
        self.backlog = context.backlog
        self.sums = Sums(context)
        self._rows = Rows(context, self.sums)
        ranks = self.sums.preempts or self.session.plugins.by_priority
        self._in_queue = InQueue(context, self.sums, ranks=ranks)
        self._lines = Lines(context.session, context.backlog, ranks=ranks)
        self._any_by_age = True
        """Not all of these are groups in queue: those stay it while nothing changes, and nobody grows old enough."""
        self._joined: list[JobState] = []
        self._refused: list[tuple[Entry, Standing]] = []
        self._given: set[str] = set()
        """Who was given a row before anybody was asked."""
        self._stale = self._moved = False
        self._in_vain = 0
        """So many were refused since it was last looked at who is still in line."""
        self._kept_out = Standing.UNKNOWN
        """What kept out the last one that was refused."""
        self._over_quota: dict[int, Reason] = {}
        """Why groups wait for a quota, by what they ask of it: their numbers in the backlog."""

    def open(self) -> Iterator[Turn]:
        """Let in whoever fits, in order."""
        backlog = self.backlog
        fresh = yield from self._sort_out()
        if self.session.plugins.looks_ahead:
            fresh = yield from self._give_rows(fresh)
        self._any_by_age = self._in_queue.places.any_left()
        rows, standings = yield from self._standings(backlog.rows)
        comers = self._comers(rows, standings)
        yield TURN
        lines = yield from self._lines.of(fresh, comers)
        yield from self._let_in_all(lines)
        if self._joined or (self._moved and (len(rows) or self._refused)):
            yield from self._make_rows()
            self._rows.all_are_in()
            rows, standings = yield from self._standings(backlog.rows)
        elif self._refused:  # nobody has come in: what all were compared with is as it was
            made = yield from self._make_rows()
            rows = np.concatenate([rows, made])
            standings = np.concatenate([standings, np.array([each for _, each in self._refused], np.int8)])
        standings[standings == Code.PASSES] = Code.WAITING  # they were asked, and stand behind others
        self._wake(rows, standings)
        yield from self._tell(rows, standings)
        if self._joined or self._refused or self._given:
            gone = {key for key in (*(entry.job.key for entry, _ in self._refused), *self._given) if key in backlog}
            staying = [job for job in self.session.live() if job.key not in gone]
            self.session.stay({job.key: job for job in (*staying, *self._joined)}.values())

    # --- who is asked -------------------------------------------------------------------------------------------------

    def _sort_out(self) -> Generator[Turn, None, list[Comer]]:
        """Go on promising room to those in queue; returns who waits and has no row."""
        session = self.session
        fresh: list[Comer] = []
        for job in session.live():
            if session.due(2):
                yield TURN
            if job.rest is not None and self._in_queue.rests(job):
                continue
            if job.key in session.failed or job.job.over:
                continue
            if job.possible and attempt(session, job, partial(ousted, session, job), False):
                job.in_queue = False
                fresh.append(Comer(job.job, fresh=job, again=True))
            elif job.in_queue:
                if job.possible and job.missing() and not job.job.shadow:
                    attempt(session, job, partial(self._in_queue.keep, job), None)
            elif job.possible:
                fresh.append(Comer(job.job, fresh=job))
            elif is_plain(session, job):
                entry = attempt(session, job, partial(self._entry, job, None, plain=True), None)
                if entry is not None:
                    self._refused.append((entry, Standing.FIXED))
        return fresh

    def _give_rows(self, fresh: list[Comer]) -> Generator[Turn, None, list[Comer]]:
        """Give rows to those that may have one; returns the others.

        Where the next of a line decides on its queue's turn, that is to be the same whether or not a row is remembered:
        who has one and does not fit is in no line.
        """
        session = self.session
        rest: list[Comer] = []
        for comer in fresh:
            if session.due(2):
                yield TURN
            job = comer.fresh
            if job is None or comer.again or not is_plain(session, job):
                rest.append(comer)
                continue
            entry = attempt(session, job, partial(self._plain_entry, job), None)
            if entry is not None:
                self.backlog.add(entry)
                self._given.add(job.key)
        return rest

    def _plain_entry(self, job: JobState) -> Entry:
        return self._entry(job, needs(self.session, job), plain=True)

    def _entry(self, job: JobState, wanted: Needs | None, *, plain: bool) -> Entry:
        return entry_of(self.context, job, wanted, plain=plain, ageing=self._in_queue.ageing)

    def _make_rows(self) -> Generator[Turn, None, Index]:
        """Give those rows that were refused and had none; the rows."""
        made: list[int] = []
        for entry, _ in self._refused:
            made.append(self.backlog.add(entry))
            if self.session.due():
                yield TURN
        return np.array(made, np.intp)

    def _standings(self, rows: Index) -> Generator[Turn, None, tuple[Index, Standings]]:
        """The rows without those of groups that are left out, and their standings."""
        self._stale = False
        standings = yield from self._rows.standings(self.backlog, rows)
        left_out = self._leave_out()
        if left_out:
            stays = ~np.isin(rows, left_out)
            rows, standings = rows[stays], standings[stays]
        return rows, standings

    def _leave_out(self) -> list[int]:
        """Take groups on which work has failed out of the backlog: the cycle says why they wait. The rows they had."""
        session, backlog = self.session, self.backlog
        found: list[int] = []
        for key, failing in session.failed.items():
            row = backlog.row.get(key)
            if row is not None:
                job = session.job(key)
                session.exclude(job, failing)
                backlog.remove(key)
                self._joined.append(job)
                found.append(row)
        return found

    def _comers(self, rows: Index, standings: Standings) -> Index:
        """The rows whose groups the sums let in, and of those that only wait the aged ones, if one may come in so."""
        backlog, session = self.backlog, self.session
        chosen = standings == Code.PASSES
        aged = np.zeros(0, np.bool_)
        if self._in_queue.places.any_left():
            aged = _overcome(standings) & (backlog.due[rows] <= session.now) & (backlog.back[rows] <= session.now)
            at = np.flatnonzero(aged)
            aged[at] = self._in_queue.places.left_for(backlog, rows[at])
        if aged.any():
            asks = backlog.ask[rows]
            for number in np.unique(asks[aged]).tolist():
                those = aged & (asks == number)
                if self._may_age(rows[those]):
                    chosen |= those
        self._leave_out()
        return backlog.living(rows[chosen])

    def _wake(self, rows: Index, standings: Standings) -> None:
        """Note when time alone may let one of them in."""
        session, backlog = self.session, self.backlog
        back = backlog.back[rows]
        instants = [back[back > session.now]]
        if self._any_by_age:
            due = backlog.due[rows]
            instants.append(due[_overcome(standings) & (due > session.now)])
        for later in instants:
            if len(later):
                session.wake.append(int(later.min()))

    def _may_age(self, rows: Index) -> bool:
        """Whether room may gather for these groups, which ask for the same: the first that can be asked says it."""
        for row in rows.tolist():
            kept = self._limited(self.backlog.entry(row))
            if kept is not None:
                return not kept
        return False

    def _limited(self, entry: Entry) -> bool | None:
        """Whether its queue's share or capability keeps a group from gathering room; None: that raised."""
        session = self.session
        job = session.job(entry.job.key)
        job.asks = job.asks or entry.asks
        return attempt(session, job, partial(limited, session, self.context.feasibility, job, ()), None)

    # --- who comes in -------------------------------------------------------------------------------------------------

    def _let_in_all(self, lines: dict[str, Line]) -> Iterator[Turn]:
        """Queues by their order, groups in their lines."""
        session, feasibility = self.session, self.context.feasibility
        heap = [(self._key(name, line), name) for name, line in lines.items()]
        heapq.heapify(heap)
        while heap:
            _, name = heap[0]
            line = lines[name]
            comer = self._lines.next(line)
            if comer is None:
                heapq.heappop(heap)
                continue
            if comer.fresh is None and (comer.job.key in session.failed or comer.job.key not in self.backlog):
                self._again(heap, line)
                continue  # work on another has shown that it fails
            state = comer.fresh if comer.fresh is not None else session.job(comer.job.key)
            before = feasibility.asked
            if (yield from working(session, state, partial(self._let_in, comer, state, line), False)):
                self._stale = self._moved = True
                heapq.heapreplace(heap, (self._key(name, line), name))
                if session.due(10 + len(state.waiting) // 10) or feasibility.asked > before:
                    yield TURN
            else:
                line.ahead += comer.fresh is not None
                self._leave_out()
                self._in_vain += 1
                if comer.fresh is None and not session.failed and self._kept_out is not Standing.QUOTA:
                    self._lines.leave_out(comer)
                if self._stale and self._in_vain >= _IN_VAIN:
                    yield from self._thin(lines)
                self._again(heap, line)
                if session.due(5) or feasibility.asked > before:  # it was tried on the emptied nodes
                    yield TURN

    def _thin(self, lines: dict[str, Line]) -> Iterator[Turn]:
        """Leave out of the lines whom the sums do not let in any more."""
        backlog, self._in_vain = self.backlog, 0
        for line in lines.values():
            line.rows, line.kinds, line.taken = line.rows[line.taken :], line.kinds[line.taken :], 0
        rows = np.concatenate([line.rows for line in lines.values()])
        if self._by_kind(lines):
            self._stale = False
            kinds = np.concatenate([line.kinds for line in lines.values()])
            by_kind = yield from self._rows.of_kinds(backlog, rows, kinds)
            if by_kind is not None:
                passes = by_kind == Code.PASSES
                for line in lines.values():
                    stays = passes[line.kinds]
                    line.rows, line.kinds = line.rows[stays], line.kinds[stays]
                return
        self._leave_out()
        rows, standings = yield from self._standings(backlog.living(rows))
        left = np.zeros(backlog.size, np.bool_)
        left[self._comers(rows, standings)] = True
        for line in lines.values():
            stays = left[line.rows]
            line.rows, line.kinds = line.rows[stays], line.kinds[stays]

    def _by_kind(self, lines: dict[str, Line]) -> bool:
        """Whether those in line of one kind go together, but for quotas: none comes in by age, and whom the time keeps
        out is in no line.
        """
        if self.session.failed:
            return False
        backlog, places = self.backlog, self._in_queue.places
        for queue, line in lines.items():
            first = places.first_left(backlog, queue, line.rows)
            if len(first) and int(backlog.due[first].min()) <= self.session.now:
                return False
        return True

    def _again(self, heap: list[tuple[Any, str]], line: Line) -> None:
        """The first of the line is another one now, which may matter to its place."""
        if self.session.plugins.looks_ahead:
            _, name = heap[0]
            heapq.heapreplace(heap, (self._key(name, line), name))

    def _key(self, name: str, line: Line) -> Any:
        """Order of a queue, with what its groups were promised counted as held, and what its next would be."""
        queue = self.session.queue(name)
        more = self._next_asks(line) if self.session.plugins.looks_ahead else None
        promised = self.sums.by_queue.get(name)
        if not promised:
            return self.session.plugins.queue_key(queue, more)
        queue.add(promised)
        key = self.session.plugins.queue_key(queue, more)
        queue.add(promised, -1)
        return key

    def _next_asks(self, line: Line) -> Resources:
        """What the next of the line would be promised; nothing where there is none, or that cannot be found out."""
        comer = self._lines.next(line)
        if comer is None:
            return {}
        line.peeked = comer
        if comer.entry is not None:
            return comer.entry.kept
        state = comer.fresh if comer.fresh is not None else self.session.job(comer.job.key)
        wanted = attempt(self.session, state, partial(needs, self.session, state), None) if state.possible else None
        return wanted.kept if wanted is not None else {}

    def _let_in(self, comer: Comer, job: JobState, line: Line) -> Generator[Turn, None, bool]:
        session, entry = self.session, comer.entry
        plain = False
        if entry is None:
            wanted = needs(session, job) if job.possible else None
            if wanted is not None and self._fits(job, wanted):
                self._come_in(comer, job, wanted.kept)
                return True
            plain = is_plain(session, job)
            entry = self._entry(job, wanted, plain=plain)
        elif comer.fresh is None and not job.job.to_come:  # classes of templates are read anew in each cycle
            self.context.feasibility.remember(job, entry.shape)
        refused = session.plugins.enqueueable(job) if comer.fresh is not None else None
        standing = Standing.UNKNOWN
        if refused is None:
            standing = yield from self.sums.of(entry)
            if standing is Standing.PASSES and self._comes_later(comer, entry, job):
                standing = Standing.WAITING
            waits = standing in _WAITS and not (comer.again or self._stays_out(entry, comer.fresh))
            in_rows = plain or comer.fresh is None
            if waits and self._any_by_age and self._in_queue.comes_by_age(entry, job, in_rows=in_rows):
                standing = Standing.PASSES
            if standing is Standing.PASSES and self._stays_out(entry, comer.fresh):
                standing = Standing.SENT_BACK
        if standing is Standing.PASSES:
            job.attempts = entry.attempts
            if self.backlog.remove(job.key):
                self._joined.append(job)
            self._come_in(comer, job, entry.kept)
            return True
        self._kept_out = standing
        if plain:
            self._refused.append((entry, standing if entry.fixed is None else Standing.FIXED))
        elif comer.fresh is not None:
            ahead = line.ahead + self.backlog.before(job.job, ranks=self._lines.ranks)
            reason = refused or (yield from reason_of(self.context, self.sums, entry, standing, ahead))
            session.refuse(job, reason, attempted=reason.lacks_capacity and entry.tried)
        return False

    def _fits(self, job: JobState, wanted: Needs) -> bool:
        """Whether nothing is in the way of the group at all: the commonest answer, without a closer look."""
        session = self.session
        return not (
            job.backing_off
            or session.queue(job.queue).record.capability
            or self.sums.quotas.of(job.job.namespace)
            or self.sums.short(job, wanted.least) is not None
            or session.plugins.enqueueable(job) is not None
            or session.plugins.admission(job, wanted.kept) is not None
            or self.context.feasibility.hopeless(job)
            or self.sums.in_vain.first(job)
            or (job.strict and not self.context.feasibility.known_to_fit(job))
        )  # fmt: skip

    def _comes_later(self, comer: Comer, entry: Entry, job: JobState) -> bool:
        """Whether the sums let a group in that waits all the same: beside those in queue, or behind one of them."""
        if comer.again:
            return self.sums.short(job, entry.least) is not None
        return not self._stays_out(entry, comer.fresh) and self.sums.in_vain.first(job)

    def _come_in(self, comer: Comer, job: JobState, kept: Resources) -> None:
        """The group is in queue from now on, or stays there. Where starts are planned, one that was evicted is promised
        the room for its place in any case: else it would wait longest of all.
        """
        job.in_queue = True
        self.session.came_in(job, joins=comer.fresh is None and job.key not in self._given)
        if comer.again and self.context.planned is None:
            self._in_queue.go_on(job)
        else:
            self._in_queue.promise(job, kept)
            self.sums.in_vain.comes_in(job)
        self.session.plugins.charge(job)

    def _stays_out(self, entry: Entry, fresh: JobState | None) -> bool:
        """Whether it was sent back not long ago."""
        return fresh.backing_off if fresh is not None else entry.back > self.session.now

    # --- what is told -------------------------------------------------------------------------------------------------

    def _tell(self, rows: Index, standings: Standings) -> Iterator[Turn]:
        """Say of those that are refused why, where that has changed, or is told with numbers that may be old."""
        backlog, context = self.backlog, self.context
        yield TURN
        found = backlog.to_tell(rows, standings, self.session.now, self.session.plugins.starts_anew)
        yield TURN
        told = backlog.in_order(found)
        yield TURN
        every = np.array(told, np.intp)
        all_ahead = backlog.all_ahead(every, ranks=self._lines.ranks)
        yield TURN
        for at in range(0, len(told), _AT_ONCE):
            index, some = every[at : at + _AT_ONCE], all_ahead[at : at + _AT_ONCE]
            waits = backlog.standing[index] == Code.WAITING
            places = list(compress(some, waits.tolist()))
            known = reasons_of_waiting(self.session, self.sums, backlog, index[waits], places)
            for row, ahead in zip(index.tolist(), some, strict=True):
                entry = backlog.entry(row)
                why = known.get(row) or (yield from self._reason(row, entry, ahead))
                if why is not None:
                    context.told.append((entry, why))
                if self.session.due():
                    yield TURN
        self._leave_out()
        later = backlog.tells_again(self.session.now)
        if later is not None:
            self.session.wake.append(later)

    def _reason(self, row: int, entry: Entry, ahead: int) -> Generator[Turn, None, Reason | None]:
        """Why a group of the backlog waits; None: finding out raised, and the group is left out."""
        standing = _STANDINGS[int(self.backlog.standing[row])]
        asked = int(self.backlog.quota[row]) if standing is Standing.QUOTA else -1
        if asked >= 0:
            known = self._over_quota.get(asked)
            if known is None:
                known = plain_reason(self.session, self.sums, entry, standing, ahead)
                if isinstance(known, QuotaExceeded):
                    self._over_quota[asked] = known
            return known
        if standing not in TRIED:
            return plain_reason(self.session, self.sums, entry, standing, ahead)
        why = partial(reason_of, self.context, self.sums, entry, standing, ahead)
        return (yield from working(self.session, self.session.job(entry.job.key), why, None))
