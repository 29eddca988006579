"""Reclaim and preempt, over several cycles."""

import dataclasses
from typing import Any

import pytest

from kbatch.api.objects import (
    Affinity,
    LabelSelector,
    Metadata,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
)
from kbatch.engine.plugin import NoArguments, Plugin, Preemptor, Unit, Vote
from kbatch.model.events import Upsert
from kbatch.times import SECOND
from tests.unit.engine.worlds import (
    EPOCH,
    EVERYTHING,
    Simulation,
    group,
    members,
    node,
    pod,
    policy,
    priority_class,
    queue,
    run,
    world,
)

ZONE = "topology.kubernetes.io/zone"
CLASSES = [priority_class("low", 1), priority_class("high", 100)]


def standing(name: str, count: int, nodes: list[str], cpu: str = "1", **more: Any) -> list[Pod]:
    return [pod(f"{name}-{i}", cpu, of=name, on=nodes[i % len(nodes)], at=0, **more) for i in range(count)]


def test_reclaim_between_equal_queues_evicts_four_and_is_stable() -> None:
    for memory in ("1Gi", ""):
        sim = Simulation(
            world(
                [queue("q1"), queue("q2"), node("n1", "8", "8Gi"), group("a", queue="q1")],
                group("b", queue="q2", at=1),
                standing("a", 8, ["n1"], memory=memory), members("b", 8, memory=memory, at=1),
            )
        )  # fmt: skip
        sim.run(20)
        assert len(sim.evictions) == 4
        assert len(sim.running("a")) == 4
        assert len(sim.running("b")) == 4


def test_a_gang_beyond_the_share_of_its_queue_evicts_nobody() -> None:
    sim = Simulation(
        world(
            [queue("q1"), queue("q2"), node("n1", "4", "4Gi"), group("a", queue="q1"), group("b", 4, queue="q2", at=1)],
            standing("a", 4, ["n1"]), members("b", 4, at=1),
        )
    )  # fmt: skip
    sim.run(10)
    assert sim.evictions == []
    assert sim.last.reason("b") == "GangExceedsReclaimableShare"


RECLAIM_FIRST = EVERYTHING.replace("enqueue, reclaim", "reclaim")
"""Without enqueue, which would not let a group in whose queue deserves nothing."""


def test_pods_that_do_for_a_minimum_keep_to_the_share_as_well() -> None:
    """The pod that comes first is too big for any node; for the other, which would do, the queue deserves nothing."""
    sim = Simulation(
        world(
            [queue("q1", 0), queue("q2", 0, reclaimable=False), node("n1", "1", "1Gi")],
            [group("a", queue="q1"), group("b", queue="q2", at=1)],
            standing("a", 1, ["n1"]), pod("b-0", "0", of="b", memory="2Gi", at=1), pod("b-1", "1", of="b", at=1),
        ),
        policy(RECLAIM_FIRST),
    )  # fmt: skip
    sim.run(10)
    assert sim.evictions == []
    assert sim.last.reason("b") == "GangExceedsReclaimableShare"


def test_a_minimum_is_reclaimed_with_those_of_its_pods_that_the_share_holds() -> None:
    """The first pod asks for more than the share; the second does for the minimum."""
    sim = Simulation(
        world(
            [queue("q1", 2), queue("q2"), node("n1", "6", "6Gi"), group("a", queue="q1"), group("b", queue="q2", at=1)],
            standing("a", 2, ["n1"], cpu="3"), pod("b-0", "3", of="b", at=1), pod("b-1", "2", of="b", at=2),
        ),
        policy(RECLAIM_FIRST),
    )  # fmt: skip
    found = sim.cycle()
    assert len(found.evicted) == 1
    assert found.nominated == {"b-1": "n1"}


def test_a_gang_reclaims_all_it_needs_in_one_cycle() -> None:
    sim = Simulation(
        world(
            [queue("q1"), queue("q2"), node("n1", "8"), group("a", queue="q1"), group("b", 4, queue="q2", at=1)],
            standing("a", 8, ["n1"]), members("b", 4, at=1),
        )
    )  # fmt: skip
    found = sim.cycle()
    assert len(found.evicted) == 4
    assert set(found.nominated) == {"b-0", "b-1", "b-2", "b-3"}
    assert found.reason("b") == "VictimsTerminating"
    sim.run(10)
    assert len(sim.evictions) == 4
    assert len(sim.running("b")) == 4


