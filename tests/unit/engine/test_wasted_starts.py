"""Nothing is bound that would be evicted at the same instant, for what matters more in its own queue."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.api.conditions import ENQUEUED
from kbatch.api.objects import Condition, PodStatus
from kbatch.api.podgroup import Disruption
from tests.unit.engine.worlds import (
    EVERYTHING,
    Simulation,
    group,
    node,
    pod,
    policy,
    priority_class,
    queue,
    stamp,
    world,
)

VALUES = {"low": 1, "mid": 50, "high": 100}
CLASSES = [priority_class(name, value) for name, value in VALUES.items()]
ALL = policy(EVERYTHING)
NO_ENQUEUE = policy(EVERYTHING.replace("enqueue, ", ""))
NO_PREEMPT = policy(EVERYTHING.replace(", preempt", ""))


def gang(name: str, count: int, *, minimum: int = 0, at: int = 0, on: str = "", of: str = "") -> list[Any]:
    """A group that may be evicted as a whole, of pods of 1 cpu; its priority has its name unless `of` says another."""
    named = of or name
    spec: dict[str, Any] = {"priority_class_name": named, "disruption": Disruption.WHOLE}
    pods = [pod(f"{name}-{n}", of=name, at=at, on=on, priority=VALUES[named]) for n in range(count)]
    return [group(name, minimum or count, at=at, **spec), *pods]


def starts(sim: Simulation) -> list[str]:
    """Run; the pods that were bound, in order. None may be evicted at the instant of its bind."""
    found: list[str] = []
    for _ in range(3):
        bound: set[str] = set()
        while sim.cycle().transactions:
            assert not bound & set(sim.last.evicted)
            bound |= set(sim.last.binds)
            found += sorted(sim.last.binds)
        sim.tick()
    return found


HIGH = ["high-0", "high-1", "high-2"]


@pytest.mark.parametrize("capability", [{"cpu": "4"}, None])
@pytest.mark.parametrize("held", [0, 2])
@pytest.mark.parametrize("by", [ALL, NO_ENQUEUE])
def test_of_two_that_arrive_together_the_higher_priority_starts(
    capability: dict[str, str] | None, held: int, by: Any
) -> None:
    room = "8" if capability else "4"
    there = gang("mid", held, on="n1") if held else []
    both = [*gang("low", 2, at=10), *gang("high", 3, at=20)]
    sim = Simulation(
        world(CLASSES, queue(capability=capability), node("n1", room), there, both), by, recreate=False
    )  # fmt: skip
    assert starts(sim) == HIGH
    assert sim.running() == HIGH


def test_surplus_does_not_take_the_last_room_of_who_preempts() -> None:
    low = gang("low", 4, minimum=1)
    for member in low[1:4]:
        member.spec.node_name = "n1"
        member.status = PodStatus(phase="Running", start_time=stamp(0))
    sim = Simulation(world(CLASSES, queue(), node("n1", "4"), low, gang("high", 3, at=20)), NO_ENQUEUE, recreate=False)
    assert starts(sim) == HIGH
    assert sim.running() == [*HIGH, "low-0"]


@pytest.mark.parametrize("by", [ALL, NO_ENQUEUE])
def test_who_may_be_preempted_from_the_start_is_not_started_before_who_preempts(by: Any) -> None:
    """Gangs that go as a whole, though only since their lifetime is over: of the one that runs, and of the other."""
    low, mid = gang("low", 2, at=10), gang("mid", 2, on="n1")
    for some in (low, mid):
        some[0].spec.disruption, some[0].spec.lifetime_seconds = Disruption.SURPLUS, 0
    sim = Simulation(world(CLASSES, queue(), node("n1", "4"), mid, low, gang("high", 3, at=20)), by, recreate=False)
    assert starts(sim) == HIGH
    assert sim.running() == HIGH


def test_a_pod_that_becomes_the_minimum_is_bound_once() -> None:
    """Its group loses all that runs to who preempts, just before the pod was to be placed above the minimum."""
    low = [*gang("low", 2, minimum=1), pod("low-large", "9", of="low", priority=1)]
    for member in [*low[1:2], high := pod("high-0", of="high", at=20, priority=100)]:
        member.spec.node_selector = {"fast": "yes"}
    low[1].spec.node_name, low[1].status = "n1", PodStatus(phase="Running", start_time=stamp(0))
    nodes = [node("n1", "1", labels={"fast": "yes"}), node("n2", "4")]
    more = group("high", 1, at=20, priority_class_name="high")
    sim = Simulation(world(CLASSES, queue(), nodes, low, more, high), NO_ENQUEUE, recreate=False)
    sim.cycle()
    assert sim.last.evicted == ["low-0"]
    bound = [bind.pod for found in sim.last.transactions for bind in found.binds]
    assert bound == ["ns/low-1"]


def test_who_preempts_in_vain_keeps_nobody_from_room() -> None:
    sim = Simulation(
        world(
            CLASSES, queue(), node("n1", "4"), gang("mid", 2, on="n1"), gang("low", 2, at=10), gang("high", 5, at=20)
        ),
        NO_ENQUEUE,
        recreate=False,
    )
    assert starts(sim) == ["low-0", "low-1"]
    assert sim.evictions == []


@pytest.mark.parametrize(("by", "first"), [(ALL, "high"), (NO_PREEMPT, "low")])
def test_without_preempt_the_first_to_come_is_let_in_first(by: Any, first: str) -> None:
    sim = Simulation(
        world(CLASSES, queue(), node("n1", "3"), gang("low", 2, at=10), gang("high", 3, at=20)), by, recreate=False
    )
    assert {name.partition("-")[0] for name in starts(sim)} == {first}


def test_among_equal_priorities_the_first_to_come_is_let_in_first() -> None:
    sim = Simulation(
        world(CLASSES, queue(), node("n1", "3"), gang("b", 2, at=10, of="mid"), gang("a", 2, at=20, of="mid")),
        ALL,
        recreate=False,
    )
    assert starts(sim) == ["b-0", "b-1"]


def test_who_is_put_off_for_the_share_does_not_evict_who_was_started_meanwhile() -> None:
    """q1 has had its share of memory, not of cpu: high, which asks for memory, comes after low, which asks for none.
    Then it would preempt low.
    """
    groups = [
        group("low", queue="q1", at=1, priority_class_name="low"), pod("low-0", "4", of="low", priority=VALUES["low"]),
        group("high", queue="q1", at=2, priority_class_name="high"),
        pod("high-0", "4", of="high", priority=VALUES["high"], memory="1Gi"),
    ]  # fmt: skip
    mine = pod("mine", "1", queue="q1", on="n2", memory="8Gi", priority=100)
    big = [group("big", 2, queue="q2"), *(pod(f"big-{n}", "0", of="big", memory="17Gi") for n in range(2))]
    model = world(
        CLASSES, queue("q1"), queue("q2", 3), node("n1", "4", "16Gi"), node("n2", "2", "16Gi"), mine, big, *groups
    )
    sim = Simulation(model, NO_ENQUEUE, recreate=False)
    assert starts(sim) == ["high-0"]
    assert sim.evictions == []


def test_who_is_kept_out_by_a_promise_does_not_evict_who_was_started_when_it_ended() -> None:
    """A pod above the minimum of high is kept out by what mid was promised; mid is tried in vain, and with that the
    promise ends. High comes before low again.
    """
    high = [pod("high-0", "1", of="high", on="n2", priority=100), pod("high-1", "4", of="high", priority=100)]
    mid = group("mid", at=1, priority_class_name="mid", min_resources={"cpu": "5"})
    model = world(
        CLASSES, queue(), node("n1", "4"), node("n2", "8"), pod("there", "6", on="n2", priority=100),
        group("high", priority_class_name="high"), high, mid, pod("mid-0", "5", of="mid", at=1, priority=VALUES["mid"]),
        pod("low", "4", at=2, priority=VALUES["low"]),
    )  # fmt: skip
    sim = Simulation(model, ALL, recreate=False)
    assert starts(sim) == ["high-1"]
    assert sim.evictions == []


def test_who_is_kept_out_by_a_promise_preempts_before_a_weaker_one_is_placed() -> None:
    """high-1 asks for 4 of the 5 idle cpu, and 4 are promised to absent; low-2, of low, asks for the last one."""
    absent = group("absent", 4, at=1, priority_class_name="mid", min_resources={"cpu": "4"})
    low = group("low", 2, at=2, priority_class_name="low", disruption=Disruption.WHOLE)
    high = group("high", 1, priority_class_name="high")
    for each in (absent, low, high):
        each.status.conditions = (Condition(type=ENQUEUED, status="True", last_transition_time=stamp(0)),)
    pods = [pod(f"low-{n}", "2", of="low", at=2, on="n1", priority=1) for n in range(2)]
    pods.append(pod("low-2", "1", of="low", at=2, priority=1))
    sim = Simulation(
        world(
            CLASSES, queue(), node("n1", "10"), high, pod("high-0", "1", of="high", on="n1", priority=100),
            pod("high-1", "4", of="high", priority=100), absent, low, pods,
        ),
        ALL,
        recreate=False,
    )  # fmt: skip
    starts(sim)
