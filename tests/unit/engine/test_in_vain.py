"""Groups in queue for whose pods the room is in pieces that are too small keep nobody out who could use these."""

from __future__ import annotations

import random
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from kbatch.api.objects import ContainerPort, Pod, SchedulingGate
from kbatch.engine.admission import in_vain
from kbatch.engine.state.jobs import JobState
from kbatch.model.events import Delete, Upsert
from tests.unit.engine.test_enqueue import held_job
from tests.unit.engine.worlds import (
    EVERYTHING,
    Simulation,
    group,
    in_queue,
    members,
    node,
    pod,
    policy,
    priority_class,
    queue,
    run,
    world,
)

NO_VICTIMS = policy(EVERYTHING.replace("reclaim, ", "").replace(", preempt", ""))


def one(name: str, cpu: str, *, at: int = 0, on: str = "", **spec: Any) -> list[Any]:
    """A group of one pod."""
    return [group(name, at=at, **spec), pod(f"{name}-0", cpu, of=name, at=at, on=on)]


def in_pieces(*more: Any) -> Simulation:
    """What becomes of these where four nodes of 8 CPUs have 4 each that are free, once nothing happens any more."""
    nodes = [[node(f"n{at}", "8"), *one(f"r{at}", "4", on=f"n{at}")] for at in range(4)]
    sim = Simulation(world(queue(), priority_class("high", 10), *nodes, *more), NO_VICTIMS)
    sim.settle()
    return sim


def with_port(found: Pod) -> Pod:
    """The pod, with a port of its node."""
    port = ContainerPort(container_port=80, host_port=80)
    found.spec.containers = tuple(replace(each, ports=(port,)) for each in found.spec.containers)
    return found


def come(sim: Simulation, *objects: Any) -> None:
    for obj in objects:
        sim.model.apply(Upsert(obj))
    sim.tick()
    sim.settle()


def test_small_pods_start_on_the_pieces() -> None:
    """Two large ones were let in for the 16 CPUs that are free, and start on no node."""
    sim = in_pieces(*one("large", "7"), *one("other", "7", at=1))
    come(sim, *one("small", "2", at=2))
    assert "small-0" in sim.running()
    assert sim.last.reason("large") == "NotEnoughResources"


def test_a_gang_whose_pods_find_too_few_nodes_keeps_nobody_out() -> None:
    sim = in_pieces(group("gang", 5), *members("gang", 5, "3"))
    come(sim, *one("small", "2", at=2))
    assert "small-0" in sim.running()


def test_the_next_that_asks_for_the_same_does_not_come_in_queue() -> None:
    """Its pods, were they still to be made, would wait beside those of the first."""
    sim = in_pieces(*one("large", "7"))
    come(sim, *one("next", "7", at=1), *one("small", "2", at=2))
    found = sim.last.verdicts["ns/next"]
    assert not found.enqueued
    assert found.reason is not None
    assert found.reason.message == (
        "waits in Queue default: too few nodes have enough room for its pods, and a group in queue that asks for the "
        "same comes first; it continues when that has started"
    )
    for old in ("r0-0", "r1-0", "r2-0"):
        sim.model.apply(Delete(Pod, "ns", old))
    sim.tick()
    sim.settle()
    assert {"large-0", "next-0"} <= set(sim.running())


@pytest.mark.parametrize(("more", "enqueued"), [({}, False), ({"priority_class_name": "high"}, True)])
def test_who_matters_more_comes_in_queue(more: dict[str, Any], enqueued: bool) -> None:
    sim = in_pieces(*one("large", "7"))
    come(sim, group("next", at=1, **more), pod("next-0", "7", of="next", at=1, priority=10 if more else None))
    assert sim.last.verdicts["ns/next"].enqueued is enqueued


