"""Counting requests."""

from __future__ import annotations

import contextlib

import pytest
from prometheus_client import CollectorRegistry

from kbatch.kube.errors import ApiError, NoAnswerError, NotLeadingError
from kbatch.metrics import RequestMetrics
from kbatch.process.measured import Measured, resource_of
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
