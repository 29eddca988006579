"""Shrinking against what fairness says of the outcome alone, whatever the steps were."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.engine.test_growth import EQUAL, elastic
from tests.unit.engine.worlds import group, members, node, pod, queue, run, world

quick = settings(deadline=None, max_examples=examples(100))

ROLES = ("a", "b", "c")


@quick
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 20)), min_size=2, max_size=3),
    st.integers(1, 9),
    st.integers(1, 3),
)
def test_no_role_gives_a_pod_while_another_is_further_above_its_minimum(
    roles: list[tuple[int, int, int]], claims: int, nodes: int
) -> None:
    """Each with a minimum, the pods above it, and when these came; whatever nodes they stand on."""
    least = [low for low, _, _ in roles]
    have = [max(1, low + more) for low, more, _ in roles]
    room = sum(have)
    claims = min(claims, room // 2)
    g = elastic("g", 1, *((ROLES[at], low, 9) for at, low in enumerate(least)), queue="q1")
    standing, taken = [], Counter[str]()
    for at, (count, (_, _, came)) in enumerate(zip(have, roles, strict=True)):
        for n in range(count):
            on = f"n{(at + n) % nodes}"
            taken[on] += 1
            standing.append(pod(f"{ROLES[at]}-{n}", of="g", role=ROLES[at], on=on, at=came))
    machines = [node(name, str(count)) for name, count in sorted(taken.items())]
    asked = [[group(f"c{n}", 1, queue="q2", at=50), members(f"c{n}", 1, at=50)] for n in range(claims)]
    model = world([queue("q1"), queue("q2"), *machines], g, standing, *[each for some in asked for each in some])
    gone = Counter(name.partition("-")[0] for name in run(model, EQUAL, now=60).evicted)
    above = [count - gone[ROLES[at]] - least[at] for at, count in enumerate(have)]
    assert all(left >= 0 for left in above)
    for x, y in permutations(range(len(roles)), 2):
        if gone[ROLES[x]]:
            assert above[x] + 1 >= above[y]
