from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from kbatch.localcluster import pods
from kbatch.localcluster.errors import ChartError

MOUNTS = Path("/tmp/state/mounts")


def a_deployment(**container: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "kbatch-queue", "namespace": "ns", "labels": {"app.kubernetes.io/component": "queue"}},
        "spec": {
            "template": {
                "metadata": {"labels": {"tier": "x"}},
                "spec": {
                    "serviceAccountName": "queue-account",
                    "containers": [{"name": "queue", "command": ["kbatch-queue"], **container}],
                },
            }
        },
    }


def surroundings(**replaced: Any) -> pods.Surroundings:
    objects = {("ConfigMap", "settings"): {"color": "red"}, ("Secret", "keys"): {"password": "p"}}
    defaults: dict[str, Any] = {
        "mounts": MOUNTS,
        "ports": {"health": 31001, "metrics": 31002},
        "keys_of": lambda kind, name: objects.get((kind, name)),
        "key_of": lambda kind, name, key: objects.get((kind, name), {}).get(key),
        "program": lambda name: f"/venv/bin/{name}",
    }
    return pods.Surroundings(**(defaults | replaced))


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("--port=$(PORT)", "--port=80"),
        ("$(PORT)$(PORT)", "8080"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(PORT)", "$(PORT)"),
        ("$$$(PORT)", "$80"),
        ("$PORT ${PORT} $", "$PORT ${PORT} $"),
        ("$(PORT", "$(PORT"),
        ("$(NESTED)", "$(PORT)"),
    ],
)
def test_variables_expand_as_the_kubelet_does(text: str, expanded: str) -> None:
    assert pods.expand(text, {"PORT": "80", "NESTED": "$(PORT)"}) == expanded


def test_arguments_see_the_environment_and_its_mapped_ports() -> None:
    spec = pods.process_spec(
        a_deployment(
            args=["--health=$(ADDRESS)", "--me=$(POD_NAME)", "--color=$(COLOR)"],
            env=[
                {"name": "HEALTH_PORT", "value": "8081"},
                {"name": "ADDRESS", "value": "127.0.0.1:$(HEALTH_PORT)"},
                {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
                {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "color"}}},
                {"name": "TIER", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['tier']"}}},
            ],
            envFrom=[{"secretRef": {"name": "keys"}, "prefix": "KEY_"}],
            ports=[{"name": "health", "containerPort": 8081}],
        ),
        surroundings(),
    )
    assert spec.command == (
        "/venv/bin/kbatch-queue", "--health=127.0.0.1:31001", f"--me={spec.pod_name}", "--color=red",
    )  # fmt: skip
    assert spec.environment["KEY_password"] == "p"
    assert spec.environment["TIER"] == "x"
    assert len(spec.environment["POD_UID"]) == 36
    assert spec.ports == {"health": 31001}
    assert spec.pod_name.startswith("kbatch-queue-")
    assert (spec.service_account, spec.grace, spec.component) == ("queue-account", 30.0, "queue")


def test_mount_paths_become_their_mirrors_once_and_only_where_they_are_paths() -> None:
    spec = pods.process_spec(
        a_deployment(
            args=[
                "--file=/etc/kbatch/a",
                "/etc/kbatch",
                "--dirs=/etc/kbatch:/etc/kbatch/deep/x",
                "/etc/kbatchs",
                "x/etc/kbatch",
            ],
            env=[{"name": "SCRATCH", "value": "/tmp/file"}],
            volumeMounts=[
                {"name": "settings", "mountPath": "/etc/kbatch/"},
                {"name": "deep", "mountPath": "/etc/kbatch/deep"},
                # The mirrors themselves lie below this mount path.
                {"name": "scratch", "mountPath": "/tmp"},
            ],
        ),
        surroundings(),
    )
    assert spec.command[1:] == (
        f"--file={MOUNTS}/settings/a",
        f"{MOUNTS}/settings",
        f"--dirs={MOUNTS}/settings:{MOUNTS}/deep/x",
        "/etc/kbatchs",
        "x/etc/kbatch",
    )
    assert spec.environment == {"SCRATCH": f"{MOUNTS}/scratch/file", "TMPDIR": f"{MOUNTS}/scratch"}


def test_probes_ask_the_mapped_port() -> None:
    spec = pods.process_spec(
        a_deployment(
            env=[{"name": "HEALTH_PORT", "value": "8081"}],
            ports=[{"name": "health", "containerPort": 8081}],
            readinessProbe={"httpGet": {"path": "/readyz", "port": "health"}, "periodSeconds": 5},
            livenessProbe={"tcpSocket": {"port": 8081}, "failureThreshold": 6},
        ),
        surroundings(),
    )
    assert spec.startup is None
    assert spec.readiness == pods.Probe(31001, "/readyz", "http", 0, 5, 1, 3, 1)
    assert spec.liveness == pods.Probe(31001, None, "http", 0, 10, 1, 6, 1)


@pytest.mark.parametrize(
    ("container", "complaint"),
    [
        ({"ports": [{"name": "health", "containerPort": 8081}]}, "HEALTH_PORT"),
        (
            {
                "ports": [{"name": "health", "containerPort": 8081}],
                "env": [{"name": "HEALTH_PORT", "value": "9999"}],
            },
            "HEALTH_PORT",
        ),
        ({"command": []}, "no command"),
        ({"livenessProbe": {"exec": {"command": ["true"]}}}, "neither httpGet nor tcpSocket"),
        ({"livenessProbe": {"httpGet": {"port": "nowhere"}}}, "nowhere"),
        ({"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "no", "key": "k"}}}]}, "ConfigMap no"),
        ({"env": [{"name": "X", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]}, "resourceFieldRef"),
        ({"env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "status.podIPs"}}}]}, "status.podIPs"),
    ],
)
def test_what_a_process_cannot_have_is_a_fault_of_the_chart(container: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ChartError, match=complaint):
        pods.process_spec(a_deployment(**container), surroundings())


def test_a_second_container_is_a_fault_of_the_chart() -> None:
    deployment = a_deployment()
    deployment["spec"]["template"]["spec"]["containers"] *= 2
    with pytest.raises(ChartError, match="more than one container"):
        pods.process_spec(deployment, surroundings())


def test_the_fingerprint_follows_the_template_alone() -> None:
    one = a_deployment(args=["a"])
    scaled = copy.deepcopy(one)
    scaled["spec"]["replicas"] = 7
    assert pods.fingerprint(one) == pods.fingerprint(scaled) != pods.fingerprint(a_deployment(args=["b"]))
