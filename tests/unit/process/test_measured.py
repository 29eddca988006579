"""Counting requests."""

from __future__ import annotations

import contextlib

import pytest
from prometheus_client import CollectorRegistry

from kbatch.kube.client import Client
from kbatch.kube.credentials import Credentials, FixedToken
from kbatch.kube.errors import ApiError, NoAnswerError, NotLeadingError
from kbatch.metrics import RequestMetrics
from kbatch.process.measured import Attempts, Measured, resource_of
from tests.unit.kube.server import hangs_up, refuses, says, serving, streams
from tests.unit.scheduler.fakes import FakeApi


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/api/v1/nodes", "nodes"),
        ("/api/v1/nodes/n1", "nodes"),
        ("/api/v1/namespaces/ns", "namespaces"),
        ("/api/v1/namespaces/ns/pods", "pods"),
        ("/api/v1/namespaces/ns/pods/a/binding", "pods/binding"),
        ("/apis/scheduling.incubator.k8s.io/v1alpha1/queues/q/status", "queues/status"),
        ("/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/ns/podgroups/g/status?x=y", "podgroups/status"),
        ("/version", ""),
    ],
)
def test_the_resource_of_a_path(path: str, resource: str) -> None:
    assert resource_of(path) == resource


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({}, "ok"),
        (ApiError(409, "Conflict", "x"), "conflict"),
        (ApiError(404, "NotFound", "x"), "gone"),
        (ApiError(403, "Forbidden", "x"), "refused"),
        (ApiError(429, "TooManyRequests", "x"), "throttled"),
        (ApiError(500, "InternalError", "x"), "failed"),
        (NoAnswerError("POST", "/x", sent=True, why="cut"), "unanswered"),
        (NotLeadingError("no"), "fenced"),
    ],
)
async def test_each_request_is_counted_by_how_it_ends(answer: object, outcome: str) -> None:
    registry = CollectorRegistry()
    api = FakeApi()
    api.on("POST", "/binding", answer)
    measured = Measured(api, RequestMetrics(registry))
    expected = pytest.raises(type(answer)) if isinstance(answer, Exception) else contextlib.nullcontext()
    with expected:
        await measured.request("POST", "/api/v1/namespaces/ns/pods/a/binding", body={})
    labels = {"verb": "create", "resource": "pods/binding", "outcome": outcome}
    assert registry.get_sample_value("kbatch_requests_total", labels) == 1


async def test_each_attempt_is_counted_by_the_answers_code_and_timed() -> None:
    registry = CollectorRegistry()
    lease = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/kbatch-scheduler"
    async with serving() as fake:
        client = Client(
            Credentials(server=fake.url, token=FixedToken()), heard=Attempts(RequestMetrics(registry)).heard
        )
        fake.answers = [
            refuses(429, "TooManyRequests", "slow down", Retry_After="0"),
            says({}, status=201),
            hangs_up,
            says({}),
            streams(b"{}\n"),
            refuses(410, "Expired"),
        ]
        async with client:
            await client.request("POST", "/api/v1/namespaces/ns/pods/a/binding", body={})
            await client.request("GET", lease)
            async with client.stream("/api/v1/pods", silence=1) as lines:
                assert [line async for line in lines]
            with pytest.raises(ApiError):
                async with client.stream("/api/v1/pods", silence=1):
                    pass

    def attempts(verb: str, resource: str, code: str) -> float | None:
        labels = {"verb": verb, "resource": resource, "code": code}
        return registry.get_sample_value("kbatch_request_attempts_total", labels)

    assert attempts("create", "pods/binding", "429") == 1
    assert attempts("create", "pods/binding", "201") == 1
    assert attempts("get", "leases", "none") == 1
    assert attempts("get", "leases", "200") == 1
    assert attempts("watch", "pods", "200") == 1
    assert attempts("watch", "pods", "410") == 1
    labels = {"verb": "create", "resource": "pods/binding"}
    assert registry.get_sample_value("kbatch_request_seconds_count", labels) == 2


async def test_what_was_not_sent_is_no_attempt() -> None:
    registry = CollectorRegistry()

    def refuse() -> None:
        raise NotLeadingError("no")

    async with serving() as fake:
        heard = Attempts(RequestMetrics(registry)).heard
        async with Client(Credentials(server=fake.url, token=FixedToken()), heard=heard) as client:
            with pytest.raises(NotLeadingError):
                await client.request("POST", "/api/v1/nodes", body={}, guard=refuse)
    assert registry.get_sample_value("kbatch_request_seconds_count", {"verb": "create", "resource": "nodes"}) is None
