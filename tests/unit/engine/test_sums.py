"""What a session counts: roles, caps, shares, room; and that what was only tried leaves nothing behind."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
import pytest

from kbatch.api.objects import Pod, SubGroup
from kbatch.api.reasons import ClusterTooSmall, NotEnoughResources
from kbatch.engine.placement.capacity import Capacity
from kbatch.engine.plugin import NoArguments, Plugin, Undo
from kbatch.engine.session.session import Session
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.minimum import shortfalls
from kbatch.engine.state.node_resources import NodeResources
from kbatch.model.tasks import Task, TaskClass
from tests.unit.engine.worlds import (
    group,
    in_queue,
    members,
    node,
    pod,
    policy,
    priority_class,
    queue,
    run,
    session_of,
    stamp,
    world,
)

SIZES = (("n1", "3"), ("n2", "1"))


def dying(name: str, where: str, **more: Any) -> Pod:
    found = pod(name, on=where, **more)
    found.metadata.deletion_timestamp = stamp(100)
    return found


def counted_in(session: Session) -> dict[str, Any]:
    """All that placing pods of the group changes."""
    job, queue, room = session.job("ns/g"), session.queue("default"), session.room
    return {
        "room": [{name: column.tolist() for name, column in part.items()} for part in (room.idle, room.future)],
        "job": [list(job.placed.items()), job.by_role, job.allocated, job.missing()],
        "queue": queue.allocated,
        "open": len(session.open_statements),
    }


# --- a statement ------------------------------------------------------------------------------------------------------


def test_like_pods_placed_together_count_as_those_placed_one_by_one() -> None:
    gang = group("g", 8, roles={"w": 8})
    pods = [pod(f"g-{at}", of="g", role="w") for at in range(8)]
    model = world(queue(), node("n0", "9"), node("n1", "9"), gang, pods)
    together, apart = session_of(model), session_of(model)
    rows = [0, 1, 1, 0, 1, 1, 1, 0]
    before = counted_in(together)
    tasks = list(together.job("ns/g").waiting)
    one, other = (Statement(session, session.job("ns/g")) for session in (together, apart))
    assert one.place(tasks, rows) == 8
    assert all(other.allocate(task, row) for task, row in zip(tasks, rows, strict=True))
    assert counted_in(together) == counted_in(apart)
    assert counted_in(together)["open"] == 1
    assert (together.room.log, together.room.causes) == (apart.room.log, apart.room.causes)
    assert [step[:3] for step in one.recorded()] == [step[:3] for step in other.recorded()]
    one.rollback(5)
    other.rollback(5)
    assert counted_in(together) == counted_in(apart)
    one.rollback()
    assert together.job("ns/g").missing() == 8
    after = counted_in(together)
    assert (after["room"], after["open"]) == (before["room"], 0)


class Follows(Plugin):
    """Counts the pods that ask for less than two CPU."""

    name = "extra"
    agrees = frozenset()

    told: ClassVar[list[tuple[str, int]]] = []

    def follows(self, cls: TaskClass) -> bool:
        return cls.request["cpu"] < 2000

    def placed(self, task: Task, row: int) -> Undo:
        self.told.append((task.key, row))
        return lambda: self.told.remove((task.key, row))


def test_a_plugin_is_told_of_each_pod_that_it_follows_and_of_no_other() -> None:
    Follows.told.clear()
    model = world(queue(), node("n", "99"), group("g"), members("g", 7), [pod(f"g-{at}", "2", of="g") for at in "ab"])
    by = policy()
    part = dataclasses.replace(by.plugins[0], plugin=Follows, arguments=NoArguments())
    session = session_of(model, dataclasses.replace(by, plugins=(part, *by.plugins)))
    tasks = list(session.job("ns/g").waiting)
    small, large = ([task for task in tasks if task.cls.request["cpu"] == cpu] for cpu in (1000, 2000))
    statement = Statement(session, session.job("ns/g"))
    assert statement.place(small, [0] * 7) == 7
    assert statement.place(large, [0] * 2) == 2
    assert statement.place((), ()) == 0
    assert Follows.told == [(task.key, 0) for task in small]
    statement.rollback(3)
    assert Follows.told == [(task.key, 0) for task in small[:3]]


# --- order ------------------------------------------------------------------------------------------------------------


class LargestFirst(Plugin):
    name = "extra"
    agrees = frozenset()

    def task_order_key(self, task: Task) -> tuple[Any, ...]:
        return (-task.cls.request["cpu"],)


def test_tasks_come_by_what_plugins_say_the_first_first_and_then_by_age() -> None:
    sizes = {"a": ("1", 0, 5), "b": ("2", 0, 7), "c": ("2", 0, 6), "d": ("1", 9, 8), "e": ("2", 9, 9), "f": ("1", 0, 4)}
    pods = [pod(name, cpu, of="g", priority=high, at=at) for name, (cpu, high, at) in sizes.items()]
    by = policy()
    part = dataclasses.replace(by.plugins[0], plugin=LargestFirst, arguments=NoArguments())
    model = world(queue(), node("n"), group("g"), pods)
    last = session_of(model, dataclasses.replace(by, plugins=(*by.plugins, part)))
    first = session_of(model, dataclasses.replace(by, plugins=(part, *by.plugins)))
    assert [task.key for task in last.job("ns/g").waiting] == ["ns/e", "ns/d", "ns/c", "ns/b", "ns/f", "ns/a"]
    assert [task.key for task in first.job("ns/g").waiting] == ["ns/e", "ns/c", "ns/b", "ns/d", "ns/f", "ns/a"]


# --- roles and caps ---------------------------------------------------------------------------------------------------


def test_a_minimum_is_made_of_its_roles_and_nothing_besides() -> None:
    gang = group("g", 2, roles={"a": 1, "b": 1})
    pods = [pod(f"g-{role}{at}", of="g", role=role) for role in "ab" for at in range(2)]
    assert shortfalls(session_of(world(queue(), node("n1"), gang, pods)).job("ns/g")) == [("a", 1), ("b", 1)]


def test_a_role_gets_no_more_pods_than_it_may_have() -> None:
    gang = group("g")
    gang.spec.sub_groups = (SubGroup(name="a", min_member=1, max_member=2),)
    found = run(world(queue(), node("n1"), gang, [pod(f"g-{at}", of="g", role="a") for at in range(4)]))
    assert len(found.binds) == 2


def test_a_gang_of_which_a_role_still_waits_is_not_scheduled() -> None:
    gang = in_queue(group("g", 2, roles={"a": 1, "b": 1}))
    waits = pod("g-b", of="g", role="b")
    waits.status.nominated_node_name = "n1"
    bound = [pod(f"g-a{at}", of="g", role="a", on="n2") for at in range(2)]
    found = run(world(queue(), node("n1", "1"), node("n2", "2"), dying("d", "n1"), gang, bound, waits), now=1)
    assert not found.verdicts["ns/g"].scheduled


def test_the_tightest_dimension_of_a_cap_counts() -> None:
    capped = queue(capability={"cpu": "4", "memory": "1Gi"})
    assert len(run(world(capped, node("n1"), group("g"), members("g", 3, memory="1Gi"))).binds) == 1


# --- shares -----------------------------------------------------------------------------------------------------------


def test_a_queue_that_has_just_its_share_is_not_below_it() -> None:
    pods = [[pod(f"{name}-on", "2", queue=name, on="n1"), pod(f"{name}", "2", queue=name)] for name in "ab"]
    assert session_of(world(queue("a"), queue("b"), node("n1", "4"), *pods)).below_share() == {}


def test_ones_own_queue_is_no_other_that_comes_first() -> None:
    session = session_of(world(queue("a"), queue("b"), node("n1", "4"), pod("x", queue="a"), pod("y", "3", queue="a")))
    assert session.below_share() == {"cpu": {"a"}}
    assert not any(session.others_first(job) for job in session.live())


# --- room -------------------------------------------------------------------------------------------------------------


def test_a_pod_that_stays_after_all_releases_nothing() -> None:
    model = world(queue(), node("n1", "4"), pod("x", on="n1"))
    room, cls = NodeResources(model.table), model.tasks["ns/x"].cls
    before = {name: column.tolist() for name, column in room.releasing.items()}
    room.release(cls, 0)
    assert room.releasing["cpu"].tolist() == [1000]
    room.release(cls, 0, -1)
    assert {name: room.releasing[name].tolist() for name in before} == before


def test_a_gang_that_waits_for_some_of_its_room_binds_nothing() -> None:
    found = run(world(queue(), node("n1", "1"), node("n2", "1"), dying("d", "n2"), group("g", 2), members("g", 2)))
    assert found.binds == {}
    assert sorted(found.nominated.values(), key=str) == ["n1", "n2"]


def test_what_fits_one_node_only_is_promised_that_one() -> None:
    """No other arrangement is looked for in room that is yet to come free: so the hardest pod must come first."""
    nodes = [node(name, "1", labels={"name": name}) for name in ("n1", "n2")]
    gang = [group("g", 2), pod("g-0", of="g"), pod("g-1", of="g", node_selector={"name": "n1"}, at=1)]
    found = run(world(queue(), nodes, dying("d1", "n1"), dying("d2", "n2"), gang))
    assert found.nominated == {"g-0": "n2", "g-1": "n1"}


def test_two_groups_that_each_fit_the_empty_cluster_are_told_so() -> None:
    groups = [[group(name, 2, at=at), *members(name, 2, "2", at=at)] for at, name in enumerate("ab")]
    one = [group("c", 3, at=2), *members("c", 3, "1", at=2)]
    found = run(world(queue(), node("n1", "4"), pod("x", "4", on="n1"), *groups, one))
    assert not any(isinstance(each.reason, ClusterTooSmall) for each in found.verdicts.values())


@pytest.mark.parametrize("sizes", [["1"], ["600m", "400m"]], ids=["counted", "tried"])
def test_what_one_group_is_told_of_reserved_room_changes_nothing_for_the_next(sizes: list[str]) -> None:
    """One node has room for a gang that still waits for the other: that is said, and the room stays reserved."""
    gang, waits = in_queue(group("g", 2)), members("g", 2)
    for each, where in zip(waits, ("n1", "n2"), strict=True):
        each.status.nominated_node_name = where
    one = [group("p", len(sizes), at=1), *(pod(f"p-{at}", cpu, of="p", at=1) for at, cpu in enumerate(sizes))]
    two = [group("h", 2, at=2), *members("h", 2, at=2)]
    found = run(world(queue(), node("n1", "1"), node("n2", "1"), dying("d", "n2"), gang, waits, one, two), now=1)
    assert found.reason("p") == "Reserved"
    reason = found.verdicts["ns/h"].reason
    assert isinstance(reason, NotEnoughResources)
    assert reason.placeable == 0


def test_what_others_took_is_seen_by_each_class() -> None:
    """Pods of two sizes in turn, on more nodes than change from one to the next: each has a node to itself."""
    pods = [pod(f"p{at}", "1" if at % 2 else "900m", at=at) for at in range(8)]
    found = run(world(queue(), [node(f"n{at}", "1") for at in range(8)], pods))
    assert len(set(found.binds.values())) == len(found.binds) == 8


def test_a_gang_of_like_pods_takes_no_room_that_is_promised() -> None:
    gang, nodes = in_queue(group("h", 2)), [node(name, cpu, labels={"name": name}) for name, cpu in SIZES]
    waits = [pod(f"h-{name}", of="h", node_selector={"name": name}) for name, _ in SIZES]
    for one, (name, _) in zip(waits, SIZES, strict=True):
        one.status.nominated_node_name = name
    like = [group("g", 3, at=2), *members("g", 3, at=2)]
    found = run(world(queue(), nodes, dying("d", "n2"), gang, waits, like), now=1)
    assert found.binds == {}


def test_room_that_is_there_and_promised_to_others_is_no_room() -> None:
    """Counted by columns as by rows."""
    nodes = [node("n1", "4"), *(node(f"n{at}", "2") for at in range(2, 8))]
    session = session_of(world(queue(), nodes, pod("h", "3"), pod("g")))
    promised, asks = (session.model.tasks[f"ns/{name}"].cls for name in "hg")
    session.room.pipeline(promised, 0)
    capacity = Capacity(session.room, asks, np.ones(len(nodes), np.bool_), now=True)
    assert capacity.each().tolist() == [1, *[2] * 6]
    assert [capacity.at(np.array([row])).item() for row in range(len(nodes))] == capacity.each().tolist()


def test_what_did_not_fit_is_tried_again_once_a_nomination_has_ended() -> None:
    """The first gang finds no room; then a pod takes over what another was nominated to, and leaves room for more."""
    waits = pod("l-0", "3", of="l")
    waits.status.nominated_node_name = "n1"
    high = group("h", queue="q2", at=1, priority_class_name="high")
    model = world(
        [queue("q1"), queue("q2"), priority_class("high", 100), node("n1", "3"), dying("d", "n1", cpu="3")],
        [in_queue(group("l", queue="q2")), waits, high, pod("h-0", of="h", at=1)],
        [
            group("a", 2, queue="q1", at=2),
            *members("a", 2, at=2),
            group("b", 2, queue="q2", at=3),
            *members("b", 2, at=3),
        ],
    )
    assert run(model, now=4).nominated == {"l-0": None, "h-0": "n1", "b-0": "n1", "b-1": "n1"}
