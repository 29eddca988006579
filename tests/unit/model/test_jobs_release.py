"""When a Job that waits is resumed and suspended, and the group that is made for it."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.api.names import (
    GROUP_MIN_MEMBER_ANNOTATION,
    GROUP_NAME_ANNOTATION,
    JOB_SET_LABEL,
    QUEUE_LABEL,
    SUSPENDED_ANNOTATION,
)
from kbatch.api.objects import (
    Container,
    Job,
    JobSpec,
    JobStatus,
    Metadata,
    PodCondition,
    PodSpec,
    PodTemplate,
    ResourceRequirements,
)
from kbatch.model.jobs_release import Step, group_for, group_of, passed_by, patch, step, suspended_by_user, wants_group

OURS = "kube-batch"


def job(
    mark: str | None = "true",
    *,
    suspend: bool = True,
    named: str | None = "g",
    queue: str | None = None,
    ended: str = "",
    scheduler: str = OURS,
    deleted: bool = False,
    **spec: Any,
) -> Job:
    return Job(
        metadata=Metadata(
            namespace="ns",
            name="j",
            uid="u",
            resource_version="7",
            annotations={SUSPENDED_ANNOTATION: mark} if mark is not None else None,
            labels=None if queue is None else {QUEUE_LABEL: queue},
            deletion_timestamp="2026-01-01T00:00:00Z" if deleted else None,
        ),
        spec=JobSpec(
            suspend=suspend,
            template=PodTemplate(
                metadata=Metadata(annotations={GROUP_NAME_ANNOTATION: named} if named else None),
                spec=PodSpec(
                    scheduler_name=scheduler,
                    priority_class_name="high",
                    containers=(Container(resources=ResourceRequirements(requests={"cpu": "500m", "memory": "1Gi"})),),
                ),
            ),
            **spec,
        ),
        status=JobStatus(conditions=(PodCondition(type=ended, status="True"),) if ended else None),
    )


@pytest.mark.parametrize(
    ("what", "admitted", "withdrawn", "wanted"),
    [
        (job(), False, False, Step.NOTHING),
        (job(), False, True, Step.NOTHING),
        (job(), True, False, Step.RELEASE),
        (job(suspend=False), False, False, Step.LET_GO),
        (job(suspend=False), True, False, Step.LET_GO),
        (job("false", suspend=False), True, False, Step.NOTHING),
        (job("false", suspend=False), False, False, Step.NOTHING),
        (job("false", suspend=False), False, True, Step.HOLD),
        (job("false"), True, False, Step.NOTHING),  # its user suspended it after it was resumed
        (job("false"), False, True, Step.NOTHING),
        (job(None), True, False, Step.NOTHING),  # its user suspended it from the start
        (job(None, suspend=False), False, True, Step.NOTHING),
        (job(ended="Failed"), True, False, Step.NOTHING),
        (job("false", suspend=False, ended="Complete"), False, True, Step.NOTHING),
        (job(deleted=True), True, False, Step.NOTHING),
    ],
)
def test_step(what: Job, admitted: bool, withdrawn: bool, wanted: Step) -> None:
    assert step(what, admitted=admitted, withdrawn=withdrawn) is wanted


def applied(what: Job, wanted: Step) -> Job:
    """The Job after a step, as far as steps read it."""
    change = patch(what, wanted, "g")
    mark = change["metadata"]["annotations"][SUSPENDED_ANNOTATION]
    return job(mark, suspend=change.get("spec", {}).get("suspend", what.spec.suspend))


def test_no_step_is_taken_twice() -> None:
    for what, admitted, withdrawn in ((job(), True, False), (job("false", suspend=False), False, True)):
        after = applied(what, step(what, admitted=admitted, withdrawn=withdrawn))
        assert step(after, admitted=admitted, withdrawn=withdrawn) is Step.NOTHING
    assert patch(job(suspend=False), Step.LET_GO, "g")["metadata"]["annotations"] == {SUSPENDED_ANNOTATION: None}


def test_a_job_held_back_again_is_resumed_again() -> None:
    again = applied(job("false", suspend=False), Step.HOLD)
    assert step(again, admitted=True, withdrawn=False) is Step.RELEASE


def test_every_patch_names_the_version_it_was_decided_on() -> None:
    for one in (Step.RELEASE, Step.HOLD, Step.LET_GO):
        assert patch(job(), one, "g")["metadata"]["resourceVersion"] == "7"


def test_pods_are_made_to_name_the_group_when_they_do_not_yet() -> None:
    assert "template" not in patch(job(), Step.RELEASE, "g")["spec"]
    template = patch(job(named=None), Step.RELEASE, "j")["spec"]["template"]
    assert template == {"metadata": {"annotations": {GROUP_NAME_ANNOTATION: "j"}}}
    assert "template" not in patch(job("false", named=None, suspend=False), Step.HOLD, "j")["spec"]


@pytest.mark.parametrize(
    ("what", "wants"),
    [
        (job(queue="q", named=None), True),
        (job(queue="q", named="j"), True),
        (job(queue="", named=None), True),
        (job(queue="", named="j"), True),
        (job(queue="q", named="other"), False),
        (job(queue=None, named=None), False),
        (job(None, queue="q", named="j"), False),  # its user holds it back
        (job(None, queue="q", named="j", suspend=False), True),  # and has let it go
        (job(None, queue="q", named=None, suspend=False), False),  # its pods name no group, and exist
        (job(queue="q", named=None, scheduler="default-scheduler"), False),
        (job(queue="q", named=None, ended="Complete"), False),
        (job(queue="q", named=None, parallelism=0), False),
    ],
)
def test_who_gets_a_group(what: Job, wants: bool) -> None:
    assert wants_group(what, OURS) is wants


def test_the_group_that_a_job_belongs_to() -> None:
    assert group_of(job(), OURS) == "g"
    assert group_of(job(queue="q", named=None), OURS) == "j"
    assert group_of(job(named=None), OURS) is None


@pytest.mark.parametrize(
    ("spec", "members", "cpu"),
    [({}, 1, "500m"), ({"parallelism": 4}, 4, "2"), ({"parallelism": 4, "completions": 3}, 3, "1500m")],
)
def test_a_group_is_all_pods_that_run_at_one_time(spec: dict[str, Any], members: int, cpu: str) -> None:
    made = group_for(job(queue="q", named=None, **spec))
    assert made["spec"]["minMember"] == members
    assert made["spec"]["minResources"]["cpu"] == cpu
    assert (made["spec"]["queue"], made["spec"]["priorityClassName"]) == ("q", "high")
    (owner,) = made["metadata"]["ownerReferences"]
    assert (made["metadata"]["name"], owner["kind"], owner["uid"], owner["controller"]) == ("j", "Job", "u", True)


@pytest.mark.parametrize(("said", "members"), [("2", 2), ("0", 1), ("9", 4), ("-1", 4), ("many", 4), ("", 4)])
def test_or_as_many_of_them_as_its_pods_say(said: str, members: int) -> None:
    elastic = job(queue="q", named=None, parallelism=4)
    elastic.spec.template.metadata.annotations = {GROUP_MIN_MEMBER_ANNOTATION: said}
    made = group_for(elastic)
    assert made["spec"]["minMember"] == members
    assert made["spec"]["minResources"]["cpu"] == ("500m", "1", "1500m", "2")[members - 1]


def test_a_group_for_an_empty_queue_leaves_it_to_the_servers_default() -> None:
    assert "queue" not in group_for(job(queue="", named=None))["spec"]


def test_the_group_of_a_job_belongs_to_its_job_set() -> None:
    of_a_set = job(queue="q", named=None)
    of_a_set.metadata.labels = {**(of_a_set.metadata.labels or {}), JOB_SET_LABEL: "night", "app": "x"}
    assert group_for(of_a_set)["metadata"]["labels"] == {JOB_SET_LABEL: "night"}
    assert "labels" not in group_for(job(queue="q", named=None))["metadata"]


@pytest.mark.parametrize(
    ("what", "by_user"),
    [
        (job(None), True),
        (job("false"), True),
        (job("true"), False),
        (job(None, suspend=False), False),
        (job("false", suspend=False), False),
        (job("false", ended="Complete"), False),
    ],
)
def test_who_suspended_it_can_be_read_off_the_job(what: Job, by_user: bool) -> None:
    assert suspended_by_user(what) is by_user


def test_what_kbatch_does_to_a_job_never_looks_like_its_users_doing() -> None:
    for what, wanted in ((job(), Step.RELEASE), (job("false", suspend=False), Step.HOLD)):
        assert not suspended_by_user(applied(what, wanted))


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        ({}, True),
        ({"scheduler": ""}, True),
        ({"scheduler": OURS}, False),
        ({"scheduler": "volcano"}, False),
        ({"queue": ""}, True),
        ({"queue": None}, False),
        ({"mark": "false"}, False),
        ({"suspend": True}, False),
        ({"ended": "Complete"}, False),
    ],
)
def test_a_job_went_past_its_queue_where_nobody_held_it_back(given: dict[str, Any], passed: bool) -> None:
    usual: dict[str, Any] = {"mark": None, "suspend": False, "queue": "q", "scheduler": "default-scheduler"}
    assert passed_by(job(**{**usual, **given})) is passed
