"""Conditions: what stands in `status.conditions`, who writes which, and how a wanted one meets an existing one.

Conditions are a list-map by `type`, so that the scheduler and the podgroup operator each own theirs by server-side
apply. A process sends only its own types, all of them each time: what it once owned and leaves out would be removed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final

from kbatch.api.objects import Condition

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"

ENQUEUED: Final = "Enqueued"
"""The group holds a reservation of its minResources; its members may be created. Written by the scheduler."""

SCHEDULED: Final = "Scheduled"
"""The minimum of the group, and of each of its roles, is placed. Written by the scheduler."""

UNSCHEDULABLE: Final = "Unschedulable"
"""True while the group waits although it was tried; kube-batch's name, kept for those who read it. By the scheduler."""

COMPLETED: Final = "Completed"
"""No member is left, and the minimum succeeded, or who makes members says that the work is done. Written by the
podgroup operator.
"""

FAILED: Final = "Failed"
"""The minimum can no longer be met and the owner gave up. Written by the podgroup operator."""

STALLED: Final = "Stalled"
"""The operator cannot go on without its user, for example because a template is wrong. By the podgroup operator."""

OVER_CAPABILITY: Final = "OverCapability"
"""Of a Queue: it holds more than its capability, which was lowered."""

SCHEDULER_TYPES: Final = (ENQUEUED, SCHEDULED, UNSCHEDULABLE)
PODGROUP_TYPES: Final = (COMPLETED, FAILED, STALLED)
_ENDS: Final = (COMPLETED, FAILED)

REASON_ENQUEUED: Final = "Admitted"
"""Reason of Enqueued=True: minResources are reserved, or nothing needed to be."""

REASON_MEMBERS_LOST: Final = "MembersLost"
"""Reason of Enqueued=True: the minimum was placed, and pods of it were lost since; what is left runs on, and the rest
may come. Else a group that has only a part of its minimum on nodes is one whose binds failed."""

REASON_SCHEDULED: Final = "GangPlaced"
"""Reason of Scheduled=True and of Unschedulable=False: the minimum is bound."""

REASON_NOT_TRIED: Final = "NotTried"
"""Reason of Unschedulable=False on a group that waits without having been refused by the nodes."""


def completed(succeeded: int, needed: int) -> tuple[str, str]:
    """Reason and message of Completed=True."""
    message = f"{succeeded} pods succeeded, {needed} needed"
    if succeeded >= needed:
        return "MinimumSucceeded", message
    return "NoMoreMembers", f"{message}; its Jobs are complete, or other controllers have created no more pods"


def merge(existing: Sequence[Condition], wanted: Sequence[Condition], now: str) -> tuple[Condition, ...]:
    """`existing` with `wanted` laid over it, by type; the order of `existing` stays, new types come last.

    `now` (RFC 3339) becomes the lastTransitionTime of a condition that is new, whose status flips, or that has none;
    a change of reason, message or observedGeneration alone keeps the old time. Enqueued=True that is said again after
    the group's end (see `let_in`) is new. Merging twice changes nothing.

    The clocks of those who write need not agree, and a life may end in the second in which it began: so an end is taken
    back later than what stands of Enqueued=True, and Enqueued=True is said no earlier than the last end was taken back,
    whatever `now` is.

    Raises:
        ValueError: a type is wanted twice.
    """
    before = {condition.type: condition for condition in existing}
    merged = dict(before)
    void = _void(existing)
    seen: set[str] = set()
    for condition in wanted:
        if condition.type in seen:
            raise ValueError(f"condition {condition.type} is wanted twice")
        seen.add(condition.type)
        old = before.get(condition.type)
        flipped = old is None or old.status != condition.status or old.last_transition_time is None
        dated = now
        if condition.type == ENQUEUED and condition.status == TRUE:
            flipped, dated = flipped or bool(void), max(now, _taken_back(existing))
        elif condition.type in _ENDS and condition.status == FALSE:
            dated = max(now, _after_let_in(existing))
        merged[condition.type] = Condition(
            type=condition.type,
            status=condition.status,
            reason=condition.reason,
            message=condition.message,
            last_transition_time=dated if old is None or flipped else old.last_transition_time,
            observed_generation=condition.observed_generation,
        )
    return tuple(merged.values())


def of_types(conditions: Sequence[Condition] | None, types: Collection[str]) -> tuple[Condition, ...]:
    """The conditions of these types: what one writer owns among all that stand there."""
    return tuple(condition for condition in conditions or () if condition.type in types)


def find(conditions: Sequence[Condition] | None, type_: str) -> Condition | None:
    """The condition of this type, or None."""
    for condition in conditions or ():
        if condition.type == type_:
            return condition
    return None


def is_true(conditions: Sequence[Condition] | None, type_: str) -> bool:
    """Whether the condition stands with status "True"; absent counts as no."""
    condition = find(conditions, type_)
    return condition is not None and condition.status == TRUE


def let_in(conditions: Sequence[Condition] | None) -> bool:
    """Whether the group is in queue: Enqueued=True, and said since it last came to an end.

    A group that was over and comes to life again (a new Job names it, say) has that condition from its life before,
    and what it was promised then is gone.
    """
    return is_true(conditions, ENQUEUED) and not _void(conditions)


def _void(conditions: Sequence[Condition] | None) -> str:
    """When the group came to life again since it was last said to be in queue; empty: it did not.

    Then its end was taken back. An end that stands takes nothing back: such a group is over.
    """
    enqueued = find(conditions, ENQUEUED)
    if enqueued is None or enqueued.status != TRUE:
        return ""
    since = enqueued.last_transition_time or ""
    last = _taken_back(conditions)
    return last if last > since > "" else ""


def _taken_back(conditions: Sequence[Condition] | None) -> str:
    """When an end of the group was last taken back; empty: none was."""
    ends = (find(conditions, type_) for type_ in _ENDS)
    # All are written alike, in whole seconds of UTC, so they compare as texts.
    return max((end.last_transition_time or "" for end in ends if end is not None and end.status == FALSE), default="")


def _after_let_in(conditions: Sequence[Condition] | None) -> str:
    """The first second after the group was said to be in queue; empty: it is not."""
    enqueued = find(conditions, ENQUEUED)
    if enqueued is None or enqueued.status != TRUE or not enqueued.last_transition_time:
        return ""
    after = datetime.fromisoformat(enqueued.last_transition_time) + timedelta(seconds=1)
    return after.strftime("%Y-%m-%dT%H:%M:%SZ")
