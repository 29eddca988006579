"""What is said of a queue."""

from __future__ import annotations

from fractions import Fraction

import msgspec
import pytest

from kbatch.api.names import GROUP_NAME_ANNOTATION
from kbatch.api.objects import (
    Container,
    Metadata,
    Node,
    NodeStatus,
    Pod,
    PodCondition,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    PodSpec,
    PodStatus,
    Queue,
    QueueSpec,
    QueueStatus,
    ResourceRequirements,
)
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from operators.queue.status import GroupCounts, count_groups, decimal, manifest, reports, same


def queue(name: str, weight: int = 1, *, state: str = "Open", cap: str = "") -> Queue:
    return Queue(
        metadata=Metadata(name=name),
        spec=QueueSpec(weight=weight, state=state, capability={"cpu": cap} if cap else None),
    )


def node(name: str, cpu: str) -> Node:
    ready = (PodCondition(type="Ready", status="True"),)
    return Node(
        metadata=Metadata(name=name),
        status=NodeStatus(allocatable={"cpu": cpu, "memory": "64Gi", "pods": "110"}, conditions=ready),
    )


def group(name: str, of: str, phase: str = "", *, cpu: str = "") -> PodGroup:
    return PodGroup(
        metadata=Metadata(namespace="ns", name=name),
        spec=PodGroupSpec(queue=of, min_resources={"cpu": cpu} if cpu else None),
        status=PodGroupStatus(phase=phase),
    )


def pod(name: str, of: str, cpu: str, *, on: str = "") -> Pod:
    return Pod(
        metadata=Metadata(namespace="ns", name=name, uid=name, annotations={GROUP_NAME_ANNOTATION: of}),
        spec=PodSpec(
            scheduler_name="kube-batch",
            node_name=on,
            containers=(Container(resources=ResourceRequirements(requests={"cpu": cpu})),),
        ),
        status=PodStatus(phase="Running" if on else "Pending"),
    )


def model(*objects: Queue | Node | PodGroup | Pod) -> ClusterModel:
    made = ClusterModel()
    for one in objects:
        made.apply(Upsert(one))
    return made


def test_two_queues_divide_a_contended_cluster_by_weight() -> None:
    said = reports(
        model(
            node("n", "40"),
            queue("a"),
            queue("b", 3),
            group("ga", "a", "Running"),
            group("gb", "b", "Pending", cpu="100"),
            pod("p", "ga", "20", on="n"),
            pod("q", "ga", "30"),
        )
    )
    assert said["a"].deserved == {"cpu": 10_000}
    assert said["b"].deserved == {"cpu": 30_000}
    status = said["a"].status()
    assert (status.allocated, status.requested, status.share) == ({"cpu": "20"}, {"cpu": "50"}, "2")
    assert (status.running, status.pending, said["b"].status().pending) == (1, 0, 1)


def test_what_a_queue_leaves_goes_to_the_other() -> None:
    said = reports(model(node("n", "40"), queue("a"), queue("b", 3), group("ga", "a", cpu="100")))
    assert said["a"].deserved == {"cpu": 40_000}
    assert said["b"].status() == QueueStatus(state="Open", share="0")


def test_only_queues_that_exist_are_reported() -> None:
    made = model(node("n", "4"), queue("a"), group("g", "missing", cpu="1"))
    assert set(reports(made)) == {"a"}
    made.apply(Delete(Queue, "", "a"))
    assert not reports(made)


def test_a_closed_queue_says_so_and_asks_for_no_more_than_it_holds() -> None:
    said = reports(
        model(
            node("n", "8"), queue("a", state="Closed"), group("g", "a"), pod("p", "g", "2", on="n"), pod("q", "g", "2")
        )
    )
    assert said["a"].status().state == "Closed"
    assert said["a"].deserved == {"cpu": 2_000}


def test_a_cap_bounds_what_is_deserved() -> None:
    said = reports(model(node("n", "8"), queue("a", cap="3"), group("g", "a", cpu="8")))
    assert said["a"].deserved == {"cpu": 3_000}


def test_groups_are_counted_by_phase() -> None:
    phases = ["", "Pending", "InQueue", "Running", "Unknown", "Completed", "Failed"]
    groups = [group(f"g{index}", "a", phase) for index, phase in enumerate(phases)]
    assert count_groups(groups) == {"pending": 2, "inqueue": 1, "running": 2, "completed": 2}


