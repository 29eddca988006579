"""Does a backfilled job delay one whose start was planned? Found out by running the input with and without it.

For each job whose start was planned, the jobs that started while it waited for that start are left out of the input,
and this is run again. Where the job then starts earlier than it did, and it did not start at the instant that was
planned when the first of the others started, these have delayed it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from kbatch.api.names import GROUP_NAME_ANNOTATION
from kbatch.api.objects import AnyObject, Job, Pod, PodGroup, ReplicaSet
from kbatch.engine import Policy
from kbatch.model.jobs_release import group_of
from kbatch.simulator.manifests import Manifests
from kbatch.simulator.pods import owner_of
from kbatch.simulator.result import Check, Delay, Result
from kbatch.simulator.run import Limits, simulate


def check_backfill(
    manifests: Manifests,
    policy: Policy,
    limits: Limits,
    result: Result,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Check:
    """Check a run (`result`, of these manifests): `progress` is told how many of the further runs lie behind.

    Raises:
        InputError: an object that a live cluster would refuse.
    """
    first = {each.group: each.told for each in reversed(result.planned)}
    beside = {group: found for group, told in first.items() if (found := _beside(result, group, told))}
    delays: list[Delay] = []
    for number, (group, others) in enumerate(sorted(beside.items())):
        if progress is not None:
            progress(number, len(beside))
        began = min(result.backfilled[other] for other in others)
        planned = _planned(result, group, began)
        started = result.started.get(group)
        without = simulate(_without(manifests, others), policy, limits).started.get(group)
        kept = started is not None and planned is not None and started <= planned
        if not kept and without is not None and (started is None or without < started):
            delays.append(Delay(group, others, planned, started, without))
    return Check(len(first), len(beside), tuple(delays))


def _beside(result: Result, group: str, told: int) -> tuple[str, ...]:
    """The groups that were backfilled while this one waited for the start that was planned for it at `told`."""
    until = result.started.get(group)
    return tuple(
        sorted(
            other for other, at in result.backfilled.items()
            if other != group and at >= told and (until is None or at < until)
        )
    )  # fmt: skip


def _planned(result: Result, group: str, instant: int) -> int | None:
    """The start that was planned for a group at an instant, as it was first told of all at that instant."""
    found: int | None = None
    for each in result.planned:
        if each.group == group and (each.told < instant or found is None):
            found = each.start
    return found


def _without(manifests: Manifests, groups: Collection[str]) -> Manifests:
    """The input without these groups, and all that makes pods of theirs."""
    ours = manifests.recorded.scheduler_name
    objects = tuple(each for each in manifests.objects if not _belongs(each.obj, groups, ours))
    return replace(manifests, objects=objects)


def _belongs(obj: AnyObject, groups: Collection[str], scheduler_name: str) -> bool:
    meta = obj.metadata
    names = {f"{meta.namespace}/{meta.name}"}
    if isinstance(obj, Pod):
        owner = owner_of(obj)
        named = (meta.annotations or {}).get(GROUP_NAME_ANNOTATION)
        names |= {f"{meta.namespace}/{name}" for name in (named, owner.name if owner else None) if name}
    elif isinstance(obj, Job):
        named = group_of(obj, scheduler_name)
        names |= {f"{meta.namespace}/{named}"} if named else set()
    elif isinstance(obj, ReplicaSet):
        named = (obj.spec.template.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION)
        names |= {f"{meta.namespace}/{named}"} if named else set()
    elif not isinstance(obj, PodGroup):
        return False
    return not names.isdisjoint(groups)
