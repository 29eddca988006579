"""What a flood costs the neighbour in time: his gangs' p99, beside the same while as many ConfigMaps are written.

A flood of ConfigMaps is nothing of kbatch's: it costs whoever uses the same API server, on the same machine. Floods and
ConfigMaps take turns, at the same rate, so that a busy machine is as busy for both.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from kbatch.localcluster.errors import ApiError
from tests.e2e.tenant.floods import FLOODS, config_maps_made_and_deleted
from tests.e2e.tenant.stream import LINES, Measured, percentile

if TYPE_CHECKING:
    from tests.e2e.tenant.tenant import Tenant

pytestmark = [pytest.mark.tenant, pytest.mark.long]

TURNS = 3
SECONDS = 10.0
"""Of one turn, for the flood and for ConfigMaps each."""
RATE = 8.0
"""Objects a second that are made and deleted, by all senders together."""
SENDERS = 4
AT_ONCE = 3
"""Gangs of the neighbour at one time."""
MOST = 2.0
"""How many times as long as beside ConfigMaps his p99 may be."""

Act = Callable[["Tenant", int], None]


def flood(tenant: Tenant, act: Act, first: int) -> int:
    """Make and delete objects at a given rate for a turn's time; how many it were."""
    begin, done = time.monotonic(), threading.Semaphore(0)

    def sender(own: int) -> None:
        for turn in range(int(RATE * SECONDS / SENDERS)):
            due = begin + (turn * SENDERS + own) / RATE
            time.sleep(max(0.0, due - time.monotonic()))  # the rate is what is asked for, not a wait for something
            if time.monotonic() > begin + SECONDS:
                return
            try:
                act(tenant, first + turn * SENDERS + own)
            except ApiError as error:
                if error.status not in {404, 409, 429}:
                    raise
            done.release()

    with ThreadPoolExecutor(SENDERS) as pool:
        for one in [pool.submit(sender, own) for own in range(SENDERS)]:
            one.result()
    return done._value


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_costs_the_neighbour_at_most_twice_what_config_maps_do(tenant: Tenant, name: str) -> None:
    acts = {name: FLOODS[name], "ConfigMaps": config_maps_made_and_deleted}
    measured, sent = {what: Measured() for what in acts}, dict.fromkeys(acts, 0)
    for turn in range(TURNS):
        for what, act in acts.items():
            with tenant.stream.running(AT_ONCE) as found:
                sent[what] += flood(tenant, act, turn * 100_000)
            measured[what].seconds += found.seconds
            measured[what].lost += found.lost
            tenant.clean()
    for what in acts:
        LINES.append(f"{name}, {what}: {sent[what]} made and deleted; {measured[what]}")
    beside, own = (percentile(measured[what].seconds, 0.99) for what in ("ConfigMaps", name))
    assert not measured[name].lost
    assert sent[name] >= 0.8 * sent["ConfigMaps"], "it was a flood"
    assert own <= MOST * beside, f"p99 {own:.2f} s beside {name}, {beside:.2f} s beside ConfigMaps"
