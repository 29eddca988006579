"""What a cycle leaves to the next that changes its decisions. It is recorded in the decision log.

All of it can be made anew, from the API server alone, by a process that has just started: what must outlive a process
is written to the object that it belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class QueueClock:
    """For how long the time of a group in queue has stood still, because its victims ended or room was gathered for it.

    Instants and durations are in microseconds. A process that begins without it counts all the time.

    Attributes:
        since: the transition of the condition Enqueued that the time counts from; with another one this is void.
        paused: how long it has stood still until `stopped`, or in all.
        stopped: since when it stands still now; None: it runs.
    """

    since: int
    paused: int = 0
    stopped: int | None = None

    def elapsed(self, now: int) -> int:
        """How much time has counted until now; until now it stood still if it was stopped."""
        return (now if self.stopped is None else self.stopped) - self.since - self.paused

    def resumed(self, now: int) -> QueueClock:
        """The clock that runs from now on."""
        if self.stopped is None:
            return self
        return QueueClock(self.since, self.paused + now - self.stopped)

    def halted(self, now: int) -> QueueClock:
        """The clock that stands still from now on."""
        return self if self.stopped is not None else QueueClock(self.since, self.paused, now)


@dataclass(frozen=True, slots=True)
class GatheredRoom:
    """Room that is kept for a group that has waited too long.

    Attributes:
        job: key of the group.
        places: for each pod (`namespace/name`) of its minimum that has no node the node on which room is kept for it.
    """

    job: str
    places: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PromisedStart:
    """The start that was promised to a group that waits for room.

    Attributes:
        job: key of the group.
        at: the instant, in microseconds since the epoch; None: nobody knows when all of its room comes free.
        places: for each pod (`namespace/name`) of its minimum that has no node the node that is kept for it.
        charge: what is kept for it of its queue's excessBudget, in millionths of a resource-minute.
    """

    job: str
    at: int | None
    places: tuple[tuple[str, str], ...]
    charge: int = 0


@dataclass(frozen=True, slots=True)
class Failing:
    """A group on which work has failed.

    Attributes:
        error: the name of the error's type. phase: in which part of the cycle.
        times: how often in a row. until: left out until then, in microseconds since the epoch.
    """

    error: str
    phase: str
    times: int
    until: int


@dataclass(frozen=True, slots=True)
class CycleState:
    """Empty is where a process begins. Fields are plain data that JSON can hold, but for what plugins keep.

    Attributes:
        plugins: by plugin name what each plugin with a `State` keeps.
        clocks: by key of each group in queue whose time has ever stood still there, how long it did.
        gathered: the room that is kept for the one aged group; None: none is.
        binding: keys of the gangs whose binds were decided and are not all confirmed, in order. One that is then found
            with only a part of its minimum is bound in part, and has not lost what it had.
        failing: by job key the groups that are left out because work on them has failed.
        broken: by key of each group with `minimumLostSeconds` that was whole and is not any more, since when, in
            microseconds since the epoch. It stays here until it is written that it is whole again, or was sent back.
        evictions: by the Queue's uid (its name, where it has none), of those that limit it, when in the last hour
            groups were evicted as wholes.
        planned: the starts that were promised, in the order in which they were, where they are kept (mode
            `conservative` of backfill). free: how many more pods the nodes would take as the cycle left them, and how
            many once what terminates has gone, together, where any start is promised; offered: how many they would
            take, were they empty. begun: by key of each pod whose bind is under way then, the cycle's instant, in
            microseconds since the epoch: from it on its end counts.
    """

    plugins: Mapping[str, Any] = field(default_factory=dict)
    clocks: Mapping[str, QueueClock] = field(default_factory=dict)
    gathered: GatheredRoom | None = None
    binding: tuple[str, ...] = ()
    failing: Mapping[str, Failing] = field(default_factory=dict)
    evictions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    broken: Mapping[str, int] = field(default_factory=dict)
    planned: tuple[PromisedStart, ...] = ()
    free: int | None = None
    offered: int | None = None
    begun: Mapping[str, int] = field(default_factory=dict)
