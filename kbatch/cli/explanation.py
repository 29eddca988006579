"""Why a group or a pod of a live cluster waits, put together from what stands on the objects themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kbatch.api import conditions
from kbatch.api.names import DEFAULT_SCHEDULER_NAME, GROUP_NAME_ANNOTATION, SUB_GROUP_LABEL
from kbatch.api.objects import EstimatedStart, OwnerReference, Pod, PodGroup
from kbatch.api.reasons import ResourceClaimsUnsupported
from kbatch.cli.configuration import known, left_alone
from kbatch.cli.events import newest, newest_of
from kbatch.cli.held import group_key, is_held, is_its_group, told, why_no_group, why_not_held
from kbatch.cli.leader import unseen_since
from kbatch.cli.permitted import if_readable
from kbatch.cli.refused_pods import refused_pods
from kbatch.cli.views import GroupRow, QueueRow, group_row, queue_row
from kbatch.kube.client import Api
from kbatch.kube.decoding import decoder
from kbatch.kube.errors import ApiError
from kbatch.kube.kinds import JOBS, NODES, PODGROUPS, PODS, QUEUES, Kind
from kbatch.kube.lists import list_all
from kbatch.model.bad_nodes import avoided
from kbatch.model.jobs_release import named_group

if TYPE_CHECKING:
    from kbatch.simulator.closeness import Stand

USUAL_NAME: Final = "kube-batch"
"""spec.schedulerName of the pods that kbatch schedules, where the installation does not set another."""

_SCHEDULER: Final = "kbatch-scheduler"
"""The reporter of the Events of kbatch's scheduler."""
_WRITTEN_ANEW: Final = frozenset({"Unschedulable", "SchedulingGated", ResourceClaimsUnsupported.code})
"""Reasons of the condition PodScheduled that hold as long as they stand. Where one of the others follows another, the
scheduler leaves the condition as it is, and writes an Event.
"""


class NotThereError(Exception):
    """There is neither a PodGroup nor a pod nor a Job of that name."""


