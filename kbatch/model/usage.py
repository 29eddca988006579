"""Usage that fades: how much a queue has used, its past counting half as much after each half-life.

    flow = usage + max(flow - usage, 0) * 0.5 ** (elapsed / half_life)

after Armada's proposal for its scheduler. All amounts are integers, millionths of a unit of usage (a core, say), so
that whoever works it out, and in however many steps it is looked at, gets the same.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt
from typing import Any, Final

import msgspec

from kbatch.api.objects import QueueFlow, timestamp_us
from kbatch.resources import QuantityError, in_millionths, in_units
from kbatch.times import rfc3339_us

_FRACTION: Final = 96
"""Bits of the part of a half-life that has passed: finer than a microsecond of any half-life there is."""
_FINE: Final = 160
"""Bits after the point of a power of two: an amount of 2^60 is wrong by far less than one."""


def _roots() -> tuple[int, ...]:
    """0.5 to the power of 1/2, 1/4, 1/8 and so on, each the root of the one before."""
    found: list[int] = []
    last = 1 << (_FINE - 1)
    for _ in range(_FRACTION):
        last = isqrt(last << _FINE)
        found.append(last)
    return tuple(found)


_ROOTS: Final = _roots()


@lru_cache(maxsize=1024)  # many queues were last changed at the same instants
def _fade(elapsed: int, half_life: int) -> tuple[int, int]:
    """Whole half-lives that have passed, and 0.5 to the power of the rest, with `_FINE` bits after the point."""
    whole, rest = divmod(elapsed, half_life)
    part = (rest << _FRACTION) // half_life
    factor = 1 << _FINE
    for bit, root in enumerate(_ROOTS, start=1):
        if part >> (_FRACTION - bit) & 1:
            factor = factor * root >> _FINE
    return whole, factor


def faded(amount: int, elapsed: int, half_life: int) -> int:
    """What is left of an amount after a time, rounded down; of one below 0 nothing.

    Args:
        amount: any.
        elapsed: microseconds; below 0 counts as 0.
        half_life: microseconds, above 0.
    """
    if elapsed <= 0 or amount <= 0:
        return max(0, amount)
    whole, factor = _fade(elapsed, half_life)
    return amount * factor >> (_FINE + whole)


class Anchor(msgspec.Struct, frozen=True):
    """From what a queue's flow follows at any later instant. It moves only when the usage changes.

    Attributes:
        value: the flow just before `time`; from then on it is never below the usage.
        usage: since `time`. unlimited_value, unlimited_usage: the same of groups without a lifetime alone.
        time: microseconds since the epoch.
    """

    value: int = 0
    unlimited_value: int = 0
    usage: int = 0
    unlimited_usage: int = 0
    time: int = 0

    def at(self, now: int, half_life: int) -> tuple[int, int]:
        """The flow at an instant, and that of the groups without a lifetime; before `time` as at `time`.

        With a half-life of 0 it is the usage.
        """
        if half_life <= 0:
            return self.usage, self.unlimited_usage
        elapsed = now - self.time
        return (
            self.usage + faded(self.value - self.usage, elapsed, half_life),
            self.unlimited_usage + faded(self.unlimited_value - self.unlimited_usage, elapsed, half_life),
        )

    def moved(self, now: int, half_life: int, usage: int, unlimited_usage: int) -> Anchor:
        """The anchor with this usage from now on; the same one where that is no change.

        Of several changes at one instant only the last counts, in whatever order the others came.
        """
        if (usage, unlimited_usage) == (self.usage, self.unlimited_usage):
            return self
        if half_life <= 0:
            return Anchor(usage, unlimited_usage, usage, unlimited_usage, now)
        if now <= self.time:
            return Anchor(self.value, self.unlimited_value, usage, unlimited_usage, self.time)
        value, unlimited_value = self.at(now, half_life)
        return Anchor(value, unlimited_value, usage, unlimited_usage, now)

    def written(self) -> QueueFlow:
        """As it stands in a Queue's status: in whole units, and the flow with the usage that it has from `time` on."""
        return QueueFlow(
            value=in_units(max(self.value, self.usage)),
            unlimited_value=in_units(max(self.unlimited_value, self.unlimited_usage)),
            usage=in_units(self.usage),
            unlimited_usage=in_units(self.unlimited_usage),
            time=rfc3339_us(self.time),
        )


def read_anchor(flow: QueueFlow) -> Anchor | None:
    """What stands in a Queue's status; None where that is nothing that can be read."""
    try:
        time = timestamp_us(flow.time or None)
        value, unlimited_value, usage, unlimited_usage = (
            in_millionths(amount) for amount in (flow.value, flow.unlimited_value, flow.usage, flow.unlimited_usage)
        )
    except (msgspec.ValidationError, QuantityError):
        return None
    return None if time is None else Anchor(value, unlimited_value, usage, unlimited_usage, time)


def faded_until(flow: QueueFlow, now: int, half_life: int) -> QueueFlow:
    """What was written, as it would be written now (microseconds since the epoch); as it is if it cannot be read."""
    anchor = read_anchor(flow)
    if anchor is None:
        return flow
    value, unlimited = anchor.at(now, half_life)
    return Anchor(value, unlimited, anchor.usage, anchor.unlimited_usage, max(now, anchor.time)).written()


def spelled_out(flow: QueueFlow) -> dict[str, Any]:
    """All of its fields for JSON, those that are 0 too."""
    return {
        "value": flow.value,
        "unlimitedValue": flow.unlimited_value,
        "usage": flow.usage,
        "unlimitedUsage": flow.unlimited_usage,
        "time": flow.time,
    }
