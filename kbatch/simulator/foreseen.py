"""How what groups were told of their start came true: judged by what each was told first."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kbatch.engine import StartEstimate
from kbatch.times import SECOND

_CLOSE: Final = 60 * SECOND


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a group was told first, and what came of it; microseconds after the start.

    Attributes:
        queue: of the group.
        told: when it was told. time, latest: what it was told.
        started: when it started; None: it did not.
    """

    queue: str
    told: int
    time: int
    latest: int
    started: int | None

    @property
    def held(self) -> bool:
        """Whether it started by `latest`."""
        return self.started is not None and self.started <= self.latest


def foreseen(
    first: Mapping[str, tuple[int, StartEstimate]],
    started: Mapping[str, int],
    queues: Mapping[str, str],
    start: int,
    last: int,
) -> tuple[Foreseen, ...]:
    """What can be judged: of groups that did not start at once, and have started or are late.

    Args:
        first: by group when it was told something, and what.
        started: by group when it started.
        queues: by group its queue.
        start: what the instants of estimates count from.
        last: the last instant.
    """
    found: list[Foreseen] = []
    for group, (told, estimate) in first.items():
        if estimate.time is None or estimate.latest is None:
            continue
        one = Foreseen(
            queues.get(group, ""), told, estimate.time - start, estimate.latest - start, started.get(group)
        )  # fmt: skip
        if one.started is None and last <= one.latest:
            continue  # it may yet come true
        if one.started is None or one.started > told:
            found.append(one)
    return tuple(found)


def judged(those: Sequence[Foreseen]) -> dict[str, Any]:
    """As it stands in `summary.estimates`; nothing where nobody was told anything."""
    if not those:
        return {}
    queues = sorted({one.queue for one in those})
    parts = {name: _judged([one for one in those if one.queue == name]) for name in queues}
    return {**_judged(those), "queues": parts}


def _judged(those: Sequence[Foreseen]) -> dict[str, Any]:
    errors = [one.started - one.time for one in those if one.started is not None]
    return {
        "groups": len(those),
        "held": round(sum(one.held for one in those) / len(those), 6),
        "within_a_minute": round(sum(abs(error) <= _CLOSE for error in errors) / len(those), 6),
        "median_error": round(statistics.median(errors) / SECOND, 6) if errors else None,
        "median_latest": round(statistics.median([one.latest - one.told for one in those]) / SECOND, 6),
    }
