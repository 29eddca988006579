"""Member pods: made, made again, grown, taken back; and kbatch's gate."""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest

from kbatch.api.names import IN_QUEUE_GATE, REPLACED_ANNOTATION, REPLACED_OF_ANNOTATION
from kbatch.api.objects import FinishedRole, Pod, PodGroup, PodGroupSpec, PodGroupStatus, SchedulingGate, SubGroup
from kbatch.kube.errors import ApiError
from kbatch.model.events import Delete, Upsert
from kbatch.model.phase import Phase
from kbatch.model.template_budget import MOST_STEPS
from operators.podgroup import member_creation
from operators.podgroup.event_notes import Nobody, Teller
from operators.podgroup.manifest import manifest_of, manifests_of
from operators.podgroup.member_creation import AT_ONCE
from operators.podgroup.member_index import MemberIndex
from operators.podgroup.members import Members
from operators.podgroup.reconcile import observe, reconcile, retries_left
from tests.unit.podgroup.build import NOW, condition, group, pod

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "x"}, "annotations": {"a": "{{ role }}"}},
    "spec": {"containers": [{"name": "c", "args": ["{{ index }}/{{ size }}", "{{ peers | join(',') }}"]}]},
}
MISSPELT = 'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.nodeselector"'


class Server:
    """Makes and deletes pods; `told` is what the watch will say, when `tell` is called."""

    def __init__(self, index: MemberIndex) -> None:
        self.index = index
        self.pods: dict[str, dict[str, Any]] = {}
        self.writes: list[tuple[str, str, Any]] = []
        self.refuse: dict[str, ApiError] = {}

    async def request(
        self, method: str, path: str, *, body: Any = None, params: Mapping[str, str] | None = None, **_: Any
    ) -> bytes:
        self.writes.append((method, path, body))
        if method == "POST" and "nodeselector" in body["spec"] and (params or {}).get("fieldValidation") == "Strict":
            raise ApiError(400, "BadRequest", MISSPELT)
        if method in self.refuse:
            raise self.refuse[method]
        name = path.rpartition("/")[2]
        if method == "POST":
            name = body["metadata"]["name"]
            if name in self.pods:
                raise ApiError(409, "AlreadyExists")
            self.pods[name] = {**body, "metadata": {**body["metadata"], "uid": f"uid-{name}-{len(self.writes)}"}}
            return json.dumps(self.pods[name]).encode()
        if method == "DELETE":
            self.pods.pop(name, None)
            return b"{}"
        if "podgroups" in path:
            held = self.index.groups["ns/pg"]
            held = msgspec.convert(msgspec.to_builtins(held), PodGroup)
            held.metadata.annotations = {**(held.metadata.annotations or {}), **body["metadata"]["annotations"]}
            held.metadata.resource_version = str(int(held.metadata.resource_version) + 1)
            return msgspec.json.encode(held)
        return b"{}"

    def stream(self, *_: Any, **__: Any) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        raise NotImplementedError

    def sent(self, method: str) -> list[str]:
        """Names of the pods that a method was sent for, in order of names."""
        return sorted(
            body["metadata"]["name"] if method == "POST" else path.rpartition("/")[2]
            for what, path, body in self.writes
            if what == method and "/pods" in path
        )


class Told:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def tell(self, regarding: object, type_: str, reason: str, action: str, note: str) -> None:
        self.reasons.append(reason)

    def remark(self, regarding: object, reason: str, action: str, note: str) -> None:
        self.tell(regarding, "Normal", reason, action, note)


