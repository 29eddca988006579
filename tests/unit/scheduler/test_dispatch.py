"""Dispatch: binds in parallel, lost answers, plans that are tried before they are made."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from kbatch.api.objects import Node, Pod
from kbatch.engine import Bind, Eviction, Nomination, Transaction
from kbatch.kube.errors import ApiError, Cause, CredentialsError, NoAnswerError, NotLeadingError
from kbatch.model.events import Delete
from kbatch.times import SECOND
from operators.scheduler.cache import Cache
from operators.scheduler.dispatch import Dispatcher
from tests.unit.scheduler.fakes import FakeApi, cache_with, conflict, metrics, node, pod, recorder, told, until


@contextlib.asynccontextmanager
async def dispatching(api: FakeApi, cache: Cache, **options: Any) -> AsyncIterator[Dispatcher]:
    dispatcher = Dispatcher(api, cache, metrics=metrics(), recorder=recorder(api), **options)
    task = asyncio.create_task(dispatcher.run())
    try:
        yield dispatcher
        assert not task.done()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def binding(name: str, node_name: str = "n") -> Transaction:
    return Transaction("ns/g", binds=(Bind(f"ns/{name}", f"uid-{name}", node_name),))


def plan(*victims: str, nominate: str = "", binds: tuple[Bind, ...] = ()) -> Transaction:
    return Transaction(
        "ns/g",
        binds=binds,
        evictions=tuple(Eviction(f"ns/{name}", f"uid-{name}", "n", "preempt", "ns/g") for name in victims),
        nominations=(Nomination(f"ns/{nominate}", f"uid-{nominate}", "n"),) if nominate else (),
        job="ns/g",
    )


def result(dispatcher: Dispatcher, name: str) -> float:
    value = dispatcher._metrics.binds.labels(name)._value.get()
    return float(value)


def lost() -> NoAnswerError:
    return NoAnswerError("POST", "/binding", sent=True, why="cut")


async def test_a_bound_pod_stays_on_its_node_until_the_watch_confirms() -> None:
    api, cache = FakeApi(), cache_with(node("n"), pod("a"))
    async with dispatching(api, cache) as dispatcher:
        assert dispatcher.submit(binding("a"))
        assert cache.model.tasks["ns/a"].node == "n", "assumed from the decision on"
        await until(lambda: dispatcher.in_flight == 0)
        (call,) = api.calls
        assert (call.method, call.path) == ("POST", "/api/v1/namespaces/ns/pods/a/binding")
        assert call.body["metadata"]["uid"] == "uid-a"
        assert call.body["target"]["name"] == "n"
        assert cache.assumed == 1
        assert not await dispatcher.drain(0.05), "a leaving process waits for the watch"
        cache.receive(told(pod("a", node="n", version="2")))
        assert await dispatcher.drain(1.0)
        assert result(dispatcher, "ok") == 1


async def test_binds_run_side_by_side_but_not_too_many() -> None:
    api = FakeApi(gate=asyncio.Event())
    names = [f"p{number}" for number in range(20)]
    cache = cache_with(node("n", cpu="100"), *(pod(name) for name in names))
    async with dispatching(api, cache, parallelism=8) as dispatcher:
        dispatcher.submit(Transaction("ns/g", binds=tuple(Bind(f"ns/{name}", f"uid-{name}", "n") for name in names)))
        await until(lambda: api.open_ == 8)
        assert dispatcher.backlog == 12
        assert api.gate is not None
        api.gate.set()
        await until(lambda: dispatcher.in_flight == 0)
        assert api.most_open == 8
        assert len(api.calls) == 20


async def test_a_refused_bind_gives_the_pod_back_after_a_pause() -> None:
    api, cache = FakeApi(), cache_with(node("n"), pod("a"))
    api.on("POST", "/binding", conflict())
    api.on("GET", "/pods/a", msgspec.json.encode(pod("a")))
    async with dispatching(api, cache) as dispatcher:
        cache.changed.clear()
        dispatcher.submit(binding("a"))
        await until(lambda: result(dispatcher, "failed") == 1)
        assert cache.model.tasks["ns/a"].node == "n", "its room stays its own for a moment"
        await until(lambda: cache.model.tasks["ns/a"].node == "")
        assert cache.changed.is_set()
        assert len(api.made("POST", "/binding")) == 1


async def test_a_lost_answer_is_looked_up() -> None:
    api, cache = FakeApi(), cache_with(node("n"), pod("a"), pod("b"))
    api.on("POST", "/binding", lost())
    api.on("GET", "/pods/a", msgspec.json.encode(pod("a", node="n")))
    api.on("GET", "/pods/b", lost(), ApiError(503), msgspec.json.encode(pod("b")))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(binding("a"))
        dispatcher.submit(binding("b"))
        await until(lambda: result(dispatcher, "ok") == 1)
        assert cache.model.tasks["ns/a"].assumed, "it was carried out"
        await until(lambda: cache.model.tasks["ns/b"].node == "")
        assert len(api.made("GET", "/pods/b")) == 3
        assert len(api.made("POST", "/binding")) == 2, "a bind is never sent twice"


async def test_the_time_of_a_bind_ends_with_its_answer() -> None:
    """What is looked up afterwards, for as long as the server is away, is no time of a bind."""
    api, cache = FakeApi(), cache_with(node("n"), pod("a"))
    api.on("POST", "/binding", lost())
    api.on("GET", "/pods/a", *[lost()] * 20)
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(binding("a"))
        await until(lambda: api.made("GET", "/pods/a"))
        assert dispatcher.in_flight == 1
        (family,) = dispatcher._metrics.bind_seconds.collect()
        assert [sample.value for sample in family.samples if sample.name.endswith("_count")] == [1]


async def test_how_long_binds_wait_until_they_are_sent_is_counted() -> None:
    """The second of two, with one place for both, waits for the first one's answer."""
    now = 0.0

    def answered(_: object) -> bytes:
        nonlocal now
        now += 3.0
        return b"{}"

    api = FakeApi()
    api.on("POST", "/binding", answered, answered)
    cache = cache_with(node("n"), pod("a"), pod("b"))
    async with dispatching(api, cache, parallelism=1, clock=lambda: now) as dispatcher:
        dispatcher.submit(binding("a"))
        dispatcher.submit(binding("b"))
        await until(lambda: result(dispatcher, "ok") == 2)
        (family,) = dispatcher._metrics.bind_queue_seconds.collect()
        assert [sample.value for sample in family.samples if sample.name.endswith("_sum")] == [3.0]


