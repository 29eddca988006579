"""Who may place nothing for a limit is told that, and not of a reservation."""

from __future__ import annotations

from tests.unit.engine.worlds import group, members, node, pod, policy, queue, run, world

TEXT = """
actions: [allocate, {name: backfill, arguments: {mode: easy}}, preempt]
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: flow, arguments: {halfTime: 0, infiniteFactor: 1}}, {name: nodeorder}]
"""


def test_of_several_reasons_the_first_of_the_page_is_told() -> None:
    """The queue's groups without a lifetime have the 3 CPU that they may have at most: one more cannot start, whatever
    becomes of the room that is kept for `big`.
    """
    found = run(
        world(
            queue("a"), queue("b"), node("n1", "6"),
            group("runs", queue="a"), members("runs", 3, on="n1"),
            group("short", queue="b"), pod("short-0", of="short", on="n1", active_deadline_seconds=60),
            group("big", 3, queue="a", at=1, lifetime_seconds=5), members("big", 3, "2", at=1),
            group("late", queue="a", at=5), members("late", 1, at=5),
        ),
        policy(TEXT), now=10,
    )  # fmt: skip
    assert found.reason("late") == "InfiniteShareExceeded"
