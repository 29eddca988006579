"""When fading changes an answer: the first instant, to the microsecond, at which it is another one.

Past usage fades at one rate everywhere, so between two instants at which some queue's flow comes down to what its next
job would make it, the order of any two queues changes once at most. There it is found by bisection, with the very
numbers that decisions are made by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from kbatch.engine.plugin import Key
from kbatch.model.usage import Anchor

_FINE = 64
"""More bits than two weights have: distinct ratios stay distinct as integers."""


def ratio(flow: int, weight: int) -> int:
    """Flow over weight, as an integer of the same order."""
    return (flow << _FINE) // max(1, weight)


@dataclass(frozen=True, slots=True)
class Curve:
    """A queue's flow over weight with a job that takes its usage to `least`, from one instant on.

    Attributes:
        name: the queue's. weight: its weight.
    """

    name: str
    anchor: Anchor
    half_life: int
    least: int
    weight: int

    def ratio(self, now: int) -> int:
        """The flow over the weight."""
        return ratio(max(self.anchor.at(now, self.half_life)[0], self.least), self.weight)

    def key(self, now: int) -> Key:
        """Its place among others."""
        return self.ratio(now), self.name

    def end(self, now: int) -> int:
        """From when on the flow is the usage."""
        excess = max(0, self.anchor.at(now, self.half_life)[0] - self.anchor.usage)
        return max(now, self.anchor.time) + self.half_life * (excess.bit_length() + 1)

    def turn(self, now: int, end: int) -> int | None:
        """When the flow comes down to `least`; None: not until the end."""

        def down(instant: int) -> bool:
            return self.anchor.at(instant, self.half_life)[0] <= self.least

        return first(now, (end,), down)


def first(now: int, turns: Iterable[int], holds: Callable[[int], bool]) -> int | None:
    """The first instant after `now` at which something holds that does not hold now, and that changes once at most
    between two of these instants; None: it holds at none of them.
    """
    before = now
    for turn in sorted(each for each in turns if each > now):
        if holds(turn):
            low, high = before, turn
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if holds(middle) else (middle, high)
            return high
        before = turn
    return None


def first_of_two(now: int, some: Curve, other: Curve, holds: Callable[[int], bool]) -> int | None:
    """The first instant after `now` at which something holds that depends on two curves alone."""
    if some.half_life <= 0:
        return None
    end = max(some.end(now), other.end(now))
    turns = [turn for curve in (some, other) if (turn := curve.turn(now, end)) is not None]
    return first(now, (*turns, end), holds)


def overtaking(now: int, curves: Iterable[Curve]) -> int | None:
    """The first instant after `now` at which the order of any of these is another one: two neighbours change first."""
    found: int | None = None
    ordered = sorted(curves, key=lambda curve: curve.key(now))
    for ahead, behind in pairwise(ordered):

        def changed(instant: int, ahead: Curve = ahead, behind: Curve = behind) -> bool:
            return behind.key(instant) < ahead.key(instant)

        instant = first_of_two(now, ahead, behind, changed)
        if instant is not None and (found is None or instant < found):
            found = instant
    return found
