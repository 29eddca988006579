"""What a group's status should say, how far it is from that, and the object that is applied to make it so."""

from __future__ import annotations

import enum
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from kbatch.api import conditions
from kbatch.api.objects import Condition, EstimatedStart, PodGroup, RawQuantity, timestamp_us
from kbatch.engine import StartEstimate
from kbatch.times import SECOND

START_MOVED: Final = 30 * SECOND
START_PART: Final = 10
"""It is rewritten when it has moved by more than this (microseconds), and by more than such a part of the wait."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a group's status should say: the conditions without times, how often it was sent back, its charge, and when
    it is to start.
    """

    uid: str
    conditions: tuple[Condition, ...]
    attempts: int
    charged: RawQuantity | None = None
    estimate: StartEstimate | None = None

    @property
    def let_in(self) -> Wanted:
        """Of this, that the group is in queue: while its binds are under way the rest is not true."""
        return replace(self, conditions=conditions.of_types(self.conditions, {conditions.ENQUEUED}))

    @property
    def said(self) -> tuple[tuple[str, str, str], ...]:
        """The conditions without their messages."""
        return tuple((condition.type, condition.status, condition.reason or "") for condition in self.conditions)


class Difference(enum.IntEnum):
    """How far a group's status is from what it should say."""

    NOTHING = 0
    START = 1
    """Only when it is to start."""
    MESSAGE = 2
    """Only words."""
    REASON = 3
    """Why it waits: a reason, or whether it was tried (Unschedulable)."""
    STATUS = 4
    """Where it stands: Enqueued, Scheduled, a number that the scheduler goes by; or of which generation it is said."""


_STANDING: Final = frozenset({conditions.ENQUEUED, conditions.SCHEDULED})


def difference(group: PodGroup, wanted: Wanted) -> Difference:
    """How far a group's status is from what it should say."""
    moved = start_moved(group.status.estimated_start, wanted.estimate)
    return max(conditions_differ(group, wanted), Difference.START if moved else Difference.NOTHING)


def conditions_differ(group: PodGroup, wanted: Wanted) -> Difference:
    """The same but for its start."""
    present = {condition.type: condition for condition in group.status.conditions or ()}
    void = not conditions.let_in(group.status.conditions)
    numbers = group.status.scheduling_attempts, group.status.excess_charged
    found = Difference.NOTHING if numbers == (wanted.attempts, wanted.charged) else Difference.STATUS
    for condition in wanted.conditions:
        now = present.get(condition.type)
        if now is None or (now.status != condition.status and condition.type in _STANDING):
            return Difference.STATUS
        if now.observed_generation != condition.observed_generation:
            return Difference.STATUS
        if condition.type == conditions.ENQUEUED and condition.status == conditions.TRUE and void:
            return Difference.STATUS
        if (now.status, now.reason) != (condition.status, condition.reason):
            found = max(found, Difference.REASON)
        elif now.message != condition.message:
            found = max(found, Difference.MESSAGE)
    return found


def fell(group: PodGroup, wanted: Wanted) -> bool:
    """Whether the group was placed, as its status says, and is so no longer."""
    stood = conditions.find(group.status.conditions, conditions.SCHEDULED)
    stands = conditions.find(wanted.conditions, conditions.SCHEDULED)
    if stood is None or stands is None:
        return False
    return stood.status == conditions.TRUE and stands.status != conditions.TRUE


def start_moved(standing: EstimatedStart | None, estimate: StartEstimate | None) -> bool:
    """Whether when a group is to start has changed so much that it is worth a write."""
    if standing is None or estimate is None:
        return standing is not None or estimate is not None
    pairs = ((standing.time, estimate.time), (standing.latest, estimate.latest))
    if standing.basis != estimate.basis or any((said is None) != (now is None) for said, now in pairs):
        return True
    least = START_MOVED
    if estimate.time is not None:
        least = max(least, (estimate.time - int(time.time() * SECOND)) // START_PART)
    return any(
        abs((timestamp_us(said) or 0) - now) > least for said, now in pairs if said is not None and now is not None
    )


def start_of(estimate: StartEstimate | None) -> EstimatedStart | None:
    """An estimate as it is written."""
    if estimate is None:
        return None
    return EstimatedStart(time=_instant(estimate.time), latest=_instant(estimate.latest), basis=estimate.basis)


def _instant(instant: int | None) -> str | None:
    """An instant as Kubernetes writes times: in whole seconds, rounded up."""
    if instant is None:
        return None
    return datetime.fromtimestamp(-(-instant // SECOND), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def manifest(group: PodGroup, wanted: Wanted, start: EstimatedStart | None) -> dict[str, Any]:
    """All that this manager owns, every time: what an apply leaves out is removed."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    merged = conditions.merge(group.status.conditions or (), wanted.conditions, now)
    status: dict[str, Any] = {"conditions": _plain(conditions.of_types(merged, conditions.SCHEDULER_TYPES))}
    if wanted.attempts:
        status["schedulingAttempts"] = wanted.attempts
    if wanted.charged is not None:
        status["excessCharged"] = wanted.charged
    if start is not None:
        status["estimatedStart"] = msgspec.to_builtins(start)
    meta = group.metadata
    precondition = {"resourceVersion": meta.resource_version}
    return {"metadata": {"name": meta.name, "namespace": meta.namespace, **precondition}, "status": status}


def _plain(own: Sequence[Condition]) -> list[dict[str, Any]]:
    """The conditions as JSON, with the empty reason and message that the schema wants spelled out."""
    return [{"reason": "", "message": "", **msgspec.to_builtins(condition)} for condition in own]
