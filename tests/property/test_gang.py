"""What is placed keeps within every limit, after each commit: what was asked about is what is placed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from kbatch.api.objects import (
    Affinity,
    LabelSelector,
    Metadata,
    PodAffinity,
    PodAffinityTerm,
    PodGroup,
    PodGroupSpec,
    ResourceQuota,
    ResourceQuotaSpec,
    ResourceQuotaStatus,
    SubGroup,
)
from kbatch.engine import Policy, Transaction
from kbatch.engine.session.statement import Statement
from kbatch.model.events import Upsert
from tests.property.test_engine import POLICIES, World, relaxed
from tests.unit.engine.worlds import EVERYTHING, Simulation, group, node, pod, policy, queue, world


@st.composite
def crowded(draw: st.DrawFn) -> World:
    """Queues with a cap, groups whose roles are of different size, and roles that may have only so many pods."""
    found = World()
    for at in range(draw(st.integers(1, 3))):
        found.objects.append(node(f"n{at}", str(draw(st.integers(2, 6))), labels={"kubernetes.io/hostname": f"n{at}"}))
    queues = [f"q{at}" for at in range(draw(st.integers(1, 2)))]
    for name in queues:
        cap: dict[str, Any] = {"capability": {"cpu": str(draw(st.integers(1, 8)))}} if draw(st.booleans()) else {}
        found.objects.append(queue(name, draw(st.integers(1, 2)), **cap))
    clock = 0
    for at in range(draw(st.integers(1, 4))):
        clock += 1
        name = f"g{at}"
        roles = draw(st.lists(st.sampled_from("ab"), unique=True))
        subs: list[SubGroup] = []
        for role in roles:
            least = draw(st.integers(0, 2))
            most = draw(st.sampled_from([None, least, least + 1])) or None
            subs.append(SubGroup(name=role, min_member=least, max_member=most))
        made = group(name, 1, at=clock)
        spec = PodGroupSpec(
            min_member=draw(st.integers(1, 4)), queue=draw(st.sampled_from(queues)), sub_groups=tuple(subs) or None
        )
        found.objects.append(PodGroup(metadata=made.metadata, spec=spec))
        for index in range(draw(st.integers(1, 5))):
            clock += 1
            role = draw(st.sampled_from([*roles, ""]))
            cpu = str(draw(st.integers(0, 3)))
            one = pod(f"{name}-{index}", cpu, of=name, at=clock, role=role, labels={"app": name})
            if draw(st.integers(0, 3)) == 0:
                term = PodAffinityTerm(
                    topology_key="kubernetes.io/hostname", label_selector=LabelSelector(match_labels={"app": name})
                )
                one.spec.affinity = Affinity(pod_anti_affinity=PodAffinity(required=(term,)))
            found.objects.append(one)
    return found


def _keeps_within_its_limits(statement: Statement) -> None:
    """The sums of the session, and the same counted anew from its pods."""
    session = statement.session
    for queue_ in session.queues.values():
        for name, hard in (queue_.record.capability or {}).items():
            assert queue_.allocated.get(name, 0) <= hard, (queue_.name, name)
    job = statement.job
    tasks = [task for task, _ in (*job.placed.values(), *job.nominated.values())]
    standing = [
        task for task in job.job.tasks.values()
        if (task.holds or task.succeeded) and task.key not in job.evicted
    ]  # fmt: skip
    counts = Counter(task.role for task in (*tasks, *standing))
    for role in job.job.roles:
        assert role.max_member is None or counts[role.name] <= role.max_member, (job.key, role.name)
        if tasks and not job.evicted:
            assert counts[role.name] >= role.min_member or job.job.holding, (job.key, role.name)


@relaxed
@given(crowded(), st.sampled_from(POLICIES))
def test_limits_hold_after_every_commit(found: World, by: Policy) -> None:
    commit = Statement.commit

    def checked(statement: Statement) -> list[Transaction]:
        transactions = commit(statement)
        _keeps_within_its_limits(statement)
        return transactions

    with mock.patch.object(Statement, "commit", checked):
        sim = Simulation(found.model(), by)
        sim.run(3)


@relaxed
@given(crowded(), st.sampled_from(POLICIES))
def test_every_task_that_is_placed_was_asked_about(found: World, by: Policy) -> None:
    """No more tasks of a class and role are placed at once than the limits left of just these."""
    place = Statement.place

    def checked(statement: Statement, tasks: Any, rows: Any, *, waits: bool = False) -> int:
        assert len({(task.cls.id, task.role) for task in tasks}) <= 1
        headroom = statement.headroom(tasks[0]) if tasks else 0
        count = place(statement, tasks, rows, waits=waits)
        assert count <= (len(rows) if headroom is None else headroom)
        return count

    with mock.patch.object(Statement, "place", checked):
        sim = Simulation(found.model(), by)
        sim.run(2)


# --- quotas -----------------------------------------------------------------------------------------------------------

BY_ROOM = policy(EVERYTHING.replace("reclaim, ", "").replace(", preempt", ""))
"""Nobody is evicted: what a group was promised it keeps."""


@dataclass(frozen=True)
class Wanting:
    """A group of so many pods of so many cores each; some exist, the others are made once it is in queue."""

    name: str
    pods: int
    cores: int
    exist: int


@dataclass
class Quotas:
    """Groups of one namespace, and the hard limits of its quotas by their names, in cores and pods."""

    nodes: list[int]
    groups: list[Wanting]
    hard: list[dict[str, int]]
    made: Counter[str] = field(default_factory=Counter)

    def used(self) -> dict[str, int]:
        """What the pods that exist use, counted here."""
        cores = sum(self.made[each.name] * each.cores for each in self.groups)
        return {"requests.cpu": cores, "pods": sum(self.made.values())}

    def promised(self, let_in: set[str]) -> dict[str, int]:
        """What the groups that were let in have coming."""
        coming = [(each, each.pods - self.made[each.name]) for each in self.groups if each.name in let_in]
        return {"requests.cpu": sum(each.cores * more for each, more in coming), "pods": sum(m for _, m in coming)}

    def objects(self) -> list[ResourceQuota]:
        """The quotas, as their controller would have them now."""
        used = {name: str(amount) for name, amount in self.used().items()}
        found = []
        for at, limits in enumerate(self.hard):
            hard = {name: str(amount) for name, amount in limits.items()}
            status = ResourceQuotaStatus(hard=dict(hard), used={name: used[name] for name in hard})
            meta = Metadata(name=f"quota{at}", namespace="ns", uid=f"quota{at}")
            found.append(ResourceQuota(metadata=meta, spec=ResourceQuotaSpec(hard=dict(hard)), status=status))
        return found

    def make(self, of: Wanting) -> Any:
        """One more pod of a group."""
        number = self.made[of.name]
        self.made[of.name] += 1
        return pod(f"{of.name}-{number}", str(of.cores), of=of.name, at=number)


@st.composite
def limited(draw: st.DrawFn) -> Quotas:
    groups = []
    for at in range(draw(st.integers(1, 5))):
        pods = draw(st.integers(1, 3))
        groups.append(Wanting(f"g{at}", pods, draw(st.integers(1, 3)), draw(st.integers(0, pods))))
    names = st.sets(st.sampled_from(["requests.cpu", "pods"]), min_size=1)
    hard = [{name: draw(st.integers(1, 9)) for name in sorted(draw(names))} for _ in range(draw(st.integers(1, 2)))]
    return Quotas(draw(st.lists(st.integers(2, 8), min_size=1, max_size=3)), groups, hard)


@relaxed
@given(limited())
def test_the_quotas_hold_all_that_is_used_and_promised(found: Quotas) -> None:
    """Pods of groups in queue are made one by one: none of them is ever refused by a quota."""
    sim = Simulation(world([node(f"n{at}", str(cores)) for at, cores in enumerate(found.nodes)], queue()), BY_ROOM)
    for at, each in enumerate(found.groups):
        spec: dict[str, Any] = {"min_resources": {"cpu": str(each.pods * each.cores)}}
        sim.model.apply(Upsert(group(each.name, each.pods, at=at, **spec)))
        for _ in range(each.exist):
            sim.model.apply(Upsert(found.make(each)))
    for _ in range(12):
        for quota in found.objects():
            sim.model.apply(Upsert(quota))
        waiting = {name for name, verdict in sim.cycle().verdicts.items() if not verdict.enqueued}
        let_in = {each.name for each in found.groups if f"ns/{each.name}" not in waiting}
        used, promised = found.used(), found.promised(let_in)
        for hard in found.hard:
            for name, most in hard.items():
                assert not promised[name] or used[name] + promised[name] <= most, (name, used, promised, most)
        coming = [each for each in found.groups if each.name in let_in and found.made[each.name] < each.pods]
        if coming:
            sim.model.apply(Upsert(found.make(coming[0])))
        sim.now += 1
