"""When fading changes an answer: the first instant, to the microsecond, at which it is another one.

Past usage fades at one rate everywhere, so between two instants at which some queue's flow comes down to what its next
job would make it, the order of any two queues changes once at most. There it is found by bisection, with the very
numbers that decisions are made by. That takes milliseconds for two queues, and there may be a thousand: so it is first
worked out in floating point when each two could change at the earliest, with a margin far above its error, and only
those are looked at that could be the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

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


class Pairs:
    """The first instant at which something holds of any of many pairs of curves.

    Args:
        now: the instant from which on it is looked for.
        curves: all of them; of one half-life.
        holds: says of two curves and an instant whether it holds; implies that the ratio of the first is at most that
            of the second.
    """

    def __init__(self, now: int, curves: Sequence[Curve], holds: Callable[[Curve, Curve, int], bool]) -> None:
        self._now = now
        self._curves = curves
        self._holds = holds
        self._turns: dict[int, int | None] = {}

    def first(self, some: Sequence[int], others: Sequence[int], until: int | None = None) -> int | None:
        """The first instant after `now`, before `until`, at which it holds of `some[i]` and `others[i]` for any i,
        numbers of curves, and does not now; None: there is none.
        """
        if not some or self._curves[some[0]].half_life <= 0:
            return None
        earliest = self._earliest(np.array(some, np.intp), np.array(others, np.intp))
        looked: set[tuple[object, ...]] = set()
        found = until
        for at in np.argsort(earliest, kind="stable").tolist():
            if not (earliest[at] < (np.inf if found is None else found - self._now)):
                break
            one, other = some[at], others[at]
            alike = (*self._shape(one), *self._shape(other))
            if alike not in looked:
                looked.add(alike)
                instant = self._of_two(one, other, found)
                found = instant if instant is not None else found
        return found if found != until else None

    def _shape(self, number: int) -> tuple[object, ...]:
        curve = self._curves[number]
        return curve.anchor, curve.least, curve.weight

    def _of_two(self, one: int, other: int, before: int | None) -> int | None:
        """The first instant for two curves; None: there is none before another."""
        some, others, now = self._curves[one], self._curves[other], self._now
        end = max(some.end(now), others.end(now))
        turns = [turn for turn in (self._turn(one), self._turn(other)) if turn is not None]
        if before is not None:
            turns, end = [turn for turn in turns if turn < before], min(end, before - 1)
        return first(now, (*turns, end), lambda instant: self._holds(some, others, instant))

    def _turn(self, number: int) -> int | None:
        if number not in self._turns:
            curve = self._curves[number]
            self._turns[number] = curve.turn(self._now, curve.end(self._now))
        return self._turns[number]

    def _lines(self) -> npt.NDArray[np.float64]:
        """Of each curve what it is above its usage now, its usage and the least, all over the weight; and the margin.

        Where x is the part of the past that has not faded, the ratio is `max(excess * x + usage, least)`.
        """
        found = np.empty((4, len(self._curves)))
        for number, curve in enumerate(self._curves):
            anchor, weight = curve.anchor, max(1, curve.weight)
            excess = max(0, anchor.at(self._now, curve.half_life)[0] - anchor.usage)
            sum_ = max(excess + anchor.usage, curve.least)
            found[:, number] = excess / weight, anchor.usage / weight, curve.least / weight, (4 + sum_ * 1e-12) / weight
        return found

    def _earliest(self, some: npt.NDArray[np.intp], others: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        """How long it takes at least until the ratio of the first curve is at most that of the second, pair by pair;
        infinite where it never is.
        """
        lines = self._lines()
        one, other = lines[:, some], lines[:, others]
        with np.errstate(divide="ignore", invalid="ignore"):
            bends = np.sort([_bend(one), _bend(other)], axis=0)
        points = np.concatenate([np.zeros((1, len(some))), bends, np.ones((1, len(some)))])
        above = [_ratio(other, x) - _ratio(one, x) + one[3] + other[3] for x in points]
        last = np.full(len(some), -1.0)  # the largest x, that is the earliest instant, at which it could hold
        for low in range(len(points) - 1):
            left, right, at_left, at_right = points[low], points[low + 1], above[low], above[low + 1]
            last = np.where(at_left >= 0, np.maximum(last, left), last)
            rises = (at_left >= 0) & (at_right < 0) & (right > left)
            with np.errstate(divide="ignore", invalid="ignore"):
                crossing = left + (right - left) * at_left / (at_left - at_right)
            last = np.where(rises, np.maximum(last, crossing), last)
        last = np.where(above[-1] >= 0, 1.0, last)
        half_life = self._curves[some[0]].half_life
        with np.errstate(divide="ignore", invalid="ignore"):
            wait = -np.log2(np.minimum(1.0, np.maximum(last, 0.0) * (1 + 1e-9) + 1e-300)) * half_life
        return np.where(last < 0, np.inf, np.maximum(0.0, wait - 2))


def _bend(lines: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Where the past has faded so far that the curve is level from then on."""
    found: npt.NDArray[np.float64] = np.nan_to_num(np.clip((lines[2] - lines[1]) / lines[0], 0.0, 1.0), nan=0.0)
    return found


def _ratio(lines: npt.NDArray[np.float64], x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    found: npt.NDArray[np.float64] = np.maximum(lines[0] * x + lines[1], lines[2])
    return found


def overtaking(now: int, curves: Iterable[Curve], until: int | None = None) -> int | None:
    """The first instant after `now` (and before `until`) at which the order of any of these is another one: two
    neighbours change first.
    """
    ordered = sorted(curves, key=lambda curve: curve.key(now))
    pairs = Pairs(now, ordered, lambda behind, ahead, instant: behind.key(instant) < ahead.key(instant))
    numbers = list(pairwise(range(len(ordered))))
    return pairs.first([behind for _, behind in numbers], [ahead for ahead, _ in numbers], until)
