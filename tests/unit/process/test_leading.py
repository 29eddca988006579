"""From flags to a Lease: what health learns of it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from prometheus_client import CollectorRegistry

from kbatch.kube.client import Api
from kbatch.process.health import Health
from kbatch.process.leading import elector_of
from kbatch.process.run import Runtime
from kbatch.process.settings import LeaderSettings


def runtime(**flags: Any) -> Runtime[LeaderSettings]:
    settings = LeaderSettings(identity="me", lease_namespace="n", **flags)
    return Runtime("queue", settings, Health(), CollectorRegistry(), asyncio.Event())


async def test_who_takes_part_in_an_election_is_alive_as_long_as_its_task_tries() -> None:
    process = runtime()
    elector = elector_of(process, cast(Api, None))
    assert elector is not None
    assert process.health.names(ready=False) == ["lease"]
    assert process.health.failing_live() == {}
    elector._task = asyncio.create_task(asyncio.sleep(0))
    await elector._task
    assert process.health.failing_live() == {"lease": "the task that renews the Lease has ended"}


async def test_who_takes_part_in_none_has_no_such_check() -> None:
    process = runtime(leader_elect=False)
    assert elector_of(process, cast(Api, None)) is None
    assert process.health.names(ready=False) == []
