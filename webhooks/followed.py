"""What admission says of edits that do not last: a group that was made for a Job goes by the Job while both wait.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kbatch.api.names import GROUP_MIN_MEMBER_ANNOTATION, QUEUE_LABEL
from kbatch.model.phase import Phase
from webhooks.podgroups import owning_job
from webhooks.review import StoredGroup, SubmittedGroup

_INSTEAD: Final = {
    "queue": ("spec.queue", f"change the label {QUEUE_LABEL} of the Job (where it is empty, this change stays)"),
    "min_member": (
        "spec.minMember",
        f"change the Job's parallelism, or the annotation {GROUP_MIN_MEMBER_ANNOTATION} of its pod template",
    ),
    "min_resources": ("spec.minResources", "change what the Job's pod template asks for"),
}
"""By field its path, and what to change in its place."""


def warnings(group: SubmittedGroup, old: StoredGroup) -> Iterator[str]:
    """Which changes of a group the podgroup operator takes back, and what to change in their place."""
    owner = owning_job(group.metadata.owner_references)
    if owner is None or not owner.controller or owner.name != group.metadata.name:
        return
    if old.status.phase not in ("", Phase.PENDING):
        return  # it goes its own way once it is in queue
    for field, (path, instead) in _INSTEAD.items():
        now = getattr(group.spec, field)
        if now is not None and now != getattr(old.spec, field):
            yield f"{path} follows Job {owner.name}, for which the group was made, while it waits: {instead}"
