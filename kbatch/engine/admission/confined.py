"""Groups whose pods may use some of the nodes only. Of the room elsewhere nothing is theirs: who cannot use it must not
come in queue for it, where it would be kept from those who can.

What is compared is necessary for the group to be placed, and no more: what it asks for, beside what groups were
promised that are confined to the very same nodes. Who may go elsewhere takes nothing from it here; nor do groups of its
queue that matter less, where these could be evicted for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from kbatch.engine.placement.feasibility import Feasibility
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.model.nodes import Mask
from kbatch.resources import Resources, add_to

_PART: Final = 20
"""Who is kept from less than this part of the nodes is confined to none: each may be kept from others, for thousands of
sets of nodes, and all of them nearly alike."""


class Place:
    """The nodes that some groups are confined to.

    Attributes:
        count: how many of them may be used now.
        promised: what such groups were promised, by their queue and priority; None of those that hold something, which
            nobody overtakes.
    """

    def __init__(self, session: Session, mask: Mask) -> None:
        self._session = session
        self._preempts = session.policy.has("preempt")
        self._mask = mask & session.usable_rows
        self.count = int(np.count_nonzero(self._mask))
        self.promised: dict[tuple[str, int | None], Resources] = {}
        self._room: Resources = {}

    def room(self, name: str) -> int:
        """What is there of a dimension."""
        found = self._room.get(name)
        if found is None:
            found = self._room[name] = self._session.usable_of(name, self._mask)
        return found

    def kept(self, name: str, queue: str, priority: int, *, own: bool = False) -> int:
        """What of a dimension is kept from a group of this queue and priority: what was promised, but to groups of the
        queue that could be evicted for it; `own`: to those of its queue alone.
        """
        return sum(
            amounts.get(name, 0) for (of, theirs), amounts in self.promised.items()
            if (not own if of != queue else not self._preempts or theirs is None or theirs >= priority)
        )  # fmt: skip

    def left(self, name: str, queue: str, priority: int, *, own: bool = False) -> int:
        """The room less that."""
        return self.room(name) - self.kept(name, queue, priority, own=own)


class Confined:
    """The places of one run of `enqueue`."""

    def __init__(self, session: Session, feasibility: Feasibility) -> None:
        self._session = session
        self._feasibility = feasibility
        self._places: dict[bytes, Place] = {}
        self._keys: dict[int, tuple[Mask, bytes | None]] = {}
        """By the mask's `id`: thousands of groups share one."""
        self._of_group: dict[str, Place | None] = {}
        self._promises: list[tuple[JobState, Mapping[str, int]]] = []
        self._counted = 0

    def promise(self, job: JobState, kept: Mapping[str, int]) -> None:
        """A group is in queue: so much is kept for it. Counted when somebody asks."""
        self._promises.append((job, kept))

    def of(self, job: JobState) -> Place | None:
        """The place of a group, with all that was promised there; None: it is confined to none."""
        found = self._known(job)
        if found is not None:
            self._count()
        return found

    def place(self, key: bytes) -> Place:
        """The place of these rows, as `mask_of` gives them, with all that was promised there."""
        self._count()
        return self._made(key)

    def mask_of(self, job: JobState) -> bytes | None:
        """The rows of nodes that a group is confined to, as bits. None: it may use all of them, or nearly all; or pods
        are lacking of which nothing is known.
        """
        mask = self._feasibility.usable_by(job)
        if mask is None:
            return None
        known = self._keys.get(id(mask))
        if known is None:
            open_ = self._session.nodes.open
            nearly_all = np.count_nonzero(open_ & ~mask) * _PART < np.count_nonzero(open_)
            known = self._keys[id(mask)] = mask, None if nearly_all else np.packbits(mask).tobytes()
        return known[1]

    def _known(self, job: JobState) -> Place | None:
        if job.key in self._of_group:  # asked as it comes in, and again for what it is promised
            return self._of_group[job.key]
        key = self.mask_of(job)
        found = self._of_group[job.key] = None if key is None else self._made(key)
        return found

    def _made(self, key: bytes) -> Place:
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = Place(self._session, self._mask(key))
        return found

    def _mask(self, key: bytes) -> Mask:
        bits = np.unpackbits(np.frombuffer(key, np.uint8), count=len(self._session.nodes.open))
        return bits.astype(np.bool_)

    def _count(self) -> None:
        while self._counted < len(self._promises):
            job, kept = self._promises[self._counted]
            self._counted += 1
            place = self._known(job)
            if place is not None:
                priority = None if job.bound else job.priority
                add_to(place.promised.setdefault((job.queue, priority), {}), dict(kept))
