"""What begins a cycle, and what the next one sees that comes anyway."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import msgspec
import pytest

from kbatch.api.objects import Condition, Metadata, Node, Pod, PodCondition, PodGroup
from kbatch.model.events import Delete
from operators.scheduler.cache import Cache
from tests.unit.scheduler.fakes import cache_with, group, node, pod, queue, told

ENQUEUED = Condition(type="Enqueued", status="True")


def world() -> Cache:
    """A group of which one pod's bind is under way, one stands on its node, and one waits."""
    cache = cache_with(
        queue(), node("n"), node("m"), group(minimum=3), pod("coming"), pod("there", node="n"), pod("waiting")
    )
    cache.assume("ns/coming", "uid-coming", "n")
    cache.changed.clear()
    cache.stirred = False
    return cache


def changed(obj: Any, *, version: str = "20", metadata: dict[str, Any] | None = None, **parts: Any) -> Any:
    """The object with other metadata, and with parts of which fields are changed."""
    replaced = {name: msgspec.structs.replace(getattr(obj, name), **fields) for name, fields in parts.items()}
    meta = msgspec.structs.replace(obj.metadata, resource_version=version, **(metadata or {}))
    return msgspec.structs.replace(obj, metadata=meta, **replaced)


def there(**parts: Any) -> Pod:
    found: Pod = changed(pod("there", node="n"), **parts)
    return found


def of_the_group(**parts: Any) -> PodGroup:
    found: PodGroup = changed(group(minimum=3), **parts)
    return found


def of_the_node(**parts: Any) -> Node:
    found: Node = changed(node("n"), **parts)
    return found


QUIET = {
    "a bind is confirmed": changed(pod("coming", node="n")),
    "a bind is confirmed of a pod that runs by then": changed(pod("coming", node="n"), status={"phase": "Running"}),
    "a pod starts": there(status={"phase": "Running", "start_time": "2026-01-01T00:00:05Z"}),
    "a pod that waits says why": changed(
        pod("waiting"), status={"conditions": (PodCondition(type="PodScheduled", status="False", reason="x"),)}
    ),
    "a group's pods are counted": of_the_group(status={"phase": "Running", "running": 1, "pending": 2}),
    "a node tells that it is well": of_the_node(),
}

