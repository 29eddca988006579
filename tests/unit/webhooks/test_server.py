"""The HTTPS server in front of kopf: every request is answered, and only reviews reach a handler."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import itertools
import json
import re
import ssl
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from kbatch.api.objects import Metadata, PodGroupSpec
from kbatch.metrics import WebhookMetrics
from kbatch.process.certificates import Certificates
from kbatch.process.run import ProcessError
from tests.examples import examples
from tests.unit.webhooks.test_certificates import PAIRS, mount
from webhooks import review as reading
from webhooks import server as serving
from webhooks.paths import Paths
from webhooks.review import (
    PODGROUPS,
    GroupPhase,
    MalformedReviewError,
    OtherResourceError,
    Review,
    StoredGroup,
    SubmittedGroup,
    read_review,
)
from webhooks.review_context import current
from webhooks.server import ReviewServer


def review(**request: Any) -> dict[str, Any]:
    """A review that is right, but for what is given."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u-1",
            "resource": {"group": "scheduling.incubator.k8s.io", "version": "v1alpha1", "resource": "podgroups"},
            "operation": "CREATE",
            "userInfo": {"username": "somebody"},
            "object": {"metadata": {"name": "pg", "namespace": "ns"}, "spec": {}},
            **request,
        },
    }


class Rig:
    """A server with a handler that does what a test says."""

    def __init__(self, folder: Path, paths: Paths | None = None) -> None:
        self.folder = folder
        self.registry = CollectorRegistry()
        self.certificates = Certificates(folder)
        self.certificates.reload()
        self.server = ReviewServer(
            address="127.0.0.1",
            port=0,
            certificates=self.certificates,
            paths=paths or Paths(None),
            handlers={"podgroup-defaults": PODGROUPS},
            passes=lambda review: review.namespace == "open",
            metrics=WebhookMetrics(self.registry),
        )
        self.reviews: list[dict[str, Any]] = []
        self.read: list[Review] = []
        self.warnings: list[str] = []
        self.changes: dict[str, Any] = {}
        self.unknown = False
        self.answer: dict[str, Any] | Exception = {"response": {"uid": "u-1", "allowed": True}}

    async def handle(self, request: Any, **_: Any) -> Any:
        if request["request"]["operation"] == "CONNECT":  # whether the kind is known
            if self.unknown:
                raise LookupError("no handlers")
            return {}
        self.reviews.append(request)
        self.read.append(current())
        current().warnings += self.warnings
        current().changes = self.changes
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def post(
        self, body: bytes | str, path: str = "/podgroup-defaults", trusted: str = "first"
    ) -> tuple[int, dict[str, Any]]:
        context = ssl.create_default_context(cafile=str(PAIRS / f"{trusted}.crt"))
        raw = body.encode() if isinstance(body, str) else body
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
            session.post(f"https://127.0.0.1:{self.server.port}{path}", data=io.BytesIO(raw)) as response,
        ):
            return response.status, json.loads(await response.read())

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Rig]:
        """Itself, while its server listens."""
        serving = asyncio.create_task(self.server.serve())
        await asyncio.sleep(0)
        assert self.server.check() == "the port is not open yet"
        kopfs: Any = self.server(self.handle)
        kopf = asyncio.create_task(anext(kopfs))
        await asyncio.wait_for(self.server.listening.wait(), 5)
        assert self.server.check() is None
        yield self
        serving.cancel()
        await asyncio.gather(serving, kopf, return_exceptions=True)
        await kopfs.aclose()
        assert self.server.check() is not None

    def counted(self, outcome: str) -> float:
        labels = {"handler": "podgroup-defaults", "outcome": outcome}
        return self.registry.get_sample_value("kbatch_webhook_reviews_total", labels) or 0.0


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(serving, "_DRAIN_SECONDS", 0.2)  # some tests leave a connection open
    mount(tmp_path, "first")
    async with Rig(tmp_path).running() as rig:
        yield rig


