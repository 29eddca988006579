"""The queue of keys that want work."""

from __future__ import annotations

import asyncio
import sys

import pytest

from kbatch.process.workqueue import WorkQueue


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def soon(queue: WorkQueue) -> str:
    return await asyncio.wait_for(queue.get(), 5)


async def nothing(queue: WorkQueue) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 0.02)


async def test_many_hints_are_one_piece_of_work() -> None:
    queue = WorkQueue()
    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert len(queue) == 2
    assert [await soon(queue), await soon(queue)] == ["a", "b"]
    await nothing(queue)


async def test_a_key_in_work_comes_again_afterwards_and_not_before() -> None:
    queue = WorkQueue()
    queue.add("a")
    assert await soon(queue) == "a"
    queue.add("a")
    await nothing(queue)
    queue.done("a")
    assert await soon(queue) == "a"
    queue.done("a")
    await nothing(queue)
    assert len(queue) == 0


async def test_within_the_gap_hints_wait_and_are_served_together() -> None:
    clock = Clock()
    queue = WorkQueue(gap=10.0, clock=clock)
    queue.add("a")
    assert await soon(queue) == "a"
    queue.done("a")
    queue.add("a")
    queue.add("a")
    clock.now += 9.9
    await nothing(queue)
    clock.now += 0.2
    assert await soon(queue) == "a"
    queue.done("a")
    await nothing(queue)


async def test_the_gap_of_one_key_holds_up_no_other() -> None:
    queue = WorkQueue(gap=1000.0)
    queue.add("a")
    assert await soon(queue) == "a"
    queue.done("a")
    queue.add("a")
    queue.add("b")
    assert await soon(queue) == "b"


async def test_work_can_be_wanted_later_and_an_earlier_wish_wins() -> None:
    clock = Clock()
    queue = WorkQueue(clock=clock)
    queue.add("a", delay=50.0)
    queue.add("b")
    assert await soon(queue) == "b"
    queue.done("b", again_in=30.0)
    await nothing(queue)
    queue.add("a", delay=5.0)
    clock.now += 6.0
    assert await soon(queue) == "a"
    queue.done("a")
    clock.now += 25.0
    assert await soon(queue) == "b"


async def test_a_waiting_worker_wakes_for_a_new_key() -> None:
    queue = WorkQueue()
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    assert await asyncio.wait_for(waiting, 5) == "a"


async def test_several_workers_never_share_a_key() -> None:
    queue = WorkQueue()
    busy: set[str] = set()
    finished: list[str] = []
    idle = asyncio.Event()

    async def work() -> None:
        while True:
            key = await queue.get()
            assert key not in busy
            busy.add(key)
            await asyncio.sleep(0)
            busy.discard(key)
            queue.done(key)
            finished.append(key)
            if not len(queue):
                idle.set()

    tasks = [asyncio.create_task(work()) for _ in range(4)]
    for number in range(200):
        queue.add(f"k{number % 7}")
        if number % 3 == 0:
            await asyncio.sleep(0)
    idle.clear()
    queue.add("k0")
    await asyncio.wait_for(idle.wait(), 5)
    assert set(finished) == {f"k{number}" for number in range(7)}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_wishes_that_were_overtaken_do_not_pile_up() -> None:
    now = 0.0
    queue = WorkQueue(clock=lambda: now)
    for _ in range(5000):  # a group that is to go in a week, and is looked at each time that it changes
        queue.add("a")
        assert await queue.get() == "a"
        queue.done("a", again_in=604_800)
        now += 1
    assert sys.getsizeof(queue._heap) < 30_000
    now += 604_800
    assert await queue.get() == "a"
