"""Whole reviews, as they are read and as kopf hands them on: filled in, held back, refused."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import random
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import kopf
import pytest
from kopf._cogs.structs import ephemera, references
from kopf._core.engines import admission as kopf_admission
from kopf._core.reactor import inventory

from kbatch.api.names import ADMITTED_ANNOTATION
from kbatch.api.objects import Pod, PodGroup
from kbatch.kube.errors import ApiError
from kbatch.kube.informer import Batch
from kbatch.model import template_check
from kbatch.model.events import Delete, Upsert
from kbatch.process.kopf_host import operator_settings
from tests.unit.webhooks.build import group, quota
from tests.unit.webhooks.spoil import spoil
from tests.unit.webhooks.test_podgroups import SIGNS
from webhooks import admission, jobs
from webhooks.admission import GATE, OFF, REJECT, Admission, RefusedError, Rules
from webhooks.cluster_view import ClusterView
from webhooks.commits import Ledgers
from webhooks.defaults import defaults
from webhooks.handlers import HANDLERS, JOBS, PODGROUPS, PODS, QUEUES, make_registry
from webhooks.review import MalformedReviewError, Review, read_review
from webhooks.review_context import reviewing

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
    def __init__(self, *, pods_later: bool = False, **rules: Any) -> None:
        self.now = 100.0
        self.view = ClusterView(clock=lambda: self.now, pods_later=pods_later)
        self.server = NoServer()
        self.admission = Admission(
            Rules(scheduler_name="kube-batch", default_queue="default", **rules), self.view, self.server,
            Ledgers(self.server, self.view, namespace="own"),
        )  # fmt: skip

    def see(self, *objects: Any) -> None:
        self.view.receive(Batch(tuple(Upsert(one) for one in objects), complete=True))

    async def decide(
        self, handler: str, body: dict[str, Any], old: dict[str, Any] | None = None, *, dry_run: bool = False
    ) -> dict[str, Any]:
        """What is changed of an object that is created (no `old`) or changed, or of a Queue that is deleted."""
        return await self.admission.decide(read(changed(handler, body, old, dryRun=dry_run), handler))

    async def refused(
        self, body: dict[str, Any], old: dict[str, Any] | None = None, *, dry_run: bool = False
    ) -> RefusedError:
        with pytest.raises(RefusedError) as caught:
            await self.decide(PODGROUPS, body, old, dry_run=dry_run)
        return caught.value


def review(handler: str, body: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
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


def changed(handler: str, body: dict[str, Any], old: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    if handler == QUEUES:
        return review(handler, None, operation="DELETE", oldObject=body, **more)
    return review(handler, body, operation="CREATE" if old is None else "UPDATE", oldObject=old, **more)


def read(made: dict[str, Any], handler: str, *, seconds: float = 60.0, large: bool = False) -> Review:
    """The review as the server hands it on."""
    return read_review(json.dumps(made).encode(), HANDLERS[handler], deadline=time.monotonic() + seconds, large=large)


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
    assert await rig.decide(PODGROUPS, owned) == {"spec": {"minResources": {"cpu": "6"}}}
    rig.server.down = True  # then they stay as they are
    assert await rig.decide(PODGROUPS, owned) == {}


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
    assert await rig.decide(PODGROUPS, podgroup(cpu="6")) == {}
    rig.server.down = True
    assert (await rig.refused(podgroup(cpu="6"))).code == 403


async def test_a_group_that_is_over_is_held_against_nothing() -> None:
    rig = Rig()
    rig.see(quota(requests_cpu="5"))
    rig.server.down = True
    over = {"status": {"phase": "Completed"}}
    assert await rig.decide(PODGROUPS, podgroup(cpu="6"), podgroup(cpu="4") | over) == {}
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
    assert not full.admission.guards_no_pod("ns")
    for _ in range(2):
        with pytest.raises(RefusedError, match=r"asks for 8 requests\.cpu, over ResourceQuota quota"):
            await full.decide(PODS, pod("g"))
    full.see(group("g", "8", version=3, phase="Running"))  # by a Job, before it has pods
    with pytest.raises(RefusedError):
        await full.decide(PODS, pod("g"))
    await full.decide(PODS, pod("other"))
    await full.decide(PODS, pod())


async def test_a_group_that_has_room_when_it_comes_to_life_again_is_in_the_ledger_once() -> None:
    rig = revived(used="2")
    await rig.decide(PODS, pod("g"), dry_run=True)
    assert rig.server.written == []
    await rig.decide(PODS, pod("g"))
    assert " 1 cpu=8000 " in rig.server.written[0]["data"]["entries"]
    assert rig.admission.guards_no_pod("ns")
    rig.see(group("g", "8", version=3, phase="Running"))
    await rig.decide(PODS, pod("g"))
    assert len(rig.server.written) == 1


async def test_a_group_that_did_not_come_to_life_after_all_is_held_against_the_quota_once_more() -> None:
    """Its pod was refused by somebody else, say: the grant runs out, and others may have what it had."""
    rig = revived()
    await rig.decide(PODS, pod("g"))
    assert rig.admission.guards_no_pod("ns")
    rig.now += 29
    assert rig.admission.guards_no_pod("ns"), "its other pods come by the same grant"
    rig.now += 1
    assert not rig.admission.guards_no_pod("ns")
    rig.server.listed = [{"metadata": {"name": "other"}, "spec": {"minResources": {"cpu": "4"}}}]
    rig.see(group("other", "4", version=2))
    with pytest.raises(RefusedError, match=r"asks for 8 requests\.cpu, over ResourceQuota quota"):
        await rig.decide(PODS, pod("g"))


async def test_groups_come_to_life_again_unseen_where_no_sum_is_kept() -> None:
    for rig in (Rig(), Rig(quota_policy=REJECT)):
        rig.see(group("g", "80", phase="Completed"))
        rig.server.down = True
        assert rig.admission.guards_no_pod("ns")
        await rig.decide(PODS, pod("g"))


async def test_under_reject_a_group_carries_the_token_of_its_entry() -> None:
    rig = Rig(quota_policy=REJECT)
    rig.see(quota(requests_cpu="5"))
    changes = await rig.decide(PODGROUPS, podgroup(cpu="4"))
    assert len(changes["metadata"]["annotations"][ADMITTED_ANNOTATION]) == 12
    assert "name" not in changes["metadata"]
    generated = podgroup(cpu="1")
    generated["metadata"] = {"generateName": "night-", "namespace": "ns"}
    rig.server.quotas = []
    changes = await Rig(quota_policy=REJECT).decide(PODGROUPS, generated)
    assert changes == {}  # no quota there
    other = Rig(quota_policy=REJECT)
    other.see(quota(requests_cpu="5"))
    assert (await other.decide(PODGROUPS, generated))["metadata"]["name"].startswith("night-")


async def test_a_group_that_is_reviewed_again_carries_the_tokens_of_both_reviews() -> None:
    """The API server asks once more when another webhook has changed the object."""
    rig = Rig(quota_policy=REJECT)
    rig.see(quota(requests_cpu="5"))
    again = podgroup(cpu="4")
    first = "0123456789ab"
    for carried, kept in ((first, f"{first},"), (f"ba9876543210,{first}", f"{first},"), ("a user's", ""), ("", "")):
        again["metadata"]["annotations"] = {ADMITTED_ANNOTATION: carried}
        changes = await rig.decide(PODGROUPS, again)
        token = changes["metadata"]["annotations"][ADMITTED_ANNOTATION]
        assert token[:-12] == kept


async def test_under_reject_what_cannot_be_decided_is_refused() -> None:
    rig = Rig(quota_policy=REJECT)
    rig.see(quota(requests_cpu="5"))
    rig.server.down = True
    error = await rig.refused(podgroup(cpu="4"))
    assert error.code == 503
    assert "try again" in str(error)


async def test_pods_wait_at_a_gate_until_their_group_is_in_queue() -> None:
    rig = Rig(gate_pods=True, reservations=OFF)
    assert await rig.decide(PODS, pod("g")) == GATED
    assert await rig.decide(PODS, pod()) == {}
    assert await rig.decide(PODS, pod("g", scheduler="other")) == {}
    rig.see(group("g", enqueued=True))
    assert await rig.decide(PODS, pod("g")) == {}
    rig.see(group("g", phase="Pending"))
    assert await rig.decide(PODS, pod("g")) == GATED


async def test_a_pod_that_would_eat_into_a_reservation_is_refused_or_gated() -> None:
    rig = Rig()
    rig.see(quota(requests_cpu="10"), group("holder", "8", enqueued=True))
    with pytest.raises(RefusedError, match="0 used and 8 reserved of 10"):
        await rig.decide(PODS, pod("early", cpu="3"))
    assert await rig.decide(PODS, pod("holder", cpu="8")) == {}
    gating = Rig(reservations=GATE)
    gating.see(quota(requests_cpu="10"), group("holder", "8", enqueued=True), group("other", "1", enqueued=True))
    assert await gating.decide(PODS, pod("early", cpu="3")) == GATED
    for nobody_lifts_it in (pod(cpu="3"), pod("other", cpu="3"), pod("early", cpu="3", scheduler="default")):
        with pytest.raises(RefusedError):
            await gating.decide(PODS, nobody_lifts_it)


async def test_pods_at_once_do_not_pass_together_what_one_could_not() -> None:
    rig = Rig()
    rig.see(quota(requests_cpu="10"), group("holder", "8", enqueued=True))
    assert await rig.decide(PODS, pod(cpu="1"), dry_run=True) == {}
    for _ in range(2):
        assert await rig.decide(PODS, pod(cpu="1")) == {}
    with pytest.raises(RefusedError):
        await rig.decide(PODS, pod(cpu="1"))


async def test_reservations_end_with_their_groups() -> None:
    rig = Rig()
    rig.see(quota(requests_cpu="10"), group("holder", "8", enqueued=True))
    rig.see(group("holder", "8", enqueued=True, phase="Running"))
    assert await rig.decide(PODS, pod(cpu="9")) == {}
    rig.see(group("holder", "8", enqueued=True, phase="InQueue"))
    rig.view.receive(Batch((Delete(PodGroup, "ns", "holder"),), complete=True))
    assert await rig.decide(PODS, pod(cpu="9")) == {}


async def test_nobody_gives_back_what_he_never_had() -> None:
    """The schema, which knows no negative amounts, is held against a group only after admission."""
    rig = Rig(quota_policy=REJECT)
    rig.see(quota(requests_cpu="10"))
    rig.server.quotas = [{"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "10"}}}]
    assert await rig.decide(PODGROUPS, podgroup("a", cpu="-100")) == {}
    assert await rig.decide(PODGROUPS, podgroup("b", minResources={"pods": "-5"})) == {}
    assert rig.server.written == []
    await rig.refused(podgroup("c", cpu="11"))


async def test_a_name_that_cannot_be_is_in_no_ledger() -> None:
    rig = Rig(quota_policy=REJECT)
    rig.see(quota(requests_cpu="10"))
    for name in ("a b", "A", "a\nb", "a" * 254, "\u00e9"):
        assert await rig.decide(PODGROUPS, podgroup(name, cpu="1")) == {}
    long = podgroup("g", cpu="1")
    long["spec"]["minResources"]["x" * 5000] = "1"
    assert await rig.decide(PODGROUPS, long) == {}, "the CRD's schema refuses it"
    assert rig.server.written == []


def test_pods_need_no_handler_where_nothing_is_reserved() -> None:
    rig, gating, off = Rig(), Rig(gate_pods=True), Rig(reservations=OFF)
    for one in (rig, gating, off):
        assert one.admission.guards_no_pod("ns") is (one is not gating)
        one.see(quota(requests_cpu="10"), group("waits", "8"))
        assert one.admission.guards_no_pod("ns") is (one is not gating)
        one.see(group("holder", "8", enqueued=True))
        assert one.admission.guards_no_pod("ns") is (one is off)
        assert one.admission.guards_no_pod("other") is (one is not gating)


async def test_pods_are_asked_for_where_a_quota_has_groups_and_pass_until_they_are_known() -> None:
    """Each watch of pods costs the API server as much as it has changes to tell; half a picture refuses the wrong."""
    rig = Rig(pods_later=True)
    rig.see(group("elsewhere", "8", enqueued=True))
    assert not rig.view.wants_pods.is_set()
    rig.see(quota(requests_cpu="10"))
    assert rig.view.wants_pods.is_set()
    other = Rig(pods_later=True)
    other.see(quota(requests_cpu="10"), group("over", "8", phase="Completed"))
    assert not other.view.wants_pods.is_set()
    other.see(group("holder", "8", enqueued=True))
    assert other.view.wants_pods.is_set()
    assert other.admission.guards_no_pod("ns")
    assert await other.decide(PODS, pod("early", cpu="3")) == {}
    other.view.receive(Batch((), complete=False))
    assert await other.decide(PODS, pod("early", cpu="3")) == {}
    other.view.receive(Batch((), complete=True, listed=(Pod, "7")))
    assert not other.admission.guards_no_pod("ns")
    with pytest.raises(RefusedError, match="0 used and 8 reserved of 10"):
        await other.decide(PODS, pod("early", cpu="3"))


def templated(text: str, *, roles: int = 1, least: int = 2) -> dict[str, Any]:
    container = {"name": "c", "args": [text]}
    template = {"spec": {"containers": [container]}}
    return podgroup(subGroups=[{"name": f"r{n}", "minMember": least, "template": template} for n in range(roles)])


class _Threads:
    """In which threads templates were looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[int] = []
        self._look = template_check.template_error
        monkeypatch.setattr(template_check, "template_error", self._noted)

    def _noted(self, *given: Any, **named: Any) -> str | None:
        self.seen.append(threading.get_ident())
        return self._look(*given, **named)


