"""Of more evictions in an hour than a Queue's status can hold, the newest are kept: of these the limit is counted."""

from __future__ import annotations

from kbatch.api.queue import MOST_EVICTIONS
from kbatch.times import HOUR, SECOND, rfc3339_us
from operators.scheduler.evicted_groups import EvictedGroups
from tests.unit.scheduler.fakes import FakeApi

AT = 1_800_000_000 * SECOND


async def test_the_newest_evictions_are_kept() -> None:
    api = FakeApi()
    groups = EvictedGroups(api)
    assert await groups.write({"q": [AT + number for number in range(MOST_EVICTIONS)]})
    assert await groups.write({"q": [AT + HOUR // 2]})
    told = api.calls[-1].body["status"]["evicted"]
    assert (len(told), told[0], told[-1]) == (MOST_EVICTIONS, rfc3339_us(AT + 1), rfc3339_us(AT + HOUR // 2))
