"""The API server's own record of who wrote what, and what it shows of who was allowed to."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.auditor.allowances import TOLERANCE
from tests.e2e.auditor.rules import Eviction, Violation

POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: RequestResponse
  verbs: [create, update, patch, delete]
  resources: [{group: coordination.k8s.io, resources: [leases]}]
  namespaces: [NAMESPACE]
- level: Request
  verbs: [create]
  resources: [{group: "", resources: [pods/binding, pods/eviction]}]
- level: Metadata
  verbs: [create, update, patch, delete]
  resources:
  - {group: "", resources: [pods/status]}
  - {group: events.k8s.io, resources: [events]}
  - {group: scheduling.incubator.k8s.io}
- level: None
"""

_LONGEST_LEASE = 60.0
"""Seconds."""

_BEGINNING = b'{"kind":"Event","apiVersion":"audit.k8s.io/'
"""How the server begins each line."""

_AGENT = re.compile(r"kbatch-scheduler/\S+ \((?P<identity>[^)]*)\)")


def policy(folder: Path, lease_namespace: str) -> Path:
    """Write the audit policy that the rules here need; its path."""
    path = folder / "audit-policy.yaml"
    path.write_text(POLICY.replace("NAMESPACE", lease_namespace), encoding="utf-8")
    return path


@dataclass(frozen=True)
class Write:
    """One write request, as the server recorded it."""

    received: float
    answered: float
    agent: str
    verb: str
    resource: str
    """With the subresource: `pods/binding`."""
    namespace: str
    name: str
    status: int
    dry_run: bool
    body: dict[str, Any]
    answer: dict[str, Any]

    @property
    def identity(self) -> str:
        """Which of the scheduler's replicas sent it; empty where it was somebody else."""
        match = _AGENT.match(self.agent)
        return match["identity"] if match else ""

    @property
    def succeeded(self) -> bool:
        return 200 <= self.status < 300


