"""The chart on a real API server: installed, upgraded, taken away; the rights that its accounts really have."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import ssl
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kbatch.localcluster.errors import ApiError
from kbatch.localcluster.ports import free_ports
from kbatch.localcluster.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import ControlPlane

pytestmark = [pytest.mark.control_plane, pytest.mark.installed]

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "kbatch"
RIGHTS: dict[str, dict[str, dict[str, list[str]]]] = yaml.safe_load(
    (ROOT / "tests" / "unit" / "chart" / "rights.yaml").read_text()
)
# Neither the names of a user's installation nor those of another test's.
RELEASE, NAMESPACE, USERS = "kbatch-chart-test", "kbatch-chart-test", "kbatch-chart-users"
CRDS = ("podgroups.scheduling.incubator.k8s.io", "queues.scheduling.incubator.k8s.io")
TIMEOUT = 30.0


@dataclass(frozen=True)
class Chart:
    """The chart on a cluster, its processes nowhere: what it makes is all that is looked at."""

    control_plane: ControlPlane
    home: Path
    port: int

    def helm(self, *arguments: str) -> str:
        return self.control_plane.run_helm(self.home, *arguments)

    def deploy(self, command: str, *flags: str, **webhook: object) -> None:
        """`install` or `upgrade` the chart, with values for the webhook besides the usual ones."""
        values: dict[str, Any] = {name: {"replicas": 0} for name in ("scheduler", "podgroup", "queue", "webhook")}
        values["webhook"] |= {"url": f"https://127.0.0.1:{self.port}"} | webhook
        # Helm reads a file, not standard input; JSON is YAML.
        path = self.home / "values.json"
        path.write_text(json.dumps(values))
        namespace = ["--create-namespace"] if command == "install" else []
        # The CRDs may be another test's, which applied them with kubectl.
        own = ["--namespace", NAMESPACE, "--take-ownership", "--force-conflicts"]
        self.helm(command, RELEASE, str(CHART), *own, *namespace, "--values", str(path), *flags)

    def get(self, *arguments: str) -> Any:
        return self.control_plane.kubectl_json("get", *arguments)

    def certificate(self) -> dict[str, str]:
        data: dict[str, str] = self.get("secret", f"{RELEASE}-webhook-certificates", "-n", NAMESPACE)["data"]
        return data

    def authority(self) -> str:
        configuration = self.get("mutatingwebhookconfiguration", f"{RELEASE}-webhook")
        authority: str = configuration["webhooks"][0]["clientConfig"]["caBundle"]
        return authority


def apply(control_plane: ControlPlane, *objects: dict[str, Any]) -> None:
    """Apply objects, again while the API server has not yet taken up a new kind of object."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})

    def applied() -> bool:
        return control_plane.run_kubectl("apply", "-f", "-", stdin=text, check=False).returncode == 0

    if not wait_until(applied, TIMEOUT, every=0.2):
        control_plane.run_kubectl("apply", "-f", "-", stdin=text)


def podgroup(name: str, namespace: str = USERS) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minMember": 2, "queue": "chart-users"},
    }


def queue() -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": "chart-users"},
        "spec": {"weight": 3},
    }


@pytest.fixture(scope="module")
def chart(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chart]:
    """The chart installed, in a cluster with a user's namespace; both are gone afterwards."""
    (port,) = free_ports(1, set())
    installed = Chart(control_plane, tmp_path_factory.mktemp("helm"), port)
    installed.deploy("install")
    try:
        for crd in CRDS:
            control_plane.run_kubectl("wait", "--for=condition=Established", "--timeout=30s", f"crd/{crd}")
        control_plane.run_kubectl("create", "namespace", USERS)
        yield installed
    finally:
        installed.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--ignore-not-found")
        control_plane.run_kubectl("delete", "namespace", USERS, NAMESPACE, "--ignore-not-found", "--wait=false")
        control_plane.run_kubectl("delete", "queue", "chart-users", "--ignore-not-found")


# ---------------------------------------------------------------------------------------------------------- rights

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
# What a process that went astray, or whoever took it over, would look for.
TEMPTING = (
    "secrets", "configmaps", "serviceaccounts", "serviceaccounts/token", "pods/exec", "pods/log", "nodes/proxy",
    "nodes/status", "bindings", "endpoints", "services", "deployments.apps", "replicasets.apps",
    "customresourcedefinitions.apiextensions.k8s.io", "clusterroles.rbac.authorization.k8s.io",
    "clusterrolebindings.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io", "certificatesigningrequests.certificates.k8s.io",
    "leases.coordination.k8s.io",
)  # fmt: skip