async def test_an_eviction_that_was_refused_when_it_was_tried_is_counted() -> None:
    """Else nobody would see what a disruption budget does: a plan is carried out only if all of it is taken."""
    api = FakeApi()
    api.on("POST", "/pods/v/eviction", ApiError(429, message="budget"))
    async with dispatching(api, cache_with(node("n"), pod("v", node="n"), pod("w", node="n"))) as dispatcher:
        dispatcher.submit(plan("v", "w"))
        await until(lambda: dispatcher.in_flight == 0)
        counter = dispatcher._metrics.evictions
        assert counter.labels("preempt", "refused")._value.get() == 1
        assert counter.labels("preempt", "ok")._value.get() == 0


async def test_a_pod_that_is_gone_replaced_or_taken_is_left_to_the_watch() -> None:
    api, cache = FakeApi(), cache_with(node("n"), node("m"), pod("a"), pod("b"), pod("c"))
    api.on("POST", "/binding", conflict())
    api.on("GET", "/pods/a", ApiError(404, "NotFound"))
    api.on("GET", "/pods/b", msgspec.json.encode(pod("b", uid="another")))
    api.on("GET", "/pods/c", msgspec.json.encode(pod("c", node="m")))
    async with dispatching(api, cache) as dispatcher:
        for name in "abc":
            dispatcher.submit(binding(name))
        await until(lambda: result(dispatcher, "gone") == 2)
        await until(lambda: result(dispatcher, "conflict") == 1)
        assert [cache.model.tasks[f"ns/{name}"].node for name in "abc"] == ["n", "n", "n"]


