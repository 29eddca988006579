"""What is to be written of groups, in which order, and how much of it at a time.

The newest of a group instead of each, and with a budget of its own: while binds wait, few status writes are on the
wire, and that all is well is written later. Before all else goes what makes pods: that a group came in queue whose Job
is resumed then, or whose members are made. Why a group waits may change in each cycle: that goes by its `Pace`.

Where the server has another version of a group than this process, nothing is written of it until the watch tells of
that, or for a second: then it is to be read.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from kbatch.api.objects import PodGroup
from operators.scheduler.deferred import DeferredStatusQueue, Rank
from operators.scheduler.pace import Pace
from operators.scheduler.status_diff import Difference, Wanted

AT_ONCE: Final = 16
AT_ONCE_WHILE_BINDING: Final = 4
AT_ONCE_IN_A_FLOOD: Final = 2
FLOOD: Final = 200
"""Where more groups than this wait to be written, thousands of small ones most likely, binds go first all the more:
each such write takes the API server as long as a bind, and then there are as many of them."""

MESSAGES_A_SECOND: Final = 20

AGAIN_SECONDS: Final = 1.0
"""A group of which the server has another version than this process is read, if the watch tells of it no sooner."""


class Due(NamedTuple):
    """A group's status that is to be written now, and since when it is true."""

    key: str
    wanted: Wanted
    since: float


