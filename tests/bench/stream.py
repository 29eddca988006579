"""Jobs of one pod in a stream: a million cores that are full, a hundred thousand jobs wait, flow and planned starts.

    python -m tests.bench.stream [--seconds N] [--nodes N] [--depth N] [--step SECONDS] [--json FILE]

A clock of its own goes on by what the engine takes of the processor: while a cycle is decided, jobs end and others
come, so a slower engine has more to decide at once. A job counts as considered when the first cycle that knew of it has
ended. What the model takes to hear of it all is the watcher's work, and is shown beside it. Ends with status 1 where a
limit is missed.

With `--step` the clock goes on by so much from cycle to cycle instead, whatever they take: two versions of the engine
have the same to decide, and the digest of what they decide is printed.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import heapq
import random
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from math import floor
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from kbatch.api import conditions
from kbatch.api.configuration import parse
from kbatch.api.names import GROUP_NAME_ANNOTATION
from kbatch.api.objects import (
    AnyObject,
    Container,
    Metadata,
    Node,
    NodeStatus,
    Pod,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    PodSpec,
    PodStatus,
    Queue,
    QueueSpec,
    ResourceRequirements,
)
from kbatch.engine import (
    CycleState,
    Memo,
    NullObserver,
    Policy,
    Transaction,
    Verdict,
    build_policy,
    cycle,
    take_snapshot,
    verdict_conditions,
)
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from kbatch.process import huge_pages
from kbatch.times import SECOND
from tests.bench.engine import NOW, keep
from tests.bench.policies import backfilling, example

CORES: Final = 100
QUEUES: Final = 20
SIZES: Final = ((1, 30), (2, 20), (4, 20), (8, 10), (16, 10), (32, 7), (64, 3))
"""Cores of a job, and how many of a hundred ask for as many."""
RATE: Final = 5650
"""So many jobs end in a second of the clock, as long as a cluster of 10,000 nodes is full. It is not quite full: jobs
are of unlike sizes, and what comes free is given out a cycle later. So 5,250 can start with cycles of 0.3 s, and 5,020
with cycles of half a second: somewhat more than are to be decided (`LEAST_RATE`). For each that starts another one
comes: the queue stays as deep as it is.
"""
GAP: Final = 0.05
"""Seconds between the beginnings of two cycles at the least, as in the scheduler."""
SETTLED: Final = 20
"""Before that the clock stands still until a cycle decides nothing, for so many cycles at most."""
LEAST_RATE: Final = 5000.0
MOST_WAIT: Final = 1.0
EXPECTED: Final = "kbatch.dev/expected-seconds"


@dataclass(frozen=True, slots=True)
class Figure:
    """What one run gave: decisions in a second of the engine's, and seconds until a job was considered; memory in MiB.
    `model` are seconds that the model took for a thousand decisions. `digest` is of all that was decided: of use where
    the clock did not depend on the machine.
    """

    name: str
    nodes: int
    depth: int
    running: int
    decisions: int
    evictions: int
    cycles: int
    rate: float
    p50: float
    p99: float
    longest_cycle: float
    model: float
    memory: float
    digest: str
    met: bool


class Stream:
    """The cluster, and what happens to it."""

    def __init__(self, nodes: int, depth: int, seed: int = 1) -> None:
        self.chance = random.Random(seed)
        self.model = ClusterModel()
        self.made = 0
        self.ends: list[tuple[float, str]] = []
        self.seconds: dict[str, float] = {}
        self.come: dict[str, float] = {}
        self.evictions = 0
        mean = sum(size * part for size, part in SIZES) / sum(part for _, part in SIZES)
        self.run = nodes * CORES / mean / (RATE * nodes / 10_000)
        """Mean run time, in seconds."""
        for obj in self._cluster(nodes):
            self.model.apply(Upsert(obj))
        self.used = dict.fromkeys(range(QUEUES), 0)
        for index in range(nodes):
            self._fill(f"n{index:05}")
        for _ in range(depth):
            self.arrive(0.0)
        self.come.clear()

    def _cluster(self, nodes: int) -> Iterator[AnyObject]:
        for index in range(QUEUES):
            yield Queue(metadata=Metadata(name=f"q{index:02}"), spec=QueueSpec(weight=_weight(index)))
        for index in range(nodes):
            name = f"n{index:05}"
            yield Node(
                metadata=Metadata(name=name, labels={"kubernetes.io/hostname": name}),
                status=NodeStatus(allocatable={"cpu": str(CORES), "memory": "512Gi", "pods": "110"}),
            )

    def _fill(self, node: str) -> None:
        """Let jobs run on a node until the next one does not fit, some of their time over: for how long they have run
        and will run yet, as at any moment of a stream that has gone on for long, in which the longer ones are more than
        among those that come. So as many end at the beginning as later.
        """
        left = CORES
        runs = verdict_conditions(Verdict("", shadow=False, enqueued=True, scheduled=True), 1)
        while (size := self._size()) <= left:
            left -= size
            queue = min(self.used, key=lambda queue: self.used[queue] / _weight(queue))
            self.used[queue] += size
            ran, runs_yet = (self.chance.expovariate(1 / self.run) for _ in range(2))
            since = _stamp(-ran)
            group, pod = self._job(size, queue, since, ran + runs_yet)
            group = replace(group, status=PodGroupStatus(conditions=conditions.merge((), runs, since)))
            self.model.apply(Upsert(group))
            self.model.apply(Upsert(_bound(pod, node, -ran)))
            heapq.heappush(self.ends, (runs_yet, group.metadata.name))
            del self.seconds[group.metadata.name]

    def _size(self) -> int:
        sizes, parts = zip(*SIZES, strict=True)
        return int(self.chance.choices(sizes, parts)[0])

    def _job(self, size: int, queue: int, stamp: str, seconds: float) -> tuple[PodGroup, Pod]:
        """A job; its user says up to three times as much as it runs."""
        name = f"j{self.made:07}"
        self.made += 1
        said = {EXPECTED: f"{seconds * self.chance.uniform(1, 3):.1f}"}
        group = PodGroup(
            metadata=Metadata(
                name=name, namespace="ns", uid=name, creation_timestamp=stamp, generation=1, annotations=said
            ),
            spec=PodGroupSpec(min_member=1, queue=f"q{queue:02}"),
        )
        wanted = ResourceRequirements(requests={"cpu": str(size), "memory": f"{4 * size}Gi"})
        pod = Pod(
            metadata=Metadata(
                name=f"{name}-0", namespace="ns", uid=f"{name}-0", creation_timestamp=stamp,
                annotations={GROUP_NAME_ANNOTATION: name},
            ),
            spec=PodSpec(
                scheduler_name="kube-batch", containers=(Container(name="main", image="busybox", resources=wanted),)
            ),
            status=PodStatus(phase="Pending"),
        )  # fmt: skip
        self.seconds[name] = seconds
        return group, pod

    def pass_to(self, clock: float, since: float, coming: int) -> None:
        """What happens until an instant: running jobs end, and so many others come."""
        while self.ends and self.ends[0][0] <= clock:
            self._gone(heapq.heappop(self.ends)[1])
        for at in range(coming):
            self.arrive(since + (clock - since) * (at + 1) / coming)

    def _gone(self, name: str) -> None:
        """A job and its pod are there no more: ended, or evicted."""
        if f"ns/{name}-0" in self.model.tasks:
            self.model.apply(Delete(Pod, "ns", f"{name}-0"))
            self.model.apply(Delete(PodGroup, "ns", name))

    def arrive(self, at: float) -> None:
        """A job comes."""
        seconds = max(1.0, self.chance.expovariate(1 / self.run))
        group, pod = self._job(self._size(), self.chance.randrange(QUEUES), _stamp(at), seconds)
        self.model.apply(Upsert(group))
        self.model.apply(Upsert(pod))
        self.come[group.metadata.name] = at

    def considered(self, clock: float) -> list[float]:
        """How long those waited for it that a cycle which has ended now knew of for the first time."""
        found = [clock - at for at in self.come.values()]
        self.come.clear()
        return found

    def carry_out(self, transactions: list[Transaction], verdicts: list[Verdict], clock: float) -> int:
        """Do what was decided, and write what has changed of how groups stand, as the scheduler does; the binds."""
        binds, stamp = 0, _stamp(clock)
        for verdict in verdicts:
            job = self.model.jobs.get(verdict.job)
            if job is None or job.group is None:
                continue
            standing = job.group.status.conditions or ()
            merged = conditions.merge(standing, verdict_conditions(verdict, 1), stamp)
            if [(each.type, each.status, each.reason) for each in merged] != [
                (each.type, each.status, each.reason) for each in standing
            ]:
                self.model.apply(Upsert(replace(job.group, status=replace(job.group.status, conditions=merged))))
        for transaction in transactions:
            for eviction in transaction.evictions:
                self._gone(eviction.pod.removeprefix("ns/").removesuffix("-0"))
                self.evictions += 1
            for bind in transaction.binds:
                pod = self.model.tasks[bind.pod].pod
                self.model.assume(bind.pod, bind.uid, bind.node)
                self.model.apply(Upsert(_bound(pod, bind.node, clock)))
                name = bind.pod.removeprefix("ns/").removesuffix("-0")
                heapq.heappush(self.ends, (clock + self.seconds.pop(name), name))
                binds += 1
        return binds


def _weight(queue: int) -> int:
    return 1 + queue % 3


def _bound(pod: Pod, node: str, since: float) -> Pod:
    """The pod as its kubelet reports it that runs since then; without that it would seem to run since it was made."""
    status = PodStatus(phase="Running", start_time=_stamp(since))
    return replace(pod, spec=replace(pod.spec, node_name=node), status=status)


def _stamp(clock: float) -> str:
    return datetime.fromtimestamp(NOW // SECOND + floor(clock), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def policy() -> Policy:
    """Flow, and planned starts: everything that is not on as shipped."""
    return build_policy(parse(backfilling(example("flow"), "easy"), "stream"))


def _decide(
    stream: Stream, by: Policy, memo: Memo, state: CycleState, clock: float
) -> tuple[list[Transaction], list[Verdict], Memo, CycleState, float]:
    """One cycle: what it has decided and left, and seconds of the processor."""
    transactions: list[Transaction] = []
    verdicts: list[Verdict] = []
    began = time.process_time()
    steps = cycle(take_snapshot(stream.model, NOW + round(clock * SECOND), state), by, memo, NullObserver())
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            return transactions, verdicts, end.value.memo, end.value.state, time.process_time() - began
        if isinstance(step, Transaction):
            transactions.append(step)
        elif isinstance(step, Verdict):
            verdicts.append(step)


def run(nodes: int, depth: int, seconds: float, step: float | None = None) -> Figure:
    """So many seconds of the clock; with `step` each cycle takes so long by it."""
    stream, by = Stream(nodes, depth), policy()
    running = len(stream.ends)
    memo, state = Memo(), CycleState()
    gc.collect()
    gc.freeze()
    gc.disable()
    clock = listening = longest = working = 0.0
    said = hashlib.sha256()
    waits: list[float] = []
    binds = cycles = 0
    for _ in range(SETTLED):
        transactions, verdicts, memo, state, _ = _decide(stream, by, memo, state, 0.0)
        stream.carry_out(transactions, verdicts, 0.0)
        if not transactions:
            break
    huge_pages.use()  # as the scheduler has it
    stream.evictions = 0
    while clock < seconds:
        transactions, verdicts, memo, state, taken = _decide(stream, by, memo, state, clock)
        cycles, longest, working = cycles + 1, max(longest, taken), working + taken
        for decided in (*transactions, *verdicts):
            said.update(repr(decided).encode())
        taken = taken if step is None else step
        waits += stream.considered(clock + taken)
        before, clock = clock, clock + max(GAP, taken)
        moment = time.process_time()
        started = stream.carry_out(transactions, verdicts, clock)
        binds += started
        stream.pass_to(clock, before, started)
        listening += time.process_time() - moment
        gc.collect(1)
    waits.sort()
    rate, p99 = binds / (clock if step is None else working), waits[int(len(waits) * 0.99)]
    return Figure(
        "stream", nodes, depth, running, binds, stream.evictions, cycles, rate, waits[len(waits) // 2], p99, longest,
        listening / binds * 1000, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, said.hexdigest(),
        rate >= LEAST_RATE and p99 <= MOST_WAIT,
    )  # fmt: skip


def main() -> int:
    """Run it; 1 where a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=20.0, help="of the clock; by default 20")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--depth", type=int, default=100_000)
    parser.add_argument("--step", type=float, help="seconds from cycle to cycle, in the place of what the engine takes")
    parser.add_argument("--json", type=Path, help="write one JSON line to this file")
    chosen = parser.parse_args()
    found = run(chosen.nodes, chosen.depth, chosen.seconds, chosen.step)
    print(
        f"{'ok  ' if found.met else 'MISS'} {found.nodes} nodes, {found.running} jobs run, {found.depth} wait:"
        f" {found.decisions} decisions in {found.cycles} cycles ({found.evictions} evicted),"
        f" {found.rate:.0f} a second (>= {LEAST_RATE:.0f}),"
        f" considered after {found.p50:.2f} s, p99 {found.p99:.2f} s (<= {MOST_WAIT:g} s); longest cycle"
        f" {found.longest_cycle:.2f} s; the model {found.model:.3f} s for a"
        f" thousand; {found.memory:.0f} MiB" + (f"; digest {found.digest[:16]}" if chosen.step is not None else ""),
        flush=True,
    )
    return keep([found], chosen.json)


if __name__ == "__main__":
    sys.exit(main())
