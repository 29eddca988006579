"""Gangs that have run and lost members: what replaces these comes first, and what is left stays, or goes in time."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kbatch.api.objects import Node, Pod
from kbatch.engine import CycleState, Memo
from kbatch.model.events import Delete, Upsert
from kbatch.times import SECOND
from tests.unit.engine.worlds import (
    EPOCH,
    EVERYTHING,
    Simulation,
    group,
    node,
    pod,
    policy,
    priority_class,
    queue,
    run,
    world,
)

ALL = policy(EVERYTHING)


def running_gang(least: int = 4, count: int = 4, *, nodes: int = 4, **spec: Any) -> Simulation:
    """A gang `g` of pods with an owner, one on each node of one cpu; more nodes of that size may be free."""
    pods = [pod(f"g-{at}", of="g") for at in range(count)]
    simulation = Simulation(
        world(queue(), [node(f"n{at}", "1") for at in range(nodes)], group("g", least, **spec), pods), ALL
    )
    simulation.settle()
    assert len(simulation.running()) == count
    return simulation


def lose(simulation: Simulation, name: str = "g-0", *, replaced: str = "") -> str:
    """The pod's node is deleted with it; its controller may make another pod. Returns the node's name."""
    model = simulation.model
    old = model.tasks[f"ns/{name}"]
    where = old.node
    model.apply(Delete(Pod, "ns", name))
    model.apply(Delete(Node, "", where))
    if replaced:
        fresh = copy.deepcopy(old.pod)
        fresh.metadata.name, fresh.metadata.uid, fresh.spec.node_name = replaced, f"u-{replaced}", ""
        fresh.status = type(fresh.status)(phase="Pending")
        model.apply(Upsert(fresh))
    return where


def condition(simulation: Simulation, type_: str) -> Any:
    return simulation.model.jobs["ns/g"].condition(type_)


def actions(simulation: Simulation) -> set[tuple[str, str]]:
    found = simulation.last.transactions
    return {(gone.action, gone.beneficiary) for each in found for gone in each.evictions}


# --- what is left -----------------------------------------------------------------------------------------------------


def test_without_a_time_what_is_left_stays() -> None:
    simulation = running_gang()
    lose(simulation)
    for _ in range(20):
        simulation.settle()
        simulation.now += 600
    assert simulation.evictions == []
    assert len(simulation.running()) == 3
    assert condition(simulation, "Enqueued").reason == "MembersLost"


def test_with_0_what_is_left_goes_at_once_as_one() -> None:
    simulation = running_gang(minimum_lost_seconds=0)
    simulation.now = 100
    lose(simulation)
    found = simulation.cycle()
    assert found.evicted == ["g-1", "g-2", "g-3"]
    assert len(found.transactions) == 1, "one plan: all are tried before one goes"
    assert actions(simulation) == {("minimumLost", "")}
    assert found.reason("g") == "MinimumLost"
    message = found.verdicts["ns/g"].reason
    assert message is not None
    assert message.message.startswith("3 of its 4 pods are left, below its minimum now")


def test_it_queues_again_with_back_off_and_starts_elsewhere() -> None:
    simulation = running_gang(nodes=5, minimum_lost_seconds=0)
    simulation.now = 100
    gone = lose(simulation, replaced="g-9")
    simulation.settle()
    assert condition(simulation, "Enqueued").status == "False"
    assert simulation.model.jobs["ns/g"].group.status.scheduling_attempts == 1  # type: ignore[union-attr]
    assert simulation.last.reason("g") == "WaitingInQueue"
    simulation.tick()
    simulation.settle()
    assert simulation.running() == [], "the back-off is 10 s"
    simulation.now = 110
    simulation.settle()
    assert len(simulation.running()) == 4
    assert gone not in {simulation.model.tasks[f"ns/{name}"].node for name in simulation.running()}
    assert condition(simulation, "Scheduled").status == "True"
    assert simulation.state.broken == {}


def test_nothing_of_it_starts_in_the_cycle_that_gives_it_up() -> None:
    """Enough pods wait to make up the minimum, and there is room for them beside those that go."""
    simulation = running_gang(2, 4, nodes=4, minimum_lost_seconds=0)
    for at in range(3):
        lose(simulation, f"g-{at}", replaced=f"g-{at + 4}")
    for at in range(2):
        simulation.model.apply(Upsert(node(f"m{at}", "1")))
    found = simulation.cycle()
    assert found.evicted == ["g-3"]
    assert found.binds == {}


def test_what_is_left_goes_after_so_many_seconds() -> None:
    simulation = running_gang(minimum_lost_seconds=60)
    simulation.now = 100
    lose(simulation)
    simulation.settle()
    outcome = simulation.last.outcome
    assert outcome is not None
    assert outcome.next_wake == EPOCH + 160 * SECOND
    assert outcome.state.broken == {"ns/g": EPOCH + 100 * SECOND}
    simulation.now = 159
    simulation.settle()
    assert simulation.evictions == []
    simulation.now = 160
    simulation.settle()
    assert [name for _, name in simulation.evictions] == ["ns/g-1", "ns/g-2", "ns/g-3"]


def test_the_time_begins_anew_when_it_was_whole_in_between() -> None:
    simulation = running_gang(nodes=6, minimum_lost_seconds=60)
    simulation.now = 100
    lose(simulation)
    simulation.settle()
    simulation.now = 150
    simulation.model.apply(Upsert(pod("g-9", of="g")))
    simulation.settle()
    assert len(simulation.running()) == 4
    lose(simulation, "g-1")
    simulation.settle()
    assert simulation.state.broken == {"ns/g": EPOCH + 150 * SECOND}
    simulation.now = 209
    simulation.settle()
    assert simulation.evictions == []


def test_that_it_was_whole_counts_though_nobody_has_written_it() -> None:
    """Its condition Scheduled=False is of 100 s, it was whole at 150 s, and lost another member before that stood."""
    simulation = running_gang(nodes=6, minimum_lost_seconds=60)
    simulation.now = 100
    lose(simulation)
    simulation.settle()
    simulation.model.apply(Upsert(pod("g-9", of="g")))
    stands = copy.deepcopy(simulation.model.jobs["ns/g"].group)
    assert stands is not None
    simulation.now = 150
    simulation.cycle()
    simulation.model.apply(Upsert(stands))
    simulation.cycle()
    assert simulation.state.broken == {"ns/g": EPOCH + 150 * SECOND}
    lose(simulation, "g-1")
    simulation.model.apply(Upsert(stands))
    simulation.now = 165
    simulation.cycle()
    assert simulation.evictions == []


def test_a_new_process_counts_from_the_condition() -> None:
    simulation = running_gang(minimum_lost_seconds=60)
    simulation.now = 100
    lose(simulation)
    simulation.settle()
    simulation.memo, simulation.state = Memo(), CycleState()
    simulation.now = 159
    simulation.settle()
    assert simulation.evictions == []
    simulation.memo, simulation.state = Memo(), CycleState()
    simulation.now = 160
    simulation.settle()
    assert len(simulation.evictions) == 3


def test_a_date_in_the_future_is_no_time_that_is_over() -> None:
    simulation = running_gang(minimum_lost_seconds=60)
    simulation.now = 5000
    lose(simulation)
    simulation.settle()
    simulation.memo, simulation.state = Memo(), CycleState()
    simulation.now = 100  # this process' clock is wrong, or the other's was
    simulation.settle()
    assert simulation.evictions == []


def test_a_role_below_its_own_minimum_is_enough() -> None:
    model = world(
        queue(), [node(f"n{at}", "1") for at in range(5)],
        group("g", 1, roles={"ps": 1, "worker": 2}, minimum_lost_seconds=0),
        pod("g-ps", of="g", role="ps"), [pod(f"g-w{at}", of="g", role="worker") for at in range(4)],
    )  # fmt: skip
    simulation = Simulation(model, ALL)
    simulation.settle()
    lose(simulation, "g-w0")
    simulation.settle()
    assert simulation.evictions == [], "of the role three are left, and two needed"
    lose(simulation, "g-ps")
    simulation.settle()
    assert len(simulation.evictions) == 3


@pytest.mark.parametrize("why", ["failed", "deleted", "succeeded"])
def test_from_whatever_cause_but_success(why: str) -> None:
    simulation = running_gang(minimum_lost_seconds=0)
    if why == "deleted":
        simulation.model.apply(Delete(Pod, "ns", "g-0"))
    else:
        ended = copy.deepcopy(simulation.model.tasks["ns/g-0"].pod)
        ended.status.phase = why.capitalize()
        simulation.model.apply(Upsert(ended))
    simulation.settle()
    assert len(simulation.evictions) == (0 if why == "succeeded" else 3)


def test_what_may_not_be_evicted_for_others_goes_all_the_same() -> None:
    """`disruption` and `minRuntimeSeconds` are about others; this is the group's own rule."""
    simulation = running_gang(minimum_lost_seconds=0, disruption="Never", min_runtime_seconds=3600)
    lose(simulation)
    simulation.settle()
    assert len(simulation.evictions) == 3


