"""For how long a group's status may be left as it stands, because more of it is about to change.

Each write costs the API server as much as two or three binds, so a step of a group's life is written once, with all
the numbers that change with it. At once is written what others wait for, or what would be lost: a phase in which pods
are made or released (whoever watches the group sees the phase before the pods), the objects that were made, the nodes
on which pods failed, that the group is over (a Job with a ttlSecondsAfterFinished of 0 goes at once, and its pods with
it: of what is not there any more nobody can tell how it ended).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final

from kbatch.api.objects import PodGroup
from kbatch.model.phase import ADMITTED, OVER, STARTED, Phase
from operators.podgroup.reconcile import Observed, OwnStatus, count, minimum, standing

FLOOD: Final = 200
"""Where the status of more groups than this is to be written, they are small ones that start, most likely."""

CROWD: Final = 50
"""Where the status of more groups than this is to be written, numbers alone wait for those of which more is to be said:
nobody acts on them, and each such write takes the API server from those that wait for a node."""


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds.

    Attributes:
        settle: for any other phase or condition: a gang that is in queue and running at once is written once.
        starting: until a group runs that has its nodes, while its pods start: in most cases they do so meanwhile.
        crowd: the same for a group of one pod while many groups start.
        binding: for a gang in the middle of being bound: it will be whole, or its scheduler says why not.
        doubtful: for one that looks as if only a part of it could be placed, until the scheduler has withdrawn what it
            said before.
        waiting: for numbers alone of a group that does not run; its pods are being made.
        waiting_crowd: the same while the statuses of many groups are to be written: most of them run before that.
        started: for numbers alone while its pods start one by one.
        counting: for any other change of numbers alone.
        counting_crowd: the same while the numbers of many groups change.
    """

    settle: float = 1.0
    starting: float = 2.0
    crowd: float = 8.0
    binding: float = 10.0
    doubtful: float = 3.0
    waiting: float = 10.0
    waiting_crowd: float = 30.0
    started: float = 30.0
    counting: float = 3.0
    counting_crowd: float = 10.0


NONE: Final = Delays(*[0.0] * len(fields(Delays)))
"""Everything is written as soon as it is seen."""


class Patience:
    """Remembers since when the groups' statuses have been other than they should be."""

    def __init__(self, delays: Delays = NONE, clock: Callable[[], float] = time.monotonic) -> None:
        self._delays = delays
        self._clock = clock
        self._differs: dict[str, tuple[str, float]] = {}
        """By group: the phase that it should say, and since when."""
        self._heard: dict[str, float] = {}
        """By group that is to be looked at: when the last of its pods was heard of."""

    def __len__(self) -> int:
        """Groups whose status differs, or may."""
        return len(self._differs.keys() | self._heard.keys())

    def heard(self, key: str) -> None:
        """A pod of the group changed, and it will be looked at: what differs then has differed since now, at least."""
        self._heard[key] = self._clock()

    def forget(self, key: str) -> None:
        """The status is as it should be, or the group is gone."""
        self._differs.pop(key, None)
        self._heard.pop(key, None)

    def left(self, key: str, group: PodGroup, observed: Observed, wanted: OwnStatus, *, makes_pods: bool) -> float:
        """For how many seconds the status may still be left; not more than 0: write it.

        `makes_pods`: its phase makes or releases pods.
        """
        now = self._clock()
        heard = self._heard.pop(key, now)
        phase, since = self._differs.get(key, ("", heard))
        if phase != wanted.phase:  # another step: its numbers are gathered anew
            since = heard
        self._differs[key] = wanted.phase, since
        return self._delay(group, observed, wanted, makes_pods=makes_pods) - (now - since)

    def _delay(self, group: PodGroup, observed: Observed, wanted: OwnStatus, *, makes_pods: bool) -> float:
        delays, before, counts = self._delays, standing(group.status), count(observed.members)
        if (wanted.objects, wanted.node_failures) != (before.objects, before.node_failures):
            return 0.0
        if wanted.finished != before.finished and any(one.lost for one in observed.members):
            return 0.0  # a pod that is to go waits for it
        if wanted.phase in OVER and wanted.phase != before.phase:
            return 0.0  # its pods, and the Job that made them, may go at once
        if wanted.phase == Phase.UNKNOWN and before.phase not in STARTED:
            return delays.doubtful
        if makes_pods and (wanted.phase in ADMITTED) != (before.phase in ADMITTED):
            return 0.0
        if wanted.phase == before.phase and wanted.conditions == before.conditions:
            crowded = len(self._differs) > CROWD
            if wanted.phase in {Phase.PENDING, Phase.IN_QUEUE}:
                return delays.waiting_crowd if crowded else delays.waiting
            if counts.bound:
                return delays.started
            return delays.counting_crowd if crowded else delays.counting
        if wanted.phase == Phase.IN_QUEUE and counts.placed:
            return delays.binding
        if wanted.phase == Phase.RUNNING and counts.bound:
            small = len(self._differs) > FLOOD and minimum(group) == 1
            return delays.crowd if small else delays.starting
        return delays.settle