def test_nobody_is_evicted_where_idle_room_serves() -> None:
    sim = Simulation(
        world(
            [queue("q1"), queue("q2"), node("n1"), node("n2"), group("a", queue="q1")], group("b", queue="q2", at=1),
            standing("a", 4, ["n1"]), members("b", 1, at=1),
        )
    )  # fmt: skip
    sim.run(3)
    assert sim.evictions == []
    assert sim.model.tasks["ns/b-0"].node == "n2"


def test_a_pod_without_requests_evicts_nobody() -> None:
    sim = Simulation(
        world(
            [queue("q1"), queue("q2"), node("n1", "4"), group("a", queue="q1")], group("b", queue="q2", at=1),
            standing("a", 2, ["n1"]), [pod("b-0", "0", of="b"), pod("b-1", "1", of="b")],
        )
    )  # fmt: skip
    sim.run(3)
    assert sim.evictions == []
    assert len(sim.running("b")) == 2


def test_a_queue_that_is_not_reclaimable_keeps_what_it_has() -> None:
    sim = Simulation(
        world(
            [queue("q1", reclaimable=False), queue("q2"), node("n1", "4"), group("a", queue="q1")],
                group("b", queue="q2"),
            standing("a", 4, ["n1"]), members("b", 2),
        )
    )  # fmt: skip
    sim.run(5)
    assert sim.evictions == []


def test_a_gang_is_not_broken_by_a_preemptor() -> None:
    sim = Simulation(
        world(
            [*CLASSES, queue(), node("n1", "5"), group("a", 4, priority_class_name="low")],
            standing("a", 5, ["n1"]),
            group("b", priority_class_name="high", at=1), members("b", 1, "2", at=1),
        )
    )  # fmt: skip
    sim.run(5)
    assert sim.evictions == []


def test_a_whole_group_goes_where_its_policy_says_so() -> None:
    sim = Simulation(
        world(
            [*CLASSES, queue(), node("n1", "5"), group("a", 4, priority_class_name="low", disruption="Whole")],
            standing("a", 5, ["n1"]),
            group("b", priority_class_name="high", at=1), members("b", 1, "2", at=1),
        ),
        recreate=False,
    )  # fmt: skip
    sim.run(5)
    assert len(sim.evictions) in {4, 5}
    assert sim.running("b") == ["b-0"]
    assert len(sim.running("a")) in {0, 1} or len(sim.running("a")) >= 4


def test_no_more_victims_than_needed() -> None:
    for cpu, count in (("2", 1), ("4", 3)):
        sim = Simulation(
            world(
                [*CLASSES, queue(), node("n1", "4"), group("a", priority_class_name="low")],
                standing("a", 3, ["n1"]),
                group("b", priority_class_name="high", at=1), members("b", 1, cpu, at=1),
            )
        )  # fmt: skip
        sim.run(10)
        assert len(sim.evictions) == count
        assert sim.running("b") == ["b-0"]


def test_a_more_important_job_takes_its_part_once() -> None:
    sim = Simulation(
        world(
            [*CLASSES, queue(), node("n1", "8"), group("a", priority_class_name="low")],
            standing("a", 8, ["n1"]),
            group("b", priority_class_name="high", at=1), members("b", 4, at=1),
        )
    )  # fmt: skip
    sim.run(10)
    assert len(sim.evictions) == 4
    assert len(sim.running("b")) == 4
    assert len(sim.running("a")) == 4


def test_freed_room_is_kept_for_the_preemptor() -> None:
    sim = Simulation(
        world(
            [*CLASSES, queue(), node("n1", "4"), group("a", priority_class_name="low")],
            standing("a", 4, ["n1"]),
            group("b", priority_class_name="high", at=1), members("b", 1, "4", at=1),
        )
    )  # fmt: skip
    sim.run(5)
    assert len(sim.evictions) == 4
    assert sim.running() == ["b-0"]


