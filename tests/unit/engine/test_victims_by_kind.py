"""Victims for a gang of several kinds of pods: what is easy to place takes no room that could be made for the rest."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.unit.engine.closeness import close, nodes_at, wired
from tests.unit.engine.worlds import (
    EVERYTHING,
    Decisions,
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

NO_ENQUEUE = EVERYTHING.replace("enqueue, ", "")
BY = policy(NO_ENQUEUE)
CLASSES = [priority_class("low", 1), priority_class("high", 100)]


def _gang(**sizes: tuple[int, str]) -> list[Any]:
    """A group `a` of high priority with roles of so many pods that ask for so much."""
    made = group("a", roles={role: count for role, (count, _) in sizes.items()}, at=9, priority_class_name="high")
    pods = [
        pod(f"a-{role}-{at}", cpu, of="a", role=role, at=9)
        for role, (count, cpu) in sizes.items() for at in range(count)
    ]  # fmt: skip
    return [made, *pods]


def _low(name: str, where: str, cpu: str, **more: Any) -> list[Any]:
    return [group(name, priority_class_name="low", **more), pod(f"{name}-0", cpu, of=name, on=where)]


def _all_wait(found: Decisions, count: int) -> bool:
    return len({name for name, where in found.nominated.items() if where}) == count


def test_a_small_pod_leaves_the_only_room_that_can_be_made_to_a_large_one() -> None:
    """There is room for the small one beside u, who alone can go for the large one."""
    nodes = [node("n1", "4"), node("n2", "2")]
    objects = (*CLASSES, queue(), nodes, _low("u", "n1", "2"), _low("v", "n2", "2"), _gang(w=(1, "4"), m=(1, "2")))
    found = run(world(*objects), BY)
    assert found.evicted == ["u-0", "v-0"]
    assert found.nominated == {"a-w-0": "n1", "a-m-0": "n2"}


def test_who_goes_for_the_first_role_is_not_who_must_for_the_second() -> None:
    """Whole nodes: who is evicted for the small pod might leave the large one without any node."""
    taker, *pods = _gang(m=(1, "1"), w=(1, "3"))
    taker.spec = msgspec.structs.replace(taker.spec, exclusive=True)
    nodes = [node("n1", "3"), node("n2", "2")]
    objects = (*CLASSES, queue(), nodes, _low("v", "n1", "2"), _low("u", "n2", "2"), taker, pods)
    found = run(world(*objects), BY)
    assert found.evicted == ["u-0", "v-0"]
    assert found.nominated == {"a-w-0": "n1", "a-m-0": "n2"}


def test_a_role_that_is_kept_to_few_nodes_comes_first() -> None:
    """The two of one role need one node for themselves; the larger pods of the other may stand anywhere."""
    taker, *pods = _gang(m=(2, "2"), w=(2, "3"))
    taker = close(taker, m=(0, ""))
    nodes = nodes_at("z/b/r1/n1", "z/b/r2/n2", "z/b/r3/n3", cpu="4", n3="3")
    victims = [_low("u", "n3", "2"), _low("v", "n1", "1")]
    found = run(world(*CLASSES, queue(), nodes, *victims, taker, pods), wired(NO_ENQUEUE))
    assert _all_wait(found, 4)
    assert found.nominated["a-m-0"] == found.nominated["a-m-1"]
    assert "u-0" in found.evicted


def test_nobody_goes_where_no_order_of_kinds_helps() -> None:
    nodes = [node("n1", "4"), node("n2", "2")]
    stays = [group("v", 2, disruption="Never"), *members("v", 2, on="n2")]
    found = run(world(*CLASSES, queue(), nodes, _low("u", "n1", "2"), stays, _gang(w=(1, "4"), m=(1, "2"))), BY)
    assert found.evicted == []