async def test_templates_are_rendered_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, threads, here = Rig(), _Threads(monkeypatch), threading.get_ident()
    assert await rig.decide(PODGROUPS, templated("{{ index }}")) == {"spec": {"minimum": 2}}
    assert here not in threads.seen
    error = await rig.refused(templated("{{ x }}"))
    assert (error.code, here not in threads.seen) == (422, True)
    await rig.decide(PODGROUPS, templated("as it is"))
    assert threads.seen[2:] == [here]


async def test_a_review_ends_when_its_budget_does_and_the_loop_goes_on_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig, turns = Rig(), 0
    hostile = templated(SIGNS, roles=64, least=400)
    started = time.process_time()
    made = read(review(PODGROUPS, hostile), PODGROUPS, seconds=600.0)  # however busy the machine is
    deciding = asyncio.create_task(rig.admission.decide(made))
    while not deciding.done():
        await asyncio.sleep(0.001)
        turns += 1
    with pytest.raises(RefusedError, match="steps together"):
        await deciding
    assert turns > 10
    assert time.process_time() - started < 10.0  # half a minute without a budget


async def test_templates_that_could_not_be_checked_in_time_pass_with_a_warning() -> None:
    rig, door = Rig(), threading.Event()
    first = asyncio.create_task(rig.admission._offload.run("other", door.wait))
    try:
        made = read(review(PODGROUPS, templated("{{ x }}")), PODGROUPS, seconds=0.0)
        assert await rig.admission.decide(made) == {"spec": {"minimum": 2}}
    finally:
        door.set()
    assert "could not be checked in time" in made.warnings[0]
    assert await first


