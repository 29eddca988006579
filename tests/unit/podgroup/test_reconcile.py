"""The status that a PodGroup should have."""

from __future__ import annotations

import msgspec
import pytest

from kbatch.api.conditions import merge
from kbatch.api.objects import Condition, Job, NodeFailures, Pod, PodCondition, PodGroup, PodGroupStatus, SubGroupStatus
from kbatch.model.events import Delete, Upsert
from operators.podgroup.abandoned import Abandoned
from operators.podgroup.reconcile import Observed, OwnStatus, Stalled, minimum, observe, reconcile, standing
from tests.unit.podgroup.build import NOW, condition, group, index, job, pod


def status(of: PodGroup, *objects: Pod | Job) -> OwnStatus:
    return reconcile(of, observe(index(*objects, of), of), NOW)


def test_a_new_group_is_pending_and_says_so() -> None:
    wanted = status(group())
    assert wanted == OwnStatus(phase="Pending")
    assert wanted.manifest() == {"phase": "Pending", "running": 0, "succeeded": 0, "failed": 0, "pending": 0}


def test_counters_and_what_is_held() -> None:
    wanted = status(
        group(9),
        pod("waits"),
        pod("bound", node="n"),
        pod("runs", "Running", node="n", cpu="2"),
        pod("done", "Succeeded", node="n"),
        pod("failed", "Failed", node="n"),
        pod("leaves", "Running", node="n", leaving=True),
        pod("evicted", "Failed", node="n", leaving=True),
        pod("other", "Running", node="n", named="another"),
    )
    assert (wanted.pending, wanted.running, wanted.succeeded, wanted.failed) == (2, 1, 1, 1)
    assert wanted.allocated == (("cpu", "2500m"),)


def test_roles_are_counted_each_and_pods_without_a_role_in_none() -> None:
    wanted = status(
        group(1, roles={"ps": 1, "worker": 2}),
        pod("p", "Running", node="n", role="ps"),
        pod("w1", "Running", node="n", role="worker"),
        pod("w2", role="worker"),
        pod("w3", node="n", role="worker"),
        pod("x", "Failed", node="n"),
    )
    assert wanted.sub_groups == (
        SubGroupStatus(name="ps", running=1),
        SubGroupStatus(name="worker", running=1, pending=2),
    )
    assert wanted.manifest()["subGroups"][0] == {"name": "ps", "running": 1, "succeeded": 0, "failed": 0, "pending": 0}


def test_the_minimum_is_the_larger_of_minmember_and_the_roles_sum() -> None:
    assert minimum(group(1, roles={"a": 2, "b": 3})) == 5
    assert minimum(group(7, roles={"a": 2})) == 7


@pytest.mark.parametrize(
    ("of", "pods", "phase"),
    [
        (group(), [], "Pending"),
        (group(), [pod("a"), pod("b")], "Pending"),
        (group(conditions=(condition("Enqueued"),)), [pod("a")], "InQueue"),
        (group(conditions=(condition("Enqueued", "False"),), phase="InQueue"), [pod("a")], "Pending"),
        (group(), [pod("a", node="n"), pod("b")], "InQueue"),
        (group(), [pod("a", node="n"), pod("b", node="n")], "Running"),
        (group(1, roles={"x": 1, "y": 1}), [pod("a", node="n", role="x"), pod("b", node="n", role="x")], "InQueue"),
        (
            group(conditions=(condition("Unschedulable"),), phase="Running"),
            [pod("a", "Running", node="n"), pod("b")],
            "Unknown",
        ),
        (group(phase="Running"), [pod("a", "Succeeded"), pod("b", "Succeeded")], "Completed"),
        (group(phase="Completed"), [], "Completed"),
        (group(phase="nonsense"), [], "Pending"),
    ],
)
def test_phases(of: PodGroup, pods: list[Pod], phase: str) -> None:
    assert status(of, *pods).phase == phase


# --- who gave up ------------------------------------------------------------------------------------------------------


def test_a_failed_bare_pod_fails_the_group() -> None:
    assert status(group(), pod("a", "Running", node="n"), pod("b", "Failed")).phase == "Failed"


