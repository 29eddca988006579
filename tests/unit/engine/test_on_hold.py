"""Groups whose Jobs their users have suspended keep no place."""

from __future__ import annotations

import pytest

from kbatch.api.objects import Job, JobSpec, JobStatus, Metadata, Pod, PodCondition, PodGroup, PodTemplate
from kbatch.model.events import Delete, Upsert
from tests.unit.engine.worlds import EVERYTHING, group, in_queue, node, pod, policy, queue, run, world

ALL = policy(EVERYTHING)


def job(name: str, mark: str | None, *, suspend: bool = True, ended: bool = False, of: str = "a") -> Job:
    template = pod("t", "4", of=of)
    return Job(
        metadata=Metadata(
            name=name, namespace="ns", annotations={"kbatch.dev/suspended": mark} if mark is not None else None
        ),
        spec=JobSpec(
            parallelism=2, suspend=suspend, template=PodTemplate(metadata=template.metadata, spec=template.spec)
        ),
        status=JobStatus(conditions=(PodCondition(type="Complete", status="True"),) if ended else None),
    )


def reserving() -> list[PodGroup]:
    """Of eight cores `a` was promised all; `b`, which came later, waits for them."""
    return [in_queue(group("a", 2, min_resources={"cpu": "8"})), group("b", 2, at=1, min_resources={"cpu": "8"})]


@pytest.mark.parametrize("mark", [None, "false"])
def test_the_place_goes_to_the_next_at_once(mark: str | None) -> None:
    held = run(world(queue(), node("n1", "8"), reserving(), job("j", "false", suspend=False)), ALL)
    assert (held.verdicts["ns/a"].enqueued, held.reason("b")) == (True, "WaitingInQueue")
    found = run(world(queue(), node("n1", "8"), reserving(), job("j", mark)), ALL)
    assert (found.verdicts["ns/a"].enqueued, found.reason("a")) == (False, "JobSuspended")
    assert found.verdicts["ns/b"].enqueued
    assert found.verdicts["ns/a"].attempts == 0, "it was not its fault: no longer wait the next time"
    reason = found.verdicts["ns/a"].reason
    assert reason is not None
    assert "Job j" in reason.message


def test_it_is_let_in_again_when_its_user_resumes_it_and_there_is_room() -> None:
    model = world(queue(), node("n1", "8"), group("a", 2, min_resources={"cpu": "8"}), job("j", "false"))
    assert run(model, ALL).reason("a") == "JobSuspended"
    model.apply(Upsert(job("j", "true")))  # resumed, and held back by kbatch until its turn
    assert run(model, ALL).verdicts["ns/a"].enqueued


@pytest.mark.parametrize(
    "others",
    [[job("k", "true")], [job("k", "false", suspend=False)], [job("k", None, suspend=False)]],
    ids=["waits its turn", "had its turn", "not ours"],
)
def test_another_job_of_the_group_that_may_make_pods_keeps_the_place(others: list[Job]) -> None:
    found = run(world(queue(), node("n1", "8"), reserving(), job("j", None), others), ALL)
    assert found.verdicts["ns/a"].enqueued
    assert found.reason("b") == "WaitingInQueue"


def test_jobs_that_have_ended_or_belong_to_others_neither_keep_nor_take_a_place() -> None:
    found = run(world(queue(), node("n1", "8"), reserving(), job("j", None), job("k", "false", ended=True)), ALL)
    assert found.reason("a") == "JobSuspended"
    found = run(world(queue(), node("n1", "8"), reserving(), job("j", None, of="z")), ALL)
    assert found.verdicts["ns/a"].enqueued


def test_pods_that_exist_are_placed_whoever_suspended_a_job() -> None:
    found = run(
        world(queue(), node("n1", "8"), group("a", 2), [pod(f"a-{n}", of="a") for n in (0, 1)], job("j", None)), ALL
    )
    assert sorted(found.binds) == ["a-0", "a-1"]


def test_a_gang_that_ran_gives_its_place_back_when_its_pods_are_gone() -> None:
    running = [pod(f"a-{n}", "4", of="a", on="n1") for n in (0, 1)]
    done = pod("a-2", "4", of="a", on="n1")
    done.status.phase = "Succeeded"
    model = world(queue(), node("n1", "8"), reserving(), running, done, job("j", "false"))
    assert run(model, ALL).reason("b") == "WaitingInQueue"
    for one in running:
        model.apply(Delete(Pod, "ns", one.metadata.name))
    found = run(model, ALL)
    assert (found.verdicts["ns/a"].enqueued, found.reason("a")) == (False, "JobSuspended")
    assert found.verdicts["ns/b"].enqueued


def suspended(found: PodGroup, *, suspend: bool = True) -> PodGroup:
    found.spec.suspend = suspend
    return found


def test_a_group_that_is_suspended_itself_keeps_no_place_and_comes_back_when_it_is_resumed() -> None:
    first, second = reserving()
    model = world(queue(), node("n1", "8"), [suspended(first), second], [pod(f"a{n}", "4", of="a") for n in range(2)])
    found = run(model, ALL)
    assert (found.verdicts["ns/a"].enqueued, found.reason("a")) == (False, "Suspended")
    assert found.verdicts["ns/b"].enqueued
    assert found.verdicts["ns/a"].attempts == 0
    assert not found.binds
    model.apply(Upsert(group("a", 2, min_resources={"cpu": "8"})))
    model.apply(Delete(PodGroup, "ns", "b"))
    assert len(run(model, ALL).binds) == 2


def test_a_suspended_group_whose_minimum_has_nodes_is_not_refused() -> None:
    running = suspended(in_queue(group("a", 1)))
    found = run(world(queue(), node("n1", "8"), running, pod("a0", "4", of="a", on="n1")), ALL)
    assert "ns/a" not in found.verdicts or found.verdicts["ns/a"].enqueued