async def test_an_estimate_that_cannot_be_read_is_told() -> None:
    rig, says = Rig(), {"kbatch.dev/expected-seconds": "1h"}
    wrong = {"metadata": {"name": "g", "namespace": "ns", "annotations": says}}
    for handler in (PODGROUPS, JOBS):
        made = read(review(handler, wrong), handler)
        await rig.admission.decide(made)
        assert ["'1h', which is no number of seconds" in text for text in made.warnings] == [True]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"queue": "other"},
            "spec.queue follows Job g, for which the group was made, while it waits: change the label",
        ),
        ({"minMember": 1}, "spec.minMember follows Job g"),
        ({"minResources": {"cpu": "1"}}, "spec.minResources follows Job g"),
        ({"disruption": "Whole"}, ""),
    ],
)
async def test_an_edit_that_goes_by_the_job_of_the_group_is_told(change: dict[str, Any], said: str) -> None:
    rig, job = Rig(), {"apiVersion": "batch/v1", "kind": "Job", "name": "g", "uid": "u", "controller": True}

    async def told(job: dict[str, Any], **status: Any) -> list[str]:
        before, after = podgroup(cpu="4", minMember=2), podgroup(cpu="4", minMember=2)
        before["status"] = status
        for one in (before, after):
            one["metadata"]["ownerReferences"] = [job]
        after["spec"] |= change
        made = read(changed(PODGROUPS, after, before), PODGROUPS)
        await rig.admission.decide(made)
        return made.warnings

    assert [text.startswith(said) for text in await told(job)] == [True] * bool(said)
    assert await told(job, phase="Pending") == await told(job)
    assert await told(job, phase="InQueue") == []
    assert await told(job | {"name": "another"}) == []
    assert await told(job | {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}) == []


