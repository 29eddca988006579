"""What groups cost the API server in writes of their status, counted by the server's own audit log."""

from __future__ import annotations

import itertools
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
    from collections.abc import Callable, Collection, Iterator

    from tests.e2e.conftest import ControlPlane

pytestmark = pytest.mark.control_plane

ROOT = Path(__file__).parents[2]
GROUPS = 6
SIZE = 4
LASTS = 8
"""Seconds for which a pod runs."""

PODS, JOB, TEMPLATE = "pods", "job", "template"

UNTIL_RUNNING = {PODS: 2, JOB: 4, TEMPLATE: 4}
"""Writes of one group's status from its creation until it runs, by all processes together. Where the pods exist: the
scheduler's conditions, and phase and counters. Where they are made when the group is in queue: both of these twice."""

COUNTERS = 1
"""And one more when its pods have started."""

ENDING = 2
"""And some as its pods end, not all in the same moment."""

OVER = 1
"""And one more when it is over."""

WAITING = 6
"""Of a group that waits, by all processes together; an hour of it is played by the unit tests."""

STATUS = "podgroups/status"
QUEUE = {"apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "Queue", "metadata": {"name": "default"}}
PODS_PATH = "/api/v1/namespaces/default/pods"
GROUPS_PATH = "/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/default/podgroups"


@pytest.fixture(scope="module")
def plane(start_control_plane: Callable[..., ControlPlane], tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    path = tmp_path_factory.mktemp("audit") / "policy.yaml"
    path.write_text(policy(), "utf-8")
    made = start_control_plane(audit_policy=path)
    made.ensure_nodes(3)
    made.run_kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
    made.run_kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(ROOT / "crds"))
    made.run_kubectl("apply", "-f", "-", stdin=yaml.safe_dump(QUEUE))
    return made


def policy() -> str:
    """The auditor's own, with what is written of groups: a failure then shows each write."""
    found = yaml.safe_load(POLICY.replace("NAMESPACE", "default"))
    whole = {
        "level": "Request",
        "verbs": ["create", "update", "patch", "delete"],
        "resources": [{"group": "scheduling.incubator.k8s.io"}],
    }
    return yaml.safe_dump({**found, "rules": [whole, *found["rules"]]})


@pytest.fixture
def processes(plane: ControlPlane, tmp_path: Path) -> Iterator[None]:
    """A scheduler and a podgroup operator that lead."""
    configuration = tmp_path / "scheduler.yaml"
    configuration.write_text(DEFAULT_TEXT, "utf-8")
    lease = "--lease-namespace=default"
    with (
        OperatorProcess("scheduler", plane.kubeconfig, tmp_path, lease, f"--scheduler-conf={configuration}") as one,
        OperatorProcess("podgroup", plane.kubeconfig, tmp_path, lease) as other,
    ):
        one.wait_leading()
        other.wait_leading()
        yield


def documents(kind: str, name: str, cpu: str = "1") -> list[tuple[str, dict[str, Any]]]:
    """What a user makes for a group of this kind, and where it is posted."""
    if kind == PODS:
        members = [lasting(pod(f"{name}-{index}", name, cpu)) for index in range(SIZE)]
        return [(GROUPS_PATH, group(name, SIZE)), *((PODS_PATH, one) for one in members)]
    template = lasting(pod(name, name, cpu))
    template = {"metadata": {"annotations": template["metadata"]["annotations"]}, "spec": template["spec"]}
    if kind == TEMPLATE:
        role = {"name": "w", "minMember": SIZE, "template": template}
        return [(GROUPS_PATH, group(name, SIZE, subGroups=[role]))]
    del template["metadata"]["annotations"]["scheduling.k8s.io/group-name"]
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {  # as the webhook leaves it
            "name": name, "namespace": "default",
            "labels": {"kbatch.dev/queue": "default"}, "annotations": {"kbatch.dev/suspended": "true"},
        },
        "spec": {"suspend": True, "parallelism": SIZE, "completions": SIZE, "template": template},
    }  # fmt: skip
    return [("/apis/batch/v1/namespaces/default/jobs", job)]


def lasting(made: dict[str, Any]) -> dict[str, Any]:
    made["metadata"]["annotations"]["simulate.kbatch.dev/duration"] = str(LASTS)
    return made


