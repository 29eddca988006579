"""Groups on which the engine failed: said in the log with the traceback, and in an Event of the group."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from kbatch.engine import GroupError
from kbatch.kube.events import EventRecorder, Regarding
from kbatch.kube.kinds import PODGROUPS
from operators.scheduler.cache import Cache

_log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 60.0
"""What was said of a group is not said again sooner than this."""
_MOST: Final = 10_000


class FailingGroups:
    """Says which groups failed, and of what.

    Args:
        cache: knows the groups' objects.
        recorder: writes the Events.
        clock: monotonic, in seconds.
    """

    def __init__(self, cache: Cache, recorder: EventRecorder, clock: Callable[[], float] = time.monotonic) -> None:
        self._cache = cache
        self._recorder = recorder
        self._clock = clock
        self._said: dict[tuple[str, str], float] = {}

    def note(self, error: GroupError) -> None:
        """Say it, unless it was said a moment ago."""
        now = self._clock()
        if len(self._said) > _MOST:
            self._said = {key: at for key, at in self._said.items() if now - at < AGAIN_SECONDS}
        last = self._said.get((error.job, error.text))
        if last is not None and now - last < AGAIN_SECONDS:
            return
        self._said[error.job, error.text] = now
        _log.error(
            "the engine failed on group %s in %s: %s\n%s", error.group, error.phase, error.text, error.trace.rstrip()
        )
        group = self._cache.groups.get(error.job)
        if group is not None:
            meta = group.metadata
            regarding = Regarding(PODGROUPS.api_version, PODGROUPS.name, meta.namespace, meta.name, meta.uid)
            note = f"the scheduler failed on this group in {error.phase}: {error.text}"
            self._recorder.warning(regarding, "EngineError", "Scheduling", note)
