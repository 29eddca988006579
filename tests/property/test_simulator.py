"""Whole runs over random inputs: what must hold whatever the manifests say."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.api.configuration import DEFAULT, parse
from kbatch.engine import Policy, build_policy
from kbatch.simulator.documents import Document
from kbatch.simulator.errors import Place
from kbatch.simulator.manifests import from_documents
from kbatch.simulator.run import Limits, simulate
from tests.examples import examples

Json = dict[str, Any]
GROUP = "scheduling.incubator.k8s.io/v1alpha1"
SHIPPED = """
actions: "reclaim, allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""
PLAIN = """
actions: "allocate"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: nodeorder}]
"""
POLICIES: dict[str, Policy] = {
    "default": build_policy(DEFAULT),
    "shipped": build_policy(parse(SHIPPED, "shipped")),
    "plain": build_policy(parse(PLAIN, "plain")),
}
MOST_CYCLES = 400


def run(documents: list[Json], policy: str) -> tuple[bytes, Json]:
    """The output without its two times, as bytes and as a mapping; the run must end by itself."""
    manifests = from_documents(Document(Place("input", number), each) for number, each in enumerate(documents, start=1))
    result = simulate(manifests, POLICIES[policy], Limits(max_cycles=MOST_CYCLES))
    assert not result.limited, "the run does not come to rest"
    output = result.json()
    del output["summary"]["engine_seconds"]
    return json.dumps(output).encode(), output


def node(name: str, cpu: int) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": str(cpu)}},
    }


def queue(name: str, weight: int) -> Json:
    return {"apiVersion": GROUP, "kind": "Queue", "metadata": {"name": name}, "spec": {"weight": weight}}


def priority_class(name: str, value: int) -> Json:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def work(
    name: str,
    queue: str,
    pods: int,
    minimum: int,
    *,
    cpu: int = 1,
    priority: str = "",
    times: dict[str, int] | None = None,
    promised: int = 0,
    held: bool = False,
) -> list[Json]:
    """A PodGroup and its ReplicaSet, which makes a new pod for each that is evicted; or (`held`) a Job, whose pods come
    when the group is in queue. `promised` is its minResources in pods.
    """
    seconds = {f"simulate.kbatch.dev/{what}": str(value) for what, value in (times or {}).items()}
    metadata = {"name": name, "annotations": seconds}
    classes = {"priorityClassName": priority} if priority else {}
    container = {"name": "main", "resources": {"requests": {"cpu": str(cpu)}}}
    spec = {"schedulerName": "kube-batch", "containers": [container], **classes}
    template = {"metadata": {"annotations": {"scheduling.k8s.io/group-name": name}}, "spec": spec}
    least = {"minResources": {"cpu": str(promised * cpu)}} if promised else {}
    maker: Json = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": metadata,
        "spec": {"replicas": pods, "template": template},
    }
    if held:
        maker["apiVersion"], maker["kind"] = "batch/v1", "Job"
        maker["spec"] = {"suspend": True, "parallelism": pods, "completions": pods, "template": template}
    return [
        {
            "apiVersion": GROUP,
            "kind": "PodGroup",
            "metadata": metadata,
            "spec": {"minMember": minimum, "queue": queue, **least, **classes},
        },
        maker,
    ]


@st.composite
def inputs(draw: st.DrawFn, *, most_cpu: int = 3, priorities: bool = True, arrivals: bool = True) -> list[Json]:
    documents = [node(f"n{index}", draw(st.integers(1, 6))) for index in range(draw(st.integers(1, 4)))]
    queues = [f"q{index}" for index in range(draw(st.integers(1, 3)))]
    documents += [queue(name, draw(st.integers(1, 3))) for name in queues]
    documents += [priority_class("high", 100), priority_class("low", 1)]
    for index in range(draw(st.integers(1, 5))):
        pods = draw(st.integers(1, 6))
        times: dict[str, int] = {}
        if arrivals:
            times["arrival"] = draw(st.sampled_from([0, 0, 5, 9]))
            duration = draw(st.sampled_from([0, 3, 20]))
            times |= {"duration": duration} if duration else {}
        documents += work(
            f"w{index}",
            draw(st.sampled_from(queues)),
            pods,
            draw(st.integers(1, pods)),
            cpu=draw(st.integers(1, most_cpu)),
            priority=draw(st.sampled_from(["", "high", "low"])) if priorities else "",
            times=times,
        )
    return documents


def held(documents: list[Json], output: Json) -> None:
    """At no time did the pods on a node ask for more than it has, and each pod was bound at most once."""
    room = {
        each["metadata"]["name"]: int(each["status"]["allocatable"]["cpu"])
        for each in documents
        if each["kind"] == "Node"
    }
    asks = {
        each["metadata"]["name"]: int(each["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"])
        for each in documents
        if each["kind"] == "ReplicaSet"
    }
    used: Counter[str] = Counter()
    steps: defaultdict[float, list[tuple[str, int]]] = defaultdict(list)
    bound = [bind for cycle in output["cycles"] for bind in cycle["binds"]]
    assert len(bound) == len({bind["pod"] for bind in bound})
    for bind in bound:
        pod = output["pods"][bind["pod"]]
        cpu = asks[bind["pod"].removeprefix("default/").partition("-")[0]]
        steps[pod["bound"]].append((bind["node"], cpu))
        if pod["finished"] is not None:
            steps[pod["finished"]].append((bind["node"], -cpu))
    for time in sorted(steps):
        for name, change in steps[time]:
            used[name] += change
        assert all(used[name] <= room[name] for name in used), (time, used)


