"""What is written to a cluster for a job set: cancel, suspend, resume, reprioritize.

Each change is of one object, with its uid or version as its precondition, so that none is made on what has changed
meanwhile. A set is not changed at one instant: what could not be done is said, and asking again does the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kbatch.api.names import SUSPENDED_ANNOTATION
from kbatch.api.objects import Job, Pod, PodGroup
from kbatch.cli.sets import JobSet, over, owned_by, plain_pods
from kbatch.kube.client import Api
from kbatch.kube.errors import ApiError
from kbatch.kube.kinds import JOBS, PODGROUPS, PODS, AnyKind
from kbatch.kube.lists import list_all
from kbatch.kube.writes import delete, merge_patch
from kbatch.model.jobs_release import HELD, RELEASED, suspended_by_user

T = TypeVar("T")

PARALLEL: Final = 16
MANAGER: Final = "kbatch-cli"
_KINDS: Final[dict[type, AnyKind]] = {Job: JOBS, PodGroup: PODGROUPS, Pod: PODS}


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one object. `refused`: the change was wanted and not made; `message` says why."""

    kind: str
    namespace: str
    name: str
    result: str
    message: str = ""
    refused: bool = False

    def json(self) -> dict[str, Any]:
        """As one object of the output."""
        return {
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "result": self.result,
            "message": self.message,
        }

    def line(self) -> str:
        """As one line for people."""
        text = f"{self.kind} {self.namespace}/{self.name}: {self.result}"
        return f"{text}: {self.message}" if self.message else text


