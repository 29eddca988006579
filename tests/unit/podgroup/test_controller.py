"""The operator's work: what it writes, and when it writes nothing."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kbatch.api.names import QUEUE_LABEL
from kbatch.api.objects import Job, OwnerReference, PodGroup, SubGroup
from kbatch.kube.errors import ApiError
from kbatch.kube.events import Regarding
from kbatch.kube.informer import Batch
from kbatch.metrics import ReconcileMetrics
from kbatch.model.events import Delete, Upsert
from operators.podgroup import FIELD_MANAGER
from operators.podgroup import controller as controlling
from operators.podgroup.controller import Controller
from operators.podgroup.patience import NONE, Patience
from operators.podgroup.reconcile import Observed
from tests.unit.podgroup.build import NOW, condition, group, job, pod


class FakeApi:
    """Keeps PodGroups; an apply of a status lays the fields over and moves the version."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, Any]] = {}
        self.writes: list[dict[str, Any]] = []
        self.params: list[Mapping[str, str]] = []
        self.refusals: list[ApiError] = []
        self.version = 100
        self.wrote = asyncio.Event()

    def put(self, of: PodGroup) -> PodGroup:
        self.version += 1
        of.metadata.resource_version = str(self.version)
        status = {"phase": of.status.phase} if of.status.phase else {}
        self.groups["pg"] = {
            "metadata": {"namespace": "ns", "name": "pg", "uid": of.metadata.uid, "resourceVersion": str(self.version)},
            "spec": {"minMember": of.spec.min_member},
            "status": status,
        }
        return of

    async def request(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: Any = None, **_: Any
    ) -> bytes:
        if method == "GET":
            listed = {"metadata": {"resourceVersion": str(self.version)}, "items": list(self.groups.values())}
            return json.dumps(listed).encode()
        assert (method, path) == (
            "PATCH",
            "/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/ns/podgroups/pg/status",
        )
        self.wrote.set()
        if self.refusals:
            raise self.refusals.pop(0)
        if "pg" not in self.groups:
            raise ApiError(404, "NotFound")
        stored = self.groups["pg"]
        if body["metadata"].get("resourceVersion", str(self.version)) != str(self.version):
            raise ApiError(409, "Conflict")
        self.params.append(params or {})
        self.writes.append(body["status"])
        self.version += 1
        stored["metadata"]["resourceVersion"] = str(self.version)
        stored["status"] = {**stored["status"], **body["status"]}
        return json.dumps(stored).encode()

    def stream(self, *_: Any, **__: Any) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        raise NotImplementedError


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def controller(api: FakeApi) -> Controller:
    return Controller(api, ReconcileMetrics(CollectorRegistry()), now=lambda: NOW)


def patient_controller(api: FakeApi, **delays: float) -> Controller:
    """One that gathers what is to be written for so long, and nothing else."""
    patience = Patience(dataclasses.replace(NONE, **delays))
    return Controller(api, ReconcileMetrics(CollectorRegistry()), now=lambda: NOW, patience=patience)


async def until(condition: Callable[[], bool], wrote: asyncio.Event) -> None:
    """Wait until something holds that can only come to hold with a write."""
    async with asyncio.timeout(5):
        while not condition():
            await wrote.wait()
            wrote.clear()
            await asyncio.sleep(0)


async def test_a_change_is_one_write_and_what_it_answers_is_known_at_once(api: FakeApi, controller: Controller) -> None:
    controller.hint(Upsert(api.put(group(1))))
    controller.receive(Batch((Upsert(pod("a", node="n")),), complete=True))
    assert await controller.reconcile("ns/pg") == "written"
    assert await controller.reconcile("ns/pg") == "unchanged"
    (written,) = api.writes
    assert (written["phase"], written["pending"], written["allocated"]) == ("Running", 1, {"cpu": "500m"})
    assert api.params[0]["fieldManager"] == FIELD_MANAGER
    assert api.params[0]["force"] == "true"


async def test_an_older_picture_from_the_watch_causes_no_second_write(api: FakeApi, controller: Controller) -> None:
    old = api.put(group())
    controller.hint(Upsert(old))
    await controller.reconcile("ns/pg")
    controller.hint(Upsert(old))
    assert await controller.reconcile("ns/pg") == "unchanged"
    assert len(api.writes) == 1


