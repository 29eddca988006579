"""How fast the engine decides: one process, no API server. Prints a table, and one JSON line per figure with `--json`.

    python -m tests.bench.engine [--json FILE] [NAME ...]

Ends with status 1 where a limit is missed. Times are of the engine alone (snapshot, session, actions), in seconds
of this process on the processor, which on a machine with a core to spare are seconds of the clock; on a busy one
they still say what the engine costs. Building the model is the watcher's work and is shown beside it.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

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
    PodSpec,
    PodStatus,
    PriorityClass,
    Queue,
    QueueSpec,
    ResourceRequirements,
    SubGroup,
    TopologySpreadConstraint,
)
from kbatch.engine import Memo, NullObserver, Policy, Transaction, build_policy, cycle, take_snapshot
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Upsert
from kbatch.times import SECOND

NOW = 1_767_225_660 * SECOND
"""A minute after everything was made."""
STAMP = "2026-01-01T00:00:00Z"
LONGEST_SLICE: Final = 0.02
"""Seconds for which the caller of a cycle may wait for its turn."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement against its limit; seconds, or MiB for memory."""

    name: str
    what: str
    value: float
    limit: float
    unit: str = "s"
    pods: int = 0
    nodes: int = 0
    gangs: int = 0
    binds: int = 0
    evictions: int = 0
    model_seconds: float = 0.0
    slice: bool = False
    """Whether it is the longest time between two steps, and not that of the whole."""

    @property
    def met(self) -> bool:
        return self.value <= self.limit


@dataclass(frozen=True, slots=True)
class Setting:
    """What a row is measured with: the policy, and what is done to its objects before the model sees them."""

    policy: Policy = field(default_factory=lambda: build_policy(DEFAULT))
    change: Callable[[Iterator[AnyObject]], Iterator[AnyObject]] = lambda objects: objects

    def build(self, objects: Iterator[AnyObject]) -> tuple[ClusterModel, float]:
        """A model of the changed objects, and the seconds that its events took."""
        return build(self.change(objects))


@dataclass(slots=True)
class Result:
    """`opening`, `between` and `closing` are the longest slices before the first Transaction, up to the last, and after
    it; where there is none, all is opening. A slice is what lies between two steps of the cycle.
    """

    seconds: float = 0.0
    opening: float = 0.0
    between: float = 0.0
    closing: float = 0.0
    binds: int = 0
    evictions: int = 0
    memo: Memo | None = None

    @property
    def slice(self) -> float:
        """The longest of all."""
        return max(self.opening, self.between, self.closing)


def node(index: int) -> Node:
    return Node(
        metadata=Metadata(name=f"n{index:05}", labels={"kubernetes.io/hostname": f"n{index:05}"}),
        status=NodeStatus(allocatable={"cpu": "32", "memory": "256Gi", "pods": "110"}),
    )


_RESOURCES = ResourceRequirements(requests={"cpu": "1", "memory": "2Gi"})


def pod(
    group: str, index: int, *, on: str = "", cpu: str = "1", affinity: Affinity | None = None, priority: int = 0
) -> Pod:
    """A pod as the API server keeps it; `priority` is that of its class, which bounds what its group's is worth."""
    name = f"{group}-{index}"
    wanted = _RESOURCES if cpu == "1" else ResourceRequirements(requests={"cpu": cpu, "memory": "2Gi"})
    return Pod(
        metadata=Metadata(
            name=name, namespace="ns", uid=name, creation_timestamp=STAMP, labels={"app": group},
            annotations={GROUP_NAME_ANNOTATION: group},
        ),
        spec=PodSpec(
            scheduler_name="kube-batch", node_name=on, priority=priority, affinity=affinity,
            containers=(Container(name="main", image="busybox", resources=wanted),),
        ),
        status=PodStatus(phase="Running" if on else "Pending"),
    )  # fmt: skip


def group(name: str, minimum: int, queue: str, priority: str = "") -> PodGroup:
    return PodGroup(
        metadata=Metadata(name=name, namespace="ns", creation_timestamp=STAMP, generation=1),
        spec=PodGroupSpec(min_member=minimum, queue=queue, priority_class_name=priority),
    )


def queue(name: str) -> Queue:
    return Queue(metadata=Metadata(name=name), spec=QueueSpec())


def build(objects: Iterator[AnyObject]) -> tuple[ClusterModel, float]:
    """A model, and the seconds that its events took."""
    model = ClusterModel()
    taken = 0.0
    for obj in objects:
        began = time.process_time()
        model.apply(Upsert(obj))
        taken += time.process_time() - began
    return model, taken


