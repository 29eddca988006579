"""Status: written when it differs, once, and never in the way of binds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from kbatch.api.conditions import SCHEDULED
from kbatch.api.objects import Condition, EstimatedStart, Node, Pod, PodGroup, SubGroup
from kbatch.api.reasons import BindFailed, NotEnoughTasks, QueueOverused, Reason, Reserved
from kbatch.engine import Report, StartEstimate, Verdict, verdict_conditions
from kbatch.kube.errors import ApiError, NoAnswerError
from kbatch.model.events import Delete
from kbatch.times import SECOND
from operators.scheduler import put_off_starts, status
from operators.scheduler.cache import Cache
from operators.scheduler.deferred import LATE_SECONDS, Rank
from operators.scheduler.pace import HOLDS, MESSAGE_SECONDS, REST_SECONDS, START_SECONDS, WRITES_AT_ONCE
from operators.scheduler.put_off_starts import PutOffStarts
from operators.scheduler.status import StatusWriter
from operators.scheduler.status_diff import start_moved, start_of
from operators.scheduler.status_queue import AGAIN_SECONDS, AT_ONCE_IN_A_FLOOD, FLOOD
from tests.unit.scheduler.fakes import (
    Call,
    FakeApi,
    cache_with,
    conflict,
    finish,
    group,
    metrics,
    node,
    pod,
    queue,
    told,
    until,
)

END = "/status"


def server(cache: Cache) -> Any:
    """Answer an apply as the API server does: with the object, its conditions merged by type."""
    version = 1000

    def answer(call: Call) -> bytes:
        nonlocal version
        version += 1
        name = call.path.split("/")[-2]
        known = cache.groups[f"ns/{name}"]
        sent = call.body["status"]
        kept = [c for c in known.status.conditions or () if c.type not in {s["type"] for s in sent["conditions"]}]
        written = msgspec.convert(msgspec.to_builtins(known), PodGroup)
        written.metadata.resource_version = str(version)
        written.status.conditions = (*kept, *(msgspec.convert(one, Condition) for one in sent["conditions"]))
        written.status.scheduling_attempts = sent.get("schedulingAttempts", 0)
        written.status.estimated_start = msgspec.convert(sent.get("estimatedStart"), EstimatedStart | None)
        written.status.excess_charged = sent.get("excessCharged")
        return msgspec.json.encode(written)

    return answer


def waiting(created: int = 1, needed: int = 3, *, attempts: int = 0, name: str = "g") -> dict[str, Verdict]:
    verdict = Verdict(
        f"ns/{name}", shadow=False, enqueued=True, scheduled=False, reason=NotEnoughTasks(created, needed),
        attempts=attempts, job=f"ns/{name}",
    )  # fmt: skip
    return {verdict.job: verdict}


def whole(name: str = "g") -> dict[str, Verdict]:
    return {f"ns/{name}": Verdict(f"ns/{name}", shadow=False, enqueued=True, scheduled=True, job=f"ns/{name}")}


def placed(name: str = "g") -> tuple[Node, Pod]:
    """A pod that a group has, on its node."""
    return node("n"), pod(f"{name}-0", group=name, node="n")


@contextlib.asynccontextmanager
async def writing(api: FakeApi, cache: Cache, **options: Any) -> AsyncIterator[StatusWriter]:
    chosen: dict[str, Any] = {"binding": lambda: False, "message_seconds": 0.0, **options}
    writer = StatusWriter(api, cache, metrics=metrics(), **chosen)
    if ("PATCH", END) not in api.answers:
        api.on("PATCH", END, server(cache))
    task = asyncio.create_task(writer.run())
    try:
        yield writer
        assert not task.done()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_conditions_are_applied_once_and_not_again() -> None:
    foreign = Condition(type="Completed", status="False", reason="X", last_transition_time="2026-01-01T00:00:00Z")
    api, cache = FakeApi(), cache_with(group(conditions=(foreign,)))
    async with writing(api, cache) as writer:
        finish(writer.report(Report(waiting())))
        assert await writer.drain(2)
        (call,) = api.calls
        assert call.path.endswith("/namespaces/ns/podgroups/g/status")
        assert call.params["fieldManager"] == "kbatch-scheduler"
        conditions = {one["type"]: one for one in call.body["status"]["conditions"]}
        assert set(conditions) == {"Enqueued", "Scheduled", "Unschedulable"}, "its own conditions and no others"
        assert conditions["Scheduled"]["reason"] == "NotEnoughTasks"
        assert "1 of 3" in conditions["Scheduled"]["message"]
        assert all(one["lastTransitionTime"] for one in conditions.values())
        for _ in range(5):
            finish(writer.report(Report(waiting())))
        await asyncio.sleep(0.05)
        assert len(api.calls) == 1
        assert writer.pending == 0


async def test_what_a_group_is_charged_is_written_and_taken_back() -> None:
    api, cache = FakeApi(), cache_with(group())
    async with writing(api, cache) as writer:
        for charged, said in ((2_500_000, "2.5"), (2_500_000, "2.5"), (3_000_000, 3), (0, None)):
            verdict = msgspec.structs.replace(waiting()["ns/g"], charged=charged)
            finish(writer.report(Report({"ns/g": verdict})))
            assert await writer.drain(2)
            assert api.calls[-1].body["status"].get("excessCharged") == said
            job = cache.model.jobs["ns/g"]
            assert job.group is not None
            assert job.group.status.excess_charged == said
    assert len(api.calls) == 3


async def test_a_flip_moves_the_time_and_new_words_do_not() -> None:
    old = "2026-01-01T00:00:00Z"
    before = tuple(
        msgspec.structs.replace(one, last_transition_time=old) for one in verdict_conditions(waiting()["ns/g"], 1)
    )
    api, cache = FakeApi(), cache_with(group(conditions=before), *placed())
    async with writing(api, cache) as writer:
        finish(writer.report(Report(waiting(created=2))))
        await until(lambda: len(api.calls) == 1 and not writer.pending)
        assert {one["lastTransitionTime"] for one in api.calls[0].body["status"]["conditions"]} == {old}
        finish(writer.report(Report(whole())))
        await until(lambda: len(api.calls) == 2)
        times = {one["type"]: one["lastTransitionTime"] for one in api.calls[1].body["status"]["conditions"]}
        assert times["Enqueued"] == old
        assert times["Scheduled"] > old


async def test_a_group_that_came_to_life_again_is_said_to_be_in_queue_anew() -> None:
    verdict = msgspec.structs.replace(waiting()["ns/g"], enqueued=True)
    lived = verdict_conditions(verdict, 1)
    back = Condition(type="Completed", status="False", last_transition_time="2026-01-02T00:00:00Z")
    old = (*(msgspec.structs.replace(one, last_transition_time="2026-01-01T00:00:00Z") for one in lived), back)
    api, cache = FakeApi(), cache_with(group(conditions=old))
    async with writing(api, cache) as writer:
        finish(writer.report(Report({"ns/g": verdict})))
        await until(lambda: len(api.calls) == 1 and not writer.pending)
        said = {one["type"]: one["lastTransitionTime"] for one in api.calls[0].body["status"]["conditions"]}
        assert "Completed" not in said, "it is the podgroup operator's"
        assert said["Enqueued"] > "2026-01-02T00:00:00Z"
        assert said["Scheduled"] == "2026-01-01T00:00:00Z"
        finish(writer.report(Report({"ns/g": msgspec.structs.replace(verdict, attempts=0)})))
        await asyncio.sleep(0.05)
        assert len(api.calls) == 1


async def test_only_the_newest_word_about_a_group_is_written() -> None:
    api, cache = FakeApi(gate=asyncio.Event()), cache_with(*(group(f"g{number}") for number in range(30)))
    for number in range(30):
        cache.receive(told(*placed(f"g{number}")))
    async with writing(api, cache) as writer:
        for created in range(3):
            for number in range(30):
                finish(writer.report(Report(waiting(created, name=f"g{number}"))))
        await until(lambda: api.open_ == 16)
        for number in range(30):
            finish(writer.report(Report(whole(f"g{number}"))))
        assert api.gate is not None
        api.gate.set()
        assert await writer.drain(3)
        await until(lambda: not writer.pending)
        assert len(api.calls) <= 16 + 30
        for number in range(30):
            last = [call for call in api.calls if call.path.endswith(f"/g{number}/status")][-1]
            assert json.dumps(last.body).count("GangPlaced") == 2


async def test_while_binds_wait_few_writes_are_on_the_wire() -> None:
    api, cache = FakeApi(gate=asyncio.Event()), cache_with(*(group(f"g{number}") for number in range(30)))
    async with writing(api, cache, binding=lambda: True) as writer:
        for number in range(30):
            finish(writer.report(Report(waiting(name=f"g{number}"))))
        await until(lambda: api.open_ == 4)
        await asyncio.sleep(0.02)
        assert api.most_open == 4
        assert api.gate is not None
        api.gate.set()
        assert await writer.drain(3)


async def test_in_a_flood_of_small_groups_even_fewer() -> None:
    names = [f"g{number}" for number in range(FLOOD + 10)]
    api, cache = FakeApi(gate=asyncio.Event()), cache_with(*(group(name) for name in names))
    async with writing(api, cache, binding=lambda: True) as writer:
        verdicts: dict[str, Verdict] = {}
        for name in names:
            verdicts |= waiting(name=name)
        finish(writer.report(Report(verdicts)))
        await until(lambda: api.open_ == 2)
        await asyncio.sleep(0.02)
        assert api.most_open == 2
        assert api.gate is not None
        api.gate.set()
        assert await writer.drain(5)
        assert len(api.calls) == len(names)


async def test_a_message_alone_can_wait() -> None:
    api, cache = FakeApi(), cache_with(group())
    now = 100.0
    async with writing(api, cache, message_seconds=5.0, clock=lambda: now) as writer:
        finish(writer.report(Report(waiting(created=0))))
        assert await writer.drain(2)
        for created in (1, 2):
            finish(writer.report(Report(waiting(created))))
            await asyncio.sleep(0.02)
        assert len(api.calls) == 1
        now = 105.1
        await until(lambda: len(api.calls) == 2)
        assert "2 of 3" in json.dumps(api.calls[1].body)


async def test_a_group_that_waits_for_an_hour_is_written_a_few_times() -> None:
    """Its reasons and numbers are others in each cycle, and after half an hour it is let in."""
    api, cache = FakeApi(), cache_with(group(), *placed())
    now, said = 1000.0, list[tuple[float, str]]()
    async with writing(api, cache, message_seconds=MESSAGE_SECONDS, clock=lambda: now) as writer:
        for step in range(720):
            now = 1000.0 + 5 * step
            number = step % 7
            overused = QueueOverused("default", "cpu", 1000 * number, 4000)
            verdict = Verdict(
                "ns/g", shadow=False, enqueued=step >= 360, scheduled=False, attempted=number > 4, job="ns/g",
                reason=Reserved("ns/other", "cpu", number) if number == 3 else overused,
            )  # fmt: skip
            finish(writer.report(Report({"ns/g": verdict})))
            assert await writer.drain(2)
            while len(said) < len(api.calls):
                body = api.calls[len(said)].body["status"]["conditions"]
                said.append((now - 1000, {one["type"]: one["status"] for one in body}["Enqueued"]))
    assert said[0] == (0.0, "False")
    assert (1800.0, "True") in said, "where it stands is written at once"
    assert len(said) <= 4, "with the operator's two for the phases, six"


async def test_how_often_a_group_was_written_says_nothing_of_the_next_one_of_its_name() -> None:
    """A Job is often deleted and submitted again."""
    api, cache = FakeApi(), cache_with(group(), *placed())
    now = 1000.0

    async with writing(api, cache, message_seconds=MESSAGE_SECONDS, clock=lambda: now) as writer:
        for number in range(WRITES_AT_ONCE + 1):
            why = Reserved("ns/other", "cpu", 1) if number % 2 else NotEnoughTasks(1, 3)
            verdict = msgspec.structs.replace(waiting()["ns/g"], reason=why)
            finish(writer.report(Report({"ns/g": verdict})))
            assert await writer.drain(2)
            now += 1
        assert len(api.calls) == WRITES_AT_ONCE, "the last reason rests"
        again = group()
        again.metadata.uid = "another"
        cache.receive(told(again))
        for why in (NotEnoughTasks(1, 3), Reserved("ns/other", "cpu", 1)):
            finish(writer.report(Report({"ns/g": msgspec.structs.replace(waiting()["ns/g"], reason=why)})))
            assert await writer.drain(2)
        assert len(api.calls) == WRITES_AT_ONCE + 2


async def test_attempts_are_sent_every_time_because_what_is_left_out_is_removed() -> None:
    api, cache = FakeApi(), cache_with(group(), *placed())
    async with writing(api, cache) as writer:
        finish(writer.report(Report(waiting(attempts=2))))
        assert await writer.drain(2)
        finish(writer.report(Report({"ns/g": msgspec_replace(whole()["ns/g"], attempts=2)})))
        assert await writer.drain(2)
        assert [call.body["status"]["schedulingAttempts"] for call in api.calls] == [2, 2]


def msgspec_replace(verdict: Verdict, *, attempts: int) -> Verdict:
    return Verdict(
        verdict.group, verdict.shadow, verdict.enqueued, verdict.scheduled, attempts=attempts, job=verdict.job
    )


async def test_failures_are_tried_again_and_the_vanished_are_not() -> None:
    api, cache = FakeApi(), cache_with(group("a"), group("b"))
    answer = server(cache)
    api.on("PATCH", "/a/status", NoAnswerError("PATCH", "/a", sent=True, why="cut"), answer)
    api.on("PATCH", "/b/status", ApiError(404, "NotFound"))
    async with writing(api, cache) as writer:
        finish(writer.report(Report(waiting(name="a") | waiting(name="b"))))
        await until(lambda: len(api.made("PATCH", "/a/status")) == 2)
        assert await writer.drain(2)
        assert len(api.made("PATCH", "/b/status")) == 1
        assert cache.groups["ns/a"].status.conditions


async def test_what_was_said_once_is_tried_until_it_is_written() -> None:
    api, cache = FakeApi(), cache_with(queue(), group(minimum=1), node("n1"), pod("a", node="n1"))
    assert "ns/g" in cache.model.live
    writes = server(cache)
    api.on("PATCH", END, ApiError(500, message="later"), NoAnswerError("PATCH", END, sent=True, why="cut"), writes)
    async with writing(api, cache) as writer:
        finish(writer.report(Report(whole())))
        assert "ns/g" not in cache.model.live, "decided is decided: no cycle looks at it until the write is answered"
        assert not cache.groups["ns/g"].status.conditions
        await until(lambda: bool(cache.groups["ns/g"].status.conditions))
        assert "ns/g" not in cache.model.live
        await until(lambda: not writer.pending)
    assert len(api.calls) == 3


async def test_a_gang_that_loses_a_bind_after_all_is_looked_at_again() -> None:
    cache = cache_with(queue(), group(minimum=2), node("n1"), pod("a", node="n1"), pod("b"))
    job = cache.model.jobs["ns/g"]
    cache.assume("ns/b", job.tasks["ns/b"].uid, "n1")
    async with writing(FakeApi(), cache, binding=lambda: True) as writer:
        finish(writer.report(Report(whole())))
        assert "ns/g" not in cache.model.live
        cache.forget("ns/b", job.tasks["ns/b"].uid)
        assert "ns/g" in cache.model.live
        finish(writer.report(Report(waiting(2, 2))))
        assert not cache.model.jobs["ns/g"].is_true(SCHEDULED), "what is not so any more does not count any more"


async def test_shadow_groups_and_groups_unknown_have_nowhere_to_write_to() -> None:
    api, cache = FakeApi(), cache_with()
    shadow = Verdict("ns/p", shadow=True, enqueued=None, scheduled=False, reason=NotEnoughTasks(0, 1), job="ns/p#u")
    async with writing(api, cache) as writer:
        finish(writer.report(Report({"ns/p#u": shadow} | waiting())))
        await asyncio.sleep(0.02)
        assert api.calls == []


async def test_somebody_elses_change_of_our_condition_is_mended() -> None:
    api, cache = FakeApi(), cache_with(group())
    async with writing(api, cache) as writer:
        finish(writer.report(Report(waiting())))
        assert await writer.drain(2)
        cache.receive(told(group(version="2000")))
        finish(writer.report(Report(waiting())))
        assert await writer.drain(2)
        assert len(api.calls) == 2


async def test_a_new_groups_lack_of_pods_is_said_a_moment_later_and_not_at_all_if_they_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = 1.0
    monkeypatch.setattr(status, "FIRST_SECONDS", first)
    new = group()
    new.metadata.creation_timestamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    api, cache = FakeApi(), cache_with(new, *placed())
    async with writing(api, cache, message_seconds=first + 0.2) as writer:
        finish(writer.report(Report(waiting())))
        finish(writer.report(Report(whole())))
        await until(lambda: len(api.made("PATCH", END)) == 1 and writer.pending == 0)
    (call,) = api.made("PATCH", END)
    assert {one["type"]: one["status"] for one in call.body["status"]["conditions"]}["Scheduled"] == "True"
    lonely = group("lonely")
    lonely.metadata.creation_timestamp = new.metadata.creation_timestamp
    api, cache = FakeApi(), cache_with(lonely)
    began = time.monotonic()
    async with writing(api, cache, message_seconds=first) as writer:
        finish(writer.report(Report(waiting(name="lonely"))))
        await until(lambda: len(api.made("PATCH", END)) == 1)
    assert time.monotonic() - began < first + 2


def bound_in_part(*done: int, size: int = 3) -> Cache:
    """A gang of which some pods are bound and the binds of the others are under way."""
    cache = cache_with(node("n"), queue("default"), group(minimum=size), *(pod(f"g-{i}") for i in range(size)))
    for index in range(size):
        cache.assume(f"ns/g-{index}", f"uid-g-{index}", "n")
    for index in done:
        cache.receive(told(pod(f"g-{index}", node="n", version="2")))
    return cache


async def test_a_gang_is_said_to_be_scheduled_once_its_binds_are_confirmed() -> None:
    api, cache = FakeApi(), bound_in_part(0, 1)
    async with writing(api, cache) as writer:
        with cache.held():  # a cycle tells of its verdicts before it lets go of the model
            cache.forget("ns/g-2", "uid-g-2")
            cache.assume("ns/g-2", "uid-g-2", "n")
            finish(writer.report(Report(whole())))
        await asyncio.sleep(0.5)
        assert api.calls == []
        assert writer.pending == 1
        assert cache.model.jobs["ns/g"].is_true(SCHEDULED), "the engine knows what it has decided"
        cache.receive(told(pod("g-2", node="n", version="2")))
        await until(lambda: len(api.calls) == 1)
        assert {one["type"]: one["status"] for one in api.calls[0].body["status"]["conditions"]}[SCHEDULED] == "True"
        await until(lambda: writer.pending == 0)


async def test_that_a_gang_is_not_scheduled_is_taken_back_with_the_decision_and_said_again_if_its_binds_fail() -> None:
    api, cache = FakeApi(), bound_in_part(0, 1)
    before = Condition(
        type=SCHEDULED, status="False", reason="NotEnoughTasks", last_transition_time="2026-01-01T00:00:00Z"
    )
    cache.receive(told(group(minimum=3, version="15", conditions=(before,))))
    failure: list[BindFailed] = []
    async with writing(api, cache, failure=lambda _: failure[0] if failure else None) as writer:
        finish(writer.report(Report(whole())))
        await until(lambda: len(api.calls) == 1)
        assert {one["type"]: one["status"] for one in api.calls[0].body["status"]["conditions"]}[SCHEDULED] == "True"
        failure.append(BindFailed("ns/g-2", "n", 3, "no"))
        await until(lambda: len(api.calls) == 2)
        said = {one["type"]: (one["status"], one["reason"]) for one in api.calls[1].body["status"]["conditions"]}
        assert said[SCHEDULED] == ("False", "BindFailed")
        finish(writer.report(Report(whole())))
        await asyncio.sleep(0.3)
        assert len(api.calls) == 2, "the next attempt is no reason to say otherwise"
        cache.receive(told(pod("g-2", node="n", version="2")))
        await until(lambda: len(api.calls) == 3 and not writer.pending)


def whole_and_said() -> Cache:
    """A gang of two that is placed, whose status says so."""
    before = Condition(type=SCHEDULED, status="True", reason="GangPlaced", last_transition_time="2026-01-01T00:00:00Z")
    pods = [pod(f"g-{index}", node="n") for index in range(2)]
    return cache_with(queue(), node("n"), group(minimum=2, conditions=(before,)), *pods)


async def test_that_a_gang_loses_its_place_is_said_once_its_pods_are_evicted() -> None:
    api, cache = FakeApi(), whole_and_said()
    async with writing(api, cache) as writer:
        with cache.held():  # the model learns of the evictions after the cycle
            cache.evicting("ns/g-0", "uid-g-0")
            cache.evicting("ns/g-1", "uid-g-1")
            finish(writer.report(Report(waiting(0, 2))))
        finish(writer.report(Report(waiting(0, 2))))
        await asyncio.sleep(0.3)
        assert (api.calls, writer.pending) == ([], 1)
        going = pod("g-0", node="n", version="2")
        going.metadata.deletion_timestamp = "2026-01-01T00:01:00Z"
        cache.receive(told(going))
        await until(lambda: len(api.calls) == 1)
        said = {one["type"]: (one["status"], one["reason"]) for one in api.calls[0].body["status"]["conditions"]}
        assert said[SCHEDULED] == ("False", "NotEnoughTasks")


async def test_of_evictions_that_were_given_up_nothing_is_said_until_a_cycle_says_it_again() -> None:
    api, cache = FakeApi(), whole_and_said()
    async with writing(api, cache) as writer:
        cache.evicting("ns/g-0", "uid-g-0")
        finish(writer.report(Report(waiting(1, 2))))
        cache.not_evicting("ns/g-0", "uid-g-0")
        await until(lambda: writer.pending == 0)
        assert api.calls == []
        going = pod("g-0", node="n", version="2")
        going.metadata.deletion_timestamp = "2026-01-01T00:01:00Z"
        cache.receive(told(going))
        finish(writer.report(Report(waiting(1, 2))))
        await until(lambda: len(api.calls) == 1)


@pytest.mark.parametrize(
    ("size", "said", "rank"),
    [(3, "", Rank.GANG), (3, "False", Rank.GANG), (1, "False", Rank.CONTRADICTED), (1, "", Rank.SINGLE)],
)
async def test_while_binds_wait_what_is_well_waits_and_what_is_not_does_not(size: int, said: str, rank: Rank) -> None:
    api, cache = FakeApi(), bound_in_part(*range(size - 1), size=size)
    seconds = rank.value
    cache.receive(told(group("h", minimum=3)))
    if said:
        failing = Condition(
            type=SCHEDULED, status=said, reason=BindFailed.code, last_transition_time="2026-01-01T00:00:00Z"
        )
        cache.receive(told(group(minimum=size, conditions=(failing,), version="11")))
    now, binding = 100.0, True
    async with writing(api, cache, binding=lambda: binding, clock=lambda: now) as writer:
        finish(writer.report(Report(whole() | waiting(0, 3, name="h"))))
        cache.receive(told(pod(f"g-{size - 1}", node="n", version="2")))
        now += 0.1  # for the look at what has been confirmed
        await until(lambda: api.made("PATCH", "/h/status"))
        now += seconds - 0.2
        await asyncio.sleep(0.5)
        assert not api.made("PATCH", "/g/status")
        now += 0.3
        await until(lambda: api.made("PATCH", "/g/status"))


async def test_gangs_are_told_of_in_time_behind_a_flood_of_other_words() -> None:
    names = [f"h{number}" for number in range(FLOOD + 50)]
    api, cache = FakeApi(gate=asyncio.Event()), bound_in_part(0, 1)
    cache.receive(told(*(group(name) for name in names)))
    now = 100.0
    async with writing(api, cache, binding=lambda: True, clock=lambda: now) as writer:
        finish(writer.report(Report(whole())))
        cache.receive(told(pod("g-2", node="n", version="2")))
        await until(lambda: not cache.under_way("ns/g"))
        now += 0.1  # for the look at what has been confirmed
        await asyncio.sleep(0.3)
        for name in names:
            finish(writer.report(Report(waiting(name=name), whole=False)))
        await until(lambda: api.open_ == AT_ONCE_IN_A_FLOOD)
        assert not api.made("PATCH", "/g/status")
        now += Rank.GANG.value + LATE_SECONDS + 0.01
        await until(lambda: api.made("PATCH", "/g/status"))
        assert api.gate is not None
        api.gate.set()
        assert await writer.drain(5)


async def test_what_is_well_is_told_as_soon_as_no_bind_waits() -> None:
    api, cache = FakeApi(), bound_in_part(0, 1)
    now, binding = 100.0, True
    async with writing(api, cache, binding=lambda: binding, clock=lambda: now) as writer:
        finish(writer.report(Report(whole())))
        cache.receive(told(pod("g-2", node="n", version="2")))
        now += 0.1
        await asyncio.sleep(0.3)
        assert (api.calls, writer.pending) == ([], 1)
        binding = False
        await until(lambda: len(api.calls) == 1)


async def test_a_process_that_leaves_says_what_was_confirmed_just_now() -> None:
    api, cache = FakeApi(), bound_in_part(0, 1)
    async with writing(api, cache) as writer:
        finish(writer.report(Report(whole())))
        cache.receive(told(pod("g-2", node="n", version="2")))
        assert await writer.drain(1.0)
        assert len(api.calls) == 1


async def test_a_gang_whose_binds_fail_again_and_again_says_so_until_they_succeed() -> None:
    api, cache = FakeApi(), bound_in_part(0, 1)
    failure = BindFailed("ns/g-2", "n", 3, "no")
    async with writing(api, cache, failure=lambda key: failure if key == "ns/g" else None) as writer:
        finish(writer.report(Report(whole())))
        await until(lambda: len(api.calls) == 1)
        said = {one["type"]: (one["status"], one["reason"]) for one in api.calls[0].body["status"]["conditions"]}
        assert said[SCHEDULED] == ("False", "BindFailed")
        await asyncio.sleep(0.5)
        assert len(api.calls) == 1, "said once"
        cache.receive(told(pod("g-2", node="n", version="2")))
        await until(lambda: len(api.calls) == 2)
        said = {one["type"]: (one["status"], one["reason"]) for one in api.calls[1].body["status"]["conditions"]}
        assert said[SCHEDULED][0] == "True"


async def test_pods_beyond_the_minimum_keep_nobody_from_saying_that_the_gang_is_scheduled() -> None:
    api, cache = FakeApi(), bound_in_part(0, 1)
    cache.receive(told(group(minimum=2, version="15")))
    async with writing(api, cache) as writer:
        finish(writer.report(Report(whole())))
        await until(lambda: len(api.calls) == 1)


async def test_a_group_whose_status_is_refused_holds_up_no_other() -> None:
    cache = cache_with(*(group(name) for name in ("bad", "good")))
    api = FakeApi()
    api.on("PATCH", "/bad/status", ApiError(422, "Invalid", "spec.minMember: must not be that"))
    async with writing(api, cache, message_seconds=1.0) as writer:
        finish(writer.report(Report(waiting(name="bad"))))
        await until(lambda: len(api.made("PATCH", "/bad/status")) >= 1)
        for _ in range(3):  # as long as a growing pause of all writes would last by now
            await asyncio.sleep(0.1)
        assert len(api.made("PATCH", "/bad/status")) == 1
        began = time.monotonic()
        finish(writer.report(Report(waiting(name="bad") | waiting(name="good"))))
        await until(lambda: api.made("PATCH", "/good/status"))
        assert time.monotonic() - began < 0.5
        api.on("PATCH", "/bad/status", server(cache))
        await until(lambda: len(api.made("PATCH", "/bad/status")) == 2)
        await until(lambda: not writer.pending)
        assert cache.groups["ns/bad"].status.conditions


async def test_a_newer_word_is_not_lost_to_one_that_was_refused() -> None:
    cache = cache_with(group("bad"))
    api = FakeApi(gate=asyncio.Event())
    api.on("PATCH", "/bad/status", ApiError(422, "Invalid", "no"), server(cache))
    async with writing(api, cache) as writer:
        finish(writer.report(Report(waiting(created=1, name="bad"))))
        await until(lambda: api.open_ == 1)
        finish(writer.report(Report(waiting(created=2, name="bad"))))
        assert api.gate is not None
        api.gate.set()
        await until(lambda: not writer.pending)
        assert "2 of 3" in str(api.calls[-1].body)


async def test_a_word_holds_only_for_the_version_that_it_was_made_from() -> None:
    """Else a late one could overwrite a successor's, or let a group in that was made anew under the same name."""
    api, cache = FakeApi(), cache_with(group(version="10"))
    api.on("PATCH", END, conflict(), server(cache))
    async with writing(api, cache) as writer:
        finish(writer.report(Report(waiting())))
        await until(lambda: len(api.made("PATCH")) == 1)
        assert api.calls[0].body["metadata"]["resourceVersion"] == "10"
        await asyncio.sleep(0.3)
        assert len(api.calls) == 1, "the same would be refused again"
        assert writer.pending == 1
        cache.receive(told(group(version="11")))
        await until(lambda: len(api.made("PATCH")) == 2 and not writer.pending)
        assert api.calls[1].body["metadata"]["resourceVersion"] == "11"
        assert not api.made("GET")


