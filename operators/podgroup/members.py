"""Member pods: made from the roles' templates when their group is in queue, and let go of kbatch's scheduling gate."""

from __future__ import annotations

import time
from collections.abc import Callable

from kbatch.api.objects import PodGroup
from kbatch.kube.client import Api
from kbatch.model.phase import ADMITTED, Phase
from operators.podgroup.event_notes import Teller
from operators.podgroup.finalizers import let_end
from operators.podgroup.gates import Gates
from operators.podgroup.member_creation import Making
from operators.podgroup.member_index import MemberIndex
from operators.podgroup.podwrites import UNSEEN_SECONDS, PodWrites
from operators.podgroup.reconcile import Stalled


class Members:
    """Makes, ungates and deletes member pods.

    Args:
        backoff: seconds until a member that failed is made again; doubles with each of the group.
        lift_gates: whether gates are this process's business.
    """

    def __init__(
        self,
        api: Api,
        index: MemberIndex,
        teller: Teller,
        *,
        backoff: float = 10.0,
        lift_gates: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._index = index
        self._writes = PodWrites(clock)
        self._lift_gates = lift_gates
        self._gates = Gates(api, self._writes, clock)
        self._making = Making(api, index, teller, self._writes, backoff=backoff, clock=clock)

    def __len__(self) -> int:
        """Groups and pods of which anything is remembered."""
        return len(self._writes) + len(self._gates) + len(self._making)

    def heard(self, pod: str, *, gone: bool) -> bool:
        """The watch told of a pod: what was sent for it has had its effect; whether anything was."""
        return self._writes.heard(pod, gone=gone)

    def forget(self, key: str) -> None:
        """The group is gone."""
        self._gates.forget(key)
        self._making.forget(key)

    def stalled(self, key: str, group: PodGroup) -> tuple[bool, Stalled | None]:
        """Whether making members was tried since this process started, and what stood in the way, if anything."""
        return self._making.stalled(key, group)

    async def let_end(self, key: str, group: PodGroup | None, *, keeps: bool = True) -> int:
        """Take the finalizers off pods whose end is kept, or whose group is gone (None); how many writes. `keeps`:
        whether the API server can keep how they ended.

        Raises:
            KubeError: a write failed.
        """
        written = await let_end(self._api, self._writes, group, self._index.named_members(key), keeps=keeps)
        # Of the latter the user took the annotation away: nobody counts them any more.
        for uncounted in (self._index.former(key), self._index.strays(key)):
            if uncounted:
                written += await let_end(self._api, self._writes, None, uncounted, keeps=keeps)
        return written

    async def keep(self, key: str, group: PodGroup, phase: Phase) -> tuple[int, float | None]:
        """Bring the group's pods in line; how many writes that took, and in how many seconds to look again.

        Raises:
            KubeError: a write failed; what it was for is asked for again.
        """
        members = self._index.named_members(key)
        written, waits = 0, list[float]()
        if phase in ADMITTED and self._lift_gates:
            written += await self._gates.lift(key, members, waits)
        if any(role.template is not None for role in group.spec.sub_groups or ()):
            written += await self._making.keep(key, group, phase, members, waits)
        if written:
            waits.append(UNSEEN_SECONDS)
        return written, min(waits, default=None)
