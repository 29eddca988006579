"""What groups in queue were promised and do not hold yet: for sums by queue. Which room that is, says the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kbatch.engine.state.jobs import JobState
from kbatch.resources import Resources, add_to, subtract_from

_NOTHING: Final[Mapping[str, int]] = {}


@dataclass(slots=True)
class _Promise:
    """One group's; `then` is what it had when it was made, `left` what of `amounts` is counted now, in `sum`; `ends`:
    the group has a lifetime.
    """

    job: JobState
    then: Resources
    amounts: Resources
    left: Mapping[str, int]
    sum: Resources
    ends: bool


class Promises:
    """The promises of one session, by queue.

    A promise ends when the group's minimum is placed, which is done as a whole. What open statements do counts once
    they are committed.

    Args:
        committed: keys of the groups whose sums have changed for good; grows.

    Attributes:
        besides: what counts as promised besides, to groups with a lifetime (True) and without one, by queue; below 0
            where others hold less by then. ending_besides: some of these groups have a lifetime.
    """

    def __init__(self, committed: Sequence[str]) -> None:
        self._committed = committed
        self._cursor = 0
        self._kept: dict[str, _Promise] = {}
        self._sums: dict[tuple[str, bool], Resources] = {}
        self.besides: Mapping[tuple[str, bool], Mapping[str, int]] = {}
        self.ending_besides = False

    def keep(self, job: JobState, amounts: Mapping[str, int]) -> None:
        """The group is in queue, and is promised so much beyond what it has."""
        self._catch_up()
        before = self._kept.pop(job.key, None)
        if before is not None:
            _recount(before, _NOTHING)
        ends = job.ends
        where = self._sums.setdefault((job.queue, ends), {})
        promise = self._kept[job.key] = _Promise(job, dict(job.allocated), dict(amounts), _NOTHING, where, ends)
        _recount(promise, _left(promise))

    def __contains__(self, key: object) -> bool:
        """Whether the group of that key was promised anything in this cycle."""
        return key in self._kept

    def of(self, job: JobState) -> Mapping[str, int]:
        """What the group was promised and has not placed yet, in an open statement either."""
        promise = self._kept.get(job.key)
        return _left(promise) if promise is not None else _NOTHING

    def terms(self, job: JobState) -> tuple[Resources, Resources]:
        """What the group had when it was promised room, and how much that was."""
        promise = self._kept[job.key]
        return promise.then, promise.amounts

    def exceeded(self, job: JobState) -> bool:
        """Whether the group holds more than it had and was promised, of anything."""
        had, more = self.terms(job)
        return any(amount > had.get(name, 0) + more.get(name, 0) for name, amount in job.allocated.items())

    def sums(self, queue: str, besides: JobState | None = None) -> tuple[Resources, Resources]:
        """What the queue's groups without a lifetime, and those with one, were promised and have not placed yet; but
        for one group.
        """
        self._catch_up()
        return self._of(queue, False, besides), self._of(queue, True, besides)

    def endless(self, queue: str) -> Mapping[str, int]:
        """The first of these, of all its groups. Not to be changed."""
        self._catch_up()
        if self.besides:
            return self._of(queue, False, None)
        return self._sums.get((queue, False), _NOTHING)

    def part_of_endless(self, job: JobState | None) -> Mapping[str, int]:
        """As much of that is one group's. Not to be changed."""
        promise = self._kept.get(job.key) if job is not None else None
        return promise.left if promise is not None and not promise.ends else _NOTHING

    def without(self, queue: str, job: JobState) -> Mapping[tuple[str, bool], Resources]:
        """What to count `besides`, so that nothing counts that was promised to other groups of a queue than one."""
        found = zip((False, True), self.sums(queue, job), strict=True)
        return {(queue, ends): {name: -amount for name, amount in sums.items()} for ends, sums in found}

    def _of(self, queue: str, ends: bool, besides: JobState | None) -> Resources:
        found = dict(self._sums.get((queue, ends), {}))
        own = self._kept.get(besides.key) if besides is not None else None
        if own is not None and own.ends == ends:
            subtract_from(found, own.left)
        if self.besides:
            add_to(found, self.besides.get((queue, ends), {}))
        return found

    def _catch_up(self) -> None:
        if not self._kept:
            self._cursor = len(self._committed)
            return
        while self._cursor < len(self._committed):
            promise = self._kept.get(self._committed[self._cursor])
            self._cursor += 1
            if promise is not None:
                _recount(promise, _left(promise))


def _left(promise: _Promise) -> Mapping[str, int]:
    job = promise.job
    return promise.amounts if job.in_queue and job.missing() else _NOTHING


def _recount(promise: _Promise, left: Mapping[str, int]) -> None:
    """Count so much of it in the place of what is counted."""
    if left is promise.left:
        return
    subtract_from(promise.sum, promise.left)
    add_to(promise.sum, left)
    promise.left = left
