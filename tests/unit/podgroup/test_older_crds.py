"""An API server with the CRDs of an older release drops what it does not know: nothing may wait for it."""

from __future__ import annotations

import json
import logging
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from kbatch.api.objects import Pod
from kbatch.metrics import ReconcileMetrics
from kbatch.model.events import Upsert
from operators.podgroup.controller import Controller
from tests.unit.podgroup.build import NOW
from tests.unit.podgroup.test_forgetting import Server, templated, work


class OldServer(Server):
    """It knows no `status.finished`."""

    def __init__(self) -> None:
        super().__init__()
        self.statuses: list[Any] = []
        self.let_go: list[str] = []

    async def request(self, method: str, path: str, *, body: Any = None, **more: Any) -> bytes:
        if method == "PATCH" and "/pods/" in path:
            self.let_go.append(path.rpartition("/")[2])
        if path.endswith("/status"):
            self.statuses.append(json.loads(json.dumps(body["status"])))
            body = {**body, "status": {key: value for key, value in body["status"].items() if key != "finished"}}
        return await super().request(method, path, body=body, **more)


async def test_members_that_ended_well_are_let_go_and_the_status_is_not_written_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = OldServer()
    controller = Controller(server, ReconcileMetrics(CollectorRegistry()), now=lambda: NOW)
    server.world = controller.world
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
    assert [one.levelname for one in caplog.records] == ["ERROR"]
    assert "older release" in caplog.text
