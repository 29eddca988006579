"""What came free, and who of those that wait has not looked at it yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

FAR: Final = 2**62
"""Later than anything."""


class News(NamedTuple):
    """Places that came free, or several such together; instants in microseconds.

    Attributes:
        begin, end: from when to when, at the most.
        since, until: from when to when any of these nodes is free, counting what was free around it, at the most.
        longest: for how long any of them is free at a stretch, at the most.
        nodes: which they are, the bits of an integer; -1: any.
    """

    begin: int
    end: int
    since: int
    until: int
    longest: int
    nodes: int

    def beside(self, other: News) -> News:
        """Both together."""
        return News(
            min(self.begin, other.begin),
            max(self.end, other.end),
            min(self.since, other.since),
            max(self.until, other.until),
            max(self.longest, other.longest),
            self.nodes | other.nodes,
        )


@dataclass(slots=True)
class Freed:
    """What came free, in the order in which it did.

    `told` is how many news there ever were; who remembers that number can ask for what came since.
    """

    told: int = 0
    _news: list[News] = field(default_factory=list)
    _before: int = 0
    """How many were forgotten."""
    _since: list[News] = field(default_factory=list)
    """For each of before the pass: that and all that came after it up to the pass, together."""
    _now: News | None = None
    """All of the pass together."""

    def add(self, news: News) -> None:
        """Something came free."""
        self.told += 1
        self._news.append(news)
        self._now = news if self._now is None else news.beside(self._now)

    def begin(self) -> None:
        """A pass over all who wait begins."""
        self._since = []
        together: News | None = None
        for news in reversed(self._news):
            together = news if together is None else news.beside(together)
            self._since.append(together)
        self._since.reverse()
        self._now = None

    def end(self) -> None:
        """The pass is over: what was known before it is known to all."""
        self._before += len(self._since)
        del self._news[: len(self._since)]
        self._since = []

    def since(self, seen: int) -> News | None:
        """All that came after the first `seen`, together, in a pass; None where nothing did."""
        if seen == self.told:
            return None
        old = self._since[seen - self._before] if seen - self._before < len(self._since) else None
        if old is None or self._now is None:
            return old or self._now
        return old.beside(self._now)