class AuditLog:
    """An audit log that is being written: what was read once is not read again. For any thread.

    Full files are renamed by the server (after 100 MB, to `audit-TIME.log`); they belong to it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: dict[int, int] = {}
        """By file (inode): how many bytes, up to the end of a line."""
        self._recorded: list[Write] = []
        """In the order of the log, which is that of the answers."""
        self._writes: list[Write] = []
        """The same in the order in which they were received."""
        self._lock = threading.Lock()

    def writes(self) -> list[Write]:
        """All writes so far, in the order in which they were received. A last line cut short is left out."""
        with self._lock:
            self._recorded += _parsed(self._lines())
            if len(self._writes) < len(self._recorded):
                new = self._recorded[len(self._writes) :]
                self._writes = sorted([*self._writes, *new], key=lambda write: write.received)
            return self._writes

    def recorded(self, known: int) -> list[Write]:
        """What the server has recorded after the first so many writes, in the order in which it answered."""
        with self._lock:
            self._recorded += _parsed(self._lines())
            return self._recorded[known:]

    def _lines(self) -> Iterator[bytes]:
        renamed = self._path.parent.glob(f"{self._path.stem}-*{self._path.suffix}")
        for path in [*sorted(renamed), self._path]:
            with path.open("rb") as file:
                number = os.fstat(file.fileno()).st_ino
                file.seek(self._read.get(number, 0))
                whole, end, _ = file.read().rpartition(b"\n")
                self._read[number] = self._read.get(number, 0) + len(whole) + len(end)
            yield from whole.split(b"\n")


def read(path: Path) -> list[Write]:
    """The writes in an audit log, in the order in which they were received."""
    return AuditLog(path).writes()


def _parsed(lines: Iterable[bytes]) -> Iterator[Write]:
    for line in lines:
        # A server that is killed while it writes leaves half a line, and the next one goes on behind it.
        start = max(line.rfind(_BEGINNING), 0)
        try:
            entry = json.loads(line[start:])
        except ValueError:
            continue
        if entry.get("stage") not in {"ResponseComplete", "Panic"}:
            continue
        reference = entry.get("objectRef") or {}
        body = entry.get("requestObject") or {}
        subresource = reference.get("subresource")
        yield Write(
            received=_seconds(entry["requestReceivedTimestamp"]),
            answered=_seconds(entry["stageTimestamp"]),
            agent=entry.get("userAgent", ""),
            verb=entry["verb"],
            resource=reference.get("resource", "") + (f"/{subresource}" if subresource else ""),
            namespace=reference.get("namespace", ""),
            name=reference.get("name", ""),
            status=(entry.get("responseStatus") or {}).get("code", 0),
            dry_run="dryRun=" in entry.get("requestURI", "")
            or bool(((body if isinstance(body, dict) else {}).get("deleteOptions") or {}).get("dryRun")),
            body=body if isinstance(body, dict) else {},
            answer=entry.get("responseObject") or {},
        )


def eviction_of(write: Write) -> Eviction | None:
    """The eviction that a write is; None where it is none, was refused or only tried."""
    if write.resource != "pods/eviction" or not write.succeeded or write.dry_run:
        return None
    metadata, options = (write.body.get(key) or {} for key in ("metadata", "deleteOptions"))
    why = (metadata.get("annotations") or {}) if write.identity else {}
    return Eviction(
        victim=f"{write.namespace}/{write.name}",
        uid=(options.get("preconditions") or {}).get("uid") or "",
        by=write.identity,
        action=why.get("kbatch.dev/evicted-by", ""),
        beneficiary=why.get("kbatch.dev/evicted-for", ""),
    )


def bound_twice(writes: Iterable[Write]) -> Iterator[Violation]:
    """Pods (by uid) that were bound by more than one accepted request."""
    bound: dict[str, Write] = {}
    for write in writes:
        if write.resource == "pods/binding" and write.succeeded and not write.dry_run:
            uid = write.body.get("metadata", {}).get("uid") or f"{write.namespace}/{write.name}"
            first = bound.setdefault(uid, write)
            if first is not write:
                yield Violation(
                    "bound twice",
                    f"{write.namespace}/{write.name}",
                    f"to {_node(first)} by {first.identity}, to {_node(write)} by {write.identity}",
                    write.received,
                )


@dataclass(frozen=True)
class Term:
    """A time during which one replica held the Lease: from when it may have known to when it may have thought so."""

    holder: str
    since: float
    until: float


def terms(writes: Iterable[Write], lease: str) -> list[Term]:
    """Who held a Lease when, by the writes to it that the server accepted.

    A term begins when the request that won it was received, and ends when the one that ended it was answered, or when
    its last renewal has run out: in between nobody can say whether the old holder may still write. Who was robbed of
    the Lease before it ran out cannot know until it next asks.
    """
    writes = list(writes)
    found: list[Term] = []
    for write in lease_writes(writes, lease):
        spec = write.answer.get("spec") or {}
        holder = "" if write.verb == "delete" else spec.get("holderIdentity") or ""
        runs_out = write.received + float(spec.get("leaseDurationSeconds") or 0)
        last = found[-1] if found else None
        if last is not None and last.holder == holder and write.received <= last.until:
            found[-1] = Term(holder, last.since, runs_out)
            continue
        if last is not None and last.holder != holder:
            ended = write.answered
            if write.identity != last.holder and write.received < last.until - TOLERANCE:
                asked = (one.answered for one in writes if _asks(one, last.holder, lease) and one.received >= ended)
                ended = next(asked, last.until) + TOLERANCE
            found[-1] = Term(last.holder, last.since, min(last.until, ended))
        found.append(Term(holder, write.received, runs_out))
    return found


def _asks(write: Write, identity: str, lease: str) -> bool:
    return write.resource == "leases" and write.name == lease and write.identity == identity


def by_non_leaders(writes: Iterable[Write], lease: str, since: float = 0.0) -> Iterator[Violation]:
    """Writes of the scheduler's replicas, Leases apart, that were received while another one, or none, led.

    Only those received after `since` are judged; `writes` from the Lease's beginning on.
    """
    writes = list(writes)
    periods = [one for one in terms(writes, lease) if one.until >= since - _LONGEST_LEASE]
    for write in writes:
        if write.received < since or not write.identity or write.resource == "leases":
            continue
        if not any(one.holder == write.identity and one.since <= write.received <= one.until for one in periods):
            leading = [one.holder or "nobody" for one in periods if one.since <= write.received <= one.until]
            own = [one.until for one in periods if one.holder == write.identity and one.until <= write.received]
            late = f", {write.received - max(own):.2f} s after its own term" if own else ""
            yield Violation(
                "not the leader",
                write.identity,
                f"{write.verb} {write.resource} {write.namespace}/{write.name} ({write.status}) "
                f"while {' and '.join(leading) or 'nobody'} led{late}",
                write.received,
            )


def taken_early(writes: Iterable[Write], lease: str) -> Iterator[Violation]:
    """Replicas that took the Lease from another one before it had run out, and without its having been given back."""
    before: Write | None = None
    for write in lease_writes(writes, lease):
        if before is not None and write.identity:
            old, new = (one.answer.get("spec") or {} for one in (before, write))
            held, left = old.get("holderIdentity") or "", float(old.get("leaseDurationSeconds") or 0)
            early = before.received + left - write.received
            taken = new.get("holderIdentity") or ""
            if before.verb != "delete" and held and taken and held != taken and early > TOLERANCE:
                what = f"took the lease {early:.1f} s before that of {held} ended"
                yield Violation("two leaders", write.identity, what, write.received)
        before = write


def lease_writes(writes: Iterable[Write], lease: str) -> list[Write]:
    """The accepted writes to a Lease in the order in which they happened: each but the first was based on the last."""
    return sorted(
        (
            write
            for write in writes
            if write.resource == "leases"
            and (write.name or write.body.get("metadata", {}).get("name")) == lease
            and write.succeeded
        ),
        key=lambda write: write.answered,
    )


def _node(write: Write) -> str:
    return str(write.body.get("target", {}).get("name", "?"))


def _seconds(stamp: str) -> float:
    return dt.datetime.fromisoformat(stamp).timestamp()
