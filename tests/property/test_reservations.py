"""What must hold of reservations, over random worlds in which things end, come, go and get lost.

An undisturbed world comes to rest; what is kept for somebody is used or given up; a gang that was whole keeps what
runs; and none of it depends on the memo, or on what only a process remembers.
"""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch.api.names import GROUP_NAME_ANNOTATION
from kbatch.api.objects import Node, Pod, PodGroup
from kbatch.engine import CycleState, Memo, Policy
from kbatch.model.events import Delete, Upsert
from kbatch.times import SECOND
from tests.property.test_engine import CLASSES, POLICIES, Remembering, World, relaxed, worlds
from tests.property.test_memo import HOST, STYLES, ZONE, styled
from tests.unit.engine.worlds import EPOCH, Decisions, group, node, pod, queue, stamp

pytestmark = pytest.mark.many

_MOST_CYCLES = 12
"""Cycles in which a world that nobody disturbs has come to rest."""


class Slow(Remembering):
    """A simulation in which evicted pods take some seconds to go, each as long as its name says; some never go.

    Attributes:
        stuck: pods that terminate and stay.
    """

    def __init__(self, found: World, by: Policy, *, remembers: bool = True) -> None:
        super().__init__(found.model(), by)
        self.stuck: set[str] = set()
        self.remembers = remembers
        self.told: dict[str, list[str]] = {}

    def cycle(self) -> Decisions:
        found = super().cycle()
        for transaction in found.transactions:
            for one in transaction.nominations:
                self.told.setdefault(one.pod, []).append(one.node or "")
        if not self.remembers:
            self.state, self.memo = CycleState(), Memo()
        return found

    def rest(self) -> None:
        """Cycles at this instant until one decides nothing; none nominates a pod to where it was nominated before."""
        before = {key: task.nominated for key, task in self.model.tasks.items()}
        self.told.clear()
        for _ in range(_MOST_CYCLES):
            if not self.cycle().transactions:
                break
        else:
            raise AssertionError(f"cycles at one instant never end: {self.told}")
        for key, nodes in self.told.items():
            seen = [before.get(key, ""), *nodes]
            named = [name for name in seen if name]
            assert len(named) == len(set(named)), f"{key} went back to where it was: {seen}"

    def tick(self) -> None:
        self.pass_time(1)

    def pass_time(self, seconds: int) -> None:
        """Let the time pass; what terminates is gone at the end of its grace, unless it is stuck."""
        self.now += seconds
        for task in list(self.model.tasks.values()):
            due = task.release_at is not None and task.release_at <= EPOCH + self.now * SECOND
            if task.terminating and due and task.key not in self.stuck:
                self.model.apply(Delete(Pod, task.pod.metadata.namespace, task.pod.metadata.name))

    def _evict(self, key: str) -> None:
        super()._evict(key)
        gone = copy.deepcopy(self.model.tasks[key].pod)
        gone.metadata.deletion_timestamp = stamp(self.now + 1 + sum(map(ord, key)) % 40)
        self.model.apply(Upsert(gone))


@st.composite
def disturbed(draw: st.DrawFn) -> World:
    """A world with two zones, groups whose pods look at each other, promises, and pods that are on their way out."""
    found = draw(worlds())
    styles: dict[str, str] = {}
    for obj in found.objects:
        if isinstance(obj, Node):
            obj.metadata.labels = {HOST: obj.metadata.name, ZONE: draw(st.sampled_from(["z0", "z1"]))}
        elif isinstance(obj, PodGroup):
            styles[obj.metadata.name] = draw(st.sampled_from([*STYLES, "plain", "plain"]))
            obj.spec.schedule_timeout_seconds = draw(st.sampled_from([20, 300]))
            if draw(st.integers(0, 2)) == 0:
                obj.spec.min_resources = {"cpu": str(draw(st.integers(1, 6)))}
    for number, obj in enumerate(found.objects):
        if not isinstance(obj, Pod):
            continue
        if obj.spec.node_name:
            if draw(st.integers(0, 5)) == 0:
                obj.metadata.deletion_timestamp = stamp(draw(st.integers(0, 60)))
        else:
            name = (obj.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION, "")
            styled(obj, name or obj.metadata.name, styles.get(name, "plain"), number)
    return found


