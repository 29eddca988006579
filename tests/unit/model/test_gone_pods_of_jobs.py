"""Pods of batch Jobs that have succeeded and were deleted, and Jobs that make no pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kbatch.api.objects import Job, Pod, PodGroup, Queue
from kbatch.model.cluster import ClusterModel
from kbatch.model.demand import demand_of
from kbatch.model.events import Upsert
from kbatch.model.jobs import Job as Group
from tests.unit.engine.worlds import node

SPEC = {
    "schedulerName": "kube-batch",
    "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}],
}
NAMES = {"scheduling.k8s.io/group-name": "j"}


def group_of_job(least: int, status: dict[str, Any], *pods: str, suspend: bool = False, **spec: Any) -> Group:
    """The group of a Job, with these pods of it that run."""
    model = ClusterModel()
    mark = {"kbatch.dev/suspended": str(suspend).lower(), "kbatch.dev/own-group": "true"}
    owner = {"kind": "Job", "name": "j", "uid": "uid-j", "controller": True}
    template = {"metadata": {"annotations": NAMES}, "spec": SPEC}
    made: list[tuple[type[Any], dict[str, Any]]] = [
        (Queue, {"metadata": {"name": "default"}}),
        (
            PodGroup,
            {
                "metadata": {"namespace": "ns", "name": "j", "uid": "g"},
                "spec": {"minMember": least, "queue": "default", "minResources": {"cpu": str(2 * least)}},
            },
        ),
        (
            Job,
            {
                "metadata": {"namespace": "ns", "name": "j", "uid": "uid-j", "annotations": mark},
                "spec": {"suspend": suspend, "template": template, **spec},
                "status": status,
            },
        ),
    ]
    for name in pods:
        meta = {"namespace": "ns", "name": name, "uid": name, "annotations": NAMES, "ownerReferences": [owner]}
        made.append((Pod, {"metadata": meta, "spec": {**SPEC, "nodeName": "n"}, "status": {"phase": "Running"}}))
    model.apply(Upsert(node("n", "8")))
    for kind, raw in made:
        model.apply(Upsert(msgspec.convert(raw, kind)))
    model.validate()
    return model.jobs["ns/j"]


def test_the_last_pods_of_a_job_are_whole_where_the_nodes_of_the_others_are_gone() -> None:
    found = group_of_job(4, {"succeeded": 3, "active": 1}, "j-3", parallelism=4, completions=4)
    assert found.gone == {"": 3}
    assert found.whole()
    assert found.outstanding == {}


def test_a_job_that_is_nearly_done_and_waits_again_needs_no_more_pods_than_it_makes() -> None:
    """4 at a time, 6 in all: 3 have succeeded, and 3 are left."""
    found = group_of_job(4, {"succeeded": 3}, suspend=True, parallelism=4, completions=6)
    assert demand_of(found).short == 0


@pytest.mark.parametrize("suspend", [True, False])
def test_nothing_is_reserved_for_a_job_that_is_to_have_no_pods(suspend: bool) -> None:
    found = group_of_job(3, {}, suspend=suspend, parallelism=0)
    assert (found.outstanding, found.suspended_by) == ({}, "j")