async def test_who_does_not_lead_sends_nothing_and_holds_nothing() -> None:
    api, cache = FakeApi(), cache_with(node("n"), pod("a"))
    api.on("POST", "/binding", NotLeadingError("lost"))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(binding("a"))
        await until(lambda: dispatcher.in_flight == 0)
        assert cache.model.tasks["ns/a"].node == ""
        assert api.made("GET") == []


async def test_nobody_is_evicted_for_who_is_gone_or_placed_when_the_plan_was_tried() -> None:
    api = FakeApi(gate=asyncio.Event())
    cache = cache_with(node("n"), node("m"), *(pod(name, node="n") for name in "vw"), pod("a"), pod("b"))
    async with dispatching(api, cache) as dispatcher:
        assert dispatcher.submit(plan("v", nominate="a"))
        assert dispatcher.submit(plan("w", nominate="b"))
        await until(lambda: api.open_ == 2)
        cache.receive(told(Delete(Pod, "ns", "a"), pod("b", node="m", version="2")))
        cache.changed.clear()
        assert api.gate is not None
        api.gate.set()
        await until(lambda: dispatcher.in_flight == 0)
        assert [call.body["deleteOptions"].get("dryRun") for call in api.calls] == [["All"], ["All"]]
        assert not any(cache.model.tasks[f"ns/{name}"].terminating for name in "vw")
        assert cache.changed.is_set()
        assert dispatcher.paused_until() is None, "nothing was refused"


async def test_a_node_that_goes_while_its_binds_wait_gets_none_of_them() -> None:
    api = FakeApi(gate=asyncio.Event())
    cache = cache_with(node("n"), node("m"), pod("a"), pod("b"))
    async with dispatching(api, cache, parallelism=1) as dispatcher:
        dispatcher.submit(binding("a"))
        dispatcher.submit(binding("b", "m"))
        await until(lambda: api.open_ == 1)
        cache.receive(told(Delete(Node, "", "m")))
        cache.changed.clear()
        assert api.gate is not None
        api.gate.set()
        await until(lambda: dispatcher.in_flight == 0)
        assert [call.path for call in api.calls] == ["/api/v1/namespaces/ns/pods/a/binding"]
        assert cache.model.tasks["ns/b"].node == "", "to be placed elsewhere at once"
        assert cache.changed.is_set()


async def test_a_lost_answer_is_looked_up_even_where_credentials_fail_for_a_while() -> None:
    api, cache = FakeApi(), cache_with(node("n"), pod("a"))
    api.on("POST", "/binding", lost())
    api.on("GET", "/pods/a", CredentialsError("no token"), msgspec.json.encode(pod("a", node="n")))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(binding("a"))
        await until(lambda: result(dispatcher, "ok") == 1)
        assert cache.model.tasks["ns/a"].assumed, "never given back while nobody knows what became of it"


async def test_a_plan_that_cannot_be_tried_leaves_nothing_behind_and_waits() -> None:
    api, cache = FakeApi(), cache_with(node("n"), pod("v", node="n"), pod("a"))
    api.on("POST", "/eviction", CredentialsError("no token"))
    async with dispatching(api, cache) as dispatcher:
        assert dispatcher.submit(plan("v", nominate="a"))
        await until(lambda: dispatcher.in_flight == 0)
        assert not cache.model.tasks["ns/v"].terminating
        assert cache.nominated("ns/a", "uid-a") == ""
        assert dispatcher.paused_until() is not None
        assert not dispatcher.submit(plan("v", nominate="a"))


