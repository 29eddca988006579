"""What is filled in on a PodGroup."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kbatch.api.objects import PodGroupSpec
from webhooks.defaults import defaults


def template(cpu: str = "500m", memory: str = "") -> dict[str, Any]:
    requests = {"cpu": cpu} | ({"memory": memory} if memory else {})
    return {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]}}


def role(name: str, least: int, of: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, "minMember": least} | ({"template": of} if of is not None else {})


def filled(spec: dict[str, Any], *, creating: bool = True) -> dict[str, Any]:
    return defaults(msgspec.convert(spec, PodGroupSpec), creating=creating, default_queue="batch")


def test_a_complete_group_is_left_as_it_is() -> None:
    assert filled({"minMember": 3, "queue": "a"}) == {}


@pytest.mark.parametrize("queue", ["", "  "])
def test_an_empty_queue_becomes_the_default_one(queue: str) -> None:
    assert filled({"queue": queue}) == {"queue": "batch"}
    assert filled({"queue": queue}, creating=False) == {"queue": "batch"}


def test_min_resources_follow_from_the_templates_of_the_minimum() -> None:
    spec = {"queue": "a", "subGroups": [role("ps", 1, template("2", "1Gi")), role("w", 3, template())]}
    assert filled(spec) == {"minResources": {"cpu": "3500m", "memory": "1Gi"}, "minimum": 4}


def test_a_role_without_a_minimum_adds_nothing_and_needs_no_template() -> None:
    spec = {"queue": "a", "subGroups": [role("w", 2, template()), role("extra", 0)]}
    assert filled(spec) == {"minResources": {"cpu": "1"}, "minimum": 2}


@pytest.mark.parametrize(
    "spec",
    [
        {"subGroups": [role("w", 2)]},
        {"subGroups": [role("w", 2, template()), role("v", 1)]},
        {"minMember": 5, "subGroups": [role("w", 2, template())]},
        {"subGroups": [role("w", 2, template("lots"))]},
        {"subGroups": [role("w", 2, {"spec": {"containers": "none"}})]},
        {"subGroups": [role("w", 2, {"spec": {"containers": [{"name": "c"}]}})]},
        {"subGroups": []},
    ],
)
def test_nothing_is_guessed_where_the_templates_do_not_say_all(spec: dict[str, Any]) -> None:
    assert "minResources" not in filled({"queue": "a", **spec})


@pytest.mark.parametrize(
    ("spec", "minimum"),
    [
        ({"minMember": 3}, None),
        ({"minMember": 5, "subGroups": [role("ps", 1), role("w", 3)]}, None),
        ({"subGroups": [role("ps", 1), role("w", 3)]}, 4),
        # It is kept up with what the user changes, and what a user writes there is corrected.
        ({"subGroups": [role("ps", 1), role("w", 2)], "minimum": 4}, 3),
        ({"minMember": 4, "subGroups": [role("w", 2)], "minimum": 7}, 4),
        ({"minMember": 4, "minimum": 9}, 4),
        ({"subGroups": [role("ps", 1), role("w", 3)], "minimum": 4}, None),
    ],
)
@pytest.mark.parametrize("creating", [True, False])
def test_the_minimum_is_said_where_it_is_not_min_member(
    spec: dict[str, Any], minimum: int | None, *, creating: bool
) -> None:
    assert filled({"queue": "a", **spec}, creating=creating).get("minimum") == minimum


def test_what_is_given_stays_and_an_update_derives_nothing() -> None:
    spec = {"queue": "a", "minMember": 2, "subGroups": [role("w", 2, template())]}
    assert filled({**spec, "minResources": {"cpu": "9"}}) == {}
    assert filled({**spec, "minResources": {}}) == {}
    assert filled(spec, creating=False) == {}
