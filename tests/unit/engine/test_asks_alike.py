"""Gangs that no plugin tells apart share what was found out of one of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from kbatch.api.objects import LabelSelector, TopologySpreadConstraint
from kbatch.engine.context import CycleContext
from kbatch.engine.placement.ranking import NodeRankings
from kbatch.engine.preemption.reuse import asks_alike
from kbatch.engine.state.minimum import signature, unplaced
from tests.unit.engine.worlds import EVERYTHING, group, node, pod, policy, session_of, world

NODES = [node(name, labels={"zone": name}) for name in ("a", "b")]


def gang(name: str, app: str, *, cpu: str = "1", skew: int = 1) -> list[Any]:
    """Two pods that spread over zones by a label of their own."""
    spread = TopologySpreadConstraint(
        max_skew=skew,
        topology_key="zone",
        when_unsatisfiable="DoNotSchedule",
        label_selector=LabelSelector(match_labels={"app": app}),
    )
    return [
        group(name, 2),
        *(
            pod(f"{name}-{at}", cpu, of=name, labels={"app": app}, topology_spread_constraints=(spread,))
            for at in range(2)
        ),
    ]


def asked(*objects: Any) -> dict[str, tuple[object, object]]:
    """By group what it asks for, as far as plugins tell it apart, and by its classes."""
    by = policy(EVERYTHING)
    session = session_of(world(NODES, *objects), by)
    rankings = NodeRankings(session.room, session.plugins.predicates, session.plugins.scores, by.fingerprint)
    context = cast("CycleContext", SimpleNamespace(rankings=rankings))
    return {
        job.name: (asks_alike(context, job, unplaced(job)), signature(job, unplaced(job))) for job in session.live()
    }


def test_gangs_that_spread_by_labels_of_their_own_ask_alike() -> None:
    found = asked(gang("x", "x"), gang("y", "y"))
    (one, by_class), (other, by_other_class) = found["ns/x"], found["ns/y"]
    assert one == other
    assert by_class != by_other_class


def test_gangs_that_ask_for_more_or_spread_otherwise_do_not() -> None:
    found = asked(gang("x", "x"), gang("large", "large", cpu="2"), gang("loose", "loose", skew=2))
    assert len({one for one, _ in found.values()}) == 3


def test_a_gang_that_minds_pods_that_stand_is_like_no_other() -> None:
    found = asked(gang("x", "x"), gang("y", "y"), pod("old", "1", on="a", labels={"app": "x"}))
    assert found["ns/x"][0] != found["ns/y"][0]
