"""The long form of the fault tests: half an hour at most. Run by `python -m tests.e2e.chaos`, never by `make test`."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kbatch.localcluster.processes import wait_until
from tests.e2e.auditor import audit_log
from tests.e2e.auditor.allowances import ON_THE_WIRE, TAKEOVER, Limits
from tests.e2e.chaos import ground, sharing, trials
from tests.e2e.chaos.clock import HOUR, Clock
from tests.e2e.chaos.field import LEASE, LISTED, Field, binds
from tests.e2e.chaos.load import backlog, create
from tests.e2e.chaos.stream import NODES, under_load
from tests.e2e.proxy.faults import WRITES, broken_lists, foreign_webhook, hard, refused_evictions, slow, time_outs

if TYPE_CHECKING:
    from tests.e2e.auditor.audit_log import Write
    from tests.e2e.auditor.auditor import Auditor
    from tests.e2e.chaos.replica import Replica

SEED = int(os.environ.get("KBATCH_CHAOS_SEED", "1"))
SCALE = float(os.environ.get("KBATCH_CHAOS_SCALE", "1"))
"""Of all durations and counts: 0.1 for a quick look."""

FAILOVER_SECONDS = 15.0


def test_killed_fifty_times(field: Field) -> None:
    trials.kills(field, count=max(1, round(50 * SCALE)), seed=SEED)


def test_requests_fail_and_watches_break_for_ten_minutes(field: Field, tmp_path: Path) -> None:
    log = tmp_path / "injections.jsonl"
    injected = trials.bad_connection(field, seconds=600 * SCALE, seed=SEED, log=log, faults=hard())
    print(f"\ninjected ({log}):", *(f"{count:6} {what}" for what, count in injected.items()), sep="\n")
    wanted = ("bind lose", "bind refuse 409", "watch expire", "watch cut", "bind truncate")
    assert all(injected.get(what) for what in wanted), injected


def test_lists_break_off(field: Field) -> None:
    """Pods and groups are listed anew all the time, in pages of 20, and one page in twenty has expired."""
    faults = broken_lists(0.05)
    injected = trials.bad_connection(field, seconds=max(40, 60 * SCALE), seed=SEED, faults=faults, page=20)
    print("\ninjected:", injected)
    assert injected["page refuse 410"] >= 2, injected


def test_answers_come_when_nobody_waits_for_them_any_more(field: Field) -> None:
    """One write in twenty, the Lease's too, is carried out and answered after 31 to 34 s: the client waits for 30."""
    injected = trials.bad_connection(field, seconds=max(45, 120 * SCALE), seed=SEED, faults=time_outs(0.05, WRITES))
    print("\ninjected:", injected)
    assert injected["bind late"] >= 3, injected


@pytest.mark.parametrize("seconds", [0.2, 2.0])
def test_every_request_takes_long(field: Field, seconds: float) -> None:
    injected = trials.bad_connection(field, seconds=120 * SCALE, seed=SEED, faults=slow(seconds))
    print("\ninjected:", injected)
    assert injected["bind slow"] >= 10, injected


def test_another_webhook_refuses_a_tenth_of_all_binds(field: Field) -> None:
    injected = trials.bad_connection(field, seconds=120 * SCALE, seed=SEED, faults=foreign_webhook(0.1))
    print("\ninjected:", injected)
    assert injected["bind refuse 403"] >= 3, injected


def test_the_ground_moves(field: Field) -> None:
    ground.moving_ground(field, seconds=120 * SCALE, seed=SEED, lasting=True)


def test_queues_and_priorities_contend(field: Field) -> None:
    evicted = sharing.contention(field, seconds=90 * SCALE, seed=SEED, kill_every=20)
    print("\nevicted:", evicted)
    assert min(evicted.values()) >= 10, evicted


def test_evictions_are_refused(field: Field) -> None:
    """A fifth of all, in three ways; there are other victims, so reclaim and preemption go on."""
    counts = sharing.contention(field, seconds=90 * SCALE, seed=SEED, faults=refused_evictions(0.2))
    print("\nevicted, injected:", counts)
    assert min(counts["reclaim"], counts["preempt"]) >= 5, counts
    assert min(counts.get(f"evict refuse {status}", 0) for status in (403, 429, 500)) > 0, counts


def test_groups_without_pods_share_a_quota(field: Field) -> None:
    counts = sharing.quota(field, seconds=max(20, 90 * SCALE), seed=SEED, kill_every=15)
    print("\n", counts)
    assert min(counts.values()) >= 5, counts