@settings(max_examples=examples(25), deadline=None)
@given(inputs(), st.sampled_from(["default", "shipped"]))
def test_runs_come_to_rest_and_never_overfill_a_node(documents: list[Json], policy: str) -> None:
    _, output = run(documents, policy)
    held(documents, output)
    # No group that stands is in part: its running pods are none, or its minimum at least.
    minimum = {each["metadata"]["name"]: each["spec"]["minMember"] for each in documents if each["kind"] == "PodGroup"}
    alive = Counter(
        key.partition("/")[2].partition("-")[0]
        for key, pod in output["pods"].items()
        if pod["phase"] in {"Running", "Succeeded"}
    )
    for name, count in alive.items():
        assert count >= minimum[name], (name, count)


@settings(max_examples=examples(25), deadline=None)
@given(inputs(arrivals=False), st.sampled_from(["default", "shipped"]))
def test_with_a_static_demand_evictions_end_and_are_not_repeated(documents: list[Json], policy: str) -> None:
    _, output = run(documents, policy)
    evictions = [each for cycle in output["cycles"] for each in cycle["evictions"]]
    # Each was for somebody who then runs, and nobody was evicted twice over: the one in its place stays.
    replaced = [each["pod"] for each in evictions if "-r" in each["pod"]]
    assert replaced == []
    for each in evictions:
        name = each["for"].partition("/")[2]
        assert any(
            pod["phase"] == "Running" and key.startswith(f"default/{name}-") for key, pod in output["pods"].items()
        )


@st.composite
def elastic(draw: st.DrawFn) -> list[Json]:
    """Groups that hold more than they asked for, and held Jobs that come one after another."""
    documents = [node(f"n{index}", draw(st.integers(1, 4))) for index in range(draw(st.integers(1, 3)))]
    queues = ["q0", "q0", "q0", "q1"]
    documents += [queue(name, draw(st.integers(1, 2))) for name in ("q0", "q1")]
    documents += [priority_class("high", 100), priority_class("low", 1)]
    for index in range(draw(st.integers(2, 6))):
        first = index == 0
        pods = draw(st.integers(3, 10)) if first else draw(st.integers(1, 4))
        minimum = draw(st.integers(1, min(pods, 4)))
        held = not first and draw(st.integers(0, 3)) > 0
        documents += work(
            f"w{index}",
            "q0" if first else draw(st.sampled_from(queues)),
            pods,
            minimum,
            cpu=1 if first else draw(st.integers(1, 2)),
            priority=draw(st.sampled_from(["", "", "", "high", "low"])),
            times={"arrival": 10 * index if held else draw(st.sampled_from([0, 10 * index]))},
            promised=draw(st.sampled_from([minimum, minimum, 0])),
            held=held,
        )
    return documents


@settings(max_examples=examples(25), deadline=None)
@given(elastic())
def test_room_for_pods_to_come_is_taken_by_them_and_cleared_once(documents: list[Json]) -> None:
    _, output = run(documents, "default")
    times: defaultdict[str, list[float]] = defaultdict(list)
    for cycle in output["cycles"]:
        for each in cycle["evictions"]:
            times[each["for"]].append(cycle["time"])
    for name, instants in times.items():
        bound = [pod["bound"] for key, pod in output["pods"].items() if key.startswith(f"{name}-")]
        assert all(any(at is not None and at >= instant for at in bound) for instant in instants), name


@settings(max_examples=examples(25), deadline=None)
@given(inputs(), st.sampled_from(["default", "shipped"]), st.randoms(use_true_random=False))
def test_the_order_of_documents_with_distinct_timestamps_does_not_matter(
    documents: list[Json], policy: str, random: Any
) -> None:
    for index, document in enumerate(documents):
        document["metadata"] = {
            **document["metadata"],
            "creationTimestamp": f"2026-01-01T{index // 60:02}:{index % 60:02}:00Z",
        }
    expected, _ = run(documents, policy)
    shuffled = list(documents)
    random.shuffle(shuffled)
    assert run(shuffled, policy)[0] == expected
    assert run(documents, policy)[0] == expected


@settings(max_examples=examples(25), deadline=None)
@given(inputs(most_cpu=1, priorities=False, arrivals=False), st.integers(1, 4))
def test_one_more_node_never_reduces_what_is_placed(documents: list[Json], cpu: int) -> None:
    def placed(source: list[Json]) -> int:
        _, output = run(source, "plain")
        return sum(pod["phase"] == "Running" for pod in output["pods"].values())

    assert placed([*documents, node("more", cpu)]) >= placed(documents)
