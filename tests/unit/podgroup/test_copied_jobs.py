"""Jobs that were copied, changed while they wait, or whose pods were cleaned up."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kbatch.api.names import GROUP_NAME_ANNOTATION, OWN_GROUP_ANNOTATION, QUEUE_LABEL, SUSPENDED_ANNOTATION
from kbatch.api.objects import Job, PodGroup
from kbatch.kube.errors import ApiError
from kbatch.model.events import Delete, Upsert
from operators.podgroup.controller import Controller
from operators.podgroup.reconcile import observe, reconcile
from tests.unit.podgroup.build import NOW, condition, group, index
from tests.unit.podgroup.build import job as made_job
from tests.unit.podgroup.test_jobs import JOBS, PREFIX, Server, controller, merged, say, server, submit, told
from webhooks.jobs import delay

__all__ = ["controller", "server", "told"]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def runs_at_once(server: Server, controller: Controller, pods: int) -> None:
    """The user of the Job changes its parallelism."""
    body = server.objects[f"{JOBS}/j"]
    body["spec"]["parallelism"] = pods
    server.put(f"{JOBS}/j", body)
    controller.hint(Upsert(server.job()))


async def test_a_copy_of_a_job_under_another_name_gets_a_group_of_its_own(
    server: Server, controller: Controller
) -> None:
    sent: dict[str, Any] = {
        "metadata": {
            "namespace": "ns", "name": "b", "uid": "uid-b", "labels": {QUEUE_LABEL: "research"},
            "annotations": {OWN_GROUP_ANNOTATION: "true", SUSPENDED_ANNOTATION: "false"},
        },
        "spec": {
            "suspend": False, "parallelism": 3,
            "template": {
                "metadata": {"annotations": {GROUP_NAME_ANNOTATION: "a"}},
                "spec": {"schedulerName": "kube-batch", "containers": [{"name": "c"}]},
            },
        },
    }  # fmt: skip
    stored = merged(sent, delay(msgspec.convert(sent, Job), scheduler_name="kube-batch"))
    server.put(f"{JOBS}/b", stored)
    controller.hint(Upsert(msgspec.convert(stored, Job)))
    await controller.reconcile("ns/b")
    assert f"{PREFIX}/b" in server.objects


async def test_who_takes_the_queue_from_a_held_job_whose_group_is_gone_is_told(
    server: Server, controller: Controller, told: Any
) -> None:
    submit(server, controller, named="j", own=True)
    await controller.reconcile("ns/j")
    body = server.objects[f"{JOBS}/j"]
    body["metadata"]["labels"] = {}
    server.put(f"{JOBS}/j", body)
    controller.hint(Upsert(server.job()))
    del server.objects[f"{PREFIX}/j"]
    controller.hint(Delete(PodGroup, "ns", "j"))
    clock = Clock()
    controller._jobs._clock = clock
    for _ in range(2):
        await controller.reconcile("ns/j")
        clock.now += 60
    assert "PodGroupNotFound" in told.reasons("Job")


async def test_a_job_that_is_to_have_no_pods_is_not_resumed(server: Server, controller: Controller) -> None:
    submit(server, controller, named="j", own=True)
    await controller.reconcile("ns/j")
    runs_at_once(server, controller, 0)
    say(server, controller, condition("Enqueued"))
    await controller.reconcile("ns/j")
    assert server.job().spec.suspend
    runs_at_once(server, controller, 3)
    await controller.reconcile("ns/j")
    assert not server.job().spec.suspend


def test_a_group_is_completed_where_the_pods_of_its_job_were_cleaned_up_before_anybody_looked() -> None:
    of = group(3, phase="InQueue", owner="j", conditions=(condition("Enqueued"),))
    done = made_job("j", ended="Complete")
    done.status.succeeded = 3
    assert reconcile(of, observe(index(done, of), of), NOW).phase == "Completed"


async def test_whose_group_may_not_follow_its_job_is_told(server: Server, controller: Controller, told: Any) -> None:
    submit(server, controller, named="j", own=True)
    await controller.reconcile("ns/j")
    runs_at_once(server, controller, 30)
    real = server.request

    async def request(method: str, path: str, *, body: Any = None, **more: Any) -> Any:
        if method == "PATCH" and path == f"{PREFIX}/j" and "spec" in body:
            raise ApiError(403, "Forbidden", "over ResourceQuota team")
        return await real(method, path, body=body, **more)

    server.request = request  # type: ignore[method-assign]
    with pytest.raises(ApiError):
        await controller.reconcile("ns/j")
    assert told.reasons("Job") == ["PodGroupRefused"]


async def test_a_job_that_has_ended_is_not_said_to_wait_for_its_name(
    server: Server, controller: Controller, told: Any
) -> None:
    submit(server, controller, named="j", own=True, mark="false", suspend=False)
    body = server.objects[f"{JOBS}/j"]
    body["status"] = {"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 3}
    server.put(f"{JOBS}/j", body)
    controller.hint(Upsert(server.job()))
    other = {"metadata": {"namespace": "ns", "name": "j", "uid": "of-a-user"}, "spec": {"minMember": 1}}
    server.put(f"{PREFIX}/j", other)
    controller.hint(Upsert(msgspec.convert(server.objects[f"{PREFIX}/j"], PodGroup)))
    await controller.reconcile("ns/j")
    assert "PodGroupNameTaken" not in told.reasons("Job")
