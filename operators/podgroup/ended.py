"""Groups that are over are deleted when their user said after how long: `spec.ttlSecondsAfterFinished`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from kbatch.api import conditions
from kbatch.api.objects import PodGroup, timestamp_us
from kbatch.kube.client import Api
from kbatch.kube.errors import ApiError
from kbatch.kube.kinds import PODGROUPS
from kbatch.kube.writes import delete
from kbatch.times import SECOND
from operators.podgroup.reconcile import Observed, count

SKEW_SECONDS: Final = 60.0
"""For so long, or its whole time if that is shorter, this process has seen a group ended before it deletes it."""


class Ended:
    """Deletes groups that ended long enough ago; remembers since when it has seen them so.

    When a group ended stands in its conditions, by the clock of whoever wrote it. That clock, or this one, may be wrong
    by hours: so besides, a group was seen ended here for a time, and an end in the future counts as of now.
    """

    def __init__(
        self, api: Api, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._api = api
        self._clock = clock
        self._wall = wall
        self._seen: dict[str, tuple[str, float]] = {}

    def __len__(self) -> int:
        """Groups of which anything is remembered."""
        return len(self._seen)

    def forget(self, key: str) -> None:
        """The group is gone."""
        self._seen.pop(key, None)

    async def remove(self, key: str, group: PodGroup, observed: Observed, waits: list[float]) -> bool:
        """Delete a group whose phase says that it is over, if its time has come and nothing of it is left that runs;
        whether it was. `waits`: seconds after which to look again.

        Raises:
            KubeError: it could not be deleted; because it has changed meanwhile, say.
        """
        after, ended = group.spec.ttl_seconds_after_finished, _ended_at(group)
        if after is None or ended is None or observed.ongoing or count(observed.members).alive:
            self.forget(key)
            return False
        now = self._clock()
        mark = f"{group.metadata.uid} {ended}"
        seen = self._seen.get(key, ("", now))
        since = seen[1] if seen[0] == mark else now
        self._seen[key] = mark, since
        passed = max(0.0, self._wall() - ended / SECOND)
        left = max(after - max(passed, now - since), min(after, SKEW_SECONDS) - (now - since))
        if left > 0:
            waits.append(left)
            return False
        meta = group.metadata
        try:
            await delete(
                self._api, PODGROUPS, namespace=meta.namespace, name=meta.name, uid=meta.uid,
                version=meta.resource_version, propagation="Background",
            )  # fmt: skip
        except ApiError as error:
            if error.status != 404:
                raise
        self.forget(key)
        return True


def _ended_at(group: PodGroup) -> int | None:
    """When the API server was told that it is over, in microseconds since the epoch; None: it was not, or no more."""
    for type_ in (conditions.COMPLETED, conditions.FAILED):
        condition = conditions.find(group.status.conditions, type_)
        if condition is not None and condition.status == conditions.TRUE:
            return timestamp_us(condition.last_transition_time)
    return None
