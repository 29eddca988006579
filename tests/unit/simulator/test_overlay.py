from __future__ import annotations

from kbatch.api.configuration import DEFAULT
from kbatch.api.objects import (
    AnyObject,
    Condition,
    Container,
    Job,
    JobSpec,
    Metadata,
    Node,
    NodeStatus,
    Pod,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    PodSpec,
    PodStatus,
    ReplicaSet,
    ResourceRequirements,
)
from kbatch.engine import build_policy
from kbatch.simulator.documents import parse
from kbatch.simulator.manifests import Manifests, from_documents
from kbatch.simulator.overlay import overlay
from kbatch.simulator.run import simulate

WANTED = """
{apiVersion: v1, kind: Pod, metadata: {name: new}, spec: {schedulerName: kube-batch, containers: [
  {name: main, resources: {requests: {cpu: "2"}}}]}}
"""


def meta(name: str, created: str = "2026-01-01T00:00:00Z", namespace: str = "default") -> Metadata:
    return Metadata(name=name, namespace=namespace, uid=f"uid-{name}", creation_timestamp=created)


def node(name: str, cpu: str) -> Node:
    return Node(metadata=meta(name, namespace=""), status=NodeStatus(allocatable={"cpu": cpu}))


def pod(name: str, on: str, created: str = "2026-01-01T00:00:00Z") -> Pod:
    container = Container(name="main", resources=ResourceRequirements(requests={"cpu": "1"}))
    return Pod(
        metadata=meta(name, created),
        spec=PodSpec(scheduler_name="kube-batch", node_name=on, containers=(container,)),
        status=PodStatus(phase="Running" if on else "Pending"),
    )


def manifests(text: str = WANTED) -> Manifests:
    return from_documents(parse(text, "new.yaml"))


def names(found: Manifests) -> list[str]:
    return [declared.obj.metadata.name for declared in found.objects]


def test_the_live_objects_come_first_in_the_order_of_their_creation() -> None:
    live: list[AnyObject] = [
        pod("b", "", "2026-01-02T00:00:00Z"),
        pod("a", "", "2026-01-03T00:00:00Z"),
        node("n1", "4"),
    ]
    assert names(overlay(live, manifests())) == ["n1", "b", "a", "new"]


def test_manifests_replace_what_bears_the_same_name() -> None:
    live: list[AnyObject] = [node("n1", "4"), pod("new", "n1")]
    found = overlay(live, manifests())
    assert names(found) == ["n1", "new"]
    assert found.objects[1].place.source == "new.yaml"


def test_what_has_its_pods_already_makes_no_more() -> None:
    suspended = Job(metadata=meta("waits"), spec=JobSpec(suspend=True))
    live: list[AnyObject] = [
        Job(metadata=meta("runs")),
        suspended,
        ReplicaSet(metadata=meta("set")),
        pod("lost", "gone"),
    ]
    assert names(overlay(live, manifests())) == ["waits", "new"]


def test_times_of_the_cluster_begin_anew() -> None:
    long_ago = Condition(type="Enqueued", status="True", last_transition_time="2020-01-01T00:00:00Z")
    group = PodGroup(metadata=meta("g"), spec=PodGroupSpec(), status=PodGroupStatus(conditions=(long_ago,)))
    found = overlay([group], Manifests(())).objects[0].obj
    assert isinstance(found, PodGroup)
    assert [each.last_transition_time for each in found.status.conditions or ()] == ["2000-01-01T00:00:00Z"]


def test_what_becomes_of_a_pod_in_a_cluster_that_is_in_use() -> None:
    live: list[AnyObject] = [node("n1", "3"), pod("a", "n1"), pod("b", "n1"), node("n2", "2")]
    result = simulate(overlay(live, manifests()), build_policy(DEFAULT))
    assert result.pods["default/new"].node == "n2"
    full = simulate(overlay(live[:3], manifests()), build_policy(DEFAULT))
    assert full.pods["default/new"].phase == "Pending"
    assert {key: found.node for key, found in full.pods.items() if found.node} == {"default/a": "n1", "default/b": "n1"}
