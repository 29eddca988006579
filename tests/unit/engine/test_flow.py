"""The plugin flow in whole cycles: who is next, who gives, and what keeps groups waiting."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from kbatch.api.conditions import merge
from kbatch.api.objects import Queue, QueueFlow, QueueStatus
from kbatch.decisions.state import read_state, write_state
from kbatch.engine import CycleState, Memo, Policy, verdict_conditions
from kbatch.engine.plugins.flow.state import Flows
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from kbatch.model.usage import Anchor
from kbatch.resources import MILLION
from kbatch.times import HOUR, MILLISECOND, SECOND
from tests.unit.engine.worlds import (
    EPOCH,
    Decisions,
    Simulation,
    group,
    members,
    node,
    pod,
    policy,
    priority_class,
    queue,
    run,
    stamp,
    world,
)


def flow(told: str = "", actions: str = "enqueue, reclaim, allocate, backfill, preempt") -> Policy:
    return policy(
        f'actions: "{actions}"\n'
        "tiers:\n"
        "- plugins: [{name: priority}, {name: gang}, {name: conformance}]\n"
        f"- plugins: [{{name: predicates}}, {{name: flow, arguments: {{{told}}}}}, {{name: nodeorder}}]\n"
    )


ALLOCATE = "allocate"


def past(**flows: float) -> CycleState:
    """Queues that use nothing as the cycle begins, with so many cores of flow."""
    return CycleState(plugins={"flow": Flows({
        name: Anchor(round(value * MILLION), round(value * MILLION), 0, 0, EPOCH) for name, value in flows.items()
    })})  # fmt: skip


def anchors(found: Decisions) -> dict[str, Anchor]:
    assert found.outcome is not None
    kept = found.outcome.state.plugins["flow"]
    assert isinstance(kept, Flows)
    return kept.queues


def ones(queue_: str, count: int, **more: Any) -> list[Any]:
    """So many groups of one pod of one core."""
    return [
        each
        for at in range(count)
        for each in (group(f"{queue_}{at}", queue=queue_, at=at, **more), pod(f"{queue_}{at}-0", of=f"{queue_}{at}"))
    ]


def bound(found: Decisions) -> dict[str, int]:
    """How many pods of each queue were bound."""
    counts: dict[str, int] = {}
    for name in found.binds:
        counts[name[0]] = counts.get(name[0], 0) + 1
    return counts


# --- who is next ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("actions", ["enqueue, allocate", "allocate"])
@pytest.mark.parametrize(
    ("room", "weights", "want"),
    [
        ("6", {"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 2, "c": 2}),
        ("7", {"a": 1, "b": 1, "c": 1}, {"a": 3, "b": 2, "c": 2}),
        ("6", {"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2, "c": 3}),
        ("4", {"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 1, "c": 2}),
    ],
)
def test_room_is_filled_progressively(actions: str, room: str, weights: dict[str, int], want: dict[str, int]) -> None:
    found = run(
        world(
            [queue(name, weight) for name, weight in weights.items()],
            node("n", room),
            *(ones(name, 6) for name in weights),
        ),
        flow(actions=actions),
    )
    assert bound(found) == want


def test_the_first_is_whose_flow_would_be_the_smallest_with_its_job() -> None:
    """b has used less, but its job is large: with it b would have more than a with its small one."""
    model = world(
        [queue("a"), queue("b")],
        node("n", "4"),
        [pod("a-runs", "1", on="n", queue="a"), pod("a-next", "1", queue="a"), pod("b-next", "3", queue="b")],
    )
    assert run(model, flow(actions=ALLOCATE)).binds == {"a-next": "n"}


@pytest.mark.parametrize(("used", "first"), [({"a": 3.0}, "b"), ({"b": 3.0}, "a"), ({"a": 3.0, "b": 3.0}, "a")])
@pytest.mark.parametrize("actions", ["enqueue, allocate", "allocate"])
def test_past_usage_counts_and_ties_go_by_name(actions: str, used: dict[str, float], first: str) -> None:
    model = world([queue("a"), queue("b")], node("n", "1"), ones("a", 1), ones("b", 1))
    assert bound(run(model, flow(actions=actions), state=past(**used))) == {first: 1}


def test_a_job_that_does_not_fit_says_nothing_of_when_its_queues_next_comes_in() -> None:
    """Also in a process that has just begun: one that remembers knows that a's first, which is large, does not fit."""
    large = group("a-large", queue="a", at=1, min_resources={"cpu": "5"})
    model = world([queue("a"), queue("b")], node("n", "4"), large)
    by, memo = flow(actions="enqueue, allocate"), Memo()
    first = run(model, by)
    for verdict in first.verdicts.values():
        assert not verdict.enqueued
        refused = copy.deepcopy(large)
        refused.status.conditions = merge((), verdict_conditions(verdict, 1), stamp(0))
        model.apply(Upsert(refused))
    memo = run(model, by).outcome.memo  # type: ignore[union-attr]
    for name, of, cpu in (("a-next", "a", "3"), ("b-next", "b", "3")):
        model.apply(Upsert(group(name, queue=of, at=2, min_resources={"cpu": cpu})))
    alone, remembering = run(model, by), run(model, by, memo=memo)
    for found in (alone, remembering):
        assert [name for name, verdict in sorted(found.verdicts.items()) if verdict.enqueued] == ["ns/a-next"]


