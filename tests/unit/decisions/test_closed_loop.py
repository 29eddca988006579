"""A recorded time under the same policy and under others."""

from __future__ import annotations

import functools
import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from kbatch.api.configuration import parse
from kbatch.api.objects import OwnerReference, Pod, PodGroup, SchedulingGate
from kbatch.cli.main import app
from kbatch.closed_loop.comparison import Comparison, compare
from kbatch.closed_loop.history import read_history
from kbatch.closed_loop.world import world_of
from kbatch.decisions.records import Cycle, LogError, decode_line, encode_line
from kbatch.engine import build_policy
from kbatch.model.events import Delete, Upsert
from kbatch.simulator.result import Result
from kbatch.simulator.run import Limits
from kbatch.times import SECOND
from tests.property.test_simulator import PLAIN, node, priority_class, queue, work
from tests.unit.decisions.hearing import TEXT, Hearing
from tests.unit.decisions.recorded_run import record
from tests.unit.scheduler.fakes import group as group_of
from tests.unit.scheduler.fakes import node as node_of
from tests.unit.scheduler.fakes import pod as pod_of
from tests.unit.scheduler.fakes import queue as queue_of

Json = dict[str, Any]
UNTIL = Limits(until=400 * SECOND)


def under(log: list[bytes], text: str) -> Comparison:
    return compare(read_history(log), build_policy(parse(text, "test")))


def templated(name: str, queue: str, members: int, **times: int) -> Json:
    return {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "annotations": {f"simulate.kbatch.dev/{what}": str(value) for what, value in times.items()},
        },
        "spec": {
            "minMember": members,
            "queue": queue,
            "subGroups": [
                {
                    "name": "w",
                    "minMember": members,
                    "template": {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}},
                }
            ],
        },
    }


DAY: list[Json] = [
    node("n0", 6),
    queue("a", 1),
    queue("b", 1),
    priority_class("high", 100),
    *work("whole", "a", 6, 1, times={"duration": 50}),
    *work("owner", "b", 3, 2, times={"arrival": 5, "duration": 20, "termination": 3}),
    *work("held", "b", 4, 4, times={"arrival": 9, "duration": 20}, held=True, promised=4),
    templated("made", "a", 3, arrival=12, duration=30),
    *work("urgent", "a", 2, 2, priority="high", times={"arrival": 30, "duration": 10}),
]


@functools.cache
def day() -> tuple[list[bytes], Result]:
    (log,), result = record(DAY, TEXT, UNTIL)
    return log, result


def test_the_same_policy_gives_the_recorded_starts_with_gangs_templates_held_jobs_and_reclaim() -> None:
    log, result = day()
    assert sum(len(each.evictions) for each in result.cycles) > 2, "or this shows little"
    found = under(log, TEXT)
    assert [one.group.partition("/")[2] for one in found.starts] == ["held", "made", "owner", "urgent", "whole"]
    assert all(one.recorded is not None and one.difference == 0 for one in found.starts), found.starts
    assert found.json()["summary"]["median_error"] == 0
    assert (found.new.evictions, found.new.wasted) == (found.recorded.evictions, found.recorded.wasted)
    for name, amounts in found.recorded.held.items():
        for resource, amount in amounts.items():
            assert found.new.held[name][resource] == pytest.approx(amount, abs=2)
            assert round(amount * found.length / max(1, result.makespan)) == pytest.approx(
                result.queues[name].mean[resource], abs=2
            )


def test_another_policy_starts_others_earlier_and_evicts_nobody() -> None:
    log, _ = day()
    found = under(log, PLAIN)
    starts = {one.group.partition("/")[2]: one for one in found.starts}
    assert starts["whole"].difference == 0
    assert starts["owner"].recorded == 6 * SECOND, "reclaimed what it deserves"
    assert starts["owner"].new is not None
    assert starts["owner"].new >= 50 * SECOND, "waits until the others have run as long as they did"
    assert (found.recorded.evictions > 0, found.new.evictions, found.new.wasted) == (True, 0, 0)
    summary = found.json()["summary"]
    assert summary["later"]["groups"] >= 1
    assert summary["later"]["p90"] >= summary["later"]["median"] > 0