async def test_what_somebody_else_has_said_meanwhile_is_not_said_again() -> None:
    said = tuple(
        msgspec.structs.replace(one, last_transition_time="2026-01-01T00:00:00Z")
        for one in verdict_conditions(waiting()["ns/g"], 1)
    )
    api, cache = FakeApi(), cache_with(group(version="10"))
    api.on("PATCH", END, conflict())
    async with writing(api, cache) as writer:
        finish(writer.report(Report(waiting())))
        await until(lambda: len(api.made("PATCH")) == 1)
        cache.receive(told(group(version="11", conditions=said)))
        await until(lambda: not writer.pending)
        assert len(api.calls) == 1


async def test_a_group_that_the_watch_says_nothing_of_is_read() -> None:
    now = 100.0
    api, cache = FakeApi(), cache_with(group(version="10"))
    api.on("PATCH", END, conflict(), server(cache))
    newer = msgspec.to_builtins(group(version="12"))
    api.on("GET", "/podgroups", ApiError(503), {"metadata": {"resourceVersion": "12"}, "items": [newer]})
    async with writing(api, cache, clock=lambda: now) as writer:
        finish(writer.report(Report(waiting())))
        await until(lambda: len(api.made("PATCH")) == 1 and writer.pending == 1)
        now += AGAIN_SECONDS
        await until(lambda: len(api.made("PATCH")) == 2 and not writer.pending)
        assert [call.params["fieldSelector"] for call in api.made("GET")] == ["metadata.name=g"] * 2
        assert api.made("PATCH")[1].body["metadata"]["resourceVersion"] == "12"