async def test_one_refused_dry_run_cancels_the_whole_plan() -> None:
    api, cache = FakeApi(), cache_with(node("n"), pod("v", node="n"), pod("w", node="n"), pod("a"), pod("b"))
    budget = ApiError(429, "TooManyRequests", "budget", (Cause("DisruptionBudget"),))
    api.on("POST", "/pods/w/eviction", budget)
    async with dispatching(api, cache) as dispatcher:
        wanted = plan("v", "w", nominate="a", binds=(Bind("ns/b", "uid-b", "n"),))
        assert dispatcher.submit(wanted)
        assert cache.model.tasks["ns/v"].terminating
        assert cache.nominated("ns/a", "uid-a") == "n"
        await until(lambda: dispatcher.in_flight == 0)
        assert [call.body["deleteOptions"].get("dryRun") for call in api.made("POST", "/eviction")] == [
            ["All"],
            ["All"],
        ]
        assert api.made("POST", "/binding") == []
        assert api.made("PATCH") == []
        assert not cache.model.tasks["ns/v"].terminating
        assert cache.nominated("ns/a", "uid-a") == ""
        assert cache.model.tasks["ns/b"].node == ""
        # The next plan of the group is made at once, without the pod that was refused.
        assert dispatcher.paused_until() is None
        assert set(cache.model.refusals.evictions) == {"ns/w"}
        assert dispatcher.submit(plan("v", nominate="a"))
        await until(lambda: dispatcher.in_flight == 0)
        assert len(api.made("PATCH")) == 1, "and is carried out"


async def test_a_plan_that_the_server_had_no_answer_to_is_left_alone_for_a_moment() -> None:
    api, cache = FakeApi(), cache_with(node("n"), pod("v", node="n"), pod("w", node="n"), pod("a"))
    api.on("POST", "/pods/w/eviction", ApiError(500, "InternalError", "failed calling webhook"))
    async with dispatching(api, cache) as dispatcher:
        wanted = plan("v", "w", nominate="a")
        assert dispatcher.submit(wanted)
        await until(lambda: dispatcher.in_flight == 0)
        assert not dispatcher.submit(wanted)
        assert dispatcher.paused_until() is not None
        assert dispatcher.submit(binding("a")), "but what needs no victims may go on"
        await until(lambda: dispatcher.paused_until() is None)
        assert set(cache.model.refusals.evictions) == {"ns/w"}, "when it plans again, others come first"
        assert dispatcher.submit(wanted)
        await until(lambda: dispatcher.in_flight == 0)


async def test_a_pod_is_refused_for_longer_each_time_but_not_for_ever() -> None:
    now = [0.0]
    api, cache = FakeApi(), cache_with(node("n"), pod("v", node="n"), wall=lambda: 1_000.0 + now[0])
    api.on("POST", "/pods/v/eviction", ApiError(403, "Forbidden", "a webhook says no"))
    lasted: list[float] = []
    async with dispatching(api, cache, clock=lambda: now[0]) as dispatcher:
        for _ in range(9):
            assert dispatcher.submit(plan("v"))
            await until(lambda: dispatcher.in_flight == 0)
            (refusal,) = cache.model.refusals.evictions.values()
            assert refusal.until is not None
            assert refusal.why == "403 Forbidden: a webhook says no"
            lasted.append(refusal.until / SECOND - 1_000.0 - now[0])
            now[0] += 60.0
    assert 1.0 <= lasted[0] <= 2.0
    assert 2.0 <= lasted[1] <= 4.0
    assert 30.0 <= lasted[-1] <= 60.0


async def test_a_node_that_refused_a_pod_is_left_out_when_the_pod_is_given_back() -> None:
    api, cache = FakeApi(), cache_with(node("n"), node("m"), pod("a"), pod("b"))
    api.on("POST", "/pods/a/binding", ApiError(403, "Forbidden", "not on this node"))
    api.on("POST", "/pods/b/binding", ApiError(500, "InternalError", "a moment, please"))
    for name in "ab":
        api.on("GET", f"/pods/{name}", msgspec.json.encode(pod(name)))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(binding("a"))
        dispatcher.submit(binding("b"))
        await until(lambda: result(dispatcher, "failed") == 2)
        assert cache.model.refusals.binds == {}, "for now it keeps its room"
        await until(lambda: not any(cache.model.tasks[f"ns/{name}"].node for name in "ab"))
        assert {name: set(nodes) for name, nodes in cache.model.refusals.binds.items()} == {"ns/a": {"n"}}
        assert cache.model.tasks["ns/a"].cls.avoids == {"n"}


