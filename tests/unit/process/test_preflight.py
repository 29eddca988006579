"""What a process waits for before its work."""

from __future__ import annotations

import logging

import pytest

from kbatch.kube.kinds import NODES, PODGROUPS, PODS, QUEUES
from kbatch.process import preflight
from kbatch.process.preflight import Preflight
from tests.unit.kube.server import refuses, says, serving


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_RETRY_SECONDS", 0.01)


GROUPS = says(
    {"kind": "APIGroupList", "groups": [{"versions": [{"groupVersion": "scheduling.incubator.k8s.io/v1alpha1"}]}]}
)
NO_GROUPS = says({"kind": "APIGroupList", "groups": []})
SERVED = says({"kind": "APIResourceList", "resources": [{"name": "podgroups"}, {"name": "podgroups/status"}]})
EMPTY = says({"metadata": {}, "items": []})


async def test_a_missing_crd_is_said_once_and_noticed_when_it_comes(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as server, server.client() as client:
        server.answers = [NO_GROUPS, GROUPS, refuses(404, "NotFound"), GROUPS, SERVED]
        looking = Preflight(client, needed=[PODGROUPS])
        assert looking.check() is not None
        with caplog.at_level(logging.INFO):
            await looking.wait()
        assert looking.check() is None
    said = [record.getMessage() for record in caplog.records if record.name == preflight.__name__]
    assert len(said) == 3
    assert "could not be compared" in said[2], "this server knows no OpenAPI"
    assert "podgroups.scheduling.incubator.k8s.io is not installed: kubectl apply" in said[0]


async def test_one_of_two_crds_missing_is_named_alone() -> None:
    async with serving() as server, server.client() as client:
        server.answers = [GROUPS, SERVED]
        problem = await Preflight(client, needed=[PODGROUPS, QUEUES])._look()
        assert problem is not None
        assert "queues.scheduling.incubator.k8s.io is not" in problem
        assert "podgroups" not in problem


async def test_a_missing_right_is_said_with_the_servers_words_and_waited_for() -> None:
    async with serving() as server, server.client() as client:
        server.answers = [GROUPS, SERVED, EMPTY, refuses(403, "Forbidden", 'User "x" cannot list resource "pods"')]
        looking = Preflight(client, needed=[PODGROUPS], listed=[PODGROUPS, PODS, NODES])
        problem = await looking._look()
        assert problem is not None
        assert "may not list pods" in problem
        assert 'User "x" cannot list' in problem
        server.answers = [GROUPS, SERVED, EMPTY, EMPTY, EMPTY]
        await looking.wait()
        assert looking.check() is None


async def test_a_server_that_answers_strangely_is_waited_for() -> None:
    async with serving() as server, server.client() as client:
        server.answers = [refuses(418, "", "a proxy in the way"), GROUPS, SERVED]
        looking = Preflight(client, needed=[PODGROUPS])
        problem = await looking._look()
        assert problem is not None
        assert "does not answer as it should" in problem
        await looking.wait()
        assert looking.check() is None
