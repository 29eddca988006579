"""What quotas charge a group with, and when it is too much."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kbatch.api.objects import Pod, PodSpec, ResourceQuota
from kbatch.model.quota import (
    Ask,
    Excess,
    Subject,
    applies,
    ask_of_group,
    ask_of_pod,
    charge,
    exceeded,
    hard_limits,
    headroom,
    outstanding,
    subject_of,
    usage,
)
from kbatch.resources import QuantityError


def quota(hard: dict[str, Any], used: dict[str, Any] | None = None, **spec: Any) -> ResourceQuota:
    status = {"hard": hard, "used": used} if used is not None else {}
    return msgspec.convert(
        {"metadata": {"name": "team"}, "spec": {"hard": hard, **spec}, "status": status}, ResourceQuota
    )


def pod(requests: dict[str, Any] | None = None, phase: str = "", limits: Any = None, **spec: Any) -> Pod:
    container = {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}}
    raw = {"metadata": {"name": "p"}, "spec": {"containers": [container], **spec}, "status": {"phase": phase}}
    return msgspec.convert(raw, Pod)


EVERYTHING = {
    "cpu": 1,
    "requests.cpu": 1,
    "limits.cpu": 1,
    "memory": 1,
    "limits.memory": 1,
    "pods": 1,
    "count/pods": 1,
    "requests.nvidia.com/gpu": 1,
    "hugepages-2Mi": 1,
    "requests.storage": 1,
    "persistentvolumeclaims": 1,
    "count/jobs.batch": 1,
    "gold.storageclass.storage.k8s.io/requests.storage": 1,
}


def test_only_what_pods_use_is_charged_by_the_quotas_own_names() -> None:
    ask = Ask({"cpu": 500, "memory": 10, "nvidia.com/gpu": 2, "hugepages-2Mi": 4, "storage": 3}, {"cpu": 900}, pods=3)
    assert charge(quota(EVERYTHING), ask) == {
        "cpu": 500,
        "requests.cpu": 500,
        "limits.cpu": 900,
        "memory": 10,
        "limits.memory": 0,
        "pods": 3,
        "count/pods": 3,
        "requests.nvidia.com/gpu": 2,
        "hugepages-2Mi": 4,
    }


def test_min_resources_may_speak_as_a_quota_does() -> None:
    ask = ask_of_group(
        {"requests.cpu": 1000, "memory": 5, "limits.cpu": 2000, "pods": 7}, pods=2, priority_class="high"
    )
    assert ask == Ask({"cpu": 1000, "memory": 5}, {"cpu": 2000}, 7, Subject(priority_class="high"))


def test_a_template_gives_limits_and_scopes() -> None:
    template = pod({"cpu": 1}, limits={"cpu": 2}, activeDeadlineSeconds=60, priorityClassName="low").spec
    ask = ask_of_group({"cpu": 3000}, 3, "high", template)
    assert ask == Ask({"cpu": 3000}, {"cpu": 6000}, 3, Subject(terminating=True, priority_class="low"))
    assert ask_of_group({"cpu": 3000, "limits.cpu": 1}, 3, template=template).limits == {"cpu": 1}


def test_a_group_of_no_cpu_and_memory_is_best_effort() -> None:
    assert ask_of_group({"nvidia.com/gpu": 1}, 1).subject.best_effort
    assert not ask_of_group({"memory": 1}, 1).subject.best_effort


def test_own_pods_are_not_counted_twice() -> None:
    ask = Ask({"cpu": 3000, "memory": 10}, {"cpu": 3000}, pods=3)
    own = [ask_of_pod(pod({"cpu": 1}, limits={"cpu": 2})), ask_of_pod(pod({"cpu": "500m", "memory": 20}))]
    assert outstanding(ask, own) == Ask({"cpu": 1500, "memory": 0}, {"cpu": 1000}, 1)
    assert outstanding(ask, []) == ask


BEST = Subject(best_effort=True)
ENDS = Subject(terminating=True)
HIGH = Subject(priority_class="high")
CROSS = Subject(crosses_namespaces=True)
PLAIN = Subject()


def by_class(operator: str, *values: str) -> dict[str, Any]:
    expression = {"scopeName": "PriorityClass", "operator": operator, "values": list(values)}
    return {"scopeSelector": {"matchExpressions": [expression]}}


@pytest.mark.parametrize(
    ("spec", "within"),
    [
        ({}, {BEST, ENDS, HIGH, CROSS, PLAIN}),
        ({"scopes": ["BestEffort"]}, {BEST}),
        ({"scopes": ["NotBestEffort"]}, {ENDS, HIGH, CROSS, PLAIN}),
        ({"scopes": ["Terminating"]}, {ENDS}),
        ({"scopes": ["NotTerminating"]}, {BEST, HIGH, CROSS, PLAIN}),
        ({"scopes": ["NotTerminating", "NotBestEffort"]}, {HIGH, CROSS, PLAIN}),
        ({"scopes": ["PriorityClass"]}, {HIGH}),
        ({"scopes": ["CrossNamespacePodAffinity"]}, {CROSS}),
        ({"scopes": ["VolumeAttributesClass"]}, set()),
        (by_class("In", "high", "higher"), {HIGH}),
        (by_class("In", "low"), set()),
        (by_class("NotIn", "high"), {BEST, ENDS, CROSS, PLAIN}),
        (by_class("Exists"), {HIGH}),
        (by_class("DoesNotExist"), {BEST, ENDS, CROSS, PLAIN}),
        (by_class("Unheard"), set()),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "BestEffort", "operator": "Exists"}]}}, {BEST}),
        ({"scopes": ["Terminating"], **by_class("In", "high")}, set()),
    ],
)
def test_scopes(spec: dict[str, Any], within: set[Subject]) -> None:
    limits = quota({"pods": 1}, **spec)
    assert {subject for subject in (BEST, ENDS, HIGH, CROSS, PLAIN) if applies(limits, subject)} == within
    for subject in (BEST, ENDS, HIGH, CROSS, PLAIN):
        assert charge(limits, Ask({}, pods=2, subject=subject)) == ({"pods": 2} if subject in within else {})


def test_what_scopes_see_of_a_pod() -> None:
    term = {"topologyKey": "zone", "namespaceSelector": {}}
    for part in ("podAffinity", "podAntiAffinity"):
        required = {part: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        preferred = {
            part: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
        }
        for affinity in (required, preferred):
            assert subject_of(msgspec.convert({"affinity": affinity}, PodSpec)) == Subject(True, False, "", True)
    own = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}
    assert subject_of(pod({"cpu": 1}, affinity=own).spec) == PLAIN
    assert subject_of(pod(activeDeadlineSeconds=0).spec) == Subject(best_effort=True, terminating=True)


def test_usage_counts_pods_that_have_not_ended() -> None:
    limits = quota({"requests.cpu": "2", "pods": 9, "limits.memory": "1Gi"}, scopes=["NotBestEffort"])
    pods = [
        pod({"cpu": 1}, "Running"),
        pod({"cpu": 2}, ""),
        pod({"cpu": 4}, "Succeeded"),
        pod({"cpu": 8}, "Failed"),
        pod(),
    ]
    assert usage(limits, pods) == {"requests.cpu": 3000, "pods": 2, "limits.memory": 0}


def test_numbers_are_in_the_unit_behind_the_name() -> None:
    limits = quota({"requests.cpu": "1500m", "limits.cpu": 2, "requests.memory": "1Ki", "pods": "10"})
    assert hard_limits(limits) == {"requests.cpu": 1500, "limits.cpu": 2000, "requests.memory": 1024, "pods": 10}
    with pytest.raises(QuantityError, match=r"quota requests\.cpu"):
        hard_limits(quota({"requests.cpu": "many"}))


def test_limits_in_force_stand_before_those_that_are_wanted() -> None:
    limits = quota({"pods": 5}, used={"pods": 1})
    limits.spec.hard = {"pods": 50}
    assert hard_limits(limits) == {"pods": 5}
    assert headroom(limits, {"pods": 1}) == {"pods": 3}
    assert headroom(limits, {}, used={"pods": 7}) == {"pods": 0}


def test_exceeded_has_the_numbers() -> None:
    limits = quota(
        {"requests.cpu": 4, "memory": 100, "pods": 9}, used={"requests.cpu": "1500m", "memory": 90, "pods": 9}
    )
    asked = {"requests.cpu": 2000, "memory": 101, "pods": 0}
    found = exceeded(limits, asked, {"requests.cpu": 1000})
    assert found == (
        Excess("team", "memory", asked=101, reserved=0, used=90, hard=100),
        Excess("team", "requests.cpu", asked=2000, reserved=1000, used=1500, hard=4000),
    )
    assert [(excess.hopeless, excess.headroom) for excess in found] == [(True, 10), (False, 1500)]
    assert exceeded(limits, {"requests.cpu": 2500}, {}) == (), "exactly full is not over"
    assert exceeded(limits, {"requests.cpu": 2500}, {}, used={"requests.cpu": 1501}) != ()
