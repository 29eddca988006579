"""Events: what a person who looks at a group, or at the Job that it belongs to, wants to be told.

Told are steps (a phase that changed, once it is written), and why a group waits, once for each reason until it is
placed: its owners are told at once, and the group itself where the reason has stood for a while, as most groups wait
for a moment. The numbers in it change all the time and stand in the group's conditions.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from kbatch.api import conditions
from kbatch.api.names import API_VERSION, QUEUE_LABEL
from kbatch.api.objects import Job, MadeObject, PodGroup
from kbatch.api.reasons import NotEnoughTasks, SentBack
from kbatch.api.reasons.base import count
from kbatch.kube.events import NORMAL, WARNING, Regarding
from kbatch.kube.kinds import key_of
from kbatch.model.jobs_release import Step
from kbatch.model.phase import OVER, STARTED, Phase
from operators.podgroup.member_index import Maker

_CAME_TO_RUN: Final = STARTED | {Phase.COMPLETED}

STANDS: Final = 10.0
"""For so many seconds a reason has stood when the group itself is told of it."""


@dataclass(slots=True)
class _Waiting:
    """Why a group waits: for which reason since when (monotonic), and of which reasons its owners and it were told."""

    uid: str
    code: str = ""
    since: float = 0.0
    owners: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)


class Recorder(Protocol):
    """What `kbatch.kube.events.EventRecorder` offers."""

    def tell(self, regarding: Regarding, type_: str, reason: str, action: str, note: str) -> object:
        """Note an Event; returns at once."""

    def remark(self, regarding: Regarding, reason: str, action: str, note: str) -> object:
        """The same of what goes as it should, of a great many: it may be told later, when others have been."""


class Nobody:
    """A recorder that tells nobody."""

    def tell(self, regarding: Regarding, type_: str, reason: str, action: str, note: str) -> None:
        """Forget it."""

    def remark(self, regarding: Regarding, reason: str, action: str, note: str) -> None:
        """Forget it."""


class Teller:
    """Turns what the operator does and sees into Events.

    Args:
        recorder: writes them, aside.
        since: RFC 3339; of groups that are older, the reason that stands when they are first seen was told before.
    """

    def __init__(self, recorder: Recorder, since: str) -> None:
        self._recorder = recorder
        self._since = since
        self._waits: dict[str, _Waiting] = {}
        self._missed: dict[str, str] = {}
        self._elsewhere: dict[str, tuple[str, str, str]] = {}
        """By key of the group the UID of its Job, and both queues, of who was told that they differ."""

    def __len__(self) -> int:
        """Groups and Jobs of which it is remembered what was told."""
        return len(self._waits) + len(self._missed) + len(self._elsewhere)

    def forget(self, key: str) -> None:
        """The group is gone."""
        self._waits.pop(key, None)
        self._elsewhere.pop(key, None)

    def phase(self, group: PodGroup, old: str, new: Phase, makers: list[Maker]) -> None:
        """The group's phase changed, and that was written. Two steps that were taken at once are one Event.

        That it came in queue and was placed each group tells: where there are many, that comes after other Events, as
        what pods tell does.
        """
        about = _group(group)
        before = Phase(old) if old in set(Phase) else Phase.PENDING
        admitted = f"admitted by Queue {group.spec.queue}"
        if before in {Phase.PENDING, Phase.IN_QUEUE} and new in _CAME_TO_RUN:
            note = f"{admitted}, and its minimum is placed" if before is Phase.PENDING else "its minimum is placed"
            self._recorder.remark(about, "Scheduled", "Scheduling", note)
        elif before is Phase.PENDING and new is Phase.IN_QUEUE:
            self._recorder.remark(about, "Enqueued", "Enqueuing", admitted)
        reason, message = _reason(group)
        if new is Phase.PENDING and before is not Phase.PENDING:
            times = group.status.scheduling_attempts
            why = (
                f"its minimum was not placed in time, or was lost ({count(times, 'time')})"
                if times and reason in {"", SentBack.code}  # these times say nothing of other causes
                else "it is in queue no more"
            )
            self._warn(about, "SentBack", "Enqueuing", f"{why}; {message}" if message else why)
        elif new is Phase.UNKNOWN and before is not Phase.UNKNOWN:
            if reason == SentBack.code:  # what is left of it is on its way out: that says nothing of what it lost
                message = "its minimum was not whole again in time: what is left is evicted, and it queues again"
            self._warn(about, "MinimumLost", "Scheduling", message or "the rest of its minimum cannot be placed")
        elif new is Phase.COMPLETED:
            self._normal(about, "Completed", "Ending", "its minimum succeeded")
        elif new is Phase.FAILED:
            note = "its minimum can no longer be met, and no more pods will be made"
            self._warn(about, "Failed", "Ending", note)
            for owner in _owners(group, makers):
                self._warn(owner, "PodGroupFailed", "Ending", f"PodGroup {group.metadata.name}: {note}")

    def bad_node(self, group: PodGroup, node: str) -> None:
        """So many pods failed on a node that the group avoids it, and that was written."""
        count = group.spec.bad_node_limit
        note = f"{count} of its pods failed on node {node}: it is avoided from now on (badNodeLimit {count})"
        self._warn(_group(group), "NodeAvoided", "Scheduling", note)

    def waits(self, group: PodGroup, phase: Phase, makers: list[Maker], again: list[float]) -> None:
        """Look why the group, now of this phase, waits, and tell it and its owners what they were not told yet.

        `again`: seconds after which to look once more are added.
        """
        key = key_of(group.metadata.namespace, group.metadata.name)
        uid = group.metadata.uid
        code, message = _reason(group) if phase not in OVER else ("", "")
        known = self._waits.get(key)
        first = known is None or known.uid != uid
        if known is None or first:
            known = self._waits[key] = _Waiting(uid)
        if not code:
            known.code = ""
            known.owners.clear()
            known.told.clear()
            return
        if known.code != code:
            known.code, known.since = code, time.monotonic()
        if first and (group.metadata.creation_timestamp or "") < self._since:
            known.owners.add(code)
            known.told.add(code)
        if code not in known.owners:
            known.owners.add(code)
            for owner in _owners(group, makers):
                note = f"PodGroup {group.metadata.name} waits: {message}"
                self._recorder.tell(owner, NORMAL, code, "Scheduling", note)
        if code in known.told:
            return
        left = known.since + STANDS - time.monotonic()
        if left > 0:
            again.append(left)
            return
        known.told.add(code)
        self._warn(_group(group), code, "Scheduling", message)

    def job_step(self, job: Job, step: Step, group: PodGroup) -> None:
        """A Job was resumed, suspended, or let go."""
        name = group.metadata.name
        if step is Step.RELEASE:
            self._normal(_job(job), "Released", "Resuming", f"resumed: PodGroup {name} is in queue")
        elif step is Step.HOLD:
            self._normal(_job(job), "HeldBack", "Suspending", f"suspended again: PodGroup {name} was sent back to wait")
        elif step is Step.LET_GO:
            note = f"resumed by its user before PodGroup {name} was in queue: kbatch leaves it alone from now on"
            self._normal(_job(job), "LetGo", "Resuming", note)

    def job_trouble(self, job: Job, reason: str, note: str) -> None:
        """A Job needs its user's attention."""
        self._warn(_job(job), reason, "Grouping", note)

    def job_queue(self, key: str, job: Job, group: PodGroup) -> None:
        """A Job runs, and its group goes by its label no longer: its user is told once where that says another queue
        than the group is in.
        """
        labelled = (job.metadata.labels or {}).get(QUEUE_LABEL)
        if not labelled or labelled == group.spec.queue:
            self._elsewhere.pop(key, None)
            return
        found = job.metadata.uid, labelled, group.spec.queue
        if self._elsewhere.get(key) != found:
            self._elsewhere[key] = found
            note = (
                f"label {QUEUE_LABEL} says {labelled}, its PodGroup is in queue {group.spec.queue} and stays there; "
                f"the label counts only while the Job waits; to move it, delete the Job and create it again"
            )
            self._warn(_job(job), "QueueLabelIgnored", "Grouping", note)

    def missed(self, key: str, job: Job | None) -> None:
        """A Job went past its queue, which its user is told once; None: it is over, or gone."""
        if job is None:
            self._missed.pop(key, None)
        elif self._missed.get(key) != job.metadata.uid:
            self._missed[key] = job.metadata.uid
            note = (
                f"it names a queue ({QUEUE_LABEL}), but its pods go to the default scheduler, outside of all queues: "
                f"no webhook answered when it was created; delete it and create it again"
            )
            self._warn(_job(job), "PassedByQueue", "Grouping", note)

    def trouble(self, group: PodGroup, reason: str, note: str) -> None:
        """A group's members cannot be made."""
        self._warn(_group(group), reason, "CreatingPods", note)

    def object_trouble(self, group: PodGroup, reason: str, note: str) -> None:
        """An object of a group cannot be made."""
        self._warn(_group(group), reason, "CreatingObjects", note)

    def objects_made(self, group: PodGroup, objects: Sequence[MadeObject]) -> None:
        """Objects of a group were made."""
        self._normal(_group(group), "ObjectsMade", "CreatingObjects", f"made {_listed(objects)}")

    def objects_deleted(self, group: PodGroup, objects: Sequence[MadeObject]) -> None:
        """The objects of a group that is over were deleted."""
        self._normal(_group(group), "ObjectsDeleted", "Ending", f"deleted {_listed(objects)}")

    def _normal(self, about: Regarding, reason: str, action: str, note: str) -> None:
        self._recorder.tell(about, NORMAL, reason, action, note)

    def _warn(self, about: Regarding, reason: str, action: str, note: str) -> None:
        self._recorder.tell(about, WARNING, reason, action, note)


