"""The ledgers as objects: reviews that arrive while one is being written share the next write.

One ConfigMap for each guarded namespace, in kbatch's own, replaced under the condition of its resourceVersion: so any
number of replicas decide one after the other. A grant counts only when it is written; a refusal (and a grant without a
write, on a dry run) only after everything was read anew.

A ledger is owned by its namespace: when that is deleted, Kubernetes' garbage collector takes the ledger with it, so
nobody here needs the right to delete. The entries of a namespace that was deleted count for none that is made after
it under the same name.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry

from kbatch.api.objects import PodGroup, ResourceQuota
from kbatch.api.reasons import QuotaExceeded
from kbatch.kube.client import Api
from kbatch.kube.errors import ApiError, KubeError
from kbatch.kube.kinds import CONFIGMAPS, NAMESPACES, PODGROUPS, RESOURCEQUOTAS
from kbatch.kube.lists import list_all
from kbatch.metrics import LedgerMetrics
from kbatch.model.promised import Groups
from webhooks.cluster_view import ClusterView
from webhooks.ledger import ENTRIES_KEY, FLOOR_KEY, MOST_BYTES, Claim, Ledger, decode, encode, settle, without
from webhooks.review import Named

_log = logging.getLogger(__name__)

SECONDS: Final = 3.5
"""Within this time a claim without a deadline is decided."""
MOST_AT_ONCE: Final = 256
MOST_TOKENS: Final = 6000
"""Tokens that are remembered of claims that nobody waits for."""
GATHER_SECONDS: Final = 0.005
"""Under load, how long a batch waits for reviews that are being read: fewer writes, and fewer answers to read."""
_REQUEST_SECONDS: Final = 2.0
NOT_OVER: Final = "status.phase!=Completed,status.phase!=Failed"
"""Of groups that are over nothing counts, and there may be very many."""


class UndecidedError(Exception):
    """Nothing was granted that anybody may rely on; `why` is a word for it: `late`, `failed`, `full`."""

    def __init__(self, why: str, message: str) -> None:
        super().__init__(message)
        self.why = why


class _Stored(Named):
    """A ledger. Of other objects no more is decoded than which they are."""

    data: dict[str, str] | None = None


_NAMED: Final = msgspec.json.Decoder(Named)
_STORED: Final = msgspec.json.Decoder(_Stored)


@dataclass(eq=False, slots=True)
class _Waiting:
    claim: Claim
    dry_run: bool
    deadline: float
    answer: asyncio.Future[QuotaExceeded | None]


@dataclass(slots=True)
class _Account:
    """One namespace's ledger as it was last seen; `version` is None before it was read, empty while there is none.

    `since` says which time it is that the namespace has quotas, `owner` is its uid, empty before that was read.
    `withdrawn` are tokens of claims that nobody waits for any more.
    """

    namespace: str
    since: int
    owner: str = ""
    waiting: list[_Waiting] = field(default_factory=list)
    busy: asyncio.Task[None] | None = None
    withdrawn: set[str] = field(default_factory=set)
    version: str | None = None
    ledger: Ledger = field(default_factory=Ledger)


class Ledgers:
    """All namespaces'.

    Args:
        api: the API server.
        view: fed by the watches, in the same event loop.
        namespace: kbatch's own, where the ledgers are.
        prefix: of their names.
        clock: monotonic seconds. now: milliseconds since the epoch.
    """

    def __init__(
        self,
        api: Api,
        view: ClusterView,
        *,
        namespace: str,
        metrics: LedgerMetrics | None = None,
        prefix: str = "kbatch-ledger",
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self._api = api
        self._view = view
        self._own = namespace
        self._metrics = metrics or LedgerMetrics(CollectorRegistry())
        self._metrics.entries.set_function(self._entries)
        self._prefix = prefix
        self._clock = clock
        self._now = now
        self._accounts: dict[str, _Account] = {}
        self._selects = True

    async def admit(
        self, namespace: str, claim: Claim, *, dry_run: bool, deadline: float | None = None
    ) -> QuotaExceeded | None:
        """None if the claim is granted, else why not; decided before the deadline, on the monotonic clock.

        Raises:
            UndecidedError: it could not be decided in time.
        """
        account = self._account(namespace)
        if deadline is None:
            deadline = self._clock() + SECONDS
        one = _Waiting(claim, dry_run, deadline, asyncio.get_running_loop().create_future())
        account.waiting.append(one)
        if account.busy is None:
            account.busy = asyncio.create_task(self._work(account), name=f"ledger {namespace}")
        outcome = "failed"
        try:
            async with asyncio.timeout(deadline - self._clock()):
                reason = await one.answer
        except TimeoutError:
            outcome = "late"
            account.withdrawn.add(claim.token)  # it is never granted now: what may be written for it can go
            raise UndecidedError("late", "the ledger could not be written in time") from None
        except UndecidedError as error:
            outcome = error.why
            raise
        else:
            outcome = "granted" if reason is None else "exceeded"
            return reason
        finally:
            if not dry_run:
                self._metrics.claims.labels(outcome).inc()

    def _account(self, namespace: str) -> _Account:
        """The namespace's account. One whose namespace lost its quotas meanwhile is begun anew: it may be another
        namespace of the same name.
        """
        since = self._view.guarded.get(namespace, 0)
        account = self._accounts.get(namespace)
        if account is None or account.since != since:
            left = [
                one for one in self._accounts.values() if one.busy is None and one.namespace not in self._view.guarded
            ]
            for one in left:
                del self._accounts[one.namespace]
            account = self._accounts[namespace] = _Account(namespace, since)
        return account

    def _entries(self) -> float:
        accounts = list(self._accounts.values())  # at once: this is asked by the thread that answers for metrics
        return float(sum(account.ledger.count for account in accounts))

    async def _work(self, account: _Account) -> None:
        try:
            while account.waiting:
                batch = account.waiting[:MOST_AT_ONCE]
                del account.waiting[: len(batch)]
                try:
                    await self._decide(account, [one for one in batch if not one.answer.done()])
                except UndecidedError as error:
                    account.version = None
                    _log.warning("the ledger of %s takes no more: %s", account.namespace, error)
                    _answer([(one, UndecidedError(error.why, str(error))) for one in batch])
                except (KubeError, msgspec.DecodeError) as error:
                    account.version = None
                    _log.warning("the ledger of %s cannot be kept: %s", account.namespace, error)
                    _answer([(one, UndecidedError("failed", str(error))) for one in batch])
                except Exception as error:  # noqa: BLE001 - a defect must not leave reviews without an answer
                    account.version = None
                    _log.exception("deciding %d claims failed", len(batch), exc_info=error)
                    _answer([(one, UndecidedError("failed", "the review failed")) for one in batch])
                except BaseException:
                    _answer([(one, UndecidedError("failed", "the review was broken off")) for one in batch])
                    raise
                if account.waiting:
                    await asyncio.sleep(GATHER_SECONDS)
        finally:
            account.busy = None

    async def _decide(self, account: _Account, batch: list[_Waiting]) -> None:
        """Decide a batch, as often as it takes until what was decided on still holds when it is written."""
        fresh = False
        while batch:
            if account.version is None or fresh:
                fresh = await self._read(account) or fresh
            if not fresh and self._view.version < account.ledger.floor:
                fresh = True
                continue
            if fresh:
                groups, quotas = await self._list(account.namespace)
            else:
                groups = self._view.groups.get(account.namespace) or Groups()
                quotas = self._view.quotas.get(account.namespace, ())
            # Reading takes time: what was given up meanwhile is written for nobody, and keeps room until it expires.
            batch = [one for one in batch if not one.answer.done() and one.deadline > self._clock()]
            now = self._now()
            firm = [one for one in batch if not one.dry_run]
            withdrawn = frozenset(account.withdrawn)
            before = without(account.ledger, withdrawn)
            settled = settle(before, groups, quotas, [one.claim for one in firm], now=now, fresh=fresh)
            text = encode(settled.ledger)
            too_long = len(text) > MOST_BYTES
            if not fresh and (settled.refused or len(firm) < len(batch) or too_long):
                fresh = True
                continue
            if too_long:
                raise UndecidedError("full", f"{settled.ledger.count} groups were granted that did not appear yet")
            if settled.granted and not await self._write(account, settled.ledger, text):
                continue
            if settled.granted:
                account.withdrawn -= withdrawn
                if len(account.withdrawn) > MOST_TOKENS:
                    account.withdrawn.clear()
            answers: list[_Answer] = [(one, settled.refused.get(place)) for place, one in enumerate(firm)]
            for one in batch:
                if one.dry_run:  # it counts for nobody, and nothing is written
                    alone = settle(settled.ledger, groups, quotas, [one.claim], now=now, fresh=fresh)
                    answers.append((one, alone.refused.get(0)))
            _answer(answers)
            return

    async def _list(self, namespace: str) -> tuple[Groups, tuple[ResourceQuota, ...]]:
        """The groups and quotas as they are now. To be called after the ledger was read."""
        known = self._view.groups.get(namespace)
        # A list tells nothing of groups that came and went. What was seen until now is in it, or is gone; what the
        # watch sees from here on may be younger than the list.
        seen = dict(known.seen) if known is not None else {}
        groups, quotas = await asyncio.gather(
            self._groups(namespace),
            list_all(self._api, RESOURCEQUOTAS, namespace=namespace),
        )
        found = Groups(groups)
        found.seen = {**seen, **found.seen}
        return found, tuple(sorted(quotas, key=lambda quota: quota.metadata.name))

    async def _groups(self, namespace: str) -> list[PodGroup]:
        """Those that are not over, or all where the API server cannot choose by the phase (1.30)."""
        if self._selects:
            try:
                return await list_all(self._api, PODGROUPS, namespace=namespace, field_selector=NOT_OVER)
            except ApiError as error:
                if error.status != 400:
                    raise
                self._selects = False
        return await list_all(self._api, PODGROUPS, namespace=namespace)

    def _name(self, account: _Account) -> str:
        return f"{self._prefix}-{account.namespace}"

    async def _read(self, account: _Account) -> bool:
        """Read the ledger; whether it is begun anew, so that only a list tells which groups there are."""
        if not account.owner:
            path = NAMESPACES.path(name=account.namespace)
            payload = await self._api.request("GET", path, attempts=2, timeout_seconds=_REQUEST_SECONDS)
            account.owner = _NAMED.decode(payload).metadata.uid
        path = CONFIGMAPS.path(self._own, self._name(account))
        try:
            payload = await self._api.request("GET", path, attempts=2, timeout_seconds=_REQUEST_SECONDS)
        except ApiError as error:
            if error.status != 404:
                raise
            account.version, account.ledger = "", Ledger()
            return True
        stored = _STORED.decode(payload)
        floor = (stored.metadata.annotations or {}).get(FLOOR_KEY)
        account.version = stored.metadata.resource_version
        ours = account.owner in {owner.uid for owner in stored.metadata.owner_references}
        account.ledger = decode((stored.data or {}).get(ENTRIES_KEY, "") if ours else "", floor)
        return not ours

    async def _write(self, account: _Account, ledger: Ledger, text: str) -> bool:
        """Replace the ledger by this one, as `text`; False where somebody else has since."""
        metadata: dict[str, Any] = {
            "name": self._name(account),
            "namespace": self._own,
            "labels": {"app.kubernetes.io/name": "kbatch", "app.kubernetes.io/component": "webhook"},
            "annotations": {FLOOR_KEY: str(ledger.floor)},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Namespace", "name": account.namespace, "uid": account.owner}
            ],
        }
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {ENTRIES_KEY: text}}
        started = self._clock()
        outcome = "failed"
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
                outcome = "conflict"
                return False
            raise
        else:
            account.version = _NAMED.decode(payload).metadata.resource_version
            account.ledger = ledger
            outcome = "ok"
            return True
        finally:
            self._metrics.commits.labels(outcome).inc()
            self._metrics.seconds.observe(self._clock() - started)


_Answer = tuple[_Waiting, QuotaExceeded | UndecidedError | None]


def _answer(answers: list[_Answer]) -> None:
    for one, answer in answers:
        if one.answer.done():
            continue
        if isinstance(answer, UndecidedError):
            one.answer.set_exception(answer)
        else:
            one.answer.set_result(answer)
