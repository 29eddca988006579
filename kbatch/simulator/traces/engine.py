"""A trace through the engine itself: the simulator on manifests, with a PodGroup for each job."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from kbatch.api.names import DEFAULT_SCHEDULER_NAME
from kbatch.api.objects import (
    AnyObject,
    Container,
    Metadata,
    Node,
    NodeStatus,
    PodGroup,
    PodGroupSpec,
    PodSpec,
    PodTemplate,
    PriorityClass,
    Queue,
    QueueSpec,
    ResourceRequirements,
    SubGroup,
)
from kbatch.engine import Policy
from kbatch.resources import PODS, format_quantity
from kbatch.simulator.errors import Place
from kbatch.simulator.manifests import Declared, Manifests
from kbatch.simulator.names import DEFAULT_NAMESPACE, DURATION
from kbatch.simulator.records import EVICTED
from kbatch.simulator.result import PodResult, Result
from kbatch.simulator.run import Limits
from kbatch.simulator.run import simulate as simulate_manifests
from kbatch.simulator.times import seconds_text
from kbatch.simulator.traces.cluster import UNLIMITED, Cluster
from kbatch.simulator.traces.jobs import DIMENSIONS, Job, Shape, Trace
from kbatch.simulator.traces.options import Options, Progress
from kbatch.simulator.traces.result import Engine, TraceResult
from kbatch.simulator.traces.run import fit
from kbatch.simulator.traces.usage import Usage, usage_of

EXPECTED: Final = "kbatch.dev/expected-seconds"
_ROLE: Final = "task"
_MEMORY: Final = 2**43
"""Of nodes of which nothing is said."""
_MANY_PODS: Final = 10**6
_NO_LIMIT: Final = 2**62


def simulate_by_engine(
    trace: Trace, cluster: Cluster, options: Options, policy: Policy, progress: Progress | None = None
) -> TraceResult:
    """Run the jobs of a trace; they keep what became of them.

    Queues have the weights of the trace, of each priority there is a class, and the estimate stands on the group.
    """
    fit(trace, cluster, options.shape)
    jobs = trace.jobs
    objects = list(objects_of(trace, cluster))
    manifests = Manifests(tuple(objects), pods=sum(job.tasks for job in jobs))
    result = simulate_manifests(manifests, policy, Limits(options.until, _NO_LIMIT), progress=progress)
    engine = _take(jobs, cluster, options, result)
    usage = _usage(trace, cluster, options, result.makespan)
    return TraceResult(
        jobs=jobs,
        dropped=trace.dropped,
        cluster=cluster,
        usage=usage,
        dimensions=tuple(at for at in range(len(DIMENSIONS)) if cluster.total(at)),
        instants=result.cycle_count,
        pods=sum(len(cycle.binds) for cycle in result.cycles),
        last=result.makespan,
        nodes_opened=result.nodes_opened,
        engine_seconds=result.engine_seconds,
        engine=engine,
        cut=options.until is not None and any(job.finish is None for job in jobs),
    )


# --- what goes in -----------------------------------------------------------------------------------------------------


def objects_of(trace: Trace, cluster: Cluster) -> Iterator[Declared]:
    """Nodes, queues and classes, then the jobs as they come."""
    jobs = trace.jobs
    standing: list[AnyObject] = [
        Node(metadata=Metadata(name=_node_name(cluster, at)), status=NodeStatus(allocatable=_offered(offer)))
        for at, offer in enumerate(cluster.offers)
    ]
    standing += [
        Queue(metadata=Metadata(name=name), spec=QueueSpec(weight=trace.weights.get(name, 1)))
        for name in sorted({job.queue for job in jobs})
    ]
    standing += [
        PriorityClass(metadata=Metadata(name=_class_name(value)), value=value)
        for value in sorted({job.priority for job in jobs if job.priority})
    ]
    for order, obj in enumerate(standing):
        yield Declared(obj, Place(""), order=order)
    for order, job in enumerate(jobs, start=len(standing)):
        yield Declared(_group(job), Place(""), job.submit, order=order)


def _node_name(cluster: Cluster, at: int) -> str:
    return cluster.names[at] if cluster.names else f"n{at:06d}"


def _class_name(priority: int) -> str:
    return f"priority-{priority}"


def _amounts(shape: Shape) -> dict[str, str | int | float]:
    return {
        name: format_quantity(name, amount) for name, amount in zip(DIMENSIONS, shape, strict=True) if amount
    }  # fmt: skip


def _offered(offer: Shape) -> dict[str, str | int | float]:
    memory = _MEMORY if offer.memory >= UNLIMITED else offer.memory
    return {**_amounts(offer._replace(memory=memory)), PODS: _MANY_PODS}


def _group(job: Job) -> PodGroup:
    """A job as a group that gets its pods when it comes in queue."""
    template = PodTemplate(
        metadata=Metadata(annotations={DURATION: seconds_text(job.run)}),
        spec=PodSpec(
            scheduler_name=DEFAULT_SCHEDULER_NAME,
            containers=(Container(name="main", resources=ResourceRequirements(requests=_amounts(job.shape))),),
        ),
    )
    role = SubGroup(name=_ROLE, min_member=job.tasks, template=msgspec.to_builtins(template))
    return PodGroup(
        metadata=Metadata(
            name=f"job-{job.number}", namespace=DEFAULT_NAMESPACE, annotations={EXPECTED: seconds_text(job.estimate)}
        ),
        spec=PodGroupSpec(
            min_member=job.tasks,
            disruption="Whole",
            queue=job.queue,
            priority_class_name=_class_name(job.priority) if job.priority else "",
            sub_groups=(role,),
        ),
    )


# --- what comes out ---------------------------------------------------------------------------------------------------


def _take(jobs: Sequence[Job], cluster: Cluster, options: Options, result: Result) -> Engine:
    """Write to the jobs what became of their groups and pods; the sums that are not theirs."""
    pods: list[list[PodResult]] = [[] for _ in jobs]
    for key, pod in result.pods.items():
        pods[int(key.rpartition("/")[2].split("-")[1])].append(pod)
    numbers = {_node_name(cluster, at): at for at in range(len(cluster.offers))}
    held = [0] * len(DIMENSIONS)
    evictions = wasted = 0
    for job, members in zip(jobs, pods, strict=True):
        ended = [pod.finished for pod in members if pod.phase == "Succeeded" and pod.finished is not None]
        job.start = result.groups[f"{DEFAULT_NAMESPACE}/job-{job.number}"].started if members else None
        job.finish = max(ended) if len(ended) == job.tasks else None
        if options.nodes:
            job.nodes = _runs(sorted(numbers[pod.node] for pod in members if pod.node and pod.phase != EVICTED))
        lost = 0
        for pod in members:
            if pod.bound is None:
                continue
            length = (result.makespan if pod.finished is None else pod.finished) - pod.bound
            if pod.phase == EVICTED:
                evictions, wasted, lost = evictions + 1, wasted + length, lost + length
            for at in range(len(DIMENSIONS)):
                held[at] += job.shape[at] * length
        job.lost = lost // job.tasks  # they run and are evicted together
    return Engine(
        evictions=evictions,
        wasted=wasted,
        held=tuple(held),
        podgroups={name: group.json() for name, group in result.groups.items()},
        queues={name: queue.json() for name, queue in result.queues.items()},
        foreseen=result.foreseen,
    )


def _runs(nodes: Sequence[int]) -> tuple[int, ...]:
    """Nodes in rising order, one for each pod, as in `Job.nodes`."""
    found: list[int] = []
    for node in dict.fromkeys(nodes):
        pods = nodes.count(node)
        if found and found[-1] == pods and found[-3] + found[-2] == node:
            found[-2] += 1
        else:
            found += (node, 1, pods)
    return tuple(found)


def _usage(trace: Trace, cluster: Cluster, options: Options, last: int) -> Usage:
    """The sums over time of jobs that hold all that they ask for from their first start to their end."""
    jobs = trace.jobs
    usage = usage_of(jobs, cluster, trace.weights, slices=options.slices)
    changes: list[tuple[int, int, int]] = []
    for job in jobs:
        for kind, instant in enumerate((job.finish, job.submit, job.start)):
            if instant is not None:
                changes.append((instant, kind, job.number))
    heapq.heapify(changes)
    tell = usage.ended, usage.came, usage.started
    while changes:
        instant, kind, number = heapq.heappop(changes)
        if instant > last:
            break
        usage.passed(instant)
        tell[kind](jobs[number])
    usage.passed(last)
    return usage
