"""The objects that groups have besides their pods: made before these, and deleted when the group is over.

Which of them exist stands in the group's status, so a new process need not ask. An object is made once: what others
delete or change while the group lives stays so. Only what the group owns is ever deleted, or taken for its own.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kbatch.api.objects import MadeObject, PodGroup
from kbatch.kube.client import Api
from kbatch.kube.errors import ApiError, KubeError
from kbatch.kube.kinds import AnyKind
from kbatch.kube.writes import as_dict, create, delete
from kbatch.model.objects import GroupObject, objects_of
from kbatch.model.phase import ADMITTED, OVER, Phase
from kbatch.model.templates import TemplateError
from kbatch.process.offload import Offload, rendering_budget
from operators.podgroup import FIELD_MANAGER
from operators.podgroup.event_notes import Teller
from operators.podgroup.reconcile import Stalled

_log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 30.0
"""After so long it is tried again to make an object that was refused."""

_REFUSED: Final = frozenset({400, 403, 404, 422})
"""What trying again at once does not mend: the object, the operator's rights, a kind that is not served, a quota."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What became of a group's objects.

    Attributes:
        objects: those that exist.
        ready: all are there that should be, so pods may come.
        tried: whether making them was tried.
        stalled: what stands in the way until the user, or the administrator, changes something.
        error: what kept the rest from being done; it is to be raised once the status says what was.
        again: seconds after which to look again.
    """

    objects: tuple[MadeObject, ...] = ()
    ready: bool = True
    tried: bool = False
    stalled: Stalled | None = None
    error: KubeError | None = None
    again: float | None = None


NONE: Final = Kept()
"""Of a group without objects."""


@dataclass(slots=True)
class _Refusal:
    """An object that was refused, for which generation of the group, and when to try again."""

    uid: str
    generation: int
    stalled: Stalled
    until: float


class _RefusedError(Exception):
    """An object cannot be made; says why."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.stalled = Stalled(reason, message[:1024])


