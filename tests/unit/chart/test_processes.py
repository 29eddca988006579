"""The four Deployments: programs, arguments and environment as the processes understand them, probes, security."""

from __future__ import annotations

import importlib
import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kbatch.api import configuration, names
from kbatch.engine import build_policy
from kbatch.localcluster.pods import expand, port_names
from kbatch.process.run import AT_LAST_SECONDS
from kbatch.process.settings import ProcessSettings, parse
from operators.scheduler.process import SchedulerSettings

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
ELECTED = ("scheduler", "podgroup", "queue")
COMPONENTS = (*ELECTED, "webhook")

COMMON = [
    "--bind-address=$(BIND_ADDRESS)",
    "--health-port=$(HEALTH_PORT)",
    "--metrics-port=$(METRICS_PORT)",
    "--log-level=info",
    "--log-format=json",
    "--scheduler-name=kube-batch",
]


def lease(component: str) -> list[str]:
    return [
        "--leader-elect",
        "--lease-namespace=$(POD_NAMESPACE)",
        f"--lease-name=kbatch-{component}",
        "--identity=$(POD_NAME)",
        "--lease-duration=12s",
        "--renew-deadline=8s",
        "--retry-period=2s",
    ]


ARGUMENTS = {
    "scheduler": [
        *COMMON,
        *lease("scheduler"),
        "--scheduler-conf=/etc/kbatch/scheduler/scheduler.yaml",
        "--schedule-period=1s",
        "--cycle-gap=50ms",
        "--default-queue=default",
        "--bind-parallelism=128",
    ],
    "podgroup": [
        *COMMON,
        *lease("podgroup"),
        "--object-kinds=v1/Service=services,v1/ConfigMap=configmaps,networking.k8s.io/v1/Ingress=ingresses",
        "--lift-gates",
    ],
    "queue": [
        *COMMON,
        *lease("queue"),
        "--default-queue=default",
        "--access-table=$(POD_NAMESPACE)/kbatch-queue-access",
        "--mark-quotas",
    ],
    "webhook": [
        *COMMON,
        "--port=$(WEBHOOK_PORT)",
        "--certificates=/etc/kbatch/certificates",
        "--default-queue=default",
        "--quota-policy=Queue",
        "--path-secret=/etc/kbatch/path/secret",
        "--ledger-namespace=kbatch-ledgers",
        "--reservations=Refuse",
        "--no-gate-pods",
    ],
}


@pytest.mark.parametrize("component", COMPONENTS)
def test_programs_and_arguments(default: Any, component: str) -> None:
    container = default.container(component)
    assert container["command"] == [f"kbatch-{component}"]
    assert container["args"] == ARGUMENTS[component]


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_program_is_a_script_of_the_project(default: Any, component: str) -> None:
    assert default.container(component)["command"][0] in SCRIPTS


def settings_of(component: str) -> type[ProcessSettings]:
    """The settings that a process reads its arguments into: the one class of that kind that its package defines."""
    script = SCRIPTS[f"kbatch-{component}"].partition(":")[0]
    package = script.rpartition(".")[0]
    (found,) = (
        value
        for value in vars(importlib.import_module(script)).values()
        if isinstance(value, type) and issubclass(value, ProcessSettings) and value.__module__.startswith(package)
    )
    return found


@pytest.mark.parametrize("component", COMPONENTS)
def test_the_process_understands_its_arguments(default: Any, component: str) -> None:
    container = default.container(component)
    environment = {entry["name"]: entry.get("value", entry["name"].lower()) for entry in container["env"]}
    given = [expand(argument, environment) for argument in container["args"]]
    settings: Any = parse(settings_of(component), prog=component, argv=given, environ={})
    assert (settings.bind_address, settings.health_port, settings.metrics_port) == ("0.0.0.0", 8081, 8080)  # noqa: S104
    assert settings.scheduler_name == names.DEFAULT_SCHEDULER_NAME
    if component in ELECTED:
        assert settings.leader_elect
        assert settings.lease_name == f"kbatch-{component}"
        assert (settings.resolved_lease_namespace(), settings.resolved_identity()) == ("pod_namespace", "pod_name")
        assert (settings.lease_duration, settings.renew_deadline, settings.retry_period) == (12, 8, 2)
    if component == "webhook":
        assert (settings.port, settings.certificates) == (9443, "/etc/kbatch/certificates")
    if component != "podgroup":
        assert settings.default_queue == names.DEFAULT_QUEUE


