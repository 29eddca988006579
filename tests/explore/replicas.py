"""Three webhook replicas that keep one ledger, stepped through by hand: `webhooks.commits` as it is, on its own clock.

An API server that does one thing at a time, when it is told to. A request waits on its wire until somebody has it
carried out and answered, or lost. What cannot be copied (a coroutine that waits) is made again by the same moves.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kbatch.api.names import ADMITTED_ANNOTATION
from kbatch.api.objects import PodGroup
from kbatch.kube.client import Api
from kbatch.kube.errors import ApiError, NoAnswerError
from kbatch.kube.informer import Batch
from kbatch.model.events import Delete, Event, Upsert
from tests.unit.webhooks.build import cores, group, quota
from webhooks.cluster_view import ClusterView
from webhooks.commits import Ledgers, UndecidedError
from webhooks.ledger import EXPIRY_MS, Claim, decode

REPLICAS: Final = 3
_MOMENT: Final = 0.006
"""Longer than a replica waits for more reviews before it decides the next ones."""
_PATIENCE: Final = 400


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose time goes on when it is told to."""

    def __init__(self) -> None:
        self.clock = 0.0
        super().__init__()

    def time(self) -> float:
        """The time that timers go by."""
        return self.clock

    def settle(self) -> None:
        """Run what can run."""
        for _ in range(_PATIENCE):
            self.call_soon(self.stop)
            self.run_forever()
            if not self._ready:  # type: ignore[attr-defined]
                return
        raise AssertionError("what a replica does never ends")

    def moment(self, seconds: float = _MOMENT) -> None:
        """Run what can run now, and after so many seconds."""
        self.settle()
        self.clock += seconds
        self.settle()


@dataclass
class Request:
    """One request on a wire."""

    method: str
    path: str
    body: Any
    answer: asyncio.Future[bytes]

    @property
    def kind(self) -> str:
        """What is asked for, in a word."""
        return f"{self.method} {self.path.rpartition('/')[2] if 'configmaps' not in self.path else 'ledger'}"


class Wire:
    """What a replica has for an API server."""

    def __init__(self) -> None:
        self.pending: list[Request] = []

    async def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        """Wait until somebody answers."""
        one = Request(method, path, body, asyncio.get_running_loop().create_future())
        self.pending.append(one)
        try:
            return await one.answer
        finally:
            self.pending.remove(one)


@dataclass
class Replica:
    """A webhook process.

    Attributes:
        watched: how much of what happened to groups its watch has told it.
        told: the answers that it got since it was last idle, in order; what it will do depends on nothing else.
        reviews: what it was asked and has not answered, by token.
    """

    wire: Wire
    view: ClusterView
    ledgers: Ledgers
    watched: int
    told: list[tuple[Any, ...]] = field(default_factory=list)
    reviews: dict[str, asyncio.Task[str]] = field(default_factory=dict)


