"""Cases of planned starts: who starts beside them, who waits, and what the check of backfilled jobs finds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kbatch.cli.main import app

CASES = Path(__file__).parents[2] / "cases"
TIERS = """
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""
MODES = {
    mode: f"actions: [enqueue, reclaim, allocate, {{name: backfill, arguments: {{mode: {mode}}}}}, preempt]{TIERS}"
    for mode in ("none", "easy", "conservative")
}
FLOW = """
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, {name: flow, arguments: {halfTime: 10m}}, {name: nodeorder}]
"""
planning = pytest.mark.parametrize("mode", ["easy", "conservative"])


def starts(outcome: Any) -> dict[str, float]:
    """When each pod of `default` was bound, in seconds."""
    return {bind["pod"].removeprefix("default/"): bind["time"] for bind in outcome.binds}


def told(outcome: Any, group: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = outcome.json["podgroups"][f"default/{group}"].get("estimatedStart")
    return found


@pytest.mark.parametrize("mode", list(MODES))
def test_who_starts_when(simulate: Callable[..., Any], mode: str) -> None:
    found = starts(simulate("backfill-in-every-mode", MODES[mode]))
    expected = {
        # whoever fits starts, and the gang when all of them are gone
        "none": {"wide-0": 126.0, "wide-1": 126.0, "next": 6.0, "short": 100.0, "long": 100.0},
        # `next` is too long to be gone in time; `short` is not; when the gang has started, `next` is the first
        "easy": {"wide-0": 100.0, "wide-1": 100.0, "next": 150.0, "short": 7.0, "long": 150.0},
        "conservative": {"wide-0": 100.0, "wide-1": 100.0, "next": 150.0, "short": 7.0, "long": 150.0},
    }[mode]
    if mode == "none":
        assert found["next"] == 6.0
        assert found["wide-0"] > 100.0
    else:
        assert found == expected


@planning
def test_what_a_waiting_group_is_told(simulate: Callable[..., Any], mode: str) -> None:
    outcome = simulate("backfill-in-every-mode", MODES[mode], until=10)
    assert told(outcome, "wide") == {"time": 100.0, "latest": 100.0, "basis": "reservation"}
    assert outcome.reason("wide") == "NotEnoughResources"
    assert outcome.reason("long") == "Reserved"
    expected = {"time": 150.0, "latest": 150.0, "basis": "reservation"} if mode == "conservative" else None
    assert told(outcome, "next") == expected


@planning
def test_a_gang_of_all_nodes_gets_its_turn_under_a_stream(simulate: Callable[..., Any], mode: str) -> None:
    name = "backfill-gang-gets-its-turn-under-a-stream"
    first = told(simulate(name, MODES[mode], until=16), "wide")
    assert first is not None
    outcome = simulate(name, MODES[mode])
    assert {starts(outcome)[f"wide-worker-{number}"] for number in range(3)} == {first["time"]}
    assert first["time"] <= 80.0
    without = simulate(name, MODES["none"])
    assert starts(without)["wide-worker-0"] > first["time"]


@planning
def test_the_check_finds_whom_a_lie_delays(mode: str, tmp_path: Path) -> None:
    conf = tmp_path / "scheduler.yaml"
    conf.write_text(MODES[mode], "utf-8")
    command = ["simulate", str(CASES / "backfill-who-lies-delays.yaml"), "--scheduler-conf", str(conf)]
    result = CliRunner().invoke(app, [*command, "--check-backfill", "-o", "json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["backfill"] == {
        "planned": 1,
        "beside": 1,
        "delayed": [
            {
                "group": "default/wide",
                "backfilled": ["default/liar"],
                "planned": 60.0,
                "started": 100.0,
                "without": 60.0,
            }
        ],
    }
    text = CliRunner().invoke(app, [*command, "--check-backfill"])
    assert text.exit_code == 1
    assert "default/wide starts at 100 s, and at 60 s without default/liar; planned at 60 s" in text.stdout


@planning
def test_the_check_finds_nothing_where_ends_are_kept(mode: str, tmp_path: Path) -> None:
    conf = tmp_path / "scheduler.yaml"
    conf.write_text(MODES[mode], "utf-8")
    command = ["simulate", str(CASES / "backfill-in-every-mode.yaml"), "--scheduler-conf", str(conf)]
    result = CliRunner().invoke(app, [*command, "--check-backfill", "-o", "json"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["backfill"]["delayed"] == []
    assert found["backfill"]["beside"] >= 1
    assert "backfill" not in json.loads(CliRunner().invoke(app, [*command, "-o", "json"]).stdout)


GROUPS = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: '4'}}}
- {apiVersion: v1, kind: Node, metadata: {name: n2}, status: {allocatable: {cpu: '4'}}}
- apiVersion: v1
  kind: Pod
  metadata: {name: busy, annotations: {kbatch.dev/expected-seconds: '900', simulate.kbatch.dev/duration: '900'}}
  spec: {schedulerName: kube-batch, nodeName: n1, containers: [{name: main, resources: {requests: {cpu: '4'}}}]}
"""


def group(name: str, arrival: int, pods: int, cpu: int, seconds: int) -> str:
    """A PodGroup whose pods come when it is in queue, and which is sent back when it is not whole in time."""
    return f"""
- apiVersion: scheduling.incubator.k8s.io/v1alpha1
  kind: PodGroup
  metadata:
    name: {name}
    annotations: {{kbatch.dev/expected-seconds: '{seconds}', simulate.kbatch.dev/arrival: '{arrival}'}}
  spec:
    minMember: {pods}
    scheduleTimeoutSeconds: 60
    subGroups:
    - name: w
      minMember: {pods}
      template:
        metadata: {{annotations: {{simulate.kbatch.dev/duration: '{seconds}'}}}}
        spec:
          schedulerName: kube-batch
          containers: [{{name: main, resources: {{requests: {{cpu: '{cpu}'}}}}}}]
"""


@planning
def test_groups_come_in_queue_for_their_planned_starts_and_are_not_late_while_they_wait(
    simulate: Callable[..., Any], mode: str
) -> None:
    text = GROUPS + group("wide", 5, 2, 4, 50) + group("next", 6, 2, 3, 50) + group("short", 20, 1, 2, 600)
    outcome = simulate(text, MODES[mode])
    enqueued = [
        (name.removeprefix("default/"), cycle["time"]) for cycle in outcome.cycles for name in cycle["enqueued"]
    ]
    came = 6.0 if mode == "conservative" else 900.0
    assert sorted(enqueued) == [("next", came), ("short", 20.0), ("wide", 5.0)]
    found = starts(outcome)
    assert {name: found[f"{name}-w-0"] for name in ("wide", "next", "short")} == {
        "wide": 900.0, "next": 950.0, "short": 20.0,
    }  # fmt: skip


def test_who_was_promised_a_start_takes_it_though_it_matters_to_one_that_was_planned_beside_it(
    simulate: Callable[..., Any],
) -> None:
    found = starts(simulate("promised-beside-one-that-keeps-apart", MODES["conservative"]))
    assert {name: found[name] for name in ("a-0", "a-1", "b-0")} == {"a-0": 10.0, "a-1": 10.0, "b-0": 10.0}


def test_host_ports_of_planned_starts_are_kept_as_their_room_is(simulate: Callable[..., Any]) -> None:
    found = starts(simulate("promised-host-ports-are-kept", MODES["conservative"]))
    assert {name: found[name] for name in ("j04-0", "j04-1", "j02-3")} == {"j04-0": 15.0, "j04-1": 15.0, "j02-3": 25.0}


@pytest.mark.parametrize("name", ["promised-over-one-that-is-kept-apart", "promised-over-one-with-its-host-port"])
def test_a_promise_ends_that_a_job_of_higher_priority_leaves_no_place(simulate: Callable[..., Any], name: str) -> None:
    found = starts(simulate(name, MODES["conservative"].replace(", preempt]", "]")))
    assert (found["s-0"], found["a-0"]) == (100.0, 150.0)


@pytest.mark.parametrize("name", ["overrun-before-one-that-keeps-apart", "overrun-before-one-with-its-host-port"])
def test_who_was_promised_its_start_later_moves_behind_one_that_moves(simulate: Callable[..., Any], name: str) -> None:
    found = starts(simulate(name, MODES["conservative"]))
    assert (found["b-0"], found["a-0"]) == (115.0, 165.0)


def test_nobody_is_promised_a_place_from_which_one_planned_before_it_would_keep_it(
    simulate: Callable[..., Any],
) -> None:
    name = "promised-where-one-before-it-will-stand"
    first = told(simulate(name, MODES["conservative"], until=5), "d")
    assert first is not None
    found = starts(simulate(name, MODES["conservative"]))
    assert found == {"x-0": 0.0, "w-0": 0.0, "c-0": 10.0, "d-0": 30.0}
    assert first["time"] >= found["d-0"]


def test_pods_that_are_not_there_yet_keep_nobody_away_whose_rules_look_at_them(simulate: Callable[..., Any]) -> None:
    found = starts(simulate("starts-while-one-before-it-is-to-stand", MODES["conservative"]))
    assert found == {"x-0": 0.0, "c-0": 10.0, "d-0": 2.0}


def test_a_promise_stands_whatever_a_pod_elsewhere_keeps_apart_from(simulate: Callable[..., Any]) -> None:
    """Since z is known, what stands on other nodes matters to pods like q; p asks for another port than q."""
    found = starts(simulate("promised-beside-one-that-another-keeps-apart-from", MODES["conservative"]))
    assert {name: found[name] for name in ("q-0", "p-0", "b-0")} == {"q-0": 100.0, "p-0": 100.0, "b-0": 200.0}


def test_who_starts_before_those_that_its_rules_look_at_is_promised_that(simulate: Callable[..., Any]) -> None:
    found = starts(simulate("promised-before-one-that-it-will-see", MODES["conservative"]))
    assert {name: found[name] for name in ("p-0", "q-0", "b-0")} == {"p-0": 100.0, "q-0": 200.0, "b-0": 250.0}


def test_a_promise_ends_on_whose_other_node_a_job_of_higher_priority_was_promised_its_start(
    simulate: Callable[..., Any],
) -> None:
    name = "promised-over-one-that-is-kept-apart-by-zone"
    found = starts(simulate(name, MODES["conservative"].replace(", preempt]", "]")))
    assert (found["h-0"], found["p-0"]) == (100.0, 300.0)


def test_nobody_goes_for_one_that_delays_no_planned_start_if_it_starts_now(simulate: Callable[..., Any]) -> None:
    outcome = simulate("reclaim-beside-a-planned-start", MODES["conservative"], until=20)
    assert told(outcome, "p") == {"time": 100.0, "latest": 100.0, "basis": "reservation"}
    assert starts(outcome)["x-0"] == 3.0
    assert not outcome.evictions


def test_nobody_goes_for_one_that_would_delay_a_planned_start(simulate: Callable[..., Any]) -> None:
    outcome = simulate("reclaim-leaves-planned-starts-their-room", MODES["conservative"], until=50)
    assert told(outcome, "p") == {"time": 100.0, "latest": 100.0, "basis": "reservation"}
    assert not outcome.evictions


def test_how_long_a_group_runs_is_asked_of_all_its_pods(simulate: Callable[..., Any]) -> None:
    outcome = simulate("length-of-a-group-whose-first-pods-exceed-the-capability", MODES["conservative"])
    assert starts(outcome)["p-0"] == 100.0
    assert not outcome.evictions


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("reclaim-counts-on-the-end-of-those-that-start", {"xa-0": 2.0, "xb-0": 2.0, "p-0": 100.0}),
        ("reclaim-takes-the-lowest-nodes-behind-a-planned-start", {"xa-0": 2.0, "xb-0": 2.0, "p-0": 100.0}),
        ("reclaim-waits-for-what-terminates-beside-a-planned-start", {"x-0": 40.0, "p-0": 100.0}),
    ],
)
def test_nobody_goes_for_one_to_whom_allocate_gives_room_beside_planned_starts(
    simulate: Callable[..., Any], name: str, begins: dict[str, float]
) -> None:
    outcome = simulate(name, MODES["conservative"], until=200)
    found = starts(outcome)
    assert {pod: found[pod] for pod in begins} == begins
    assert not outcome.evictions


WAITS_FOR_NOBODY = {"x-0": 4.0, "g-0": 21.0, "g-1": 21.0, "p-0": 10000.0}


@planning
@pytest.mark.parametrize("tiers", [TIERS, FLOW], ids=["shares", "flow"])
def test_nobody_below_its_share_waits_for_room_that_is_kept_for_a_planned_start(
    simulate: Callable[..., Any], mode: str, tiers: str
) -> None:
    outcome = simulate("reclaim-knows-what-allocate-keeps", MODES[mode].replace(TIERS, tiers))
    found = starts(outcome)
    assert {pod: found[pod] for pod in WAITS_FOR_NOBODY} == WAITS_FOR_NOBODY
    gone = [(each["pod"], each["for"], each["time"]) for each in outcome.evictions]
    assert gone == [("default/r4-0", "default/x", 3.0), ("default/r2-0", "default/g", 20.0)]


FIRST = """
- {apiVersion: scheduling.incubator.k8s.io/v1alpha1, kind: Queue, metadata: {name: c}, spec: {weight: 1}}
- apiVersion: scheduling.incubator.k8s.io/v1alpha1
  kind: PodGroup
  metadata: {name: y, annotations: {simulate.kbatch.dev/arrival: '3'}}
  spec: {minMember: 1, queue: c}
- apiVersion: v1
  kind: Pod
  metadata:
    name: y-0
    annotations: {scheduling.k8s.io/group-name: y, simulate.kbatch.dev/arrival: '3', simulate.kbatch.dev/duration: '9'}
  spec: *x
"""


def test_nobody_goes_for_one_who_comes_before_the_job_whose_start_is_planned(simulate: Callable[..., Any]) -> None:
    """Its queue has less of its share. So it is given what would be kept from others."""
    text = (CASES / "reclaim-knows-what-allocate-keeps.yaml").read_text("utf-8") + FIRST
    outcome = simulate(text, MODES["easy"])
    found = starts(outcome)
    assert found["y-0"] == 3.0
    assert (found["x-0"], found["g-0"]) == (4.0, 21.0)
    assert {each["for"] for each in outcome.evictions} == {"default/x", "default/g"}


def test_reclaim_keeps_no_room_for_one_whose_queue_has_had_its_share(simulate: Callable[..., Any]) -> None:
    outcome = simulate("reclaim-plans-for-nobody-who-has-its-share", MODES["easy"], until=30)
    assert starts(outcome)["x-0"] == 3.0
    assert not outcome.evictions


@pytest.mark.parametrize(("mode", "short"), [("none", 5000.0), ("easy", 1000.0), ("conservative", 1000.0)])
def test_room_of_a_group_that_has_waited_for_long_is_backfilled(
    simulate: Callable[..., Any], mode: str, short: float
) -> None:
    """Where no start is planned room gathers for it, and nobody knows until when."""
    found = starts(simulate("the-aged-are-backfilled", MODES[mode]))
    assert (found["wide-0"], found["wide-1"], found["long-0"]) == (5000.0, 5000.0, 5100.0)
    assert found["short-0"] >= short if mode == "none" else found["short-0"] == short


ESTIMATES = """
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}, {name: estimates}]
"""


@pytest.mark.parametrize("mode", ["none", "easy"])
def test_what_is_only_told_anew_does_not_prolong_a_run(simulate: Callable[..., Any], mode: str) -> None:
    text = f"actions: [enqueue, reclaim, allocate, {{name: backfill, arguments: {{mode: {mode}}}}}, preempt]{ESTIMATES}"
    outcome = simulate("estimates-do-not-prolong-a-run", text)
    assert set(starts(outcome)) == {"short-0", "service-0"}
    assert outcome.json["summary"]["cycles"] < 200


NEXT = """
- {apiVersion: scheduling.incubator.k8s.io/v1alpha1, kind: Queue, metadata: {name: default}, spec: {weight: 3}}
- {apiVersion: scheduling.incubator.k8s.io/v1alpha1, kind: Queue, metadata: {name: other}, spec: {weight: 1}}
- apiVersion: scheduling.incubator.k8s.io/v1alpha1
  kind: PodGroup
  metadata: {name: next, annotations: {simulate.kbatch.dev/arrival: '700', kbatch.dev/expected-seconds: '100'}}
  spec: {minMember: 1, queue: other}
