"""The loop: when it runs a cycle, what it hands out, and what it survives."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from kbatch.api.configuration import parse
from kbatch.api.reasons import EngineError
from kbatch.engine import (
    Bind,
    CycleState,
    Memo,
    Observer,
    Outcome,
    Policy,
    QueueStanding,
    Report,
    Snapshot,
    Transaction,
    Turn,
    Verdict,
    build_policy,
    take_snapshot,
)
from kbatch.engine.plugin import Plugin
from kbatch.engine.plugins import BUILTIN
from kbatch.engine.state.jobs import JobState
from kbatch.times import SECOND
from operators.scheduler import loop
from operators.scheduler.cache import Cache
from operators.scheduler.failing import FailingGroups
from operators.scheduler.loop import CROWDED_SECONDS, LEAST_REST, SHARE, SHORT_SECONDS, TURN_SECONDS, Scheduler
from tests.unit.scheduler.fakes import FakeApi, cache_with, group, metrics, node, pod, queue, recorder, told, until

POLICY = build_policy(
    parse("actions: allocate\ntiers:\n- plugins: [{name: priority}, {name: gang}, {name: predicates}]", "test")
)


class Hands:
    def __init__(self, cache: Cache | None = None) -> None:
        self.transactions: list[Transaction] = []
        self.paused: float | None = None
        self.full = False
        self.asked = 0
        self.relief = asyncio.Event()
        self.takes = True
        self._cache = cache

    def submit(self, transaction: Transaction) -> bool:
        if not self.takes:
            return False
        self.transactions.append(transaction)
        if self._cache is not None:
            for one in transaction.binds:
                self._cache.assume(one.pod, one.uid, one.node)
        return True

    def crowded(self) -> bool:
        return self.full

    async def relieved(self) -> None:
        self.asked += 1
        await self.relief.wait()

    def paused_until(self) -> float | None:
        return self.paused


class Script:
    """An engine that does what the test says, cycle by cycle, and then nothing."""

    def __init__(self, *cycles: Any) -> None:
        self.now: list[int] = []
        self.cycles = list(cycles)
        self.at: list[float] = []
        self.memos: list[Memo] = []
        self.wake: int | None = None

    def __call__(
        self, snapshot: Snapshot, policy: Policy, memo: Memo, observer: Any
    ) -> Generator[Transaction | Verdict, None, Outcome]:
        self.at.append(time.monotonic())
        self.memos.append(memo)
        self.now.append(snapshot.now)
        step = self.cycles.pop(0) if self.cycles else ()
        if isinstance(step, Exception):
            raise step
        yield from step
        return Outcome(Memo("next"), CycleState(), self.wake)


@contextlib.asynccontextmanager
async def running(cache: Cache, decide: Any, **options: Any) -> AsyncIterator[tuple[Scheduler, Hands, list[Any]]]:
    hands = Hands(cache)
    reports: list[Any] = []

    def report(verdicts: Any) -> tuple[None, ...]:
        reports.append(verdicts)
        return ()

    options = {"gap": 0.01, "period": 60.0, "metrics": metrics(), **options}
    scheduler = Scheduler(cache, lambda: POLICY, hands, report, decide=decide, **options)
    stopping = asyncio.Event()
    task = asyncio.create_task(scheduler.run(stopping))
    try:
        yield scheduler, hands, reports
    finally:
        stopping.set()
        await asyncio.wait_for(task, 5)


def transaction(name: str) -> Transaction:
    return Transaction("ns/g", binds=(Bind(f"ns/{name}", f"uid-{name}", "n"),))


async def test_the_first_cycle_runs_at_once_and_then_only_on_events() -> None:
    cache = cache_with(node("n"))
    script = Script()
    async with running(cache, script) as (scheduler, _, _):
        await until(lambda: scheduler.cycles == 1)
        await asyncio.sleep(0.1)
        assert scheduler.cycles == 1, "a quiet cluster is left alone"
        cache.receive(told(pod("a")))
        await until(lambda: scheduler.cycles == 2)
        assert script.memos[1].policy == "next", "the memo of one cycle goes into the next"


async def test_what_a_cycle_decides_is_followed_by_one_more_and_its_confirmation_by_none() -> None:
    cache = cache_with(node("n"), pod("a"), pod("b"))
    script = Script([transaction("a")])
    async with running(cache, script) as (scheduler, hands, _):
        await until(lambda: scheduler.cycles == 2)
        cache.receive(told(pod("a", node="n", version="2")))
        await asyncio.sleep(0.1)
        assert (len(hands.transactions), scheduler.cycles) == (1, 2)
        cache.receive(told(pod("b", node="n", version="2")))
        await until(lambda: scheduler.cycles == 3)
    assert cache.assumed == 0


async def test_news_that_no_decision_waits_for_are_looked_at_soon_however_long_the_period(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "QUIET_SECONDS", 0.1)
    cache = cache_with(node("n"), pod("a", node="n"))
    async with running(cache, Script(), period=60.0) as (scheduler, _, _):
        await until(lambda: scheduler.cycles == 1)
        starts = pod("a", node="n", version="2")
        starts.status.phase = "Running"
        cache.receive(told(starts))
        assert not cache.changed.is_set()
        await until(lambda: scheduler.cycles == 2)
        await asyncio.sleep(0.3)
        assert scheduler.cycles == 2, "and once"


def ran(scheduler: Scheduler, cycles: int) -> bool:
    return scheduler.cycles == cycles


async def test_what_a_cycle_says_of_queues_is_told_where_there_is_anything_new() -> None:
    said: list[Any] = [{"a": QueueStanding(None, 1, 0, 0)}, None, {}]
    heard: list[Any] = []

    def decide(*_: Any) -> Generator[Transaction | Verdict, None, Outcome]:
        yield from ()
        return Outcome(Memo(), CycleState(), None, queues=said.pop(0))

    cache = cache_with(node("n"))
    async with running(cache, decide, queues=heard.append) as (scheduler, _, _):
        for number in range(1, 4):
            await until(partial(ran, scheduler, number))
            if said:
                cache.receive(told(pod(f"p{number}")))
    assert heard == [{"a": QueueStanding(None, 1, 0, 0)}, {}], "None: nothing has happened"


async def test_the_first_cycle_under_another_policy_begins_with_what_is_kept_for_it() -> None:
    begun, seen = CycleState(free=7), []
    policies = [POLICY, replace(POLICY)]

    def decide(snapshot: Snapshot, *_: Any) -> Generator[Transaction | Verdict, None, Outcome]:
        yield from ()
        seen.append(snapshot.state)
        return Outcome(Memo(), snapshot.state, None)

    scheduler = Scheduler(
        cache_with(node("n")), lambda: policies[0], Hands(), lambda _: (), metrics=metrics(), decide=decide,
        begin=lambda state, policy: begun if policy is policies[-1] else state,
    )  # fmt: skip
    await scheduler.cycle()
    del policies[0]
    await scheduler.cycle()
    await scheduler.cycle()
    assert seen == [CycleState(), begun, begun]


async def test_what_a_cycle_decided_before_it_failed_is_told_with_its_number(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its binds are under way; and the number is that of the decision log, which counts what the engine is asked."""
    caplog.set_level(logging.INFO, "operators.scheduler.story")

    def failing() -> Generator[Transaction | Verdict, None, None]:
        yield transaction("a")
        raise ArithmeticError("odd")

    broken = iter([True])

    def snapshot(*arguments: Any) -> Any:
        if next(broken, False):
            raise RuntimeError("no snapshot")
        return take_snapshot(*arguments)

    monkeypatch.setattr(loop, "take_snapshot", snapshot)
    async with running(cache_with(node("n")), Script(failing(), [transaction("b")]), period=0.02) as (
        scheduler,
        hands,
        _,
    ):
        await until(lambda: scheduler.cycles >= 1)
    assert len(hands.transactions) == 2
    binds: list[Any] = [record for record in caplog.records if record.getMessage() == "bind"]
    assert [(record.cycle, record.pods) for record in binds] == [(1, "ns/a=n"), (2, "ns/b=n")]