async def test_the_schedulers_conditions_are_never_sent(api: FakeApi, controller: Controller) -> None:
    of = api.put(group(1, conditions=(condition("Enqueued"), condition("Completed", "False"))))
    controller.hint(Upsert(of))
    await controller.reconcile("ns/pg")
    assert [one["type"] for one in api.writes[0]["conditions"]] == ["Completed"]


async def test_a_group_that_is_gone_is_forgotten(api: FakeApi, controller: Controller) -> None:
    controller.hint(Upsert(group()))
    assert await controller.reconcile("ns/pg") == "gone"
    assert "ns/pg" not in controller.index.groups
    assert await controller.reconcile("ns/pg") == "gone"


async def test_pods_that_come_to_run_are_looked_at_together_and_others_at_once(api: FakeApi) -> None:
    slow = Controller(api, ReconcileMetrics(CollectorRegistry()), now=lambda: NOW, gather=3600.0)
    slow.hint(Upsert(api.put(group(1))))
    for one in (pod("a"), pod("a", node="n"), pod("a", "Running", node="n")):
        slow.hint(Upsert(one))
    due = asyncio.create_task(slow.queue.get())
    await asyncio.sleep(0)
    assert len(slow.queue) == 1
    assert not due.done()
    slow.hint(Upsert(pod("a", "Failed", node="n")))
    assert await asyncio.wait_for(due, 5) == "ns/pg"


async def test_a_group_for_which_pods_are_made_is_looked_at_at_once(api: FakeApi) -> None:
    slow = Controller(api, ReconcileMetrics(CollectorRegistry()), now=lambda: NOW, gather=3600.0)
    slow.hint(Upsert(job()))
    assert await asyncio.wait_for(slow.queue.get(), 5) == "ns/pg"
    slow.queue.done("ns/pg")
    slow.hint(Upsert(api.put(group(1))))
    assert await asyncio.wait_for(slow.queue.get(), 5) == "ns/pg"


async def test_a_group_being_deleted_is_left_alone(api: FakeApi, controller: Controller) -> None:
    of = api.put(group())
    of.metadata.deletion_timestamp = NOW
    controller.hint(Upsert(of))
    assert await controller.reconcile("ns/pg") == "gone"
    assert not api.writes


async def test_each_group_is_looked_at_again_though_nothing_happened(api: FakeApi, controller: Controller) -> None:
    controller.hint(Upsert(api.put(group(3))))
    assert await controller.queue.get() == "ns/pg"
    assert await controller.reconcile("ns/pg") == "written"
    controller.queue.done("ns/pg")
    written = len(api.writes)
    controller.resync()
    assert await asyncio.wait_for(controller.queue.get(), 5) == "ns/pg"
    assert await controller.reconcile("ns/pg") == "unchanged"
    assert len(api.writes) == written


async def test_a_group_that_was_only_heard_of_is_looked_at_a_moment_later(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controlling, "HEARD_SECONDS", 0.02)
    controller.hear("ns/pg", "3")
    assert await asyncio.wait_for(controller.queue.get(), 5) == "ns/pg"
    assert await controller.reconcile("ns/pg") == "gone", "no informer saw it"
    controller.queue.done("ns/pg")
    controller.hint(Upsert(group(version="5")))
    assert await asyncio.wait_for(controller.queue.get(), 5) == "ns/pg"
    controller.queue.done("ns/pg")
    controller.hear("ns/pg", "5")
    assert not len(controller.queue), "it was looked at as it is"
    controller.hear("ns/pg", "6")
    assert len(controller.queue) == 1


async def test_a_failed_write_is_tried_again_until_it_succeeds(
    api: FakeApi, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controlling, "_FIRST_RETRY", 0.01)
    api.refusals = [ApiError(500, "InternalError"), ApiError(409, "Conflict")]
    controller.hint(Upsert(api.put(group())))
    task = asyncio.create_task(controller.run(workers=2))
    await until(lambda: bool(api.writes), api.wrote)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not api.refusals


