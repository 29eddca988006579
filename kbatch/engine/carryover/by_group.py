"""Something that is known of each group of a queue, worked out again for those that have changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

from kbatch.model.jobs import Job, QueueRecord

_T = TypeVar("_T")


class _Known(NamedTuple, Generic[_T]):
    """What is known of a group, and the group's generation then."""

    job: Job
    generation: int
    what: _T


class ByGroup(Generic[_T]):
    """What is known of the groups that hold something in one queue."""

    def __init__(self) -> None:
        self._known: dict[str, _Known[_T]] = {}
        self._position: int | None = None
        """Up to where the queue's changes have been taken in; None: nothing is known of any group."""

    def __iter__(self) -> Iterator[_T]:
        return (known.what for known in self._known.values())

    def of(self, key: str) -> _T | None:
        """What is known of a group; None: nothing."""
        known = self._known.get(key)
        return known.what if known is not None else None

    def clear(self) -> None:
        """Nothing is known of any."""
        self._known.clear()
        self._position = None

    def follow(
        self, record: QueueRecord, work_out: Callable[[Job], _T], over: Callable[[_T], bool] | None = None
    ) -> Iterator[tuple[_T | None, _T | None]]:
        """What was known and what is, of each group of which that is another thing now; None: nothing.

        A group is looked at again where it has changed, or where `over` says so of what is known of it.
        """
        holders, known, position = record.holders, self._known, record.changes.position
        changed = record.changes.since(self._position) if self._position is not None and over is None else None
        keys = dict.fromkeys((*known, *holders) if changed is None else changed)
        for key in keys:
            before, job = known.get(key), holders.get(key)
            if job is None:
                if before is not None:
                    del known[key]
                    yield before.what, None
                continue
            same = before is not None and before.job is job and before.generation == job.generation
            if same and before is not None and not (over is not None and over(before.what)):
                continue
            known[key] = now = _Known(job, job.generation, work_out(job))
            yield before.what if before is not None else None, now.what
        self._position = position
