"""What a search has found out serves only preemptors of which the votes could not differ."""

from tests.unit.engine.worlds import EVERYTHING, group, members, node, pod, policy, queue, run, world

BY = policy(EVERYTHING.replace("enqueue, ", ""))


def test_who_stays_gets_what_one_with_a_lifetime_just_like_it_may_not_have() -> None:
    """Of equal priority a group with a lifetime takes nothing from one without; the next, which has none, may."""
    found = run(
        world(
            queue(), node("n1", "4"), group("big"), members("big", 4, on="n1"),
            group("a", at=1, lifetime_seconds=60), pod("a-0", of="a", at=1),
            group("b", at=2), pod("b-0", of="b", at=2),
        ),
        BY,
    )  # fmt: skip
    assert len(found.evicted) == 1
    assert found.nominated == {"b-0": "n1"}
