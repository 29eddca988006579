"""The life of a process, and of its leadership."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Self

import pytest
from prometheus_client import CollectorRegistry

from kbatch.kube.errors import CredentialsError
from kbatch.process import run as running
from kbatch.process.health import Health
from kbatch.process.run import LeadershipLostError, ProcessError, Runtime, before_stop, run, while_leading
from kbatch.process.settings import ProcessSettings

SETTINGS = ProcessSettings(health_port=0, metrics_port=0)


def runtime() -> Runtime[ProcessSettings]:
    return Runtime("example", SETTINGS, Health(), CollectorRegistry(), asyncio.Event())


async def test_a_signal_stops_it_with_status_0() -> None:
    ended = asyncio.Event()

    async def serve(this: Runtime[ProcessSettings]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await this.stopping.wait()
        ended.set()

    asked = []
    assert await run("example", SETTINGS, serve, on_stop=lambda: asked.append(1)) == 0
    assert ended.is_set()
    assert asked == [1]


async def test_work_that_does_not_stop_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "STOP_SECONDS", 0.05)
    cancelled = asyncio.Event()

    async def serve(this: Runtime[ProcessSettings]) -> None:
        this.stopping.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    assert await run("example", SETTINGS, serve) == 0
    assert cancelled.is_set()


async def test_work_that_refuses_to_end_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "STOP_SECONDS", 0.05)
    monkeypatch.setattr(running, "CANCEL_SECONDS", 0.05)
    release = asyncio.Event()

    async def serve(this: Runtime[ProcessSettings]) -> None:
        this.stopping.set()
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    assert await run("example", SETTINGS, serve) == 1
    release.set()
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("error", "traceback"),
    [
        (ProcessError("the Lease was lost"), False),
        (CredentialsError("no credentials"), False),
        (ExceptionGroup("tasks", [ProcessError("kopf ended: x")]), False),
        (ExceptionGroup("tasks", [ProcessError("kopf ended: x"), KeyError("defect")]), True),
        (KeyError("defect"), True),
    ],
)
async def test_a_failure_is_status_1_with_a_sentence_or_a_traceback(
    error: Exception, *, traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(_: Runtime[ProcessSettings]) -> None:
        raise error

    with caplog.at_level(logging.ERROR):
        assert await run("example", SETTINGS, serve) == 1
    (record,) = caplog.records
    assert bool(record.exc_info) is traceback


async def test_work_that_ends_unasked_is_a_failure() -> None:
    async def serve(_: Runtime[ProcessSettings]) -> None:
        return

    assert await run("example", SETTINGS, serve) == 1


def test_main_exits_although_a_thread_hangs() -> None:
    program = """
import asyncio, os, signal, threading
from kbatch.process.run import main
from kbatch.process.settings import ProcessSettings
threading.Thread(target=threading.Event().wait).start()
async def serve(this):
    os.kill(os.getpid(), signal.SIGTERM)
    await this.stopping.wait()
main("example", ProcessSettings, serve, ["--health-port=0", "--metrics-port=0"])
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "stopping on SIGTERM" in ran.stderr


# --- leadership -------------------------------------------------------------------------------------------------------


class FakeLeadership:
    """A Lease that a test holds in its hand."""

    def __init__(self, story: list[str]) -> None:
        self.story = story
        self.held = asyncio.Event()
        self.lost = asyncio.Event()

    @property
    def is_leader(self) -> bool:
        return self.held.is_set() and not self.lost.is_set()

    async def wait_leader(self) -> None:
        await self.held.wait()

    async def stop(self) -> None:
        self.story.append("stands no more")

    async def __aenter__(self) -> Self:
        self.story.append("joined")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.story.append("released")


def worker(story: list[str], stopping: asyncio.Event, started: asyncio.Event) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        story.append("works")
        started.set()
        try:
            await stopping.wait()
        finally:
            story.append("ended")

    return work


async def test_the_work_begins_with_the_lease_and_ends_before_its_release() -> None:
    this, story, started = runtime(), list[str](), asyncio.Event()
    leadership = FakeLeadership(story)
    task = asyncio.create_task(while_leading(this, leadership, worker(story, this.stopping, started)))
    await asyncio.sleep(0)
    assert story == ["joined"]
    leadership.held.set()
    await asyncio.wait_for(started.wait(), 5)
    this.stopping.set()
    await asyncio.wait_for(task, 5)
    assert story == ["joined", "works", "ended", "released"]


async def test_a_lost_lease_cancels_the_work_and_is_an_error() -> None:
    this, story, started = runtime(), list[str](), asyncio.Event()
    leadership = FakeLeadership(story)
    leadership.held.set()
    task = asyncio.create_task(while_leading(this, leadership, worker(story, this.stopping, started)))
    await asyncio.wait_for(started.wait(), 5)
    leadership.lost.set()
    with pytest.raises(LeadershipLostError):
        await asyncio.wait_for(task, 5)
    assert story == ["joined", "works", "stands no more", "ended", "released"]


async def test_a_standby_stops_without_having_worked() -> None:
    this, story = runtime(), list[str]()
    leadership = FakeLeadership(story)
    task = asyncio.create_task(while_leading(this, leadership, worker(story, this.stopping, asyncio.Event())))
    this.stopping.set()
    await asyncio.wait_for(task, 5)
    assert story == ["joined", "released"]


async def test_an_error_of_the_work_comes_through_after_the_release() -> None:
    this, story = runtime(), list[str]()
    leadership = FakeLeadership(story)
    leadership.held.set()

    async def work() -> None:
        raise ProcessError("no")

    with pytest.raises(ProcessError, match="no"):
        await asyncio.wait_for(while_leading(this, leadership, work), 5)
    assert story == ["joined", "released"]


async def test_before_stop_says_which_came_first() -> None:
    stopping = asyncio.Event()
    assert await before_stop(asyncio.sleep(0), stopping) is True
    stopping.set()
    assert await before_stop(asyncio.Event().wait(), stopping) is False
