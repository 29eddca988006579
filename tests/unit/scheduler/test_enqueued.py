"""What was decided about a group's being in queue counts before it is written."""

from __future__ import annotations

from kbatch.api.conditions import ENQUEUED, find
from kbatch.api.objects import Condition
from kbatch.model.events import Delete
from operators.scheduler.cache import Cache
from tests.unit.scheduler.fakes import cache_with, group, queue, told

IN = Condition(type=ENQUEUED, status="True", reason="Admitted")
OUT = Condition(type=ENQUEUED, status="False", reason="WaitingInQueue")


def enqueued(cache: Cache, key: str = "ns/g") -> str | None:
    job = cache.model.jobs[key]
    held = find(job.group.status.conditions if job.group else (), ENQUEUED)
    return held.status if held else None


def uid(cache: Cache) -> str:
    return cache.groups["ns/g"].metadata.uid


def test_a_group_that_was_let_in_keeps_its_place_until_the_server_says_so() -> None:
    cache = cache_with(queue(), group(version="10"))
    cache.decided("ns/g", uid(cache), [IN], 0)
    assert enqueued(cache) == "True"
    assert not cache.groups["ns/g"].status.conditions, "what is to be written is compared with what the server has"
    cache.receive(told(group(version="11")))  # a change by somebody else, from before our write
    assert enqueued(cache) == "True"
    written = group(version="12")
    written.status.conditions = (IN,)
    cache.receive(told(written))
    taken_away = group(version="13")
    cache.receive(told(taken_away))
    assert enqueued(cache) is None, "once written, only the server's word counts"


def test_the_last_decision_counts() -> None:
    cache = cache_with(queue(), group(version="10"))
    cache.decided("ns/g", uid(cache), [IN], 0)
    cache.decided("ns/g", uid(cache), [OUT], 1)
    assert enqueued(cache) == "False"
    job = cache.model.jobs["ns/g"]
    assert job.group is not None
    assert job.group.status.scheduling_attempts == 1


def test_what_it_is_charged_counts_from_the_decision_on() -> None:
    one = group(version="10")
    one.spec.lifetime_seconds = 60
    cache = cache_with(queue(), one)
    cache.decided("ns/g", uid(cache), [IN], 0, "2.5")
    assert cache.model.jobs["ns/g"].charged == 2_500_000
    assert cache.model.queues["default"].charged == 2_500_000
    cache.decided("ns/g", uid(cache), [OUT], 1)
    cache.model.refresh()
    assert cache.model.queues["default"].charged == 0


def test_deciding_the_same_again_keeps_the_time_of_the_first() -> None:
    cache = cache_with(queue(), group(version="10"))
    cache.decided("ns/g", uid(cache), [IN], 0)
    before = cache.model.generation
    cache.decided("ns/g", uid(cache), [IN], 0)
    assert cache.model.generation == before


def test_it_is_decided_for_one_group_and_not_for_the_next_of_its_name() -> None:
    cache = cache_with(queue(), group(version="10"))
    cache.decided("ns/g", "another", [IN], 0)
    assert enqueued(cache) is None
    cache.decided("ns/g", uid(cache), [IN], 0)
    cache.receive(told(Delete(type(group()), "ns", "g")))
    cache.receive(told(group(version="20")))
    assert enqueued(cache) is None
