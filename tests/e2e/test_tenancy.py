"""What one tenant may do to the others, held by the API server itself.

The chart is installed with its policies and webhook entries, and no webhook answers. Of kbatch's processes only the
queue operator runs, which says for the policies which namespaces may use which Queue.
"""

from __future__ import annotations

import itertools
import json
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kbatch.localcluster.errors import ApiError
from tests.e2e.operator_process import eventually
from tests.e2e.test_admission import GROUPS, JOBS, PODS, QUEUES, SECONDS, Space, container, job, pod, podgroup
from tests.e2e.webhook_replicas import NAMESPACE, RELEASE, Replicas

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import ControlPlane

pytestmark = [pytest.mark.control_plane, pytest.mark.tenant]

OPERATOR = f"system:serviceaccount:{NAMESPACE}:{RELEASE}-kbatch-podgroup"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BARE = "/apis/batch/v1/namespaces/{}/jobs"
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    """The chart with the failure policies of its own, and nothing behind its webhook's address."""
    with Replicas(control_plane, tmp_path_factory.mktemp("tenancy")) as replicas, replicas.operator() as operator:
        operator.wait_leading()
        yield replicas


@pytest.fixture
def space(control_plane: ControlPlane, installed: Replicas) -> Iterator[Space]:
    name = f"tenant-{next(_NUMBERS)}"
    control_plane.run_kubectl("create", "namespace", name)
    made = Space(control_plane, name)
    probe = podgroup("probe", priorityClassName="system-x")
    eventually(lambda: tried(made, GROUPS, probe), SECONDS, "the policies are in force")
    yield made
    made.api.close()
    control_plane.run_kubectl("delete", "namespace", name, "--wait=false")


def tried(space: Space, path: str, body: dict[str, Any]) -> ApiError | None:
    """What the API server says against an object; None where it would take it."""
    try:
        space.create(path, body, dry_run=True)
    except ApiError as error:
        return error
    return None


def allowed(space: Space, path: str, body: dict[str, Any]) -> bool:
    return tried(space, path, body) is None


def by_policy(space: Space, path: str, body: dict[str, Any]) -> ApiError | None:
    """The same, if it is the policy of the Queues that says it."""
    error = tried(space, path, body)
    return error if error is not None and "QueueNotAllowed" in str(error) else None