# --- through kopf -----------------------------------------------------------------------------------------------------


def reviewer(rig: Rig, kept: inventory.ResourceMemories | None = None) -> Callable[..., Any]:
    insights = references.Insights()
    for api_group, version, plural in RESOURCES.values():
        insights.webhook_resources.add(references.Resource(api_group, version, plural))
    return functools.partial(
        kopf_admission.serve_admission_request, settings=operator_settings(), registry=make_registry(rig.admission),
        memories=kept or inventory.ResourceMemories(), memobase=cast(ephemera.AnyMemo, None), insights=insights,
        indices={},
    )  # fmt: skip


async def ask(call: Callable[..., Any], made: dict[str, Any], handler: str) -> tuple[dict[str, Any], Review]:
    """What kopf answers to a review, and what became of that."""
    made_of_it = read(made, handler)
    with reviewing(made_of_it) as shown:
        return (await call(shown, webhook=handler))["response"], made_of_it


async def test_an_answer_holds_the_patch_and_a_refusal_its_status() -> None:
    rig = Rig()
    call = reviewer(rig)
    job = {
        "metadata": {"name": "j", "namespace": "ns", "labels": {"kbatch.dev/queue": "q"}},
        "spec": {"template": {"spec": {"schedulerName": "default-scheduler"}}},
    }
    answer, made = await ask(call, review(JOBS, job), JOBS)
    assert answer["allowed"] is True
    done = {operation["path"]: operation["value"] for operation in json.loads(base64.b64decode(made.patch()))}
    assert done["/spec/suspend"] is True
    assert done["/metadata/annotations"] == {"kbatch.dev/suspended": "true", "kbatch.dev/own-group": "true"}
    assert done["/spec/template/metadata"] == {"annotations": {"scheduling.k8s.io/group-name": "j"}}
    assert done["/spec/template/spec/schedulerName"] == "kube-batch"
    bad = podgroup()
    bad["spec"]["subGroups"] = [
        {"name": "w", "minMember": 1, "template": {"spec": {"containers": [{"name": "{{ x }}"}]}}}
    ]
    refused, _ = await ask(call, review(PODGROUPS, bad), PODGROUPS)
    assert refused["allowed"] is False
    assert refused["status"]["code"] == 422
    _, update = await ask(call, changed(JOBS, job, job), JOBS)
    assert update.changes == {}


