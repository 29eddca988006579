"""Has the volumes of pods made before the pods are bound.

A claim that waits for its first consumer gets the node of its pod written into its annotation, as Kubernetes' own
scheduler does it; whoever makes volumes reads it there. All pods of one transaction wait for all of its claims: a
volume that cannot be made then leaves no gang bound in part. Why it is done like this: docs/decisions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from kbatch.api.objects import Node, PersistentVolume, PersistentVolumeClaim, StorageClass
from kbatch.engine import Bind
from kbatch.kube.client import Api
from kbatch.kube.decoding import decoder
from kbatch.kube.errors import ApiError, NoAnswerError
from kbatch.kube.kinds import PERSISTENTVOLUMECLAIMS, key_of
from kbatch.kube.writes import merge_patch
from kbatch.model.events import Event, Upsert
from kbatch.model.selectors import node_selector_matches
from kbatch.model.volumes import SELECTED_NODE, claims_of, made_on_demand, on_many_nodes, selected_node, usable
from operators.scheduler.cache import Cache

VOLUME_SECONDS: Final = 600.0
"""How long making the volumes of a gang may take; Kubernetes' own scheduler waits as long."""
LOOK_SECONDS: Final = 1.0
"""The longest between two looks at what is waited for: a pod that is gone wakes nobody."""
PATCHES_AT_ONCE: Final = 16


class VolumeError(Exception):
    """The volumes of a pod are not there and are not coming.

    Attributes:
        one: the bind that fails with this.
        gone: the pod itself is gone, so that there is nobody to tell.
    """

    def __init__(self, one: Bind, why: str, *, gone: bool = False) -> None:
        super().__init__(why)
        self.one = one
        self.gone = gone


@dataclass(slots=True)
class _Wanted:
    """A claim that some pods of a transaction wait for."""

    key: str
    users: list[Bind]
    asked: bool = False
    """Its node was seen in the annotation: where it is missing afterwards, somebody took it away."""
    floor: int = 0
    """Versions below this are older than what this process knows to have been written."""

    @property
    def first(self) -> Bind:
        """The pod whose node the volume is made for."""
        return self.users[0]


