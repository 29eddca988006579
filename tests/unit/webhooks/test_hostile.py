"""10,000 requests that mean no good, through the real listener over TLS and kopf's own function for reviews."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import gc
import json
import random
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from kbatch.api.objects import Metadata
from kbatch.api.podgroup import PodGroupSpec
from kbatch.metrics import WebhookMetrics
from kbatch.process.certificates import Certificates
from kbatch.process.memory import YOUNG_BESIDE_KOPF
from kbatch.resources import parse_quantity
from tests.unit.webhooks.build import group, quota
from tests.unit.webhooks.spoil import JUNK, spoil
from tests.unit.webhooks.test_admission import Rig, deletion, pod, podgroup, review, reviewer
from tests.unit.webhooks.test_certificates import PAIRS, mount
from webhooks.handlers import HANDLERS, JOBS, PODGROUPS, PODS, QUEUES, passes
from webhooks.paths import Paths
from webhooks.server import ReviewServer

REQUESTS = 10_000
CONNECTIONS = 24
MOST_GROWN = 24 * 2**20
"""Bytes; a review that left 10 KB behind would be 70 MB in all."""


class Line:
    """A connection that sends what it is told to, and is opened anew when the server has closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._context = ssl.create_default_context(cafile=str(PAIRS / "first.crt"))
        self._ends: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, raw: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._ends is None or self._ends[1].is_closing():
            self._ends = await asyncio.open_connection(
                "127.0.0.1", self._port, ssl=self._context, server_hostname="localhost"
            )
        self._ends[1].write(raw)
        return self._ends

    async def ask(self, raw: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to a whole request."""
        reader, _ = await self.send(raw)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii").lower()
        body = await reader.readexactly(int(head.partition("content-length:")[2].split()[0]))
        if "connection: close" in head:
            await self.close()
        return int(head.split()[1]), body

    async def close(self) -> None:
        if self._ends is not None:
            self._ends[1].close()
            with contextlib.suppress(OSError):
                await self._ends[1].wait_closed()
            self._ends = None


def http(body: bytes, path: str = PODGROUPS, kind: str = "application/json") -> bytes:
    return (
        f"POST /{path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    """A server before a namespace with 10 cores, of which a group in queue was promised 8."""
    rig = Rig()
    rig.see(quota(requests_cpu="10"), group("holder", "8", enqueued=True))
    rig.server.quotas = [{"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "10"}}}]
    mount(tmp_path, "first")
    certificates = Certificates(tmp_path)
    certificates.reload()
    server = ReviewServer(
        address="127.0.0.1", port=0, certificates=certificates, paths=Paths(None), handlers=HANDLERS,
        passes=passes(rig.admission), metrics=WebhookMetrics(CollectorRegistry()),
    )  # fmt: skip
    work = asyncio.create_task(server.serve())
    handing: Any = server(reviewer(rig))
    await anext(handing)
    await asyncio.wait_for(server.listening.wait(), 5)
    yield server.port
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    await handing.aclose()


# --- requests ---------------------------------------------------------------------------------------------------------


HARMLESS = [junk for junk in JUNK if junk != "\ud83d"]  # half of a character makes any JSON malformed
CONTAINER = {"name": "c", "args": ["{{ index }}"], "resources": {"requests": {"cpu": "1"}}}


def seeds() -> list[tuple[str, dict[str, Any]]]:
    """Reviews that are right, each with its handler; all but the Job's must be refused."""
    group = podgroup(cpu="11")
    group["spec"]["subGroups"] = [{"name": "w", "minMember": 2, "template": {"spec": {"containers": [CONTAINER]}}}]
    job = {
        "metadata": {"name": "j", "namespace": "ns", "labels": {"kbatch.dev/queue": "q"}},
        "spec": {"parallelism": 2, "template": {"spec": {"schedulerName": "kube-batch", "containers": [CONTAINER]}}},
    }
    return [
        (PODGROUPS, review(PODGROUPS, group, namespace="ns")), (JOBS, review(JOBS, job, namespace="ns")),
        (PODS, review(PODS, pod("early", cpu="3"), namespace="ns")), (QUEUES, deletion("default")),
    ]  # fmt: skip


def spoilt(chance: random.Random) -> tuple[str, dict[str, Any]]:
    handler, made = copy.deepcopy(chance.choice(seeds()))
    for _ in range(chance.randrange(1, 4)):
        request = made.get("request")
        inside = isinstance(request, dict) and chance.random() < 0.9
        whole = request.get("object") or request.get("oldObject") if inside and isinstance(request, dict) else made
        spoil(whole, chance)
    return (chance.choice(list(HANDLERS)) if chance.random() < 0.05 else handler), made


def decorated(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """A review that must be refused, with junk only where it means nothing."""
    handler, made = copy.deepcopy(chance.choice([seed for seed in seeds() if seed[0] != JOBS]))
    target = made["request"]["object"] or made["request"]["oldObject"]
    target["status"] = {"x": copy.deepcopy(chance.choice(HARMLESS))}
    target["metadata"]["managedFields"] = copy.deepcopy(chance.choice(HARMLESS))
    target["metadata"]["labels"] = {"a": "\u202e" * chance.randrange(100)}
    target["spec"]["unheardOf"] = copy.deepcopy(chance.choice(HARMLESS))
    made["request"]["options"] = copy.deepcopy(chance.choice(HARMLESS))
    return handler, made


ABSURD = ("1e9", "9E", "9007199254740993", "99999999999999999999", "1e999", "0.0000000001e30", "11" + "0" * 30)


@dataclass
class Sent:
    """A request as it is sent, its handler, the review if it is one, and the statuses that may answer it.

    `refused`: if it is answered with 200, then by a refusal.
    """

    raw: bytes
    handler: str
    made: dict[str, Any] | None
    statuses: frozenset[int]
    refused: bool = False


def requests(chance: random.Random) -> Iterator[Sent]:
    while True:
        draw = chance.random()
        if draw < 0.6:
            handler, made = spoilt(chance)
            yield Sent(http(json.dumps(made).encode(), handler), handler, made, frozenset({200, 400, 404}))
        elif draw < 0.75:
            handler, made = decorated(chance)
            yield Sent(http(json.dumps(made).encode(), handler), handler, made, frozenset({200}), refused=True)
        elif draw < 0.8:
            made = review(PODGROUPS, podgroup(cpu=chance.choice(ABSURD)), namespace="ns")
            yield Sent(http(json.dumps(made).encode()), PODGROUPS, made, frozenset({200}))
        elif draw < 0.87:
            handler, made = chance.choice(seeds())
            body = json.dumps(made).encode()
            yield Sent(http(body[: chance.randrange(len(body))], handler), handler, None, frozenset({400}))
        elif draw < 0.91:
            blurred = bytearray(json.dumps(seeds()[0][1]).encode())
            for _ in range(8):
                blurred[chance.randrange(len(blurred))] = chance.randrange(0x80, 0x100)
            yield Sent(http(bytes(blurred)), PODGROUPS, None, frozenset({400}))
        elif draw < 0.93:
            deep = chance.choice(['{"a":', "["]) * chance.choice([100, 5_000, 50_000])
            body = json.dumps(seeds()[0][1]).encode().replace(b'"c"', deep.encode())
            yield Sent(http(body), PODGROUPS, None, frozenset({400}))
        elif draw < 0.97:
            handler, made = decorated(chance)
            kind = chance.choice(["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "\x01"])
            raw = http(json.dumps(made).encode(), handler, kind)
            yield Sent(raw, handler, made, frozenset({200, 400}), refused=True)
        else:
            path = chance.choice(["", "x" * 4000, "%00", "podgroup-defaults/..", "..%2f", "%ff", PODGROUPS + "/more"])
            yield Sent(http(b"{}", path), path, None, frozenset({404, 400}))


# --- what must be refused ---------------------------------------------------------------------------------------------


def must_be_refused(handler: str, made: dict[str, Any]) -> bool:
    """By the API's own models, not the webhook's: a group that is right and too large, a queue that has groups."""
    request = made["request"]
    target = request.get("object") or request.get("oldObject")
    try:
        metadata = msgspec.convert(target["metadata"], Metadata)
    except msgspec.ValidationError:
        return False
    if handler == QUEUES:
        return bool(request["operation"] == "DELETE" and metadata.name == "default")
    if handler != PODGROUPS or request["operation"] != "CREATE" or metadata.namespace != "ns":
        return False
    try:
        cpu = PodGroupSpec.model_validate(target.get("spec")).model_dump(mode="json")["minResources"]["cpu"]
        return bool(parse_quantity("cpu", cpu) > 10_000)
    except (ValidationError, KeyError, TypeError, ValueError):
        return False  # the schema refuses it, or it asks for none


def judge(sent: Sent, status: int, answer: bytes) -> str:
    """What became of a request; fails where that must not be."""
    assert status in sent.statuses, (status, answer[:200], sent)
    if status != 200:
        return "malformed"
    assert sent.made is not None, answer
    response = json.loads(answer)["response"]
    assert response["uid"] == sent.made["request"]["uid"]
    if not response["allowed"]:
        assert response["status"]["code"] in {403, 422}, (response, sent)
        return "denied"
    assert not sent.refused, sent
    assert not must_be_refused(sent.handler, sent.made), sent
    if "patch" in response:
        assert isinstance(json.loads(base64.b64decode(response["patch"])), list)
    return "allowed"


def resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * 4096


@pytest.fixture
def collected() -> Iterator[None]:
    """Garbage is collected as in the webhook's own process, whatever another test has made of that."""
    before = gc.get_threshold()
    gc.set_threshold(*YOUNG_BESIDE_KOPF)
    yield
    gc.set_threshold(*before)


@pytest.mark.many
@pytest.mark.usefixtures("collected")
async def test_ten_thousand_hostile_requests_are_answered_and_none_is_let_through_wrongly(port: int) -> None:
    work = requests(random.Random(20261121))
    answered = {"malformed": 0, "allowed": 0, "denied": 0}
    count, after_warming = 0, 0

    async def one() -> None:
        nonlocal count, after_warming
        line = Line(port)
        while count < REQUESTS:
            count += 1
            sent = next(work)
            status, answer = await asyncio.wait_for(line.ask(sent.raw), 30)
            answered[judge(sent, status, answer)] += 1
            if count > REQUESTS // 3 and not after_warming:
                after_warming = resident()
        await line.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(one())
    assert sum(answered.values()) == REQUESTS
    assert min(answered.values()) > REQUESTS // 20, answered
    grown = resident() - after_warming
    assert grown < MOST_GROWN, f"{grown} bytes more than after a third of the requests"
