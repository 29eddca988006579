"""minResources from templates and owners: only where everything is known."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kbatch.api.objects import Job, PodGroupSpec
from kbatch.model.minresources import from_owner, from_templates, minimum_of


def spec(**fields: Any) -> PodGroupSpec:
    return msgspec.convert(fields, PodGroupSpec)


def role(name: str, least: int, cpu: str | None = "1") -> dict[str, Any]:
    requests = {} if cpu is None else {"cpu": cpu}
    template = {"spec": {"containers": [{"resources": {"requests": requests}}]}}
    return {"name": name, "minMember": least, "template": template}


def job(cpu: str) -> Job:
    pod = {"spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}}
    return msgspec.convert({"metadata": {"name": "j"}, "spec": {"template": pod}}, Job)


def test_the_minimum_is_the_larger_of_the_groups_and_its_roles() -> None:
    assert minimum_of(spec(minMember=5)) == 5
    assert minimum_of(spec(minMember=2, subGroups=[role("a", 2), role("b", 3)])) == 5


def test_each_role_counts_its_minimum() -> None:
    assert from_templates(spec(subGroups=[role("a", 2), role("b", 3, "500m"), role("c", 0, "9")])) == {"cpu": 3500}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"minMember": 4, "subGroups": [role("a", 2)]},
        {"subGroups": [role("a", 2), {"name": "b", "minMember": 1}]},
        {"subGroups": [role("a", 2, "{{ index }}")]},
        {"subGroups": [role("a", 2, None)]},
        {"subGroups": [{"name": "a", "minMember": 1, "template": {"spec": {"containers": 3}}}]},
    ],
)
def test_what_is_not_known_is_not_guessed(fields: dict[str, Any]) -> None:
    assert from_templates(spec(**fields)) is None


def test_an_owner_stands_for_all_pods_of_the_minimum() -> None:
    assert from_owner(spec(minMember=3), job("250m")) == {"cpu": 750}
    assert from_owner(spec(minMember=3), job("lots")) is None
