"""kopf's part, hosted as in the process, against an emulated API server."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import kmock
import kopf
import pytest

from kbatch.kube.credentials import Credentials, FixedToken
from kbatch.process.kopf_host import KopfHost, operator_settings
from kbatch.process.memory import YOUNG_BESIDE_KOPF
from kbatch.process.run import ProcessError
from operators.podgroup.handlers import make_registry

RAW: dict[str, Any] = {
    "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
    "kind": "PodGroup",
    "metadata": {"namespace": "ns", "name": "pg", "uid": "u", "resourceVersion": "7"},
    "spec": {"minMember": 3, "unknownField": 1},
}


def test_kopf_keeps_nothing_on_objects_and_needs_no_rights_for_others() -> None:
    settings = operator_settings()
    assert settings.admission.managed is None
    assert settings.scanning.disabled
    assert settings.posting.loggers is False
    patch = kopf.Patch()
    raw: Any = RAW
    body = kopf.Body(raw)
    differences = settings.persistence.diffbase_storage
    differences.store(body=body, patch=patch, essence=differences.build(body=body))
    progress = settings.persistence.progress_storage
    progress.store(key=kopf.HandlerId("h"), record=kopf.ProgressRecord(), body=body, patch=patch)
    progress.touch(body=body, patch=patch, value="now")
    progress.purge(key=kopf.HandlerId("h"), body=body, patch=patch)
    assert not patch


@pytest.mark.kmock(cls=kmock.KubernetesEmulator)
async def test_kopf_in_its_thread_tells_of_podgroups_and_writes_nothing(kmock: kmock.KubernetesEmulator) -> None:
    resources: Any = kmock.resources
    resources["scheduling.incubator.k8s.io/v1alpha1/podgroups"] = {
        "kind": "PodGroup", "namespaced": True, "verbs": ["get", "list", "watch", "patch"]
    }  # fmt: skip
    for core in ("namespaces", "events"):
        resources[f"v1/{core}"] = {"kind": core, "namespaced": core == "events", "verbs": ["list", "watch"]}
    kmock.objects["scheduling.incubator.k8s.io/v1alpha1/podgroups", "ns", "pg"] = RAW
    seen: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def hear(key: str, version: str) -> None:
        loop.call_soon_threadsafe(seen.put_nowait, (key, version))

    host = KopfHost(
        name="test",
        registry=make_registry(hear),
        settings=operator_settings(),
        credentials=Credentials(server=str(kmock.url), token=FixedToken("Bearer x")),
        user_agent="kbatch-test/0",
    )
    assert host.check() == "kopf does not run"
    async with host:
        assert await asyncio.wait_for(seen.get(), 20) == ("ns/pg", "7")
        assert host.check() is None
        assert gc.get_threshold() == YOUNG_BESIDE_KOPF, "what kopf leaves behind is not let lie for long"
        assert "memory" in _tasks(), "and what is free on the heap goes back"
    assert host.check() == "kopf does not run"
    await asyncio.sleep(0)
    assert "memory" not in _tasks()
    with pytest.raises(ProcessError, match="kopf ended"):
        await asyncio.wait_for(host.ended(), 5)
    assert not [request for request in kmock if request.method.value.upper() in {"POST", "PUT", "PATCH", "DELETE"}]


def _tasks() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks()}
