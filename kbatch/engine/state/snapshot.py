"""What a cycle decides on: the model at one instant. It shares the model's parts, so taking it costs what changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kbatch.engine.state.cycle_state import CycleState
from kbatch.model.cluster import ClusterModel
from kbatch.model.nodes import NodeTable
from kbatch.resources import Resources


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster at `now`, in microseconds since the epoch.

    Whoever took it leaves the model alone until the cycle has ended.

    Attributes:
        state: what the cycle before returned.
        numbers_current: numbers in the reasons of groups that wait are told again when they are old. Else a reason
            stays as it was told until it is another one; a cycle without a memo tells all with the numbers of then.
    """

    now: int
    model: ClusterModel
    state: CycleState = field(default_factory=CycleState)
    numbers_current: bool = True

    def open(self) -> Iterator[None]:
        """Bring the model, its sums and shares up to this instant, in pieces; the cycle does this first of all."""
        self.model.lapse(self.now)
        yield from self.model.refreshing()
        yield from self.model.dividing()

    @property
    def generation(self) -> int:
        """Of the model."""
        return self.model.generation

    @property
    def room_generation(self) -> int:
        """Of the model."""
        return self.model.room_generation

    @property
    def standing_generation(self) -> int:
        """Of the model."""
        return self.model.standing_generation

    @property
    def capacity_generation(self) -> int:
        """Of the model."""
        return self.model.capacity_generation

    @property
    def table(self) -> NodeTable:
        """The nodes as columns."""
        return self.model.table

    @property
    def capacity(self) -> Resources:
        """What schedulable nodes hold, less what foreign pods use."""
        return self.model.capacity


def take_snapshot(
    model: ClusterModel, now: int, state: CycleState | None = None, *, numbers_current: bool = True
) -> Snapshot:
    """Hold on to the model as it is; `state` is what the cycle before returned, None where a process begins."""
    return Snapshot(now, model, state if state is not None else CycleState(), numbers_current)
