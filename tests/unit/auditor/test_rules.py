"""Each rule of the auditor fires on a made-up misdeed, and is silent about what is right."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.auditor.allowances import Limits
from tests.e2e.auditor.auditor import Judge
from tests.e2e.auditor.quantities import quantity, request_of
from tests.e2e.auditor.rules import Eviction

LIMITS = Limits(partial=20, untrue=5, beneficiary=30, race=1)


class Story:
    """Tells a judge what happens, second by second; the leader renews its Lease all the time."""

    def __init__(self, **options: Any) -> None:
        self.judge = Judge(LIMITS, **options)
        self.now = 0.0
        self.uids: dict[str, int] = {}
        self.lead("a")
        self.node("n1", cpu="4")
        self.node("n2", cpu="4")
        self.queue("default")

    @property
    def rules(self) -> list[str]:
        return [violation.rule for violation in self.judge.violations]

    def tell(self, kind: str, change: str, obj: dict[str, Any]) -> None:
        self.judge.told(kind, change, obj, self.now)
        self.judge.tick(self.now)

    def wait(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.now += 1
            self.lead(self.leader)

    def lead(self, who: str) -> None:
        self.leader = who
        self.tell("Lease", "MODIFIED", {"metadata": {"name": "kbatch-scheduler"}, "spec": {"holderIdentity": who}})

    def node(
        self,
        name: str,
        cpu: str = "4",
        change: str = "ADDED",
        *,
        cordoned: bool = False,
        ready: str = "True",
        labels: dict[str, str] | None = None,
        taints: tuple[dict[str, str], ...] = (),
    ) -> None:
        allocatable = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
        status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]}
        spec = {"unschedulable": cordoned, "taints": list(taints)}
        self.tell("Node", change, {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": status})

    def queue(self, name: str, **spec: Any) -> None:
        self.tell("Queue", "ADDED", {"metadata": {"name": name}, "spec": spec})

    def group(
        self,
        name: str,
        minimum: int,
        *,
        queue: str = "default",
        phase: str = "",
        maximum: Any = None,
        asks: Any = None,
        **conditions: str,
    ) -> None:
        listed = []
        for kind, said in conditions.items():
            status, _, reason = said.partition(" ")
            listed.append({"type": kind, "status": status, "reason": reason})
        self.tell(
            "PodGroup",
            "MODIFIED",
            {
                "metadata": {"namespace": "ns", "name": name, "uid": name},
                "spec": {"minMember": minimum, "queue": queue}
                | ({"maxMember": maximum} if maximum else {})
                | ({"minResources": asks} if asks else {}),
                "status": {"conditions": listed, "phase": phase},
            },
        )

    def budget(self, name: str, least: Any, labels: dict[str, str], *, wanted: int = 0, change: str = "ADDED") -> None:
        self.tell(
            "PodDisruptionBudget",
            change,
            {
                "metadata": {"namespace": "ns", "name": name},
                "spec": {"minAvailable": least, "selector": {"matchLabels": labels}},
                "status": {"desiredHealthy": wanted},
            },
        )

    def quota(self, name: str, hard: dict[str, str], change: str = "ADDED", *, scopes: tuple[str, ...] = ()) -> None:
        spec = {"hard": hard} | ({"scopes": list(scopes)} if scopes else {})
        self.tell("ResourceQuota", change, {"metadata": {"namespace": "ns", "name": name}, "spec": spec})

    def forget(self, name: str) -> None:
        """A group is deleted."""
        self.tell("PodGroup", "DELETED", {"metadata": {"namespace": "ns", "name": name, "uid": name}})

    def pod(
        self,
        name: str,
        group: str = "",
        *,
        node: str = "",
        cpu: str = "1",
        change: str = "MODIFIED",
        scheduler: str = "kube-batch",
        phase: str = "Pending",
        evicted: bool = False,
        nominated: str = "",
        uid: str = "",
        given: bool = False,
        labels: dict[str, str] | None = None,
        scheduled: str = "True",
        **extra: Any,
    ) -> None:
        meta: dict[str, Any] = {"namespace": "ns", "name": name, "uid": uid or name, "labels": labels or {}}
        if group:
            meta["annotations"] = {"scheduling.k8s.io/group-name": group}
        if evicted:
            meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        conditions = [{"type": "PodScheduled", "status": scheduled}] if node and not given else []
        if evicted:
            conditions.append({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"})
        spec = {"schedulerName": scheduler, "containers": [{"resources": {"requests": {"cpu": cpu}}}], **extra}
        self.tell(
            "Pod",
            change,
            {
                "metadata": meta,
                "spec": spec | ({"nodeName": node} if node else {}),
                "status": {
                    "phase": phase,
                    "conditions": conditions,
                    "nominatedNodeName": nominated,
                },
            },
        )

    def gang(self, name: str, size: int, *, bound: int = 0, **conditions: str) -> None:
        self.group(name, size, **conditions)
        for index in range(size):
            self.pod(f"{name}-{index}", name)
            if index < bound:
                self.pod(f"{name}-{index}", name, node="n1" if index < 4 else "n2")

    def evict(self, victim: str, action: str = "", beneficiary: str = "", *, by: str = "a") -> None:
        self.judge.evicted(Eviction(f"ns/{victim}", victim if by else "", by, action, beneficiary), self.now)
        self.judge.tick(self.now)


def test_a_gang_placed_well_breaks_no_rule() -> None:
    story = Story()
    story.gang("g", 4, bound=4)
    story.group("g", 4, Scheduled="True")
    story.wait(60)
    assert story.rules == []


def test_a_pod_on_two_nodes() -> None:
    story = Story()
    story.pod("p")
    story.pod("p", node="n1")
    story.pod("p", node="n1", phase="Running")
    assert story.rules == []
    story.pod("p", node="n2")
    assert story.rules == ["bound twice"]


def test_another_pod_of_the_same_name_may_have_another_node() -> None:
    story = Story()
    story.pod("p", node="n1")
    story.pod("p", node="n2", uid="another")
    assert story.rules == []


def test_a_node_over_its_allocatable() -> None:
    story = Story()
    for index in range(5):
        story.pod(f"p{index}")
        assert story.rules == []
        story.pod(f"p{index}", node="n1")
    assert story.rules == ["over allocatable"]


def test_room_of_ended_pods_is_free() -> None:
    story = Story()
    for index in range(12):
        story.pod(f"p{index}")
        story.pod(f"p{index}", node="n1")
        story.pod(f"p{index}", node="n1", phase="Succeeded")
    assert story.rules == []


def test_a_node_that_shrinks_is_nobodys_misdeed_but_a_bind_to_it_is() -> None:
    story = Story()
    for index in range(3):
        story.pod(f"p{index}")
        story.pod(f"p{index}", node="n1")
    story.node("n1", cpu="2", change="MODIFIED")
    assert story.rules == []
    story.pod("late")
    story.pod("late", node="n1")
    assert story.rules == ["over allocatable"]


@pytest.mark.parametrize(("seconds", "rules"), [(0, []), (3, ["over allocatable"])])
def test_another_schedulers_bind_must_be_known_after_a_moment(seconds: int, rules: list[str]) -> None:
    story = Story()
    for name in ("f1", "f2"):
        story.pod(name, cpu="2", scheduler="default-scheduler")
        story.pod(name, cpu="2", scheduler="default-scheduler", node="n1")
    story.wait(seconds)
    story.pod("p")
    story.pod("p", node="n1")
    assert story.rules == rules


@pytest.mark.parametrize(("seconds", "rules"), [(0, []), (3, ["over allocatable"])])
def test_a_bind_to_a_node_that_is_gone(seconds: int, rules: list[str]) -> None:
    story = Story()
    story.pod("p")
    story.node("n1", cpu="4", change="DELETED")
    story.wait(seconds)
    story.pod("p", node="n1")
    assert story.rules == rules


@pytest.mark.parametrize("closed", [{"cordoned": True}, {"ready": "False"}, {"ready": "Unknown"}])
@pytest.mark.parametrize(("seconds", "rules"), [(0, []), (3, ["closed node"])])
def test_a_bind_to_a_node_that_takes_no_pods(closed: dict[str, Any], seconds: int, rules: list[str]) -> None:
    story = Story()
    story.pod("p")
    story.pod("early")
    story.pod("early", node="n1")
    story.node("n1", change="MODIFIED", **closed)
    story.wait(seconds)
    story.node("n1", change="MODIFIED", **closed)  # a heartbeat, say: it is closed all the same
    story.pod("p", node="n1")
    assert story.rules == rules
    story.node("n1", change="MODIFIED")
    story.pod("late")
    story.pod("late", node="n1")
    assert story.rules == rules


def test_a_gang_left_partial() -> None:
    story = Story()
    story.gang("g", 4, bound=2)
    story.wait(19)
    assert story.rules == []
    story.wait(3)
    assert story.rules == ["partial gang"]


def test_a_gang_is_not_left_partial_by_whoever_makes_a_pod_with_a_node() -> None:
    story = Story()
    story.gang("g", 2)
    story.pod("g-0", "g", node="n1", given=True)
    story.wait(30)
    assert story.rules == []
    story.gang("h", 3, bound=1)
    story.pod("h-1", "h", node="n1", given=True)
    story.wait(30)
    assert story.rules == ["partial gang"], "one of these was bound"


def test_time_without_a_leader_or_without_sight_does_not_count() -> None:
    story = Story()
    story.gang("g", 4, bound=2)
    story.wait(15)
    story.now += 60  # nobody renews
    story.lead("b")
    story.wait(15)
    story.tell("Pod", "LOST", {})
    story.wait(30)
    story.tell("Pod", "SEEN", {})
    story.wait(15)
    assert story.rules == []
    story.wait(6)
    assert story.rules == ["partial gang"]


def test_a_gang_that_lacks_pods_is_not_the_schedulers_doing() -> None:
    story = Story()
    story.gang("g", 4, bound=4)
    story.pod("g-0", "g", node="n1", change="DELETED")
    story.wait(60)
    assert story.rules == []


def test_an_eviction_whose_beneficiary_still_waits() -> None:
    story = Story()
    story.gang("low", 1, bound=1)
    story.gang("high", 1)
    story.pod("low-0", "low", node="n1", evicted=True)
    story.evict("low-0", "preempt", "ns/high")
    story.wait(28)
    assert "evicted in vain" not in story.rules
    story.wait(5)
    assert story.rules == ["evicted in vain"]


def test_an_eviction_whose_beneficiary_is_placed() -> None:
    story = Story()
    story.gang("low", 1, bound=1)
    story.gang("high", 1)
    story.pod("high-0", "high", nominated="n1")
    story.pod("low-0", "low", node="n1", evicted=True)
    story.wait(5)
    story.pod("high-0", "high", node="n1")
    story.group("high", 1, Scheduled="True")
    story.evict("low-0", "preempt", "ns/high")
    story.wait(60)
    assert story.rules == []


def test_an_eviction_whose_beneficiary_is_placed_only_in_part() -> None:
    story = Story()
    story.gang("low", 1, bound=1)
    story.gang("high", 2)
    story.pod("low-0", "low", node="n1", evicted=True)
    story.evict("low-0", "reclaim", "ns/high")
    story.pod("high-0", "high", node="n1")
    story.wait(35)
    assert sorted(story.rules) == ["evicted in vain", "partial gang"]


def test_how_long_things_lasted_is_told_even_where_they_were_within_their_limits() -> None:
    story = Story()
    story.gang("g", 4, bound=2, Scheduled="True x")
    story.wait(4)
    story.group("g", 4, Scheduled="False y")
    assert story.rules == []
    assert story.judge.longest["placed in part"] >= 4
    assert story.judge.longest["Scheduled=True, though fewer than its N pods are placed"] >= 4


def test_an_eviction_for_a_pod_without_a_group() -> None:
    for bound in (True, False):
        story = Story()
        story.gang("low", 1, bound=1)
        story.pod("alone", nominated="n1")
        story.pod("low-0", "low", node="n1", evicted=True)
        if bound:
            story.pod("alone", node="n1")
        story.wait(35)
        assert story.rules == ([] if bound else ["evicted in vain"])


def test_a_beneficiary_that_is_deleted_needs_no_place() -> None:
    story = Story()
    story.gang("low", 1, bound=1)
    story.gang("high", 1)
    story.pod("low-0", "low", node="n1", evicted=True)
    story.evict("low-0", "preempt", "ns/high")
    story.forget("high")
    story.wait(60)
    assert story.rules == []


@pytest.mark.parametrize("named", [False, True])
def test_an_eviction_for_nobody(named: bool) -> None:
    story = Story()
    story.gang("low", 1, bound=1)
    story.pod("low-0", "low", node="n1", evicted=True)
    if named:
        story.evict("low-0", "preempt")
    story.wait(35)
    assert story.rules == ["evicted in vain"]


def test_an_eviction_for_nobody_is_known_after_the_leader_has_changed_too() -> None:
    story = Story()
    story.gang("low", 1, bound=1)
    story.pod("low-0", "low", node="n1", evicted=True)
    story.wait(3)
    story.lead("b")
    story.wait(29)
    assert story.rules == []
    story.wait(5)
    assert story.rules == ["evicted in vain"]


@pytest.mark.parametrize("first", ["record", "watch"])
@pytest.mark.parametrize("by", ["a", ""])
def test_the_record_says_for_whom_an_eviction_was_and_that_it_was_somebody_elses(first: str, by: str) -> None:
    story = Story()
    story.gang("low", 1, bound=1)
    story.gang("high", 1, Scheduled="True")
    told = ("preempt", "ns/high") if by else ()
    if first == "record":
        story.evict("low-0", *told, by=by)
    story.pod("low-0", "low", node="n1", evicted=True)
    if first == "watch":
        story.evict("low-0", *told, by=by)
    story.lead("b")
    story.pod("high-0", "high", node="n1")
    story.wait(60)
    assert story.rules == []
    assert story.judge.evictions == ({"preempt": 1} if by else {})


def test_what_happened_while_something_was_unseen_needs_no_explanation() -> None:
    story = Story()
    story.gang("low", 1, bound=1)
    story.gang("high", 2)
    story.pod("low-0", "low", node="n1", evicted=True)
    story.evict("other-0", "preempt", "ns/high")
    story.tell("Pod", "LOST", {})
    story.tell("Pod", "SEEN", {})
    story.wait(29)
    assert story.rules == []
    story.wait(5)
    assert story.rules == ["evicted in vain"], "of one that was named it is known"
    assert story.judge.violations[0].about == "ns/high"


def test_a_gang_that_could_not_be_completed_is_taken_back_for_nobody() -> None:
    story = Story()
    story.gang("g", 4, bound=2)
    story.pod("g-0", "g", node="n1", evicted=True)
    story.pod("g-1", "g", node="n1", evicted=True)
    story.wait(60)
    assert story.rules == []


@pytest.mark.parametrize(("action", "rules"), [("reclaim", {"above deserved"}), ("preempt", set())])
def test_a_queue_lifted_above_its_share(action: str, rules: set[str]) -> None:
    story = Story()
    story.queue("a")
    story.queue("b")
    for queue, name, size in (("a", "rich", 8), ("b", "poor", 5), ("b", "more", 3)):
        story.group(name, size, queue=queue)
        for index in range(size):
            story.pod(f"{name}-{index}", name)
    # 8 cores, both queues ask for all of them: 4 each.
    for index in range(3):
        story.pod(f"rich-{index}", "rich", node="n1")
    story.pod("rich-3", "rich", node="n1", evicted=True)
    story.evict("rich-3", action, "ns/poor")
    for index in range(5):
        assert "above deserved" not in story.rules
        story.pod(f"poor-{index}", "poor", node="n2" if index else "n1")
    assert {"above deserved"} & set(story.rules) == rules


def test_a_queue_within_its_share_by_reclaim() -> None:
    story = Story()
    story.queue("a")
    story.queue("b")
    for queue, name, size in (("a", "rich", 8), ("b", "poor", 4), ("b", "more", 4)):
        story.group(name, size, queue=queue)
        for index in range(size):
            story.pod(f"{name}-{index}", name)
    story.evict("rich-3", "reclaim", "ns/poor")
    for index in range(4):
        story.pod(f"poor-{index}", "poor", node="n2")
    assert story.rules == []


@pytest.mark.parametrize(
    ("bound", "conditions", "right"),
    [
        (4, {"Scheduled": "False NotEnoughResources"}, {"Scheduled": "True Scheduled"}),
        (4, {"Scheduled": "True x", "Unschedulable": "True y"}, {"Scheduled": "True x", "Unschedulable": "False y"}),
        (0, {"Scheduled": "True Scheduled"}, {"Scheduled": "False NotEnoughResources"}),
        (0, {"Scheduled": "False QueueNotFound"}, {"Scheduled": "False NotEnoughResources"}),
    ],
)
def test_a_condition_that_is_not_true(bound: int, conditions: dict[str, str], right: dict[str, str]) -> None:
    story = Story()
    story.gang("g", 4, bound=bound, **conditions)
    story.wait(4)
    story.group("g", 4, **right)
    story.wait(10)
    assert story.rules == []
    story.group("g", 4, **conditions)
    story.wait(6)
    assert story.rules == ["untrue condition"]


def test_that_nothing_is_said_of_a_gang_may_last_longer_than_an_untruth() -> None:
    story = Story()
    story.gang("g", 4, bound=4)
    story.wait(14)
    assert story.rules == []
    story.wait(3)
    assert story.rules == ["untrue condition"]


def test_a_gang_of_which_pods_have_ended_may_have_been_whole() -> None:
    for ended in (True, False):
        story = Story()
        story.gang("g", 2, bound=2, Scheduled="True x")
        for index in range(2):
            if ended:
                story.pod(f"g-{index}", "g", node="n1", phase="Succeeded")
            story.pod(f"g-{index}", "g", node="n1", change="DELETED")
        story.wait(10)
        assert story.rules == ([] if ended else ["untrue condition"])


def test_of_a_group_that_is_gone_nothing_is_said() -> None:
    story = Story()
    story.gang("g", 2, Scheduled="True x")
    story.forget("g")
    story.wait(10)
    assert story.rules == []


def test_what_kept_everybody_from_writing_does_not_count() -> None:
    asked = []

    def hindered(group: str, since: float, until: float) -> float:
        asked.append((group, until - since))
        return 3.0

    story = Story(hindered=hindered)
    story.gang("g", 4, Scheduled="True x")
    story.wait(5)
    assert asked == []
    story.wait(3)
    assert story.rules == []
    assert asked[-1] == ("ns/g", 8.0)
    story.wait(1)
    assert story.rules == ["untrue condition"]


@pytest.mark.parametrize(("bound", "phase"), [(4, "Pending"), (4, "InQueue"), (0, "Running")])
def test_a_phase_that_is_not_true_where_phases_are_written(bound: int, phase: str) -> None:
    for phases in (False, True):
        story = Story(phases=phases)
        story.gang("g", 4, bound=bound)
        story.group("g", 4, phase=phase, Scheduled="True x" if bound else "False y")
        story.wait(10)
        assert story.rules == ["untrue condition"] * phases


def test_quantities_are_read_as_kubernetes_writes_them() -> None:
    assert [float(quantity(text)) for text in ("1", "250m", "1.5", "2Ki", "1e3", "4G", 3)] == [
        1, 0.25, 1.5, 2048, 1000, 4e9, 3,
    ]  # fmt: skip
    with pytest.raises(ValueError, match="quantity"):
        quantity("1Zi")


def test_a_pod_asks_for_its_largest_step() -> None:
    def container(cpu: str, **more: str) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "initContainers": [container("1", restartPolicy="Always"), container("5")],
        "containers": [container("2"), {"resources": {"limits": {"cpu": "1"}}}],
        "overhead": {"cpu": "500m"},
    }
    request = request_of(spec)
    assert float(request["cpu"]) == 6.5
    assert request["pods"] == 1
