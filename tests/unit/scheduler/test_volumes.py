"""Volumes before binds: who is asked for them, what is waited for, what becomes of pods whose volumes do not come."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from kbatch.api.objects import (
    ClaimReference,
    ClaimSource,
    Metadata,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
    Volume,
)
from kbatch.engine import Bind, Transaction
from kbatch.kube.errors import ApiError, NoAnswerError, NotLeadingError
from kbatch.model.events import Delete
from operators.scheduler.cache import Cache
from operators.scheduler.dispatch import Dispatcher
from tests.unit.scheduler.fakes import Call, FakeApi, cache_with, conflict, metrics, node, pod, recorder, told, until

SELECTED = "volume.kubernetes.io/selected-node"
ON_DEMAND = StorageClass(
    metadata=Metadata(name="s"),
    provisioner="p",
    volume_binding_mode="WaitForFirstConsumer",
)


def claim(
    name: str = "c", version: int = 5, *, selected: str = "", volume: str = "", mode: str = "ReadWriteOnce"
) -> PersistentVolumeClaim:
    raw = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            "annotations": {SELECTED: selected} if selected else {},
        },
        "spec": {"storageClassName": "s", "volumeName": volume, "accessModes": [mode]},
        "status": {"phase": "Bound" if volume else "Pending"},
    }
    return msgspec.convert(raw, PersistentVolumeClaim)


def made(name: str = "v", *, only: str = "", of: str = "c") -> PersistentVolume:
    spec: dict[str, Any] = {}
    if only:
        field = {"key": "metadata.name", "operator": "In", "values": [only]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    volume = msgspec.convert({"metadata": {"name": name}, "spec": spec}, PersistentVolume)
    volume.spec.claim_ref = ClaimReference(namespace="ns", name=of)
    return volume


def using(name: str, *claims: str) -> Pod:
    found = pod(name)
    found.spec.volumes = tuple(
        Volume(name=each, persistent_volume_claim=ClaimSource(claim_name=each)) for each in claims
    )
    return found


def written(version: int = 6, **more: Any) -> bytes:
    return msgspec.json.encode(claim(version=version, **more))


@contextlib.asynccontextmanager
async def dispatching(api: FakeApi, cache: Cache, **options: Any) -> AsyncIterator[Dispatcher]:
    dispatcher = Dispatcher(api, cache, metrics=metrics(), recorder=recorder(FakeApi()), **options)
    task = asyncio.create_task(dispatcher.run())
    try:
        yield dispatcher
        assert not task.done()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def binds(*pairs: tuple[str, str]) -> Transaction:
    return Transaction("ns/g", binds=tuple(Bind(f"ns/{name}", f"uid-{name}", where) for name, where in pairs))


def failed(dispatcher: Dispatcher) -> float:
    return float(dispatcher._metrics.binds.labels("failed")._value.get())


def asked(api: FakeApi) -> list[Call]:
    """The writes by which somebody is asked to make a volume."""
    return [call for call in api.made("PATCH") if "/persistentvolumeclaims/" in call.path]


async def test_while_a_pod_waits_for_its_volumes_it_says_where_it_is_to_go() -> None:
    """A successor then keeps its room, and others count on it; where it cannot be written, the pod is bound anyway."""
    api = FakeApi()
    api.on("PATCH", "/c", written(selected="n"))
    api.on("PATCH", "/pods/b/status", ApiError(500, message="later"))
    cache = cache_with(node("n"), node("m"), ON_DEMAND, claim(), using("a", "c"), pod("b"))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(binds(("a", "n"), ("b", "m")))
        await until(lambda: asked(api))
        said = {call.path.split("/")[-2]: call.body for call in api.made("PATCH", "/status")}
        assert said == {
            "a": {"metadata": {"uid": "uid-a"}, "status": {"nominatedNodeName": "n"}},
            "b": {"metadata": {"uid": "uid-b"}, "status": {"nominatedNodeName": "m"}},
        }
        cache.receive(told(claim(version=7, selected="n", volume="v"), made(only="n")))
        await until(lambda: len(api.made("POST", "/binding")) == 2)


async def test_a_gang_is_bound_when_all_its_volumes_are_made() -> None:
    api = FakeApi()
    api.on("PATCH", "/c", written(selected="n"))
    cache = cache_with(node("n"), node("m"), ON_DEMAND, claim(), using("a", "c"), pod("b"))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(binds(("a", "n"), ("b", "m")))
        await until(lambda: asked(api))
        (patch,) = asked(api)
        assert patch.path == "/api/v1/namespaces/ns/persistentvolumeclaims/c"
        assert patch.body == {
            "metadata": {"uid": "uid-c", "resourceVersion": "5", "annotations": {SELECTED: "n"}},
        }
        assert patch.params["fieldManager"] == "kbatch-scheduler"
        cache.receive(told(claim(version=6, selected="n")))
        cache.receive(told(claim(version=7, selected="n", volume="v")))
        await asyncio.sleep(0.01)
        assert not api.made("POST"), "the volume itself is not known yet"
        assert cache.model.tasks["ns/b"].node == "m", "the room is held meanwhile"
        assert dispatcher.in_flight == 1
        cache.receive(told(made(only="n")))
        await until(lambda: len(api.made("POST", "/binding")) == 2)
        assert len(asked(api)) == 1


async def test_pods_whose_volumes_are_there_are_bound_at_once() -> None:
    api, cache = FakeApi(), cache_with(node("n"), claim(volume="v"), made(), using("a", "c"))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(binds(("a", "n")))
        await until(lambda: dispatcher.in_flight == 0)
        assert [call.method for call in api.calls] == ["POST"]


async def test_a_volume_that_cannot_be_made_gives_the_whole_gang_back() -> None:
    api = FakeApi()
    api.on("PATCH", "/c", written(selected="n"))
    cache = cache_with(node("n"), ON_DEMAND, claim(), using("a", "c"), pod("b"))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(binds(("a", "n"), ("b", "n")))
        await until(lambda: asked(api))
        cache.receive(told(claim(version=6, selected="n")))
        await asyncio.sleep(0.01)
        assert failed(dispatcher) == 0
        cache.receive(told(claim(version=7)))  # whoever makes volumes took the annotation away
        await until(lambda: failed(dispatcher) == 1)
        assert cache.model.tasks["ns/b"].node == "n", "its room stays its own for a moment"
        await until(lambda: not cache.model.tasks["ns/a"].node and not cache.model.tasks["ns/b"].node)
        assert not api.made("POST", "/binding")
        assert await dispatcher.drain(1.0)


async def test_the_watch_behind_our_own_write_is_not_taken_for_a_refusal() -> None:
    api = FakeApi()
    api.on("PATCH", "/c", written(version=9, selected="n"))
    cache = cache_with(node("n"), ON_DEMAND, claim(), using("a", "c"))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(binds(("a", "n")))
        await until(lambda: asked(api))
        cache.receive(told(claim(version=8)))
        await asyncio.sleep(0.01)
        assert (failed(dispatcher), len(asked(api))) == (0, 1)
        cache.receive(told(claim(version=9, selected="n")))
        cache.receive(told(made(), claim(version=10, selected="n", volume="v")))
        await until(lambda: api.made("POST", "/binding"))


async def test_a_claim_changed_meanwhile_is_asked_again_as_it_is_then() -> None:
    api = FakeApi()
    api.on("PATCH", "/c", conflict(), written(version=8, selected="n"))
    cache = cache_with(node("n"), ON_DEMAND, claim(), using("a", "c"))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(binds(("a", "n")))
        await until(lambda: asked(api))
        await asyncio.sleep(0.01)
        assert len(asked(api)) == 1, "until the watch has told what it is now"
        cache.receive(told(claim(version=7)))
        await until(lambda: len(asked(api)) == 2)
        assert api.calls[-1].body["metadata"]["resourceVersion"] == "7"
        cache.receive(told(made(), claim(version=9, selected="n", volume="v")))
        await until(lambda: api.made("POST", "/binding"))


async def test_a_lost_answer_is_told_by_the_watch() -> None:
    api = FakeApi()
    api.on("PATCH", "/c", NoAnswerError("PATCH", "/c", sent=True, why="cut"))
    cache = cache_with(node("n"), ON_DEMAND, claim(), using("a", "c"))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(binds(("a", "n")))
        await until(lambda: asked(api))
        cache.receive(told(made(), claim(version=6, selected="n", volume="v")))
        await until(lambda: api.made("POST", "/binding"))
        assert len(asked(api)) == 1


async def test_a_refused_patch_is_a_failed_bind() -> None:
    api = FakeApi()
    api.on("PATCH", "/c", ApiError(403, "Forbidden", "no"))
    cache = cache_with(node("n"), ON_DEMAND, claim(), using("a", "c"))
    async with dispatching(api, cache) as dispatcher:
        cache.changed.clear()
        dispatcher.submit(binds(("a", "n")))
        await until(lambda: failed(dispatcher) == 1)
        await until(lambda: not cache.model.tasks["ns/a"].node)
        assert cache.changed.is_set()
        assert not api.made("POST", "/binding")


async def test_who_does_not_lead_holds_nothing() -> None:
    api = FakeApi()
    api.on("PATCH", "/c", NotLeadingError("lost"))
    cache = cache_with(node("n"), ON_DEMAND, claim(), using("a", "c"))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(binds(("a", "n")))
        await until(lambda: dispatcher.in_flight == 0)
        assert cache.model.tasks["ns/a"].node == ""
        assert failed(dispatcher) == 0


async def test_who_leaves_does_not_wait_for_volumes() -> None:
    api = FakeApi()
    api.on("PATCH", "/c", written(selected="n"))
    cache = cache_with(node("n"), ON_DEMAND, claim(), using("a", "c"))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(binds(("a", "n")))
        await until(lambda: asked(api))
        assert await dispatcher.drain(1.0)
        assert cache.model.tasks["ns/a"].node == ""


async def test_pods_of_a_gang_on_several_nodes_share_a_volume_for_many() -> None:
    api = FakeApi()
    api.on("PATCH", "/c", written(selected="n", mode="ReadWriteMany"))
    shared = claim(mode="ReadWriteMany")
    cache = cache_with(node("n"), node("m"), ON_DEMAND, shared, using("a", "c"), using("b", "c"))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(binds(("a", "n"), ("b", "m")))
        await until(lambda: asked(api))
        cache.receive(told(claim(version=6, selected="n", mode="ReadWriteMany")))
        cache.receive(told(made(), claim(version=7, selected="n", volume="v", mode="ReadWriteMany")))
        await until(lambda: len(api.made("POST", "/binding")) == 2)
        assert len(asked(api)) == 1


async def test_a_volume_out_of_reach_of_one_pod_binds_none() -> None:
    """Where a shared volume turns out not to reach: the next cycle knows it and places the gang where it does."""
    api = FakeApi()
    api.on("PATCH", "/c", written(selected="n", mode="ReadWriteMany"))
    shared = claim(mode="ReadWriteMany")
    cache = cache_with(node("n"), node("m"), ON_DEMAND, shared, using("a", "c"), using("b", "c"))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(binds(("a", "n"), ("b", "m")))
        await until(lambda: asked(api))
        cache.receive(told(made(only="n"), claim(version=7, selected="n", volume="v", mode="ReadWriteMany")))
        await until(lambda: failed(dispatcher) == 1)
        await until(lambda: not cache.model.tasks["ns/a"].node)
        assert not api.made("POST", "/binding")


async def test_a_claim_selected_for_another_node_meanwhile_fails_the_bind() -> None:
    api, cache = FakeApi(), cache_with(node("n"), node("m"), ON_DEMAND, claim(selected="m"), using("a", "c"))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(binds(("a", "n")))
        await until(lambda: failed(dispatcher) == 1)
        assert not asked(api)


@pytest.mark.parametrize(
    "gone", [Delete(Pod, "ns", "a"), Delete(PersistentVolumeClaim, "ns", "c")], ids=["pod", "claim"]
)
async def test_what_goes_ends_the_wait(gone: Delete) -> None:
    api = FakeApi()
    api.on("PATCH", "/c", written(selected="n"))
    cache = cache_with(node("n"), ON_DEMAND, claim(), using("a", "c"), pod("b"))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(binds(("a", "n"), ("b", "n")))
        await until(lambda: len(asked(api)) == 1)
        cache.receive(told(gone))
        await until(lambda: not cache.model.tasks["ns/b"].node)
        assert failed(dispatcher) == (gone.kind is PersistentVolumeClaim), "there is no pod to tell"
        assert not api.made("POST", "/binding")


async def test_volumes_that_take_too_long_give_the_room_back() -> None:
    api = FakeApi()
    api.on("PATCH", "/c", written(selected="n"))
    cache = cache_with(node("n"), ON_DEMAND, claim(), using("a", "c"))
    async with dispatching(api, cache, volume_seconds=0.05) as dispatcher:
        dispatcher.submit(binds(("a", "n")))
        await until(lambda: failed(dispatcher) == 1)
        await until(lambda: not cache.model.tasks["ns/a"].node)
