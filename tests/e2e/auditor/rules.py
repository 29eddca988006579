"""What must never be seen from outside, one class for each rule.

A rule looks at the world after each event (`seen`) and now and then (`tick`), and calls what it finds a violation.
Times are seconds of one clock, whichever the caller uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

from tests.e2e.auditor.quantities import Amounts
from tests.e2e.auditor.world import GroupFact, PodFact, World, allocated, deserved

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Violation:
    """Something that must not happen, and did."""

    rule: str
    about: str
    what: str
    at: float = 0.0
    """Wall clock, where the server recorded it."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.about}: {self.what}"


@dataclass(frozen=True)
class PodChange:
    """One pod before and after an event; None where it was not there, or is no more."""

    before: PodFact | None
    after: PodFact | None

    @property
    def bound(self) -> bool:
        """Whether the event is its bind."""
        return self.after is not None and bool(self.after.node) and self.before is not None and not self.before.node


@dataclass(frozen=True)
class Eviction:
    """An eviction that the server carried out, as its record shows it."""

    victim: str
    uid: str
    """The victim's, or empty where whoever evicted it did not say."""
    by: str
    """Which of the scheduler's replicas; empty: somebody else, who owes nobody an answer."""
    action: str
    beneficiary: str


class Rule:
    """What all rules can be told; each looks at what concerns it."""

    def seen(self, world: World, change: PodChange, at: float) -> Iterable[Violation]:
        """A pod changed."""
        return ()

    def evicted(self, world: World, eviction: Eviction, at: float) -> Iterable[Violation]:
        """The server carried out an eviction; the pod may have been seen to go already, or not yet."""
        return ()

    def tick(self, world: World, at: float) -> Iterable[Violation]:
        """Time has passed."""
        return ()

    def interrupted(self, at: float, *, blind: bool) -> None:
        """Nobody led for a while, or (`blind`) not everything was seen: what lasts is counted from now on."""

    @property
    def longest(self) -> dict[str, float]:
        """How long what must not last has lasted at most, in seconds, by what it was."""
        return {}


class Lasting(Generic[K]):
    """Since when each of some things is as it is."""

    def __init__(self) -> None:
        self._since: dict[K, float] = {}

    def keep(self, now: Iterable[K], at: float) -> Iterator[tuple[K, float]]:
        """Of the things that are so now, each with how long it has been; the others are forgotten."""
        self._since = {key: self._since.get(key, at) for key in now}
        for key, since in self._since.items():
            yield key, at - since

    def restart(self, at: float) -> None:
        """Count from now."""
        self._since = dict.fromkeys(self._since, at)


class ForAMoment(Rule, Generic[K]):
    """What may be for a moment, and not longer. What lasts is counted anew after an interruption.

    Args:
        limit: how long that moment may be, in seconds.

    Attributes:
        what: what lasts, in words.
        again: whether what has ended is told of again when it comes back.
    """

    what: str
    again = False

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._lasts: Lasting[K] = Lasting()
        self._told: set[K] = set()
        self._longest = 0.0

    def now(self, world: World) -> Mapping[K, str]:
        """The things that are so now, each with what is wrong with it."""
        raise NotImplementedError

    def violation(self, key: K, what: str) -> Violation:
        """What is told of a thing that was so for too long."""
        raise NotImplementedError

    def tick(self, world: World, at: float) -> Iterable[Violation]:
        now = self.now(world)
        for key, seconds in self._lasts.keep(now, at):
            self._longest = max(self._longest, seconds)
            if seconds > self._limit and key not in self._told:
                self._told.add(key)
                yield self.violation(key, f"{now[key]} for {seconds:.0f} s")
        if self.again:
            self._told &= now.keys()

    def interrupted(self, at: float, *, blind: bool) -> None:
        self._lasts.restart(at)

    @property
    def longest(self) -> dict[str, float]:
        return {self.what: self._longest}


class BoundOnce(Rule):
    """A pod has one node in its life."""

    def seen(self, world: World, change: PodChange, at: float) -> Iterable[Violation]:
        before, after = change.before, change.after
        if before is not None and after is not None and before.node and before.node != after.node:
            yield Violation("bound twice", after.key, f"was on {before.node}, now on {after.node or 'none'}")


