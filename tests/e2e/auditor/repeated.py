"""What the server's record shows of writes that are made again: a pod is bound once, evicted once, told of rarely."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator

from tests.e2e.auditor.allowances import AGAIN, OFTEN, OFTEN_SECONDS
from tests.e2e.auditor.audit_log import Write, eviction_of
from tests.e2e.auditor.rules import Violation


def bound_again(writes: Iterable[Write]) -> Iterator[Violation]:
    """Refused attempts to bind a pod (by uid) that was bound a while ago: who is to know that must not try."""
    answered: dict[str, float] = {}
    for write in writes:
        if write.resource != "pods/binding" or write.dry_run:
            continue
        uid = write.body.get("metadata", {}).get("uid") or f"{write.namespace}/{write.name}"
        if write.identity and not write.succeeded and uid in answered and write.received > answered[uid] + AGAIN:
            late = write.received - answered[uid]
            what = f"{write.identity} tried to bind it ({write.status}) {late:.1f} s after it was bound"
            yield Violation("bound again", f"{write.namespace}/{write.name}", what, write.received)
        if write.succeeded:
            answered.setdefault(uid, write.answered)


def evicted_twice(writes: Iterable[Write]) -> Iterator[Violation]:
    """Pods (by uid) for which more than one eviction was carried out by the scheduler's replicas."""
    seen: set[str] = set()
    for write in writes:
        eviction = eviction_of(write)
        if eviction is None or not eviction.by or not eviction.uid:
            continue
        if eviction.uid in seen:
            yield Violation("evicted twice", eviction.victim, f"by {eviction.by}", write.received)
        seen.add(eviction.uid)


def written_often(writes: Iterable[Write]) -> Iterator[Violation]:
    """Objects of which one replica wrote the status again and again."""
    recent: dict[tuple[str, str, str, str], deque[float]] = defaultdict(deque)
    told: set[tuple[str, str, str, str]] = set()
    for write in writes:
        if not write.identity or not write.resource.endswith("/status"):
            continue
        key = write.identity, write.resource, write.namespace, write.name
        times = recent[key]
        times.append(write.received)
        while times[0] <= write.received - OFTEN_SECONDS:
            times.popleft()
        if len(times) > OFTEN and key not in told:
            told.add(key)
            what = f"{write.identity} wrote its status {len(times)} times in {OFTEN_SECONDS:.0f} s"
            yield Violation("written often", f"{write.namespace}/{write.name}", what, write.received)
