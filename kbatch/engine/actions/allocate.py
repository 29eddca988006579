"""allocate: give the room that is there to those whose turn it is.

Queues by order, jobs by order. A job that lacks its minimum is tried as a whole (one statement) and blocks nobody when
it does not fit; one that has it gets pod after pod, re-ranked after each. A queue that has had its share passes for the
jobs that ask for more of the same, until nobody below a share has a step left; then idle room goes to these, the
smallest share first, so that nothing is left unused.

A job that cannot start may have its start planned, as the arguments of `backfill` say; then who comes after it finds
only the room in which that is not delayed.

What preempt would evict at once is not started: before a job that could be evicted is placed, room is made inside the
queue for those of higher priority that were tried in vain. Where one of these has only been put off, because the queue
has had its share of what it asks for, and fits as things are, the job is put off with it.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from kbatch.api.reasons import Reason
from kbatch.engine.actions.alike import before_trying, judged_alike, tells_of_others, told_alike
from kbatch.engine.actions.base import Action
from kbatch.engine.actions.common import Line, moments_of, plan_start, rankings_of, wants_room
from kbatch.engine.actions.put_off import any_fits
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Step, Transaction, Turn
from kbatch.engine.placement.arrangement import account_for
from kbatch.engine.placement.enough import FEW, could_fit
from kbatch.engine.placement.gang import nearest, placing
from kbatch.engine.placement.ranking import When
from kbatch.engine.preemption.reuse import Searches
from kbatch.engine.preemption.sparing import Decided
from kbatch.engine.preemption.within_queue import EVICTOR, in_reach, preempting
from kbatch.engine.reservation.aged_starts import plan_for_the_aged
from kbatch.engine.reservation.ageing import gather_for_the_aged
from kbatch.engine.reservation.nominations import settle
from kbatch.engine.reservation.planned import PlannedStarts
from kbatch.engine.reservation.planning import plan
from kbatch.engine.reservation.promises import known_by_now, taken_over
from kbatch.engine.session.guarding import key_of, working
from kbatch.engine.session.limits import over_capability
from kbatch.engine.session.session import Refusal, Session
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.growth import Growing
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import next_request, next_tasks, no_choice, signature, unplaced
from kbatch.engine.state.queues import QueueState
from kbatch.model.tasks import Task


class Allocate(Action):
    """The action."""

    name = "allocate"

    def run(self, context: CycleContext) -> Iterator[Step]:
        """Run the action."""
        return _run(context)


def _run(context: CycleContext) -> Iterator[Transaction | Turn]:
    """Run the action."""
    session = context.session
    best_effort = not session.policy.has("backfill")
    lines = [_Line(context, queue, best_effort=best_effort) for queue in session.queues.values() if queue.record.open]
    by_name = {line.queue.name: line for line in lines}
    gathers = session.snapshot.state.gathered is not None
    planned = context.planned
    if planned is not None:
        planned.lift()
    commits = session.commits
    # Nobody who is nominated elsewhere moves to the room that gathers for the aged, or that planned starts need.
    promises = planned is not None and bool(planned.starts)
    anew = planned is not None and not planned.keeps and bool(session.nominees)
    first = (yield from _first_waiting(session)) if anew else []
    behind = partial(_behind, session, first) if first else None
    yield from settle(session, context.rankings, elsewhere=not (gathers or promises), behind=behind)
    if planned is None:
        yield from gather_for_the_aged(session, context.feasibility, context.ledger)
    elif not planned.keeps:  # else each has been promised its room
        yield from plan_for_the_aged(planned, context.feasibility, context.ledger)
    if gathers or promises:
        lay = planned.lay if planned is not None else None
        yield from settle(session, context.rankings, lay=lay, behind=behind)
    if planned is not None:
        planned.lift()
    if planned is not None and planned.keeps and session.commits > commits:
        yield from known_by_now(planned, context.feasibility, context.ledger)
    for job in session.live():
        if session.due():
            yield TURN
        line = by_name.get(job.queue)
        if line is not None and job.in_queue and job.possible and not job.idle:
            line.add(job)
    for modest in (True, False):
        yield from _rounds(session, lines, modest=modest)
    if context.ledger.released:  # what some were kept out by is promised no longer
        for line in lines:
            line.readmit()
        yield from _rounds(session, lines, modest=False)
    if first and planned is not None:  # whose starts are planned is known by now
        yield from settle(session, context.rankings, lay=planned.lay)
        planned.lift()
    context.ledger.end()
    if planned is not None:
        planned.lay(None)
    session.refresh_below()
    for line in lines:
        yield from line.end()


def _first_waiting(session: Session) -> Generator[Turn, None, Sequence[JobState]]:
    """Of each queue the first job that waits for its minimum and is not nominated."""
    found: dict[str, tuple[Any, JobState]] = {}
    for job in session.live():
        if session.due():
            yield TURN
        if job.seeks_minimum and not job.idle:
            key = key_of(session, job)
            if key is not None and job.queue in session.queues:
                found[job.queue] = min(found.get(job.queue, (key, job)), (key, job), key=itemgetter(0))
    return [job for _, job in found.values()]


def _behind(session: Session, first: Sequence[JobState], job: JobState) -> bool:
    """Whether a nominated job comes after any of these. It counts as though it was not nominated, as they are not.
    Those of other queues may all come first: the order of queues is another once what was evicted for the job goes, and
    it would take the very room for whose lack that was evicted.
    """
    statement = Statement(session, job)
    statement.withdraw_all(job)
    key = session.plugins.job_key(job)
    found = any(each.queue != job.queue or session.plugins.job_key(each) < key for each in first)
    statement.rollback()
    return found


def _rounds(session: Session, lines: list[_Line], *, modest: bool) -> Iterator[Transaction | Turn]:
    """Step after step, that of the first queue, until nobody has one left."""
    heap: list[tuple[Any, int]] = []
    for at, line in enumerate(lines):
        yield from line.begin()
        if line:
            heap.append((line.key(), at))
    heapq.heapify(heap)
    while heap:
        _, at = heap[0]
        line = lines[at]
        moved = yield from line.step(modest=modest)
        if not line:
            heapq.heappop(heap)
        elif moved or session.plugins.looks_ahead:
            heapq.heapreplace(heap, (line.key(), at))


def _take_over(context: CycleContext, statement: Statement) -> Generator[Turn, None, bool]:
    """Place the job where others of its queue that matter less are nominated; their nominations end if that helps.

    The room may have been taken from other queues, for no more than the queue's share: it does not go above that. And
    pods that never preempt would not have been given it: nobody was evicted for their sake.
    """
    session = context.session
    if not session.nominees or any(task.never_preempts for task in statement.job.waiting):
        return False
    job, queue = statement.job, session.queue(statement.job.queue)
    most = {name: max(queue.deserved.get(name, 0), queue.allocated.get(name, 0)) for name in job.asks}
    weaker = [
        other for other in session.nominees.values() if other.queue == job.queue and other.priority < job.priority
    ]
    weaker.sort(key=session.plugins.job_key, reverse=True)
    for other in weaker:
        statement.withdraw_all(other)
        mark = len(statement)
        placed = yield from placing(context.rankings, statement, (When.NOW, When.LATER), search=())
        if placed and context.planned is not None and context.planned.later(job):
            placed = False
        if placed and all(queue.allocated.get(name, 0) <= amount for name, amount in most.items()):
            return True
        statement.rollback(mark)
    statement.rollback()
    return False


class _Line:
    """The jobs of one queue that want something, and those put off because the queue has had its share."""

    def __init__(self, context: CycleContext, queue: QueueState, *, best_effort: bool) -> None:
        self.context = context
        self.session = context.session
        self.queue = queue
        self._best_effort = best_effort
        self._heap: list[tuple[Any, JobState]] = []
        self._put_off: list[JobState] = []
        self._surplus: dict[str, Growing] = {}
        self._passed: dict[str, tuple[JobState, Reason]] = {}
        self._kept_out: dict[str, JobState] = {}
        self._preempts = context.session.policy.has("preempt")
        self._in_vain: list[JobState] = []
        self._most_in_vain: int | None = None
        """The highest priority of these, and of those that are put off or kept out."""
        self._released = 0
        """How often promises had ended (`Ledger.released`) when those that they kept out were let back."""
        self._searches: Searches | None = None

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, job: JobState) -> None:
        """Let the job stand in line."""
        self._put_off.append(job)

    def begin(self) -> Iterator[Turn]:
        """Bring those that were put off back into line."""
        for job in self._put_off:
            self._stand(job)
            if self.session.due():
                yield TURN
        self._put_off = []
        heapq.heapify(self._heap)

    def key(self) -> tuple[Any, ...]:
        """The queue's place among those that have a job in line."""
        more = next_request(self._heap[0][1]) if self.session.plugins.looks_ahead else None
        return self.session.plugins.queue_key(self.queue, more)

    def readmit(self) -> None:
        """Let those stand in line again that a promise to others kept out."""
        for job in list(self._kept_out.values()):
            self._readmit(job)
            self._put_off.append(job)

    def _readmit(self, job: JobState) -> None:
        del self._kept_out[job.key]
        if not job.missing():
            self._surplus.pop(job.key, None)
        self.session.reasons.pop(job.key, None)

    def _let_back(self, job: JobState) -> bool:
        """Let those that matter more than the job stand in line again, where what kept them out is promised no longer;
        whether there are any.
        """
        released, self._released = self._released, self.context.ledger.released
        if released == self._released:
            return False
        back = [other for other in self._kept_out.values() if other.priority > job.priority]
        for other in back:
            self._readmit(other)
            self._stand(other)
        return bool(back)

    def end(self) -> Iterator[Turn]:
        """Blame the share where others come first: it alone keeps nobody from room that nobody else may have."""
        for job, reason in self._passed.values():
            if job.possible and job.missing() and self.session.others_first(job):
                self.session.refuse(job, reason)
            if self.session.due():
                yield TURN

    def step(self, *, modest: bool) -> Generator[Transaction | Turn, None, bool]:
        """Try the first job's next step. Returns whether the queue's sums changed."""
        job = heapq.heappop(self._heap)[1]
        if not job.possible:
            return False  # another one's step has found it failing
        session = self.session
        before, aside = before_trying(self.context, job) if self._heap else None, self._aside
        refusals: list[Refusal] = []
        session.refusals = refusals if before is not None else None
        done = yield from working(session, job, partial(self._try, job, modest=modest), False)
        session.refusals = None
        if done and not job.idle and job.possible:
            self._stand(job)
        if not done and aside == self._aside and tells_of_others(self.context, job, before):
            yield from self._refuse_alike(job, refusals, modest=modest)
        return done

    @property
    def _aside(self) -> tuple[int, int]:
        """How many jobs the line has put off and kept out: nobody is told of others by that."""
        return len(self._put_off), len(self._kept_out)

    def _refuse_alike(self, job: JobState, refusals: Sequence[Refusal], *, modest: bool) -> Iterator[Turn]:
        """The job has failed, and nothing has changed by it: those that come next in line and are alike in all that
        matters fail, too, and are told the same.
        """
        session = self.session
        while self._heap and judged_alike(self.context, self._heap[0][1], job):
            if modest and self._maybe_enough(self._heap[0][1]):
                return
            other = heapq.heappop(self._heap)[1]
            told_alike(session, other, job, refusals)
            if self._preempts:
                self._in_vain.append(other)
            self.context.ledger.tried(other)
            if session.due():
                yield TURN

    def _maybe_enough(self, job: JobState) -> bool:
        """Whether the queue has had enough for the job, or asking raises: who tries it is to see that."""
        try:
            return self.session.plugins.overused(self.queue, job) is not None
        except Exception:  # noqa: BLE001 -- as in `guarding`
            return True

    def _stand(self, job: JobState) -> None:
        """Put the job into the line at its place."""
        key = key_of(self.session, job)
        if key is not None:
            heapq.heappush(self._heap, (key, job))

    def _try(self, job: JobState, *, modest: bool) -> Generator[Transaction | Turn, None, bool]:
        if modest:
            reason = self.session.plugins.overused(self.queue, job)
            if reason is not None:
                self._put_off.append(job)
                self._passed[job.key] = job, reason
                self._not_placed(job)
                if self.session.due():
                    yield TURN
                return False
        context, ledger, planned = self.context, self.context.ledger, self.context.planned
        if planned is not None:
            planned.lay(job)
        lifted = ledger.lift(job)
        try:
            if job.missing():
                done = yield from self._minimum(job, modest=modest)
                if done and planned is not None and not job.nominated:
                    planned.started(job)
                    if planned.keeps:
                        yield from taken_over(planned, context.feasibility, ledger, context.rankings, job)
                if done is False and planned is not None and planned.wanted(job):
                    yield from self._plan(planned, job)
            else:
                done = job.whole and (yield from self._one_more(job))
        finally:
            if lifted:
                ledger.lay()
        if done is None:
            return (yield from self._after_others(job, modest=modest))
        if not done:
            if self._preempts and job.key not in self._kept_out:
                self._in_vain.append(job)
            self._not_placed(job)
            if job.missing():
                ledger.tried(job)
            yield TURN
        return done

    def _plan(self, planned: PlannedStarts, job: JobState) -> Iterator[Transaction | Turn]:
        """Plan the start of a job that was tried in vain, if it lacks nothing but room."""
        context = self.context
        if job.key in self._kept_out or not (yield from plan_start(context, planned, job)):
            return
        if planned.keeps:
            yield from taken_over(planned, context.feasibility, context.ledger, context.rankings, job)

    def _not_placed(self, job: JobState) -> None:
        """The job was tried in vain or put off: where preempt is configured it may evict what is placed after it."""
        if not self._preempts:
            return
        if self._most_in_vain is None or job.priority > self._most_in_vain:
            self._most_in_vain = job.priority

    def _after_others(self, job: JobState, *, modest: bool) -> Generator[Transaction | Turn, None, bool]:
        """The job would be placed, and perhaps evicted at once: let those that matter more go before it. Whether it, or
        one of them, is to be tried next.
        """
        if self._let_back(job):
            return True
        if modest:
            before = (other for other in self._put_off if other.priority > job.priority and other.possible)
            if (yield from any_fits(self.context, before)):
                self._put_off.append(job)
                return False
        yield from self._preempt_before(job)
        return True

    def _preempt_before(self, job: JobState) -> Generator[Transaction | Turn, None, None]:
        """Make room inside the queue for those that matter more than the job; each is tried once."""
        if self._searches is None:
            self._searches = Searches(self.context, EVICTOR)
            self.session.caches.append(self._searches.forget)
        first = Line(self.session, self.queue)
        tried = (*self._in_vain, *self._kept_out.values())
        before = (other for other in tried if other.priority > job.priority and wants_room(other))
        for other in in_reach(self.session, self.queue, before):
            first.stand(other)
        self._in_vain = [other for other in self._in_vain if other.priority <= job.priority]
        self._most_in_vain = max((other.priority for other in self._in_vain), default=None)
        decided = Decided(self.context)
        while first:
            other = first.next()
            if not other.possible:
                continue
            step = partial(preempting, self.context, self.queue, other, self._searches)
            moved = yield from decided.keeping(working(self.session, other, step, False))
            yield TURN
            if moved:
                first.stand(other)
        if (yield from decided.sparing()):
            self._searches = None  # it has let go of those that stay

    def _others_preempt(self, job: JobState, *, minimum: bool) -> bool:
        """Whether what the job is to place, its minimum or a pod above it, might be evicted at once for those that
        were tried in vain before.
        """
        model, group = job.job, job.job.group
        if model.disruption == "Never" or (group is not None and group.spec.min_runtime_seconds):
            return False
        ends = group is not None and group.spec.lifetime_seconds == 0  # at once: then it may go as a whole
        if minimum and model.gang and model.disruption != "Whole" and not ends:
            return False
        return self._most_in_vain is not None and self._most_in_vain > job.priority

    def _minimum(self, job: JobState, *, modest: bool) -> Generator[Transaction | Turn, None, bool | None]:
        """Place the minimum; None: those that matter more come first."""
        context, session = self.context, self.session
        reason = session.plugins.valid(job)
        if reason is not None:
            session.refuse(job, reason)
            return False
        tasks = unplaced(job)
        following = next_tasks(job, tasks)
        if len(following) < job.missing():
            return False  # the others wait behind gates
        if self._refused(job, tasks, following):
            return False
        statement = Statement(session, job)
        failed, mark = context.unschedulable, self._mark(job, tasks)
        known = not failed.empty and failed.known(job, mark, tasks)
        known = known and not session.plugins.over_limits(job, following)  # which limit refuses it is found by trying
        if known and job.together is None:
            account_for(context.rankings, statement, (When.NOW,))
        placed = not known and (yield from self._placed(statement, following, tasks))
        if placed is None:
            session.refuse_room(job)
            return False
        if placed:
            if session.due(len(statement)):
                yield TURN
            reason = self._not_its_own(job, tasks, modest=modest)
            if reason is None and self._others_preempt(job, minimum=True):
                statement.rollback()
                return None
            if reason is None:
                yield from statement.commit()
                context.foreknown.committed(statement)
                return True
            statement.rollback()
            self._kept_out[job.key] = job
            session.refuse(job, reason)
            return False
        statement.rollback()
        taken = yield from self._taken_over(statement)
        if taken is not None:
            return taken
        reason = context.ledger.reason(job) if not known else None
        if reason is not None:
            session.refuse(job, reason, attempted=True)
            return False
        reason = context.planned.reason(context.rankings, job) if context.planned is not None else None
        if reason is not None:
            if statement.searched and statement.refused is None and not (known or context.ledger):
                failed.note(job, mark, tasks)
            session.refuse(job, self._limited(job, following) or reason, attempted=True)
            return False
        if statement.refused is not None:
            session.refuse(job, over_capability(self.queue, following) or statement.refused[1], attempted=True)
            return False
        if statement.searched and not known and (not context.ledger or context.ledger.in_vain):
            failed.note(job, mark, tasks, beside_kept=bool(context.ledger))
        session.refuse_room(job)
        return False

    def _limited(self, job: JobState, following: Sequence[Task]) -> Reason | None:
        """What a plugin says that lets the job place nothing, whatever becomes of the room."""
        limit = self.session.plugins.limit
        if limit is None or limit.headroom(job, following[0]) != 0:
            return None
        return limit.refusal(job, following[0])

    def _not_its_own(self, job: JobState, tasks: Sequence[Task], *, modest: bool) -> Reason | None:
        """Who was promised the room in which the job's minimum was placed. It leaves to more important groups of its
        queue what these were promised; whose queue has had its share (not `modest`) to others what these were
        promised before it, and who was promised nothing all that others were.
        """
        ledger = self.context.ledger
        if job.job.shadow:
            return ledger.broken(job, _planned(job, tasks))
        return ledger.robs(job, _planned(job, tasks), modest=modest)

    def _refused(self, job: JobState, tasks: Sequence[Task], following: Sequence[Task]) -> bool:
        """Whether no node needs to be looked at to refuse the minimum; it is told why then."""
        capped = self.queue.record.capability and no_choice(job, tasks)
        reason = over_capability(self.queue, following) if capped else None
        if reason is not None:
            self.session.refuse(job, reason)
            return True
        if self.context.feasibility.hopeless(job):
            self.session.refuse_room(job)
            return True
        return False

    def _placed(
        self, statement: Statement, following: Sequence[Task], tasks: Sequence[Task]
    ) -> Generator[Turn, None, bool | None]:
        """Whether there is room for the minimum: the first of the tasks, if all of these fit. It is placed then.

        None: there is, and the job can be promised an earlier start than when it comes free.
        """
        context, job = self.context, statement.job
        if context.foreknown.place(statement):
            return True
        if len(following) > FEW and self._unlimited(statement, tasks) and not could_fit(context.rankings, job):
            return False
        placed = yield from placing(rankings_of(context), statement, moments_of(context))
        if placed and context.planned is not None:
            if context.planned.later(job):
                statement.searched = False  # another time that will do
                return False
            if (yield from self._sooner(context.planned, statement)):
                return None
        return placed

    def _sooner(self, planned: PlannedStarts, statement: Statement) -> Generator[Turn, None, bool]:
        """Whether the job could be promised an earlier start than it has where it is nominated just now. Then it is
        placed no more.
        """
        context, job = self.context, statement.job
        if not (planned.keeps and job.nominated and planned.may_plan(job)):
            return False
        yield from planned.ends.preparing()
        until = planned.waits_until(job)
        placed = [task for task, _ in job.nominated.values()]
        if until is None or (job.job.shadow and context.ledger.broken(job, placed) is not None):
            return False
        steps = statement.recorded()
        statement.rollback()
        found = None
        if not job.nominated:
            found = yield from plan(planned, context.feasibility, context.ledger, job)
        planned.lay(job)
        if found is not None and found.at is not None and found.at < until:
            return True
        statement.replay(steps)
        return False

    def _taken_over(self, statement: Statement) -> Generator[Transaction | Turn, None, bool | None]:
        """Nominate the job where others are that matter less, if that helps; whether it was. None: it does not help."""
        if len(moments_of(self.context)) < 2 or not (yield from _take_over(self.context, statement)):
            return None
        planned = self.context.planned
        if planned is not None and (yield from self._sooner(planned, statement)):
            self.session.refuse_room(statement.job)
            return False
        yield from statement.commit()
        return True

    def _mark(self, job: JobState, tasks: Sequence[Task]) -> object:
        """What decides whether the minimum fits given nodes: with what planned starts keep from it."""
        found, planned = signature(job, tasks), self.context.planned
        if planned is None or not (planned.mark or planned.hurried):
            return found
        shut, barred = planned.shut_to(job), planned.barred_to(job)
        due = planned.due_places(job) if shut or barred else ()
        return found, planned.kept, shut, barred, due, planned.hurried

    def _unlimited(self, statement: Statement, tasks: Sequence[Task]) -> bool:
        """Whether nothing but the nodes' room decides where these tasks go: no limit would refuse any of them."""
        kinds = {(task.cls.id, task.role): task for task in tasks}
        if any(statement.rows(task) is not None for task in kinds.values()):
            return False
        headrooms = [(statement.headroom(task), role) for (_, role), task in kinds.items()]
        if all(headroom is None for headroom, _ in headrooms):
            return True
        if over_capability(self.queue, tasks) is not None:
            return False
        count = Counter(task.role for task in tasks)
        return all(headroom is None or headroom >= count[role] for headroom, role in headrooms)

    def _one_more(self, job: JobState) -> Generator[Transaction, None, bool | None]:
        """One pod above the minimum; classes of a role that do not fit are left out for the rest of the action.

        None: those that matter more come first.
        """
        context, session = self.context, self.session
        rest = self._surplus.get(job.key)
        if rest is None:
            tasks = [task for task in unplaced(job) if self._best_effort or not task.cls.best_effort]
            rest = self._surplus[job.key] = Growing(job, tasks, session.plugins.task_key)
        full: set[tuple[int, str]] = set()
        for task in rest:
            kind = task.cls.id, task.role
            if kind in full or task.key in job.placed or task.key in job.nominated or job.full(task.role):
                continue  # what was above the minimum may have become part of it, where others have preempted
            statement = Statement(session, job)
            if statement.headroom(task) == 0:
                full.add(kind)
                continue
            if context.ledger.refuses(job, [task]) is not None:
                self._kept_out[job.key] = job
                full.add(kind)
                continue
            rows = nearest(rankings_of(context), statement, task, When.NOW)
            waits = not rows and When.LATER in moments_of(context)
            if waits:
                rows = nearest(rankings_of(context), statement, task, When.LATER)
            if not statement.place((task,), rows, waits=waits):
                full.add(kind)
                continue
            if self._others_preempt(job, minimum=False):
                statement.rollback()
                rest.back(task)
                return None
            yield from statement.commit()
            return True
        return False


def _planned(job: JobState, tasks: Sequence[Task]) -> list[Task]:
    """Those of the tasks that the open statement has bound or nominated."""
    return [task for task in tasks if task.key in job.placed or task.key in job.nominated]