async def test_of_a_group_that_is_gone_when_it_is_read_nothing_is_said() -> None:
    now = 100.0
    api, cache = FakeApi(), cache_with(group(version="10"))
    api.on("PATCH", END, conflict())
    api.on("GET", "/podgroups", {"metadata": {"resourceVersion": "12"}, "items": []})
    async with writing(api, cache, clock=lambda: now) as writer:
        finish(writer.report(Report(waiting())))
        await until(lambda: len(api.made("PATCH")) == 1 and writer.pending == 1)
        now += AGAIN_SECONDS
        await until(lambda: not writer.pending)
        assert len(api.made("PATCH")) == 1


def templated(name: str) -> PodGroup:
    """A group whose pods are made when it says that it is in queue."""
    one = group(name)
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    one.spec.sub_groups = (SubGroup(name="w", min_member=2, template=template),)
    one.metadata.creation_timestamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return one


async def test_that_a_group_is_in_queue_whose_pods_are_made_then_is_said_before_all_else() -> None:
    names = [f"g{number}" for number in range(FLOOD + 10)]
    api = FakeApi(gate=asyncio.Event())
    cache = cache_with(queue(), *(group(name) for name in names), templated("made"))
    assert cache.model.jobs["ns/made"].to_come
    async with writing(api, cache, binding=lambda: True) as writer:
        verdicts: dict[str, Verdict] = {}
        for name in names:
            verdicts |= waiting(name=name)
        finish(writer.report(Report(verdicts | waiting(0, 2, name="made"))))
        await until(lambda: api.open_ == AT_ONCE_IN_A_FLOOD)
        assert api.calls[0].path.endswith("/made/status"), "new as it is, and last of all that were told of"
        assert {one["type"]: one["status"] for one in api.calls[0].body["status"]["conditions"]}["Enqueued"] == "True"
        assert api.gate is not None
        api.gate.set()
        assert await writer.drain(5)
        assert len(api.calls) == len(names) + 1


