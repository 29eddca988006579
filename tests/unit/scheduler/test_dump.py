"""What a dump lists of the scheduler's picture."""

from __future__ import annotations

import asyncio

from kbatch.api.objects import Pod
from kbatch.engine import CycleState
from kbatch.engine.state.cycle_state import Failing, GatheredRoom, PromisedStart
from kbatch.kube.pauses import Pauses
from kbatch.model.events import Unreadable
from operators.scheduler.dump import parts_of
from tests.unit.scheduler.fakes import FakeApi, cache_with, group, node, pod, queue, told, until
from tests.unit.scheduler.test_dispatch import binding, dispatching


def test_what_is_assumed_evicted_refused_planned_and_reserved() -> None:
    cache = cache_with(queue(), group(), node("n"), pod("a"), pod("b"), pod("c", node="n"))
    cache.assume("ns/a", "uid-a", "n")
    cache.evicting("ns/c", "uid-c")
    cache.refuse_bind("ns/b", "uid-b", "n", 60, "no")
    cache.receive(told(Unreadable(Pod, "ns", "odd", "uid-odd", "", "no")))
    state = CycleState(
        planned=(PromisedStart("ns/p", 7, (("ns/p-0", "n"),)),),
        gathered=GatheredRoom("ns/old", (("ns/old-0", "n"), ("ns/old-1", "m"))),
        binding=("ns/g",),
        failing={"ns/f": Failing("KeyError", "allocate", 2, 9)},
    )
    said = {name: list(part()) for name, part in parts_of(cache, lambda: state).items()}
    assert said == {
        "pods assumed": ["ns/a=n"],
        "evictions": ["ns/c"],
        "groups not written yet": [],
        "objects left out": ["Pod ns/odd"],
        "binds refused": ["ns/b=n"],
        "evictions refused": [],
        "starts planned": ["ns/p at 7: ns/p-0=n"],
        "room reserved": ["ns/old: ns/old-0=n ns/old-1=m"],
        "gangs being bound": ["ns/g"],
        "groups that fail": ["ns/f 2 times in allocate of KeyError, until 9"],
    }


async def test_binds_that_wait_are_listed_with_their_nodes() -> None:
    api = FakeApi(gate=asyncio.Event())
    async with dispatching(api, cache_with(node("n"), pod("a"), pod("b")), parallelism=1) as dispatcher:
        dispatcher.submit(binding("a"))
        dispatcher.submit(binding("b"))
        await until(lambda: api.open_ == 1)
        said = {name: list(part()) for name, part in dispatcher.parts().items()}
        assert said["binds waiting"] == ["ns/b=n"]
        assert said["plans"] == []
        assert api.gate is not None
        api.gate.set()
        await until(lambda: dispatcher.in_flight == 0)


def test_pauses_say_what_is_paused_and_for_how_long() -> None:
    now = 0.0
    pauses = Pauses(lambda: now)
    wait = pauses.failed("ns/g")
    assert list(pauses.described()) == [f"ns/g for {wait:.1f} s"]
    now = wait + 1
    assert list(pauses.described()) == []
