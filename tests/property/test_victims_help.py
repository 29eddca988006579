"""Every eviction serves: whoever it is made for is placed, within all limits, and nobody goes who need not."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kbatch.api.objects import (
    ContainerPort,
    LabelSelector,
    Metadata,
    Node,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodGroup,
    SubGroup,
    TopologySpreadConstraint,
)
from kbatch.engine import Policy, Transaction
from kbatch.model.cluster import ClusterModel
from kbatch.model.selectors import selector_matches
from tests.examples import examples
from tests.property.test_engine import POLICIES, World, worlds
from tests.property.test_victims import checked_plans
from tests.unit.engine.worlds import Decisions, Simulation

relaxed = settings(
    deadline=None, max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@st.composite
def contested(draw: st.DrawFn, *, coupled: bool = False) -> World:
    """A world in which room is not all: host ports, disruption budgets, roles with a maximum; zones and spread."""
    found = copy.deepcopy(draw(worlds()))
    flavour: dict[str, str] = {}
    budgets: list[PodDisruptionBudget] = []
    kinds = ["plain", "plain", "ports", "spread"] if coupled else ["plain", "plain", "ports"]
    for at, obj in enumerate(found.objects):
        if isinstance(obj, Node):
            obj.metadata.labels = {"zone": f"z{at % 2}"}
        elif isinstance(obj, PodGroup):
            name = obj.metadata.name
            flavour[name] = draw(st.sampled_from(kinds))
            if obj.spec.sub_groups and draw(st.booleans()):
                obj.spec.sub_groups = tuple(
                    SubGroup(name=sub.name, min_member=sub.min_member, max_member=max(1, sub.min_member))
                    for sub in obj.spec.sub_groups
                )
            count = draw(st.sampled_from([0, 0, 0, 1, 1, 2]))
            budgets += [_budget(f"{name}-{number}", name, draw(st.integers(0, 4))) for number in range(count)]
    for obj in found.objects:
        if isinstance(obj, Pod) and obj.metadata.annotations:
            name = next(iter(obj.metadata.annotations.values()))
            obj.metadata.labels = {**(obj.metadata.labels or {}), "app": name}
            _give(obj, flavour.get(name, "plain"))
    found.objects += budgets
    return found


def _budget(name: str, app: str, least: int) -> PodDisruptionBudget:
    spec = PodDisruptionBudgetSpec(min_available=least, selector=LabelSelector(match_labels={"app": app}))
    return PodDisruptionBudget(metadata=Metadata(name=name, namespace="ns"), spec=spec)


def _give(pod: Pod, flavour: str) -> None:
    """Let it demand something besides room."""
    if flavour == "ports" and pod.metadata.name.endswith("-0"):
        ports = (ContainerPort(container_port=80, host_port=80),)
        pod.spec.containers = (replace(pod.spec.containers[0], ports=ports),)
    elif flavour == "spread":
        alike = LabelSelector(match_labels=dict(pod.metadata.labels or {}))
        pod.spec.topology_spread_constraints = (
            TopologySpreadConstraint(
                max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule", label_selector=alike
            ),
        )


class Served(Simulation):
    """A simulation that checks each transaction with victims as it is made, and remembers for whom it was."""

    def __init__(self, model: ClusterModel, by: Policy) -> None:
        super().__init__(model, by)
        self.waiting: dict[str, str] = {}
        """Pods for which somebody was evicted, with the job they belong to."""
        self.withdrawn: set[str] = set()

    def cycle(self) -> Decisions:
        state = _Sums(self.model)
        found = super().cycle()
        for transaction in found.transactions:
            state.follow(transaction)
            if any(gone.action != "allocate" for gone in transaction.evictions):
                placed = [one.pod for one in transaction.nominations if one.node is not None]
                assert placed, "evicted for nobody"
                state.check(transaction, placed)
                self.waiting.update(dict.fromkeys(placed, transaction.job))
            self.withdrawn |= {one.pod for one in transaction.nominations if one.node is None}
        return found

    def check_served(self) -> None:
        """Those for whom pods were evicted, a second ago, are placed; or others were promised their room since."""
        for pod in self.waiting:
            task = self.model.tasks.get(pod)
            assert task is None or task.holds or task.terminating or pod in self.withdrawn, f"{pod} was not placed"
        self.waiting.clear()
        self.withdrawn.clear()


class _Sums:
    """What queues, roles and budgets hold, followed from decision to decision."""

    def __init__(self, model: ClusterModel) -> None:
        self.deserved = copy.deepcopy(model.deserved())
        self.capability = {name: dict(record.capability or {}) for name, record in model.queues.items()}
        self.allocated: dict[str, Counter[str]] = {name: Counter(q.allocated) for name, q in model.queues.items()}
        self.tasks = {key: (task.job, task.role, dict(task.cls.request)) for key, task in model.tasks.items()}
        self.queue = {key: job.queue for key, job in model.jobs.items()}
        self.most = {(key, role.name): role.max_member for key, job in model.jobs.items() for role in job.roles}
        self.members = Counter((task.job, task.role) for task in model.tasks.values() if task.holds)
        self.nominated = {key for key, task in model.tasks.items() if task.nominated and task.pending}
        self.members.update((self.tasks[key][0], self.tasks[key][1]) for key in self.nominated)
        self.budgets: dict[str, tuple[int, set[str]]] = {}
        for key, found in model.objects.get(PodDisruptionBudget, {}).items():
            assert isinstance(found, PodDisruptionBudget)
            names = {
                name for name, task in model.tasks.items()
                if task.running and not task.terminating
                and selector_matches(found.spec.selector, task.pod.metadata.labels)
            }  # fmt: skip
            self.budgets[key] = int(found.spec.min_available or 0), names

    def follow(self, transaction: Transaction) -> None:
        for gone in transaction.evictions:
            self._count(gone.pod, -1)
        for bind in transaction.binds:
            if bind.pod in self.nominated:
                self.nominated.discard(bind.pod)
            else:
                self._count(bind.pod, 1)
        for one in transaction.nominations:
            if one.node is None and one.pod in self.nominated:
                self.nominated.discard(one.pod)
                self._count(one.pod, -1)
            elif one.node is not None and one.pod not in self.nominated:
                self.nominated.add(one.pod)
                self._count(one.pod, 1)

    def _count(self, key: str, sign: int) -> None:
        job, role, request = self.tasks[key]
        for name, amount in request.items():
            self.allocated[self.queue[job]][name] += sign * amount
        self.members[job, role] += sign

    def check(self, transaction: Transaction, placed: list[str]) -> None:
        """What is placed stays within capability, share and maxMember; who goes may go by every disruption budget."""
        queue = self.queue[transaction.job]
        held = self.allocated[queue]
        asked = {name for key in placed for name, amount in self.tasks[key][2].items() if amount}
        for name in asked & self.capability[queue].keys():
            assert held[name] <= self.capability[queue][name], "above the capability"
        if any(gone.action == "reclaim" for gone in transaction.evictions):
            for name in asked & self.deserved[queue].keys():
                assert held[name] <= self.deserved[queue][name], "receiver above its share"
        for key in placed:
            job, role, _ = self.tasks[key]
            most = self.most.get((job, role))
            assert most is None or self.members[job, role] <= most, "above maxMember"
        for gone in transaction.evictions:
            mine = [key for key, (_, names) in self.budgets.items() if gone.pod in names]
            assert len(mine) <= 1, "the eviction API refuses a pod under two budgets"
            for key in mine:
                least, names = self.budgets[key]
                names.discard(gone.pod)
                assert len(names) >= least, "beyond a disruption budget"


@relaxed
@given(contested(), st.sampled_from(POLICIES))
def test_whoever_pods_are_evicted_for_is_placed_within_all_limits(found: World, by: Policy) -> None:
    sim = Served(found.model(), by)
    for _ in range(5):
        sim.settle()
        sim.tick()
        sim.settle()
        sim.check_served()


@relaxed
@given(contested(coupled=True), st.sampled_from(POLICIES))
def test_victims_for_pods_that_heed_others_keep_within_all_limits(found: World, by: Policy) -> None:
    sim = Served(found.model(), by)
    for _ in range(4):
        for _ in range(3):
            sim.cycle()
        sim.tick()


@relaxed
@given(contested(coupled=True), st.sampled_from(POLICIES))
def test_no_unit_of_any_plan_can_be_left_out(found: World, by: Policy) -> None:
    sim = Simulation(found.model(), by)
    with checked_plans():
        for _ in range(3):
            for _ in range(3):
                sim.cycle()
            sim.tick()


@relaxed
@given(contested(), st.sampled_from(POLICIES))
def test_with_a_static_demand_evictions_end(found: World, by: Policy) -> None:
    sim: Any = Simulation(found.model(), by)
    sim.run(25)
    before = len(sim.evictions)
    sim.run(6)
    assert len(sim.evictions) == before
