"""The podgroup operator, the queue operator and the webhook, each by its console script, on a real API server."""

from __future__ import annotations

import base64
import functools
import http.client
import json
import shutil
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.e2e.operator_process import OperatorProcess, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.conftest import ControlPlane

pytestmark = pytest.mark.control_plane

ROOT = Path(__file__).parents[2]
CERTIFICATES = ROOT / "tests/unit/webhooks/certificates"
QUICK_LEASE = ("--lease-namespace=default", "--lease-duration=3s", "--renew-deadline=2s", "--retry-period=500ms")


@pytest.fixture(scope="module")
def bare(start_control_plane: Callable[..., ControlPlane]) -> ControlPlane:
    """A control plane of this module's own, without CRDs: other tests' processes must not do the work of these."""
    cluster = start_control_plane()
    cluster.ensure_nodes(2)
    return cluster


@pytest.fixture(scope="module")
def cluster(bare: ControlPlane) -> ControlPlane:
    install_crds(bare)
    return bare


@pytest.fixture
def namespace(cluster: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"t{abs(hash(request.node.name)) % 10**8}"
    cluster.run_kubectl("create", "namespace", name)
    yield name
    cluster.run_kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def podgroup(cluster: ControlPlane, tmp_path: Path) -> Callable[..., OperatorProcess]:
    return lambda *flags: OperatorProcess("podgroup", cluster.kubeconfig, tmp_path, *QUICK_LEASE, *flags)


@pytest.fixture
def queue(cluster: ControlPlane, tmp_path: Path) -> Callable[..., OperatorProcess]:
    return lambda *flags: OperatorProcess("queue", cluster.kubeconfig, tmp_path, *QUICK_LEASE, *flags)


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    folder = tmp_path / "certificates"
    folder.mkdir()
    mount(folder, "first")
    return folder


@pytest.fixture
def webhook(cluster: ControlPlane, tmp_path: Path, certificates: Path) -> Iterator[OperatorProcess]:
    flags = ("--port=0", f"--certificates={certificates}")
    with OperatorProcess("webhook", cluster.kubeconfig, tmp_path, *flags) as process:
        process.wait_ready()
        yield process


def install_crds(cluster: ControlPlane) -> None:
    cluster.run_kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
    cluster.run_kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(ROOT / "crds"))


def mount(folder: Path, pair: str) -> None:
    shutil.copyfile(CERTIFICATES / f"{pair}.crt", folder / "tls.crt")
    shutil.copyfile(CERTIFICATES / f"{pair}.key", folder / "tls.key")


def apply(cluster: ControlPlane, *objects: dict[str, Any]) -> None:
    cluster.run_kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))


def group(namespace: str, name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"namespace": namespace, "name": name},
        "spec": spec,
    }


def queue_object(name: str, weight: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": weight},
    }


def pod(namespace: str, name: str, of: str, *, node: str = "", role: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "annotations": {"scheduling.k8s.io/group-name": of},
            "labels": {"kbatch.dev/sub-group": role} if role else {},
        },
        "spec": {
            "schedulerName": "kube-batch",
            **({"nodeName": node} if node else {}),
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}],
        },
    }


def read(cluster: ControlPlane, path: str) -> Any:
    """A document of kbatch's group; quicker than kubectl, for what is asked often."""
    with cluster.api() as api:
        return api.get(f"/apis/scheduling.incubator.k8s.io/v1alpha1/{path}")


