"""A recorded scheduler, decided again."""

from __future__ import annotations

import inspect
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kbatch.api.configuration import parse
from kbatch.api.objects import Pod, PodGroup
from kbatch.decisions.files import read_lines
from kbatch.decisions.recording import MOST_DELTAS, RecordedModel
from kbatch.decisions.records import Cycle, LogError, Standing, Start, decode_line, encode_line
from kbatch.decisions.replay import replay
from kbatch.engine import Memo, NullObserver, Transaction, build_policy, cycle, take_snapshot
from kbatch.engine.plugin import Plugin, View
from kbatch.engine.plugins import BUILTIN
from kbatch.engine.state.jobs import JobState
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Unreadable, Upsert
from kbatch.times import MILLISECOND, SECOND
from tests.unit.decisions.hearing import START, Hearing
from tests.unit.scheduler.fakes import group, node, pod, queue


def hearing(*objects: Any) -> Hearing:
    heard = Hearing()
    for obj in (queue(), node("n1"), node("n2"), *objects):
        heard.model.apply(Upsert(obj))
    return heard


def gang(name: str, count: int) -> list[Any]:
    return [group(name, minimum=count), *(pod(f"{name}-{number}", group=name) for number in range(count))]


def check(heard: Hearing) -> int:
    """Replay every log; how many cycles were decided again, all alike."""
    cycles = 0
    for log in heard.sink.logs:
        for again in replay(log):
            assert again.difference is None, again
            cycles += 1
    return cycles


def test_every_way_into_the_model_is_recorded() -> None:
    """A new method that changes the model must be noted by `RecordedModel`, or logs would lie."""
    # Refusals lapse with the time of the snapshot, which a log tells.
    readers = {
        "claims", "demand", "deserved", "dividing", "lapse", "makers", "marks", "namespace_labels",
        "priority_class", "quota_ask", "refresh", "refreshing", "validate",
    }  # fmt: skip
    methods = {
        name for name, member in inspect.getmembers(ClusterModel, inspect.isfunction) if not name.startswith("_")
    }  # fmt: skip
    recorded = {name for name in vars(RecordedModel) if inspect.isfunction(vars(RecordedModel)[name])} - {"_note"}
    assert methods - readers == recorded


def test_a_run_is_decided_again_alike() -> None:
    heard = hearing(*gang("a", 3), *gang("b", 9))
    assert any(isinstance(step, Transaction) for step in heard.cycle())
    heard.model.forget("ns/a-1", "uid-a-1")
    heard.cycle()
    for number in range(3):
        heard.model.apply(Upsert(pod(f"a-{number}", group="a", node="n1")))
    heard.cycle()
    heard.cycle()  # nothing happened: the memo answers
    heard.model.apply(Delete(Pod, "ns", "b-8"))
    heard.model.apply(Unreadable(Pod, "ns", "odd", "u", "n2", "odd"))
    heard.cycle()
    heard.model.apply(Delete(PodGroup, "ns", "a"))
    heard.cycle()
    assert check(heard) == 6
    assert len(heard.sink.logs) == 1


def test_a_log_that_starts_in_the_middle_needs_nothing_of_before() -> None:
    heard = hearing(*gang("a", 3), *gang("b", 9))
    heard.sink.most = 1
    for number in range(5):
        heard.cycle()
        heard.model.apply(Upsert(pod(f"late-{number}", group="late")))
    assert len(heard.sink.logs) == 3, "every other cycle ends one"
    assert check(heard) == 3


def test_equal_decisions_are_written_once() -> None:
    picky = pod("picky", group="")
    picky.spec.node_selector = {"no": "node"}
    heard = hearing(picky)
    for _ in range(3):
        heard.cycle()
        heard.model.apply(Delete(PodGroup, "ns", "nobody"))  # so that the next cycle looks again
    assert heard.cycle()
    assert not heard.cycle(), "nothing has happened since"
    cycles = [line for line in map(decode_line, heard.sink.logs[0]) if isinstance(line, Cycle)]
    assert [line.same for line in cycles] == [False, True, True, True, False]
    assert not any(line.decisions for line in cycles[1:])
    assert check(heard) == 5


def test_another_policy_stands_in_the_log() -> None:
    heard = hearing(*gang("a", 3))
    heard.cycle(assume=False)
    heard.text = "actions: allocate\ntiers:\n- plugins: [{name: gang}, {name: predicates}]"
    heard.policy = build_policy(parse(heard.text, "test"))
    heard.cycle()
    cycles = [line for line in map(decode_line, heard.sink.logs[0]) if isinstance(line, Cycle)]
    assert [line.policy is not None for line in cycles] == [False, True]
    assert check(heard) == 2