async def test_a_burst_of_events_makes_few_cycles() -> None:
    cache = cache_with(node("n"))
    script = Script()
    async with running(cache, script, gap=0.1) as (scheduler, _, _):
        await until(lambda: scheduler.cycles == 1)
        for number in range(50):
            cache.receive(told(pod(f"p{number}")))
            await asyncio.sleep(0.002)
        await until(lambda: scheduler.cycles >= 2)
        assert scheduler.cycles <= 4
        gaps = [later - earlier for earlier, later in zip(script.at, script.at[1:], strict=False)]
        assert min(gaps) >= 0.09


async def test_it_wakes_when_the_engine_asked_to_and_after_the_period() -> None:
    cache = cache_with(node("n"))
    script = Script()
    script.wake = int((time.time() + 0.15) * SECOND)
    async with running(cache, script) as (scheduler, _, _):
        await until(lambda: scheduler.cycles == 1)
        began = time.monotonic()
        script.wake = None
        await until(lambda: scheduler.cycles == 2)
        assert time.monotonic() - began < 1.0
        assert script.at[1] - script.at[0] >= 0.1
    async with running(cache, Script(), period=0.05) as (scheduler, _, _):
        await until(lambda: scheduler.cycles >= 3)


async def test_a_clock_that_trembles_does_not_turn_time_back_but_one_that_was_wrong_is_followed() -> None:
    script, wall = Script(), [1000.0]
    async with running(cache_with(node("n")), script, period=0.02, wall=lambda: wall[0]) as (scheduler, _, _):
        for seconds, expected in ((1000.0, 1000), (999.0, 1000), (4600.0, 4600), (1001.0, 1001), (1002.0, 1002)):
            wall[0] = seconds
            seen = scheduler.cycles
            await until(lambda: scheduler.cycles > seen + 1)  # noqa: B023  (called at once)
            assert script.now[-1] == expected * SECOND
    index = script.now.index(1001 * SECOND)
    assert script.memos[index] == Memo(), "nothing is remembered of the time that never was"
    assert script.memos[index + 1].policy == "next"


