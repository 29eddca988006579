"""What groups in queue were promised of a quota before their pods exist, made before the Jobs that name them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kbatch.api.objects import (
    Condition,
    Container,
    Job,
    JobSpec,
    Metadata,
    PodGroup,
    PodTemplate,
    ResourceQuota,
    ResourceQuotaSpec,
    ResourceQuotaStatus,
    ResourceRequirements,
    ScopedSelectorRequirement,
    ScopeSelector,
)
from kbatch.model.events import Upsert
from tests.unit.engine.worlds import EVERYTHING, Simulation, group, node, pod, policy, priority_class, queue, run, world

ALL = policy(EVERYTHING)


def quota(hard: dict[str, Any], **spec: Any) -> ResourceQuota:
    return ResourceQuota(
        metadata=Metadata(name="q", namespace="ns", uid="q"),
        spec=ResourceQuotaSpec(hard=hard, **spec),
        status=ResourceQuotaStatus(hard=hard, used={}),
    )


def released(of: str, count: int) -> Job:
    """A Job that names a group and runs, but whose pods do not exist yet; 1 CPU each, and at most 2."""
    limits = ResourceRequirements(requests={"cpu": "1"}, limits={"cpu": "2"})
    spec = PodTemplate(
        metadata=Metadata(annotations={"scheduling.k8s.io/group-name": of}),
        spec=msgspec.structs.replace(pod("t").spec, containers=(Container(resources=limits),)),
    )
    meta = Metadata(name=of, namespace="ns", uid=f"job-{of}", annotations={"kbatch.dev/suspended": "false"})
    return Job(metadata=meta, spec=JobSpec(parallelism=count, completions=count, template=spec))


HIGH = [priority_class("high", 100)]
OF_HIGH = ScopedSelectorRequirement(scope_name="PriorityClass", operator="In", values=("high",))
SCOPES: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "requests": ({"requests.cpu": "20"}, {}, True),
    "limits": ({"limits.cpu": "40"}, {}, True),
    "pods": ({"pods": "20"}, {}, True),
    "not best effort": ({"requests.cpu": "20"}, {"scopes": ("NotBestEffort",)}, True),
    "best effort": ({"pods": "20"}, {"scopes": ("BestEffort",)}, False),
    "not terminating": ({"requests.cpu": "20"}, {"scopes": ("NotTerminating",)}, True),
    "terminating": ({"requests.cpu": "20"}, {"scopes": ("Terminating",)}, False),
    "another class": (
        {"requests.cpu": "20"},
        {"scope_selector": ScopeSelector(match_expressions=(OF_HIGH,))},
        False,
    ),
}


@pytest.mark.parametrize("what", SCOPES)
@pytest.mark.parametrize("stated", [None, {"memory": "1Gi"}])
def test_of_five_gangs_whose_jobs_are_released_two_are_in_queue(what: str, stated: dict[str, str] | None) -> None:
    hard, spec, counts = SCOPES[what]
    gangs: list[PodGroup] = [group(f"g{at}", 10, at=at, min_resources=stated) for at in range(5)]
    model = world(*HIGH, queue(), node("n1", "99"), quota(hard, **spec), gangs)
    for at in range(5):
        model.apply(Upsert(released(f"g{at}", 10)))
    found = run(model, ALL)
    let_in = [key for key, verdict in found.verdicts.items() if verdict.enqueued]
    assert let_in == ([f"ns/g{at}" for at in range(2)] if counts else [f"ns/g{at}" for at in range(5)])
    assert not counts or found.reason("g2") == "QuotaExceeded"


def lived(name: str) -> PodGroup:
    """A group that completed, and whose end was taken back since: another Job names it."""
    conditions = [
        Condition(type="Enqueued", status="True", last_transition_time="2026-11-20T10:00:00Z"),
        Condition(type="Scheduled", status="True", last_transition_time="2026-11-20T10:00:01Z"),
        Condition(type="Completed", status="False", last_transition_time="2026-11-20T11:00:00Z"),
    ]
    found = group(name, 10)
    found.status.conditions = tuple(conditions)
    return found


def test_a_group_that_comes_to_life_again_is_held_against_the_quota() -> None:
    others = group("other", 15, at=5)
    model = world(queue(), node("n1", "99"), quota({"requests.cpu": "20"}), others)
    model.apply(Upsert(released("other", 15)))
    sim = Simulation(model)
    assert sim.cycle().verdicts["ns/other"].enqueued
    model.apply(Upsert(lived("g")))
    model.apply(Upsert(released("g", 10)))
    found = sim.cycle()
    assert found.verdicts["ns/g"].enqueued is False
    assert found.reason("g") == "QuotaExceeded"
    model.apply(Upsert(quota({"requests.cpu": "25"})))
    assert sim.cycle().verdicts["ns/g"].enqueued
