"""The cache: what may not change during a cycle, and in which order things happen."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from kbatch.api.objects import Condition, Container, FinishedRole, Pod, PodGroup, ResourceRequirements, SubGroup
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Unreadable
from operators.scheduler.cache import Cache
from tests.unit.scheduler.fakes import cache_with, group, node, pod, queue, told


def test_nothing_changes_while_a_cycle_holds_the_model() -> None:
    cache = cache_with(node("n"), pod("a"))
    cache.changed.clear()
    with cache.held() as model:
        generation = model.generation
        cache.receive(told(pod("b")))
        cache.assume("ns/a", "uid-a", "n")
        cache.nominate("ns/b", "uid-b", "n")
        assert model.generation == generation
        assert "ns/b" not in model.tasks
        with pytest.raises(RuntimeError, match="two cycles"), cache.held():
            pass
    assert cache.model.tasks["ns/a"].node == "n"
    assert cache.nominated("ns/b", "uid-b") == "n"
    assert cache.changed.is_set()
    cache.model.validate()


async def test_what_comes_in_a_crowd_between_two_cycles_is_taken_in_pieces_and_in_order() -> None:
    cache = cache_with(node("n"))
    cache.receive(told(*[pod(f"p{number}") for number in range(300)]))
    assert len(cache.model.tasks) < 300, "the event loop has its turns"
    cache.assume("ns/p299", "uid-p299", "n")
    cache.receive(told(pod("p300")))
    await asyncio.sleep(0)
    assert len(cache.model.tasks) < 300
    await cache.caught_up()
    assert len(cache.model.tasks) == 301
    assert cache.model.tasks["ns/p299"].node == "n"
    cache.receive(told(pod("p301")))
    assert "ns/p301" in cache.model.tasks, "what is little, and comes alone, is known at once"


async def test_a_cycle_sees_nothing_of_a_crowd_or_all_of_it() -> None:
    cache = cache_with()
    cache.receive(told(*[pod(f"p{number}") for number in range(300)]))
    with cache.held() as model:
        assert len(model.tasks) == 300
        cache.receive(told(*[pod(f"q{number}") for number in range(300)]))
        await asyncio.sleep(0.01)
        assert len(model.tasks) == 300
    assert len(model.tasks) == 600
    await asyncio.sleep(0)
    cache.model.validate()


def test_what_is_asked_between_two_cycles_works_out_no_sums() -> None:
    """They may be thousands of groups; a cycle does it, in pieces."""
    cache = cache_with(node("n"), queue(), group(minimum=2), pod("a", node="n"), pod("b"))
    assert cache.priority_of("ns/a") == 0
    assert cache.under_way("ns/g")
    assert not cache.whole("ns/g")
    assert not cache.leaving("ns/g")
    assert cache.model.members["ns/g"].holding == 0, "as of the last refresh"
    cache.receive(told(pod("b", node="n", version="2")))
    assert not cache.under_way("ns/g")
    assert cache.whole("ns/g")
    assert cache.model.jobs["ns/g"].holding == 2


def test_members_that_have_ended_well_count_where_their_pods_are_gone() -> None:
    of = group(minimum=3)
    of.spec.sub_groups = (SubGroup(name="w", min_member=3),)
    of.status.finished = (FinishedRole(name="w", indexes="0"),)
    cache = cache_with(queue(), of, pod("g-w-1", node="n"), pod("g-w-2", node="n"))
    assert cache.model.jobs["ns/g"].gone == {"w": 1}
    assert cache.whole("ns/g")


def test_what_has_waited_is_done_in_order_and_in_pieces_with_what_comes_in_between() -> None:
    cache = cache_with(node("n"))
    told_of: list[int] = []
    cache.listeners.append(lambda events: told_of.append(len(events)))
    with cache.held() as model:
        cache.receive(told(*[pod(f"p{number}") for number in range(300)]))
        cache.assume("ns/p299", "uid-p299", "n")
        pieces = 0
        for _ in cache.catching_up():
            pieces += 1
            if pieces == 1:
                assert 0 < len(model.tasks) < 300
                cache.forget("ns/p299", "uid-p299")
        assert pieces > 2
        assert len(model.tasks) == 300
        assert sum(told_of) == 300
        assert model.tasks["ns/p299"].node == "", "assumed, and then forgotten"
        cache.receive(told(pod("late")))
    assert "ns/late" in cache.model.tasks, "what is not done by the end is done there"
    cache.model.validate()


def test_a_failed_bind_is_taken_back_after_what_the_watch_said_meanwhile() -> None:
    cache = cache_with(node("n"), node("m"), pod("a"))
    with cache.held():
        cache.assume("ns/a", "uid-a", "n")
        cache.receive(told(pod("a", node="m", version="2")))
        cache.forget("ns/a", "uid-a")
    assert cache.model.tasks["ns/a"].node == "m", "the truth outlives our own failure"
    assert cache.assumed == 0
    cache.model.validate()


def test_the_hold_ends_even_where_the_cycle_fails() -> None:
    cache = cache_with(node("n"), pod("a"))

    def cycle() -> None:
        with cache.held():
            cache.assume("ns/a", "uid-a", "n")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cycle()
    assert cache.model.tasks["ns/a"].node == "n"


def test_our_own_write_is_known_before_the_watch_and_not_undone_by_it() -> None:
    cache = cache_with(queue(), group(version="10"))
    written = group(version="12", conditions=(Condition(type="Enqueued", status="True"),))
    cache.observed(written)
    assert cache.model.jobs["ns/g"].is_true("Enqueued")
    cache.receive(told(group(version="11")))
    assert cache.model.jobs["ns/g"].is_true("Enqueued"), "the watch is behind our own write"
    assert cache.groups["ns/g"].metadata.resource_version == "12"
    cache.receive(told(group(version="13")))
    assert not cache.model.jobs["ns/g"].is_true("Enqueued"), "somebody else's later write is the truth"


def test_a_new_group_of_an_old_name_is_not_held_to_the_old_ones_version() -> None:
    cache = cache_with(group(version="10"))
    cache.observed(group(version="12"))
    reborn = group(version="20")
    reborn.metadata = msgspec.structs.replace(reborn.metadata, uid="another", resource_version="5")
    cache.receive(told(Delete(PodGroup, "ns", "g"), reborn))
    assert cache.groups["ns/g"].metadata.uid == "another"
    cache.observed(group(version="30"))
    assert cache.groups["ns/g"].metadata.uid == "another", "an answer about the dead one comes too late"
    cache.receive(told(Delete(PodGroup, "ns", "g")))
    assert cache.groups == {}


def test_what_is_decided_of_a_group_that_goes_meanwhile_does_not_bring_it_back() -> None:
    cache = cache_with(queue(), group(), group("h"))
    enqueued = Condition(type="Enqueued", status="True")
    with cache.held():
        cache.receive(told(Delete(PodGroup, "ns", "g"), Delete(PodGroup, "ns", "h")))
        cache.decided("ns/g", "uid-g", [enqueued], 0)
        cache.observed(group("h", version="12", conditions=(enqueued,)))
    assert cache.groups == {}
    assert dict(cache.model.jobs) == {}
    cache.model.validate()


def test_what_is_decided_of_a_group_that_changes_meanwhile_goes_with_the_change() -> None:
    cache = cache_with(queue(), group(minimum=1))
    with cache.held():
        cache.receive(told(group(minimum=5, version="11")))
        cache.decided("ns/g", "uid-g", [Condition(type="Enqueued", status="True")], 0)
    job = cache.model.jobs["ns/g"]
    assert job.minimum == 5
    assert job.is_true("Enqueued")


def test_an_amount_that_cannot_be_counted_is_reported_and_left_out() -> None:
    reported: list[Unreadable] = []
    cache = Cache(ClusterModel(), reported.append)
    bad = pod("bad", node="n")
    bad.spec.containers = (Container(resources=ResourceRequirements(requests={"cpu": "x"})),)
    cache.receive(told(node("n"), bad, pod("good")))
    assert [(one.kind, one.name, one.node_name) for one in reported] == [(Pod, "bad", "n")]
    assert set(cache.model.tasks) == {"ns/good"}
    assert list(cache.unreadable) == [(Pod, "ns/bad")]
    cache.receive(told(pod("bad", version="2")))
    assert cache.unreadable == {}


def test_an_object_that_breaks_the_model_does_not_break_the_cache(caplog: pytest.LogCaptureFixture) -> None:
    class Fragile(ClusterModel):
        def apply(self, event: Any) -> None:
            if getattr(event, "obj", None) is not None and event.obj.metadata.name == "poison":
                raise KeyError("nobody thought of this")
            super().apply(event)

    reported: list[Unreadable] = []
    cache = Cache(Fragile(), reported.append)
    cache.receive(told(pod("poison", node="n"), pod("good")))
    assert set(cache.model.tasks) == {"ns/good"}
    assert [(one.name, one.node_name) for one in reported] == [("poison", "n")]
    assert "nobody thought of this" in reported[0].why
    assert "left out" in caplog.text
    assert (Pod, "ns/poison") in cache.model.unreadable


def test_unreadable_objects_are_reported() -> None:
    reported: list[Unreadable] = []
    cache = Cache(ClusterModel(), reported.append)
    one = Unreadable(PodGroup, "ns", "g", "u", "", "minMember: expected int")
    cache.receive(told(one))
    assert reported == [one]


def test_a_nomination_counts_at_once_and_only_for_the_pod_that_was_meant() -> None:
    cache = cache_with(node("n"), pod("a"))
    cache.nominate("ns/a", "other", "n")
    assert cache.nominated("ns/a", "uid-a") == ""
    cache.nominate("ns/a", "uid-a", "n")
    assert cache.model.tasks["ns/a"].nominated == "n"
    cache.nominate("ns/a", "uid-a", "")
    assert cache.nominated("ns/a", "uid-a") == ""
    assert cache.model.tasks["ns/a"].pod == pod("a")
