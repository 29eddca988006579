"""What a PodGroup's status should say, as a pure function of what was seen.

`reconcile` gives the operator's own part of the status; compared with what stands there it says whether anything must
be written. The scheduler's part (Enqueued, Scheduled, Unschedulable) is read, never written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kbatch.api import conditions
from kbatch.api.names import REPLACED_ANNOTATION, REPLACED_OF_ANNOTATION, REPLACEMENT_LIMIT_ANNOTATION
from kbatch.api.objects import (
    Condition,
    FinishedRole,
    MadeObject,
    NodeFailures,
    PodGroup,
    PodGroupStatus,
    SubGroupStatus,
)
from kbatch.kube.kinds import key_of, split_key
from kbatch.model.bad_nodes import remembered
from kbatch.model.finished import NONE, Ranges, finished_of, number_of, without_pods
from kbatch.model.makers import sizes
from kbatch.model.members import NOTHING_FINISHED
from kbatch.model.phase import ADMITTED, OVER, GroupFacts, MemberCounts, Phase, RoleFacts, derive
from kbatch.resources import Resources, format_resources, scale, total
from operators.podgroup.member_index import Maker, Member, MemberIndex, Stage

_HOLDING: Final = frozenset({Stage.BOUND, Stage.RUNNING})
_NO_STAGES: Final = dict.fromkeys(Stage, 0)

REPLACEMENTS: Final = 6
"""Failed members that are made again in a group's whole life, unless its annotation says another number."""


@dataclass(frozen=True, slots=True)
class Stalled:
    """Why members cannot be made until the user changes something."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that a group's status depends on besides the group itself.

    Attributes:
        members: the pods that name the group.
        gave_up: nobody makes more members, although some failed.
        ongoing: a Job that makes members has not ended.
        tried: whether it is known if members can be made; stalled: why they cannot.
        objects: those that exist beside its pods.
        finished: by role with a template the members that have ended well; gone: how many of them have no pod any more.
        coming: by role with a template how many of those that it needs have no pod, and are made again.
    """

    members: tuple[Member, ...] = ()
    gave_up: bool = False
    done: bool = False
    ongoing: bool = False
    tried: bool = False
    stalled: Stalled | None = None
    objects: tuple[MadeObject, ...] = ()
    finished: Mapping[str, Ranges] = field(default_factory=dict)
    gone: Mapping[str, int] = field(default_factory=dict)
    coming: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OwnStatus:
    """The part of a PodGroup's status that this operator owns."""

    phase: str = ""
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    pending: int = 0
    sub_groups: tuple[SubGroupStatus, ...] = ()
    objects: tuple[MadeObject, ...] = ()
    allocated: tuple[tuple[str, str], ...] = ()
    node_failures: tuple[NodeFailures, ...] = ()
    finished: tuple[FinishedRole, ...] = ()
    conditions: tuple[Condition, ...] = ()

    def manifest(self) -> dict[str, Any]:
        """The status as it stands in an apply: everything owned, each time."""
        status: dict[str, Any] = {
            "phase": self.phase,
            "running": self.running,
            "succeeded": self.succeeded,
            "failed": self.failed,
            "pending": self.pending,
        }
        if self.sub_groups:
            status["subGroups"] = [_explicit(role) for role in self.sub_groups]
        if self.objects:
            status["objects"] = [msgspec.to_builtins(one) for one in self.objects]
        if self.allocated:
            status["allocated"] = dict(self.allocated)
        if self.node_failures:
            status["nodeFailures"] = [msgspec.to_builtins(one) for one in self.node_failures]
        if self.finished:
            status["finished"] = [msgspec.to_builtins(one) for one in self.finished]
        if self.conditions:
            status["conditions"] = [msgspec.to_builtins(condition) for condition in self.conditions]
        return status


def observe(index: MemberIndex, group: PodGroup, *, abandoned: bool = False) -> Observed:
    """What the index says about a group. `abandoned`: controllers that are no Jobs are known to make no more pods."""
    key = key_of(group.metadata.namespace, group.metadata.name)
    members = tuple(index.members(key))
    makers = _makers(index, group, key, members)
    known = [maker for maker in makers.values() if maker is not None]
    others = {uid for uid, maker in makers.items() if maker is None} if abandoned else set[str]()
    rest = {uid: maker for uid, maker in makers.items() if uid not in others}
    gave_up = _gave_up(group, rest, index.named_members(key), others)
    made = any(role.template is not None for role in group.spec.sub_groups or ())
    ended = all(maker.ended for maker in known) and len(known) + len(others) == len(makers)
    done = bool(makers) and ended and not (made or gave_up)
    finished, gone = _finished(index, group, key)
    for maker in known:
        there = sum(one.stage is Stage.SUCCEEDED and one.controller == maker.uid for one in members)
        if maker.succeeded > there:  # their pods were cleaned up: the Job has counted them
            gone[maker.role] = gone.get(maker.role, 0) + maker.succeeded - there
    ongoing = any(not maker.ended for maker in known)
    coming = _coming(index, group, key, finished) if gave_up else {}
    return Observed(members, gave_up, done, ongoing, finished=finished, gone=gone, coming=coming)