def _reason(group: PodGroup) -> tuple[str, str]:
    """Why the group waits: code and words; empty where it does not, or nobody has said yet."""
    scheduled = conditions.find(group.status.conditions, conditions.SCHEDULED)
    if scheduled is None or scheduled.status != conditions.FALSE:
        return "", ""
    if scheduled.reason == NotEnoughTasks.code and conditions.is_true(group.status.conditions, conditions.ENQUEUED):
        return "", ""  # they are being made
    return scheduled.reason, scheduled.message


def _listed(objects: Sequence[MadeObject]) -> str:
    return ", ".join(f"{one.kind} {one.name}" for one in objects)


def _group(group: PodGroup) -> Regarding:
    metadata = group.metadata
    return Regarding(API_VERSION, "PodGroup", metadata.namespace, metadata.name, metadata.uid)


def _job(job: Job) -> Regarding:
    return Regarding("batch/v1", "Job", job.metadata.namespace, job.metadata.name, job.metadata.uid)


def _owners(group: PodGroup, makers: list[Maker]) -> list[Regarding]:
    """The owners by reference, and the Jobs whose template names the group; each once."""
    namespace = group.metadata.namespace
    found = {
        owner.uid: Regarding(owner.api_version, owner.kind, namespace, owner.name, owner.uid)
        for owner in group.metadata.owner_references
    }
    for maker in makers:
        found.setdefault(maker.uid, Regarding("batch/v1", "Job", namespace, maker.name, maker.uid))
    return list(found.values())
