"""What is kept of the groups of a queue: those that have changed are asked about, and no others."""

from __future__ import annotations

from kbatch.engine.carryover.by_group import ByGroup
from kbatch.model import jobs
from kbatch.model.jobs import Job, QueueRecord


class Queue:
    """A queue of groups that hold something, and what is known of each: how often it was asked about."""

    def __init__(self, *names: str) -> None:
        self.record = QueueRecord("q")
        self.groups: ByGroup[int] = ByGroup()
        self.asked: list[str] = []
        for name in names:
            self.put(name)

    def put(self, name: str) -> None:
        """The group is new, or has changed."""
        job = self.record.holders.setdefault(name, Job(name, name, "default", shadow=False))
        job.generation += 1
        self.record.changed(name)

    def drop(self, name: str) -> None:
        """The group holds nothing any more."""
        del self.record.holders[name]
        self.record.changed(name)

    def follow(self, over: int | None = None) -> list[tuple[int | None, int | None]]:
        """What has changed; `over`: those of which this is known are asked about again."""
        self.asked = []
        return list(self.groups.follow(self.record, self._ask, None if over is None else lambda known: known == over))

    def _ask(self, job: Job) -> int:
        self.asked.append(job.key)
        return job.generation


def test_only_groups_that_have_changed_are_asked_about() -> None:
    queue = Queue("a", "b", "c")
    assert queue.follow() == [(None, 1)] * 3
    assert queue.follow() == []
    queue.put("b")
    queue.put("b")
    queue.put("d")
    queue.drop("c")
    assert sorted(queue.follow(), key=str) == [(1, 3), (1, None), (None, 1)]
    assert queue.asked == ["b", "d"]
    assert sorted(queue.groups) == [1, 1, 3]


def test_one_that_comes_again_is_another_group() -> None:
    queue = Queue("a")
    queue.follow()
    queue.drop("a")
    queue.put("a")
    assert queue.follow() == [(1, 1)]
    assert queue.asked == ["a"]


def test_groups_are_asked_about_again_for_what_is_known_of_them() -> None:
    queue = Queue("a", "b")
    queue.put("b")
    queue.follow()
    assert queue.follow(over=2) == [(2, 2)]
    assert queue.asked == ["b"]
    assert queue.follow() == []


def test_after_more_changes_than_a_queue_remembers_all_are_compared() -> None:
    queue = Queue("a", "b", "c")
    queue.follow()
    queue.drop("c")
    for _ in range(2 * jobs._CHANGES):
        queue.put("b")
    assert sorted(queue.follow(), key=str) == [(1, 1 + 2 * jobs._CHANGES), (1, None)]
    assert queue.asked == ["b"]


def test_what_was_left_off_is_done_the_next_time() -> None:
    queue = Queue("a", "b")
    queue.follow()
    queue.put("a")
    queue.put("b")
    next(queue.groups.follow(queue.record, queue._ask))
    assert len(queue.follow()) == 1


def test_what_was_cleared_is_asked_about_anew() -> None:
    queue = Queue("a", "b")
    queue.follow()
    queue.groups.clear()
    assert queue.follow() == [(None, 1)] * 2