class Rig:
    """A group ns/pg with one role, its members, and a clock that only the test moves."""

    def __init__(self, least: int = 2, most: int | None = None, template: Mapping[str, Any] = TEMPLATE) -> None:
        self.index = MemberIndex()
        self.server = Server(self.index)
        self.now = 1000.0
        self.told = Told()
        self.members = Members(self.server, self.index, Teller(self.told, NOW), clock=lambda: self.now)
        of = group(1, uid="uid-pg")
        role = SubGroup(name="w", min_member=least, max_member=most, template=dict(template))
        of.spec = PodGroupSpec(min_member=1, sub_groups=(role,))
        self.index.apply(Upsert(of))

    @property
    def group(self) -> PodGroup:
        return self.index.groups["ns/pg"]

    def see(self, phase: str = "Pending", *, node: str = "", only: str = "", **status: Any) -> None:
        """The watch tells of the pods that exist, in this phase."""
        for name, body in self.server.pods.items():
            if only in ("", name):
                plain = {**body, "status": {"phase": phase, **status}}
                plain["spec"] = {**body["spec"], "nodeName": node}
                self.event(Upsert(msgspec.convert(plain, Pod)))

    def event(self, event: Upsert | Delete) -> None:
        self.index.apply(event)
        if isinstance(event, Upsert):
            self.members.heard(f"ns/{event.obj.metadata.name}", gone=False)
        else:
            self.members.heard(f"ns/{event.name}", gone=True)

    def gone(self, name: str) -> None:
        self.server.pods.pop(name, None)
        self.event(Delete(Pod, "ns", name))

    async def keep(self, phase: Phase = Phase.IN_QUEUE) -> tuple[int, float | None]:
        return await self.members.keep("ns/pg", self.group, phase)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_member_is_named_owned_and_labelled_and_its_template_rendered(rig: Rig) -> None:
    role = (rig.group.spec.sub_groups or ())[0]
    made = manifest_of(rig.group, role, 1, 2, "kube-batch")
    metadata = made["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("pg-w-1", "ns")
    assert metadata["labels"] == {"app": "x", "kbatch.dev/sub-group": "w"}
    assert metadata["annotations"] == {"a": "w", "scheduling.k8s.io/group-name": "pg"}
    assert metadata["ownerReferences"][0] == {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "name": "pg",
        "uid": "uid-pg",
        "controller": True,
    }
    assert made["spec"]["schedulerName"] == "kube-batch"
    assert made["spec"]["containers"][0]["args"] == ["1/2", "pg-w-0,pg-w-1"]


def test_a_member_inherits_the_groups_priority_and_is_found_by_name_in_a_subdomain(rig: Rig) -> None:
    of = rig.group
    of.spec.priority_class_name = "high"
    role = SubGroup(name="w", min_member=1, template={"spec": {"subdomain": "svc", "containers": []}})
    spec = manifest_of(of, role, 0, 1, "kube-batch")["spec"]
    assert (spec["priorityClassName"], spec["hostname"]) == ("high", "pg-w-0")


async def test_members_are_made_in_queue_and_not_before_and_not_twice(rig: Rig) -> None:
    assert await rig.keep(Phase.PENDING) == (0, None)
    assert (await rig.keep())[0] == 2
    assert rig.server.sent("POST") == ["pg-w-0", "pg-w-1"]
    assert (await rig.keep())[0] == 0  # the watch has not told yet
    rig.see()
    assert await rig.keep() == (0, None)


async def test_what_the_watch_never_tells_of_is_asked_for_again(rig: Rig) -> None:
    _, again = await rig.keep()
    assert again == 10
    rig.now += 10.1
    rig.server.pods.clear()
    await rig.keep()
    assert rig.server.sent("POST") == ["pg-w-0", "pg-w-0", "pg-w-1", "pg-w-1"]


async def test_they_are_taken_back_when_the_group_is_sent_back(rig: Rig) -> None:
    await rig.keep()
    rig.see()
    await rig.keep(Phase.PENDING)
    assert rig.server.sent("DELETE") == ["pg-w-0", "pg-w-1"]
    deletion = next(body for method, _, body in rig.server.writes if method == "DELETE")
    assert deletion["preconditions"]["uid"].startswith("uid-pg-w-")
    assert (await rig.keep(Phase.PENDING))[0] == 0


async def test_a_large_group_is_made_in_parts() -> None:
    rig = Rig(least=AT_ONCE + 5)
    made, again = await rig.keep()
    assert (made, again) == (AT_ONCE, 0.0)
    rig.see()
    assert (await rig.keep())[0] == 5


SIGNS = "{% for p in peers if [" + ",".join(["-+" * 8 + "index"] * 40) + "] == 1 %}{% endfor %}"


def asking(text: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "args": [text]}]}}


async def test_what_is_rendered_in_one_turn_is_bounded_and_the_rest_follows_at_once() -> None:
    rig = Rig(least=300, template=asking(SIGNS))
    made, again = await rig.keep()
    assert 1 < made < 10
    assert again == 0.0
    rig.see()
    assert (await rig.keep())[0] == made


