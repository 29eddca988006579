"""Quantities and resource vectors: Kubernetes' own values, exactness, rounding up, limits."""

from __future__ import annotations

from decimal import ROUND_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch import resources
from kbatch.resources import QuantityError, format_quantity, parse_quantity, parse_resources

KI, MI, GI, TI = 2**10, 2**20, 2**30, 2**40


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "1", 1000),
        ("cpu", "500m", 500),
        ("cpu", "0.5", 500),
        ("cpu", ".5", 500),
        ("cpu", "2.", 2000),
        ("cpu", "0.1", 100),
        ("cpu", "1e3", 1_000_000),
        ("cpu", "1E-1", 100),
        ("cpu", "2k", 2_000_000),
        ("cpu", "100000u", 100),
        ("cpu", "+1", 1000),
        ("cpu", 2, 2000),
        ("cpu", 0.5, 500),
        ("cpu", 1.5, 1500),
        ("cpu", "0", 0),
        ("memory", "128974848", 128_974_848),
        ("memory", "129e6", 129_000_000),
        ("memory", "129M", 129_000_000),
        ("memory", "128974848000m", 128_974_848),
        ("memory", "123Mi", 123 * MI),
        ("memory", "1.5Gi", 3 * GI // 2),
        ("memory", "0.5Ki", 512),
        ("memory", "1P", 10**15),
        ("memory", "4Ti", 4 * TI),
        ("memory", 1024, 1024),
        ("nvidia.com/gpu", "8", 8),
        ("nvidia.com/gpu", 8, 8),
        ("memory", "-1Gi", -GI),
        ("memory", -5, -5),
    ],
)
def test_values_are_those_of_kubernetes(resource: str, text: str | float, amount: int) -> None:
    assert parse_quantity(resource, text) == amount


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "1n", 1),
        ("cpu", "1u", 1),
        ("cpu", "0.0001", 1),
        ("cpu", "1500001u", 1501),
        ("memory", "1m", 1),
        ("memory", "1500m", 2),
        ("memory", "0.1", 1),
        ("memory", "0.3Ki", 308),
        ("memory", "1e-3", 1),
        ("cpu", "-1u", -1),
        ("cpu", "0.0000000001", 1),
        ("cpu", "0." + "0" * 61 + "1", 1),
        ("cpu", "0e5", 0),
        ("cpu", "0E", 0),
    ],
)
def test_fractions_of_a_unit_are_rounded_up(resource: str, text: str, amount: int) -> None:
    assert parse_quantity(resource, text) == amount


@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "1_000", "1e3Ki", "1Kim", "inf", "NaN", "nan", "١", "1ki", "1K", "--1", "1e", "1.2.3", "m", ".",
     "+", "0x10", "1e1234", "1" * 65, "1,5", "1\n"],
)  # fmt: skip
def test_what_kubernetes_does_not_read_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="quantity"):
        parse_quantity("memory", text)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_numbers_that_are_none_are_refused(value: float) -> None:
    with pytest.raises(QuantityError):
        parse_quantity("cpu", value)


@pytest.mark.parametrize(
    ("resource", "value", "reads"),
    [
        ("memory", 2**53, True),
        ("memory", 2**53 + 1, False),
        ("memory", str(2**53), True),
        ("memory", str(2**53 + 1), False),
        ("memory", "8Pi", True),
        ("memory", "9Pi", False),
        ("memory", "1e999", False),
        ("memory", "-9Pi", False),
        ("cpu", "9007199254740992m", True),
        ("cpu", "9007199254740993m", False),
        ("cpu", 2**53, False),
        ("cpu", -(2**53), False),
    ],
)
def test_amounts_beyond_what_doubles_hold_are_refused(resource: str, value: str | int, reads: bool) -> None:
    if reads:
        assert parse_quantity(resource, value) == resources.LIMIT
    else:
        with pytest.raises(QuantityError, match="larger than"):
            parse_quantity(resource, value)


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 4000, "4"),
        ("cpu", 1500, "1500m"),
        ("cpu", 0, "0"),
        ("memory", 10 * GI, "10Gi"),
        ("memory", 1500 * MI, "1500Mi"),
        ("memory", 1000, "1000"),
        ("memory", 0, "0"),
        ("hugepages-2Mi", 4 * MI, "4Mi"),
        ("nvidia.com/gpu", 1024, "1024"),
        ("memory", -GI, "-1Gi"),
    ],
)
def test_amounts_are_printed_as_kubernetes_prints_them(resource: str, amount: int, text: str) -> None:
    assert format_quantity(resource, amount) == text


_amounts = st.integers(-resources.LIMIT, resources.LIMIT)
_names = st.sampled_from(["cpu", "memory", "ephemeral-storage", "hugepages-1Gi", "nvidia.com/gpu"])


@given(resource=_names, amount=_amounts)
def test_what_is_printed_reads_as_the_same_amount(resource: str, amount: int) -> None:
    assert parse_quantity(resource, format_quantity(resource, amount)) == amount


