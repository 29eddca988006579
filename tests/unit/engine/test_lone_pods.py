"""Pods that are alone in their groups are worked out as candidates once, and again where their group changes."""

from __future__ import annotations

from unittest import mock

import pytest

from kbatch.api.objects import Pod
from kbatch.engine.preemption.candidate_pool import CandidatePool
from kbatch.engine.session.consent import Consent
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from tests.unit.engine.worlds import Simulation, group, node, pod, policy, priority_class, queue, world

BY = policy("""
actions: "allocate, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: drf}, {name: predicates}, {name: proportion}]
""")


def _full() -> ClusterModel:
    """Four groups of one pod on as many nodes."""
    classes = [priority_class("low", 1), priority_class("mid", 5), priority_class("high", 9)]
    there = [
        (node(f"n{at}", "1"), group(f"g{at}", priority_class_name="low"), pod(f"g{at}", of=f"g{at}", on=f"n{at}"))
        for at in range(4)
    ]
    return world(classes, queue(), *there)


def _comes(at: int) -> list[object]:
    return [group(f"h{at}", at=9 + at, priority_class_name="high"), pod(f"h{at}", of=f"h{at}", at=9 + at)]


def _next(sim: Simulation, at: int) -> list[str]:
    """Who goes for one more."""
    for each in _comes(at):
        sim.model.apply(Upsert(each))  # type: ignore[arg-type]
    sim.settle()
    sim.tick()
    return [name for _, name in sim.evictions[-1:]]


def test_each_is_worked_out_once() -> None:
    sim = Simulation(_full(), BY, recreate=False)
    sim.settle()
    with mock.patch.object(CandidatePool, "_lone_of", autospec=True, side_effect=CandidatePool._lone_of) as worked_out:
        victims = [_next(sim, at) for at in range(3)]
    names = [call.args[1].name for call in worked_out.call_args_list]
    assert victims == [["ns/g3"], ["ns/g2"], ["ns/g1"]]
    assert sorted(name for name in names if name.startswith("ns/g")) == ["ns/g0", "ns/g1", "ns/g2", "ns/g3"]


@pytest.mark.parametrize("kept", [True, False])
def test_whose_priority_has_risen_is_no_longer_the_first_to_go(kept: bool) -> None:
    sim = Simulation(_full(), BY, recreate=False)
    with mock.patch.object(Consent, "keys_stand", return_value=kept):
        sim.settle()
        assert _next(sim, 0) == ["ns/g3"]
        sim.model.apply(Upsert(group("g2", priority_class_name="mid")))
        assert _next(sim, 1) == ["ns/g1"]
        sim.model.apply(Delete(Pod, "ns", "g0"))
        sim.model.apply(Upsert(pod("g0", of="g0", on="n0", at=8)))
        assert _next(sim, 2) == ["ns/g0"]
