"""A step of a group's life is written once: what is gathered, for how long, and what is not."""

from __future__ import annotations

import pytest

from kbatch.api.objects import Condition, Job, Pod, PodGroup
from kbatch.model.events import Delete, Upsert
from operators.podgroup.member_index import MemberIndex
from operators.podgroup.patience import CROWD, FLOOD, Delays, Patience
from operators.podgroup.reconcile import observe, reconcile
from tests.unit.podgroup import build
from tests.unit.podgroup.build import NOW, condition, job, pod

TOLD = 2.5
"""Seconds within which the phase of a gang must follow the last of its binds."""


def group(minimum: int, *, phase: str = "Pending", conditions: tuple[Condition, ...] = ()) -> PodGroup:
    """As the API server tells of it: a group is Pending from its creation, though nobody wrote so."""
    return build.group(minimum, phase=phase, conditions=conditions)


class Life:
    """One group whose status is written whenever patience ends, on a clock of its own; looked at every 0.1 s."""

    def __init__(self, *seen: Pod | Job | PodGroup, made: bool = False) -> None:
        self.now = 100.0
        self.patience = Patience(Delays(), lambda: self.now)
        self.index = MemberIndex()
        self.made = made
        self.written: list[tuple[float, str, int, int]] = []
        """When, the phase, how many run and how many wait."""
        self.see(*seen)

    def see(self, *seen: Pod | Job | PodGroup) -> None:
        for one in seen:
            self.index.apply(Upsert(one))
        self.look()

    def say(self, *conditions: str) -> None:
        """The scheduler writes that these are true."""
        before = self.index.groups["ns/pg"]
        said = tuple(condition(type_) for type_ in conditions)
        own = tuple(one for one in before.status.conditions or () if one.type not in {"Enqueued", "Scheduled"})
        before.status.conditions = (*own, *said)
        self.look()

    def pass_(self, seconds: float, step: float = 0.1) -> None:
        for _ in range(round(seconds / step)):
            self.now += step
            self.look()

    def look(self) -> None:
        found = self.index.groups.get("ns/pg")
        if found is None:
            return
        observed = observe(self.index, found)
        wanted = reconcile(found, observed, NOW)
        status = found.status
        if (wanted.phase, wanted.running, wanted.pending, wanted.failed) == (
            status.phase, status.running, status.pending, status.failed,
        ):  # fmt: skip
            self.patience.forget("ns/pg")
        elif self.patience.left("ns/pg", found, observed, wanted, makes_pods=self.made) <= 0:
            self.patience.forget("ns/pg")
            self.written.append((round(self.now - 100, 1), wanted.phase, wanted.running, wanted.pending))
            status.phase, status.running, status.pending = wanted.phase, wanted.running, wanted.pending
            status.failed, status.allocated = wanted.failed, dict(wanted.allocated)

    @property
    def phases(self) -> list[str]:
        return [phase for _, phase, _, _ in self.written]


def members(count: int, phase: str = "Pending", node: str = "") -> list[Pod]:
    return [pod(f"p{index}", phase, node=node) for index in range(count)]


def test_a_gang_that_fits_at_once_is_one_write() -> None:
    life = Life(group(4))
    life.pass_(0.3)
    life.see(*members(4))
    life.pass_(1.0)
    life.see(*members(2, node="n"))
    life.pass_(0.3)
    life.see(*members(4, node="n"))
    life.say("Enqueued", "Scheduled")
    life.pass_(0.5)
    life.see(*members(4, "Running", node="n"))
    life.pass_(30)
    assert [what for _, *what in life.written] == [["Running", 4, 0]]


def test_a_gang_whose_pods_are_slow_to_start_says_that_it_runs_and_then_how_many() -> None:
    life = Life(group(4), *members(4))
    life.see(*members(4, node="n"))
    life.pass_(TOLD)
    assert life.phases == ["Running"], "as soon as it has its nodes"
    for started in range(1, 5):
        life.pass_(5)
        life.see(*members(started, "Running", node="n"))
    life.pass_(10)
    assert [what for _, *what in life.written] == [["Running", 0, 4], ["Running", 4, 0]]


@pytest.mark.parametrize("maker", [True, False])
def test_a_group_whose_pods_are_made_in_queue_is_two_writes(maker: bool) -> None:
    life = Life(*([job()] if maker else []), group(4), made=True)
    life.pass_(1.5)
    assert not life.written, "that it waits is said only when it has for a while"
    life.say("Enqueued")
    assert life.phases == ["InQueue"], "before its pods are made: at once"
    for made in range(1, 5):
        life.pass_(0.5)
        life.see(*members(made))
    life.pass_(0.5)
    life.see(*members(4, node="n"))
    life.pass_(0.5)
    life.see(*members(4, "Running", node="n"))
    life.pass_(30)
    assert [what for _, *what in life.written] == [["InQueue", 0, 0], ["Running", 4, 0]]


def test_a_large_gang_is_not_told_of_half_way() -> None:
    life = Life(group(100), *members(100))
    life.pass_(4.5)
    assert not life.written, "how many wait is not told while they may be bound"
    for bound in range(10, 110, 10):
        life.pass_(0.8)
        life.see(*members(bound, node="n"))
    life.pass_(TOLD)
    assert life.phases == ["Running"]


def test_what_waits_says_so() -> None:
    life = Life(group(4))
    life.pass_(5)
    life.see(*members(2))
    life.pass_(11)
    assert [what for _, *what in life.written] == [["Pending", 0, 2]], "that it waits needs no write"


