"""Pods say Unschedulable only of a lack that lasts: autoscalers add nodes for each that does."""

from __future__ import annotations

import asyncio

from kbatch.engine import Report
from tests.unit.scheduler.fakes import FakeApi, cache_with, finish, group, pod, queue, until
from tests.unit.scheduler.test_pods import reporting, verdict


async def test_nothing_is_written_before_the_lack_has_lasted() -> None:
    api, cache = FakeApi(), cache_with(queue(), group(minimum=2), pod("a"))
    async with reporting(api, cache, lasting=1.0) as reporter:
        finish(reporter.report(Report(verdict(lacks_capacity=True))))
        await asyncio.sleep(0.5)
        assert (api.calls, reporter.pending) == ([], 1), "a gang on its way to its nodes would say it"
        await until(lambda: len(api.calls) == 1 and not reporter.pending)