async def test_it_wakes_when_a_paused_group_may_try_again() -> None:
    cache = cache_with(node("n"))
    async with running(cache, Script()) as (scheduler, hands, _):
        hands.paused = time.monotonic() + 0.1
        cache.changed.set()
        await until(lambda: scheduler.cycles >= 3)
        hands.paused = None


async def test_what_was_decided_goes_out_while_the_cycle_is_still_at_work() -> None:
    cache = cache_with(node("n"), pod("a"), pod("b"))
    turns: list[str] = []

    def decide(*_: Any) -> Generator[Transaction | Verdict, None, Outcome]:
        for name in "ab":
            busy_until = time.perf_counter() + 1.5 * SHORT_SECONDS
            while time.perf_counter() < busy_until:
                pass
            yield transaction(name)
            turns.append(f"after {name}")
        return Outcome(Memo(), CycleState(), None)

    async def other_work() -> None:
        while True:
            turns.append("other")
            await asyncio.sleep(0)

    async with running(cache, decide) as (scheduler, hands, _):
        other = asyncio.create_task(other_work())
        await until(lambda: scheduler.cycles >= 1)
        other.cancel()
        assert [one.binds[0].pod for one in hands.transactions[:2]] == ["ns/a", "ns/b"]
    between = turns[turns.index("after a") : turns.index("after b")]
    assert "other" in between, "the event loop gets a turn between two transactions"
    assert cache.model.tasks["ns/a"].node == "n"


async def test_the_time_of_a_span_is_the_cycles_own() -> None:
    def decide(_: Any, __: Any, ___: Any, observer: Observer) -> Generator[Transaction | Verdict, None, Outcome]:
        with observer.span("slow"):
            yield transaction("a")
        return Outcome(Memo(), CycleState(), None)

    async def hog() -> None:
        while True:
            time.sleep(0.05)  # noqa: ASYNC251  (somebody else's work that does not let go)
            await asyncio.sleep(0)

    cache = cache_with(node("n"))
    other = asyncio.create_task(hog())
    async with running(cache, decide) as (scheduler, _, _):
        await until(lambda: scheduler.cycles >= 1)
        other.cancel()
        spent = scheduler._metrics.span.labels("slow")._sum.get()
        assert 0 <= spent < 0.04


