"""Jobs that wait without pods: resumed when their group is in queue, suspended again when it is sent back.

What is to be done follows from the Job and its group alone (`kbatch.model.jobs_release`); every write has the Job's
version as its precondition, so a user who changes the Job at the same moment is never overruled: the write fails, the
watch brings the Job as it is, and the question is asked anew.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from kbatch.api.names import SUSPENDED_ANNOTATION
from kbatch.api.objects import Job, PodGroup
from kbatch.api.reasons import PodGroupNotFound
from kbatch.kube.client import Api
from kbatch.kube.decoding import decoder
from kbatch.kube.errors import ApiError
from kbatch.kube.kinds import JOBS, PODGROUPS, key_of
from kbatch.kube.writes import create, merge_patch
from kbatch.model.jobs_release import (
    Step,
    ended,
    group_for,
    group_of_its_own,
    members,
    patch,
    step,
    wants_group,
)
from kbatch.model.requests import effective_request
from kbatch.resources import QuantityError, parse_resources, scale
from operators.podgroup import FIELD_MANAGER
from operators.podgroup.event_notes import Teller
from operators.podgroup.groups import patch_group
from operators.podgroup.member_index import MemberIndex

MISSED_SECONDS: Final = 10.0
"""For so long a group may come after the Job that names it before the Job's user is told that it is missing."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Missing:
    """A group that does not exist: since when that is known, and the uids of the Jobs whose users were told."""

    since: float
    told: set[str] = field(default_factory=set)


