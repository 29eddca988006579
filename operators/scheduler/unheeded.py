"""Groups that ask for what the configuration has no plugin for are told so by an Event: nothing else would say it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kbatch.api.objects import PodGroup
from kbatch.engine import Policy, Report
from kbatch.engine.plugins.topology import Topology
from kbatch.engine.plugins.topology.wishes import wishes_of
from kbatch.kube.events import EventRecorder, Regarding
from kbatch.kube.kinds import PODGROUPS
from operators.scheduler.cache import Cache

GROUPS_AT_ONCE: Final = 1000
"""Looked at in one piece."""

_NOTE: Final = (
    "the group asks for topology{required}, and nothing acts on it: the plugin topology is not in the scheduler's "
    "configuration, so its pods may stand anywhere"
)


class UnheededTopology:
    """Tells groups with `topology` while the plugin of that name is not configured: once for each group and process.

    Args:
        cache: knows the groups' objects.
        recorder: writes the Events.
        policy: the policy in force.
    """

    def __init__(self, cache: Cache, recorder: EventRecorder, policy: Callable[[], Policy]) -> None:
        self._cache = cache
        self._recorder = recorder
        self._policy = policy
        self._seen: dict[str, PodGroup] = {}
        """Groups as they were looked at last: an unchanged one asks for nothing new."""
        self._told: dict[str, str] = {}
        """By key the uids of those that were told."""

    def report(self, report: Report) -> Iterator[None]:
        """Look at the groups of a cycle; never waits, but goes over them in pieces."""
        if any(part.plugin.name == Topology.name for part in self._policy().plugins):
            self._seen.clear()
            self._told.clear()
            return
        for key in self._seen.keys() - report.verdicts.keys() if report.whole else report.gone:
            self._seen.pop(key, None)
            self._told.pop(key, None)
        for number, key in enumerate(report.verdicts, start=1):
            if not number % GROUPS_AT_ONCE:
                yield
            group = self._cache.groups.get(key)
            if group is not None and self._seen.get(key) is not group:
                self._seen[key] = group
                self._look(key, group)

    def _look(self, key: str, group: PodGroup) -> None:
        wishes = wishes_of(group)
        meta = group.metadata
        if not wishes or self._told.get(key) == meta.uid:
            return
        required = " (Required)" if any(wish.required for _, wish in wishes) else ""
        regarding = Regarding(PODGROUPS.api_version, PODGROUPS.name, meta.namespace, meta.name, meta.uid)
        note = _NOTE.format(required=required)
        if self._recorder.warning(regarding, "TopologyNotConfigured", "Scheduling", note):
            self._told[key] = meta.uid
        else:
            del self._seen[key]  # no room for the Event: the next verdict tries again