@pytest.mark.parametrize("hours", [1, -1])
def test_the_clock_of_the_leader_is_moved(field: Field, hours: int) -> None:
    """It leads on, and schedules on; its successor, whose clock is right, is not held up by what it has dated."""
    field.ensure_nodes(NODES)
    clocks = {one: Clock(field.folder / f"clock-of-{one}") for one in ("a", "b")}
    with (
        field.namespace() as space,
        field.schedulers("a", "b", flags=(), clocks=clocks) as replicas,
        field.audited(Limits(partial=TAKEOVER)) as auditor,
    ):
        leader, other = replicas
        with under_load(field, space, seed=SEED):
            wait_until(lambda: auditor.bound(space) > 10, 30, every=0.01)
            moved = time.time()
            clocks[leader.identity].move(hours * HOUR)
            time.sleep(max(14 * SCALE, 5))  # long enough for somebody else to think that the Lease has run out
            writes = auditor.writes()
            assert {one.holder for one in audit_log.terms(writes, LEASE)} == {leader.identity}, "nobody took over"
            assert len(binds(writes, leader.identity, moved + 3)) > 10
            at = leader.kill(again=False)
            field.wait("a successor binds", lambda: _first_bind(auditor, [other], at), 40)
            first = _first_bind(auditor, [other], at)
            assert first is not None
            assert first.received - at <= FAILOVER_SECONDS
        field.drained(space)


def test_the_api_server_is_killed(field: Field) -> None:
    for _ in range(max(1, round(3 * SCALE))):
        trials.outage(field, "kube-apiserver", paused=None)


def test_the_api_server_says_nothing(field: Field) -> None:
    trials.outage(field, "kube-apiserver", paused=20)


def test_etcd_says_nothing_for_thirty_seconds(field: Field) -> None:
    trials.outage(field, "etcd", paused=30)


def test_etcd_is_killed(field: Field) -> None:
    trials.outage(field, "etcd", paused=None)


@pytest.mark.parametrize("what", ["killed", "stopped", "paused", "robbed"])
def test_failover_with_the_durations_that_the_chart_ships(field: Field, what: str) -> None:
    """The leader ends at a random moment under load; a successor binds within the time promised."""
    draw = random.Random(SEED)
    field.ensure_nodes(NODES)
    with (
        field.namespace() as space,
        field.schedulers("a", "b", flags=()) as replicas,
        field.audited(Limits(partial=TAKEOVER)) as auditor,
        under_load(field, space, seed=SEED),
    ):
        create(field.api, backlog(space, 8, 16))
        for _ in range(max(1, round(3 * SCALE))):
            leader, other = sorted(replicas, key=lambda one: one.identity != field.leader())
            time.sleep(draw.uniform(0, 3))  # the random moment
            at = _end(field, leader, what)
            auditor.on_the_wire += ON_THE_WIRE * (what == "paused")
            heirs = replicas if what == "robbed" else [other]
            field.wait("a successor binds", lambda: _first_bind(auditor, heirs, at), 40)  # noqa: B023  (called at once)
            first = _first_bind(auditor, heirs, at)
            assert first is not None
            print(f"\n{what}: {first.identity} bound after {first.received - at:.1f} s")
            if what == "stopped":
                assert _handed_over(auditor, leader, at) <= 1.0
            assert first.received - at <= FAILOVER_SECONDS
            _mend(field, leader, what)


def _end(field: Field, leader: Replica, what: str) -> float:
    if what == "killed":
        return leader.kill(again=False)
    if what == "stopped":
        return leader.stop()
    if what == "paused":
        return leader.pause()
    return field.rob(3)


def _mend(field: Field, leader: Replica, what: str) -> None:
    starts = leader.starts
    if what == "paused":
        leader.resume()
        field.wait("it notices, ends, and is started anew", lambda: leader.starts > starts, 30)
    elif what in {"killed", "stopped"}:
        field.wait("it has ended", lambda: not leader.alive, 20)
        leader.start()
    listed = leader.log().count(LISTED)
    if what in {"killed", "stopped", "paused"}:
        field.wait("it stands by", lambda: leader.log().count(LISTED) > listed, 30)


def _first_bind(auditor: Auditor, heirs: list[Replica], at: float) -> Write | None:
    """The first bind in a term that began after `at`."""
    writes = auditor.writes()
    found = []
    for heir in heirs:
        terms = [one.since for one in audit_log.terms(writes, LEASE) if one.holder == heir.identity and one.since >= at]
        found += binds(writes, heir.identity, min(terms)) if terms else []
    return min(found, key=lambda write: write.received, default=None)


def _handed_over(auditor: Auditor, leader: Replica, at: float) -> float:
    """Seconds from the release of the Lease to its next holder."""
    writes = [one for one in audit_log.lease_writes(auditor.writes(), LEASE) if one.received >= at]
    gone = next(one for one in writes if not one.answer["spec"]["holderIdentity"])
    taken = next(one for one in writes if one.received > gone.received and one.answer["spec"]["holderIdentity"])
    assert (gone.identity, taken.identity != leader.identity) == (leader.identity, True)
    return taken.received - gone.received


def test_another_scheduler_fills_the_nodes(field: Field) -> None:
    trials.another_scheduler(field, seconds=45 * SCALE, seed=SEED)


def test_ten_thousand_absurd_objects(field: Field) -> None:
    taken = trials.hostile_objects(field, count=max(100, round(10_000 * SCALE)), seed=SEED)
    print("\ntaken by the server:", taken)
