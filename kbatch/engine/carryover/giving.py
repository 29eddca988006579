"""What the groups of a queue could give up, summed by their priority: kept as long as no group of the queue changes."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from kbatch.model.jobs import QueueRecord
from kbatch.resources import Resources


class Giving(msgspec.Struct, frozen=True):
    """Whose pods could make room for a group: of which queue, and what of the group decides that.

    Attributes:
        endless: it has no lifetime, and may take the place of those that have outlived theirs.
        foreseen: the dimensions that it asks for, where all its pods are sure to come; else nothing.
    """

    queue: str
    priority: int
    endless: bool
    foreseen: tuple[str, ...]


@dataclass(slots=True)
class Level:
    """What groups of one priority could give up.

    Attributes:
        spare: their pods beyond what may not be broken, of groups within their lifetime. surplus: to their equals,
            what they hold beyond their minimums and minResources.
        late_spare, late_surplus: the same of groups that have outlived their lifetime. late: all that these hold.
    """

    spare: Resources = field(default_factory=dict)
    surplus: Resources = field(default_factory=dict)
    late_spare: Resources = field(default_factory=dict)
    late_surplus: Resources = field(default_factory=dict)
    late: Resources = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of one queue.

    Attributes:
        record, generation: the queue, and its generation then.
        until: the instant (microseconds) from which a further group has outlived its lifetime; None: never.
        by_priority: from the lowest.
    """

    record: QueueRecord
    generation: int
    until: int | None
    by_priority: tuple[tuple[int, Level], ...]
