"""Whether evictions are for something: on made days, each pod that is evicted leaves room that its beneficiary takes.

    python -m tests.bench.wasted [--evictions N] [--seed N] [--ways NAME ...] [--json FILE]

Days of gangs and single jobs in three queues and two priorities come to nodes of which some go and others come, with
reclaim, preemption and planned starts, seed after seed, until so many pods were evicted. Gangs here go as a whole or
not at all. An eviction counts as used when a pod of the group for whose sake it was is bound on that node afterwards,
and as part of a gang where that is so of another pod of the same gang, which had to go with it.

Three kinds are counted by themselves, and are no fault. DESIGN, section 4, says of a nomination: "while it stands its
gang evicts no more, moves to idle room if that appears, and only groups ahead in order may take its place". So the
group may have *moved* while the victim was not gone yet, and nothing could call that back: to a node where a pod has
ended since the eviction, or was evicted in a later cycle or for another group, or where another group's nomination has
ended. Or they were *exchanged*: with what the victims leave the planned start of another group was improved while they
were not gone yet, and the group moved to idle room that had been kept for that start. Or its place was *taken over*:
what was bound in the place of this victim, or of another one of the same plan, when that was gone is of a group of its
queue with a higher priority; or such a group was bound, before it was itself, to a node to which the plan had nominated
it.

What came of each other one is told: the group started *elsewhere*, the *node* was lost, the group was *evicted itself*
before it started, or it *never* started. Ends with status 1 where there is one.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import structs

from kbatch.api.configuration import DEFAULT_TEXT, parse
from kbatch.api.objects import Node, PodGroup
from kbatch.engine import build_policy
from kbatch.engine.decisions import Eviction
from kbatch.simulator.manifests import Declared, Manifests
from kbatch.simulator.result import CycleResult, Result
from kbatch.simulator.run import Limits, simulate
from kbatch.simulator.traces.day import DaySpec
from kbatch.simulator.traces.engine import objects_of
from kbatch.simulator.traces.generation import cluster_of, generate
from kbatch.times import HOUR, SECOND
from tests.bench.engine import keep
from tests.bench.policies import backfilling, example

EVICTIONS: Final = 20_000
SPEC: Final = {
    "days": 0.5,
    "load": 1.3,
    "nodes": {"count": 16, "cpu": 8},
    "queues": {"a": {"weight": 2, "arrivals": 3}, "b": {"arrivals": 3}, "c": {"arrivals": 2}},
    "kinds": [
        {
            "name": "single", "arrivals": 12, "tasks": {1: 6, 2: 2, 3: 1}, "cpu": "1",
            "run": {"median": 600, "p90": 3600, "most": 7200}, "priority": {0: 4, 100: 1},
        },
        {
            "name": "wide", "arrivals": 2, "tasks": {2: 3, 4: 2}, "cpu": "4",
            "run": {"median": 900, "p90": 3600, "most": 7200}, "priority": {0: 4, 100: 1},
        },
        {
            "name": "gang", "arrivals": 4, "tasks": {8: 4, 16: 2, 32: 1}, "cpu": "1",
            "run": {"median": 900, "p90": 3600, "most": 7200}, "priority": {0: 4, 100: 1},
        },
    ],
}  # fmt: skip
"""Half a day on 128 cores."""
MOVED: Final = "moved"
TAKEN_OVER: Final = "taken over"
EXCHANGED: Final = "exchanged"
RIGHT: Final = "used", "part of a gang", MOVED, TAKEN_OVER, EXCHANGED
HIGHER: Final = "priority-100"
"""The class of those of a higher priority than others, which have none."""
LOST: Final = 3
"""So many nodes go in each half day, each for an hour."""
WAYS: Final = {
    "default": DEFAULT_TEXT,
    "default, EASY": backfilling(DEFAULT_TEXT, "easy"),
    "default, conservative": backfilling(DEFAULT_TEXT, "conservative"),
    "flow": example("flow"),
    "flow, EASY": backfilling(example("flow"), "easy"),
}


@dataclass(slots=True)
class Tally:
    """What came of evictions, by kind; and some of those that were not used, in words."""

    kinds: Counter[str] = field(default_factory=Counter)
    wasted: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Figure:
    """What was counted under one configuration."""

    name: str
    days: int
    evictions: int
    kinds: dict[str, int]
    seconds: float

    @property
    def met(self) -> bool:
        """Whether each was used, or its room left as DESIGN has it."""
        return self.evictions == sum(self.kinds.get(kind, 0) for kind in RIGHT)


def world(seed: int) -> Manifests:
    """The objects of half a day; nodes go and come."""
    spec = DaySpec.model_validate(SPEC)
    trace = generate(spec, seed)
    chance = random.Random(seed)
    objects = list(objects_of(trace, cluster_of(spec)))
    nodes = [at for at, each in enumerate(objects) if isinstance(each.obj, Node)]
    for at in chance.sample(nodes, LOST):
        gone = chance.randrange(10 * HOUR)
        here = objects[at]
        objects[at] = replace(here, departure=gone)
        name = f"{here.obj.metadata.name}-again"
        objects.append(_node_again(here, name, gone + HOUR, len(objects)))
    return Manifests(tuple(objects), pods=sum(job.tasks for job in trace.jobs))


def _node_again(here: Declared, name: str, at: int, order: int) -> Declared:
    obj = structs.replace(here.obj, metadata=structs.replace(here.obj.metadata, name=name))
    return Declared(obj, here.place, at, order=order)


class _Bind(NamedTuple):
    """A pod of a group was bound, in this cycle."""

    cycle: int
    time: int
    node: str


class Past:
    """What happened in a run, for a look at what came of its evictions."""

    def __init__(self, manifests: Manifests, result: Result) -> None:
        self.pods = result.pods
        self.binds: dict[str, list[_Bind]] = defaultdict(list)
        self.evicted: dict[str, list[int]] = defaultdict(list)
        self.stood: dict[str, str] = {}
        self.lost: dict[str, int] = {}
        self._ended: dict[str, list[int]] = defaultdict(list)
        self._made: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self._given_up: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self._comers: dict[str, list[tuple[_Bind, str]]] = defaultdict(list)
        self._places: dict[str, tuple[str, str]] = {}
        for each in manifests.objects:
            name = each.obj.metadata.name
            if isinstance(each.obj, Node):
                self._ended[name].append(each.arrival)
                if each.departure is not None:
                    self.lost[name] = each.departure
            elif isinstance(each.obj, PodGroup):
                spec = each.obj.spec
                self._places[f"{each.obj.metadata.namespace}/{name}"] = spec.queue, spec.priority_class_name
        self._improved: list[tuple[int, str]] = []
        starts: dict[str, int] = {}
        for planned in result.planned:
            if planned.start is not None:
                if planned.start < starts.get(planned.group, 0):
                    self._improved.append((planned.told, planned.group))
                starts[planned.group] = planned.start
        nominated: dict[str, tuple[int, str]] = {}
        for cycle in result.cycles:
            for nomination in cycle.nominations:
                self._told(nominated.pop(nomination.pod, None), nomination.pod, nomination.node)
                if nomination.node:
                    nominated[nomination.pod] = cycle.number, nomination.node
            for bind in cycle.binds:
                self._told(nominated.pop(bind.pod, None), bind.pod, bind.node)
                group = _group_of(bind.pod)
                bound = _Bind(cycle.number, cycle.time, bind.node)
                self.binds[group].append(bound)
                self.stood[bind.pod] = bind.node
                self._comers[bind.node].append((bound, group))
            for eviction in cycle.evictions:
                self.evicted[_group_of(eviction.pod)].append(cycle.time)
                self._made[self.stood[eviction.pod]].append((cycle.number, eviction.beneficiary))
        for pod in result.pods.values():
            if pod.node is not None and pod.finished is not None:
                self._ended[pod.node].append(pod.finished)

    def _told(self, before: tuple[int, str] | None, pod: str, node: str | None) -> None:
        """A pod is nominated or bound to a node: if it was nominated to another one before, it gave that up."""
        if before is not None and before[1] != node:
            self._given_up[before[1]].append((before[0], _group_of(pod)))

    def later(self, group: str, cycle: int) -> list[_Bind]:
        """The group's binds after a cycle, in order."""
        return [bind for bind in self.binds[group] if bind.cycle > cycle]

    def moved(self, pod: str, group: str, cycle: CycleResult, later: Sequence[_Bind]) -> bool:
        """Whether the group for which the pod was evicted, and whose binds these are, moved to room that appeared."""
        gone, first = self.pods[pod].finished, later[0]
        if gone is None or first.time >= gone:
            return False
        nodes = {bind.node for bind in later if bind.cycle == first.cycle}
        return any(
            any(cycle.time < instant <= first.time for instant in self._ended[node])
            or any(cycle.number + (other == group) <= number < first.cycle for number, other in self._made[node])
            or any(number <= cycle.number and other != group for number, other in self._given_up[node])
            for node in nodes
        )

    def exchanged(self, pod: str, group: str, cycle: CycleResult, later: Sequence[_Bind]) -> bool:
        """Whether the start of another group was improved between the eviction and the group's start, before the pod
        was gone.
        """
        gone, first = self.pods[pod].finished, later[0]
        if gone is None or first.time >= gone:
            return False
        return any(cycle.time <= told <= first.time and other != group for told, other in self._improved)

    def taken_over(self, group: str, cycle: CycleResult, later: Sequence[_Bind]) -> bool:
        """Whether what was bound in the place of one of the plan's victims when that was gone, or to one of the plan's
        nodes before the group was bound itself, comes before the group in its queue.
        """
        queue, priority = self._places[group]
        if priority:
            return False
        others: set[str] = set()
        for pod in (each.pod for each in cycle.evictions if each.beneficiary == group):
            gone = self.pods[pod].finished
            others.update(other for bind, other in self._comers[self.stood[pod]] if bind.time == gone)
        until = later[0].cycle if later else None
        for node in {each.node for each in cycle.nominations if each.node and _group_of(each.pod) == group}:
            for bind, other in self._comers[node]:
                if cycle.number <= bind.cycle and (until is None or bind.cycle < until):
                    others.add(other)
        return any(self._places[other] == (queue, HIGHER) for other in others)


