"""What a plan writes of queues that limit how many of their groups are evicted."""

from __future__ import annotations

import msgspec
import pytest

from kbatch.kube.errors import ApiError
from kbatch.times import HOUR, SECOND
from operators.scheduler.evicted_groups import EvictedGroups
from tests.unit.scheduler.fakes import FakeApi, cache_with, node, pod, until
from tests.unit.scheduler.test_dispatch import dispatching, plan

AT = 1_800_000_000 * SECOND
TEXT = "2027-01-15T08:00:00.000000Z"


async def test_it_is_written_before_anybody_is_evicted() -> None:
    api, cache = FakeApi(), cache_with(node("n"), pod("v", node="n"), pod("a"))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(msgspec.structs.replace(plan("v", nominate="a"), evicted={"q": (AT,)}))
        await until(lambda: dispatcher.in_flight == 0)
    made = [(call.method, call.path.split("/")[-2]) for call in api.calls]
    assert made == [("POST", "v"), ("PATCH", "a"), ("PATCH", "q"), ("POST", "v")]
    assert api.calls[2].body["status"] == {"evicted": [TEXT]}
    assert api.calls[2].params["fieldManager"] == "kbatch-scheduler-evictions"


async def test_nobody_is_evicted_where_it_cannot_be_written() -> None:
    api, cache = FakeApi(), cache_with(node("n"), pod("v", node="n"), pod("a"))
    api.on("PATCH", "/queues/q/status", ApiError(500, "InternalError"))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(msgspec.structs.replace(plan("v", nominate="a"), evicted={"q": (AT,)}))
        await until(lambda: dispatcher.in_flight == 0)
        assert [call.body["deleteOptions"].get("dryRun") for call in api.made("POST", "/eviction")] == [["All"]]
        assert not cache.model.tasks["ns/v"].terminating
        assert cache.nominated("ns/a", "uid-a") == ""
        assert dispatcher.paused_until() is not None


async def test_what_plans_say_is_put_together_and_the_last_hour_kept() -> None:
    api = FakeApi()
    groups = EvictedGroups(api)
    assert await groups.write({"q": (AT, AT)})
    assert await groups.write({"q": (AT,)}), "decided before, written after"
    assert await groups.write({"q": (AT + HOUR,)})
    assert [len(call.body["status"]["evicted"]) for call in api.calls] == [2, 2, 1]


async def test_what_was_said_before_the_clock_was_put_back_does_not_displace_what_is_said_now() -> None:
    api = FakeApi()
    groups = EvictedGroups(api)
    assert await groups.write({"q": (AT + 48 * HOUR,)})
    assert await groups.write({"q": (AT,)})
    assert [call.body["status"]["evicted"] for call in api.calls[1:]] == [[TEXT]]


async def test_a_queue_that_is_made_again_has_evicted_nobody() -> None:
    api, uids = FakeApi(), {"q": "a"}
    groups = EvictedGroups(api, lambda name: uids[name])
    assert await groups.write({"q": (AT,)})
    uids["q"] = "b"
    assert await groups.write({"q": (AT + SECOND,)})
    assert await groups.write({"q": (AT + 2 * SECOND,)})
    assert [len(call.body["status"]["evicted"]) for call in api.calls] == [1, 1, 2]


async def test_a_queue_that_is_gone_limits_nothing() -> None:
    api = FakeApi()
    api.on("PATCH", "/queues/q/status", ApiError(404, "NotFound"))
    assert await EvictedGroups(api).write({"q": (AT,)})


async def test_a_crd_of_an_older_release_forbids_no_eviction(caplog: pytest.LogCaptureFixture) -> None:
    """It has the limit and not the field: then it is counted for as long as this process lives, as it was."""
    api = FakeApi()
    words = (
        "failed to create typed patch object (/q; v1alpha1, Kind=Queue): .status.evicted: field not declared in schema"
    )
    api.on("PATCH", "/queues/q/status", ApiError(500, "", words))
    assert await EvictedGroups(api).write({"q": (AT,)})
    assert "older release" in caplog.text