def test_a_failed_bare_pod_above_the_minimum_does_not() -> None:
    assert status(group(1), pod("a", "Running", node="n"), pod("b", "Failed")).phase == "Running"


@pytest.mark.parametrize(("ended", "phase"), [("", "Pending"), ("Failed", "Failed")])
def test_a_group_waits_for_its_job_to_give_up(ended: str, phase: str) -> None:
    assert status(group(), pod("a", "Failed", controller="j"), job(ended=ended)).phase == phase


def test_a_job_that_failed_without_pods_fails_its_group() -> None:
    assert status(group(), job(ended="Failed")).phase == "Failed"


def test_the_job_that_owns_the_group_counts_too() -> None:
    assert status(group(owner="j"), job(ended="Failed", named="")).phase == "Failed"


def test_as_long_as_one_of_several_jobs_goes_on_the_group_has_not_failed() -> None:
    failed, running = job("j1", name="one", ended="Failed"), job("j2", name="two")
    assert status(group(), failed, running, pod("a", "Failed", controller="j1")).phase == "Pending"


def test_a_controller_that_is_no_job_gives_up_when_it_has_made_nothing_for_a_time() -> None:
    of, failed = group(), pod("a", "Failed", controller="replica-set")
    assert status(of, failed).phase == "Pending"

    def given_up(*objects: Pod | Job) -> str:
        return reconcile(of, observe(index(*objects, of), of, abandoned=True), NOW).phase

    assert given_up(failed) == "Failed"
    assert given_up(failed, pod("b", controller="replica-set"), pod("c", controller="replica-set")) == "Pending"
    assert given_up(failed, job(), pod("b", "Failed", controller="j")) == "Pending", "a Job says itself when it stops"


def test_a_job_that_is_complete_with_fewer_than_the_minimum_completes_its_group() -> None:
    """The leader of spec.successPolicy has succeeded, or one of a work queue's pods has failed."""
    of = group(4, phase="Running")
    leader, worker = pod("a", "Succeeded", controller="j"), pod("b", "Failed", controller="j")
    wanted = status(of, leader, worker, job(ended="Complete"))
    assert wanted.phase == "Completed"
    (completed,) = wanted.conditions
    assert (completed.reason, completed.message) == (
        "NoMoreMembers",
        "1 pods succeeded, 4 needed; its Jobs are complete, or other controllers have created no more pods",
    )
    assert status(of, leader, job(ended="Failed")).phase == "Failed"
    assert status(of, leader, job("j", ended="Complete"), job("j2", name="two")).phase != "Completed"
    assert status(of, leader, pod("c", "Failed"), job(ended="Complete")).phase == "Failed", "nobody makes that one anew"


def test_a_controller_that_is_no_job_is_done_when_it_has_made_nothing_for_a_time() -> None:
    """The launcher of an MPIJob has succeeded, and its workers were deleted."""
    of, launcher = group(4, phase="Running"), pod("a", "Succeeded", controller="mpi-job")
    assert status(of, launcher).phase != "Completed"
    assert reconcile(of, observe(index(launcher, of), of, abandoned=True), NOW).phase == "Completed"


def test_for_how_long_a_controller_may_still_make_pods() -> None:
    now = 100.0
    abandoned = Abandoned(60, clock=lambda: now)

    def left(*pods: Pod) -> float | None:
        return abandoned.left("ns/pg", index(*pods, group()).members("ns/pg"))

    failed, done, more = pod("a", "Failed"), pod("b", "Succeeded"), pod("c", "Failed")
    assert left() is None
    assert left(done) == 60
    assert left(failed, pod("x")) is None
    assert left(failed, done) == 60
    now += 50
    assert left(failed, done) == 10
    assert left(failed, done, more) == 60, "one more came, and failed"
    now += 59
    assert left(more) == 1, "those that were cleaned up bring nothing new"
    now += 2
    assert left(more) == -1
    assert left(pod("x")) is None
    assert len(abandoned) == 0


