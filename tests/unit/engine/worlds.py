"""Small clusters for engine tests: builders of objects, and a cycle run to its end."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from kbatch.api.conditions import ENQUEUED, merge
from kbatch.api.configuration import parse
from kbatch.api.objects import (
    Condition,
    Container,
    Metadata,
    Node,
    NodeSpec,
    NodeStatus,
    OwnerReference,
    Pod,
    PodGroup,
    PodGroupSpec,
    PodSpec,
    PodStatus,
    PriorityClass,
    Queue,
    QueueSpec,
    ResourceRequirements,
    SubGroup,
)
from kbatch.engine import (
    CycleState,
    Memo,
    NullObserver,
    Outcome,
    Policy,
    Report,
    Snapshot,
    Transaction,
    Verdict,
    build_policy,
    cycle,
    take_snapshot,
    verdict_conditions,
)
from kbatch.engine.session.session import Session
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from kbatch.resources import in_units
from kbatch.times import SECOND

ALLOCATE = """
actions: allocate
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""

EVERYTHING = """
actions: "enqueue, reclaim, allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""


def policy(text: str = ALLOCATE) -> Policy:
    return build_policy(parse(text, "test.yaml"))


def stamp(seconds: int) -> str:
    return f"2026-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


EPOCH = 1_767_225_600 * SECOND
_MOST_STEPS = 20_000
"""More than any cycle of these tests takes."""
"""stamp(0) in microseconds."""


def node(name: str, cpu: str = "4", memory: str = "64Gi", pods: str = "110", **more: Any) -> Node:
    labels = more.pop("labels", None)
    extra = more.pop("extra", {})
    return Node(
        metadata=Metadata(name=name, labels=labels),
        spec=NodeSpec(**more),
        status=NodeStatus(allocatable={"cpu": cpu, "memory": memory, "pods": pods, **extra}),
    )


def queue(name: str = "default", weight: int = 1, **more: Any) -> Queue:
    return Queue(metadata=Metadata(name=name), spec=QueueSpec(weight=weight, **more))


def group(name: str, min_member: int = 1, *, at: int = 0, roles: dict[str, int] | None = None, **spec: Any) -> PodGroup:
    subs = tuple(SubGroup(name=role, min_member=least) for role, least in roles.items()) if roles else None
    return PodGroup(
        metadata=Metadata(name=name, namespace="ns", creation_timestamp=stamp(at), generation=1),
        spec=PodGroupSpec(min_member=min_member, sub_groups=subs, **spec),
    )


def in_queue(found: PodGroup, at: int = 0) -> PodGroup:
    """The group, in queue since then."""
    found.status.conditions = (Condition(type=ENQUEUED, status="True", last_transition_time=stamp(at)),)
    return found


def pod(
    name: str,
    cpu: str = "1",
    *,
    of: str = "",
    at: int = 0,
    on: str = "",
    role: str = "",
    queue: str = "",
    owner: str = "",
    priority: int | None = None,
    memory: str = "",
    scheduler: str = "kube-batch",
    **spec: Any,
) -> Pod:
    labels: dict[str, str] = dict(spec.pop("labels", {}))
    if role:
        labels["kbatch.dev/sub-group"] = role
    if queue:
        labels["kbatch.dev/queue"] = queue
    requests: dict[str, Any] = {}
    if cpu != "0":
        requests["cpu"] = cpu
    if memory:
        requests["memory"] = memory
    owners = (OwnerReference(kind="ReplicaSet", name=owner, uid=f"o-{owner}", controller=True),) if owner else ()
    meta = Metadata(
        name=name,
        namespace="ns",
        uid=f"u-{name}",
        creation_timestamp=stamp(at),
        labels=labels or None,
        annotations={"scheduling.k8s.io/group-name": of} if of else None,
        owner_references=owners,
    )
    status = PodStatus(phase="Running" if on else "Pending", start_time=stamp(at) if on else None)
    container = Container(resources=ResourceRequirements(requests=requests))
    return Pod(
        metadata=meta,
        spec=PodSpec(scheduler_name=scheduler, node_name=on, priority=priority, containers=(container,), **spec),
        status=status,
    )


def members(name: str, count: int, cpu: str = "1", **more: Any) -> list[Pod]:
    return [pod(f"{name}-{index}", cpu, of=name, **more) for index in range(count)]


def priority_class(name: str, value: int, **more: Any) -> PriorityClass:
    return PriorityClass(metadata=Metadata(name=name), value=value, **more)


@dataclass
class Decisions:
    transactions: list[Transaction] = field(default_factory=list)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    outcome: Outcome | None = None

    @property
    def binds(self) -> dict[str, str]:
        return {bind.pod.removeprefix("ns/"): bind.node for found in self.transactions for bind in found.binds}

    @property
    def evicted(self) -> list[str]:
        return sorted(gone.pod.removeprefix("ns/") for found in self.transactions for gone in found.evictions)

    @property
    def nominated(self) -> dict[str, str | None]:
        return {one.pod.removeprefix("ns/"): one.node for found in self.transactions for one in found.nominations}

    def reason(self, name: str) -> str:
        reason = self.verdicts[f"ns/{name}"].reason
        return reason.code if reason is not None else ""


def world(*objects: Any) -> ClusterModel:
    """A model of these objects, and of those in the lists among them."""
    model = ClusterModel()
    for thing in objects:
        for obj in thing if isinstance(thing, Sequence) else [thing]:
            model.apply(Upsert(obj))
    return model


def session_of(model: ClusterModel, by: Policy | None = None, *, now: int = 0) -> Session:
    """A session that has begun, so many seconds after EPOCH, in which nothing is decided yet."""
    snapshot = take_snapshot(model, EPOCH + now * SECOND)
    for _ in snapshot.open():
        pass
    session = Session(snapshot, by or policy())
    for _ in session.open():
        pass
    return session


def run(
    model: ClusterModel,
    by: Policy | None = None,
    *,
    now: int = 0,
    memo: Memo | None = None,
    state: CycleState | None = None,
) -> Decisions:
    """One cycle; the model is checked before it."""
    model.validate()
    return decide(take_snapshot(model, EPOCH + now * SECOND, state), by or policy(), memo or Memo())


def decide(
    snapshot: Snapshot, by: Policy, memo: Memo, name_of: Callable[[Verdict], str] = attrgetter("group")
) -> Decisions:
    """One cycle over a snapshot; verdicts are found by what `name_of` says. Fails where it does not end."""
    found = Decisions()
    steps = cycle(snapshot, by, memo, NullObserver())
    for _ in range(_MOST_STEPS):
        try:
            decision = next(steps)
        except StopIteration as end:
            found.outcome = end.value
            return found
        if isinstance(decision, Transaction):
            found.transactions.append(decision)
        elif isinstance(decision, Verdict):
            found.verdicts[name_of(decision)] = decision
    raise AssertionError("the cycle does not end")


class Simulation:
    """Cycles over a model, their decisions carried out: bound pods run at once, evicted ones are gone a second later.

    With `recreate`, an evicted pod that has an owner or a group comes back as a new one with `-r<n>` behind its name.
    """

    def __init__(self, model: ClusterModel, by: Policy | None = None, *, recreate: bool = True) -> None:
        self.model = model
        self.policy = by or policy(EVERYTHING)
        self.recreate = recreate
        self.now = 0
        self.memo = Memo()
        self.state = CycleState()
        self.evictions: list[tuple[int, str]] = []
        self.last = Decisions()
        self.errors_expected = False
        self._standing: dict[str, Verdict] = {}
        self._renewed = 0

    def cycle(self) -> Decisions:
        found = self.last = run(self.model, self.policy, now=self.now, memo=self.memo, state=self.state)
        assert found.outcome is not None
        # What is raised while a group is worked on, a test's own assertion too, goes no further than the outcome.
        assert self.errors_expected or not found.outcome.errors, found.outcome.errors
        by_job = {verdict.job: verdict for verdict in found.verdicts.values()}
        report = Report(by_job, found.outcome.whole, found.outcome.gone)
        self._standing = report.onto(self._standing)
        written, found.verdicts = found.verdicts, {verdict.group: verdict for verdict in self._standing.values()}
        self.memo, self.state = found.outcome.memo, found.outcome.state
        for transaction in found.transactions:
            for bind in transaction.binds:
                self._bind(bind.pod, bind.node)
            for gone in transaction.evictions:
                self.evictions.append((self.now, gone.pod))
                self._evict(gone.pod)
            for one in transaction.nominations:
                self._nominate(one.pod, one.node or "")
        for verdict in written.values():
            self.write(verdict)
        return found

    def settle(self) -> None:
        """Cycles at this instant until one decides nothing."""
        for _ in range(200):
            if not self.cycle().transactions:
                return
        raise AssertionError("cycles at one instant never end")

    def run(self, seconds: int = 10) -> None:
        """Settle, let a second pass in which terminating pods go, and again."""
        for _ in range(seconds):
            self.settle()
            self.tick()
        self.settle()

    def tick(self) -> None:
        self.now += 1
        for task in list(self.model.tasks.values()):
            if task.terminating:
                self.model.apply(Delete(Pod, task.pod.metadata.namespace, task.pod.metadata.name))

    def running(self, prefix: str = "") -> list[str]:
        names = [key.removeprefix("ns/") for key, task in self.model.tasks.items() if task.holds]
        return sorted(name for name in names if name.startswith(prefix))

    def _bind(self, key: str, where: str) -> None:
        pod_ = copy.deepcopy(self.model.tasks[key].pod)
        pod_.spec.node_name = where
        pod_.status = PodStatus(phase="Running", start_time=stamp(self.now))
        self.model.apply(Upsert(pod_))

    def _nominate(self, key: str, where: str) -> None:
        pod_ = copy.deepcopy(self.model.tasks[key].pod)
        pod_.status.nominated_node_name = where
        self.model.apply(Upsert(pod_))

    def _evict(self, key: str) -> None:
        old = self.model.tasks[key].pod
        pod_ = copy.deepcopy(old)
        pod_.metadata.deletion_timestamp = stamp(self.now + 1)
        self.model.apply(Upsert(pod_))
        if self.recreate:
            self._renewed += 1
            fresh = copy.deepcopy(old)
            fresh.metadata.name = f"{old.metadata.name.partition('-r')[0]}-r{self._renewed}"
            fresh.metadata.uid = f"u-{fresh.metadata.name}"
            fresh.metadata.creation_timestamp = stamp(self.now)
            fresh.spec.node_name = ""
            fresh.status = PodStatus(phase="Pending")
            self.model.apply(Upsert(fresh))

    def write(self, verdict: Verdict) -> None:
        """Into the group's status."""
        job = self.model.jobs.get(verdict.job)
        if job is None or job.group is None:
            return
        new = copy.deepcopy(job.group)
        wanted = verdict_conditions(verdict, new.metadata.generation)
        new.status.conditions = merge(new.status.conditions or (), wanted, stamp(self.now))
        new.status.scheduling_attempts = verdict.attempts
        new.status.excess_charged = in_units(verdict.charged) if verdict.charged else None
        self.model.apply(Upsert(new))
