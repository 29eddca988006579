"""Which Jobs are held back, and how."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kbatch.api.names import GROUP_NAME_ANNOTATION, OWN_GROUP_ANNOTATION, SUSPENDED_ANNOTATION
from kbatch.api.objects import Job
from webhooks.jobs import delay, generated_name


def job(
    *, name: str = "j", queue: str | None = None, group: str = "", scheduler: str = "default-scheduler", **spec: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {} if queue is None else {"kbatch.dev/queue": queue}},
        "spec": {
            "template": {
                "metadata": {"annotations": {GROUP_NAME_ANNOTATION: group} if group else {}},
                "spec": {"schedulerName": scheduler, "containers": []},
            },
            **spec,
        },
    }


def delayed(body: dict[str, Any]) -> dict[str, Any]:
    return delay(msgspec.convert(body, Job), scheduler_name="kube-batch", new_name="made")


HELD = {"metadata": {"annotations": {SUSPENDED_ANNOTATION: "true"}}, "spec": {"suspend": True}}
OWN = {"metadata": {"annotations": {SUSPENDED_ANNOTATION: "true", OWN_GROUP_ANNOTATION: "true"}}, "spec": HELD["spec"]}


def test_a_job_whose_pods_name_a_group_is_suspended() -> None:
    assert delayed(job(group="g", scheduler="kube-batch")) == HELD


def test_a_job_with_a_queue_is_given_scheduler_and_group() -> None:
    template = {"metadata": {"annotations": {GROUP_NAME_ANNOTATION: "j"}}, "spec": {"schedulerName": "kube-batch"}}
    for scheduler in ("default-scheduler", ""):
        assert delayed(job(queue="q", scheduler=scheduler)) == {**OWN, "spec": {"suspend": True, "template": template}}
    del template["spec"]
    assert delayed(job(queue="q", scheduler="kube-batch")) == {**OWN, "spec": {"suspend": True, "template": template}}


def test_an_empty_queue_is_the_default_queue_and_not_none() -> None:
    template = {"metadata": {"annotations": {GROUP_NAME_ANNOTATION: "j"}}, "spec": {"schedulerName": "kube-batch"}}
    assert delayed(job(queue="")) == {**OWN, "spec": {"suspend": True, "template": template}}


def test_a_group_that_is_named_goes_before_the_queue() -> None:
    assert delayed(job(queue="q", group="g", scheduler="kube-batch")) == HELD


def test_a_job_that_its_user_suspended_has_no_mark() -> None:
    assert delayed(job(group="g", scheduler="kube-batch", suspend=True)) == {}
    changes = delayed(job(queue="q", suspend=True))
    assert changes["metadata"] == {"annotations": {OWN_GROUP_ANNOTATION: "true"}}
    assert set(changes["spec"]) == {"template"}


def test_a_copy_of_a_released_job_waits_again() -> None:
    body = job(group="g", scheduler="kube-batch")
    body["metadata"]["annotations"] = {SUSPENDED_ANNOTATION: "false"}
    assert delayed(body) == HELD


@pytest.mark.parametrize(
    "body",
    [
        job(),
        job(scheduler="kube-batch"),
        job(group="g"),
        job(queue="q", scheduler="volcano"),
        job(queue="q", name=""),
    ],
)
def test_other_jobs_are_left_alone(body: dict[str, Any]) -> None:
    assert delayed(body) == {}


def test_a_generated_name_is_made_here_as_the_template_must_say_it() -> None:
    body = job(queue="q", name="")
    body["metadata"]["generateName"] = "night-"
    changes = delayed(body)
    assert changes["metadata"]["name"] == "made"
    assert changes["spec"]["template"]["metadata"]["annotations"][GROUP_NAME_ANNOTATION] == "made"


def test_generated_names_differ_and_fit() -> None:
    names = {generated_name("night-") for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith("night-") for name in names)
    assert len(generated_name("x" * 100)) == 63