def test_a_group_of_a_queue_that_is_not_there_is_told_so_where_plugins_limit_others() -> None:
    gone = [group("x", queue="nowhere"), pod("x-0", of="x")]
    sim = Simulation(world(queue("a"), node("n", "4"), gone), flow("infiniteFactor: 2", "enqueue, allocate"))
    sim.run(2)
    for each in ones("a", 1):
        sim.model.apply(Upsert(each))
    sim.run(2)
    assert sim.running() == ["a0-0"]
    assert sim.last.reason("x") == "QueueNotFound"


def test_past_usage_fades() -> None:
    """a has used four; two half-lives later that counts as one, and the other's running pod as much."""

    def decide(now: int) -> Decisions:
        model = world(
            [queue("a"), queue("b")],
            node("n", "2"),
            [pod("b-runs", on="n", queue="b"), pod("a-next", queue="a"), pod("b-next", queue="b")],
        )
        return run(model, flow("halfTime: 60", ALLOCATE), now=now, state=past(a=4.0))

    assert list(decide(59).binds) == ["b-next"]
    assert list(decide(60).binds) == ["a-next"], "2 and 2: by name"


def test_without_a_half_life_only_what_runs_counts() -> None:
    model = world([queue("a"), queue("b")], node("n", "1"), ones("a", 1), ones("b", 1))
    assert bound(run(model, flow("halfTime: 0"), state=past(a=9.0))) == {"a": 1}


@pytest.mark.parametrize("actions", ["enqueue, allocate", "allocate"])
def test_jobs_of_a_queue_go_by_priority_then_age(actions: str) -> None:
    """Also where the plugin priority is not configured."""
    model = world(
        [queue("a"), priority_class("high", 10)],
        node("n", "2"),
        [group("old", queue="a", at=1), pod("old-0", of="old")],
        [group("older", queue="a", at=0), pod("older-0", of="older")],
        [group("young", queue="a", at=5, priority_class_name="high"), pod("young-0", of="young")],
    )
    by = policy(f"actions: '{actions}'\ntiers:\n- plugins: [{{name: gang}}, {{name: predicates}}, {{name: flow}}]\n")
    assert sorted(run(model, by).binds) == ["older-0", "young-0"]


def test_weights_of_resources_count() -> None:
    def first(told: str) -> list[str]:
        model = world(
            [queue("a"), queue("b")],
            node("n", "10", "64Gi"),
            [pod("a-next", "2", memory="1Gi", queue="a"), pod("b-next", "1", memory="60Gi", queue="b")],
            [pod("filler", "7", memory="0", on="n", queue="c", scheduler="other")],
        )
        return list(run(model, flow(told, ALLOCATE)).binds)

    assert first("") == ["b-next", "a-next"]
    assert first("weights: {memory: 0.25}") == ["a-next", "b-next"]
    assert first("weights: {memory: 1}, score: Dominant") == ["a-next", "b-next"]


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_the_anchor_is_what_runs_and_what_was_promised() -> None:
    model = world(
        [queue("a"), queue("b")],
        node("n", "3"),
        [group("g", 2, queue="a", min_resources={"cpu": "2"})],
        [group("ends", queue="b", lifetime_seconds=60), pod("ends-0", of="ends")],
    )
    found = run(model, flow())
    assert found.verdicts["ns/g"].enqueued
    assert anchors(found) == {
        "a": Anchor(0, 0, 2 * MILLION, 2 * MILLION, EPOCH),
        "b": Anchor(0, 0, MILLION, 0, EPOCH),
    }