@pytest.mark.parametrize("gathers", [False, True])
def test_who_has_waited_for_so_long_that_room_gathers_keeps_it(gathers: bool) -> None:
    """Else others would come in queue for room that `allocate` keeps from them, from this cycle on, or already."""
    sim = in_pieces(*one("large", "7", schedule_timeout_seconds=10_000))
    sim.now = 700
    if gathers:
        sim.settle()
    come(
        sim,
        *one("wide", "4", at=700),
        *one("second", "4", at=701),
        *one("third", "4", at=702),
        *one("last", "4", at=703),
    )
    assert "last-0" not in sim.running()
    assert not sim.last.verdicts["ns/last"].enqueued


def test_a_gang_that_has_lost_a_pod_keeps_the_room_for_it() -> None:
    """Pods for its place are there, more than its minimum; those that stand on the nodes count."""
    sim = in_pieces(group("gang", 3), *members("gang", 3, "4"))
    sim.model.apply(Delete(Pod, "ns", "gang-0"))
    come(sim, *[pod(f"more-{at}", "6", of="gang", at=1) for at in range(3)], *one("small", "3", at=2))
    assert not sim.last.verdicts["ns/small"].enqueued


def test_one_hole_is_kept_for_one_group() -> None:
    """A node has room for `large` or `other`; of the room of the others neither has any use."""
    nodes = [[node(f"m{at}", "8"), *one(f"s{at}", "4", on=f"m{at}")] for at in range(2)]
    sim = in_pieces(*nodes, *one("large", "7"), *one("other", "7", at=1), *one("more", "7", at=2))
    sim.model.apply(Delete(Pod, "ns", "r0-0"))
    smalls = [one(f"small{at}", "4", at=3 + at) for at in range(5)]
    for obj in [each for small in smalls for each in small]:
        sim.model.apply(Upsert(obj))
    sim.cycle()
    assert {"large-0", *(f"small{at}-0" for at in range(5))} <= set(sim.running())


@pytest.mark.parametrize("rests", [False, True])
def test_who_fits_no_cluster_keeps_nobody_out_however_many_kinds_there_are(rests: bool) -> None:
    sim = in_pieces(*one("large", "7"))
    for at in range(4):
        sim.model.apply(Upsert(node(f"n{at}", "6")))
    for at in range(3 if rests else 0):  # things happen, though not to it
        sim.model.apply(Upsert(node("other", "1", unschedulable=True, labels={"at": str(at)})))
        sim.cycle()
    with patch.object(in_vain, "_KINDS", 0):
        come(sim, *[each for at in range(4) for each in one(f"small{at}", "2", at=2)])
    assert len(sim.running("small")) == 4


def test_of_too_many_kinds_some_keep_others_out() -> None:
    with patch.object(in_vain, "_KINDS", 1):
        sim = in_pieces(*one("large", "7"), *one("other", "6", at=1))
        come(sim, *one("small", "4", at=2), *one("second", "4", at=3), *one("third", "4", at=4))
        assert "third-0" not in sim.running()


def test_who_asks_for_the_same_but_for_a_port_is_behind_nobody() -> None:
    """Important pods hold the port on both nodes; `low` may go for a pod that does not ask for it."""
    nodes = [
        [
            node(f"n{at}", "8"),
            *one(f"top{at}", "1", on=f"n{at}", disruption="Never"),
            *one(f"low{at}", "4", on=f"n{at}"),
        ]
        for at in range(2)
    ]
    sim = Simulation(world(queue(), priority_class("high", 10), *nodes), policy(EVERYTHING))
    for at in range(2):
        held = pod(f"top{at}-0", "1", of=f"top{at}", on=f"n{at}")
        sim.model.apply(Upsert(with_port(held)))
    high: dict[str, Any] = {"priority_class_name": "high"}
    come(sim, group("port", **high), with_port(pod("port-0", "7", of="port", priority=10)))
    come(sim, group("plain", at=1, **high), pod("plain-0", "7", of="plain", at=1, priority=10))
    sim.run(3)
    assert "plain-0" in sim.running()


