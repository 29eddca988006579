"""Least privilege: the rendered roles hold exactly the rights of rights.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import helm_python
import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TABLE: dict[str, dict[str, dict[str, list[str]]]] = yaml.safe_load((Path(__file__).parent / "rights.yaml").read_text())
COMPONENTS = ("scheduler", "podgroup", "queue", "webhook")


def rights(rules: list[dict[str, list[str]]]) -> Iterator[tuple[str, str]]:
    """Each right of some rules by itself: `jobs.batch` or `leases.coordination.k8s.io NAME`, and a verb."""
    for rule in rules:
        assert rule.keys() <= {"apiGroups", "resources", "resourceNames", "verbs"}
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", [""]):
                    what = f"{resource}.{group}" if group else resource
                    for verb in rule["verbs"]:
                        yield (f"{what} {name}" if name else what), verb


def table(component: str, where: str) -> set[tuple[str, str]]:
    return {(what, verb) for what, verbs in TABLE[component].get(where, {}).items() for verb in verbs}


@pytest.mark.parametrize("component", COMPONENTS)
@pytest.mark.parametrize(("kind", "where"), [("ClusterRole", "everywhere"), ("Role", "own namespace")])
def test_each_role_holds_exactly_what_the_table_says(default: Any, component: str, kind: str, where: str) -> None:
    wanted = table(component, where)
    if not wanted:
        assert f"kbatch-{component}" not in default.names(kind)
        return
    rules = default.one(kind, f"kbatch-{component}")["rules"]
    assert set(rights(rules)) == wanted


@pytest.mark.parametrize("component", COMPONENTS)
def test_each_role_is_bound_to_the_account_of_its_process_alone(default: Any, component: str) -> None:
    account = {"kind": "ServiceAccount", "name": f"kbatch-{component}", "namespace": "kbatch-system"}
    bindings = [*default.of("ClusterRoleBinding"), *default.of("RoleBinding")]
    mine = [binding for binding in bindings if account in binding["subjects"]]
    assert len(mine) == (1 if component == "webhook" else 2)
    for binding in mine:
        assert binding["subjects"] == [account]
        assert binding["roleRef"]["name"] == f"kbatch-{component}"
    assert default.pod_spec(component)["serviceAccountName"] == f"kbatch-{component}"


def test_nothing_is_granted_by_a_star_and_nobody_reads_secrets(default: Any) -> None:
    roles = [*default.of("ClusterRole"), *default.of("Role")]
    assert len(roles) == 12
    granted = [right for role in roles for right in rights(role["rules"])]
    assert not [right for right in granted if "*" in "".join(right)]
    assert not [right for right in granted if right[0].startswith(("secrets", "serviceaccounts"))]
    assert not [right for right in granted if right[0].startswith("configmaps") and right[1] in {"list", "watch"}]
    assert not [right for right in granted if right[1] in {"impersonate", "bind", "escalate"}]


def test_the_webhook_is_granted_what_its_values_need(render: Callable[..., Any]) -> None:
    def granted(webhook: dict[str, Any], kind: str) -> set[tuple[str, str]]:
        rendered = render({"webhook": webhook})
        names = rendered.names(kind)
        return set(rights(rendered.one(kind, "kbatch-webhook")["rules"])) if "kbatch-webhook" in names else set()

    assert not {right for right in granted({"reservations": "Off"}, "ClusterRole") if right[0] == "pods"}
    ledgers = {("configmaps", verb) for verb in ("get", "create", "update")}
    assert granted({"quotaPolicy": "Reject"}, "Role") == ledgers
    # In a namespace that holds nothing else: there are ConfigMaps in the release's own.
    rendered = render({"webhook": {"quotaPolicy": "Reject"}})
    assert rendered.one("Role", "kbatch-webhook")["metadata"]["namespace"] == "kbatch-ledgers"
    assert rendered.one("RoleBinding", "kbatch-webhook")["metadata"]["namespace"] == "kbatch-ledgers"
    assert rendered.names("Namespace") == {"kbatch-ledgers"}
    assert "--ledger-namespace=kbatch-ledgers" in rendered.container("webhook")["args"]
    given = render({"webhook": {"quotaPolicy": "Reject", "ledgerNamespace": "books"}})
    assert given.one("Role", "kbatch-webhook")["metadata"]["namespace"] == "books"
    assert given.names("Namespace") == render().names("Namespace") == set()
    # Whose ledger it is; the garbage collector deletes it, so nobody else has to.
    assert granted({"quotaPolicy": "Reject"}, "ClusterRole") == granted({}, "ClusterRole") | {("namespaces", "get")}


def test_queues_have_roles_that_an_administrator_can_bind(render: Callable[..., Any], default: Any) -> None:
    queues = "queues.scheduling.incubator.k8s.io"
    status = "queues/status.scheduling.incubator.k8s.io"
    reading = {(one, verb) for one in (queues, status) for verb in ("get", "list", "watch")}
    assert set(rights(default.one("ClusterRole", "kbatch-queue-viewer")["rules"])) == reading
    writing = {(queues, verb) for verb in ("create", "update", "patch", "delete", "deletecollection")}
    admin = set(rights(default.one("ClusterRole", "kbatch-queue-admin")["rules"]))
    assert admin == writing | {(queues, verb) for verb in ("get", "list", "watch")} | {(status, "get")}
    # Nobody gets them by being a user of a namespace.
    for name in ("kbatch-queue-viewer", "kbatch-queue-admin"):
        labels = default.one("ClusterRole", name)["metadata"]["labels"]
        assert not [label for label in labels if label.startswith("rbac.authorization.k8s.io")]
    alone = render({"rbac": {"aggregateToUserRoles": False}}).names("ClusterRole")
    assert {"kbatch-queue-viewer", "kbatch-queue-admin"} <= alone
    assert "kbatch-edit" not in alone


def test_the_operators_rights_to_pods_follow_the_values(render: Callable[..., Any], default: Any) -> None:
    def of_pods(**podgroup: bool) -> set[tuple[str, str]]:
        rules = render({"podgroup": podgroup}).one("ClusterRole", "kbatch-podgroup")["rules"]
        return {right for right in rights(rules) if right[0].startswith("pods")}

    reading = {("pods", "list"), ("pods", "watch")}
    making = {("pods", "create"), ("pods", "delete")}
    ungating = {("pods", "patch"), ("pods/status", "patch")}
    assert of_pods() == reading | making | ungating
    assert of_pods(memberTemplates=False) == reading | ungating
    assert of_pods(liftGates=False) == reading | making | {("pods", "patch")}
    assert of_pods(memberTemplates=False, liftGates=False) == reading
    assert "--no-lift-gates" in render({"podgroup": {"liftGates": False}}).container("podgroup")["args"]
    for webhook in ({"gatePods": True}, {"reservations": "Gate"}):
        with pytest.raises(helm_python.HelmRenderError, match="nobody would lift them"):
            render({"podgroup": {"liftGates": False}, "webhook": webhook})
    refused = render({"podgroup": {"memberTemplates": False}}).one("ValidatingAdmissionPolicy", "kbatch-podgroup")
    kept = default.one("ValidatingAdmissionPolicy", "kbatch-podgroup")
    assert len(refused["spec"]["validations"]) == len(kept["spec"]["validations"]) + 1


def test_the_queue_operators_right_to_namespaces_follows_the_values(render: Callable[..., Any], default: Any) -> None:
    def granted(**webhook: Any) -> set[tuple[str, str]]:
        rules = render({"webhook": webhook}).one("ClusterRole", "kbatch-queue")["rules"]
        return {right for right in rights(rules) if right[0] in {"namespaces", "resourcequotas"}}

    reading = {("namespaces", "list"), ("namespaces", "watch")}
    marking = {("namespaces", "patch"), ("resourcequotas", "list"), ("resourcequotas", "watch")}
    assert granted() == granted(reservations="Gate") == reading | marking
    # Where no pod is shown to the webhook, or each is, nothing is marked.
    for webhook in ({"reservations": "Off"}, {"gatePods": True}):
        assert granted(**webhook) == reading
        rendered = render({"webhook": webhook})
        assert "--mark-quotas" not in rendered.container("queue")["args"]
        assert "kbatch-queue-namespaces" not in rendered.names("ValidatingAdmissionPolicy")


def test_tokens_only_for_the_processes(default: Any) -> None:
    assert {account["automountServiceAccountToken"] for account in default.of("ServiceAccount")} == {False}
    for item in default.of("Deployment"):
        assert item["spec"]["template"]["spec"]["automountServiceAccountToken"] is True
    assert default.one("Pod", "kbatch-webhook-test")["spec"]["automountServiceAccountToken"] is False


def test_the_gang_of_helm_test_is_made_by_an_account_that_may_do_no_more(
    default: Any, render: Callable[..., Any]
) -> None:
    name = "kbatch-gang-test"
    assert default.one("Pod", name)["spec"]["serviceAccountName"] == name
    (binding,) = (one for one in default.of("RoleBinding") if one["metadata"]["name"] == name)
    assert name not in default.names("ClusterRoleBinding")
    assert (binding["metadata"]["namespace"], binding["subjects"][0]["name"]) == ("kbatch-system", name)
    groups = "podgroups.scheduling.incubator.k8s.io"
    own = {(f"{what} {each}", verb) for what, each in (("pods", f"{name}-0"), ("pods", f"{name}-1"), (groups, name))
           for verb in ("get", "delete")}  # fmt: skip
    assert set(rights(default.one("Role", name)["rules"])) == own | {("pods", "create"), (groups, "create")}
    for item in default.objects:
        if item["metadata"]["name"] == name:
            assert item["metadata"]["annotations"]["helm.sh/hook"] == "test"
            policies = item["metadata"]["annotations"]["helm.sh/hook-delete-policy"].split(",")
            assert {"before-hook-creation", "hook-succeeded"} <= {*policies}
    assert name not in render({"tests": {"gang": {"enabled": False}}}).names("Pod")


@pytest.mark.parametrize(
    ("namespaces", "where"),
    [([], "kbatch-system"), (["team-a", "kbatch-system"], "kbatch-system"), (["team-a", "team-b"], "team-a")],
)
def test_the_gang_of_helm_test_is_made_where_kbatch_looks_after_pods(
    render: Callable[..., Any], namespaces: list[str], where: str
) -> None:
    name, rendered = "kbatch-gang-test", render({"namespaces": namespaces})
    (binding,) = (one for one in rendered.of("RoleBinding") if one["metadata"]["name"] == name)
    assert rendered.one("Role", name)["metadata"]["namespace"] == binding["metadata"]["namespace"] == where
    assert binding["subjects"][0]["namespace"] == "kbatch-system"
    pod = rendered.one("Pod", name)
    assert pod["metadata"]["namespace"] == "kbatch-system"
    assert pod["spec"]["containers"][0]["args"][2] == where


def test_rights_may_be_somebody_elses_business(render: Callable[..., Any]) -> None:
    rendered = render({"rbac": {"create": False}})
    kinds = {item["kind"] for item in rendered.objects}
    assert kinds.isdisjoint({"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"})
    assert "ServiceAccount" in kinds


NOT_IN_NAMESPACES = {
    "queues.scheduling.incubator.k8s.io",
    "queues/status.scheduling.incubator.k8s.io",
    "events.events.k8s.io",
}


@pytest.mark.parametrize("component", COMPONENTS)
def test_with_a_list_of_namespaces_what_is_changed_there_is_a_matter_of_roles(
    render: Callable[..., Any], component: str
) -> None:
    rendered = render({"namespaces": ["a", "b"]})
    everywhere = set(rights(rendered.one("ClusterRole", f"kbatch-{component}")["rules"]))
    writes = {right for right in everywhere if right[1] not in {"get", "list", "watch"}}
    assert {what for what, _ in writes} <= NOT_IN_NAMESPACES
    name = f"kbatch-{component}-managed"
    roles = [role for role in rendered.of("Role") if role["metadata"]["name"] == name]
    bindings = [one for one in rendered.of("RoleBinding") if one["metadata"]["name"] == name]
    if component == "webhook":
        assert roles == bindings == []
        return
    assert [role["metadata"]["namespace"] for role in roles] == ["a", "b"]
    assert [one["metadata"]["namespace"] for one in bindings] == ["a", "b"]
    for role, binding in zip(roles, bindings, strict=True):
        # Together no more and no less than without a list.
        assert everywhere | set(rights(role["rules"])) == table(component, "everywhere")
        assert binding["roleRef"]["name"] == name
        assert binding["subjects"][0]["name"] == f"kbatch-{component}"


def test_a_list_of_namespaces_reaches_the_processes_and_the_webhooks(render: Callable[..., Any], default: Any) -> None:
    rendered = render({"namespaces": ["a", "b"], "podGroupQuota": {"namespaces": ["b", "c"]}})
    for component in COMPONENTS:
        assert "--namespaces=a,b" in rendered.container(component)["args"]
        assert not [one for one in default.container(component)["args"] if one.startswith("--namespaces")]
    for entry in rendered.one("MutatingWebhookConfiguration", "kbatch-webhook")["webhooks"]:
        within = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}
        assert entry["namespaceSelector"]["matchExpressions"][0] == within
    limited = [
        one["metadata"]["namespace"] for one in rendered.of("ResourceQuota") if "podgroups" in one["metadata"]["name"]
    ]
    assert limited == ["a", "b", "c"]