async def test_a_reason_that_stays_is_written_though_others_came_and_went_before() -> None:
    """What a user is told to do must not be what was true half an hour ago."""
    now = 100.0
    api, cache = FakeApi(), cache_with(group(), *placed())
    api.on("PATCH", END, server(cache))
    verdict = waiting()["ns/g"]
    async with writing(api, cache, clock=lambda: now) as writer:
        for number in range(40):
            why = Reserved("ns/other", "cpu", 1) if number % 2 else NotEnoughTasks(1, 3)
            finish(writer.report(Report({"ns/g": msgspec.structs.replace(verdict, reason=why)})))
            await asyncio.sleep(0)
            now += 5
        assert await writer.drain(2)
        before = len(api.calls)
        assert before <= WRITES_AT_ONCE
        last = QueueOverused("default", "cpu", 1, 2)
        finish(writer.report(Report({"ns/g": msgspec.structs.replace(verdict, reason=last)})))
        now += HOLDS[0]
        await until(lambda: len(api.calls) == before + 1)
        said = {one["type"]: one["reason"] for one in api.calls[-1].body["status"]["conditions"]}
        assert said["Scheduled"] == QueueOverused.code


async def test_that_it_is_in_queue_is_said_of_such_a_group_while_its_first_binds_are_under_way() -> None:
    api = FakeApi()
    cache = cache_with(queue(), node("n"), templated("made"), pod("a", group="made"))
    cache.assume("ns/a", "uid-a", "n")
    cache.model.refresh()  # as a cycle does
    api.on("PATCH", END, conflict(), server(cache))
    async with writing(api, cache, binding=lambda: True) as writer:
        finish(writer.report(Report(whole("made"))))
        await until(lambda: len(api.calls) == 1)
        newer = templated("made")
        newer.metadata.resource_version = "11"
        cache.receive(told(newer))
        await until(lambda: len(api.calls) == 2)
        await asyncio.sleep(0.1)
    assert [{one["type"]: one["status"] for one in call.body["status"]["conditions"]} for call in api.calls] == [
        {"Enqueued": "True"}
    ] * 2, "what is not confirmed is not said, and a conflict forgets nothing"


