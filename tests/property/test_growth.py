"""Growing against what fairness says of the outcome alone, whatever the steps were."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.engine.test_growth import EQUAL, elastic, placed
from tests.unit.engine.worlds import members, node, pod, queue, run, world

quick = settings(deadline=None, max_examples=examples(100))

ROLES = ("a", "b", "c")


@quick
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=4),
    st.integers(1, 30),
)
def test_no_group_has_a_pod_that_one_with_a_smaller_part_of_its_growth_waits_for(
    groups: list[tuple[int, int, int]], room: int
) -> None:
    """Each with a minimum, what it may have above it, and how many of these exist; all minimums fit."""
    least = [low for low, _, _ in groups]
    most = [low + growth for low, growth, _ in groups]
    exist = [low + min(growth, there) for low, growth, there in groups]
    room += sum(least)
    objects = [
        [elastic(f"g{at}", low, ("w", low, top), at=at), members(f"g{at}", there, role="w")]
        for at, (low, top, there) in enumerate(zip(least, most, exist, strict=True))
    ]
    found = placed(run(world(queue(), node("n1", str(room)), *[each for some in objects for each in some]), EQUAL))
    have = [found[f"g{at}"] for at in range(len(groups))]
    assert sum(have) == min(room, sum(exist)), "no room is left while a pod waits"
    assert all(low <= count <= there for low, count, there in zip(least, have, exist, strict=True))
    for x, y in permutations(range(len(groups)), 2):
        if have[x] > least[x] and have[y] < exist[y]:
            before = Fraction(have[x] - 1 - least[x], most[x] - least[x])
            assert before <= Fraction(have[y] - least[y], most[y] - least[y])


@quick
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=2, max_size=3), st.integers(0, 20))
def test_the_same_holds_of_the_roles_of_a_group(roles: list[tuple[int, int]], more: int) -> None:
    """Each with a minimum and what it may have above it, all of which exists."""
    least = [low for low, _ in roles]
    if not sum(least):
        least[0], roles[0] = 1, (1, roles[0][1])
    room = sum(least) + more
    g = elastic("g", 1, *((ROLES[at], low, max(1, low + growth)) for at, (low, growth) in enumerate(roles)))
    exist = [max(1, low + growth) for low, growth in roles]
    pods = [pod(f"{ROLES[at]}-{n}", of="g", role=ROLES[at]) for at, count in enumerate(exist) for n in range(count)]
    found = placed(run(world(queue(), node("n1", str(room)), g, pods), EQUAL))
    have = [found[ROLES[at]] for at in range(len(roles))]
    assert sum(have) == min(room, sum(exist))
    for x, y in permutations(range(len(roles)), 2):
        if have[x] > least[x] and have[y] < exist[y]:
            before = Fraction(have[x] - 1 - least[x], exist[x] - least[x])
            assert before <= Fraction(have[y] - least[y], exist[y] - least[y])