def decide(model: ClusterModel, policy: Policy, memo: Memo | None = None, now: int = NOW) -> Result:
    """One cycle, timed; its binds are assumed and its evictions noted afterwards.

    The garbage collector waits meanwhile, as it does in the scheduler.
    """
    found = Result()
    transactions: list[Transaction] = []
    gc.collect()
    gc.disable()
    began = last = time.process_time()
    steps = cycle(take_snapshot(model, now), policy, memo or Memo(), NullObserver())
    running = True
    while running:
        try:
            step = next(steps)
        except StopIteration as end:
            found.memo = end.value.memo
            running = False
        moment = time.process_time()
        taken, last = moment - last, moment
        if not transactions:
            found.opening = max(found.opening, taken)
        else:
            found.closing = max(found.closing, taken)
        if running and isinstance(step, Transaction):
            if transactions:
                found.between, found.closing = max(found.between, found.closing), 0.0
            transactions.append(step)
    found.seconds = time.process_time() - began
    gc.enable()
    for transaction in transactions:
        for bind in transaction.binds:
            model.assume(bind.pod, bind.uid, bind.node)
        for eviction in transaction.evictions:
            model.evicting(eviction.pod, eviction.uid)
        found.binds += len(transaction.binds)
        found.evictions += len(transaction.evictions)
    return found


def gangs(count: int, size: int, nodes: int, *, queues: int = 4, affinity: bool = False) -> Iterator[AnyObject]:
    for index in range(queues):
        yield queue(f"q{index}")
    for index in range(nodes):
        yield node(index)
    for at in range(count):
        name = f"g{at:05}"
        apart = None
        if affinity:
            term = PodAffinityTerm(
                topology_key="kubernetes.io/hostname", label_selector=LabelSelector(match_labels={"app": name})
            )
            apart = Affinity(pod_anti_affinity=PodAffinity(required=(term,)))
        yield group(name, size, f"q{at % queues}")
        for index in range(size):
            yield pod(name, index, affinity=apart)


def placed(
    setting: Setting, name: str, what: str, count: int, size: int, nodes: int, limit: float, *, affinity: bool = False
) -> Iterator[Figure]:
    """Gangs that all find room at once."""
    model, building = setting.build(gangs(count, size, nodes, affinity=affinity))
    result = decide(model, setting.policy)
    assert result.binds == count * size, f"{name}: {result.binds} of {count * size} pods bound"
    figure = Figure(
        name, what, result.seconds, limit, pods=count * size, nodes=nodes, gangs=count, binds=result.binds,
        model_seconds=building,
    )  # fmt: skip
    yield figure
    if name in {"gangs", "singles"}:
        yield from slices(figure, result)
    else:
        yield sliced(figure, result.slice)
    if name == "large":
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        yield replace(figure, name="large-memory", what=f"{what}: peak memory", value=peak, limit=2048, unit="MiB")


def sliced(figure: Figure, longest: float) -> Figure:
    """How long the caller of that cycle waits for its turn, at most."""
    return replace(
        figure, name=f"{figure.name}-slice", what=f"{figure.what}: longest slice", value=longest, limit=LONGEST_SLICE,
        slice=True,
    )  # fmt: skip


def slices(figure: Figure, result: Result) -> Iterator[Figure]:
    """The same, by where in the cycle."""
    for kind, where in (("opening", "up to the first decision"), ("between", "between two"), ("closing", "after all")):
        longest = sliced(figure, getattr(result, kind))
        yield replace(longest, name=f"{figure.name}-{kind}", what=f"{longest.what} {where}")


def reclaim(setting: Setting) -> Iterator[Figure]:
    def objects() -> Iterator[AnyObject]:
        for index in range(201):
            yield queue(f"q{index}")
        for index in range(625):
            yield node(index)
        for at in range(200):
            yield group(f"r{at}", 1, f"q{at}")
            for index in range(100):
                yield pod(f"r{at}", index, on=f"n{(at * 100 + index) % 625:05}")
        yield group("preemptor", 1, "q200")
        for index in range(100):
            yield pod("preemptor", index)

    model, building = setting.build(objects())
    result = decide(model, setting.policy)
    assert result.evictions, "nobody was evicted"
    figure = Figure(
        "reclaim", "200 queues, 20,000 running pods, a new queue claims its share", result.seconds, 5.0, pods=20_100,
        nodes=625, gangs=201, evictions=result.evictions, model_seconds=building,
    )  # fmt: skip
    yield figure
    yield sliced(figure, result.slice)