def having_ports(*free: str) -> list[Any]:
    """Four nodes of 8 CPUs, each with 7 free and its port 80 taken, and such nodes on which it is free."""
    nodes: list[Any] = []
    for at in range(4):
        group_, held = one(f"r{at}", "1", on=f"n{at}", disruption="Never")
        nodes += [node(f"n{at}", "8"), group_, with_port(held)]
    return [*nodes, *(node(name, "8") for name in free)]


@pytest.mark.parametrize("free", [(), ("m0",), ("m0", "m1")])
def test_who_waits_for_a_port_keeps_nobody_out_whom_no_free_port_is_kept_for(free: tuple[str, ...]) -> None:
    """The first of them start where the port is free; the others leave the room to those that come."""
    sim = Simulation(world(queue(), *having_ports(*free)), NO_VICTIMS)
    for at in range(4):
        wants, port = one(f"port{at}", "7", at=at)
        come(sim, wants, with_port(port))
    assert len(sim.running("port")) == len(free)
    come(sim, *[obj for at in range(4) for obj in one(f"small{at}", "7", at=10)])
    assert len(sim.running("small")) == 4


def test_a_port_that_comes_free_is_kept_for_one_group() -> None:
    """Two more wait for it, and two come at once with the room for one of them."""
    sim = Simulation(world(queue(), *having_ports()), NO_VICTIMS)
    for at in range(3):
        wants, port = one(f"port{at}", "7", at=at)
        come(sim, wants, with_port(port))
    sim.model.apply(Delete(Pod, "ns", "r0-0"))
    come(sim, *[obj for at in range(4) for obj in one(f"small{at}", "7", at=10)])
    assert sim.running("port") == ["port0-0"]
    assert len(sim.running("small")) == 3


def test_a_port_pod_and_plain_ones_share_a_node() -> None:
    """Three that ask for as much without a port count for the room, and not for the port."""
    sim = Simulation(world(queue(), node("n0", "8")), NO_VICTIMS)
    plain = [obj for at in range(3) for obj in one(f"plain{at}", "2", at=at)]
    wants, port = one("port", "2", at=3)
    come(sim, *plain, wants, with_port(port))
    assert len(sim.running()) == 4


def test_who_waits_behind_gates_does_not_wait_for_room() -> None:
    gated = pod("gated-0", "4", of="gated", scheduling_gates=(SchedulingGate(name="example.com/licence"),))
    sim = in_pieces(in_queue(group("gated", schedule_timeout_seconds=1000)), gated)
    come(sim, group("next", at=1), held_job("job", 1, "4", "next"))
    assert sim.last.verdicts["ns/next"].enqueued


def test_who_lacks_a_pod_of_a_role_does_not_wait_for_room() -> None:
    roles = [
        pod("gang-m", "2", of="gang", role="m"),
        *(pod(f"gang-w{at}", "2", of="gang", role="w") for at in range(3)),
    ]
    lacking = in_queue(group("gang", 4, roles={"m": 2, "w": 2}, schedule_timeout_seconds=1000))
    sim = in_pieces(lacking, *roles, *one("wide", "7"))
    with patch.object(in_vain.InVain, "_finds_room", return_value=False):
        come(sim, *one("small", "1", at=1))
        come(sim, *one("last", "10", at=2))
    assert not sim.last.verdicts["ns/last"].enqueued  # 16 CPUs are free; the gang's 8 are kept for it


def test_who_was_sent_back_is_told_that_and_not_behind_whom_it_is() -> None:
    sim = in_pieces(*one("back", "7", schedule_timeout_seconds=30))
    sim.now = 30
    sim.settle()
    come(sim, *one("large", "7", at=31))
    fresh = run(sim.model, sim.policy, now=sim.now, state=sim.state)
    for found in (sim.last, fresh):
        reason = found.verdicts["ns/back"].reason
        assert reason is not None
        assert "was sent back" in reason.message


