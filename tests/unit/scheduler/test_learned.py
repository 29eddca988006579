"""What plugins have learned is kept in one ConfigMap: seldom, only what has changed, and never after a failed read."""

from __future__ import annotations

import asyncio
import contextlib
import json

import msgspec

from kbatch.engine import CycleState
from kbatch.engine.plugins.estimates.state import Known, Learned
from kbatch.kube.errors import ApiError, NoAnswerError
from operators.scheduler.learned import MOST_BYTES, NAME, LearnedKeeper
from tests.unit.engine.worlds import ALLOCATE, policy
from tests.unit.scheduler.fakes import FakeApi, until

POLICY = policy(ALLOCATE.replace("{name: nodeorder}", "{name: nodeorder}, {name: estimates}"))
PATH = f"/configmaps/{NAME}"
ABSENT = ApiError(404, "NotFound", "there is none")


def state(level: int) -> CycleState:
    return CycleState(plugins={"estimates": Known(Learned(levels={"a": level}))})


def stored(level: int) -> dict[str, object]:
    return {"data": {"estimates": msgspec.json.encode(Learned(levels={"a": level})).decode()}}


async def test_what_was_learned_is_read_and_what_differs_is_written() -> None:
    api = FakeApi()
    api.on("GET", PATH, stored(901))
    keeper = LearnedKeeper(api, "ours")
    found = await keeper.read(POLICY)
    assert found == state(901)
    keeper.take(found, POLICY)
    assert await keeper.round()
    assert api.made("PATCH") == []
    keeper.take(state(902), POLICY)
    assert await keeper.round()
    assert await keeper.round()
    (call,) = api.made("PATCH")
    assert call.path == f"/api/v1/namespaces/ours{PATH}"
    assert call.params["fieldManager"] == "kbatch-scheduler"
    assert json.loads(call.body["data"]["estimates"])["levels"] == {"a": 902}


async def test_a_process_begins_with_nothing_where_nothing_is_there() -> None:
    api = FakeApi()
    api.on("GET", PATH, ABSENT)
    keeper = LearnedKeeper(api, "ours")
    assert await keeper.read(POLICY) == CycleState()
    keeper.take(state(903), POLICY)
    assert await keeper.drain(1.0)
    assert len(api.made("PATCH")) == 1


async def test_where_it_could_not_be_read_nothing_is_written_over_it() -> None:
    for answer in (ApiError(403, "Forbidden", "no"), NoAnswerError("GET", PATH, sent=True, why="gone"), b"{"):
        api = FakeApi()
        api.on("GET", PATH, answer)
        keeper = LearnedKeeper(api, "ours")
        assert await keeper.read(POLICY) == CycleState()
        keeper.take(state(903), POLICY)
        assert await keeper.round()
        assert api.made("PATCH") == []


async def test_what_cannot_be_used_is_left_out() -> None:
    api = FakeApi()
    api.on("GET", PATH, {"data": {"estimates": '{"levels": 3}'}})
    assert await LearnedKeeper(api, "ours").read(POLICY) == CycleState()


async def test_what_could_not_be_written_is_written_later() -> None:
    api = FakeApi()
    api.on("GET", PATH, ABSENT)
    api.on("PATCH", PATH, ApiError(500, "", "later"), {})
    keeper = LearnedKeeper(api, "ours", apart=0.0)
    await keeper.read(POLICY)
    keeper.take(state(903), POLICY)
    running = asyncio.create_task(keeper.run())
    await until(lambda: len(api.made("PATCH")) == 2 and not api.open_)  # and the second was answered
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert await keeper.round()
    assert len(api.made("PATCH")) == 2


async def test_more_than_a_config_map_holds_is_not_written() -> None:
    api = FakeApi()
    api.on("GET", PATH, ABSENT)
    keeper = LearnedKeeper(api, "ours")
    await keeper.read(POLICY)
    keeper.take(CycleState(plugins={"estimates": Known(Learned(levels={"x" * MOST_BYTES: 1}))}), POLICY)
    assert await keeper.round()
    assert api.made("PATCH") == []


async def test_without_such_a_plugin_nothing_is_written() -> None:
    api = FakeApi()
    api.on("GET", PATH, stored(901))
    keeper = LearnedKeeper(api, "ours")
    assert await keeper.read(policy()) == CycleState()
    keeper.take(CycleState(), policy())
    assert await keeper.round()
    assert api.made("PATCH") == []


async def test_a_plugin_that_is_switched_on_begins_with_what_is_kept_of_it() -> None:
    """And what is kept of one that is switched off stays, whatever is written of others."""
    api = FakeApi()
    api.on("GET", PATH, stored(901))
    keeper = LearnedKeeper(api, "ours")
    before = await keeper.read(policy())
    assert before == CycleState()
    assert keeper.begin(before, policy()) is before
    assert keeper.begin(before, POLICY) == state(901)
    now = state(902)
    assert keeper.begin(now, POLICY) is now, "it has learned something since"


async def test_what_is_kept_of_a_plugin_that_is_off_is_not_written_over() -> None:
    api = FakeApi()
    api.on("GET", PATH, {"data": {"other": "1", **dict(stored(901)["data"])}})  # type: ignore[call-overload]
    keeper = LearnedKeeper(api, "ours")
    await keeper.read(POLICY)
    keeper.take(state(902), POLICY)
    assert await keeper.round()
    (call,) = api.made("PATCH")
    assert call.body["data"]["other"] == "1"
