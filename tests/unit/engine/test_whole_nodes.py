"""Exclusive groups and roles: nobody else of this scheduler's stands on their nodes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kbatch.api.objects import PodGroup
from kbatch.engine import CycleState
from kbatch.engine.state.cycle_state import GatheredRoom
from kbatch.model.events import Upsert
from tests.unit.engine.closeness import close, nodes_at, wired
from tests.unit.engine.worlds import (
    ALLOCATE,
    EVERYTHING,
    Simulation,
    group,
    members,
    node,
    pod,
    policy,
    priority_class,
    queue,
    run,
    world,
)

POLICY = policy(EVERYTHING)
NO_ENQUEUE = EVERYTHING.replace("enqueue, ", "")


def _alone(made: PodGroup, *roles: str) -> PodGroup:
    subs = tuple(msgspec.structs.replace(sub, exclusive=sub.name in roles) for sub in made.spec.sub_groups or ())
    made.spec = msgspec.structs.replace(made.spec, exclusive=not roles, sub_groups=subs or None)
    return made


def _nodes(count: int = 2) -> list[Any]:
    return [node(f"n{at}", "4") for at in range(count)]


def test_an_exclusive_pod_keeps_off_nodes_of_others() -> None:
    found = run(world(queue(), _nodes(), pod("x", on="n0"), _alone(group("g", 2)), members("g", 2)), POLICY)
    assert set(found.binds.values()) == {"n1"}  # its own pods share a node


def test_others_keep_off_nodes_of_exclusive_pods() -> None:
    standing = pod("g-0", of="g", on="n0")
    found = run(world(queue(), _nodes(), standing, _alone(group("g")), [pod(f"x-{at}") for at in range(6)]), POLICY)
    assert set(found.binds.values()) == {"n1"}
    assert len(found.binds) == 4


def test_both_in_one_cycle() -> None:
    others = [pod("x", at=5), group("h", 2, at=6), *members("h", 2)]
    found = run(world(queue(), _nodes(3), _alone(group("g", 2)), members("g", 2), others), POLICY)
    alone = {found.binds["g-0"], found.binds["g-1"]}
    assert len(found.binds) == 5
    assert not alone & {found.binds["x"], found.binds["h-0"], found.binds["h-1"]}


def test_the_reason_says_what_is_in_the_way() -> None:
    objects = (
        queue(),
        _nodes(),
        _alone(group("g")),
        pod("g-0", of="g", on="n0"),
        pod("y", "4", on="n1"),
        pod("x", at=5),
    )
    found = run(world(*objects), POLICY)
    reason = found.verdicts["ns/x"].reason
    assert reason is not None
    assert "0/2 nodes fit: 1 exclusive, 1 insufficient cpu" in reason.message


def test_pods_of_other_schedulers_are_left_alone() -> None:
    daemon = [pod(f"d-{at}", on=f"n{at}", scheduler="default-scheduler") for at in range(2)]
    found = run(world(queue(), _nodes(), daemon, _alone(group("g", 2)), members("g", 2)), POLICY)
    assert len(found.binds) == 2


def test_an_exclusive_role_shares_with_its_group_alone() -> None:
    made = _alone(group("g", 2, roles={"w": 1, "m": 1}), "w")
    pods = [pod("g-w", "3", of="g", role="w"), pod("g-m", of="g", role="m"), pod("x", at=9)]
    found = run(world(queue(), _nodes(), made, pods), POLICY)
    assert len(found.binds) == 3
    assert found.binds["x"] != found.binds["g-w"]


def test_the_room_of_those_who_terminate_is_waited_for() -> None:
    leaving = pod("x", on="n0")
    leaving.metadata.deletion_timestamp = "2026-01-01T00:00:01Z"
    found = run(world(queue(), _nodes(1), leaving, _alone(group("g")), members("g", 1)), POLICY)
    assert (found.binds, found.nominated) == ({}, {"g-0": "n0"})


def test_preemption_clears_whole_nodes() -> None:
    low = [pod(f"low-{at}", on=name, priority=1) for at, name in enumerate(("n0", "n0", "n1"))]
    objects = (queue(), _nodes(), low, _alone(group("g")), pod("g-0", of="g", priority=9))
    sim = Simulation(world(*objects), POLICY, recreate=False)
    sim.run(5)
    assert [key.removeprefix("ns/") for _, key in sim.evictions] == ["low-2"]
    assert sim.model.tasks["ns/g-0"].node == "n1"


def test_reclaim_clears_whole_nodes() -> None:
    others = [pod(f"x-{at}", on=f"n{at % 2}", of="x") for at in range(8)]
    taker = _alone(group("g", 2, queue="mine"))
    objects = (queue(), queue("mine"), _nodes(), group("x", 1), others, taker, members("g", 2, "2"))
    sim = Simulation(world(*objects), POLICY, recreate=False)
    sim.run(5)
    assert len(sim.evictions) == 4
    assert len({sim.model.tasks[f"ns/g-{at}"].node for at in range(2)}) == 1


def test_a_node_on_which_an_exclusive_pod_was_only_tried_is_open_to_others() -> None:
    others = [pod("y", on="n1"), pod("x", "4", at=5)]
    found = run(world(queue(), _nodes(), others, _alone(group("g", 2)), members("g", 2, "3")), policy(ALLOCATE))
    assert found.binds == {"x": "n0"}


def test_others_who_preempt_take_all_of_an_exclusive_node() -> None:
    standing = [pod(f"g-{at}", "1", of="g", on="n0", priority=1) for at in range(2)]
    objects = (queue(), _nodes(1), standing, _alone(group("g", 1, disruption="Whole")), pod("high", priority=9))
    sim = Simulation(world(*objects), POLICY, recreate=False)
    sim.run(5)
    assert len(sim.evictions) == 2
    assert sim.model.tasks["ns/high"].node == "n0"


def test_room_gathers_on_whole_nodes() -> None:
    busy = [pod("x-0", on="n0"), pod("x-1", on="n1")]
    objects = (queue(), _nodes(), busy, _alone(group("g")), members("g", 1), pod("new", at=690), pod("more", at=691))
    found = run(world(*objects), policy(ALLOCATE), now=700)
    assert found.outcome is not None
    gathered = found.outcome.state.gathered
    assert gathered is not None
    kept = {name for _, name in gathered.places}
    assert not kept & set(found.binds.values())
    assert len(found.binds) == 2


def test_what_did_not_fit_fits_when_a_group_is_exclusive_no_longer() -> None:
    model = world(queue(), _nodes(1), pod("g-0", of="g", on="n0"), _alone(group("g")), pod("x"))
    sim = Simulation(model, POLICY)
    sim.settle()
    assert not sim.model.tasks["ns/x"].node
    model.apply(Upsert(group("g")))
    sim.settle()
    assert sim.model.tasks["ns/x"].node == "n0"


def test_a_group_elsewhere_that_wants_whole_nodes_changes_nobodys_victims() -> None:
    classes = [priority_class("low", 0), priority_class("middle", 5), priority_class("high", 10)]
    standing = [
        group("v", priority_class_name="low"), pod("v-0", "4", of="v", on="n1"),
        group("w", priority_class_name="middle"), pod("w-0", "4", of="w", on="n2"),
    ]  # fmt: skip
    comer = [
        group("j", at=5, priority_class_name="high"), pod("j-0", "4", of="j", at=5, node_selector={"large": "yes"}),
    ]  # fmt: skip
    nodes = [node("n1", "4"), node("n2", "8", labels={"large": "yes"})]
    queues = [queue(capability={"cpu": "8"}), queue("other")]
    elsewhere = _alone(group("x", 2, queue="other"))
    for more in ([], [elsewhere]):  # the queue is at its cap, and there is room on n2
        found = run(world(queues, classes, nodes, standing, comer, more), policy(NO_ENQUEUE))
        assert found.evicted == ["v-0"]
        assert found.nominated == {"j-0": "n2"}


def test_nobody_is_evicted_where_the_exclusive_role_has_a_node_if_it_chooses_first() -> None:
    nodes = [node("a", "4"), *(node(name, "8") for name in "bcde")]
    standing = [pod("y", "4", on="b", queue="q2"), group("x", queue="q1")]
    standing += [pod(f"x-{at}", "4", of="x", on="cde"[at // 2]) for at in range(6)]
    comer = _alone(group("g", 2, queue="q2", roles={"plain": 1, "alone": 1}), "alone")
    pods = [pod("g-p", "4", of="g", role="plain", at=1), pod("g-a", "4", of="g", role="alone", at=2)]
    more = [group("h", 9, at=9, queue="q2"), *members("h", 9, "4", at=9)]
    model = world(queue("q1"), queue("q2"), nodes, standing, comer, pods, more)
    found = run(model, policy(NO_ENQUEUE))
    assert found.binds == {"g-p": "b", "g-a": "a"}
    assert not found.evicted


def test_room_that_gathers_moves_where_another_group_has_its_node_to_itself() -> None:
    standing = [_alone(group("e")), pod("e-0", of="e", on="n0"), *(pod(f"x-{at}", on="n1") for at in range(4))]
    model = world(queue(), _nodes(), standing, group("g"), pod("g-0", "4", of="g"))
    kept = GatheredRoom("ns/g", (("ns/g-0", "n0"),))
    found = run(model, policy(ALLOCATE), now=700, state=CycleState(gathered=kept))
    assert found.outcome is not None
    assert found.outcome.state.gathered == GatheredRoom("ns/g", (("ns/g-0", "n1"),))


def _held_racks(count: int, *, alone: bool) -> list[Any]:
    """Racks of two nodes; on the first of each stands a pod that stays, whether or not it is `alone`."""
    found: list[Any] = nodes_at(*(f"z/b/r{at:02}/n{at:02}-{side}" for at in range(count) for side in "ab"), cpu="4")
    for at in range(count):
        holder = group(f"s{at:02}", disruption="Never")
        holder.spec = msgspec.structs.replace(holder.spec, exclusive=alone)
        found += [holder, pod(f"s{at:02}-0", of=f"s{at:02}", on=f"n{at:02}-a")]
    return found


@pytest.mark.parametrize("alone", [False, True])
def test_room_is_made_in_the_one_rack_whose_nodes_can_be_cleared_however_many_cannot(alone: bool) -> None:
    """Who stays asks for next to nothing: in all racks there would be room, were it not for whole nodes."""
    taker = close(group("g", 2, priority_class_name="high", at=5), 2)
    taker.spec = msgspec.structs.replace(taker.spec, exclusive=not alone)
    gives = [*nodes_at("z/b/s/z-a", "z/b/s/z-b", cpu="4"), group("v"), pod("v-0", "2", of="v", on="z-a")]
    objects = (queue(), priority_class("high", 9), _held_racks(20, alone=alone), gives, taker, members("g", 2, "3"))
    found = run(world(*objects), wired(NO_ENQUEUE))
    assert found.evicted == ["v-0"]
    assert set(found.nominated.values()) == {"z-a", "z-b"}


def test_room_gathers_in_the_one_rack_without_exclusive_pods_however_many_there_are() -> None:
    stays = [*nodes_at("z/b/s/z-a", "z/b/s/z-b", cpu="4"), group("v", disruption="Never"), pod("v-0", of="v", on="z-a")]
    waits = [close(group("g", 2), 2), *members("g", 2, "4")]
    found = run(world(queue(), _held_racks(70, alone=True), stays, waits), wired(ALLOCATE), now=700)
    assert found.outcome is not None
    gathered = found.outcome.state.gathered
    assert gathered is not None
    assert {where for _, where in gathered.places} == {"z-a", "z-b"}