def asked(account: str, verb: str, what: str, namespace: str = "", name: str = "") -> dict[str, Any]:
    """A SubjectAccessReview: what `kubectl auth can-i VERB WHAT --as ACCOUNT` sends."""
    resource, _, group = what.partition(".")
    resource, _, subresource = resource.partition("/")
    if "/" in group:
        group, _, subresource = group.partition("/")
    attributes = {"verb": verb, "group": group, "resource": resource, "subresource": subresource, "name": name}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{NAMESPACE}:{RELEASE}-{account}",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"],
            "resourceAttributes": {**attributes, "namespace": namespace},
        },
    }


def answers(control_plane: ControlPlane, reviews: list[dict[str, Any]]) -> list[bool]:
    """Whether each of the reviews is allowed."""
    with control_plane.api() as api, ThreadPoolExecutor(8) as pool:
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return [answer["status"]["allowed"] for answer in pool.map(lambda review: api.post(path, review), reviews)]


def test_each_account_may_do_what_the_table_says_and_nothing_else(chart: Chart) -> None:
    named = {what for rights in RIGHTS.values() for what in rights.get("everywhere", {})}
    questions = list(itertools.product(RIGHTS, sorted(named | set(TEMPTING)), VERBS))
    reviews = [asked(account, verb, what, USERS) for account, what, verb in questions]
    allowed = {question for question, yes in zip(questions, answers(chart.control_plane, reviews), strict=True) if yes}
    expected = {
        (account, what, verb)
        for account, rights in RIGHTS.items()
        for what, verbs in rights.get("everywhere", {}).items()
        for verb in verbs
    }
    assert allowed == expected


def test_each_account_may_use_its_own_lease_and_no_other(chart: Chart) -> None:
    names = ("kbatch-scheduler", "kbatch-podgroup", "kbatch-queue", "other")
    questions = [
        (account, verb, namespace, name)
        for account in RIGHTS
        for verb in VERBS
        for namespace in (NAMESPACE, "kube-system")
        for name in (("",) if verb == "create" else names)
    ]
    reviews = [asked(a, verb, "leases.coordination.k8s.io", space, name) for a, verb, space, name in questions]
    allowed = {question for question, yes in zip(questions, answers(chart.control_plane, reviews), strict=True) if yes}
    elected = ("scheduler", "podgroup", "queue")
    assert allowed == {(account, "create", NAMESPACE, "") for account in elected} | {
        (account, verb, NAMESPACE, f"kbatch-{account}") for account in elected for verb in ("get", "update")
    }