async def test_a_defect_in_one_group_does_not_end_the_work(
    api: FakeApi, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = group()
    broken.metadata.name = "broken"

    def observe(_: object, of: PodGroup, **__: object) -> Observed:
        if of.metadata.name == "broken":
            raise ZeroDivisionError
        return Observed()

    monkeypatch.setattr(controlling, "observe", observe)
    controller.hint(Upsert(broken))
    controller.hint(Upsert(api.put(group())))
    task = asyncio.create_task(controller.run(workers=1))
    await until(lambda: bool(api.writes), api.wrote)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_gang_that_starts_is_few_writes(api: FakeApi, controller: Controller) -> None:
    controller.hint(Upsert(api.put(group(50))))
    task = asyncio.create_task(controller.run(workers=4))
    await until(lambda: bool(api.writes), api.wrote)
    for number in range(50):
        controller.hint(Upsert(pod(f"p{number}", node="n")))
        await asyncio.sleep(0)
    await until(lambda: api.writes[-1]["pending"] == 50, api.wrote)
    assert len(api.writes) <= 3
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_deleted_group_needs_no_work(api: FakeApi, controller: Controller) -> None:
    controller.hint(Upsert(api.put(group())))
    controller.hint(Delete(PodGroup, "ns", "pg"))
    assert await controller.reconcile("ns/pg") == "gone"
    assert not api.writes


async def test_changes_that_follow_each_other_are_written_as_one(api: FakeApi) -> None:
    settling = patient_controller(api, settle=0.1, counting=30.0)
    settling.hint(Upsert(api.put(group(1))))
    settling.receive(Batch((Upsert(pod("a", "Running", node="n")),), complete=True))
    assert await settling.reconcile("ns/pg") == "unchanged", "Running, but more may change at once"
    await asyncio.sleep(0.15)
    assert await settling.queue.get() == "ns/pg", "it comes again by itself"
    assert await settling.reconcile("ns/pg") == "written"
    (written,) = api.writes
    assert (written["phase"], written["running"]) == ("Running", 1)
    settling.receive(Batch((Upsert(pod("b", "Running", node="n")),), complete=True))
    assert await settling.reconcile("ns/pg") == "unchanged", "numbers alone wait longer"
    assert len(api.writes) == 1


async def test_a_gang_that_is_just_being_bound_has_lost_nothing(api: FakeApi) -> None:
    patient = patient_controller(api, doubtful=30.0)
    missing = (condition("Enqueued", "True"), condition("Scheduled", "False", reason="NotEnoughTasks"))
    maker = job()
    patient.hint(Upsert(maker))
    patient.hint(Upsert(api.put(group(2, conditions=missing, phase="InQueue"))))
    patient.receive(Batch((Upsert(pod("a", "Running", node="n")), Upsert(pod("b"))), complete=True))
    assert await patient.reconcile("ns/pg") == "unchanged"
    patient.receive(Batch((Upsert(pod("b", node="n")),), complete=True))
    assert await patient.reconcile("ns/pg") == "written"
    (written,) = api.writes
    assert written["phase"] == "Running"


async def test_a_gang_of_which_a_part_cannot_be_placed_is_told_of_after_a_while(api: FakeApi) -> None:
    patient = patient_controller(api, doubtful=0.05)
    refused = (condition("Enqueued", "True"), condition("Scheduled", "False"))
    patient.hint(Upsert(api.put(group(2, conditions=refused, phase="InQueue"))))
    patient.receive(Batch((Upsert(pod("a", "Running", node="n")), Upsert(pod("b"))), complete=True))
    assert await patient.queue.get() == "ns/pg"
    assert await patient.reconcile("ns/pg") == "unchanged"
    patient.queue.done("ns/pg")
    assert await patient.queue.get() == "ns/pg", "it comes again by itself"
    assert await patient.reconcile("ns/pg") == "written"
    assert api.writes[-1]["phase"] == "Unknown"


async def test_that_a_node_is_avoided_is_told_once(api: FakeApi) -> None:
    told: list[tuple[str, str]] = []

    class Told:
        def tell(self, regarding: Regarding, type_: str, reason: str, action: str, note: str) -> None:
            told.append((reason, note))

        def remark(self, regarding: Regarding, reason: str, action: str, note: str) -> None:
            self.tell(regarding, "Normal", reason, action, note)

    controller = Controller(api, ReconcileMetrics(CollectorRegistry()), recorder=Told(), now=lambda: NOW)
    controller.hint(Upsert(api.put(group(4))))
    controller.hint(Upsert(pod("a", "Failed", node="n1")))
    await controller.reconcile("ns/pg")
    assert [reason for reason, _ in told].count("NodeAvoided") == 0
    for name in ("b", "c"):
        controller.hint(Upsert(pod(name, "Failed", node="n1")))
        await controller.reconcile("ns/pg")
    found = [note for reason, note in told if reason == "NodeAvoided"]
    assert found == ["2 of its pods failed on node n1: it is avoided from now on (badNodeLimit 2)"]


async def test_of_a_job_that_went_past_its_queue_its_user_is_told_once(api: FakeApi) -> None:
    told: list[tuple[str, str, str, str]] = []

    class Told:
        def tell(self, regarding: Regarding, type_: str, reason: str, action: str, note: str) -> None:
            told.append((regarding.kind, regarding.name, type_, reason))

        def remark(self, regarding: Regarding, reason: str, action: str, note: str) -> None:
            self.tell(regarding, "Normal", reason, action, note)

    controller = Controller(api, ReconcileMetrics(CollectorRegistry()), recorder=Told(), now=lambda: NOW)
    missed = job(named="")
    missed.metadata.labels = {QUEUE_LABEL: "research"}
    missed.spec.template.spec.scheduler_name = "default-scheduler"
    for _ in range(2):
        controller.hint(Upsert(missed))
    assert told == [("Job", "job", "Warning", "PassedByQueue")]
    assert controller.index.missed == {"ns/job": "j"}
    controller.hint(Upsert(job(named="")))  # one that names no queue
    assert controller.index.missed == {}
    controller.hint(Upsert(missed))
    controller.hint(Delete(Job, "ns", "job"))
    assert len(told) == 2
    assert (controller.index.missed, controller.remembered()) == ({}, 0)


async def test_of_a_group_that_is_given_up_it_is_told_what_it_lost_not_how_long_it_waits(api: FakeApi) -> None:
    told: list[tuple[str, str]] = []

    class Told:
        def tell(self, regarding: Regarding, type_: str, reason: str, action: str, note: str) -> None:
            told.append((reason, note))

        def remark(self, regarding: Regarding, reason: str, action: str, note: str) -> None:
            self.tell(regarding, "Normal", reason, action, note)

    controller = Controller(api, ReconcileMetrics(CollectorRegistry()), recorder=Told(), now=lambda: NOW)
    out = (
        condition("Enqueued", "False", reason="WaitingInQueue", message="was sent back by Queue q 1 time"),
        condition("Scheduled", "False", reason="WaitingInQueue", message="was sent back by Queue q 1 time"),
    )
    controller.hint(Upsert(api.put(group(2, conditions=out, phase="Running"))))
    controller.hint(Upsert(pod("a", "Running", node="n")))
    await controller.reconcile("ns/pg")
    assert [note for reason, note in told if reason == "MinimumLost"] == [
        "its minimum was not whole again in time: what is left is evicted, and it queues again"
    ]


@pytest.mark.parametrize("ending", [True, False])
async def test_how_a_group_ended_is_not_written_into_another_of_its_name(
    api: FakeApi, controller: Controller, *, ending: bool
) -> None:
    """Deleted and made anew, and the watch has not told yet: nobody would take back what stands there of an end."""
    of = group(1 if ending else 2, phase="Running")
    of.spec.sub_groups = (SubGroup(name="w", min_member=1, template={"spec": {}}),)
    controller.hint(Upsert(api.put(of)))
    member = pod("pg-w-0", "Succeeded", node="n", role="w")
    member.metadata.owner_references = (OwnerReference(kind="PodGroup", uid="g", controller=True),)
    controller.hint(Upsert(member))
    controller.hint(Upsert(pod("other", "Succeeded" if ending else "Running", node="n")))
    anew = group(1 if ending else 2, uid="anew")
    anew.spec.sub_groups = of.spec.sub_groups
    api.put(anew)
    with pytest.raises(ApiError):
        await controller.reconcile("ns/pg")
    assert api.groups["pg"]["status"] == {}
    controller.hint(Upsert(anew))
    await controller.reconcile("ns/pg")
    assert "finished" not in api.groups["pg"]["status"]


async def test_of_namespaces_that_are_not_looked_after_nothing_is_heard(api: FakeApi) -> None:
    """kopf watches them too: each change of a group there would be a piece of work for nothing."""
    controller = Controller(api, ReconcileMetrics(CollectorRegistry()), within=lambda namespace: namespace == "ours")
    controller.hear("theirs/pg", "7")
    assert len(controller.queue) == 0
    controller.hear("ours/pg", "7")
    assert len(controller.queue) == 1
