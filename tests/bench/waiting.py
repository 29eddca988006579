"""What a cycle costs where much waits and little changes: a full cluster, a deep queue, one change in each cycle.

    python -m tests.bench.waiting [--cycles N] [--arrivals] [--affinity] [--json FILE] [NAME ...]

Every cycle one running pod ends (with `--arrivals` one group comes as well), and the cycle is timed from the snapshot
to its outcome, in seconds of this process on the processor. What it decides is carried out at once: binds are assumed
and confirmed, victims go before the next cycle. Ends with status 1 where a limit is missed.

Before that the cluster comes to rest: nothing happens to it, a second apart, until several cycles in succession have
decided nothing. The first of these make room for whoever has a right to it, and one cycle without a decision is not
the end of that: what it says of the groups is written, and the next one may decide otherwise.

The groups are of many shapes: sizes from 8 to 27 pods, three priorities, one role or two of unlike size, with or
without a node selector, topology spread, minResources; queues with and without capability, namespaces with and without
ResourceQuota. Of the deepest row nine in ten wait as clusters with delayed pod creation have them: as PodGroups whose
pods are yet to be made.
"""

from __future__ import annotations

import argparse
import gc
import random
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from kbatch.api import conditions
from kbatch.api.configuration import DEFAULT
from kbatch.api.names import GROUP_NAME_ANNOTATION, SUB_GROUP_LABEL
from kbatch.api.objects import (
    Affinity,
    AnyObject,
    Container,
    LabelSelector,
    Metadata,
    Node,
    NodeStatus,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    PodSpec,
    PodStatus,
    PriorityClass,
    Queue,
    QueueSpec,
    ResourceQuota,
    ResourceQuotaSpec,
    ResourceRequirements,
    SubGroup,
    TopologySpreadConstraint,
)
from kbatch.engine import (
    CycleState,
    Memo,
    NullObserver,
    Transaction,
    Verdict,
    build_policy,
    cycle,
    take_snapshot,
    verdict_conditions,
)
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from kbatch.times import SECOND
from tests.bench.engine import NOW, STAMP, keep

NAMESPACES = 20
SIZES = (8, 27)
SETTLED = 5
"""After so many cycles in succession that decided nothing the cluster is at rest, and cycles are timed."""
WARM_UP = 200
"""So many cycles at most that takes; a row that has not come to rest by then is not measured as it should be."""


@dataclass(frozen=True, slots=True)
class Row:
    """A cluster, its running groups of one pod of a CPU, and what waits; seconds of the processor per cycle."""

    name: str
    nodes: int
    running: int
    waiting: int
    shapes: int
    queues: int
    without_pods: float
    mean: float
    p99: float | None
    cycles: int
    memory: int | None = None