# --- when a group is to start -----------------------------------------------------------------------------------------


def to_start(seconds: float | None, basis: str = "reservation") -> dict[str, Verdict]:
    """A group that waits, and is to start so many seconds from now."""
    at = None if seconds is None else int((time.time() + seconds) * SECOND)
    verdict = waiting()["ns/g"]
    return {"ns/g": msgspec.structs.replace(verdict, estimate=StartEstimate(at, at, basis))}


async def test_when_a_group_is_to_start_is_written_again_only_when_it_moved_much_and_not_too_often() -> None:
    now = 1000.0
    api, cache = FakeApi(), cache_with(group(), *placed())
    async with writing(api, cache, clock=lambda: now) as writer:
        finish(writer.report(Report(to_start(1_000))))
        await until(lambda: len(api.calls) == 1 and not writer.pending)
        said = api.calls[0].body["status"]["estimatedStart"]
        assert said["basis"] == "reservation"
        assert said["time"] == said["latest"]
        left = datetime.fromisoformat(said["time"]).timestamp() - time.time()
        assert 990 < left < 1_002
        conditions = {one["type"]: one["message"] for one in api.calls[0].body["status"]["conditions"]}
        assert conditions["Scheduled"].endswith("; its start is planned (status.estimatedStart)")
        for seconds in (1_000, 1_080, 920):  # a tenth of the wait is no news
            finish(writer.report(Report(to_start(seconds))))
            assert writer.pending == 0
        finish(writer.report(Report(to_start(700))))
        now += START_SECONDS - 1
        await asyncio.sleep(0.3)
        assert (len(api.calls), writer.pending) == (1, 1)
        now += 1
        await until(lambda: len(api.calls) == 2 and not writer.pending)
        second = datetime.fromisoformat(api.calls[1].body["status"]["estimatedStart"]["time"]).timestamp()
        assert 690 < second - time.time() < 702