async def test_a_member_that_takes_too_much_stalls_the_group_with_the_place_and_the_limit() -> None:
    rig = Rig(least=3000, template=asking(SIGNS))
    assert (await rig.keep())[0] == 0
    _, stalled = rig.members.stalled("ns/pg", rig.group)
    assert stalled is not None
    place, limit = "spec.subGroups[0].template.spec.containers[0].args[0]", f"more than {MOST_STEPS} steps"
    assert stalled.message == f"{place}: rendering one member takes {limit}"


async def test_one_peer_of_a_million_costs_no_million_names() -> None:
    rig = Rig(least=1, most=1_000_000, template=asking("{{ peers[0] }} {{ peers[-1] }}"))
    started = time.process_time()
    assert (await rig.keep())[0] == 1
    assert time.process_time() - started < 0.5
    assert rig.server.pods["pg-w-0"]["spec"]["containers"][0]["args"] == ["pg-w-0 pg-w-999999"]


async def test_members_are_rendered_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def noted(*given: Any, **named: Any) -> Any:
        threads.append(threading.get_ident())
        return manifests_of(*given, **named)

    monkeypatch.setattr(member_creation, "manifests_of", noted)
    assert (await Rig().keep())[0] == 2
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_a_failed_member_is_counted_first_and_made_again_after_a_while(rig: Rig) -> None:
    await rig.keep()
    rig.see("Running", node="n")
    rig.see("Failed", node="n", only="pg-w-1")
    changed, again = await rig.keep(Phase.UNKNOWN)
    assert (changed, again) == (0, 10.0)
    rig.now += 10
    await rig.keep(Phase.UNKNOWN)
    told = rig.group.metadata.annotations or {}
    assert (told[REPLACED_ANNOTATION], told[REPLACED_OF_ANNOTATION]) == ("1", rig.group.metadata.uid)
    methods = [(method, "podgroups" in path) for method, path, _ in rig.server.writes]
    assert methods.index(("PATCH", True)) < methods.index(("DELETE", False))
    rig.gone("pg-w-1")
    await rig.keep(Phase.UNKNOWN)
    assert rig.server.sent("POST") == ["pg-w-0", "pg-w-1", "pg-w-1"]
    rig.see("Failed", node="n", only="pg-w-1")
    assert (await rig.keep(Phase.UNKNOWN))[1] == 20.0


async def test_a_group_without_retries_left_fails_and_lets_go_of_the_rest(rig: Rig) -> None:
    await rig.keep()
    rig.see("Running", node="n")
    rig.see("Failed", node="n", only="pg-w-1")
    assert reconcile(rig.group, observe(rig.index, rig.group), NOW).phase != "Failed"
    rig.group.metadata.annotations = {REPLACED_ANNOTATION: "6"}
    assert retries_left(rig.group) == 0
    assert reconcile(rig.group, observe(rig.index, rig.group), NOW).phase == "Failed"
    await rig.keep(Phase.FAILED)
    assert rig.server.sent("DELETE") == ["pg-w-0"]


def test_a_copy_of_a_group_has_its_own_replacements(rig: Rig) -> None:
    told = {REPLACED_ANNOTATION: "6", REPLACED_OF_ANNOTATION: rig.group.metadata.uid}
    rig.group.metadata.annotations = told
    assert retries_left(rig.group) == 0
    rig.group.metadata.annotations = told | {REPLACED_OF_ANNOTATION: "of-another"}
    assert retries_left(rig.group) == 6


async def test_a_member_that_others_ended_costs_no_retry(rig: Rig) -> None:
    await rig.keep()
    disruption = {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}
    rig.see("Failed", node="n", only="pg-w-0", **disruption)
    rig.see("Running", node="n", only="pg-w-1")
    await rig.keep(Phase.UNKNOWN)
    assert rig.server.sent("DELETE") == ["pg-w-0"]
    assert REPLACED_ANNOTATION not in (rig.group.metadata.annotations or {})
    rig.group.metadata.annotations = {REPLACED_ANNOTATION: "6"}
    assert reconcile(rig.group, observe(rig.index, rig.group), NOW).phase != "Failed"


