"""Writes side by side, spaced where they should be, and a pause after a failure."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from operators.scheduler.write_loop import Write, WriteLoop
from tests.unit.scheduler.fakes import until


class Bench:
    """Numbered writes that end when they are let go."""

    def __init__(self, due: int) -> None:
        self.due = due
        self.begun: list[int] = []
        self.gates: dict[int, asyncio.Future[bool]] = {}
        self.limit = 2
        self.again: float | None = None

    def next(self) -> Write | None:
        if not self.due:
            return None
        self.due -= 1
        number = len(self.begun)
        self.begun.append(number)
        self.gates[number] = asyncio.get_running_loop().create_future()
        return Write(f"write {number}", self._carry_out(number))

    async def _carry_out(self, number: int) -> bool:
        return await self.gates[number]

    def end(self, number: int, *, well: bool = True) -> None:
        self.gates[number].set_result(well)


@contextlib.asynccontextmanager
async def running(
    bench: Bench, *, apart: Callable[[], float] = lambda: 0.0, pause: float = 0.001
) -> AsyncIterator[WriteLoop]:
    loop = WriteLoop(
        bench.next, at_once=lambda: bench.limit, look_again=lambda: bench.again, apart=apart, first_pause=pause
    )
    task = asyncio.create_task(loop.run())
    try:
        yield loop
        assert not task.done()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_no_more_are_on_the_wire_than_may_be() -> None:
    bench = Bench(4)
    async with running(bench):
        await until(lambda: len(bench.begun) == 2)
        bench.end(1)
        await until(lambda: len(bench.begun) == 3)
        bench.limit = 3
        bench.end(0)
        await until(lambda: len(bench.begun) == 4)


async def test_it_asks_again_when_it_is_woken_and_after_a_time() -> None:
    bench = Bench(0)
    async with running(bench) as loop:
        await asyncio.sleep(0)
        bench.due = 1
        loop.wake()
        await until(lambda: len(bench.begun) == 1)
        bench.due, bench.again = 1, 0.001
        bench.end(0)
        await until(lambda: len(bench.begun) == 2)


async def test_after_a_failure_nothing_is_begun_for_a_moment() -> None:
    bench = Bench(1)
    async with running(bench, pause=60.0) as loop:
        await until(lambda: len(bench.begun) == 1)
        bench.end(0, well=False)
        bench.due = 1
        loop.wake()
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(bench.begun) == 1


async def test_they_begin_one_by_one_where_they_are_spaced() -> None:
    bench = Bench(5)
    bench.limit = 5
    spaces: list[int] = []

    def apart() -> float:
        spaces.append(len(bench.begun))
        return 0.001

    async with running(bench, apart=apart):
        await until(lambda: len(bench.begun) == 5)
    assert spaces[:5] == [0, 1, 2, 3, 4]


async def test_what_is_on_the_wire_ends_with_it() -> None:
    bench = Bench(1)
    async with running(bench):
        await until(lambda: len(bench.begun) == 1 and 0 in bench.gates)
        await asyncio.sleep(0)
    await until(bench.gates[0].cancelled)