def got(cluster: ControlPlane, namespace: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = read(cluster, f"namespaces/{namespace}/podgroups/{name}")
    return found


def reaches(cluster: ControlPlane, namespace: str, name: str, seconds: float = 15, **wanted: Any) -> dict[str, Any]:
    """Wait until the group's status has these values; the whole object then."""

    def look() -> dict[str, Any] | None:
        found = got(cluster, namespace, name)
        status = found.get("status", {})
        return found if all(status.get(field) == value for field, value in wanted.items()) else None

    return eventually(look, seconds, lambda: f"{name} has {wanted}, not {got(cluster, namespace, name).get('status')}")


def finish(cluster: ControlPlane, namespace: str, name: str, phase: str = "Succeeded") -> None:
    patch = json.dumps({"status": {"phase": phase}})
    cluster.run_kubectl("patch", "pod", "-n", namespace, name, "--subresource=status", "--type=merge", "-p", patch)


# --- before the CRDs --------------------------------------------------------------------------------------------------


def test_a_crd_missing_at_the_start_is_said_and_noticed_when_it_comes(
    bare: ControlPlane, tmp_path: Path, certificates: Path
) -> None:
    bare.run_kubectl("delete", "--ignore-not-found", "-f", str(ROOT / "crds"))
    with (
        OperatorProcess("podgroup", bare.kubeconfig, tmp_path, *QUICK_LEASE) as podgroup,
        OperatorProcess("queue", bare.kubeconfig, tmp_path, *QUICK_LEASE) as queue,
        OperatorProcess("webhook", bare.kubeconfig, tmp_path, "--port=0", f"--certificates={certificates}") as webhook,
    ):
        for process in (podgroup, queue, webhook):
            eventually(functools.partial(names_crd, process), 15, f"{process.name} names the missing CRD")
            assert process.health()[0] == 503
            assert process.health("/healthz")[0] == 200
        install_crds(bare)
        for process in (podgroup, queue, webhook):
            process.wait_ready()


def names_crd(process: OperatorProcess) -> bool:
    said = process.health()[1].get("crds", "")
    return "podgroups.scheduling.incubator.k8s.io" in said and "not installed: kubectl apply" in said


# --- podgroup operator ------------------------------------------------------------------------------------------------


def test_a_groups_life_is_told_in_its_status(
    cluster: ControlPlane, namespace: str, podgroup: Callable[..., OperatorProcess]
) -> None:
    with podgroup() as process:
        process.wait_leading()
        apply(cluster, group(namespace, "pg", minMember=2, subGroups=[{"name": "w", "minMember": 1}]))
        reaches(cluster, namespace, "pg", phase="Pending", running=0)
        apply(cluster, pod(namespace, "a", "pg", role="w"), pod(namespace, "b", "pg"))
        reaches(cluster, namespace, "pg", phase="Pending", pending=2)
        apply(cluster, pod(namespace, "c", "pg", node="node-0", role="w"), pod(namespace, "d", "pg", node="node-1"))
        found = reaches(cluster, namespace, "pg", phase="Running", running=2, pending=2, allocated={"cpu": "1"})
        assert found["status"]["subGroups"] == [{"name": "w", "running": 1, "pending": 1, "succeeded": 0, "failed": 0}]
        cluster.run_kubectl("delete", "pod", "-n", namespace, "a", "b", "--grace-period=0", "--force")
        finish(cluster, namespace, "c")
        finish(cluster, namespace, "d")
        found = reaches(cluster, namespace, "pg", phase="Completed", succeeded=2, running=0, pending=0)
        (condition,) = found["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("Completed", "True")
        assert "allocated" not in found["status"]
        managers = {entry["manager"] for entry in found["metadata"]["managedFields"] if entry.get("subresource")}
        assert managers == {"kbatch-podgroup"}
        assert "finalizers" not in found["metadata"]
        assert not any("kopf" in name or "kbatch.dev" in name for name in found["metadata"].get("annotations", {}))


def test_the_schedulers_conditions_survive_and_count(
    cluster: ControlPlane, namespace: str, podgroup: Callable[..., OperatorProcess]
) -> None:
    with podgroup() as process:
        process.wait_leading()
        apply(cluster, group(namespace, "pg", minMember=2))
        reaches(cluster, namespace, "pg", phase="Pending")
        said = group(namespace, "pg")
        del said["spec"]
        said["status"] = {
            "conditions": [
                {
                    "type": "Enqueued",
                    "status": "True",
                    "reason": "Admitted",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ]
        }
        cluster.run_kubectl(
            "apply", "--server-side", "--subresource=status", "--field-manager=kbatch-scheduler", "-f", "-",
            stdin=yaml.safe_dump(said),
        )  # fmt: skip
        reaches(cluster, namespace, "pg", phase="InQueue")
        apply(cluster, *(pod(namespace, f"p{number}", "pg", node="node-0") for number in range(2)))
        found = reaches(cluster, namespace, "pg", phase="Running")
        assert [one["type"] for one in found["status"]["conditions"]] == ["Enqueued"]
        finish(cluster, namespace, "p0", "Failed")
        finish(cluster, namespace, "p1", "Failed")
        found = reaches(cluster, namespace, "pg", phase="Failed")
        assert {one["type"]: one["status"] for one in found["status"]["conditions"]} == {
            "Enqueued": "True",
            "Failed": "True",
        }


def test_a_restart_writes_nothing(
    cluster: ControlPlane, namespace: str, podgroup: Callable[..., OperatorProcess]
) -> None:
    groups = [group(namespace, f"pg{number}", minMember=1) for number in range(20)]
    members = [pod(namespace, f"p{number}", f"pg{number}", node="node-0") for number in range(10)]
    with podgroup() as process:
        process.wait_leading()
        apply(cluster, *groups, *members)
        wanted = {f"pg{number}": ("Running" if number < 10 else "Pending", int(number < 10)) for number in range(20)}
        eventually(
            lambda: phases(cluster, namespace) == wanted, 20, lambda: f"{wanted}, not {phases(cluster, namespace)}"
        )
    before = versions(cluster, namespace)
    with podgroup() as process:
        process.wait_leading()
        eventually(
            lambda: process.metric("kbatch_reconciles_total", '{result="unchanged"}') >= 20, 20, "all were compared"
        )
        assert process.metric("kbatch_status_writes_total", '{kind="PodGroup",result="ok"}') == 0
    assert versions(cluster, namespace) == before


def phases(cluster: ControlPlane, namespace: str) -> dict[str, tuple[str | None, int]]:
    """Phase and running pods of each group."""
    listed = read(cluster, f"namespaces/{namespace}/podgroups")["items"]
    statuses = {one["metadata"]["name"]: one.get("status", {}) for one in listed}
    return {name: (status.get("phase"), status.get("running", 0)) for name, status in statuses.items()}


def versions(cluster: ControlPlane, namespace: str) -> dict[str, str]:
    listed = read(cluster, f"namespaces/{namespace}/podgroups")["items"]
    return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in listed}


def test_what_happened_while_it_was_killed_is_caught_up(
    cluster: ControlPlane, namespace: str, podgroup: Callable[..., OperatorProcess]
) -> None:
    apply(cluster, *(group(namespace, f"pg{number}", minMember=1) for number in range(10)))
    with podgroup() as process:
        process.wait_leading()
        apply(cluster, *(pod(namespace, f"p{number}", f"pg{number}", node="node-0") for number in range(5)))
        process.kill()
    apply(cluster, *(pod(namespace, f"p{number}", f"pg{number}", node="node-0") for number in range(5, 10)))
    cluster.run_kubectl("delete", "podgroup", "-n", namespace, "pg0")
    cluster.run_kubectl("delete", "pod", "-n", namespace, "p1", "--grace-period=0", "--force")
    with podgroup() as process:
        wanted = {"pg1": ("Pending", 0)} | {f"pg{number}": ("Running", 1) for number in range(2, 10)}
        eventually(
            lambda: phases(cluster, namespace) == wanted, 30, lambda: f"{wanted}, not {phases(cluster, namespace)}"
        )
        process.wait_leading()
        assert not [line for line in process.lines() if line["level"] == "error"]


def test_of_two_one_stands_by_and_takes_over(
    cluster: ControlPlane, namespace: str, podgroup: Callable[..., OperatorProcess]
) -> None:
    with podgroup("--identity=one") as first:
        eventually(lambda: first.metric("kbatch_leader") == 1, 20, "the first leads")
        with podgroup("--identity=two") as second:
            first.wait_ready()
            second.wait_ready()
            assert second.metric("kbatch_leader") == 0
            assert first.stop() == 0
            eventually(lambda: second.metric("kbatch_leader") == 1, 5, "the second leads")
            apply(cluster, group(namespace, "pg", minMember=1), pod(namespace, "p", "pg", node="node-0"))
            reaches(cluster, namespace, "pg", phase="Running")


def test_a_missing_right_is_one_clear_sentence(cluster: ControlPlane, namespace: str, tmp_path: Path) -> None:
    cluster.run_kubectl("create", "serviceaccount", "-n", namespace, "nobody")
    token = cluster.run_kubectl("create", "token", "-n", namespace, "nobody").stdout.strip()
    kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
    kubeconfig["users"] = [{"name": user["name"], "user": {"token": token}} for user in kubeconfig["users"]]
    weak = tmp_path / "weak.yaml"
    weak.write_text(yaml.safe_dump(kubeconfig))
    with OperatorProcess("queue", weak, tmp_path, "--no-leader-elect") as process:
        said = eventually(lambda: process.health()[1].get("crds", "").startswith("this process may not"), 15, "403")
        assert said
        assert "may not list queues.scheduling.incubator.k8s.io" in process.health()[1]["crds"]
        assert process.health()[0] == 503
        warnings = [line for line in process.lines() if line["level"] == "warning"]
        assert any("nobody" in line["message"] and "queues" in line["message"] for line in warnings)
        assert token not in process.log()


# --- queue operator ---------------------------------------------------------------------------------------------------


def queue_status(cluster: ControlPlane, name: str) -> dict[str, Any]:
    found: dict[str, Any] = read(cluster, f"queues/{name}").get("status", {})
    return found


def test_the_default_queue_is_made_once_and_never_overwritten(
    cluster: ControlPlane, queue: Callable[..., OperatorProcess]
) -> None:
    cluster.run_kubectl("delete", "queue", "default", "--ignore-not-found")
    with queue() as process:
        process.wait_leading()
        assert read(cluster, "queues/default")["spec"]["weight"] == 1
        cluster.run_kubectl("patch", "queue", "default", "--type=merge", "-p", '{"spec":{"weight":7}}')
    with queue() as process:
        process.wait_leading()
        assert read(cluster, "queues/default")["spec"]["weight"] == 7


def test_shares_follow_a_change_of_weight_within_two_seconds_and_then_nothing_is_written(
    cluster: ControlPlane, namespace: str, queue: Callable[..., OperatorProcess]
) -> None:
    with queue() as process:
        process.wait_leading()
        apply(
            cluster,
            queue_object("blue", 1),
            queue_object("green", 3),
            group(namespace, "blue", minMember=2, queue="blue", minResources={"cpu": "1000"}),
            group(namespace, "green", queue="green", minResources={"cpu": "1000"}),
            pod(namespace, "p", "blue", node="node-0"),
        )
        # Two nodes of 32 CPU: 64 divide as 1 to 3.
        eventually(lambda: deserved(cluster, "blue") == "16" and deserved(cluster, "green") == "48", 15, "1 to 3")
        status = eventually(lambda: held(cluster, "blue"), 15, "blue holds its pod")
        assert status["requested"] == {"cpu": "1k"}, "as Kubernetes prints a thousand"
        assert (status["share"], status["state"], status["pending"]) == ("0.031", "Open", 1)
        cluster.run_kubectl("patch", "queue", "green", "--type=merge", "-p", '{"spec":{"weight":1}}')
        changed = time.monotonic()
        eventually(lambda: deserved(cluster, "blue") == "32" and deserved(cluster, "green") == "32", 10, "1 to 1")
        assert time.monotonic() - changed < 2
        before = {name: queue_version(cluster, name) for name in ("blue", "green")}
    with queue() as process:
        process.wait_leading()
        eventually(
            lambda: process.metric("kbatch_reconciles_total", '{result="unchanged"}') >= 2, 15, "all were compared"
        )
    assert {name: queue_version(cluster, name) for name in ("blue", "green")} == before
    cluster.run_kubectl("delete", "queue", "blue", "green")


def deserved(cluster: ControlPlane, name: str) -> str | None:
    amount: str | None = queue_status(cluster, name).get("deserved", {}).get("cpu")
    return amount


def held(cluster: ControlPlane, name: str) -> dict[str, Any] | None:
    status = queue_status(cluster, name)
    return status if status.get("allocated") == {"cpu": "500m"} else None


def queue_version(cluster: ControlPlane, name: str) -> str:
    version: str = read(cluster, f"queues/{name}")["metadata"]["resourceVersion"]
    return version


# --- webhook ----------------------------------------------------------------------------------------------------------


def configure(cluster: ControlPlane, process: OperatorProcess) -> None:
    """Have the API server send PodGroups to the webhook, as the chart does with an external URL."""
    authority = base64.b64encode((CERTIFICATES / "first.crt").read_bytes()).decode()
    apply(
        cluster,
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "kbatch-test"},
            "webhooks": [
                {
                    "name": "podgroup-defaults.kbatch.dev",
                    "admissionReviewVersions": ["v1"],
                    "clientConfig": {
                        "url": f"https://127.0.0.1:{process.said('webhook_port')}/podgroup-defaults",
                        "caBundle": authority,
                    },
                    "rules": [
                        {
                            "apiGroups": ["scheduling.incubator.k8s.io"],
                            "apiVersions": ["v1alpha1"],
                            "operations": ["CREATE", "UPDATE"],
                            "resources": ["podgroups"],
                        }
                    ],
                    "sideEffects": "None",
                    "failurePolicy": "Fail",
                    "timeoutSeconds": 5,
                }
            ],
        },
    )