async def test_it_grows_while_its_pods_find_room_and_rests_after_losing_one() -> None:
    rig = Rig(least=1, most=4)
    await rig.keep()
    rig.see("Running", node="n")
    await rig.keep(Phase.RUNNING)
    assert rig.server.sent("POST") == ["pg-w-0", "pg-w-1"]
    rig.see("Pending", only="pg-w-1")
    assert (await rig.keep(Phase.RUNNING))[0] == 0
    rig.see("Running", node="n", only="pg-w-1")
    await rig.keep(Phase.RUNNING)
    assert rig.server.sent("POST")[-1] == "pg-w-2"
    rig.see("Pending", only="pg-w-2")
    await rig.keep(Phase.RUNNING)
    rig.gone("pg-w-2")  # reclaimed
    assert await rig.keep(Phase.RUNNING) == (0, 60.0)
    posts = len(rig.server.sent("POST"))
    rig.now += 30
    await rig.keep(Phase.RUNNING)
    assert len(rig.server.sent("POST")) == posts
    rig.now += 31
    await rig.keep(Phase.RUNNING)
    assert rig.server.sent("POST").count("pg-w-2") == 2


async def test_it_grows_in_waves_of_an_eighth_of_its_growth() -> None:
    rig = Rig(least=1, most=33)
    await rig.keep()
    rig.see("Running", node="n")
    await rig.keep(Phase.RUNNING)
    assert rig.server.sent("POST") == [f"pg-w-{index}" for index in range(5)]
    rig.see("Pending")
    rig.see("Running", node="n", only="pg-w-0")
    rig.see("Running", node="n", only="pg-w-1")
    await rig.keep(Phase.RUNNING)
    assert len(rig.server.sent("POST")) == 6, "three wait, so one more is made"


async def test_what_was_taken_back_by_kbatch_itself_is_no_loss() -> None:
    rig = Rig(least=1, most=4)
    await rig.keep()
    rig.see()
    await rig.keep()
    await rig.keep(Phase.PENDING)
    rig.gone("pg-w-0")
    await rig.keep()
    rig.see("Running", node="n")
    await rig.keep(Phase.RUNNING)
    assert rig.server.sent("POST")[-1] == "pg-w-1"


async def test_no_room_in_the_quota_is_no_room() -> None:
    rig = Rig(least=1, most=4)
    await rig.keep()
    rig.see("Running", node="n")
    rig.server.refuse["POST"] = ApiError(403, "Forbidden", "exceeded quota")
    _, again = await rig.keep(Phase.RUNNING)
    assert again is not None
    assert (await rig.keep(Phase.RUNNING))[0] == 0


async def test_a_forbidden_member_of_the_minimum_stalls_the_group_with_the_servers_words() -> None:
    rig = Rig(least=20)
    rig.server.refuse["POST"] = ApiError(403, "Forbidden", 'violates PodSecurity "restricted:latest"')
    await rig.keep()
    _, stalled = rig.members.stalled("ns/pg", rig.group)
    assert stalled is not None
    assert (stalled.reason, stalled.message) == ("PodRefused", 'pod pg-w-0: violates PodSecurity "restricted:latest"')
    assert rig.told.reasons == ["PodRefused"]


async def test_a_field_that_pods_do_not_have_stalls_the_group_with_the_servers_words() -> None:
    spec = {**TEMPLATE["spec"], "nodeselector": {"disk": "fast"}}
    rig = Rig(least=20, template={**TEMPLATE, "spec": spec})
    await rig.keep()
    _, stalled = rig.members.stalled("ns/pg", rig.group)
    assert stalled is not None
    assert (stalled.reason, stalled.message) == ("PodRefused", f"pod pg-w-0: {MISSPELT}")
    assert len(rig.server.sent("POST")) == 1
    assert rig.server.pods == {}


async def test_a_forbidden_member_is_asked_for_again_by_itself_and_ever_more_seldom() -> None:
    rig = Rig(least=20)
    rig.server.refuse["POST"] = ApiError(403, "Forbidden", "exceeded quota")
    await rig.keep()
    posts, pauses = len(rig.server.sent("POST")), list[float]()
    assert posts == 1, "what was refused to one of them is not asked for the others"
    for _ in range(10):
        _, again = await rig.keep()
        assert again is not None
        assert len(rig.server.sent("POST")) == posts, "it is not tried at once again"
        pauses.append(again)
        rig.now += again
        assert (await rig.keep())[1] is not None
        posts += 1
        assert len(rig.server.sent("POST")) == posts
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    rig.server.refuse.clear()
    rig.now += 300
    assert await rig.keep() == (1, 0.0)
    assert (await rig.keep())[0] == 19
    assert rig.members.stalled("ns/pg", rig.group) == (True, None)


