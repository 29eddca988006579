"""For which PodGroup a pod was made.

A PodGroup that is deleted and made again under its name meets the pods of the one before, until the garbage collector
comes to them. They name the group, as its own do; but the group that controls them has another uid.
"""

from __future__ import annotations

from typing import Final

from kbatch.api.names import GROUP
from kbatch.api.objects import Pod

_OURS: Final = f"{GROUP}/"


def made_for(pod: Pod) -> str:
    """The uid of the PodGroup that controls the pod; empty where none does."""
    for owner in pod.metadata.owner_references:
        if owner.controller:
            return owner.uid if owner.kind == "PodGroup" and owner.api_version.startswith(_OURS) else ""
    return ""


def is_former(made: str, uid: str) -> bool:
    """Whether a pod that was made for the PodGroup of the uid `made` is no member of the one of this uid, which has the
    name now. Manifests that are simulated need no uids.
    """
    return bool(made and uid) and made != uid
