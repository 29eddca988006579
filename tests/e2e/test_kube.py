"""`kbatch.kube` against a real API server: lists, watches that lose nothing, writes and their preconditions, Leases."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self
from urllib.parse import urlsplit

import msgspec
import pytest

from kbatch.api.objects import Metadata, Pod, Queue
from kbatch.kube.client import Client
from kbatch.kube.credentials import Credentials, load_credentials
from kbatch.kube.errors import ApiError, NotLeadingError
from kbatch.kube.events import EventRecorder, Regarding
from kbatch.kube.informer import Informer
from kbatch.kube.kinds import LEASES, NAMESPACES, PODDISRUPTIONBUDGETS, PODGROUPS, PODS, QUEUES, Kind, key_of
from kbatch.kube.lease import Elector, Fenced
from kbatch.kube.lists import list_all, list_pages
from kbatch.kube.watches import watch_once
from kbatch.kube.writes import (
    apply,
    apply_status,
    as_dict,
    bind,
    create,
    delete,
    evict,
    get,
    json_patch,
    merge_patch,
    replace,
    strategic_patch,
)
from kbatch.model.events import Delete, Unreadable, Upsert

if TYPE_CHECKING:
    from tests.e2e.conftest import ControlPlane

pytestmark = pytest.mark.control_plane

CRDS = Path(__file__).parents[2] / "crds"


# --- helpers ----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client(load_credentials(str(control_plane.kubeconfig)), user_agent="kbatch-test") as opened:
        yield opened


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    name = f"kube-{uuid.uuid4().hex[:8]}"
    await create(client, NAMESPACES, {"metadata": {"name": name}})
    # Pods are refused until the controller manager has made the namespace's service account.
    await until(lambda: exists(client, f"/api/v1/namespaces/{name}/serviceaccounts/default"))
    yield name
    with contextlib.suppress(ApiError):
        await delete(client, NAMESPACES, name=name)


@pytest.fixture(scope="session")
def crds(control_plane: ControlPlane) -> None:
    install_crds(control_plane)


def install_crds(control_plane: ControlPlane) -> None:
    control_plane.run_kubectl("apply", "--server-side", "-f", str(CRDS))
    control_plane.run_kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(CRDS))


async def exists(client: Client, path: str) -> bool:
    try:
        await client.request("GET", path)
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return True


async def until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        held = condition()
        if asyncio.iscoroutine(held):
            held = await held
        if held:
            return
        assert time.monotonic() < deadline, f"not within {seconds} s: {condition}"
        await asyncio.sleep(0.02)


def pod(namespace: str, name: str, **labels: str) -> dict[str, Any]:
    """A pod that nobody schedules and that may stand on a kwok node."""
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "schedulerName": "nobody",
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1m"}}}],
        },
    }


async def make_pod(client: Client, namespace: str, name: str, **labels: str) -> str:
    """Create a pod and return its uid."""
    made = as_dict(await create(client, PODS, pod(namespace, name, **labels)))
    return str(made["metadata"]["uid"])


class Mirror:
    """What somebody knows who applies an informer's batches in order."""

    def __init__(self, informer: Informer[Any]) -> None:
        self.informer = informer
        self.objects: dict[str, Any] = {}
        self.unreadable: dict[str, str] = {}
        self.deletes: list[str] = []
        self.upserts: list[str] = []
        self.complete = False

    def task(self) -> asyncio.Task[None]:
        return asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for batch in self.informer:
            for event in batch.events:
                match event:
                    case Upsert(obj):
                        key = key_of(obj.metadata.namespace, obj.metadata.name)
                        self.objects[key] = obj
                        self.upserts.append(key)
                        self.unreadable.pop(key, None)
                    case Delete(_, space, name):
                        self.objects.pop(key_of(space, name), None)
                        self.unreadable.pop(key_of(space, name), None)
                        self.deletes.append(key_of(space, name))
                    case Unreadable():
                        self.objects.pop(key_of(event.namespace, event.name), None)
                        self.unreadable[key_of(event.namespace, event.name)] = event.why
            self.complete = batch.complete