@pytest.mark.parametrize(("main", "worker"), [("3", "3"), ("1.5", "4")])
def test_the_roles_of_a_gang_take_room_from_one_another(main: str, worker: str) -> None:
    """Each by itself finds room on the node that has most of it, and both together find none."""
    gang = [pod("gang-m", main, of="gang", role="m"), pod("gang-w", worker, of="gang", role="w")]
    nodes = [[node(f"n{at}", "8"), *one(f"r{at}", cpu, on=f"n{at}")] for at, cpu in enumerate(("4", "7", "7"))]
    sim = Simulation(world(queue(), *nodes, group("gang", 2, roles={"m": 1, "w": 1}), *gang), NO_VICTIMS)
    sim.settle()
    come(sim, *one("small", "1", at=2), *one("second", "2", at=3))
    assert {"small-0", "second-0"} <= set(sim.running())
    assert sim.last.verdicts["ns/gang"].enqueued


@pytest.mark.parametrize("seed", range(100))
def test_who_starts_did_not_wait_in_vain(seed: int) -> None:
    """A gang of two roles in queue, of pods of random sizes, and little more room than it asks for."""
    chance = random.Random(seed)
    cpu, memory = [chance.randint(1, 4) for _ in range(2)], [chance.randint(1, 4) for _ in range(2)]
    counts = [chance.randint(1, 3) for _ in range(2)]
    pods = [
        pod(f"gang-{role}{at}", str(cpu[role]), memory=f"{memory[role]}Gi", of="gang", role="mw"[role])
        for role in range(2)
        for at in range(counts[role])
    ]
    nodes = [node(f"n{at}", str(chance.randint(2, 6)), memory=f"{chance.randint(2, 6)}Gi") for at in range(4)]
    gang = in_queue(group("gang", sum(counts), roles={"m": counts[0], "w": counts[1]}, schedule_timeout_seconds=1000))
    found: list[bool] = []
    waits = in_vain.InVain.waits

    def noting(self: in_vain.InVain, job: JobState) -> bool:
        found.append(waits(self, job))
        return found[-1]

    with patch.object(in_vain.InVain, "waits", noting):
        sim = Simulation(world(queue(), *nodes, gang, *pods), NO_VICTIMS)
        sim.cycle()
    assert not (sim.running() and found == [True])


def test_who_ran_and_came_back_keeps_nobody_out_either() -> None:
    """Two were evicted for more important ones; their pods are there again, and fit on no node."""
    high: dict[str, Any] = {"priority_class_name": "high"}
    pieces = [[node(f"n{at}", "8"), *one(f"r{at}", "4", on=f"n{at}", disruption="Never")] for at in range(2, 5)]
    lows = [*one("low0", "7"), *one("low1", "7")]
    sim = Simulation(
        world(queue(), priority_class("high", 10), node("n0", "8"), node("n1", "8"), *pieces, *lows), policy(EVERYTHING)
    )
    sim.settle()
    for at in range(2):
        come(sim, group(f"urgent{at}", at=1, **high), pod(f"urgent{at}-0", "7", of=f"urgent{at}", at=1, priority=10))
    assert len(sim.evictions) == 2
    come(sim, *[obj for at in range(6) for obj in one(f"small{at}", "2", at=sim.now)])
    assert len(sim.running("small")) == 6


def test_who_asks_for_more_than_a_lowered_capability_keeps_nobody_out() -> None:
    objects = [queue("a", capability={"cpu": "8"}), queue("b"), node("n0", "8")]
    sim = Simulation(world(*objects), NO_VICTIMS)
    come(sim, group("gang", 2, queue="a"), held_job("job", 2, "3", "gang"))
    assert sim.last.verdicts["ns/gang"].enqueued
    sim.model.apply(Upsert(queue("a", capability={"cpu": "5"})))
    come(sim, *[obj for at in range(2) for obj in one(f"b{at}", "4", at=2, queue="b")])
    assert len(sim.running("b")) == 2
