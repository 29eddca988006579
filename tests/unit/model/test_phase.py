"""The phases of a group: every edge of the table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbatch.model.phase import TABLE, GroupFacts, MemberCounts, Phase, RoleFacts, decide, derive

PENDING, IN_QUEUE, RUNNING, UNKNOWN = Phase.PENDING, Phase.IN_QUEUE, Phase.RUNNING, Phase.UNKNOWN
COMPLETED, FAILED = Phase.COMPLETED, Phase.FAILED


def pods(**counts: int) -> MemberCounts:
    return MemberCounts(**counts)


EDGES = [
    ("a new group", GroupFacts(3), PENDING),
    ("refused", GroupFacts(3, pods(pending=3), enqueued=False, scheduled=False, current=PENDING), PENDING),
    ("let in before its pods exist", GroupFacts(3, enqueued=True, current=PENDING), IN_QUEUE),
    ("let in, waits for room", GroupFacts(3, pods(pending=3), enqueued=True, scheduled=False), IN_QUEUE),
    ("taken back", GroupFacts(3, pods(pending=3), enqueued=False, current=IN_QUEUE), PENDING),
    ("partly bound", GroupFacts(3, pods(bound=1, pending=2), enqueued=True, current=IN_QUEUE), IN_QUEUE),
    ("partly bound, never enqueued", GroupFacts(3, pods(bound=1, pending=2), current=PENDING), IN_QUEUE),
    ("the minimum is bound", GroupFacts(3, pods(bound=3), enqueued=True, current=IN_QUEUE), RUNNING),
    ("bound or running", GroupFacts(3, pods(bound=1, running=2, pending=4), current=IN_QUEUE), RUNNING),
    ("straight from Pending", GroupFacts(3, pods(running=3), current=PENDING), RUNNING),
    ("some ended well, the rest runs", GroupFacts(3, pods(running=1, succeeded=2), current=RUNNING), RUNNING),
    ("the minimum ended well, another runs", GroupFacts(1, pods(running=1, succeeded=1)), RUNNING),
    ("between two pods of a sequence", GroupFacts(1, pods(pending=1, succeeded=1), current=RUNNING), RUNNING),
    ("lost a member", GroupFacts(3, pods(running=2, pending=1), scheduled=True, current=RUNNING), RUNNING),
    (
        "lost a member that cannot be placed",
        GroupFacts(3, pods(running=2, pending=1), scheduled=False, current=RUNNING),
        UNKNOWN,
    ),
    (
        "lost a member for lack of capacity",
        GroupFacts(3, pods(running=2, pending=1), unschedulable=True, current=RUNNING),
        UNKNOWN,
    ),
    (
        "some bound, none runs, the rest waits",
        GroupFacts(3, pods(bound=2, pending=1), enqueued=True, scheduled=False, current=IN_QUEUE),
        IN_QUEUE,
    ),
    (
        "unknown, now placeable, not there yet",
        GroupFacts(3, pods(running=2, pending=1), scheduled=True, current=UNKNOWN),
        UNKNOWN,
    ),
    ("unknown and whole again", GroupFacts(3, pods(running=2, bound=1), scheduled=True, current=UNKNOWN), RUNNING),
    ("a broken gang was taken back", GroupFacts(3, pods(pending=3), enqueued=False, current=RUNNING), PENDING),
    ("all evicted, still let in", GroupFacts(3, pods(pending=3), enqueued=True, current=RUNNING), IN_QUEUE),
    ("all gone while unknown", GroupFacts(3, enqueued=False, current=UNKNOWN), PENDING),
    ("done", GroupFacts(3, pods(succeeded=3), enqueued=True, scheduled=True, current=RUNNING), COMPLETED),
    ("done, with failures on the way", GroupFacts(2, pods(succeeded=2, failed=5), current=RUNNING), COMPLETED),
    ("done while nobody looked", GroupFacts(3, pods(succeeded=3), current=PENDING), COMPLETED),
    ("done, pods cleaned up", GroupFacts(3, enqueued=True, current=COMPLETED), COMPLETED),
    ("done, some pods cleaned up", GroupFacts(3, pods(succeeded=1), gave_up=True, current=COMPLETED), COMPLETED),
    ("done, used again", GroupFacts(3, pods(pending=3), enqueued=False, current=COMPLETED), PENDING),
    ("gave up", GroupFacts(3, pods(failed=2, succeeded=1), gave_up=True, current=RUNNING), FAILED),
    ("gave up, too few left", GroupFacts(3, pods(failed=2, running=2), gave_up=True, current=RUNNING), FAILED),
    ("gave up, but the minimum still runs", GroupFacts(2, pods(failed=2, running=2), gave_up=True), RUNNING),
    ("gave up, pods cleaned up", GroupFacts(3, gave_up=True, current=FAILED), FAILED),
    ("failed, its owner is gone too", GroupFacts(3, enqueued=True, current=FAILED), FAILED),
    ("failed, tried again", GroupFacts(3, pods(pending=3, failed=1), enqueued=True, current=FAILED), IN_QUEUE),
    ("failed pods that are made again", GroupFacts(3, pods(failed=3), enqueued=True, current=RUNNING), IN_QUEUE),
    ("its Job goes on", GroupFacts(3, pods(succeeded=3), ongoing=True, enqueued=True, current=RUNNING), RUNNING),
    ("its Job goes on with other pods", GroupFacts(3, pods(succeeded=3, pending=1), ongoing=True), RUNNING),
    ("done, a new Job came", GroupFacts(3, ongoing=True, enqueued=False, current=COMPLETED), PENDING),
    ("failed, a new Job came", GroupFacts(3, ongoing=True, enqueued=True, current=FAILED), IN_QUEUE),
    (
        "its Job is complete with fewer",
        GroupFacts(4, pods(succeeded=1, failed=2), done=True, enqueued=True, current=RUNNING),
        COMPLETED,
    ),
    ("its Job is complete, its pods are gone", GroupFacts(4, done=True, enqueued=True, current=RUNNING), COMPLETED),
    ("its Job was complete at once", GroupFacts(4, done=True, enqueued=True, current=PENDING), IN_QUEUE),
    ("its Job is complete, a pod still runs", GroupFacts(4, pods(running=1), done=True, current=RUNNING), RUNNING),
    ("gave up before anything ran", GroupFacts(3, pods(failed=1), gave_up=True, current=PENDING), FAILED),
]


@pytest.mark.parametrize(("facts", "want"), [pytest.param(facts, want, id=name) for name, facts, want in EDGES])
def test_edge(facts: GroupFacts, want: Phase) -> None:
    assert derive(facts) is want


def test_every_line_of_the_table_is_exercised() -> None:
    assert {decide(facts)[1].name for _, facts, _ in EDGES} == {rule.name for rule in TABLE}


def role(minimum: int, **counts: int) -> RoleFacts:
    return RoleFacts(minimum, pods(**counts))


def test_every_role_needs_its_own_minimum_to_run() -> None:
    workers_only = GroupFacts(3, pods(running=3, pending=1), (role(1, pending=1), role(2, running=3)), enqueued=True)
    assert derive(workers_only) is IN_QUEUE
    whole = GroupFacts(3, pods(running=3, bound=1), (role(1, bound=1), role(2, running=3)), enqueued=True)
    assert derive(whole) is RUNNING


def test_every_role_needs_its_own_minimum_to_complete() -> None:
    members = pods(succeeded=3, failed=1)
    assert derive(GroupFacts(3, members, (role(1, succeeded=1), role(2, succeeded=2, failed=1)))) is COMPLETED
    roles = (role(1, failed=1), role(2, succeeded=3))
    assert derive(GroupFacts(3, members, roles, gave_up=True, current=RUNNING)) is FAILED
    assert derive(GroupFacts(3, members, roles, enqueued=True, current=RUNNING)) is IN_QUEUE


def test_a_role_without_a_minimum_holds_nothing_up() -> None:
    assert derive(GroupFacts(1, pods(running=1), (role(1, running=1), role(0)))) is RUNNING


def test_deriving_again_changes_nothing() -> None:
    for name, facts, want in EDGES:
        assert derive(replace(facts, current=want)) is want, name


def test_phases_print_as_they_stand_in_a_manifest() -> None:
    assert [str(phase) for phase in Phase] == ["Pending", "InQueue", "Running", "Unknown", "Completed", "Failed"]
