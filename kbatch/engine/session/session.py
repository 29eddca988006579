"""One cycle's view of the cluster: the snapshot, the plugins, and the state of groups and queues as decisions fall."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from kbatch.api.reasons import Protection, Reason
from kbatch.engine.cooperative import Pace, emptying, finish
from kbatch.engine.decisions import TURN, GroupError, Turn
from kbatch.engine.plugin import Undo
from kbatch.engine.policy.policy import Policy
from kbatch.engine.session.limits import Capability, Limit, RoleMaximum, Together
from kbatch.engine.session.plugins import Plugins
from kbatch.engine.session.protections import Protections
from kbatch.engine.session.whole_nodes import WholeNodes
from kbatch.engine.state.cycle_state import Failing
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.lost_work import LostWork
from kbatch.engine.state.node_resources import NodeResources
from kbatch.engine.state.promises import Promises
from kbatch.engine.state.queues import QueueState
from kbatch.engine.state.snapshot import Snapshot
from kbatch.model.jobs import Job
from kbatch.model.nodes import Mask, NodeTable, exact_sum
from kbatch.model.tasks import Task, TaskClass
from kbatch.resources import Resources, add_to
from kbatch.times import SECOND

_task_age: Final = attrgetter("created", "key")
_NO_JOBS: Final[Mapping[str, JobState]] = {}
_LONGEST_OUT: Final = 600 * SECOND
"""A group that seems to be left out for longer was dated by a clock that was wrong."""


class Undoable(Protocol):
    """A statement, as far as the session knows it: steps of which the last can be undone."""

    def __len__(self) -> int:
        """How many steps."""
        ...

    def mark_at(self, number: int) -> int:
        """How many of them are among the first so many that the session has seen."""
        ...

    def rollback(self, mark: int = 0) -> None:
        """Undo all but so many."""
        ...


class Refusal(NamedTuple):
    """A job was refused; without a reason: there was no room."""

    job: JobState
    reason: Reason | None
    attempted: bool


class Session:
    """The engine's working state; it is the `View` that plugins get.

    Attributes:
        queues: those that exist, and those that do not and yet hold something, in the order of names.
        room_moves: how often this cycle made room (evictions, withdrawn nominations): while it and the snapshot's
            `room_generation` stand still, room only shrinks, and what did not fit does not fit. given_back: how often
            of these it was only room that had been kept for somebody.
        departures: how often a statement has evicted a pod, or has let one stay after all.
        emptied: it is of the cluster without this scheduler's pods, with the room given for it (see `placement`).
        limits: what a statement asks before it places a task; parts of a cycle add theirs.
        reasons: for each group key, why it was refused so far in this cycle. unfit: keys of those that lack room.
        protected: for each group key, what keeps pods from being evicted that could make room for it.
        refusals: what is refused meanwhile is noted here, in order; None: nobody wants to know.
        attempted: keys of groups that were tried against the nodes, in this cycle or before with the same outcome.
        set_aside: whether room that looks free is kept from some jobs just now (see `kbatch.engine.reservation`).
        kept_rooms: room that is kept, until the cycle ends, for pods that do not exist yet: by key of the group the
            classes and rows.
        settling: pods are bound to the nodes that they were nominated to.
        leaving: by key the pods that this cycle evicts, with what plugins gave to take it back.
        beneficiaries: keys of the groups for whose sake it evicts them.
        commits: how many statements it has committed.
        told: the node that this cycle has nominated a pod to, by the pod's key, since its status was read.
        withdrawn: by pod's key, the pods whose nomination ended in this cycle, as far as nothing has replaced it.
        committed: keys of the groups whose sums a statement has changed for good, in order.
        stuck: keys of the terminating pods whose room is not expected any more.
        wake: instants (microseconds) at which the same snapshot could be decided otherwise.
        due: told of each piece of work, says when the cycle's caller should get a turn.
        phase: the part of the cycle that is running.
        open_statements: those with steps that are neither committed nor undone, in the order of their first steps.
        steps: how many there were in all statements, undone ones included.
        nominees: by key the groups that have nominated pods, in no order that means anything.
        errors, failed: by job key what was raised in this cycle, and the groups that are left out for it or for an
            earlier one. out: those of earlier cycles. mishaps: errors after which work could go on, of groups to be
            left out. caches: told to forget what an error may have left.
        stores: what parts of the cycle have gathered, told to let go of it in pieces.
        surroundings: the sets of nodes for further pods of a job, and the `room_moves` then; see `placement.gang`.
        whole_nodes: what stands on nodes beside exclusive groups.
        trying: works out `alone`, in pieces; None: nobody does (in the emptied cluster itself).
        plugins: what they say.
        promises: what groups in queue were promised and do not hold yet.
        ever: what plugins are asked just now is whether something could be at any later instant.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy, *, emptied: NodeResources | None = None) -> None:
        self.snapshot = snapshot
        self.policy = policy
        self.now = snapshot.now
        self.model = snapshot.model
        self.nodes: NodeTable = snapshot.table
        self.emptied = emptied is not None
        self.room = emptied if emptied is not None else NodeResources(snapshot.table)
        self.usable_rows: Mask = snapshot.table.open & snapshot.table.ready & ~snapshot.table.cordoned
        self.total: Resources = snapshot.capacity
        self._lost_work = LostWork(self.now, self.total) if self.model.checkpointed else None
        deserved = self.model.deserved()
        # What runs in a queue that is not there counts and may be reclaimed: it deserves nothing of what is divided.
        nothing = dict.fromkeys(sorted({name for share in deserved.values() for name in share}), 0)
        self.queues: Mapping[str, QueueState] = {
            name: QueueState(record, deserved.get(name, nothing), {})
            if self.emptied
            else QueueState(
                record, deserved.get(name, nothing), dict(record.allocated), dict(record.ending), record.charged
            )
            for name, record in sorted(self.model.queues.items())
            if record.queue is not None or record.allocated
        }
        self._jobs: dict[str, JobState] = {}
        self.limits: list[Limit] = [RoleMaximum()] if self.emptied else [Capability(self.queues), RoleMaximum()]
        self.room_moves = 0
        self.departures = 0
        self.given_back = 0
        self.reasons: dict[str, list[Reason]] = {}
        self.attempted: set[str] = set()
        self.protected: dict[str, tuple[Protection, ...]] = {}
        self.refusals: list[Refusal] | None = None
        self.wake: list[int] = []
        self.due = Pace().due
        self.unfit: set[str] = set()
        self.set_aside = False
        self.kept_rooms: dict[str, tuple[tuple[int, int], ...]] = {}
        self._kept_sum: Resources = {}
        self.settling = False
        self.told: dict[str, str] = {}
        self.withdrawn: dict[str, Task] = {}
        self.committed: list[str] = []
        self.promises = Promises(self.committed)
        self.ever = False
        self.stuck: tuple[str, ...] = ()
        self._live: list[JobState] = []
        self._joining: list[JobState] = []
        """These belong to `_live`, and have no place in it yet."""
        self.commits = 0
        self.leaving: dict[str, tuple[Undo, ...]] = {}
        self.beneficiaries: set[str] = set()
        self._below: dict[str, set[str]] | None = None
        self._waits: dict[str, Resources] = {}
        """By queue what is nominated of groups in queue, since `_below` was worked out."""
        self.phase = "session"
        self.open_statements: dict[int, Undoable] = {}
        self.steps = 0
        self.nominees: dict[str, JobState] = {}
        self.errors: dict[str, GroupError] = {}
        self.failed: dict[str, Failing] = {}
        self.mishaps: list[tuple[JobState, Exception]] = []
        self.out = {
            key: failing for key, failing in snapshot.state.failing.items()
            if self.now < failing.until <= self.now + _LONGEST_OUT and key in self.model.jobs
        }  # fmt: skip
        self.caches: list[Callable[[], None]] = []
        self.stores: list[Callable[[], Iterator[None]]] = []
        self.surroundings: dict[object, tuple[int, list[Mask]]] = {}
        self.trying: Callable[[JobState], Generator[Turn, None, Mapping[str, Sequence[int]]]] | None = None
        self.whole_nodes = WholeNodes(self.model, self.nodes, emptied=self.emptied)
        if self.whole_nodes.active:
            self.limits.append(self.whole_nodes)
        self.plugins = Plugins(policy, self, lambda: self.restoring, self.committed)
        if self.plugins.limit is not None:
            self.limits.append(self.plugins.limit)
        if any(plugin.answers("within") for plugin in self.plugins.gathering):
            self.limits.append(Together(self.plugins.gathering))
        if self.whole_nodes.active:
            self.plugins.following.append((lambda _: True, self.whole_nodes.placed))
            self.plugins.removed_hooks.append(self.whole_nodes.removed)

    def open(self, awake: Iterable[Job] | None = None, resting: Mapping[str, JobState] = _NO_JOBS) -> Iterator[Turn]:
        """What takes long before anything can be asked: the plugins' preparations, and a look at each group that the
        cycle is to look at; None: at all that are not settled. `resting`: see `reservation.resting`.
        """
        yield from self.plugins.preparing()
        yield from self.whole_nodes.preparing()
        found: list[JobState] = []
        for job in sorted(self.model.live.values() if awake is None else awake, key=_age):
            known = resting.get(job.key)
            state = self._jobs[job.key] = self._state(job) if known is None else self._going_on(known, job)
            found.append(state)
            if self.due(1 + len(job.waiting) // 10):
                yield TURN
        self._live = found

    def exclude(self, job: JobState, failing: Failing) -> None:
        """Leave a group out: it stands as the cycle before left it, takes nothing, and nobody takes its pods."""
        self.failed[job.key] = failing
        self.wake.append(failing.until)
        job.possible = job.backing_off = False
        group = job.job.group
        waits = group is not None and self.policy.has("enqueue") and not job.bound
        job.in_queue = not waits or job.job.let_in
        job.attempts = group.status.scheduling_attempts if group is not None and self.policy.has("enqueue") else 0

    def let_go(self) -> Iterator[Turn]:
        """Let go of the groups, and of what plugins have made, in pieces. Nothing is asked any more."""
        yield from self.plugins.let_go()
        self._live = []
        for store in self.stores:
            for _ in store():
                yield TURN
        for _ in emptying(self._jobs):
            yield TURN

    def close(self) -> None:
        """Let go of everything: session and plugins hold one another, and the collector should have nothing to find."""
        self.plugins.close()
        vars(self).clear()

    # --- View ---------------------------------------------------------------------------------------------------------

    def queue(self, name: str) -> QueueState:
        """A queue; raises KeyError where there is none."""
        return self.queues[name]

    def job(self, key: str) -> JobState:
        """A group; raises KeyError where there is none."""
        found = self._jobs.get(key)
        if found is None:
            found = self._jobs[key] = self._state(self.model.jobs[key])
        return found

    def evicts(self, key: str, task: Task) -> bool:
        """Whether this session evicts a pod of a group, as things are."""
        found = self._jobs.get(key)
        return found is not None and task.key in found.evicted

    @property
    def counts_lost_work(self) -> bool:
        """Whether anybody in the cluster says when work was saved."""
        return self._lost_work is not None

    def _state(self, job: Job) -> JobState:
        state = JobState(job, job.queue, dict(job.bound), lost_work=self._lost_work)
        if job.ends:
            state.ends, state.charged = True, job.charged
        state.bound = job.holding + job.succeeded
        if job.roles:
            state.by_role = job.placed_by_role()
        waiting = [task for task in job.waiting if not task.gated]
        state.gated = len(job.waiting) - len(waiting)
        out = self.out.get(job.key)
        if out is not None:
            self.exclude(state, out)
        elif len(waiting) > 1:
            try:
                waiting = self._in_order(waiting)
            except Exception as error:  # noqa: BLE001 -- whatever a plugin raises is this group's own affair
                self.mishaps.append((state, error))
        state.waiting = waiting
        if self.plugins.gathering and not job.shadow:
            try:
                self._gather(state)
            except Exception as error:  # noqa: BLE001 -- whatever a plugin raises is this group's own affair
                self.mishaps.append((state, error))
        if len(waiting) == 1:
            state.asks = tuple(waiting[0].cls.request)
        elif waiting:
            asks: dict[str, None] = {}
            for cls in dict.fromkeys([task.cls for task in waiting]):
                asks.update(dict.fromkeys(cls.request))
            state.asks = tuple(asks)
        return state

    def _going_on(self, state: JobState, job: Job) -> JobState:
        """The state of the cycle before, if the group has not changed since; or a new one."""
        rest = state.rest
        if rest is None or state.job is not job or rest.generation != job.generation or job.key in self.out:
            return self._state(job)
        state.lost_work, state.most, state.turns = self._lost_work, None, None
        return state

    def _in_order(self, tasks: list[Task]) -> list[Task]:
        """The tasks by what plugins say of each, the first plugin first, then by age."""
        tasks.sort(key=_task_age)
        for key in reversed(self.plugins.task_keys):  # sorting is stable
            ranks = [key(task) for task in tasks]
            if ranks.count(ranks[0]) < len(ranks):
                tasks = [tasks[at] for at in sorted(range(len(ranks)), key=ranks.__getitem__)]
        return tasks

    def _gather(self, state: JobState) -> None:
        """Note what plugins that keep pods together depend on for the job, and where its pods stand."""
        found = [(plugin, plugin.together(state)) for plugin in self.plugins.gathering]
        if all(each is None for _, each in found):
            return
        state.together = tuple(each for _, each in found)
        state.strict = any(plugin.strict(state) for plugin, each in found if each is not None)
        if not self.emptied:
            rows = self.nodes.row
            state.stands = tuple(
                (task, rows[task.node]) for task in state.job.tasks.values() if task.holds and task.node in rows
            )

    def alone(self, job: JobState) -> Mapping[str, Sequence[int]]:
        """By role the rows on which the job's minimum would stand in the emptied cluster."""
        return finish(self.trying(job)) if self.trying is not None else {}

    def live(self) -> Sequence[JobState]:
        """The groups that the cycle looks at, the oldest first: those that are neither settled nor in the backlog."""
        if self._joining:
            self.stay([*self._live, *self._joining])
        return self._live

    def stay(self, jobs: Iterable[JobState]) -> None:
        """From now on these are looked at: others have gone to the backlog, or came from there."""
        self._live = sorted(jobs, key=lambda job: (job.job.created, job.key))
        self._joining = []

    def came_in(self, job: JobState, *, joins: bool) -> None:
        """The group is in queue from now on. `joins`: it comes from the backlog, and is looked at from now on, as it is
        where nothing is remembered.
        """
        if joins:
            self._joining.append(job)
        if self._below is None or not _uses_its_share(job):
            return
        if job.nominated:
            self._below = None
        elif job.queue in self.queues:
            self._note_below(self._below, job.queue, job.asks)

    def below_share(self) -> Mapping[str, set[str]]:
        """By dimension the queues below their deserved share whose groups wait for more of it; `refresh_below` anew."""
        if self._below is None:
            below = self._below = {}
            self._waits.clear()
            asked: dict[str, set[str]] = {}
            for job in self.live():
                if job.in_queue and job.queue in self.queues and _uses_its_share(job):
                    asked.setdefault(job.queue, set()).update(job.asks)
                    if job.nominated:
                        sums = self._waits.setdefault(job.queue, {})
                        for task, _ in job.nominated.values():
                            add_to(sums, task.cls.request)
            for queue, names in asked.items():
                self._note_below(below, queue, names)
        return self._below

    def _note_below(self, below: dict[str, set[str]], queue: str, names: Iterable[str]) -> None:
        """Note in which of the dimensions a queue holds less than its share."""
        state, waits = self.queues[queue], self._waits.get(queue, {})
        for name in names:
            if state.deserved.get(name, 0) > state.allocated.get(name, 0) - waits.get(name, 0):
                below.setdefault(name, set()).add(queue)

    def room_set_aside(self) -> None:
        """Room was set aside, or was given back: what was in vain before need not be so now."""
        self.commits += 1

    def evictions_could_fail(self, queue_name: str) -> bool:
        """Whether a queue would hold more than its capability if evictions failed of which no answer is known: those of
        this cycle's earlier decisions, and those under way.
        """
        queue = self.queues.get(queue_name)
        capability = queue.record.capability if queue is not None else None
        if queue is None or not capability:
            return False
        staying: Resources = {}
        for key in {*self.leaving, *self.model.marks()[1]}:
            task = self.model.tasks.get(key)
            if task is not None and task.node and not task.terminal:
                job = self.model.jobs.get(task.job)
                if job is not None and job.queue == queue_name:
                    add_to(staying, task.cls.request)
        return any(
            amount and queue.allocated.get(name, 0) + amount > capability[name]
            for name, amount in staying.items() if name in capability
        )  # fmt: skip

    def room_given_back(self) -> None:
        """What was kept from some jobs is kept no longer."""
        self.room_moves += 1
        self.given_back += 1
        self.set_aside = False

    def refresh_below(self) -> None:
        """Decisions have fallen since `below_share` was worked out."""
        self._below = None

    def others_first(self, job: JobState) -> bool:
        """Whether another queue below its share waits for what the job asks for: it gets what comes free first."""
        below = self.below_share()
        return any(below.get(name, set()) - {job.queue} for name in job.asks)

    def could_hold(self, cls: TaskClass, hard: Resources) -> bool:
        """Whether the largest node of each dimension, and the cap `hard`, would hold one pod of the class."""
        for name, amount in cls.needs:
            column = self.nodes.allocatable.get(name)
            if column is None or amount > int(column.max(initial=0)) or amount > hard.get(name, amount):
                return False
        return True

    def idle(self, name: str) -> int:
        """Idle room of a dimension over all nodes that may be used."""
        column = self.room.idle.get(name)
        return exact_sum(np.maximum(column[self.usable_rows], 0)) if column is not None else 0

    def usable_of(self, name: str, rows: Mask) -> int:
        """`usable`, of one dimension and over these rows; all that is kept for pods to come is counted as there."""
        column = self.room.future.get(name)
        there = exact_sum(np.maximum(column[rows], 0)) if column is not None else 0
        return there + self._kept_sum.get(name, 0)

    def usable(self) -> Resources:
        """Idle and releasing room, less what is nominated, over all nodes that may be used; with what is kept for pods
        that do not exist yet: those are promised a sum besides.
        """
        kept = self._kept_sum
        return {
            name: exact_sum(np.maximum(column[self.usable_rows], 0)) + kept.get(name, 0)
            for name, column in self.room.future.items()
        }

    def keep_room(self, job: JobState, places: Sequence[tuple[Task, int]]) -> None:
        """Keep these rows until the cycle ends for these pods of the job, which do not exist yet."""
        for task, row in places:
            self.room.pipeline(task.cls, row)
            self.whole_nodes.hold(task, row, 1)
            add_to(self._kept_sum, dict(task.cls.needs))
        self.kept_rooms[job.key] = tuple([(task.cls.id, row) for task, row in places])

    @property
    def restoring(self) -> bool:
        """Whether what earlier cycles have decided is being put in its place: plugins' limits bind what is new. That is
        also a job that was promised its start, and starts.
        """
        return self.settling or self.phase == "resume"

    def plugin_state(self, name: str) -> Any:
        """What the plugin of this name left at the end of the cycle before; None: nothing."""
        return self.snapshot.state.plugins.get(name)

    def next_wake(self, opinion: int | None) -> int | None:
        """The first instant after now at which the same snapshot could be decided otherwise; None: never."""
        instants = [*self.wake, *([opinion] if opinion is not None else ())]
        return min((instant for instant in instants if instant > self.now), default=None)

    # --- reasons ------------------------------------------------------------------------------------------------------

    def refuse(self, job: JobState, reason: Reason, *, attempted: bool = False) -> None:
        """Note why the job waits."""
        self.reasons.setdefault(job.key, []).append(reason)
        if attempted:
            self.attempted.add(job.key)
        if self.refusals is not None:
            self.refusals.append(Refusal(job, reason, attempted))

    def note_protected(self, job: JobState, protected: tuple[Protection, ...]) -> None:
        """Note what keeps pods from being evicted that could make room for the job."""
        if protected:
            all_of_it = Protections()
            all_of_it.merge(self.protected.get(job.key, ()))
            all_of_it.merge(protected)
            self.protected[job.key] = all_of_it.found

    def refuse_room(self, job: JobState) -> None:
        """Note that there is no room for what the job's minimum lacks; how much, is said when all is decided."""
        self.unfit.add(job.key)
        self.attempted.add(job.key)
        if self.refusals is not None:
            self.refusals.append(Refusal(job, None, True))


def _uses_its_share(job: JobState) -> bool:
    """Whether the group, where it is in queue, could use more of its queue's share."""
    return job.possible and (bool(job.nominated) or not job.idle)


def _age(job: Job) -> tuple[int, str]:
    """First come, first served."""
    return job.created, job.key