@contextlib.asynccontextmanager
async def mirrored(informer: Informer[Any]) -> AsyncIterator[Mirror]:
    mirror = Mirror(informer)
    task = mirror.task()
    try:
        await until(lambda: mirror.complete)
        yield mirror
        assert not task.done(), task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class Proxy:
    """A TCP proxy in front of the API server, to cut connections that neither end wants to give up."""

    def __init__(self, server: str) -> None:
        parts = urlsplit(server)
        self._host, self._port = str(parts.hostname), int(parts.port or 443)
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0
        self.open = True
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self.cut()
        self._server.close()
        await self._server.wait_closed()

    def credentials(self, credentials: Credentials) -> Credentials:
        return dataclasses.replace(credentials, server=f"https://127.0.0.1:{self.port}", server_name="localhost")

    def hush(self, silent: bool) -> None:
        """Hold back what passes, without closing anything."""
        if silent:
            self._flowing.clear()
        else:
            self._flowing.set()

    def cut(self) -> None:
        """Break every connection that stands."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.open:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        try:
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        finally:
            self._writers -= {writer, far_writer}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


# --- lists and watches ------------------------------------------------------------------------------------------------


async def test_pages_together_hold_every_object_once(client: Client, namespace: str) -> None:
    names = {f"p-{number:02}" for number in range(23)}
    await asyncio.gather(*(make_pod(client, namespace, name) for name in names))
    sizes, found = [], []
    async for page in list_pages(client, PODS, namespace=namespace, page_size=10):
        sizes.append(len(page.objects))
        found += [obj.metadata.name for obj in page.objects]
        assert page.resource_version
    assert sizes == [10, 10, 3]
    assert sorted(found) == sorted(names)


async def test_selectors_choose_on_the_server(client: Client, namespace: str) -> None:
    await make_pod(client, namespace, "a", colour="red")
    await make_pod(client, namespace, "b", colour="blue")
    red = await list_all(client, PODS, namespace=namespace, label_selector="colour=red")
    assert [obj.metadata.name for obj in red] == ["a"]
    assert await list_all(client, PODS, namespace=namespace, field_selector="spec.schedulerName=other") == []
    assert len(await list_all(client, PODS, namespace=namespace, field_selector="spec.schedulerName=nobody")) == 2


async def test_an_informer_follows_creation_change_and_deletion(client: Client, namespace: str) -> None:
    await make_pod(client, namespace, "old")
    async with mirrored(Informer(client, PODS, namespace=namespace, page_size=1)) as mirror:
        assert set(mirror.objects) == {f"{namespace}/old"}
        await make_pod(client, namespace, "new")
        await until(lambda: f"{namespace}/new" in mirror.objects)
        patch = {"metadata": {"labels": {"touched": "yes"}}}
        await merge_patch(client, PODS, namespace=namespace, name="old", patch=patch)
        await until(lambda: (mirror.objects[f"{namespace}/old"].metadata.labels or {}).get("touched") == "yes")
        await delete(client, PODS, namespace=namespace, name="old")
        await until(lambda: mirror.deletes == [f"{namespace}/old"])
        assert isinstance(mirror.objects[f"{namespace}/new"], Pod)
        assert mirror.informer.synced.is_set()
        assert not mirror.informer.stale()


async def test_a_cut_connection_loses_nothing(control_plane: ControlPlane, client: Client, namespace: str) -> None:
    await make_pod(client, namespace, "before")
    async with Proxy(control_plane.server) as proxy:
        through = proxy.credentials(load_credentials(str(control_plane.kubeconfig)))
        async with (
            Client(through) as far,
            mirrored(Informer(far, PODS, namespace=namespace)) as mirror,
        ):
            for round_ in range(4):
                proxy.open = False
                proxy.cut()
                await make_pod(client, namespace, f"in-gap-{round_}")
                await delete(client, PODS, namespace=namespace, name="before" if not round_ else f"in-gap-{round_ - 1}")
                proxy.open = True
                wanted = {f"{namespace}/in-gap-{round_}"}
                await until(lambda wanted=wanted: set(mirror.objects) == wanted)  # type: ignore[misc]
            assert mirror.informer.relists == 0, "a short gap is bridged by the watch alone"


async def test_a_silent_connection_is_given_up(control_plane: ControlPlane, client: Client, namespace: str) -> None:
    async with Proxy(control_plane.server) as proxy:
        through = proxy.credentials(load_credentials(str(control_plane.kubeconfig)))
        async with (
            Client(through) as far,
            mirrored(Informer(far, PODS, namespace=namespace, silence=1.0)) as mirror,
        ):
            proxy.hush(True)
            await make_pod(client, namespace, "unseen")
            await until(lambda: mirror.informer.stale(limit=1.5))
            proxy.cut()
            proxy.hush(False)
            await until(lambda: f"{namespace}/unseen" in mirror.objects)


async def test_another_object_of_the_same_name_is_another_object(
    control_plane: ControlPlane, client: Client, namespace: str
) -> None:
    first = await make_pod(client, namespace, "phoenix")
    async with Proxy(control_plane.server) as proxy:
        through = proxy.credentials(load_credentials(str(control_plane.kubeconfig)))
        async with (
            Client(through) as far,
            mirrored(Informer(far, PODS, namespace=namespace)) as mirror,
        ):
            proxy.open = False
            proxy.cut()
            await delete(client, PODS, namespace=namespace, name="phoenix")
            second = await make_pod(client, namespace, "phoenix")
            proxy.open = True
            key = f"{namespace}/phoenix"
            await until(lambda: key in mirror.objects and mirror.objects[key].metadata.uid == second)
            assert first != second
            assert mirror.deletes == [key]


async def test_410_comes_as_an_error_event(client: Client, crds: None) -> None:
    await apply(client, QUEUES, {"metadata": {"name": "gone-410"}, "spec": {"weight": 1}}, "kbatch-test")
    with pytest.raises(ApiError) as caught:
        async for _ in watch_once(client, QUEUES, "1"):
            pass
    assert caught.value.status == 410


async def test_an_object_that_cannot_be_read_hides_no_other(client: Client, namespace: str, crds: None) -> None:
    odd = Kind(_Strict, "Queue", QUEUES.group, QUEUES.version, "queues", namespaced=False)
    for name, weight in (("odd-1", 1), ("odd-2", 1000), ("odd-3", 3)):
        spec = {"spec": {"weight": weight}, "metadata": {"name": name, "labels": {"of": namespace}}}
        await apply(client, QUEUES, spec, "kbatch-test")
    async with mirrored(Informer(client, odd, label_selector=f"of={namespace}")) as mirror:
        assert set(mirror.objects) == {"odd-1", "odd-3"}
        assert "100" in mirror.unreadable["odd-2"]
        await merge_patch(client, QUEUES, name="odd-1", patch={"spec": {"weight": 2000}})
        await until(lambda: set(mirror.unreadable) == {"odd-1", "odd-2"})
        await merge_patch(client, QUEUES, name="odd-2", patch={"spec": {"weight": 2}})
        await until(lambda: set(mirror.objects) == {"odd-2", "odd-3"})
        await delete(client, QUEUES, name="odd-1")
        await until(lambda: mirror.deletes == ["odd-1"])
    for name in ("odd-2", "odd-3"):
        await delete(client, QUEUES, name=name)


class _StrictSpec(msgspec.Struct):
    weight: Annotated[int, msgspec.Meta(le=100)]


class _Strict(msgspec.Struct):
    """A Queue as somebody might read it who cannot count beyond 100."""

    metadata: Metadata
    spec: _StrictSpec


# --- writes -----------------------------------------------------------------------------------------------------------


async def refused(awaitable: Any, status: int) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await awaitable
    assert caught.value.status == status, caught.value
    return caught.value


async def test_bind_happens_once_and_only_to_the_pod_that_was_meant(
    control_plane: ControlPlane, client: Client, namespace: str
) -> None:
    control_plane.ensure_nodes(2)
    uid = await make_pod(client, namespace, "p")
    wrong = await refused(bind(client, namespace=namespace, name="p", uid=str(uuid.uuid4()), node="node-0"), 409)
    assert wrong.reason == "Conflict"
    old = bind(client, namespace=namespace, name="p", uid=uid, node="node-0", resource_version="1")
    await refused(old, 409)
    assert (await get(client, PODS, namespace=namespace, name="p")).spec.node_name == ""
    await bind(client, namespace=namespace, name="p", uid=uid, node="node-0")
    await refused(bind(client, namespace=namespace, name="p", uid=uid, node="node-1"), 409)
    await refused(bind(client, namespace=namespace, name="p", uid=uid, node="node-0"), 409)
    await refused(bind(client, namespace=namespace, name="absent", uid=uid, node="node-0"), 404)
    assert (await get(client, PODS, namespace=namespace, name="p")).spec.node_name == "node-0"


async def test_evict_respects_uid_budget_and_dry_run(
    control_plane: ControlPlane, client: Client, namespace: str
) -> None:
    control_plane.ensure_nodes(2)
    uid = await make_pod(client, namespace, "p", app="guarded")
    await bind(client, namespace=namespace, name="p", uid=uid, node="node-0")
    await until(lambda: phase_is(client, namespace, "p", "Running"))
    budget = {
        "metadata": {"name": "b", "namespace": namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
    }
    await create(client, PODDISRUPTIONBUDGETS, budget)
    await until(lambda: observed(client, namespace, "b"))
    began = time.monotonic()
    no = await refused(evict(client, namespace=namespace, name="p", uid=uid, dry_run=True), 429)
    assert no.disrupts_budget
    assert time.monotonic() - began < 2, "a budget's refusal is an answer, not a reason to wait"
    await refused(evict(client, namespace=namespace, name="p", uid=uid), 429)
    await delete(client, PODDISRUPTIONBUDGETS, namespace=namespace, name="b")
    await refused(evict(client, namespace=namespace, name="p", uid=str(uuid.uuid4())), 409)
    await evict(client, namespace=namespace, name="p", uid=uid, dry_run=True)
    assert (await get(client, PODS, namespace=namespace, name="p")).metadata.deletion_timestamp is None
    await evict(client, namespace=namespace, name="p", uid=uid)
    await until(lambda: gone(client, namespace, "p"))


async def phase_is(client: Client, namespace: str, name: str, phase: str) -> bool:
    return (await get(client, PODS, namespace=namespace, name=name)).status.phase == phase


async def observed(client: Client, namespace: str, name: str) -> bool:
    budget = await get(client, PODDISRUPTIONBUDGETS, namespace=namespace, name=name)
    return budget.status is not None and budget.status.observed_generation == budget.metadata.generation


async def gone(client: Client, namespace: str, name: str) -> bool:
    return not await exists(client, PODS.path(namespace, name))


async def test_status_is_applied_per_condition_and_conflicts_are_told(
    client: Client, namespace: str, crds: None
) -> None:
    metadata = {"name": "g", "namespace": namespace}
    await create(client, PODGROUPS, {"metadata": metadata, "spec": {"minMember": 3}})
    stamp = "2026-01-01T00:00:00Z"

    def with_condition(type_: str, status: str) -> dict[str, Any]:
        condition = {
            "type": type_, "status": status, "reason": "Because", "message": "", "lastTransitionTime": stamp,
        }  # fmt: skip
        return {"metadata": metadata, "status": {"conditions": [condition]}}

    await apply_status(client, PODGROUPS, with_condition("Scheduled", "False"), "one")
    await apply_status(client, PODGROUPS, with_condition("Completed", "False"), "two")
    conditions = (await get(client, PODGROUPS, namespace=namespace, name="g")).status.conditions or ()
    assert {condition.type for condition in conditions} == {"Scheduled", "Completed"}
    conflict = await refused(apply_status(client, PODGROUPS, with_condition("Scheduled", "True"), "two"), 409)
    assert '"one"' in conflict.message
    await apply_status(client, PODGROUPS, with_condition("Scheduled", "True"), "two", force=True)
    before = as_dict(await apply_status(client, PODGROUPS, with_condition("Scheduled", "True"), "two", force=True))
    after = as_dict(await apply_status(client, PODGROUPS, with_condition("Scheduled", "True"), "two"))
    assert before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
    absent = {**with_condition("Scheduled", "True"), "metadata": {"name": "absent", "namespace": namespace}}
    await refused(apply_status(client, PODGROUPS, absent, "one"), 404)


async def test_a_status_with_a_field_that_the_schema_lacks_is_refused(
    client: Client, namespace: str, crds: None
) -> None:
    """Without the server's own look for such fields, too: an apply has to know each of them."""
    metadata = {"name": "g", "namespace": namespace}
    await create(client, PODGROUPS, {"metadata": metadata, "spec": {"minMember": 3}})
    unknown = {"metadata": metadata, "status": {"phrase": "Running"}}
    assert (await refused(apply_status(client, PODGROUPS, unknown, "one"), 500)).lacks(".status.phrase")


