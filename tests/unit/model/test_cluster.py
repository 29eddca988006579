from kbatch.api.objects import (
    Container,
    Metadata,
    Node,
    NodeStatus,
    Pod,
    PodGroup,
    PodGroupSpec,
    PodSpec,
    Queue,
    ResourceRequirements,
)
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert


def pod(name: str, cpu: str = "1", node: str = "", group: str = "", **spec: object) -> Pod:
    meta = Metadata(name=name, namespace="ns", uid=f"uid-{name}")
    if group:
        meta.annotations = {"scheduling.k8s.io/group-name": group}
    container = Container(resources=ResourceRequirements(requests={"cpu": cpu}))
    return Pod(
        metadata=meta, spec=PodSpec(scheduler_name="kube-batch", node_name=node, containers=(container,), **spec)
    )


def node(name: str, cpu: str = "4") -> Node:
    return Node(
        metadata=Metadata(name=name), status=NodeStatus(allocatable={"cpu": cpu, "memory": "8Gi", "pods": "10"})
    )


def test_sums_follow_a_pod_through_its_life() -> None:
    model = ClusterModel()
    model.apply(Upsert(pod("a", node="n1", group="g")))
    model.validate()
    model.apply(Upsert(node("n1")))
    model.apply(Upsert(PodGroup(metadata=Metadata(name="g", namespace="ns"), spec=PodGroupSpec(min_member=2))))
    model.apply(Upsert(Queue(metadata=Metadata(name="default"))))
    model.apply(Upsert(pod("b", group="g")))
    model.validate()
    assert model.queues["default"].allocated == {"cpu": 1000}
    assert model.queues["default"].request == {"cpu": 2000}
    model.assume("ns/b", "uid-b", "n1")
    model.validate()
    assert model.table.idle["cpu"].tolist() == [2000]
    model.evicting("ns/a", "uid-a")
    model.validate()
    assert model.queues["default"].allocated == {"cpu": 1000}
    assert model.table.releasing["cpu"].tolist() == [1000]
    model.forget("ns/b", "uid-b")
    model.apply(Delete(Pod, "ns", "a"))
    model.validate()
    assert model.table.idle["cpu"].tolist() == [4000]
    assert model.capacity == {"cpu": 4000, "memory": 8 * 2**30}
