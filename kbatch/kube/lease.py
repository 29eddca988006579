"""Who leads: one Lease, one holder, never two at once.

A candidate never compares its wall clock with another's. It notes, on its own steady clock, when it *saw* the Lease
change; only when it has not changed for the holder's whole lease duration may it be taken, and one that was deleted is
made anew no sooner by whoever had seen it. (A process that begins after somebody has deleted it makes it at once: then
two may lead until the other's next renewal.) The holder counts from before it *sent* the renewal that succeeded, and
stops leading at the renew deadline, which is shorter than the lease duration: so it has stopped before anybody else may
begin. Every write to the Lease carries the resourceVersion that it is based on, so of several candidates exactly one
wins.

That clock goes on while the machine is suspended, as the others' clocks do: the system's monotonic one stands still.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self, Unpack

import msgspec

from kbatch.kube.client import Api, RequestOptions
from kbatch.kube.errors import ApiError, KubeError, NotLeadingError
from kbatch.kube.kinds import LEASES
from kbatch.kube.writes import as_dict

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
"""How often a candidate looks at the Lease: a leader that leaves cleanly is followed within a second."""

REQUEST_SECONDS: Final = 4.0
RELEASE_SECONDS: Final = 3.0
"""How long a leaving leader tries to give its Lease back; after that its successor waits until it runs out."""


STUCK_SECONDS: Final = 60.0
"""Whoever has not tried for so long to get or to renew the Lease hangs: an attempt takes half of it at most."""

_LEAVING: Final = "leaving"
_BOOT: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


def since_boot() -> float:
    """Seconds since the machine was started, with those in which it was suspended, where the system counts them."""
    return time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)


@dataclass(frozen=True, slots=True)
class _Lease:
    """A Lease as it was read, and when, on this process' clock, it was first seen like that."""

    raw: Mapping[str, Any]
    seen: float

    @property
    def version(self) -> str:
        return str(self.raw["metadata"].get("resourceVersion", ""))

    @property
    def holder(self) -> str:
        return str(self.spec.get("holderIdentity") or "")

    @property
    def duration(self) -> float | None:
        value = self.spec.get("leaseDurationSeconds")
        return float(value) if value else None

    @property
    def transitions(self) -> int:
        return int(self.spec.get("leaseTransitions") or 0)

    @property
    def spec(self) -> Mapping[str, Any]:
        spec: Mapping[str, Any] = self.raw.get("spec") or {}
        return spec