async def test_a_review_reaches_the_handler_and_its_answer_comes_back(rig: Rig) -> None:
    assert await rig.post(json.dumps(review())) == (200, {"response": {"uid": "u-1", "allowed": True}})
    assert [one.new for one in rig.read] == [SubmittedGroup(Metadata(name="pg", namespace="ns"), PodGroupSpec())]
    # kopf sees which object it is, and need not copy the rest.
    assert rig.reviews[0]["request"]["object"] == {"metadata": {"name": "pg", "namespace": "ns"}}
    assert rig.reviews[0]["request"]["uid"] == "u-1"
    assert rig.counted("allowed") == 1


async def test_warnings_are_told_with_the_answer(rig: Rig) -> None:
    rig.warnings = ["one", "two"]
    _, answer = await rig.post(json.dumps(review()))
    assert answer["response"] == {"uid": "u-1", "allowed": True, "warnings": ["one", "two"]}


async def test_what_needs_no_handler_is_answered_without_kopf(rig: Rig) -> None:
    status, answer = await rig.post(json.dumps(review(namespace="open")))
    assert (status, answer["response"], rig.reviews) == (200, {"uid": "u-1", "allowed": True}, [])
    assert answer["kind"] == "AdmissionReview"


async def test_another_resource_than_the_handlers_is_404(rig: Rig) -> None:
    status, _ = await rig.post(json.dumps(review(resource={"group": "", "version": "v1", "resource": "pods"})))
    assert (status, rig.reviews) == (404, [])


async def test_slow_bodies_hold_nobody_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "READ_SECONDS", 1.0)
    context = ssl.create_default_context(cafile=str(PAIRS / "first.crt"))
    slow = []
    for length in [100] * 80 + [serving.LARGE_BYTES + 1] * 20:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", rig.server.port, ssl=context, server_hostname="localhost"
        )
        writer.write(f"POST /podgroup-defaults HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{{".encode())
        slow.append((reader, writer))
    assert (await rig.post(json.dumps(review())))[0] == 200
    for reader, writer in slow:
        assert b" 408 " in await asyncio.wait_for(reader.readline(), 10)
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for _, writer in slow), return_exceptions=True)


async def test_a_length_that_no_review_has_is_refused_before_it_comes(rig: Rig) -> None:
    context = ssl.create_default_context(cafile=str(PAIRS / "first.crt"))
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", rig.server.port, ssl=context, server_hostname="localhost"
    )
    writer.write(f"POST /podgroup-defaults HTTP/1.1\r\nHost: x\r\nContent-Length: {2**60}\r\n\r\n".encode())
    assert b" 413 " in await asyncio.wait_for(reader.readline(), 5)
    writer.close()


async def test_a_body_without_a_length_is_bounded(rig: Rig) -> None:
    context = ssl.create_default_context(cafile=str(PAIRS / "first.crt"))
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", rig.server.port, ssl=context, server_hostname="localhost"
    )
    writer.write(b"POST /podgroup-defaults HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"100000\r\n" + b" " * 2**20 + b"\r\n"
    for _ in range(serving.MOST_BYTES // 2**20 + 1):
        writer.write(chunk)
    assert b" 413 " in await asyncio.wait_for(reader.readline(), 10)
    writer.close()


async def test_connections_that_say_nothing_hold_nobody_up(rig: Rig) -> None:
    silent = [await asyncio.open_connection("127.0.0.1", rig.server.port) for _ in range(200)]
    assert (await rig.post(json.dumps(review())))[0] == 200
    for _, writer in silent:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for _, writer in silent), return_exceptions=True)


async def test_what_is_no_http_is_answered_and_not_logged(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    context = ssl.create_default_context(cafile=str(PAIRS / "first.crt"))
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", rig.server.port, ssl=context, server_hostname="localhost"
    )
    writer.write(b"POST /podgroup-defaults HTTP/1.1\r\nHost: \x01\r\n\r\n")
    assert b" 400 " in await asyncio.wait_for(reader.readline(), 5)
    assert not caplog.records
    writer.close()


