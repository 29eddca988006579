"""What was recorded beside what another policy made of the same arrivals and run times."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kbatch.api.names import QUEUE_LABEL
from kbatch.api.objects import Pod, PodGroup
from kbatch.closed_loop.history import History, Life
from kbatch.closed_loop.world import world_of
from kbatch.engine import Policy
from kbatch.model.requests import effective_request
from kbatch.resources import Resources, format_resources
from kbatch.simulator.pods import group_of, owner_of
from kbatch.simulator.result import Result
from kbatch.simulator.run import Limits, Progress, simulate
from kbatch.times import SECOND

_NO_LIMIT = 2**62


@dataclass(frozen=True, slots=True)
class Start:
    """When a group came and started, in microseconds after the first cycle; None: it did not."""

    group: str
    queue: str
    came: int
    recorded: int | None
    new: int | None

    @property
    def difference(self) -> int | None:
        """How much later it starts than it did, in microseconds; None unless it starts in both."""
        return None if self.recorded is None or self.new is None else self.new - self.recorded

    def json(self) -> dict[str, Any]:
        """As it stands in `groups`; in seconds."""
        times = {"came": self.came, "recorded": self.recorded, "new": self.new, "difference": self.difference}
        return {"group": self.group, "queue": self.queue} | {
            name: None if at is None else at / SECOND for name, at in times.items()
        }


@dataclass(frozen=True, slots=True)
class Sums:
    """One of the two runs. `wasted`: what evicted pods had run, `wait`: the mean of groups, in microseconds; those that
    never start wait to the end. `held`: by queue, what it held on average.
    """

    evictions: int
    wasted: int
    wait: float
    held: Mapping[str, Resources]

    def json(self) -> dict[str, Any]:
        """As it stands in `summary`."""
        return {
            "evictions": self.evictions,
            "wasted_seconds": self.wasted / SECOND,
            "mean_wait": round(self.wait / SECOND, 6),
            "held": {name: format_resources(amounts) for name, amounts in sorted(self.held.items())},
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both runs, from the first recorded cycle to the last.

    Attributes:
        cycles: how many were recorded. cycle: the median time from one to the next, in microseconds.
        length: of the whole, in microseconds.
        starts: of the groups that had no pod on a node when the log began.
        warnings: of the simulation.
    """

    cycles: int
    cycle: float
    length: int
    starts: tuple[Start, ...]
    recorded: Sums
    new: Sums
    warnings: tuple[str, ...]

    def json(self) -> dict[str, Any]:
        """As it stands in the output, but for the file."""
        differences = [start.difference for start in self.starts if start.difference is not None]
        return {
            "groups": [start.json() for start in self.starts],
            "summary": {
                "cycles": self.cycles,
                "cycle_seconds": self.cycle / SECOND,
                "seconds": self.length / SECOND,
                "earlier": _moved([-one for one in differences if one < 0]),
                "later": _moved([one for one in differences if one > 0]),
                "same": differences.count(0),
                "only_recorded": sum(one.recorded is not None and one.new is None for one in self.starts),
                "only_new": sum(one.recorded is None and one.new is not None for one in self.starts),
                "median_error": _seconds(statistics.median(map(abs, differences)) if differences else None),
                "recorded": self.recorded.json(),
                "new": self.new.json(),
            },
        }


def compare(history: History, policy: Policy, progress: Progress | None = None) -> Comparison:
    """Simulate a recorded time under a policy, as far as it was recorded.

    Raises:
        InputError: what was recorded cannot be simulated.
    """
    length = history.end - history.begin
    result = simulate(world_of(history), policy, Limits(length, _NO_LIMIT), progress=progress)
    starts = tuple(_starts(history, result))
    gaps = [after - before for before, after in pairwise(history.instants)]
    return Comparison(
        cycles=len(history.instants),
        cycle=statistics.median(gaps) if gaps else 0,
        length=length,
        starts=starts,
        recorded=_recorded(history, starts, length),
        new=_new(result, starts, length),
        warnings=result.warnings,
    )