@dataclass
class Cluster:
    """The API server's part, and the replicas.

    Attributes:
        sizes: cores that each group asks for, by its name's place. hard: cores that the quota allows.
        again: cores that each asks for the second time. edits: whether it is then a change of the group that stands,
            else another creation.
        groups: the groups that exist. log: what happened to groups, in order.
        admitted: groups that were granted and are not made yet, name and token.
        asked: how often each group's creation was asked for. over: names that may not come again.
    """

    loop: Loop
    sizes: tuple[int, ...]
    hard: int
    again: tuple[int, ...] = ()
    edits: bool = False
    version: int = 100
    now: int = 0
    stored: dict[str, Any] | None = None
    groups: dict[str, PodGroup] = field(default_factory=dict)
    log: list[Event] = field(default_factory=list)
    admitted: list[tuple[str, str]] = field(default_factory=list)
    asked: dict[str, int] = field(default_factory=dict)
    replicas: list[Replica] = field(default_factory=list)
    ghosts: list[tuple[str, Any]] = field(default_factory=list)
    broken: str = ""

    def __post_init__(self) -> None:
        self.loop.clock = 0.0
        self.again = self.again or self.sizes
        self.replicas = [self._started() for _ in range(REPLICAS)]

    def end(self) -> None:
        """Let nothing wait any more."""
        self.broken = "ended"
        asyncio.set_event_loop(None)
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.settle()

    def _started(self) -> Replica:
        """A process that has just listed what there is."""
        view, wire = ClusterView(), Wire()
        view.receive(Batch((Upsert(quota(requests_cpu=str(self.hard))),), complete=True))
        view.receive(Batch(tuple(Upsert(one) for one in self.groups.values()), complete=True))
        api: Api = wire  # type: ignore[assignment]
        ledgers = Ledgers(api, view, namespace="own", clock=self.loop.time, now=lambda: self.now)
        return Replica(wire, view, ledgers, len(self.log))

    # --- moves --------------------------------------------------------------------------------------------------------

    def moves(self) -> Iterator[str]:
        """The names of what may happen now."""
        for place, name in enumerate(self._names()):
            times = self.asked.get(name, 0)
            both = list(zip(self.sizes, self.again, strict=True))
            alike = [other for other in range(place) if both[other] == both[place]]
            # Of groups that are alike the first comes first. What was asked for is asked for again, whatever became of
            # it.
            if times == 1 or (times == 0 and all(self._names()[other] in self.asked for other in alike)):
                yield from (f"ask-{name}-{number}" for number in self._unlike())
        for number, replica in enumerate(self.replicas):
            for place, one in enumerate(replica.wire.pending):
                yield f"answer-{number}-{place}"
                if one.method != "GET":
                    yield f"lose-{number}"
                    yield f"drop-{number}"
            if replica.watched < len(self.log):
                yield f"watch-{number}"
            if replica.reviews:
                yield f"late-{number}"
            if replica.reviews or replica.watched < len(self.log) or replica.ledgers._accounts:
                yield f"crash-{number}"
        for name, token in self.admitted:
            yield f"make-{name}-{token}"
            yield f"abandon-{name}-{token}"
        for name in self.groups:
            yield f"delete-{name}"
        for place in range(len(self.ghosts)):
            yield f"ghost-{place}"
        if self._entries() and not self.admitted and not any(replica.reviews for replica in self.replicas):
            yield "expire"

    def _names(self) -> list[str]:
        return [f"g{place}" for place in range(len(self.sizes))]

    def _size(self, token: str) -> int:
        """How many cores the request asks for that has this token."""
        name, _, times = token.partition("t")
        return (self.sizes if times == "1" else self.again)[int(name[1:])]

    def _holds(self, name: str) -> int:
        """How many cores the group has that stands."""
        return self._size((self.groups[name].metadata.annotations or {})[ADMITTED_ANNOTATION])

    def _unlike(self) -> list[int]:
        """Replicas, one of each kind."""
        seen: dict[str, int] = {}
        for number, replica in enumerate(self.replicas):
            seen.setdefault(repr(self._of(replica)), number)
        return list(seen.values())

    def take(self, move: str) -> None:
        """Let it happen, and whatever follows at once."""
        what, *rest = move.split("-")
        getattr(self, f"_{what}")(*rest)
        self.loop.moment()
        self._collect()

    def _ask(self, name: str, number: str) -> None:
        self.asked[name] = times = self.asked.get(name, 0) + 1
        replica, token = self.replicas[int(number)], f"{name}t{times}"
        claim = Claim(name, cores(self._size(token)), token)
        replica.reviews[token] = self.loop.create_task(self._review(replica, claim))

    async def _review(self, replica: Replica, claim: Claim) -> str:
        try:
            refused = await replica.ledgers.admit("ns", claim, dry_run=False)
        except UndecidedError:
            return "undecided"
        return "granted" if refused is None else "refused"

    def _collect(self) -> None:
        """Take note of what was answered to reviews."""
        for replica in self.replicas:
            for token, task in list(replica.reviews.items()):
                if task.done():
                    del replica.reviews[token]
                    name = token.partition("t")[0]
                    if task.result() == "granted":
                        self.admitted.append((name, token))
            if not replica.reviews and not replica.wire.pending:
                replica.told.clear()

    def _answer(self, number: str, place: str) -> None:
        replica = self.replicas[int(number)]
        one = replica.wire.pending[int(place)]
        replica.told.append((one.kind, *self._seen()))
        try:
            one.answer.set_result(self.serve(one.method, one.path, one.body))
        except ApiError as error:
            one.answer.set_exception(error)

    def _lose(self, number: str) -> None:
        """A write is carried out, and its answer lost."""
        replica = self.replicas[int(number)]
        one = next(each for each in replica.wire.pending if each.method != "GET")
        replica.told.append(("lost", *self._seen()))
        with contextlib.suppress(ApiError):
            self.serve(one.method, one.path, one.body)
        one.answer.set_exception(NoAnswerError(one.method, one.path, sent=True, why="lost"))

    def _drop(self, number: str) -> None:
        """A write gets no answer, and is carried out later, if at all."""
        replica = self.replicas[int(number)]
        one = next(each for each in replica.wire.pending if each.method != "GET")
        replica.told.append(("lost", *self._seen()))
        self.ghosts.append((one.method, one.body))
        one.answer.set_exception(NoAnswerError(one.method, one.path, sent=True, why="no answer"))

    def _ghost(self, place: str) -> None:
        method, body = self.ghosts.pop(int(place))
        with contextlib.suppress(ApiError):
            self.serve(method, "/configmaps", body)

    def _watch(self, number: str) -> None:
        replica = self.replicas[int(number)]
        replica.view.receive(Batch((self.log[replica.watched],), complete=True))
        replica.watched += 1

    def _late(self, number: str) -> None:
        """Nobody waits any more for what this replica was asked."""
        replica = self.replicas[int(number)]
        account = replica.ledgers._accounts["ns"]
        for token, task in replica.reviews.items():
            account.withdrawn.add(token)  # as the deadline does, which would end those of all replicas
            task.cancel()
        replica.told.append(("late", *sorted(replica.reviews)))
        replica.reviews.clear()

    def _crash(self, number: str) -> None:
        replica = self.replicas[int(number)]
        for task in replica.reviews.values():
            task.cancel()
        for account in replica.ledgers._accounts.values():
            if account.busy is not None:
                account.busy.cancel()
        self.ghosts += [(one.method, one.body) for one in replica.wire.pending if one.method != "GET"]
        self.replicas[int(number)] = self._started()

    def _make(self, name: str, token: str) -> None:
        self.admitted.remove((name, token))
        change = self.edits and not token.endswith("t1")
        if (name in self.groups) is not change:
            return  # the name is taken, or there is nothing to change
        self.version += 1
        made = self.groups[name] = group(name, str(self._size(token)), version=self.version, token=token)
        self.log.append(Upsert(made))

    def _abandon(self, name: str, token: str) -> None:
        self.admitted.remove((name, token))

    def _delete(self, name: str) -> None:
        self.version += 1
        del self.groups[name]
        self.log.append(Delete(PodGroup, "ns", name))

    def _expire(self) -> None:
        self.now += EXPIRY_MS + 1

    # --- the API server -----------------------------------------------------------------------------------------------

    def serve(self, method: str, path: str, body: Any) -> bytes:
        """Carry a request out.

        Raises:
            ApiError: as the API server would answer.
        """
        if path.endswith("podgroups"):
            return self._list([msgspec.to_builtins(one) for one in self.groups.values()])
        if path.endswith("resourcequotas"):
            return self._list([msgspec.to_builtins(quota(requests_cpu=str(self.hard)))])
        if "configmaps" not in path:
            return b'{"metadata": {"uid": "first"}}'
        if method == "GET":
            if self.stored is None:
                raise ApiError(404, "NotFound")
            return json.dumps(self.stored).encode()
        if method == "POST" and self.stored is not None:
            raise ApiError(409, "AlreadyExists")
        if method == "PUT":
            if self.stored is None:
                raise ApiError(404, "NotFound")
            if self.stored["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
                raise ApiError(409, "Conflict")
        self.version += 1
        made = json.loads(json.dumps(body))
        made["metadata"]["resourceVersion"] = str(self.version)
        self.stored = made
        return json.dumps(made).encode()

    def _list(self, items: list[Any]) -> bytes:
        return json.dumps({"metadata": {"resourceVersion": str(self.version)}, "items": items}).encode()

    # --- what there is ------------------------------------------------------------------------------------------------

    def _entries(self) -> list[tuple[Any, ...]]:
        """The ledger as it stands."""
        if self.stored is None:
            return []
        ledger = decode(self.stored["data"]["entries"], self.stored["metadata"]["annotations"]["kbatch.dev/floor"])
        return [(one.name, one.token, self.now - one.at > EXPIRY_MS) for one in ledger.all()]

    def _seen(self) -> tuple[Any, ...]:
        """What a request would find; versions as they are."""
        stored = self.stored
        head = () if stored is None else (
            _Version(stored["metadata"]["resourceVersion"]),
            _Version(stored["metadata"]["annotations"]["kbatch.dev/floor"]),
        )  # fmt: skip
        live = [
            (name, (one.metadata.annotations or {})[ADMITTED_ANNOTATION], _Version(one.metadata.resource_version))
            for name, one in sorted(self.groups.items())
        ]
        return (head, tuple(self._entries()), tuple(live))

    def _of(self, replica: Replica) -> tuple[Any, ...]:
        groups = replica.view.groups.get("ns")
        known: tuple[Any, ...] = ()
        if groups is not None:
            known = (
                tuple(sorted(groups.live)),
                tuple(sorted((token, _Version(str(version))) for token, version in groups.seen.items())),
            )
        accounts = []
        for account in replica.ledgers._accounts.values():
            entries = tuple((one.name, one.token, self.now - one.at > EXPIRY_MS) for one in account.ledger.all())
            accounts.append(
                (
                    None if account.version is None else _Version(account.version or "0"),
                    _Version(str(account.ledger.floor)),
                    entries,
                    bool(account.owner),
                    account.busy is not None,
                    tuple(sorted(account.withdrawn)),
                )
            )
        return (
            known,
            _Version(str(replica.view.version)),
            len(self.log) - replica.watched,
            tuple(accounts),
            tuple(sorted(replica.reviews)),
            tuple(one.kind for one in replica.wire.pending),
            tuple(replica.told),
        )

    def canonical(self) -> Any:
        """What is alike of states that differ only in which replica is which, and in how far versions have come."""
        behind = max((len(self.log) - replica.watched for replica in self.replicas), default=0)
        log = tuple(
            (type(event).__name__, event.obj.metadata.name if isinstance(event, Upsert) else event.name)
            for event in self.log[len(self.log) - behind :]
        )
        ghosts = sorted(
            repr((method, body["data"], _Version(body["metadata"].get("resourceVersion", "0"))))
            for method, body in self.ghosts
        )
        form = (
            self._seen(),
            log,
            sorted(self.admitted),
            sorted(self.asked.items()),
            sorted(repr(self._of(replica)) for replica in self.replicas),
            ghosts,
        )
        return _ranked(repr(form))

    # --- checks -------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """The promise: what exists, and what was granted and may yet come to exist, is within the quota."""
        most = {name: self._holds(name) for name in self.groups}
        for name, token in self.admitted:
            most[name] = max(most.get(name, 0), self._size(token))
        total = sum(most.values())
        assert total <= self.hard, f"{total} cores are granted or taken by {sorted(most)}, {self.hard} are allowed"

    def check_rest(self) -> None:
        """Left in peace, all comes to an end, and what is free then, and no more, is granted by every replica."""
        for _ in range(_PATIENCE):
            move = self._quiet_at_last()
            if move is None:
                break
            self.take(move)
            self.check()
        else:
            raise AssertionError("left in peace, the replicas never come to rest")
        self.now += EXPIRY_MS + 1
        self.ghosts.clear()
        free = self.hard - sum(self._holds(name) for name in self.groups)
        for number, replica in enumerate(self.replicas):
            assert self._probe(replica, f"more{number}", free + 1) == "refused", "more is granted than is free"
            if free:
                token = f"probe{number}"
                answer = self._probe(replica, token, free)
                assert answer == "granted", f"{free} cores are free, and replica {number} says {answer}"
                self.now += EXPIRY_MS + 1  # and nobody makes it

    def quiet(self) -> str | None:
        """What happens next if nothing goes wrong; watches lag."""
        for number, replica in enumerate(self.replicas):
            if replica.wire.pending:
                return f"answer-{number}-0"
        if self.admitted:
            return "make-{}-{}".format(*self.admitted[0])
        return None

    def _quiet_at_last(self) -> str | None:
        """The same; then watches tell."""
        behind = (number for number, replica in enumerate(self.replicas) if replica.watched < len(self.log))
        return self.quiet() or next((f"watch-{number}" for number in behind), None)

    def _probe(self, replica: Replica, token: str, size: int) -> str:
        task = self.loop.create_task(self._review(replica, Claim(token, cores(size), token)))
        for _ in range(_PATIENCE):
            self.loop.moment()
            if task.done():
                return task.result()
            if replica.wire.pending:
                self._answer(str(self.replicas.index(replica)), "0")
        raise AssertionError("a review has no answer")


class _Version:
    """A version, shown so that it can be replaced by its rank."""

    def __init__(self, number: str) -> None:
        self.number = number

    def __repr__(self) -> str:
        return f"<{self.number}>"

    def __lt__(self, other: _Version) -> bool:
        return int(self.number or 0) < int(other.number or 0)


def _ranked(text: str) -> str:
    """The text with every version replaced by its place among them."""
    numbers = sorted({int(one or 0) for one in re.findall(r"<(\d*)>", text)})
    rank = {number: place for place, number in enumerate(numbers)}
    return re.sub(r"<(\d*)>", lambda found: f"<{rank[int(found.group(1) or 0)]}>", text)
