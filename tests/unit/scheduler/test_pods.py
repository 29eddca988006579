"""What waiting pods say: Unschedulable for lack of capacity that lasts, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from kbatch.api.objects import Pod, PodCondition, PodGroup, PodResourceClaim
from kbatch.api.reasons import NotEnoughTasks, PodGroupNotFound
from kbatch.engine import Report, Verdict
from kbatch.kube.errors import NoAnswerError
from kbatch.model.events import Delete
from operators.scheduler.cache import Cache
from operators.scheduler.pods import AT_ONCE, AT_ONCE_WHILE_BINDING, LASTING_SECONDS, PATIENT_SECONDS, PodReporter
from tests.unit.scheduler.fakes import FakeApi, cache_with, conflict, finish, group, pod, queue, recorder, told, until


@contextlib.asynccontextmanager
async def reporting(
    api: FakeApi, cache: Cache, *, lasting: float = 0.0, binding: bool = False, patient: float = 60.0
) -> AsyncIterator[PodReporter]:
    async with recorder(api) as events:
        reporter = PodReporter(
            api, cache, events, binding=lambda: binding, lasting_seconds=lasting, patient_seconds=patient
        )
        task = asyncio.create_task(reporter.run())
        try:
            yield reporter
            assert not task.done()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def verdict(*, lacks_capacity: bool, shadow: bool = False) -> dict[str, Verdict]:
    """A stand-in reason is enough: what counts is whether pods are to say Unschedulable."""
    return {
        "ns/g": Verdict(
            "ns/g", shadow=shadow, enqueued=True, scheduled=False, reason=NotEnoughTasks(1, 2), attempted=True,
            pods_unschedulable=lacks_capacity, job="ns/g",
        )
    }  # fmt: skip


def saying(reason: str, name: str = "a", version: str = "2") -> Pod:
    one = pod(name, version=version)
    one.status.conditions = (
        PodCondition(type="PodScheduled", status="False", reason=reason, last_transition_time="2026-01-01T00:00:00Z"),
    )
    return one


async def test_pods_say_unschedulable_for_lack_of_capacity_once() -> None:
    api, cache = FakeApi(), cache_with(queue(), group(minimum=2), pod("a"), pod("b"))
    async with reporting(api, cache) as reporter:
        finish(reporter.report(Report(verdict(lacks_capacity=True))))
        await until(lambda: len(api.calls) == 2 and not reporter.pending)
        condition = api.calls[0].body["status"]["conditions"][0]
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "PodScheduled",
            "False",
            "Unschedulable",
        )
        assert "1 of 2" in condition["message"]
        assert api.calls[0].body["metadata"]["uid"] == "uid-a"
        cache.receive(told(saying("Unschedulable"), saying("Unschedulable", "b")))
        for _ in range(3):
            finish(reporter.report(Report(verdict(lacks_capacity=True))))
        assert reporter.pending == 0


async def test_shares_and_quotas_are_no_matter_for_an_autoscaler() -> None:
    api, cache = FakeApi(), cache_with(queue(), group(minimum=2), pod("a"))
    async with reporting(api, cache) as reporter:
        finish(reporter.report(Report(verdict(lacks_capacity=False))))
        assert reporter.pending == 0


async def test_it_is_taken_back_when_capacity_is_not_what_is_missing() -> None:
    api, cache = FakeApi(), cache_with(queue(), group(minimum=2), saying("Unschedulable"))
    async with reporting(api, cache, lasting=60.0) as reporter:
        finish(reporter.report(Report(verdict(lacks_capacity=False))))
        await until(lambda: len(api.calls) == 1)
        condition = api.calls[0].body["status"]["conditions"][0]
        assert (condition["status"], condition["reason"]) == ("False", "NotEnoughTasks")
        assert condition["lastTransitionTime"] == "2026-01-01T00:00:00Z", "the status did not flip"


async def test_a_pod_that_finds_its_node_in_time_says_nothing() -> None:
    api, cache = FakeApi(), cache_with(queue(), group(minimum=2), pod("a"))
    async with reporting(api, cache, lasting=0.05) as reporter:
        finish(reporter.report(Report(verdict(lacks_capacity=True))))
        assert reporter.pending == 1
        cache.receive(told(pod("a", node="n", version="2")))
        await until(lambda: reporter.pending == 0)
        assert api.calls == []


async def test_while_binds_wait_pods_say_it_a_little_later_and_few_at_a_time() -> None:
    """Never at all, and an autoscaler would hear nothing on a busy cluster."""
    assert LASTING_SECONDS + PATIENT_SECONDS < 10
    names = [f"p{number}" for number in range(6)]
    api = FakeApi(gate=asyncio.Event())
    cache = cache_with(queue(), group(minimum=7), *(pod(name) for name in names))
    async with reporting(api, cache, binding=True, patient=0.2) as reporter:
        finish(reporter.report(Report(verdict(lacks_capacity=True))))
        began = time.monotonic()
        await until(lambda: api.open_ == AT_ONCE_WHILE_BINDING)
        assert time.monotonic() - began >= 0.2
        await asyncio.sleep(0.1)
        assert api.most_open == AT_ONCE_WHILE_BINDING
        assert api.gate is not None
        api.gate.set()
        await until(lambda: not reporter.pending)
        assert len(api.calls) == 6


async def test_while_nothing_is_bound_several_say_it_at_once() -> None:
    api = FakeApi(gate=asyncio.Event())
    cache = cache_with(queue(), group(minimum=21), *(pod(f"p{number}") for number in range(20)))
    async with reporting(api, cache) as reporter:
        finish(reporter.report(Report(verdict(lacks_capacity=True))))
        await until(lambda: api.open_ == AT_ONCE)
        await asyncio.sleep(0.05)
        assert api.most_open == AT_ONCE
        assert api.gate is not None
        api.gate.set()
        await until(lambda: not reporter.pending)


async def test_a_pod_that_was_bound_meanwhile_does_not_say_that_it_is_not() -> None:
    api, cache = FakeApi(), cache_with(queue(), group(minimum=2), pod("a"))
    api.on("PATCH", "/status", conflict())
    async with reporting(api, cache) as reporter:
        finish(reporter.report(Report(verdict(lacks_capacity=True))))
        await until(lambda: len(api.calls) == 1)
        assert api.calls[0].body["metadata"]["resourceVersion"] == "1", "as it was when it had no node"
        await until(lambda: reporter.pending == 1)
        cache.receive(told(pod("a", node="n", version="2")))
        await until(lambda: reporter.pending == 0)
        assert len(api.calls) == 1


async def test_a_pod_that_was_changed_meanwhile_says_it_all_the_same() -> None:
    api, cache = FakeApi(), cache_with(queue(), group(minimum=2), pod("a"))
    api.on("PATCH", "/status", conflict(), {})
    async with reporting(api, cache) as reporter:
        finish(reporter.report(Report(verdict(lacks_capacity=True))))
        await until(lambda: len(api.calls) == 1)
        cache.receive(told(pod("a", version="2")))
        await until(lambda: len(api.calls) == 2)
        assert api.calls[1].body["metadata"]["resourceVersion"] == "2"


def claiming(name: str) -> Pod:
    one = pod(name)
    one.spec.resource_claims = (PodResourceClaim(name="gpu"),)
    return one


@pytest.mark.parametrize("scheduled", [False, True])
async def test_pods_with_resource_claims_say_so_whatever_becomes_of_their_group(scheduled: bool) -> None:
    api, cache = FakeApi(), cache_with(queue(), group(minimum=1), claiming("a"), pod("b"))
    standing = Verdict("ns/g", shadow=False, enqueued=True, scheduled=True, job="ns/g")
    async with reporting(api, cache) as reporter:
        finish(reporter.report(Report({"ns/g": standing} if scheduled else verdict(lacks_capacity=True))))
        await until(lambda: len(api.calls) == (1 if scheduled else 2) and not reporter.pending)
        said = {call.path.split("/")[-2]: call.body["status"]["conditions"][0] for call in api.calls}
        assert (said["a"]["status"], said["a"]["reason"]) == ("False", "ResourceClaimsUnsupported")
        assert "resourceClaims" in said["a"]["message"]
        assert scheduled or said["b"]["reason"] == "Unschedulable"
        for _ in range(2):
            finish(reporter.report(Report({"ns/g": standing} if scheduled else verdict(lacks_capacity=True))))
        assert reporter.pending == 0


async def test_nothing_is_written_while_binds_wait() -> None:
    api, cache = FakeApi(), cache_with(queue(), group(minimum=2), pod("a"))
    async with reporting(api, cache, binding=True) as reporter:
        finish(reporter.report(Report(verdict(lacks_capacity=True))))
        await asyncio.sleep(0.3)
        assert api.calls == []
        assert reporter.pending == 1


async def test_a_write_that_failed_is_tried_again() -> None:
    api, cache = FakeApi(), cache_with(queue(), group(minimum=2), pod("a"))
    api.on("PATCH", "/status", NoAnswerError("PATCH", "/x", sent=True, why="cut"), {})
    async with reporting(api, cache) as reporter:
        finish(reporter.report(Report(verdict(lacks_capacity=True))))
        await until(lambda: len(api.calls) == 2)
        await until(lambda: not reporter.pending)


async def test_without_a_podgroup_one_pod_gets_an_event() -> None:
    api, cache = FakeApi(), cache_with(pod("a"), pod("b"))
    missing = Verdict("ns/g", shadow=True, enqueued=None, scheduled=False, reason=PodGroupNotFound("ns/g"), job="ns/g")
    async with reporting(api, cache) as reporter:
        for _ in range(3):
            finish(reporter.report(Report({"ns/g": missing})))
        await until(lambda: len(api.calls) == 1)
        body = api.calls[0].body
        assert (body["reason"], body["regarding"]["name"]) == ("PodGroupNotFound", "a")
        await asyncio.sleep(0.05)
        assert len(api.calls) == 1


async def test_a_pod_made_anew_between_two_cycles_says_it_too() -> None:
    api, cache = FakeApi(), cache_with(queue(), group(minimum=2), pod("a"))
    async with reporting(api, cache) as reporter:
        finish(reporter.report(Report(verdict(lacks_capacity=True))))
        await until(lambda: len(api.calls) == 1 and not reporter.pending)
        gone = Delete(PodGroup, "ns", "g"), Delete(Pod, "ns", "a")
        cache.receive(told(*gone, group(minimum=2), pod("a", uid="another", version="3")))
        finish(reporter.report(Report(verdict(lacks_capacity=True))))
        await until(lambda: len(api.calls) == 2)
        assert api.calls[1].body["metadata"]["uid"] == "another"
