"""Jobs that come in turns while kbatch's processes are killed: the same end as if nothing had happened."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.e2e.scenarios.life import History, completed, job, role, roles, watched
from tests.e2e.scenarios.manifests import group, pod

if TYPE_CHECKING:
    from tests.e2e.scenarios.conftest import Installed

OWN_CLUSTER = True

JOBS = "/apis/batch/v1/namespaces/default/jobs"
PROCESSES = ("podgroup", "scheduler", "webhook", "queue")


def succeeded(kbatch: Installed) -> dict[str, int]:
    """How many pods of each group have succeeded; the test fails where any other pod is left."""
    found: dict[str, int] = {}
    for one in kbatch.items("pods"):
        assert one["status"]["phase"] == "Succeeded", one["metadata"]["name"]
        name = one["metadata"]["annotations"]["scheduling.k8s.io/group-name"]
        found[name] = found.get(name, 0) + 1
    return found


def check(kbatch: Installed, history: History, wanted: dict[str, int], room: int) -> None:
    """The end state, and what must have been true all the way."""
    kbatch.wait(
        "all groups have completed",
        lambda: {one["status"]["phase"] for one in kbatch.items("podgroups")} == {"Completed"},
        60,
    )
    assert succeeded(kbatch) == wanted
    assert not [one for one in history.early() if not one.startswith("gated")], "made by the test, not for the group"
    assert history.most_alive() <= room
    assert len({one["metadata"]["name"] for one in kbatch.items("podgroups")}) == len(wanted)


@pytest.mark.installed
def test_operators_killed_while_jobs_come_in_turns(kbatch: Installed) -> None:
    """Each process once, at a random moment; Jobs, a group with templates, and gated pods all end as they should."""
    kbatch.ensure_nodes(3)
    chance = random.Random(5)
    gated = [pod(f"gated-{index}", "gated") for index in range(3)]
    for one in gated:
        one["spec"]["schedulingGates"] = [{"name": "kbatch.dev/in-queue"}]
        one["metadata"]["annotations"]["simulate.kbatch.dev/duration"] = "1"
    with watched(kbatch) as history, kbatch.api() as api:
        api.post_all(JOBS, [job(f"turn-{n}", 4, "4", seconds="1") for n in range(16)])
        kbatch.apply(roles("team", role("w", 4, "4", seconds="1")), group("gated", 3))
        kbatch.create_all(gated)

        def further(than: int) -> bool:
            return len(history) >= than or history.groups("Completed") == 18

        for process in chance.sample(PROCESSES, len(PROCESSES)):
            more = len(history) + chance.randrange(1, 40)
            kbatch.wait("something has happened since", lambda more=more: further(more), 60)  # type: ignore[misc]
            kbatch.kill(process)
        kbatch.wait("all complete", lambda: len(completed(kbatch)) == 16, 120)
        # 96 cores; a pod of a Job asks for 4, a gated one for 1 and is made by the test.
        check(kbatch, history, {**{f"turn-{n}": 4 for n in range(16)}, "team": 4, "gated": 3}, 24 + 3)


@pytest.mark.long
def test_300_jobs_of_10_pods_in_room_for_20_while_processes_are_killed(kbatch: Installed) -> None:
    kbatch.ensure_nodes(3)
    chance = random.Random(7)
    with watched(kbatch) as history, kbatch.api() as api:
        api.post_all(JOBS, [job(f"s-{n:03}", 10, "480m", seconds="1") for n in range(300)])
        for process in (*PROCESSES, *PROCESSES):
            done = history.groups("Completed") + chance.randrange(5, 20)
            kbatch.wait("groups complete", lambda done=done: history.groups("Completed") >= done, 600)  # type: ignore[misc]
            kbatch.kill(process)
        kbatch.wait("all complete", lambda: history.groups("Completed") == 300, 1800)
        kbatch.wait("and so say their Jobs", lambda: len(completed(kbatch)) == 300)
        check(kbatch, history, {f"s-{n:03}": 10 for n in range(300)}, 200)
