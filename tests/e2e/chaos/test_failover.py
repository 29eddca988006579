"""Two replicas of the scheduler, and what may happen to the one that leads. The auditor watches throughout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kbatch.localcluster.processes import wait_until
from tests.e2e.auditor import audit_log
from tests.e2e.auditor.allowances import ON_THE_WIRE
from tests.e2e.chaos.clock import HOUR, Clock
from tests.e2e.chaos.field import LEASE, Field, binds
from tests.e2e.chaos.load import backlog, create, gang

if TYPE_CHECKING:
    from tests.e2e.auditor.audit_log import Write
    from tests.e2e.auditor.auditor import Auditor
    from tests.e2e.chaos.replica import Replica

pytestmark = pytest.mark.faults

GANGS, SIZE = 24, 16
"""Three times as many pods as the scheduler binds at once."""
NODES = 14
LEASE_SECONDS = 4.0
LOOK_SECONDS = 1.2
"""A candidate looks at the Lease twice a second, more or less, and then has a cycle and a bind before it."""
SLOW = 1.0
"""What a machine that runs all of this on two cores may add."""


def in_the_midst(auditor: Auditor, space: str) -> None:
    """Return as soon as some pods are bound, and before all are."""
    assert wait_until(lambda: auditor.bound(space) > 5, 60, every=0.002)
    assert auditor.bound(space) < GANGS * SIZE, "too late to prove anything"


def test_the_leader_is_killed_while_it_binds(field: Field) -> None:
    field.ensure_nodes(NODES, alike=True)
    with field.namespace() as space, field.schedulers("a", "b") as (a, b), field.audited() as auditor:
        create(field.api, backlog(space, GANGS, SIZE))
        in_the_midst(auditor, space)
        killed = a.kill(again=False)
        field.drained(space)
        first = min(one.received for one in binds(auditor.writes(), b.identity))
        assert first - killed <= LEASE_SECONDS + LOOK_SECONDS + SLOW


def lease_writes(auditor: Auditor) -> list[Write]:
    """Writes of the Lease that the server took, in their order."""
    return audit_log.lease_writes(auditor.writes(), LEASE)


def test_a_leader_with_a_wrong_clock_goes_on_and_one_that_is_robbed_stops(field: Field) -> None:
    field.ensure_nodes(NODES, alike=True)
    clocks = {one: Clock(field.folder / f"clock-of-{one}") for one in ("a", "b")}
    with (
        field.namespace() as space,
        field.schedulers("a", "b", flags=(), clocks=clocks) as replicas,
        field.audited() as auditor,
    ):
        leader = replicas[0]
        create(field.api, backlog(space, GANGS, SIZE))
        in_the_midst(auditor, space)
        for hour in (HOUR, -HOUR):
            renewed = len(lease_writes(auditor))
            clocks[leader.identity].move(hour)
            create(field.api, gang(space, f"clock-{hour:.0f}".replace("--", "-back-"), 8))
            field.drained(space)
            field.wait("the Lease is renewed", lambda: len(lease_writes(auditor)) > renewed, 15)  # noqa: B023
        assert {one.holder for one in audit_log.terms(auditor.writes(), LEASE)} == {leader.identity}, "nobody took over"
        create(field.api, backlog(space, 2, SIZE, prefix="late"))
        at = field.rob(1)
        field.wait("a replica leads again, even if nothing is left to bind", lambda: field.leader() in clocks, 20)
        create(field.api, gang(space, "afterwards", 8))
        field.drained(space)
        assert any(one.received > at for one in auditor.writes() if one.resource == "pods/binding")


def test_the_leader_leaves_in_peace(field: Field) -> None:
    field.ensure_nodes(NODES, alike=True)
    with field.namespace() as space, field.schedulers("a", "b") as (a, b), field.audited() as auditor:
        create(field.api, backlog(space, GANGS, SIZE))
        in_the_midst(auditor, space)
        a.stop()
        field.wait("a has ended", lambda: not a.alive, 15)

        def writes_of(replica: Replica) -> list[Write]:
            return [one for one in lease_writes(auditor) if one.identity == replica.identity]

        field.wait("b has taken the Lease, even if nothing is left to bind", lambda: bool(writes_of(b)), 15)
        field.drained(space)
        released, taken = writes_of(a)[-1], writes_of(b)[0]
        assert released.answer["spec"]["holderIdentity"] == ""
        assert taken.received - released.received <= 1.0
        assert "released lease" in a.log()


def test_a_leader_that_was_paused_writes_nothing_when_it_goes_on(field: Field) -> None:
    field.ensure_nodes(NODES, alike=True)
    with field.namespace() as space, field.schedulers("a", "b") as (a, b), field.audited() as auditor:
        create(field.api, backlog(space, GANGS, SIZE))
        in_the_midst(auditor, space)
        a.pause()
        auditor.on_the_wire = ON_THE_WIRE
        field.wait("b has taken over", lambda: field.leader() == b.identity, 15)
        starts = a.starts
        a.resume()
        # It notices, and ends; what starts in its place stands by.
        field.wait("a has started anew", lambda: a.starts > starts, 20)
        field.drained(space)
        assert field.leader() == b.identity
        # That it wrote nothing once b had taken the Lease is what the auditor sees to, by the audit log.