@pytest.mark.parametrize("component", ELECTED)
def test_a_variable_cannot_switch_the_election(render: Callable[..., Any], default: Any, component: str) -> None:
    alone = render({"leaderElection": {"enabled": False}, **{name: {"replicas": 1} for name in ELECTED}})
    for rendered, elects in ((default, True), (alone, False)):
        given = [one for one in rendered.container(component)["args"] if "$(" not in one]
        environ = {"KBATCH_LEADER_ELECT": str(not elects)}
        settings: Any = parse(settings_of(component), prog=component, argv=given, environ=environ)
        assert settings.leader_elect is elects


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_process_may_end_by_itself_before_it_is_killed(render: Callable[..., Any], component: str) -> None:
    """Also with the least that the chart allows: what is killed has not given its Lease back."""
    schema = json.loads((ROOT / "charts" / "kbatch" / "values.schema.json").read_text())
    least = schema["definitions"]["gracePeriod"]["minimum"]
    container = render().container(component)
    before = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    rendered = render({component: {"terminationGracePeriodSeconds": least}})
    assert rendered.pod_spec(component)["terminationGracePeriodSeconds"] > before + AT_LAST_SECONDS
    assert render().pod_spec(component)["terminationGracePeriodSeconds"] >= least


@pytest.mark.parametrize("component", COMPONENTS)
def test_environment_names_every_port_address_and_the_pod_itself(default: Any, component: str) -> None:
    container = default.container(component)
    ports = {"health": 8081, "metrics": 8080} | ({"webhook": 9443} if component == "webhook" else {})
    assert port_names({"metadata": {"name": "d"}, "spec": {"template": {"spec": {"containers": [container]}}}}) == ports
    environment = {entry["name"]: entry for entry in container["env"]}
    assert set(environment) == {
        "POD_NAME",
        "POD_NAMESPACE",
        "POD_UID",
        "BIND_ADDRESS",
        *(f"{port.upper()}_PORT" for port in ports),
    }
    assert environment["BIND_ADDRESS"]["value"] == "0.0.0.0"  # noqa: S104
    assert environment["POD_NAME"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert environment["POD_NAMESPACE"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.namespace"}}
    assert environment["POD_UID"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.uid"}}


@pytest.mark.parametrize("component", COMPONENTS)
def test_no_argument_refers_to_a_variable_that_is_not_there(default: Any, component: str) -> None:
    container = default.container(component)
    known = {entry["name"]: "" for entry in container["env"]}
    assert [argument for argument in container["args"] if "$(" in expand(argument, known)] == []


def test_a_single_replica_without_election(render: Callable[..., Any]) -> None:
    one = {component: {"replicas": 1} for component in COMPONENTS}
    rendered = render({"leaderElection": {"enabled": False}, **one})
    for component in ELECTED:
        arguments = rendered.container(component)["args"]
        assert "--no-leader-elect" in arguments
        assert not any(argument.startswith(("--lease", "--identity", "--leader-elect")) for argument in arguments)
        # Else an upgrade would have two of them act at once.
        assert rendered.one("Deployment", f"kbatch-{component}")["spec"]["strategy"] == {"type": "Recreate"}
    assert rendered.one("Deployment", "kbatch-webhook")["spec"]["strategy"]["type"] == "RollingUpdate"
    # The table of Queues, and what the scheduler has learned.
    roles = [role for role in rendered.of("Role") if role["metadata"]["name"] != "kbatch-gang-test"]
    assert len(roles) == 2
    assert {resource for role in roles for rule in role["rules"] for resource in rule["resources"]} == {"configmaps"}


def test_what_the_commands_have_to_know_is_said_by_the_scheduler_s_configuration(
    render: Callable[..., Any], default: Any
) -> None:
    def said(rendered: Any) -> dict[str, str]:
        found: dict[str, str] = rendered.one("ConfigMap", "kbatch-scheduler")["metadata"]["annotations"]
        return found

    usual = {"kbatch.dev/scheduler-name": "kube-batch", "kbatch.dev/default-queue": "default"}
    assert said(default) == usual
    values = {"schedulerName": "gpu", "defaultQueue": "usual", "namespaces": ["a", "b"]}
    assert said(render(values)) == {
        "kbatch.dev/scheduler-name": "gpu", "kbatch.dev/default-queue": "usual", "kbatch.dev/namespaces": "a,b",
    }  # fmt: skip


def test_values_reach_the_arguments(render: Callable[..., Any]) -> None:
    rendered = render(
        {
            "schedulerName": "batch",
            "defaultQueue": "everybody",
            "bindAddress": "127.0.0.1",
            "logLevel": "debug",
            "scheduler": {"schedulePeriod": "5s", "bindParallelism": 8, "extraArgs": ["--cycle-gap=1ms"]},
            "webhook": {"ports": {"webhook": 10250}},
        }
    )
    arguments = rendered.container("scheduler")["args"]
    for component in ("queue", "webhook"):
        assert "--default-queue=everybody" in rendered.container(component)["args"]
    assert {"--scheduler-name=batch", "--default-queue=everybody", "--schedule-period=5s"} <= set(arguments)
    assert {"--bind-parallelism=8", "--log-level=debug"} <= set(arguments)
    assert arguments[-1] == "--cycle-gap=1ms"
    assert {"name": "BIND_ADDRESS", "value": "127.0.0.1"} in rendered.container("queue")["env"]
    assert {"name": "WEBHOOK_PORT", "value": "10250"} in rendered.container("webhook")["env"]


def test_the_image(render: Callable[..., Any], chart: Any, default: Any) -> None:
    version = chart.metadata["appVersion"]
    assert {default.container(component)["image"] for component in COMPONENTS} == {f"kbatch-operators:{version}"}
    digest = "sha256:" + "0" * 64
    assert render({"image": {"digest": digest}}).container("queue")["image"] == f"kbatch-operators@{digest}"


def test_the_version_of_the_chart_is_that_of_the_project(chart: Any) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert chart.version == chart.metadata["appVersion"] == version


def test_replicas_and_what_the_default_installation_survives(default: Any) -> None:
    for item in default.of("Deployment"):
        assert item["spec"]["replicas"] == 2
        assert item["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
        spec = item["spec"]["template"]["spec"]
        keys = [constraint["topologyKey"] for constraint in spec["topologySpreadConstraints"]]
        assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
        assert spec["priorityClassName"] == "system-cluster-critical"
    assert {budget["spec"]["maxUnavailable"] for budget in default.of("PodDisruptionBudget")} == {1}
    assert default.names("PodDisruptionBudget") == default.names("Deployment")


@pytest.mark.parametrize("component", COMPONENTS)
def test_probes_ask_the_health_port(default: Any, component: str) -> None:
    container = default.container(component)
    paths = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    assert {name: container[name]["httpGet"] for name in paths} == {
        name: {"path": path, "port": "health"} for name, path in paths.items()
    }


def test_every_container_is_restricted(default: Any) -> None:
    specs = [item["spec"]["template"]["spec"] for item in default.of("Deployment")]
    specs += [item["spec"] for item in default.of("Pod")]
    assert len(specs) == 6
    for spec in specs:
        pod = spec["securityContext"]
        assert pod["runAsNonRoot"] is True
        assert pod["runAsUser"] > 0
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert spec["enableServiceLinks"] is False
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"requests", "limits"} <= set(container["resources"])
            assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("component", COMPONENTS)
def test_volumes(default: Any, component: str) -> None:
    spec = default.pod_spec(component)
    mounts = {mount["mountPath"]: mount for mount in default.container(component)["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert {mount["name"] for mount in mounts.values()} == set(volumes)
    assert "emptyDir" in volumes[mounts["/tmp"]["name"]]
    # Whole folders: Kubernetes never refreshes a file that is mounted by its own path.
    assert not any("subPath" in mount for mount in mounts.values())
    if component == "scheduler":
        volume = volumes[mounts["/etc/kbatch/scheduler"]["name"]]
        assert default.one("ConfigMap", volume["configMap"]["name"])["data"].keys() == {"scheduler.yaml"}
    if component == "webhook":
        volume = volumes[mounts["/etc/kbatch/certificates"]["name"]]
        data = default.one("Secret", volume["secret"]["secretName"])["data"]
        assert data.keys() == {"tls.crt", "tls.key", "ca.crt"}
        # Its owner is root and its group fsGroup: only with this bit the process may read it.
        assert volume["secret"]["defaultMode"] & 0o040


def test_a_new_configuration_does_not_restart_the_scheduler(render: Callable[..., Any], default: Any) -> None:
    text = 'actions: "allocate"\ntiers:\n- plugins:\n  - name: gang'
    other = render({"scheduler": {"configuration": f"{text}\n"}})
    assert other.one("ConfigMap", "kbatch-scheduler")["data"]["scheduler.yaml"].strip() == text
    assert other.one("Deployment", "kbatch-scheduler") == default.one("Deployment", "kbatch-scheduler")


def test_the_shipped_configurations_are_ones_that_the_engine_takes(
    render: Callable[..., Any], values_files: dict[str, Any]
) -> None:
    for name, values in values_files.items():
        (text,) = (
            found["data"]["scheduler.yaml"]
            for found in render(values).of("ConfigMap")
            if "scheduler.yaml" in found.get("data", {})
        )
        assert build_policy(configuration.parse(text, name)).actions


def test_the_default_configuration_is_the_built_in_one(default: Any) -> None:
    shipped = yaml.safe_load(default.one("ConfigMap", "kbatch-scheduler")["data"]["scheduler.yaml"])
    assert shipped == yaml.safe_load(configuration.DEFAULT_TEXT)


def test_a_decision_log_is_kept_in_a_folder_that_has_room_for_it(render: Callable[..., Any]) -> None:
    plain = render().container("scheduler")
    assert not any("decision-log" in argument for argument in plain["args"])
    rendered = render({"scheduler": {"decisionLog": {"enabled": True, "maxBytes": 16 << 20}}})
    container = rendered.container("scheduler")
    settings = parse(
        SchedulerSettings,
        prog="x",
        argv=[argument for argument in container["args"] if argument.startswith("--decision-log")],
        environ={},
    )
    assert settings.decision_log_max_bytes == 16 << 20
    (mount,) = [mount for mount in container["volumeMounts"] if mount["mountPath"] == settings.decision_log]
    (volume,) = [volume for volume in rendered.pod_spec("scheduler")["volumes"] if volume["name"] == mount["name"]]
    assert int(volume["emptyDir"]["sizeLimit"]) == 20 << 20


@pytest.mark.parametrize("component", COMPONENTS)
def test_what_one_process_has_of_its_own_is_laid_over_what_all_have(render: Callable[..., Any], component: str) -> None:
    own = {
        "priorityClassName": "urgent",
        "podSecurityContext": {"fsGroup": 1000650000, "runAsUser": None},
        "securityContext": {"privileged": False},
        "probes": {"startup": {"failureThreshold": 5}, "liveness": {"initialDelaySeconds": 9}},
        "extraEnv": [{"name": "A", "value": "b"}],
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        "podLabels": {"team": "x"},
        "deploymentAnnotations": {"note": "y"},
    }
    rendered = render({component: own})
    for other in set(COMPONENTS) - {component}:
        assert rendered.pod_spec(other) == render().pod_spec(other)
    spec, container = rendered.pod_spec(component), rendered.container(component)
    assert spec["priorityClassName"] == "urgent"
    common = {"runAsNonRoot": True, "runAsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    assert spec["securityContext"] == common | {"fsGroup": 1000650000}
    assert container["securityContext"]["privileged"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert (container["startupProbe"]["failureThreshold"], container["startupProbe"]["periodSeconds"]) == (5, 2)
    assert (container["livenessProbe"]["initialDelaySeconds"], container["livenessProbe"]["failureThreshold"]) == (9, 6)
    assert container["readinessProbe"] == render().container(component)["readinessProbe"]
    assert container["env"][-1] == {"name": "A", "value": "b"}
    assert (spec["volumes"][-1]["name"], container["volumeMounts"][-1]["name"]) == ("more", "more")
    deployment = rendered.one("Deployment", f"kbatch-{component}")
    assert deployment["spec"]["template"]["metadata"]["labels"]["team"] == "x"
    assert "team" not in deployment["spec"]["selector"]["matchLabels"]
    assert deployment["metadata"]["annotations"] == {"note": "y"}


def test_the_webhook_in_the_network_of_its_nodes(render: Callable[..., Any], default: Any) -> None:
    assert "hostNetwork" not in default.pod_spec("webhook")
    rendered = render({"webhook": {"hostNetwork": True}})
    assert (rendered.pod_spec("webhook")["hostNetwork"], rendered.pod_spec("webhook")["dnsPolicy"]) == (
        True, "ClusterFirstWithHostNet",
    )  # fmt: skip
    # A new replica beside the old one on the same node would find the ports taken.
    strategy = rendered.one("Deployment", "kbatch-webhook")["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 0, "maxUnavailable": 1}
    assert "hostNetwork" not in rendered.pod_spec("scheduler")
    given = render({"webhook": {"hostNetwork": True, "dnsPolicy": "Default"}})
    assert given.pod_spec("webhook")["dnsPolicy"] == "Default"


def test_accounts_of_others_are_used_everywhere(render: Callable[..., Any]) -> None:
    names = {component: f"other-{component}" for component in COMPONENTS}
    rendered = render({c: {"serviceAccount": {"create": False, "name": name}} for c, name in names.items()})
    assert [account["metadata"]["name"] for account in rendered.of("ServiceAccount")] == ["kbatch-gang-test"]
    for component, name in names.items():
        assert rendered.pod_spec(component)["serviceAccountName"] == name
    told = [subject for item in rendered.objects for subject in item.get("subjects", [])]
    assert {subject["name"] for subject in told} == {*names.values(), "kbatch-gang-test"}
    flows = json.dumps(rendered.of("FlowSchema"))
    assert flows.count('"other-') == 4
    assert '"kbatch-scheduler", "namespace"' not in flows
    policies = json.dumps(rendered.of("ValidatingAdmissionPolicy"))
    assert "serviceaccount:kbatch-system:other-podgroup" in policies
    assert "serviceaccount:kbatch-system:other-queue" in policies
    assert "serviceaccount:kbatch-system:kbatch-" not in policies
    made = render({"queue": {"serviceAccount": {"name": "q"}, "serviceAccountAnnotations": {"a": "b"}}})
    assert made.one("ServiceAccount", "q")["metadata"]["annotations"] == {"a": "b"}
