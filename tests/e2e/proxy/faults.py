"""What can go wrong between a client and its API server, and how often: drawn with a seed, so that it can be repeated.

Equal seeds draw equal faults in the order in which requests arrive; that order itself is the client's and the server's.
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from tests.e2e.auditor.allowances import RECOVERY


class Action(StrEnum):
    """What is done to a request, or to a watch."""

    REFUSE = "refuse"
    """Answered with an error status; the server never sees it."""
    DROP = "drop"
    """The connection is closed; the server never sees it."""
    LOSE = "lose"
    """Carried out, and the connection closed instead of an answer."""
    SLOW = "slow"
    """Carried out after a while."""
    LATE = "late"
    """Carried out at once, answered after a while."""
    TRUNCATE = "truncate"
    """Carried out, and the connection closed in the middle of the answer."""
    CUT = "cut"
    """A watch: ended in the middle of a line, after a while."""
    DELAY = "delay"
    """A watch: everything comes late by a while."""
    EXPIRE = "expire"
    """A watch: ends with a 410, after a while."""


WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
ANY = WRITES | {"GET"}
WATCH_ACTIONS = frozenset({Action.CUT, Action.DELAY, Action.EXPIRE})


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    Attributes:
        probability: of a request that matches.
        methods: which methods; `WATCH` for watches, which nothing else matches.
        path: regular expression, searched in the path; that of a list's further pages ends in `?continue`.
        status: of REFUSE.
        retry_after: the header, with REFUSE.
        seconds: at most so long, for all that takes a while; drawn uniformly.
        least: at least so long.
        message: of REFUSE.
    """

    action: Action
    probability: float
    methods: frozenset[str] = ANY
    path: str = ""
    status: int = 500
    retry_after: float | None = None
    seconds: float = 1.0
    least: float = 0.0
    message: str = "injected by the test's proxy"

    def matches(self, method: str, path: str) -> bool:
        return method in self.methods and re.search(self.path, path) is not None


def watches(action: Action, probability: float, *, seconds: float) -> Fault:
    """A fault of watches."""
    return Fault(action, probability, frozenset({"WATCH"}), seconds=seconds)


@dataclass(frozen=True)
class Injection:
    """A fault that was drawn for one request, at a time of day, and at a moment of the monotonic clock."""

    at: float
    moment: float
    method: str
    path: str
    action: Action
    status: int
    seconds: float


@dataclass
class Script:
    """Draws faults, and keeps a record of each. May be told to be quiet, and changed at any time, from any thread."""

    seed: int
    faults: Sequence[Fault] = ()
    log: Path | None = None
    """A file that gets one JSON line for each injection."""
    page: int | None = None
    """Lists are given in pages of so many objects at most, whatever is asked for: so that there are further pages."""
    injections: list[Injection] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)

    def draw(self, method: str, path: str) -> tuple[Fault, float] | None:
        """What happens to a request, and the seconds drawn for it; None: nothing."""
        with self._lock:
            for fault in self.faults:
                if fault.matches(method, path) and self._draw.random() < fault.probability:
                    seconds = self._draw.uniform(fault.least, fault.seconds)
                    self._record(
                        Injection(
                            time.time(), time.monotonic(), method, path, fault.action, fault.status, round(seconds, 3)
                        )
                    )
                    return fault, seconds
        return None

    def watch_delay(self) -> float:
        """Seconds by which a watch may be late: a line may come while the one before it is held back."""
        return max((2 * one.seconds for one in self.faults if one.action is Action.DELAY), default=0.0)

    def hindered(self, group: str, since: float, until: float) -> float:
        """Seconds between two moments (monotonic) in which a client was kept from reading or writing about a group.

        `group` is `namespace/name`; its pods' names begin with its own. Counted are faults of requests about these, and
        the ends of watches of pods and groups; each with `RECOVERY` for the client to try again.
        """
        namespace, _, name = group.partition("/")
        own = re.compile(f"/namespaces/{re.escape(namespace)}/(podgroups/{re.escape(name)}/|pods/{re.escape(name)}-)")
        spans = []
        for one in list(self.injections):
            if one.moment > until:
                break
            everybody = re.search(r"/(pods|podgroups)$", one.path) is not None and one.method in {"GET", "WATCH"}
            if (everybody and one.action is not Action.DELAY) or own.search(one.path):
                late = one.action in {Action.CUT, Action.EXPIRE}
                begin = one.moment + one.seconds if late else one.moment
                spans.append((max(begin, since), min(one.moment + one.seconds + RECOVERY, until)))
        total, end = 0.0, since
        for begin, stop in sorted(spans):
            total += max(0.0, stop - max(begin, end))
            end = max(end, stop)
        return total

    def quiet(self) -> None:
        """Inject nothing any more."""
        self.faults = ()

    def counts(self) -> dict[str, int]:
        """How often each was injected: `bind lose`, `watch cut`, `evict refuse 403`, `page refuse 410`."""
        found: Counter[str] = Counter()
        for one in self.injections:
            kind = "watch" if one.method == "WATCH" else "read" if one.method == "GET" else "write"
            kind = "bind" if one.path.endswith("/binding") else "lease" if "/leases/" in one.path else kind
            kind = "evict" if one.path.endswith("/eviction") else "page" if one.path.endswith("?continue") else kind
            status = f" {one.status}" if one.action is Action.REFUSE else ""
            found[f"{kind} {one.action}{status}"] += 1
        return dict(sorted(found.items()))

    def _record(self, injection: Injection) -> None:
        self.injections.append(injection)
        if self.log is not None:
            with self.log.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(asdict(injection)) + "\n")