def test_counts_that_are_kept_follow_every_change() -> None:
    made = model(node("n", "8"), queue("a"), queue("b"), group("g", "a"), pod("p", "g", "2"))
    counts = GroupCounts()

    def counted(name: str) -> dict[str, int]:
        said = reports(made, counts)
        assert said == reports(made)
        return {phase: count for phase, count in said[name].groups.items() if count}

    assert counted("a") == {"pending": 1}
    for phase, counter in (
        ("InQueue", "inqueue"),
        ("Pending", "pending"),
        ("Running", "running"),
        ("Failed", "completed"),
    ):
        made.apply(Upsert(group("g", "a", phase)))
        assert counted("a") == {counter: 1}
    made.apply(Upsert(group("h", "a")))
    assert counted("a") == {"pending": 1, "completed": 1}
    made.apply(Upsert(group("h", "b")))
    assert (counted("a"), counted("b")) == ({"completed": 1}, {"pending": 1})
    made.apply(Delete(PodGroup, "ns", "h"))
    assert counted("b") == {}
    made.apply(Delete(Queue, "", "b"))
    made.apply(Upsert(queue("b")))
    assert counted("b") == {}


def test_groups_are_not_counted_again_where_none_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = model(node("n", "8"), queue("a"), queue("b"), group("g", "a"), group("h", "b"))
    counts, looked = GroupCounts(), list[int]()

    def counting(groups: list[PodGroup]) -> dict[str, int]:
        looked.append(len(groups))
        return count_groups(groups)

    monkeypatch.setattr("operators.queue.status.count_groups", counting)
    reports(made, counts)
    assert looked == [1, 1]
    made.apply(Upsert(group("g", "a", "Running")))
    reports(made, counts)
    assert looked == [1, 1, 1]


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (Fraction(0), "0"),
        (Fraction(1), "1"),
        (Fraction(3, 4), "0.75"),
        (Fraction(4, 3), "1.333"),
        (Fraction(1, 10_000), "0"),
        (Fraction(4000), "4000"),
        (Fraction(10), "10"),
    ],
)
def test_shares_are_short_decimals(share: Fraction, text: str) -> None:
    assert decimal(share) == text


def test_what_was_written_and_read_back_needs_no_second_write() -> None:
    made = model(node("n", "4"), queue("a"), group("g", "a", "Running", cpu="2"), pod("p", "g", "1500m", on="n"))
    wanted = reports(made)["a"].status()
    assert not same(QueueStatus(), wanted)
    written = manifest(wanted)
    assert written["pending"] == 0
    assert same(msgspec.convert(written, QueueStatus), wanted)


def test_somebody_elses_part_of_the_status_is_not_compared() -> None:
    wanted = reports(model(queue("a")))["a"].status()
    standing = msgspec.convert({**manifest(wanted), "conditions": [{"type": "X", "status": "True"}]}, QueueStatus)
    assert same(standing, wanted)


def test_a_queue_says_that_its_capability_was_lowered_below_what_it_holds() -> None:
    made = model(node("n", "40"), queue("a"), group("g", "a", "Running"), pod("p", "g", "8", on="n"))
    (before,) = reports(made).values()
    assert before.status(QueueStatus(), "1").conditions is None
    made.apply(Upsert(queue("a", cap="2500m")))
    (report,) = reports(made).values()
    status = report.status(QueueStatus(), "2026-01-01T00:00:00Z")
    (over,) = status.conditions or ()
    assert (over.type, over.status, over.last_transition_time) == ("OverCapability", "True", "2026-01-01T00:00:00Z")
    assert over.message == (
        "holds 8 cpu, over its capability of 2500m cpu; nothing is evicted for that, and nothing that asks for "
        "cpu starts until it is within it"
    )
    assert not same(before.status(), status)
    assert same(status, report.status(status, "later")), "said once"
    made.apply(Upsert(queue("a", cap="8")))
    (within,) = reports(made).values()
    (again,) = within.status(status, "2026-01-01T00:00:09Z").conditions or ()
    assert (again.status, again.reason, again.last_transition_time) == (
        "False", "WithinCapability", "2026-01-01T00:00:09Z",
    )  # fmt: skip
    assert manifest(within.status(status, "2026-01-01T00:00:09Z"))["conditions"][0]["message"] == ""
