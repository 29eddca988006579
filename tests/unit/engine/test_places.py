"""Places in queue of groups for which there is no room: who keeps whom from one."""

from __future__ import annotations

import numpy as np
import pytest

from kbatch.engine.actions.places import Places
from kbatch.engine.carryover.backlog import Backlog, Entry
from kbatch.engine.carryover.giving import Giving
from kbatch.model.jobs import Job
from kbatch.model.journal import Journal


def job(name: str, queue: str = "q", *, priority: int = 0, created: int = 0) -> Job:
    return Job(f"ns/{name}", f"ns/{name}", "ns", shadow=False, queue=queue, priority=priority, created=created)


def entry(job: Job) -> Entry:
    """Of a group that asks for nothing in particular."""
    giving = Giving(job.queue, job.priority, endless=True, foreseen=())
    return Entry(
        job, {}, {}, None, None, giving, (), None, triable=False, tried=False, strict=False, choosing=False,
        stated=False, attempts=0, limit=None, due=0, back=0,
    )  # fmt: skip


def test_where_no_starts_are_planned_whoever_has_one_keeps_all_out() -> None:
    places = Places(1, ranks=False, in_order=False)
    assert places.any_left()
    places.take(job("late", created=5))
    assert not places.left(job("early", created=1))
    assert not places.any_left()


def test_of_its_own_queue_those_keep_a_group_out_that_come_before_it() -> None:
    places = Places(2, ranks=False, in_order=True)
    for at in (3, 5, 7):
        places.take(job(f"at-{at}", created=at))
    assert places.left(job("first", created=2))
    assert places.left(job("second", created=4))
    assert not places.left(job("third", created=6))
    assert not places.left(job("last", created=9))


def test_the_higher_priority_comes_before_where_it_ranks() -> None:
    for ranks in (False, True):
        places = Places(1, ranks=ranks, in_order=True)
        places.take(job("there", created=1))
        assert places.left(job("more-important", priority=1, created=2)) is ranks


def test_those_of_other_queues_count_all() -> None:
    places = Places(2, ranks=False, in_order=True)
    places.take(job("mine", created=3))
    places.take(job("another", "other", created=9))
    assert places.left(job("before", created=1))
    assert not places.left(job("behind", created=4))
    assert not places.left(job("elsewhere", "third", created=1))
    places.take(job("one-more", "other", created=8))
    assert not places.left(job("before", created=1))
    assert places.any_left()  # for who comes before `another` in `other`
    places.take(job("second", created=5))
    assert not places.any_left()


@pytest.mark.parametrize("ranks", [False, True])
def test_of_rows_the_same_is_said_as_of_their_groups(*, ranks: bool) -> None:
    chance = np.random.default_rng(1)
    for _ in range(200):
        depth = int(chance.integers(1, 4))
        places = Places(depth, ranks=ranks, in_order=bool(chance.integers(0, 4)))
        backlog = Backlog(Journal())
        waiting: list[tuple[int, Job]] = []
        for number in range(12):
            queue, priority = f"q{chance.integers(0, 3)}", int(chance.integers(0, 2))
            created = int(chance.integers(0, 12))
            group = job(f"j{number}", queue, priority=priority, created=created)
            if chance.integers(0, 3):
                waiting.append((backlog.add(entry(group)), group))
            elif places.left(group):
                places.take(group)
        rows = np.array([row for row, _ in waiting], np.intp)
        said = [places.left(group) for _, group in waiting]
        assert places.left_for(backlog, rows).tolist() == said
        assert places.any_left() or not any(said)
        for queue in {group.queue for _, group in waiting}:
            line = backlog.by_age(backlog.queues.numbers[queue])
            line = backlog.ranked(line) if ranks else line
            left = [row for row in line.tolist() if places.left(backlog.entry(row).job)]
            assert places.first_left(backlog, queue, line).tolist() == left
