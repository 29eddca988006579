"""Whole reviews, as kopf hands them on: filled in, held back, refused."""

from __future__ import annotations

import asyncio
import functools
import json
import random
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import kopf
import msgspec
import pytest
from kopf._cogs.structs import ephemera, references
from kopf._core.engines import admission
from kopf._core.reactor import inventory

from kbatch.api.names import ADMITTED_ANNOTATION
from kbatch.api.objects import Metadata, PodGroup
from kbatch.kube.errors import ApiError
from kbatch.kube.informer import Batch
from kbatch.model.events import Delete, Upsert
from kbatch.process.kopf_host import operator_settings
from tests.unit.webhooks.build import group, quota
from tests.unit.webhooks.spoil import spoil
from tests.unit.webhooks.test_podgroups import SIGNS
from webhooks import podgroups
from webhooks.commits import Ledgers
from webhooks.desk import GATE, OFF, REJECT, Desk, RefusedError, Rules
from webhooks.handlers import HANDLERS, JOBS, PODGROUPS, QUEUES, make_registry
from webhooks.review import MalformedReviewError, parse_review
from webhooks.review_context import reviewing, shown
from webhooks.world import World

RESOURCES = {name: (one.group, one.version, one.resource) for name, one in HANDLERS.items()}


class NoServer:
    """An API server that knows one Job and the quotas it was given, and keeps ConfigMaps to itself."""

    def __init__(self) -> None:
        self.quotas: list[Any] = []
        self.listed: list[Any] = []
        self.written: list[Any] = []
        self.down = False

    async def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        if self.down:
            raise ApiError(503, "Unavailable")
        if path.endswith("/jobs/owner"):
            pod = {"spec": {"containers": [{"resources": {"requests": {"cpu": "2"}}}]}}
            return json.dumps({"metadata": {"name": "owner", "uid": "u"}, "spec": {"template": pod}}).encode()
        if path.endswith(("resourcequotas", "podgroups")):
            items = self.quotas if path.endswith("resourcequotas") else self.listed
            return json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()
        if "/namespaces/" in path and path.count("/") == 4:
            return json.dumps({"metadata": {"uid": "n"}}).encode()
        if method == "POST":
            self.written.append(body)
            return json.dumps({**body, "metadata": {**body["metadata"], "resourceVersion": "5"}}).encode()
        raise ApiError(404, "NotFound")

    def stream(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is watched here")


class Rig:
    def __init__(self, **rules: Any) -> None:
        self.now = 100.0
        self.world = World(clock=lambda: self.now)
        self.server = NoServer()
        self.desk = Desk(
            Rules(scheduler_name="kube-batch", default_queue="default", **rules), self.world, self.server,
            Ledgers(self.server, self.world, namespace="own"),
        )  # fmt: skip

    def see(self, *objects: Any) -> None:
        self.world.receive(Batch(tuple(Upsert(one) for one in objects), complete=True))

    async def refused(
        self, body: dict[str, Any], old: dict[str, Any] | None = None, *, dry_run: bool = False
    ) -> RefusedError:
        with pytest.raises(RefusedError) as caught:
            await self.desk.podgroup(body, old, dry_run=dry_run)
        return caught.value


def podgroup(name: str = "g", cpu: str = "", **spec: Any) -> dict[str, Any]:
    resources = {"minResources": {"cpu": cpu}} if cpu else {}
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": {"queue": "q", **resources, **spec}}


def pod(group: str = "", cpu: str = "1", scheduler: str = "kube-batch") -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {
            "name": "p", "namespace": "ns", "annotations": {"scheduling.k8s.io/group-name": group} if group else {},
        },
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }  # fmt: skip


GATED = {"spec": {"schedulingGates": [{"name": "kbatch.dev/in-queue"}]}}


async def test_min_resources_come_from_the_owning_job() -> None:
    rig = Rig()
    owned = podgroup()
    owned["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", "name": "owner", "uid": "u"}]
    owned["spec"]["minMember"] = 3
    assert await rig.desk.podgroup(owned, None, dry_run=False) == {"spec": {"minResources": {"cpu": "6"}}}
    rig.server.down = True  # then they stay as they are
    assert await rig.desk.podgroup(owned, None, dry_run=False) == {}


