"""The arguments of the plugin."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from kbatch.resources import CPU, PODS
from kbatch.times import HOUR, MILLISECOND, SECOND

_UNITS: Final = {
    "us": 1, "ms": MILLISECOND, "s": SECOND, "m": 60 * SECOND, "h": HOUR, "d": 24 * HOUR, "w": 7 * 24 * HOUR,
}  # fmt: skip
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s|m|h|d|w)", re.ASCII)
_LONGEST: Final = 10 * 366 * 24 * HOUR
_MOST: Final = Decimal(1_000_000)
_DIGITS: Final = 9
"""So many decimals of a factor count at most."""


class Score(StrEnum):
    """What usage is made of amounts by."""

    USAGE = "Usage"
    DOMINANT = "Dominant"


class FlowArguments(BaseModel):
    """How usage is counted, how it fades, and how much of it groups without a lifetime may have."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    half_time: int = Field(
        default="1h",
        validate_default=True,
        alias="halfTime",
        description="after which past usage counts half, such as 30m, 1h30m or 7d; a bare number is seconds; 0: the "
        "past does not count",
    )
    weights: dict[str, Decimal] = Field(
        default="cpu=1",
        validate_default=True,
        alias="weights",
        description="by resource what a core, a GiB of memory or one of anything else counts: a mapping, or divided by "
        "commas, such as cpu=1, memory=0.25; of those that are not given cpu counts 1 and the others 0",
    )
    infinite_factor: Decimal | None = Field(
        default=None,
        alias="infiniteFactor",
        description="to how many times their queue's fair share the flow of groups without a lifetime may go, such as "
        "1.2; no limit where it is not given",
    )
    score: Score = Field(
        default="Usage",
        validate_default=True,
        alias="score",
        description="`Usage`: the weighted sum; `Dominant`: the largest part of the cluster in any resource with a "
        "weight above 0",
    )

    @field_validator("half_time", mode="before")
    @classmethod
    def _duration(cls, value: object) -> int:
        found = _microseconds(value)
        if not 0 <= found <= _LONGEST:
            raise ValueError("a half-life is between 0 and ten years")
        return found

    @field_validator("weights", mode="before")
    @classmethod
    def _by_resource(cls, value: object) -> dict[str, Decimal]:
        if isinstance(value, str):
            parts = (part.partition("=") for part in value.split(",") if part.strip())
            value = {name.strip(): weight for name, _, weight in parts}
        if not isinstance(value, dict):
            raise ValueError("weights are a mapping from resources to numbers, such as {cpu: 1, memory: 0.25}")  # noqa: TRY004 -- pydantic wants it
        found = {CPU: Decimal(1)}
        for name, weight in value.items():
            if name == PODS:
                raise ValueError("pods are not counted")
            found[str(name)] = _decimal(weight, f"the weight of {name}")
        return found

    @field_validator("infinite_factor", mode="before")
    @classmethod
    def _factor(cls, value: object) -> Decimal | None:
        return None if value is None else _decimal(value, "infiniteFactor")

    @field_validator("score", mode="before")
    @classmethod
    def _word(cls, value: object) -> object:
        return value.capitalize() if isinstance(value, str) else value

    @model_validator(mode="after")
    def _counts(self) -> FlowArguments:
        if not any(self.weights.values()):
            raise ValueError("some weight must be above 0")
        return self


def _decimal(value: object, what: str) -> Decimal:
    """A number from 0 to a million, as it is written.

    Raises:
        ValueError: none.
    """
    try:
        found = Decimal(_text(value))
    except InvalidOperation:
        raise ValueError(f"{what} must be a number, not {str(value)[:64]!r}") from None
    if not (found.is_finite() and 0 <= found <= _MOST):
        raise ValueError(f"{what} must be between 0 and {_MOST}")
    if found != round(found, _DIGITS):
        raise ValueError(f"{what} has more than {_DIGITS} decimals")
    return found


def _text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return ""
    return str(value).strip()


def _microseconds(value: object) -> int:
    """A duration in microseconds.

    Raises:
        ValueError: none.
    """
    text = _text(value)
    parts: list[tuple[str, Any]] = _PART.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        found = sum(Decimal(number) * _UNITS[unit] for number, unit in parts)
    else:
        try:
            found = Decimal(text) * SECOND
        except InvalidOperation:
            raise ValueError(f"{str(value)[:64]!r} is no duration such as 30m, 1h30m or 7d") from None
        if not found.is_finite():
            raise ValueError(f"{text!r} is no duration")
    return int(found)