@st.composite
def crowded(draw: st.DrawFn) -> World:
    """A full cluster: gangs of high priority wait for pods that terminate, or have others evicted."""
    found = World([*CLASSES, queue("q0")])
    clock = 0
    for at in range(draw(st.integers(2, 4))):
        name, cpu = f"n{at}", draw(st.integers(1, 3))
        found.objects.append(node(name, str(cpu), labels={HOST: name, ZONE: f"z{at % 2}"}))
        for number in range(cpu):
            clock += 1
            one = pod(f"old{at}{number}", on=name, at=clock, queue="q0", priority=1)
            if draw(st.booleans()):
                one.metadata.deletion_timestamp = stamp(draw(st.integers(10, 60)))
            found.objects.append(one)
    for number in range(draw(st.integers(1, 2))):
        clock += 1
        count = draw(st.integers(2, 4))
        name = f"g{number}"
        style = draw(st.sampled_from(["spread", "spread", "plain", "apart by host", "together"]))
        timeout = draw(st.sampled_from([20, 300]))
        found.objects.append(
            group(name, count, at=clock, queue="q0", priority_class_name="high", schedule_timeout_seconds=timeout)
        )
        for index in draw(st.permutations(range(count))):
            clock += 1
            one = pod(f"{name}-{index}", of=name, at=clock)
            styled(one, name, style, index)
            found.objects.append(one)
    return found


def _disturb(sim: Slow, data: st.DataObject, number: int) -> None:
    """Something happens: time passes, a pod or a node goes or comes, a pod gets stuck."""
    what = data.draw(
        st.sampled_from(["time", "time", "a pod goes", "a pod is stuck", "a node goes", "a node comes", "a gang"])
    )
    pods = sorted(sim.model.tasks)
    nodes = sorted(name for name, record in sim.model.nodes.items() if record.node is not None)
    if what == "a pod goes" and pods:
        key = data.draw(st.sampled_from(pods))
        sim.model.apply(Delete(Pod, "ns", key.removeprefix("ns/")))
    elif what == "a pod is stuck":
        leaving = sorted(key for key, task in sim.model.tasks.items() if task.terminating)
        if leaving:
            sim.stuck.add(data.draw(st.sampled_from(leaving)))
    elif what == "a node goes" and len(nodes) > 1:
        name = data.draw(st.sampled_from(nodes))
        for key in [key for key, task in sim.model.tasks.items() if task.node == name]:
            sim.model.apply(Delete(Pod, "ns", key.removeprefix("ns/")))
        sim.model.apply(Delete(Node, "", name))
    elif what == "a node comes":
        name = f"late{number}"
        sim.model.apply(Upsert(node(name, "3", "8Gi", "20", labels={HOST: name, ZONE: "z0"})))
    elif what == "a gang":
        where = data.draw(st.sampled_from(sorted(sim.model.queues)))
        sim.model.apply(Upsert(group(f"new{number}", 2, at=1000 + number, queue=where, priority_class_name="high")))
        for at in range(2):
            sim.model.apply(Upsert(pod(f"new{number}-{at}", "2", of=f"new{number}", at=1000 + number)))
    else:
        sim.pass_time(data.draw(st.sampled_from([1, 5, 30, 300, 700])))


@relaxed
@given(st.one_of(crowded(), disturbed()), st.sampled_from(POLICIES), st.booleans(), st.data())
def test_an_undisturbed_world_comes_to_rest(found: World, by: Policy, remembers: bool, data: st.DataObject) -> None:
    """Also where every cycle is a new process's first."""
    sim = Slow(found, by, remembers=remembers)
    for number in range(5):
        sim.rest()
        _disturb(sim, data, number)
    sim.rest()