class StatusQueue:
    """Holds one status of each group at most.

    Args:
        group: a group as it is known now, by its key.
        pace: how often groups may be rewritten.
        binding: whether binds are waiting.
    """

    def __init__(
        self,
        group: Callable[[str], PodGroup | None],
        pace: Pace,
        *,
        binding: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group = group
        self._pace = pace
        self._binding = binding
        self._clock = clock
        self._first: OrderedDict[str, Wanted] = OrderedDict()
        """Of groups whose pods are made when they are known to be in queue."""
        self._urgent: OrderedDict[str, Wanted] = OrderedDict()
        self._deferred: DeferredStatusQueue[Wanted] = DeferredStatusQueue()
        """Of groups whose binds are confirmed."""
        self._patient: OrderedDict[str, tuple[Wanted, float]] = OrderedDict()
        """With the time from which on it may be written."""
        self._patient_next = 0.0
        """Nothing of these is due before."""
        self._next_message = 0.0
        self._writing: set[str] = set()
        self._outdated: dict[str, tuple[str, float]] = {}
        """By group: the version that the server has left behind, and when it is read if the watch says nothing."""

    def __len__(self) -> int:
        """Groups whose status is to be written or is being written."""
        return sum(len(some) for some in (self._first, self._urgent, self._deferred, self._patient, self._writing))

    def __contains__(self, key: str) -> bool:
        """Whether a status of the group waits to be written."""
        return any(key in some for some in (self._first, self._urgent, self._deferred, self._patient))

    @property
    def changes(self) -> int:
        """The same as the length, without what is patient."""
        return len(self) - len(self._patient)

    @property
    def outdated(self) -> bool:
        """Whether newer versions of groups are waited for."""
        return bool(self._outdated)

    # --- what is to be written ----------------------------------------------------------------------------------------

    def discard(self, key: str) -> None:
        """What was to be written of a group counts no more."""
        self._first.pop(key, None)
        self._urgent.pop(key, None)
        self._patient.pop(key, None)
        self._deferred.discard(key)

    def put_first(self, key: str, wanted: Wanted) -> None:
        """Pods of the group are made when this is written."""
        self._first[key] = wanted

    def put(self, key: str, wanted: Wanted, apart: Difference, *, moved: bool = False) -> None:
        """The group should say this, which is so far from what it says. `moved`: when it is to start is news, too, and
        does not rest with the other words.
        """
        self._pace.saw(wanted.uid, wanted.said)
        if apart is Difference.NOTHING:
            return
        due = self._pace.due(wanted.uid, apart)
        if apart >= Difference.REASON and due <= self._clock():
            self._urgent[key] = wanted
        else:
            self.put_later(key, wanted, min(due, self._pace.due(wanted.uid, Difference.START)) if moved else due)

    def put_later(self, key: str, wanted: Wanted, due: float) -> None:
        """The group should say this from a time on."""
        self._patient[key] = wanted, due
        self._patient_next = min(due, self._patient_next)

    def put_urgent(self, key: str, wanted: Wanted) -> None:
        """The group should say this at once."""
        self._urgent[key] = wanted

    def put_deferred(self, key: str, wanted: Wanted, since: float, rank: Rank) -> None:
        """The group's binds are confirmed, which is so since a time."""
        self._deferred.put(key, wanted, since, rank)

    def put_again(self, key: str, wanted: Wanted, *, first: bool) -> None:
        """It was not written: unless there is something newer by now, it still is to be. `first`: it makes pods."""
        if first:
            self._first.setdefault(key, wanted)
        elif key not in self._first and key not in self._deferred and key not in self._patient:
            self._urgent.setdefault(key, wanted)

    def hurry(self) -> None:
        """What is deferred is written now."""
        self._urgent |= self._deferred.take_all()

    # --- what is written ----------------------------------------------------------------------------------------------

    def at_once(self) -> int:
        """How many writes may be on the wire now."""
        if not self._binding() or self._deferred.late(self._clock()):
            return AT_ONCE
        if self._first or len(self._urgent) + len(self._deferred) <= FLOOD:
            return AT_ONCE_WHILE_BINDING
        return AT_ONCE_IN_A_FLOOD

    def take(self) -> Due | None:
        """What to write next; None where nothing is due. It is being written until `done`."""
        found = self._choose()
        if found is not None:
            self._writing.add(found.key)
        return found

    def done(self, key: str) -> None:
        """It was written, or that failed."""
        self._writing.discard(key)

    def _choose(self) -> Due | None:
        now = self._clock()
        busy = self._writing | self._waiting_for_news(now) if self._outdated else self._writing
        found = _next(self._first, busy, now)
        if found is None and (gang := self._deferred.due_gang(now, busy)) is not None:
            found = Due(*gang)
        found = found or _next(self._urgent, busy, now)
        if found is None and (good := self._deferred.due(now, hold=self._binding(), busy=busy)) is not None:
            found = Due(*good)
        return found or self._choose_patient(busy, now)

    def _choose_patient(self, busy: set[str], now: float) -> Due | None:
        if now < max(self._next_message, self._patient_next):
            return None
        for key, (wanted, due) in self._patient.items():
            if due <= now and key not in busy:
                del self._patient[key]
                self._next_message = now + 1 / MESSAGES_A_SECOND
                return Due(key, wanted, now)
        self._patient_next = min((due for _, due in self._patient.values()), default=float("inf"))
        return None

    # --- versions -----------------------------------------------------------------------------------------------------

    def conflict(self, key: str, version: str) -> None:
        """The server has left behind the version that a status was made from."""
        self._outdated[key] = version, self._clock() + AGAIN_SECONDS

    def must_be_read(self, key: str) -> bool:
        """Whether the watch has not told of a version that the server has."""
        return key in self._outdated

    def was_read(self, key: str) -> None:
        """It is known now."""
        self._outdated.pop(key, None)

    def _waiting_for_news(self, now: float) -> set[str]:
        """The groups of which nothing is written now, because a newer version of them is to be known in a moment."""
        found: set[str] = set()
        for key, (version, until) in list(self._outdated.items()):
            group = self._group(key)
            if group is None or group.metadata.resource_version != version:
                del self._outdated[key]
            elif now < until:
                found.add(key)
        return found


def _next(some: OrderedDict[str, Wanted], busy: set[str], now: float) -> Due | None:
    for key, wanted in some.items():
        if key not in busy:
            del some[key]
            return Due(key, wanted, now)
    return None