- apiVersion: v1
  kind: Pod
  metadata:
    name: next-0
    annotations:
      {scheduling.k8s.io/group-name: next, simulate.kbatch.dev/arrival: '700', simulate.kbatch.dev/duration: '100'}
  spec:
    schedulerName: kube-batch
    nodeSelector: {gpu: 'yes'}
    containers: [{name: m, resources: {requests: {cpu: '4'}}}]
"""


def test_the_start_of_one_who_has_waited_for_long_is_planned_besides_that_of_the_first(
    simulate: Callable[..., Any],
) -> None:
    """The other queue holds nothing, and comes first; who came long before it keeps its turn."""
    text = (CASES / "the-aged-are-backfilled.yaml").read_text("utf-8") + NEXT
    text = text.replace("metadata: {name: n1}", "metadata: {name: n1, labels: {gpu: 'yes'}}")
    text = text.replace(
        "    schedulerName: kube-batch\n", "    schedulerName: kube-batch\n    nodeSelector: {gpu: 'yes'}\n", 1
    )
    without_enqueue = MODES["easy"].replace("enqueue, ", "")  # which would let in one for whom there is no room
    outcome = simulate(text, without_enqueue, until=800)
    begin = told(outcome, "wide"), told(outcome, "next")
    assert [each and (each["time"], each["basis"]) for each in begin] == [
        (5000.0, "reservation"), (5100.0, "reservation"),
    ]  # fmt: skip
    found = starts(simulate(text, without_enqueue))
    assert (found["wide-0"], found["next-0"]) == (5000.0, 5100.0)


def test_one_that_is_ahead_in_the_queue_starts_before_one_who_has_waited_for_long(simulate: Callable[..., Any]) -> None:
    """As where room gathers: the start that was planned first keeps nothing from it."""
    found = starts(simulate("an-older-one-starts-before-the-aged", MODES["easy"]))
    assert (found["f-0"], found["a-0"], found["a-1"]) == (700.0, 5000.0, 5000.0)
    without_enqueue = MODES["easy"].replace("enqueue, ", "")
    found = starts(simulate("an-older-one-is-not-passed-by-the-aged", without_enqueue))
    assert (found["big-0"], found["small-0"], found["small-1"]) == (2000.0, 12000.0, 12000.0)
