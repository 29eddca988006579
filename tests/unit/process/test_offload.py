"""Work beside the event loop: each owner has its turn, what nobody waits for is not begun, errors are the caller's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from kbatch.process.offload import Offload, rendering_budget


class Door:
    """A piece of work that keeps the thread until it is let go; what was done after it, in order."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.done: list[str] = []

    def work(self, name: str) -> Callable[[], str]:
        def work() -> str:
            self.done.append(name)
            return name

        return work


async def test_work_is_done_in_another_thread_and_answered() -> None:
    offload = Offload("test")
    assert await offload.run("a", threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await offload.run("a", lambda: 1 // 0)
    assert await offload.run("a", lambda: 7) == 7


async def test_owners_take_turns() -> None:
    offload, door = Offload("test"), Door()
    asked: list[asyncio.Task[object]] = [asyncio.create_task(offload.run("greedy", door.open.wait))]
    asked += [asyncio.create_task(offload.run("greedy", door.work(f"greedy {n}"))) for n in range(3)]
    asked += [asyncio.create_task(offload.run(name, door.work(name))) for name in ("b", "c")]
    await asyncio.sleep(0)
    door.open.set()
    await asyncio.gather(*asked)
    assert door.done == ["b", "c", "greedy 0", "greedy 1", "greedy 2"]


async def test_what_nobody_waits_for_is_not_begun() -> None:
    offload, door = Offload("test"), Door()
    first = asyncio.create_task(offload.run("a", door.open.wait))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await offload.run("a", door.work("late"))
    last = asyncio.create_task(offload.run("a", door.work("last")))
    await asyncio.sleep(0)
    door.open.set()
    await asyncio.gather(first, last)
    assert door.done == ["last"]


async def test_when_the_loop_ends_nobody_waits_for_ever() -> None:
    offload, door = Offload("test"), Door()
    asked = [asyncio.create_task(offload.run(name, door.open.wait)) for name in ("a", "b")]
    await asyncio.sleep(0)
    assert offload._busy is not None
    offload._busy.cancel()
    results = await asyncio.gather(*asked, return_exceptions=True)
    door.open.set()
    assert all(isinstance(result, asyncio.CancelledError) for result in results)


async def test_a_budget_counts_the_time_of_its_own_thread() -> None:
    assert await Offload("test").run("a", lambda: rendering_budget().serves_another())
