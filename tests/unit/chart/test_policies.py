"""What the API server asks by itself, whether a webhook answers or not: whose a Queue is, and whose a PriorityClass.

What the expressions come to is tried on a real API server, in tests/e2e/test_tenancy.py.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import helm_python
import pytest

from kbatch.api.names import QUOTA_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable

POLICY = "ValidatingAdmissionPolicy"
BINDING = "ValidatingAdmissionPolicyBinding"
TABLE = {"apiVersion": "v1", "kind": "ConfigMap"}
QUEUE_POLICIES = {"kbatch-queue", "kbatch-queue-labels"}


WARNS = "kbatch-spelling"


def test_each_policy_denies_but_one_and_is_bound_once(default: Any) -> None:
    assert default.names(POLICY) == {
        "kbatch-podgroup", "kbatch-pods", "kbatch-scheduler", "kbatch-queue-namespaces", WARNS, *QUEUE_POLICIES,
    }  # fmt: skip
    assert default.names(BINDING) == default.names(POLICY)
    for binding in default.of(BINDING):
        assert binding["spec"]["policyName"] == binding["metadata"]["name"]
        assert binding["spec"]["validationActions"] == ["Warn" if binding["metadata"]["name"] == WARNS else "Deny"]
    for policy in default.of(POLICY):
        # Who names a queue that is not for him is held by the scheduler too; all else by the policy alone.
        held = policy["metadata"]["name"] in {WARNS, *QUEUE_POLICIES}
        assert policy["spec"]["failurePolicy"] == ("Ignore" if held else "Fail")


def test_one_table_is_the_parameter_whatever_there_are_of_queues_and_without_it_nobody_is_kept_out(
    render: Callable[..., Any],
) -> None:
    """A kind that the API server has always: one that it has to find first fails each request until it has."""
    rendered = render(release="prod")
    assert [policy["metadata"]["name"] for policy in rendered.of(POLICY) if "paramKind" in policy["spec"]] == [
        "prod-kbatch-queue", "prod-kbatch-queue-labels",
    ]  # fmt: skip
    for name in QUEUE_POLICIES:
        assert rendered.one(POLICY, f"prod-{name}")["spec"]["paramKind"] == TABLE
        reference = rendered.one(BINDING, f"prod-{name}")["spec"]["paramRef"]
        assert reference == {
            "name": "prod-kbatch-queue-access", "namespace": "kbatch-system", "parameterNotFoundAction": "Allow",
        }  # fmt: skip
    assert "data" not in rendered.one("ConfigMap", "prod-kbatch-queue-access")  # the operator's
    assert "--access-table=$(POD_NAMESPACE)/prod-kbatch-queue-access" in rendered.container("queue")["args"]


def test_the_queue_operator_is_held_to_its_label_on_namespaces(default: Any) -> None:
    policy = default.one(POLICY, "kbatch-queue-namespaces")["spec"]
    (condition,) = policy["matchConditions"]
    assert condition["expression"] == "request.userInfo.username == 'system:serviceaccount:kbatch-system:kbatch-queue'"
    (rule,) = policy["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["namespaces"], ["CREATE", "UPDATE", "DELETE"])
    assert f"'{QUOTA_LABEL}'" in json.dumps(policy["validations"])


def test_pods_and_jobs_without_the_label_are_not_looked_at(default: Any) -> None:
    constraints = default.one(POLICY, "kbatch-queue-labels")["spec"]["matchConstraints"]
    assert constraints["objectSelector"] == {"matchExpressions": [{"key": "kbatch.dev/queue", "operator": "Exists"}]}
    resources = {(rule["apiGroups"][0], *rule["resources"]) for rule in constraints["resourceRules"]}
    assert resources == {("batch", "jobs"), ("", "pods")}
    (rule,) = default.one(POLICY, "kbatch-queue")["spec"]["matchConstraints"]["resourceRules"]
    assert rule["resources"] == ["podgroups"]


def test_how_jobs_are_spelled_costs_other_objects_nothing(default: Any) -> None:
    (rule,) = default.one(POLICY, WARNS)["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["apiGroups"], rule["resources"], rule["operations"]) == (["batch"], ["jobs"], ["CREATE"])


def test_names_of_the_values_stand_in_the_expressions(render: Callable[..., Any]) -> None:
    rendered = render({"schedulerName": "batch"})
    for name in ("kbatch-queue-labels", "kbatch-scheduler", "kbatch-pods", "kbatch-spelling"):
        text = json.dumps(rendered.one(POLICY, name))
        assert "'batch'" in text
        assert "kube-batch" not in text


def validations(rendered: Any, policy: str, names: str) -> list[tuple[str, str]]:
    """The namespaces of each validation of classes, and what they are an exception to."""
    found = [one for one in rendered.one(POLICY, policy)["spec"]["validations"] if "PriorityClass" in one["message"]]
    assert {one["reason"] for one in found} <= {"Forbidden"}
    parts = [one["expression"].removeprefix("request.namespace in ").split(f" || !{names}.exists") for one in found]
    return [(namespaces, classes) for namespaces, classes in parts]


@pytest.mark.parametrize(
    ("policy", "names"), [("kbatch-scheduler", "variables.fresh"), ("kbatch-pods", "variables.classes")]
)
def test_restricted_classes_are_those_of_the_values(
    render: Callable[..., Any], default: Any, policy: str, names: str
) -> None:
    assert validations(default, policy, names) == [
        ("['kbatch-system', 'kube-system']", "(name, name.startsWith('system-'))")
    ]
    rules = [
        {"classes": ["system-*", "urgent"], "namespaces": []},
        {"classes": ["gpu.*"], "namespaces": ["team-a", "team-b"]},
    ]
    assert validations(render({"restrictedPriorityClasses": rules}), policy, names) == [
        ("['kbatch-system']", "(name, name.startsWith('system-') || name == 'urgent')"),
        ("['kbatch-system', 'team-a', 'team-b']", "(name, name.startsWith('gpu.'))"),
    ]
    none = render({"restrictedPriorityClasses": []})
    assert "kbatch-scheduler" not in none.names(POLICY) | none.names(BINDING)
    assert validations(none, "kbatch-pods", names) == []


@pytest.mark.parametrize("name", ["*", "a*b", "x' || true || '", "Upper", ""])
def test_what_is_no_class_is_refused(chart: helm_python.Chart, name: str) -> None:
    with pytest.raises(helm_python.HelmValuesError):
        chart.validate_schema({"restrictedPriorityClasses": [{"classes": [name], "namespaces": []}]})


def test_of_pods_one_policy_asks_and_the_operator_is_held_to_members_of_groups(render: Callable[..., Any]) -> None:
    """Each policy that looks at a pod has the API server convert it: there is one, whoever makes the pod."""
    values: dict[str, Any] = {"schedulerName": "batch", "webhook": {"excludedNamespaces": ["kube-system", "a"]}}
    rendered = render(values)
    looking = [
        policy
        for policy in rendered.of(POLICY)
        if "objectSelector" not in policy["spec"]["matchConstraints"]
        and any("pods" in rule["resources"] for rule in policy["spec"]["matchConstraints"]["resourceRules"])
    ]
    assert [policy["metadata"]["name"] for policy in looking] == ["kbatch-pods"]
    policy = looking[0]["spec"]
    (condition,) = policy["matchConditions"]
    by_the_operator = "request.userInfo.username == 'system:serviceaccount:kbatch-system:kbatch-podgroup'"
    assert condition["expression"].startswith(f"{by_the_operator} || (request.operation == 'CREATE' && ")
    (alone,) = render({**values, "restrictedPriorityClasses": []}).one(POLICY, "kbatch-pods")["spec"]["matchConditions"]
    assert alone["expression"] == by_the_operator
    # An operator without rights to change pods, and no class that is kept for anybody: nothing to ask.
    rightless = {"podgroup": {"memberTemplates": False, "liftGates": False}}
    assert "kbatch-pods" in render(rightless).names(POLICY)
    assert "kbatch-pods" not in render({**rightless, "restrictedPriorityClasses": []}).names(POLICY)
    (rule,) = policy["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE", "UPDATE", "DELETE"])
    expressions = [one["expression"] for one in policy["validations"] if "operator" in one["message"]]
    assert all(one.startswith("variables.others || ") for one in expressions)
    where, whose, *_ = [one.removeprefix("variables.others || ") for one in expressions]
    # It takes its finalizer off everywhere: a namespace may be left alone after it had members.
    elsewhere = "request.operation == 'UPDATE' && 'kbatch.dev/finished' in oldObject.metadata.?finalizers.orValue([])"
    assert where == f"!(request.namespace in ['kbatch-system', 'kube-system', 'a']) || ({elsewhere})"
    assert whose == "variables.pod.spec.schedulerName == 'batch'"


def test_with_a_list_of_namespaces_pods_elsewhere_are_not_looked_at(render: Callable[..., Any]) -> None:
    def selector(**values: Any) -> Any:
        return render(values).one(POLICY, "kbatch-pods")["spec"]["matchConstraints"].get("namespaceSelector")

    within = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}
    assert selector(namespaces=["a", "b"]) == {"matchExpressions": [within]}
    assert selector() is None
    # Whoever makes the operator's rights may have made more of them.
    assert selector(namespaces=["a", "b"], rbac={"create": False}) is None