def test_where_one_may_not_go_all_stay_until_it_may() -> None:
    simulation = running_gang(minimum_lost_seconds=0)
    lose(simulation)
    simulation.model.refuse_eviction("ns/g-2", "u-g-2", EPOCH + 30 * SECOND, "a budget")
    simulation.settle()
    assert simulation.evictions == []
    assert simulation.last.outcome is not None
    assert simulation.last.outcome.next_wake == EPOCH + 30 * SECOND
    simulation.now = 30
    simulation.settle()
    assert len(simulation.evictions) == 3


def test_a_plan_that_was_refused_sends_nobody_back() -> None:
    simulation = running_gang(minimum_lost_seconds=0)
    lose(simulation)
    found = run(simulation.model, ALL, state=simulation.state)
    assert found.evicted == ["g-1", "g-2", "g-3"]
    assert found.verdicts["ns/g"].enqueued is True
    assert found.verdicts["ns/g"].attempts == 0
    simulation.model.refuse_eviction("ns/g-2", "u-g-2", None, "a budget")
    found = run(simulation.model, ALL, state=found.outcome.state if found.outcome is not None else None)
    assert found.evicted == []
    assert found.verdicts["ns/g"].enqueued is True
    assert found.verdicts["ns/g"].members_lost is True


def test_a_refusal_that_comes_late_leaves_the_gang_as_it_is() -> None:
    """It was sent back when its evictions were under way, and that is written: it is no gang bound in part now."""
    simulation = running_gang(minimum_lost_seconds=0)
    model = simulation.model
    lose(simulation)
    found = run(model, ALL, now=100, state=simulation.state)
    for name in found.evicted:
        model.evicting(f"ns/{name}", f"u-{name}")
    for _ in range(3):
        assert found.outcome is not None
        found = run(model, ALL, now=101, state=found.outcome.state)
        simulation.now = 101
        simulation.write(found.verdicts["ns/g"])
    assert condition(simulation, "Enqueued").status == "False"
    for name in ("g-1", "g-2", "g-3"):
        model.not_evicting(f"ns/{name}", f"u-{name}")
    model.refuse_eviction("ns/g-2", "u-g-2", None, "a budget")
    for later in (102, 200, 900):
        assert found.outcome is not None
        found = run(model, ALL, now=later, state=found.outcome.state)
        assert found.evicted == []
        assert found.verdicts["ns/g"].members_lost is True
        assert found.verdicts["ns/g"].enqueued is True


