"""What every operator shares: kopf's handlers reach the process's own loop, also while it ends."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

from kbatch.kube.client import Api, Client
from kbatch.process.operator import Ground
from kbatch.process.run import Runtime
from kbatch.process.settings import LeaderSettings


def ground(loop: asyncio.AbstractEventLoop) -> Ground[LeaderSettings]:
    nothing: Any = None
    return Ground(cast(Runtime[LeaderSettings], nothing), cast(Client, nothing), cast(Api, nothing), loop)


async def test_what_a_handler_says_in_its_thread_is_heard_in_the_loop() -> None:
    heard: asyncio.Queue[tuple[str, threading.Thread]] = asyncio.Queue()
    say = ground(asyncio.get_running_loop()).crossing(
        lambda word, *, twice: heard.put_nowait((word * (1 + twice), threading.current_thread()))
    )
    await asyncio.to_thread(say, "a", twice=True)
    assert await asyncio.wait_for(heard.get(), 5) == ("aa", threading.current_thread())


def test_what_is_said_after_the_end_is_lost_without_a_complaint() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    ground(loop).crossing(print)("too late")
