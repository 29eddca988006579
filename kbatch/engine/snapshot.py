"""What a cycle decides on: the model at one instant. It shares the model's parts, so taking it costs what changed."""

from __future__ import annotations

from dataclasses import dataclass

from kbatch.model.cluster import ClusterModel
from kbatch.model.nodes import NodeTable
from kbatch.resources import Resources


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster at `now` (ms). Whoever took it leaves the model alone until the cycle has ended."""

    now: int
    generation: int
    room_generation: int
    model: ClusterModel
    table: NodeTable
    capacity: Resources


def take_snapshot(model: ClusterModel, now_ms: int) -> Snapshot:
    """Bring the model's sums up to date and hold on to them."""
    model.refresh()
    return Snapshot(now_ms, model.generation, model.room_generation, model, model.table, model.capacity)