def test_a_difference_names_the_cycle_and_what_differs() -> None:
    heard = hearing(*gang("a", 3))
    heard.cycle()
    heard.cycle()
    log = heard.sink.logs[0]
    number = next(number for number, line in enumerate(log) if b'"transaction"' in line)
    log[number] = log[number].replace(b'"node":"n1"', b'"node":"n9"', 1)
    results = list(replay(log))
    assert [result.difference is None for result in results] == [False, True]
    difference = results[0].difference
    assert difference is not None
    assert '"node":"n9"' in difference.recorded
    assert '"node":"n1"' in difference.decided


@pytest.mark.parametrize("change", [{"next_wake": 17}, {"decisions": ()}, {"failed": "TypeError: x"}])
def test_what_comes_at_the_end_counts_too(change: dict[str, Any]) -> None:
    heard = hearing(*gang("a", 3))
    heard.cycle()
    last = decode_line(heard.sink.logs[0][-1])
    assert isinstance(last, Cycle)
    heard.sink.logs[0][-1] = encode_line(replace(last, **change))
    (result,) = replay(heard.sink.logs[0])
    assert result.difference is not None


def test_a_cycle_that_was_cut_short_is_compared_as_far_as_it_went() -> None:
    heard = hearing(*gang("a", 3), *gang("b", 2))
    heard.now += SECOND
    steps = heard.decide(take_snapshot(heard.model, heard.now), heard.policy, heard.memo, NullObserver())
    next(step for step in steps if isinstance(step, Transaction))
    steps.close()
    heard.memo = Memo()
    heard.cycle()
    assert check(heard) == 2


def test_an_engine_that_fails_is_recorded_and_found_out_by_one_that_does_not() -> None:
    failing = True

    def decide(*arguments: Any) -> Generator[Any, None, Any]:
        steps = cycle(*arguments)
        if failing:
            yield next(steps)
            raise KeyError("broken")
        return (yield from steps)

    heard = Hearing(decide=decide)
    for obj in (queue(), node("n1"), *gang("a", 2)):
        heard.model.apply(Upsert(obj))
    with pytest.raises(KeyError):
        heard.cycle()
    heard.memo = Memo()
    failing = False
    heard.cycle()
    first, second = replay(heard.sink.logs[0])
    assert first.difference is not None
    assert second.difference is None


def test_while_the_sink_is_not_ready_nothing_is_kept() -> None:
    heard = hearing(*gang("a", 3))
    heard.sink.accepts = False
    assert heard.cycle()
    assert heard.model.journal is None
    heard.sink.accepts = True
    heard.cycle()
    assert check(heard) == 1


def test_too_many_changes_end_the_log_and_the_next_starts_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbatch.decisions.recording.MOST_DELTAS", 5)
    assert MOST_DELTAS > 5
    heard = hearing(*gang("a", 3))
    heard.cycle()
    for number in range(10):
        heard.model.apply(Upsert(pod(f"x-{number}", group="x")))
    heard.cycle()
    assert heard.sink.endings == ["too much happened between two cycles"]
    assert len(heard.sink.logs) == 2
    assert check(heard) == 2


def test_what_is_no_log_is_said() -> None:
    heard = hearing(*gang("a", 3))
    heard.cycle()
    log = heard.sink.logs[0]
    with pytest.raises(LogError, match="before its beginning is whole"):
        list(replay([]))
    with pytest.raises(LogError, match="begins with"):
        list(replay(log[1:]))
    with pytest.raises(LogError, match="then a standing"):
        list(replay([log[0], *log[2:]]))
    with pytest.raises(LogError, match=f"line {len(log) + 1}: a start in the middle"):
        list(replay([*log, log[0]]))
    with pytest.raises(LogError, match="line 3: no record"):
        list(replay([*log[:2], b"{", *log[2:]]))


OLD = Path(__file__).parents[2] / "data" / "decisions-in-milliseconds.jsonl.gz"
"""Recorded when instants were milliseconds: a lifetime ends in it, a time-out, and a wait for a back-off."""


def test_a_log_in_milliseconds_is_decided_again_alike() -> None:
    lines = list(read_lines(OLD))
    recorded = [record for record in map(decode_line, lines) if isinstance(record, Cycle)]
    found = list(replay(lines))
    assert [each.difference for each in found] == [None] * 7
    assert [each.now - START for each in found] == [
        milliseconds * MILLISECOND for milliseconds in (5_123, 30_000, 32_001, 32_500, 59_999, 60_000, 61_500)
    ]
    assert [record.next_wake for record in recorded][:2] == [1_767_225_632_000] * 2
    assert any(b'"evictions":[{' in line for line in lines)


def test_a_log_in_milliseconds_that_is_read_in_microseconds_is_found_out() -> None:
    lines = [line.replace(b'"format":1', b'"format":2') for line in read_lines(OLD)]
    assert any(each.difference is not None for each in replay(lines))