def test_preempt_before_allocate_looks_at_idle_nodes_first() -> None:
    text = EVERYTHING.replace("enqueue, reclaim, allocate, backfill, preempt", "preempt, allocate")
    sim = Simulation(
        world(
            [*CLASSES, queue(), node("n1", "4"), node("n2", "4"), group("a", 2, priority_class_name="low")],
            standing("a", 4, ["n1"]),
            group("b", 4, priority_class_name="high", at=1), members("b", 4, at=1),
        ),
        policy(text),
    )  # fmt: skip
    sim.run(3)
    assert sim.evictions == []
    assert {sim.model.tasks[f"ns/b-{i}"].node for i in range(4)} == {"n2"}


def test_never_preempts_disruption_never_and_budgets_are_vetoes() -> None:
    budget = PodDisruptionBudget(
        metadata=Metadata(name="b", namespace="ns"),
        spec=PodDisruptionBudgetSpec(min_available=3, selector=LabelSelector(match_labels={"app": "a"})),
    )
    base = [*CLASSES, queue(), node("n1", "4")]
    high = [group("b", priority_class_name="high", at=1)]
    cases = [
        ([group("a", priority_class_name="low")], members("b", 2, preemption_policy="Never"), 0),
        ([group("a", priority_class_name="low", disruption="Never")], members("b", 2), 0),
        ([group("a", priority_class_name="low", min_runtime_seconds=3600)], members("b", 2), 0),
        ([group("a", priority_class_name="low"), budget], members("b", 2), 1),
    ]
    for more, preemptors, victims in cases:
        sim = Simulation(
            world(base, more, standing("a", 4, ["n1"], labels={"app": "a"}), high, preemptors), recreate=False
        )
        sim.cycle()
        assert len(sim.evictions) == victims, more


def test_victims_with_the_lowest_priority_and_then_the_youngest_go_first() -> None:
    objects = [
        [*CLASSES, priority_class("lower", 0), queue(), node("n1", "3")],
        [group("a", priority_class_name="low"), group("c", priority_class_name="lower")],
        [pod("a-0", of="a", on="n1", at=9), pod("c-0", of="c", on="n1", at=1), pod("c-1", of="c", on="n1", at=5)],
        [group("b", priority_class_name="high", at=1), *members("b", 1)],
    ]
    assert run(world(*objects), policy(EVERYTHING)).evicted == ["c-1"]


def test_a_role_keeps_its_minimum() -> None:
    objects = [
        [*CLASSES, queue(), node("n1", "4")],
        group("a", 1, roles={"m": 1, "w": 1}, priority_class_name="low"),
        [pod("m", of="a", on="n1", role="m"), *(pod(f"w{i}", of="a", on="n1", role="w", at=i) for i in range(3))],
        [group("b", priority_class_name="high", at=1), *members("b", 4)],
    ]
    assert run(world(*objects), policy(EVERYTHING)).evicted == ["w1", "w2"]


def test_claims_of_one_kind_find_different_victims_in_one_cycle() -> None:
    preemptors = [[group(f"b{at}", priority_class_name="high", at=at + 1), *members(f"b{at}", 1)] for at in range(3)]
    sim = Simulation(
        world(
            [*CLASSES, queue(), node("n1", "3"), node("n2", "3"), group("a", priority_class_name="low")],
            standing("a", 6, ["n1", "n2"]),
            *preemptors,
        )
    )
    found = sim.cycle()
    assert len(set(found.evicted)) == 3
    assert len(found.nominated) == 3
    sim.run(5)
    assert len(sim.evictions) == 3
    assert len(sim.running("b")) == 3


def test_nobody_is_evicted_for_surplus_whose_minimum_is_not_decided_yet() -> None:
    """Its minimum finds idle room and room that another preemptor frees; its third pod must wait for these two."""
    sim = Simulation(
        world(
            node("n0", "6"), node("n1", "4"), node("n2", "1"), queue("q0", 0), queue("q1", 2, reclaimable=False),
            group("c", 1, queue="q0"), [pod(f"c-{at}", "2", of="c", on=on, at=at) for at, on in enumerate(["n0"] * 3)],
            members("c", 2, "2", on="n1", at=4),
            group("a", 1, queue="q1", at=7), members("a", 2, "3"),
            group("b", 2, queue="q1", at=8), members("b", 5),
        )
    )  # fmt: skip
    sim.cycle()
    assert sim.last.evicted == []
    bound = [name for name in sim.last.binds if name.startswith("b")]
    waiting = [name for name, on in sim.last.nominated.items() if on and name.startswith("b")]
    assert not bound or not waiting
    assert len(bound) != 1
    sim.run(5)
    assert len(sim.running("b")) >= 2


