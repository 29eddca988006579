"""The parts of the plugin flow: its arguments, how usage is counted, and when fading changes an answer."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from kbatch.api.configuration import ConfigurationError, parse
from kbatch.engine import build_policy
from kbatch.engine.plugins.flow.arguments import FlowArguments
from kbatch.engine.plugins.flow.instants import Curve, Pairs, first, overtaking
from kbatch.engine.plugins.flow.measure import Measure
from kbatch.model.usage import Anchor
from kbatch.resources import MILLION
from kbatch.times import HOUR, MILLISECOND, SECOND

GI = 1 << 30
GPU = "nvidia.com/gpu"


def arguments(told: str) -> Any:
    text = f"actions: allocate\ntiers:\n- plugins:\n  - name: flow\n    arguments: {{{told}}}\n"
    return build_policy(parse(text, "test.yaml")).plugins[0].arguments


@pytest.mark.parametrize(
    ("told", "half_life"),
    [
        ("", HOUR),
        ("halfTime: 0", 0),
        ("halfTime: 90", 90 * SECOND),
        ("halfTime: '90'", 90 * SECOND),
        ("halfTime: 0.5", SECOND // 2),
        ("halfTime: 30m", HOUR // 2),
        ("halfTime: 1h30m", 3 * HOUR // 2),
        ("halfTime: 7d", 7 * 24 * HOUR),
        ("halfTime: 1w", 7 * 24 * HOUR),
        ("halfTime: 250ms", SECOND // 4),
        ("halfTime: 1.5h", 3 * HOUR // 2),
    ],
)
def test_a_half_life_is_a_duration_and_a_bare_number_is_seconds(told: str, half_life: int) -> None:
    assert arguments(told).half_time == half_life


def test_weights_are_decimals_and_cpu_has_one() -> None:
    assert arguments("").weights == {"cpu": 1}
    assert arguments(f"weights: {{memory: 0.25, {GPU}: 30}}").weights == {"cpu": 1, "memory": Decimal("0.25"), GPU: 30}
    assert arguments("weights: {cpu: 0, memory: '0.1'}").weights == {"cpu": 0, "memory": Decimal("0.1")}
    assert arguments("weights: 'cpu=2, memory=0.25'").weights == {"cpu": 2, "memory": Decimal("0.25")}


def test_a_factor_is_read_as_it_is_written() -> None:
    assert arguments("").infinite_factor is None
    assert arguments("infiniteFactor: 1.2").infinite_factor == Decimal("1.2")
    assert arguments("infiniteFactor: '1.20'").infinite_factor == Decimal("1.2")


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("halfTime: soon", "'soon' is no duration"),
        ("halfTime: -1", "between 0 and ten years"),
        ("halfTime: 100000d", "between 0 and ten years"),
        ("halfTime: true", "is no duration"),
        ("weights: {cpu: 0}", "some weight must be above 0"),
        ("weights: {pods: 1}", "pods are not counted"),
        ("weights: {cpu: -1}", "between 0 and 1000000"),
        ("weights: {cpu: much}", "must be a number"),
        ("weights: [cpu]", "weights are a mapping"),
        ("infiniteFactor: .inf", "must be"),
        ("infiniteFactor: 1.00000000001", "more than 9 decimals"),
        ("score: Best", "score"),
        ("halftime: 1", "halfTime"),
    ],
)
def test_other_arguments_are_refused_with_the_reason(told: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        arguments(told)


def test_the_score_in_any_case() -> None:
    assert arguments("score: dominant").score == "Dominant"
    assert FlowArguments().score == "Usage"


# --- usage ------------------------------------------------------------------------------------------------------------

TOTAL = {"cpu": 100_000, "memory": 400 * GI, GPU: 8}


def measure(dominant: bool = False, **weights: str) -> Measure:
    named = {name.replace("gpu", GPU): Decimal(weight) for name, weight in weights.items()}
    return Measure(named, TOTAL, dominant=dominant)


def test_usage_is_the_weighted_sum_per_core_per_gib_and_per_piece() -> None:
    found = measure(cpu="1", memory="0.25", gpu="10")
    assert found.of({"cpu": 2500, "memory": 2 * GI, GPU: 1, "ephemeral-storage": 1}) == 13 * MILLION
    assert found.of({"cpu": 1000}, {"memory": 2 * GI}) == 1_500_000
    assert found.of({"memory": 1}) == 0, "rounded down"
    assert found.of({}) == 0
    assert found.capacity == 280 * MILLION


def test_dominant_is_the_largest_part_of_the_cluster() -> None:
    found = measure(dominant=True, cpu="1", gpu="10")
    assert found.capacity == 180 * MILLION
    assert found.of({"cpu": 10_000, GPU: 1}) == 180 * MILLION // 8
    assert found.of({"cpu": 50_000, GPU: 1}) == 90 * MILLION
    assert found.of({"memory": 400 * GI}) == 0, "what has no weight does not count"
    assert found.of({"cpu": 25_000}, {"cpu": 25_000}) == 90 * MILLION


@pytest.mark.parametrize("dominant", [False, True])
@pytest.mark.parametrize("limit", [0, 1, 7 * MILLION, 10 * MILLION - 1, 10 * MILLION, 33_333_333])
@pytest.mark.parametrize("request_", [{"cpu": 500}, {"cpu": 1000, GPU: 1}, {"memory": GI // 3}])
def test_the_most_is_the_largest_number_within_the_limit(dominant: bool, limit: int, request_: dict[str, int]) -> None:
    found = measure(dominant, cpu="1", memory="0.3", gpu="10")
    held = {"cpu": 3000, "memory": 5 * GI}

    def with_so_many(number: int) -> int:
        return found.of(held, {name: number * amount for name, amount in request_.items()})

    most = found.most(held, request_, limit)
    assert most is not None
    assert with_so_many(most + 1) > limit
    assert most == 0 or with_so_many(most) <= limit


def test_what_counts_for_nothing_has_no_limit() -> None:
    assert measure(cpu="1").most({"cpu": 5000}, {"memory": GI}, 0) is None
    assert measure(dominant=True, cpu="1").most({"cpu": 5000}, {"memory": GI}, 0) is None
    nothing = Measure({"cpu": Decimal(1)}, {}, dominant=True)
    assert nothing.most({}, {"cpu": 1}, 0) is None


# --- instants ---------------------------------------------------------------------------------------------------------


def test_the_first_instant_is_found_to_the_unit() -> None:
    assert first(0, [100], lambda instant: instant >= 37) == 37
    assert first(0, [50, 100], lambda instant: 20 <= instant <= 60) == 20
    assert first(0, [10, 100], lambda instant: instant >= 11) == 11
    assert first(0, [100], lambda instant: instant > 100) is None
    assert first(0, [], lambda _: True) is None
    assert first(5, [3, 5], lambda _: True) is None


def curve(name: str, value: int, *, usage: int = 0, least: int = 0, weight: int = 1) -> Curve:
    return Curve(name, Anchor(value * MILLION, 0, usage * MILLION, 0, 0), HOUR, least * MILLION, weight)


def test_a_queue_overtakes_another_when_its_flow_has_faded() -> None:
    # a fades from 8 to the 2 that its job would make it, b stays at 4.
    some, other = curve("a", 8, least=2), curve("b", 4, usage=4, least=4)
    assert some.key(0) > other.key(0)
    instant = overtaking(0, [some, other])
    assert instant is not None
    assert HOUR - 2 * MILLISECOND < instant < HOUR, "rounded down to four it is equal, and a comes first by name"
    assert some.key(instant) < other.key(instant)
    assert some.key(instant - 1) > other.key(instant - 1)


def test_by_name_the_other_way_round_it_takes_a_moment_more() -> None:
    assert overtaking(0, [curve("b", 8, least=2), curve("a", 4, usage=4, least=4)]) == HOUR + 1


def test_weights_count() -> None:
    assert overtaking(0, [curve("b", 8, least=1, weight=2), curve("a", 1, usage=1, least=1)]) == 2 * HOUR + 1


def test_two_that_fade_together_never_change_places() -> None:
    assert overtaking(0, [curve("a", 4), curve("b", 8)]) is None
    assert overtaking(0, [curve("a", 8)]) is None


def test_of_many_the_first_change_counts() -> None:
    curves = [curve("a", 1, usage=1), curve("b", 4, usage=4), curve("c", 16), curve("d", 5, usage=5)]
    assert overtaking(0, curves) == overtaking(0, curves[2:])


def test_without_a_half_life_nothing_changes_by_itself() -> None:
    some = Curve("a", Anchor(5, 5, 5, 5, 0), 0, 0, 1)
    assert Pairs(0, [some], lambda *_: True).first([0], [0]) is None


def test_of_very_many_only_those_are_looked_at_that_could_be_the_first() -> None:
    many = [curve("some", 40 + at, least=1) for at in range(200)] + [curve("other", 8, usage=8)] * 200
    asked = 0

    def gives(some: Curve, other: Curve, instant: int) -> bool:
        nonlocal asked
        asked += 1
        return some.ratio(instant) <= other.ratio(instant)

    every = [(some, other) for some in range(200) for other in range(200, 400)]
    found = Pairs(0, many, gives).first([some for some, _ in every], [other for _, other in every])
    alone = Pairs(0, many, gives).first([0], [200])
    assert found == alone
    assert asked < 500
