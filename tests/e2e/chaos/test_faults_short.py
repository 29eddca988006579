"""The scheduler under load while things break, in the short form; `make chaos` runs the long one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.chaos import ground, sharing, trials

if TYPE_CHECKING:
    from tests.e2e.chaos.field import Field

pytestmark = pytest.mark.faults


def test_killed_at_random_moments(field: Field) -> None:
    trials.kills(field, count=2, seed=11)


def test_requests_fail_and_watches_break(field: Field) -> None:
    injected = trials.bad_connection(field, seconds=5, seed=12)
    assert sum(injected.values()) > 10, injected
    assert any(what.startswith("bind") for what in injected), injected


def test_nodes_pods_groups_and_namespaces_go_away(field: Field) -> None:
    ground.moving_ground(field, seconds=4, seed=13)


def test_queues_and_priorities_contend(field: Field) -> None:
    evicted = sharing.contention(field, seconds=6, seed=16)
    assert min(evicted.values()) >= 3, evicted


def test_objects_with_absurd_fields(field: Field) -> None:
    taken = trials.hostile_objects(field, count=500, seed=14)
    assert all(taken.get(kind, 0) >= 20 for kind in ("Pod", "Node", "PodGroup", "Queue")), taken