def _past_its_lifetime(preemptor: dict[str, Any], **victim: Any) -> Simulation:
    spec: dict[str, Any] = {"lifetime_seconds": 60, **victim}
    sim = Simulation(
        world(
            queue(), node("n1", "4"), priority_class("low", 1), priority_class("high", 100),
            group("a", 4, **spec), members("a", 4, on="n1"), group("b", 4, at=1, **preemptor), members("b", 4, at=1),
        ),
    )  # fmt: skip
    sim.now = 59
    sim.cycle()
    return sim


def test_a_group_past_its_lifetime_goes_as_a_whole_and_not_before() -> None:
    sim = _past_its_lifetime({})
    assert sim.evictions == []
    assert sim.last.outcome is not None
    assert sim.last.outcome.next_wake == EPOCH + 60 * SECOND
    sim.now = 60
    sim.run(3)
    assert {key for _, key in sim.evictions} == {"ns/a-0", "ns/a-1", "ns/a-2", "ns/a-3"}
    assert len(sim.running("b")) == 4
    sim.run(100)
    assert len(sim.evictions) == 4


@pytest.mark.parametrize(
    ("preemptor", "victim"),
    [
        ({"lifetime_seconds": 600}, {}),
        ({"priority_class_name": "low"}, {"priority_class_name": "high"}),
        ({}, {"disruption": "Never"}),
        ({}, {"min_runtime_seconds": 600}),
    ],
    ids=["its follower ends too", "it matters more", "never", "minimum of run time"],
)
def test_a_group_past_its_lifetime_stays(preemptor: dict[str, Any], victim: dict[str, Any]) -> None:
    sim = _past_its_lifetime(preemptor, **victim)
    sim.now = 70
    sim.run(3)
    assert sim.evictions == []


def test_surplus_takes_what_the_victims_of_its_minimum_left_over() -> None:
    """A group goes as a whole, which is 1 CPU more than the minimum needs: nobody else goes for the pod above it."""
    model = world(
        *CLASSES, queue(), node("n0", "5"), node("n1", "1"),
        group("a", 5, priority_class_name="low", disruption="Whole"), members("a", 5, on="n0"),
        group("c", priority_class_name="low"), pod("c-0", of="c", on="n1", at=5),
        group("b", 2, priority_class_name="high", at=9), members("b", 2, "2"), pod("b-9", "1", of="b", at=9),
    )  # fmt: skip
    found = run(model, policy(EVERYTHING))
    assert found.evicted == [f"a-{at}" for at in range(5)]
    assert found.nominated == {"b-0": "n0", "b-1": "n0", "b-9": "n0"}


class _ByName(Plugin):
    """Lets only one pod go, by its name: nothing that pods of one class have in common."""

    name = "byname"

    def preemptable(self, preemptor: Preemptor, unit: Unit) -> Vote:
        return Vote.YES if all(task.key.endswith("-1") for task in unit.tasks) else Vote.ABSTAIN


def test_a_plugin_may_tell_pods_of_one_class_apart() -> None:
    by = policy(EVERYTHING)
    others = [part for part in by.plugins if part.plugin.name != "priority"]
    part = dataclasses.replace(by.plugins[0], plugin=_ByName, arguments=NoArguments())
    model = world(
        *CLASSES, queue(), node("n1", "3"), group("a", priority_class_name="low"), members("a", 3, on="n1"),
        group("b", priority_class_name="high", at=1), members("b", 1),
    )  # fmt: skip
    assert run(model, dataclasses.replace(by, plugins=(part, *others))).evicted == ["a-1"]