async def test_turns_are_nothing_but_turns() -> None:
    word = Verdict("ns/g", shadow=False, enqueued=True, scheduled=True, job="ns/g")
    other = Verdict("ns/h", shadow=False, enqueued=True, scheduled=False, job="ns/h")
    steps = [Turn(), transaction("x"), other, Turn(), word]
    async with running(cache_with(), Script(steps)) as (_, hands, reports):
        await until(lambda: len(reports) == 1)
        assert reports[0].verdicts == {"ns/g": word, "ns/h": other}
        assert hands.transactions == [transaction("x")]


async def test_the_event_loop_has_its_turns_before_during_and_after_a_cycle() -> None:
    """However long the cycle, and what follows it, take: the Lease is renewed in between."""
    turns, seen = 0, dict[str, int]()
    cache = cache_with(node("n"))

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def work(where: str) -> Generator[Any, None, None]:
        before = turns
        for _ in range(3):
            time.sleep(2 * TURN_SECONDS)
            yield Turn()
        seen[where] = turns - before

    def decide(*_: Any) -> Generator[Any, None, Outcome]:
        yield from work("decide")
        cache.receive(told(*[pod(f"p{number}") for number in range(200)]))
        assert len(cache.model.tasks) == 0, "it waits for the end of the cycle"
        yield Transaction("ns/g")
        return Outcome(Memo(), CycleState(), None)

    def report(_: Any) -> Generator[Any, None, None]:
        yield from work("report")
        assert len(cache.model.tasks) == 0

    other = asyncio.create_task(others())
    scheduler = Scheduler(cache, lambda: POLICY, Hands(), report, metrics=metrics(), decide=decide)
    await scheduler.cycle()
    other.cancel()
    assert seen["decide"] >= 2
    assert seen["report"] >= 2
    assert len(cache.model.tasks) == 200


async def test_news_that_a_failed_cycle_was_begun_for_are_looked_at_again_however_long_the_period() -> None:
    cache = cache_with(node("n"), pod("a"))
    script = Script((), RuntimeError("once"), RuntimeError("twice"), [transaction("a")])
    async with running(cache, script, period=60.0) as (scheduler, hands, _):
        await until(lambda: scheduler.cycles == 1)
        cache.receive(told(pod("b")))
        await until(lambda: hands.transactions)
        assert script.at[3] - script.at[2] > script.at[2] - script.at[1] > 0.02, "each time a little later"


async def test_the_loop_rests_after_failures_even_without_a_gap() -> None:
    script = Script(*(RuntimeError("again") for _ in range(3)))
    async with running(cache_with(node("n")), script, gap=0.0) as (scheduler, _, _):
        await until(lambda: scheduler.cycles >= 1)
    waits = [later - earlier for earlier, later in zip(script.at, script.at[1:], strict=False)]
    assert len(waits) >= 3
    assert min(waits) >= LEAST_REST
    assert waits[0] < waits[1] < waits[2], "each time a little later"


async def test_the_loop_rests_after_a_cycle_that_took_long_to_fail() -> None:
    ended: list[float] = []

    def slow() -> Iterator[Verdict]:
        time.sleep(3 * LEAST_REST)
        ended.append(time.monotonic())
        yield from ()
        raise RuntimeError("late")

    script = Script(slow())
    async with running(cache_with(node("n")), script, gap=0.01) as (scheduler, _, _):
        await until(lambda: scheduler.cycles >= 1)
    assert script.at[1] - ended[0] >= LEAST_REST