async def test_a_plan_nominates_then_evicts_then_binds() -> None:
    api, cache = FakeApi(), cache_with(node("n"), pod("v", node="n"), pod("a"), pod("b"))
    api.on("POST", "/pods/v/eviction", {}, ApiError(404, "NotFound"))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(plan("v", nominate="a", binds=(Bind("ns/b", "uid-b", "n"),)))
        await until(lambda: dispatcher.in_flight == 0)
        steps = [(call.method, call.path.rpartition("/pods/")[2]) for call in api.calls]
        assert steps == [("POST", "v/eviction"), ("PATCH", "a/status"), ("POST", "v/eviction"), ("POST", "b/binding")]
        assert api.calls[0].body["deleteOptions"] == {"preconditions": {"uid": "uid-v"}, "dryRun": ["All"]}
        assert api.calls[1].body == {"metadata": {"uid": "uid-a"}, "status": {"nominatedNodeName": "n"}}
        assert api.calls[2].body["deleteOptions"] == {"preconditions": {"uid": "uid-v"}}
        assert cache.model.tasks["ns/v"].terminating, "a victim that was gone already needs no eviction"


def for_two() -> Transaction:
    """A plan that evicts `v` and nominates `a` and `b` to its node."""
    nominations = tuple(Nomination(f"ns/{name}", f"uid-{name}", "n") for name in "ab")
    return msgspec.structs.replace(plan("v"), nominations=nominations)


async def test_a_nomination_that_could_not_be_written_does_not_count() -> None:
    api, cache = FakeApi(), cache_with(node("n"), pod("a"))
    api.on("PATCH", "/status", ApiError(422, "Invalid", "uid"))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(plan(nominate="a"))
        assert cache.nominated("ns/a", "uid-a") == "n"
        await until(lambda: cache.nominated("ns/a", "uid-a") == "")


async def test_nobody_is_evicted_for_room_that_nobody_is_nominated_to() -> None:
    """A successor would not know what the room is for."""
    api, cache = FakeApi(), cache_with(node("n"), node("m"), pod("v", node="n"), pod("a"), pod("b"))
    api.on("PATCH", "/pods/b/status", lost(), {})
    cache.nominate("ns/a", "uid-a", "m")
    async with dispatching(api, cache) as dispatcher:
        assert dispatcher.submit(for_two())
        await until(lambda: dispatcher.in_flight == 0)
        assert [call.body["deleteOptions"].get("dryRun") for call in api.made("POST", "/eviction")] == [["All"]]
        assert not cache.model.tasks["ns/v"].terminating
        assert (cache.nominated("ns/a", "uid-a"), cache.nominated("ns/b", "uid-b")) == ("m", "")
        written = [(call.path.split("/")[-2], call.body["status"]["nominatedNodeName"]) for call in api.made("PATCH")]
        assert sorted(written[:2]) == [("a", "n"), ("b", "n")]
        assert sorted(written[2:]) == [("a", "m"), ("b", None)], "whatever the lost answer was"
        assert dispatcher.paused_until() is not None


async def test_who_is_gone_needs_no_nomination() -> None:
    api, cache = FakeApi(), cache_with(node("n"), pod("v", node="n"), pod("a"), pod("b"))
    api.on("PATCH", "/pods/b/status", ApiError(404, "NotFound"))
    async with dispatching(api, cache) as dispatcher:
        assert dispatcher.submit(for_two())
        await until(lambda: dispatcher.in_flight == 0)
        assert len(api.made("POST", "/eviction")) == 2
        assert cache.model.tasks["ns/v"].terminating