async def test_a_broken_role_keeps_back_the_others_for_as_long_as_it_is_broken() -> None:
    rig = Rig()
    broken = SubGroup(name="z", min_member=1, template=asking("{{ nobody }}"))
    rig.group.spec.sub_groups = (*(rig.group.spec.sub_groups or ()), broken)
    for _ in range(3):
        assert (await rig.keep())[0] == 0
        rig.now += 31
    assert rig.server.sent("POST") == []


async def test_pauses_are_short_again_after_the_spec_has_changed() -> None:
    rig = Rig()
    rig.server.refuse["POST"] = ApiError(403, "Forbidden", "exceeded quota")
    for _ in range(6):
        await rig.keep()
        rig.now += 40
    mended = msgspec.convert(msgspec.to_builtins(rig.group), PodGroup)
    mended.metadata.generation, mended.metadata.resource_version = 2, "50"
    rig.index.apply(Upsert(mended))
    assert (await rig.keep())[1] == 1


@pytest.mark.parametrize("why", ["TemplateError", "PodRefused"])
async def test_what_only_the_user_can_mend_stalls_the_group_until_it_is_mended(why: str) -> None:
    broken = {"spec": {"containers": [{"name": "{{ nobody }}"}]}}
    rig = Rig(template=broken if why == "TemplateError" else TEMPLATE)
    if why == "PodRefused":
        rig.server.refuse["POST"] = ApiError(422, "Invalid", "spec.containers: required")
    await rig.keep()
    tried, stalled = rig.members.stalled("ns/pg", rig.group)
    assert tried
    assert stalled is not None
    assert stalled.reason == why
    posts = len(rig.server.sent("POST"))
    await rig.keep()
    assert len(rig.server.sent("POST")) == posts, "it is not tried at once again"
    rig.server.refuse.clear()
    mended = msgspec.convert(msgspec.to_builtins(rig.group), PodGroup)
    mended.spec.sub_groups = (SubGroup(name="w", min_member=2, template=TEMPLATE),)
    mended.metadata.generation = 2
    mended.metadata.resource_version = "50"
    rig.index.apply(Upsert(mended))
    await rig.keep()
    assert rig.members.stalled("ns/pg", rig.group) == (True, None)


async def test_a_pod_of_another_owner_in_a_members_place_stalls_it(rig: Rig) -> None:
    rig.server.pods["pg-w-0"] = {"metadata": {"name": "pg-w-0"}, "spec": {}}
    await rig.keep()
    _, stalled = rig.members.stalled("ns/pg", rig.group)
    assert stalled is not None
    assert stalled.reason == "PodNameTaken"


# --- gates ------------------------------------------------------------------------------------------------------------


def gated(name: str, *gates: str) -> Pod:
    one = pod(name)
    one.spec.scheduling_gates = tuple(SchedulingGate(name=gate) for gate in gates) or None
    return one


def plain_rig(*pods: Pod) -> Rig:
    rig = Rig()
    of = group(2, uid="uid-pg")
    of.status = PodGroupStatus(phase="Pending", conditions=(condition("Enqueued"),))
    rig.index.apply(Upsert(of))
    for one in pods:
        rig.index.apply(Upsert(one))
    return rig


async def test_the_gate_goes_when_the_group_is_in_queue_and_other_gates_stay() -> None:
    rig = plain_rig(gated("a", "theirs", IN_QUEUE_GATE), gated("b", IN_QUEUE_GATE), gated("c", "theirs"), pod("d"))
    rig.index.groups["ns/pg"].spec.sub_groups = None
    assert (await rig.keep(Phase.PENDING))[0] == 0
    assert (await rig.keep())[0] == 2
    patches = {path.rpartition("/")[2]: body for _, path, body in rig.server.writes}
    assert patches["a"] == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-a"},
        {"op": "test", "path": "/spec/schedulingGates/1/name", "value": IN_QUEUE_GATE},
        {"op": "remove", "path": "/spec/schedulingGates/1"},
    ]
    assert patches["b"][2]["path"] == "/spec/schedulingGates/0"
    assert (await rig.keep())[0] == 0


async def test_a_gate_that_somebody_else_took_away_is_no_error() -> None:
    rig = plain_rig(gated("b", IN_QUEUE_GATE))
    rig.server.refuse["PATCH"] = ApiError(422, "Invalid")
    assert (await rig.keep())[0] == 1


