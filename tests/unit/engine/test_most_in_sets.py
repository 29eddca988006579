"""How many pods that keep apart, or spread, sets of nodes hold at most."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch.engine.placement.set_room import most_anywhere, most_in
from kbatch.engine.plugin import DomainLimit, NodeSets

SETS = NodeSets(np.array([0, 0, 0, 1, 1, -1], np.int64))
DOMAINS = np.array([0, 0, 1, 1, 2, 2], np.int32)
MANY = np.full(6, 4, np.int64)


@pytest.mark.parametrize(
    ("domains", "counts", "fitting", "wanted"),
    [
        pytest.param(DOMAINS, [0, 0, 0], MANY, [2, 2], id="one in each domain"),
        pytest.param(DOMAINS, [0, 1, 0], MANY, [1, 1], id="none where one counts already"),
        pytest.param(DOMAINS, [0, 0, 0], np.array([4, 4, 0, 4, 4, 4]), [1, 2], id="none by rows without room"),
        pytest.param(np.array([0, -1, 1, 1, 2, 2], np.int32), [0, 0, 0], MANY, [6, 2], id="any number in no domain"),
    ],
)
def test_pods_that_keep_apart(
    domains: np.ndarray[tuple[int], np.dtype[np.int32]],
    counts: list[int],
    fitting: np.ndarray[tuple[int], np.dtype[np.int64]],
    wanted: list[int],
) -> None:
    found = most_in(SETS, fitting, DomainLimit(domains, np.array([*counts, 0], np.int64)))
    assert found.tolist() == wanted


@pytest.mark.parametrize(
    ("counts", "skew", "present", "wanted"),
    [
        pytest.param([0, 0, 0], 1, [0, 1, 2], [2, 2], id="a domain is left out: one in each of the others"),
        pytest.param([0, 0, 0], 2, [0, 1, 2], [4, 4], id="or two"),
        pytest.param([1, 0, 0], 1, [0, 1, 2], [1, 4], id="none where one more would be too many"),
        pytest.param([2, 2, 1], 1, [0, 1, 2], [0, 3], id="the domain that is left out counts some"),
        pytest.param([0, 0, 0], 1, [], [2, 2], id="fewer domains than there are to be"),
    ],
)
def test_pods_that_spread(counts: list[int], skew: int, present: list[int], wanted: list[int]) -> None:
    limit = DomainLimit(DOMAINS, np.array([*counts, 0], np.int64), skew, np.array(present, np.intp))
    assert most_in(SETS, MANY, limit).tolist() == wanted


def test_all_domains_in_one_set_hold_any_number() -> None:
    limit = DomainLimit(DOMAINS, np.zeros(4, np.int64), 1, np.array([0, 1, 2], np.intp))
    assert most_in(NodeSets(np.zeros(6, np.int64)), MANY, limit)[0] > 10**9


def placeable(counts: list[int], room: list[int], skew: int | None, present: list[int]) -> int:
    """How many pods can be placed one after the other, by trying each order."""
    seen = {tuple(counts)}
    ahead = [tuple(counts)]
    while ahead:
        now = ahead.pop()
        least = min((now[domain] for domain in present), default=0)
        for domain, count in enumerate(now):
            full = count - counts[domain] >= room[domain]
            if full or (count > 0 if skew is None else count + 1 - least > skew):
                continue
            after = (*now[:domain], count + 1, *now[domain + 1 :])
            if after not in seen:
                seen.add(after)
                ahead.append(after)
    return max(sum(state) for state in seen) - sum(counts)


@given(
    counts=st.lists(st.integers(0, 2), min_size=3, max_size=3),
    room=st.lists(st.integers(0, 3), min_size=3, max_size=3),
    skew=st.none() | st.integers(1, 3),
    present=st.sets(st.integers(0, 2)),
)
def test_as_many_as_can_be_placed_one_after_the_other(
    counts: list[int], room: list[int], skew: int | None, present: set[int]
) -> None:
    some = sorted(present) if skew is not None else []
    limit = DomainLimit(
        np.array([0, 1, 2], np.int32), np.array([*counts, 0], np.int64), skew,
        np.array(some, np.intp) if skew is not None else None,
    )  # fmt: skip
    assert most_anywhere(np.array(room, np.int64), limit) == placeable(counts, room, skew, some)


def test_in_no_domain_pods_that_keep_apart_take_all_room() -> None:
    limit = DomainLimit(np.array([0, -1, -1], np.int32), np.zeros(2, np.int64))
    assert most_anywhere(np.array([4, 4, 3], np.int64), limit) == 8