# --- conditions -------------------------------------------------------------------------------------------------------


def test_completion_is_said_with_numbers_and_dated_once() -> None:
    wanted = status(group(phase="Running"), pod("a", "Succeeded"), pod("b", "Succeeded"))
    (completed,) = wanted.conditions
    assert (completed.type, completed.status, completed.reason) == ("Completed", "True", "MinimumSucceeded")
    assert completed.message == "2 pods succeeded, 2 needed"
    assert completed.last_transition_time == NOW
    assert completed.observed_generation == 1


def test_what_was_true_keeps_its_words_when_pods_are_cleaned_up() -> None:
    said = condition("Completed")
    assert status(group(conditions=(said,), phase="Completed")).conditions == (said,)


def test_a_failure_is_retracted_when_members_come_again() -> None:
    of = group(conditions=(condition("Failed"),), phase="Failed")
    (failed,) = status(of, pod("a", node="n"), pod("b", node="n")).conditions
    assert (failed.type, failed.status, failed.last_transition_time) == ("Failed", "False", NOW)


def test_a_group_that_comes_to_life_again_waits_until_it_is_let_in_anew() -> None:
    """Its Enqueued=True is of the life before: what it was promised then is gone."""
    of = group(conditions=(condition("Enqueued"), condition("Scheduled"), condition("Completed")), phase="Completed")
    again = status(of, job())
    (completed,) = again.conditions
    assert (again.phase, completed.status, completed.last_transition_time) == ("Pending", "False", NOW)

    of = group(conditions=(condition("Enqueued"), condition("Scheduled"), completed), phase="Pending")
    assert status(of, job()).phase == "Pending"
    anew = merge(of.status.conditions or (), [condition("Enqueued")], "2026-11-21T12:00:05Z")
    assert status(group(conditions=anew, phase="Pending"), job()).phase == "InQueue"


def test_an_end_is_taken_back_later_than_the_group_was_let_in_whatever_the_clocks_say() -> None:
    """The scheduler's clock is ahead by more than the group lived, or all of it was within one second."""
    for let_in in ("2026-11-21T12:00:30Z", NOW):
        enqueued = Condition(type="Enqueued", status="True", reason="r", message="", last_transition_time=let_in)
        of = group(conditions=(enqueued, condition("Completed")), phase="Completed")
        (completed,) = status(of, job()).conditions
        of = group(conditions=(enqueued, completed), phase="Pending")
        assert status(of, job()).phase == "Pending"
        anew = merge(of.status.conditions or (), [condition("Enqueued")], NOW)
        assert status(group(conditions=anew, phase="Pending"), job()).phase == "InQueue"


def test_a_group_whose_job_goes_on_has_not_completed() -> None:
    of, done = group(1, phase="Running"), pod("a", "Succeeded", controller="j")
    assert status(of, done, job()).phase == "Running"
    assert status(of, done, job(ended="Complete")).phase == "Completed"


STALLED = Stalled("TemplateError", "subGroups 'w': args[0]: 'x' is undefined")


@pytest.mark.parametrize(
    ("standing_", "tried", "stalled", "wanted"),
    [
        (None, False, None, None),
        (None, True, None, None),
        (None, True, STALLED, ("True", "TemplateError", NOW)),
        ("True", False, None, ("True", "r", "2026-01-01T00:00:00Z")),  # after a restart nothing is known yet
        ("True", True, STALLED, ("True", "TemplateError", "2026-01-01T00:00:00Z")),
        ("True", True, None, ("False", "MembersMade", NOW)),
        ("False", True, None, ("False", "r", "2026-01-01T00:00:00Z")),
    ],
)
def test_stalled_is_said_kept_and_retracted(
    standing_: str | None, tried: bool, stalled: Stalled | None, wanted: tuple[str, str, str] | None
) -> None:
    of = group(conditions=(condition("Stalled", standing_),) if standing_ else ())
    found = reconcile(of, Observed(tried=tried, stalled=stalled), NOW).conditions
    assert [(one.status, one.reason, one.last_transition_time) for one in found] == ([wanted] if wanted else [])


