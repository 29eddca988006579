"""What events make of the model; sums under random events are in tests/property/test_cluster.py."""

import copy
import time
from typing import Any

import msgspec

from kbatch.api.objects import (
    Affinity,
    Condition,
    LabelSelector,
    Metadata,
    NodeStatus,
    PersistentVolumeClaim,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodCondition,
    PodGroup,
    PriorityClass,
)
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Unreadable, Upsert
from tests.unit.engine import worlds
from tests.unit.engine.worlds import group, members, node, pod, priority_class, queue, world


def test_sums_follow_a_pod_through_its_life() -> None:
    model = world(pod("a", of="g", on="n1"))
    model.validate()
    for obj in (node("n1", memory="8Gi"), group("g", 2), queue(), pod("b", of="g")):
        model.apply(Upsert(obj))
    model.validate()
    assert model.queues["default"].allocated == {"cpu": 1000}
    assert model.queues["default"].request == {"cpu": 2000}
    model.assume("ns/b", "u-b", "n1")
    model.validate()
    assert model.table.idle["cpu"].tolist() == [2000]
    model.evicting("ns/a", "u-a")
    model.validate()
    assert model.queues["default"].allocated == {"cpu": 1000}
    assert model.table.releasing["cpu"].tolist() == [1000]
    model.forget("ns/b", "u-b")
    model.apply(Delete(Pod, "ns", "a"))
    model.validate()
    assert model.table.idle["cpu"].tolist() == [4000]
    assert model.capacity == {"cpu": 4000, "memory": 8 * 2**30}


def test_an_assumption_ends_when_the_watch_confirms_it_or_another_pod_takes_the_name() -> None:
    model = world(node("n1"), pod("a"))
    model.assume("ns/a", "another", "n1")
    assert model.tasks["ns/a"].node == ""
    model.assume("ns/a", "u-a", "n1")
    assert model.tasks["ns/a"].assumed
    model.apply(Upsert(pod("a", on="n1")))
    assert not model.tasks["ns/a"].assumed
    model.forget("ns/a", "u-a")
    assert model.tasks["ns/a"].node == "n1"
    fresh = pod("a")
    fresh.metadata.uid = "new"
    model.apply(Upsert(fresh))
    assert model.tasks["ns/a"].node == ""
    model.validate()


def test_foreign_pods_take_capacity_and_belong_to_no_queue() -> None:
    model = world(node("n1"), queue(), pod("x", "3", on="n1", scheduler="default-scheduler"))
    assert model.capacity["cpu"] == 1000
    assert model.jobs == {}
    assert model.table.idle["cpu"].tolist() == [1000]


def test_a_terminal_pod_holds_nothing_and_a_terminating_one_its_room() -> None:
    done = pod("a", on="n1")
    done.status.phase = "Succeeded"
    leaving = pod("b", on="n1")
    leaving.metadata.deletion_timestamp = "2026-01-01T00:00:30Z"
    model = world(node("n1"), queue(), done, leaving)
    assert model.table.idle["cpu"].tolist() == [3000]
    assert model.table.releasing["cpu"].tolist() == [1000]
    assert model.queues["default"].allocated == {}


def test_an_unreadable_bound_pod_closes_its_node_until_it_can_be_read() -> None:
    model = world(node("n1"), node("n2"), queue(), pod("a", on="n1"))
    model.apply(Unreadable(Pod, "ns", "a", "u-a", "n1", "requests.cpu: not a quantity"))
    assert model.table.open.tolist() == [False, True]
    assert model.capacity["cpu"] == 4000
    assert model.unreadable[Pod, "ns/a"].startswith("requests.cpu")
    model.validate()
    model.apply(Upsert(pod("a", on="n1")))
    assert model.table.open.tolist() == [True, True]
    assert model.unreadable == {}
    model.apply(Upsert(pod("b", "99999999999999999999", on="n2")))
    assert model.table.open.tolist() == [True, False]
    model.apply(Delete(Pod, "ns", "b"))
    assert model.table.open.tolist() == [True, True]


def test_nodes_that_cannot_be_used_are_no_capacity() -> None:
    sick = node("n2")
    sick.status = NodeStatus(
        allocatable={"cpu": "4"}, conditions=(PodCondition(type="Ready", status="False"),)
    )  # a NodeCondition has the same shape
    model = world(node("n1"), sick, node("n3", unschedulable=True))
    assert model.capacity["cpu"] == 4000
    assert model.table.ready.tolist() == [True, False, True]
    assert model.table.cordoned.tolist() == [False, False, True]