@pytest.mark.parametrize("rests", ["message", "reason"])
async def test_when_a_group_is_to_start_does_not_rest_with_other_words(rests: str) -> None:
    """Its message may not be rewritten for half an hour, nor its reason: they come along, uncounted."""
    now = 1000.0
    api, cache = FakeApi(), cache_with(group(), *placed())
    last, reserved = NotEnoughTasks(1, 3), Reserved("ns/other", "cpu", 1)
    other = reserved if rests == "reason" else NotEnoughTasks(2, 3)
    async with writing(api, cache, message_seconds=MESSAGE_SECONDS, clock=lambda: now) as writer:

        async def say(reason: Reason, seconds: float) -> int:
            verdict = to_start(seconds)["ns/g"]
            finish(writer.report(Report({"ns/g": msgspec.structs.replace(verdict, reason=reason)})))
            assert await writer.drain(2)
            await asyncio.sleep(0.05)
            return len(api.calls)

        for written in range(1, WRITES_AT_ONCE + 1):
            now += MESSAGE_SECONDS
            assert await say(last if written % 2 else reserved, 9_000) == written
        now += START_SECONDS
        assert await say(other, 9_000) == WRITES_AT_ONCE, "words alone rest"
        for moves in range(1, WRITES_AT_ONCE + 1):
            assert await say(other, 9_000 - 2_000 * moves) == WRITES_AT_ONCE + moves
            body = api.calls[-1].body["status"]
            left = datetime.fromisoformat(body["estimatedStart"]["time"]).timestamp() - time.time()
            assert -10 < left - (9_000 - 2_000 * moves) < 2
            assert {one["type"]: one["reason"] for one in body["conditions"]}["Scheduled"] == other.code
            assert await say(other, 100) == WRITES_AT_ONCE + moves, "not more often than every half minute"
            now += START_SECONDS
        now = 1000.0 + REST_SECONDS + WRITES_AT_ONCE * MESSAGE_SECONDS
        assert await say(QueueOverused("default", "cpu", 1000, 4000), 3_000) == 2 * WRITES_AT_ONCE + 1


async def test_other_news_leaves_standing_what_was_said_of_the_start_a_moment_ago() -> None:
    api, cache = FakeApi(), cache_with(group(), *placed())
    async with writing(api, cache) as writer:
        finish(writer.report(Report(to_start(1_000))))
        await until(lambda: len(api.calls) == 1 and not writer.pending)
        verdict = to_start(500)["ns/g"]
        finish(writer.report(Report({"ns/g": msgspec.structs.replace(verdict, attempts=1)})))
        await until(lambda: len(api.calls) == 2)
        first, second = (call.body["status"]["estimatedStart"] for call in api.calls)
        assert first == second


def starts_in(call: Any) -> int:
    """In how many seconds the group is to start, as it was written, to a hundred."""
    at = datetime.fromisoformat(call.body["status"]["estimatedStart"]["time"]).timestamp()
    return int(round(at - time.time(), -2))