@pytest.fixture
def configured(cluster: ControlPlane, webhook: OperatorProcess, namespace: str) -> Iterator[OperatorProcess]:
    configure(cluster, webhook)

    def reviewed() -> bool:
        trial = yaml.safe_dump(group(namespace, "trial", queue=""))
        ran = cluster.run_kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=trial, check=False)
        return ran.returncode == 0 and json.loads(ran.stdout)["spec"]["queue"] == "default"

    eventually(reviewed, 15, f"the API server asks the webhook\n{webhook.log()}")
    yield webhook
    cluster.run_kubectl("delete", "mutatingwebhookconfiguration", "kbatch-test")


def test_the_api_server_gets_its_defaults_from_the_webhook(
    cluster: ControlPlane, configured: OperatorProcess, namespace: str
) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}]}}
    roles = [{"name": "w", "minMember": 3, "template": template}]
    apply(cluster, group(namespace, "pg", queue="", subGroups=roles))
    spec = got(cluster, namespace, "pg")["spec"]
    assert spec["queue"] == "default"
    assert spec["minResources"] == {"cpu": "6"}
    assert read(cluster, f"namespaces/{namespace}/podgroups")["items"][0]["metadata"]["name"] == "pg"
    assert configured.metric(
        "kbatch_webhook_reviews_total", '{handler="podgroup-defaults",outcome="patched"}'
    ) >= 2  # fmt: skip
    cluster.run_kubectl("patch", "podgroup", "-n", namespace, "pg", "--type=json",
                        "-p", '[{"op":"remove","path":"/spec/minResources"}]')  # fmt: skip
    assert "minResources" not in got(cluster, namespace, "pg")["spec"]


