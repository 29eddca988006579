"""Elastic groups on the real control plane: a file of its own, since a role that lost pods rests for a minute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.e2e.scenarios.life import completed, job, reasons, role, roles, watched
from tests.e2e.scenarios.manifests import queue

if TYPE_CHECKING:
    from tests.e2e.scenarios.conftest import Installed


def test_an_elastic_group_grows_gives_pods_back_and_grows_again(kbatch: Installed) -> None:
    """Twelve pods of 8 cores fill the three nodes; another queue deserves half of them as soon as it asks."""
    kbatch.ensure_nodes(3)

    def running() -> dict[str, int]:
        found = kbatch.get("podgroup", "team").get("status", {}).get("subGroups", [])
        return {one["name"]: one.get("running", 0) for one in found}

    kbatch.apply(queue("elastic"), queue("owed"))
    with watched(kbatch) as history:
        kbatch.apply(roles("team", role("ps", 1, "8"), role("worker", 2, "8", most=11), queue="elastic"))
        kbatch.wait("it has its maximum", lambda: running() == {"ps": 1, "worker": 11}, 60)
        kbatch.apply(job("claim", 6, "8", queue="owed", seconds="5"))
        kbatch.wait_phase("claim", "Running")
        kbatch.wait("it has given back what was claimed", lambda: running() == {"ps": 1, "worker": 5})
        kbatch.wait("the work has ended", lambda: completed(kbatch) == ["claim"], 60)
        # A role that lost pods rests for a minute before it grows again.
        kbatch.wait("it has its maximum again", lambda: running() == {"ps": 1, "worker": 11}, 120)
        phases = history.phases("team")
    assert phases[phases.index("Running") :] == ["Running"], "it ran all the time"
    assert "Evicted" in reasons(kbatch, "PodGroup", "team")
