"""Fair shares on the examples that everybody can check by hand."""

from __future__ import annotations

import time
from fractions import Fraction

from kbatch.model.shares import Claim, dominant_share, water_fill
from kbatch.resources import Resources

GI = 2**30


def one(capacity: int, *claims: Claim) -> list[int]:
    """What each claim gets of one dimension."""
    shares = water_fill({"cpu": capacity}, claims)
    return [shares[claim.name].get("cpu", -1) for claim in claims]


def claim(name: str, weight: int, cpu: int, **more: int) -> Claim:
    oldest = (more["oldest"], f"default/of-{name}") if "oldest" in more else None
    return Claim(name, weight, {"cpu": cpu}, holds={"cpu": more.get("holds", 0)}, oldest_waiting=oldest)


def test_the_seeds_example() -> None:
    shares = water_fill(
        {"cpu": 9000, "memory": 27 * GI},
        [
            Claim("q1", 2, {"cpu": 5000, "memory": 10 * GI}),
            Claim("q2", 4, {"cpu": 10_000, "memory": 20 * GI}),
        ],
    )
    assert shares == {"q1": {"cpu": 3000, "memory": 9 * GI}, "q2": {"cpu": 6000, "memory": 18 * GI}}


def test_what_one_queue_leaves_goes_to_the_others_by_weight() -> None:
    assert one(12_000, claim("a", 1, 2000), claim("b", 2, 10_000), claim("c", 1, 10_000)) == [2000, 6667, 3333]


def test_each_dimension_divides_by_itself() -> None:
    shares = water_fill(
        {"cpu": 10, "memory": 10},
        [Claim("cores", 1, {"cpu": 10, "memory": 1}), Claim("bytes", 1, {"cpu": 1, "memory": 10})],
    )
    assert shares == {"cores": {"cpu": 9, "memory": 1}, "bytes": {"cpu": 1, "memory": 9}}


def test_capability_caps_and_what_is_not_named_is_not_capped() -> None:
    shares = water_fill(
        {"cpu": 10, "memory": 10},
        [Claim("a", 1, {"cpu": 10, "memory": 10}, capability={"cpu": 2}), Claim("b", 1, {"cpu": 10, "memory": 10})],
    )
    assert shares == {"a": {"cpu": 2, "memory": 5}, "b": {"cpu": 8, "memory": 5}}


def test_dimensions_without_capacity_or_demand_are_left_out() -> None:
    shares = water_fill(
        {"cpu": 8, "hugepages-2Mi": 0, "gpu": 4}, [Claim("a", 1, {"cpu": 4, "hugepages-2Mi": 1, "fpga": 1})]
    )
    assert shares == {"a": {"cpu": 4}}


def test_a_queue_that_asks_for_none_of_a_dimension_deserves_zero_of_it() -> None:
    shares = water_fill({"cpu": 8, "gpu": 4}, [Claim("a", 1, {"cpu": 4}), Claim("b", 1, {"gpu": 4})])
    assert shares == {"a": {"cpu": 4, "gpu": 0}, "b": {"cpu": 0, "gpu": 4}}


def test_the_last_unit_goes_to_the_largest_fraction() -> None:
    # One round gives 1, 3 and 5; of the one unit that is left the parts are 1/6, 2/6 and 3/6.
    assert one(10, claim("a", 1, 99), claim("b", 2, 99), claim("c", 3, 99)) == [1, 3, 6]
    assert one(1, claim("a", 1, 9), claim("b", 3, 9)) == [0, 1]


def test_then_to_a_queue_that_holds_some() -> None:
    assert one(3, claim("a", 1, 9), claim("b", 1, 9, holds=1)) == [1, 2]
    assert one(3, claim("a", 1, 9, holds=1, oldest=1), claim("b", 1, 9, holds=1, oldest=2)) == [2, 1]


def test_a_queue_that_has_the_last_unit_keeps_it() -> None:
    assert one(3, claim("a", 1, 9, holds=1, oldest=1), claim("b", 1, 9, holds=2, oldest=2)) == [1, 2]
    assert one(5, claim("a", 1, 9, holds=2), claim("b", 1, 9, holds=1), claim("c", 1, 9, holds=2)) == [2, 1, 2]


def test_then_to_the_oldest_waiting_group() -> None:
    assert one(3, claim("a", 1, 9), claim("b", 1, 9, oldest=7), claim("c", 0, 9)) == [1, 2, 0]
    assert one(3, claim("a", 1, 9, oldest=8), claim("b", 1, 9, oldest=7)) == [1, 2]
    assert one(3, claim("a", 1, 9, oldest=0), claim("b", 1, 9)) == [2, 1]
    assert one(3, claim("b", 1, 9, oldest=7), claim("a", 1, 9, oldest=7)) == [1, 2], "of one age, by the group's name"


def test_then_by_name() -> None:
    assert one(3, claim("b", 1, 9), claim("a", 1, 9)) == [1, 2]


def test_the_order_of_claims_does_not_matter() -> None:
    claims = [claim(name, weight, 50) for name, weight in (("d", 1), ("a", 3), ("c", 1), ("b", 2))]
    assert water_fill({"cpu": 100}, claims) == water_fill({"cpu": 100}, claims[::-1])


def test_dominant_share() -> None:
    total: Resources = {"cpu": 9000, "memory": 18}
    assert dominant_share({"cpu": 1000, "memory": 4}, total) == Fraction(2, 9)
    assert dominant_share({"cpu": 3000, "memory": 1}, total) == Fraction(1, 3)
    assert dominant_share({}, total) == 0
    assert dominant_share({"gpu": 5}, total) == 0, "a dimension that the total does not name is ignored"
    assert dominant_share({"cpu": 2}, {"cpu": 0}) > dominant_share({"cpu": 1}, {"cpu": 0}) >= 1


def test_a_thousand_queues_divide_quickly() -> None:
    claims = [
        Claim(
            f"q{index:04}",
            1 + index % 7,
            {name: (index * 7919 + shift * 104_729) % 50_000 for shift, name in enumerate("abcd")},
        )
        for index in range(1000)
    ]
    capacity = dict.fromkeys("abcd", 12_345_678)
    best = min(_seconds(capacity, claims) for _ in range(5))
    assert best < 0.05, f"{best:.4f} s"  # 6 ms on the slowest machine tried; the limit allows for company


def _seconds(capacity: Resources, claims: list[Claim]) -> float:
    start = time.perf_counter()
    water_fill(capacity, claims)
    return time.perf_counter() - start