def preempt(setting: Setting) -> Iterator[Figure]:
    def objects() -> Iterator[AnyObject]:
        yield queue("q0")
        yield PriorityClass(metadata=Metadata(name="low"), value=1)
        yield PriorityClass(metadata=Metadata(name="high"), value=100)
        for index in range(160):
            yield node(index)
        for at in range(51):
            yield group(f"r{at}", 1, "q0", "low")
            for index in range(100 if at < 50 else 120):
                yield pod(f"r{at}", index, on=f"n{(at * 100 + index) % 160:05}", priority=1)
        for at in range(500):
            yield group(f"h{at}", 1, "q0", "high")
            yield pod(f"h{at}", 0, priority=100)

    model, building = setting.build(objects())
    result = decide(model, setting.policy)
    assert result.evictions, "nobody was evicted"
    figure = Figure(
        "preempt", "500 groups of higher priority, 5,120 running pods", result.seconds, 3.0, pods=5620, nodes=160,
        gangs=551, binds=result.binds, evictions=result.evictions, model_seconds=building,
    )  # fmt: skip
    yield figure
    yield sliced(figure, result.slice)


def idle(setting: Setting) -> Iterator[Figure]:
    objects: list[AnyObject] = [*(queue(f"q{index}") for index in range(4)), *(node(index) for index in range(1000))]
    for at in range(1000):
        objects.append(group(f"g{at}", 10, f"q{at % 4}"))
        objects.extend(pod(f"g{at}", index, cpu=str(33 + at % 7)) for index in range(10))
    model, _ = setting.build(iter(objects))
    first = decide(model, setting.policy)
    again = [decide(model, setting.policy, first.memo, NOW + SECOND * step).seconds for step in range(1, 6)]
    model.apply(Upsert(group("other", 5, "q0")))
    busy = decide(model, setting.policy, first.memo, NOW + 10 * SECOND)
    yield Figure("idle", "a cycle with 1,000 gangs that did not fit, nothing changed", max(again), 0.02, gangs=1000)
    yield Figure("idle-first", "the same, tried for the first time", first.seconds, 2.0, gangs=1000)
    touched = Figure("idle-touched", "the same, after an unrelated group came", busy.seconds, 0.1, gangs=1000)
    yield touched
    yield of_these_cycles("idle", touched, first, busy)


def of_these_cycles(row: str, figure: Figure, *cycles: Result) -> Figure:
    """The longest slice of several cycles of a row."""
    longest = sliced(figure, max(each.slice for each in cycles))
    return replace(longest, name=f"{row}-slice", what="the same: longest slice of these cycles")


def coupled_pod(name: str, index: int, *, spread: bool) -> Pod:
    """A pod that keeps a zone to itself, or spreads over them."""
    alike = LabelSelector(match_labels={"app": name})
    found = pod(name, index)
    if spread:
        found.spec.topology_spread_constraints = (
            TopologySpreadConstraint(
                max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule", label_selector=alike
            ),
        )
    else:
        term = PodAffinityTerm(topology_key="zone", label_selector=alike)
        found.spec.affinity = Affinity(pod_anti_affinity=PodAffinity(required=(term,)))
    return found


def coupled(setting: Setting) -> Iterator[Figure]:
    """Gangs of ten over five zones, one of which has no room: half keep apart by zone, half spread evenly."""
    objects: list[AnyObject] = [queue(f"q{index}") for index in range(4)]
    for index in range(1000):
        each = node(index)
        each.metadata.labels = {**(each.metadata.labels or {}), "zone": f"z{index % 5}"}
        if index % 5 == 0:
            each.status.allocatable = {"cpu": "100m", "memory": "256Gi", "pods": "110"}
        objects.append(each)
    for at in range(1000):
        objects.append(group(f"g{at}", 10, f"q{at % 4}"))
        objects.extend(coupled_pod(f"g{at}", index, spread=at % 2 == 0) for index in range(10))
    model, _ = setting.build(iter(objects))
    first = decide(model, setting.policy)
    assert not first.binds, "they fit"
    again = [decide(model, setting.policy, first.memo, NOW + SECOND * step).seconds for step in range(1, 6)]
    model.apply(Upsert(group("other", 5, "q0")))
    model.apply(Upsert(pod("other", 0)))
    busy = decide(model, setting.policy, first.memo, NOW + 10 * SECOND)
    what = "1,000 gangs with anti-affinity or spread that did not fit"
    yield Figure("coupled", f"a cycle with {what}, nothing changed", max(again), 0.02, gangs=1000)
    yield Figure("coupled-first", "the same, tried for the first time", first.seconds, 10.0, gangs=1000)
    touched = Figure(
        "coupled-touched", "the same, after an unrelated group and a pod came", busy.seconds, 0.5, gangs=1000
    )
    yield touched
    yield of_these_cycles("coupled", touched, first, busy)