def test_what_the_schema_refuses_is_refused_by_the_api_server_in_its_own_words(
    cluster: ControlPlane, configured: OperatorProcess, namespace: str
) -> None:
    bad = yaml.safe_dump(group(namespace, "pg", minMember=-1))
    ran = cluster.run_kubectl("create", "-f", "-", stdin=bad, check=False)
    assert ran.returncode != 0
    assert "spec.minMember" in ran.stderr


def test_a_malformed_review_over_tls_is_400_and_a_renewed_certificate_is_served(
    webhook: OperatorProcess, certificates: Path
) -> None:
    port = webhook.said("webhook_port")
    assert post(port, b"{", "first") == 400
    mount(certificates, "second")
    eventually(lambda: post(port, b"{", "second") == 400, 20, "the renewed certificate is served")
    assert webhook.alive
    assert webhook.health()[0] == 200


def post(port: int, body: bytes, trusted: str) -> int:
    """The status of the answer; 0 where the certificate is not the trusted one."""
    context = ssl.create_default_context(cafile=str(CERTIFICATES / f"{trusted}.crt"))
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    try:
        connection.request("POST", "/podgroup-defaults", body)
        return connection.getresponse().status
    except ssl.SSLCertVerificationError:
        return 0
    finally:
        connection.close()


# --- outages ----------------------------------------------------------------------------------------------------------


@pytest.mark.faults
def test_all_three_go_on_by_themselves_when_the_api_server_comes_back(
    cluster: ControlPlane,
    namespace: str,
    podgroup: Callable[..., OperatorProcess],
    queue: Callable[..., OperatorProcess],
    webhook: OperatorProcess,
) -> None:
    assert cluster.components is not None
    patient = ("--lease-duration=60s", "--renew-deadline=40s")
    with podgroup(*patient) as groups, queue(*patient) as queues:
        groups.wait_leading()
        queues.wait_leading()
        apply(cluster, group(namespace, "before", minMember=1), pod(namespace, "b", "before", node="node-0"))
        reaches(cluster, namespace, "before", phase="Running", running=1)
        cluster.components.restart("kube-apiserver")
        apply(cluster, group(namespace, "after", minMember=1), pod(namespace, "p", "after", node="node-0"))
        reaches(cluster, namespace, "after", 40, phase="Running", running=1)
        eventually(
            lambda: queue_status(cluster, "default").get("running", 0) >= 2, 40, f"the queue counts it\n{queues.log()}"
        )
        for process in (groups, queues, webhook):
            assert process.alive, process.log()
            process.wait_ready()
