"""Groups of pods and queues: what each consists of, and the sums that shares are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kbatch.api import conditions
from kbatch.api.objects import Condition, LabelSelector, PodGroup, Queue, timestamp_us
from kbatch.api.placement import Placement
from kbatch.model.ages import Ages
from kbatch.model.annotations import expected_said
from kbatch.model.finished import finished_of, without_pods
from kbatch.model.journal import Journal
from kbatch.model.made_for import made_for
from kbatch.model.makers import NO_MAKERS, Maker, Template, ToCome, of_roles
from kbatch.model.selections import Selection
from kbatch.model.tasks import Task, counted
from kbatch.resources import PODS, QuantityError, Resources, add, in_millionths, parse_quantity, parse_resources, scale

_PLACEMENTS: Final = {each.value: each for each in Placement}
_CHANGES: Final = 1 << 9
"""So many changes of its groups a queue remembers at least: more than there mostly are from cycle to cycle."""

Parts = dict[tuple[Selection, ...], tuple[Resources, Resources]]
"""What is held, and what is held and asked for, by the selections that a node may suit."""
Sums = tuple[Resources, Resources, Parts]
"""What a group brings to its queue: what it holds, what it holds and asks for, and these two by selections."""
_NOTHING: Final[Resources] = {}
_NO_PART: Final = (_NOTHING, _NOTHING)
NO_SUMS: Final[Sums] = (_NOTHING, _NOTHING, {})


@dataclass(frozen=True, slots=True)
class Role:
    """A sub-group: its pods carry its name, at least `min_member` of them must be placed with the group."""

    name: str
    min_member: int
    max_member: int | None = None


class Kind(NamedTuple):
    """What can be told of a group that holds something before anybody is asked whether its pods may go.

    Attributes:
        priority: of the group.
        alone: it holds a single pod, and no other of it waits.
        ends: it has a lifetime.
        minimal: it is a gang that goes pod by pod or not at all, and holds no more than its minimum.
    """

    priority: int
    alone: bool
    ends: bool
    minimal: bool


@dataclass(eq=False, slots=True)
class Job:
    """A PodGroup, or the *shadow group* of pods that name none. Changed by the `ClusterModel` alone.

    Attributes:
        key: unique in the cluster: `namespace/name` of a PodGroup; a shadow group's has `#` and its owner's uid behind;
            that of pods of a PodGroup that had the name before has `##` and its uid (see `GroupIndex`).
        name: `namespace/name`, for people; for a shadow group that of its owner or its only pod.
        group: the PodGroup; None for a shadow group, and while pods name a PodGroup that does not exist.
        minimum: pods that must be placed together; at least the sum of the roles' minimums.
        min_resources: in the dimensions of nodes. min_quota: the same as it was written, for quotas.
        outstanding: of what its minimum needs, what its holding and its succeeded pods do not cover yet; empty once it
            is whole or over, and where all its pods exist and no minResources say more. This is what enqueue reserves.
        templates: of its roles, each with how many pods are made of it when the group is in queue.
        to_come: pods that do not exist yet: of its roles, and of the Jobs that name it (see `kbatch.model.demand`).
        suspended_by: a Job that its user has suspended and without which the minimum cannot be had; "" for none,
            `BY_GROUP` where the group itself is suspended.
        bound, nominated: requests of the pods that hold a node, and of those that one is being cleared for.
        own, asked: requests of its holding and its succeeded pods, and of its waiting ones.
        request: what it asks of its queue in all: `bound`, and the larger of its pods that wait or are to come and
            `outstanding`; of an orphan what it holds.
        queue: its queue's name. Of an orphan: the label of its oldest pod, else the queue of the PodGroup that it had,
            as far as this process has seen it, else the default queue.
        priority, proven: see `kbatch.model.priorities`.
        expected: for how long its pods are expected to run, by what its PodGroup says; microseconds.
        lifetime: for how many seconds it says that it is to run; None: it does not.
        wants_whole_nodes: whether any of its pods want nodes for the group alone.
        barred: its queue is not open to its namespace: it keeps what it holds, and asks for nothing.
        waiting: unplaced tasks, in no order. holding, succeeded, failed: counts.
        gone: by role the members that have succeeded, as its status or its Jobs say, and have no pod any more; they are
            in `succeeded`, and in `own` with what their template asks for.
        claiming: how many of `waiting` have resource claims.
        started: since when the group runs, whoever of its members does; None while none holds a node. See `_start`.
        bound_since: since when the oldest of the members that hold a node does; None while no bind is confirmed.
        settled: nothing to decide and nothing to say about it: a cycle passes it by.
        counted_as: the kind as which its queue counts it among its `holders`; None: it is none.
    """

    key: str
    name: str
    namespace: str
    shadow: bool
    created: int = 0
    group: PodGroup | None = None
    expected: int | None = None
    lifetime: int | None = None
    wants_whole_nodes: bool = False
    minimum: int = 1
    roles: tuple[Role, ...] = ()
    queue: str = ""
    barred: bool = False
    min_resources: Resources = field(default_factory=dict)
    min_quota: Resources = field(default_factory=dict)
    tasks: dict[str, Task] = field(default_factory=dict)
    generation: int = 0

    priority: int = 0
    proven: int = 0
    priority_class_missing: str = ""
    bound: Resources = field(default_factory=dict)
    nominated: Resources = field(default_factory=dict)
    request: Resources = field(default_factory=dict)
    outstanding: Resources = field(default_factory=dict)
    templates: tuple[tuple[Template, int], ...] = ()
    to_come: tuple[ToCome, ...] = ()
    suspended_by: str = ""
    own: Resources = field(default_factory=dict)
    asked: Resources = field(default_factory=dict)
    waiting: list[Task] = field(default_factory=list)
    nominees: list[Task] = field(default_factory=list)
    holding: int = 0
    succeeded: int = 0
    gone: dict[str, int] = field(default_factory=dict)
    failed: int = 0
    terminating: int = 0
    claiming: int = 0
    started: int | None = None
    bound_since: int | None = None
    settled: bool = False
    counted_as: Kind | None = None
    allocated: Resources = field(default_factory=dict)
    counted: Sums = NO_SUMS
    """What of it stands in its queue's sums."""
    ending: tuple[Resources, int] | None = None
    """The same of a group with a lifetime: what it holds, and what it is charged; None: it has none."""

    def condition(self, type_: str) -> Condition | None:
        """A condition of its PodGroup as the API server has it."""
        return conditions.find(self.group.status.conditions, type_) if self.group is not None else None

    def is_true(self, type_: str) -> bool:
        """Whether that condition stands and is "True"."""
        condition = self.condition(type_)
        return condition is not None and condition.status == conditions.TRUE

    @property
    def let_in(self) -> bool:
        """Whether its PodGroup says that it is in queue; see `conditions.let_in`."""
        return self.group is not None and conditions.let_in(self.group.status.conditions)

    @property
    def ends(self) -> bool:
        """Whether the group has a lifetime, or is gone and takes its pods with it."""
        if self.group is None:
            return not self.shadow and bool(self.tasks) and all(made_for(task.pod) for task in self.tasks.values())
        return self.lifetime is not None

    @property
    def charged(self) -> int:
        """What of its queue's excessBudget it takes, in millionths of a resource-minute, by what its status says."""
        charged = self.group.status.excess_charged if self.group is not None else None
        if not charged or self.over:
            return 0
        try:
            return in_millionths(charged)
        except QuantityError:
            return 0

    @property
    def orphan(self) -> bool:
        """Whether its pods name a PodGroup that does not exist, or were made for one that does no more. They hold what
        they hold, and ask for nothing.
        """
        return self.group is None and not self.shadow

    @property
    def asks_nothing(self) -> bool:
        """Whether all that counts of it is what it holds: whatever else it says, nothing can come of it."""
        return self.barred or self.orphan or bool(self.priority_class_missing)

    @property
    def disruption(self) -> str:
        """Surplus, Whole or Never."""
        return self.group.spec.disruption if self.group is not None else "Surplus"

    def exclusive(self, role: str) -> bool:
        """Whether its pods of a role want nodes for the group alone."""
        if self.group is None:
            return False
        spec = self.group.spec
        return spec.exclusive or any(sub.exclusive for sub in spec.sub_groups or () if sub.name == role)

    @property
    def gang(self) -> bool:
        """Whether there is anything to break: more than one pod, or roles."""
        return self.minimum > 1 or bool(self.roles)

    @property
    def in_parts(self) -> bool:
        """Whether it is a gang that never goes as a whole: it does not say so, and its lifetime does not end."""
        return self.gang and self.disruption != "Whole" and not self.ends

    @property
    def kind(self) -> Kind:
        """What of it can be told beforehand to whoever would take what it holds."""
        minimal = self.in_parts and self.holding + self.succeeded <= self.minimum
        return Kind(self.priority, self.holding == 1 and not self.waiting, self.ends, minimal)

    @property
    def over(self) -> bool:
        """Completed or given up: nothing of it is left and nothing will come."""
        if self.holding or self.waiting or self.terminating:
            return False
        if self.is_true(conditions.COMPLETED) or self.is_true(conditions.FAILED):
            return True
        return self.succeeded >= self.minimum

    @property
    def sent_back(self) -> bool:
        """It was in queue, was not whole in time, and has not come in queue again since."""
        group = self.group
        return group is not None and group.status.scheduling_attempts > 0 and not self.is_true(conditions.ENQUEUED)

    def refresh(self, makers: Mapping[str, Maker] = NO_MAKERS) -> None:
        """Work out all sums of the tasks; costs what the group has pods. `demand.account` does the rest.

        `makers`: the Jobs that name it; they have counted pods that have succeeded and are there no more.
        """
        waiting: list[Task] = []
        nominees: list[Task] = []
        placed: list[Task] = []
        ready: list[Task] = []
        failed = terminating = claiming = 0
        starts: list[int] = []
        ended: list[int] = []
        for task in self.tasks.values():
            if task.terminal:
                if task.node:
                    ended.append(task.started)
                if task.succeeded:
                    ready.append(task)
                else:
                    failed += 1
            elif task.terminating:
                terminating += 1
            elif task.node:
                placed.append(task)
                if not task.assumed:  # else nobody has said yet since when
                    starts.append(task.started)
            else:
                waiting.append(task)
                claiming += task.claims
                if task.nominated:
                    nominees.append(task)
        self.waiting, self.nominees = waiting, nominees
        self.holding, self.succeeded, self.failed, self.terminating = len(placed), len(ready), failed, terminating
        self.claiming = claiming
        self.bound_since, self.started = min(starts) if starts else None, self._start(starts, ended) if placed else None
        self.bound, self.nominated, self.asked = _requests(placed), _requests(nominees), _requests(waiting)
        self.own = add(_requests(ready), self.bound) if ready else self.bound
        self.gone = self._gone(ready)
        if self.gone:
            self.succeeded += sum(self.gone.values())
            request = {template.role: template.request for template, _ in self.templates}
            self.own = add(self.own, *(scale(request.get(role, {}), count) for role, count in self.gone.items()))
        if makers:
            self._gone_of(makers, ready)
        self.allocated = add(self.bound, self.nominated) if nominees else self.bound
        self.settled = not waiting and self._said_all()

    def _gone_of(self, makers: Mapping[str, Maker], succeeded: Sequence[Task]) -> None:
        pods = [task.pod for task in succeeded]
        for maker in makers.values():
            count = maker.gone(pods)
            if count and maker.template is not None:
                self.gone[maker.template.role] = self.gone.get(maker.template.role, 0) + count
                self.succeeded += count
                self.own = add(self.own, scale(maker.template.request, count))

    def _gone(self, succeeded: Sequence[Task]) -> dict[str, int]:
        if self.group is None or not self.group.status.finished:
            return {}
        named = [(task.role, task.key.rpartition("/")[2]) for task in succeeded]
        return without_pods(finished_of(self.group.status.finished), self.group.metadata.name, named)

    def _start(self, starts: list[int], ended: list[int]) -> int | None:
        """Since when the group runs, by what the API server says alone, so that a restart changes nothing.

        It runs since its condition Scheduled last became True, or since the oldest member that holds a node came there
        (`starts`: a member that is replaced makes the condition flip, the others ran on), or since the oldest of those
        that have `ended` did, if that was after the group was let in: before, it was another run, which was taken back.
        """
        found = min(starts) if starts else None
        let_in = self._true_since(conditions.ENQUEUED) if ended else None
        if let_in is not None:
            for start in ended:
                if start >= let_in and (found is None or start < found):
                    found = start
        scheduled = self._true_since(conditions.SCHEDULED)
        return scheduled if found is None or (scheduled is not None and scheduled < found) else found

    def _true_since(self, type_: str) -> int | None:
        condition = self.condition(type_)
        if condition is None or condition.status != conditions.TRUE:
            return None
        return timestamp_us(condition.last_transition_time)

    def _said_all(self) -> bool:
        """Whether its PodGroup already says what there is to say of a group without waiting pods."""
        if self.group is None:
            return True
        if self.over and (self.is_true(conditions.FAILED) or not self.whole()):
            return True
        # Who ran and ended while nobody led has still to be said to have been scheduled.
        if not self.whole():
            return False
        return (
            self.is_true(conditions.ENQUEUED)
            and self.is_true(conditions.SCHEDULED)
            and not self.is_true(conditions.UNSCHEDULABLE)
        )

    def whole(self) -> bool:
        """Whether its minimum, and that of each role, holds nodes or has succeeded."""
        if self.holding + self.succeeded < self.minimum:
            return False
        if not self.roles:
            return True
        placed = self.placed_by_role()
        return all(placed.get(role.name, 0) >= role.min_member for role in self.roles)

    def confirmed(self) -> bool:
        """Whether the API server says that its minimum, whatever the roles, holds nodes or has succeeded.

        Of a large gang that is asked again and again while its binds go on. So it looks from the end, where what is
        bound last mostly stands, and no further than to the pod with which too few are left.
        """
        spare = len(self.tasks) + sum(self.gone.values()) - self.minimum
        if spare < 0:
            return False
        for task in reversed(self.tasks.values()):
            if not task.confirmed:
                if not spare:
                    return False
                spare -= 1
        return True

    def needs_claims(self) -> bool:
        """Whether enough pods exist for the minimum, or a role's, but not without those that have resource claims."""
        if not self.claiming:
            return False
        there = self.holding + self.succeeded + len(self.waiting)
        if there - self.claiming < self.minimum <= there:
            return True
        placed = self.placed_by_role()
        for role in self.roles:
            waiting = [task for task in self.waiting if task.role == role.name]
            there = placed.get(role.name, 0) + len(waiting)
            if there - sum(task.claims for task in waiting) < role.min_member <= there:
                return True
        return False

    def placed_by_role(self) -> dict[str, int]:
        """Pods that hold a node or have succeeded, by role."""
        placed = dict(self.gone)
        for task in self.tasks.values():
            if task.succeeded or task.holds:
                placed[task.role] = placed.get(task.role, 0) + 1
        return placed

    def succeeded_in(self, role: str) -> int:
        """How many members of a role have succeeded."""
        if not self.succeeded:
            return 0
        there = sum(1 for task in self.tasks.values() if task.succeeded and task.role == role)
        return there + self.gone.get(role, 0)

    def read(self, group: PodGroup | None) -> None:
        """Take over what the PodGroup says.

        Raises:
            QuantityError: its minResources cannot be read.
        """
        if group is not None:
            spec = group.spec
            self.min_quota = {
                name: parse_quantity(name.removeprefix("requests.").removeprefix("limits."), value)
                for name, value in (spec.min_resources or {}).items()
            }
            self.min_resources = _of_nodes(self.min_quota)
            self.roles = tuple(Role(sub.name, sub.min_member, sub.max_member) for sub in spec.sub_groups or ())
            self.minimum = max(1, spec.min_member, sum(role.min_member for role in self.roles))
            self.lifetime = spec.lifetime_seconds
            self.wants_whole_nodes = spec.exclusive or any(sub.exclusive for sub in spec.sub_groups or ())
            if self.group is None or self.group.spec != spec:
                self.templates = of_roles(spec)
        else:
            self.min_quota, self.min_resources, self.roles, self.minimum, self.templates = {}, {}, (), 1, ()
            self.lifetime, self.wants_whole_nodes = None, False
        self.group = group
        self.expected = expected_said(group.metadata) if group is not None else None