class Jobs:
    """Acts on the Jobs of groups."""

    def __init__(
        self, api: Api, index: MemberIndex, teller: Teller, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._index = index
        self._teller = teller
        self._clock = clock
        self._missing: dict[str, _Missing] = {}

    def __len__(self) -> int:
        """Groups that Jobs wait for, and that do not exist."""
        return len(self._missing)

    async def make_group(self, key: str) -> bool:
        """Make the group of that key, where a Job wants one and there is none; whether it was made.

        Raises:
            KubeError: it could not be made.
        """
        for job in self._of(key):
            if key_of(job.metadata.namespace, job.metadata.name) != key:
                continue
            if job.metadata.deletion_timestamp is not None or not wants_group(job, self._index.scheduler_name):
                continue
            try:
                manifest = group_for(job)
            except QuantityError as error:
                self._teller.job_trouble(job, "RequestUnreadable", f"no PodGroup can be made: {error}")
                continue
            try:
                answer = await create(self._api, PODGROUPS, manifest, field_manager=FIELD_MANAGER)
            except ApiError as error:
                if error.reason == "AlreadyExists":
                    return False  # the watch will tell
                if error.status in {400, 403, 422}:
                    self._teller.job_trouble(job, "PodGroupRefused", f"no PodGroup can be made: {error.message}")
                raise
            self._index.put_group(decoder(PodGroup).decode(answer))
            return True
        return False

    def groupless(self, key: str) -> float | None:
        """Tell the users of Jobs that are held back for a group that does not exist, each once.

        Returns the seconds after which to ask again: a group that is applied right behind its Job is not missed. None
        where all are told, or no Job waits for it.
        """
        held = [job for job in self._of(key) if _is_held(job, self._index.scheduler_name)]
        if not held:
            self._missing.pop(key, None)
            return None
        now = self._clock()
        missing = self._missing.setdefault(key, _Missing(now))
        left = missing.since + MISSED_SECONDS - now
        if left > 0:
            return left
        for job in held:
            if job.metadata.uid not in missing.told:
                missing.told.add(job.metadata.uid)
                reason = PodGroupNotFound(key)
                self._teller.job_trouble(job, reason.code, f"it waits without pods: {reason.message}")
        return None

    def found(self, key: str) -> None:
        """The group exists."""
        self._missing.pop(key, None)

    async def keep(self, key: str, group: PodGroup, *, admitted: bool, withdrawn: bool) -> int:
        """Bring the group's Jobs in line with it; how many were changed.

        Raises:
            KubeError: one could not be changed.
        """
        changes = []
        for job in self._of(key):
            if _of_job_before(group, job):
                continue  # it goes with that Job; then one is made for this Job
            owned = any(owner.uid == job.metadata.uid for owner in group.metadata.owner_references)
            if group_of_its_own(job) and not owned:
                if ended(job):
                    continue
                note = f"PodGroup {group.metadata.name} exists and belongs to another: the Job waits for that name"
                self._teller.job_trouble(job, "PodGroupNameTaken", note)
                continue
            wanted = step(job, admitted=admitted and bool(members(job)), withdrawn=withdrawn)
            if wanted is not Step.NOTHING:
                changes.append(self._take(job, wanted, group))
            elif owned and job.spec.suspend and not admitted:
                changes.append(self._follow(job, group))
            elif owned and not job.spec.suspend and not ended(job):
                self._teller.job_queue(key, job, group)
                changes.append(self._shrink(job, group))
        return sum(await asyncio.gather(*changes))

    async def _take(self, job: Job, wanted: Step, group: PodGroup) -> bool:
        namespace, name = job.metadata.namespace, job.metadata.name
        change = patch(job, wanted, group.metadata.name)
        try:
            answer = await merge_patch(
                self._api, JOBS, namespace=namespace, name=name, patch=change, field_manager=FIELD_MANAGER
            )
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        self._index.put_job(decoder(Job).decode(answer))
        self._teller.job_step(job, wanted, group)
        return True

    async def _follow(self, job: Job, group: PodGroup) -> bool:
        """A group that was made for a Job goes by its Job as long as both wait.

        But for its priority: a Job's template cannot change there, and who gives the group another means it.
        """
        if not wants_group(job, self._index.scheduler_name):
            return False
        try:
            wanted = group_for(job)["spec"]
        except QuantityError as error:
            self._teller.job_trouble(job, "RequestUnreadable", f"its PodGroup stays as it is: {error}")
            return False
        wanted.setdefault("queue", group.spec.queue)  # an empty label: whatever the API server has filled in
        if _same(group, wanted):
            return False
        spec = {"minResources": None, **{key: value for key, value in wanted.items() if key != "priorityClassName"}}
        return await self._patch(job, group, spec)

    async def _shrink(self, job: Job, group: PodGroup) -> bool:
        """A group that was made for a Job needs no more pods than the Job runs at one time: it would wait for those
        that its user has given up. It never grows here: a gang that runs would lack what it has never asked for.
        """
        if group.spec.sub_groups or not members(job):
            return False
        try:
            wanted = group_for(job)["spec"]
            if wanted["minMember"] >= group.spec.min_member:
                return False
            spec: dict[str, Any] = {"minMember": wanted["minMember"]}
            asked = scale(effective_request(job.spec.template.spec), group.spec.min_member)
            if parse_resources(group.spec.min_resources or {}) == asked:  # else its user has changed it
                spec["minResources"] = wanted.get("minResources")
        except QuantityError:
            return False
        return await self._patch(job, group, spec)

    async def _patch(self, job: Job, group: PodGroup, spec: dict[str, Any]) -> bool:
        """Change the group that was made for the Job; where that is refused the Job's user is told.

        Raises:
            KubeError: it was not changed.
        """
        try:
            await patch_group(self._api, self._index, group, spec=spec)
        except ApiError as error:
            if error.status in {400, 403, 422}:
                self._teller.job_trouble(job, "PodGroupRefused", f"its PodGroup stays as it is: {error.message}")
            raise
        return True

    def _of(self, key: str) -> list[Job]:
        return [maker.job for maker in self._index.makers(key) if maker.job is not None]


def _same(group: PodGroup, wanted: dict[str, Any]) -> bool:
    try:
        resources = parse_resources(group.spec.min_resources or {})
    except QuantityError:
        return False
    return (group.spec.min_member, group.spec.queue, resources) == (
        wanted["minMember"],
        wanted["queue"],
        parse_resources(wanted.get("minResources", {})),
    )


def _of_job_before(group: PodGroup, job: Job) -> bool:
    """Whether the group belongs to a Job that had this one's name before it."""
    return any(
        owner.controller and owner.kind == "Job" and owner.name == job.metadata.name and owner.uid != job.metadata.uid
        for owner in group.metadata.owner_references
    )


def _is_held(job: Job, scheduler_name: str) -> bool:
    """Whether kbatch holds it back for a group that it does not make: no pod is there that could say why."""
    marked = (job.metadata.annotations or {}).get(SUSPENDED_ANNOTATION) == "true"
    waits = marked and job.spec.suspend and not ended(job) and job.metadata.deletion_timestamp is None
    return waits and bool(members(job)) and not wants_group(job, scheduler_name)