async def test_an_engine_that_fails_does_not_end_the_loop() -> None:
    cache = cache_with(node("n"), pod("a"))
    script = Script(RuntimeError("a manifest that nobody thought of"), RuntimeError("again"), [transaction("a")])
    async with running(cache, script, period=0.05) as (scheduler, hands, _):
        await until(lambda: scheduler.failing() is not None)
        assert "nobody thought of" in str(scheduler.failing()) or "again" in str(scheduler.failing())
        await until(lambda: hands.transactions)
        await until(lambda: scheduler.cycles >= 1)
        assert scheduler.failing() is None
        assert script.memos[1].policy == "", "after a failure nothing is remembered"
        with cache.held():
            pass


async def test_what_arrives_during_a_cycle_is_seen_by_the_next() -> None:
    cache = cache_with(node("n"))
    seen: list[set[str]] = []

    def decide(snapshot: Snapshot, *_: Any) -> Generator[Transaction | Verdict, None, Outcome]:
        before = set(snapshot.model.tasks)
        if not seen:
            cache.receive(told(pod("late")))
            yield transaction("nobody")
        assert set(snapshot.model.tasks) == before
        seen.append(before)
        return Outcome(Memo(), CycleState(), None)

    async with running(cache, decide):
        await until(lambda: len(seen) == 2)
    assert seen == [set(), {"ns/late"}]


async def test_with_the_real_engine_a_gang_is_placed_whole_or_not_at_all() -> None:
    cache = cache_with(node("n", cpu="4"), queue(), group("g", minimum=3), group("h", minimum=3))
    from kbatch.engine import cycle

    async with running(cache, cycle) as (_, hands, reports):
        cache.receive(told(*(pod(f"g{number}") for number in range(3)), *(pod(f"h{n}", group="h") for n in range(2))))
        await until(lambda: hands.transactions)
        assert sorted(one.pod for one in hands.transactions[0].binds) == ["ns/g0", "ns/g1", "ns/g2"]
        cache.receive(told(pod("h2", group="h")))
        await until(lambda: any("ns/h" in report.verdicts and report.verdicts["ns/h"].attempted for report in reports))
        verdict = [report.verdicts["ns/h"] for report in reports if "ns/h" in report.verdicts][-1]
        assert not verdict.scheduled
        assert verdict.reason.code == "NotEnoughResources"
        assert len(hands.transactions) == 1
        cache.receive(told(node("m", cpu="2")))
        await until(lambda: len(hands.transactions) == 2)
        assert sorted(one.pod for one in hands.transactions[1].binds) == ["ns/h0", "ns/h1", "ns/h2"]


async def test_a_long_cycle_leaves_time_for_others() -> None:
    cache, script = cache_with(node("n")), Script()

    def slow(*given: Any) -> Generator[Transaction | Verdict, None, Outcome]:
        time.sleep(0.06)
        return (yield from script(*given))

    async with running(cache, slow) as (scheduler, _, _):
        await until(lambda: scheduler.cycles == 1)
        cache.receive(told(pod("a")))
        await until(lambda: scheduler.cycles == 2)
    assert script.at[1] - script.at[0] >= 0.06 * SHARE * 0.9


async def test_while_binds_wait_anyway_cycles_are_rarer_and_go_on_at_once_when_none_do() -> None:
    cache = cache_with(node("n"))
    script = Script()
    async with running(cache, script) as (scheduler, hands, _):
        hands.full = True
        await until(lambda: scheduler.cycles == 1)
        cache.receive(told(pod("a")))
        await until(lambda: scheduler.cycles == 2)
        assert script.at[1] - script.at[0] >= CROWDED_SECONDS * 0.9
        cache.receive(told(pod("b")))
        hands.full = False
        await until(lambda: scheduler.cycles == 3)
        assert script.at[2] - script.at[1] < CROWDED_SECONDS * 0.9


def two_binds() -> Generator[Transaction, None, None]:
    yield Transaction("ns/g", (Bind("ns/a", "uid-a", "n"),))
    yield Transaction("ns/g", (Bind("ns/b", "uid-b", "n"),))


