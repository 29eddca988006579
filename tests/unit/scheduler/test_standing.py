"""How groups stand, in numbers."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from kbatch.api.objects import PodGroup, Queue
from kbatch.engine import GroupError, Report, Verdict
from kbatch.metrics import SchedulerMetrics
from kbatch.model.events import Delete
from kbatch.times import SECOND
from operators.scheduler.cache import Cache
from operators.scheduler.standing import Standing
from tests.unit.scheduler.fakes import cache_with, group, pod, queue, told


def of_queue(name: str, queue_name: str) -> PodGroup:
    one = group(name)
    one.spec.queue = queue_name
    return one


def verdict(name: str, *, scheduled: bool = False, attempted: bool = False) -> Verdict:
    return Verdict(f"ns/{name}", shadow=False, enqueued=True, scheduled=scheduled, attempted=attempted)


class Numbers:
    def __init__(self, cache: Cache, now: float) -> None:
        self.registry = CollectorRegistry()
        self.now = now
        self.standing = Standing(cache.model, SchedulerMetrics(self.registry), lambda: self.now)

    def take(self, *verdicts: Verdict, gone: tuple[str, ...] = ()) -> None:
        told_of = {one.group: one for one in verdicts}
        self.standing.take(int(self.now * SECOND), Report(told_of, whole=False, gone=gone))

    def oldest(self, name: str) -> float | None:
        return self.registry.get_sample_value("kbatch_scheduler_queue_oldest_waiting_seconds", {"queue": name})

    def ended(self, result: str) -> float | None:
        return self.registry.get_sample_value("kbatch_scheduler_attempts_total", {"result": result})


@pytest.fixture
def cache() -> Cache:
    names = (("g", "a"), ("h", "b"), ("lost", "typo"), ("lost-too", "other-typo"))
    groups = [of_queue(name, its) for name, its in names]
    return cache_with(queue("a"), queue("b"), *groups, *(pod(f"p-{name}", group=name) for name, _ in names))


def numbers_of(cache: Cache, seconds: float = 100) -> Numbers:
    return Numbers(cache, max(job.created for job in cache.model.jobs.values()) / SECOND + seconds)


def test_the_oldest_group_that_waits_is_known_by_queue_and_grows_older(cache: Cache) -> None:
    numbers = numbers_of(cache)
    numbers.take(verdict("g"), verdict("h", scheduled=True))
    assert numbers.oldest("a") == pytest.approx(100)
    assert numbers.oldest("b") == 0
    numbers.now += 50
    assert numbers.oldest("a") == pytest.approx(150)
    assert numbers.registry.get_sample_value("kbatch_scheduler_oldest_waiting_seconds") == pytest.approx(150)
    numbers.take(verdict("g", scheduled=True))
    assert numbers.oldest("a") == 0
    numbers.take(gone=("ns/g", "ns/h"))
    assert numbers.registry.get_sample_value("kbatch_scheduler_oldest_waiting_seconds") == 0


def test_queues_that_do_not_exist_share_one_series(cache: Cache) -> None:
    numbers = numbers_of(cache)
    numbers.take(verdict("lost"), verdict("lost-too"))
    assert numbers.oldest("-") == pytest.approx(100)
    assert numbers.oldest("typo") is None
    assert numbers.oldest("other-typo") is None


def test_a_queue_that_goes_leaves_no_series(cache: Cache) -> None:
    numbers = numbers_of(cache)
    numbers.take(verdict("g"), verdict("h"))
    cache.receive(told(Delete(Queue, "", "a")))
    numbers.take(verdict("g"))
    assert numbers.oldest("a") is None
    assert numbers.oldest("-") == pytest.approx(100)
    assert numbers.oldest("b") == pytest.approx(100)


def test_attempts_are_counted_by_how_they_end(cache: Cache) -> None:
    numbers = numbers_of(cache)
    assert numbers.ended("scheduled") == 0
    report = Report(
        {
            "ns/g": verdict("g", scheduled=True),
            "ns/stood": verdict("stood", scheduled=True),
            "ns/h": verdict("h", attempted=True),
            "ns/closed": verdict("closed"),
        }
    )
    error = GroupError(job="ns/e", group="ns/e", phase="allocate", text="KeyError", trace="")
    numbers.standing.attempted(report, {"ns/g"}, [error])
    assert [numbers.ended(result) for result in ("scheduled", "waiting", "error")] == [1, 1, 1]