async def test_nobody_is_evicted_where_all_turn_out_to_be_gone_for_whom_it_is() -> None:
    api, cache = FakeApi(), cache_with(node("n"), pod("v", node="n"), pod("a"), pod("b"))
    for name in "ab":
        api.on("PATCH", f"/pods/{name}/status", ApiError(404, "NotFound"))
    async with dispatching(api, cache) as dispatcher:
        assert dispatcher.submit(for_two())
        await until(lambda: dispatcher.in_flight == 0)
        assert [call.body["deleteOptions"].get("dryRun") for call in api.made("POST", "/eviction")] == [["All"]]
        assert not cache.model.tasks["ns/v"].terminating
        assert dispatcher.paused_until() is None, "nothing was refused"


async def test_an_eviction_says_in_the_servers_record_for_whom_it_is() -> None:
    api, cache = FakeApi(), cache_with(node("n"), pod("v", node="n"), pod("w", node="n"))
    taken_back = Eviction("ns/w", "uid-w", "n", "allocate", "")
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(plan("v"))
        dispatcher.submit(Transaction("ns/g", evictions=(taken_back,)))
        await until(lambda: dispatcher.in_flight == 0)
        said = {call.path.split("/")[-2]: call.body["metadata"]["annotations"] for call in api.calls}
        assert said == {
            "v": {"kbatch.dev/evicted-by": "preempt", "kbatch.dev/evicted-for": "ns/g"},
            "w": {"kbatch.dev/evicted-by": "allocate"},
        }


async def test_a_real_eviction_that_is_refused_leaves_the_victim_where_it_is() -> None:
    api, cache = FakeApi(), cache_with(node("n"), pod("v", node="n"))
    api.on("POST", "/pods/v/eviction", {}, ApiError(429, "TooManyRequests", "budget", (Cause("DisruptionBudget"),)))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(plan("v"))
        await until(lambda: dispatcher.in_flight == 0)
        assert not cache.model.tasks["ns/v"].terminating
        assert set(cache.model.refusals.evictions) == {"ns/v"}


async def test_a_group_learns_why_its_binds_fail_for_long() -> None:
    now = [0.0]
    api, cache = FakeApi(), cache_with(node("n"), pod("a"), pod("b"))
    api.on("POST", "/binding", ApiError(403, message="the namespace is being terminated"))
    api.on("GET", "/pods/a", msgspec.json.encode(pod("a")))
    async with dispatching(api, cache, clock=lambda: now[0]) as dispatcher:
        dispatcher.submit(binding("a"))
        await until(lambda: result(dispatcher, "failed") == 1)
        assert dispatcher.failure("ns/g") is None, "most succeed a moment later"
        now[0] = 3.0
        found = dispatcher.failure("ns/g")
        assert found is not None
        assert (found.pod, found.node, found.failures) == ("ns/a", "n", 1)
        assert "terminated" in found.why
        assert dispatcher.failure("ns/other") is None
        await until(lambda: cache.model.tasks["ns/a"].node == "")
        api.on("POST", "/binding", b"{}")
        dispatcher.submit(binding("a"))
        await until(lambda: result(dispatcher, "ok") == 1)
        assert dispatcher.failure("ns/g") is None


async def test_a_pod_whose_namespace_ends_is_not_tried_again_and_again() -> None:
    api, cache = FakeApi(), cache_with(node("n"), pod("a"), pod("b"))
    ends = ApiError(
        403, "Forbidden", "it is being terminated", (Cause("NamespaceTerminating", "", "metadata.namespace"),)
    )
    api.on("POST", "/pods/a/binding", ends)
    api.on("POST", "/pods/b/binding", ApiError(500))
    for name in ("a", "b"):
        api.on("GET", f"/pods/{name}", msgspec.json.encode(pod(name)))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(binding("a"))
        dispatcher.submit(binding("b"))
        await until(lambda: cache.model.tasks["ns/b"].node == "")
        assert cache.model.tasks["ns/a"].node == "n", "until it is gone, no cycle looks at it"