def test_the_schedulers_conditions_are_never_touched() -> None:
    of = group(conditions=(condition("Enqueued"), condition("Scheduled", "False", "NotEnoughResources")))
    assert status(of).conditions == ()
    assert standing(of.status).conditions == ()


# --- nothing to write -------------------------------------------------------------------------------------------------


def test_a_status_that_was_written_and_read_back_is_what_is_wanted() -> None:
    of = group(1, roles={"a": 1}, phase="Running", conditions=(condition("Enqueued"),))
    objects = (pod("a", "Succeeded", node="n", role="a"), pod("b", "Failed", node="n"))
    wanted = status(of, *objects)
    assert wanted != standing(of.status)
    read_back = msgspec.convert(wanted.manifest(), PodGroupStatus)
    read_back.conditions = (condition("Enqueued"), *(read_back.conditions or ()))
    again = group(1, roles={"a": 1}, phase="Running", conditions=(condition("Enqueued"),))
    again.status = read_back
    later = reconcile(again, observe(index(*objects, again), again), "2027-01-01T00:00:00Z")
    assert later == standing(again.status)


def test_who_failed_where_is_written_down_before_it_is_made_again() -> None:
    of = group(4)
    disrupted = pod("d", "Failed", node="n2")
    disrupted.status.conditions = (PodCondition(type="DisruptionTarget", status="True"),)
    pods = [
        pod("a", "Failed", node="n1"),
        pod("b", "Failed", node="n2"),
        pod("c", "Failed"),
        pod("e", "Failed", node="n2", leaving=True),
        disrupted,
    ]
    wanted = status(of, *pods)
    assert wanted.node_failures == (
        NodeFailures(node="n1", pods=("uid-a",)),
        NodeFailures(node="n2", pods=("uid-b",)),
    )
    assert wanted.manifest()["nodeFailures"][0] == {"node": "n1", "pods": ("uid-a",)}
    again = group(4)
    again.status = msgspec.convert(wanted.manifest(), PodGroupStatus)
    assert status(again).node_failures == wanted.node_failures, "their objects are gone"
    more = status(again, pod("f", "Failed", node="n1"), pod("g", "Failed", node="n1"), pod("a", "Failed", node="n1"))
    assert more.node_failures[0] == NodeFailures(node="n1", pods=("uid-a", "uid-f")), "two are enough to know"


@pytest.mark.parametrize(("ended", "phase"), [("Complete", "Completed"), ("Failed", "Failed")])
def test_a_job_that_is_deleted_as_it_ends_has_ended_its_group(ended: str, phase: str) -> None:
    """As with `ttlSecondsAfterFinished: 0`: neither the Job nor its pods are there any more."""
    of = group(2, phase="Running", conditions=(condition("Enqueued"), condition("Scheduled")))
    done = job(ended=ended)
    done.status.succeeded = 2 if ended == "Complete" else 0
    seen = index(of, pod("a", "Running", node="n", controller="j"), done)
    seen.apply(Delete(Job, "ns", "job"))
    seen.apply(Delete(Pod, "ns", "a"))
    found = reconcile(of, observe(seen, of), NOW)
    assert (found.phase, found.succeeded) == (phase, done.status.succeeded)
    seen.apply(Upsert(job("k", name="next")))
    assert reconcile(of, observe(seen, of), NOW).phase == "InQueue", "the next Job of the group goes on"
    assert not list(seen.ended_makers("ns/pg"))


def test_of_a_job_that_is_deleted_before_its_end_nothing_is_remembered() -> None:
    of = group(2, phase="Running", conditions=(condition("Enqueued"), condition("Scheduled")))
    seen = index(of, job())
    seen.apply(Delete(Job, "ns", "job"))
    assert reconcile(of, observe(seen, of), NOW).phase == "InQueue"
    seen.apply(Upsert(job(ended="Complete")))
    seen.apply(Upsert(group(2, phase="Completed", version="2")))
    seen.apply(Delete(Job, "ns", "job"))
    assert not list(seen.ended_makers("ns/pg")), "the group's own end is written"
