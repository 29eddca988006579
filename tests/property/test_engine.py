"""What must hold of every cycle and of every run, over random clusters, queues, groups and configurations."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kbatch.api.objects import AnyObject, Pod, PriorityClass
from kbatch.engine import Memo, Policy, Transaction
from kbatch.engine.decisions import OWN_SAKE
from kbatch.engine.placement import ranking
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Upsert
from tests.examples import examples
from tests.unit.engine.worlds import (
    EVERYTHING,
    Decisions,
    Simulation,
    group,
    node,
    pod,
    policy,
    priority_class,
    queue,
    run,
    world,
)

ONE_TIER = """
actions: "reclaim, allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}, {name: drf}, {name: predicates}, {name: proportion},
            {name: nodeorder}]
"""
PREEMPT_FIRST = EVERYTHING.replace(
    "enqueue, reclaim, allocate, backfill, preempt", "enqueue, preempt, allocate, reclaim"
)
POLICIES: list[Policy] = [policy(EVERYTHING), policy(ONE_TIER), policy(PREEMPT_FIRST)]
CLASSES: list[PriorityClass] = [priority_class("low", 1), priority_class("high", 100)]

relaxed = settings(
    deadline=None, max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@dataclass
class World:
    """Objects of a cluster; `now` says in which order they were created (distinct times)."""

    objects: list[AnyObject] = field(default_factory=list)

    def model(self) -> ClusterModel:
        return world(copy.deepcopy(self.objects))


@st.composite
def worlds(draw: st.DrawFn, *, memory: bool = True, priorities: bool = True, disruptions: bool = True) -> World:
    found = World([*CLASSES])
    rooms: dict[str, list[int]] = {}
    for at in range(draw(st.integers(1, 4))):
        cpu = draw(st.integers(1, 8))
        gibs = draw(st.integers(1, 8)) if memory else 64
        rooms[f"n{at}"] = [cpu, gibs]
        found.objects.append(node(f"n{at}", str(cpu), f"{gibs}Gi", "20"))
    names = [f"q{at}" for at in range(draw(st.integers(1, 3)))]
    for name in names:
        more: dict[str, Any] = {}
        if draw(st.booleans()) and draw(st.booleans()):
            more["capability"] = {"cpu": str(draw(st.integers(1, 8)))}
        if draw(st.integers(0, 4)) == 0:
            more["reclaimable"] = False
        found.objects.append(queue(name, draw(st.sampled_from([0, 1, 1, 2, 3])), **more))
    clock = 0
    if draw(st.integers(0, 2)):
        clock = _crowd(draw, found, rooms, names[0])
    for at in range(draw(st.integers(1, 5))):
        clock += 1
        count = draw(st.integers(0, 5))
        least = draw(st.integers(1, max(1, count)))
        roles = None
        if count >= 2 and draw(st.integers(0, 4)) == 0:
            roles = {"m": 1, "w": draw(st.integers(0, count - 1))}
        more = {"queue": draw(st.sampled_from(names))}
        if priorities:
            more["priority_class_name"] = draw(st.sampled_from(["", "low", "high"]))
        if disruptions:
            more["disruption"] = draw(st.sampled_from(["Surplus", "Surplus", "Whole", "Never"]))
        cpu = draw(st.integers(0, 3))
        gibs = draw(st.integers(0, 3)) if memory else 0
        name = f"g{at}"
        found.objects.append(group(name, least, at=clock, roles=roles, **more))
        where = _room_for(rooms, cpu, gibs, count) if draw(st.booleans()) else None
        for index in range(count):
            clock += 1
            role = ("m" if index == 0 else "w") if roles else ""
            on = where[index] if where else ""
            memory_ = f"{gibs}Gi" if gibs else ""
            found.objects.append(pod(f"{name}-{index}", str(cpu), of=name, at=clock, on=on, role=role, memory=memory_))
    for at in range(draw(st.integers(0, 3))):
        clock += 1
        found.objects.append(pod(f"p{at}", str(draw(st.integers(0, 2))), at=clock, queue=draw(st.sampled_from(names))))
    return found


def _crowd(draw: st.DrawFn, found: World, rooms: dict[str, list[int]], where: str) -> int:
    """Fill the cluster with running pods of one queue, in one or two groups; returns the time after them."""
    clock = 0
    for at in range(draw(st.integers(1, 2))):
        cpu, gibs = draw(st.integers(1, 2)), draw(st.integers(0, 1))
        count = draw(st.integers(1, 12))
        while count and (on := _room_for(rooms, cpu, gibs, count)) is None:
            count -= 1
        if not count or on is None:
            continue
        clock += 1
        name = f"c{at}"
        least = draw(st.sampled_from([1, 1, count, max(1, count - 1)]))
        more: dict[str, Any] = {
            "priority_class_name": "low",
            "disruption": draw(st.sampled_from(["Surplus", "Surplus", "Whole"])),
        }
        found.objects.append(group(name, least, at=clock, queue=where, **more))
        for index in range(count):
            clock += 1
            memory = f"{gibs}Gi" if gibs else ""
            found.objects.append(pod(f"{name}-{index}", str(cpu), of=name, at=clock, on=on[index], memory=memory))
    return clock


def _room_for(rooms: dict[str, list[int]], cpu: int, gibs: int, count: int) -> list[str] | None:
    """Nodes on which that many pods already run, or None where they have no room."""
    left = {name: list(room) for name, room in rooms.items()}
    found: list[str] = []
    for _ in range(count):
        name = next((name for name, room in left.items() if room[0] >= cpu and room[1] >= gibs), None)
        if name is None:
            return None
        left[name][0] -= cpu
        left[name][1] -= gibs
        found.append(name)
    rooms.update(left)
    return found


class Remembering(Simulation):
    """A simulation that compares each cycle with one that remembers nothing."""

    def cycle(self) -> Decisions:
        alone = self._without_memory()
        found = super().cycle()
        assert alone.transactions == found.transactions, "decisions depend on the memo"
        assert codes(alone) == codes(found), "verdicts depend on the memo"
        self.model.validate()
        return found

    def _without_memory(self) -> Decisions:
        """What would be decided by a process that has just begun: neither memo, nor what is kept with the nodes; and
        that keeps one ranking of nodes at a time.
        """
        table = self.model.table
        kept, made_of = table.static_cache, table.static_generation
        table.static_cache = {}
        with patch.object(ranking, "_MOST_CELLS", 0):
            alone = run(self.model, self.policy, now=self.now, memo=Memo(), state=self.state)
        if table.static_generation == made_of:
            table.static_cache = kept
        return alone


class Checked(Remembering):
    """A simulation whose every cycle is checked."""

    def cycle(self) -> Decisions:
        before = _Before(self.model)
        found = super().cycle()
        before.foresee(found.transactions)
        for transaction in found.transactions:
            before.check(transaction)
        before.check_victims()
        _check_nodes(self.model)
        _check_gangs(self.model, before)
        _check_verdicts(self.model, found)
        return found


def codes(found: Decisions) -> dict[str, object]:
    """How each group stands, without the numbers, which may be some seconds old."""
    return {
        name: (verdict.enqueued, verdict.scheduled, verdict.reason.code if verdict.reason is not None else "",
               verdict.attempted, verdict.pods_unschedulable, verdict.attempts, verdict.members_lost)
        for name, verdict in found.verdicts.items()
    }  # fmt: skip


class _Before:
    """What queues held before a cycle, and what its transactions made of that, one by one."""

    def __init__(self, model: ClusterModel) -> None:
        self.model = model
        self.allocated = {name: dict(record.allocated) for name, record in model.queues.items()}
        self.deserved = copy.deepcopy(model.deserved())
        self.holding = {key: job.holding + job.succeeded for key, job in model.jobs.items()}
        self.tasks = {key: (task.job, dict(task.cls.request)) for key, task in model.tasks.items()}
        self.roles = {key: bool(job.roles) for key, job in model.jobs.items()}
        self.queue_of = {key: job.queue for key, job in model.jobs.items()}
        self.victims_of = {
            key: (job.disruption, job.priority, job.queue, job.gang, job.minimum) for key, job in model.jobs.items()
        }
        self.nominated = {key for key, task in model.tasks.items() if task.nominated and task.pending}
        # The model counts what is nominated. On a node that is gone, or that refused the pod, it holds nothing.
        for key in sorted(self.nominated):
            named = model.tasks[key].nominated
            if named not in model.nodes or named in model.refusals.nodes(key):
                self.nominated.discard(key)
                self.count(key, -1)
        self.evicted: list[str] = []
        self.where = {key: task.node or task.nominated for key, task in model.tasks.items()}
        self.classes = {key: (task.cls.id, dict(task.cls.needs)) for key, task in model.tasks.items()}
        self.future = {
            name: dict(record.allocatable) for name, record in model.nodes.items() if record.node is not None
        }
        for key, task in model.tasks.items():
            if task.holds or key in self.nominated:
                self.move(key, self.where[key], -1)
        self.void = {
            key: self.where[key]
            for key in self.nominated
            if any(amount < 0 for amount in self.future.get(self.where[key], {}).values())
        }
        """What was nominated beside pods that could not be evicted then: it holds nothing where it moves elsewhere."""

    def move(self, key: str, node_name: str, sign: int) -> None:
        """Room of a node after what terminates is gone: one pod less (1) or more (-1) on it."""
        room = self.future.get(node_name)
        if room is not None:
            for name, amount in self.classes[key][1].items():
                room[name] = room.get(name, 0) + sign * amount

    def foresee(self, transactions: Iterable[Transaction]) -> None:
        """Nominations that end or move in the cycle hold nothing while it decides: that is told when it is over."""
        told = {one.pod: one.node for found in transactions for one in found.nominations}
        for name in self.nominated & told.keys():
            if told[name] != self.where[name]:
                self.move(name, self.where[name], 1)
                self.where[name] = ""
                self.void.pop(name, None)
                self.nominated.discard(name)
                self.count(name, -1)

    def follow(self, transaction: Transaction) -> None:
        """Keep the room of nodes up to date."""
        for one in transaction.nominations:
            if one.pod in self.nominated:
                self.move(one.pod, self.where[one.pod], 1)
        for bind in transaction.binds:
            if bind.pod in self.nominated:
                self.move(bind.pod, self.where[bind.pod], 1)
        for gone in transaction.evictions:
            self.move(gone.pod, self.where[gone.pod], 1)
            if not self.victims_of[self.tasks[gone.pod][0]][3]:
                self.evicted.append(gone.pod)
        for bind in transaction.binds:
            self.where[bind.pod] = bind.node
            self.move(bind.pod, bind.node, -1)
        for one in transaction.nominations:
            self.where[one.pod] = one.node or ""
            if one.node is not None:
                self.move(one.pod, one.node, -1)

    def check_victims(self) -> None:
        """The room of every single victim is used, or what it freed of its queue's capability: it could not stay."""
        for key in self.evicted:
            room = self.future[self.where[key]]
            job, request = self.tasks[key]
            record = self.model.queues[self.queue_of[job]]
            held = self.allocated[record.name]
            capped = any(
                held.get(name, 0) + request.get(name, 0) > most
                for name, most in (record.capability or {}).items() if request.get(name)
            )  # fmt: skip
            needs = self.classes[key][1]
            assert capped or any(room[name] < amount for name, amount in needs.items()), f"{key} was evicted in vain"

    def check(self, transaction: Transaction) -> None:
        self.follow(transaction)
        for name in [name for name, before in self.void.items() if self.where[name] != before]:
            del self.void[name]
            self.nominated.discard(name)
            self.count(name, -1)
        shortfall = self.shortfall()
        actions = {eviction.action for eviction in transaction.evictions}
        for eviction in transaction.evictions:
            self.count(eviction.pod, -1)
            job, _ = self.tasks[eviction.pod]
            disruption, priority, victim_queue, _, _ = self.victims_of[job]
            preemptor = self.victims_of[transaction.job]
            if eviction.action in OWN_SAKE:
                continue
            assert disruption != "Never"
            assert eviction.beneficiary, "an eviction without a beneficiary"
            if eviction.action == "preempt":
                assert victim_queue == preemptor[2]
                assert priority <= preemptor[1]
            else:
                assert victim_queue != preemptor[2]
        placed = [bind.pod for bind in transaction.binds]
        placed += [one.pod for one in transaction.nominations if one.node is not None]
        for name in placed:
            if name not in self.nominated:
                self.count(name, 1)
                self.nominated.add(name)
        for one in transaction.nominations:
            if one.node is None and one.pod in self.nominated:
                self.count(one.pod, -1)
                self.nominated.discard(one.pod)
        if "reclaim" in actions:
            receiver = self.queue_of[transaction.job]
            asked = {name for key in placed for name, amount in self.tasks[key][1].items() if amount}
            for name in asked & self.deserved[receiver].keys():
                assert self.allocated[receiver].get(name, 0) <= self.deserved[receiver][name], (
                    "receiver above its share"
                )
            if asked == {"cpu"}:
                assert self.shortfall() <= shortfall, "a reclaim made the shortfall larger"

    def count(self, key: str, sign: int) -> None:
        job, request = self.tasks[key]
        held = self.allocated.setdefault(self.queue_of[job], {})
        for name, amount in request.items():
            held[name] = held.get(name, 0) + sign * amount

    def shortfall(self) -> int:
        return sum(
            max(0, deserved.get("cpu", 0) - self.allocated[name].get("cpu", 0))
            for name, deserved in self.deserved.items()
        )


