"""Whether evictions are for something: on made days, each pod that is evicted leaves room that its beneficiary takes.

    python -m tests.bench.wasted [--evictions N] [--seed N] [--ways NAME ...] [--json FILE]

Days of gangs and single jobs in three queues and two priorities come to nodes of which some go and others come, with
reclaim, preemption and planned starts, seed after seed, until so many pods were evicted. Gangs here go as a whole or
not at all. An eviction counts as used when a pod of the group for whose sake it was is bound on that node afterwards,
and as part of a gang where that is so of another pod of the same gang, which had to go with it. What came of each other
one is told: the group started *elsewhere*, the *node* was lost, the group was *evicted itself* before it started, or it
*never* started. Ends with status 1 where there is one.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from msgspec import structs

from kbatch.api.configuration import DEFAULT_TEXT, parse
from kbatch.api.objects import Node
from kbatch.engine import build_policy
from kbatch.simulator.manifests import Declared, Manifests
from kbatch.simulator.result import Result
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
USED: Final = "used", "part of a gang"
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
        """Whether each was used."""
        return self.evictions == sum(self.kinds.get(kind, 0) for kind in USED)


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


def look(result: Result, lost: dict[str, int], tally: Tally, day: str) -> None:
    """Count what came of the evictions of a run; `lost`: when nodes went."""
    binds: dict[str, list[tuple[int, str]]] = defaultdict(list)
    evicted: dict[str, list[int]] = defaultdict(list)
    stood: dict[str, str] = {}
    for cycle in result.cycles:
        for bind in cycle.binds:
            binds[_group_of(bind.pod)].append((cycle.time, bind.node))
            stood[bind.pod] = bind.node
        for eviction in cycle.evictions:
            evicted[_group_of(eviction.pod)].append(cycle.time)
    for cycle in result.cycles:
        taken: dict[tuple[str, str], set[str]] = defaultdict(set)
        for eviction in cycle.evictions:
            later = binds[eviction.beneficiary][bisect_right(binds[eviction.beneficiary], (cycle.time, "")) :]
            if any(there == stood[eviction.pod] for _, there in later):
                taken[eviction.beneficiary, _group_of(eviction.pod)].add(stood[eviction.pod])
        for eviction in cycle.evictions:
            node, group = stood[eviction.pod], eviction.beneficiary
            later = binds[group][bisect_right(binds[group], (cycle.time, "")) :]
            gang = taken[group, _group_of(eviction.pod)]
            if node in gang:
                kind = "used"
            elif gang:
                kind = "part of a gang"
            elif lost.get(node, -1) >= cycle.time and (not later or lost[node] <= later[0][0]):
                kind = "node lost"
            elif later:
                kind = "elsewhere"
            elif any(at >= cycle.time for at in evicted[group]):
                kind = "evicted itself"
            else:
                kind = "never"
            tally.kinds[kind] += 1
            if kind not in USED:
                tally.wasted.append(
                    f"{kind}: {day}, cycle {cycle.number}, {cycle.time / SECOND:.0f} s: {eviction.action} of"
                    f" {eviction.pod} on {node} for {group}"
                )


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
        lost = {
            each.obj.metadata.name: each.departure for each in manifests.objects if each.departure is not None
        }  # fmt: skip
        look(simulate(manifests, policy, Limits(None, 10**9)), lost, tally, f"{way}, seed {seed}")
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