def test_a_group_goes_as_a_whole_only_when_no_bind_of_it_is_under_way() -> None:
    model = world(
        CLASSES, [queue("q"), node("n1", "2"), node("n2", "1")],
        group("low", 2, queue="q", priority_class_name="low", disruption="Whole"),
        [pod("low-0", of="low", on="n1"), pod("low-1", of="low", on="n1"), pod("low-2", of="low")],
        group("high", 2, queue="q", priority_class_name="high", at=1), members("high", 2, at=1),
    )  # fmt: skip
    model.assume("ns/low-2", "u-low-2", "n2")
    assert run(model, policy(EVERYTHING), now=5).evicted == []
    model.apply(Upsert(pod("low-2", of="low", on="n2")))
    assert run(model, policy(EVERYTHING), now=5).evicted == ["low-0", "low-1", "low-2"]


def test_a_pod_whose_bind_is_yet_to_be_made_keeps_up_no_minimum() -> None:
    objects = [
        CLASSES, [queue("q"), node("n1", "2", labels={"disk": "hdd"}), node("n2", "1", labels={"disk": "ssd"})],
        group("low", 2, queue="q", priority_class_name="low"),
        [pod("low-0", of="low", on="n1"), pod("low-1", of="low", on="n1")],
        pod("low-2", of="low", node_selector={"disk": "ssd"}),
        group("high", 1, queue="q", priority_class_name="high", at=1),
        pod("high-0", of="high", at=1, node_selector={"disk": "hdd"}),
    ]  # fmt: skip
    sim = Simulation(world(*objects), recreate=False)
    first = sim.cycle()
    assert first.binds == {"low-2": "n2"}
    assert first.evicted == []
    assert len(sim.cycle().evicted) == 1


def test_nobody_goes_for_a_preemptor_like_one_that_may_not_preempt() -> None:
    never = [pod("a-0", of="a", at=1, preemption_policy="Never")]
    sim = Simulation(
        world(
            CLASSES, [queue("q"), node("n1", "1")],
            group("low", queue="q", priority_class_name="low"), pod("low-0", of="low", on="n1"),
            group("a", queue="q", priority_class_name="high", at=1), never,
            group("b", queue="q", priority_class_name="high", at=2), pod("b-0", of="b", at=2),
        ), policy(EVERYTHING.replace("enqueue, ", "")), recreate=False,
    )  # fmt: skip
    assert sim.cycle().evicted == ["low-0"]
    assert sim.last.nominated == {"b-0": "n1"}


def near(**labels: str) -> Affinity:
    term = PodAffinityTerm(topology_key=ZONE, label_selector=LabelSelector(match_labels=labels))
    return Affinity(pod_affinity=PodAffinity(required=(term,)))


def test_company_of_a_nominated_pod_is_not_evicted_for_surplus() -> None:
    zone = {ZONE: "z"}
    sim = Simulation(
        world(
            [
                queue(),
                node("n0", "2", labels=zone),
                node("n1", "2", labels=zone),
                group("v"),
                group("w"),
                group("g", at=5),
            ],
            pod("v-0", "2", of="v", on="n0", priority=2, labels={"app": "db"}),
            pod("w-0", "2", of="w", on="n1", priority=1),
            pod("g-0", "2", of="g", priority=100, labels={"app": "gang"}, affinity=near(app="db")),
            pod("g-1", "2", of="g", priority=100, affinity=near(app="gang")),
        ),
        policy(EVERYTHING.replace("enqueue, ", "")),
        recreate=False,
    )
    found = sim.cycle()
    assert found.evicted == ["w-0"]
    assert found.nominated == {"g-0": "n1"}
    assert sim.cycle().transactions == []
    sim.tick()
    assert sim.cycle().binds == {"g-0": "n1"}


@pytest.mark.parametrize("needed", [True, False])
def test_company_on_the_node_stays_although_it_would_go_first(needed: bool) -> None:
    """The pod of a database is the youngest of two like it; it goes where nobody needs it, and else the other."""
    found = run(
        world(
            [queue(), node("n0", "2", labels={ZONE: "z"}), group("v"), group("w", at=1), group("g", at=5)],
            pod("v-0", of="v", on="n0", priority=1),
            pod("w-0", of="w", on="n0", priority=1, at=1, labels={"app": "db"}),
            pod(
                "g-0",
                of="g",
                priority=100,
                affinity=near(app="db") if needed else near(app="gang"),
                labels={"app": "gang"},
            ),
        ),
        policy(EVERYTHING.replace("enqueue, ", "")),
    )
    assert found.evicted == ["v-0" if needed else "w-0"]
    assert found.nominated == {"g-0": "n0"}