async def test_kopf_keeps_nothing_of_the_objects_that_are_reviewed() -> None:
    kept = inventory.ResourceMemories()
    call = reviewer(Rig(), kept)
    for number in range(20):
        body = podgroup() | {"metadata": {"name": f"g{number}", "namespace": "ns", "uid": f"u{number}"}}
        await ask(call, changed(PODGROUPS, body, body), PODGROUPS)
    assert len(list(kept.iter_all_memories())) <= 1


def deletion(name: str, **more: Any) -> dict[str, Any]:
    return changed(QUEUES, {"metadata": {"name": name}, "spec": {"weight": 1}}, **more)


async def test_a_queue_is_deleted_only_without_groups_on_a_dry_run_too() -> None:
    rig = Rig()
    rig.see(*(group(name, queue="q", phase=phase) for name, phase in (("a", "Running"), ("b", ""), ("c", "Completed"))))
    call = reviewer(rig)
    for dry_run in (False, True):
        refused, _ = await ask(call, deletion("q", dryRun=dry_run), QUEUES)
        assert refused["allowed"] is False
        assert refused["status"] == {
            "code": 403,
            "message": "Queue q still has 2 groups (1 pending or in queue, 1 running): delete or move them first",
        }
        assert (await ask(call, deletion("r", dryRun=dry_run), QUEUES))[0]["allowed"] is True
    heavier = {"metadata": {"name": "q"}, "spec": {"weight": 2}}
    update = review(QUEUES, heavier, operation="UPDATE", oldObject=heavier)
    assert (await ask(call, update, QUEUES))[0]["allowed"] is True


