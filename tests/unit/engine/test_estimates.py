"""The plugin estimates: what it learns of groups that end, and what those that wait are told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kbatch.decisions.state import read_lasting, read_state, write_lasting, write_state
from kbatch.engine import CycleState, Memo, Policy
from kbatch.engine.plugins.estimates import runs, waits
from kbatch.engine.plugins.estimates.state import Known, Learned
from kbatch.engine.plugins.estimates.windows import KINDS, LENGTH, Windows, quantile
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Upsert
from kbatch.times import SECOND
from tests.unit.engine.worlds import (
    EPOCH,
    Decisions,
    group,
    members,
    node,
    pod,
    policy,
    queue,
    run,
    stamp,
    world,
)

EXPECTED = "kbatch.dev/expected-seconds"
TIERS = """
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}, {name: estimates}]
"""
PLAIN = policy("actions: allocate" + TIERS)
QUEUED = policy("actions: [enqueue, allocate]" + TIERS)
EASY = policy("actions: [allocate, {name: backfill, arguments: {mode: easy}}]" + TIERS)


def job(name: str, cpu: str = "4", *, at: int = 0, says: int | None = None, on: str = "", **more: Any) -> list[Any]:
    """A group of one pod, with what its user expects."""
    found = group(name, at=at)
    one = pod(f"{name}-0", cpu, of=name, at=at, on=on, **more)
    if says is not None:
        found.metadata.annotations = {EXPECTED: str(says)}
    return [found, one]


class Clock:
    """Cycles over a model at chosen instants, each going on from the one before."""

    def __init__(self, model: ClusterModel, by: Policy = PLAIN, state: CycleState | None = None) -> None:
        self.model, self.by, self.memo, self.state = model, by, Memo(), state or CycleState()

    def at(self, now: int) -> Decisions:
        """One cycle; nothing that it decides is carried out."""
        found = run(self.model, self.by, now=now, memo=self.memo, state=self.state)
        assert found.outcome is not None
        assert not found.outcome.errors
        self.memo, self.state = found.outcome.memo, found.outcome.state
        return found

    def end(self, name: str) -> None:
        """The pod has ended well."""
        one = self.model.tasks[f"ns/{name}-0"].pod
        ended = msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, phase="Succeeded"))
        self.model.apply(Upsert(ended))

    @property
    def known(self) -> Known:
        found: Known = self.state.plugins["estimates"]
        return found


def told(found: Decisions, name: str) -> tuple[int, int, str] | None:
    """What a group is told: seconds, and the basis."""
    estimate = found.verdicts[f"ns/{name}"].estimate
    if estimate is None:
        return None
    assert estimate.time is not None
    assert estimate.latest is not None
    return (estimate.time - EPOCH) // SECOND, (estimate.latest - EPOCH) // SECOND, estimate.basis


def learned(queue_: str = "default", *, part: int | None = None, ran: int | None = None) -> CycleState:
    """A process that has seen twenty runs of `part` thousandths of what was said, or of so many seconds."""
    windows = Windows({})
    for _ in range(20):
        if part is not None:
            runs.learn(windows, runs.kinds_of(queue_, "ns/x", 1, said=True), 1000 * SECOND, part * SECOND)
        if ran is not None:
            runs.learn(windows, runs.kinds_of(queue_, "ns/x", 1, said=False), None, ran * SECOND)
    return CycleState(plugins={"estimates": Known(Learned(windows.all))})


# --- run times --------------------------------------------------------------------------------------------------------


def test_how_long_groups_ran_over_what_was_said_is_learned() -> None:
    clock = Clock(world(queue(), node("n1"), job("run-1", says=100, on="n1")))
    clock.at(10)
    assert clock.known.running.keys() == {"ns/run-1"}
    clock.end("run-1")
    clock.at(50)
    kinds = runs.kinds_of("default", "ns/run-7", 1, said=True)
    assert {kind: clock.known.learned.runs[kind] for kind in kinds} == dict.fromkeys(kinds, (500,))
    assert clock.known.running == {}


def test_of_a_group_that_is_taken_away_nothing_is_learned() -> None:
    clock = Clock(world(queue(), node("n1"), job("run-1", says=100, on="n1")))
    clock.at(10)
    one = clock.model.tasks["ns/run-1-0"].pod
    spec = msgspec.structs.replace(one.spec, node_name="")
    clock.model.apply(Upsert(msgspec.structs.replace(one, spec=spec, status=type(one.status)(phase="Pending"))))
    clock.at(50)
    assert clock.known.learned.runs == {}


def test_the_most_special_kind_counts_of_which_enough_was_seen() -> None:
    windows = Windows({})
    for _ in range(5):
        runs.learn(windows, runs.kinds_of("a", "ns/short-1", 1, said=True), 100, 10)
        runs.learn(windows, runs.kinds_of("a", "ns/long-1", 8, said=True), 100, 90)
    for number in range(4):
        runs.learn(windows, runs.kinds_of("b", f"ns/rare-{number}", 1, said=True), 100, 50)
    assert runs.length(windows, runs.kinds_of("a", "ns/short-22", 1, said=True), 1000) == 100
    assert runs.length(windows, runs.kinds_of("a", "ns/long-22", 9, said=True), 1000) == 900
    assert runs.length(windows, runs.kinds_of("b", "ns/rare-9", 1, said=True), 1000) == 500  # of all together
    assert runs.length(windows, runs.kinds_of("c", "ns/new", 1, said=False), None) is None
    assert runs.length(Windows({}), runs.kinds_of("c", "ns/new", 1, said=True), 1000) == 1000


def test_who_runs_on_is_like_those_that_ran_as_long() -> None:
    windows = Windows({})
    kinds = runs.kinds_of("a", "ns/x", 1, said=True)
    for part in (10, 10, 10, 10, 10, 80, 90, 100):
        runs.learn(windows, kinds, 100, part)
    assert runs.length(windows, kinds, 1000, ran=0) == 100
    assert runs.length(windows, kinds, 1000, ran=100) == 900
    assert runs.length(windows, kinds, 1000, ran=1000) == 1000


def test_who_starts_where_all_before_ended_at_once_runs_for_some_time() -> None:
    """Nothing lasts for no time at all: ends are multiples of how long something lasts."""
    model = world(queue(), node("n1", "4"), job("run-1", "4", at=10, on="n1"), job("next-1", "4", at=10))
    found = Clock(model, EASY, learned(ran=0)).at(10)
    assert not found.transactions
    assert found.reason("next-1") == "NotEnoughResources"


def test_what_is_kept_is_bounded_and_the_longest_unseen_goes_first() -> None:
    windows = Windows({})
    for number in range(KINDS + 3):
        windows.add(["always", f"kind {number}"], number)
    assert len(windows.all) == KINDS
    assert len(windows["always"]) == LENGTH
    assert windows["kind 0"] == ()
    assert windows[f"kind {KINDS + 2}"] == (KINDS + 2,)


def test_windows_leave_what_was_before_as_it_was() -> None:
    before: dict[str, tuple[int, ...]] = {"a": (1,)}
    windows = Windows(before)
    windows.add(["a"], 2)
    assert before == {"a": (1,)}
    assert windows.all == {"a": (1, 2)}


@pytest.mark.parametrize(
    ("level", "expected"), [(500, 6), (900, 10), (950, 12)]
)  # fmt: skip
def test_quantiles(level: int, expected: int) -> None:
    assert quantile([3, 1, 2, 5, 4, 6, 9, 8, 7, 10], level) == expected


# --- what is told -----------------------------------------------------------------------------------------------------


def test_a_group_that_waits_is_told_the_middle_of_what_is_known_and_what_nine_of_ten_stay_within() -> None:
    model = world(queue(), node("n1"), job("busy", says=1000, on="n1"), job("next", at=1))
    clock = Clock(model, state=learned(part=500))
    found = told(clock.at(100), "next")
    assert found is not None
    # Runs end at half of what is said: it is foreseen to wait for 400 s.
    wait, most = waits.told(Windows({}), waits.kinds_of("default", 400, planned=False), {}, "default", 400 * SECOND)
    assert found == (100 + wait // SECOND, 100 + most // SECOND, "history")
    assert found[0] < found[1]


@pytest.mark.parametrize("by", [PLAIN, QUEUED], ids=["plain", "queued"])
@pytest.mark.parametrize(("capability", "foreseen"), [("6", False), ("8", True)])
def test_who_asks_for_more_than_its_queue_may_ever_hold_is_told_nothing(
    by: Policy, capability: str, *, foreseen: bool
) -> None:
    some = queue("capped", capability={"cpu": capability}), queue(), node("n1", "8")
    waits = group("waits", at=20, queue="capped", min_resources={"cpu": "8"}), pod("waits-0", "8", of="waits", at=20)
    clock = Clock(world(*some, job("busy", "8", says=400, on="n1"), waits), by, learned(part=500))
    assert (told(clock.at(100), "waits") is not None) is foreseen
    assert ("ns/waits" in clock.known.told) is foreseen


def test_of_pods_above_the_minimum_a_capability_may_hold_fewer() -> None:
    elastic = [group("elastic", 2, at=20, queue="capped"), *members("elastic", 8, "1", at=20)]
    some = queue("capped", capability={"cpu": "4"}), queue(), node("n1", "8")
    clock = Clock(world(*some, job("busy", "8", says=400, on="n1"), elastic), PLAIN, learned(part=500))
    assert told(clock.at(100), "elastic") is not None


def test_where_nobody_knows_when_anything_ends_nothing_is_told() -> None:
    clock = Clock(world(queue(), node("n1"), job("busy", on="n1"), job("next", at=1)))
    assert told(clock.at(100), "next") is None


def test_the_run_time_of_pods_of_which_nobody_says_anything_is_learned_too() -> None:
    model = world(queue(), node("n1"), job("busy", on="n1"), job("next", at=1))
    found = Clock(model, EASY, learned(ran=700)).at(100)
    assert found.outcome is not None
    assert found.outcome.planned == {"ns/next": EPOCH + 700 * SECOND}
    told_ = told(found, "next")
    assert told_ is not None
    assert told_[2] == "history"


def test_where_pods_are_held_to_their_ends_the_planned_start_is_told() -> None:
    limited = job("busy", on="n1", active_deadline_seconds=300)
    found = Clock(world(queue(), node("n1"), limited, job("next", at=1)), EASY, learned(part=500)).at(100)
    assert told(found, "next") == (300, 300, "reservation")


def test_where_an_estimate_comes_before_the_deadline_the_start_is_told_by_history() -> None:
    limited = job("busy", on="n1", says=200, active_deadline_seconds=300)
    found = Clock(world(queue(), node("n1"), limited, job("next", at=1)), EASY, learned(part=500)).at(100)
    assert found.outcome is not None
    assert found.outcome.planned == {"ns/next": EPOCH + 200 * SECOND}
    told_ = told(found, "next")
    assert told_ is not None
    assert told_[2] == "history"


def test_nothing_is_told_that_time_alone_does_not_change() -> None:
    closed = queue("closed", state="Closed")
    shut = group("shut", queue="closed", at=1)
    huge = job("huge", "64", at=1)
    model = world(
        queue(), closed, node("n1"), job("busy", says=1000, on="n1"), shut, pod("shut-0", "4", of="shut"), huge
    )
    found = Clock(model, state=learned(part=500)).at(100)
    assert told(found, "shut") is None
    assert told(found, "huge") is None


def test_a_group_whose_pods_are_not_made_yet_is_told_as_well() -> None:
    model = world(queue(), node("n1"), job("busy", says=1000, on="n1"))
    model.apply(Upsert(group("later", 1, at=1, min_resources={"cpu": "4"})))
    found = Clock(model, QUEUED, learned(part=500)).at(100)
    assert found.verdicts["ns/later"].enqueued is False
    assert told(found, "later") is not None


# --- how often --------------------------------------------------------------------------------------------------------


def test_what_was_told_stays_until_it_has_moved_much() -> None:
    model = world(queue(), node("n1"), node("n2"), job("busy", says=1000, on="n1"), job("other", says=2000, on="n2"))
    for each in job("next", at=1):
        model.apply(Upsert(each))
    clock = Clock(model, state=learned(part=1000))
    first = told(clock.at(100), "next")
    for now in (101, 150, 400):  # nothing has happened
        clock.memo = Memo()
        assert told(clock.at(now), "next") == first
    clock.model.apply(Upsert(pod("small", "1", scheduler="other", at=2)))
    assert told(clock.at(401), "next") == first
    clock.model.apply(Upsert(node("n3", labels={"x": "y"}, taints=())))
    clock.end("other")
    clock.model.apply(Upsert(pod("big", "4", scheduler="other", on="n2", at=2)))
    clock.model.apply(Upsert(pod("big2", "4", scheduler="other", on="n3", at=2)))
    assert told(clock.at(500), "next") == first  # what is foreseen has not moved


def test_it_is_told_again_when_what_is_foreseen_has_moved_by_much_and_half_a_minute_has_passed() -> None:
    model = world(queue(), node("n1", "8"), job("busy", says=1000, on="n1"), job("short", says=9000, on="n1"))
    for each in job("next", at=1):
        model.apply(Upsert(each))
    clock = Clock(model, state=learned(part=1000))
    first = told(clock.at(100), "next")
    # The one that it waits for ends, and another stands there that lasts: what was foreseen is no more.
    clock.end("busy")
    for each in job("long", says=8000, on="n1", at=110):
        clock.model.apply(Upsert(each))
    assert told(clock.at(111), "next") == first  # it was told eleven seconds ago
    found = clock.at(131)
    assert found.outcome is not None
    again = told(found, "next")
    assert again is not None
    assert first is not None
    assert again[0] > first[0] + 1000


def test_it_wakes_to_say_it_again_when_what_was_told_has_passed() -> None:
    model = world(queue(), node("n1"), job("busy", says=1000, on="n1"), job("next", at=1))
    clock = Clock(model, state=learned(part=500))
    found = clock.at(100)
    first = told(found, "next")
    assert first is not None
    assert found.outcome is not None
    assert found.outcome.next_wake == EPOCH + first[0] * SECOND
    again = told(clock.at(first[0]), "next")
    assert again is not None
    assert again[0] >= first[0] + 30


def test_no_more_groups_are_told_than_the_argument_says_the_first_in_order() -> None:
    by = policy("actions: allocate" + TIERS.replace("{name: estimates}", "{name: estimates, arguments: {most: 2}}"))
    model = world(
        queue(), node("n1"), job("busy", says=1000, on="n1"), *[job(f"w{at}", at=at, says=9) for at in (3, 2, 1)]
    )
    found = Clock(model, by, learned(part=500)).at(100)
    assert [told(found, f"w{at}") is not None for at in (1, 2, 3)] == [True, True, False]


# --- what is learned of waits -----------------------------------------------------------------------------------------


def test_what_came_of_a_wait_is_learned_when_the_group_starts() -> None:
    model = world(queue(), node("n1"), job("busy", says=1000, on="n1"), job("next", at=1))
    clock = Clock(model, state=learned(part=500))
    clock.at(100)
    clock.end("busy")
    assert clock.at(300).binds == {"next-0": "n1"}
    kinds = waits.kinds_of("default", 400 * SECOND, planned=False)
    assert [clock.known.learned.waits[kind] for kind in kinds] == [(500,), (500,)]  # 200 of 400 s
    assert clock.known.learned.levels == {"default": waits.LEVEL - 2}
    assert clock.known.told == {}


def test_a_group_that_starts_in_the_cycle_in_which_it_comes_teaches_nothing() -> None:
    clock = Clock(world(queue(), node("n1"), job("next", at=1)), state=learned(part=500))
    assert clock.at(100).binds == {"next-0": "n1"}
    assert clock.known.learned.waits == {}
    assert clock.known.learned.levels == {}


def test_who_is_late_counts_once_and_at_once() -> None:
    model = world(queue(), node("n1"), job("busy", says=1000, on="n1"), job("next", at=1))
    clock = Clock(model, state=learned(part=500))
    first = told(clock.at(100), "next")
    assert first is not None
    clock.at(first[1] + 1)
    raised = {"default": waits.LEVEL + 18}
    assert clock.known.learned.levels == raised
    clock.end("busy")
    clock.at(first[1] + 500)
    assert clock.known.learned.levels == raised
    assert clock.known.told == {}


def test_a_wait_is_learned_as_what_the_group_was_told_first() -> None:
    busy = job("busy", says=1000, on="n1"), job("more", says=3000, on="n2")
    first, second = job("first", at=1, says=4000), job("second", at=2, says=100)
    clock = Clock(world(queue(), node("n1"), node("n2"), *busy, first, second), EASY, learned(part=500))
    found = clock.at(100)
    assert found.outcome is not None
    assert found.outcome.planned.keys() == {"ns/first"}
    assert not clock.known.told["ns/second"].by_plan
    clock.end("busy")
    found = clock.at(200)
    assert found.binds == {"first-0": "n1"}
    told_ = clock.known.told["ns/second"]
    assert (told_.by_plan, told_.planned) == (False, True)
    clock.end("more")
    clock.at(300)
    assert [kind.split()[0] for kind in clock.known.learned.waits] == ["planned", "planned", "line", "line"]


def test_levels_stay_within_bounds() -> None:
    level = waits.LEVEL
    for _ in range(1000):
        level = waits.level_after(level, late=True)
    assert level == 1400
    for _ in range(1000):
        level = waits.level_after(level, late=False)
    assert level == 600


# --- what lasts -------------------------------------------------------------------------------------------------------


def test_all_that_is_kept_stands_in_the_decision_log() -> None:
    clock = Clock(world(queue(), node("n1"), job("busy", says=1000, on="n1"), job("next", at=1)), state=learned(part=9))
    clock.at(100)
    written = write_state(clock.state)
    assert read_state(msgspec.json.decode(msgspec.json.encode(written)), PLAIN) == clock.state


def test_what_was_learned_outlives_the_process_and_nothing_else() -> None:
    clock = Clock(world(queue(), node("n1"), job("busy", says=1000, on="n1"), job("next", at=1)), state=learned(part=9))
    clock.at(100)
    lasting = write_lasting(clock.state, PLAIN)
    text = {name: msgspec.json.encode(part).decode() for name, part in lasting.items()}
    state, refused = read_lasting(text, PLAIN)
    assert refused == {}
    assert state.plugins == {"estimates": Known(clock.known.learned)}
    state, refused = read_lasting({"estimates": "[]"}, PLAIN)
    assert state == CycleState()
    assert refused.keys() == {"estimates"}
    assert read_lasting(text, policy()) == (CycleState(), {})


def test_a_quiet_cycle_leaves_the_very_state() -> None:
    clock = Clock(world(queue(), node("n1"), job("busy", says=1000, on="n1"), job("next", at=1)), state=learned(part=9))
    clock.at(100)
    before = clock.state
    clock.memo = Memo()
    clock.at(101)
    assert clock.state.plugins["estimates"] is before.plugins["estimates"]


def test_where_nobody_is_told_anything_time_alone_changes_nothing_that_is_kept() -> None:
    """Once a group has ended: a cycle that is left out because nothing has changed leaves what this one does."""
    clock = Clock(world(queue(), node("n1"), job("busy", says=10, on="n1")))
    clock.at(1)
    clock.end("busy")
    clock.at(2)
    before = clock.state
    clock.memo = Memo()
    clock.at(100)
    assert clock.state.plugins["estimates"] is before.plugins["estimates"]


def test_members_of_a_gang_count_as_one() -> None:
    model = world(queue(), node("n1"), job("busy", says=1000, on="n1"), group("gang", 2, at=1), members("gang", 2, "2"))
    clock = Clock(model, state=learned(part=500))
    assert told(clock.at(100), "gang") is not None
    assert stamp(0)
    assert len(clock.known.told) == 1


@pytest.mark.parametrize("seen", range(25))
def test_where_all_started_as_foreseen_the_next_is_told_so_from_the_first_on(seen: int) -> None:
    windows, kinds = Windows({}), waits.kinds_of("q", 1000 * SECOND, planned=True)
    for _ in range(seen):
        waits.learn(windows, kinds, 1000 * SECOND, 1000 * SECOND)
    assert waits.told(windows, kinds, {}, "q", 1000 * SECOND)[0] == 1000 * SECOND


def test_who_was_told_and_cannot_start_any_more_is_told_so_once() -> None:
    """Else all would be foreseen anew in each cycle from the instant on at which it was to start."""
    model = world(queue(), node("n1"), job("runs", says=100, on="n1"), job("waits", at=1, says=10))
    clock = Clock(model)
    first = clock.at(5).verdicts["ns/waits"].estimate
    assert first is not None
    assert first.time == EPOCH + 100 * SECOND
    model.apply(Upsert(queue(state="Closed")))
    clock.at(50)
    clock.at(101)
    left = clock.state.plugins["estimates"]
    assert run(model, PLAIN, now=102, state=clock.state).outcome.state.plugins["estimates"] is left  # type: ignore[union-attr]