async def test_what_was_derived_is_held_against_the_quota_too() -> None:
    rig = Rig()
    rig.see(quota(requests_cpu="5"))
    rig.server.quotas = [{"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "5"}}}]
    owned = podgroup()
    owned["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", "name": "owner", "uid": "u"}]
    owned["spec"]["minMember"] = 3
    assert "asks for 6 requests.cpu" in str(await rig.refused(owned))


async def test_a_quota_is_read_anew_before_it_refuses_somebody() -> None:
    rig = Rig()
    rig.see(quota(requests_cpu="5"))
    rig.server.quotas = [{"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "50"}}}]
    assert await rig.desk.podgroup(podgroup(cpu="6"), None, dry_run=False) == {}
    rig.server.down = True
    assert (await rig.refused(podgroup(cpu="6"))).code == 403


async def test_a_group_that_is_over_is_held_against_nothing() -> None:
    rig = Rig()
    rig.see(quota(requests_cpu="5"))
    rig.server.down = True
    over = {"status": {"phase": "Completed"}}
    assert await rig.desk.podgroup(podgroup(cpu="6"), podgroup(cpu="4") | over, dry_run=False) == {}
    assert (await rig.refused(podgroup(cpu="6"), podgroup(cpu="4"))).code == 403
    # The API server keeps the status as it was, whatever is sent with the spec; here it stands as it was sent.
    assert (await rig.refused(podgroup(cpu="6") | over, podgroup(cpu="4"))).code == 403
    assert (await rig.refused(podgroup(cpu="6") | over)).code == 403


def revived(*, used: str = "") -> Rig:
    """Ten cores, of which a group that is over once had eight, and others have some now."""
    rig = Rig(quota_policy=REJECT)
    rig.see(quota(requests_cpu="10"), group("g", "8", phase="Completed"))
    rig.server.quotas = [{"metadata": {"name": "quota"}, "spec": {"hard": {"requests.cpu": "10"}}}]
    if used:
        rig.see(group("other", used, version=2))
    return rig


async def test_under_reject_a_group_that_comes_to_life_again_is_held_against_the_quota() -> None:
    full = revived(used="4")
    full.server.listed = [{"metadata": {"name": "other"}, "spec": {"minResources": {"cpu": "4"}}}]
    assert not full.desk.guards_no_pod("ns")
    for _ in range(2):
        with pytest.raises(RefusedError, match=r"asks for 8 requests\.cpu, over ResourceQuota quota"):
            await full.desk.readmit(pod("g"), dry_run=False)
    full.see(group("g", "8", version=3, phase="Running"))  # by a Job, before it has pods
    with pytest.raises(RefusedError):
        await full.desk.readmit(pod("g"), dry_run=False)
    await full.desk.readmit(pod("other"), dry_run=False)
    await full.desk.readmit(pod(), dry_run=False)


async def test_a_group_that_has_room_when_it_comes_to_life_again_is_in_the_ledger_once() -> None:
    rig = revived(used="2")
    await rig.desk.readmit(pod("g"), dry_run=True)
    assert rig.server.written == []
    await rig.desk.readmit(pod("g"), dry_run=False)
    assert " 1 cpu=8000 " in rig.server.written[0]["data"]["entries"]
    assert rig.desk.guards_no_pod("ns")
    rig.see(group("g", "8", version=3, phase="Running"))
    await rig.desk.readmit(pod("g"), dry_run=False)
    assert len(rig.server.written) == 1


async def test_a_group_that_did_not_come_to_life_after_all_is_held_against_the_quota_once_more() -> None:
    """Its pod was refused by somebody else, say: the grant runs out, and others may have what it had."""
    rig = revived()
    await rig.desk.readmit(pod("g"), dry_run=False)
    assert rig.desk.guards_no_pod("ns")
    rig.now += 29
    assert rig.desk.guards_no_pod("ns"), "its other pods come by the same grant"
    rig.now += 1
    assert not rig.desk.guards_no_pod("ns")
    rig.server.listed = [{"metadata": {"name": "other"}, "spec": {"minResources": {"cpu": "4"}}}]
    rig.see(group("other", "4", version=2))
    with pytest.raises(RefusedError, match=r"asks for 8 requests\.cpu, over ResourceQuota quota"):
        await rig.desk.readmit(pod("g"), dry_run=False)


async def test_groups_come_to_life_again_unseen_where_no_sum_is_kept() -> None:
    for rig in (Rig(), Rig(quota_policy=REJECT)):
        rig.see(group("g", "80", phase="Completed"))
        rig.server.down = True
        assert rig.desk.guards_no_pod("ns")
        await rig.desk.readmit(pod("g"), dry_run=False)


async def test_under_reject_a_group_carries_the_token_of_its_entry() -> None:
    rig = Rig(quota_policy=REJECT)
    rig.see(quota(requests_cpu="5"))
    changes = await rig.desk.podgroup(podgroup(cpu="4"), None, dry_run=False)
    assert len(changes["metadata"]["annotations"][ADMITTED_ANNOTATION]) == 12
    assert "name" not in changes["metadata"]
    generated = podgroup(cpu="1")
    generated["metadata"] = {"generateName": "night-", "namespace": "ns"}
    rig.server.quotas = []
    changes = await Rig(quota_policy=REJECT).desk.podgroup(generated, None, dry_run=False)
    assert changes == {}  # no quota there
    other = Rig(quota_policy=REJECT)
    other.see(quota(requests_cpu="5"))
    assert (await other.desk.podgroup(generated, None, dry_run=False))["metadata"]["name"].startswith("night-")


async def test_under_reject_what_cannot_be_decided_is_refused() -> None:
    rig = Rig(quota_policy=REJECT)
    rig.see(quota(requests_cpu="5"))
    rig.server.down = True
    error = await rig.refused(podgroup(cpu="4"))
    assert error.code == 503
    assert "try again" in str(error)


async def test_pods_wait_at_a_gate_until_their_group_is_in_queue() -> None:
    rig = Rig(gate_pods=True, reservations=OFF)
    assert rig.desk.pod(pod("g"), dry_run=False) == GATED
    assert rig.desk.pod(pod(), dry_run=False) == {}
    assert rig.desk.pod(pod("g", scheduler="other"), dry_run=False) == {}
    rig.see(group("g", enqueued=True))
    assert rig.desk.pod(pod("g"), dry_run=False) == {}
    rig.see(group("g", phase="Pending"))
    assert rig.desk.pod(pod("g"), dry_run=False) == GATED


async def test_a_pod_that_would_eat_into_a_reservation_is_refused_or_gated() -> None:
    rig = Rig()
    rig.see(quota(requests_cpu="10"), group("holder", "8", enqueued=True))
    with pytest.raises(RefusedError, match="0 used and 8 reserved of 10"):
        rig.desk.pod(pod("early", cpu="3"), dry_run=False)
    assert rig.desk.pod(pod("holder", cpu="8"), dry_run=False) == {}
    gating = Rig(reservations=GATE)
    gating.see(quota(requests_cpu="10"), group("holder", "8", enqueued=True), group("other", "1", enqueued=True))
    assert gating.desk.pod(pod("early", cpu="3"), dry_run=False) == GATED
    for nobody_lifts_it in (pod(cpu="3"), pod("other", cpu="3"), pod("early", cpu="3", scheduler="default")):
        with pytest.raises(RefusedError):
            gating.desk.pod(nobody_lifts_it, dry_run=False)


async def test_pods_at_once_do_not_pass_together_what_one_could_not() -> None:
    rig = Rig()
    rig.see(quota(requests_cpu="10"), group("holder", "8", enqueued=True))
    assert rig.desk.pod(pod(cpu="1"), dry_run=True) == {}
    for _ in range(2):
        assert rig.desk.pod(pod(cpu="1"), dry_run=False) == {}
    with pytest.raises(RefusedError):
        rig.desk.pod(pod(cpu="1"), dry_run=False)


async def test_reservations_end_with_their_groups() -> None:
    rig = Rig()
    rig.see(quota(requests_cpu="10"), group("holder", "8", enqueued=True))
    rig.see(group("holder", "8", enqueued=True, phase="Running"))
    assert rig.desk.pod(pod(cpu="9"), dry_run=False) == {}
    rig.see(group("holder", "8", enqueued=True, phase="InQueue"))
    rig.world.receive(Batch((Delete(PodGroup, "ns", "holder"),), complete=True))
    assert rig.desk.pod(pod(cpu="9"), dry_run=False) == {}


async def test_nobody_gives_back_what_he_never_had() -> None:
    """The schema, which knows no negative amounts, is held against a group only after admission."""
    rig = Rig(quota_policy=REJECT)
    rig.see(quota(requests_cpu="10"))
    rig.server.quotas = [{"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "10"}}}]
    assert await rig.desk.podgroup(podgroup("a", cpu="-100"), None, dry_run=False) == {}
    assert await rig.desk.podgroup(podgroup("b", minResources={"pods": "-5"}), None, dry_run=False) == {}
    assert rig.server.written == []
    await rig.refused(podgroup("c", cpu="11"))


async def test_a_name_that_cannot_be_is_in_no_ledger() -> None:
    rig = Rig(quota_policy=REJECT)
    rig.see(quota(requests_cpu="10"))
    for name in ("a b", "A", "a\nb", "a" * 254, "\u00e9"):
        assert await rig.desk.podgroup(podgroup(name, cpu="1"), None, dry_run=False) == {}
    assert rig.server.written == []
    long = podgroup("g", cpu="1")
    long["spec"]["minResources"]["x" * 5000] = "1"
    assert (await rig.refused(long)).code == 422


def test_pods_need_no_handler_where_nothing_is_reserved() -> None:
    rig, gating, off = Rig(), Rig(gate_pods=True), Rig(reservations=OFF)
    for one in (rig, gating, off):
        assert one.desk.guards_no_pod("ns") is (one is not gating)
        one.see(quota(requests_cpu="10"), group("waits", "8"))
        assert one.desk.guards_no_pod("ns") is (one is not gating)
        one.see(group("holder", "8", enqueued=True))
        assert one.desk.guards_no_pod("ns") is (one is off)
        assert one.desk.guards_no_pod("other") is (one is not gating)


def templated(text: str, *, roles: int = 1, least: int = 2) -> dict[str, Any]:
    container = {"name": "c", "args": [text]}
    template = {"spec": {"containers": [container]}}
    return podgroup(subGroups=[{"name": f"r{n}", "minMember": least, "template": template} for n in range(roles)])


class _Threads:
    """In which threads templates were looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[int] = []
        self._look = podgroups.template_error
        monkeypatch.setattr(podgroups, "template_error", self._noted)

    def _noted(self, *given: Any, **named: Any) -> str | None:
        self.seen.append(threading.get_ident())
        return self._look(*given, **named)


async def test_templates_are_rendered_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, threads, here = Rig(), _Threads(monkeypatch), threading.get_ident()
    assert await rig.desk.podgroup(templated("{{ index }}"), None, dry_run=False) == {"spec": {"minimum": 2}}
    assert here not in threads.seen
    error = await rig.refused(templated("{{ x }}"))
    assert (error.code, here not in threads.seen) == (422, True)
    await rig.desk.podgroup(templated("as it is"), None, dry_run=False)
    assert threads.seen[2:] == [here]


async def test_a_review_ends_when_its_budget_does_and_the_loop_goes_on_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("webhooks.review_context.LONGEST", 600.0)  # however busy the machine is
    rig, turns = Rig(), 0
    hostile = templated(SIGNS, roles=64, least=400)
    started = time.process_time()
    with reviewing(time.monotonic(), "60s"):
        review = asyncio.create_task(rig.refused(hostile))
        while not review.done():
            await asyncio.sleep(0.001)
            turns += 1
    assert "steps together" in str(await review)
    assert turns > 10
    assert time.process_time() - started < 10.0  # half a minute without a budget


async def test_templates_that_could_not_be_checked_in_time_pass_with_a_warning() -> None:
    rig, door = Rig(), threading.Event()
    first = asyncio.create_task(rig.desk._offload.run("other", door.wait))
    try:
        with reviewing(time.monotonic(), "0s") as context:
            assert await rig.desk.podgroup(templated("{{ x }}"), None, dry_run=False) == {"spec": {"minimum": 2}}
    finally:
        door.set()
    assert "could not be checked in time" in context.warnings[0]
    assert await first


async def test_an_estimate_that_cannot_be_read_is_told() -> None:
    rig, says = Rig(), {"kbatch.dev/expected-seconds": "1h"}
    wrong = {"metadata": {"name": "g", "namespace": "ns", "annotations": says}}
    with reviewing(time.monotonic(), "5s") as context:
        await rig.desk.podgroup(wrong, None, dry_run=False)
        rig.desk.job(wrong)
    assert ["'1h', which is no number of seconds" in text for text in context.warnings] == [True, True]


# --- through kopf -----------------------------------------------------------------------------------------------------


def reviewer(rig: Rig, kept: inventory.ResourceMemories | None = None) -> Callable[..., Any]:
    insights = references.Insights()
    for api_group, version, plural in RESOURCES.values():
        insights.webhook_resources.add(references.Resource(api_group, version, plural))
    return functools.partial(
        admission.serve_admission_request, settings=operator_settings(), memories=kept or inventory.ResourceMemories(),
        memobase=cast(ephemera.AnyMemo, None), registry=make_registry(rig.desk), insights=insights, indices={},
    )  # fmt: skip


def review(handler: str, body: dict[str, Any], **more: Any) -> dict[str, Any]:
    api_group, version, plural = RESOURCES[handler]
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u-1", "operation": "CREATE", "userInfo": {"username": "somebody"}, "object": body,
            "resource": {"group": api_group, "version": version, "resource": plural},
            "oldObject": None, "dryRun": False, **more,
        },
    }  # fmt: skip


async def test_an_answer_holds_the_patch_and_a_refusal_its_status() -> None:
    rig = Rig()
    call = reviewer(rig)
    job = {
        "metadata": {"name": "j", "namespace": "ns", "labels": {"kbatch.dev/queue": "q"}},
        "spec": {"template": {"spec": {"schedulerName": "default-scheduler"}}},
    }
    with reviewing(0.0, "5s") as context:
        answer = await call(review(JOBS, job), webhook=JOBS)
    assert answer["response"]["allowed"] is True
    done = {operation["path"]: operation["value"] for operation in context.operations}
    assert done["/spec/suspend"] is True
    assert done["/metadata/annotations"] == {"kbatch.dev/suspended": "true"}
    assert done["/spec/template/metadata"] == {"annotations": {"scheduling.k8s.io/group-name": "j"}}
    assert done["/spec/template/spec/schedulerName"] == "kube-batch"
    bad = podgroup()
    bad["spec"]["subGroups"] = [
        {"name": "w", "minMember": 1, "template": {"spec": {"containers": [{"name": "{{ x }}"}]}}}
    ]
    refused = (await call(review(PODGROUPS, bad), webhook=PODGROUPS))["response"]
    assert refused["allowed"] is False
    assert refused["status"]["code"] == 422
    update = await call(review(JOBS, job, operation="UPDATE", oldObject=job), webhook=JOBS)
    assert "patch" not in update["response"]


async def test_kopf_keeps_nothing_of_the_objects_that_are_reviewed() -> None:
    kept = inventory.ResourceMemories()
    call = reviewer(Rig(), kept)
    for number in range(20):
        body = podgroup() | {"metadata": {"name": f"g{number}", "namespace": "ns", "uid": f"u{number}"}}
        with reviewing(0.0, "5s", body, body):
            seen = shown(body)
            assert seen is not None
            await call(review(PODGROUPS, seen, operation="UPDATE", oldObject=seen), webhook=PODGROUPS)
    assert len(list(kept.iter_all_memories())) <= 1


def deletion(name: str, **more: Any) -> dict[str, Any]:
    queue = {"metadata": {"name": name}, "spec": {"weight": 1}}
    return review(QUEUES, None, operation="DELETE", oldObject=queue, **more)  # type: ignore[arg-type]


async def test_a_queue_is_deleted_only_without_groups_on_a_dry_run_too() -> None:
    rig = Rig()
    rig.see(*(group(name, queue="q", phase=phase) for name, phase in (("a", "Running"), ("b", ""), ("c", "Completed"))))
    call = reviewer(rig)
    for dry_run in (False, True):
        refused = (await call(deletion("q", dryRun=dry_run), webhook=QUEUES))["response"]
        assert refused["allowed"] is False
        assert refused["status"] == {
            "code": 403,
            "message": "Queue q still has 2 groups (1 pending or in queue, 1 running): delete or move them first",
        }
        assert (await call(deletion("r", dryRun=dry_run), webhook=QUEUES))["response"]["allowed"] is True
    changed = {"metadata": {"name": "q"}, "spec": {"weight": 2}}
    update = review(QUEUES, changed, operation="UPDATE", oldObject=changed)
    assert (await call(update, webhook=QUEUES))["response"]["allowed"] is True


async def test_groups_that_name_no_queue_are_in_the_default_queue() -> None:
    rig = Rig()
    rig.see(group("a", queue=""), group("b", queue="default"))
    with pytest.raises(RefusedError, match="Queue default still has 2 groups"):
        rig.desk.queue_deletion({"metadata": {"name": "default"}})
    rig.desk.queue_deletion({"metadata": {"name": "other"}})


@pytest.mark.parametrize("seed", range(3))
async def test_no_spoilt_group_larger_than_its_quota_passes(seed: int) -> None:
    """What cannot be read may pass (the schema refuses it); what can be read and is too large may not."""
    chance = random.Random(seed)
    rig = Rig()
    rig.see(quota(requests_cpu="10"))
    rig.server.quotas = [{"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "10"}}}]
    for _ in range(200):
        body = podgroup(cpu="11")
        body["spec"] |= {"lifetimeSeconds": 5, "disruption": "Never"}
        body["metadata"] |= {"labels": {"a": "b"}, "ownerReferences": [{"kind": "Job", "name": "x"}]}
        body["metadata"] = spoil(body["metadata"], chance) | {"namespace": "ns"}
        try:
            parse_review(json.dumps(review(PODGROUPS, body)).encode())
        except MalformedReviewError:
            continue
        try:
            await rig.desk.podgroup(body, None, dry_run=False)
        except RefusedError:
            continue
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(body["metadata"], Metadata)


async def test_a_defect_is_no_refusal(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    monkeypatch.setattr(rig.desk, "job", lambda _: 1 // 0)
    with reviewing(0.0, "5s") as context:
        await reviewer(rig)(review(JOBS, {"metadata": {}}), webhook=JOBS)
    assert isinstance(context.failed, ZeroDivisionError)
    assert "ZeroDivisionError" in caplog.text
    caplog.clear()


def test_kopf_is_given_each_handler_once() -> None:
    registry = make_registry(Rig().desk)
    assert isinstance(registry, kopf.OperatorRegistry)
    assert {handler.id for handler in registry._webhooks.get_all_handlers()} == set(HANDLERS)


async def test_a_large_group_is_read_beside_the_event_loop_and_answered_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    threads: list[bool] = []
    read = podgroups.read_spec

    def noting(body: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return read(body)

    monkeypatch.setattr(podgroups, "read_spec", noting)
    given = podgroup()
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}
    given["spec"] = {"subGroups": [{"name": "w", "minMember": 3, "template": template}]}
    answers = []
    for large in (False, True):
        with reviewing(time.monotonic(), "60s", large=large):
            answers.append(await rig.desk.podgroup(given, None, dry_run=False))
    assert answers[0] == answers[1] == {"spec": {"minResources": {"cpu": "6"}, "minimum": 3}}
    assert threads == [True, True, False, False]
    broken = podgroup()
    broken["spec"] = {"minMember": "many"}
    with reviewing(time.monotonic(), "60s", large=True):
        assert await rig.desk.podgroup(broken, None, dry_run=False) == {}
