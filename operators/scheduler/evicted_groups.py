"""Writes into Queues when groups of theirs were evicted as wholes: what a successor counts `evictionsPerHour` by."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kbatch.api.queue import MOST_EVICTIONS
from kbatch.kube.client import Api
from kbatch.kube.errors import ApiError, KubeError
from kbatch.kube.kinds import QUEUES
from kbatch.kube.writes import apply_status
from kbatch.times import HOUR, rfc3339_us
from operators.scheduler import FIELD_MANAGER

_log = logging.getLogger(__name__)

MANAGER: Final = f"{FIELD_MANAGER}-evictions"
"""A field manager of its own: the rest of the status is written by others, and at other times."""


class EvictedGroups:
    """Plans that are carried out at one time may write of one queue in any order: what any of them says stands.

    Args:
        api: for writes.
        uid: of the Queue of a name, empty where there is none. One made again under its name has evicted nobody.
    """

    def __init__(self, api: Api, uid: Callable[[str], str] = lambda _: "") -> None:
        self._api = api
        self._uid = uid
        self._said: dict[str, tuple[str, list[int]]] = {}
        """By queue its uid, and the instants."""
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def write(self, evicted: Mapping[str, Iterable[int]]) -> bool:
        """Write by queue when groups were evicted; whether nothing more needs to be written."""
        return all([await self._one(name, instants) for name, instants in evicted.items()])

    async def _one(self, name: str, instants: Iterable[int]) -> bool:
        async with self._turns[name]:
            new, uid = Counter(instants), self._uid(name)
            of, before = self._said.get(name, (uid, []))
            both = sorted((Counter(before if of == uid else ()) | new).elements())
            now = max(new)  # the clock may have been put back since the others
            said = [instant for instant in both if abs(instant - now) < HOUR][-MOST_EVICTIONS:]
            status = {"evicted": [rfc3339_us(instant) for instant in said]}
            try:
                await apply_status(
                    self._api, QUEUES, {"metadata": {"name": name}, "status": status}, MANAGER, force=True
                )
            except KubeError as error:
                if isinstance(error, ApiError) and error.status == 404:
                    self._said.pop(name, None)
                    return True  # there is nobody any more who limits it
                if isinstance(error, ApiError) and error.lacks(".status.evicted"):
                    _log.warning(
                        "Queue %s: the CRD is of an older release and has no status.evicted: what evictionsPerHour "
                        "counts is forgotten with this process",
                        name,
                    )
                    return True
                _log.warning("Queue %s: %s", name, error)
                return False
            self._said[name] = uid, said
            return True
