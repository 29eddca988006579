"""What a gang costs the API server over its whole life, counted by the server's own audit log."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kbatch.api.configuration import DEFAULT_TEXT
from tests.e2e.auditor.audit_log import POLICY, Write, read
from tests.e2e.operator_process import OperatorProcess, eventually
from tests.e2e.scenarios.manifests import group, pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.conftest import ControlPlane

pytestmark = pytest.mark.control_plane

ROOT = Path(__file__).parents[2]
GANGS, SIZE = 10, 4
MOST_WRITES = 4
"""For each gang, besides binds, evictions, nominations, gates, pods' conditions and Events, which have budgets of their
own: what is left are the writes on its PodGroup."""


@pytest.fixture(scope="module")
def plane(start_control_plane: Callable[..., ControlPlane], tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    path = tmp_path_factory.mktemp("audit") / "policy.yaml"
    path.write_text(POLICY.replace("NAMESPACE", "default"), "utf-8")
    made = start_control_plane(audit_policy=path)
    made.ensure_nodes(3)
    made.run_kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
    made.run_kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(ROOT / "crds"))
    queue = {"apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "Queue", "metadata": {"name": "default"}}
    made.run_kubectl("apply", "-f", "-", stdin=yaml.safe_dump(queue))
    return made


def lasting(name: str, gang: str, seconds: int) -> dict[str, Any]:
    made = pod(name, gang)
    made["metadata"]["annotations"]["simulate.kbatch.dev/duration"] = str(seconds)
    return made


def phases(plane: ControlPlane) -> Counter[str]:
    groups = plane.kubectl_json("get", "podgroups")["items"]
    return Counter(one.get("status", {}).get("phase", "") for one in groups)


def test_a_gang_costs_at_most_four_writes_from_its_creation_to_its_end(plane: ControlPlane, tmp_path: Path) -> None:
    configuration = tmp_path / "scheduler.yaml"
    configuration.write_text(DEFAULT_TEXT, "utf-8")
    lease = "--lease-namespace=default"
    with (
        OperatorProcess("scheduler", plane.kubeconfig, tmp_path, lease, f"--scheduler-conf={configuration}") as one,
        OperatorProcess("podgroup", plane.kubeconfig, tmp_path, lease) as other,
    ):
        one.wait_leading()
        other.wait_leading()
        names = [f"gang-{number}" for number in range(GANGS)]
        documents = [group(name, SIZE) for name in names]
        documents += [lasting(f"{name}-{index}", name, 6) for name in names for index in range(SIZE)]
        with plane.api() as api:  # as quickly as an operator or a client library makes them
            root = "/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/default/podgroups"
            api.post_all(root, documents[:GANGS])
            api.post_all("/api/v1/namespaces/default/pods", documents[GANGS:])
        eventually(lambda: phases(plane)["Completed"] == GANGS, 60, lambda: f"all gangs end: {phases(plane)}")
    assert plane.logs is not None
    writes = [
        write for write in read(plane.logs / "audit.log")
        if write.resource.startswith("podgroups") and write.succeeded and write.agent.startswith("kbatch")
    ]  # fmt: skip
    by_group = Counter(write.name for write in writes)
    assert set(by_group) == set(names), "every gang was written about"
    assert max(by_group.values()) <= MOST_WRITES, told(writes)


def told(writes: list[Write]) -> str:
    """The writes on the group that had most, in order."""
    name = Counter(write.name for write in writes).most_common(1)[0][0]
    of_it = [write for write in writes if write.name == name]
    return "\n".join(f"{write.received - of_it[0].received:.3f} {write.agent} {write.verb}" for write in of_it)