@relaxed
@given(st.one_of(crowded(), disturbed()), st.sampled_from(POLICIES), st.data())
def test_every_nomination_is_used_or_given_up(found: World, by: Policy, data: st.DataObject) -> None:
    sim = Slow(found, by)
    for number in range(3):
        sim.rest()
        _disturb(sim, data, number)
    sim.rest()
    waiting = {key: task.nominated for key, task in sim.model.tasks.items() if task.nominated and task.pending}
    for _ in range(4):
        sim.pass_time(40)
        sim.rest()
    for key, name in waiting.items():
        task = sim.model.tasks.get(key)
        if task is not None and task.pending and task.nominated == name:
            leaving = [each for each in sim.model.nodes[name].tasks.values() if each.terminating]
            assert any(each.key not in sim.stuck for each in leaving), f"{key} waits for nobody on {name}"


@relaxed
@given(
    st.integers(2, 5),
    st.integers(0, 2),
    st.lists(st.sampled_from(["pod", "node", "time", "late", "other"]), min_size=1, max_size=5),
    st.booleans(),
    st.sampled_from(POLICIES),
)
def test_a_gang_that_was_whole_keeps_what_runs(
    minimum: int, surplus: int, happens: list[str], remembers: bool, by: Policy
) -> None:
    """Also while others of its pods, made together with them, wait for room."""
    nodes = [node(f"n{number}", "1") for number in range(minimum)]
    gang = group("g", minimum, disruption="Never")
    sim = Slow(World([queue("default"), *nodes, gang]), by, remembers=remembers)
    for number in range(minimum + surplus):
        sim.model.apply(Upsert(pod(f"g-{number}", of="g")))
    sim.rest()
    assert len(sim.running("g-")) == minimum
    for number, what in enumerate(happens):
        held = sim.running("g-")
        if what == "pod" and held:
            sim.model.apply(Delete(Pod, "ns", held[0]))
        elif what == "node" and held:
            name = sim.model.tasks[f"ns/{held[-1]}"].node
            for key in [key for key, task in sim.model.tasks.items() if task.node == name]:
                sim.model.apply(Delete(Pod, "ns", key.removeprefix("ns/")))
            sim.model.apply(Delete(Node, "", name))
        elif what == "late":
            sim.model.apply(Upsert(pod(f"g-late{number}", of="g", at=sim.now)))
        elif what == "other":
            sim.model.apply(Upsert(pod(f"x{number}", at=sim.now, priority=100)))
        else:
            sim.pass_time(100)
        before = set(sim.running("g-"))
        sim.rest()
        assert before <= set(sim.running("g-"))
    assert all(not key.startswith("ns/g-") for _, key in sim.evictions)


@relaxed
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 3), st.booleans())
def test_a_promise_ends(minimum: int, gone: int, others: int, remembers: bool) -> None:
    """Of a gang that lost pods for good: what it was promised is others' after its time."""
    sim = Slow(
        World([queue("default"), node("n1", str(minimum)), group("g", minimum, min_resources={"cpu": str(minimum)})]),
        POLICIES[0],
        remembers=remembers,
    )
    for number in range(minimum):
        sim.model.apply(Upsert(pod(f"g-{number}", of="g")))
    sim.rest()
    lost = min(gone, minimum)
    for number in range(lost):
        sim.model.apply(Delete(Pod, "ns", f"g-{number}"))
    sim.rest()
    for number in range(others):
        sim.model.apply(Upsert(pod(f"x{number}", at=sim.now)))
    sim.rest()
    assert sim.running("x") == []
    sim.pass_time(299)
    sim.rest()
    assert sim.running("x") == []
    sim.pass_time(2)
    sim.rest()
    assert len(sim.running("x")) == min(others, lost)
    assert len(sim.running("g-")) == minimum - lost
