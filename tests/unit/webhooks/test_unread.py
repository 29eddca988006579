"""Annotations that cannot be read are told to whoever wrote them."""

from __future__ import annotations

from typing import Any

import pytest

from webhooks.unread import warnings


def saying(name: str, value: Any) -> dict[str, Any]:
    return {"metadata": {"annotations": {name: value}}}


SECONDS, MINIMUM = "kbatch.dev/expected-seconds", "scheduling.k8s.io/group-min-member"
CHECKPOINT, HOPS = "kbatch.dev/last-checkpoint", "kbatch.dev/max-hops"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (SECONDS, "90"), (SECONDS, "0.5"), (SECONDS, "1.000001"), (MINIMUM, "2"), (HOPS, "0"), (HOPS, "64"),
        (CHECKPOINT, "2026-01-01T12:00:00Z"), ("example.com/max-hops", "two"),
    ],
)  # fmt: skip
def test_what_can_be_read_is_fine(name: str, value: str) -> None:
    assert list(warnings(saying(name, value))) == []
    assert list(warnings({"metadata": {}, "spec": {"template": saying(name, value)}})) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((SECONDS, value) for value in ("", "0", "-1", "soon", "1h", "1e3", 5, "9" * 100)),
        (MINIMUM, "two"), (MINIMUM, "-1"), (HOPS, "two"), (HOPS, "65"), (HOPS, "-2"), (HOPS, 2),
        (CHECKPOINT, "yesterday"), (CHECKPOINT, "1767268800"),
    ],
)  # fmt: skip
def test_anything_else_is_told(name: str, value: Any) -> None:
    (said,) = warnings(saying(name, value))
    assert said.startswith(f"the annotation {name} is ")
    assert len(said) < 300
    assert list(warnings({"metadata": {}, "spec": {"template": saying(name, value)}})) == [said]


@pytest.mark.parametrize(
    "body", [{}, {"metadata": None}, {"metadata": {"annotations": None}}, {"spec": {"template": 7}}, {"spec": []}]
)
def test_other_shapes_are_the_api_servers_to_refuse(body: dict[str, Any]) -> None:
    assert list(warnings(body)) == []


@pytest.mark.parametrize("value", ["2", "two"])
def test_how_close_pods_stand_is_said_on_a_podgroup_only(value: str) -> None:
    (said,) = warnings({"kind": "Job", **saying(HOPS, value)})
    assert said == f"the annotation {HOPS} counts on a PodGroup only: here the pods may stand anywhere"
    assert list(warnings({"kind": "Job", "spec": {"template": saying(HOPS, value)}})) == [said]
    assert list(warnings({"kind": "PodGroup", **saying(HOPS, "2")})) == []