def _coming(index: MemberIndex, group: PodGroup, key: str, finished: Mapping[str, Ranges]) -> dict[str, int]:
    """By role with a template how many of the members that it needs have no pod that stays, and are made again: those
    that are gone, and those of which others have ended the pod. None of a group that was not let in, or has ended.
    """
    if group.status.phase not in ADMITTED or group.spec.suspend:
        return {}
    stays: dict[str, set[int]] = {}
    for pod, one in index.named_members(key).items():
        number = number_of(split_key(pod)[1], group.metadata.name, one.role)
        lost = one.stage is Stage.LEAVING or (one.stage is Stage.FAILED and one.disrupted)
        if one.controller == group.metadata.uid and number is not None and not lost:
            stays.setdefault(one.role, set()).add(number)
    found: dict[str, int] = {}
    for size in sizes(group.spec):
        ended = finished.get(size.role, NONE)
        there = sum(number < size.base and number not in ended for number in stays.get(size.role, ()))
        found[size.role] = size.base - there - ended.below(size.base)
    return found


def _finished(index: MemberIndex, group: PodGroup, key: str) -> tuple[Mapping[str, Ranges], dict[str, int]]:
    """Of the roles with templates which members have ended well, and how many of these have no pod any more."""
    roles = [role.name for role in group.spec.sub_groups or () if role.template is not None]
    if not roles:
        return NOTHING_FINISHED, {}
    name, known = group.metadata.name, finished_of(group.status.finished)
    made: dict[str, list[str]] = {role: [] for role in roles}
    for pod, member in index.named_members(key).items():
        if member.stage is Stage.SUCCEEDED and member.controller == group.metadata.uid and member.role in made:
            made[member.role].append(split_key(pod)[1])
    found: dict[str, Ranges] = {}
    for role in roles:
        numbers = [number for pod in made[role] if (number := number_of(pod, name, role)) is not None]
        ranges = known.get(role, NONE).plus(numbers)
        if ranges.pairs:
            found[role] = ranges
    return found, without_pods(found, name, [(role, pod) for role, pods in made.items() for pod in pods])


def standing(status: PodGroupStatus) -> OwnStatus:
    """The operator's part of the status that stands."""
    return OwnStatus(
        phase=status.phase,
        running=status.running,
        succeeded=status.succeeded,
        failed=status.failed,
        pending=status.pending,
        sub_groups=status.sub_groups or (),
        objects=status.objects or (),
        allocated=tuple(sorted((name, str(amount)) for name, amount in (status.allocated or {}).items())),
        node_failures=status.node_failures or (),
        finished=status.finished or (),
        conditions=conditions.of_types(status.conditions, conditions.PODGROUP_TYPES),
    )


def reconcile(group: PodGroup, observed: Observed, now: str) -> OwnStatus:
    """The operator's part of the status that should stand; `now` (RFC 3339) dates conditions that flip."""
    counts = count(observed.members, sum(observed.gone.values()))
    phase = derive(facts(group, observed))
    return OwnStatus(
        phase=phase.value,
        running=counts.running,
        succeeded=counts.succeeded,
        failed=counts.failed,
        pending=counts.pending + counts.bound,
        sub_groups=tuple(
            _role_status(role.name, _counts_of(observed, role.name)) for role in group.spec.sub_groups or ()
        ),
        objects=observed.objects,
        allocated=tuple(sorted(format_resources(allocated(observed.members)).items())),
        node_failures=remembered(
            group.status.node_failures or (),
            [(member.failed_on, member.uid) for member in observed.members if member.failed_on],
            group.spec.bad_node_limit,
        ),
        finished=tuple(FinishedRole(name=role, indexes=ranges.text()) for role, ranges in observed.finished.items()),
        conditions=_conditions(group, phase, counts, observed, now),
    )


