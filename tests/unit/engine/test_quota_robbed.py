"""A quota that others use up while a group is in queue."""

from __future__ import annotations

from kbatch.api.objects import Metadata, ResourceQuota, ResourceQuotaSpec, ResourceQuotaStatus
from kbatch.model.events import Upsert
from kbatch.times import SECOND
from tests.unit.engine.worlds import EPOCH, Simulation, group, members, node, queue, world


def quota(used: str) -> ResourceQuota:
    hard = {"requests.cpu": "6"}
    return ResourceQuota(
        metadata=Metadata(name="q", namespace="ns", uid="q"),
        spec=ResourceQuotaSpec(hard=dict(hard)),
        status=ResourceQuotaStatus(hard=dict(hard), used={"requests.cpu": used}),
    )


def start() -> Simulation:
    sim = Simulation(world(queue(), node("n1", "8"), quota("0"), group("a", 4, min_resources={"cpu": "4"})))
    assert sim.cycle().verdicts["ns/a"].enqueued
    return sim


def test_the_group_is_sent_back_after_a_while_and_let_in_when_the_quota_is_free_again() -> None:
    sim = start()
    sim.model.apply(Upsert(quota("3")))
    sim.now = 4
    found = sim.cycle()
    assert found.verdicts["ns/a"].enqueued
    assert found.outcome is not None
    assert found.outcome.next_wake == EPOCH + 5 * SECOND
    sim.now = 5
    found = sim.cycle()
    assert found.verdicts["ns/a"].enqueued is False
    assert found.reason("a") == "QuotaExceeded"
    assert found.verdicts["ns/a"].attempts == 0, "it was not its own doing: it does not wait longer for that"
    sim.now = 60
    assert sim.cycle().verdicts["ns/a"].enqueued is False
    sim.model.apply(Upsert(quota("2")))
    assert sim.cycle().verdicts["ns/a"].enqueued


def test_its_own_pods_that_come_late_or_are_counted_early_are_nobody_elses() -> None:
    sim = start()
    sim.now = 9
    for one in members("a", 3, at=9):
        one.spec.node_selector = {"no": "where"}
        sim.model.apply(Upsert(one))
    sim.model.apply(Upsert(quota("4")))  # the fourth is counted already, and not seen yet
    assert sim.cycle().verdicts["ns/a"].enqueued
    for one in members("a", 4, at=9):
        one.spec.node_selector = {"no": "where"}
        sim.model.apply(Upsert(one))
    sim.model.apply(Upsert(quota("6")))
    sim.now = 60
    assert sim.cycle().verdicts["ns/a"].enqueued, "all its pods are there: no quota stands in their way"