def test_what_of_a_pod_no_decision_reads_moves_only_the_generation() -> None:
    model = world(node("n1"), group("g", 1), queue(), pod("a", of="g", on="n1"))
    task, job = model.tasks["ns/a"], model.jobs["ns/g"]
    before = (model.generation, model.room_generation, job.generation)
    again = pod("a", of="g", on="n1")
    again.status.conditions = (PodCondition(type="Ready", status="True"),)
    model.apply(Upsert(again))
    assert (model.generation, model.room_generation, job.generation) == (before[0] + 1, before[1], before[2])
    assert model.tasks["ns/a"] is task
    assert task.pod is again
    model.apply(Upsert(copy.deepcopy(again)))
    assert model.generation == before[0] + 1
    bound = copy.deepcopy(again)
    bound.status.conditions = (
        PodCondition(type="PodScheduled", status="True", last_transition_time="2026-01-01T00:01:00Z"),
    )
    model.apply(Upsert(bound))
    assert model.tasks["ns/a"].started > task.started
    assert job.generation > before[2]
    model.validate()


def test_a_heart_beat_of_a_node_moves_nothing() -> None:
    model = world(node("n1"))
    before = (model.table.static_generation, model.generation, model.room_generation)
    again = node("n1")
    again.metadata.resource_version = "7"
    model.apply(Upsert(again))
    assert (model.table.static_generation, model.generation, model.room_generation) == before
    model.apply(Upsert(node("n1", labels={"zone": "a"})))
    assert model.table.static_generation > before[0]
    ids, values = model.table.labels("zone")
    assert [values[at] for at in ids] == ["a"]


def test_only_what_decisions_read_of_a_claim_moves_them() -> None:
    model = world(node("n1"))
    claim = PersistentVolumeClaim(metadata=Metadata(name="c", namespace="ns", resource_version="1"))

    def change(**metadata: Any) -> bool:
        """Whether what was worked out before holds no longer."""
        nonlocal claim
        before = (model.table.static_generation, model.room_generation)
        claim = msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, **metadata))
        model.apply(Upsert(claim))
        after = (model.table.static_generation, model.room_generation)
        assert model.objects[PersistentVolumeClaim]["ns/c"] is claim
        return after != before

    assert change()
    assert not change(resource_version="2", annotations={"volume.kubernetes.io/storage-provisioner": "p"})
    assert change(resource_version="3", annotations={"volume.kubernetes.io/selected-node": "n1"})
    assert not change(resource_version="4", labels={"a": "b"})
    assert change(resource_version="5", deletion_timestamp="2026-01-01T00:00:00Z")


def test_pods_of_one_owner_are_one_shadow_group() -> None:
    model = world(queue(), queue("q"), pod("a", owner="rs", queue="q", at=1), pod("b", owner="rs", at=2), pod("c"))
    assert {job.name: len(job.tasks) for job in model.jobs.values()} == {"ns/rs": 2, "ns/c": 1}
    assert {job.name: job.queue for job in model.jobs.values()} == {"ns/rs": "q", "ns/c": "default"}


def test_a_shadow_group_and_a_pod_group_of_one_name_are_two() -> None:
    model = world(queue(), group("rs"), pod("a", of="rs"), pod("b", owner="rs"))
    assert sorted(job.name for job in model.jobs.values()) == ["ns/rs", "ns/rs"]


def test_priorities_come_from_the_class_the_pod_or_the_default() -> None:
    default = priority_class("default", 5, global_default=True)
    model = world(
        default, priority_class("high", 9, preemption_policy="Never"), group("g", priority_class_name="high"),
        group("h", priority_class_name="gone"), pod("a", of="g"), pod("b", priority=7),
        pod("c", priority_class_name="high"),
    )  # fmt: skip
    assert model.jobs["ns/g"].priority == 9
    assert model.jobs["ns/h"].priority_class_missing == "gone"
    assert [model.tasks[f"ns/{name}"].priority for name in "abc"] == [5, 7, 9]
    assert model.tasks["ns/c"].never_preempts
    model.apply(Delete(PriorityClass, "", "default"))
    assert model.tasks["ns/a"].priority == 0


def test_demand_counts_min_resources_that_no_pod_holds_yet() -> None:
    model = world(queue(), node("n1"), group("g", 3, min_resources={"requests.cpu": "3", "limits.cpu": "9"}))
    assert model.queues["default"].request == {"cpu": 3000}
    model.apply(Upsert(pod("g-0", of="g", on="n1")))
    assert model.jobs["ns/g"].outstanding == {"cpu": 2000}
    assert model.queues["default"].request == {"cpu": 3000}
    for at in range(1, 3):
        model.apply(Upsert(pod(f"g-{at}", of="g", on="n1")))
    assert model.jobs["ns/g"].outstanding == {}
    assert model.deserved() == {"default": {"cpu": 3000}}


def sent_back(name: str, **spec: Any) -> PodGroup:
    """A group that was in queue once, and was not whole in time."""
    made = group(name, **spec)
    made.status.conditions = (Condition(type="Enqueued", status="False", reason="WaitingInQueue"),)
    made.status.scheduling_attempts = 1
    return made


