"""Events: counted, bounded, never waited for."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from kbatch.kube import events
from kbatch.kube.client import Api
from kbatch.kube.events import EventRecorder, Regarding
from tests.unit.kube.server import FakeServer, refuses, says, serving

POD = Regarding("v1", "Pod", "n", "p", "u")


async def until_requests(fake: FakeServer, count: int) -> None:
    async with asyncio.timeout(5):
        while len(fake.requests) < count:  # noqa: ASYNC110  (the fake has no event to wait for)
            await asyncio.sleep(0.005)


async def test_telling_never_waits_and_what_is_too_much_is_dropped() -> None:
    async with serving() as fake, fake.client() as client:
        recorder = EventRecorder(client, controller="c", instance="i", capacity=10)
        began = time.monotonic()
        for number in range(1000):
            recorder.normal(POD, "Reason", "Action", f"note {number}")
        assert time.monotonic() - began < 0.5
        assert recorder.dropped == 990
        assert fake.requests == []


async def test_what_matters_less_leaves_room_in_the_queue() -> None:
    async with serving() as fake, fake.client() as client:
        recorder = EventRecorder(client, controller="c", instance="i", capacity=10)
        told = [recorder.normal(POD, "Reason", "Action", f"minor {number}", share=0.5) for number in range(20)]
        assert told == [True] * 5 + [False] * 15
        assert not recorder.has_room(0.5)
        assert recorder.normal(POD, "Reason", "Action", "minor 0", share=0.5), "what waits already is counted on"
        assert [recorder.warning(POD, "Reason", "Action", f"major {number}") for number in range(6)].count(True) == 5
        assert not recorder.has_room()
        assert recorder.dropped == 16


async def test_repetitions_become_a_count_written_later() -> None:
    async with serving() as fake, fake.client() as client:
        fake.answers = [says({}, 201), says({})]
        async with EventRecorder(client, controller="c", instance="i", repeat_seconds=0.2) as recorder:
            recorder.warning(POD, "Reason", "Action", "same")
            await until_requests(fake, 1)
            for _ in range(6):
                recorder.warning(POD, "Reason", "Action", "same")
            assert len(fake.requests) == 1
            await until_requests(fake, 2)
        (post, post_path, post_body), (patch, patch_path, patch_body) = fake.requests
        assert (post, patch) == ("POST", "PATCH")
        assert patch_path == f"{post_path}/{json.loads(post_body)['metadata']['name']}"
        assert json.loads(patch_body)["series"]["count"] == 7


async def test_events_of_what_is_long_gone_are_forgotten_and_the_others_counted_on() -> None:
    now = 0.0
    async with serving() as fake, fake.client() as client:
        recorder = EventRecorder(
            client, controller="c", instance="i", capacity=10_000, memory_seconds=10.0, clock=lambda: now
        )
        for number in range(1000):
            now = float(number)
            recorder.normal(Regarding("v1", "Pod", "n", f"p{number}", f"u{number}"), "Reason", "Action", "once")
            recorder.normal(POD, "Reason", "Action", "again and again")
            assert recorder.remembered <= 12
        fake.answers = [says({}, 201)]
        async with recorder:
            await until_requests(fake, 2)
        again = [json.loads(body) for _, _, body in fake.requests if b"again and again" in body]
        assert again[0]["series"]["count"] == 1000


async def test_an_event_that_the_server_has_dropped_is_written_anew() -> None:
    async with serving() as fake, fake.client() as client:
        fake.answers = [says({}, 201), refuses(404, "NotFound"), says({}, 201)]
        async with EventRecorder(client, controller="c", instance="i", repeat_seconds=0.05) as recorder:
            recorder.normal(POD, "Reason", "Action", "same")
            await until_requests(fake, 1)
            recorder.normal(POD, "Reason", "Action", "same")
            await until_requests(fake, 3)
        assert [method for method, _, _ in fake.requests] == ["POST", "PATCH", "POST"]
        assert json.loads(fake.requests[2][2])["series"]["count"] == 2


async def test_refused_events_are_counted_and_the_next_is_written() -> None:
    async with serving() as fake, fake.client() as client:
        fake.answers = [refuses(403, "Forbidden"), says({}, 201)]
        async with EventRecorder(client, controller="c", instance="i") as recorder:
            recorder.normal(POD, "Reason", "Action", "first")
            recorder.normal(POD, "Reason", "Action", "second")
            await until_requests(fake, 2)
        assert (recorder.failed, recorder.written) == (1, 1)


async def test_a_long_note_is_cut_at_a_whole_letter_and_cluster_objects_go_to_default() -> None:
    async with serving() as fake, fake.client() as client:
        fake.answers = [says({}, 201)]
        async with EventRecorder(client, controller="c", instance="i") as recorder:
            recorder.normal(Regarding("v1", "Node", "", "n"), "Reason", "Action", "ü" * 1000)
            await until_requests(fake, 1)
        _, path, body = fake.requests[0]
        assert path == "/apis/events.k8s.io/v1/namespaces/default/events"
        assert json.loads(body)["note"] == "ü" * 512
        assert "namespace" not in json.loads(body)["regarding"]


async def test_remarks_give_way_are_bounded_and_are_written_in_the_end() -> None:
    async with serving() as fake, fake.client() as client:
        fake.answers = [says({}, 201) for _ in range(20)]
        recorder = EventRecorder(client, controller="c", instance="i", remarks=3)
        taken = [recorder.remark(POD, "Scheduled", "Binding", f"to node {number}") for number in range(5)]
        assert taken == [0, 0, 0, 1, 1]
        assert recorder.dropped == 2
        for number in range(4):
            recorder.warning(POD, "Reason", "Action", f"urgent {number}")
        async with recorder:
            await until_requests(fake, 7)
        notes = [json.loads(body)["note"] for _, _, body in fake.requests]
        assert notes == [*(f"urgent {number}" for number in range(4)), "to node 0", "to node 1", "to node 2"]


async def test_remarks_that_have_waited_for_five_minutes_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where more come than are written, what waits is soon as much as later: what came in five minutes."""
    began, waiting, dropped = time.time(), list[int](), 0
    async with serving() as fake, fake.client() as client:
        recorder = EventRecorder(client, controller="c", instance="i")
        for second in range(900):
            monkeypatch.setattr(time, "time", lambda second=second: began + second)
            dropped += recorder.remark(POD, "Scheduled", "Binding", f"to node {second}")
            waiting.append(recorder.waiting)
        assert waiting[299] == 300
        assert max(waiting) == waiting[300] == waiting[-1] == 301
        assert (dropped, recorder.dropped) == (599, 599)
        fake.answers = [says({}, 201)]
        async with recorder:
            await until_requests(fake, 1)
        assert json.loads(fake.requests[0][2])["note"] == "to node 599"


