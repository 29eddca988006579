"""May a Queue be deleted? Not while PodGroups that are not over name it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from kbatch.model.phase import STARTED

_WAITING: Final = "pending or in queue"
_RUNNING: Final = "running"


def refusal(queue: str, phases: Iterable[str]) -> str | None:
    """Why the queue must stay, with the numbers; None if nothing is left in it.

    Args:
        queue: its name.
        phases: of the groups in it that are not over; empty for one without a status.
    """
    counts = Counter(_RUNNING if phase in STARTED else _WAITING for phase in phases)
    total = counts.total()
    if not total:
        return None
    parts = ", ".join(f"{counts[what]} {what}" for what in (_WAITING, _RUNNING) if counts[what])
    way = "delete or move" if counts[_WAITING] else "delete"  # the queue of a group that runs cannot be changed
    groups, them = ("group", "it") if total == 1 else ("groups", "them")
    return f"Queue {queue} still has {total} {groups} ({parts}): {way} {them} first"
