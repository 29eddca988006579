"""What the plugin keeps from cycle to cycle."""

from __future__ import annotations

import msgspec

from kbatch.engine.decisions import StartEstimate
from kbatch.engine.plugins.estimates.windows import Numbers


class Run(msgspec.Struct, frozen=True):
    """A group that holds something: since when, and how long it is said to run, if anybody says it; microseconds."""

    since: int
    said: int | None


class Told(msgspec.Struct, frozen=True):
    """What a group that waits was told. Instants and durations are in microseconds.

    Attributes:
        queue: of the group.
        since, foreseen, latest: of what it was told first: when, for how long it was foreseen to wait, and by when it
            would start. late: it has not. Where nothing could be foreseen as yet, `foreseen` is -1.
        by_plan: whether what it was told first was by a planned start. planned: whether it is now.
        base: what is foreseen now; None: nothing.
        made: when it was told last. time, until: what it was told then, its middle and nine times out of ten.
    """

    queue: str
    since: int
    foreseen: int
    latest: int
    late: bool
    by_plan: bool
    planned: bool
    base: int | None
    made: int
    time: int
    until: int

    @property
    def heard(self) -> bool:
        """Whether it was ever told anything."""
        return self.foreseen >= 0

    @property
    def estimate(self) -> StartEstimate | None:
        """As it is told."""
        return None if self.base is None else StartEstimate(self.time, self.until, "history")


class Learned(msgspec.Struct, frozen=True):
    """What was learned, and outlives a process: of `runs` and `waits` the last numbers by kind, by queue the level."""

    runs: dict[str, Numbers] = msgspec.field(default_factory=dict)
    waits: dict[str, Numbers] = msgspec.field(default_factory=dict)
    levels: dict[str, int] = msgspec.field(default_factory=dict)


class Known(msgspec.Struct, frozen=True):
    """All of it.

    Attributes:
        running: by key the groups that hold something. told: by key those that wait and were told when they start.
        lined: when it was last foreseen who starts when. moved: since then groups have started or ended.
    """

    learned: Learned = msgspec.field(default_factory=Learned)
    running: dict[str, Run] = msgspec.field(default_factory=dict)
    told: dict[str, Told] = msgspec.field(default_factory=dict)
    lined: int = 0
    moved: bool = False
