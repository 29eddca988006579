"""Annotations that cannot be read are told to whoever wrote them."""

from __future__ import annotations

import pytest

from kbatch.api.objects import Job, JobSpec, Metadata, PodTemplate
from webhooks.review import SubmittedGroup
from webhooks.unread import warnings


def group(name: str, value: str) -> SubmittedGroup:
    return SubmittedGroup(Metadata(annotations={name: value}))


def job(name: str, value: str) -> Job:
    return Job(metadata=Metadata(annotations={name: value}))


def made_by_a_job(name: str, value: str) -> Job:
    template = PodTemplate(metadata=Metadata(annotations={name: value}))
    return Job(metadata=Metadata(), spec=JobSpec(template=template))


SECONDS, MINIMUM = "kbatch.dev/expected-seconds", "scheduling.k8s.io/group-min-member"
CHECKPOINT, HOPS = "kbatch.dev/last-checkpoint", "kbatch.dev/max-hops"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (SECONDS, "90"), (SECONDS, "0.5"), (SECONDS, "1.000001"), (MINIMUM, "2"), (HOPS, "0"), (HOPS, "64"),
        (CHECKPOINT, "2026-01-01T12:00:00Z"), ("example.com/max-hops", "two"),
    ],
)  # fmt: skip
def test_what_can_be_read_is_fine(name: str, value: str) -> None:
    assert list(warnings(group(name, value))) == []
    if name != HOPS:
        assert list(warnings(job(name, value))) == list(warnings(made_by_a_job(name, value))) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((SECONDS, value) for value in ("", "0", "-1", "soon", "1h", "1e3", "9" * 100)),
        (MINIMUM, "two"), (MINIMUM, "-1"), (HOPS, "two"), (HOPS, "65"), (HOPS, "-2"),
        (CHECKPOINT, "yesterday"), (CHECKPOINT, "1767268800"),
    ],
)  # fmt: skip
def test_anything_else_is_told(name: str, value: str) -> None:
    (said,) = warnings(group(name, value))
    assert said.startswith(f"the annotation {name} is ")
    assert len(said) < 300
    if name != HOPS:
        assert list(warnings(job(name, value))) == list(warnings(made_by_a_job(name, value))) == [said]


@pytest.mark.parametrize("value", ["2", "two"])
def test_how_close_pods_stand_is_said_on_a_podgroup_only(value: str) -> None:
    (said,) = warnings(job(HOPS, value))
    assert said == f"the annotation {HOPS} counts on a PodGroup only: here the pods may stand anywhere"
    assert list(warnings(made_by_a_job(HOPS, value))) == [said]