async def test_outcomes_are_told_apart(rig: Rig) -> None:
    rig.answer = {"response": {"uid": "u-1", "allowed": True, "patch": "W10="}}
    await rig.post(json.dumps(review()))
    rig.answer = {"response": {"uid": "u-1", "allowed": False}}
    await rig.post(json.dumps(review()))
    assert (rig.counted("patched"), rig.counted("denied")) == (1, 1)


def large_review() -> bytes:
    """A change of an object that is as large as objects get, and full of small values."""
    values = {f"field-{number}": [number, str(number), {"a": None}] for number in range(60_000)}
    changed = {"metadata": {"name": "pg", "namespace": "ns"}, "spec": {"objects": [values]}}
    body = json.dumps(review(operation="UPDATE", object=changed, oldObject=changed)).encode()
    assert serving.MOST_BYTES // 2 < len(body) < serving.MOST_BYTES
    return body


async def longest_slice(work: Coroutine[Any, Any, Any]) -> float:
    """The most that the event loop's own thread works between two of its turns while this is done, in CPU seconds."""
    task, longest, before = asyncio.ensure_future(work), 0.0, time.thread_time()
    while not task.done():
        await asyncio.sleep(0.0005)
        now = time.thread_time()
        longest, before = max(longest, now - before), now
    await task
    return longest


async def test_large_reviews_are_taken_apart_beside_the_event_loop(rig: Rig) -> None:
    body, rig.changes = large_review(), {"spec": {"queue": "night"}}
    began = time.thread_time()
    assert read_review(body, PODGROUPS, deadline=0.0).new
    whole = time.thread_time() - began

    async def ask() -> None:
        status, answer = await rig.post(body)
        assert (status, answer["response"]["patchType"]) == (200, "JSONPatch")

    await ask()  # what is made at the first time only
    assert await longest_slice(ask()) < whole / 3
    assert rig.read[-1].large