class WithinAllocatable(Rule):
    """No bind of the audited scheduler takes a node over what it can hold, or goes to one that takes no pods.

    Args:
        scheduler: whose binds are judged.
        race: seconds within which nobody can know of another scheduler's bind, or of the end of a node, or its closing.
    """

    def __init__(self, scheduler: str, race: float) -> None:
        self._scheduler = scheduler
        self._race = race

    def seen(self, world: World, change: PodChange, at: float) -> Iterable[Violation]:
        pod = change.after
        if not change.bound or pod is None or pod.scheduler != self._scheduler:
            return
        if pod.node not in world.nodes:
            gone = world.gone_nodes.get(pod.node)
            if gone is None or at - gone > self._race:
                yield Violation("over allocatable", pod.node, f"{pod.key} was bound to a node that is not there")
            return
        closed = world.closed_nodes.get(pod.node)
        if closed is not None and at - closed > self._race:
            yield Violation(
                "closed node", pod.node, f"{pod.key} was bound to it {at - closed:.1f} s after it was closed"
            )
        used: Amounts = {}
        for other in world.on_node[pod.node].values():
            late = other.scheduler != self._scheduler and at - (other.bound_at or 0.0) <= self._race
            if other.holds and not late:
                for name, amount in other.request.items():
                    used[name] = used.get(name, Fraction(0)) + amount
        for name, amount in used.items():
            has = world.nodes[pod.node].get(name, Fraction(0))
            if amount > has and pod.request.get(name):
                yield Violation(
                    "over allocatable", pod.node, f"{pod.key} takes {name} to {float(amount):g} of {float(has):g}"
                )


class WholeGangs(ForAMoment[str]):
    """A gang whose pods all exist is placed whole, or not at all, but for a moment."""

    what = "placed in part"

    def now(self, world: World) -> Mapping[str, str]:
        return {
            group.key: f"{world.placed(group.key)} of {group.minimum} placed"
            for group in world.groups.values()
            if partial(world, group)
        }

    def violation(self, key: str, what: str) -> Violation:
        return Violation("partial gang", key, what)


def partial(world: World, group: GroupFact) -> bool:
    """Whether some of a group are placed and its minimum is not, though enough of its pods are there.

    Who makes pods with a node may leave a gang in part, and no scheduler can help it.
    """
    members = world.members.get(group.key, {}).values()
    if all(pod.given for pod in members if pod.placed):
        return False
    there = sum(not pod.deleting and pod.phase != "Failed" for pod in members)
    return 0 < world.placed(group.key) < group.minimum <= there


class BeneficiaryPlaced(Rule):
    """Whoever's pods were evicted, somebody got the room: the group that it was done for.

    The eviction itself names it, and so does a pod that was nominated to the victim's node when the victim went.
    Members of a gang that was placed in part are taken back for nobody. What was not explained when something was
    unseen is let be: a server that is killed may have carried out what it did not record.

    Args:
        limit: seconds within which the beneficiary must be placed.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._longest = 0.0
        self._waiting: dict[str, float] = {}
        """By beneficiary: the first eviction that nothing was placed after."""
        self._unnamed: dict[str, tuple[float, PodFact]] = {}
        """By victim (uid): when it was evicted, and what it was."""
        self._explained: set[str] = set()
        """Victims (uid) of which the record came before they were seen to go."""

    def seen(self, world: World, change: PodChange, at: float) -> Iterable[Violation]:
        pod = change.after
        if pod is not None and change.before is not None and pod.evicted and not change.before.evicted and pod.node:
            group = world.groups.get(pod.group)
            # Its own group as it was a moment ago: whoever is taken back belongs to a gang that was not whole.
            whole = group is None or world.placed(pod.group) + 1 >= group.minimum
            winners = {one.group or one.key for one in world.pods.values() if one.nominated == pod.node}
            for winner in winners:
                self._waiting.setdefault(winner, at)
            explained = {pod.uid, pod.key} & self._explained
            self._explained -= explained
            if whole and not winners and not explained:
                self._unnamed[pod.uid] = (at, pod)
        if change.bound and pod is not None:
            key = pod.group or pod.key
            own = world.groups.get(key)
            if own is None or world.placed(key) >= own.minimum:
                self._longest = max(self._longest, at - self._waiting.pop(key, at))
        return ()

    def evicted(self, world: World, eviction: Eviction, at: float) -> Iterable[Violation]:
        victim = eviction.uid or eviction.victim
        known = [uid for uid, (_, pod) in self._unnamed.items() if victim in (uid, pod.key)]
        whom = eviction.beneficiary
        if whom or not eviction.by:
            for uid in known:
                del self._unnamed[uid]
            if not known:
                self._explained.add(victim)
        # The record may be read after the beneficiary has been placed.
        group = world.groups.get(whom)
        if whom and group is not None and world.placed(whom) < group.minimum:
            self._waiting.setdefault(whom, at)
        return ()

    def tick(self, world: World, at: float) -> Iterable[Violation]:
        for key, since in list(self._waiting.items()):
            group = world.groups.get(key)
            there = group is not None or key in world.pods
            if not there or (group is not None and (group.deleting or world.placed(key) >= group.minimum)):
                del self._waiting[key]
            elif at - since > self._limit:
                del self._waiting[key]
                yield Violation(
                    "evicted in vain", key, f"pods were evicted for it {at - since:.0f} s ago, it waits yet"
                )
        for uid, (since, pod) in list(self._unnamed.items()):
            if at - since > self._limit:
                del self._unnamed[uid]
                yield Violation("evicted in vain", pod.key, f"of {pod.group or 'no group'}: evicted for nobody")

    def interrupted(self, at: float, *, blind: bool) -> None:
        self._waiting = dict.fromkeys(self._waiting, at)
        self._unnamed = {} if blind else {uid: (at, pod) for uid, (_, pod) in self._unnamed.items()}

    @property
    def longest(self) -> dict[str, float]:
        return {"evicted for a group that waits": self._longest}


class WithinDeserved(Rule):
    """What a queue takes back by reclaim does not lift it above its share, in any dimension that its group asks for."""

    def __init__(self) -> None:
        self._claims: dict[str, dict[str, Amounts]] = {}
        """By beneficiary: what the queues deserved when pods were evicted for it."""

    def evicted(self, world: World, eviction: Eviction, at: float) -> Iterable[Violation]:
        if eviction.action == "reclaim" and eviction.beneficiary in world.groups:
            self._claims[eviction.beneficiary] = deserved(world)
        return ()

    def seen(self, world: World, change: PodChange, at: float) -> Iterable[Violation]:
        pod = change.after
        if not change.bound or pod is None or pod.group not in self._claims:
            return
        group = world.groups.get(pod.group)
        if group is None:
            del self._claims[pod.group]
            return
        if world.placed(pod.group) < group.minimum:
            return
        then, now = self._claims.pop(pod.group).get(group.queue, {}), deserved(world).get(group.queue, {})
        holds = allocated(world, group.queue)
        for name in pod.request:
            share = max(then.get(name, Fraction(0)), now.get(name, Fraction(0)))
            unit = Fraction(1, 1000) if name == "cpu" else Fraction(1)
            if name != "pods" and holds.get(name, Fraction(0)) > share + unit:
                yield Violation(
                    "above deserved",
                    group.queue,
                    f"reclaim for {group.key} takes {name} to {float(holds[name]):g} of {float(share):g} deserved",
                )


Hindered = Callable[[str, float, float], float]
"""By a group's key and two moments: seconds in between that do not count."""

