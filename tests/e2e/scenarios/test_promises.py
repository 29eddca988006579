"""What a group in queue was promised of a quota before its pods exist: the group first, its Job after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.scenarios.life import completed, job, watched
from tests.e2e.scenarios.manifests import group

if TYPE_CHECKING:
    from tests.e2e.scenarios.conftest import Installed

GROUPS = "/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/default/podgroups"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
GANG = 10
PLACES = 20


def quota(**hard: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "places", "namespace": "default"},
        "spec": {"hard": hard},
    }


def in_turns(kbatch: Installed, jobs: int, seconds: float, kills: tuple[str, ...] = ()) -> None:
    """So many gangs, each made before its Job and without minResources, in a quota that holds two of them."""
    names = [f"turn-{number:02}" for number in range(jobs)]
    kbatch.apply(quota(**{"requests.cpu": str(PLACES)}))
    try:
        with watched(kbatch) as history, kbatch.api() as api:
            for name in names:
                api.post_all(GROUPS, [group(name, GANG)])
                api.post_all(JOBS, [job(name, GANG, "1", group=name, seconds="4")])
            for number, process in enumerate(kills, start=1):
                done = number * jobs // (len(kills) + 1)
                kbatch.wait("some are done", lambda done=done: history.groups("Completed") >= done, seconds)  # type: ignore[misc]
                kbatch.kill(process)
            kbatch.wait("all complete", lambda: len(completed(kbatch)) == jobs, seconds)
            assert history.most_promised(GANG) <= PLACES // GANG
            assert history.most_alive() == PLACES, "all places are used, and no more"
        refused = [one for one in kbatch.items("events") if one["reason"] == "FailedCreate"]
        assert refused == []
    finally:
        kbatch.run("delete", "resourcequota", "places")


def test_gangs_made_before_their_jobs_come_in_turns_within_a_quota(kbatch: Installed) -> None:
    in_turns(kbatch, 4, 30)


@pytest.mark.long
def test_twelve_gangs_made_before_their_jobs_are_done_in_75_seconds(kbatch: Installed) -> None:
    in_turns(kbatch, 12, 75)


@pytest.mark.long
def test_twelve_gangs_made_before_their_jobs_while_each_process_is_killed_once(kbatch: Installed) -> None:
    kills = ("scheduler", "podgroup", "webhook", "queue")
    in_turns(kbatch, 12, 75 + 20 * len(kills), kills)