def unlike(setting: Setting) -> Iterator[Figure]:
    """Gangs of eight: two masters that keep apart by host, six smaller workers that spread evenly over ten zones."""
    objects: list[AnyObject] = [queue(f"q{index}") for index in range(4)]
    for index in range(1000):
        each = node(index)
        each.metadata.labels = {**(each.metadata.labels or {}), "zone": f"z{index % 10}"}
        objects.append(each)
    for at in range(500):
        name = f"g{at:05}"
        subs = (SubGroup(name="worker", min_member=6), SubGroup(name="master", min_member=2))
        made = group(name, 8, f"q{at % 4}")
        made.spec = PodGroupSpec(min_member=8, queue=f"q{at % 4}", sub_groups=subs)
        objects.append(made)
        for index in range(8):
            role = "master" if index < 2 else "worker"
            one = pod(name, index, cpu="6" if index < 2 else "2")
            one.metadata.labels = {"app": name, "part": f"{name}-{role}", SUB_GROUP_LABEL: role}
            alike = LabelSelector(match_labels={"part": f"{name}-{role}"})
            if index < 2:
                term = PodAffinityTerm(topology_key="kubernetes.io/hostname", label_selector=alike)
                one.spec.affinity = Affinity(pod_anti_affinity=PodAffinity(required=(term,)))
            else:
                one.spec.topology_spread_constraints = (
                    TopologySpreadConstraint(
                        max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule", label_selector=alike
                    ),
                )
            objects.append(one)
    model, building = setting.build(iter(objects))
    result = decide(model, setting.policy)
    assert result.binds == 4000, f"{result.binds} of 4000 pods bound"
    figure = Figure(
        "unlike", "500 gangs x 8, two roles of different size, spread and anti-affinity, 1,000 nodes", result.seconds,
        2.0, pods=4000, nodes=1000, gangs=500, binds=result.binds, model_seconds=building,
    )  # fmt: skip
    yield figure
    yield sliced(figure, result.slice)


def tell(figure: Figure, width: int = 66) -> None:
    """A line about one figure, beside its limit."""
    sign = "ok  " if figure.met else "MISS"
    print(f"{sign} {figure.what:{width}} {figure.value:9.3f} {figure.unit:3} (limit {figure.limit:g})", flush=True)


class Judged(Protocol):
    """A figure of any benchmark: a dataclass that knows whether its limit is met."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def met(self) -> bool:
        """Whether it is."""


def keep(figures: Sequence[Judged], file: Path | None) -> int:
    """Write one JSON line for each figure to the file, if there is one. The exit status: 1 where a limit is missed."""
    if file is not None:
        lines = [json.dumps({**asdict(figure), "met": figure.met}) + "\n" for figure in figures]
        file.write_text("".join(lines), encoding="utf-8")
    return 0 if all(figure.met for figure in figures) else 1


ROWS: dict[str, Callable[[Setting], Iterator[Figure]]] = {
    "gangs": lambda by: placed(by, "gangs", "10,000 pods, 100 gangs x 100, 5,000 nodes", 100, 100, 5000, 0.5),
    "singles": lambda by: placed(by, "singles", "10,000 groups of one pod, 5,000 nodes", 10_000, 1, 5000, 3.0),
    "one": lambda by: placed(by, "one", "one gang of 5,000 pods, 5,000 nodes", 1, 5000, 5000, 0.5),
    "apart": lambda by: placed(
        by, "apart", "2,000 gangs x 10 with anti-affinity, 2,000 nodes", 2000, 10, 2000, 10.0, affinity=True
    ),
    "reclaim": reclaim,
    "preempt": preempt,
    "idle": idle,
    "coupled": coupled,
    "unlike": unlike,
    "large": lambda by: placed(by, "large", "100,000 pods, 1,000 gangs x 100, 10,000 nodes", 1000, 100, 10_000, 5.0),
}


def plain(row: Callable[[Setting], Iterator[Figure]]) -> Callable[[], Iterator[Figure]]:
    """The row with the default configuration, its objects as they are."""
    return lambda: row(Setting())


def measure(rows: Mapping[str, Callable[[], Iterator[Figure]]], what: str | None, width: int) -> int:
    """The command of a benchmark made of named rows; `what` begins with the line that says what it is for."""
    parser = argparse.ArgumentParser(description=what.splitlines()[0] if what else None)
    parser.add_argument("--json", type=Path, help="write one JSON line per figure to this file")
    parser.add_argument("names", nargs="*", choices=[[], *rows], help="which rows; all by default")
    arguments = parser.parse_args()
    figures: list[Figure] = []
    for name in arguments.names or rows:
        for figure in rows[name]():
            figures.append(figure)
            tell(figure, width)
    return keep(figures, arguments.json)


if __name__ == "__main__":
    sys.exit(measure({name: plain(row) for name, row in ROWS.items()}, __doc__, 90))