async def test_a_status_holds_for_the_version_that_it_names(client: Client, namespace: str, crds: None) -> None:
    """Also where it is forced, and where an object of the same name was made anew."""
    metadata = {"name": "g", "namespace": namespace}

    def said(version: str, status: str) -> dict[str, Any]:
        condition = {
            "type": "Enqueued", "status": status, "reason": "Because", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        return {"metadata": {**metadata, "resourceVersion": version}, "status": {"conditions": [condition]}}

    made = as_dict(await create(client, PODGROUPS, {"metadata": metadata, "spec": {"minMember": 3}}))
    first = str(made["metadata"]["resourceVersion"])
    written = as_dict(await apply_status(client, PODGROUPS, said(first, "True"), "one", force=True))
    second = str(written["metadata"]["resourceVersion"])
    assert second != first
    await refused(apply_status(client, PODGROUPS, said(first, "False"), "one", force=True), 409)
    await delete(client, PODGROUPS, namespace=namespace, name="g")
    await create(client, PODGROUPS, {"metadata": metadata, "spec": {"minMember": 3}})
    await refused(apply_status(client, PODGROUPS, said(second, "True"), "one", force=True), 409)
    assert not (await get(client, PODGROUPS, namespace=namespace, name="g")).status.conditions


async def test_a_pods_condition_holds_for_the_version_that_it_names(client: Client, namespace: str) -> None:
    uid = await make_pod(client, namespace, "p", a="b")
    before = (await get(client, PODS, namespace=namespace, name="p")).metadata.resource_version
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    patch = {"metadata": {"uid": uid, "resourceVersion": before}, "status": {"conditions": [condition]}}
    await bind(client, namespace=namespace, name="p", uid=uid, node="node-0")
    late = strategic_patch(client, PODS, namespace=namespace, name="p", patch=patch, subresource="status")
    await refused(late, 409)
    read = await get(client, PODS, namespace=namespace, name="p")
    assert {c.status for c in read.status.conditions or () if c.type == "PodScheduled"} == {"True"}


async def test_patches_of_each_kind(client: Client, namespace: str) -> None:
    uid = await make_pod(client, namespace, "p", a="b")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    patch = {"status": {"conditions": [condition]}}
    await strategic_patch(client, PODS, namespace=namespace, name="p", patch=patch, subresource="status")
    nominated = {"status": {"nominatedNodeName": "node-0"}}
    await merge_patch(client, PODS, namespace=namespace, name="p", patch=nominated, subresource="status")
    read = await get(client, PODS, namespace=namespace, name="p")
    assert [(c.type, c.message) for c in read.status.conditions or ()] == [("PodScheduled", "no room")]
    assert read.status.nominated_node_name == "node-0"
    wrong = [{"op": "test", "path": "/metadata/uid", "value": "other"}]
    await refused(json_patch(client, PODS, namespace=namespace, name="p", operations=wrong), 422)
    right = [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "add", "path": "/metadata/labels/x", "value": "y"},
    ]
    await json_patch(client, PODS, namespace=namespace, name="p", operations=right)
    labels = (await get(client, PODS, namespace=namespace, name="p")).metadata.labels
    assert labels is not None
    assert labels["x"] == "y"