@pytest.mark.parametrize("fails", ["no answer", "conflict"])
async def test_when_a_group_is_to_start_is_written_where_the_first_try_failed(fails: str) -> None:
    now = 1000.0
    api, cache = FakeApi(), cache_with(group(), *placed())
    well = server(cache)
    failed = conflict() if fails == "conflict" else NoAnswerError("PATCH", "x", sent=True, why="no answer")
    api.on("PATCH", END, well, failed, well)
    async with writing(api, cache, clock=lambda: now) as writer:
        finish(writer.report(Report(to_start(9_000))))
        await until(lambda: len(api.calls) == 1 and not writer.pending)
        now += 100
        finish(writer.report(Report(to_start(3_000))))
        await until(lambda: len(api.calls) >= 2)
        newer = msgspec.convert(msgspec.to_builtins(cache.groups["ns/g"]), PodGroup)
        newer.metadata.resource_version = "5000"
        cache.receive(told(newer))
        await until(lambda: len(api.calls) == 3 and not writer.pending)
        assert list(map(starts_in, api.calls)) == [9_000, 3_000, 3_000]


async def test_a_start_that_moved_a_moment_after_it_was_written_is_written_later() -> None:
    """Other words are written meanwhile, and leave it standing."""
    now = 1000.0
    api, cache = FakeApi(), cache_with(group(), *placed())
    async with writing(api, cache, clock=lambda: now) as writer:
        finish(writer.report(Report(to_start(9_000))))
        await until(lambda: len(api.calls) == 1 and not writer.pending)
        now += 10
        moved = msgspec.structs.replace(to_start(3_000)["ns/g"], reason=Reserved("ns/other", "cpu", 1))
        finish(writer.report(Report({"ns/g": moved})))
        await until(lambda: len(api.calls) == 2)
        await until(lambda: writer.pending == 1)
        now += START_SECONDS
        await until(lambda: len(api.calls) == 3 and not writer.pending)
        assert list(map(starts_in, api.calls)) == [9_000, 9_000, 3_000]