def look(past: Past, result: Result, tally: Tally, day: str) -> None:
    """Count what came of the evictions of a run."""
    for cycle in result.cycles:
        taken: dict[tuple[str, str], set[str]] = defaultdict(set)
        for eviction in cycle.evictions:
            later = past.later(eviction.beneficiary, cycle.number)
            if any(bind.node == past.stood[eviction.pod] for bind in later):
                taken[eviction.beneficiary, _group_of(eviction.pod)].add(past.stood[eviction.pod])
        for eviction in cycle.evictions:
            node, group = past.stood[eviction.pod], eviction.beneficiary
            gang = taken[group, _group_of(eviction.pod)]
            if node in gang:
                kind = "used"
            elif gang:
                kind = "part of a gang"
            else:
                kind = _left(past, eviction, cycle)
            tally.kinds[kind] += 1
            if kind not in RIGHT:
                tally.wasted.append(
                    f"{kind}: {day}, cycle {cycle.number}, {cycle.time / SECOND:.0f} s: {eviction.action} of"
                    f" {eviction.pod} on {node} for {group}"
                )


def _left(past: Past, eviction: Eviction, cycle: CycleResult) -> str:
    """What came of an eviction whose beneficiary did not take the room."""
    node, group = past.stood[eviction.pod], eviction.beneficiary
    later = past.later(group, cycle.number)
    if past.lost.get(node, -1) >= cycle.time and (not later or past.lost[node] <= later[0].time):
        return "node lost"
    if later and past.moved(eviction.pod, group, cycle, later):
        return MOVED
    if past.taken_over(group, cycle, later):
        return TAKEN_OVER
    if later and past.exchanged(eviction.pod, group, cycle, later):
        return EXCHANGED
    if later:
        return "elsewhere"
    return "evicted itself" if any(at >= cycle.time for at in past.evicted[group]) else "never"