async def test_replace_needs_the_version_it_is_based_on(client: Client, crds: None) -> None:
    name = f"q-{uuid.uuid4().hex[:8]}"
    made = as_dict(await create(client, QUEUES, {"metadata": {"name": name}, "spec": {"weight": 1}}))
    await merge_patch(client, QUEUES, name=name, patch={"spec": {"weight": 2}})
    await refused(replace(client, QUEUES, made), 409)
    await refused(delete(client, QUEUES, name=name, uid=str(uuid.uuid4())), 409)
    await delete(client, QUEUES, name=name, uid=made["metadata"]["uid"])


async def test_events_are_counted_not_repeated(client: Client, namespace: str) -> None:
    uid = await make_pod(client, namespace, "p")
    about = Regarding("v1", "Pod", namespace, "p", uid)
    async with EventRecorder(client, controller="kbatch-test", instance="t", repeat_seconds=0.2) as events:
        events.warning(about, "Unreadable", "Decode", "an amount cannot be counted")
        await until(lambda: events.written == 1)
        for _ in range(4):
            events.warning(about, "Unreadable", "Decode", "an amount cannot be counted")
        await until(lambda: events.written == 2)
    listed = as_dict(await client.request("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"))
    ours = [item for item in listed["items"] if item.get("reportingController") == "kbatch-test"]
    assert [(item["note"], item["series"]["count"], item["regarding"]["uid"]) for item in ours] == [
        ("an amount cannot be counted", 5, uid)
    ]
    assert (events.failed, events.dropped) == (0, 0)


