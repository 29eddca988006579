"""Reasons: their precedence, and messages that hold the numbers and what would help."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from typing import ClassVar

import pytest

from kbatch.api import node_reasons, reasons
from kbatch.api.reasons import (
    ClusterTooSmall,
    ExcessBudgetExceeded,
    GangExceedsReclaimableShare,
    Gated,
    InfiniteShareExceeded,
    NotEnoughResources,
    NotEnoughTasks,
    PodGroupNotFound,
    QueueCapabilityExceeded,
    QueueNotFound,
    QuotaExceeded,
    Reason,
    WaitingInQueue,
    most_specific,
)

GI = 2**30


@pytest.mark.parametrize("asked", [8, 9])
def test_what_asks_for_more_than_the_limit_itself_stays(asked: int) -> None:
    million = 10**6
    found = [
        QueueCapabilityExceeded("q", "cpu", asked, 0, 1, 8),
        QuotaExceeded("quota", "requests.cpu", asked, 0, 1, 8),
        InfiniteShareExceeded("q", asked * million, million, 4 * million, 8 * million, "2"),
        ExcessBudgetExceeded("q", asked * million, million, 8, 4 * million),
    ]
    assert {reason.stays for reason in found} == {asked > 8}
    assert not WaitingInQueue("q", "cpu", asked, 8, 0, 0).stays


def test_precedence_is_that_of_the_design() -> None:
    assert [reason.code for reason in reasons.GROUP_REASONS] == [
        "EngineError",
        "PodGroupNotFound",
        "QueueNotFound",
        "QueueClosed",
        "QueueNotAllowed",
        "PriorityClassNotFound",
        "Suspended",
        "JobSuspended",
        "ResourceClaimsUnsupported",
        "MinimumLost",
        "NotEnoughTasks",
        "QueueCapabilityExceeded",
        "QuotaExceeded",
        "InfiniteShareExceeded",
        "ExcessBudgetExceeded",
        "NotEnoughResources",
        "NotEnoughResources",
        "GangExceedsReclaimableShare",
        "TopologyUnsatisfied",
        "WaitingInQueue",
        "WaitingInQueue",
        "WaitingInQueue",
        "QueueOverused",
        "Reserved",
        "VictimsTerminating",
        "BindFailed",
        "Gated",
        "NotEnoughResources",
    ]
    ranks = [reason.rank for reason in reasons.GROUP_REASONS]
    assert ranks == sorted(set(ranks))


def test_the_most_specific_reason_wins_whatever_the_order() -> None:
    missing, few, room = QueueNotFound("q"), NotEnoughTasks(1, 3), NotEnoughResources(3, 1)
    assert most_specific([room, few, missing]) is missing
    assert most_specific([None, room, few]) is few
    assert most_specific([room, NotEnoughResources(3, 2)]) is room
    assert most_specific([]) is None
    assert most_specific([room, ClusterTooSmall(3, 1), WaitingInQueue("q", "cpu", 1, 1, 1, 1)]) == ClusterTooSmall(3, 1)


def test_not_enough_resources_tells_placeable_short_dimension_and_nodes() -> None:
    reason = NotEnoughResources(
        needed=6,
        placeable=4,
        resource="cpu",
        missing=2500,
        nodes=12,
        fitting=0,
        nodes_by_reason=(("taint dedicated", 5), ("insufficient cpu", 7)),
    )
    assert reason.message == (
        "4 of 6 pods can be placed; short of 2500m cpu; "
        "0/12 nodes fit: 7 insufficient cpu, 5 taint dedicated; free 2500m cpu or add nodes"
    )


def test_node_counts_are_bounded_and_ordered_by_number_then_name() -> None:
    many = tuple((f"reason {index:02}", 1 + (index == 3)) for index in range(12))
    message = NotEnoughResources(needed=1, placeable=0, nodes=13, nodes_by_reason=many).message
    assert "0/13 nodes fit: 2 reason 03, 1 reason 00, 1 reason 01" in message
    assert message.endswith("4 for other reasons; free or add nodes that take these pods")


def test_a_cluster_that_can_never_hold_the_group_is_told_apart_by_words_not_by_code() -> None:
    reason = ClusterTooSmall(needed=6, placeable=4, resource="memory", missing=2 * GI, nodes=3, role="worker")
    assert reason.code == "NotEnoughResources"
    assert reason.message == (
        "4 of 6 pods would fit the cluster even without kbatch's other pods, no more of role worker; "
        "short of 2Gi memory; beside them 0/3 nodes fit; "
        "add larger or more nodes, or lower minMember or the pods' requests"
    )


def test_larger_nodes_are_not_asked_for_where_room_is_not_what_lacks() -> None:
    kinds = (("node selector", 3), ("taint dedicated", 1))
    alone = ClusterTooSmall(needed=1, placeable=0, nodes=4, nodes_by_reason=kinds)
    assert alone.message.endswith(
        "; add nodes that take these pods, or change what keeps them off: node selector, taint dedicated"
    )
    mixed = ClusterTooSmall(needed=1, placeable=0, nodes=5, nodes_by_reason=(*kinds, ("insufficient cpu", 1)))
    assert mixed.message.endswith("; add larger or more nodes, or lower minMember or the pods' requests")
    assert node_reasons.Insufficient("cpu").short.startswith("insufficient ")
    assert node_reasons.TooManyPods().short == "too many pods"


def test_cordoned_nodes_are_uncordoned_before_any_are_added() -> None:
    kinds = (("unschedulable", 2),)
    alone = ClusterTooSmall(needed=1, placeable=0, resource="cpu", missing=1000, nodes=2, nodes_by_reason=kinds)
    assert alone.message.endswith("; uncordon 2 nodes, or add nodes that take these pods")
    selected = ClusterTooSmall(needed=1, placeable=0, nodes=3, nodes_by_reason=(*kinds, ("node selector", 1)))
    assert selected.message.endswith(
        "; uncordon 2 nodes, add nodes that take these pods, or change what keeps them off: node selector"
    )
    mixed = (("unschedulable", 1), ("insufficient cpu", 1))
    small = ClusterTooSmall(needed=1, placeable=0, resource="cpu", missing=1000, nodes=2, nodes_by_reason=mixed)
    assert small.message.endswith(
        "; uncordon 1 node, add larger or more nodes, or lower minMember or the pods' requests"
    )
    busy = NotEnoughResources(needed=1, placeable=0, resource="cpu", missing=1000, nodes=2, nodes_by_reason=mixed)
    assert busy.message.endswith("; uncordon 1 node, or free 1 cpu or add nodes")
    assert node_reasons.NodeUnschedulable().short == "unschedulable"


def test_an_empty_cluster_is_said_to_be_empty() -> None:
    assert NotEnoughResources(needed=2, placeable=0).message == "0 of 2 pods can be placed; 0/0 nodes fit; add nodes"
    assert ClusterTooSmall(needed=2, placeable=0).message.endswith("0/0 nodes fit; add nodes")


def test_tasks_tell_created_and_needed() -> None:
    assert NotEnoughTasks(created=3, needed=6).message == "3 of 6 pods exist; create 3 more, or lower minMember"
    assert NotEnoughTasks(created=2, needed=4, beyond=1).message == (
        "2 of 4 pods exist, 1 more is beyond maxMember of its role; create 2 more of other roles, or lower minMember"
    )
    assert NotEnoughTasks(created=2, needed=3, beyond=4, most=2).message == (
        "2 of 3 pods exist, 4 more are beyond maxMember of their role; "
        "its roles may have 2 pods in all: raise maxMember, or lower minMember"
    )
    assert NotEnoughTasks(created=1, needed=2, role="worker", strays=2, stray="workers").message == (
        "1 of 2 pods of role worker exist (2 pods of the group name a role that the group does not declare (workers) "
        "in the label kbatch.dev/sub-group); create 1 more, or lower minMember"
    )
    assert NotEnoughTasks(0, 1, "ps", lower="subGroups[].minMember").message == (
        "0 of 1 pods of role ps exist; create 1 more, or lower subGroups[].minMember"
    )
    assert "(1 pod of the group names no role in the label" in NotEnoughTasks(0, 1, "ps", strays=1).message
    assert NotEnoughTasks(created=0, needed=5, coming=3).message == (
        "0 of 5 pods exist, and 3 more are to be made; create 2 more, or lower minMember"
    )
    assert "pods of role ps exist" in NotEnoughTasks(created=3, needed=6, role="ps").message


def test_limits_tell_asked_reserved_used_and_hard() -> None:
    quota = QuotaExceeded(quota="team", resource="requests.cpu", asked=4000, reserved=1500, used=2000, hard=6000)
    assert quota.message == (
        "asks for 4 requests.cpu, over ResourceQuota team: 2 used and 1500m reserved of 6; "
        "wait for other groups or pods of the namespace to end, or raise the quota"
    )
    cap = QueueCapabilityExceeded(queue="q", resource="memory", asked=9 * GI, reserved=0, used=0, hard=8 * GI)
    assert cap.message == (
        "asks for 9Gi memory, over the capability of Queue q: 0 used and 0 reserved of 8Gi; "
        "it can never fit: raise the capability or ask for less"
    )


def test_what_can_never_start_is_told_so() -> None:
    most = InfiniteShareExceeded("q", asked=7_500_000, flow=0, fair_share=5_000_000, most=6_000_000, factor="1.2")
    assert most.message.startswith(
        "asks for 7.5, while groups of Queue q without a lifetime have a flow of 0 of at most 6"
    )
    assert most.message.endswith(
        "it can never start as it is: give it a lifetimeSeconds, ask for less, or raise the queue's weight"
    )
    budget = ExcessBudgetExceeded("q", asked=40_500_000, charged=0, budget=40, fair_share=5_000_000)
    assert budget.message == (
        "would be charged 40.5 resource-minutes above the fair share of 5, over the excessBudget of Queue q: 0 of 40 "
        "charged; it starts only within the fair share as it is: give it a shorter lifetime, or raise the budget"
    )


def test_shares_tell_allocated_and_deserved() -> None:
    reason = GangExceedsReclaimableShare(
        queue="q", resource="cpu", asked=9000, allocated=1000, deserved=4000, idle=2500
    )
    for part in ("asks for 9 cpu", "holds 1 cpu", "deserved 4 cpu", "2500m cpu is idle"):
        assert part in reason.message


@pytest.mark.parametrize(("emptied", "help_"), [(True, "or add larger nodes"), (False, "or free more of one node")])
def test_pods_that_are_to_stand_on_one_node_are_not_helped_by_more_nodes(emptied: bool, help_: str) -> None:
    reason = reasons.TopologyUnsatisfied(2, 1, 0, domain="z/n", level="node", emptied=emptied)
    assert reason.message.endswith(help_)


@pytest.mark.parametrize(
    ("type_", "lacks"),
    [(NotEnoughResources, True), (ClusterTooSmall, True), (QuotaExceeded, False), (reasons.QueueOverused, False)],
)
def test_only_lack_of_capacity_is_an_autoscalers_business(type_: type[Reason], lacks: bool) -> None:
    assert type_.lacks_capacity is lacks


def test_foreign_text_is_bounded() -> None:
    assert len(reasons.BindFailed(pod="p", node="n", failures=1, why="x" * 100_000).message) < 700
    assert len(Gated(gated=1, needed=2, gates=("g" * 300,) * 1000).message) < 3000


def test_reasons_are_values() -> None:
    reason = PodGroupNotFound("g")
    assert reason == PodGroupNotFound("g")
    assert len({reason, PodGroupNotFound("g")}) == 1
    with pytest.raises(FrozenInstanceError):
        reason.group = "h"  # type: ignore[misc]


def test_a_plugins_reason_stands_just_before_the_catch_all() -> None:
    @dataclass(frozen=True, slots=True)
    class NoLicence(Reason):
        code: ClassVar[str] = "licences/NoLicence"
        product: str

        @property
        def message(self) -> str:
            return f"no licence of {self.product} is free"

    own = NoLicence("solver")
    assert most_specific([NotEnoughResources(1, 0), own]) is own
    assert most_specific([own, Gated(1, 1, ())]) == Gated(1, 1, ())


@pytest.mark.parametrize("code", ["lower", "Two Words", "a/b/C", "/C", "plugin/", "", "Plugin/C"])
def test_a_code_that_cannot_stand_in_a_condition_is_refused(code: str) -> None:
    with pytest.raises(TypeError, match="not of the form"):
        type("Bad", (Reason,), {"code": code})


def test_node_reasons_are_counted_under_distinct_words() -> None:
    words = [type_().short for type_ in node_reasons.NODE_REASONS]
    assert len(set(words)) == len(words)
    assert all(word and word == word.lower() for word in words)
    assert node_reasons.Insufficient("nvidia.com/gpu").short == "insufficient nvidia.com/gpu"
    assert node_reasons.UntoleratedTaint("dedicated").short == "taint dedicated"
    assert node_reasons.TooManyPods().message == "the node does not take the pod: too many pods"


def test_waiting_in_queue_tells_what_lacks_beside_what_is_reserved() -> None:
    reason = WaitingInQueue("q", "cpu", asked=64_000, available=-256_000, reserved=256_000, ahead=2)
    assert reason.message == (
        "waits in Queue q behind 2 groups: asks for 64 cpu, 0 cpu is available (256 cpu is reserved for groups that "
        "are in queue); it continues when another 320 cpu is free"
    )


def test_waiting_in_queue_says_nothing_of_nobody() -> None:
    reason = WaitingInQueue("q", "cpu", asked=6_000, available=2_000, reserved=0, ahead=0)
    assert (
        reason.message
        == "waits in Queue q: asks for 6 cpu, 2 cpu is available; it continues when another 4 cpu is free"
    )
