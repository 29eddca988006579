"""What is said of PodGroups: templates with the place of the error, and asks beyond a quota."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kbatch.api.objects import OwnerReference, PodGroupSpec
from tests.unit.webhooks.build import cores, quota
from webhooks.podgroups import ask, grows, object_error, owning_job, read_spec, template_error, too_large


def spec(*roles: dict[str, Any], **more: Any) -> PodGroupSpec:
    return msgspec.convert({"subGroups": roles, **more}, PodGroupSpec)


def role(name: str = "w", *, text: str = "", least: int = 2, **pod: Any) -> dict[str, Any]:
    container = {"name": "c", "args": [text]} if text else {"name": "c"}
    return {"name": name, "minMember": least, "template": {"spec": {"containers": [container], **pod}}}


def error(now: PodGroupSpec, before: PodGroupSpec | None = None) -> str | None:
    return template_error(now, before, group="g", namespace="ns")


def test_templates_that_can_be_rendered_pass() -> None:
    assert error(spec(role(text="{{ peers[1] }} {{ index }}"), role("plain"))) is None
    assert error(spec(role(least=0, text="{{ peers[0] }}"), {"name": "none", "minMember": 3})) is None
    assert error(spec()) is None


@pytest.mark.parametrize(
    ("roles", "wanted"),
    [
        ([role("a"), role("b", text="{{ peers[2] }}")], "spec.subGroups[1].template.spec.containers[0].args[0]: tuple"),
        ([role(text="{{ x }}")], "spec.subGroups[0].template.spec.containers[0].args[0]: 'x' is undefined"),
        ([role(containers=[])], "spec.subGroups[0].template.spec.containers: a pod has at least one container"),
        ([role(containers=7)], "spec.subGroups[0].template.spec.containers: Expected `array`, got `int`"),
        ([{"name": "w", "template": {}}], "spec.subGroups[0].template.spec.containers: a pod"),
        ([role(text="{{ role }}" + "x" * 15_000), *(role(f"r{n}", text="{{ role }}" + "x" * 15_000) for n in range(4))],
         "in all templates together"),
    ],
)  # fmt: skip
def test_others_are_refused_with_the_place(roles: list[dict[str, Any]], wanted: str) -> None:
    assert wanted in (error(spec(*roles)) or "")


def test_only_what_is_new_is_looked_at() -> None:
    old = spec(role(text="{{ x }}"))
    assert error(spec(role(text="{{ x }}"), queue="other"), old) is None
    assert error(spec(role(text="{{ y }}")), old) is not None
    assert error(spec(role(text="{{ x }}", least=3)), old) is not None


def test_objects_that_cannot_be_rendered_are_refused_with_the_place_where_they_are_new() -> None:
    def of(name: str, *roles: dict[str, Any], **more: Any) -> PodGroupSpec:
        return spec(*roles, objects=[{"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}}], **more)

    def said(now: PodGroupSpec, before: PodGroupSpec | None = None) -> str | None:
        return object_error(now, before, group="", namespace="ns")

    assert said(spec()) is None
    assert said(of("{{ group }}-{{ peers[1] }}", role())) is None
    wrong = "spec.objects[0].metadata.name: tuple object has no element 2"
    assert said(of("{{ peers[2] }}", role())) == wrong
    assert said(of("{{ peers[2] }}", role(), queue="other"), of("{{ peers[2] }}", role())) is None
    assert said(of("{{ peers[2] }}", role()), of("{{ peers[2] }}", role(least=3))) == wrong


def test_a_group_larger_than_a_quota_can_never_start() -> None:
    quotas = (quota("wide", pods="100"), quota("tight", requests_cpu="4", used_requests_cpu="1"))
    reason = too_large(quotas, cores(5))
    assert reason is not None
    assert (reason.quota, reason.asked, reason.used, reason.hard) == ("tight", 5000, 1000, 4000)
    assert too_large(quotas, cores(4)) is None
    assert too_large((quota(requests_cpu="lots"),), cores(5)) is None


def test_what_was_asked_before_is_asked_again_freely() -> None:
    assert grows(cores(2), None)
    assert not grows(cores(2), cores(2))
    assert not grows(cores(2), cores(3, 2))
    assert grows(cores(2), cores(1))
    assert grows(cores(2, 2), cores(2))


def test_an_ask_is_the_minimum_and_its_resources() -> None:
    found = ask(spec(role(least=3), minResources={"cpu": "2", "limits.memory": "1Gi"}, priorityClassName="high"))
    assert found is not None
    assert (found.requests, found.limits, found.pods) == ({"cpu": 2000}, {"memory": 2**30}, 3)
    assert found.subject.priority_class == "high"
    assert ask(spec(minResources={"cpu": "lots"})) is None


def test_limits_follow_from_templates() -> None:
    limited = {"name": "c", "resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "1"}}}
    found = ask(spec(role(least=2, containers=[limited], activeDeadlineSeconds=5), minResources={"cpu": "2"}))
    assert found is not None
    assert found.limits == {"memory": 2 * 2**30}
    assert found.subject.terminating


def test_the_owning_job_is_the_controller_first() -> None:
    def owner(kind: str, name: str, version: str = "batch/v1", *, controller: bool = False) -> OwnerReference:
        return OwnerReference(api_version=version, kind=kind, name=name, controller=controller)

    assert owning_job([owner("Job", "a"), owner("Job", "b", controller=True)]) == owner("Job", "b", controller=True)
    assert owning_job([owner("CronJob", "a"), owner("Job", "b", "example.com/v1")]) is None


def test_what_is_no_spec_is_none() -> None:
    assert read_spec({"spec": {"minMember": "two"}}) is None
    assert read_spec(None) is None
    assert read_spec({}) == PodGroupSpec()