async def test_the_condition_that_stays_behind_is_taken_away_when_no_bind_does_it() -> None:
    left = gated("b")
    left.status = msgspec.convert(
        {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]},
        type(left.status),
    )
    rig = plain_rig(left)
    assert await rig.keep() == (0, 2.0)
    rig.now += 2
    assert (await rig.keep())[0] == 1
    ((_, path, body),) = rig.server.writes
    assert path.endswith("/pods/b/status")
    assert body["status"]["conditions"] == [{"$patch": "delete", "type": "PodScheduled"}]


def test_nobody_is_told_by_default() -> None:
    Nobody().tell(None, "", "", "", "")  # type: ignore[arg-type]


async def test_gates_stay_where_they_are_not_this_process_s_business() -> None:
    rig = plain_rig(gated("b", IN_QUEUE_GATE))
    rig.index.groups["ns/pg"].spec.sub_groups = None
    rig.members._lift_gates = False
    assert (await rig.keep())[0] == 0
    assert rig.server.writes == []


# --- members that have ended well -------------------------------------------------------------------------------------


def patched(rig: Rig) -> list[str]:
    return rig.server.sent("PATCH")


def with_finished(rig: Rig, indexes: str) -> None:
    """The group's status keeps these members of its role."""
    kept = msgspec.convert(msgspec.to_builtins(rig.group), PodGroup)
    kept.status.finished = (FinishedRole(name="w", indexes=indexes),)
    kept.metadata.resource_version = str(int(kept.metadata.resource_version) + 1)
    rig.index.apply(Upsert(kept))


async def test_a_member_goes_once_the_status_keeps_that_it_ended_well_and_is_not_made_again() -> None:
    rig = Rig(least=3)
    await rig.keep()
    assert {tuple(one["metadata"]["finalizers"]) for one in rig.server.pods.values()} == {("kbatch.dev/finished",)}
    rig.see("Running", node="n")
    rig.see("Succeeded", node="n", only="pg-w-1")
    wanted = reconcile(rig.group, observe(rig.index, rig.group), NOW)
    assert wanted.manifest()["finished"] == [{"name": "w", "indexes": "1"}]
    assert await rig.members.let_end("ns/pg", rig.group) == 0, "nobody would know that it ended well"
    with_finished(rig, "1")
    assert await rig.members.let_end("ns/pg", rig.group) == 1
    assert patched(rig) == ["pg-w-1"]
    (operations,) = [body for what, _, body in rig.server.writes if what == "PATCH"]
    assert operations[-1] == {"op": "remove", "path": "/metadata/finalizers/0"}
    assert await rig.members.let_end("ns/pg", rig.group) == 0, "the watch has not shown it yet"

    rig.gone("pg-w-1")
    assert await rig.keep(Phase.RUNNING) == (0, None)
    found = reconcile(rig.group, observe(rig.index, rig.group), NOW)
    assert (found.succeeded, found.running, found.sub_groups[0].succeeded) == (1, 2, 1)
    rig.see("Succeeded", node="n")
    assert reconcile(rig.group, observe(rig.index, rig.group), NOW).phase == "Completed"


async def test_of_members_that_did_not_end_well_there_is_nothing_to_keep() -> None:
    rig = Rig(least=3)
    await rig.keep()
    rig.see("Running", node="n")
    rig.see("Failed", node="n", only="pg-w-0")
    assert await rig.members.let_end("ns/pg", rig.group) == 1

    def deleted(name: str, grace: int, phase: str = "Running") -> None:
        body = rig.server.pods[name]
        meta = {**body["metadata"], "deletionTimestamp": "2026-11-21T11:00:00Z", "deletionGracePeriodSeconds": grace}
        plain = {**body, "metadata": meta, "status": {"phase": phase}, "spec": {**body["spec"], "nodeName": "n"}}
        rig.event(Upsert(msgspec.convert(plain, Pod)))

    deleted("pg-w-1", 30)
    assert await rig.members.let_end("ns/pg", rig.group) == 0, "it may still end well"
    deleted("pg-w-1", 0)
    assert await rig.members.let_end("ns/pg", rig.group) == 1
    deleted("pg-w-2", 30, "Succeeded")
    assert await rig.members.let_end("ns/pg", rig.group) == 0, "that is to be kept first"
    assert patched(rig) == ["pg-w-0", "pg-w-1"]
    assert await rig.members.let_end("ns/pg", None) == 1, "its group is gone"
    assert patched(rig) == ["pg-w-0", "pg-w-1", "pg-w-2"]