def test_logs_say_in_which_format_they_are() -> None:
    heard = hearing(*gang("a", 3))
    heard.cycle()
    (log,) = heard.sink.logs
    start, last = decode_line(log[0]), decode_line(log[-1])
    assert isinstance(start, Start)
    assert start.format == 3
    assert isinstance(last, Cycle)
    assert last.now == START + SECOND
    with pytest.raises(LogError, match="a log of format 4; this kbatch reads 1 to 3"):
        list(replay([log[0].replace(b'"format":3', b'"format":4'), *log[1:]]))


def test_refusals_are_decided_on_again_alike() -> None:
    heard = Hearing()
    for obj in (queue(), node("n"), node("m"), *gang("g", 2)):
        heard.model.apply(Upsert(obj))
    heard.model.refuse_bind("ns/g-0", "uid-g-0", "m", heard.now + 2 * SECOND, "before the log")
    heard.cycle(assume=False)
    heard.model.refuse_bind("ns/g-1", "uid-g-1", "n", heard.now + 3 * SECOND, "in the log")
    binds = [heard.cycle(assume=False) for _ in range(5)]
    assert len({str(each) for each in binds}) > 1, "they make a difference"
    heard.cycle()
    heard.model.refuse_eviction("ns/g-1", "uid-g-1", None)
    heard.cycle()
    assert check(heard) == 8


class Turns(msgspec.Struct):
    """What the plugin below keeps: how many cycles it has seen."""

    seen: int = 0


class TakingTurns(Plugin):
    """Lets the other of two groups come first in every other cycle."""

    name = "turns"
    State = Turns

    def __init__(self, arguments: Any, view: View) -> None:
        super().__init__(arguments, view)
        self.state.seen += 1

    def job_order_key(self, job: JobState) -> tuple[int, ...]:
        return ((int(job.name[-1]) + self.state.seen) % 2,)


def test_what_a_plugin_keeps_is_in_force_when_a_log_is_decided_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUILTIN, TakingTurns.name, TakingTurns)
    text = """
actions: allocate
tiers:
- plugins: [{name: turns}, {name: gang}, {name: predicates}]
"""
    heard = Hearing(policy=build_policy(parse(text, "test")), text=text)
    for obj in (queue(), node("n", cpu="1"), *gang("g0", 1), *gang("g1", 1)):
        heard.model.apply(Upsert(obj))

    def cycle_in_vain() -> str:
        """A cycle of which the bind fails; whose it was."""
        (first, *_) = heard.cycle()
        assert isinstance(first, Transaction)
        heard.model.forget(first.binds[0].pod, first.binds[0].uid)
        return first.group

    heard.sink.accepts = False  # it has run for a while when somebody begins to listen
    for _ in range(3):
        cycle_in_vain()
    assert heard.state.plugins == {"turns": Turns(3)}
    before = heard.state
    heard.sink.accepts = True
    assert [cycle_in_vain() for _ in range(4)] == ["ns/g0", "ns/g1"] * 2, "the state changes what is decided"
    assert before.plugins == {"turns": Turns(3)}, "and what one cycle left is not changed by the next"
    assert check(heard) == 4
    without = [
        encode_line(replace(record, state=None)) if isinstance(record, Standing) else encode_line(record)
        for record in map(decode_line, heard.sink.logs[-1])
    ]
    assert [again.difference is None for again in replay(without)] == [False] * 4
    wrong = [line.replace(b'{"seen":3}', b'{"seen":"often"}') for line in heard.sink.logs[-1]]
    with pytest.raises(LogError, match="the recorded state cannot be used here"):
        list(replay(wrong))


class Waking(TakingTurns):
    """Wants to be asked again every second."""

    def wake(self) -> int | None:
        return self.view.now + SECOND


def test_of_an_older_log_each_cycle_that_was_decided_is_decided_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that says the same as the one before it was, where an instant had come at which it might not."""
    monkeypatch.setitem(BUILTIN, Waking.name, Waking)
    text = "actions: allocate\ntiers:\n- plugins: [{name: turns}, {name: gang}, {name: predicates}]\n"
    heard = Hearing(policy=build_policy(parse(text, "test")), text=text)
    for obj in (queue(), *gang("g0", 1), *gang("g1", 1)):
        heard.model.apply(Upsert(obj))
    for _ in range(2):
        heard.cycle()
    heard.model.apply(Upsert(node("n", cpu="1")))
    heard.cycle(assume=False)
    (log,) = heard.sink.logs
    cycles = [line for line in map(decode_line, log) if isinstance(line, Cycle)]
    assert [line.same for line in cycles] == [False, True, False]
    older = [log[0].replace(b'"format":3', b'"format":2'), *log[1:]]
    assert [again.difference for again in replay(older)] == [None] * 3