@dataclass(slots=True)
class _Waiter:
    """A transaction that waits, and the claims whose news wake it."""

    claims: dict[str, _Wanted]
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class Volumes:
    """Writes the node into claims that wait for it, and waits until they are bound.

    Args:
        api: refuses writes while this process does not lead.
        seconds: how long the volumes of a transaction may take.
    """

    def __init__(self, api: Api, cache: Cache, *, field_manager: str, seconds: float = VOLUME_SECONDS) -> None:
        self._api = api
        self._cache = cache
        self._field_manager = field_manager
        self._seconds = seconds
        self._patches = asyncio.Semaphore(PATCHES_AT_ONCE)
        self._waiting: dict[str, list[_Waiter]] = {}
        cache.listeners.append(self._heard)

    def missing(self, binds: Sequence[Bind]) -> bool:
        """Whether any of the pods has a claim that is not bound yet."""
        return bool(self._cache.model.objects.get(PersistentVolumeClaim)) and any(
            not _is_bound(claim) for one in binds for _, claim in self._claims(one)
        )

    async def provide(self, binds: Sequence[Bind]) -> None:
        """Return when every claim of the pods is bound to a volume that can be used from its pod's node.

        Raises:
            VolumeError: that will not be, or not in time.
            NotLeadingError: this process does not lead any more.
        """
        claims: dict[str, _Wanted] = {}
        for one in binds:
            for key, _ in self._claims(one):
                claims.setdefault(key, _Wanted(key, [])).users.append(one)
        try:
            async with asyncio.timeout(self._seconds):
                with self._listening(_Waiter(claims)) as waiter:
                    await self._provide(binds, waiter)
        except TimeoutError:
            late = ", ".join(each.key for each in claims.values() if not self._there(each))
            raise VolumeError(binds[0], f"volumes were not made in time, of claims {late}") from None

    async def _provide(self, binds: Sequence[Bind], waiter: _Waiter) -> None:
        while True:
            waiter.woken.clear()
            for one in binds:
                self._check(one)
            open_ = [each for each in waiter.claims.values() if not self._there(each)]
            if not open_:
                return
            unasked = [each for each in open_ if self._to_ask(each)]
            failures = await asyncio.gather(*(self._ask(each) for each in unasked))
            for failure in failures:
                if failure is not None:
                    raise failure
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await waiter.woken.wait()

    # --- what is known ------------------------------------------------------------------------------------------------

    def _claims(self, one: Bind) -> Iterator[tuple[str, PersistentVolumeClaim | None]]:
        task = self._cache.model.tasks.get(one.pod)
        for key in dict.fromkeys(claims_of(task.cls.volumes)) if task is not None else ():
            yield key, self._claim(key)

    def _claim(self, key: str) -> PersistentVolumeClaim | None:
        found = self._cache.model.objects.get(PersistentVolumeClaim, {}).get(key)
        return found if isinstance(found, PersistentVolumeClaim) else None

    def _check(self, one: Bind) -> None:
        task = self._cache.model.tasks.get(one.pod)
        if task is None or task.uid != one.uid or task.terminating or task.terminal:
            raise VolumeError(one, "the pod is gone", gone=True)

    def _there(self, wanted: _Wanted) -> bool:
        """Whether the claim is bound; raises where its volume cannot be used from where its pods are to go."""
        claim = self._claim(wanted.key)
        if claim is None or not usable(claim):
            raise VolumeError(wanted.first, f"claim {wanted.key} is gone or has lost its volume")
        if not _is_bound(claim) or _version(claim) < wanted.floor:
            return False
        volume = self._cache.model.objects.get(PersistentVolume, {}).get(claim.spec.volume_name)
        if not isinstance(volume, PersistentVolume):
            return False  # the watch of volumes is behind that of claims
        affinity = volume.spec.node_affinity
        if affinity is not None and affinity.required is not None:
            for one in wanted.users:
                node = self._node(one.node)
                labels = (node.metadata.labels or {}) if node is not None else {}
                if not node_selector_matches(affinity.required, labels, one.node):
                    why = f"the volume of claim {wanted.key} cannot be used from node {one.node}"
                    raise VolumeError(one, why)
        return True

    def _node(self, name: str) -> Node | None:
        record = self._cache.model.nodes.get(name)
        return record.node if record is not None else None

    def _to_ask(self, wanted: _Wanted) -> bool:
        """Whether the claim still needs the node of its first pod; raises where it will never get a volume there."""
        claim = self._claim(wanted.key)
        if claim is None or _version(claim) < wanted.floor or claim.spec.volume_name:
            return False
        node = selected_node(claim)
        if node and node != wanted.first.node and not on_many_nodes(claim):
            why = f"the volume of claim {wanted.key} is being made for node {node}, not {wanted.first.node}"
            raise VolumeError(wanted.first, why)
        if node:
            wanted.asked = True
            return False
        if wanted.asked:
            why = f"the volume of claim {wanted.key} could not be made for node {wanted.first.node}"
            raise VolumeError(wanted.first, why)
        storage_class = self._cache.model.objects.get(StorageClass, {}).get(claim.spec.storage_class_name or "")
        if not isinstance(storage_class, StorageClass) or not made_on_demand(claim, storage_class):
            raise VolumeError(wanted.first, f"claim {wanted.key} is not bound, and no volume is made for it on demand")
        return True

    # --- what is written ----------------------------------------------------------------------------------------------

    async def _ask(self, wanted: _Wanted) -> VolumeError | None:
        """Write the node into a claim that is still as it is known; why not, where that cannot be."""
        claim = self._claim(wanted.key)
        if claim is None:
            return None
        meta, node = claim.metadata, wanted.first.node
        patch = {
            "metadata": {
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
                "annotations": {SELECTED_NODE: node},
            }
        }
        try:
            async with self._patches:
                answer = await merge_patch(
                    self._api,
                    PERSISTENTVOLUMECLAIMS,
                    namespace=meta.namespace,
                    name=meta.name,
                    patch=patch,
                    field_manager=self._field_manager,
                )
        except NoAnswerError:
            return None  # written or not, the next look will tell: a second try meets its own first as a conflict
        except ApiError as error:
            if error.status != 409:
                return VolumeError(wanted.first, f"node {node} could not be written into claim {wanted.key}: {error}")
            wanted.floor = _version(claim) + 1  # somebody else was there: the watch will say what it is now
            return None
        wanted.asked = True
        with contextlib.suppress(msgspec.DecodeError):
            wanted.floor = _version(decoder(PersistentVolumeClaim).decode(answer))
        return None

    # --- what is heard ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _listening(self, waiter: _Waiter) -> Iterator[_Waiter]:
        for key in waiter.claims:
            self._waiting.setdefault(key, []).append(waiter)
        try:
            yield waiter
        finally:
            for key in waiter.claims:
                self._waiting[key].remove(waiter)
                if not self._waiting[key]:
                    del self._waiting[key]

    def _heard(self, events: Iterable[Event]) -> None:
        """Wake those who wait for the claims that a batch tells of; of volumes, the claim that they are for."""
        if not self._waiting:
            return
        for event in events:
            key = ""
            if not isinstance(event, Upsert):
                key = key_of(event.namespace, event.name) if event.kind is PersistentVolumeClaim else ""
            elif isinstance(event.obj, PersistentVolumeClaim):
                key = key_of(event.obj.metadata.namespace, event.obj.metadata.name)
            elif isinstance(event.obj, PersistentVolume) and event.obj.spec.claim_ref is not None:
                key = key_of(event.obj.spec.claim_ref.namespace, event.obj.spec.claim_ref.name)
            for waiter in self._waiting.get(key, ()):
                waiter.woken.set()


def _is_bound(claim: PersistentVolumeClaim | None) -> bool:
    return claim is not None and bool(claim.spec.volume_name) and claim.status.phase == "Bound"


def _version(claim: PersistentVolumeClaim) -> int:
    text = claim.metadata.resource_version
    return int(text) if text.isdecimal() else 0
