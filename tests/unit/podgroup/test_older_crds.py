"""An API server with the CRDs of an older release refuses what it does not know: nothing may wait for it."""

from __future__ import annotations

import json
import logging
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from kbatch.api.objects import FinishedRole, Pod
from kbatch.kube.errors import ApiError
from kbatch.metrics import ReconcileMetrics
from kbatch.model.events import Upsert
from operators.podgroup.controller import Controller
from tests.unit.podgroup.build import NOW
from tests.unit.podgroup.test_forgetting import Server, templated, work


class OldServer(Server):
    """It knows no `status.finished`: it refuses an apply with it, as API servers do, or drops it."""

    def __init__(self, *, refuses: bool = True) -> None:
        super().__init__()
        self.refuses = refuses
        self.statuses: list[Any] = []
        self.let_go: list[str] = []
        self.knows = False

    async def request(self, method: str, path: str, *, body: Any = None, **more: Any) -> bytes:
        if method == "PATCH" and "/pods/" in path:
            self.let_go.append(path.rpartition("/")[2])
        if path.endswith("/status"):
            self.statuses.append(json.loads(json.dumps(body["status"])))
            if self.refuses and not self.knows and "finished" in body["status"]:
                words = "failed to create typed patch object (ns/g; v1alpha1, Kind=PodGroup)"
                raise ApiError(500, "", f"{words}: .status.finished: field not declared in schema")
            known = {key: value for key, value in body["status"].items() if key != "finished" or self.knows}
            body = {**body, "status": known}
        return await super().request(method, path, body=body, **more)


@pytest.mark.parametrize("refuses", [True, False])
async def test_members_that_ended_well_are_let_go_and_the_status_is_not_written_for_ever(
    caplog: pytest.LogCaptureFixture, *, refuses: bool
) -> None:
    server = OldServer(refuses=refuses)
    controller = Controller(server, ReconcileMetrics(CollectorRegistry()), now=lambda: NOW)
    server.index = controller.index
    controller.hint(Upsert(templated("g")))
    await work(controller)
    for name, phase in (("g-w-0", "Succeeded"), ("g-w-1", "Running")):
        seen = msgspec.convert({**server.pods[name], "status": {"phase": phase}}, Pod)
        seen.metadata.uid = f"uid-{name}"
        seen.spec.node_name = "n"
        controller.hint(Upsert(seen))
    with caplog.at_level(logging.ERROR):
        for _ in range(4):
            await work(controller)
    assert server.let_go == ["g-w-0"]
    first, second, *others = [one.get("finished") for one in server.statuses]
    assert (first, second) == (None, [{"name": "w", "indexes": "0"}])
    assert others in ([], [None]), "it is not asked for again"
    assert controller.index.groups["ns/g"].status.succeeded == 1
    assert [one.levelname for one in caplog.records] == ["ERROR"]
    assert "older release" in caplog.text


async def test_what_was_kept_before_is_not_erased_and_is_kept_again_when_the_server_can() -> None:
    """One of several API servers knows the new CRD a moment later than the others."""
    server = OldServer()
    controller = Controller(server, ReconcileMetrics(CollectorRegistry()), now=lambda: NOW)
    server.index = controller.index
    controller.hint(Upsert(templated("g")))
    await work(controller)
    seen = msgspec.convert({**server.pods["g-w-0"], "status": {"phase": "Succeeded"}}, Pod)
    seen.metadata.uid = "uid-g-w-0"
    controller.hint(Upsert(seen))
    await work(controller)
    server.statuses.clear()
    server.knows = True
    kept = templated("kept")
    kept.status.finished = (FinishedRole(name="w", indexes="0"),)
    controller.hint(Upsert(kept))
    await work(controller)
    assert [one.get("finished") for one in server.statuses] == [[{"name": "w", "indexes": "0"}]]
    server.statuses.clear()
    controller.resync()
    await work(controller)
    assert [one.get("finished") for one in server.statuses] == [[{"name": "w", "indexes": "0"}]]
    assert controller.index.groups["ns/g"].status.finished == (FinishedRole(name="w", indexes="0"),)