def test_a_closed_queue_keeps_no_broken_gang() -> None:
    simulation = running_gang(minimum_lost_seconds=0)
    simulation.model.apply(Upsert(queue(state="Closed")))
    lose(simulation)
    simulation.settle()
    assert len(simulation.evictions) == 3


def test_nobody_is_evicted_of_a_group_that_is_suspended_and_its_time_begins_when_it_is_resumed() -> None:
    simulation = running_gang(minimum_lost_seconds=2)
    held = copy.deepcopy(simulation.model.jobs["ns/g"].group)
    assert held is not None
    held.spec.suspend = True
    simulation.model.apply(Upsert(held))
    lose(simulation)
    simulation.run(5)
    assert simulation.evictions == []
    held = copy.deepcopy(simulation.model.jobs["ns/g"].group)
    assert held is not None
    held.spec.suspend = False
    simulation.model.apply(Upsert(held))
    simulation.run(1)
    assert simulation.evictions == []
    simulation.run(2)
    assert len(simulation.evictions) == 3


def test_without_enqueue_it_starts_again_when_its_pods_are_there() -> None:
    simulation = running_gang(nodes=5, minimum_lost_seconds=0)
    simulation.policy = policy()
    lose(simulation, replaced="g-9")
    simulation.run(3)
    assert len(simulation.evictions) == 3
    assert len(simulation.running()) == 4


