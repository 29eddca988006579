"""What a Queue's status should say, as pure functions of the cluster model.

The shares come from `ClusterModel.deserved`, the very function that the scheduler decides by; nothing is computed anew
here. Groups are counted by the phase that the podgroup operator gave them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import msgspec

from kbatch.api.objects import PodGroup, QueueStatus
from kbatch.model.cluster import ClusterModel
from kbatch.model.jobs import QueueRecord
from kbatch.model.shares import dominant_share
from kbatch.resources import PODS, Resources, format_resources, positive

FIELD_MANAGER: Final = "kbatch-queue"
"""Of all that the operator writes."""

_COUNTER: Final = {
    "InQueue": "inqueue",
    "Running": "running",
    "Unknown": "running",
    "Completed": "completed",
    "Failed": "completed",
}
COUNTERS: Final = ("pending", "inqueue", "running", "completed")


@dataclass(frozen=True, slots=True)
class Report:
    """All that is said of one queue. `share` is the largest allocated over deserved of all dimensions."""

    deserved: Resources
    allocated: Resources
    requested: Resources
    share: Fraction
    state: str
    groups: dict[str, int]

    def status(self) -> QueueStatus:
        """As it stands in the Queue's status."""
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
        )


def reports(model: ClusterModel) -> dict[str, Report]:
    """What is to be said of each Queue that exists, by name."""
    model.classes.forget_labels()
    deserved = model.deserved()
    return {
        name: _report(record, deserved.get(name, {}))
        for name, record in model.queues.items()
        if record.queue is not None
    }


def manifest(status: QueueStatus) -> dict[str, Any]:
    """The status for a server-side apply: every field that the operator owns, zeros too."""
    counters = {counter: getattr(status, counter) for counter in COUNTERS}
    return {**msgspec.to_builtins(status), **counters}


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


def _report(record: QueueRecord, deserved: Resources) -> Report:
    return Report(
        deserved=deserved,
        allocated=record.allocated,
        requested=record.request,
        share=dominant_share(record.allocated, deserved),
        state="Open" if record.open else "Closed",
        groups=count_groups([job.group for job in record.jobs.values() if job.group is not None]),
    )


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
    )
