"""What is promised by planned starts, over random days whose ends are all known: nobody behind delays them.

The jobs are of one queue, so their order is that in which they come; each runs for just as long as is expected of it.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kbatch.api.configuration import parse
from kbatch.engine import Memo, NullObserver, Policy, build_policy
from kbatch.engine.carryover import known_ends
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import Transaction, Turn, Verdict
from kbatch.engine.reservation.bounds import Bounds
from kbatch.engine.reservation.kept import PlannedStart
from kbatch.engine.reservation.planned import PlannedStarts
from kbatch.engine.state.cycle_state import CycleState
from kbatch.simulator.backfill_check import check_backfill
from kbatch.simulator.cluster import SimulatedCluster
from kbatch.simulator.documents import Document
from kbatch.simulator.errors import Place
from kbatch.simulator.manifests import Manifests, from_documents
from kbatch.simulator.result import Result
from kbatch.simulator.run import Limits, _Run, simulate
from kbatch.times import SECOND
from tests.examples import examples

Json = dict[str, Any]
cycles = importlib.import_module("kbatch.engine.cycle")
SEEN = {"app": "seen"}
DRIVER = "disks.example.com"
KEPT = ("", "", "apart", "exclusive", "port", "seen", "shy")
"""Of what these ask for, all is kept for planned starts."""
ALL = (*KEPT, "volume")
GROUP = "scheduling.incubator.k8s.io/v1alpha1"
TIERS = "\ntiers:\n- plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: nodeorder}]\n"


def by(actions: str) -> Policy:
    return build_policy(parse(f"actions: {actions}{TIERS}", "test"))


EASY = by("[allocate, {name: backfill, arguments: {mode: easy}}]")
DEEPER = by("[allocate, {name: backfill, arguments: {mode: easy, depth: 3}}]")
CONSERVATIVE = by("[allocate, {name: backfill, arguments: {mode: conservative}}]")
ENQUEUE = by("[enqueue, allocate, {name: backfill, arguments: {mode: easy}}, preempt]")
FLOWS = {
    mode: build_policy(
        parse(
            f"actions: [allocate, {{name: backfill, arguments: {{mode: {mode}}}}}]"
            + TIERS.replace("{name: predicates}", "{name: predicates}, {name: flow}"),
            "test",
        )
    )
    for mode in ("easy", "conservative")
}
MODES = {"easy": EASY, "deeper": DEEPER, "conservative": CONSERVATIVE}
QUEUES = ("a", "b", "c")
RECLAIMS = {
    f"{shares}, {depth}": build_policy(
        parse(
            f"actions: [reclaim, allocate, {{name: backfill, arguments: {{mode: easy, depth: {depth}}}}}, preempt]"
            + TIERS.replace("{name: predicates}", f"{{name: conformance}}, {{name: predicates}}, {shares}"),
            "test",
        )
    )
    for shares in ("{name: drf}, {name: proportion}", "{name: flow}")
    for depth in (1, 3)
}
LIMITS = Limits(max_cycles=2_000)
pytestmark = pytest.mark.many

relaxed = settings(max_examples=examples(60), deadline=None)


@dataclass(frozen=True)
class Work:
    """A job: so many pods of so many CPUs, which come at an instant and run for so long (in seconds; 0: for ever);
    `more` of them than its minimum, and those that are apart may not stand near these. In another `queue` than the
    default one it may be evicted as a whole.

    Of the style `shy` none may stand beside those of `seen`, who do not mind. Each job of `volume` has a volume, and a
    node attaches only one.
    """

    pods: int
    cpu: int
    arrival: int
    seconds: int
    estimate: int
    style: str = ""
    more: int = 0
    queue: str = ""

    def documents(self, number: int) -> list[Json]:
        name = f"j{number:02}"
        times = {"simulate.kbatch.dev/arrival": str(self.arrival)}
        said = {"kbatch.dev/expected-seconds": str(self.estimate)} if self.estimate else {}
        spec: Json = {
            "schedulerName": "kube-batch",
            "containers": [{"name": "main", "resources": {"requests": {"cpu": str(self.cpu)}}}],
        }
        labels = {}
        if self.style == "apart":
            labels = {"app": "apart"}
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        if self.style == "seen":
            labels = SEEN
        if self.style == "shy":
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": SEEN}}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        if self.style == "port":
            spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
        if self.style == "volume":
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        runs = {"simulate.kbatch.dev/duration": str(self.seconds)} if self.seconds else {}
        where = {"queue": self.queue, "disruption": "Whole"} if self.queue else {}
        group = {
            "apiVersion": GROUP, "kind": "PodGroup", "metadata": {"name": name, "annotations": {**times, **said}},
            "spec": {"minMember": self.pods, "exclusive": self.style == "exclusive", **where},
        }  # fmt: skip
        named = {"scheduling.k8s.io/group-name": name}
        pods = [
            {
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": f"{name}-{at}", "annotations": {**times, **runs, **named},
                    "labels": labels if at < self.pods else {"app": "apart"},
                },
                "spec": spec,
            }
            for at in range(self.pods + self.more)
        ]  # fmt: skip
        return [group, *pods, *(attached(name) if self.style == "volume" else ())]


def attached(name: str) -> list[Json]:
    """A volume that any node can attach, and its claim."""
    spec: Json = {"accessModes": ["ReadWriteMany"], "csi": {"driver": DRIVER, "volumeHandle": name}}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec},
        {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"volumeName": name, "accessModes": ["ReadWriteMany"]}, "status": {"phase": "Bound"},
        },
    ]  # fmt: skip


@dataclass(frozen=True)
class Day:
    """Some hours of a cluster; `cap`: so many CPUs may the queue have, 0: any number.

    Where there is a `budget`, the queue deserves half of the cluster, and jobs with an even number have a lifetime.
    """

    nodes: tuple[int, ...]
    work: tuple[Work, ...]
    cap: int = 0
    budget: int | None = None

    def manifests(self) -> Manifests:
        documents: list[Json] = [
            {
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"},
                "status": {"allocatable": {"cpu": str(cpu)}},
            }
            for number, cpu in enumerate(self.nodes)
        ]  # fmt: skip
        if any(work.style == "volume" for work in self.work):
            drivers = [{"name": DRIVER, "nodeID": "n", "allocatable": {"count": 1}}]
            documents += [
                {
                    "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": f"n{number}"},
                    "spec": {"drivers": drivers},
                }
                for number in range(len(self.nodes))
            ]  # fmt: skip
        for name in sorted({work.queue for work in self.work if work.queue}):
            documents.append({"apiVersion": GROUP, "kind": "Queue", "metadata": {"name": name}, "spec": {"weight": 1}})
        if self.cap:
            hard = {"capability": {"cpu": str(self.cap)}}
            documents.append({"apiVersion": GROUP, "kind": "Queue", "metadata": {"name": "default"}, "spec": hard})
        if self.budget is not None:
            for name, spec in (("default", {"excessBudget": self.budget}), ("other", {})):
                documents.append({"apiVersion": GROUP, "kind": "Queue", "metadata": {"name": name}, "spec": spec})
        for number, work in enumerate(self.work):
            made = work.documents(number)
            if self.budget is not None and number % 2 == 0:
                made[0]["spec"]["lifetimeSeconds"] = 60
            documents += made
        return from_documents(Document(Place("input", at), each) for at, each in enumerate(documents, start=1))


@st.composite
def days(
    draw: st.DrawFn,
    *,
    styles: tuple[str, ...] = ("",),
    unknown: bool = False,
    more: int = 0,
    queues: tuple[str, ...] = ("",),
) -> Day:
    """Small days; what runs past its estimate, or has none, only where `unknown`; so many pods above the minimum."""
    nodes = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    work: list[Work] = []
    for _ in range(draw(st.integers(4, 12))):
        small = draw(st.booleans())
        seconds = draw(st.integers(1, 4 if small else 12))
        estimate = draw(st.sampled_from([seconds, seconds, 0, max(1, seconds - 3)])) if unknown else seconds
        work.append(
            Work(
                1 if small else draw(st.integers(1, len(nodes) + 1)), draw(st.integers(1, max(nodes))),
                draw(st.integers(0, 8)),
                seconds, estimate, draw(st.sampled_from(styles)), draw(st.integers(0, more)) if more else 0,
                draw(st.sampled_from(queues)),
            )
        )  # fmt: skip
    cap = draw(st.one_of(st.just(0), st.integers(2, 9)))
    return Day(nodes, tuple(sorted(work, key=lambda each: each.arrival)), cap)


def assert_promises(result: Result) -> None:
    """Whoever was told an instant was never told a later one, and started by then."""
    told: dict[str, int] = {}
    for each in result.planned:
        assert each.start is not None, each
        assert each.start <= told.get(each.group, each.start), each
        told[each.group] = each.start
    for group, start in told.items():
        assert result.started[group] <= start, (group, start, result.started[group])


def _one(seconds: int, arrival: int = 0) -> Work:
    return Work(1, 1, arrival, seconds, seconds)


@relaxed
@given(days(styles=KEPT, more=2), st.sampled_from(sorted(MODES)))
@example(Day((1, 1), (*map(_one, (1, 1, 1, 2, 1, 1, 1, 1)), _one(1, 1)), cap=2), "conservative")
def test_nobody_starts_later_than_was_planned(day: Day, mode: str) -> None:
    result = simulate(day.manifests(), MODES[mode], LIMITS)
    assert not result.limited
    if mode == "deeper":  # of those behind the first the order of places may change what is left for the next
        result = replace(result, planned=_of_first(result))
    assert_promises(result)


def _of_first(result: Result) -> tuple[Any, ...]:
    """What was told of groups while they were the first of those that waited."""
    found = []
    for each in result.planned:
        before = [
            group for group, at in result.started.items() if group < each.group and at > each.told
        ]  # named in the order in which they came
        if not before:
            found.append(each)
    return tuple(found)


def test_who_has_waited_too_long_starts_behind_those_ahead_of_it_in_its_queue() -> None:
    """The queue may have 5 CPUs, of which 4 are in use until 7 s: only the last job, which asks for one, lacks nothing
    but room. It may not stand beside the third one, which comes before it, and was promised the same instant.
    """
    day = Day(
        (4,),
        (
            Work(1, 3, 1, 2, 2, "apart"), Work(1, 4, 3, 4, 4, "exclusive", more=1), Work(1, 2, 4, 3, 3, "shy"),
            Work(2, 2, 5, 3, 3, "", more=1), Work(1, 1, 5, 2, 2, "seen"),
        ),
        cap=5,
    )  # fmt: skip
    result = simulate(day.manifests(), replace(EASY, ageing=0), LIMITS)
    third, last = "default/j02", "default/j04"
    assert {each.start for each in result.planned if each.group == third} == {7 * SECOND}
    assert min(each.start or 0 for each in result.planned if each.group == last) > 7 * SECOND
    assert result.started[third] == 7 * SECOND
    assert result.started[last] > 7 * SECOND


@relaxed
@given(days(), st.integers(0, 6), st.sampled_from(sorted(FLOWS)))
def test_nobody_starts_later_for_want_of_a_budget(day: Day, budget: int, mode: str) -> None:
    result = simulate(replace(day, cap=0, budget=budget).manifests(), FLOWS[mode], LIMITS)
    assert_promises(result)


@relaxed
@given(days(styles=KEPT))
def test_with_and_without_those_that_were_backfilled(day: Day) -> None:
    manifests = day.manifests()
    result = simulate(manifests, EASY, LIMITS)
    check = check_backfill(manifests, EASY, LIMITS, result)
    assert check.delays == ()
    assert check.beside <= check.planned


@relaxed
@given(days(styles=ALL, unknown=True), st.sampled_from(sorted(MODES)))
def test_all_comes_to_rest_whatever_is_expected(day: Day, mode: str) -> None:
    result = simulate(day.manifests(), MODES[mode], LIMITS)
    assert not result.limited
    plain = simulate(day.manifests(), by("[allocate, backfill]"), LIMITS)
    assert result.started.keys() == plain.started.keys()


class Forgetful(_Run):
    """A run of which each cycle begins with an empty memo."""

    def _cycle(self) -> tuple[list[Transaction], list[Verdict]]:
        self.memo = Memo()
        return super()._cycle()


@relaxed
@given(
    st.one_of(days(styles=ALL, unknown=True), days(styles=KEPT, unknown=True, queues=QUEUES)),
    st.sampled_from([*MODES.values(), ENQUEUE, *RECLAIMS.values()]),
)
def test_the_memo_changes_nothing(day: Day, policy: Policy) -> None:
    found = []
    for kind in (_Run, Forgetful):
        run = kind(SimulatedCluster(day.manifests()), policy, LIMITS, None, NullObserver())
        run.go()
        result = run.result()
        output = result.json()
        found.append((json.dumps([output["cycles"], output["pods"]]), result.planned, result.started))
    assert found[0] == found[1]


WHERE_ONE_STARTS_BEFORE = Day(
    (2, 2),
    (
        Work(3, 1, 0, 12, 12, queue="b"), Work(1, 1, 0, 4, 0, queue="c"), Work(2, 1, 0, 1, 1, queue="b"),
        Work(1, 1, 2, 1, 1, queue="b"), Work(1, 2, 2, 6, 6, queue="a"), Work(2, 1, 2, 4, 0, queue="a"),
        Work(1, 1, 4, 3, 1, queue="c"), Work(1, 2, 8, 3, 3, queue="b"), Work(1, 2, 8, 4, 0, queue="b"),
    ),
)  # fmt: skip
"""On the node of one that starts at once, and that ends no later than what else is there, another one is to start."""


@settings(relaxed, max_examples=examples(30))
@given(days(styles=KEPT, unknown=True, more=1, queues=QUEUES), st.sampled_from(sorted(RECLAIMS)))
@example(WHERE_ONE_STARTS_BEFORE, "{name: flow}, 1")
def test_reclaim_plans_what_allocate_will(day: Day, way: str) -> None:
    """Unless somebody is evicted in between, or a nominated pod may be bound, of which it is not known before when it
    ends; allocate goes on to those whose queue has had its share.
    """
    first: dict[PlannedStarts, list[object]] = {}
    only, told = PlannedStarts.only, cycles._state_after

    def dropping(planned: PlannedStarts, starts: Mapping[str, PlannedStart]) -> None:
        if not planned.session.nominees:
            first[planned] = [start.mark for start in planned.starts.values()]
        only(planned, starts)

    def after(context: CycleContext) -> Generator[Turn, None, CycleState]:
        planned = context.planned
        if planned is not None and planned in first and not context.session.leaving:
            found = first.pop(planned)
            assert found == [start.mark for start in planned.starts.values()][: len(found)]
        state: CycleState = yield from told(context)
        return state

    with mock.patch.object(PlannedStarts, "only", dropping), mock.patch.object(cycles, "_state_after", after):
        assert not simulate(day.manifests(), RECLAIMS[way], LIMITS).limited


@relaxed
@given(days(styles=("", "apart", "exclusive"), unknown=True), st.sampled_from(sorted(MODES)))
def test_that_only_the_next_ends_are_in_order_changes_nothing(day: Day, mode: str) -> None:
    plain = simulate(day.manifests(), MODES[mode], LIMITS)
    with mock.patch.object(known_ends, "_NEAR", 1), mock.patch.object(known_ends, "_PART", 1 << 30):
        other = simulate(day.manifests(), MODES[mode], LIMITS)
    assert (other.planned, other.started) == (plain.planned, plain.started)


@relaxed
@given(days(styles=("", "apart")), st.sampled_from(sorted(MODES)))
def test_sums_rule_out_no_instant_at_which_a_job_could_start(day: Day, mode: str) -> None:
    result = simulate(day.manifests(), MODES[mode], LIMITS)
    with mock.patch.object(Bounds, "could", return_value=True):
        patient = simulate(day.manifests(), MODES[mode], LIMITS)
    assert (result.planned, result.started) == (patient.planned, patient.started)


@relaxed
@given(days())
def test_the_first_of_all_is_promised_the_earliest_instant(day: Day) -> None:
    """For the first job that waits, of pods that only want room: that, and what is left of the hard cap, is counted."""
    result = simulate(day.manifests(), EASY, LIMITS)
    for each in result.planned:
        number = int(each.group.removeprefix("default/j"))
        work = day.work[number]
        standing = [
            (pod.node, result.pods[key].bound, day.work[int(key[9:11])]) for key, pod in result.pods.items()
            if pod.bound is not None and pod.node is not None and pod.bound <= each.told
        ]  # fmt: skip
        assert each.start is not None
        ends = sorted({bound + other.seconds * SECOND for _, bound, other in standing if bound is not None})
        for instant in (end for end in ends if each.told < end < each.start):
            free = list(day.nodes)
            left = day.cap or sum(day.nodes)
            for node, bound, other in standing:
                if bound is not None and bound + other.seconds * SECOND > instant:
                    free[int(node.removeprefix("n"))] -= other.cpu
                    left -= other.cpu
            if work.pods * work.cpu > left:
                continue
            assert sum(max(0, cpu) // work.cpu for cpu in free) < work.pods, (each, instant)