# --- what replaces them -----------------------------------------------------------------------------------------------


def test_a_replacement_comes_before_all_others() -> None:
    """Before a group of higher priority that would take the one free node."""
    high = priority_class("high", 1000)
    simulation = running_gang(nodes=5)
    lose(simulation, replaced="g-9")
    simulation.model.apply(Upsert(high))
    simulation.model.apply(Upsert(group("urgent", 1, priority_class_name="high")))
    simulation.model.apply(Upsert(pod("urgent-0", of="urgent", priority=1000)))
    simulation.policy = policy()
    simulation.settle()
    assert "g-9" in simulation.running()
    assert simulation.running("urgent") == []
    assert simulation.evictions == []


def test_a_replacement_whose_bind_fails_takes_nobody_down() -> None:
    """The others have run for hours: they are not a gang whose binds failed."""
    simulation = running_gang(nodes=5)
    simulation.now = 7200
    lose(simulation, replaced="g-9")
    found = run(simulation.model, ALL, now=simulation.now, state=simulation.state)
    assert found.outcome is not None
    assert list(found.binds) == ["g-9"]
    state = found.outcome.state
    simulation.model.assume("ns/g-9", "u-g-9", found.binds["g-9"])
    found = run(simulation.model, ALL, now=simulation.now, state=state)
    assert found.outcome is not None
    simulation.model.forget("ns/g-9", "u-g-9")
    simulation.model.apply(Delete(Node, "", "n4"))
    found = run(simulation.model, ALL, now=simulation.now + 120, state=found.outcome.state)
    assert found.evicted == []
    assert found.verdicts["ns/g"].members_lost is True


def test_a_bind_that_may_fail_does_not_stop_the_time() -> None:
    simulation = running_gang(nodes=5, minimum_lost_seconds=60)
    simulation.now = 100
    lose(simulation, replaced="g-9")
    found = run(simulation.model, ALL, now=100, state=simulation.state)
    assert found.outcome is not None
    simulation.model.assume("ns/g-9", "u-g-9", found.binds["g-9"])
    found = run(simulation.model, ALL, now=130, state=found.outcome.state)
    assert found.outcome is not None
    assert found.outcome.state.broken == {"ns/g": EPOCH + 100 * SECOND}
    simulation.model.forget("ns/g-9", "u-g-9")
    simulation.model.apply(Delete(Node, "", "n4"))
    assert run(simulation.model, ALL, now=159, state=found.outcome.state).evicted == []
    assert len(run(simulation.model, ALL, now=160, state=found.outcome.state).evicted) == 3