def _check_nodes(model: ClusterModel) -> None:
    for record in model.nodes.values():
        for name, used in record.used.items():
            assert used <= record.allocatable.get(name, 0), f"{record.name} is over its {name}"


def _check_gangs(model: ClusterModel, before: _Before) -> None:
    for key, job in model.jobs.items():
        holding = job.holding + job.succeeded
        if job.gang and 0 < holding < job.minimum:
            was = before.holding.get(key, 0)
            assert 0 < was < job.minimum, f"{key} is bound in part"
            assert holding >= was


def _check_verdicts(model: ClusterModel, found: Decisions) -> None:
    for verdict in found.verdicts.values():
        job = model.jobs.get(verdict.job)
        if job is None:
            continue
        placed = job.placed_by_role()
        whole = job.holding + job.succeeded >= job.minimum and all(
            placed.get(role.name, 0) >= role.min_member for role in job.roles
        )
        assert verdict.scheduled == whole, verdict
        assert (verdict.reason is None) == verdict.scheduled
        assert verdict.reason is None or verdict.reason.message


@relaxed
@given(worlds(), st.sampled_from(POLICIES))
def test_every_cycle_keeps_the_promises(found: World, by: Policy) -> None:
    sim = Checked(found.model(), by)
    for _ in range(6):
        sim.settle()
        sim.tick()


