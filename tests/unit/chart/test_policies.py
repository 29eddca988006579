"""What the API server asks by itself, whether a webhook answers or not: whose a Queue is, and whose a PriorityClass.

What the expressions come to is tried on a real API server, in tests/e2e/test_tenancy.py.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import helm_python
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

POLICY = "ValidatingAdmissionPolicy"
BINDING = "ValidatingAdmissionPolicyBinding"
QUEUES = {"apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "Queue"}


def test_each_policy_denies_and_is_bound_once(default: Any) -> None:
    assert default.names(POLICY) == {
        "kbatch-podgroup", "kbatch-podgroup-members", "kbatch-queue", "kbatch-queue-labels", "kbatch-scheduler",
    }  # fmt: skip
    assert default.names(BINDING) == default.names(POLICY)
    for binding in default.of(BINDING):
        assert binding["spec"]["policyName"] == binding["metadata"]["name"]
        assert binding["spec"]["validationActions"] == ["Deny"]
    for policy in default.of(POLICY):
        assert policy["spec"]["failurePolicy"] == "Fail"


def test_every_queue_is_a_parameter_and_none_keeps_nobody_out(default: Any) -> None:
    for name in ("kbatch-queue", "kbatch-queue-labels"):
        assert default.one(POLICY, name)["spec"]["paramKind"] == QUEUES
        reference = default.one(BINDING, name)["spec"]["paramRef"]
        assert reference == {"selector": {}, "parameterNotFoundAction": "Allow"}


def test_pods_and_jobs_without_the_label_are_not_looked_at(render: Callable[..., Any], default: Any) -> None:
    """A parameter that cannot be had fails before any condition is asked: that must concern no other pod."""
    constraints = default.one(POLICY, "kbatch-queue-labels")["spec"]["matchConstraints"]
    assert constraints["objectSelector"] == {"matchExpressions": [{"key": "kbatch.dev/queue", "operator": "Exists"}]}
    resources = {(rule["apiGroups"][0], *rule["resources"]) for rule in constraints["resourceRules"]}
    assert resources == {("batch", "jobs"), ("", "pods")}
    jobs = render({"queue": {"podLabelPolicy": False}}).one(POLICY, "kbatch-queue-labels")["spec"]["matchConstraints"]
    assert jobs["resourceRules"] == constraints["resourceRules"][:1]
    (rule,) = default.one(POLICY, "kbatch-queue")["spec"]["matchConstraints"]["resourceRules"]
    assert rule["resources"] == ["podgroups"]


def test_names_of_the_values_stand_in_the_expressions(render: Callable[..., Any]) -> None:
    rendered = render({"schedulerName": "batch"})
    for name in ("kbatch-queue-labels", "kbatch-scheduler"):
        text = json.dumps(rendered.one(POLICY, name))
        assert "'batch'" in text
        assert "kube-batch" not in text


def validations(rendered: Any) -> list[tuple[str, str]]:
    """The namespaces of each validation, and what they are an exception to."""
    found = rendered.one(POLICY, "kbatch-scheduler")["spec"]["validations"]
    assert {one["reason"] for one in found} == {"Forbidden"}
    parts = [
        one["expression"].removeprefix("request.namespace in ").split(" || !variables.fresh.exists") for one in found
    ]
    return [(namespaces, names) for namespaces, names in parts]


def test_restricted_classes_are_those_of_the_values(render: Callable[..., Any], default: Any) -> None:
    assert validations(default) == [("['kbatch-system', 'kube-system']", "(name, name.startsWith('system-'))")]
    rules = [
        {"classes": ["system-*", "urgent"], "namespaces": []},
        {"classes": ["gpu.*"], "namespaces": ["team-a", "team-b"]},
    ]
    assert validations(render({"restrictedPriorityClasses": rules})) == [
        ("['kbatch-system']", "(name, name.startsWith('system-') || name == 'urgent')"),
        ("['kbatch-system', 'team-a', 'team-b']", "(name, name.startsWith('gpu.'))"),
    ]
    none = render({"restrictedPriorityClasses": []})
    assert "kbatch-scheduler" not in none.names(POLICY) | none.names(BINDING)


@pytest.mark.parametrize("name", ["*", "a*b", "x' || true || '", "Upper", ""])
def test_what_is_no_class_is_refused(chart: helm_python.Chart, name: str) -> None:
    with pytest.raises(helm_python.HelmValuesError):
        chart.validate_schema({"restrictedPriorityClasses": [{"classes": [name], "namespaces": []}]})


def test_the_operator_is_held_to_members_of_groups(render: Callable[..., Any]) -> None:
    rendered = render({"schedulerName": "batch", "webhook": {"excludedNamespaces": ["kube-system", "a"]}})
    policy = rendered.one(POLICY, "kbatch-podgroup-members")["spec"]
    (condition,) = policy["matchConditions"]
    # Of all others' pods it is asked nothing else, so that what is wrong here concerns nobody but the operator.
    assert condition["expression"] == (
        "request.userInfo.username == 'system:serviceaccount:kbatch-system:kbatch-podgroup'"
    )
    (rule,) = policy["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE", "UPDATE", "DELETE"])
    where, whose, *_ = [one["expression"] for one in policy["validations"]]
    assert where == "!(request.namespace in ['kbatch-system', 'kube-system', 'a'])"
    assert whose == "variables.pod.spec.schedulerName == 'batch'"