NEWS = {
    "a pod comes": pod("new"),
    "a pod goes": Delete(Pod, "ns", "there"),
    "a pod went to another node than it was bound to": changed(pod("coming", node="m")),
    "a pod that waited came to a node by others": changed(pod("waiting", node="m")),
    "a pod of the same name comes": changed(pod("coming", uid="another")),
    "a pod ends": there(status={"phase": "Succeeded"}),
    "a pod is being deleted": there(metadata={"deletion_timestamp": "2026-01-01T00:01:00Z"}),
    "a pod gets labels": there(metadata={"labels": {"app": "a"}}),
    "a pod gets annotations": there(metadata={"annotations": {"scheduling.k8s.io/group-name": "g", "a": "b"}}),
    "a pod leaves its group": there(metadata={"annotations": {"scheduling.k8s.io/group-name": "h"}}),
    "a group asks for less": of_the_group(spec={"min_member": 2}),
    "a group is let in": of_the_group(status={"conditions": (ENQUEUED,)}),
    "a group has tried once more": of_the_group(status={"scheduling_attempts": 1}),
    "a group gets annotations": of_the_group(metadata={"annotations": {"a": "b"}}),
    "a group is being deleted": of_the_group(metadata={"deletion_timestamp": "2026-01-01T00:01:00Z"}),
    "a group comes": group("new"),
    "a group goes": Delete(PodGroup, "ns", "g"),
    "a node is cordoned": of_the_node(spec={"unschedulable": True}),
    "a node offers more": of_the_node(status={"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}}),
    "a node comes": node("new"),
}


@pytest.mark.parametrize("what", QUIET)
def test_no_cycle_begins_for_what_no_decision_waits_for(what: str) -> None:
    cache = world()
    cache.receive(told(QUIET[what]))
    assert not cache.changed.is_set()
    assert cache.stirred == (QUIET[what].kind != "Node"), "but soon, where anything of the model changed"
    cache.model.validate()
    if isinstance(QUIET[what], Pod):
        assert cache.model.tasks["ns/" + QUIET[what].metadata.name].pod is QUIET[what], "the model knows it at once"


@pytest.mark.parametrize("what", NEWS)
def test_a_cycle_begins_for_all_other_news(what: str) -> None:
    cache = world()
    cache.receive(told(NEWS[what]))
    assert cache.changed.is_set()


@pytest.mark.parametrize("what", QUIET)
def test_news_that_come_with_what_is_none_begin_one(what: str) -> None:
    cache = world()
    cache.receive(told(QUIET[what], pod("new"), QUIET[what]))
    assert cache.changed.is_set()


def test_what_the_watch_tells_of_our_own_write_is_no_news() -> None:
    cache = world()
    written = group(minimum=3, version="12", conditions=(ENQUEUED,))
    cache.observed(written)
    cache.changed.clear()
    generation = cache.model.generation
    cache.receive(told(group(minimum=3, version="12", conditions=(ENQUEUED,))))
    assert not cache.changed.is_set()
    assert cache.model.generation == generation, "nor is it read once more"
    assert cache.groups["ns/g"] is written
    cache.receive(told(group(minimum=3, version="13")))
    assert cache.changed.is_set(), "what comes after it is"
    cache.receive(told(group(minimum=3, version="12", conditions=(ENQUEUED,))))
    assert cache.groups["ns/g"].metadata.resource_version == "12", "what the watch says then is the truth"


OTHERS = {
    "it asks for less": of_the_group(version="12", spec={"min_member": 2}),
    "it is suspended": of_the_group(version="12", metadata={"generation": 2}, spec={"suspend": True}),
    "it gets annotations": of_the_group(version="12", metadata={"annotations": {"a": "b"}}),
    "it is being deleted": of_the_group(version="12", metadata={"deletion_timestamp": "2026-01-01T00:01:00Z"}),
    "it has ended": of_the_group(
        version="12", status={"conditions": (ENQUEUED, Condition(type="Completed", status="True"))}
    ),
}


@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("during_a_cycle", [False, True])
def test_what_others_changed_before_our_own_write_begins_a_cycle(what: str, during_a_cycle: bool) -> None:
    """The answer tells of it first, and what the watch says then is known."""
    cache = world()
    with cache.held() if during_a_cycle else nullcontext():
        cache.observed(OTHERS[what])
    assert cache.changed.is_set()
    assert cache.model.members["ns/g"].group == OTHERS[what]


def test_our_own_write_begins_none() -> None:
    cache = world()
    cache.observed(of_the_group(version="12", status={"conditions": (ENQUEUED,), "scheduling_attempts": 1}))
    cache.decided("ns/g", "uid-g", (ENQUEUED, Condition(type="Scheduled", status="True")), 1)
    assert not cache.changed.is_set()


def test_a_group_that_is_sent_back_begins_one() -> None:
    """What was reserved for it may be what another waits for, and our own write is no news."""
    cache = world()
    refused = Condition(type="Enqueued", status="False")
    cache.decided("ns/g", "uid-g", (refused,), 0)
    assert not cache.changed.is_set(), "it was not in queue"
    cache.decided("ns/g", "uid-g", (ENQUEUED,), 0)
    assert not cache.changed.is_set(), "room is taken"
    cache.decided("ns/g", "uid-g", (refused,), 0)
    assert cache.changed.is_set()
    cache.changed.clear()
    cache.decided("ns/g", "uid-g", (refused,), 0, "5")
    assert cache.changed.is_set(), "what it is charged is another"


def test_another_group_of_the_name_is_news_whatever_its_version() -> None:
    cache = world()
    cache.observed(group(minimum=3, version="12"))
    cache.changed.clear()
    reborn = msgspec.structs.replace(
        group(minimum=3), metadata=Metadata(name="g", namespace="ns", uid="another", resource_version="12")
    )
    cache.receive(told(reborn))
    assert cache.changed.is_set()
    assert cache.groups["ns/g"] is reborn