def make_queue(space: Space, name: str, **spec: Any) -> str:
    """A Queue of the test's own, seen by the policies."""
    name = f"{space.name}-{name}"
    body = {"apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "Queue", "metadata": {"name": name}}
    space.create(QUEUES, {**body, "spec": spec})
    return name


def label(space: Space, text: str) -> None:
    space.control_plane.run_kubectl("label", "namespace", space.name, "--overwrite", text)


def queued_pod(name: str, queue: str, scheduler: str = "kube-batch") -> dict[str, Any]:
    body = pod(name, scheduler=scheduler)
    body["metadata"]["labels"] = {"kbatch.dev/queue": queue}
    return body


# --- queues -----------------------------------------------------------------------------------------------------------


def test_who_names_a_queue_of_others_is_refused_with_the_reason(space: Space) -> None:
    queue = make_queue(space, "research", namespaceSelector={"matchLabels": {"team": "research"}})
    refused = {
        "group": (GROUPS, podgroup("g", queue=queue)),
        "pod": (PODS, queued_pod("p", queue)),
    }
    for what, (path, body) in refused.items():
        error = eventually(partial(tried, space, path, body), SECONDS, f"a {what} is refused")
        assert error.status == 403
        assert f"Queue {queue} is not open to namespace {space.name}" in str(error)
        assert "QueueNotAllowed" in str(error)
    # A Job is reviewed by the webhook before, of which none answers: its entry fails, whatever the queue.
    assert "queued-job-suspension.kbatch.dev" in str(tried(space, JOBS, job("j", queue=queue)))
    # What is not ours is not looked at.
    for other in ("default-scheduler", "volcano"):
        assert tried(space, PODS, queued_pod("p", queue, other)) is None
    assert tried(space, JOBS, job("j", queue=queue, scheduler="volcano")) is None
    label(space, "team=research")
    for path, body in refused.values():
        eventually(partial(allowed, space, path, body), SECONDS, "it is open now")


def test_jobs_that_name_a_queue_of_others_are_refused_without_the_webhooks_help(
    space: Space, installed: Replicas
) -> None:
    queue = make_queue(space, "jobs", namespaceSelector={"matchLabels": {"team": "research"}})
    installed.helm("upgrade", failurePolicies={"queuedJobs": "Ignore"})
    try:
        for scheduler in ("", "kube-batch"):
            error = eventually(
                partial(by_policy, space, JOBS, job("j", queue=queue, scheduler=scheduler)),
                SECONDS, "the Job is refused by the policy",
            )  # fmt: skip
            assert error.status == 403
        label(space, "team=research")
        eventually(lambda: tried(space, JOBS, job("j", queue=queue)) is None, SECONDS, "it is open now")
    finally:
        installed.helm("upgrade")


@pytest.mark.parametrize(
    ("selector", "open_to"),
    [
        (None, ("a", "b", "none")),
        ({}, ("a", "b", "none")),
        ({"matchLabels": {"team": "a"}}, ("a",)),
        ({"matchLabels": {"team": "a", "more": "x"}}, ()),
        ({"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]}, ("a", "b")),
        ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}, ("b", "none")),
        ({"matchExpressions": [{"key": "team", "operator": "Exists"}]}, ("a", "b")),
        ({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, ("none",)),
        ({"matchLabels": {"team": "a"}, "matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, ()),
    ],
    ids=str,
)
def test_a_selector_selects_as_kubernetes_selectors_do(
    space: Space, selector: dict[str, Any] | None, open_to: tuple[str, ...]
) -> None:
    spec = {} if selector is None else {"namespaceSelector": selector}
    queue, shut = (
        make_queue(space, "q", **spec),
        make_queue(space, "shut", namespaceSelector={"matchLabels": {"x": "y"}}),
    )
    eventually(lambda: tried(space, GROUPS, podgroup("g", queue=shut)), SECONDS, "the policies know the Queues")
    for team in ("none", "a", "b"):
        label(space, "team-" if team == "none" else f"team={team}")
        ask = allowed if team in open_to else tried
        eventually(partial(ask, space, GROUPS, podgroup("g", queue=queue)), SECONDS, f"team {team}: {ask.__name__}")


def test_what_stands_can_be_edited_elsewhere_and_not_moved_into_a_queue_of_others(space: Space) -> None:
    queue = make_queue(space, "moving")
    space.create(GROUPS, podgroup("g", queue=queue))
    space.create(GROUPS, podgroup("h"))
    space.create(PODS, queued_pod("p", "default"))
    space.api.request("PATCH", f"{QUEUES}/{queue}", {"spec": {"namespaceSelector": {"matchLabels": {"x": "y"}}}},
                      content_type="application/merge-patch+json")  # fmt: skip
    eventually(lambda: tried(space, GROUPS, podgroup("n", queue=queue)), SECONDS, "the queue is shut")
    space.patch(GROUPS, "g", {"spec": {"scheduleTimeoutSeconds": 60}})
    space.patch(PODS, "p", {"metadata": {"labels": {"app": "x"}}})
    for path, name, change in (
        (GROUPS, "h", {"spec": {"queue": queue}}),
        (PODS, "p", {"metadata": {"labels": {"kbatch.dev/queue": queue}}}),
    ):
        with pytest.raises(ApiError, match="QueueNotAllowed"):
            space.patch(path, name, change)
    space.api.request("DELETE", f"{GROUPS.format(space.name)}/g")


def test_a_selector_without_values_is_refused(space: Space) -> None:
    for expression in ({"key": "a", "operator": "In"}, {"key": "a", "operator": "Exists", "values": ["b"]}):
        body = {"spec": {"namespaceSelector": {"matchExpressions": [expression]}}}
        error = space.refused(QUEUES, {"apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "Queue",
                                       "metadata": {"name": "wrong"}, **body})  # fmt: skip
        assert "In and NotIn need values" in str(error)


def test_a_table_that_is_not_there_keeps_nobody_from_working(space: Space) -> None:
    """The scheduler lets nobody into a queue that is not for him, whatever the API server has taken."""
    queue = make_queue(space, "untold", namespaceSelector={"matchLabels": {"team": "research"}})
    bodies = ((GROUPS, podgroup("g", queue=queue)), (PODS, queued_pod("p", queue)))
    for path, body in bodies:
        eventually(partial(tried, space, path, body), SECONDS, "it is refused")
    table = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{RELEASE}-kbatch-queue-access"
    kept = space.api.get(table)
    space.api.request("DELETE", table)
    try:
        for path, body in bodies:
            eventually(partial(allowed, space, path, body), SECONDS, "it is taken")
    finally:
        # As an upgrade makes it: the operator fills it again.
        metadata = {key: kept["metadata"][key] for key in ("name", "labels", "annotations")}
        space.api.post(table.rpartition("/")[0], {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    for path, body in bodies:
        eventually(partial(tried, space, path, body), 90, "it is refused again")


# --- priorities -------------------------------------------------------------------------------------------------------


def classed(body: dict[str, Any], name: str) -> dict[str, Any]:
    """The pod with a PriorityClass."""
    return {**body, "spec": {**body["spec"], "priorityClassName": name}}


@pytest.mark.parametrize("name", ["system-node-critical", "system-cluster-critical", "system-anything"])
def test_classes_of_the_system_are_not_for_tenants(space: Space, name: str) -> None:
    template = {"spec": {"priorityClassName": name, "containers": [container()]}}
    bodies = {
        "group": (GROUPS, podgroup("g", priorityClassName=name)),
        "template": (GROUPS, podgroup("g", subGroups=[{"name": "w", "minMember": 1, "template": template}])),
        "job": (BARE, job("j", scheduler="kube-batch")),
    }
    bodies["job"][1]["spec"]["template"]["spec"]["priorityClassName"] = name
    if name != "system-anything":  # Kubernetes itself knows no such class
        bodies["pod"] = (PODS, classed(pod("p"), name))
    for what, (path, body) in bodies.items():
        error = tried(space, path, body)
        assert error is not None, what
        assert error.status == 403, what
        assert "restrictedPriorityClasses" in str(error), what
    assert tried(space, GROUPS, podgroup("g", priorityClassName="high")) is None


def test_what_is_not_ours_may_have_them_and_so_may_the_system(space: Space) -> None:
    assert tried(space, PODS, classed(pod("p", scheduler="default-scheduler"), "system-node-critical")) is None
    body = classed(pod("p"), "system-node-critical")
    body["metadata"]["namespace"] = "kube-system"
    space.api.post(PODS.format("kube-system") + "?dryRun=All", body)


def test_an_old_group_of_such_a_class_can_be_edited_elsewhere(space: Space, installed: Replicas) -> None:
    policy = f"{RELEASE}-kbatch-scheduler"
    binding = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    space.api.request("DELETE", f"{binding}/{policy}")
    body = podgroup("old", priorityClassName="system-node-critical")
    eventually(lambda: tried(space, GROUPS, body) is None, SECONDS, "the policy is not bound any more")
    space.create(GROUPS, body)
    installed.helm("upgrade")
    eventually(lambda: tried(space, GROUPS, podgroup("new", priorityClassName="system-x")), SECONDS, "it is bound")
    space.patch(GROUPS, "old", {"spec": {"scheduleTimeoutSeconds": 60}})
    with pytest.raises(ApiError, match="restrictedPriorityClasses"):
        space.patch(GROUPS, "old", {"spec": {"priorityClassName": "system-cluster-critical"}})


# --- the operator's identity ------------------------------------------------------------------------------------------


def as_operator(space: Space, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return space.control_plane.run_kubectl("--as", OPERATOR, *arguments, stdin=stdin, check=False)


def test_with_the_operators_token_one_gets_no_pods_but_members_of_groups(space: Space) -> None:
    made = space.create(GROUPS, podgroup("g"))
    owner = {"apiVersion": made["apiVersion"], "kind": "PodGroup", "name": "g", "uid": made["metadata"]["uid"],
             "controller": True}  # fmt: skip
    member = pod("g-w-0", group="g")
    member["metadata"] |= {"namespace": space.name, "ownerReferences": [owner]}
    member["spec"]["schedulingGates"] = [{"name": "kbatch.dev/in-queue"}]

    def create(body: dict[str, Any], *flags: str) -> str:
        ran = as_operator(space, "create", *flags, "-f", "-", stdin=json.dumps(body))
        return "" if ran.returncode == 0 else ran.stderr

    def without(**changes: Any) -> dict[str, Any]:
        return {**member, "metadata": {**member["metadata"], "name": "evil", **changes.pop("metadata", {})},
                "spec": {**member["spec"], **changes}}  # fmt: skip

    eventually(
        lambda: create(without(metadata={"ownerReferences": []}), "--dry-run=server"), SECONDS, "the policy is in force"
    )
    assert "no pods but the members of PodGroups" in create(without(metadata={"ownerReferences": []}))
    stranger = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}
    assert "no pods but the members of PodGroups" in create(without(metadata={"ownerReferences": [stranger]}))
    assert "no pods of other schedulers" in create(without(schedulerName="default-scheduler"))
    for namespace in ("kube-system", NAMESPACE):
        assert "no pods in this namespace" in create(without(metadata={"namespace": namespace}))
    assert create(member) == ""

    # kubectl reads what it patches, and the operator does not.
    run = space.control_plane.run_kubectl
    run("create", "role", "peek", "-n", space.name, "--verb=get", "--resource=pods")
    account = f"--serviceaccount={NAMESPACE}:{RELEASE}-kbatch-podgroup"
    run("create", "rolebinding", "peek", "-n", space.name, "--role=peek", account)

    def patch(name: str, change: Any) -> str:
        kind = "json" if isinstance(change, list) else "merge"
        ran = as_operator(space, "patch", "pod", name, "-n", space.name, f"--type={kind}", "-p", json.dumps(change))
        return "" if ran.returncode == 0 else ran.stderr

    changes_nothing = "changes nothing of pods but their scheduling gates"
    image = {"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}
    assert changes_nothing in patch("g-w-0", [image])
    assert changes_nothing in patch("g-w-0", {"metadata": {"labels": {"app": "evil"}}})
    assert changes_nothing in patch("g-w-0", {"metadata": {"ownerReferences": []}})
    assert patch("g-w-0", {"spec": {"schedulingGates": []}}) == ""
    space.create(PODS, pod("theirs"))
    ran = as_operator(space, "delete", "pod", "theirs", "-n", space.name, "--wait=false")
    assert "no pods but the members of PodGroups" in ran.stderr
    assert as_operator(space, "delete", "pod", "g-w-0", "-n", space.name, "--wait=false").returncode == 0


def test_with_the_queue_operators_token_one_changes_nothing_of_namespaces_but_its_label(space: Space) -> None:
    run = space.control_plane.run_kubectl
    run("create", "clusterrole", "peek-namespaces", "--verb=get", "--resource=namespaces")
    account = f"--serviceaccount={NAMESPACE}:{RELEASE}-kbatch-queue"
    run("create", "clusterrolebinding", "peek-namespaces", "--clusterrole=peek-namespaces", account)

    def patch(change: dict[str, Any], name: str = space.name) -> str:
        ran = run(
            "--as", f"system:serviceaccount:{NAMESPACE}:{RELEASE}-kbatch-queue", "patch", "namespace", name,
            "--type=merge", "-p", json.dumps({"metadata": change}), check=False,
        )  # fmt: skip
        return "" if ran.returncode == 0 else ran.stderr

    try:
        label(space, "team=a")
        refused = "changes nothing of namespaces but their label kbatch.dev/quota"
        eventually(lambda: refused in patch({"annotations": {"a": "b"}}), SECONDS, "the policy is in force")
        for change in (
            {"labels": {"team": "b"}}, {"labels": {"team": None}}, {"labels": {"new": "x"}},
            {"labels": {"pod-security.kubernetes.io/enforce": "privileged", "kbatch.dev/quota": "true"}},
            {"finalizers": ["kbatch.dev/x"]},
        ):  # fmt: skip
            assert refused in patch(change), change
        assert patch({"labels": {"kbatch.dev/quota": "true"}}) == ""
        assert patch({"labels": {"kbatch.dev/quota": None}}) == ""
        for verb in ("create", "update", "delete"):
            ran = run(
                "auth", "can-i", verb, "namespaces", "--as",
                f"system:serviceaccount:{NAMESPACE}:{RELEASE}-kbatch-queue", check=False,
            )  # fmt: skip
            assert ran.stdout.strip() == "no", verb
    finally:
        run("delete", "clusterrolebinding,clusterrole", "peek-namespaces")


def test_others_make_and_change_pods_as_ever(space: Space) -> None:
    space.create(PODS, pod("plain", scheduler="default-scheduler"))
    space.patch(PODS, "plain", {"metadata": {"labels": {"app": "x"}}})
    space.api.request("DELETE", f"{PODS.format(space.name)}/plain")


# --- the webhook while it is away, and who can find it ----------------------------------------------------------------


def test_while_the_webhook_is_away_jobs_do_not_pass_by_their_queue_and_all_else_goes_on(space: Space) -> None:
    error = tried(space, JOBS, job("j", queue="default"))
    assert error is not None
    assert "queued-job-suspension.kbatch.dev" in str(error)
    for path, body in (
        (JOBS, job("j")),
        (JOBS, job("j", group="g", scheduler="kube-batch")),
        (GROUPS, podgroup("g")),
        (PODS, pod("p", group="g")),
    ):
        assert tried(space, path, body) is None


def test_users_of_a_namespace_cannot_read_the_paths_of_the_webhook(space: Space) -> None:
    account = f"system:serviceaccount:{space.name}:default"
    space.control_plane.run_kubectl(
        "create",
        "rolebinding",
        "tenant",
        "-n",
        space.name,
        "--clusterrole=admin",
        f"--serviceaccount={space.name}:default",
    )
    for what, namespace in (
        ("mutatingwebhookconfigurations", space.name), ("validatingwebhookconfigurations", space.name),
        ("secrets", NAMESPACE), ("pods", NAMESPACE), ("configmaps", NAMESPACE),
    ):  # fmt: skip
        for verb in ("get", "list", "watch"):
            ran = space.control_plane.run_kubectl(
                "auth", "can-i", verb, what, "-n", namespace, "--as", account, check=False
            )
            assert ran.stdout.strip() == "no", (verb, what)


def labelled(kind: str, key: str, *, template: bool) -> dict[str, Any]:
    """A Job of ours with a label or an annotation on it, or on its pods."""
    made = job("spelled", scheduler="kube-batch")
    at = made["spec"]["template"] if template else made
    at.setdefault("metadata", {}).setdefault(kind, {})[key] = "x"
    return made


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (labelled("annotations", "scheduling.k8s.io/groupname", template=True), "scheduling.k8s.io/groupname has no"),
        (labelled("annotations", "example.org/Group_Name", template=True), "start one by one: example.org/Group_Name"),
        (labelled("labels", "scheduling.k8s.io/group-name", template=True), "annotation scheduling.k8s.io/group-name"),
        (labelled("annotations", "scheduling.k8s.io/group-name", template=False), "of spec.template names one"),
        (labelled("annotations", "kbatch.dev/queue", template=False), "it is in no queue: kbatch.dev/queue has no"),
        (labelled("labels", "kbatch.dev/queues", template=False), "the label kbatch.dev/queue of the Job names one"),
        (labelled("annotations", "scheduling.k8s.io/group-min-member", template=True), ""),
        (labelled("labels", "example.org/group", template=True), ""),
    ],
)
def test_whoever_nearly_names_a_group_or_a_queue_is_warned(space: Space, body: dict[str, Any], said: str) -> None:
    def warned() -> str:
        again = ("create", "--namespace", space.name, "--dry-run=server", "--filename=-")
        return space.control_plane.run_kubectl(*again, stdin=json.dumps(body)).stderr

    if said:
        eventually(lambda: said in warned(), SECONDS, f"the API server warns: {said}")
    else:
        assert warned() == ""


def checking(space: Space, name: str) -> Any:
    return space.api.get(f"{POLICIES}/{name}").get("status", {}).get("typeChecking")


def test_the_expressions_are_right_in_the_api_servers_own_view(space: Space) -> None:
    """Its controller checks their types against the kinds that they are for."""
    names = [
        f"{RELEASE}-kbatch-{name}"
        for name in ("podgroup", "pods", "queue", "queue-labels", "queue-namespaces", "scheduler", "spelling")
    ]
    for name in names:
        checked = eventually(
            partial(checking, space, name),
            SECONDS, f"{name} is checked",
        )  # fmt: skip
        assert checked.get("expressionWarnings", []) == [], name
