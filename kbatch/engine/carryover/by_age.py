"""The groups of one queue that wait, the oldest first."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import compress
from typing import Final

import numpy as np

Age = tuple[int, str]
"""When a group was created, and its key: first come, first served, and no two are alike."""

_FEW: Final = 128
"""So many ages are taken out one by one: that moves all behind each of them, and touches none."""


class ByAge:
    """Ages, and the rows of the groups that have them. Who has left is taken out when the order is asked for."""

    def __init__(self) -> None:
        self._ages: list[Age] = []
        self._rows = array("q")
        self._gone: set[Age] = set()

    def add(self, age: Age, row: int) -> None:
        """A group comes, which is not among them."""
        if age in self._gone:
            self._settle()
        if not self._ages or self._ages[-1] < age:
            self._ages.append(age)
            self._rows.append(row)
            return
        place = bisect_left(self._ages, age)
        self._ages.insert(place, age)
        self._rows.insert(place, row)

    def remove(self, age: Age) -> None:
        """The group of this age leaves."""
        self._gone.add(age)

    def rows(self) -> array[int]:
        """The rows, in order."""
        self._settle()
        return self._rows

    def before(self, age: Age) -> int:
        """How many come before a group of this age."""
        self._settle()
        return bisect_left(self._ages, age)

    def _settle(self) -> None:
        if not self._gone:
            return
        ages = self._ages
        first = 0
        while first < len(ages) and ages[first] in self._gone:  # mostly it is the oldest who leave
            self._gone.discard(ages[first])
            first += 1
        if first:
            del ages[:first], self._rows[:first]
            if not self._gone:
                return
        places = sorted([bisect_left(ages, age) for age in self._gone])
        stays = np.ones(len(ages), np.bool_)
        stays[places] = False
        self._rows = array("q", np.frombuffer(self._rows, np.int64)[stays].tobytes())
        if len(places) <= _FEW:
            for place in reversed(places):
                del ages[place]
        else:
            self._ages = list(compress(ages, stays.tobytes()))
        self._gone = set()