@pytest.mark.parametrize(("made", "phases"), [(False, ["Pending", "InQueue"]), (True, ["InQueue"])])
def test_a_group_that_waits_for_an_hour_is_written_at_most_twice(made: bool, phases: list[str]) -> None:
    life = Life(group(4), *([] if made else members(4)), made=made)
    life.pass_(1800, step=1.0)
    life.say("Enqueued")
    life.pass_(1800, step=1.0)
    assert life.phases == phases


def test_a_job_that_goes_as_soon_as_it_has_ended_leaves_a_group_that_is_over() -> None:
    life = Life(job(), group(2, phase="Running", conditions=(condition("Enqueued"), condition("Scheduled"))), made=True)
    life.see(*(pod(name, "Running", node="n", controller="j") for name in "ab"))
    life.pass_(5)
    life.written.clear()
    life.see(*(pod(name, "Succeeded", node="n", controller="j") for name in "ab"))
    life.made = False  # its Job makes no more
    life.index.apply(Upsert(job(ended="Complete")))
    life.index.apply(Delete(Job, "ns", "job"))
    life.look()
    assert life.phases == ["Completed"], "at once"
    for name in "ab":
        life.index.apply(Delete(Pod, "ns", name))
    life.pass_(30)
    assert life.phases == ["Completed"]


def test_pods_are_released_and_held_back_by_a_phase_that_stands() -> None:
    life = Life(job(), group(2, phase="InQueue", conditions=(condition("Enqueued", "False"),)), made=True)
    assert life.phases == ["Pending"], "at once"


def test_what_would_be_forgotten_is_written_at_once() -> None:
    patience = Patience(Delays(), lambda: 0.0)
    index = MemberIndex()
    runs = group(2, phase="Running")
    index.apply(Upsert(runs))
    for member in members(3, "Running", "n"):
        index.apply(Upsert(member))
    left = []
    for last in (pod("p3", "Running", node="n"), pod("p3", "Failed", node="n")):
        index.apply(Upsert(last))
        seen = observe(index, runs)
        left.append(patience.left("ns/pg", runs, seen, reconcile(runs, seen, NOW), makes_pods=True))
    assert left[0] > 0 >= left[1], "a failed pod may be gone before its node is remembered"


def test_what_was_heard_before_a_look_counts_from_then() -> None:
    now = 0.0
    patience = Patience(Delays(), lambda: now)
    index = MemberIndex()
    starts = group(2)
    index.apply(Upsert(starts))
    for member in members(2, "Running", "n"):
        index.apply(Upsert(member))
    observed = observe(index, starts)
    wanted = reconcile(starts, observed, NOW)
    patience.heard("ns/pg")
    now = 0.4
    assert patience.left("ns/pg", starts, observed, wanted, makes_pods=False) == pytest.approx(Delays().settle - 0.4)
    patience.heard("ns/pg")  # of its numbers
    now = 0.8
    assert patience.left("ns/pg", starts, observed, wanted, makes_pods=False) == pytest.approx(Delays().settle - 0.8)
    patience.heard("ns/pg")
    assert len(patience) == 1
    patience.forget("ns/pg")
    assert not len(patience)


def test_single_pods_wait_longer_while_many_start() -> None:
    patience = Patience(Delays(), lambda: 0.0)
    index = MemberIndex()
    single, gang = group(1), group(2)
    index.apply(Upsert(single))
    for name in "ab":
        index.apply(Upsert(pod(name, node="n")))
    observed = observe(index, single)
    wanted = reconcile(single, observed, NOW)
    assert patience.left("ns/pg", single, observed, wanted, makes_pods=False) <= TOLD
    for number in range(FLOOD + 1):
        patience.left(f"ns/g{number}", single, observed, wanted, makes_pods=False)
    assert patience.left("ns/pg", single, observed, wanted, makes_pods=False) > TOLD
    assert patience.left("ns/pg", gang, observed, wanted, makes_pods=False) <= TOLD


def test_numbers_alone_wait_longer_while_many_groups_change() -> None:
    now = 0.0
    patience = Patience(Delays(), lambda: now)
    index = MemberIndex()
    runs, starts = group(2, phase="Running"), group(2)
    index.apply(Upsert(runs))
    for member in members(2):
        index.apply(Upsert(member))
    waiting = observe(index, starts)
    waits = reconcile(starts, waiting, NOW)
    for member in members(2, "Running", "n"):
        index.apply(Upsert(member))
    observed = observe(index, runs)
    wanted = reconcile(runs, observed, NOW)

    def left(key: str, about: PodGroup) -> float:
        return patience.left(key, about, observed, wanted, makes_pods=False)

    assert left("ns/pg", runs) == Delays().counting
    assert patience.left("ns/waits", starts, waiting, waits, makes_pods=False) == Delays().waiting
    patience.forget("ns/waits")
    for number in range(CROWD):
        left(f"ns/g{number}", runs)
    assert left("ns/pg", runs) == Delays().counting_crowd
    assert left("ns/new", starts) <= TOLD, "of this one more is to be said"
    assert patience.left("ns/waits", starts, waiting, waits, makes_pods=False) == Delays().waiting_crowd
    now = Delays().counting_crowd
    assert left("ns/pg", runs) == 0
    for number in range(CROWD):
        patience.forget(f"ns/g{number}")
    now = Delays().counting
    assert left("ns/pg", runs) == 0