def facts(group: PodGroup, observed: Observed) -> GroupFacts:
    """The facts from which the phase follows."""
    roles = group.spec.sub_groups or ()
    status = group.status
    return GroupFacts(
        minimum=minimum(group),
        members=count(observed.members, sum(observed.gone.values()), sum(observed.coming.values())),
        roles=tuple(RoleFacts(role.min_member, _counts_of(observed, role.name)) for role in roles),
        enqueued=_in_queue(status),
        scheduled=_verdict(status.conditions, conditions.SCHEDULED),
        unschedulable=_verdict(status.conditions, conditions.UNSCHEDULABLE),
        gave_up=observed.gave_up,
        done=observed.done,
        ongoing=observed.ongoing,
        current=Phase(status.phase) if status.phase in set(Phase) else None,
    )


def withdrawn(group: PodGroup, phase: Phase) -> bool:
    """Whether the scheduler has said that the group must wait, and none of its pods has a node."""
    return phase is Phase.PENDING and _verdict(group.status.conditions, conditions.ENQUEUED) is False


def minimum(group: PodGroup) -> int:
    """The group's minimum: the larger of minMember and the sum of the roles' minimums."""
    return max(group.spec.min_member, sum(role.min_member for role in group.spec.sub_groups or ()))


def count(members: Iterable[Member], gone: int = 0, coming: int = 0) -> MemberCounts:
    """Members by stage; those being deleted count nowhere. `gone`: so many more have succeeded, and have no pod;
    `coming`: so many are made again.
    """
    stages = _NO_STAGES.copy()
    for member in members:
        stages[member.stage] += 1
    return MemberCounts(
        bound=stages[Stage.BOUND],
        running=stages[Stage.RUNNING],
        succeeded=stages[Stage.SUCCEEDED] + gone,
        failed=stages[Stage.FAILED],
        pending=stages[Stage.PENDING],
        coming=coming,
    )


def allocated(members: Iterable[Member]) -> Resources:
    """What the members hold that have a node, have not ended, and are not being deleted."""
    alike: dict[int, tuple[Resources, int]] = {}  # by identity: equal requests are one object, in most cases
    for member in members:
        if member.stage in _HOLDING:
            request = member.request
            alike[id(request)] = request, alike.get(id(request), (request, 0))[1] + 1
    return total(scale(request, times) for request, times in alike.values())


def _makers(index: MemberIndex, group: PodGroup, key: str, members: tuple[Member, ...]) -> dict[str, Maker | None]:
    """Who makes members besides the group's own templates, by uid: the Jobs whose template names the group, the Job
    that owns it, the controllers of its pods. None for a controller that is no Job.
    """
    makers: dict[str, Maker | None] = {maker.uid: maker for maker in index.makers(key)}
    makers |= {maker.uid: maker for maker in index.ended_makers(key)}
    for uid in {member.controller for member in members} - {"", group.metadata.uid}:
        makers[uid] = index.maker(uid) or makers.get(uid)
    for owner in group.metadata.owner_references:
        maker = index.maker(owner.uid)
        if maker is not None:
            makers[owner.uid] = maker
    return makers


def unknown_controllers(index: MemberIndex, group: PodGroup) -> bool:
    """Whether any of its pods has a controller that is no Job: nobody says when it stops."""
    key = key_of(group.metadata.namespace, group.metadata.name)
    return None in _makers(index, group, key, tuple(index.members(key))).values()


def _gave_up(
    group: PodGroup, makers: dict[str, Maker | None], members: Mapping[str, Member], abandoned: Collection[str]
) -> bool:
    """Whether nobody will make more members although some failed.

    Only of Jobs is it known when they stop; any other controller may always make more, but for those that have
    `abandoned` the group. Members that were made from the group's templates are made again as long as it has retries
    left; those above the minimum that failed keep none of the minimum from being made again.
    """
    if not all(maker is not None and maker.ended for maker in makers.values()):
        return False
    final = {"", *abandoned} if retries_left(group) else {"", group.metadata.uid, *abandoned}
    base = {size.role: size.base for size in sizes(group.spec)}
    left = any(
        one.stage is Stage.FAILED and one.controller in final and not _spared(group, one)
        and not _surplus(group, pod, one, base)
        for pod, one in members.items()
    )  # fmt: skip
    return left or any(maker is not None and maker.failed for maker in makers.values())


def _surplus(group: PodGroup, pod: str, member: Member, base: Mapping[str, int]) -> bool:
    """Whether the pod was made from the template of a role, above what the role needs."""
    if member.controller != group.metadata.uid:
        return False
    number = number_of(split_key(pod)[1], group.metadata.name, member.role)
    return number is not None and number >= base.get(member.role, 0)


