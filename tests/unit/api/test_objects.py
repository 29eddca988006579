"""The structs of objects: the garbage collector knows of none of them, and none can be part of a cycle."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import msgspec
import pytest

from kbatch.api.objects import Pod
from kbatch.api.objects.meta import Object, Value
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Unreadable, Upsert
from kbatch.model.tasks import Task


def structs(base: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for one in base.__subclasses__():
        yield one
        yield from structs(one)


READ = sorted({*structs(Object), *structs(Value)}, key=lambda one: one.__name__)


@pytest.mark.parametrize("struct", [*READ, Upsert, Delete, Unreadable, Task])
def test_the_collector_does_not_know_of_it(struct: type[msgspec.Struct]) -> None:
    """It would go through all that lives, now and then: a sixth of a second with 9,000 pods."""
    assert not struct.__struct_config__.gc


def test_what_a_pod_leaves_behind_is_freed_at_once() -> None:
    """Without the collector: nothing that the model keeps of a pod leads back to itself."""
    raw = b'{"metadata": {"namespace": "ns", "name": "p", "uid": "u", "labels": {"a": "b"}}, "spec": {"nodeName": "n"}}'
    model = ClusterModel()
    model.apply(Upsert(msgspec.json.decode(raw, type=Pod)))
    gc.collect()
    gc.disable()
    try:
        for phase in ("Pending", "Running", "Succeeded"):
            again = msgspec.json.decode(raw, type=Pod)
            again.status.phase = phase
            model.apply(Upsert(again))
        model.apply(Delete(Pod, "ns", "p"))
        model.refresh()
        del again
        assert gc.collect() == 0
    finally:
        gc.enable()