async def test_a_cycle_that_decides_more_than_can_be_sent_goes_no_faster_than_that() -> None:
    cache = cache_with(node("n"), pod("a"), pod("b"))
    async with running(cache, Script(two_binds())) as (scheduler, hands, _):
        hands.full = True
        await until(lambda: hands.asked == 1)
        assert len(hands.transactions) == 1
        hands.full = False
        hands.relief.set()
        await until(lambda: scheduler.cycles == 1)
        assert (len(hands.transactions), hands.asked) == (2, 1)


async def test_a_cycle_does_not_wait_for_longer_than_the_next_one_would() -> None:
    """Where nothing can be sent for a while, what is urgent must not wait behind the end of this cycle."""
    cache = cache_with(node("n"), pod("a"), pod("b"))
    counted = metrics()
    async with running(cache, Script(two_binds()), metrics=counted) as (scheduler, hands, _):
        hands.full = True
        began = time.monotonic()
        await until(lambda: scheduler.cycles >= 1)
        assert CROWDED_SECONDS * 0.9 <= time.monotonic() - began < CROWDED_SECONDS * 4
        assert (len(hands.transactions), hands.asked) == (2, 1)
    assert counted.cycle._sum.get() < CROWDED_SECONDS / 2, "that time is not the cycle's"


async def test_what_has_to_wait_is_not_told_as_done(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    cache = cache_with(node("n"), pod("a"), pod("b"))
    async with running(cache, Script((), [transaction("a")], [transaction("b")])) as (scheduler, hands, _):
        await until(lambda: scheduler.cycles == 1)
        hands.takes = False
        cache.changed.set()
        await until(lambda: scheduler.cycles == 2)
        hands.takes = True
        cache.changed.set()
        await until(lambda: scheduler.cycles == 3)
    assert [one.pods for one in caplog.records if one.message == "bind"] == ["ns/b=n"]  # type: ignore[attr-defined]
    assert scheduler._metrics.decisions.labels("bind")._value.get() == 1


class Picky(Plugin):
    """Cannot bear one group."""

    name = "picky"

    def job_valid(self, job: JobState) -> None:
        if job.name == "ns/bad":
            raise ValueError("what is this?")


async def test_a_group_that_the_engine_fails_on_is_told_and_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    objects = (queue(), node("n"), group("bad"), group("good"), pod("b", group="bad"), pod("g", group="good"))
    cache, api = cache_with(*objects), FakeApi()
    text = "actions: allocate\ntiers:\n- plugins: [{name: picky}, {name: gang}, {name: predicates}]"
    policy = build_policy(parse(text, "test"), {**BUILTIN, Picky.name: Picky})
    hands, counted, now = Hands(cache), metrics(), [0.0]
    verdicts: list[Verdict] = []

    def report(found: Report) -> list[None]:
        verdicts.extend(found.verdicts.values())
        return []

    async with recorder(api) as events:
        failing = FailingGroups(cache, events, lambda: now[0])
        scheduler = Scheduler(
            cache, lambda: policy, hands, report, metrics=counted, failed=failing.note, wall=lambda: now[0]
        )
        with caplog.at_level(logging.ERROR):
            for now[0] in (0.0, 0.5, 2.0, 100.0):
                await scheduler.cycle()
        await until(lambda: api.made("POST", "/events"))
    assert [bind.pod for each in hands.transactions for bind in each.binds] == ["ns/g"]
    (reason,) = {each.reason for each in verdicts if each.group == "ns/bad"}
    assert isinstance(reason, EngineError)
    assert reason.message.startswith("the scheduler failed on this group (ValueError in allocate)")
    assert counted.group_errors.labels("allocate")._value.get() == 3, "it is not asked about at 0.5 s"
    said = [record.getMessage() for record in caplog.records if record.name == "operators.scheduler.failing"]
    assert len(said) == 2, "not again within a minute"
    assert said[0].startswith("the engine failed on group ns/bad in allocate: ValueError: what is this?\nTraceback")
    bodies = [call.body for call in api.made("POST", "/events")]
    assert {(body["reason"], body["regarding"]["name"]) for body in bodies} == {("EngineError", "bad")}
    assert not any("Traceback" in body["note"] for body in bodies)