class Changes:
    """Makes changes, some at a time.

    Args:
        dry_run: nothing is sent; what would be done is said.
    """

    def __init__(self, api: Api, *, dry_run: bool) -> None:
        self._api = api
        self._dry_run = dry_run
        self._limit = asyncio.Semaphore(PARALLEL)

    async def cancel(self, job_set: JobSet) -> list[Done]:
        """Delete all that is not over: Jobs, groups, and the pods that name these groups and that nobody makes again.

        Raises:
            KubeError: the pods could not be listed.
        """
        jobs = [job for job in job_set.jobs if not over(job)]
        groups = [group for group in job_set.groups if not over(group)]
        found = [
            pod
            for namespace in sorted({group.metadata.namespace for group in groups})
            for pod in await list_all(self._api, PODS, namespace=namespace)
        ]
        alone, foreign = plain_pods(groups, found)
        # Jobs first: a group that is gone before its Job would be made again.
        done = await self._each(jobs, self._delete)
        done += await self._each([group for group in groups if not owned_by(group, jobs)], self._delete)
        done += await self._each(alone, self._delete)
        made_by = [(pod, next(owner for owner in pod.metadata.owner_references if owner.controller)) for pod in foreign]
        return done + [
            _done(pod, "left", f"made by {owner.kind} {owner.name}: delete that", refused=True)
            for pod, owner in made_by
        ]

    async def suspend(self, job_set: JobSet) -> list[Done]:
        """Suspend Jobs as their user would, and groups whose pods no Job makes: they keep no place until they go on."""
        done = await self._each([job for job in job_set.jobs if not over(job)], self._suspend)
        return done + await self._each(_by_themselves(job_set), self._suspend_group)

    async def resume(self, job_set: JobSet) -> list[Done]:
        """Let go what was suspended: it waits for its turn; Jobs that kbatch has never held get their pods at once."""
        done = await self._each([job for job in job_set.jobs if not over(job)], self._resume)
        return done + await self._each(
            [group for group in job_set.groups if group.spec.suspend and not over(group)], self._resume_group
        )

    async def reprioritize(
        self, groups: Iterable[PodGroup], priority_class: str, without: Iterable[Job] = ()
    ) -> list[Done]:
        """Give groups that are not over this PriorityClass. `without`: Jobs that have no group to give it to."""

        async def change(group: PodGroup) -> Done:
            if group.spec.priority_class_name == priority_class:
                return _done(group, "unchanged")
            return await self._patch(group, {"spec": {"priorityClassName": priority_class}}, "reprioritized")

        done = await self._each([group for group in groups if not over(group)], change)
        return done + [_done(job, "left", "it has no PodGroup") for job in without if not over(job)]

    async def _suspend(self, job: Job) -> Done:
        if suspended_by_user(job):
            return _done(job, "unchanged", "it is suspended")
        change: dict[str, Any] = {"spec": {"suspend": True}}
        if _mark(job) is not None:
            change["metadata"] = {"annotations": {SUSPENDED_ANNOTATION: RELEASED}}
        return await self._patch(job, change, "suspended")

    async def _resume(self, job: Job) -> Done:
        if not suspended_by_user(job):
            return _done(job, "unchanged", "it is not suspended")
        if _mark(job) is None:
            return await self._patch(job, {"spec": {"suspend": False}}, "resumed")
        held = {"metadata": {"annotations": {SUSPENDED_ANNOTATION: HELD}}}
        return await self._patch(job, held, "resumed", "it waits for its turn")

    async def _suspend_group(self, group: PodGroup) -> Done:
        if group.spec.suspend:
            return _done(group, "unchanged", "it is suspended")
        templated = all(role.template is not None for role in group.spec.sub_groups or ()) and group.spec.sub_groups
        running = group.status.running + group.status.pending and not templated
        message = "pods that others made of it are left alone" if running else ""
        return await self._patch(group, {"spec": {"suspend": True}}, "suspended", message)

    async def _resume_group(self, group: PodGroup) -> Done:
        return await self._patch(group, {"spec": {"suspend": False}}, "resumed", "it waits for its turn")

    async def _patch(self, one: Job | PodGroup, change: dict[str, Any], result: str, message: str = "") -> Done:
        meta = one.metadata
        patch = {**change, "metadata": {**change.get("metadata", {}), "resourceVersion": meta.resource_version}}

        async def send() -> None:
            await merge_patch(
                self._api,
                _KINDS[type(one)],
                namespace=meta.namespace,
                name=meta.name,
                patch=patch,
                field_manager=MANAGER,
            )

        return await self._send(one, send, result, message)

    async def _delete(self, one: Job | PodGroup | Pod) -> Done:
        meta = one.metadata

        async def send() -> None:
            await delete(
                self._api,
                _KINDS[type(one)],
                namespace=meta.namespace,
                name=meta.name,
                uid=meta.uid,
                propagation="Background",
            )

        return await self._send(one, send, "deleted")

    async def _send(
        self, one: Job | PodGroup | Pod, send: Callable[[], Awaitable[None]], result: str, message: str = ""
    ) -> Done:
        if self._dry_run:
            return _done(one, f"would be {result}", message)
        try:
            async with self._limit:
                await send()
        except ApiError as error:
            if error.status == 404:
                return _done(one, "gone")
            why = "it was changed meanwhile: ask again" if error.status == 409 else error.message or str(error)
            return _done(one, "refused", why, refused=True)
        return _done(one, result, message)

    async def _each(self, items: Sequence[T], change: Callable[[T], Awaitable[Done]]) -> list[Done]:
        return list(await asyncio.gather(*(change(item) for item in items)))


def _done(one: Job | PodGroup | Pod, result: str, message: str = "", *, refused: bool = False) -> Done:
    return Done(_KINDS[type(one)].name, one.metadata.namespace, one.metadata.name, result, message, refused)


def _by_themselves(job_set: JobSet) -> list[PodGroup]:
    """The groups that are not over and of which some pods are made by no Job."""
    return [
        group
        for group in job_set.groups
        if not over(group)
        and (any(role.template for role in group.spec.sub_groups or ()) or not job_set.jobs_of(group))
    ]


def _mark(job: Job) -> str | None:
    return (job.metadata.annotations or {}).get(SUSPENDED_ANNOTATION)