class Time:
    """Both clocks, the wall's and the monotonic one, in seconds from the beginning of a test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = 0.0
        self.began = float(int(time.time()))
        monkeypatch.setattr(time, "time", lambda: self.began + self.passed)

    def monotonic(self) -> float:
        return 1000.0 + self.passed

    def start(self, at: float, name: str = "g", reason: Reason | None = None) -> dict[str, Verdict]:
        """A group that waits, and is to start so many seconds from the beginning."""
        instant = int((self.began + at) * SECOND)
        estimate = StartEstimate(instant, instant, "reservation")
        verdict = waiting(name=name)[f"ns/{name}"]
        verdict = msgspec.structs.replace(verdict, estimate=estimate, reason=reason or verdict.reason)
        return {f"ns/{name}": verdict}

    def written(self, call: Call) -> float:
        """The start that was written, in seconds from the beginning."""
        said: str = call.body["status"]["estimatedStart"]["time"]
        return datetime.fromisoformat(said).timestamp() - self.began


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


@pytest.mark.parametrize("every", [True, False], ids=["all verdicts", "what changed"])
async def test_a_small_correction_of_a_start_is_written_when_it_is_large_beside_what_is_left(
    every: bool, both: Time
) -> None:
    """That takes no more than a report, with the same verdict or with none."""
    api, cache = FakeApi(), cache_with(group(), *placed())
    async with writing(api, cache, clock=both.monotonic) as writer:
        finish(writer.report(Report(both.start(36_000))))
        await until(lambda: len(api.calls) == 1 and not writer.pending)
        verdicts = both.start(33_000)
        finish(writer.report(Report(verdicts)))
        for both.passed in (1_000, 2_999, 3_000):
            finish(writer.report(Report(verdicts) if every else Report({}, whole=False)))
            assert writer.pending == 0, "3,000 s are no more than a tenth of 30,000 s"
        both.passed = 3_001
        finish(writer.report(Report(verdicts) if every else Report({}, whole=False)))
        await until(lambda: len(api.calls) == 2 and not writer.pending)
        assert list(map(both.written, api.calls)) == [36_000, 33_000]
        for both.passed in (10_000, 32_900):
            finish(writer.report(Report(verdicts) if every else Report({}, whole=False)))
            assert writer.pending == 0


@pytest.mark.parametrize("answered", [True, False], ids=["answered", "answer lost"])
async def test_a_start_that_moved_a_little_while_the_one_before_was_being_written_is_corrected_too(
    answered: bool, both: Time
) -> None:
    api, cache = FakeApi(gate=asyncio.Event()), cache_with(group(), *placed())
    well = server(cache)
    lost = NoAnswerError("PATCH", END, sent=True, why="cut")
    api.on("PATCH", END, well if answered else lost, well)
    async with writing(api, cache, clock=both.monotonic) as writer:
        finish(writer.report(Report(both.start(36_000))))
        await until(lambda: api.open_ == 1)
        finish(writer.report(Report(both.start(33_000))))
        if not answered:
            cache.receive(told(msgspec.json.decode(well(api.calls[0]), type=PodGroup)))
        assert api.gate is not None
        api.gate.set()
        await until(lambda: len(api.calls) == 1 and not writer.pending)
        both.passed = 3_001
        finish(writer.report(Report({}, whole=False)))
        await until(lambda: len(api.calls) == 2 and not writer.pending)
        assert list(map(both.written, api.calls)) == [36_000, 33_000]


async def test_what_is_put_off_goes_by_what_the_status_says_in_the_end(both: Time) -> None:
    """While a start is being written it moves again, to where it is off by less from what stood there before."""
    api, cache = FakeApi(), cache_with(group(), *placed())
    async with writing(api, cache, clock=both.monotonic) as writer:
        finish(writer.report(Report(both.start(36_000))))
        await until(lambda: len(api.calls) == 1 and not writer.pending)
        both.passed, api.gate = 40, asyncio.Event()
        finish(writer.report(Report(both.start(31_000))))
        await until(lambda: api.open_ == 1)
        finish(writer.report(Report(both.start(34_000))))
        api.gate.set()
        await until(lambda: len(api.calls) == 2 and not writer.pending)
        both.passed = 4_001
        finish(writer.report(Report({}, whole=False)))
        await until(lambda: len(api.calls) == 3 and not writer.pending)
        assert list(map(both.written, api.calls)) == [36_000, 31_000, 34_000]


async def test_other_words_that_are_written_meanwhile_do_not_lose_the_correction(both: Time) -> None:
    api, cache = FakeApi(), cache_with(group(), *placed())
    async with writing(api, cache, clock=both.monotonic) as writer:
        finish(writer.report(Report(both.start(36_000))))
        await until(lambda: len(api.calls) == 1 and not writer.pending)
        both.passed = 100
        finish(writer.report(Report(both.start(33_000, reason=Reserved("ns/other", "cpu", 1)), whole=False)))
        await until(lambda: len(api.calls) == 2 and not writer.pending)
        both.passed = 3_001
        finish(writer.report(Report({}, whole=False)))
        await until(lambda: len(api.calls) == 3 and not writer.pending)
        assert list(map(both.written, api.calls)) == [36_000, 36_000, 33_000]


async def test_a_correction_that_is_due_comes_no_sooner_than_any_other(both: Time) -> None:
    """Half a minute after the start was written last, and one after the other."""
    names = ("a", "b", "c")
    api, cache = FakeApi(), cache_with(*map(group, names))
    for name in names:
        cache.receive(told(*placed(name)))
    async with writing(api, cache, clock=both.monotonic) as writer:
        for at, writes in ((400, (1, 2, 3)), (365, (3, 3, 3))):
            for name, count in zip(names, writes, strict=True):
                finish(writer.report(Report(both.start(at, name), whole=False)))
                await until(lambda count=count: len(api.calls) == count and not writer.pending)  # type: ignore[misc]
        both.passed = 16  # 35 s are more than a tenth of 349 s
        finish(writer.report(Report({}, whole=False)))
        assert writer.pending == 3
        both.passed = START_SECONDS - 1
        assert writer._queue.take() is None
        for count in range(1, 4):
            both.passed = START_SECONDS + count
            await until(lambda count=count: len(api.calls) == 3 + count)  # type: ignore[misc]
        await until(lambda: not writer.pending)
        assert {both.written(call) for call in api.calls[3:]} == {365}


@pytest.mark.parametrize("news", ["gone", "not named", "starts", "not planned", "back", "far", "deleted"])
async def test_of_a_group_that_stands_otherwise_no_correction_is_put_off(news: str, both: Time) -> None:
    api, cache = FakeApi(), cache_with(group(), *placed())
    async with writing(api, cache, clock=both.monotonic) as writer:
        finish(writer.report(Report(both.start(36_000))))
        await until(lambda: len(api.calls) == 1 and not writer.pending)
        both.passed = 40
        finish(writer.report(Report(both.start(33_000))))
        assert (len(writer._put_off), writer.pending) == (1, 0)
        if news == "deleted":
            cache.receive(told(Delete(PodGroup, "ns", "g")))
        report = {
            "gone": Report({}, whole=False, gone=["ns/g"]),
            "not named": Report({}),
            "starts": Report(whole(), whole=False),
            "not planned": Report(waiting(), whole=False),
            "back": Report(both.start(36_010), whole=False),
            "far": Report(both.start(20_000), whole=False),
            "deleted": Report(both.start(33_000), whole=False),
        }[news]
        finish(writer.report(report))
        assert len(writer._put_off) == 0
        both.passed = 34_000
        before = len(api.calls)
        finish(writer.report(Report({}, whole=False)))
        await until(lambda: not writer.pending)
        assert len(api.calls) == before + (news in {"starts", "not planned", "far"}), "what was said of it, at most"


async def test_of_starts_that_are_put_off_the_next_one_is_looked_at_alone(
    both: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = PutOffStarts()
    began = int(both.began) * SECOND

    def look(number: int, moved: int) -> None:
        at = began + (36_000 - moved) * SECOND
        waits.look(
            f"g{number}", start_of(StartEstimate(began + 36_000 * SECOND, None, "x")), StartEstimate(at, None, "x")
        )

    for number in range(1_000):
        look(number, 1_000 + number)
    looked = 0

    def counted(standing: EstimatedStart | None, estimate: StartEstimate | None) -> bool:
        nonlocal looked
        looked += 1
        return start_moved(standing, estimate)

    monkeypatch.setattr(put_off_starts, "start_moved", counted)
    assert (list(waits.due()), looked) == ([], 1)
    both.passed = 36_000 - 11 * 1_997 + 1
    assert list(waits.due()) == ["g999", "g998", "g997"], "11 times what it moved by before the start that was told"
    assert looked == 5
    for moved in range(1, 2_000):
        for number in (3, 4):
            look(number, 50 + moved % 900)
    assert len(waits) == 997
    assert len(waits._order) <= 2 * len(waits) + status.GROUPS_AT_ONCE
    for number in range(1_000):
        waits.discard(f"g{number}")
    assert len(waits) == 0
    assert len(waits._order) <= status.GROUPS_AT_ONCE
    both.passed = 36_000
    assert list(waits.due()) == []


async def test_starts_that_are_put_off_come_in_the_order_in_which_they_are_due(both: Time) -> None:
    waits = PutOffStarts()

    def look(key: str, said: float, now: float) -> None:
        at = int((both.began + said) * SECOND), int((both.began + now) * SECOND)
        waits.look(key, start_of(StartEstimate(at[0], at[0], "x")), StartEstimate(at[1], at[1], "x"))

    look("a", 32_000, 30_000)  # after 10,000 s
    look("b", 21_500, 20_500)  # after 10,500 s
    look("c", 23_000, 21_000)  # after 1,000 s,
    look("c", 22_000, 21_000)  # but it moved on: after 11,000 s
    both.passed = 10_000
    assert list(waits.due()) == []
    both.passed = 10_001
    assert list(waits.due()) == ["a"]
    both.passed = 11_001
    assert list(waits.due()) == ["b", "c"]
    assert len(waits) == 0


async def test_who_starts_or_is_planned_no_more_is_to_start_at_no_time() -> None:
    api, cache = FakeApi(), cache_with(group(), *placed())
    async with writing(api, cache) as writer:
        finish(writer.report(Report(to_start(1_000))))
        await until(lambda: len(api.calls) == 1 and not writer.pending)
        finish(writer.report(Report(to_start(None, "unknown"))))
        finish(writer.report(Report(waiting())))
        await until(lambda: len(api.calls) == 2 and not writer.pending)
        assert "estimatedStart" not in api.calls[1].body["status"]
        assert cache.groups["ns/g"].status.estimated_start is None


async def test_a_start_that_nobody_knows_is_said_to_be_unknown() -> None:
    api, cache = FakeApi(), cache_with(group(), *placed())
    async with writing(api, cache) as writer:
        finish(writer.report(Report(to_start(None, "unknown"))))
        await until(lambda: len(api.calls) == 1 and not writer.pending)
        assert api.calls[0].body["status"]["estimatedStart"] == {"basis": "unknown"}


@pytest.mark.parametrize(("named", "counted"), [("default", {"default": 1}), ("typo", {})])
async def test_how_long_a_group_has_waited_is_told_by_queues_that_exist(named: str, counted: dict[str, int]) -> None:
    one = group("g")
    one.spec.queue = named
    api, cache = FakeApi(), cache_with(queue(), one, *placed())
    async with writing(api, cache) as writer:
        finish(writer.report(Report(whole())))
        assert await writer.drain(2)
    assert len(api.made("PATCH", END)) == 1
    waits = {
        sample.labels["queue"]: sample.value
        for family in writer._metrics.queue_wait.collect()
        for sample in family.samples
        if sample.name.endswith("_count")
    }
    assert waits == counted
