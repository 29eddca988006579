"""What must hold of every division of a capacity, whoever asks."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from kbatch.model.shares import Claim, dominant_share, water_fill

DIMENSIONS = ("cpu", "memory", "gpu")
amounts = st.one_of(st.integers(0, 20), st.integers(0, 2**50))
vectors = st.dictionaries(st.sampled_from(DIMENSIONS), amounts)


@st.composite
def claim_lists(draw: st.DrawFn, most: int = 8) -> list[Claim]:
    names = draw(st.lists(st.sampled_from("abcdefghij"), unique=True, min_size=1, max_size=most))
    return [
        Claim(
            name,
            draw(st.one_of(st.integers(1, 5), st.integers(1, 10_000))),
            draw(vectors),
            capability=draw(st.none() | vectors),
            holds=draw(vectors),
            oldest_waiting=draw(st.none() | st.tuples(st.integers(0, 5), st.sampled_from("xyz"))),
        )
        for name in names
    ]


def most_of(claim: Claim, dimension: str) -> int:
    want = claim.request.get(dimension, 0)
    return want if claim.capability is None else min(want, claim.capability.get(dimension, want))


@given(vectors, claim_lists())
def test_never_more_than_there_is_nor_than_was_asked_and_nothing_is_left_lying(
    capacity: dict[str, int], claims: list[Claim]
) -> None:
    shares = water_fill(capacity, claims)
    assert set(shares) == {claim.name for claim in claims}
    for dimension, amount in capacity.items():
        granted = [shares[claim.name].get(dimension, 0) for claim in claims]
        wanted = [most_of(claim, dimension) for claim in claims]
        assert all(0 <= got <= want for got, want in zip(granted, wanted, strict=True))
        assert sum(granted) == min(amount, sum(wanted)), "work conserving, and never beyond the capacity"


@given(vectors, claim_lists())
def test_a_dimension_stands_in_every_share_or_in_none(capacity: dict[str, int], claims: list[Claim]) -> None:
    contended = {
        name for name in capacity if capacity[name] > 0 and any(claim.request.get(name, 0) > 0 for claim in claims)
    }
    assert all(set(share) == contended for share in water_fill(capacity, claims).values())


@given(vectors, claim_lists())
def test_weighted_max_min(capacity: dict[str, int], claims: list[Claim]) -> None:
    """A queue that did not get all it wants has no less per weight than any other, but for the last indivisible units.

    Each round may leave a queue less than one unit short of its part; the rounds that follow divide what was left, so
    the gap per weight is at most a unit for each round.
    """
    shares = water_fill(capacity, claims)
    for dimension in capacity:
        for poor in claims:
            got = shares[poor.name].get(dimension, 0)
            if got >= most_of(poor, dimension):
                continue
            for rich in claims:
                level = Fraction(shares[rich.name].get(dimension, 0) - len(claims) - 1, rich.weight)
                assert Fraction(got + len(claims) + 1, poor.weight) >= level


@given(vectors, claim_lists(), st.randoms(use_true_random=False))
def test_the_order_of_queues_does_not_matter(capacity: dict[str, int], claims: list[Claim], random: object) -> None:
    shuffled = list(claims)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert water_fill(capacity, shuffled) == water_fill(capacity, claims)


@given(vectors, claim_lists(), st.sampled_from(DIMENSIONS), st.integers(1, 2**40))
def test_more_capacity_never_lowers_a_share_by_more_than_rounding(
    capacity: dict[str, int], claims: list[Claim], dimension: str, more: int
) -> None:
    before = water_fill(capacity, claims)
    after = water_fill({**capacity, dimension: capacity.get(dimension, 0) + more}, claims)
    for claim in claims:
        for name, amount in before[claim.name].items():
            slack = len(claims) if name == dimension else 0
            assert after[claim.name][name] >= amount - slack


@given(vectors, claim_lists(), st.sampled_from(DIMENSIONS), st.integers(1, 2**40))
def test_asking_for_more_never_lowers_ones_own_share_by_more_than_rounding(
    capacity: dict[str, int], claims: list[Claim], dimension: str, more: int
) -> None:
    first, *others = claims
    greedy = replace(first, request={**first.request, dimension: first.request.get(dimension, 0) + more})
    before = water_fill(capacity, claims)[first.name]
    after = water_fill(capacity, [greedy, *others])[first.name]
    assert after.get(dimension, 0) >= before.get(dimension, 0) - len(claims)
    assert {**after, dimension: 0} == {**before, dimension: 0}, "the other dimensions are not touched"


@given(vectors, vectors)
def test_dominant_share_is_the_largest_fraction(held: dict[str, int], total: dict[str, int]) -> None:
    parts = [Fraction(held.get(name, 0), max(1, whole)) for name, whole in total.items()]
    assert dominant_share(held, total) == max(parts, default=Fraction(0))
