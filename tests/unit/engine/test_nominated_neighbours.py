"""Pods that are only nominated are not there yet: what binds now may not depend on them."""

from __future__ import annotations

from typing import Any

from kbatch.api.objects import (
    Affinity,
    LabelSelector,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from tests.unit.engine.worlds import EVERYTHING, group, node, pod, policy, queue, run, stamp, world

ALL = policy(EVERYTHING)
ZONE = "topology.kubernetes.io/zone"


def _meant(app: str) -> LabelSelector:
    return LabelSelector(match_labels={"app": app})


def spread(skew: int, app: str = "a") -> dict[str, Any]:
    """What keeps pods of an app even over the zones."""
    constraint = TopologySpreadConstraint(
        topology_key=ZONE, max_skew=skew, when_unsatisfiable="DoNotSchedule", label_selector=_meant(app)
    )
    return {"labels": {"app": app}, "topology_spread_constraints": (constraint,)}


def near(app: str, *, of: str) -> dict[str, Any]:
    """A pod of one app that must be in the zone of another's."""
    term = PodAffinityTerm(topology_key=ZONE, label_selector=_meant(of))
    return {"labels": {"app": app}, "affinity": Affinity(pod_affinity=PodAffinity(required=(term,)))}


def zoned(name: str, cpu: str = "8") -> Any:
    """A node in the zone of its name's first letter."""
    return node(name, cpu, labels={ZONE: name[0]})


def leaving(name: str, on: str, cpu: str) -> Pod:
    """A pod that terminates."""
    found = pod(name, cpu, on=on)
    found.metadata.deletion_timestamp = stamp(30)
    return found


def waits(name: str, node_name: str, cpu: str = "1", **more: Any) -> Pod:
    """A pod that is nominated to a node."""
    found = pod(name, cpu, of=more.pop("of", name.rpartition("-")[0]), **more)
    found.status.nominated_node_name = node_name
    return found


def test_no_pod_is_bound_for_whose_spread_a_nominated_one_counts() -> None:
    """Until that is there, zone y would have three more than zone x, where the victim still runs."""
    there = [pod(f"s-{at}", of="s", on="y1", **spread(2)) for at in range(2)]
    to_come = waits("s-2", "x1", **spread(2))
    model = world(
        queue(), zoned("x1"), zoned("y1"), leaving("old", "x1", "8"), group("s"), there, to_come,
        pod("s-3", of="s", at=1, **spread(2)),
    )  # fmt: skip
    found = run(model, ALL)
    assert not found.binds
    assert found.nominated == {"s-3": "y1"}


def test_both_are_bound_once_the_victim_is_gone() -> None:
    there = [pod(f"s-{at}", of="s", on="y1", **spread(2)) for at in range(2)]
    waiting = [waits("s-2", "x1", **spread(2)), waits("s-3", "y1", **spread(2))]
    found = run(world(queue(), zoned("x1"), zoned("y1"), group("s"), there, waiting), ALL)
    assert found.binds == {"s-2": "x1", "s-3": "y1"}


def test_where_another_zone_serves_both_ways_it_is_bound_there() -> None:
    """Skew 1: y is one ahead of x and z as they are, and level with x once the nominated one is there."""
    there = pod("s-0", of="s", on="y1", **spread(1))
    to_come = waits("s-1", "x1", "8", **spread(1))
    model = world(
        queue(), zoned("x1"), zoned("y1"), zoned("z1", "4"), leaving("old", "x1", "8"), group("s"), there, to_come,
        pod("s-2", of="s", at=1, **spread(1)),
    )  # fmt: skip
    assert run(model, ALL).binds == {"s-2": "z1"}


def test_a_nominated_pod_is_not_yet_company() -> None:
    """Who must be near it waits with it."""
    database = waits("db-0", "x1", "8", labels={"app": "db"})
    model = world(
        queue(), zoned("x1"), zoned("x2", "4"), leaving("old", "x1", "8"), group("db"), database,
        group("w", at=1), pod("w-0", of="w", at=1, **near("web", of="db")),
    )  # fmt: skip
    found = run(model, ALL)
    assert not found.binds
    assert found.nominated == {"w-0": "x2"}


def test_the_first_of_its_kind_may_be_bound_where_the_nominated_will_be() -> None:
    """It needs nobody to be there, and is with the other one once that is."""
    kind = near("a", of="a")
    model = world(
        queue(), zoned("x1"), zoned("x2", "4"), zoned("y1", "4"), leaving("old", "x1", "8"), group("g"),
        waits("g-0", "x1", "8", **kind), pod("g-1", of="g", at=1, **kind),
    )  # fmt: skip
    assert run(model, ALL).binds == {"g-1": "x2"}


def test_pods_that_are_made_to_wait_for_one_of_their_gang_count_as_waiting() -> None:
    """The whole gang waits for the victim of one; a group that looks at the others may not be bound by them."""
    gang = [pod("g-0", "8", of="g", labels={"app": "db"}), pod("g-1", "2", of="g", labels={"app": "db"})]
    model = world(
        queue(), zoned("x1"), zoned("y1", "4"), leaving("old", "x1", "8"), group("g", 2), gang,
        group("w", at=1), pod("w-0", of="w", at=1, **near("web", of="db")),
    )  # fmt: skip
    found = run(model, ALL)
    assert not found.binds
    assert found.nominated == {"g-0": "x1", "g-1": "y1", "w-0": "y1"}


def test_pods_of_one_gang_are_company_for_one_another() -> None:
    """They are bound at once."""
    gang = [
        pod("g-0", "2", of="g", role="db", labels={"app": "db"}),
        pod("g-1", of="g", role="web", **near("web", of="db")),
    ]
    model = world(queue(), zoned("x1"), zoned("y1"), group("g", 2, roles={"db": 1, "web": 1}), gang)
    found = run(model, ALL).binds
    assert found.keys() == {"g-0", "g-1"}
    assert len(set(found.values())) == 1, "each zone has one node"
