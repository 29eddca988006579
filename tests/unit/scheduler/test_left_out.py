"""Each object that is left out has its Event, also where more of them come at once than Events may wait."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from kbatch.api.objects import AnyObject, Node, Pod
from kbatch.kube.events import EventRecorder, Regarding
from kbatch.kube.kinds import NODES, PODS
from kbatch.model.events import Unreadable
from operators.scheduler.left_out import LeftOut
from tests.unit.scheduler.fakes import FakeApi, until


def unreadable(name: str, kind: type[Any] = Pod, node: str = "") -> Unreadable:
    return Unreadable(kind, "" if kind is Node else "ns", name, f"uid-{name}", node, "memory: too large")


def written(api: FakeApi) -> list[dict[str, Any]]:
    return [dict(one.body) for one in api.made("POST", "/events")]


async def test_all_are_told_although_few_events_may_wait_and_others_crowd() -> None:
    api = FakeApi()
    crowd: dict[tuple[type[AnyObject], str], Unreadable] = {
        (Pod, f"ns/p{number}"): unreadable(f"p{number}") for number in range(100)
    }
    recorder = EventRecorder(api, controller="c", instance="i", capacity=8, rate=10_000.0)
    left_out = LeftOut(recorder, [PODS, NODES], crowd.get)
    for number in range(8):
        recorder.normal(Regarding("v1", "Pod", "ns", f"w{number}", "u"), "Waits", "Scheduling", "no room")
    for one in crowd.values():
        left_out.note(one)
    async with recorder:
        task = asyncio.create_task(left_out.run())
        await until(lambda: len(written(api)) == 108)
        task.cancel()
    told = {one["regarding"]["name"] for one in written(api) if one["reason"] == "Unreadable"}
    assert told == {one.name for one in crowd.values()}
    assert recorder.dropped == 0


async def test_who_is_gone_or_readable_meanwhile_is_not_told_of_and_the_last_word_counts() -> None:
    api = FakeApi()
    current: dict[tuple[type[AnyObject], str], Unreadable] = {
        (Pod, "ns/b"): unreadable("b", node="n"),
        (Node, "n"): unreadable("n", Node),
    }
    async with EventRecorder(api, controller="c", instance="i") as recorder:
        left_out = LeftOut(recorder, [PODS, NODES], current.get)
        for one in (unreadable("a"), unreadable("b"), unreadable("n", Node)):
            left_out.note(one)  # nobody tells yet: another replica leads
        task = asyncio.create_task(left_out.run())
        await until(lambda: len(written(api)) == 2)
        left_out.note(unreadable("b"))
        await until(lambda: recorder.remembered == 2)
        task.cancel()
    about = {one["regarding"]["name"]: one for one in written(api)}
    assert set(about) == {"b", "n"}
    assert "node n gets no more pods" in about["b"]["note"]
    assert about["n"]["regarding"]["kind"] == "Node"
    assert json.dumps(about["n"]).count("memory: too large") == 1
