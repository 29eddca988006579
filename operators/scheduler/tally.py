"""How many groups wait, why, and since when; kept current from what cycles say."""

from __future__ import annotations

from collections import Counter

from kbatch.engine import Verdict
from kbatch.model.ages import Ages


class Tally:
    """Counts of the verdicts that stand.

    Attributes:
        reasons: how many groups wait for each reason, by its code; those of plugins count as one, `plugin`, as there
            may be any number of plugins.
    """

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()
        self._codes: dict[str, str | None] = {}
        """Why each group waits; None: it is placed."""
        self._ages: dict[str, Ages] = {}
        self._queues: dict[str, str] = {}
        """Of those that wait."""
        self._scheduled = 0

    @property
    def scheduled(self) -> int:
        """How many groups are placed."""
        return self._scheduled

    @property
    def waiting(self) -> int:
        """How many are not."""
        return len(self._codes) - self._scheduled

    @property
    def oldest(self) -> int | None:
        """When the oldest group that waits was created, in microseconds; None: none waits."""
        return min((at for at in map(self.oldest_of, self._ages) if at is not None), default=None)

    def oldest_of(self, queue: str) -> int | None:
        """The same of one queue."""
        ages = self._ages.get(queue)
        found = ages.oldest() if ages is not None else None
        return found[0] if found is not None else None

    def put(self, key: str, verdict: Verdict, created: int, queue: str) -> None:
        """The verdict stands for the group of this queue from now on."""
        code: str | None = None
        if not verdict.scheduled:
            code = verdict.reason.code if verdict.reason is not None else ""
            code = "plugin" if "/" in code else code
        self.drop(key)
        self._codes[key] = code
        if code is None:
            self._scheduled += 1
        else:
            self.reasons[code] += 1
            self._queues[key] = queue
            self._ages.setdefault(queue, Ages()).put((created, key))

    def drop(self, key: str) -> None:
        """Nothing stands for the group any more."""
        if key not in self._codes:
            return
        code = self._codes.pop(key)
        if code is None:
            self._scheduled -= 1
            return
        self.reasons[code] -= 1
        if not self.reasons[code]:
            del self.reasons[code]
        self._ages[self._queues.pop(key)].drop(key)
