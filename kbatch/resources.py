"""Quantities and resource vectors, in exact integers.

Every amount in kbatch is a Python integer: cpu in milli-cores, everything else in its base unit (bytes, pieces).
There are no floats and no epsilon, so two pods of 504m never share a node of one core. A fraction of a unit is rounded
up, as the API server's own arithmetic does, so that nothing is ever promised that is not there.

A *resource vector* is a plain `dict[str, int]` from resource name to amount; a missing name means zero. Vectors are
values: the functions here return new ones and never change their arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Final, TypeAlias

Resources: TypeAlias = dict[str, int]
"""A resource vector: amount by resource name, cpu in milli-cores, the rest in base units."""

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"

LIMIT: Final = 2**53
"""Amounts beyond this are refused: they would not survive a JSON reader that uses doubles."""

MILLION: Final = 1_000_000
"""Usage, a weighted sum of amounts, is counted in millionths of its unit."""

_QUANTITY: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?",
    re.ASCII,
)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}


LONGEST_NAME: Final = 317
"""Characters of the longest name that Kubernetes lets a resource have: a prefix of 253, `/`, and 63."""


class QuantityError(ValueError):
    """A text that is no Kubernetes quantity, or one beyond what kbatch counts exactly."""

    def __init__(self, text: object, why: str) -> None:
        super().__init__(f"quantity {str(text)[:64]!r}: {why}")
        self.text = text


def parse_quantity(resource: str, value: str | float) -> int:
    """The amount that a quantity means, in milli-cores for cpu and base units otherwise; fractions are rounded up.

    `value` is what JSON holds: a string such as `1500m`, `2Gi`, `1e3`, or a bare number. Negative amounts are read
    (a ResourceQuota or a patch may hold them); whoever reads a request refuses them.

    Raises:
        QuantityError: not a quantity, or its amount is beyond 2**53; or the name is longer than that of a resource can
            be: no node offers it, and it would stand in every message, status and metric.
    """
    if len(resource) > LONGEST_NAME:
        raise QuantityError(value, f"the name of its resource is longer than {LONGEST_NAME} characters")
    if type(value) is int:
        amount = value * 1000 if resource == CPU else value
        if abs(amount) > LIMIT:
            raise QuantityError(value, "larger than 2^53 units")
        return amount
    return _parse(repr(value) if isinstance(value, float) else value, 3 if resource == CPU else 0)


@lru_cache(maxsize=2048)  # larger, and amounts that nobody asks for any more weigh as much as a small cluster
def _parse(text: str, scale: int) -> int:
    """The amount of `text` times ten to the power of `scale`, rounded away from zero."""
    match = _QUANTITY.fullmatch(text) if len(text) <= 64 else None
    if match is None or not (match["whole"] or match["fraction"]):
        raise QuantityError(text, "not a Kubernetes quantity such as 500m, 2 or 1Gi")
    fraction = match["fraction"] or ""
    digits = int((match["whole"] or "0") + fraction)
    exponent, factor = scale - len(fraction), 1
    suffix = match["suffix"] or ""
    if suffix in _DECIMAL:
        exponent += _DECIMAL[suffix]
    elif suffix in _BINARY:
        factor = _BINARY[suffix]
    else:
        exponent += int(suffix[1:])
    if digits and len(str(digits)) + exponent > 20:
        raise QuantityError(text, "larger than 2^53 units")
    digits *= factor
    amount: int = digits * 10**exponent if exponent >= 0 else -(-digits // 10**-exponent)
    if amount > LIMIT:
        raise QuantityError(text, "larger than 2^53 units")
    return -amount if match["sign"] == "-" else amount


def parse_resources(raw: Mapping[str, str | float]) -> Resources:
    """A resource vector from a resource list as it stands in a manifest.

    Raises:
        QuantityError: one of the amounts cannot be read; the message names the resource.
    """
    try:
        return {name: parse_quantity(name, value) for name, value in raw.items()}
    except QuantityError:
        for name, value in raw.items():  # find the culprit for the message, off the common path
            try:
                parse_quantity(name, value)
            except QuantityError as error:
                raise QuantityError(
                    error.text, f"{str(error).rpartition(': ')[2]} (resource {name[:LONGEST_NAME]})"
                ) from None
        raise


def format_quantity(resource: str, amount: int) -> str:
    """An amount for people to read: `1500m`, `4`, `4000`, `10Gi`, `1500Mi`; always exact."""
    if resource == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if amount and (resource in _BYTES or resource.startswith("hugepages-")):
        for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
            if amount % _BINARY[suffix] == 0:
                return f"{amount // _BINARY[suffix]}{suffix}"
    return str(amount)


_BYTES: Final = frozenset(
    {MEMORY, "ephemeral-storage", "requests.memory", "limits.memory", "requests.storage", "storage"}
)


def canonical_quantity(resource: str, amount: int) -> str:
    """An amount in Kubernetes' canonical form: the largest suffix that leaves a whole number.

    Thousands of cores or pieces are `4k`, as in `kubectl get node -o yaml`. What is counted in bytes has a binary
    suffix, or a decimal one where that is of a higher order: `512Mi`, `500M`. (Kubernetes remembers which of the two
    an amount was written in; a sum of amounts has no such past.)
    """
    if resource == CPU:
        return f"{amount}m" if amount % 1000 else _with_suffix(amount // 1000, _THOUSANDS)[1]
    order, decimal = _with_suffix(amount, _THOUSANDS)
    if resource in _BYTES or resource.startswith("hugepages-"):
        binary_order, binary = _with_suffix(amount, _BINARY)
        return binary if binary_order >= order else decimal
    return decimal


_THOUSANDS: Final = {suffix: 10**power for suffix, power in _DECIMAL.items() if power > 0}


def _with_suffix(amount: int, suffixes: Mapping[str, int]) -> tuple[int, str]:
    """The highest order (0: none) whose suffix leaves a whole number, and the text with it."""
    for order, (suffix, factor) in reversed(list(enumerate(suffixes.items(), start=1))):
        if amount and amount % factor == 0:
            return order, f"{amount // factor}{suffix}"
    return 0, str(amount)


def format_resources(resources: Mapping[str, int]) -> dict[str, str]:
    """A resource list for a manifest, names in order, each amount as Kubernetes prints it."""
    return {name: canonical_quantity(name, resources[name]) for name in sorted(resources)}


def add(*vectors: Mapping[str, int]) -> Resources:
    """The sum, dimension by dimension."""
    total: Resources = {}
    for vector in vectors:
        add_to(total, vector)
    return total


def add_to(vector: Resources, more: Mapping[str, int]) -> None:
    """Add to a vector, in place."""
    for name, amount in more.items():
        vector[name] = vector.get(name, 0) + amount


def subtract_from(vector: Resources, less: Mapping[str, int]) -> None:
    """Subtract from a vector, in place; it may come below zero."""
    for name, amount in less.items():
        vector[name] = vector.get(name, 0) - amount


def total(vectors: Iterable[Mapping[str, int]]) -> Resources:
    """The sum of any number of vectors."""
    return add(*vectors)


def subtract(left: Mapping[str, int], right: Mapping[str, int]) -> Resources:
    """`left` less `right`, never below zero: what is over-used counts as nothing left."""
    return {name: max(0, amount - right.get(name, 0)) for name, amount in left.items()}


def maximum(left: Mapping[str, int], right: Mapping[str, int]) -> Resources:
    """The larger amount of each dimension."""
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}


def check_limit(vector: Mapping[str, int]) -> None:
    """Refuse a sum that is no longer counted exactly everywhere.

    Raises:
        QuantityError: an amount is beyond 2**53; the message names the resource.
    """
    for name, amount in vector.items():
        if amount > LIMIT:
            raise QuantityError(amount, f"in all larger than 2^53 units (resource {name})")


def lacking(request: Mapping[str, int], room: Mapping[str, int]) -> Resources:
    """What `request` asks beyond `room`: only the dimensions that are short, with the amount that is missing."""
    return {name: amount - room.get(name, 0) for name, amount in request.items() if amount > room.get(name, 0)}


def fits(request: Mapping[str, int], room: Mapping[str, int]) -> bool:
    """Whether every dimension that `request` asks for is there."""
    return all(amount <= room.get(name, 0) for name, amount in request.items() if amount > 0)


def scale(vector: Mapping[str, int], count: int) -> Resources:
    """`count` times the vector."""
    return {name: amount * count for name, amount in vector.items()}


def positive(vector: Mapping[str, int]) -> Resources:
    """The dimensions above zero."""
    return {name: amount for name, amount in vector.items() if amount > 0}


def decimal_of(millionths: int) -> str:
    """`2.5`: a number of millionths in whole ones."""
    whole, part = divmod(abs(millionths), MILLION)
    text = f"{whole}.{part:06d}".rstrip("0").rstrip(".")
    return f"-{text}" if millionths < 0 else text


def in_units(millionths: int) -> int | str:
    """A number of millionths as it stands in a status: an integer where it is whole, else a text such as `2.5`."""
    return decimal_of(millionths) if millionths % MILLION else millionths // MILLION


def in_millionths(value: str | float) -> int:
    """What stands in a status so, in millionths, rounded; below 0 it counts as 0.

    Raises:
        QuantityError: no number, or one beyond 2**53 units.
    """
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        raise QuantityError(value, "not a number such as 2 or 2.5") from None
    if not number.is_finite() or abs(number) > LIMIT:
        raise QuantityError(value, "not a number, or larger than 2^53")
    return max(0, round(number * MILLION))
