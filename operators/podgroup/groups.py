"""Changes of PodGroups besides their status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbatch.api.objects import PodGroup
from kbatch.kube.client import Api
from kbatch.kube.decoding import decoder
from kbatch.kube.kinds import PODGROUPS
from kbatch.kube.writes import merge_patch
from operators.podgroup import FIELD_MANAGER
from operators.podgroup.member_index import MemberIndex


async def patch_group(
    api: Api,
    index: MemberIndex,
    group: PodGroup,
    *,
    annotations: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> None:
    """Merge a change into a group, with its version as precondition; the index knows the answer at once.

    Raises:
        KubeError: it could not be changed; it was changed by somebody else meanwhile, say.
    """
    metadata: dict[str, Any] = {"resourceVersion": group.metadata.resource_version}
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    change: dict[str, Any] = {"metadata": metadata}
    if spec is not None:
        change["spec"] = dict(spec)
    answer = await merge_patch(
        api,
        PODGROUPS,
        namespace=group.metadata.namespace,
        name=group.metadata.name,
        patch=change,
        field_manager=FIELD_MANAGER,
    )
    index.answered(decoder(PodGroup).decode(answer))