ROWS = (
    Row("thousand", 40, 1280, 1000, 20, 4, 0.0, 0.005, 0.010, 300),
    Row("ten-thousand", 1000, 20_000, 10_000, 200, 50, 0.0, 0.020, 0.040, 200),
    Row("hundred-thousand", 10_000, 100_000, 100_000, 1000, 50, 0.9, 0.100, None, 60, 3072),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """What groups that are alike ask for: per role its name, pods, and CPUs of each."""

    roles: tuple[tuple[str, int, int], ...]
    priority: str
    selector: str
    spread: bool
    affinity: bool
    stated: bool

    @property
    def size(self) -> int:
        return sum(count for _, count, _ in self.roles)

    @property
    def cpus(self) -> int:
        return sum(count * cpus for _, count, cpus in self.roles)


@dataclass(frozen=True, slots=True)
class Figure:
    """What one row gave. `binds` and `evictions` are those of the timed cycles; `rest` is how many went before them."""

    name: str
    arrivals: bool
    affinity: bool
    waiting: int
    pods: int
    first: float
    mean: float
    p50: float
    p99: float
    slice: float
    memory: float
    binds: int
    evictions: int
    rest: int
    met: bool


def shapes_of(count: int, chance: random.Random, *, affinity: bool, sizes: tuple[int, int] = SIZES) -> list[Shape]:
    """So many shapes, of gangs of at least and at most so many pods."""
    found = []
    for at in range(count):
        size = chance.randint(*sizes)
        roles: tuple[tuple[str, int, int], ...] = (("", size, chance.choice((1, 1, 2, 4))),)
        if at % 4 == 3:
            masters = chance.randint(1, 3)
            roles = (("master", masters, 4), ("worker", size - masters, 1))
        found.append(
            Shape(
                roles, chance.choice(("low", "low", "mid", "high")), chance.choice(("", "", "a", "b")),
                spread=at % 5 == 4, affinity=affinity and at % 3 == 0, stated=at % 2 == 0,
            )
        )  # fmt: skip
    return found


def pods_of(name: str, namespace: str, shape: Shape, stamp: str) -> Iterator[Pod]:
    for role, count, cpus in shape.roles:
        wanted = ResourceRequirements(requests={"cpu": str(cpus), "memory": f"{2 * cpus}Gi"})
        alike = LabelSelector(match_labels={"app": name})
        spec = PodSpec(
            scheduler_name="kube-batch", containers=(Container(name="main", image="busybox", resources=wanted),),
            node_selector={"kind": shape.selector} if shape.selector else None,
        )  # fmt: skip
        if shape.spread:
            spec.topology_spread_constraints = (
                TopologySpreadConstraint(
                    max_skew=2, topology_key="zone", when_unsatisfiable="DoNotSchedule", label_selector=alike
                ),
            )
        if shape.affinity:
            term = PodAffinityTerm(topology_key="zone", label_selector=alike)
            spec.affinity = Affinity(pod_affinity=PodAffinity(required=(term,)))
        for index in range(count):
            one = f"{name}-{role}{index}"
            labels = {"app": name, SUB_GROUP_LABEL: role} if role else {"app": name}
            yield Pod(
                metadata=Metadata(
                    name=one, namespace=namespace, uid=one, creation_timestamp=stamp, labels=labels,
                    annotations={GROUP_NAME_ANNOTATION: name},
                ),
                spec=spec,
                status=PodStatus(phase="Pending"),
            )  # fmt: skip


def waiting_group(name: str, namespace: str, shape: Shape, queue: str, stamp: str, *, stated: bool) -> PodGroup:
    subs = tuple(SubGroup(name=role, min_member=count) for role, count, _ in shape.roles if role)
    least: dict[str, str | int | float] | None = None
    if stated:
        least = {"cpu": str(shape.cpus), "memory": f"{2 * shape.cpus}Gi"}
    return PodGroup(
        metadata=Metadata(name=name, namespace=namespace, uid=name, creation_timestamp=stamp, generation=1),
        spec=PodGroupSpec(
            min_member=shape.size, queue=queue, priority_class_name=shape.priority, sub_groups=subs, min_resources=least
        ),
    )


def cluster_of(nodes: int, cpus: int, queues: int) -> Iterator[AnyObject]:
    """Priority classes, queues, quotas and nodes of so many CPUs: what is there before any pod."""
    for name, value in (("low", 1), ("mid", 10), ("high", 100)):
        yield PriorityClass(metadata=Metadata(name=name), value=value)
    for index in range(queues):
        capability: dict[str, str | int | float] | None = None
        if index % 5 == 4:
            capability = {"cpu": str(32 * nodes // 4)}
        yield Queue(metadata=Metadata(name=f"q{index}"), spec=QueueSpec(weight=1 + index % 3, capability=capability))
    for index in range(0, NAMESPACES, 4):
        hard: dict[str, str | int | float] = {"requests.cpu": str(32 * nodes // 2)}
        yield ResourceQuota(metadata=Metadata(name="quota", namespace=f"ns{index}"), spec=ResourceQuotaSpec(hard=hard))
    for index in range(nodes):
        labels = {
            "kubernetes.io/hostname": f"n{index:05}", "zone": f"z{index % 8}", "kind": "ab"[index % 2],
        }  # fmt: skip
        yield Node(
            metadata=Metadata(name=f"n{index:05}", labels=labels),
            status=NodeStatus(allocatable={"cpu": str(cpus), "memory": "256Gi", "pods": "110"}),
        )


class World:
    """The cluster of a row, and the changes that befall it."""

    def __init__(self, row: Row, *, affinity: bool, seed: int = 1) -> None:
        self.row = row
        self.chance = random.Random(seed)
        self.shapes = shapes_of(row.shapes, self.chance, affinity=affinity)
        self.model = ClusterModel()
        self.running: list[str] = []
        self.pods = 0
        self.groups = 0
        for obj in self._standing():
            self.model.apply(Upsert(obj))
        for _ in range(row.waiting):
            self.arrive()

    def _standing(self) -> Iterator[AnyObject]:
        row = self.row
        yield from cluster_of(row.nodes, row.running // row.nodes, row.queues)
        wanted = ResourceRequirements(requests={"cpu": "1", "memory": "2Gi"})
        spec = [
            PodSpec(
                scheduler_name="kube-batch", node_name=f"n{index:05}",
                containers=(Container(name="main", image="busybox", resources=wanted),),
            )
            for index in range(row.nodes)
        ]  # fmt: skip
        runs = verdict_conditions(Verdict("", shadow=False, enqueued=True, scheduled=True), 1)
        for at in range(row.running):
            name, namespace = f"r{at:06}", f"ns{self.chance.randrange(NAMESPACES)}"
            priority = self.chance.choice(("low", "mid", "high"))
            yield PodGroup(
                metadata=Metadata(name=name, namespace=namespace, uid=name, creation_timestamp=STAMP, generation=1),
                spec=PodGroupSpec(
                    min_member=1, queue=f"q{self.chance.randrange(row.queues)}", priority_class_name=priority
                ),
                status=PodGroupStatus(conditions=conditions.merge((), runs, STAMP)),
            )
            self.running.append(f"{namespace}/{name}-0")
            yield Pod(
                metadata=Metadata(
                    name=f"{name}-0", namespace=namespace, uid=name, creation_timestamp=STAMP,
                    annotations={GROUP_NAME_ANNOTATION: name},
                ),
                spec=spec[at % row.nodes],
                status=PodStatus(phase="Running"),
            )  # fmt: skip

    def arrive(self) -> None:
        """One more group comes."""
        chance, at = self.chance, self.groups
        self.groups += 1
        shape = chance.choice(self.shapes)
        name, namespace = f"w{at:06}", f"ns{chance.randrange(NAMESPACES)}"
        stamp = f"2026-01-01T00:00:{at * 59 // max(1, self.row.waiting) % 60:02}Z"
        bare = chance.random() < self.row.without_pods
        queue = f"q{chance.randrange(self.row.queues)}"
        self.model.apply(Upsert(waiting_group(name, namespace, shape, queue, stamp, stated=bare or shape.stated)))
        if not bare:
            for pod in pods_of(name, namespace, shape, stamp):
                self.model.apply(Upsert(pod))
                self.pods += 1

    def end_one(self) -> None:
        """A running pod ends, and its group with it."""
        key = self.running.pop(self.chance.randrange(len(self.running)))
        self._remove(key)

    def _remove(self, key: str) -> None:
        """A pod goes, and its group with it if that is one of the first, which consist of one pod."""
        namespace, _, name = key.partition("/")
        self.model.apply(Delete(Pod, namespace, name))
        group, _, last = name.rpartition("-")
        if group.startswith("r") and last == "0":
            self.model.apply(Delete(PodGroup, namespace, group))

    def carry_out(self, transactions: list[Transaction], verdicts: list[Verdict], stamp: str) -> tuple[int, int]:
        """Do what was decided, and write what has changed of how groups stand, as the scheduler does."""
        binds = evictions = 0
        for verdict in verdicts:
            group = self.model.jobs[verdict.job].group if verdict.job in self.model.jobs else None
            if group is None:
                continue
            standing = group.status.conditions or ()
            merged = conditions.merge(standing, verdict_conditions(verdict, 1), stamp)
            if [(each.type, each.status, each.reason) for each in merged] != [
                (each.type, each.status, each.reason) for each in standing
            ] or verdict.attempts != group.status.scheduling_attempts:
                status = replace(group.status, conditions=merged, scheduling_attempts=verdict.attempts)
                self.model.apply(Upsert(replace(group, status=status)))
        for transaction in transactions:
            for bind in transaction.binds:
                pod = self.model.tasks[bind.pod].pod
                self.model.assume(bind.pod, bind.uid, bind.node)
                runs = replace(pod, spec=replace(pod.spec, node_name=bind.node), status=PodStatus(phase="Running"))
                self.model.apply(Upsert(runs))
                self.running.append(bind.pod)
                binds += 1
            for eviction in transaction.evictions:
                self._remove(eviction.pod)
                self.running.remove(eviction.pod)
                evictions += 1
        return binds, evictions


def run(row: Row, *, arrivals: bool, affinity: bool, cycles: int) -> Figure:
    """One row."""
    world = World(row, affinity=affinity)
    policy = build_policy(DEFAULT)
    memo, state = Memo(), CycleState()
    times: list[float] = []
    longest = 0.0
    first = 0.0
    quiet = 0
    binds = evictions = 0
    gc.collect()
    gc.freeze()
    gc.disable()
    at, rest = -1, 0
    for number in range(WARM_UP + cycles):
        if at >= 0 or quiet == SETTLED or number == WARM_UP:
            at += 1
            rest = rest or number
        if at == cycles:
            break
        if at >= 0:
            world.end_one()
            if arrivals:
                world.arrive()
        transactions: list[Transaction] = []
        verdicts: list[Verdict] = []
        began = last = time.process_time()
        now = NOW + number * SECOND
        steps = cycle(take_snapshot(world.model, now, state), policy, memo, NullObserver())
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                memo, state = end.value.memo, end.value.state
                break
            moment = time.process_time()
            if at >= 0:
                longest = max(longest, moment - last)
            last = moment
            if isinstance(step, Transaction):
                transactions.append(step)
            elif isinstance(step, Verdict):
                verdicts.append(step)
        taken = time.process_time() - began
        if at >= 0:
            times.append(taken)
        elif number == 0:
            first = taken
        made = world.carry_out(
            transactions, verdicts, datetime.fromtimestamp(now // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        )
        quiet = 0 if transactions else quiet + 1
        if at >= 0:
            binds, evictions = binds + made[0], evictions + made[1]
    gc.enable()
    gc.unfreeze()
    times.sort()
    mean, p99 = sum(times) / len(times), times[min(len(times) - 1, int(len(times) * 0.99))]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    met = rest < WARM_UP and (
        mean <= row.mean and (row.p99 is None or p99 <= row.p99) and (row.memory is None or memory <= row.memory)
    )  # fmt: skip
    return Figure(
        row.name, arrivals, affinity, row.waiting, world.pods, first, mean, times[len(times) // 2], p99, longest,
        memory, binds, evictions, rest, met,
    )  # fmt: skip


def main() -> int:
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write one JSON line per figure to this file")
    parser.add_argument("--cycles", type=int, help="how many cycles are timed; by default each row's own number")
    parser.add_argument("--arrivals", action="store_true", help="one group arrives in each cycle")
    parser.add_argument("--affinity", action="store_true", help="a third of the shapes want their pods in one zone")
    parser.add_argument("names", nargs="*", choices=[[], *names], help="which rows; all by default")
    arguments = parser.parse_args()
    figures = []
    for row in ROWS:
        if arguments.names and row.name not in arguments.names:
            continue
        figure = run(
            row, arrivals=arguments.arrivals, affinity=arguments.affinity, cycles=arguments.cycles or row.cycles
        )
        figures.append(figure)
        print(
            f"{'ok  ' if figure.met else 'MISS'} {figure.name:18} waiting {figure.waiting:7} ({figure.pods} pods)"
            f"  first {figure.first:7.3f} s  mean {figure.mean * 1e3:8.2f} ms  p50 {figure.p50 * 1e3:8.2f}"
            f"  p99 {figure.p99 * 1e3:8.2f}  longest slice {figure.slice * 1e3:6.2f}  {figure.memory:6.0f} MiB"
            f"  {figure.binds} binds {figure.evictions} evictions  at rest after {figure.rest}"
            f"  (mean <= {row.mean * 1e3:g} ms)",
            flush=True,
        )
    return keep(figures, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
