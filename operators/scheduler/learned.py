"""Keeps what plugins have learned and no object says, in one ConfigMap: who leads next begins with it.

It is written when it has changed, once a minute at most, and at the end; a scheduler that is killed forgets the last
minute of it. Where it could not be read nothing is written, that a moment's trouble does not cost all of it. What of it
belongs to plugins that are not configured stays as it is, and counts as soon as they are.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from kbatch.decisions.state import read_lasting, write_lasting
from kbatch.engine import CycleState, Policy
from kbatch.kube.client import Api
from kbatch.kube.errors import ApiError, KubeError
from kbatch.kube.kinds import CONFIGMAPS
from kbatch.kube.writes import apply
from operators.scheduler import FIELD_MANAGER

_log = logging.getLogger(__name__)

NAME: Final = "kbatch-scheduler-learned"
APART_SECONDS: Final = 60.0
MOST_BYTES: Final = 900_000
"""A ConfigMap holds one MiB."""


class LearnedKeeper:
    """Takes what cycles leave; writes what plugins want to outlive the process.

    Args:
        api: refuses writes while this process does not lead.
        namespace: of the ConfigMap.
        apart: seconds between two writes.
    """

    def __init__(self, api: Api, namespace: str, *, apart: float = APART_SECONDS) -> None:
        self._api = api
        self._namespace = namespace
        self._apart = apart
        self._readable = False
        self._texts: dict[str, str] = {}
        self._wanted: dict[str, msgspec.Struct] = {}
        self._stands: dict[str, msgspec.Struct] = {}
        self._work = asyncio.Event()

    async def read(self, policy: Policy) -> CycleState:
        """What a process begins with that takes over now."""
        data: Mapping[str, Any] = {}
        try:
            answer = await self._api.request("GET", CONFIGMAPS.path(self._namespace, NAME))
            data = json.loads(answer).get("data") or {}
        except ApiError as error:
            if error.status != 404:
                _log.warning("what was learned cannot be read, nor kept: ConfigMap %s: %s", NAME, error)
                return CycleState()
        except (KubeError, ValueError) as error:
            _log.warning("what was learned cannot be read, nor kept: ConfigMap %s: %s", NAME, error)
            return CycleState()
        self._readable = True
        self._texts = {name: str(text) for name, text in data.items()}
        state = self.begin(CycleState(), policy)
        self._stands = write_lasting(state, policy)
        return state

    def begin(self, state: CycleState, policy: Policy) -> CycleState:
        """The state with which cycles go on under another policy: its plugins that have left nothing in this process
        begin with what is kept of them. The same state where there is nothing of the kind.
        """
        missing = {name: text for name, text in self._texts.items() if name not in state.plugins}
        found, refused = read_lasting(missing, policy)
        for name, why in refused.items():
            _log.warning("what the plugin %s has learned cannot be used: %s", name, why)
        return replace(state, plugins={**state.plugins, **found.plugins}) if found.plugins else state

    def take(self, state: CycleState, policy: Policy) -> None:
        """What a cycle has left."""
        self._wanted = write_lasting(state, policy)
        if any(part is not self._stands.get(name) for name, part in self._wanted.items()):
            self._work.set()

    async def run(self) -> None:
        """Write, until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            if not await self.round():
                self._work.set()
            await asyncio.sleep(self._apart)

    async def drain(self, seconds: float) -> bool:
        """Write what differs; whether that was done in time."""
        try:
            async with asyncio.timeout(seconds):
                return await self.round()
        except TimeoutError:
            return False

    async def round(self) -> bool:
        """Write what differs from what stands there; whether nothing is left to do."""
        wanted = self._wanted
        if not self._readable or all(part is self._stands.get(name) for name, part in wanted.items()):
            return True
        data = {**self._texts, **{name: msgspec.json.encode(part).decode() for name, part in wanted.items()}}
        if sum(len(text) for text in data.values()) > MOST_BYTES:
            _log.warning("what was learned is too large for a ConfigMap, and is not kept")
            return True
        try:
            obj = {"metadata": {"name": NAME, "namespace": self._namespace}, "data": data}
            await apply(self._api, CONFIGMAPS, obj, FIELD_MANAGER, force=True)
        except KubeError as error:
            _log.warning("ConfigMap %s: %s", NAME, error)
            return False
        self._stands, self._texts = wanted, data
        return True