def _group_of(pod: str) -> str:
    """`namespace/job-7` of `namespace/job-7-task-0`."""
    space, _, name = pod.partition("/")
    return f"{space}/{'-'.join(name.split('-')[:2])}"


def run(way: str, evictions: int, seeds: Iterator[int]) -> tuple[Figure, Tally]:
    """Days until so many were evicted."""
    policy, tally, began, days = build_policy(parse(WAYS[way], way)), Tally(), time.process_time(), 0
    while sum(tally.kinds.values()) < evictions:
        seed = next(seeds)
        manifests = world(seed)
        result = simulate(manifests, policy, Limits(None, 10**9))
        look(Past(manifests, result), result, tally, f"{way}, seed {seed}")
        days += 1
        print(f"     {way}: {days} days, {dict(tally.kinds)}, {time.process_time() - began:.0f} s", flush=True)
    return Figure(way, days, sum(tally.kinds.values()), dict(tally.kinds), time.process_time() - began), tally


def main() -> int:
    """Run the days; 1 where an eviction was for nothing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--evictions", type=int, default=EVICTIONS)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--json", type=Path, help="write one JSON line per configuration to this file")
    chosen = parser.parse_args()
    figures = []
    for way in chosen.ways:
        seeds = iter(range(chosen.seed, 10**9))
        figure, tally = run(way, -(-chosen.evictions // len(chosen.ways)), seeds)
        figures.append(figure)
        print(f"{'ok  ' if figure.met else 'MISS'} {way}: {figure.evictions} evictions, {figure.kinds}", flush=True)
        for line in tally.wasted[:20]:
            print(f"       {line}")
    return keep(figures, chosen.json)


if __name__ == "__main__":
    sys.exit(main())
