"""What came and went leaves nothing behind: the operator's memory follows what exists, not what ever was."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from kbatch.api.objects import Metadata, Pod, PodGroup, PodGroupSpec, PodGroupStatus, SubGroup
from kbatch.kube.errors import ApiError
from kbatch.metrics import ReconcileMetrics
from kbatch.model.events import Delete, Upsert
from operators.podgroup.controller import Controller
from operators.podgroup.member_index import MemberIndex
from operators.podgroup.podwrites import PARALLEL, UNSEEN_SECONDS, PodWrites, Sent
from tests.unit.podgroup.build import NOW, condition, group, pod

TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "c"}]}}


class Server:
    """Takes every write; statuses are laid over the group as it was seen last. Groups in `gone` are not found."""

    def __init__(self) -> None:
        self.index = MemberIndex()
        self.pods: dict[str, Any] = {}
        self.gone: set[str] = set()
        self.version = 100

    async def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        self.version += 1
        name = path.removesuffix("/status").rpartition("/")[2]
        if name in self.gone:
            raise ApiError(404, "NotFound")
        if method == "POST":
            self.pods[body["metadata"]["name"]] = body
            return json.dumps(body).encode()
        if method == "DELETE" or "/pods/" in path:
            return b"{}"
        held = msgspec.to_builtins(self.index.groups[f"ns/{name}"])
        held["metadata"]["resourceVersion"] = str(self.version)
        held["status"] = {**held["status"], **body["status"]}
        return json.dumps(held).encode()

    def stream(self, *_: Any, **__: Any) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        raise NotImplementedError


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def controller(server: Server) -> Controller:
    made = Controller(server, ReconcileMetrics(CollectorRegistry()), now=lambda: NOW)
    server.index = made.index
    return made


def templated(name: str) -> PodGroup:
    return PodGroup(
        metadata=Metadata(namespace="ns", name=name, uid=f"uid-{name}", resource_version="1", generation=1),
        spec=PodGroupSpec(sub_groups=(SubGroup(name="w", min_member=2, template=TEMPLATE),)),
        status=PodGroupStatus(conditions=(condition("Enqueued"), condition("Scheduled", "False"))),
    )


async def work(controller: Controller) -> None:
    """Work on what is wanted now; what is to be looked at again some seconds later is left."""
    for key in [*controller.queue._due]:
        controller.queue._due.pop(key)
        await controller.reconcile(key)


async def test_groups_that_lived_and_are_deleted_leave_nothing(server: Server, controller: Controller) -> None:
    for number in range(20):
        name = f"g{number}"
        controller.hint(Upsert(templated(name)))
        await work(controller)
        assert {f"{name}-w-0", f"{name}-w-1"} <= server.pods.keys()
        for phase in ("Running", "Succeeded"):
            for one in (f"{name}-w-0", f"{name}-w-1"):
                seen = msgspec.convert({**server.pods[one], "status": {"phase": phase}}, Pod)
                seen.metadata.uid = f"uid-{one}"
                controller.hint(Upsert(seen))
            await work(controller)
        assert controller.remembered() > 0
        for one in (f"{name}-w-0", f"{name}-w-1"):
            controller.hint(Delete(Pod, "ns", one))
        controller.hint(Delete(PodGroup, "ns", name))
        await work(controller)
        await work(controller)
    assert controller.remembered() == 0
    assert not [name for name, held in vars(controller.index).items() if isinstance(held, dict) and held]


async def test_a_group_that_a_write_does_not_find_is_forgotten_though_no_watch_tells_of_it(
    server: Server, controller: Controller
) -> None:
    of = templated("g")
    controller.hint(Upsert(of))
    await work(controller)
    assert controller.remembered() > 0
    server.gone.add("g")
    controller.hint(Upsert(pod("x", "Running", node="n", named="g")))
    await work(controller)
    controller.hint(Delete(PodGroup, "ns", "g"))
    controller.hint(Delete(Pod, "ns", "x"))
    for name in ("g-w-0", "g-w-1"):
        controller.hint(Delete(Pod, "ns", name))
    await work(controller)
    assert controller.remembered() == 0


async def test_an_answer_that_comes_after_the_group_was_deleted_brings_it_back_not(
    server: Server, controller: Controller
) -> None:
    answer = server.request

    async def late(method: str, path: str, *, body: Any = None, **more: Any) -> bytes:
        answered = await answer(method, path, body=body, **more)
        controller.hint(Delete(PodGroup, "ns", "pg"))
        return answered

    server.request = late  # type: ignore[method-assign]
    controller.hint(Upsert(group(1)))
    await work(controller)
    await work(controller)
    assert not controller.index.groups
    assert controller.remembered() == 0


async def test_what_was_sent_for_pods_that_no_watch_ever_shows_is_forgotten_in_time() -> None:
    now = 0.0
    writes = PodWrites(lambda: now)

    async def gone() -> None:
        raise ApiError(404, "NotFound")

    for number in range(100):
        now = float(number)
        assert await writes.send(f"ns/p{number}", Sent.DELETE, gone, over=(404,)) is not None
        assert len(writes) <= UNSEEN_SECONDS + 2
    assert writes.unseen("ns/p99") is Sent.DELETE
    assert writes.unseen("ns/p0") is None


async def test_so_many_writes_are_on_the_wire_and_no_more() -> None:
    writes, under_way, most = PodWrites(), 0, 0

    async def slow() -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1

    await asyncio.gather(*(writes.send(f"ns/p{number}", Sent.CREATE, slow) for number in range(3 * PARALLEL)))
    assert most == PARALLEL


async def test_a_group_that_is_made_anew_while_its_name_is_worked_on_gets_no_pods_in_its_turn() -> None:
    anew = templated("g")
    anew.metadata.uid, anew.metadata.resource_version, anew.status = "anew", "900", PodGroupStatus()

    class Meanwhile(Server):
        async def request(self, method: str, path: str, *, body: Any = None, **more: Any) -> bytes:
            answer = await super().request(method, path, body=body, **more)
            if path.endswith("/g/status") and self.index.groups["ns/g"].metadata.uid != "anew":
                made.hint(Delete(PodGroup, "ns", "g"))
                made.hint(Upsert(anew))
            return answer

    server = Meanwhile()
    made = Controller(server, ReconcileMetrics(CollectorRegistry()), now=lambda: NOW)
    server.index = made.index
    made.hint(Upsert(templated("g")))
    await made.reconcile("ns/g")
    assert made.index.groups["ns/g"].metadata.uid == "anew"
    assert server.pods == {}
    await work(made)
    assert server.pods == {}, "it is not in queue"