@pytest.mark.parametrize(
    ("account", "question", "answer"),
    [
        ("scheduler", ["create", "pods/binding"], "yes"),
        ("scheduler", ["delete", "pods"], "no"),
        ("podgroup", ["patch", "podgroups/status"], "yes"),
        ("podgroup", ["create", "pods/binding"], "no"),
        ("queue", ["create", "queues"], "yes"),
        ("queue", ["delete", "queues"], "no"),
        ("webhook", ["list", "podgroups"], "yes"),
        ("webhook", ["patch", "podgroups"], "no"),
        ("webhook", ["list", "jobs"], "yes"),
        ("webhook", ["patch", "jobs"], "no"),
        ("webhook", ["update", "configmaps"], "no"),
        ("webhook", ["get", "secrets"], "no"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_kubectl_says_the_same(chart: Chart, account: str, question: list[str], answer: str) -> None:
    verb, what = question
    resource, _, subresource = what.partition("/")
    said = chart.control_plane.run_kubectl(
        "auth", "can-i", verb, resource, *([f"--subresource={subresource}"] if subresource else []),
        "-n", USERS, "--as", f"system:serviceaccount:{NAMESPACE}:{RELEASE}-{account}", check=False,
    )  # fmt: skip
    assert said.stdout.strip() == answer, said.stderr


def test_who_may_edit_a_namespace_may_make_podgroups_in_it_but_no_queues(chart: Chart) -> None:
    chart.control_plane.run_kubectl("create", "rolebinding", "alice", "--clusterrole=edit", "--user=alice", "-n", USERS)

    def can(verb: str, what: str, namespace: str) -> bool:
        review = asked("", verb, what, namespace)
        review["spec"] |= {"user": "alice", "groups": ["system:authenticated"]}
        return answers(chart.control_plane, [review]) == [True]

    podgroups, queues = CRDS
    # A controller adds the chart's roles to that of Kubernetes.
    assert wait_until(lambda: can("create", podgroups, USERS), TIMEOUT, every=0.2)
    assert can("watch", podgroups, USERS)
    assert not can("create", podgroups, "default")
    assert not can("create", queues, "")


# -------------------------------------------------------------------------------------------------------- admission


class Reviewer(BaseHTTPRequestHandler):
    """Allows everything, and notes what it was asked."""

    seen: list[tuple[str, str]]

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = review["request"]
        # The configuration of the moment calls with a query, here as there only the path counts.
        if self.path.startswith("/podgroup-defaults/"):
            self.seen.append((asked["operation"], asked["name"]))
        body = json.dumps(
            {
                "apiVersion": review["apiVersion"],
                "kind": review["kind"],
                "response": {"uid": asked["uid"], "allowed": True},
            }
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@contextlib.contextmanager
def reviewer(chart: Chart, folder: Path) -> Iterator[list[tuple[str, str]]]:
    """A server where the chart says that the webhook is, with the certificate that the chart made for it."""
    for name in ("tls.crt", "tls.key"):
        (folder / name).write_bytes(base64.b64decode(chart.certificate()[name]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    seen: list[tuple[str, str]] = []
    server = ThreadingHTTPServer(("127.0.0.1", chart.port), type("Noting", (Reviewer,), {"seen": seen}))
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_webhook_is_asked_about_new_specs_of_users_and_nothing_else(chart: Chart, tmp_path: Path) -> None:
    if chart.control_plane.components is None:
        pytest.skip("the API server of a foreign cluster does not reach this machine")
    run = chart.control_plane.run_kubectl
    with reviewer(chart, tmp_path) as seen:
        # A new configuration takes a moment until it is in force.
        counter = itertools.count()

        def heard() -> bool:
            apply(chart.control_plane, podgroup(f"warm-{next(counter)}"))
            return bool(seen)

        assert wait_until(heard, TIMEOUT, every=0.2)
        seen.clear()
        apply(chart.control_plane, podgroup("a"))
        assert seen == [("CREATE", "a")]
        run("label", "podgroup", "a", "-n", USERS, "note=x")
        run(
            "patch",
            "podgroup",
            "a",
            "-n",
            USERS,
            "--subresource=status",
            "--type=merge",
            "-p",
            '{"status":{"running":1}}',
        )
        apply(chart.control_plane, podgroup("b", NAMESPACE))
        apply(chart.control_plane, podgroup("c", "kube-system"))
        assert seen == [("CREATE", "a")]
        run("patch", "podgroup", "a", "-n", USERS, "--type=merge", "-p", '{"spec":{"minMember":3}}')
        assert seen == [("CREATE", "a"), ("UPDATE", "a")]
        run("delete", "podgroup", "-n", "kube-system", "c")
        run("delete", "podgroup", "-n", NAMESPACE, "b")


def test_without_the_webhook_podgroups_are_taken_as_they_are(chart: Chart) -> None:
    apply(chart.control_plane, podgroup("unseen"))
    assert chart.get("podgroup", "unseen", "-n", USERS)["spec"]["minMember"] == 2


def test_with_the_failure_policy_fail_they_are_refused_instead(chart: Chart) -> None:
    chart.deploy("upgrade", failurePolicy="Fail")
    refused = subprocess.CompletedProcess([], 0, "", "")

    def refuses() -> bool:
        nonlocal refused
        refused = chart.control_plane.run_kubectl(
            "create", "--dry-run=server", "-f", "-", stdin=json.dumps(podgroup("refused")), check=False
        )
        return refused.returncode != 0

    try:
        assert wait_until(refuses, TIMEOUT, every=0.2)
        assert "podgroup-defaults.kbatch.dev" in refused.stderr
    finally:
        chart.deploy("upgrade")


# ---------------------------------------------------------------------------------------------------------- security


def test_the_pods_meet_the_restricted_standard(chart: Chart) -> None:
    run = chart.control_plane.run_kubectl
    run("label", "namespace", NAMESPACE, "--overwrite", "pod-security.kubernetes.io/enforce=restricted")
    deployments = chart.get("deployments", "-n", NAMESPACE)["items"]
    assert len(deployments) == 4
    for deployment in deployments:
        pod = {"apiVersion": "v1", "kind": "Pod", **deployment["spec"]["template"]}
        pod["metadata"] = {"name": "restricted", "namespace": NAMESPACE}
        run("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
        # The same pod without one of the restrictions is refused: the standard is in force.
        del pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"]
        refused = run("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod), check=False)
        assert "allowPrivilegeEscalation" in refused.stderr


# ----------------------------------------------------------------------------------------------- upgrade, uninstall


def trusts(authority: str, served: dict[str, str], folder: Path) -> bool:
    """Whether a client that knows this authority takes a server with this certificate (all PEM in base64)."""
    client = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
    client.check_hostname = False
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for name in ("tls.crt", "tls.key"):
        (folder / name).write_bytes(base64.b64decode(served[name]))
    server.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True))
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
    return bool(ends[0].getpeercert())


def test_the_certificate_stays_as_long_as_it_serves(chart: Chart, tmp_path: Path) -> None:
    chart.deploy("upgrade")
    first = chart.certificate()
    assert chart.authority() == first["ca.crt"]
    chart.deploy("upgrade", timeoutSeconds=3)
    assert chart.certificate() == first
    assert chart.authority() == first["ca.crt"]

    # Another address: the old certificate would not be trusted there.
    chart.deploy("upgrade", url="https://127.0.0.2:1")
    second = chart.certificate()
    assert second["tls.crt"] != first["tls.crt"]
    assert chart.authority() == second["ca.crt"]

    # Its time is nearly over.
    secret = f"{RELEASE}-webhook-certificates"
    chart.control_plane.run_kubectl(
        "annotate", "secret", secret, "-n", NAMESPACE, "--overwrite", "kbatch.dev/certificate-renew-at=1"
    )
    # The annotation is kubectl's now; Helm, which applies on the server's side, respects that otherwise.
    chart.deploy("upgrade", "--force-conflicts", url="https://127.0.0.2:1")
    third = chart.certificate()
    assert third["tls.crt"] != second["tls.crt"]
    assert chart.authority() == third["ca.crt"]
    # Replicas serve the one before until they see the Secret, and the one after from then on: both are trusted.
    for served in (second, third):
        assert trusts(chart.authority(), served, tmp_path)
    assert not trusts(chart.authority(), first, tmp_path)

    # Once more, as the values are: nothing is made anew.
    chart.deploy("upgrade", url="https://127.0.0.2:1")
    assert chart.certificate() == third

    # Somebody wants another one.
    chart.control_plane.run_kubectl("delete", "secret", secret, "-n", NAMESPACE)
    chart.deploy("upgrade", url="https://127.0.0.2:1")
    assert chart.certificate()["tls.crt"] != third["tls.crt"]
    assert chart.authority() == chart.certificate()["ca.crt"]


def test_upgrade_and_uninstall_leave_what_is_the_users(chart: Chart) -> None:
    users = [("podgroup", "kept", "-n", USERS), ("queue", "chart-users"), *(("crd", crd) for crd in CRDS)]

    def identities() -> list[tuple[str, Any]]:
        found = [chart.get(*arguments) for arguments in users]
        return [(item["metadata"]["uid"], item["spec"]) for item in found]

    apply(chart.control_plane, podgroup("kept"), queue())
    before = identities()
    chart.deploy("upgrade", failurePolicy="Ignore")
    assert identities() == before
    assert chart.get("deployments", "-n", NAMESPACE)["items"]

    chart.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait")
    assert identities() == before
    kinds = (
        "deployments,replicasets,services,secrets,configmaps,serviceaccounts,roles,rolebindings,poddisruptionbudgets,"
        "networkpolicies,clusterroles,clusterrolebindings,mutatingwebhookconfigurations,"
        "validatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings"
    )
    selector = f"app.kubernetes.io/instance={RELEASE}"
    assert chart.get(kinds, "-n", NAMESPACE, "--selector", selector)["items"] == []
    # Their objects can still be changed and removed: nothing waits for a process that is no more.
    chart.control_plane.run_kubectl("delete", "podgroup", "kept", "-n", USERS, "--timeout=20s")
    with chart.control_plane.api() as api, pytest.raises(ApiError):
        api.get(f"/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/{USERS}/podgroups/kept")

    # And once more onto what was left.
    chart.deploy("install")
    assert chart.get("queue", "chart-users")["spec"] == before[1][1]
