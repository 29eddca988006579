"""The scheduler by its console script on a real API server: what the scenarios with the whole chart do not look at."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from kbatch.engine import Eviction, Nomination, Transaction
from kbatch.kube.client import Client
from kbatch.kube.credentials import load_credentials
from kbatch.kube.events import EventRecorder
from kbatch.kube.informer import Batch
from kbatch.kube.kinds import PODS
from kbatch.kube.lists import list_all
from kbatch.kube.writes import bind, get
from kbatch.metrics import SchedulerMetrics
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Upsert
from operators.scheduler.cache import Cache
from operators.scheduler.dispatch import Dispatcher
from tests.e2e.operator_process import OperatorProcess, eventually
from tests.e2e.scenarios.manifests import group, pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.conftest import ControlPlane

pytestmark = pytest.mark.control_plane

ROOT = Path(__file__).parents[2]
CONFIGURATION = (
    "actions: allocate\ntiers:\n- plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: nodeorder}]\n"
)


@pytest.fixture(scope="module")
def cluster(start_control_plane: Callable[..., ControlPlane]) -> ControlPlane:
    """A control plane of this module's own: another test's scheduler must not do the work of these."""
    plane = start_control_plane()
    plane.ensure_nodes(2)
    plane.run_kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
    plane.run_kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(ROOT / "crds"))
    queue = {"apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "Queue", "metadata": {"name": "default"}}
    apply(plane, queue)
    return plane


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    path = tmp_path / "scheduler.yaml"
    path.write_text(CONFIGURATION)
    return path


@pytest.fixture
def scheduler(cluster: ControlPlane, configuration: Path, tmp_path: Path) -> Iterator[Callable[..., OperatorProcess]]:
    yield lambda *flags: OperatorProcess(
        "scheduler",
        cluster.kubeconfig,
        tmp_path,
        "--lease-namespace=default",
        f"--scheduler-conf={configuration}",
        *flags,
    )
    cluster.run_kubectl("delete", "podgroups,pods", "--all", "--force", "--grace-period=0")


def apply(cluster: ControlPlane, *objects: dict[str, Any]) -> None:
    cluster.run_kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))


def gang(name: str, count: int, cpu: str = "1") -> list[dict[str, Any]]:
    return [group(name, count), *(pod(f"{name}-{number}", name, cpu) for number in range(count))]


def bound(cluster: ControlPlane, name: str) -> int:
    return sum(
        bool(item["spec"].get("nodeName"))
        for item in cluster.kubectl_json("get", "pods")["items"]
        if item["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == name
    )


def condition(cluster: ControlPlane, name: str, type_: str) -> dict[str, Any]:
    conditions = cluster.kubectl_json("get", "podgroup", name).get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == type_), {})


def events(cluster: ControlPlane, reason: str) -> list[dict[str, Any]]:
    items = cluster.kubectl_json("get", "events.events.k8s.io")["items"]
    return [item for item in items if item.get("reason") == reason]


def test_a_clean_hand_over_takes_a_second_and_decisions_go_on(
    cluster: ControlPlane, scheduler: Callable[..., OperatorProcess]
) -> None:
    with scheduler("--identity=one") as one:
        one.wait_leading()
        with scheduler("--identity=two") as two:
            two.wait_ready()
            assert two.metric("kbatch_leader") == 0
            apply(cluster, *gang("first", 3))
            eventually(lambda: bound(cluster, "first") == 3, 20, "the leader binds")
            assert two.metric("kbatch_scheduler_binds_total", '{result="ok"}') == 0
            began = time.monotonic()
            assert one.stop() == 0
            stopped = time.monotonic()
            eventually(lambda: two.metric("kbatch_leader") == 1, 5, "the other one leads")
            assert time.monotonic() - stopped <= 1.5
            assert stopped - began <= 5
            apply(cluster, *gang("second", 3))
            eventually(lambda: bound(cluster, "second") == 3, 20, "the new leader binds")


def test_a_quiet_cluster_sees_no_writes(cluster: ControlPlane, scheduler: Callable[..., OperatorProcess]) -> None:
    apply(cluster, *gang("fits", 2), *gang("waits", 3, cpu="30"))
    with scheduler() as process:
        process.wait_leading()
        eventually(lambda: bound(cluster, "fits") == 2, 20, "what fits is bound")
        eventually(
            lambda: condition(cluster, "waits", "Scheduled").get("reason") == "NotEnoughResources", 20, "waits says why"
        )
        eventually(lambda: len(unschedulable(cluster)) == 3, 20, "its pods say so to autoscalers")

        def versions() -> list[str]:
            listed = cluster.kubectl_json("get", "podgroups,pods,queues")["items"]
            return sorted(item["metadata"]["resourceVersion"] for item in (*listed, *told(cluster)))

        pods = cluster.kubectl_json("get", "pods")["items"]
        placed = {pod["metadata"]["uid"] for pod in pods if pod["spec"].get("nodeName")}
        eventually(
            lambda: placed <= {item["regarding"].get("uid") for item in told(cluster)}, 20, "an event of each bind"
        )
        before, cycles = versions(), process.metric("kbatch_scheduler_cycle_seconds_count")
        eventually(
            lambda: process.metric("kbatch_scheduler_cycle_seconds_count") >= cycles + 3, 20, "three more cycles"
        )
        assert versions() == before
        assert bound(cluster, "waits") == 0
        cluster.ensure_nodes(4)
        eventually(lambda: bound(cluster, "waits") == 3, 20, "with more nodes it is bound")
        eventually(lambda: condition(cluster, "waits", "Scheduled").get("status") == "True", 20, "and says so")
        assert condition(cluster, "waits", "Unschedulable")["status"] == "False"


def told(cluster: ControlPlane) -> list[dict[str, Any]]:
    """The events of pods, groups and queues; the API server makes others."""
    listed = cluster.kubectl_json("get", "events.events.k8s.io")["items"]
    return [item for item in listed if item["regarding"]["kind"] in {"Pod", "PodGroup", "Queue"}]


def unschedulable(cluster: ControlPlane) -> list[str]:
    return [
        item["metadata"]["name"]
        for item in cluster.kubectl_json("get", "pods")["items"]
        for one in item["status"].get("conditions", [])
        if one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable"
    ]


def test_a_bad_configuration_leaves_the_old_one_in_force(
    cluster: ControlPlane, scheduler: Callable[..., OperatorProcess], configuration: Path
) -> None:
    with scheduler("--identity=configured") as process:
        process.wait_leading()
        configuration.write_text(CONFIGURATION.replace("allocate", "alocate"))
        eventually(lambda: process.metric("kbatch_scheduler_configuration_valid") == 0, 20, "the new file is refused")
        (event,) = eventually(lambda: events(cluster, "ConfigurationRefused"), 20, "an Event says so")
        assert "allocate" in event["note"]
        assert process.health()[0] == 200
        apply(cluster, *gang("still", 2))
        eventually(lambda: bound(cluster, "still") == 2, 20, "it schedules as before")
        configuration.write_text(CONFIGURATION.replace("{name: nodeorder}", "{name: nodeorder}, {name: drf}"))
        eventually(lambda: process.metric("kbatch_scheduler_configuration_valid") == 1, 20, "a good one is taken")


def test_what_cannot_be_counted_is_left_out_and_said(
    cluster: ControlPlane, scheduler: Callable[..., OperatorProcess]
) -> None:
    odd = pod("odd", "odd")
    odd["spec"]["containers"][0]["resources"]["requests"]["memory"] = "8Ei"
    apply(cluster, odd, *gang("sound", 2))
    with scheduler() as process:
        process.wait_leading()
        eventually(lambda: bound(cluster, "sound") == 2, 20, "the others are bound")
        assert process.health()[0] == 200
        (event,) = eventually(lambda: events(cluster, "Unreadable"), 20, "an Event says so")
        assert event["regarding"]["name"] == "odd"
        assert "memory" in event["note"]


def test_decisions_are_counted(cluster: ControlPlane, scheduler: Callable[..., OperatorProcess]) -> None:
    apply(cluster, *gang("counted", 4))
    with scheduler() as process:
        process.wait_leading()
        eventually(
            lambda: process.metric("kbatch_scheduler_binds_total", '{result="ok"}') == 4, 20, "four binds are counted"
        )
        eventually(
            lambda: process.metric("kbatch_scheduler_status_writes_total", '{result="ok"}') >= 1, 20, "status too"
        )
        eventually(lambda: process.metric("kbatch_scheduler_writes_in_flight") == 0, 20, "nothing is left to do")
        assert process.metric("kbatch_scheduler_group_wait_seconds_count") == 1
        lines = process.lines()
    assert all(json.dumps(line) for line in lines)


async def test_a_plan_is_made_whole_or_not_at_all_on_a_real_server(cluster: ControlPlane) -> None:
    """Dispatch alone, with a plan made by hand: a budget refuses it, then it is made, then its nomination withdrawn."""
    apply(cluster, *(pod(name, "plan") for name in ("victim", "guarded", "waiting")))
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "plan", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"guard": "yes"}}},
    }
    cluster.run_kubectl("label", "pod", "guarded", "guard=yes")
    async with Client(load_credentials(str(cluster.kubeconfig))) as client:
        cache = Cache(ClusterModel())
        listed = await list_all(client, PODS, namespace="default")
        uids = {one.metadata.name: one.metadata.uid for one in listed}
        for name in ("victim", "guarded"):
            await bind(client, namespace="default", name=name, uid=uids[name], node="node-0")
        apply(cluster, budget)
        await asyncio.to_thread(
            eventually,
            lambda: cluster.kubectl_json("get", "pdb", "plan").get("status", {}).get("currentHealthy") == 1,
            20,
            "the budget knows its pod",
        )
        events_ = tuple(Upsert(one) for one in await list_all(client, PODS, namespace="default"))
        cache.receive(Batch(events_, complete=True))
        metrics = SchedulerMetrics(CollectorRegistry())
        recorder = EventRecorder(client, controller="test", instance="test")
        dispatcher = Dispatcher(client, cache, metrics=metrics, recorder=recorder)
        task = asyncio.create_task(dispatcher.run())

        def plan(*victims: str) -> Transaction:
            return Transaction(
                "default/plan",
                evictions=tuple(
                    Eviction(f"default/{name}", uids[name], "node-0", "preempt", "default/plan") for name in victims
                ),
                nominations=(Nomination("default/waiting", uids["waiting"], "node-0"),),
            )

        async def carried_out(transaction: Transaction) -> None:
            assert dispatcher.submit(transaction)
            async with asyncio.timeout(10):
                while dispatcher.in_flight:  # noqa: ASYNC110  (a look at a condition)
                    await asyncio.sleep(0.01)

        try:
            await carried_out(plan("victim", "guarded"))
            after = {one.metadata.name: one for one in await list_all(client, PODS, namespace="default")}
            assert after["victim"].metadata.deletion_timestamp is None, "one refusal, and nobody is evicted"
            assert after["waiting"].status.nominated_node_name == ""
            async with asyncio.timeout(10):
                while dispatcher.paused_until() is not None:  # noqa: ASYNC110  (a look at a condition)
                    await asyncio.sleep(0.01)
            await carried_out(plan("victim"))
            after = {one.metadata.name: one for one in await list_all(client, PODS, namespace="default")}
            assert "victim" not in after or after["victim"].metadata.deletion_timestamp is not None
            assert after["guarded"].metadata.deletion_timestamp is None
            assert after["waiting"].status.nominated_node_name == "node-0"
            withdrawn = Transaction("p", nominations=(Nomination("default/waiting", uids["waiting"], None),))
            await carried_out(withdrawn)
            assert (await get(client, PODS, namespace="default", name="waiting")).status.nominated_node_name == ""
            other = Transaction("p", nominations=(Nomination("default/waiting", uids["victim"], "node-1"),))
            await carried_out(other)
            assert (await get(client, PODS, namespace="default", name="waiting")).status.nominated_node_name == ""
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    cluster.run_kubectl("delete", "pdb", "plan")
    cluster.run_kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
