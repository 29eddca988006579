"""Mode conservative: starts that are promised stay promised, and are taken only by who may."""

from __future__ import annotations

from typing import Any

from kbatch.api.conditions import ENQUEUED
from kbatch.api.objects import Condition
from kbatch.api.reasons import NotEnoughResources
from kbatch.engine import Policy
from kbatch.model.events import Delete, Upsert
from tests.unit.engine.test_planned_starts import (
    CONSERVATIVE,
    TIERS,
    busy,
    instants,
    nominate,
    saying,
    terminating,
    world,
)
from tests.unit.engine.worlds import group, members, node, pod, policy, priority_class, queue, run, stamp

CLASSES = [priority_class("low", 1), priority_class("high", 10)]


def by_flow(actions: str = "allocate", **arguments: Any) -> Policy:
    given = ", ".join(f"{name}: {value}" for name, value in arguments.items())
    tiers = TIERS.replace("{name: drf}", f"{{name: flow, arguments: {{{given}}}}}").replace(", {name: proportion}", "")
    return policy(f"actions: [{actions}, {{name: backfill, arguments: {{mode: conservative}}}}]" + tiers)


def coming(name: str, cpu: str, *, at: int, let_in: int | None = None, **spec: Any) -> Any:
    """A group whose pods are still to come; in the queue since then."""
    found = group(name, at=at, min_resources={"cpu": cpu}, **spec)
    if let_in is not None:
        found.status.conditions = (Condition(type=ENQUEUED, status="True", last_transition_time=stamp(let_in)),)
    return found


def test_a_promise_is_kept_whose_queue_has_a_past_that_fades_until_then() -> None:
    by = by_flow(infiniteFactor=1, halfTime="10s")
    model = world(
        queue("default"), queue("other"), node("n1", labels={"on": "n1"}), node("n2"), node("n3"),
        saying(pod("b", "4", on="n1", queue="other"), 100),
        saying(pod("x", "4", on="n2"), 60), saying(pod("y", "3", on="n3"), 60),
        saying(pod("lone", "3", at=1, node_selector={"on": "n1"}), 30),
    )  # fmt: skip
    found = run(model, by, now=5)
    assert instants(found) == {"lone": 100}
    rival = pod("rival", "4", at=7, queue="other", node_selector={"on": "n1"})
    model.apply(Upsert(saying(rival, 500)))
    found = run(model, by, now=7, state=found.outcome.state if found.outcome else None)
    assert instants(found) == {"lone": 100, "rival": 130}


def test_a_promise_is_kept_beside_what_other_groups_of_its_queue_were_promised() -> None:
    by = by_flow("enqueue, allocate", infiniteFactor=0.8)
    model = world(
        CLASSES, queue("default"), queue("other"), node("n1", labels={"on": "n1"}), node("n2"), node("n3"),
        saying(pod("x", "4", on="n1", queue="other"), 100),
        saying(pod("y", "3", on="n2", queue="other"), 500), saying(pod("z", "3", on="n3", queue="other"), 500),
        saying(pod("lone", "3", at=1, priority_class_name="low"), 30),
    )  # fmt: skip
    found = run(model, by, now=5)
    assert instants(found) == {"lone": 100}
    for let_in in (None, 20):
        for name, at in (("wide", 6), ("late", 7)):
            model.apply(Upsert(coming(name, "1", at=at, let_in=let_in, priority_class_name="low")))
        if let_in is None:
            found = run(model, by, now=20, state=found.outcome.state if found.outcome else None)
    high = pod("high", "1", at=22, priority_class_name="high", node_selector={"on": "n1"})
    model.apply(Upsert(saying(high, 30)))
    found = run(model, by, now=22, state=found.outcome.state if found.outcome else None)
    assert instants(found) == {"lone": 100, "high": 100}


def test_who_may_not_start_before_its_turn_is_not_promised_that_very_room_a_moment_later() -> None:
    by = policy("actions: [enqueue, allocate, {name: backfill, arguments: {mode: conservative}}]" + TIERS)
    model = world(
        node("n1"), node("n2"), node("n3", "1"), busy(100), busy(150, "1", "n2", "z"), busy(51, "1", "n3", "y"),
        saying(pod("lone", "4", at=1), 30),
    )  # fmt: skip
    found = run(model, by, now=5)
    assert instants(found) == {"lone": 100}
    model.apply(Upsert(coming("wide", "3", at=6, let_in=6)))
    for name, now in (("z", 20), ("y", 51)):
        model.apply(Delete(type(pod("any")), "ns", name))
        found = run(model, by, now=now, state=found.outcome.state if found.outcome else None)
        assert found.binds == {}
        assert instants(found) == {"lone": 100}


def test_who_can_start_sooner_elsewhere_takes_no_room_over_that_comes_free_late() -> None:
    model = world(
        CLASSES, node("n1"), terminating(pod("leaving", "4", on="n1"), 400),
        saying(pod("weak", "4", at=1, priority_class_name="low"), 500),
    )  # fmt: skip
    found = run(model, CONSERVATIVE, now=5)
    assert found.nominated == {"weak": "n1"}
    nominate(model, {"weak": "n1"})
    for one in (node("n2"), busy(100, on="n2"), saying(pod("strong", "4", at=6, priority_class_name="high"), 500)):
        model.apply(Upsert(one))
    found = run(model, CONSERVATIVE, now=6, state=found.outcome.state if found.outcome else None)
    assert found.nominated == {}
    assert instants(found) == {"strong": 100}


def test_who_starts_sooner_than_pods_have_gone_is_not_told_that_all_its_pods_can_be_placed() -> None:
    """One pod fits now; the other waits for an end that is sooner than that of the pod that terminates elsewhere."""
    model = world(
        node("n1"), node("n2"), node("n3"), busy(50, on="n2"), terminating(pod("leaving", "4", on="n3"), 400),
        group("gang", 2, at=1), [saying(each, 500) for each in members("gang", 2, "4", at=1)],
    )  # fmt: skip
    found = run(model, CONSERVATIVE, now=5)
    assert found.nominated == found.binds == {}
    assert instants(found) == {"gang": 50}
    reason = found.verdicts["ns/gang"].reason
    assert isinstance(reason, NotEnoughResources)
    assert (reason.needed, reason.placeable, reason.fitting) == (2, 1, 0), reason
