"""kopf's part, hosted as in the process, against an emulated API server."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import kmock
import pytest

from kbatch.api.objects import PodGroup
from kbatch.kube.credentials import Credentials, FixedToken
from kbatch.model.events import Delete, Event, Upsert
from kbatch.process.kopf_host import KopfHost, operator_settings
from kbatch.process.memory import YOUNG_BESIDE_KOPF
from kbatch.process.run import ProcessError
from operators.podgroup.handlers import DOMAIN, event_of, make_registry

RAW: dict[str, Any] = {
    "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
    "kind": "PodGroup",
    "metadata": {"namespace": "ns", "name": "pg", "uid": "u", "resourceVersion": "7"},
    "spec": {"minMember": 3, "unknownField": 1},
}


def test_a_watch_event_becomes_one_of_the_models() -> None:
    for type_ in (None, "ADDED", "MODIFIED"):
        seen = event_of({"type": type_, "object": RAW})
        assert isinstance(seen, Upsert)
        assert isinstance(seen.obj, PodGroup)
        assert seen.obj.spec.min_member == 3
    assert event_of({"type": "DELETED", "object": RAW}) == Delete(PodGroup, "ns", "pg")


def test_what_cannot_be_read_is_said_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    assert event_of({"type": "ADDED", "object": {**RAW, "spec": {"minMember": "many"}}}) is None
    assert "ns/pg cannot be read" in caplog.text
    assert event_of({"type": "ADDED", "object": None}) is None


def test_the_operator_leaves_marks_of_its_own_only() -> None:
    settings = operator_settings(DOMAIN)
    assert settings.persistence.finalizer == "podgroup.kbatch.dev/finalizer"
    assert settings.admission.managed is None
    assert settings.scanning.disabled
    assert settings.posting.loggers is False


@pytest.mark.kmock(cls=kmock.KubernetesEmulator)
async def test_kopf_in_its_thread_tells_of_podgroups_and_writes_nothing(kmock: kmock.KubernetesEmulator) -> None:
    resources: Any = kmock.resources
    resources["scheduling.incubator.k8s.io/v1alpha1/podgroups"] = {
        "kind": "PodGroup", "namespaced": True, "verbs": ["get", "list", "watch", "patch"]
    }  # fmt: skip
    for core in ("namespaces", "events"):
        resources[f"v1/{core}"] = {"kind": core, "namespaced": core == "events", "verbs": ["list", "watch"]}
    kmock.objects["scheduling.incubator.k8s.io/v1alpha1/podgroups", "ns", "pg"] = RAW
    seen: asyncio.Queue[Event] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def deliver(event: Event) -> None:
        loop.call_soon_threadsafe(seen.put_nowait, event)

    host = KopfHost(
        name="test",
        registry=make_registry(deliver),
        settings=operator_settings(DOMAIN),
        credentials=Credentials(server=str(kmock.url), token=FixedToken("Bearer x")),
        user_agent="kbatch-test/0",
    )
    assert host.check() == "kopf does not run"
    async with host:
        event = await asyncio.wait_for(seen.get(), 20)
        assert isinstance(event, Upsert)
        assert host.check() is None
        assert gc.get_threshold() == YOUNG_BESIDE_KOPF, "what kopf leaves behind is not let lie for long"
    assert host.check() == "kopf does not run"
    with pytest.raises(ProcessError, match="kopf ended"):
        await asyncio.wait_for(host.ended(), 5)
    assert not [request for request in kmock if request.method.value.upper() in {"POST", "PUT", "PATCH", "DELETE"}]


@pytest.mark.kmock(cls=kmock.KubernetesEmulator)
async def test_kopf_that_finds_none_of_its_kinds_does_not_idle(kmock: kmock.KubernetesEmulator) -> None:
    resources: Any = kmock.resources
    for core in ("namespaces", "events"):
        resources[f"v1/{core}"] = {"kind": core, "namespaced": core == "events", "verbs": ["list", "watch"]}
    host = KopfHost(
        name="test",
        registry=make_registry(lambda _: None),
        settings=operator_settings(DOMAIN),
        credentials=Credentials(server=str(kmock.url), token=FixedToken("Bearer x")),
        user_agent="kbatch-test/0",
    )
    async with host:
        with pytest.raises(ProcessError, match="it found none of its kinds"):
            await asyncio.wait_for(host.ended(), 20)