@dataclass(eq=False, slots=True)
class QueueRecord:
    """A queue and the sums of its groups. Without `queue` it is only named by groups and does not exist.

    Attributes:
        holders: of its groups those with pods that hold a node, or are terminating: few, where many have completed.
        kinds: how many of these are of each kind.
        allocated: what its pods hold and are nominated to, terminating ones left out.
        request: `allocated` and all that its groups ask for besides.
        parts: `allocated` and `request` by the selections that the nodes must suit (`kbatch.model.parts`).
        capability: the hard cap; None: none.
        ending: what of `allocated` groups with a lifetime hold. charged: what they take of `excess_budget` together, in
            millionths of a resource-minute.
        excess_budget: the most of that, in resource-minutes; None: any number.
        namespaces: which may use it, by their labels; None: all.
        ages: of its groups that wait for something.
        generation: moves with every change of a group of it. changes: the keys of these groups; of those that have gone
            to another queue as well.
    """

    name: str
    queue: Queue | None = None
    weight: int = 1
    capability: Resources | None = None
    namespaces: LabelSelector | None = None
    reclaimable: bool = True
    open: bool = True
    placement: Placement | None = None
    evictions_per_hour: int | None = None
    excess_budget: int | None = None
    jobs: dict[str, Job] = field(default_factory=dict)
    holders: dict[str, Job] = field(default_factory=dict)
    kinds: dict[Kind, int] = field(default_factory=dict)
    allocated: Resources = field(default_factory=dict)
    request: Resources = field(default_factory=dict)
    ending: Resources = field(default_factory=dict)
    charged: int = 0
    parts: Parts = field(default_factory=dict)
    ages: Ages = field(default_factory=Ages)
    generation: int = 0
    changes: Journal[str] = field(init=False)

    def __post_init__(self) -> None:
        self.changes = Journal(_CHANGES, self.jobs)

    def changed(self, key: str) -> None:
        """A group of it has changed, has come or is gone."""
        self.generation += 1
        self.changes.note(key)

    def read(self, queue: Queue) -> None:
        """Take over what the Queue says.

        Raises:
            QuantityError: its capability cannot be read.
        """
        spec = queue.spec
        self.capability = parse_resources(spec.capability) if spec.capability is not None else None
        self.queue, self.weight = queue, spec.weight
        self.reclaimable, self.open = spec.reclaimable, spec.state != "Closed"
        self.placement = _PLACEMENTS.get(spec.placement or "")
        self.evictions_per_hour = spec.evictions_per_hour
        self.excess_budget = spec.excess_budget
        self.namespaces = spec.namespace_selector

    def forget(self) -> None:
        """The Queue is gone: from now on all is as for one that was never there."""
        self.queue, self.weight, self.capability, self.reclaimable, self.open = None, 1, None, True, True
        self.placement = self.evictions_per_hour = self.excess_budget = self.namespaces = None

    def count(self, before: Sums, now: Sums) -> None:
        """Have the sums of one group as they are now, in the place of what they were."""
        _recount(self.allocated, before[0], now[0])
        _recount(self.request, before[1], now[1])
        for selections, sums in now[2].items():
            self._count_part(selections, before[2].get(selections, _NO_PART), sums)
        for selections, sums in before[2].items():
            if selections not in now[2]:
                self._count_part(selections, sums, _NO_PART)

    def _count_part(
        self, selections: tuple[Selection, ...], before: tuple[Resources, Resources], now: tuple[Resources, Resources]
    ) -> None:
        """The same of one part."""
        part = self.parts.get(selections)
        if part is None:
            part = self.parts[selections] = ({}, {})
        _recount(part[0], before[0], now[0])
        _recount(part[1], before[1], now[1])
        if not part[1]:
            del self.parts[selections]

    def hold(self, job: Job) -> None:
        """Count a group among the `holders`, as what it is now, or no longer."""
        before = job.counted_as
        now = job.kind if job.holding or job.terminating else None
        if now is None:
            self.holders.pop(job.key, None)
        else:
            self.holders[job.key] = job
        if now != before:
            if now is not None:
                self.kinds[now] = self.kinds.get(now, 0) + 1
            self._drop(before)
            job.counted_as = now

    def let_go(self, job: Job) -> None:
        """Count a group among the `holders` no longer."""
        self.holders.pop(job.key, None)
        self._drop(job.counted_as)
        job.counted_as = None

    def _drop(self, kind: Kind | None) -> None:
        if kind is not None:
            self.kinds[kind] -= 1
            if not self.kinds[kind]:
                del self.kinds[kind]

    def count_ending(self, ending: tuple[Resources, int], sign: int) -> None:
        """Add (1) or take away (-1) what one group with a lifetime holds and is charged."""
        _count(self.ending, ending[0], sign)
        self.charged += sign * ending[1]


def _recount(vector: Resources, before: Resources, now: Resources) -> None:
    """Have `now` in a sum in the place of `before`."""
    if before == now:
        return
    if before:
        _count(vector, before, -1)
    if now:
        _count(vector, now, 1)


def _count(vector: Resources, change: Resources, sign: int) -> None:
    for name, amount in change.items():
        left = vector.get(name, 0) + sign * amount
        if left:
            vector[name] = left
        else:
            vector.pop(name, None)


def _requests(tasks: Sequence[Task]) -> Resources:
    """What the tasks ask for together."""
    found: Resources = {}
    if not tasks:
        return found
    if len(tasks) == 1:
        return dict(tasks[0].cls.request)
    for cls, count in counted(tasks).items():
        for name, amount in cls.request.items():
            found[name] = found.get(name, 0) + amount * count
    return found


def _of_nodes(amounts: Resources) -> Resources:
    """The amounts in the dimensions of nodes: `requests.cpu` is cpu; limits and pod counts are left out."""
    found: Resources = {}
    for name, amount in amounts.items():
        if amount > 0 and name not in (PODS, "count/pods") and not name.startswith("limits."):
            plain = name.removeprefix("requests.")
            found[plain] = max(amount, found.get(plain, 0))
    return found