_SUFFIXES: dict[str, int | Decimal] = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "Ki": KI,
    "Mi": MI,
    "Gi": GI,
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
}


@given(
    whole=st.integers(0, 10**6),
    fraction=st.text("0123456789", max_size=12),
    suffix=st.sampled_from(sorted(_SUFFIXES)),
    resource=st.sampled_from(["cpu", "memory"]),
)
def test_parsing_is_exact_arithmetic_rounded_up(whole: int, fraction: str, suffix: str, resource: str) -> None:
    exact = Decimal(f"{whole}.{fraction or '0'}") * Decimal(_SUFFIXES[suffix]) * (1000 if resource == "cpu" else 1)
    text = f"{whole}.{fraction}{suffix}" if fraction else f"{whole}{suffix}"
    expected = int(exact.to_integral_value(rounding=ROUND_UP))
    if expected <= resources.LIMIT:
        assert parse_quantity(resource, text) == expected


@given(st.one_of(st.text(max_size=80), st.from_regex(r"[+-]?[0-9.]{0,40}[a-zA-Z]{0,3}[+-]?[0-9]{0,3}", fullmatch=True)))
def test_any_text_is_read_or_refused_as_a_quantity_error(text: str) -> None:
    try:
        amount = parse_quantity("memory", text)
    except QuantityError:
        return
    assert abs(amount) <= resources.LIMIT


def test_a_name_that_no_resource_can_have_is_refused() -> None:
    assert parse_quantity("p" * 253 + "/" + "n" * 63, "1") == 1
    with pytest.raises(QuantityError, match="longer than 317 characters"):
        parse_quantity("p" * 318, "1")


def test_a_list_names_the_resource_that_cannot_be_read() -> None:
    assert parse_resources({"cpu": "1", "memory": 5}) == {"cpu": 1000, "memory": 5}
    with pytest.raises(QuantityError, match=r"'lots'.*\(resource memory\)"):
        parse_resources({"cpu": "1", "memory": "lots"})


_vectors = st.dictionaries(_names, st.integers(0, 10**9))


@given(left=_vectors, right=_vectors)
def test_what_is_lacking_is_what_makes_it_not_fit(left: dict[str, int], right: dict[str, int]) -> None:
    short = resources.lacking(left, right)
    assert resources.fits(left, right) is (not resources.positive(short))
    assert resources.fits(left, resources.add(right, short))
    assert all(amount > 0 for amount in short.values())


@given(left=_vectors, right=_vectors, count=st.integers(0, 5))
def test_vectors_add_subtract_and_scale_dimension_by_dimension(
    left: dict[str, int], right: dict[str, int], count: int
) -> None:
    before = dict(left), dict(right)
    assert resources.subtract(resources.add(left, right), right) == {
        name: left.get(name, 0) for name in resources.add(left, right)
    }
    assert resources.subtract(left, resources.add(left, right)) == dict.fromkeys(left, 0)
    assert resources.scale(left, count) == {name: value * count for name, value in left.items()}
    assert resources.total([left] * count) == (resources.scale(left, count) if count else {})
    larger = resources.maximum(left, right)
    assert resources.fits(left, larger)
    assert resources.fits(right, larger)
    assert all(value in (left.get(name, 0), right.get(name, 0)) for name, value in larger.items())
    assert (left, right) == before, "arguments are never changed"


def test_a_zero_request_fits_where_the_dimension_is_missing() -> None:
    assert resources.fits({"nvidia.com/gpu": 0, "cpu": 1}, {"cpu": 1})
    assert not resources.fits({"nvidia.com/gpu": 1}, {"cpu": 1})


def test_two_pods_of_504m_do_not_share_a_core() -> None:
    request = parse_resources({"cpu": "504m"})
    assert not resources.fits(resources.add(request, request), {"cpu": 1000})


def test_a_resource_list_is_printed_in_order_of_names() -> None:
    assert list(resources.format_resources({"memory": GI, "cpu": 100})) == ["cpu", "memory"]
    assert resources.format_resources({"memory": GI, "cpu": 100}) == {"cpu": "100m", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 0, "0"),
        ("cpu", 999_000, "999"),
        ("cpu", 1_000_000, "1k"),
        ("cpu", 1_500_000, "1500"),
        ("cpu", 1_000_001, "1000001m"),
        ("nvidia.com/gpu", 12_000, "12k"),
        ("pods", 110, "110"),
        ("memory", 0, "0"),
        ("memory", 1000, "1k"),
        ("memory", 1024, "1Ki"),
        ("memory", 500 * 10**6, "500M"),
        ("memory", 64 * 10**9, "64G"),
        ("memory", 1000 * 2**30, "1000Gi"),
        ("memory", 1536 * 2**20, "1536Mi"),
        ("memory", 2**53, "8Pi"),
        ("hugepages-2Mi", 2**21, "2Mi"),
    ],
)
def test_canonical_form(resource: str, amount: int, text: str) -> None:
    assert resources.canonical_quantity(resource, amount) == text
    assert parse_quantity(resource, text) == amount