async def test_of_a_crowd_of_remarks_none_is_written_while_more_come_but_for_the_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "_REMARKS_A_SECOND", 1000.0)
    monkeypatch.setattr(events, "_HELD_BACK_SECONDS", 1.5)
    async with serving() as fake, fake.client() as client:
        fake.answers = [says({}, 201) for _ in range(100)]
        async with EventRecorder(client, controller="c", instance="i") as recorder:
            recorder.remark(POD, "Scheduled", "Binding", "alone")
            await until_requests(fake, 1)
            for number in range(40):
                recorder.remark(POD, "Scheduled", "Binding", f"to node {number}")
            await asyncio.sleep(0.2)
            assert len(fake.requests) == 1, "they keep coming, and none is old"
            recorder.warning(POD, "Reason", "Action", "urgent")
            await until_requests(fake, 2)
            assert json.loads(fake.requests[1][2])["note"] == "urgent", "other Events are not held back"
            await until_requests(fake, 42)


async def test_what_waits_in_the_end_is_written_for_a_moment_and_the_rest_is_counted() -> None:
    async with serving() as fake, fake.client() as client:
        fake.answers = [says({}, 201) for _ in range(400)]
        async with EventRecorder(client, controller="c", instance="i", repeat_seconds=60.0) as recorder:
            recorder.warning(POD, "Reason", "Action", "again")
            await until_requests(fake, 1)
            recorder.warning(POD, "Reason", "Action", "again")
            for number in range(300):
                recorder.remark(POD, "Scheduled", "Binding", f"to node {number}")
            assert recorder.waiting >= 300
        notes = [json.loads(body).get("note") for _, _, body in fake.requests]
        assert sum(note is not None and note.startswith("to node") for note in notes) == 300
        assert b'"count":2' in b"".join(body for _, _, body in fake.requests), "the repetition too"
        assert (recorder.written, recorder.dropped, recorder.waiting) == (302, 0, 0)


async def test_events_that_no_server_takes_in_the_end_are_counted_and_hold_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "_LEAVE_SECONDS", 0.1)

    class Hanging:
        async def request(self, method: str, path: str, **_: Any) -> bytes:
            await asyncio.Event().wait()
            return b""

        def stream(self, path: str, **_: Any) -> Any:
            raise NotImplementedError

    recorder = EventRecorder(Hanging(), controller="c", instance="i")
    async with recorder:
        for number in range(30):
            recorder.remark(POD, "Scheduled", "Binding", f"to node {number}")
        for number in range(20):
            recorder.warning(POD, "Reason", "Action", f"note {number}")
    assert recorder.written + recorder.failed == 0
    assert recorder.dropped == 50, "what was on the wire and what waited"


async def test_no_event_ends_the_writing_of_all(caplog: pytest.LogCaptureFixture) -> None:
    class Breaking:
        def __init__(self, api: Api) -> None:
            self.api, self.broken = api, 0

        async def request(self, method: str, path: str, **options: Any) -> bytes:
            if "breaks" in options["body"]["note"]:
                self.broken += 1
                raise ZeroDivisionError
            return await self.api.request(method, path, **options)

        def stream(self, path: str, **_: Any) -> Any:
            raise NotImplementedError

    async with serving() as fake, fake.client() as client:
        fake.answers = [says({}, 201), says({}, 201)]
        async with EventRecorder(Breaking(client), controller="c", instance="i") as recorder:
            recorder.normal(POD, "Reason", "Action", "breaks")
            recorder.normal(POD, "Reason", "Action", "is written")
            recorder.remark(POD, "Reason", "Action", "breaks")
            recorder.remark(POD, "Reason", "Action", "is written too")
            await until_requests(fake, 2)
        assert (recorder.written, recorder.failed) == (2, 2)
    assert caplog.text.count("ZeroDivisionError") >= 2
