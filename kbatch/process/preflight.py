"""Before a process starts its work: are the custom resources there, and may it read what it needs?

A CRD that is missing is said in one sentence and waited for: applied late, it is noticed within seconds. So is a right
that is missing. Nothing here ends the process: restarting it would not make either come sooner. A CRD that lacks fields
is said, and not waited for: what needs none of them goes on.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from kbatch.kube.client import Api
from kbatch.kube.errors import ApiError, KubeError
from kbatch.kube.kinds import AnyKind
from kbatch.process.crd_fields import lacking

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 2.0
_REPEAT_EVERY: Final = 15
"""A wait that goes on is logged again after so many attempts, half a minute."""


class _Resource(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    resources: list[_Resource] = []


class _Version(msgspec.Struct, rename="camel"):
    group_version: str


class _Group(msgspec.Struct):
    versions: list[_Version] = []


class _Groups(msgspec.Struct):
    groups: list[_Group] = []


class Preflight:
    """Waits until every kind is served and may be listed; `check` is what readiness says meanwhile."""

    def __init__(self, api: Api, *, needed: Iterable[AnyKind], listed: Iterable[AnyKind] = ()) -> None:
        self._api = api
        self._needed = list(needed)
        self._listed = list(listed)
        self._problem: str | None = "not looked yet"

    def check(self) -> str | None:
        """What the process waits for, or None."""
        return self._problem

    async def wait(self) -> None:
        """Return when nothing is missing."""
        attempt = 0
        while True:
            problem = await self._look()
            if problem is None:
                if attempt:
                    _log.info("nothing is missing any more")
                self._problem = None
                await self._compare()
                return
            if problem != self._problem or attempt % _REPEAT_EVERY == 0:
                _log.warning("waiting: %s", problem)
            self._problem = problem
            attempt += 1
            await asyncio.sleep(_RETRY_SECONDS * random.uniform(0.8, 1.2))

    async def _compare(self) -> None:
        """Say which fields the CRDs lack."""
        try:
            found = await lacking(self._api, dict.fromkeys((*self._needed, *self._listed)))
        except (KubeError, msgspec.DecodeError) as error:
            _log.info("the fields of the CustomResourceDefinitions could not be compared: %s", error)
            return
        for name, fields in found.items():
            _log.warning(
                "the CustomResourceDefinition %s is of an older release, without %s: what stands there is dropped or "
                "refused, all else works. Helm upgrades it with crds.enabled=true (the default); else: "
                "kubectl apply --server-side -f crds/",
                name,
                ", ".join(fields),
            )

    async def _look(self) -> str | None:
        try:
            return await self._served() or await self._readable()
        except (KubeError, msgspec.DecodeError) as error:
            return f"the API server does not answer as it should: {error}"

    async def _served(self) -> str | None:
        """A sentence that names the kinds that the API server does not serve."""
        missing: list[AnyKind] = []
        groups: dict[str, list[AnyKind]] = {}
        for kind in self._needed:
            groups.setdefault(kind.api_version, []).append(kind)
        # Both documents of the discovery: a new kind may stand in its own before its group stands in the list of
        # groups, and kopf, which looks only once, begins with the latter.
        listed = msgspec.json.decode(await self._api.request("GET", "/apis"), type=_Groups)
        known = {version.group_version for group in listed.groups for version in group.versions}
        for api_version, kinds in groups.items():
            if api_version not in known:
                missing += kinds
                continue
            try:
                answer = await self._api.request("GET", f"/apis/{api_version}")
            except ApiError as error:
                if error.status != 404:
                    raise
                missing += kinds
                continue
            served = {resource.name for resource in msgspec.json.decode(answer, type=_Resources).resources}
            missing += [kind for kind in kinds if kind.plural not in served]
        return _missing(missing) if missing else None

    async def _readable(self) -> str | None:
        """A sentence that says which kind may not be listed."""
        for kind in self._listed:
            try:
                await self._api.request("GET", kind.path(), params={"limit": "1"})
            except ApiError as error:
                if error.status == 403:
                    return f"this process may not list {_spelled(kind)}; its role must allow it ({error.message})"
                raise
        return None


def _spelled(kind: AnyKind) -> str:
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def _missing(kinds: Sequence[AnyKind]) -> str:
    names = " and ".join(_spelled(kind) for kind in kinds)
    verb = "is" if len(kinds) == 1 else "are"
    noun = "CustomResourceDefinition" if len(kinds) == 1 else "CustomResourceDefinitions"
    return f"the {noun} {names} {verb} not installed: kubectl apply --server-side -f crds/"