def _spared(group: PodGroup, member: Member) -> bool:
    return member.disrupted and member.controller == group.metadata.uid


def retries_left(group: PodGroup) -> int:
    """How many members that failed may still be made again from the group's templates."""
    return max(0, number(group, REPLACEMENT_LIMIT_ANNOTATION, REPLACEMENTS) - replaced(group))


def replaced(group: PodGroup) -> int:
    """How many members that failed were made again; none where the annotation was copied from another group."""
    of = (group.metadata.annotations or {}).get(REPLACED_OF_ANNOTATION, group.metadata.uid)
    return number(group, REPLACED_ANNOTATION, 0) if of == group.metadata.uid else 0


def number(group: PodGroup, annotation: str, default: int) -> int:
    """A whole number from an annotation; `default` where there is none that can be read."""
    text = (group.metadata.annotations or {}).get(annotation, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default


def _in_queue(status: PodGroupStatus) -> bool | None:
    """What Enqueued says of the life that the group lives now: one that comes to life again is let in anew."""
    said = _verdict(status.conditions, conditions.ENQUEUED)
    return None if said and (status.phase in OVER or not conditions.let_in(status.conditions)) else said


def _verdict(held: tuple[Condition, ...] | None, type_: str) -> bool | None:
    condition = conditions.find(held, type_)
    if condition is None or condition.status == conditions.UNKNOWN:
        return None
    return condition.status == conditions.TRUE


def _counts_of(observed: Observed, role: str) -> MemberCounts:
    members = [member for member in observed.members if member.role == role]
    return count(members, observed.gone.get(role, 0), observed.coming.get(role, 0))


def _role_status(name: str, counts: MemberCounts) -> SubGroupStatus:
    return SubGroupStatus(
        name=name,
        running=counts.running,
        succeeded=counts.succeeded,
        failed=counts.failed,
        pending=counts.pending + counts.bound,
    )


def _explicit(role: SubGroupStatus) -> dict[str, Any]:
    return {
        "name": role.name,
        "running": role.running,
        "succeeded": role.succeeded,
        "failed": role.failed,
        "pending": role.pending,
    }


def _conditions(
    group: PodGroup, phase: Phase, counts: MemberCounts, observed: Observed, now: str
) -> tuple[Condition, ...]:
    """The operator's conditions: those that hold, and those that once held, retracted."""
    existing = conditions.of_types(group.status.conditions, conditions.PODGROUP_TYPES)
    needed = minimum(group)
    holding = {
        conditions.COMPLETED: (
            phase is Phase.COMPLETED,
            *conditions.completed(counts.succeeded, needed),
        ),
        conditions.FAILED: (
            phase is Phase.FAILED,
            "MinimumUnattainable",
            f"{counts.alive + counts.succeeded} pods run or succeeded, {needed} needed, and no more will be made",
        ),
    }
    wanted: list[Condition] = []
    for type_, (holds, reason, message) in holding.items():
        old = conditions.find(existing, type_)
        if holds and old is not None and old.status == conditions.TRUE:
            wanted.append(old)  # what was true stays as it was said: pods that are cleaned up later change no history
        elif holds:
            wanted.append(_condition(group, type_, conditions.TRUE, reason, message))
        elif old is not None and old.status == conditions.TRUE:
            wanted.append(_condition(group, type_, conditions.FALSE, "MembersAgain", "members were made again"))
        elif old is not None:
            wanted.append(old)
    stalled = _stalled(group, conditions.find(existing, conditions.STALLED), observed)
    merged = conditions.merge(group.status.conditions or (), [*wanted, stalled] if stalled is not None else wanted, now)
    return conditions.of_types(merged, conditions.PODGROUP_TYPES)


def _stalled(group: PodGroup, old: Condition | None, observed: Observed) -> Condition | None:
    """What stands in the way of making members; where that was not tried yet, what was found before stands."""
    if not observed.tried:
        return old
    if observed.stalled is not None:
        why = observed.stalled
        return _condition(group, conditions.STALLED, conditions.TRUE, why.reason, why.message)
    if old is not None and old.status == conditions.TRUE:
        return _condition(group, conditions.STALLED, conditions.FALSE, "MembersMade", "members can be made again")
    return old


def _condition(group: PodGroup, type_: str, status: str, reason: str, message: str) -> Condition:
    return Condition(
        type=type_,
        status=status,
        reason=reason,
        message=message,
        observed_generation=group.metadata.generation or None,
    )
