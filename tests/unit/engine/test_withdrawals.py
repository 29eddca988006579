"""Nominations that end are told in the cycle in which they end, whatever ended them."""

from __future__ import annotations

from typing import Any

from kbatch.api.configuration import parse
from kbatch.api.objects import Pod
from kbatch.api.reasons import Reason
from kbatch.engine import build_policy
from kbatch.engine.plugin import Plugin
from kbatch.engine.plugins import BUILTIN
from kbatch.engine.state.jobs import JobState
from tests.unit.engine.worlds import ALLOCATE, group, node, pod, queue, run, stamp, world


class FailsInVerdicts(Plugin):
    """Raises for the group `g` while verdicts are made."""

    name = "fails-in-verdicts"

    def job_ready(self, job: JobState) -> Reason | None:
        view: Any = self.view
        if job.name == "ns/g" and view.phase == "verdicts":
            raise RuntimeError("while verdicts are made")
        return None


def waits_for_a_leaving_pod() -> list[Any]:
    """The gang g is nominated to the node of a pod that terminates."""
    leaving = pod("old", on="n1", cpu="4")
    leaving.metadata.deletion_timestamp = stamp(20)
    waits: Pod = pod("g-0", "4", of="g")
    waits.status.nominated_node_name = "n1"
    return [queue(), node("n1", "4"), leaving, group("g", 1), waits]


def test_a_group_that_fails_in_verdicts_has_its_nomination_withdrawn_in_the_same_cycle() -> None:
    text = ALLOCATE.replace("tiers:\n", "tiers:\n- plugins: [{name: fails-in-verdicts}]\n")
    by = build_policy(parse(text, "test"), {**BUILTIN, FailsInVerdicts.name: FailsInVerdicts})
    found = run(world(waits_for_a_leaving_pod()), by)
    assert found.reason("g") == "EngineError"
    assert found.nominated == {"g-0": None}


def test_a_nomination_that_stands_is_not_told_again() -> None:
    found = run(world(waits_for_a_leaving_pod()))
    assert found.reason("g") == "VictimsTerminating"
    assert found.transactions == []