def test_a_promise_that_is_kept_counts_once() -> None:
    model = world([queue("a")], node("n", "4"), [group("g", 2, queue="a", min_resources={"cpu": "2"})], members("g", 2))
    assert anchors(run(model, flow()))["a"].usage == 2 * MILLION


def test_it_moves_when_the_usage_changes_and_at_no_other_time() -> None:
    sim = Simulation(world([queue("a")], node("n", "3"), ones("a", 2)), flow())
    sim.settle()
    first = anchors(sim.last)["a"]
    assert first == Anchor(0, 0, 2 * MILLION, 2 * MILLION, EPOCH)
    sim.tick()
    sim.cycle()
    assert anchors(sim.last)["a"] is first
    sim.tick()
    sim.model.apply(Delete(type(pod("a0-0")), "ns", "a0-0"))
    sim.cycle()
    assert anchors(sim.last)["a"] == Anchor(2 * MILLION, 2 * MILLION, MILLION, MILLION, EPOCH + 2 * SECOND)


def test_a_log_can_hold_it() -> None:
    found = run(world([queue("a")], node("n", "3"), ones("a", 2)), flow())
    assert found.outcome is not None
    written = msgspec.json.decode(msgspec.json.encode(write_state(found.outcome.state)))
    assert read_state(written, flow()) == found.outcome.state