BINDING = r"/binding$"
EVICTION = r"/eviction$"
FURTHER_PAGE = r"\?continue$"
DENIED = 'admission webhook "foreign.example.com" denied the request: injected by the test'


def everything(intensity: float = 1.0) -> tuple[Fault, ...]:
    """A bad day: a bit of all of it. `intensity` multiplies every probability."""
    p = intensity
    writes = WRITES
    return (
        Fault(Action.LOSE, 0.05 * p, path=BINDING),
        Fault(Action.DROP, 0.03 * p, path=BINDING),
        Fault(Action.REFUSE, 0.03 * p, path=BINDING, status=409),
        Fault(Action.REFUSE, 0.03 * p, writes, status=500),
        Fault(Action.REFUSE, 0.02 * p, writes, status=429, retry_after=1),
        Fault(Action.REFUSE, 0.01 * p, writes, status=503),
        Fault(Action.LOSE, 0.02 * p, writes),
        Fault(Action.SLOW, 0.05 * p, seconds=2.0),
        Fault(Action.LATE, 0.05 * p, seconds=2.0),
        Fault(Action.REFUSE, 0.02 * p, frozenset({"GET"}), status=500),
        watches(Action.CUT, 0.4 * p, seconds=5.0),
        watches(Action.EXPIRE, 0.2 * p, seconds=5.0),
        watches(Action.DELAY, 0.2 * p, seconds=1.5),
    )


def hard(intensity: float = 1.0) -> tuple[Fault, ...]:
    """A worse day: besides, answers come only after a client has given up, or in part, pages expire, evictions fail."""
    p = intensity
    return (
        *time_outs(0.002 * p),
        Fault(Action.TRUNCATE, 0.03 * p),
        # Of each page: a list of all pods of ten minutes has two dozen, and is to succeed now and then.
        Fault(Action.REFUSE, 0.02 * p, frozenset({"GET"}), FURTHER_PAGE, status=410),
        Fault(Action.REFUSE, 0.2 * p, path=EVICTION, status=403, message=DENIED),
        Fault(Action.REFUSE, 0.1 * p, path=EVICTION, status=500),
        *everything(intensity),
    )


def time_outs(part: float, methods: frozenset[str] = ANY) -> tuple[Fault, ...]:
    """So large a part of all requests is carried out, and answered only when the client has given up (after 30 s)."""
    return (Fault(Action.LATE, part, methods, seconds=34.0, least=31.0),)


def broken_lists(part: float) -> tuple[Fault, ...]:
    """So large a part of all further pages of lists expires; and lists are needed, as watches of pods and groups do."""
    return (
        Fault(Action.REFUSE, part, frozenset({"GET"}), FURTHER_PAGE, status=410),
        Fault(Action.EXPIRE, 0.8, frozenset({"WATCH"}), r"/(pods|podgroups)$", seconds=8.0, least=3.0),
    )


def refused_evictions(part: float) -> tuple[Fault, ...]:
    """So large a part of all evictions is refused: by somebody's webhook, for a budget's sake, and for no reason."""
    return (
        Fault(Action.REFUSE, part / 2, path=EVICTION, status=403, message=DENIED),
        Fault(Action.REFUSE, part / 4, path=EVICTION, status=429, message="needs 3 healthy pods, has 3"),
        Fault(Action.REFUSE, part / 4, path=EVICTION, status=500),
    )


def slow(seconds: float) -> tuple[Fault, ...]:
    """A server that takes so long for every request."""
    return (Fault(Action.SLOW, 1.0, seconds=seconds, least=seconds),)


def foreign_webhook(part: float) -> tuple[Fault, ...]:
    """Somebody else's webhook refuses so large a part of all binds."""
    return (Fault(Action.REFUSE, part, path=BINDING, status=403, message=DENIED),)
