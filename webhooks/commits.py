"""The ledgers as objects: reviews that arrive while one is being written share the next write.

One ConfigMap for each guarded namespace, in kbatch's own, replaced under the condition of its resourceVersion: so any
number of replicas decide one after the other. A grant counts only when it is written; a refusal (and a grant without a
write, on a dry run) only after everything was read anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kbatch.api.objects import ResourceQuota
from kbatch.api.reasons import QuotaExceeded
from kbatch.kube.client import Api
from kbatch.kube.errors import ApiError, KubeError
from kbatch.kube.kinds import PODGROUPS, RESOURCEQUOTAS, Kind
from kbatch.kube.lists import list_all
from webhooks.ledger import FLOOR_KEY, Claim, Ledger, decode, encode, settle, without
from webhooks.world import Groups, World

_log = logging.getLogger(__name__)

CONFIGMAPS: Final = Kind(dict, "ConfigMap", "", "v1", "configmaps", namespaced=True)
SECONDS: Final = 3.5
"""Within this time a claim without a deadline is decided."""
MOST_AT_ONCE: Final = 256
MOST_ENTRIES: Final = 6000
"""Grants of the last half minute whose groups did not appear; an object of the API server holds 1 MiB."""
_REQUEST_SECONDS: Final = 2.0


class UndecidedError(Exception):
    """The ledger could not be written or read in time; nothing was granted that anybody may rely on."""


class _Stored(msgspec.Struct):
    metadata: dict[str, Any]
    data: dict[str, str] | None = None


_DECODER: Final = msgspec.json.Decoder(_Stored)


@dataclass(eq=False, slots=True)
class _Waiting:
    claim: Claim
    dry_run: bool
    deadline: float
    answer: asyncio.Future[QuotaExceeded | None]
    loop: asyncio.AbstractEventLoop


@dataclass(slots=True)
class _Account:
    """One namespace's ledger as it was last seen; `version` is None before it was read, empty while there is none.

    `withdrawn` are tokens of claims that nobody waits for any more; `merged` those whose entries stand for others too.
    """

    namespace: str
    waiting: list[_Waiting] = field(default_factory=list)
    called: bool = False
    busy: asyncio.Task[None] | None = None
    withdrawn: set[str] = field(default_factory=set)
    merged: set[str] = field(default_factory=set)
    version: str | None = None
    ledger: Ledger = field(default_factory=Ledger)


class Ledgers:
    """All namespaces'.

    Args:
        api: the API server.
        world: fed by the watches.
        loop: where `api` and `world` live; None for the loop that the claims come in.
        namespace: kbatch's own, where the ledgers are.
        prefix: of their names.
        clock: monotonic seconds. now: milliseconds since the epoch.
    """

    def __init__(
        self,
        api: Api,
        world: World,
        *,
        namespace: str,
        loop: asyncio.AbstractEventLoop | None = None,
        prefix: str = "kbatch-ledger",
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self.writes = 0
        self.conflicts = 0
        self._api = api
        self._world = world
        self._own = namespace
        self._loop = loop
        self._prefix = prefix
        self._clock = clock
        self._now = now
        self._accounts: dict[str, _Account] = {}

    async def admit(
        self, namespace: str, claim: Claim, *, dry_run: bool, deadline: float | None = None
    ) -> QuotaExceeded | None:
        """None if the claim is granted, else why not; decided before the deadline, on the monotonic clock.

        Raises:
            UndecidedError: it could not be decided in time.
        """
        here = asyncio.get_running_loop()
        account = self._accounts.setdefault(namespace, _Account(namespace))
        if deadline is None:
            deadline = self._clock() + SECONDS
        one = _Waiting(claim, dry_run, deadline, here.create_future(), here)
        account.waiting.append(one)
        # One wake-up for all that arrive until the work begins, and one for all answers of a batch: between threads
        # these cost more than the decision.
        if self._loop is None or self._loop is here:
            self._start(account)
        elif not account.called:
            account.called = True
            self._loop.call_soon_threadsafe(self._start, account)
        try:
            async with asyncio.timeout(deadline - self._clock()):
                return await one.answer
        except TimeoutError:
            account.withdrawn.add(claim.token)  # it is never granted now: what may be written for it can go
            raise UndecidedError("the ledger could not be written in time") from None

    def _start(self, account: _Account) -> None:
        account.called = False
        if account.busy is None and account.waiting:
            account.busy = asyncio.create_task(self._work(account), name=f"ledger {account.namespace}")

    async def _work(self, account: _Account) -> None:
        try:
            while account.waiting:
                batch = account.waiting[:MOST_AT_ONCE]
                del account.waiting[: len(batch)]
                try:
                    await self._decide(account, [one for one in batch if not one.answer.done()])
                except (KubeError, msgspec.DecodeError, UndecidedError) as error:
                    account.version = None
                    _answer([(one, UndecidedError(str(error))) for one in batch])
                except Exception as error:  # noqa: BLE001 - a defect must not leave reviews without an answer
                    account.version = None
                    _log.exception("deciding %d claims failed", len(batch), exc_info=error)
                    _answer([(one, UndecidedError("the review failed")) for one in batch])
                except BaseException:
                    _answer([(one, UndecidedError("the review was broken off")) for one in batch])
                    raise
        finally:
            account.busy = None

    async def _decide(self, account: _Account, batch: list[_Waiting]) -> None:
        """Decide a batch, as often as it takes until what was decided on still holds when it is written."""
        fresh = False
        while batch:
            batch = [one for one in batch if not one.answer.done() and one.deadline > self._clock()]
            if account.version is None or fresh:
                await self._read(account)
            if not fresh and self._world.version < account.ledger.floor:
                fresh = True
                continue
            if fresh:
                groups, quotas = await self._list(account.namespace)
            else:
                groups = self._world.groups.get(account.namespace) or Groups()
                quotas = self._world.quotas.get(account.namespace, ())
            now = self._now()
            firm = [one for one in batch if not one.dry_run]
            withdrawn = frozenset(account.withdrawn - account.merged)
            before = without(account.ledger, withdrawn)
            settled = settle(before, groups, quotas, [one.claim for one in firm], now=now, fresh=fresh)
            too_long = len(settled.ledger.entries) > MOST_ENTRIES
            if not fresh and (settled.refused or len(firm) < len(batch) or too_long):
                fresh = True
                continue
            if too_long:
                raise UndecidedError(f"{len(settled.ledger.entries)} groups were granted that did not appear yet")
            if settled.granted and not await self._write(account, settled.ledger):
                continue
            if settled.granted:
                account.withdrawn -= withdrawn
                account.merged |= settled.merged
                if len(account.withdrawn) + len(account.merged) > MOST_ENTRIES:
                    account.withdrawn.clear()
                    account.merged.clear()
            answers: list[_Answer] = [(one, settled.refused.get(place)) for place, one in enumerate(firm)]
            for one in batch:
                if one.dry_run:  # it counts for nobody, and nothing is written
                    alone = settle(settled.ledger, groups, quotas, [one.claim], now=now, fresh=fresh)
                    answers.append((one, alone.refused.get(0)))
            _answer(answers)
            return

    async def _list(self, namespace: str) -> tuple[Groups, tuple[ResourceQuota, ...]]:
        """The groups and quotas as they are now. To be called after the ledger was read."""
        known = self._world.groups.get(namespace)
        # A list tells nothing of groups that came and went. What was seen until now is in it, or is gone; what the
        # watch sees from here on may be younger than the list.
        seen = dict(known.seen) if known is not None else {}
        groups, quotas = await asyncio.gather(
            list_all(self._api, PODGROUPS, namespace=namespace),
            list_all(self._api, RESOURCEQUOTAS, namespace=namespace),
        )
        found = Groups(groups)
        found.seen = {**seen, **found.seen}
        return found, tuple(sorted(quotas, key=lambda quota: quota.metadata.name))

    def _name(self, account: _Account) -> str:
        return f"{self._prefix}-{account.namespace}"

    async def _read(self, account: _Account) -> None:
        try:
            payload = await self._api.request(
                "GET",
                CONFIGMAPS.path(self._own, self._name(account)),
                attempts=2,
                timeout_seconds=_REQUEST_SECONDS,
            )
        except ApiError as error:
            if error.status != 404:
                raise
            account.version, account.ledger = "", Ledger()
            return
        self._take(account, payload)

    def _take(self, account: _Account, payload: bytes) -> None:
        stored = _DECODER.decode(payload)
        floor = (stored.metadata.get("annotations") or {}).get(FLOOR_KEY)
        account.version = str(stored.metadata.get("resourceVersion", ""))
        account.ledger = decode(stored.data, floor)

    async def _write(self, account: _Account, ledger: Ledger) -> bool:
        """Replace the ledger; False where somebody else has since."""
        metadata: dict[str, Any] = {
            "name": self._name(account),
            "namespace": self._own,
            "labels": {"app.kubernetes.io/name": "kbatch", "app.kubernetes.io/component": "webhook"},
            "annotations": {FLOOR_KEY: str(ledger.floor)},
        }
        obj: dict[str, Any] = {"metadata": metadata, "data": encode(ledger)}
        body = {"apiVersion": "v1", "kind": "ConfigMap", **obj}
        self.writes += 1
        try:
            if account.version:
                metadata["resourceVersion"] = account.version
                path, method = CONFIGMAPS.path(self._own, metadata["name"]), "PUT"
            else:
                path, method = CONFIGMAPS.path(self._own), "POST"
            payload = await self._api.request(method, path, body=body, attempts=1, timeout_seconds=_REQUEST_SECONDS)
        except ApiError as error:
            account.version = None
            # 404: somebody deleted the ledger while it was written.
            if error.status == 409 or (error.status == 404 and method == "PUT"):
                self.conflicts += 1
                return False
            raise
        account.version = str(_DECODER.decode(payload).metadata["resourceVersion"])
        account.ledger = ledger
        return True


_Answer = tuple[_Waiting, QuotaExceeded | UndecidedError | None]


def _answer(answers: list[_Answer]) -> None:
    """Give each its answer, in the loop where it is awaited."""
    here = asyncio.get_running_loop()
    by_loop: dict[asyncio.AbstractEventLoop, list[_Answer]] = {}
    for answer in answers:
        by_loop.setdefault(answer[0].loop, []).append(answer)
    for loop, some in by_loop.items():
        if loop is here:
            _resolve(some)
        else:
            with contextlib.suppress(RuntimeError):  # the process ends, and that loop has ended already
                loop.call_soon_threadsafe(_resolve, some)


def _resolve(answers: list[_Answer]) -> None:
    for one, answer in answers:
        if one.answer.done():
            continue
        if isinstance(answer, UndecidedError):
            one.answer.set_exception(answer)
        else:
            one.answer.set_result(answer)