@relaxed
@given(worlds(), st.sampled_from(POLICIES))
def test_with_a_static_demand_evictions_end(found: World, by: Policy) -> None:
    sim = Simulation(found.model(), by)
    sim.run(25)
    before = len(sim.evictions)
    sim.run(10)
    assert len(sim.evictions) == before
    pods = sum(isinstance(obj, Pod) for obj in found.objects)
    assert before <= 4 * pods


@relaxed
@given(worlds(), st.sampled_from(POLICIES), st.randoms(use_true_random=False))
def test_the_same_cluster_gives_the_same_decisions_in_any_order_of_documents(
    found: World, by: Policy, mixer: Any
) -> None:
    mixed = World(list(found.objects))
    mixer.shuffle(mixed.objects)
    first, second = Simulation(found.model(), by), Simulation(mixed.model(), by)
    for _ in range(4):
        for _ in range(3):
            one, two = first.cycle(), second.cycle()
            assert one.transactions == two.transactions
            assert one.verdicts == two.verdicts
        first.tick()
        second.tick()


@relaxed
@given(worlds(memory=False, priorities=False, disruptions=False), st.integers(1, 8))
def test_one_more_node_never_reduces_what_runs(found: World, cpu: int) -> None:
    alike = [obj for obj in found.objects if not isinstance(obj, Pod) or not obj.spec.node_name]
    for obj in alike:
        if isinstance(obj, Pod):
            fresh = pod("x", "1").spec.containers
            obj.spec.containers = fresh
    few = Simulation(world(copy.deepcopy(alike)), POLICIES[1])
    many = Simulation(world(copy.deepcopy(alike), node("z", str(cpu))), POLICIES[1])
    few.run(3)
    many.run(3)
    assert len(many.running()) >= len(few.running())


@relaxed
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3), st.integers(1, 4))
@example(8, 4, 1, 1)
def test_no_victim_is_one_too_many(low: int, high: int, size: int, cpu: int) -> None:
    nodes = [node("n1", str(low)), node("n2", str(cpu))]
    running = [pod(f"a-{at}", of="a", on="n1", at=at) for at in range(low)]
    preemptors = [pod(f"b-{at}", str(size), of="b") for at in range(high)]
    model = world([*CLASSES, queue(), *nodes], running, group("a", priority_class_name="low"), preemptors)
    model.apply(Upsert(group("b", high, priority_class_name="high", at=1)))
    found = run(model, POLICIES[0])
    room = low // size + cpu // size
    if room < high:
        assert found.evicted == []
        return
    on_second = min(high, cpu // size)
    assert len(found.evicted) == (high - on_second) * size
