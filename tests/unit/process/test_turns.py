"""The selector that lets events gather: when it looks, when it waits, and that a loop on it loses nothing."""

from __future__ import annotations

import asyncio
import selectors
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from kbatch.process.memory import READ_BYTES
from kbatch.process.turns import GatheringSelector, run


@dataclass
class Time:
    """A clock that moves when somebody sleeps."""

    now: float = 100.0
    slept: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        self.now += seconds


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    with near, far:
        yield near, far


def selector(time: Time, near: socket.socket) -> GatheringSelector:
    made = GatheringSelector(0.005, clock=lambda: time.now, sleep=time.sleep)
    made.register(near, selectors.EVENT_READ)
    return made


def test_an_idle_selector_tells_at_once(ends: tuple[socket.socket, socket.socket]) -> None:
    time = Time()
    with selector(time, ends[0]) as looking:
        assert looking.select(0) == []
        ends[1].send(b"x")
        assert len(looking.select(None)) == 1
        assert time.slept == []


def test_after_a_find_the_next_look_waits(ends: tuple[socket.socket, socket.socket]) -> None:
    time = Time()
    with selector(time, ends[0]) as looking:
        ends[1].send(b"x")
        assert looking.select(None)
        time.now += 0.001
        assert looking.select(0) == []  # a loop with work to do goes on with it, without a look
        assert time.slept == []
        assert len(looking.select(None)) == 1  # one without waits for the rest of the time, then sees it
        assert time.slept == [0.004]


def test_where_more_lies_than_one_read_takes_nothing_is_waited_for(ends: tuple[socket.socket, socket.socket]) -> None:
    time = Time()
    with selector(time, ends[0]) as looking:
        ends[1].send(b"x")
        assert looking.select(None)
        ends[1].send(bytes(READ_BYTES - 1))
        assert len(looking.select(None)) == 1
        assert time.slept == [0.005]  # the first look says nothing of what is to come
        time.slept.clear()
        assert len(looking.select(None)) == 1
        assert time.slept == []
        assert len(looking.select(0)) == 1  # of a connection that was rich once this is asked in a busy loop, too
        ends[0].recv(READ_BYTES)
        ends[1].send(bytes(READ_BYTES - 1))
        assert looking.select(0) == []
        assert len(looking.select(None)) == 1
        assert time.slept == [0.005]


def test_a_connection_that_was_closed_has_nothing(ends: tuple[socket.socket, socket.socket]) -> None:
    time = Time()
    with selector(time, ends[0]) as looking:
        ends[1].send(b"x")
        assert looking.select(None)
        looking.unregister(ends[0])
        ends[0].close()
        assert looking.select(0.001) == []
        assert time.slept == [0.001]


def test_a_timer_that_is_due_before_is_not_kept_waiting(ends: tuple[socket.socket, socket.socket]) -> None:
    time = Time()
    with selector(time, ends[0]) as looking:
        ends[1].send(b"x")
        assert looking.select(None)
        assert looking.select(0.002) == []
        assert time.slept == [0.002]
        assert len(looking.select(1.0)) == 1
        assert time.slept == [0.002, 0.003]


def test_a_look_that_finds_nothing_delays_nothing(ends: tuple[socket.socket, socket.socket]) -> None:
    time = Time()
    with selector(time, ends[0]) as looking:
        for _ in range(3):
            assert looking.select(0) == []
        ends[1].send(b"x")
        assert len(looking.select(0)) == 1
        assert time.slept == []


@pytest.mark.parametrize("gather", [0.005, 0.05])
def test_a_loop_on_it_carries_bytes_timers_and_threads(gather: float) -> None:
    ended = asyncio.Event()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()
        await writer.wait_closed()
        ended.set()

    async def main() -> tuple[bytes, str]:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
            for number in range(10):
                writer.write(bytes([number]))
                await asyncio.sleep(0)
            answer = await asyncio.wait_for(reader.readexactly(10), 5)
            writer.close()
            await writer.wait_closed()
            await asyncio.wait_for(ended.wait(), 5)
        return answer, await asyncio.wait_for(asyncio.to_thread(lambda: "from a thread"), 5)

    assert run(main(), gather) == (bytes(range(10)), "from a thread")
