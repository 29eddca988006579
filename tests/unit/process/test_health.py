"""The endpoints of a process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from kbatch.process.health import Health, HealthServer, PortTakenError


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
async def server(health: Health) -> AsyncIterator[HealthServer]:
    registry = CollectorRegistry()
    Counter("example_total", "An example", registry=registry).inc(3)
    async with HealthServer(health, registry, address="127.0.0.1", health_port=0, metrics_port=0) as server:
        yield server


async def ask(port: int, path: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        body: Any = await response.json() if "json" in response.content_type else await response.text()
        return response.status, body


async def test_all_is_well_without_checks(server: HealthServer) -> None:
    assert await ask(server.health_port, "/healthz") == (200, {"status": "ok", "checks": {}})
    assert await ask(server.health_port, "/readyz") == (200, {"status": "ok", "checks": {}})


async def test_a_failing_ready_check_is_named_and_leaves_health_alone(health: Health, server: HealthServer) -> None:
    problem: list[str | None] = ["waiting for the first list of pods"]
    health.ready("synced", lambda: problem[0])
    health.live("watch", lambda: None)
    assert (await ask(server.health_port, "/healthz"))[0] == 200
    assert await ask(server.health_port, "/readyz") == (
        503,
        {"status": "failing", "checks": {"watch": "ok", "synced": "waiting for the first list of pods"}},
    )
    problem[0] = None
    assert (await ask(server.health_port, "/readyz"))[0] == 200


async def test_what_is_not_alive_is_not_ready(health: Health, server: HealthServer) -> None:
    health.live("watch", lambda: "silent for 200 s")
    assert (await ask(server.health_port, "/healthz"))[0] == 503
    assert (await ask(server.health_port, "/readyz"))[0] == 503


async def test_a_check_that_breaks_is_a_failed_check(health: Health, server: HealthServer) -> None:
    def broken() -> str | None:
        raise KeyError("x")

    health.live("broken", broken)
    status, body = await ask(server.health_port, "/healthz")
    assert status == 503
    assert "KeyError" in body["checks"]["broken"]


async def test_metrics_are_served_on_a_port_of_their_own(server: HealthServer) -> None:
    assert server.metrics_port not in {0, server.health_port}
    status, text = await ask(server.metrics_port, "/metrics")
    assert status == 200
    assert "example_total 3.0" in text
    assert (await ask(server.health_port, "/metrics"))[0] == 404


async def test_a_taken_port_is_one_sentence(health: Health, server: HealthServer) -> None:
    other = HealthServer(
        health, CollectorRegistry(), address="127.0.0.1", health_port=server.health_port, metrics_port=0
    )
    with pytest.raises(PortTakenError, match=f"cannot listen on 127.0.0.1:{server.health_port}: "):
        async with other:
            pass


async def test_one_port_can_serve_both(health: Health) -> None:
    probe = HealthServer(health, CollectorRegistry(), address="127.0.0.1", health_port=0, metrics_port=0)
    async with probe:
        port = probe.health_port
    async with HealthServer(health, CollectorRegistry(), address="127.0.0.1", health_port=port, metrics_port=port):
        assert (await ask(port, "/healthz"))[0] == 200
        assert (await ask(port, "/metrics"))[0] == 200


async def test_what_is_said_besides_stands_in_the_answer_and_decides_nothing(
    health: Health, server: HealthServer
) -> None:
    role = ["standby"]
    health.say("role", lambda: role[0])
    assert await ask(server.health_port, "/readyz") == (200, {"status": "ok", "role": "standby", "checks": {}})
    role[0] = "leader"
    assert (await ask(server.health_port, "/readyz"))[1]["role"] == "leader"
