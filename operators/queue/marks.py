"""Marks the namespaces that have a ResourceQuota of what pods take: the API server asks about pods in these alone.

The webhook guards what PodGroups in queue were promised of a quota. Where there is none it has nothing to say, and the
way to it and back would be most of what a pod's creation costs. The webhook configuration selects namespaces by this
label; until a new quota's namespace has it, pods pass, and a group whose promise was used up waits anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from kbatch.api.names import QUOTA_LABEL
from kbatch.api.objects import Namespace, ResourceQuota
from kbatch.kube.client import Api
from kbatch.kube.errors import ApiError, KubeError
from kbatch.kube.informer import Batch
from kbatch.kube.kinds import NAMESPACES
from kbatch.kube.pauses import Pauses
from kbatch.kube.writes import merge_patch
from kbatch.metrics import ReconcileMetrics
from kbatch.model.events import Delete, Unreadable, Upsert
from kbatch.model.quota import concerns_pods
from kbatch.process.workqueue import WorkQueue
from operators.queue import FIELD_MANAGER, RETRY_LONGEST, RETRY_SECONDS

_log = logging.getLogger(__name__)

MARKED: Final = "true"
GAP_SECONDS: Final = 0.2


class QuotaMarks:
    """Keeps the label.

    Args:
        api: refuses writes while this process does not lead.
        work: metrics.
        within: whether a namespace is looked after; others stay as they are.
        gap: seconds between two writes to a namespace, should somebody else write the opposite each time.
        retry: seconds after which a write that failed is tried again; longer with each failure in a row.
    """

    def __init__(
        self,
        api: Api,
        work: ReconcileMetrics,
        *,
        within: Callable[[str], bool] = lambda _: True,
        gap: float = GAP_SECONDS,
        retry: float = RETRY_SECONDS,
    ) -> None:
        self._api = api
        self._work = work
        self._quotas: dict[str, set[str]] = {}  # by namespace: the names of its quotas that concern pods
        self._standing: dict[str, str | None] = {}  # by namespace: its label
        self._queue = WorkQueue(gap=gap)
        self._pauses = Pauses(first=retry, longest=RETRY_LONGEST)
        self._within = within

    def receive(self, batch: Batch) -> None:
        """Take in what an informer saw of namespaces and quotas; other kinds are passed over."""
        for event in batch.events:
            match event:
                case Upsert(obj=Namespace() as namespace) if self._within(namespace.metadata.name):
                    name = namespace.metadata.name
                    self._standing[name] = (namespace.metadata.labels or {}).get(QUOTA_LABEL)
                    self._look(name)
                case Upsert(obj=ResourceQuota() as quota) if concerns_pods(quota):
                    self._has(quota.metadata.namespace, quota.metadata.name)
                case Upsert(obj=ResourceQuota() as quota):
                    self._lacks(quota.metadata.namespace, quota.metadata.name)
                case Unreadable() if event.kind is ResourceQuota:  # it is there, whatever is in it
                    self._has(event.namespace, event.name)
                case Delete() if event.kind is ResourceQuota:
                    self._lacks(event.namespace, event.name)
                case Delete() if event.kind is Namespace:
                    self._standing.pop(event.name, None)
                    self._pauses.succeeded(event.name)
                case _:
                    pass

    async def run(self) -> None:
        """Write for ever what differs; started once all namespaces and quotas are known."""
        while True:
            name = await self._queue.get()
            if self._pauses.paused(name) or not await self.look_at(name):  # a quota tells of each pod: no reason to try
                self._queue.done(name, self._pauses.left(name))
            else:
                self._queue.done(name)

    async def look_at(self, name: str) -> bool:
        """Bring one namespace in line; whether there is nothing left to do for it."""
        wanted = self._wanted(name)
        if name not in self._standing or self._standing[name] == wanted:
            self._pauses.succeeded(name)
            return True
        try:
            await merge_patch(
                self._api, NAMESPACES, name=name, patch={"metadata": {"labels": {QUOTA_LABEL: wanted}}},
                field_manager=FIELD_MANAGER,
            )  # fmt: skip
        except KubeError as error:
            gone = isinstance(error, ApiError) and error.status == 404
            self._work.writes.labels("Namespace", "gone" if gone else "failed").inc()
            if gone:
                self._pauses.succeeded(name)
                return True
            self._pauses.failed(name)
            if times := self._pauses.to_log(name):
                _log.warning("the label %s of namespace %s, failure %d in a row: %s", QUOTA_LABEL, name, times, error)
            return False
        self._pauses.succeeded(name)
        self._work.writes.labels("Namespace", "ok").inc()
        return True

    def _has(self, namespace: str, quota: str) -> None:
        self._quotas.setdefault(namespace, set()).add(quota)
        self._look(namespace)

    def _lacks(self, namespace: str, quota: str) -> None:
        left = self._quotas.get(namespace, set())
        left.discard(quota)
        if not left:
            self._quotas.pop(namespace, None)
        self._look(namespace)

    def _wanted(self, name: str) -> str | None:
        return MARKED if name in self._quotas else None

    def _look(self, name: str) -> None:
        if name in self._standing and self._standing[name] != self._wanted(name):
            self._queue.add(name)