_NUMBERS = re.compile(r"\d+")

UNSAID = "says nothing of Scheduled, though the minimum is placed"


class TrueConditions(Rule):
    """What a group's status says is what is there, but for a moment.

    Args:
        limit: how long that moment may be, in seconds.
        unsaid: how long nothing may be said of a group.
        phases: whether the process that writes phases runs, so that they can be judged.
        hindered: for how many seconds, between two moments, nobody could know or write how a group stands.
    """

    def __init__(self, limit: float, unsaid: float, *, phases: bool, hindered: Hindered) -> None:
        self._limit = limit
        self._unsaid = unsaid
        self._hindered = hindered
        self._phases = phases
        self._wrong: Lasting[tuple[str, str]] = Lasting()
        self._told: set[tuple[str, str]] = set()
        self._longest: dict[str, float] = {}
        self._ended: set[str] = set()
        """Groups (by uid) of which pods have ended: how many were placed can be seen no more."""

    def seen(self, world: World, change: PodChange, at: float) -> Iterable[Violation]:
        pod = change.after or change.before
        if pod is not None and pod.phase in {"Succeeded", "Failed"} and pod.group in world.groups:
            self._ended.add(world.groups[pod.group].uid)
        return ()

    def tick(self, world: World, at: float) -> Iterable[Violation]:
        wrong = [(g.key, what) for g in world.groups.values() if not g.deleting for what in self._contradicts(world, g)]
        for (key, what), lasted in self._wrong.keep(wrong, at):
            seconds = lasted
            limit = self._unsaid if what == UNSAID else self._limit
            if lasted > limit:
                seconds -= self._hindered(key, at - lasted, at)
            kind = _NUMBERS.sub("N", what)
            self._longest[kind] = max(self._longest.get(kind, 0.0), seconds)
            if seconds > limit and (key, what) not in self._told:
                self._told.add((key, what))
                yield Violation("untrue condition", key, f"{what}, for {seconds:.0f} s")

    def interrupted(self, at: float, *, blind: bool) -> None:
        self._wrong.restart(at)

    @property
    def longest(self) -> dict[str, float]:
        return self._longest

    def _contradicts(self, world: World, group: GroupFact) -> Iterator[str]:
        placed = world.placed(group.key)
        whole = placed >= group.minimum
        scheduled, reason = group.conditions.get("Scheduled", ("", ""))
        if scheduled == "False" and whole:
            yield f"Scheduled=False ({reason}), though the minimum is placed"
        if not scheduled and whole:
            yield UNSAID
        if scheduled == "True" and not whole and group.uid not in self._ended:
            yield f"Scheduled=True, though fewer than its {group.minimum} pods are placed"
        if group.conditions.get("Unschedulable", ("", ""))[0] == "True" and whole:
            yield "Unschedulable=True, though the minimum is placed"
        if reason == "QueueNotFound" and scheduled == "False" and group.queue in world.queues:
            yield f"QueueNotFound, though the queue {group.queue} is there"
        if self._phases and group.uid not in self._ended:
            if whole and group.phase in {"", "Pending", "InQueue", "Unknown"}:
                yield f"phase {group.phase or 'none'}, though the minimum is placed"
            if group.phase == "Running" and placed == 0:
                yield "phase Running, though nothing is placed"
