"""What a Queue's status should say, as pure functions of the cluster model.

The shares come from `ClusterModel.deserved`, the very function that the scheduler decides by; nothing is computed anew
here. Groups are counted by the phase that the podgroup operator gave them.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import msgspec

from kbatch.api import conditions
from kbatch.api.objects import Condition, PodGroup, QueueStatus
from kbatch.api.reasons.base import amount
from kbatch.model.cluster import ClusterModel
from kbatch.model.jobs import QueueRecord
from kbatch.model.shares import dominant_share
from kbatch.resources import PODS, Resources, format_resources, positive

_COUNTER: Final = {
    "InQueue": "inqueue",
    "Running": "running",
    "Unknown": "running",
    "Completed": "completed",
    "Failed": "completed",
}
COUNTERS: Final = ("pending", "inqueue", "running", "completed")
MOST_RESOURCES: Final = 64
"""Of so many resources amounts are told, those that nodes offer first: groups name what they like, and an object that
had all of it would be too large to write."""


@dataclass(frozen=True, slots=True)
class Report:
    """All that is said of one queue. `share` is the largest allocated over deserved of all dimensions; `over` has, by
    resource, what it holds and what it may hold, where it holds more than its capability.
    """

    deserved: Resources
    allocated: Resources
    requested: Resources
    share: Fraction
    state: str
    groups: dict[str, int]
    over: dict[str, tuple[int, int]] = field(default_factory=dict)

    def status(self, standing: QueueStatus | None = None, now: str = "") -> QueueStatus:
        """As it should stand in the Queue; `now` (RFC 3339) dates a condition that flips against `standing`."""
        return QueueStatus(
            state=self.state,
            deserved=_amounts(self.deserved),
            allocated=_amounts(self.allocated),
            requested=_amounts(self.requested),
            share=decimal(self.share),
            pending=self.groups["pending"],
            inqueue=self.groups["inqueue"],
            running=self.groups["running"],
            completed=self.groups["completed"],
            conditions=self._conditions((standing.conditions if standing else None) or (), now) or None,
        )

    def _conditions(self, existing: Sequence[Condition], now: str) -> tuple[Condition, ...]:
        """OverCapability, for a queue that is or once was over it."""
        if self.over:
            held = "; ".join(
                f"holds {amount(name, has)}, over its capability of {amount(name, may)}"
                for name, (has, may) in sorted(self.over.items())
            )
            names = ", ".join(sorted(self.over))
            message = (
                f"{held}; nothing is evicted for that, and nothing that asks for {names} starts until it is within it"
            )
            wanted = Condition(
                type=conditions.OVER_CAPABILITY, status=conditions.TRUE, reason="CapabilityExceeded", message=message
            )
        elif conditions.find(existing, conditions.OVER_CAPABILITY) is not None:
            wanted = Condition(
                type=conditions.OVER_CAPABILITY, status=conditions.FALSE, reason="WithinCapability", message=""
            )
        else:
            return ()
        return conditions.of_types(conditions.merge(existing, [wanted], now), {conditions.OVER_CAPABILITY})


class GroupCounts:
    """How many groups of each queue wait, are in queue, run, and have ended: counted again where one has changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[QueueRecord, int, dict[str, int]]] = {}
        """By queue what was counted, and at which generation of which record."""

    def of(self, record: QueueRecord) -> dict[str, int]:
        """The counts of a queue whose record is current."""
        known = self._known.get(record.name)
        if known is None or known[0] is not record or known[1] != record.generation:
            found = count_groups([job.group for job in record.jobs.values() if job.group is not None])
            known = self._known[record.name] = record, record.generation, found
        return known[2]

    def keep(self, names: Container[str]) -> None:
        """Forget the queues of other names."""
        self._known = {name: known for name, known in self._known.items() if name in names}


def reports(model: ClusterModel, counts: GroupCounts | None = None) -> dict[str, Report]:
    """What is to be said of each Queue that exists, by name. `counts`: of the last time."""
    model.classes.forget_labels()
    deserved = model.deserved()
    counts = counts or GroupCounts()
    counts.keep(model.queues)
    offered = model.capacity
    return {
        name: _report(record, deserved.get(name, {}), counts.of(record), offered)
        for name, record in model.queues.items()
        if record.queue is not None
    }


def manifest(status: QueueStatus) -> dict[str, Any]:
    """The status for a server-side apply: every field that the operator owns, zeros too."""
    counters = {counter: getattr(status, counter) for counter in COUNTERS}
    plain = {**msgspec.to_builtins(status), **counters}
    if status.conditions:
        plain["conditions"] = [{"message": "", **one} for one in plain["conditions"]]
    return plain


def same(standing: QueueStatus, wanted: QueueStatus) -> bool:
    """Whether the operator's part of the status that stands says what is wanted."""
    return _own(standing) == _own(wanted)


def decimal(share: Fraction) -> str:
    """A ratio with up to three decimals: `0`, `0.75`, `1.333`."""
    thousandths = round(share * 1000)
    text = f"{thousandths // 1000}.{thousandths % 1000:03d}"
    return text.rstrip("0").rstrip(".")


def count_groups(groups: list[PodGroup]) -> dict[str, int]:
    """How many groups wait, are in queue, run, and have ended."""
    counts = dict.fromkeys(COUNTERS, 0)
    for group in groups:
        counts[_COUNTER.get(group.status.phase, "pending")] += 1
    return counts


def _report(record: QueueRecord, deserved: Resources, groups: dict[str, int], offered: Container[str]) -> Report:
    return Report(
        deserved=_told(deserved, offered),
        allocated=_told(record.allocated, offered),
        requested=_told(record.request, offered),
        share=dominant_share(record.allocated, deserved),
        state="Open" if record.open else "Closed",
        groups=groups,
        over={
            name: (record.allocated[name], may)
            for name, may in (record.capability or {}).items()
            if name != PODS and record.allocated.get(name, 0) > may
        },
    )


def _told(vector: Resources, offered: Container[str]) -> Resources:
    """The part of the vector that is told."""
    if len(vector) <= MOST_RESOURCES:
        return vector
    asked = (name for name, amount in vector.items() if amount)
    return {name: vector[name] for name in sorted(asked, key=lambda name: (name not in offered, name))[:MOST_RESOURCES]}


def _amounts(vector: Resources) -> dict[str, str | int | float] | None:
    shown = {name: amount for name, amount in positive(vector).items() if name != PODS}
    return {**format_resources(shown)} or None


def _own(status: QueueStatus) -> tuple[object, ...]:
    return (
        status.state,
        {name: str(amount) for name, amount in (status.deserved or {}).items()},
        {name: str(amount) for name, amount in (status.allocated or {}).items()},
        {name: str(amount) for name, amount in (status.requested or {}).items()},
        status.share,
        *(getattr(status, counter) for counter in COUNTERS),
        [
            (one.status, one.reason, one.message)
            for one in conditions.of_types(status.conditions, {conditions.OVER_CAPABILITY})
        ],
    )
