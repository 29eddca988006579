"""Who is left out of scheduling is told so: an Event on each object that cannot be read, however many there are.

Other Events may be dropped when too many wait; whoever is left out would never learn why. So what found no room is told
later, in its order, and some of the room is left to others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from kbatch.api.objects import AnyObject
from kbatch.kube.events import EventRecorder, Regarding
from kbatch.kube.kinds import AnyKind, key_of
from kbatch.model.events import Unreadable

_SHARE: Final = 0.75
"""Of the Events that may wait: a crowd of unreadable objects must not keep evictions from being told."""
_PAUSE_SECONDS: Final = 0.1

_Key = tuple[type[AnyObject], str]


class LeftOut:
    """Tells of unreadable objects while its `run` is awaited; what is noted at other times is told then.

    Args:
        recorder: where the Events go.
        kinds: of the objects.
        current: the object as it is left out now, by type and key; None where it can be read, or is gone.
    """

    def __init__(
        self, recorder: EventRecorder, kinds: Iterable[AnyKind], current: Callable[[_Key], Unreadable | None]
    ) -> None:
        self._recorder = recorder
        self._kinds = {kind.type: kind for kind in kinds}
        self._current = current
        self._untold: dict[_Key, None] = {}
        self._some = asyncio.Event()

    def note(self, one: Unreadable) -> None:
        """Tell of this object soon."""
        self._untold[one.kind, key_of(one.namespace, one.name)] = None
        self._some.set()

    async def run(self) -> None:
        """Tell, for ever."""
        while True:
            await self._some.wait()
            while self._untold and self._recorder.has_room(_SHARE):
                key = next(iter(self._untold))
                del self._untold[key]
                one = self._current(key)
                if one is not None:
                    self._tell(one)
            if self._untold:
                await asyncio.sleep(_PAUSE_SECONDS)  # the recorder writes meanwhile
            else:
                self._some.clear()

    def _tell(self, one: Unreadable) -> None:
        kind = self._kinds[one.kind]
        closed = f"; node {one.node_name} gets no more pods until it can be read" if one.node_name else ""
        regarding = Regarding(kind.api_version, kind.name, one.namespace, one.name, one.uid)
        self._recorder.warning(
            regarding, "Unreadable", "Reading", f"left out of scheduling: {one.why}{closed}", share=_SHARE
        )