def test_what_an_evicted_pod_ran_in_the_end_is_its_run_time() -> None:
    log, _ = day()
    ends = world_of(read_history(log)).recorded.ends
    assert {ends[f"default/whole-{at}"].after for at in range(6)} == {50 * SECOND}  # type: ignore[union-attr]
    assert not any("-r" in name for name in ends), "whoever comes in its place comes only after an eviction"


def test_a_log_that_was_cut_is_compared_up_to_there(tmp_path: Path) -> None:
    log, _ = day()
    cycles = [at for at, line in enumerate(log) if isinstance(decode_line(line), Cycle)]
    cut = log[: cycles[len(cycles) // 2]]
    found = under(cut, TEXT)
    assert [one.new for one in found.starts] == [one.recorded for one in found.starts]
    assert None in [one.new for one in found.starts]

    path = tmp_path / "cut"
    path.write_bytes(gzip.compress(b"".join(cut) + b"{}\n"))
    result = CliRunner().invoke(app, ["replay", str(path), "--closed-loop", "-o", "json"])
    assert result.exit_code == 2
    (file,) = json.loads(result.stdout)["files"]
    assert "no record" in file["error"]
    assert file["summary"]["cycles"] == len(cycles) // 2


def test_a_log_that_begins_in_the_middle_of_a_day_goes_on_from_there() -> None:
    logs, _ = record(DAY, TEXT, UNTIL, most=4)
    assert len(logs) > 1
    for log in logs:
        found = under(log, TEXT)
        # At its last instant the log may have been cut off between two cycles.
        assert all(one.new == one.recorded or (one.recorded, one.new) == (None, found.length) for one in found.starts)


def test_a_log_without_a_cycle_is_refused() -> None:
    log, _ = day()
    first = next(at for at, line in enumerate(log) if isinstance(decode_line(line), Cycle))
    with pytest.raises(LogError, match="no cycle"):
        read_history(log[:first])


def live() -> Hearing:
    heard = Hearing()
    for obj in (queue_of(), node_of("n1"), node_of("n2")):
        heard.model.apply(Upsert(obj))
    return heard


def test_pods_that_came_after_their_group_was_in_queue_come_as_long_after_it_again() -> None:
    """As those of a Job that kbatch holds do in a live cluster: its controller takes its time."""
    heard = live()
    waiting = group_of("late", minimum=2)
    waiting.spec.min_resources = {"cpu": "2"}
    heard.model.apply(Upsert(waiting))
    heard.cycle()  # enqueues it
    heard.cycle()
    heard.cycle()
    for number in range(2):
        heard.model.apply(Upsert(pod_of(f"late-{number}", group="late")))
    heard.cycle()
    heard.cycle()
    (log,) = heard.sink.logs
    late = [one for one in world_of(read_history(log)).objects if one.awaits]
    assert [(one.awaits, one.arrival) for one in late] == [("ns/late", 3 * SECOND)] * 2
    (start,) = under(log, TEXT).starts
    assert (start.recorded, start.new) == (3 * SECOND, 3 * SECOND)


def test_a_pod_with_kbatchs_gate_loses_it_as_long_after_its_groups_turn() -> None:
    heard = live()
    heard.model.apply(Upsert(group_of("gated")))
    pod = pod_of("gated-0", group="gated")
    shut = replace(pod, spec=replace(pod.spec, scheduling_gates=(SchedulingGate(name="kbatch.dev/in-queue"),)))
    heard.model.apply(Upsert(shut))
    heard.cycle()
    heard.cycle()
    heard.model.apply(Upsert(pod))
    heard.cycle()
    (log,) = heard.sink.logs
    (start,) = under(log, TEXT).starts
    assert (start.recorded, start.new) == (2 * SECOND, 2 * SECOND)


def test_pods_that_went_with_their_group_run_as_long_and_their_group_is_not_deleted_before() -> None:
    heard = live()
    for obj in (group_of("serve"), pod_of("serve-0", group="serve")):
        heard.model.apply(Upsert(obj))
    heard.cycle()
    heard.model.apply(Upsert(pod_of("serve-0", group="serve", node="n1")))
    heard.cycle()
    heard.cycle()
    heard.model.apply(Delete(PodGroup, "ns", "serve"))
    heard.model.apply(Delete(Pod, "ns", "serve-0"))
    heard.cycle()
    (log,) = heard.sink.logs
    world = world_of(read_history(log))
    assert [one.departure for one in world.objects] == [None] * len(world.objects)
    end = world.recorded.ends["ns/serve-0"]
    assert end is not None
    assert (end.after, end.how.name) == (3 * SECOND, "SUCCEEDED")


def test_members_of_templates_are_made_as_long_after_their_groups_turn() -> None:
    heard = live()
    made = msgspec.convert(templated("made", "default", 2), PodGroup)
    made.metadata.namespace, made.metadata.uid = "ns", "uid-made"
    made.spec.min_resources = {"cpu": "2"}
    heard.model.apply(Upsert(made))
    heard.cycle()
    heard.cycle()
    owner = OwnerReference(kind="PodGroup", name="made", uid="uid-made", controller=True)
    for number in range(2):
        pod = pod_of(f"made-w-{number}", group="made")
        pod.metadata.owner_references = (owner,)
        pod.metadata.labels = {"kbatch.dev/sub-group": "w"}
        heard.model.apply(Upsert(pod))
    heard.cycle()
    (log,) = heard.sink.logs
    world = world_of(read_history(log))
    assert not any(isinstance(one.obj, Pod) for one in world.objects), "the simulator makes them"
    assert world.recorded.delays == {"ns/made": 2 * SECOND}
    (start,) = under(log, TEXT).starts
    assert (start.recorded, start.new) == (2 * SECOND, 2 * SECOND)


def test_a_bind_and_an_eviction_that_were_refused_did_not_happen() -> None:
    heard = live()
    for obj in (group_of("a"), pod_of("a-0", group="a"), group_of("b"), pod_of("b-0", group="b", node="n2")):
        heard.model.apply(Upsert(obj))
    heard.cycle()
    heard.model.forget("ns/a-0", "uid-a-0")
    heard.model.evicting("ns/b-0", "uid-b-0")
    heard.model.not_evicting("ns/b-0", "uid-b-0")
    heard.cycle(assume=False)
    (log,) = heard.sink.logs
    lives = {life.pod.metadata.name: life for life in read_history(log).lives}
    assert lives["a-0"].bound == heard.now, "bound by the cycle after"
    assert lives["b-0"].evicted is None
    assert lives["b-0"].ran


def test_pods_of_other_schedulers_come_to_their_nodes_and_go_as_they_did() -> None:
    heard = live()
    foreign = pod_of("foreign", node="n1")
    foreign.spec.scheduler_name = "default-scheduler"
    heard.cycle()
    heard.model.apply(Upsert(foreign))
    heard.cycle()
    heard.cycle()
    heard.model.apply(Delete(Pod, "ns", "foreign"))
    heard.cycle()
    (log,) = heard.sink.logs
    found = [
        (one.arrival, one.departure, one.obj.spec.node_name)
        for one in world_of(read_history(log)).objects
        if isinstance(one.obj, Pod)
    ]
    assert found == [(SECOND, 3 * SECOND, "n1")]
    assert under(log, TEXT).starts == ()


def _file(folder: Path, log: list[bytes]) -> str:
    path = folder / "log"
    path.write_bytes(gzip.compress(b"".join(log)))
    return str(path)


def test_the_command_shows_both_in_words_and_as_json(tmp_path: Path) -> None:
    log, _ = day()
    other = tmp_path / "plain.yaml"
    other.write_text(PLAIN)
    path = _file(tmp_path, log)
    text = CliRunner().invoke(app, ["replay", path, "--scheduler-conf", str(other), "--closed-loop"])
    assert text.exit_code == 0, text.output
    assert "default/owner" in text.stdout
    assert "b held" in text.stdout
    result = CliRunner().invoke(app, ["replay", path, "--closed-loop", "-o", "json"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["unreadable"] == 0
    assert said["files"][0]["summary"]["median_error"] == 0
    assert said["files"][0]["summary"]["same"] == len(said["files"][0]["groups"]) == 5


def test_each_recorded_state_is_decided_by_another_policy_and_what_it_would_do_otherwise_is_counted(
    tmp_path: Path,
) -> None:
    log, result = day()
    other, same = tmp_path / "plain.yaml", tmp_path / "same.yaml"
    other.write_text(PLAIN)
    same.write_text(TEXT)
    path = _file(tmp_path, log)
    found = CliRunner().invoke(app, ["replay", path, "--scheduler-conf", str(other), "-o", "json"])
    assert found.exit_code == 0, found.output
    said = json.loads(found.stdout)
    evicting = sum(bool(each.evictions) for each in result.cycles)
    assert evicting <= said["differences"] < said["cycles"]
    alike = CliRunner().invoke(app, ["replay", path, "--scheduler-conf", str(same)])
    assert alike.exit_code == 0
    assert "all equal" in alike.stdout


@pytest.mark.parametrize("more", [[], ["--closed-loop"]])
def test_a_configuration_that_cannot_be_used_is_named(tmp_path: Path, more: list[str]) -> None:
    (log,), _ = record(DAY[:2], TEXT, UNTIL)
    bad = tmp_path / "bad.yaml"
    bad.write_text("actions: fly\n")
    result = CliRunner().invoke(app, ["replay", _file(tmp_path, log), "--scheduler-conf", str(bad), *more])
    assert result.exit_code == 2
    assert "bad.yaml" in result.stderr


def test_the_command_says_of_a_log_without_cycles_that_it_is_one(tmp_path: Path) -> None:
    log, _ = day()
    broken = [*(line for line in log if not isinstance(decode_line(line), Cycle))]
    assert encode_line(decode_line(broken[0])) == broken[0]
    result = CliRunner().invoke(app, ["replay", _file(tmp_path, broken), "--closed-loop"])
    assert result.exit_code == 2
    assert "no cycle" in result.stderr


@pytest.mark.parametrize(
    ("damage", "more"),
    [
        ("decision", ["--closed-loop"]),
        *((damage, more) for damage in ("number", "time") for more in ([], ["--closed-loop"])),
    ],
)
def test_a_damaged_log_is_named_and_the_rest_of_the_folder_read(tmp_path: Path, damage: str, more: list[str]) -> None:
    """Each line is JSON still, and of a record that is known: what is wrong lies in a part that is read later."""
    log, _ = day()
    (tmp_path / "decisions-2.jsonl.gz").write_bytes(gzip.compress(b"".join(log)))
    before, after = {
        "decision": (b'"uid":"', b'"uid":[],"was":"'),
        "number": (
            b'"spec":{"schedulerName"',
            b'"spec":{"priority":1' + b"0" * 20 + b',"schedulerName"',
        ),
        "time": (b'"creationTimestamp":"2', b'"creationTimestamp":"x2'),
    }[damage]
    damaged = [
        line.replace(before, after) if damage != "decision" or b'"record":"cycle"' in line else line for line in log
    ]
    assert damaged != log
    (tmp_path / "decisions-1.jsonl.gz").write_bytes(gzip.compress(b"".join(damaged)))
    result = CliRunner().invoke(app, ["replay", str(tmp_path), *more])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    where = "" if damage == "number" else "line "  # a number is found to be too large when it is computed with
    assert f"decisions-1.jsonl.gz: {where}" in result.stderr
    assert result.exit_code == 2