def submit(plane: ControlPlane, made: list[tuple[str, dict[str, Any]]]) -> None:
    """As quickly as an operator or a client library does it."""
    with plane.api() as api:
        for path in dict.fromkeys(path for path, _ in made):
            api.post_all(path, [document for one, document in made if one == path])


def phases(plane: ControlPlane, names: Collection[str]) -> Counter[str]:
    groups = plane.kubectl_json("get", "podgroups")["items"]
    return Counter(one.get("status", {}).get("phase", "") for one in groups if one["metadata"]["name"] in names)


def written(plane: ControlPlane, names: Collection[str]) -> dict[str, list[Write]]:
    """The writes of these groups' status."""
    assert plane.logs is not None
    found: dict[str, list[Write]] = {name: [] for name in names}
    for write in read(plane.logs / "audit.log"):
        if write.resource == STATUS and write.succeeded and write.name in found:
            found[write.name].append(write)
    return found


def told(writes: list[Write]) -> str:
    """The writes on a group, in order."""
    return "\n".join(f"{one.received - writes[0].received:.3f} {one.agent} {shown(one.body)}" for one in writes)


def shown(body: dict[str, Any]) -> str:
    status = dict(body.get("status", {}))
    made = status.pop("conditions", [])
    return f"{status} " + " ".join(f"{one['type']}={one['status']}/{one['reason']}" for one in made)


def runs(write: Write) -> bool:
    return bool(write.body["status"].get("phase") == "Running")


def scheduled(writes: list[Write]) -> bool:
    """Whether the scheduler has said that the group's minimum is placed."""
    made = [one for write in writes for one in write.body["status"].get("conditions", ())]
    return [one["status"] for one in made if one["type"] == "Scheduled"][-1:] == ["True"]


def counters_only(writes: list[Write]) -> int:
    """How many of the operator's writes of a running group said nothing new but numbers."""
    own = [write.body["status"] for write in writes if "phase" in write.body.get("status", {})]
    pairs = itertools.pairwise(own)
    return sum(before["phase"] == after["phase"] == "Running" for before, after in pairs)


@pytest.mark.usefixtures("processes")
def test_groups_that_fit_cost_one_write_for_each_step(plane: ControlPlane) -> None:
    kinds = {f"{kind}-{number}": kind for kind in UNTIL_RUNNING for number in range(GROUPS)}
    submit(plane, [one for name, kind in kinds.items() for one in documents(kind, name)])
    eventually(lambda: phases(plane, kinds)["Completed"] == len(kinds), 90, lambda: f"all end: {phases(plane, kinds)}")
    for name, writes in written(plane, kinds).items():
        most = UNTIL_RUNNING[kinds[name]]
        until = next(number for number, one in enumerate(writes) if runs(one) and scheduled(writes[: number + 1]))
        assert 2 <= until + 1 <= most + COUNTERS, f"{name}, until it runs:\n{told(writes)}"
        assert until + 1 - counters_only(writes[: until + 1]) <= most, f"{name}, until it runs:\n{told(writes)}"
        assert len(writes) <= most + COUNTERS + ENDING + OVER, f"{name}:\n{told(writes)}"


@pytest.mark.long  # the hour itself is played in unit tests of both writers
@pytest.mark.usefixtures("processes")
def test_groups_that_wait_are_not_written_again_and_again(plane: ControlPlane) -> None:
    """While others come and go, the numbers in what they are told change all the time."""
    holding = [group("holds", 2), *(pod(f"holds-{index}", "holds", "30") for index in range(2))]
    submit(plane, [(GROUPS_PATH, holding[0]), *((PODS_PATH, one) for one in holding[1:])])
    eventually(lambda: phases(plane, ["holds"])["Running"] == 1, 30, "two nodes are taken")
    names = {f"waits-{kind}": kind for kind in UNTIL_RUNNING}
    submit(plane, [one for name, kind in names.items() for one in documents(kind, name, cpu="16")])
    for round_ in range(3):
        others = [f"passes-{round_}-{number}" for number in range(GROUPS)]
        submit(plane, [one for other in others for one in documents(PODS, other)])
        eventually(lambda: phases(plane, others)["Completed"] == GROUPS, 60, "the others end")  # noqa: B023
    for name, writes in written(plane, names).items():
        assert 2 <= len(writes) <= WAITING, f"{name}:\n{told(writes)}"
    assert phases(plane, names)["Pending"] + phases(plane, names)["InQueue"] == len(names)