class Elector(AbstractAsyncContextManager["Elector"]):
    """Takes part in the election for one Lease while its context is open.

    An identity belongs to one process at a time (a pod's name does): a process that finds its own identity on the Lease
    takes it for that of its dead predecessor and leads at once.

    Durations are in seconds: retry period < renew deadline < lease duration, the last one whole, as in the Lease.
    """

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        name: str,
        identity: str,
        lease_duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
        clock: Callable[[], float] = since_boot,
    ) -> None:
        if not 0 < retry_period < renew_deadline < lease_duration:
            raise ValueError(
                f"need retry period < renew deadline < lease duration, not {retry_period:g}, {renew_deadline:g}, "
                f"{lease_duration:g} s"
            )
        if lease_duration != int(lease_duration):
            raise ValueError(f"a Lease lasts whole seconds, not {lease_duration:g}")
        if not identity:
            raise ValueError("a candidate needs an identity: the empty one means that nobody holds the Lease")
        self.identity = identity
        self.lost = asyncio.Event()
        """Set while this process leads no more, having led before."""
        self._api = api
        self._namespace = namespace
        self._name = name
        self._duration = int(lease_duration)
        self._deadline = renew_deadline
        self._retry = retry_period
        self._clock = clock
        self._leads = asyncio.Event()
        self._until = 0.0
        self._in_doubt = False
        """Somebody else has written the Lease: nothing is written before it was read and found to be still ours."""
        self._token = 0
        self._lease: _Lease | None = None
        self._free_from = -math.inf
        """While there is no Lease: before that somebody may lead who does not know yet that his was deleted."""
        self._task: asyncio.Task[None] | None = None
        self._tried = clock()
        """When the last attempt began."""

    # --- what others ask ----------------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Whether this process may write now. Judged by the clock each time, not by what a task last noticed."""
        return self._leads.is_set() and not self._in_doubt and not self._run_out

    @property
    def _run_out(self) -> bool:
        return self._clock() >= self._until

    @property
    def token(self) -> int:
        """The fencing token: the number of the term (leaseTransitions) in which this process leads or last led."""
        return self._token

    @property
    def holder(self) -> str:
        """Who held the Lease when it was last seen; empty where nobody did."""
        return self._lease.holder if self._lease is not None else ""

    def stuck(self) -> str | None:
        """Why nobody here would get, renew or lose the Lease any more, for liveness; None while all is well."""
        if self._task is None:
            return None
        if self._task.done():
            return "the task that renews the Lease has ended"
        silent = self._clock() - self._tried
        return f"no attempt to renew the Lease for {silent:.0f} s" if silent > STUCK_SECONDS else None

    async def wait_leader(self) -> None:
        """Return as soon as this process leads."""
        await self._leads.wait()

    def check(self) -> None:
        """Nothing, while this process leads.

        Raises:
            NotLeadingError: it does not.
        """
        if not self.is_leader:
            raise NotLeadingError(f"{self.identity} does not hold the lease {self._namespace}/{self._name}")

    async def vacant_term(self) -> int | None:
        """The number of the next term, if nobody leads now; None where somebody may, or that cannot be found out.

        Who then leads in just this term knows that nobody did between this call and its own beginning.
        """
        try:
            lease = _Lease(_read_lease(await self._send("GET", LEASES.path(self._namespace, self._name))), 0.0)
        except KubeError:
            return None  # also where there is no Lease: somebody may lead who does not know yet that his was deleted
        return lease.transitions + 1 if lease.holder in {"", self.identity} else None

    # --- life ---------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._tried = self._clock()
        self._task = asyncio.create_task(self._run(), name=f"lease {self._name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop leading, then give the Lease back, so that a successor need not wait. Safe to call twice."""
        if self._task is None:
            return
        task, self._task = self._task, None
        led = self._leads.is_set() and not self._run_out
        self._step_down(_LEAVING)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        if led:
            with suppress(TimeoutError, KubeError):
                async with asyncio.timeout(RELEASE_SECONDS):
                    await self._release()

    async def _run(self) -> None:
        failures = 0
        while True:
            self._tried = self._clock()
            try:
                await self.attempt()
                failures = 0
            except KubeError as error:
                failures += 1
                level = logging.WARNING if failures & (failures - 1) == 0 else logging.DEBUG  # 1st, 2nd, 4th, 8th ...
                _log.log(level, "lease %s/%s: %s", self._namespace, self._name, error)
            except Exception:  # noqa: BLE001 - without this task nobody here would lead again, nor learn that none does
                failures += 1
                _log.exception("lease %s/%s", self._namespace, self._name)
            wait = (self._retry if self._leads.is_set() and not failures else LOOK_SECONDS) * random.uniform(0.8, 1.2)
            if self._leads.is_set():
                wait = min(wait, max(0.0, self._until - self._clock()))
            await asyncio.sleep(wait)
            if self._leads.is_set() and self._run_out:
                self._step_down(f"not renewed for {self._deadline:g} s")

    async def attempt(self) -> bool:
        """Try once to get or to renew the Lease; whether this process leads afterwards.

        Raises:
            KubeError: no usable answer; leading goes on until the renew deadline.
        """
        if self._leads.is_set() and self._run_out:
            self._step_down(f"not renewed for {self._deadline:g} s")
        if not self._leads.is_set() or self._lease is None or self._in_doubt:
            await self._read()
        for _ in range(2):  # a second time after somebody touched the Lease without taking it
            if not self._may_write():
                if self._leads.is_set():
                    self._step_down(f"{self.holder!r} has taken the lease")
                return False
            if await self._write(self._claim()):
                return self.is_leader
            await self._read()
            if not self._leads.is_set():
                return False  # another candidate was faster
        return self.is_leader

    def _may_write(self) -> bool:
        lease = self._lease
        if self._leads.is_set():
            return lease is not None and lease.holder == self.identity and lease.transitions == self._token
        if lease is None:
            return self._clock() >= self._free_from
        if lease.holder in {"", self.identity}:
            return True
        return self._clock() - lease.seen >= (lease.duration or self._duration)

    def _claim(self) -> dict[str, Any]:
        """The Lease as it is to be: ours, from now on; everything else in it as it was found."""
        lease, now = self._lease, _now()
        spec: dict[str, Any] = dict(lease.spec) if lease else {}
        spec |= {"holderIdentity": self.identity, "leaseDurationSeconds": self._duration, "renewTime": now}
        if not self._leads.is_set():
            spec |= {"acquireTime": now, "leaseTransitions": lease.transitions + 1 if lease else 0}
        return self._body(spec)

    def _body(self, spec: dict[str, Any]) -> dict[str, Any]:
        metadata = self._lease.raw["metadata"] if self._lease else {"name": self._name, "namespace": self._namespace}
        kept = {name: value for name, value in metadata.items() if name != "managedFields"}
        return {"apiVersion": LEASES.api_version, "kind": LEASES.name, "metadata": kept, "spec": spec}

    async def _read(self) -> None:
        try:
            payload = await self._send("GET", LEASES.path(self._namespace, self._name))
        except ApiError as error:
            if error.status != 404:
                raise
            gone, self._lease = self._lease, None
            if self._leads.is_set():
                self._free_from = self._clock()
                self._step_down("the lease was deleted")
            elif gone is not None:
                self._free_from = self._clock() + max(self._duration, gone.duration or 0.0)
        else:
            self._saw(payload)

    async def _write(self, body: dict[str, Any]) -> bool:
        """Write the Lease and lead; False where somebody else wrote it first."""
        before = self._clock()
        try:
            if self._lease is None:
                payload = await self._send("POST", LEASES.path(self._namespace), body)
            else:
                payload = await self._send("PUT", LEASES.path(self._namespace, self._name), body)
        except ApiError as error:
            if error.status not in {404, 409}:
                raise
            self._in_doubt = True
            return False
        lease = self._saw(payload)
        self._token = lease.transitions
        self._until = before + self._deadline
        self._in_doubt = False
        if not self._leads.is_set():
            _log.info("leading: lease %s/%s, term %d", self._namespace, self._name, self._token)
            self.lost.clear()
            self._leads.set()
        return True

    async def _release(self) -> None:
        for _ in range(2):  # a renewal that was on the wire may have changed the version
            lease = self._lease
            if lease is None or lease.holder != self.identity or lease.transitions != self._token:
                return
            spec = {**lease.spec, "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
            try:
                self._saw(await self._send("PUT", LEASES.path(self._namespace, self._name), self._body(spec)))
            except ApiError as error:
                if error.status != 409:
                    raise
                await self._read()
            else:
                _log.info("released lease %s/%s", self._namespace, self._name)
                return

    async def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        # Sent once: what to do after a failure is decided here, with the clock in view.
        return await self._api.request(
            method, path, body=body, attempts=1, timeout_seconds=min(REQUEST_SECONDS, self._deadline / 2)
        )

    def _saw(self, payload: bytes) -> _Lease:
        lease = _Lease(_read_lease(payload), self._clock())
        if self._lease is None or self._lease.version != lease.version:
            self._lease = lease
        return self._lease

    def _step_down(self, why: str) -> None:
        if self._leads.is_set():
            self._leads.clear()
            self.lost.set()
            level = logging.INFO if why == _LEAVING else logging.WARNING
            _log.log(level, "leading no more: lease %s/%s: %s", self._namespace, self._name, why)


class Fenced:
    """An `Api` whose writes are sent only while an elector leads; asked again before each attempt.

    What is already on the wire when the Lease is lost is made harmless by the writes' own preconditions.
    """

    def __init__(self, api: Api, elector: Elector) -> None:
        self._api = api
        self._elector = elector

    async def request(self, method: str, path: str, **options: Unpack[RequestOptions]) -> bytes:
        """As `Client.request`.

        Raises:
            NotLeadingError: a write, while this process does not lead.
        """
        guard = options.get("guard")

        def both() -> None:
            if method != "GET":
                self._elector.check()
            if guard is not None:
                guard()

        options["guard"] = both
        return await self._api.request(method, path, **options)

    def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, silence: float
    ) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        """As `Client.stream`: reading needs no Lease."""
        return self._api.stream(path, params=params, silence=silence)


def _read_lease(payload: bytes) -> Mapping[str, Any]:
    """A Lease as plain data.

    Raises:
        KubeError: the answer is none, whoever may have given it.
    """
    try:
        raw: object = as_dict(payload)
    except msgspec.DecodeError as error:
        raise KubeError(f"the answer is not a Lease: {error}") from error
    if isinstance(raw, dict) and isinstance(raw.get("metadata"), dict) and isinstance(raw.get("spec") or {}, dict):
        return raw
    raise KubeError("the answer is not a Lease")


def _now() -> str:
    """The time as a MicroTime: exactly six digits after the point, or the server refuses it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
