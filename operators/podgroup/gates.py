"""kbatch's scheduling gate: taken off the pods of a group that is in queue, and what the API server leaves behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from kbatch.api.names import IN_QUEUE_GATE
from kbatch.kube.client import Api
from kbatch.kube.kinds import PODS, split_key
from kbatch.kube.writes import strategic_patch
from operators.podgroup import FIELD_MANAGER
from operators.podgroup.member_index import Member, Stage
from operators.podgroup.podwrites import PodWrites, Sent, all_of, remove_entry

_STALE_SECONDS: Final = 2.0


class Gates:
    """Lifts gates. Of a group it remembers since when pods without gates claim to have one, until `forget`."""

    def __init__(self, api: Api, writes: PodWrites, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._writes = writes
        self._clock = clock
        self._stale_since: dict[str, float] = {}

    def __len__(self) -> int:
        """Groups of which anything is remembered."""
        return len(self._stale_since)

    def forget(self, key: str) -> None:
        """The group is gone."""
        self._stale_since.pop(key, None)

    async def lift(self, key: str, members: Mapping[str, Member], waits: list[float]) -> int:
        """Let the members of a group that is in queue go; how many writes. `waits`: seconds after which to look again.

        Raises:
            KubeError: a write failed.
        """
        changes: list[Coroutine[Any, Any, object]] = [
            remove_entry(
                self._api, self._writes, pod, one.uid, f"/spec/schedulingGates/{one.gate}", IN_QUEUE_GATE, key="/name"
            )
            for pod, one in members.items()
            if one.gate >= 0 and one.stage is Stage.PENDING and not self._writes.unseen(pod)
        ]
        stale = {pod: one for pod, one in members.items() if one.stale and one.stage is Stage.PENDING}
        if not stale:
            self.forget(key)
            return await all_of(changes)
        now = self._clock()
        # A bind writes the condition anew: only what stays is worth a write.
        left = self._stale_since.setdefault(key, now) + _STALE_SECONDS - now
        if left > 0:
            waits.append(left)
        else:
            changes += [self._remove_condition(pod, one) for pod, one in stale.items() if not self._writes.unseen(pod)]
        return await all_of(changes)

    async def _remove_condition(self, pod: str, member: Member) -> None:
        """The API server leaves SchedulingGated standing when the last gate is gone; it is no longer true."""
        change = {
            "metadata": {"uid": member.uid},
            "status": {"conditions": [{"$patch": "delete", "type": "PodScheduled"}]},
        }
        namespace, name = split_key(pod)
        await self._writes.send(
            pod,
            Sent.CHANGE,
            lambda: strategic_patch(
                self._api,
                PODS,
                namespace=namespace,
                name=name,
                patch=change,
                subresource="status",
                field_manager=FIELD_MANAGER,
            ),
            over=(404, 409),
        )
