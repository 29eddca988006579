"""What is said of PodGroups: templates with the place of the error, and asks beyond a quota."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kbatch.api.objects import OwnerReference, PodGroupSpec
from kbatch.model.template_budget import MOST_STEPS, MOST_STEPS_TOGETHER, Budget
from kbatch.model.template_check import object_error, template_error
from tests.unit.webhooks.build import cores, quota
from webhooks.podgroups import (
    MOST_AT_ONCE,
    are_plain,
    ask,
    grows,
    new_objects,
    new_templates,
    owning_job,
    too_large,
)


def spec(*roles: dict[str, Any], **more: Any) -> PodGroupSpec:
    return msgspec.convert({"subGroups": roles, **more}, PodGroupSpec)


def asking(cpu: str) -> dict[str, Any]:
    return {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}


def role(name: str = "w", *, text: str = "", least: int = 2, **pod: Any) -> dict[str, Any]:
    container = {"name": "c", "args": [text]} if text else {"name": "c"}
    return {"name": name, "minMember": least, "template": {"spec": {"containers": [container], **pod}}}


def nested(levels: int) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for _ in range(levels):
        whole = {"a": whole}
    return whole


def error(now: PodGroupSpec, before: PodGroupSpec | None = None) -> str | None:
    return template_error(new_templates(now, before), group="g", namespace="ns", budget=Budget())


def test_templates_that_can_be_rendered_pass() -> None:
    assert error(spec(role(text="{{ peers[1] }} {{ index }}"), role("plain"))) is None
    assert error(spec(role(least=0, text="{{ peers[0] }}"), {"name": "none", "minMember": 3})) is None
    assert error(spec(role(volumes=[nested(61)]))) is None
    assert error(spec()) is None


@pytest.mark.parametrize(
    ("roles", "wanted"),
    [
        ([role("a"), role("b", text="{{ peers[2] }}")], "spec.subGroups[1].template.spec.containers[0].args[0]: peers"),
        ([role(text="{{ x }}")], "spec.subGroups[0].template.spec.containers[0].args[0]: 'x' is undefined"),
        ([role(containers=[])], "spec.subGroups[0].template.spec.containers: a pod has at least one container"),
        ([role(volumes=[nested(63)])], "spec.subGroups[0].template: nested more than 64 levels deep"),
        ([role(volumes=[nested(5_000)])], "spec.subGroups[0].template: nested more than 64 levels deep"),
        ([role(containers=7)], "spec.subGroups[0].template.spec.containers: Expected `array`, got `int`"),
        ([{"name": "w", "template": {}}], "spec.subGroups[0].template.spec.containers: a pod"),
        ([role(containers=[asking("abc")])], "spec.subGroups[0].template.spec.containers: its resources cannot"),
        ([role(containers=[asking("-1")])], "spec.subGroups[0].template.spec.containers: its resources cannot"),
        ([role(containers=[asking("{{ peers }}")])], "spec.subGroups[0].template.spec.containers: its resources"),
        ([role(text="{{ role }}" + "x" * 15_000), *(role(f"r{n}", text="{{ role }}" + "x" * 15_000) for n in range(4))],
         "in all templates together"),
    ],
)  # fmt: skip
def test_others_are_refused_with_the_place(roles: list[dict[str, Any]], wanted: str) -> None:
    assert wanted in (error(spec(*roles)) or "")


SIGNS = "{% for p in peers if [" + ",".join(["-+" * 8 + "index"] * 40) + "] == 1 %}{% endfor %}"


def test_what_takes_too_much_is_refused_with_the_place_and_the_limit() -> None:
    one = error(spec(role("a"), role("b", text=SIGNS, least=2048)))
    place = "spec.subGroups[1].template.spec.containers[0].args[0]"
    assert one == f"{place}: rendering one member takes more than {MOST_STEPS} steps"
    many = error(spec(*(role(f"r{number}", text=SIGNS, least=400) for number in range(64))))
    assert many is not None
    assert many.endswith(f": the templates of the group take more than {MOST_STEPS_TOGETHER} steps together")
    assert error(spec(*(role(f"r{number}", text="{{ peers|join }}", least=2048) for number in range(64)))) is None


def test_a_role_is_looked_at_as_large_as_it_is() -> None:
    assert error(spec(role(text="{{ peers[-1] }} {{ peers[999999] }}", least=1_000_000))) is None
    assert "steps" in (error(spec(role(text="{{ peers|length }}", least=1_000_000))) or "")
    assert error(spec(role(text="{{ peers[0] }}", least=2**62))) is None


def test_a_name_that_cannot_be_is_not_rendered() -> None:
    new = new_templates(spec(role(text="{{ group }}")), None)
    assert template_error(new, group="x" * 2_000_000, namespace="ns", budget=Budget()) is None


def test_small_templates_and_objects_without_expressions_are_plain() -> None:
    def plain(*roles: dict[str, Any], **more: Any) -> bool:
        found = spec(*roles, **more)
        return are_plain(new_templates(found, None), new_objects(found, None))

    def service(name: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}}

    assert plain(role(), role("b"), objects=[service("web")])
    assert plain({"name": "none", "minMember": 3})
    assert not plain(role(), role("b", text="{{ index }}"))
    assert not plain(role(volumes=[[]] * MOST_AT_ONCE))
    assert not plain(objects=[service("{{ group }}")])
    assert not plain(objects=[{**service("web"), "data": [[]] * MOST_AT_ONCE}])


def test_only_what_is_new_is_looked_at() -> None:
    old = spec(role(text="{{ x }}"))
    assert error(spec(role(text="{{ x }}"), queue="other"), old) is None
    assert error(spec(role(text="{{ y }}")), old) is not None
    assert error(spec(role(text="{{ x }}", least=3)), old) is not None


def test_objects_that_cannot_be_rendered_are_refused_with_the_place_where_they_are_new() -> None:
    def of(name: str, *roles: dict[str, Any], **more: Any) -> PodGroupSpec:
        return spec(*roles, objects=[{"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}}], **more)

    def said(now: PodGroupSpec, before: PodGroupSpec | None = None) -> str | None:
        return object_error(now, group="", namespace="ns", budget=Budget()) if new_objects(now, before) else None

    assert said(spec()) is None
    assert said(of("{{ group }}-{{ peers[1] }}", role())) is None
    wrong = "spec.objects[0].metadata.name: peers has no element 2"
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
