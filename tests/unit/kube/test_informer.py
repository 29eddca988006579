"""Informers against a server that forgets, lies and falls silent."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from kbatch.api.objects import Node, PriorityClass
from kbatch.kube.client import Client
from kbatch.kube.errors import ApiError
from kbatch.kube.informer import Batch, Informer, RestoredError
from kbatch.kube.kinds import NODES, PRIORITYCLASSES
from kbatch.kube.watches import ERRORS_IN_A_ROW, watch_once
from kbatch.model.events import Delete, Event, Unreadable, Upsert
from tests.unit.kube.server import FakeServer, refuses, says, serving, streams


def node(name: str, version: int, uid: str = "", **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}, **fields}


def nodes(version: int, *items: dict[str, Any], more: str = "") -> Any:
    return says({"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(items)})


def line(type_: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": type_, "object": obj}).encode() + b"\n"


BOOKMARK = line("BOOKMARK", {"kind": "Node", "metadata": {"resourceVersion": "15"}})
EXPIRED = line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})


async def quiet(_: web.Request) -> None:
    await asyncio.sleep(30)


@contextlib.asynccontextmanager
async def informing(fake: FakeServer, **options: Any) -> AsyncIterator[AsyncIterator[Batch]]:
    async with fake.client() as client:
        batches = aiter(Informer(client, NODES, **options))
        try:
            yield batches
        finally:
            await batches.aclose()  # type: ignore[attr-defined]


async def take(batches: AsyncIterator[Batch], count: int) -> list[Batch]:
    async with asyncio.timeout(10):
        return [await anext(batches) for _ in range(count)]


def told(events: tuple[Event, ...]) -> list[str]:
    words = []
    for event in events:
        match event:
            case Upsert(obj):
                words.append(f"+{obj.metadata.name}@{obj.metadata.uid}")
            case Delete(kind, _, name):
                assert kind is Node
                words.append(f"-{name}")
            case Unreadable():
                words.append(f"?{event.name}")
    return words


async def test_the_picture_is_complete_only_after_the_last_page() -> None:
    async with serving() as fake, informing(fake, page_size=2) as batches:
        fake.answers = [
            nodes(7, node("a", 1), node("b", 2), more="next"),
            nodes(7, node("c", 3)),
            streams(line("ADDED", node("d", 8)), then=quiet),
        ]
        one, two, three = await take(batches, 3)
        assert [(told(batch.events), batch.complete) for batch in (one, two, three)] == [
            (["+a@uid-a", "+b@uid-b"], False),
            (["+c@uid-c"], True),
            (["+d@uid-d"], True),
        ]
        assert [path.partition("?")[2] for _, path, _ in fake.requests][:2] == ["limit=2", "limit=2&continue=next"]
        assert "resourceVersion=7" in fake.requests[2][1]
        assert "allowWatchBookmarks=true" in fake.requests[2][1]


async def test_it_lists_anew_when_asked_to_and_says_how_far_it_has_come() -> None:
    async with serving() as fake, fake.client() as client:
        informer = Informer(client, NODES)
        batches = aiter(informer)
        fake.answers = [
            nodes(7, node("a", 1), node("b", 2)),
            streams(line("MODIFIED", node("a", 9)), BOOKMARK, then=quiet),
            nodes(30, node("a", 9), node("c", 20)),
            streams(line("ADDED", node("d", 31)), then=quiet),
        ]
        try:
            await take(batches, 1)
            assert informer.reached == 0, "nothing is taken before the next is asked for"
            (changed,) = await take(batches, 1)
            assert told(changed.events) == ["+a@uid-a"]
            assert informer.reached == 7
            waiting = asyncio.ensure_future(take(batches, 1))
            while informer.reached < 15:  # noqa: ASYNC110  (a bookmark is told to nobody)
                await asyncio.sleep(0.01)
            informer.list_anew()
            informer.list_anew()
            (listed,) = await waiting
            assert (told(listed.events), listed.complete) == (["-b", "+c@uid-c"], True)
            assert informer.relists == 1
            (added,) = await take(batches, 1)
            assert told(added.events) == ["+d@uid-d"]
            assert informer.reached == 30
        finally:
            await batches.aclose()  # type: ignore[attr-defined]


async def test_a_list_that_is_asked_for_while_one_is_read_is_made_after_it() -> None:
    async with serving() as fake, fake.client() as client:
        informer = Informer(client, NODES, page_size=1)
        batches = aiter(informer)
        fake.answers = [
            nodes(7, node("a", 1), more="next"),
            nodes(7, node("b", 2)),
            nodes(9, node("b", 2)),
            streams(then=quiet),
        ]
        try:
            await take(batches, 1)
            informer.list_anew()
            _, again = await take(batches, 2)
            assert told(again.events) == ["-a"]
        finally:
            await batches.aclose()  # type: ignore[attr-defined]


async def test_a_list_whose_pages_expire_begins_anew() -> None:
    async with serving() as fake, informing(fake, page_size=1) as batches:
        fake.answers = [
            nodes(7, node("a", 1), more="next"),
            refuses(410, "Expired", "the provided continue parameter is too old"),
            nodes(9, node("b", 8)),
            streams(then=quiet),
        ]
        first, second = await take(batches, 2)
        assert (told(first.events), first.complete) == (["+a@uid-a"], False)
        assert (told(second.events), second.complete) == (["-a", "+b@uid-b"], True)


async def test_after_a_gap_only_differences_are_told() -> None:
    async with serving() as fake, informing(fake) as batches:
        fake.answers = [
            nodes(7, node("same", 1), node("gone", 2), node("changed", 3), node("reborn", 4, uid="old")),
            streams(EXPIRED),
            nodes(20, node("same", 1), node("changed", 11), node("reborn", 12, uid="new"), node("fresh", 13)),
            streams(then=quiet),
        ]
        _, after = await take(batches, 2)
        assert after.complete
        assert sorted(told(after.events)) == sorted(
            ["-gone", "+changed@uid-changed", "-reborn", "+reborn@new", "+fresh@uid-fresh"]
        )
        assert told(after.events).index("-reborn") < told(after.events).index("+reborn@new")


async def test_a_list_says_of_which_version_it_was() -> None:
    async with serving() as fake, informing(fake, page_size=1) as batches:
        fake.answers = [
            nodes(70, node("a", 60), more="next"),
            nodes(70, node("b", 61)),
            streams(line("ADDED", node("c", 75)) + EXPIRED),
            nodes(80, node("a", 60)),
            streams(then=quiet),
        ]
        assert [batch.listed for batch in await take(batches, 4)] == [None, (Node, "70"), None, (Node, "80")]


async def test_a_list_that_is_older_than_what_was_seen_ends_it() -> None:
    """A restore without revisions left out: the server counts on from where it was then."""
    async with serving() as fake, informing(fake) as batches:
        fake.answers = [
            nodes(70, node("a", 60)),
            streams(line("ADDED", node("c", 75)) + EXPIRED),
            nodes(74, node("a", 60)),
        ]
        await take(batches, 2)
        with pytest.raises(
            RestoredError, match=r"the list of nodes is older than what was seen \(version 74 after 75\)"
        ):
            await take(batches, 1)


@pytest.mark.parametrize("uid", ["uid-c", "another"])
async def test_an_object_that_is_older_than_it_was_ends_it(uid: str) -> None:
    """A restore with revisions left out: the list is newer than any before, and holds objects as they were once."""
    async with serving() as fake, informing(fake, page_size=1) as batches:
        fake.answers = [
            nodes(70, node("c", 60)),
            streams(line("MODIFIED", node("c", 75)) + EXPIRED),
            nodes(1_000_000_070, node("a", 50), more="next"),
            nodes(1_000_000_070, node("c", 60, uid=uid)),
        ]
        await take(batches, 2)
        with pytest.raises(RestoredError, match=r"the list of nodes .* \(c: 60 after 75\)"):
            await take(batches, 1)


async def test_a_restore_that_takes_back_no_version_is_a_gap_like_any_other() -> None:
    """Objects that had gone since are there again, those that came since are not."""
    async with serving() as fake, informing(fake) as batches:
        fake.answers = [
            nodes(70, node("stays", 60), node("gone", 61)),
            streams(line("DELETED", node("gone", 75)) + line("ADDED", node("late", 76)) + EXPIRED),
            nodes(1_000_000_070, node("stays", 60), node("gone", 61)),
            streams(then=quiet),
        ]
        *_, after = await take(batches, 3)
        assert told(after.events) == ["-late", "+gone@uid-gone"]


async def test_what_a_later_list_told_before_it_broke_off_is_not_lost() -> None:
    async with serving() as fake, informing(fake, page_size=3) as batches:
        fake.answers = [
            nodes(7, node("changed", 1), node("reborn", 2, uid="old"), node("gone", 3)),
            streams(EXPIRED),
            nodes(20, node("changed", 11), node("reborn", 12, uid="new"), node("fresh", 13), more="next"),
            refuses(410, "Expired", "the provided continue parameter is too old"),
            nodes(21, node("changed", 11), node("reborn", 12, uid="new"), node("fresh", 13)),
            streams(then=quiet),
        ]
        _, after = await take(batches, 2)
        assert after.complete
        assert sorted(told(after.events)) == sorted(
            ["-gone", "+changed@uid-changed", "-reborn", "+reborn@new", "+fresh@uid-fresh"]
        )


async def test_a_watch_goes_on_from_its_last_bookmark() -> None:
    async with serving() as fake, informing(fake) as batches:
        bookmark = line("BOOKMARK", {"kind": "Node", "metadata": {"resourceVersion": "50"}})
        fake.answers = [
            nodes(7),
            streams(line("ADDED", node("a", 9)) + bookmark),
            streams(line("MODIFIED", node("a", 51)), then=quiet),
        ]
        empty, added, modified = await take(batches, 3)
        assert (empty.events, empty.complete) == ((), True)
        assert told(added.events) == told(modified.events) == ["+a@uid-a"]
        assert "resourceVersion=50" in fake.requests[2][1]


async def test_a_name_that_changes_hands_within_a_watch_is_deleted_in_between() -> None:
    async with serving() as fake, informing(fake) as batches:
        fake.answers = [
            nodes(7, node("a", 1, uid="old")),
            streams(line("MODIFIED", node("a", 9, uid="new")), then=quiet),
        ]
        _, changed = await take(batches, 2)
        assert told(changed.events) == ["-a", "+a@new"]


async def test_objects_that_cannot_be_read_are_told_one_by_one() -> None:
    bad = node("bad", 2, spec={"unschedulable": "perhaps", "nodeName": "somewhere"})
    async with serving() as fake, informing(fake) as batches:
        fake.answers = [
            nodes(7, node("a", 1), bad, node("c", 3)),
            streams(
                line("MODIFIED", node("c", 8, spec={"taints": "none"})),
                line("MODIFIED", node("bad", 9)),
                line("DELETED", node("c", 10, spec={"taints": "none"})),
                then=quiet,
            ),
        ]
        first, *rest = await take(batches, 2)
        assert told(first.events) == ["+a@uid-a", "+c@uid-c", "?bad"]
        unreadable = first.events[2]
        assert isinstance(unreadable, Unreadable)
        assert (unreadable.kind, unreadable.uid, unreadable.node_name) == (Node, "uid-bad", "somewhere")
        assert "unschedulable" in unreadable.why
        words = [word for batch in rest for word in told(batch.events)]
        while len(words) < 3:
            words += told((await take(batches, 1))[0].events)
        assert words == ["?c", "+bad@uid-bad", "-c"]


async def test_it_is_told_whether_a_watch_is_open() -> None:
    async with serving() as fake, fake.client() as client:
        informer = Informer(client, NODES)
        batches = aiter(informer)
        fake.answers = [
            nodes(7, node("a", 1)),
            streams(line("ADDED", node("b", 8))),
            refuses(503, "ServiceUnavailable"),
            streams(line("ADDED", node("c", 9)), then=quiet),
        ]
        await take(batches, 1)
        assert not informer.watching
        await take(batches, 1)
        assert informer.watching
        after = asyncio.create_task(take(batches, 1))
        async with asyncio.timeout(5):
            while informer.watching:  # noqa: ASYNC110  (a look at a condition)
                await asyncio.sleep(0.001)
        await after
        assert informer.watching
        await batches.aclose()
        assert not informer.watching


async def test_two_silent_watches_in_a_row_make_a_new_list() -> None:
    async with serving() as fake, informing(fake, silence=0.2) as batches:
        fake.answers = [
            nodes(1000, node("a", 1)),
            streams(then=quiet),
            streams(then=quiet),
            nodes(1000, node("b", 4)),
            streams(then=quiet),
        ]
        _, anew = await take(batches, 2)
        assert told(anew.events) == ["-a", "+b@uid-b"]
        assert ["watch" in path for _, path, _ in fake.requests[:4]] == [False, True, True, False]


async def test_a_server_that_refuses_or_talks_nonsense_is_asked_again() -> None:
    async with serving() as fake, informing(fake) as batches:
        fake.answers = [
            refuses(403, "Forbidden", "not yet"),
            says("no list at all"),
            nodes(7, node("a", 1)),
            refuses(403, "Forbidden", "not yet"),
            streams(line("ADDED", node("b", 8)) + b"<html>\n"),
            streams(line("ADDED", node("c", 9)), then=quiet),
        ]
        batches_ = await take(batches, 3)
        assert [told(batch.events) for batch in batches_] == [["+a@uid-a"], ["+b@uid-b"], ["+c@uid-c"]]
        assert "resourceVersion=8" in fake.requests[5][1], "what came before the nonsense is not asked for again"


async def test_a_watch_that_ends_in_an_error_each_time_makes_a_new_list() -> None:
    broken = line("ERROR", {"kind": "Status", "code": 500, "message": "etcd event received with PrevKv=nil"})
    async with serving() as fake, informing(fake) as batches:
        fake.answers = [nodes(7, node("a", 1))]
        fake.answers += [streams(broken) for _ in range(ERRORS_IN_A_ROW)]
        fake.answers += [nodes(9, node("b", 8)), streams(then=quiet)]
        _, anew = await take(batches, 2)
        assert told(anew.events) == ["-a", "+b@uid-b"]


async def test_a_watch_that_is_refused_goes_on_from_where_it_was() -> None:
    async with serving() as fake, informing(fake) as batches:
        fake.answers = [nodes(7, node("a", 1))]
        fake.answers += [refuses(503, "ServiceUnavailable") for _ in range(ERRORS_IN_A_ROW + 1)]
        fake.answers += [streams(line("ADDED", node("b", 8)), then=quiet)]
        _, added = await take(batches, 2)
        assert told(added.events) == ["+b@uid-b"]
        assert fake.requests[-1][1].partition("resourceVersion=")[2].startswith("7")


async def test_an_error_event_is_an_error_even_for_a_kind_that_it_could_be_read_as() -> None:
    async with serving() as fake, fake.client() as client:
        error = {"kind": "Status", "metadata": {}, "code": 410, "reason": "Expired", "message": "too old"}
        fake.answers = [streams(line("ADDED", node("x", 5)) + line("ERROR", error))]
        seen: list[Any] = []
        with pytest.raises(ApiError) as caught:
            await _collect(client, seen)
        assert caught.value.status == 410
        assert [change.object.metadata.name for change in seen] == ["x"], "what came before the error is not lost"
        assert isinstance(seen[0].object, PriorityClass)


async def _collect(client: Client, seen: list[Any]) -> None:
    async for changes in watch_once(client, PRIORITYCLASSES, "1"):
        seen += changes
