"""Who starts when, were all nodes one: the groups that wait in order, each as soon as there is room for all of it."""

from __future__ import annotations

import heapq
from collections.abc import Generator, Sequence

import numpy as np
import numpy.typing as npt

Amounts = npt.NDArray[np.int64]
"""Of each dimension, as many of its units as are left of an int64 that may be added up."""

_AT_ONCE = 100
"""So many instants are looked at in a millisecond."""


def starts(
    now: int, free: Amounts, ends: Sequence[tuple[int, Amounts]], wants: Amounts, lengths: Sequence[int | None]
) -> Generator[None, None, list[int | None]]:
    """When each of those that wait would start; None: not as far as ends are known.

    Who does not fit keeps nobody out behind it. Yields every millisecond or so.

    Args:
        now: the instant, in microseconds.
        free: what is free then.
        ends: what comes free later, and when, in any order.
        wants: a row for each that waits, in order.
        lengths: how long each of these would run; None: nobody knows.
    """
    found: list[int | None] = [None] * len(wants)
    free = free.copy()
    coming = [(max(now, at), number, amounts) for number, (at, amounts) in enumerate(ends)]
    heapq.heapify(coming)
    number, at, waits = len(coming), now, np.arange(len(wants))
    while True:
        while len(waits):
            fits = np.flatnonzero((wants[waits] <= free).all(axis=1))
            if not len(fits):
                break
            first = int(waits[fits[0]])
            found[first] = at
            free -= wants[first]
            length = lengths[first]
            if length is not None:
                number += 1
                heapq.heappush(coming, (at + length, number, wants[first]))
            waits = np.delete(waits, fits[0])
        if not len(waits) or not coming:
            return found
        at, _, amounts = heapq.heappop(coming)
        free += amounts
        while coming and coming[0][0] == at:
            free += heapq.heappop(coming)[2]
        if not number % _AT_ONCE:
            yield
        number += 1