@pytest.mark.parametrize("group_is_there", [True, False])
async def test_a_pod_that_its_user_took_out_of_its_group_keeps_no_finalizer(group_is_there: bool) -> None:
    rig = Rig(least=2)
    await rig.keep()
    body = rig.server.pods["pg-w-0"]
    meta = {name: value for name, value in body["metadata"].items() if name != "annotations"}
    taken = msgspec.convert({**body, "metadata": {**meta, "deletionTimestamp": "2026-11-21T11:00:00Z"}}, Pod)
    assert rig.index.apply(Upsert(taken)) == {"ns/pg"}
    assert "ns/pg-w-0" not in rig.index.named_members("ns/pg")
    await rig.members.let_end("ns/pg", rig.group if group_is_there else None)
    assert "pg-w-0" in patched(rig)
    rig.gone("pg-w-0")
    assert not rig.index.strays("ns/pg")


async def test_pods_of_the_group_before_keep_no_finalizer_and_their_names_are_waited_for() -> None:
    rig = Rig(least=2)
    await rig.keep()
    rig.see("Running", node="n")
    anew = msgspec.convert(msgspec.to_builtins(rig.group), PodGroup)
    anew.metadata.uid, anew.metadata.resource_version = "anew", "2"
    rig.index.apply(Upsert(anew))
    assert await rig.members.let_end("ns/pg", anew) == 2
    assert patched(rig) == ["pg-w-0", "pg-w-1"]
    await rig.keep()
    assert rig.members.stalled("ns/pg", anew) == (True, None)


async def test_a_member_of_a_role_that_is_no_more_goes_for_nobody_keeps_how_it_ended(rig: Rig) -> None:
    """Or whoever deletes the pod would wait for as long as the group lives."""
    await rig.keep()
    rig.see("Succeeded", node="n")
    assert await rig.members.let_end("ns/pg", rig.group) == 0
    changed = msgspec.convert(msgspec.to_builtins(rig.group), PodGroup)
    changed.spec.sub_groups = (SubGroup(name="v", min_member=1, template=dict(TEMPLATE)),)
    changed.metadata.resource_version = "2"
    rig.index.apply(Upsert(changed))
    assert "finished" not in reconcile(rig.group, observe(rig.index, rig.group), NOW).manifest()
    assert await rig.members.let_end("ns/pg", rig.group) == 2
    assert patched(rig) == ["pg-w-0", "pg-w-1"]


# --- what stood in the way is not wanted any more ---------------------------------------------------------------------


async def test_stalled_goes_where_the_member_that_was_forbidden_is_wanted_no_more() -> None:
    rig = Rig(least=3)
    real = rig.server.request

    async def request(method: str, path: str, *, body: Any = None, **more: Any) -> Any:
        if method == "POST" and body["metadata"]["name"] == "pg-w-2":
            raise ApiError(403, "Forbidden", "exceeded quota")
        return await real(method, path, body=body, **more)

    rig.server.request = request  # type: ignore[method-assign]
    await rig.keep()
    rig.see()
    assert rig.members.stalled("ns/pg", rig.group)[1] is not None
    of = copy.deepcopy(rig.group)
    of.metadata.resource_version, of.metadata.generation = "50", 2
    of.spec.sub_groups = (SubGroup(name="w", min_member=2, template=dict(TEMPLATE)),)
    rig.event(Upsert(of))
    await rig.keep(Phase.RUNNING)
    assert rig.members.stalled("ns/pg", rig.group) == (True, None)


async def test_stalled_goes_where_the_pod_is_the_groups_own_after_all() -> None:
    """It was made, and the answer was lost; tried again it is there already, and the watch has not told of it yet."""
    rig = Rig(least=1)
    real, lost = rig.server.request, [True]

    async def request(method: str, path: str, *, body: Any = None, **more: Any) -> Any:
        answer = await real(method, path, body=body, **more)
        if method == "POST" and lost:
            lost.pop()
            raise ApiError(504, "Timeout", "lost")
        return answer

    rig.server.request = request  # type: ignore[method-assign]
    with pytest.raises(ApiError):
        await rig.keep()
    await rig.keep()
    rig.see()
    await rig.keep()
    assert rig.members.stalled("ns/pg", rig.group) == (True, None)
