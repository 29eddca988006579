"""The effective request of a pod, by Kubernetes' rule."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kbatch.api.objects import PodSpec
from kbatch.model.requests import effective_limit, effective_request, is_best_effort
from kbatch.resources import QuantityError


def spec(**fields: Any) -> PodSpec:
    return msgspec.convert(fields, PodSpec)


def container(requests: dict[str, Any] | None = None, limits: dict[str, Any] | None = None, **more: Any) -> Any:
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def sidecar(requests: dict[str, Any]) -> Any:
    return container(requests, restartPolicy="Always")


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param({"containers": []}, {}, id="no containers"),
        pytest.param({"containers": [{"name": "c"}]}, {}, id="no resources"),
        pytest.param({"containers": [container({"cpu": "504m"})]}, {"cpu": 504}, id="exact, no rounding to cores"),
        pytest.param({"containers": [container({"cpu": "1.0001m"})]}, {"cpu": 2}, id="fractions are rounded up"),
        pytest.param({"containers": [container({"cpu": 0, "memory": "1Ki"})]}, {"memory": 1024}, id="zero is left out"),
        pytest.param(
            {"containers": [container({"cpu": 1}), container({"cpu": "500m", "memory": "1Gi"})]},
            {"cpu": 1500, "memory": 2**30},
            id="containers add up",
        ),
        pytest.param({"containers": [container({}, {"cpu": 2})]}, {"cpu": 2000}, id="a limit is a request"),
        pytest.param({"containers": [container({"cpu": 1}, {"cpu": 2})]}, {"cpu": 1000}, id="a request stands"),
        pytest.param({"containers": [container({"cpu": 0}, {"cpu": 2})]}, {}, id="a request of zero stands too"),
        pytest.param(
            {"initContainers": [container({"cpu": 3})], "containers": [container({"cpu": 1, "memory": 5})]},
            {"cpu": 3000, "memory": 5},
            id="init containers by dimension",
        ),
        pytest.param(
            {"initContainers": [container({"cpu": 1}), container({"cpu": 2})], "containers": [container({})]},
            {"cpu": 2000},
            id="init containers run one by one",
        ),
        pytest.param(
            {"initContainers": [sidecar({"cpu": 1})], "containers": [container({"cpu": 1})]},
            {"cpu": 2000},
            id="a sidecar runs beside",
        ),
        pytest.param(
            {"initContainers": [sidecar({"cpu": 1}), container({"cpu": 5})], "containers": [container({"cpu": 1})]},
            {"cpu": 6000},
            id="init after a sidecar runs with it",
        ),
        pytest.param(
            {"initContainers": [container({"cpu": 5}), sidecar({"cpu": 1})], "containers": [container({"cpu": 1})]},
            {"cpu": 5000},
            id="init before a sidecar runs without it",
        ),
        pytest.param(
            {"containers": [container({"cpu": 1})], "overhead": {"cpu": "250m", "memory": "10"}},
            {"cpu": 1250, "memory": 10},
            id="overhead on top",
        ),
        pytest.param(
            {"containers": [container({"cpu": 1, "memory": 7})], "resources": {"requests": {"cpu": 4}}},
            {"cpu": 4000, "memory": 7},
            id="the pod's own resources replace the sum",
        ),
        pytest.param(
            {"containers": [container({"cpu": 1})], "resources": {"limits": {"cpu": 4, "memory": 9}}},
            {"cpu": 1000, "memory": 9},
            id="the pod's own limit is a request where nobody asks",
        ),
        pytest.param(
            {"containers": [container({"cpu": 1})], "resources": {"requests": {"cpu": 2}}, "overhead": {"cpu": 1}},
            {"cpu": 3000},
            id="overhead on the pod's own resources",
        ),
        pytest.param({"containers": [container({"pods": 3, "x.y/z": 2})]}, {"x.y/z": 2}, id="pods is no dimension"),
    ],
)
def test_effective_request(pod: dict[str, Any], want: dict[str, int]) -> None:
    assert effective_request(spec(**pod)) == want


def test_limits_follow_the_same_rule_and_only_named_ones_count() -> None:
    pod = spec(
        containers=[container({"memory": 5}, {"cpu": 1}), container({}, {"cpu": 2})],
        initContainers=[container({}, {"cpu": 9})],
        overhead={"cpu": 1, "memory": 1},
    )
    assert effective_limit(pod) == {"cpu": 10_000}


@pytest.mark.parametrize("amount", ["-1", "1 core", "", "9007199254740993"])
def test_a_bad_amount_names_its_resource(amount: str) -> None:
    with pytest.raises(QuantityError, match="resource memory"):
        effective_request(spec(containers=[container({"cpu": 1, "memory": amount})]))


def test_pods_of_one_template_share_one_vector() -> None:
    first, second = (spec(containers=[container({"cpu": "1", "memory": "3Gi"})]) for _ in range(2))
    assert effective_request(first) is effective_request(second)


def test_best_effort() -> None:
    assert is_best_effort(spec(containers=[container({"nvidia.com/gpu": 1})]))
    assert not is_best_effort(spec(containers=[{"name": "a"}, container({}, {"memory": 1})]))
    assert not is_best_effort(spec(containers=[{"name": "a"}], initContainers=[container({"cpu": 1})]))
    assert not is_best_effort(spec(containers=[{"name": "a"}], resources={"requests": {"cpu": 1}}))
