"""How fast this machine is just now, beside the one for which the time budgets of the layers are meant.

Virtual machines share their processors with others that nobody sees: the same work takes half as long again, or twice
as long, for minutes. So while a layer runs, a fixed piece of work is timed every few seconds, in seconds of the
processor (waiting for a processor, which the layer's own tests keep busy, is not counted).
"""

from __future__ import annotations

import threading
import time
from statistics import median
from typing import Final, Self

QUICK_SECONDS: Final = 0.060
"""What the work takes on the machine of the budgets, two cores of a cloud provider, in a quick minute, while a layer
keeps both of them busy; alone it takes half of that."""

MOST: Final = 2.0
"""A budget is stretched by no more than this."""

_EVERY_SECONDS: Final = 5.0
_ROUNDS: Final = 150_000


def work() -> int:
    """A fixed piece of work of the kind that the tests do: integers, strings, dictionaries."""
    table: dict[int, int] = {}
    total = 0
    for number in range(_ROUNDS):
        key = number * 7919 % 10007
        table[key] = table.get(key, 0) + number
        total += len(str(number))
    return total + sum(sorted(table.values()))


class Speed:
    """Times the work from when it is entered until it is left. `factor` says how much longer things take here."""

    def __init__(self) -> None:
        self._taken: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def factor(self) -> float:
        """1 on a machine as quick as that of the budgets, or quicker; at most `MOST`."""
        return stretched(self._taken)

    def _sample(self) -> None:
        while True:
            began = time.thread_time()
            work()
            self._taken.append(time.thread_time() - began)
            if self._ended.wait(_EVERY_SECONDS):
                return


def stretched(taken: list[float]) -> float:
    """By how much a budget is stretched where the work took so long."""
    return min(MOST, max(1.0, median(taken) / QUICK_SECONDS)) if taken else 1.0
