"""The nodes as they would be without this scheduler's pods: whether a group could run there at all, and what it lacks.

A trial places the minimum by the code that places it in earnest, over an emptied session of its own: the plugins are
made once more over nodes on which only other schedulers' pods stand, so the gang's pods meet one another's
anti-affinity, spread and host ports, and nobody else's but those. What terminates is gone. Every trial is taken back.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
import numpy as np

from kbatch.api.reasons import Reason
from kbatch.engine.cooperative import finish
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.placement.gang import placing, why_apart
from kbatch.engine.placement.kinds import counted, easiest_first, kinds_of
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.placement.shortage import shortage, shortage_of
from kbatch.engine.session.session import Session
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import next_tasks
from kbatch.engine.state.node_resources import NodeResources
from kbatch.engine.state.to_come import pod_to_come, tasks_to_come
from kbatch.model.makers import ToCome
from kbatch.model.nodes import Column, Mask, exact_sum
from kbatch.model.tasks import Task, TaskClass
from kbatch.resources import scale, total

_UNLIMITED: Final = 1 << 62
_STEPS: Final = 100
"""Of a search on emptied nodes, which is seldom needed there; it is made once for each gang, in whatever cycle, so that
their number must not depend on what is remembered."""

_MOST_TO_COME: Final = 2_000
"""More pods that do not exist yet are not placed one by one: they fill the nodes class after class."""

_MANY: Final = 1_000
"""As many pods as are put in order in a few milliseconds."""

_FEW: Final = 64
"""Of trials for groups that may all be gone."""

_KEPT: Final = 500
"""So many trials are kept for groups that are alike, and so many answers about classes; or twice as many as there are
classes. What is more is of pods that are gone: ten thousand filled for a quarter of an hour, ten pods a second.
"""

_Counts: TypeAlias = "dict[tuple[TaskClass, str], int]"
"""How many pods, by class and role."""
_Run: TypeAlias = "tuple[TaskClass, str, int]"
"""So many pods of one class and role."""


class Trial(msgspec.Struct, frozen=True):
    """How much of a group's minimum the emptied nodes take; `short`, `fitting` and `counts` are about the others.

    Attributes:
        needed, placeable: pods; those that have succeeded count in both.
        short, missing: the dimension that is short for what is left, and by how much; "" and 0 where none is.
        fitting, counts: nodes that take one more of what is left beside the placeable, and the others by reason.
        role: of the first pod that is left.
        apart: why the pods do not fit together although they do fit; None where it is not that.
        stands: by role the rows on which they were placed, if they fit; of jobs that are kept together.
    """

    needed: int
    placeable: int
    short: str = ""
    missing: int = 0
    fitting: int = 0
    counts: tuple[tuple[str, int], ...] = ()
    role: str = ""
    apart: Reason | None = None
    stands: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def fits(self) -> bool:
        """Whether all that is needed can be placed."""
        return self.placeable >= self.needed


_NOTHING: Final[Mapping[object, bool]] = {}


class Feasibility:
    """One session's emptied nodes."""

    def __init__(
        self,
        session: Session,
        before: Mapping[object, Trial],
        alike: dict[Hashable, Trial],
        proved: Mapping[object, bool] = _NOTHING,
        most: dict[int, int] | None = None,
    ) -> None:
        self._session = session
        table = session.nodes
        usable = table.open & table.ready & ~table.cordoned
        # Capacity leaves out nodes that take nothing new; pods that tolerate this go there nonetheless.
        self._capacity = {
            name: np.where(usable, capacity, table.allocatable[name]) for name, capacity in table.capacity.items()
        }
        self._room = NodeResources(table, self._capacity)
        self._rankings = NodeRankings(
            self._room, session.plugins.predicates, (), session.policy.fingerprint, alone=True
        )
        self._emptied: tuple[Session, NodeRankings] | None = None
        self.by_class: dict[int, int] = most if most is not None else {}
        """What `most` says by class, for the next session too, while the capacity of the nodes stays as it is."""
        self._trials: dict[object, Trial] = {}
        self._before = before
        self._alike = alike
        self._most_kept = max(_KEPT, 2 * len(session.model.classes))
        self._hopeless: dict[object, bool] = {}
        self._proved = proved
        self._counts: dict[str, _Counts] = {}
        self._marks: dict[str, object] = {}
        self._sums: dict[str, int] = {}
        self._unions: dict[tuple[int, ...], Mask] = {}
        """The rows that any of some masks allow, by the `id` of these."""

    def close(self) -> None:
        """Let go of what holds this."""
        self._rankings.close()
        if self._emptied is not None:
            session, rankings = self._emptied
            rankings.close()
            session.close()
            self._emptied = None

    def let_go(self) -> Iterator[Turn]:
        """Let the emptied session go, in pieces: what its plugins keep is there for the next cycle."""
        if self._emptied is not None:
            yield from self._emptied[0].let_go()

    def forget(self) -> None:
        """Make everything anew: an error may have left it half made."""
        self.close()

    def hopeless(self, job: JobState) -> bool:
        """Whether no arrangement could hold the group's minimum; cheap, and only ever true where that is proved.

        Each class by itself must have room for its part; where all pods are needed, their sum must fit the cluster too.
        """
        mark = self.mark(job)
        found = self._hopeless.get(mark)
        if found is None:
            found = self._proved.get(mark)
            found = self._hopeless[mark] = self._cannot(job, self._needs(job)) if found is None else found
        return found

    def _cannot(self, job: JobState, counts: _Counts) -> bool:
        wanted, there = job.minimum - job.job.succeeded, sum(counts.values())
        most = {role.name: role.max_member for role in job.job.roles}
        usable = 0
        in_role: dict[str, int] = {}
        for (_, role_name), count in counts.items():
            in_role[role_name] = in_role.get(role_name, 0) + count
        for role_name, count in in_role.items():
            limit = most.get(role_name)
            usable += count if limit is None else min(count, max(0, limit - job.job.succeeded_in(role_name)))
        if usable < wanted:
            return False  # not all pods are there
        lacks_pods = False
        for role in job.job.roles:
            least = role.min_member - job.job.succeeded_in(role.name)
            if least > in_role.get(role.name, 0):
                lacks_pods = True
            elif least > self._at_most({pair: count for pair, count in counts.items() if pair[1] == role.name}):
                return True
        if lacks_pods:
            return False
        if self._at_most(counts) < wanted:
            return True
        if there == wanted:
            asked = total(scale(cls.request, count) for (cls, _), count in counts.items())
            return any(amount > self._sum(name) for name, amount in asked.items())
        return False

    def _sum(self, name: str) -> int:
        found = self._sums.get(name)
        if found is None:
            column = self._capacity.get(name)
            found = self._sums[name] = exact_sum(column[self._session.nodes.open]) if column is not None else 0
        return found

    def _at_most(self, counts: _Counts) -> int:
        """At most this many of the pods have room, were each class alone; those that differ in nothing here are one."""
        alike: dict[object, tuple[TaskClass, int]] = {}
        for (cls, _), count in counts.items():
            mark = (cls.needs, self._rankings.allowed(cls).tobytes()) if len(counts) > 1 else cls.id
            alike[mark] = cls, alike.get(mark, (cls, 0))[1] + count
        return sum(min(count, self.most(cls)) for cls, count in alike.values())

    def most(self, cls: TaskClass) -> int:
        """How many pods of a class the emptied nodes hold, were there no others."""
        found = self.by_class.get(cls.id)
        if found is None:
            if len(self.by_class) >= self._most_kept:
                self.by_class.clear()
            fitting = np.where(self._rankings.allowed(cls), np.int64(1 << 32), np.int64(0))
            for name, amount in cls.needs:
                column = self._capacity.get(name)
                fitting = np.minimum(fitting, column // amount) if column is not None else np.zeros_like(fitting)
            found = self.by_class[cls.id] = int(fitting.sum())
        return found

    def usable_by(self, job: JobState) -> Mask | None:
        """The rows that pods of the group's minimum may use at all, whatever stands there; None where pods are lacking
        of which nothing is known. Those who may use the same are given the same array, mostly.
        """
        counts, needed = self._needs(job), job.minimum - job.job.succeeded
        if len(counts) == 1:  # nearly always
            ((cls, _), count), *_ = counts.items()
            return self._rankings.allowed(cls) if count >= needed else None
        if not counts or sum(counts.values()) < needed:
            return None
        masks = {id(mask): mask for mask in [self._rankings.allowed(cls) for cls, _ in counts]}
        key = tuple(sorted(masks))
        found = self._unions.get(key)
        if found is None:
            found = self._unions[key] = np.logical_or.reduce([*masks.values()])
        return found

    def mark(self, job: JobState) -> object:
        """What the answers about a group depend on, but for the nodes: what the snapshot says."""
        found = self._marks.get(job.key)
        if found is None:
            found = self._marks[job.key] = _content(job, self._needs(job))
        return found

    def remember(self, job: JobState, mark: object) -> None:
        """An earlier cycle has worked out its `mark`, and the group has not changed since."""
        self._marks.setdefault(job.key, mark)

    def asks(self, job: JobState) -> tuple[Mapping[tuple[TaskClass, str], int], Hashable]:
        """The same: its pods, those to come included, by class and role; and what it depends on besides."""
        return self._needs(job), _besides(job)

    def attempt(self, job: JobState) -> Trial:
        """`attempting`, without turns."""
        return finish(self.attempting(job))

    def attempting(self, job: JobState) -> Generator[Turn, None, Trial]:
        """Place the group's minimum on the emptied nodes.

        Pods that do not exist yet are placed like those that do, so that the answer does not depend on how the work was
        submitted; what they think of other pods is not known of them. Where they are more than `_MOST_TO_COME`, they
        and the pods that exist fill the nodes one class after the other, and none of them looks at others.
        """
        counts, mark = self._needs(job), self.mark(job)
        found = self._known(mark)
        if found is None:
            coming = self._coming(job)
            if job.together is None and sum(pods.count for pods in coming) > _MOST_TO_COME:
                found = self._fill(job, _minimum_of(job, counts))
            else:
                found = yield from self._attempt(job, self._awaited(job, coming))
        self._trials[mark] = found
        return found

    def known_to_fit(self, job: JobState) -> bool:
        """Whether a trial was made already for the group, or one that is alike, and all fitted."""
        mark = self.mark(job)
        found = self._known(mark)
        if found is None:
            return False
        self._trials[mark] = found
        return found.fits

    def _known(self, mark: object) -> Trial | None:
        return self._trials.get(mark) or self._before.get(mark)

    def standing(self, job: JobState) -> Generator[Turn, None, Mapping[str, Sequence[int]]]:
        """By role the rows on which the group's minimum would stand on the emptied nodes; empty where it would not."""
        trial = yield from self.attempting(job)
        return dict(trial.stands)

    @property
    def asked(self) -> int:
        """How many different trials have been made or asked for in this session."""
        return len(self._trials)

    @property
    def trials(self) -> Mapping[object, Trial]:
        """The trials for the next session, while the capacity of the nodes stays as it is: those made or asked for in
        this one, and of earlier ones the latest. As many are kept as there are groups that may still ask for them, and
        half as many again before the rest is forgotten: to look for the rest takes as long as there are trials.
        """
        if self._trials.keys() <= self._before.keys():
            return self._before
        most = max(len(self._trials), len(self._session.model.live))
        kept: dict[object, Trial] = {**self._before, **self._trials}
        if len(kept) > most + most // 2 + _FEW:
            spare = len(kept) - most
            for mark in self._before:
                if not spare:
                    break
                if mark not in self._trials:
                    del kept[mark]
                    spare -= 1
        return kept

    @property
    def proved(self) -> dict[object, bool]:
        """What `hopeless` has said in this session, for the next one."""
        return self._hopeless

    @property
    def alike(self) -> dict[Hashable, Trial]:
        """The trials made since the capacity of the nodes changed, by all that they depend on; so many at most."""
        return self._alike

    def _needs(self, job: JobState) -> _Counts:
        """The pods that a trial is about: what the snapshot says, so they are counted once."""
        found = self._counts.get(job.key)
        if found is None:
            found = self._counts[job.key] = self._count(job)
        return found

    def _count(self, job: JobState) -> _Counts:
        """Its pods that have not ended, and those to come that its minimum could take, by class and role."""
        counts = counted(
            [(task.cls, task.role) for task in job.job.tasks.values() if not (task.terminal or task.terminating)]
        )
        for pods in self._coming(job):
            pair = pods.template.task_class(self._session.model.classes, job.job.namespace), pods.template.role
            counts[pair] = counts.get(pair, 0) + pods.count
        return counts

    def _coming(self, job: JobState) -> Sequence[ToCome]:
        """The pods to come that the minimum could take; of very many only those that it takes first."""
        if not job.job.to_come:
            return ()
        demand = self._session.model.demand(job.job)
        many = sum(pods.count for pods in demand.eligible) > _MOST_TO_COME
        return demand.needed if many else demand.eligible

    def _fill(self, job: JobState, runs: list[_Run]) -> Trial:
        """Fill the nodes in their order with one run after the other; takes as long for a thousand pods as for one."""
        room, rankings = self._room, self._rankings
        runs.sort(key=lambda run: _size(run[0]), reverse=True)
        before: dict[str, Column] = {}
        placed = 0
        left: list[_Run] = []
        for cls, role, count in runs:
            room.ensure(cls)
            fitting = np.where(rankings.allowed(cls), np.int64(count), np.int64(0))
            for name, amount in cls.needs:
                fitting = np.minimum(fitting, np.maximum(room.idle[name], 0) // amount)
            taken = np.clip(count - (np.cumsum(fitting) - fitting), 0, fitting)
            for name, amount in cls.needs:
                before.setdefault(name, room.idle[name].copy())
                room.idle[name] -= taken * amount
                room.future[name] -= taken * amount
            most = int(taken.sum())
            placed += most
            if most < count:
                left.append((cls, role, count - most))
        lacking = job.minimum - job.job.succeeded - sum(count for _, _, count in runs)  # pods that nobody knows of
        found = Trial(job.minimum, job.job.succeeded + placed + max(0, lacking))
        if left:
            short, missing = shortage_of(self._session.nodes, room, [(cls, count) for cls, _, count in left])
            fitting_now, counts = rankings.histogram(left[0][0])
            found = Trial(found.needed, found.placeable, short, missing, fitting_now, counts, left[0][1])
        for name, column in before.items():
            room.idle[name][:] = column
            room.future[name][:] = column
        return found

    def _awaited(self, job: JobState, coming: Sequence[ToCome]) -> list[Task]:
        """The pods to come as tasks that are in no model."""
        tasks: list[Task] = []
        for pods in coming:
            cls = pods.template.task_class(self._session.model.classes, job.job.namespace)
            pod = pod_to_come(job, pods.template, cls.spec)
            numbers = range(len(tasks), len(tasks) + pods.count)
            tasks += tasks_to_come(job, pods.template.role, pod, cls, numbers, self._session.now)
        return tasks

    def _attempt(self, job: JobState, awaited: Sequence[Task]) -> Generator[Turn, None, Trial]:
        state = _as_new(job, awaited)
        if len(state.waiting) > _MANY:
            yield TURN
        # Mostly the session as it is tells enough, and no other has to be made.
        known = self._alike.get(_likeness(self._session, state))
        if known is not None:
            return known
        session, rankings = yield from self._ground()
        likeness = _likeness(session, state)
        known = self._alike.get(likeness)
        if known is not None:
            return known
        begun = state.missing()
        absent = begun - len(next_tasks(state, state.waiting))  # pods that nobody knows of count as placed
        statement = Statement(session, state)
        try:
            search = (When.NOW,) if absent == 0 else ()
            yield from placing(rankings, statement, (When.NOW,), search=search)
            missing = max(0, state.missing() - absent)
            found = Trial(job.minimum, max(0, job.minimum - missing), stands=_stands(state) if not missing else ())
            if missing and state.together is not None:
                apart = yield from self._apart(statement)
                yield from placing(rankings, statement, (When.NOW,), search=search)
                missing = max(0, state.missing() - absent)
                if apart is not None and not missing:
                    return Trial(job.minimum, min(found.placeable, job.minimum - 1), apart=apart)
                found = Trial(job.minimum, max(0, job.minimum - missing))
            if missing:
                left = next_tasks(state, easiest_first(rankings, state))
                short, lacking = shortage(session.nodes, self._room, left)
                fitting, counts = rankings.histogram(left[0].cls)
                found = Trial(found.needed, found.placeable, short, lacking, fitting, counts, left[0].role)
            yield from statement.rolling_back()
        finally:
            statement.rollback()
        if not session.plugins.gathering:  # sets of nodes may depend on anything about the group
            if len(self._alike) >= self._most_kept:
                self._alike.clear()
            self._alike[likeness] = found
        return found

    def _apart(self, statement: Statement) -> Generator[Turn, None, Reason | None]:
        """Why the pods do not fit together, if plugins have words for it; the statement is empty then, and from now on
        places them as though nothing kept them together.
        """
        _, rankings = yield from self._ground()
        statement.rollback()
        apart = yield from why_apart(rankings, statement, When.NOW)
        statement.apart = apart is not None
        return apart

    def _ground(self) -> Generator[Turn, None, tuple[Session, NodeRankings]]:
        """The emptied session, made when it is first needed: its plugins look at the same nodes, without our pods."""
        if self._emptied is None:
            snapshot, policy = self._session.snapshot, self._session.policy
            session = Session(snapshot, policy, emptied=self._room)
            for plugin in session.plugins.predicates:
                for _ in plugin.prepare():
                    yield TURN
            rankings = NodeRankings(self._room, session.plugins.predicates, (), policy.fingerprint)
            rankings.searches, rankings.steps = _UNLIMITED, _STEPS
            self._emptied = session, rankings
        return self._emptied


def _content(job: JobState, counts: _Counts) -> object:
    """What a trial depends on, but for the nodes."""
    pods = [(cls.id, role, count) for (cls, role), count in counts.items()]
    pods.sort()
    return tuple(pods), _besides(job)


def _besides(job: JobState) -> Hashable:
    """What it depends on besides the pods."""
    model = job.job
    roles = tuple(
        [(role.name, role.min_member, role.max_member, model.succeeded_in(role.name)) for role in model.roles]
    )
    return roles, model.minimum, model.succeeded, job.together


def _stands(job: JobState) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """By role the rows on which its pods are placed; of a job that is kept together."""
    if job.together is None:
        return ()
    found: dict[str, set[int]] = {}
    for task, row in job.placed.values():
        found.setdefault(task.role, set()).add(row)
    return tuple((role, tuple(sorted(rows))) for role, rows in sorted(found.items()))


def _likeness(session: Session, state: JobState) -> Hashable:
    """All that a trial depends on, but for the nodes: groups of which it is equal get the same answer, whatever names
    and labels they have. What plugins read of the pods they say themselves.
    """
    kinds = kinds_of(state)
    classes = list({kind.cls.id: kind.cls for kind in kinds}.values())
    number = {cls.id: at for at, cls in enumerate(classes)}
    return (
        tuple((number[kind.cls.id], kind.role, len(kind.tasks)) for kind in kinds),
        tuple((tuple(sorted(cls.request.items())), cls.avoids, cls.shuns) for cls in classes),
        tuple((role.name, role.min_member, role.max_member, state.by_role.get(role.name)) for role in state.job.roles),
        (state.minimum, state.pipelined, state.job.succeeded),
        tuple(plugin.alike(classes) for plugin in session.plugins.predicates),
    )


def _minimum_of(job: JobState, counts: _Counts) -> list[_Run]:
    """The smallest pods that make up the minimum and each role's."""
    left = {pair: counts[pair] for pair in sorted(counts, key=lambda pair: (_size(pair[0]), pair[1]))}
    found: list[_Run] = []

    def take(role: str | None, count: int) -> int:
        taken = 0
        for (cls, of), there in left.items():
            some = min(count - taken, there) if role is None or of == role else 0
            if some > 0:
                found.append((cls, of, some))
                left[cls, of] -= some
                taken += some
        return taken

    rest = job.minimum - job.job.succeeded
    for role in job.job.roles:
        rest -= take(role.name, role.min_member - job.job.succeeded_in(role.name))
    take(None, rest)
    return found


def _size(cls: TaskClass) -> tuple[object, ...]:
    """An order of size over classes: by what is asked, dimension by dimension."""
    return tuple(amount for _, amount in sorted(cls.request.items())), cls.order


def _as_new(job: JobState, awaited: Sequence[Task]) -> JobState:
    """The group as if nothing of it had been placed, with the pods to come; what has succeeded counts."""
    found = JobState(job.job, job.queue, {}, together=job.together, strict=job.strict)
    waiting = [task for task in job.job.tasks.values() if not (task.terminal or task.terminating)]
    first = {task.key: at for at, task in enumerate(job.waiting)}
    found.waiting = sorted(waiting, key=lambda task: (first.get(task.key, len(first)), task.created, task.key))
    if awaited:  # they have no place in the order of tasks yet: those of each role come after the ones that exist
        roles = {role.name: at for at, role in enumerate(job.job.roles)}
        found.waiting = sorted([*found.waiting, *awaited], key=lambda task: roles.get(task.role, len(roles)))
    found.bound = job.job.succeeded
    for role in job.job.roles if job.job.succeeded else ():
        found.by_role[role.name] = job.job.succeeded_in(role.name)
    return found