# --- leases -----------------------------------------------------------------------------------------------------------


def elector(client: Client, namespace: str, identity: str, **options: Any) -> Elector:
    options = {"lease_duration": 3, "renew_deadline": 2.0, "retry_period": 0.5} | options
    return Elector(client, namespace=namespace, name="the-lease", identity=identity, **options)


async def test_of_two_candidates_one_leads_and_a_clean_hand_over_is_quick(client: Client, namespace: str) -> None:
    async with elector(client, namespace, "a") as a, elector(client, namespace, "b") as b:
        await until(lambda: a.is_leader or b.is_leader)
        for _ in range(20):
            assert not (a.is_leader and b.is_leader)
            await asyncio.sleep(0.05)
        first, second = (a, b) if a.is_leader else (b, a)
        term = first.token
        began = time.monotonic()
        await first.stop()
        assert not first.is_leader
        assert first.lost.is_set()
        await asyncio.wait_for(second.wait_leader(), 5)
        assert time.monotonic() - began <= 1.0
        assert second.token > term
        with pytest.raises(NotLeadingError):
            await create(Fenced(client, first), NAMESPACES, {"metadata": {"name": "never"}})


async def test_ten_candidates_that_start_together_make_one_leader(client: Client, namespace: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        electors = [elector(client, namespace, f"candidate-{number}") for number in range(10)]
        await asyncio.gather(*(stack.enter_async_context(one) for one in electors))
        await until(lambda: any(one.is_leader for one in electors))
        for _ in range(20):
            assert sum(one.is_leader for one in electors) == 1
            await asyncio.sleep(0.05)


async def test_a_stolen_lease_ends_the_leadership(client: Client, namespace: str) -> None:
    async with elector(client, namespace, "a") as a:
        await asyncio.wait_for(a.wait_leader(), 5)
        lease = as_dict(await client.request("GET", LEASES.path(namespace, "the-lease")))
        lease["spec"]["holderIdentity"] = "thief"
        lease["spec"]["leaseTransitions"] += 1
        await client.request("PUT", LEASES.path(namespace, "the-lease"), body=lease)
        await asyncio.wait_for(a.lost.wait(), 2)
        assert not a.is_leader
        assert a.holder == "thief"
        # Nobody renews it for the thief: after its whole duration it is free again.
        began = time.monotonic()
        await asyncio.wait_for(a.wait_leader(), 10)
        assert time.monotonic() - began >= 2.5
        assert not a.lost.is_set()


async def test_a_touched_lease_is_kept(client: Client, namespace: str) -> None:
    async with elector(client, namespace, "a") as a:
        await asyncio.wait_for(a.wait_leader(), 5)
        for number in range(5):
            patch = {"metadata": {"annotations": {"touched": str(number)}}}
            await merge_patch(client, LEASES, namespace=namespace, name="the-lease", patch=patch)
            await asyncio.sleep(0.3)
            # A renewal that meets the change leaves it in doubt, until it has read that the Lease is still its own.
            async with asyncio.timeout(2):
                while not a.is_leader:  # noqa: ASYNC110 -- no event tells of it
                    await asyncio.sleep(0.01)
        assert not a.lost.is_set()
        lease = as_dict(await client.request("GET", LEASES.path(namespace, "the-lease")))
        assert lease["metadata"]["annotations"]["touched"] == "4"


async def test_a_leader_cut_off_stops_before_another_begins(
    control_plane: ControlPlane, client: Client, namespace: str
) -> None:
    async with Proxy(control_plane.server) as proxy:
        through = proxy.credentials(load_credentials(str(control_plane.kubeconfig)))
        async with Client(through) as far, elector(far, namespace, "far") as a:
            await asyncio.wait_for(a.wait_leader(), 5)
            async with elector(client, namespace, "near") as b:
                proxy.open = False
                proxy.cut()
                stopped = None
                deadline = time.monotonic() + 15
                while not b.is_leader:
                    if stopped is None and not a.is_leader:
                        stopped = time.monotonic()
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.01)
                assert not a.is_leader
                assert stopped is not None, "the old leader was still leading when the new one began"
                assert time.monotonic() - stopped >= 0.5