def test_at_the_start_what_was_written_last_is_read_back() -> None:
    def told(name: str, value: float) -> Queue:
        found = queue(name)
        found.status = QueueStatus(flow=QueueFlow(value=value, time=stamp(0)))
        return found

    model = world([told("a", 8), told("b", 1)], node("n", "1"), ones("a", 1), ones("b", 1))
    found = run(model, flow("halfTime: 60"), now=60)
    assert bound(found) == {"b": 1}
    assert anchors(found) == {
        "a": Anchor(8 * MILLION, 0, 0, 0, EPOCH),
        "b": Anchor(MILLION // 2, 0, MILLION, MILLION, EPOCH + 60 * SECOND),
    }
    later = run(model, flow("halfTime: 60"), now=60, state=past(b=9.0))
    assert bound(later) == {"a": 1}, "what this process knows itself of b comes before what is written"


def test_what_a_clock_wrote_that_was_ahead_fades_from_now_on() -> None:
    found = queue("a")
    found.status = QueueStatus(flow=QueueFlow(value=8, time=stamp(3000)))
    model = world([found, queue("b")], node("n", "1"), ones("a", 1), ones("b", 1))
    by, b = flow("halfTime: 60"), Anchor(4 * MILLION, 0, 0, 0, EPOCH)
    first = run(model, by, now=60)
    assert anchors(first)["a"] == Anchor(8 * MILLION, 0, 0, 0, EPOCH + 60 * SECOND)
    kept = CycleState(plugins={"flow": Flows({**anchors(first), "b": b})})
    assert bound(run(model, by, now=60, state=kept)) == {"b": 1}
    assert bound(run(model, by, now=240, state=kept)) == {"a": 1}


def test_what_is_to_be_written() -> None:
    model = world(
        [queue("a", 3, excess_budget=100), queue("b"), queue("shut", state="Closed"), queue("default", 4)],
        node("n", "4"), ones("b", 1),
        [group("g", queue="a", lifetime_seconds=120), pod("g-0", "4", of="g")],
    )  # fmt: skip
    model.apply(Delete(type(pod("x")), "ns", "b0-0"))
    outcome = run(model, flow()).outcome
    assert outcome is not None
    assert outcome.queues is not None
    found = {
        name: (each.flow, each.fair_share, each.charged, each.half_life) for name, each in outcome.queues.items()
    }  # fmt: skip
    assert found == {
        "a": (Anchor(0, 0, 4 * MILLION, 0, EPOCH), 3 * MILLION, 8 * MILLION, HOUR),
        "b": (None, MILLION, 0, HOUR),
        "shut": (None, 0, 0, HOUR),
        "default": (None, 0, 0, HOUR),
    }


def test_without_the_plugin_nothing_is_said_of_queues() -> None:
    outcome = run(world([queue("a")], node("n", "4"), ones("a", 1))).outcome
    assert outcome is not None
    assert outcome.queues == {}
    assert outcome.opinion is None


# --- who gives --------------------------------------------------------------------------------------------------------


def contended(**flows: float) -> tuple[ClusterModel, CycleState]:
    """a and b hold three cores each of six, c holds none and asks for two."""
    model = world(
        [queue("a"), queue("b"), queue("c")],
        [node("n0", "3"), node("n1", "3")],
        [pod(f"a-{at}", on="n0", queue="a") for at in range(3)],
        [pod(f"b-{at}", on="n1", queue="b") for at in range(3)],
        [pod(f"c-{at}", queue="c") for at in range(2)],
    )
    return model, past(**flows)


@pytest.mark.parametrize(("used", "first"), [({"a": 9.0}, "a"), ({"b": 9.0}, "b")])
def test_the_queue_with_the_most_flow_gives_first(used: dict[str, float], first: str) -> None:
    """Both are one above their share: the first unit comes from the one that has used more before."""
    model, state = contended(**used)
    model.apply(Delete(type(pod("x")), "ns", "c-1"))
    found = run(model, flow(), state=state)
    assert [name[0] for name in found.evicted] == [first]


def test_nobody_gives_to_who_has_used_more_until_that_has_faded() -> None:
    model, state = contended(c=8.0)
    found = run(model, flow("halfTime: 60"), state=state)
    assert found.evicted == []
    assert found.outcome is not None
    wake = found.outcome.next_wake
    assert wake is not None
    assert EPOCH + 60 * SECOND < wake < EPOCH + 120 * SECOND, "8 fades to 3, what the others use"
    before = run(model, flow("halfTime: 60"), state=state)
    assert before.evicted == []
    late = (wake - EPOCH) // SECOND + 1
    assert len(run(model, flow("halfTime: 60"), now=late, state=state).evicted) == 2


@pytest.mark.parametrize(("used", "comes_in"), [({}, True), ({"c": 8.0}, False)])
def test_nobody_comes_in_queue_for_room_that_is_not_given(used: dict[str, float], comes_in: bool) -> None:
    model = world(
        [queue("a"), queue("c")],
        node("n", "6"),
        [pod(f"a-{at}", on="n", queue="a") for at in range(6)],
        group("g", 2, queue="c", min_resources={"cpu": "2"}),
    )
    assert run(model, flow(), state=past(**used)).verdicts["ns/g"].enqueued is comes_in


@pytest.mark.parametrize(("weights", "evicted"), [("{memory: 0}", 0), ("{cpu: 0, memory: 1}", 1)])
def test_nobody_gives_to_who_would_have_more_with_what_it_asks(weights: str, evicted: int) -> None:
    """a has more memory than it deserves, but little cpu; c has nothing, and asks for much of that."""
    model = world(
        [queue("a"), queue("c")],
        node("n", "100", "4Gi"),
        [pod(f"a-{at}", "100m", memory="1Gi", on="n", queue="a") for at in range(4)],
        pod("c-0", "4", memory="1Gi", queue="c"),
    )
    assert len(run(model, flow(f"weights: {weights}")).evicted) == evicted


def test_a_queue_that_is_not_reclaimable_gives_nothing() -> None:
    model, state = contended(a=9.0)
    model.apply(Upsert(queue("a", reclaimable=False)))
    assert {name[0] for name in run(model, flow(), state=state).evicted} == {"b"}


# --- groups without a lifetime ----------------------------------------------------------------------------------------


def test_groups_without_a_lifetime_stay_within_the_factor_and_the_limit_is_inclusive() -> None:
    """Ten cores, two queues: 1.2 times the fair share is six."""
    model = world([queue("a"), queue("b")], node("n", "10"), ones("a", 8))
    found = run(model, flow("infiniteFactor: 1.2"))
    assert bound(found) == {"a": 6}
    assert [found.reason(f"a{at}") for at in (6, 7)] == ["InfiniteShareExceeded"] * 2
    reason = found.verdicts["ns/a7"].reason
    assert reason is not None
    assert (
        "asks for 1, while groups of Queue a without a lifetime have a flow of 6 of at most 6 (1.2 times the fair share"
        " of 5)" in reason.message
    )


def test_factors_are_decimals() -> None:
    """Three queues of 10 cores: 1.2 times 10/3 is four, though 1.2 is no binary fraction."""
    model = world([queue("a"), queue("b"), queue("c")], node("n", "10"), ones("a", 8))
    assert bound(run(model, flow("infiniteFactor: 1.2"))) == {"a": 4}


def test_without_enqueue_the_limit_binds_where_pods_are_placed() -> None:
    model = world([queue("a"), queue("b")], node("n", "10"), ones("a", 8))
    found = run(model, flow("infiniteFactor: 1.2", ALLOCATE))
    assert bound(found) == {"a": 6}
    assert found.reason("a7") == "InfiniteShareExceeded"


def test_a_gang_beyond_it_starts_not_at_all_and_blocks_nobody() -> None:
    model = world(
        [queue("a"), queue("b")],
        node("n", "10"),
        [group("g", 7, queue="a", at=0)], members("g", 7), [group("s", 2, queue="a", at=1)], members("s", 2),
    )  # fmt: skip
    for actions in ("enqueue, allocate", "allocate"):
        found = run(model, flow("infiniteFactor: 1.2", actions))
        assert set(found.binds) == {"s-0", "s-1"}
        assert found.reason("g") == "InfiniteShareExceeded"
        reason = found.verdicts["ns/g"].reason
        assert reason is not None
        assert "it can never start as it is" in reason.message


def test_pods_above_the_minimum_are_within_it_too() -> None:
    model = world([queue("a"), queue("b")], node("n", "10"), [group("g", 2, queue="a")], members("g", 9))
    assert bound(run(model, flow("infiniteFactor: 1.2"))) == {"g": 6}


def test_groups_with_a_lifetime_are_not_counted() -> None:
    model = world([queue("a"), queue("b")], node("n", "10"), ones("a", 8, lifetime_seconds=60))
    assert bound(run(model, flow("infiniteFactor: 0.2"))) == {"a": 8}


def test_a_cap_is_freed_when_the_past_has_faded_and_that_is_an_instant_to_wake_at() -> None:
    model = world([queue("a"), queue("b")], node("n", "10"), ones("a", 1))
    by = flow("infiniteFactor: 1, halfTime: 60")
    found = run(model, by, state=past(a=10.0))
    assert found.reason("a0") == "InfiniteShareExceeded"
    assert found.outcome is not None
    wake = found.outcome.next_wake
    assert wake is not None
    assert found.outcome.opinion == wake
    assert EPOCH + 60 * SECOND - MILLISECOND < wake <= EPOCH + 60 * SECOND, "millionths are rounded down"
    assert bound(run(model, by, now=59, state=past(a=10.0))) == {}
    assert bound(run(model, by, now=60, state=past(a=10.0))) == {"a": 1}


def test_who_was_nominated_is_bound_whatever_the_limit_is_by_now() -> None:
    """Others were evicted for it: that would be in vain."""
    waiting = pod("a-0", queue="a")
    waiting.status.nominated_node_name = "n"
    model = world([queue("a"), queue("b")], node("n", "10"), waiting, pod("a-1", queue="a"))
    found = run(model, flow("infiniteFactor: 0.1"))
    assert list(found.binds) == ["a-0"]
    assert found.reason("a-1") == "InfiniteShareExceeded"


def test_idle_queues_count_and_default_only_while_it_has_work() -> None:
    def room_of_a(*objects: Any) -> int:
        model = world([queue("a")], node("n", "12"), ones("a", 12), *objects)
        return bound(run(model, flow("infiniteFactor: 1"))).get("a", 0)

    assert room_of_a() == 12
    assert room_of_a(queue("idle", 2)) == 4
    assert room_of_a(queue("shut", 2, state="Closed")) == 12
    assert room_of_a(queue()) == 12
    assert room_of_a(queue(), pod("d-0", "100")) == 6


# --- groups with a lifetime -------------------------------------------------------------------------------------------


def ending(name: str, cpu: str, seconds: int, at: int = 0) -> list[Any]:
    return [group(name, queue="a", lifetime_seconds=seconds, at=at), pod(f"{name}-0", cpu, of=name)]


def test_who_would_take_the_queue_above_its_fair_share_is_charged_whole() -> None:
    """The fair share is five of ten cores. The second of three cores takes the queue above it: 10 minutes times 3."""
    sim = Simulation(
        world(
            [queue("a", excess_budget=30), queue("b")], node("n", "10"), ending("x", "3", 600), ending("y", "3", 600, 1)
        ),
        flow(),
    )
    sim.settle()
    assert sim.running() == ["x-0", "y-0"]
    charged = {key: job.charged for key, job in sim.model.jobs.items()}
    assert charged == {"ns/x": 0, "ns/y": 30 * MILLION}
    assert sim.model.queues["a"].charged == 30 * MILLION


@pytest.mark.parametrize("actions", ["enqueue, allocate", "allocate"])
@pytest.mark.parametrize(("budget", "starts"), [(30, True), (29, False), (0, False), (None, True)])
def test_the_budget_limits_it_inclusively(actions: str, budget: int | None, starts: bool) -> None:
    model = world([queue("a", excess_budget=budget), queue("b")], node("n", "10"), ending("y", "6", 300))
    found = run(model, flow(actions=actions))
    assert bool(found.binds) is starts
    assert found.verdicts["ns/y"].charged == (30 * MILLION if starts else 0)
    if not starts:
        assert found.reason("y") == "ExcessBudgetExceeded"
        reason = found.verdicts["ns/y"].reason
        assert reason is not None
        assert (
            f"would be charged 30 resource-minutes above the fair share of 5, over the excessBudget of Queue a: 0 of "
            f"{budget} charged" in reason.message
        )


def test_within_the_fair_share_nothing_is_charged() -> None:
    model = world([queue("a", excess_budget=0), queue("b")], node("n", "10"), ending("y", "5", 600))
    found = run(model, flow())
    assert found.verdicts["ns/y"].charged == 0
    assert list(found.binds) == ["y-0"]


def test_a_lifetime_of_nothing_costs_nothing() -> None:
    model = world([queue("a", excess_budget=0), queue("b")], node("n", "10"), ending("y", "9", 0))
    found = run(model, flow())
    assert found.verdicts["ns/y"].charged == 0
    assert list(found.binds) == ["y-0"]


def test_the_charge_ends_with_the_group() -> None:
    sim = Simulation(
        world(
            [queue("a", excess_budget=30), queue("b")],
            node("n", "20"),
            ending("y", "15", 120),
            ending("z", "15", 120, 1),
        ),
        flow(),
    )
    sim.settle()
    assert sim.running() == ["y-0"]
    assert sim.last.reason("z") == "ExcessBudgetExceeded"
    sim.tick()
    done = sim.model.tasks["ns/y-0"].pod
    sim.model.apply(Delete(type(done), "ns", "y-0"))
    sim.model.apply(Delete(type(group("y")), "ns", "y"))
    sim.settle()
    assert sim.running() == ["z-0"]


def test_what_was_charged_outlives_the_process() -> None:
    """It stands in the group's status: a new process knows nothing else of it."""
    sim = Simulation(
        world(
            [queue("a", excess_budget=30), queue("b")],
            node("n", "20"),
            ending("y", "15", 120),
            ending("z", "15", 120, 1),
        ),
        flow(),
    )
    sim.settle()
    again = run(sim.model, flow(), now=5)
    assert again.binds == {}
    assert again.reason("z") == "ExcessBudgetExceeded"


def test_who_is_sent_back_is_charged_no_more() -> None:
    model = world(
        [queue("a", excess_budget=100), queue("b")],
        node("n", "10"),
        [group("y", 2, queue="a", lifetime_seconds=60, min_resources={"cpu": "8"}, schedule_timeout_seconds=5)],
    )
    sim = Simulation(model, flow())
    sim.settle()
    assert sim.last.verdicts["ns/y"].charged == 8 * MILLION
    for _ in range(6):
        sim.tick()
    sim.settle()
    assert not sim.last.verdicts["ns/y"].enqueued
    assert sim.last.verdicts["ns/y"].charged == 0


def test_growing_beyond_the_share_is_charged_as_far_as_the_budget_goes() -> None:
    """A minute each: two within the share, then the whole group with each further pod."""
    model = world(
        [queue("a", excess_budget=4), queue("b")], node("n", "6"),
        [group("g", 1, queue="a", lifetime_seconds=60)], members("g", 6),
    )  # fmt: skip
    found = run(model, flow())
    assert len(found.binds) == 4
    assert found.verdicts["ns/g"].charged == 4 * MILLION


def test_older_than_its_lifetime_it_goes_for_another_queue() -> None:
    """As ever: beyond its share, past its lifetime, as a whole."""
    model = world(
        [queue("a"), queue("b")],
        node("n", "4"),
        [group("y", 4, queue="a", lifetime_seconds=60)],
        [pod(f"y-{at}", of="y", on="n") for at in range(4)],
        [group("b", 2, queue="b")],
        members("b", 2),
    )
    assert run(model, flow(), now=59).evicted == []
    assert len(run(model, flow(), now=60).evicted) == 4


def test_groups_that_a_limit_keeps_out_are_rows_of_the_backlog() -> None:
    """They are not looked at one by one in each cycle, and come in when there is more to be had."""
    sim = Simulation(
        world([queue("a"), queue("b")], node("n", "10"), ones("a", 8)), flow("infiniteFactor: 1.2, halfTime: 0")
    )
    sim.settle()
    sim.cycle()
    backlog = sim.memo.backlog
    assert backlog is not None
    assert sorted(backlog[0].keys()) == ["ns/a6", "ns/a7"]
    assert [sim.last.reason(f"a{at}") for at in (6, 7)] == ["InfiniteShareExceeded"] * 2
    sim.tick()
    sim.model.apply(Delete(type(pod("x")), "ns", "a0-0"))
    sim.model.apply(Delete(type(group("x")), "ns", "a0"))
    sim.settle()
    assert sim.running() == [f"a{at}-0" for at in range(1, 7)]
    assert sim.last.reason("a7") == "InfiniteShareExceeded"


def test_who_asks_for_more_than_it_was_promised_is_charged_for_that() -> None:
    """minResources say less than the pods need."""
    by = flow("infiniteFactor: 1")
    for budget, placed in ((9, {}), (80, {"a": 1})):
        model = world(
            [queue("a", excess_budget=budget), queue("b")], node("n", "10"),
            [group("a0", queue="a", lifetime_seconds=600, min_resources={"cpu": "1"}), pod("a0-0", "8", of="a0")],
        )  # fmt: skip
        found = run(model, by)
        assert bound(found) == placed
        assert found.verdicts["ns/a0"].charged == (80 * MILLION if placed else 0)


def test_what_was_promised_free_of_charge_is_placed_free_of_charge() -> None:
    """Others have come in meanwhile, and what minResources do not name counts for nothing."""
    told = group("a0", queue="a", at=0, lifetime_seconds=600, min_resources={"cpu": "3"})
    model = world(
        [queue("a", excess_budget=90), queue("b")], node("n", "10"), told, members("a0", 1, "3"),
        [group("a1", queue="a", at=1, lifetime_seconds=600), pod("a1-0", "4", of="a1")],
    )  # fmt: skip
    found = run(model, flow())
    assert bound(found) == {"a": 2}
    assert (found.verdicts["ns/a0"].charged, found.verdicts["ns/a1"].charged) == (0, 40 * MILLION)