class Objects:
    """Makes and deletes the objects of groups.

    Args:
        kinds: which can be made, by apiVersion and kind; the chart grants just these rights.
    """

    def __init__(
        self,
        api: Api,
        teller: Teller,
        kinds: Mapping[tuple[str, str], AnyKind],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._teller = teller
        self._kinds = kinds
        self._clock = clock
        self._offload = Offload("objects")
        self._refused: dict[str, _Refusal] = {}
        self._complete: dict[str, tuple[str, int, tuple[MadeObject, ...]]] = {}
        """Uid and generation of groups of which nothing is left to be made, and what their status said of it then."""

    def __len__(self) -> int:
        """Groups of which anything is remembered."""
        return len(self._refused.keys() | self._complete.keys())

    def forget(self, key: str) -> None:
        """The group is gone."""
        self._refused.pop(key, None)
        self._complete.pop(key, None)

    async def keep(self, key: str, group: PodGroup, phase: Phase) -> Kept:
        """Bring the objects in line with the group, which has some and is in this phase, or about to be."""
        made = group.status.objects or ()
        if phase in OVER:
            self.forget(key)
            return await self._delete_all(group, made)
        if phase not in ADMITTED:
            return Kept(objects=made)
        if self._complete.get(key) == (group.metadata.uid, group.metadata.generation, made):
            return Kept(objects=made, tried=True)
        known = self._refused.get(key)
        if known is not None and (known.uid, known.generation) == (group.metadata.uid, group.metadata.generation):
            left = known.until - self._clock()
            if left > 0:
                return Kept(objects=made, ready=False, tried=True, stalled=known.stalled, again=left)
        return await self._make_all(key, group, made)

    async def _make_all(self, key: str, group: PodGroup, made: tuple[MadeObject, ...]) -> Kept:
        exist = list(made)
        try:
            wanted = await self._wanted(group)
            for ref in [ref for ref in made if ref not in {one.ref for one in wanted}]:
                await self._delete(group, ref)
                exist.remove(ref)
            for one in wanted:
                if one.ref not in made:
                    await self._make(group, one)
                    exist.append(one.ref)
        except _RefusedError as refused:
            self._note(key, group, refused.stalled)
            return Kept(tuple(exist), ready=False, tried=True, stalled=refused.stalled, again=AGAIN_SECONDS)
        except KubeError as error:
            return Kept(tuple(exist), ready=False, error=error)
        self.forget(key)
        self._complete[key] = group.metadata.uid, group.metadata.generation, tuple(exist)
        if new := [ref for ref in exist if ref not in made]:
            self._teller.objects_made(group, new)
        return Kept(tuple(exist), tried=True)

    async def _wanted(self, group: PodGroup) -> tuple[GroupObject, ...]:
        try:
            wanted = await self._rendered(group)
        except TemplateError as error:
            raise _RefusedError("TemplateError", str(error)) from None
        for one in wanted:
            if (one.ref.api_version, one.ref.kind) not in self._kinds:
                known = ", ".join(kind for _, kind in self._kinds) or "none"
                raise _RefusedError(
                    "ObjectRefused",
                    f"objects: no {one.ref.kind} of {one.ref.api_version} can be made here; {known} can",
                )
        return wanted

    async def _rendered(self, group: PodGroup) -> tuple[GroupObject, ...]:
        """The objects that the group asks for; rendered beside the event loop.

        Raises:
            TemplateError: one cannot be made.
        """
        return await self._offload.run(group.metadata.namespace, lambda: objects_of(group, rendering_budget()))

    async def _make(self, group: PodGroup, one: GroupObject) -> None:
        """Make an object, or find that it is the group's already.

        Raises:
            KubeError: neither could be found out.
        """
        ref, kind = one.ref, self._kinds[one.ref.api_version, one.ref.kind]
        try:
            await create(self._api, kind, one.manifest, field_manager=FIELD_MANAGER, strict=True)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                if await self._owned(group, ref) is None:
                    note = f"{_named(ref)} exists and does not belong to the group"
                    raise _RefusedError("ObjectNameTaken", note) from None
            elif error.status in _REFUSED:
                raise _RefusedError("ObjectRefused", f"{_named(ref)}: {error.message}") from None
            else:
                raise

    async def _delete_all(self, group: PodGroup, made: tuple[MadeObject, ...]) -> Kept:
        doomed = dict.fromkeys(made)
        if group.status.phase not in OVER:  # of what was made last, a process that ended meanwhile may not have told
            with contextlib.suppress(TemplateError):
                doomed |= dict.fromkeys(one.ref for one in await self._rendered(group))
        left = list(doomed)
        for ref in tuple(left):
            try:
                await self._delete(group, ref)
            except KubeError as error:
                return Kept(tuple(ref for ref in left if ref in made), error=error)
            left.remove(ref)
        if made:
            self._teller.objects_deleted(group, made)
        return NONE

    async def _delete(self, group: PodGroup, ref: MadeObject) -> None:
        """Delete an object if it is the group's. One whose kind is not made any more goes with the group itself.

        Raises:
            KubeError: it could not be deleted.
        """
        kind = self._kinds.get((ref.api_version, ref.kind))
        if kind is None:
            return
        try:
            uid = await self._owned(group, ref)
            if uid is not None:
                await delete(
                    self._api,
                    kind,
                    namespace=group.metadata.namespace,
                    name=ref.name,
                    uid=uid,
                    propagation="Background",
                )
        except ApiError as error:
            if error.status == 403:
                _log.warning("%s %s/%s stays: %s", ref.kind, group.metadata.namespace, ref.name, error.message)
            elif error.status not in {404, 409}:  # it is gone, or another has its name by now
                raise

    async def _owned(self, group: PodGroup, ref: MadeObject) -> str | None:
        """The uid of the object of that name if the group owns it.

        Raises:
            KubeError: it could not be read.
        """
        kind = self._kinds[ref.api_version, ref.kind]
        found = as_dict(await self._api.request("GET", kind.path(group.metadata.namespace, ref.name)))["metadata"]
        owners = found.get("ownerReferences") or ()
        return str(found["uid"]) if any(owner["uid"] == group.metadata.uid for owner in owners) else None

    def _note(self, key: str, group: PodGroup, stalled: Stalled) -> None:
        known = self._refused.get(key)
        if known is None or known.stalled != stalled:
            self._teller.object_trouble(group, stalled.reason, stalled.message)
        until = self._clock() + AGAIN_SECONDS
        self._refused[key] = _Refusal(group.metadata.uid, group.metadata.generation, stalled, until)


def _named(ref: MadeObject) -> str:
    return f"{ref.kind} {ref.name}"
