"""The finalizer of pods made from templates: taken off once their group's status keeps how they ended.

Without it a member that ended well would be run again if its pod went before that was written: a user deletes it, a
node goes, the collector of ended pods takes the oldest.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Final

from kbatch.api.names import FINISHED_FINALIZER
from kbatch.api.objects import PodGroup
from kbatch.kube.client import Api
from kbatch.kube.kinds import split_key
from kbatch.model.finished import MOST_CHARACTERS, NONE, Ranges, finished_of, number_of
from operators.podgroup.member_index import Member, Stage
from operators.podgroup.podwrites import PodWrites, Sent, all_of, remove_entry

_NONE: Final[Mapping[str, Ranges]] = {}


async def let_end(
    api: Api, writes: PodWrites, group: PodGroup | None, members: Mapping[str, Member], *, keeps: bool
) -> int:
    """Take the finalizers off a group's pods of which the end is kept, or nothing is to be kept; how many writes.

    `group` is as the API server has it, None where it is gone; `keeps`: whether the API server can keep how they ended.

    Raises:
        KubeError: a write failed.
    """
    finished = finished_of(group.status.finished) if group is not None else _NONE
    changes: list[Coroutine[Any, Any, object]] = [
        remove_entry(api, writes, pod, one.uid, f"/metadata/finalizers/{one.finalizer}", FINISHED_FINALIZER)
        for pod, one in members.items()
        if one.finalizer >= 0
        and ((not keeps and one.stage is Stage.SUCCEEDED) or _may_go(pod, one, group, finished))
        and writes.unseen(pod) is not Sent.CHANGE
    ]
    return await all_of(changes)


def _may_go(pod: str, member: Member, group: PodGroup | None, finished: Mapping[str, Ranges]) -> bool:
    if group is None or member.controller != group.metadata.uid:
        return True  # nobody counts it any more
    if member.stage is not Stage.SUCCEEDED:
        return member.stage is Stage.FAILED or member.lost
    if all(role.name != member.role or role.template is None for role in group.spec.sub_groups or ()):
        return True  # its user has taken the role, or its template, out of the group
    number = number_of(split_key(pod)[1], group.metadata.name, member.role)
    kept = finished.get(member.role, NONE)
    full = bool(kept.pairs) and number is not None and number > kept.pairs[-1][1] and _is_full(kept)
    return number is None or number in kept or full


def _is_full(kept: Ranges) -> bool:
    """Whether a status keeps no more of a role."""
    return len(kept.text()) > MOST_CHARACTERS - 20
