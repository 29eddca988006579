"""The auditor: watches an API server on its own, and says what must not have happened.

It shares no code with the scheduler. What it sees it keeps in a `World`; rules judge every change of it, and the
server's audit log: who was evicted for whom as it goes on, all of it at the end. Outages are counted out: lasting is
counted while everything is seen and somebody leads.
"""

from __future__ import annotations

import bisect
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tests.e2e.auditor import audit_log, repeated
from tests.e2e.auditor.allowances import Limits
from tests.e2e.auditor.places import NotOverfull, TruePods, Welcome, WithinCaps
from tests.e2e.auditor.promises import WithinBudgets, WithinQuotas
from tests.e2e.auditor.rules import (
    BeneficiaryPlaced,
    BoundOnce,
    Eviction,
    Hindered,
    PodChange,
    Rule,
    TrueConditions,
    Violation,
    WholeGangs,
    WithinAllocatable,
    WithinDeserved,
)
from tests.e2e.auditor.watch import PATHS, Watcher
from tests.e2e.auditor.world import World


class Judge:
    """The world and the rules, without the eyes: told of everything with its time, as a test may make it up."""

    def __init__(
        self,
        limits: Limits,
        *,
        scheduler: str = "kube-batch",
        lease: str = "kbatch-scheduler",
        phases: bool = False,
        hindered: Hindered = lambda *_: 0.0,
    ) -> None:
        self.world = World()
        self.violations: list[Violation] = []
        self.evictions: Counter[str] = Counter()
        """By action: the scheduler's victims."""
        self._lease = lease
        self._term: tuple[str, int | None] | None = None
        self._renewed = float("-inf")
        self._blind: set[str] = set()
        self._rules: tuple[Rule, ...] = (
            BoundOnce(),
            WithinAllocatable(scheduler, limits.race),
            Welcome(scheduler, limits.race),
            WithinCaps(scheduler, limits.race),
            NotOverfull(limits.overfull),
            WithinBudgets(limits.race),
            WithinQuotas(limits.untrue),
            TruePods(limits.untrue),
            WholeGangs(limits.partial),
            BeneficiaryPlaced(limits.beneficiary),
            WithinDeserved(),
            TrueConditions(limits.untrue, limits.unsaid, phases=phases, hindered=hindered),
        )

    def told(self, kind: str, change: str, obj: dict[str, Any], at: float) -> None:
        """Something was seen of the cluster, or is seen no more (LOST) or again (SEEN)."""
        if change in {"LOST", "SEEN"}:
            self._saw(kind, seen=change == "SEEN", at=at)
            return
        gone = change == "DELETED"
        world = self.world
        if kind == "Pod":
            self._pod(obj, gone=gone, at=at)
        elif kind == "Lease":
            self._lease_changed(obj, gone=gone, at=at)
        elif kind == "Node" and gone:
            world.drop_node(obj, at)
        elif gone:
            drop = {
                "PodGroup": world.drop_group, "Queue": world.drop_queue,
                "PodDisruptionBudget": world.drop_budget, "ResourceQuota": world.drop_quota,
            }  # fmt: skip
            drop[kind](obj)
        else:
            put = {
                "Node": world.put_node, "PodGroup": world.put_group, "Queue": world.put_queue,
                "PodDisruptionBudget": world.put_budget, "ResourceQuota": world.put_quota,
            }  # fmt: skip
            put[kind](obj, at)

    def evicted(self, eviction: Eviction, at: float) -> None:
        """The server's record shows an eviction."""
        if eviction.by:
            self.evictions[eviction.action] += 1
        for rule in self._rules:
            self._add(rule.evicted(self.world, eviction, at))

    @property
    def longest(self) -> dict[str, float]:
        """How long what must not last has lasted at most, in seconds, by what it was."""
        return {what: seconds for rule in self._rules for what, seconds in rule.longest.items() if seconds}

    def tick(self, at: float) -> None:
        """Time has passed. Nothing is judged by it while something is unseen, or while nobody leads."""
        if self._blind or at - self._renewed > _FRESH:
            self._interrupt(at, blind=bool(self._blind))
            return
        for rule in self._rules:
            self._add(rule.tick(self.world, at))

    def _pod(self, obj: dict[str, Any], *, gone: bool, at: float) -> None:
        if gone:
            change = PodChange(self.world.drop_pod(obj), None)
        else:
            before, after = self.world.put_pod(obj, at)
            change = PodChange(before, after)
        for rule in self._rules:
            self._add(rule.seen(self.world, change, at))

    def _lease_changed(self, obj: dict[str, Any], *, gone: bool, at: float) -> None:
        if obj["metadata"]["name"] != self._lease:
            return
        spec = obj.get("spec") or {}
        # A process that was started anew leads under its old name, in a new term.
        term = (
            None if gone or not spec.get("holderIdentity") else (spec["holderIdentity"], spec.get("leaseTransitions"))
        )
        if term != self._term:
            self._term = term
            self._interrupt(at, blind=False)
        if term is not None:
            self._renewed = at

    def _saw(self, kind: str, *, seen: bool, at: float) -> None:
        if seen:
            self._blind.discard(kind)
        else:
            self._blind.add(kind)
        self._interrupt(at, blind=True)

    def _interrupt(self, at: float, *, blind: bool) -> None:
        for rule in self._rules:
            rule.interrupted(at, blind=blind)

    def _add(self, found: Any) -> None:
        self.violations.extend(found)


