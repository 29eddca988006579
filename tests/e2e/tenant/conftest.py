"""One installation for two tenants with the rights of edit, on an API server with priority and fairness."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kbatch.kube.depth import allow_deep_objects
from kbatch.localcluster.api import Api
from kbatch.localcluster.errors import ApiError
from tests.e2e.scenarios.conftest import KBATCH, Installed, install
from tests.e2e.tenant.stream import LINES, Stream
from tests.e2e.tenant.tenant import (
    ATTACKER,
    GROUPS,
    NEIGHBOUR,
    PODS,
    STANDING,
    STANDING_PODS,
    SYSTEM,
    Tenant,
    group,
    pod,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NODES = 3


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was tried, and how the neighbour fared: to be read where all is well, too."""
    for line in LINES:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def tenants_cluster() -> Iterator[Installed]:
    """kbatch on three nodes of 32 cores, of a control plane of its own."""
    if os.environ.get("KBATCH_E2E_KUBECONFIG"):
        pytest.skip("needs a cluster of its own: the number of its nodes is part of what is tested")
    if name := os.environ.get("KBATCH_E2E_TENANT"):  # a cluster that is up already, while one writes attacks
        yield install(name, NODES, "--priority-and-fairness")
        return
    name = f"tenant-{os.getpid()}"
    try:
        yield install(name, NODES, "--priority-and-fairness")
    finally:
        subprocess.run([KBATCH, "down", "--name", name], check=True)


@pytest.fixture(scope="session")
def tenant(tenants_cluster: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenant]:
    """The attacker, beside a neighbour whose standing gang runs, as administrators would have them share a cluster."""
    folder = tmp_path_factory.mktemp("tenants")
    allow_deep_objects()  # those who look at what the attacker made read it too
    with contextlib.ExitStack() as stack:
        admin = stack.enter_context(tenants_cluster.api())
        for name in (ATTACKER, NEIGHBOUR):
            tenants_cluster.apply(*_documents(name))
        paths = {name: _kubeconfig(tenants_cluster, name, folder) for name in (ATTACKER, NEIGHBOUR)}
        apis = {name: stack.enter_context(Api(path)) for name, (path, _) in paths.items()}
        stream = Stream(tenants_cluster, apis[NEIGHBOUR], NEIGHBOUR, NEIGHBOUR)
        path, token = paths[ATTACKER]
        made = Tenant(tenants_cluster, apis[ATTACKER], admin, stream, token, path)
        with contextlib.suppress(ApiError):
            admin.post(GROUPS.format(NEIGHBOUR), group(STANDING, STANDING_PODS, queue=NEIGHBOUR))
        admin.post_all(
            PODS.format(NEIGHBOUR), [pod(f"{STANDING}-{index}", STANDING, "8") for index in range(STANDING_PODS)]
        )
        made.wait("the neighbour's gang stands", lambda: _is_whole(made))
        made.wait("the queues are in the policies' table", lambda: _known(made))
        stack.enter_context(stream)
        yield made


def _is_whole(tenant: Tenant) -> bool:
    return all(one["spec"].get("nodeName") for one in tenant.items(PODS, NEIGHBOUR))


def _known(tenant: Tenant) -> bool:
    table = tenant.get(f"/api/v1/namespaces/{SYSTEM}/configmaps/kbatch-queue-access").get("data", {})
    return {ATTACKER, NEIGHBOUR, "default"} <= set(table)


def _documents(name: str) -> list[dict[str, Any]]:
    """A team's namespace with a user, its queue, and limits.

    The queue is open to that namespace alone, and does not take all that there is. The default queue is for nobody.
    """
    api = "scheduling.incubator.k8s.io/v1alpha1"
    mine = {"matchLabels": {"kubernetes.io/metadata.name": name}}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "user", "namespace": name}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "user", "namespace": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "name": "user", "namespace": name}],
        },
        {
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota", "namespace": name},
            "spec": {"hard": {"requests.example.com/gpu": "8", "pods": "80"}},
        },
        {
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "beside", "namespace": name},
            "spec": {
                "hard": {"pods": "0"},
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "CrossNamespacePodAffinity", "operator": "Exists"}]
                },
            },
        },
        {
            "apiVersion": api, "kind": "Queue", "metadata": {"name": name},
            "spec": {"namespaceSelector": mine, "capability": {"cpu": "60"}},
        },
        {
            "apiVersion": api, "kind": "Queue", "metadata": {"name": "default"},
            "spec": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}},
        },
        {
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"},
            "value": 1000,
        },
    ]  # fmt: skip


def _kubeconfig(installed: Installed, name: str, folder: Path) -> tuple[Path, str]:
    """The user's kubeconfig, and the token in it."""
    document = yaml.safe_load(installed.kubeconfig.read_text("utf-8"))
    token = installed.run("create", "token", "user", "-n", name, "--duration=2h").strip()
    for user in document["users"]:
        user["user"] = {"token": token}
    for cluster in document["clusters"]:  # paths in it are relative to it
        authority = cluster["cluster"].get("certificate-authority")
        if authority:
            cluster["cluster"]["certificate-authority"] = str(installed.kubeconfig.parent / authority)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document), "utf-8")
    return path, token