def _starts(history: History, result: Result) -> Iterable[Start]:
    """Of the groups that waited or came in the time of the log, by name."""
    queues = _queues(history)
    came: dict[str, int] = {}
    for stay in history.stays:
        since, obj = stay.versions[0]
        if isinstance(obj, PodGroup):
            came.setdefault(f"{obj.metadata.namespace}/{obj.metadata.name}", since)
    ran: set[str] = set()
    for life in history.lives:
        if life.pod.spec.scheduler_name != history.scheduler_name:
            continue
        name = _counted_as(life.pod)
        came.setdefault(name, life.came)
        queues.setdefault(name, _queue(life, queues, history))
        if life.ran:
            ran.add(name)
    for name in sorted(came.keys() - ran):
        recorded = history.started.get(name)
        yield Start(
            name,
            queues[name],
            came[name] - history.begin,
            None if recorded is None else recorded - history.begin,
            result.started.get(name),
        )


def _counted_as(pod: Pod) -> str:
    """`namespace/name` by which verdicts call its group: that of the PodGroup, else of its controller or its own."""
    owner = owner_of(pod)
    return group_of(pod) or f"{pod.metadata.namespace}/{owner.name if owner is not None else pod.metadata.name}"


def _queues(history: History) -> dict[str, str]:
    """By PodGroup its queue, as it came."""
    return {
        f"{obj.metadata.namespace}/{obj.metadata.name}": obj.spec.queue
        for stay in reversed(history.stays)
        if isinstance(obj := stay.versions[0][1], PodGroup)
    }


def _queue(life: Life, queues: Mapping[str, str], history: History) -> str:
    group = group_of(life.pod)
    return queues.get(group) or (life.pod.metadata.labels or {}).get(QUEUE_LABEL) or history.default_queue


def _wait(starts: Sequence[Start], ends: Iterable[int | None], length: int) -> float:
    waits = [(length if at is None else at) - start.came for start, at in zip(starts, ends, strict=True)]
    return sum(waits) / len(waits) if waits else 0.0


def _recorded(history: History, starts: Sequence[Start], length: int) -> Sums:
    queues = _queues(history)
    evictions = wasted = 0
    held: dict[str, Resources] = {}
    for life in history.lives:
        since = life.bound if life.promised is None else life.promised
        if since is None or life.pod.spec.scheduler_name != history.scheduler_name:
            continue
        if life.evicted is not None and life.bound is not None:
            evictions, wasted = evictions + 1, wasted + life.evicted - life.bound
        until = min(at for at in (life.evicted, life.ended, history.end) if at is not None)
        amounts = held.setdefault(_queue(life, queues, history), {})
        for name, amount in effective_request(life.pod.spec).items():
            amounts[name] = amounts.get(name, 0) + amount * (until - since)
    return Sums(evictions, wasted, _wait(starts, [start.recorded for start in starts], length), _means(held, length))


def _new(result: Result, starts: Sequence[Start], length: int) -> Sums:
    evictions = wasted = 0
    for cycle in result.cycles:
        for eviction in cycle.evictions:
            evictions, wasted = evictions + 1, wasted + cycle.time - (result.pods[eviction.pod].bound or 0)
    held: dict[str, Resources] = {}
    for name, queue in result.queues.items():
        # Its mean counts to the last event; from there to the end nothing changes.
        rest = length - result.makespan
        amounts = {
            what: queue.mean.get(what, 0) * result.makespan + queue.allocated.get(what, 0) * rest
            for what in queue.mean.keys() | queue.allocated.keys()
        }
        held[name] = amounts
    return Sums(evictions, wasted, _wait(starts, [start.new for start in starts], length), _means(held, length))


def _means(held: Mapping[str, Resources], length: int) -> dict[str, Resources]:
    """What queues held on average, of what they held in all; without those that held nothing."""
    means = {
        queue: {name: round(amount / length) for name, amount in sorted(amounts.items()) if length and amount}
        for queue, amounts in sorted(held.items())
    }
    return {queue: amounts for queue, amounts in means.items() if amounts}


def _moved(lengths: Sequence[int]) -> dict[str, Any]:
    """How many moved, and by how much: the median, and what nine of ten do not exceed."""
    ordered = sorted(lengths)
    return {
        "groups": len(ordered),
        "median": _seconds(statistics.median(ordered) if ordered else None),
        "p90": _seconds(ordered[max(0, -(-len(ordered) * 9 // 10) - 1)] if ordered else None),
    }


def _seconds(microseconds: float | None) -> float | None:
    return None if microseconds is None else microseconds / SECOND