@dataclass(frozen=True, slots=True)
class RoleRow:
    """A role: its minimum, its maximum if it has one, how many of its pods are on a node, how many have succeeded."""

    name: str
    least: int
    most: int | None
    placed: int
    succeeded: int

    @property
    def bounds(self) -> str:
        """How many there may be, in words."""
        return f"at least {self.least}" if self.most is None else f"{self.least} to {self.most}"

    def json(self) -> dict[str, Any]:
        """As one object of the output."""
        return {
            "name": self.name,
            "minMember": self.least,
            "maxMember": self.most,
            "placed": self.placed,
            "succeeded": self.succeeded,
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """What there is to say.

    Attributes:
        subject: `PodGroup ns/name`, `Pod ns/name` or `Job ns/name`.
        group: the group; None for a pod or a Job without one.
        since: since when it waits, as the condition says; empty if it does not.
        queue: its queue; None where that does not exist or nothing is known of it.
        hidden: what may not be read, and is left out for that: `Queue research`.
        members: pods of the group by phase, `Pending (gated)` apart.
        roles: how each role stands.
        verdict: one line: whether it waits.
        reason, message: why, and what would help.
        told_on: the pod of the same controller on which that was said, and what it is to this one; None where it was
            said of this one itself.
        stalled: reason and message of what keeps the operator from making its pods or objects; None for nothing.
        broken: what becomes of it, where it runs and has lost members; empty for any other.
        avoids: the nodes that it avoids, as too many of its pods failed there.
        stands: where it stands in the network, and then each of its roles, if it asks to stand close together.
        unseen: since when (RFC 3339) no scheduler of kbatch has renewed its Lease; empty while one does, or if that is
            not known.
        elsewhere: where pods are missing, what is to be said of those that name it for another scheduler.
        refused: where pods are missing, why its Jobs could not create any.
        alone: that kbatch is installed for other namespaces; empty where it looks after this one.
    """

    subject: str
    group: GroupRow | None
    queue: QueueRow | None
    members: dict[str, int]
    roles: tuple[RoleRow, ...]
    verdict: str
    reason: str
    message: str
    since: str
    stalled: tuple[str, str] | None = None
    broken: str = ""
    avoids: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    stands: tuple[Stand, ...] = ()
    unseen: str = ""
    alone: str = ""
    told_on: tuple[str, str] | None = None

    def json(self) -> dict[str, Any]:
        """As one object."""
        return {
            "subject": self.subject,
            "verdict": self.verdict,
            "reason": self.reason,
            "message": self.message,
            "toldOn": None if self.told_on is None else self.told_on[0],
            "since": self.since or None,
            "schedulerUnseenSince": self.unseen or None,
            "leftAlone": self.alone or None,
            "estimatedStart": self.group.json()["estimatedStart"] if self.group is not None else None,
            "stalled": None if self.stalled is None else {"reason": self.stalled[0], "message": self.stalled[1]},
            "group": None if self.group is None else self.group.json(),
            "queue": None if self.queue is None else self.queue.json(),
            "members": self.members,
            "roles": [role.json() for role in self.roles],
            "topology": [{"role": stand.role or None, **stand.json()} for stand in self.stands],
            "broken": self.broken or None,
            "avoids": list(self.avoids),
            "notPermitted": list(self.hidden),
            "otherSchedulers": list(self.elsewhere),
            "refusedPods": list(self.refused),
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"{self.subject}: {self.verdict}" + (f" since {self.since}" if self.since else "")
        yield from self._why()
        if self.alone:
            yield f"  scope    {self.alone}"
        if self.unseen:
            yield f"  leader   kbatch's scheduler was last seen at {self.unseen}: nothing starts until it runs again"
        if self.stalled is not None:
            yield f"  stalled  {self.stalled[0]}"
            yield f"           {self.stalled[1]}"
        if self.broken:
            yield f"  broken   {self.broken}"
        if self.avoids:
            yield f"  avoids   {', '.join(self.avoids)}: too many of its pods failed there (badNodeLimit)"
        if self.group is not None:
            found = ", ".join(f"{count} {phase}" for phase, count in self.members.items()) or "none exist"
            yield f"  pods     {found}; {self.group.minimum} must be placed together"
        if self.group is not None and self.group.start is not None and self.group.waits:
            yield f"  start    {_start(self.group.start)}"
        for each in (*self.elsewhere, *self.refused):
            yield f"           {each}"
        for role in self.roles:
            ended = f", {role.succeeded} succeeded" if role.succeeded else ""
            yield f"  role     {role.name}: {role.placed} of {role.bounds} placed{ended}"
        for stand in self.stands:
            pods = f"role {stand.role}" if stand.role else "all pods"
            place = "the cluster" if stand.level == "cluster" else f"{stand.level} {stand.domain}"
            where = f"{'on' if stand.level == 'node' else 'in'} {place}"
            yield f"  stands   {pods}: {where}, {stand.hops} hops at most ({stand.pods} placed)"
        if self.queue is not None:
            yield (
                f"  queue    {self.queue.name} ({self.queue.state}, weight {self.queue.weight}): "
                f"holds {_amounts(self.queue.allocated)} of a deserved {_amounts(self.queue.deserved)}, "
                f"asks for {_amounts(self.queue.requested)}"
            )
            if self.queue.over:
                yield f"           it {self.queue.over}"
        for what in self.hidden:
            kind, _, name = what.partition(" ")
            yield f"  {kind.lower():8} {f'{name}: ' if name else ''}not permitted (you may not get {what})"

    def _why(self) -> Iterator[str]:
        if self.reason:
            yield f"  reason   {self.reason}"
        if self.message:
            yield f"           {self.message}"
        if self.told_on is not None:
            name, what = self.told_on
            yield f"           (said on Pod {name}, {what}: the scheduler tells one pod of a controller)"


async def gather(client: Api, namespace: str, name: str) -> Explanation:
    """Ask the cluster about a PodGroup, else about a pod, else about a Job of that name.

    Raises:
        NotThereError: there is none.
        KubeError: the cluster does not answer, or refuses.
    """
    group = await _get(client, PODGROUPS, namespace, name)
    if group is not None:
        return await _of_its_job(client, group) or await _explain_group(client, group)
    pod = await _get(client, PODS, namespace, name)
    if pod is None:
        return await _explain_job(client, namespace, name)
    named = (pod.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION)
    if named:
        group = await _get(client, PODGROUPS, namespace, named)
        if group is not None:
            return await _explain_group(client, group)
    return await _explain_pod(client, pod, named)


async def _of_its_job(client: Api, group: PodGroup) -> Explanation | None:
    """What there is to say of a Job that waits for the group's name, which is not the Job's; None: there is none."""
    namespace, name = group.metadata.namespace, group.metadata.name
    job = await if_readable(_get(client, JOBS, namespace, name))
    if job is None or not is_held(job) or group_key(job) != f"{namespace}/{name}" or is_its_group(job, group):
        return None
    reason, message = why_no_group(job, taken=True)
    return Explanation(
        f"Job {namespace}/{name}", None, None, {}, (), "it waits without pods", reason, message, "",
        unseen=await unseen_since(client),
    )  # fmt: skip


async def _explain_job(client: Api, namespace: str, name: str) -> Explanation:
    job = await if_readable(_get(client, JOBS, namespace, name))
    if job is None:
        raise NotThereError(f"there is neither a PodGroup nor a pod nor a Job {namespace}/{name}")
    named = named_group(job)
    if named:
        group = await _get(client, PODGROUPS, namespace, named)
        if group is not None:
            return await _explain_group(client, group)
    subject = f"Job {namespace}/{name}"
    if is_held(job):
        reason, message = await told(client, job) or why_no_group(job)
        verdict, unseen = "it waits without pods, and no PodGroup stands for it", await unseen_since(client)
        alone = await left_alone(client, [namespace])
        return Explanation(subject, None, None, {}, (), verdict, reason, message, "", unseen=unseen, alone=alone)
    found = await known(client)
    ours = (found.scheduler_name if found is not None else None) or DEFAULT_SCHEDULER_NAME
    return Explanation(subject, None, None, {}, (), why_not_held(job, ours), "", "", "")


async def _explain_group(client: Api, group: PodGroup) -> Explanation:
    row = group_row(group)
    pods = [
        pod
        for pod in await list_all(client, PODS, namespace=row.namespace)
        if (pod.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION) == row.name
    ]
    hidden: tuple[str, ...] = ()
    try:
        queue = await _get(client, QUEUES, None, row.queue)
    except ApiError as error:
        if error.status != 403:
            raise
        queue, hidden = None, (f"Queue {row.queue}",)
    stands: tuple[Stand, ...] = ()
    if any(pod.spec.node_name for pod in pods):
        try:
            stands = await _stands(client, group, pods)
        except ApiError as error:
            if error.status != 403:
                raise
            hidden = (*hidden, "Nodes")
    lacks_pods = row.reason == "NotEnoughTasks"
    how = await known(client) if row.waits or lacks_pods else None
    ours = how.scheduler_name if how is not None else None
    condition = conditions.find(group.status.conditions, conditions.SCHEDULED)
    stalled = conditions.find(group.status.conditions, conditions.STALLED)
    if row.over:
        verdict = f"it is over ({row.phase})"
    elif condition is None:
        verdict = "no scheduler has looked at it yet; does kbatch's scheduler run?"
    elif row.scheduled:
        verdict = f"it does not wait ({row.phase})"
    else:
        verdict = f"it waits ({row.phase})"
    return Explanation(
        subject=f"PodGroup {row.namespace}/{row.name}",
        group=row,
        queue=None if queue is None else queue_row(queue),
        members=dict(sorted(Counter(_phase(pod) for pod in pods).items())),
        roles=tuple(
            RoleRow(
                role.name,
                role.min_member,
                role.max_member,
                placed=sum(_is_of(pod, role.name) and _holds(pod) for pod in pods),
                succeeded=max(
                    sum(_is_of(pod, role.name) and pod.status.phase == "Succeeded" for pod in pods),
                    sum(each.succeeded for each in group.status.sub_groups or () if each.name == role.name),
                ),
            )
            for role in group.spec.sub_groups or ()
        ),
        verdict=verdict,
        reason=row.reason if row.waits or row.over else "",
        message=row.message if row.waits or row.over else "",
        since=(condition.last_transition_time or "") if condition is not None and row.waits else "",
        stalled=(stalled.reason, stalled.message) if stalled is not None and stalled.status == "True" else None,
        broken="" if row.over else _broken(group),
        avoids=tuple(sorted(avoided(group.status.node_failures or (), group.spec.bad_node_limit))),
        hidden=hidden,
        elsewhere=tuple(_of_other_schedulers(pods, ours)) if lacks_pods else (),
        refused=tuple(await refused_pods(client, row.namespace, row.name)) if lacks_pods else (),
        stands=stands,
        unseen=await unseen_since(client) if row.waits else "",
        alone=how.leaves_alone([row.namespace]) if how is not None and row.waits else "",
    )


def _of_other_schedulers(pods: list[Pod], ours: str | None) -> Iterator[str]:
    """A line for each other scheduler than the installed one (`ours`), whose pods name the group.

    Where it is not known what that is called, the line says what counts.
    """
    found = Counter(pod.spec.scheduler_name or "default-scheduler" for pod in pods)
    counts = ours or f"{USUAL_NAME}, if the installation sets no other"
    for name, count in sorted(found.items()):
        if name != (ours or USUAL_NAME):
            yield (
                f"{count} of these pods have spec.schedulerName {name}: only those of kbatch's "
                f"({counts}) count as members; make them anew with that"
            )


def _broken(group: PodGroup) -> str:
    """What becomes of a group that has run and is below its minimum; empty for any other."""
    enqueued = conditions.find(group.status.conditions, conditions.ENQUEUED)
    if enqueued is None or (enqueued.status, enqueued.reason) != (conditions.TRUE, conditions.REASON_MEMBERS_LOST):
        return ""
    seconds = group.spec.minimum_lost_seconds
    left = "it has run and is below its minimum: what is left of it "
    return left + ("runs on" if seconds is None else f"goes {seconds} s after that began (minimumLostSeconds)")


async def _explain_pod(client: Api, pod: Pod, named: str | None) -> Explanation:
    subject = f"Pod {pod.metadata.namespace}/{pod.metadata.name}"
    told = next((each for each in pod.status.conditions or () if each.type == "PodScheduled"), None)
    reason = message = since = alone = ""
    if pod.spec.node_name:
        verdict = f"it has a node, {pod.spec.node_name} ({pod.status.phase or 'Pending'})"
    elif named:
        verdict = "it waits"
        reason, message = "PodGroupNotFound", f"it names PodGroup {named}, which does not exist; create it"
    else:
        said = None
        if told is not None and told.status == "False":
            said, since = (told.reason, told.message), told.last_transition_time or ""
        if said is None or said[0] not in _WRITTEN_ANEW:
            said = await newest(client, "Pod", pod.metadata, _says_why) or said
        if said is not None:
            return Explanation(subject, None, None, {}, (), "it waits", *said, since)
        beside = await _told_beside(client, pod)
        if beside is not None:
            return beside
        verdict = f"no scheduler has spoken of it yet; its schedulerName is {pod.spec.scheduler_name or 'not set'}"
        alone = await left_alone(client, [pod.metadata.namespace])
    return Explanation(subject, None, None, {}, (), verdict, reason, message, since, alone=alone)


async def _told_beside(client: Api, pod: Pod) -> Explanation | None:
    """What was said on another pod that waits with this one; None where nothing was, or it may not be read.

    Pods of one controller that name no PodGroup form one group, and the scheduler tells one of them why it waits.
    """
    namespace = pod.metadata.namespace
    controller = _controller(pod)
    if controller is None:
        return None
    others = {
        other.metadata.uid: other.metadata.name
        for other in await if_readable(list_all(client, PODS, namespace=namespace)) or ()
        if (owner := _controller(other)) is not None
        and owner.uid == controller.uid
        and other.metadata.uid != pod.metadata.uid
        and other.spec.scheduler_name == pod.spec.scheduler_name
        and not (other.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION)
        # What was said on a pod before it got its node, or before it was deleted, may have passed.
        and not other.spec.node_name
        and other.metadata.deletion_timestamp is None
    }
    if not others:
        return None
    # A namespace has many Events; that of each pod which got its node is left out.
    selector = f"involvedObject.kind=Pod,reportingComponent={_SCHEDULER},reason!=Scheduled"
    last = await newest_of(client, namespace, selector, others, _says_why_of_all)
    if last is None:
        return None
    what = f"of the same {controller.kind} {controller.name}"
    return Explanation(
        f"Pod {namespace}/{pod.metadata.name}", None, None, {}, (), "it waits", last.reason, last.message, "",
        told_on=(others[last.uid or ""], what),
    )  # fmt: skip


def _controller(pod: Pod) -> OwnerReference | None:
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)


def _says_why_of_all(event: dict[str, Any]) -> bool:
    """Whether an Event on a pod says why kbatch's scheduler has not placed the group that the pod belongs to."""
    return event.get("reportingComponent") == _SCHEDULER and event.get("action") == "Scheduling"


def _says_why(event: dict[str, Any]) -> bool:
    """Whether an Event on a pod says why kbatch's scheduler has not placed it."""
    return event.get("reportingComponent") == _SCHEDULER and (
        event.get("action") in {"Scheduling", "Reading"} or event.get("reason") == "BindFailed"
    )


async def _get(client: Api, kind: Kind[Any], namespace: str | None, name: str) -> Any:
    """The object, or None where there is none."""
    try:
        answer = await client.request("GET", kind.path(namespace, name))
    except ApiError as error:
        if error.status == 404:
            return None
        raise
    return decoder(kind.type).decode(answer)


def _start(start: EstimatedStart) -> str:
    """When a group is to start, in words."""
    if start.time is None:
        return "room is kept for it, and nobody knows when all of it comes free"
    latest = f", nine times out of ten by {start.latest}" if start.latest not in (None, start.time) else ""
    return f"{start.time}{latest} (by {start.basis})"


async def _stands(client: Api, group: PodGroup, pods: list[Pod]) -> tuple[Stand, ...]:
    """Where the group's pods stand by the levels of the installed scheduler; nothing where these are not known."""
    from kbatch.api.configuration import ConfigurationError
    from kbatch.cli.configuration import installed, load
    from kbatch.model.cluster import ClusterModel
    from kbatch.model.events import Upsert
    from kbatch.simulator.closeness import asks_for_it, levels_of, stands_of

    if not asks_for_it(group):
        return ()
    try:
        configuration = await installed(client)
        levels = levels_of(load(None, configuration.given)[1]) if not isinstance(configuration, str) else None
    except ConfigurationError:
        return ()
    if levels is None:
        return ()
    model = ClusterModel()
    for node in await list_all(client, NODES):
        model.apply(Upsert(node))
    model.apply(Upsert(group))
    for pod in pods:
        model.apply(Upsert(pod))
    return stands_of(model, levels, f"{group.metadata.namespace}/{group.metadata.name}")


def _phase(pod: Pod) -> str:
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating"
    if pod.spec.scheduling_gates and not pod.spec.node_name:
        return "Pending (gated)"
    return pod.status.phase or "Pending"


def _is_of(pod: Pod, role: str) -> bool:
    return (pod.metadata.labels or {}).get(SUB_GROUP_LABEL) == role


def _holds(pod: Pod) -> bool:
    """Whether it holds a place on a node: it has neither ended nor is it about to."""
    return (
        bool(pod.spec.node_name)
        and pod.metadata.deletion_timestamp is None
        and pod.status.phase not in {"Succeeded", "Failed"}
    )


def _amounts(amounts: Any) -> str:
    return " ".join(f"{name}={amount}" for name, amount in sorted(amounts.items())) or "nothing"