_FRESH = 5.0
"""Seconds after its last renewal in which a leader counts as at work."""


def recorded(writes: list[audit_log.Write], lease: str, since: float = 0.0) -> list[Violation]:
    """What the server's record shows of the time after `since` (wall clock); `writes` from the Lease's beginning on."""
    found = [
        *audit_log.bound_twice(writes),
        *audit_log.taken_early(writes, lease),
        *audit_log.by_non_leaders(writes, lease, since),
        *repeated.bound_again(writes),
        *repeated.evicted_twice(writes),
        *repeated.written_often(writes),
    ]
    return [violation for violation in found if violation.at >= since]


class Auditor:
    """A `Judge` with eyes, working in threads of its own while the context is open.

    Args:
        kubeconfig: the administrator's.
        log: the API server's audit log, written with `audit_log.policy`.
        options: as for `Judge`.
    """

    def __init__(
        self,
        kubeconfig: Path,
        log: audit_log.AuditLog,
        limits: Limits | None = None,
        *,
        lease: str = "kbatch-scheduler",
        clock: Callable[[], float] = time.monotonic,
        **options: Any,
    ) -> None:
        self._lease = lease
        self._judge = Judge(limits or Limits(), lease=lease, **options)
        self._log = log
        self._clock = clock
        self._begun = time.time()
        self._known = 0
        """Writes of the log that the judge has been told of."""
        self._news: queue.SimpleQueue[tuple[str, str, dict[str, Any], float] | None] = queue.SimpleQueue()
        self._watchers = [Watcher(kubeconfig, kind, self._tell) for kind in PATHS]
        self._thread = threading.Thread(target=self._run, name="auditor", daemon=True)
        self._failure: BaseException | None = None
        self.on_the_wire = 0
        """Writes out of turn to be overlooked: one for each time that a test stopped a process where it stood. That may
        have been between the last look at the clock and the write itself; what it does is judged by all other rules."""

    def __enter__(self) -> Self:
        self._thread.start()
        for watcher in self._watchers:
            watcher.start()
        for watcher in self._watchers:
            assert watcher.listed.wait(30), f"{watcher.name} sees nothing"
        return self

    def __exit__(self, *_: object) -> None:
        for watcher in self._watchers:
            watcher.stop()
        self._news.put(None)
        self._thread.join(timeout=30)

    def bound(self, namespace: str) -> int:
        """Pods of a namespace that are known to have a node."""
        return sum(
            bool(pod.node) for pod in list(self._judge.world.pods.values()) if pod.key.startswith(f"{namespace}/")
        )

    def evictions(self, action: str) -> int:
        """Victims of an action so far."""
        return self._judge.evictions[action]

    def look(self) -> World:
        """The world as it is known now. Changes while you read it: for waiting, not for judging."""
        return self._judge.world

    def writes(self) -> list[audit_log.Write]:
        """What the server has recorded since this auditor began."""
        writes = self._log.writes()
        return writes[bisect.bisect_left(writes, self._begun, key=lambda write: write.received) :]

    def verdict(self) -> list[Violation]:
        """All that was found so far; the audit log is judged anew each time, all of it."""
        if self._failure is not None:
            raise AssertionError("the auditor itself failed") from self._failure
        seen = list(self._judge.violations)
        return [*seen, *recorded(self._log.writes(), self._lease, self._begun)]

    def silent(self) -> None:
        """Fail, with all that was found, unless nothing was."""
        found = self.verdict()
        print(f"\nauditor: {len(self.writes())} writes, evictions {dict(self._judge.evictions)}, at most:")
        for what, seconds in sorted(self._judge.longest.items()):
            print(f"  {seconds:5.1f} s  {what}")
        late = [violation for violation in found if violation.rule == "not the leader"]
        if len(late) <= self.on_the_wire:
            found = [violation for violation in found if violation not in late]
        assert not found, "\n".join(map(str, found[:40]))

    def _tell(self, kind: str, change: str, obj: dict[str, Any]) -> None:
        self._news.put((kind, change, obj, self._clock()))

    def _tell_of_evictions(self, at: float) -> None:
        new = self._log.recorded(self._known)
        self._known += len(new)
        for write in new:
            eviction = audit_log.eviction_of(write)
            if eviction is not None and write.received >= self._begun:
                self._judge.evicted(eviction, at)

    def _run(self) -> None:
        last = 0.0
        while True:
            try:
                news = self._news.get(timeout=0.2)
            except queue.Empty:
                news = ("", "", {}, self._clock())
            if news is None:
                return
            kind, change, obj, at = news
            try:
                if kind:
                    self._judge.told(kind, change, obj, at)
                if at - last >= 0.2:
                    last = at
                    self._tell_of_evictions(at)
                    self._judge.tick(at)
            except Exception as error:  # noqa: BLE001 - shown by `verdict`, in the thread of the test
                self._failure = self._failure or error
