"""What planned starts keep of the room: of each row so much that a job which takes the rest delays none of them.

A planned start needs its room from its instant on. Until then others may have it: those that are gone in time. And of
what comes free on the row by then, it need not be kept now. So what is kept from a job is, over the instants at which
starts are planned while it runs, the most by which what is planned to stand there then exceeds what is expected to have
come free.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kbatch.engine.reservation.returns import Returns
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.node_resources import Index
from kbatch.engine.state.timeline import Release
from kbatch.model.nodes import Column
from kbatch.model.tasks import Task
from kbatch.resources import Resources, add_to, total


@dataclass(eq=False, slots=True)
class PlannedStart:
    """An entry of the ledger: a job is to start at an instant, on certain rows.

    Attributes:
        job: whose start it is.
        at: when, in microseconds since the epoch; None: the room is kept, and nobody knows when all of it comes free.
        until: when the job is expected to have ended; None: nobody knows.
        places: its pods with their rows.
        coming: what else comes free for this job alone: pods of groups whose lifetime is over, by row.
        returns: what comes back to the job's queue by then; None: nobody knows when that is.
        charge: what its job takes of its queue's excessBudget if the queue is above its share when it starts, beyond
            what it takes already: who starts before it may take the queue there. In millionths of a resource-minute.
        heeds: whether it matters to the job which pods stand on nodes, besides the room that they take.
        excludes: whether some of its pods exclude others from their nodes, besides by the room that they take.
        needs: by row, what its pods ask for. mark: what is kept, in plain data.
        place: in the order in which starts were planned.
    """

    job: JobState
    at: int | None
    until: int | None
    places: tuple[tuple[Task, int], ...]
    coming: Mapping[int, Sequence[Release]] = field(default_factory=dict)
    returns: Returns | None = None
    heeds: bool = False
    excludes: bool = False
    charge: int = 0
    needs: dict[int, Resources] = field(default_factory=dict)
    mark: tuple[object, ...] = ()
    place: int = 0

    def __post_init__(self) -> None:
        for task, row in self.places:
            add_to(self.needs.setdefault(row, {}), dict(task.cls.needs))
        places = tuple([(row, task.cls.id) for task, row in self.places])
        self.mark = self.job.key, self.at, self.until, places, self.charge

    def covers(self, instant: int) -> bool:
        """Whether its job is to stand on its rows at an instant, or might."""
        return (self.at is None or self.at <= instant) and (self.until is None or instant < self.until)


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """What is kept of rows, all different: of each dimension a column with an element for each of the rows; `mark` is
    that in plain data.
    """

    rows: Index
    amounts: Mapping[str, Column]
    mark: tuple[object, ...]


def columns_of(kept: Sequence[tuple[int, Resources]]) -> Kept:
    """What is kept, row by row, as columns."""
    names = sorted({name for _, amounts in kept for name in amounts})
    rows = np.array([row for row, _ in kept], np.intp)
    columns = {name: np.array([amounts.get(name, 0) for _, amounts in kept], np.int64) for name in names}
    return Kept(rows, columns, (rows.tobytes(), *[(name, columns[name].tobytes()) for name in names]))


NOTHING = columns_of(())


def kept_on(
    starts: Sequence[PlannedStart],
    since: int,
    coming: Callable[[int], Sequence[Release]] | None,
    leaving: Callable[[int], Sequence[Release]] | None = None,
) -> list[tuple[int, Resources]]:
    """What these starts keep, by row, from a job that takes room at `since` and is there when each of them is due.

    Args:
        starts: those that matter.
        since: the room that it is taken from is that of this instant.
        coming: the pods of a row that are expected to end, in order; None: nothing that ends is counted on.
        leaving: those that terminate, whose room is taken although they are there until their ends.
    """
    by_row: dict[int, list[PlannedStart]] = {}
    for start in starts:
        for row in start.needs:
            by_row.setdefault(row, []).append(start)
    found: list[tuple[int, Resources]] = []
    for row, some in by_row.items():
        kept = kept_of(some, row, since, None if coming is None else coming(row), leaving(row) if leaving else ())
        if kept:
            found.append((row, kept))
    return found


def kept_of(
    starts: Sequence[PlannedStart],
    row: int,
    since: int,
    coming: Sequence[Release] | None,
    leaving: Sequence[Release] = (),
) -> Resources:
    """The same of one row, of which `coming` are the pods that are expected to end, or None; and of `leaving` the room
    is taken although they are there until then. A start that is due may wait for these.
    """
    ends: list[Release] = []
    if coming is not None:
        ends += coming
        for start in starts:
            ends += start.coming.get(row, ())
    most: Resources = {}
    for moment in sorted({since if start.at is None else max(since, start.at) for start in starts}):
        left: Resources = {}
        for start in starts:
            if start.covers(moment):
                add_to(left, start.needs[row])
        for end in ends:
            if since < end.at <= moment:
                for name, amount in end.task.cls.needs:
                    if name in left:
                        left[name] -= amount
        for end in leaving:
            if since < moment < end.at:
                for name, amount in end.task.cls.needs:
                    if name in left:
                        left[name] += amount
        for name, amount in left.items():
            if amount > most.get(name, 0):
                most[name] = amount
    return most


def requests_of(start: PlannedStart) -> Resources:
    """What its job asks for."""
    return total(task.cls.request for task, _ in start.places)


def most_at_once(
    starts: Sequence[PlannedStart],
    since: int,
    freed: Callable[[PlannedStart], Resources],
    held_by: Callable[[PlannedStart], Resources] = requests_of,
) -> Resources:
    """The most that the jobs of these starts hold together at any instant from `since` on; of each dimension by itself.

    Args:
        starts: of one queue.
        since: see `kept_on`.
        freed: what is taken off for what ends in the queue until then.
        held_by: what the job of a start holds.
    """
    held: Resources = {}
    most: Resources = {}
    ends: list[tuple[int, int, Resources]] = []
    for number, start in enumerate(sorted(starts, key=lambda start: since if start.at is None else start.at)):
        moment = since if start.at is None else max(since, start.at)
        while ends and ends[0][0] <= moment:
            for name, amount in heapq.heappop(ends)[2].items():
                held[name] -= amount
        asked = held_by(start)
        add_to(held, asked)
        if start.until is not None:
            heapq.heappush(ends, (start.until, number, asked))
        gone = freed(start)
        for name, amount in held.items():
            left = amount - gone.get(name, 0)
            if amount and left > most.get(name, left - 1):
                most[name] = left
    return most