def test_a_group_that_was_sent_back_asks_for_its_pods_until_it_is_in_queue_again() -> None:
    made = sent_back("g", min_resources={"cpu": "3"})
    model = world(queue(), node("n1"), made)
    assert model.jobs["ns/g"].outstanding == {"cpu": 3000}, "this is still what it needs to come in"
    assert model.queues["default"].request == {}
    model.apply(Upsert(pod("g-0", of="g")))
    assert model.queues["default"].request == {"cpu": 1000}
    let_in = copy.deepcopy(made)
    let_in.status.conditions = (Condition(type="Enqueued", status="True", reason="Enqueued"),)
    model.apply(Upsert(let_in))
    assert model.queues["default"].request == {"cpu": 3000}
    model.apply(Upsert(made))
    assert model.queues["default"].request == {"cpu": 1000}
    model.validate()


def test_a_thousand_groups_that_never_come_take_nothing_of_other_queues_shares() -> None:
    ghosts = [sent_back(f"ghost-{at}", queue="ghosts", min_resources={"cpu": "4"}) for at in range(1000)]
    work = [pod(f"g-{at}", of="g") for at in range(4)]
    others = (group("g", 4, queue="real"), *work)
    model = world(queue("ghosts"), queue("real"), node("n1"), *ghosts, *others)
    assert model.deserved() == {"ghosts": {"cpu": 0}, "real": {"cpu": 4000}}
    model.validate()


def test_a_closed_queue_asks_for_what_it_holds() -> None:
    model = world(queue(state="Closed"), node("n1"), group("g"), pod("g-0", of="g", on="n1"), pod("g-1", of="g"))
    assert [claim.request for claim in model.claims()] == [{"cpu": 1000}]


def test_like_pods_are_one_class_whatever_owns_them() -> None:
    model = world(members("g", 3), pod("x", owner="rs"), pod("y", "2"))
    assert len({task.cls.id for task in model.tasks.values()}) == 2


def test_labels_split_a_class_once_something_selects_by_them() -> None:
    model = world([pod(f"p{at}", labels={"app": f"a{at}", "index": str(at)}) for at in range(2)])
    assert len({task.cls.id for task in model.tasks.values()}) == 1
    term = PodAffinityTerm(topology_key="zone", label_selector=LabelSelector(match_labels={"app": "a0"}))
    model.apply(Upsert(pod("z", affinity=Affinity(pod_anti_affinity=PodAffinity(required=(term,))))))
    model.refresh()
    classes = [model.tasks[f"ns/p{at}"].cls for at in range(2)]
    assert classes[0] is not classes[1]
    assert classes[0].labels == {"app": "a0"}
    model.validate()


def test_a_group_that_has_said_all_is_settled() -> None:
    told = group("g", 1)
    told.status.conditions = (Condition(type="Enqueued", status="True"), Condition(type="Scheduled", status="True"))
    model = world(queue(), node("n1"), told, pod("g-0", of="g", on="n1"))
    assert dict(model.live) == {}
    model.apply(Upsert(pod("g-1", of="g")))
    assert list(model.live) == ["ns/g"]


def test_an_event_of_a_pod_is_cheap() -> None:
    model = world(queue(), [node(f"n{at}") for at in range(20)], group("g"))
    pods = members("g", 3000)
    began = time.process_time()
    for one in pods:
        model.apply(Upsert(one))
    assert (time.process_time() - began) / len(pods) < 200e-6
    model.refresh()
    later = copy.deepcopy(pods[0])
    later.status.phase = "Running"
    later.spec.node_name = "n1"
    model.apply(Upsert(later))
    assert model.jobs["ns/g"].holding == 1


def test_deletes_of_the_unknown_change_nothing() -> None:
    model = ClusterModel()
    model.apply(Delete(Pod, "ns", "nobody"))
    assert model.generation == 0


def test_sums_that_no_column_holds_fill_their_node_and_stop_nobody() -> None:
    """Each amount may be as large as 2^53, and a thousand such pods may claim to stand on one node: it is closed."""
    found = ClusterModel()
    found.apply(Upsert(worlds.node("full")))
    found.apply(Upsert(worlds.node("free")))
    huge = [worlds.pod(f"p{at}", "1", memory=str(2**53), on="full", scheduler="other") for at in range(1_100)]
    for each in huge:
        found.apply(Upsert(each))
        found.evicting(f"ns/{each.metadata.name}", each.metadata.uid)
    row = found.table.row["full"]
    assert found.table.idle["memory"][row] < 0
    assert not found.table.open[row]
    assert found.capacity["memory"] == 64 * 2**30, "that of the other node"
    found.apply(Upsert(worlds.pod("one-more", "1", memory=str(2**53), on="full", scheduler="other")))
    assert found.table.idle["memory"][row] < 0
    assert not found.table.open[row]
    for each in huge:
        found.apply(Delete(Pod, "ns", each.metadata.name))
    found.apply(Delete(Pod, "ns", "one-more"))
    found.validate()