# --- outages ----------------------------------------------------------------------------------------------------------


@pytest.mark.faults
async def test_an_informer_outlives_the_api_server_and_learns_what_the_gap_hid(
    start_control_plane: Callable[..., ControlPlane],
) -> None:
    plane = await asyncio.to_thread(start_control_plane)
    assert plane.components is not None
    await asyncio.to_thread(install_crds, plane)
    credentials = load_credentials(str(plane.kubeconfig))
    async with Proxy(plane.server) as proxy, Client(credentials) as near, Client(proxy.credentials(credentials)) as far:
        for name in ("stays", "goes", "reborn"):
            await apply(near, QUEUES, {"metadata": {"name": name}, "spec": {"weight": 1}}, "kbatch-test")
        async with mirrored(Informer(far, QUEUES)) as mirror, mirrored(Informer(near, NAMESPACES)) as namespaces:
            assert {"stays", "goes", "reborn"} <= set(mirror.objects)
            proxy.open = False
            proxy.cut()
            await delete(near, QUEUES, name="goes")
            await delete(near, QUEUES, name="reborn")
            for name in ("reborn", "comes"):
                await apply(near, QUEUES, {"metadata": {"name": name}, "spec": {"weight": 5}}, "kbatch-test")
            upserts = len(mirror.upserts)
            await asyncio.to_thread(plane.components.restart, "kube-apiserver")
            proxy.open = True
            await until(lambda: "comes" in mirror.objects, 40)
            assert mirror.informer.relists >= 1, "a restarted server has forgotten the old version"
            assert set(mirror.objects) == {"stays", "reborn", "comes"}
            assert sorted(mirror.deletes) == ["goes", "reborn"]
            assert isinstance(mirror.objects["reborn"], Queue)
            assert mirror.objects["reborn"].spec.weight == 5
            assert sorted(mirror.upserts[upserts:]) == ["comes", "reborn"], "what did not change is not told again"
            await create(near, NAMESPACES, {"metadata": {"name": "after"}})
            await until(lambda: "after" in namespaces.objects, 40)