async def test_groups_that_name_no_queue_are_in_the_default_queue() -> None:
    rig = Rig()
    rig.see(group("a", queue=""), group("b", queue="default"))
    with pytest.raises(RefusedError, match="Queue default still has 2 groups"):
        await rig.decide(QUEUES, {"metadata": {"name": "default"}})
    await rig.decide(QUEUES, {"metadata": {"name": "other"}})


@pytest.mark.parametrize("seed", range(3))
async def test_no_spoilt_group_larger_than_its_quota_passes(seed: int) -> None:
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
            made = read(review(PODGROUPS, body), PODGROUPS)
        except MalformedReviewError:
            continue
        if not made.unreadable:
            with pytest.raises(RefusedError):
                await rig.admission.decide(made)


async def test_a_defect_is_no_refusal(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    monkeypatch.setattr(jobs, "delay", lambda *_, **__: 1 // 0)
    _, made = await ask(reviewer(rig), review(JOBS, {"metadata": {}}), JOBS)
    assert isinstance(made.failed, ZeroDivisionError)
    assert "ZeroDivisionError" in caplog.text
    caplog.clear()


def test_kopf_is_given_each_handler_once() -> None:
    registry = make_registry(Rig().admission)
    assert isinstance(registry, kopf.OperatorRegistry)
    assert {handler.id for handler in registry._webhooks.get_all_handlers()} == set(HANDLERS)


async def test_a_large_group_is_read_beside_the_event_loop_and_answered_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    threads: list[bool] = []

    def noting(*given: Any, **named: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return defaults(*given, **named)

    monkeypatch.setattr(admission, "defaults", noting)
    given = podgroup()
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}
    given["spec"] = {"subGroups": [{"name": "w", "minMember": 3, "template": template}]}
    answers = []
    for large in (False, True):
        made = read(review(PODGROUPS, given), PODGROUPS, large=large)
        answers.append(await rig.admission.decide(made))
    assert answers[0] == answers[1] == {"spec": {"minResources": {"cpu": "6"}, "minimum": 3}}
    assert threads == [True, False]