async def test_no_piece_of_a_large_review_takes_much_longer_than_its_largest_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Decoding keeps the interpreter from the event loop also where another thread does it."""
    body, marks = large_review(), [time.thread_time()]
    monkeypatch.setattr(time, "sleep", lambda _: marks.append(time.thread_time()))
    found = read_review(body, PODGROUPS, deadline=0.0, large=True)
    marks.append(time.thread_time())
    pieces = [after - before for before, after in itertools.pairwise(marks)]
    assert len(pieces) == 5
    assert max(pieces) < 0.7 * sum(pieces)
    assert isinstance(found.new, SubmittedGroup)
    assert list(found.new.spec.objects or ()) == json.loads(body)["request"]["object"]["spec"]["objects"]


async def test_a_large_body_that_is_no_review_is_answered_as_a_small_one_is(rig: Rig) -> None:
    for broken in (b"[" * 300_000, large_review()[:-1], json.dumps({"a": ["b"] * 100_000}).encode()):
        status, answer = await rig.post(broken)
        assert (status, answer["message"].startswith("not an admission review: ")) == (400, True)
    assert not rig.reviews


def broken(**changes: Any) -> dict[str, Any]:
    return {**review(), **changes}


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("", "not an admission review"),
        ("{", "not an admission review"),
        ("[]", "Expected `object`"),
        ("null", "Expected `object`"),
        (b"\xff\xfe", "not an admission review"),
        ("[" * 100_000, "not an admission review"),
        (json.dumps({}), "apiVersion"),
        (json.dumps(broken(apiVersion="admission.k8s.io/v1beta1")), "apiVersion"),
        (json.dumps(broken(kind="Review")), "kind"),
        (json.dumps(broken(request=None)), "request"),
        (json.dumps(review(uid=7)), "$.request.uid"),
        (json.dumps(review(operation="CREATED")), "$.request.operation"),
        (json.dumps(review(resource={"group": "g"})), "$.request.resource"),
        (json.dumps(review(userInfo=None)), "$.request.userInfo"),
        (json.dumps(review(object=None)), "neither `$.request.object` nor `$.request.oldObject`"),
        (json.dumps(review(object=[])), "$.request.object"),
        (json.dumps(review(object={"spec": {}})), "metadata"),
        (json.dumps(review(object={"metadata": {"labels": ["a"]}})), "$.request.object.metadata.labels"),
        (json.dumps(review(oldObject={"metadata": {"name": 1}})), "$.request.oldObject.metadata.name"),
    ],
)
async def test_what_is_no_review_is_answered_with_400_and_reaches_nobody(
    rig: Rig, body: bytes | str, word: str
) -> None:
    status, answer = await rig.post(body)
    assert status == 400
    assert word in answer["message"]
    assert not rig.reviews
    assert rig.counted("malformed") == 1


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"minMember": "many"}, "this cannot be read: spec.minMember: Expected `int`, got `str`"),
        ({"subGroups": [{"name": 1}]}, "this cannot be read: spec.subGroups[0].name: Expected `str`, got `int`"),
        (7, "this cannot be read: spec: Expected `object`, got `int`"),
    ],
)
async def test_an_object_that_cannot_be_read_is_refused_with_the_field(rig: Rig, spec: Any, message: str) -> None:
    bad = {"metadata": {"name": "pg", "namespace": "ns"}, "spec": spec}
    for made in (review(object=bad), review(operation="UPDATE", object=bad, oldObject=review()["request"]["object"])):
        status, answer = await rig.post(json.dumps(made))
        refusal = {"uid": "u-1", "allowed": False, "status": {"code": 422, "message": message}}
        assert (status, answer["response"], rig.reviews) == (200, refusal, [])
    assert rig.counted("denied") == 2


async def test_an_object_that_could_not_be_read_can_be_mended(rig: Rig) -> None:
    bad = {"metadata": {"name": "pg", "namespace": "ns"}, "spec": {"minMember": "many"}}
    await rig.post(json.dumps(review(operation="UPDATE", oldObject=bad)))
    assert [(one.new is not None, one.old) for one in rig.read] == [(True, None)]


async def test_an_object_that_could_not_be_read_before_either_is_let_be(rig: Rig) -> None:
    """Say it was stored by another release: else nobody could take its finalizer away, and it would never go."""
    bad = {"metadata": {"name": "pg", "namespace": "ns", "finalizers": ["a"]}, "spec": {"minMember": "many"}}
    freed = {"metadata": {"name": "pg", "namespace": "ns"}, "spec": {"minMember": "many"}}
    _, answer = await rig.post(json.dumps(review(operation="UPDATE", object=freed, oldObject=bad)))
    assert answer["response"]["allowed"]
    assert [(one.new, one.old) for one in rig.read] == [(None, None)]
    _, answer = await rig.post(json.dumps(review(operation="DELETE", object=None, oldObject=bad)))
    assert answer["response"]["allowed"]


async def test_of_the_status_that_is_stored_only_the_phase_is_read(rig: Rig) -> None:
    stored = {"metadata": {"name": "pg"}, "status": {"phase": "Completed", "running": "two", "conditions": 7}}
    await rig.post(json.dumps(review(operation="UPDATE", oldObject=stored)))
    assert [one.old for one in rig.read] == [
        StoredGroup(Metadata(name="pg"), PodGroupSpec(), status=GroupPhase("Completed"))
    ]


async def test_a_status_that_is_sent_is_not_read(rig: Rig) -> None:
    await rig.post(json.dumps(review(object={"metadata": {"name": "pg"}, "status": {"phase": 7}})))
    assert [one.unreadable for one in rig.read] == [""]


def test_a_patch_adds_only_what_is_not_there() -> None:
    sent = {"metadata": {"name": "pg", "labels": {"a": "b"}}, "spec": {"queue": "q", "minimum": 2}}
    made = read_review(json.dumps(review(object=sent)).encode(), PODGROUPS, deadline=0.0)
    assert made.patch() == ""
    made.changes = {"spec": {"queue": "q", "minimum": 2}}
    assert made.patch() == ""
    made.changes = {"spec": {"minimum": 3}, "metadata": {"annotations": {"x/y": "1"}, "labels": {"c/d": "e"}}}
    assert json.loads(base64.b64decode(made.patch())) == [
        {"op": "add", "path": "/spec/minimum", "value": 3},
        {"op": "add", "path": "/metadata/annotations", "value": {"x/y": "1"}},
        {"op": "add", "path": "/metadata/labels/c~1d", "value": "e"},
    ]


def test_what_was_sent_is_seen_at_the_door_alone() -> None:
    folder = Path(reading.__file__).parent
    seeing = {path.name for path in folder.glob("*.py") if re.search(r"\bRaw\b|\._sent\b", path.read_text("utf-8"))}
    assert seeing == {"review.py"}


async def test_a_path_without_a_handler_is_404(rig: Rig) -> None:
    assert (await rig.post(json.dumps(review()), path="/podgroup-default"))[0] == 404
    assert not rig.reviews


async def test_a_body_that_is_too_large_is_413(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    status, answer = await rig.post(json.dumps(review(object={"metadata": {}, "x": "x" * serving.MOST_BYTES})))
    assert (status, rig.reviews) == (413, [])
    assert str(serving.MOST_BYTES) in answer["message"]


async def test_a_body_that_does_not_come_is_not_waited_for(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "READ_SECONDS", 0.05)
    context = ssl.create_default_context(cafile=str(PAIRS / "first.crt"))
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", rig.server.port, ssl=context, server_hostname="localhost"
    )
    writer.write(b"POST /podgroup-defaults HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    await writer.drain()
    assert b" 408 " in await asyncio.wait_for(reader.readline(), 5)
    writer.close()
    await writer.wait_closed()


async def test_a_defect_is_a_500_and_the_next_review_is_answered(rig: Rig) -> None:
    rig.answer = ZeroDivisionError("secret detail")
    status, answer = await rig.post(json.dumps(review()))
    assert status == 500
    assert "secret detail" not in answer["message"]
    rig.answer = {"response": {"uid": "u-1", "allowed": True}}
    assert (await rig.post(json.dumps(review())))[0] == 200
    assert rig.counted("failed") == 1


async def test_nothing_is_reviewed_where_kopf_did_not_find_a_kind(tmp_path: Path) -> None:
    mount(tmp_path, "first")
    rig = Rig(tmp_path)
    rig.unknown = True
    kopfs: Any = rig.server(rig.handle)
    kopf = asyncio.create_task(anext(kopfs))
    with pytest.raises(ProcessError, match="kopf does not review podgroups"):
        await asyncio.wait_for(rig.server.serve(), 5)
    assert rig.server.check() is not None
    await kopf
    await kopfs.aclose()


async def test_a_renewed_certificate_is_served_without_a_restart(rig: Rig) -> None:
    assert (await rig.post(json.dumps(review())))[0] == 200
    mount(rig.folder, "second")
    rig.server._reload()
    assert (await rig.post(json.dumps(review()), trusted="first"))[0] == 200
    rig.server._reload()
    assert (await rig.post(json.dumps(review()), trusted="second"))[0] == 200
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await rig.post(json.dumps(review()), trusted="first")


async def test_half_of_a_renewal_leaves_the_old_certificate_in_use(rig: Rig) -> None:
    mount(rig.folder, "second", "first")
    for _ in range(2):
        rig.server._reload()
    assert (await rig.post(json.dumps(review()), trusted="first"))[0] == 200


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(["uid", "resource", "operation", "userInfo", "object", "oldObject", "dryRun", "name"]),
        JSON_VALUES,
    )
)
def test_any_change_to_a_review_leaves_it_right_or_is_refused(changes: dict[str, Any]) -> None:
    with contextlib.suppress(MalformedReviewError, OtherResourceError):  # any other error fails the test
        made = read_review(json.dumps(review(**changes)).encode(), PODGROUPS, deadline=0.0)
        assert isinstance(made.uid, str)
        assert made.new or made.old or made.unreadable


@settings(max_examples=examples(30), deadline=None)
@given(st.binary(max_size=64))
def test_any_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(MalformedReviewError):
        read_review(body, PODGROUPS, deadline=0.0)
