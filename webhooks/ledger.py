"""The ledger of the policy Reject: what was granted in a namespace and is not seen by everybody yet. Pure.

The sum that a quota limits is that of the live groups. A replica knows them from its watch, which lags: between a grant
and the moment at which all replicas see the new group, the grant stands in the ledger. An entry is *covered* once a
group was seen with the entry's token on it. It may go then, and the ledger notes as its *floor* the version in which
that was seen. Whoever decides on a watch that has not reached the floor would miss that group: he has to list first.

An entry whose group never appears (a request that timed out, or was refused by somebody after us) goes after
`EXPIRY_MS`, but only when a list that was made since says so. The clocks of the replicas need to agree to some seconds.

Of several requests for one name nobody knows which will be carried out: the first may have timed out at the user's and
be under way yet. Each has an entry until it is seen, given up or too old; together they count as the largest of them,
as only one object of the name can stand.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from itertools import chain
from typing import Final
from urllib.parse import quote, unquote

from kbatch.api.objects import ResourceQuota
from kbatch.api.reasons import QuotaExceeded
from kbatch.model.promised import Groups, Sums
from kbatch.model.quota import Ask, Subject, charge, exceeded, hard_limits, used_amounts
from kbatch.resources import QuantityError, Resources, maximum
from webhooks.podgroups import reason_of

EXPIRY_MS: Final = 40_000
"""Longer than a request takes, which the API server carries out for up to 34 s: within it the group appears, or it was
not made. The rest is for the replicas' clocks."""
FLOOR_KEY: Final = "kbatch.dev/floor"
ENTRIES_KEY: Final = "entries"
MOST_BYTES: Final = 900_000
"""Of all entries as they are written; an object of the API server holds 1 MiB."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One grant: its group's name, what it counts as, the token that the group carries, and when it was made
    (milliseconds).

    `line` and `terms` are the entry as it is written, kept so that a write costs what it adds.
    """

    name: str
    ask: Ask
    token: str
    at: int
    line: str = field(default="", compare=False)
    terms: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not self.line:
            object.__setattr__(self, "line", f"{_quoted(self.name)} {self.token}")
            object.__setattr__(self, "terms", _terms(self.at, self.ask))


@dataclass(frozen=True, slots=True)
class Ledger:
    """The grants of one namespace by the names of their groups, and the version that whoever decides must have seen.

    `again` are the later grants of groups of which an earlier one stands in `entries`; there are few. `sums` is what
    all of both would count as if each were of another name, kept for the same reason.
    """

    entries: Mapping[str, Entry] = field(default_factory=dict)
    floor: int = 0
    again: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)
    sums: Sums = field(default_factory=Sums, compare=False)

    def __post_init__(self) -> None:
        if self.entries and not self.sums:
            for entry in self.all():
                self.sums.add(entry.ask)

    def all(self) -> Iterator[Entry]:
        """All entries."""
        return chain(self.entries.values(), *self.again.values())

    @property
    def count(self) -> int:
        """How many entries there are."""
        return len(self.entries) + sum(map(len, self.again.values()))


@dataclass(frozen=True, slots=True)
class Claim:
    """A review that wants a grant."""

    name: str
    ask: Ask
    token: str


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is decided about some claims: the ledger that must be written first, and who is refused.

    `granted` and `refused` are by the claims' places in their list.
    """

    ledger: Ledger
    granted: tuple[int, ...]
    refused: Mapping[int, QuotaExceeded]


def settle(
    ledger: Ledger,
    groups: Groups,
    quotas: Sequence[ResourceQuota],
    claims: Sequence[Claim],
    *,
    now: int,
    fresh: bool,
) -> Settlement:
    """Decide claims in their order; each counts for those after it.

    Args:
        ledger: as it stands.
        groups: the namespace's live groups, seen at the ledger's floor or later.
        quotas: the namespace's quotas.
        claims: what is asked for.
        now: milliseconds since the epoch.
        fresh: whether `groups` was listed just now; only then old entries may go.
    """
    grants, floor = _pruned(ledger, groups, now, fresh=fresh)
    books = [_Book(quota, groups.sums, grants.sums) for quota in quotas if _readable(quota)]

    def once(name: str) -> None:
        """Count a group as the largest of what was granted and of how it is seen."""
        live = groups.live.get(name)
        parts = [entry.ask for entry in grants.of(name)] + ([live.ask] if live is not None else [])
        for book in books:
            book.once(name, parts)

    for name in (grants.first.keys() & groups.live.keys()) | grants.again.keys():
        once(name)
    granted: list[int] = []
    refused: dict[int, QuotaExceeded] = {}
    for place, claim in enumerate(claims):
        name = claim.name
        if name in grants.first or name in groups.live:
            once(name)
        excess = next(filter(None, (book.excess(name, claim.ask) for book in books)), None)
        if excess is not None:
            refused[place] = excess
            continue
        granted.append(place)
        grants.add(Entry(name, claim.ask, claim.token, now))
        for book in books:
            book.count(name, claim.ask)
    return Settlement(grants.ledger(floor), tuple(granted), refused)


class _Grants:
    """A ledger's entries while they change."""

    def __init__(self, ledger: Ledger) -> None:
        self.first = dict(ledger.entries)
        self.again = dict(ledger.again)
        self.sums = ledger.sums.copy()

    def of(self, name: str) -> tuple[Entry, ...]:
        """A group's, in their order."""
        first = self.first.get(name)
        return () if first is None else (first, *self.again.get(name, ()))

    def add(self, entry: Entry) -> None:
        """One more."""
        self.sums.add(entry.ask)
        if entry.name in self.first:
            self.again[entry.name] = (*self.again.get(entry.name, ()), entry)
        else:
            self.first[entry.name] = entry

    def remove(self, entry: Entry) -> None:
        """One less."""
        self.sums.remove(entry.ask)
        left = [one for one in self.of(entry.name) if one is not entry]
        self.again.pop(entry.name, None)
        if left:
            self.first[entry.name] = left[0]
        else:
            del self.first[entry.name]
        if left[1:]:
            self.again[entry.name] = tuple(left[1:])

    def ledger(self, floor: int) -> Ledger:
        """The ledger of those that are left."""
        return Ledger(self.first, floor, self.again, self.sums)


class _Book:
    """One quota, and what all who count are charged with by its names.

    A group that is seen, or granted, more than once counts as the largest of that: `_alone` is what such groups are
    charged with, by name.
    """

    def __init__(self, quota: ResourceQuota, *sums: Sums) -> None:
        self._quota = quota
        self._hard = hard_limits(quota)
        self._taken: Resources = {}
        self._alone: dict[str, Resources] = {}
        for one in sums:
            self._take(one.charged(quota), 1)

    def once(self, name: str, parts: Sequence[Ask]) -> None:
        """Count a group as the largest of its parts, whose sum it counted as, unless that was done."""
        if name in self._alone:
            return
        charges = [charge(self._quota, part) for part in parts]
        for charged in charges:
            self._take(charged, -1)
        self._alone[name] = largest = reduce(maximum, charges)
        self._take(largest, 1)

    def count(self, name: str, ask: Ask) -> None:
        """Count what a group is granted."""
        charged = charge(self._quota, ask)
        before = self._alone.get(name)
        if before is not None:
            self._take(before, -1)
            self._alone[name] = charged = maximum(before, charged)
        self._take(charged, 1)

    def _take(self, charged: Resources, sign: int) -> None:
        for name, amount in charged.items():
            self._taken[name] = self._taken.get(name, 0) + sign * amount

    def excess(self, name: str, ask: Ask) -> QuotaExceeded | None:
        """The first limit that would be passed if a group had this instead of what it counts as."""
        charged = charge(self._quota, ask)
        taken, own = self._taken, self._alone.get(name)
        if own:
            taken = {resource: amount - own.get(resource, 0) for resource, amount in taken.items()}
        if all(
            amount <= 0 or taken.get(resource, 0) + amount <= self._hard[resource]
            for resource, amount in charged.items()
        ):
            return None
        passed = exceeded(self._quota, charged, taken, {})[0]
        return reason_of(passed, used_amounts(self._quota).get(passed.resource, 0))


def _readable(quota: ResourceQuota) -> bool:
    """Whether its amounts can be read. The API server would not have taken it else; it limits nobody."""
    try:
        hard_limits(quota)
        used_amounts(quota)
    except QuantityError:
        return False
    return True


def without(ledger: Ledger, tokens: Collection[str]) -> Ledger:
    """The ledger without the entries of these tokens: claims that were given up before they were granted."""
    gone = [entry for entry in ledger.all() if entry.token in tokens] if tokens else []
    if not gone:
        return ledger
    grants = _Grants(ledger)
    for entry in gone:
        grants.remove(entry)
    return grants.ledger(ledger.floor)


def _pruned(ledger: Ledger, groups: Groups, now: int, *, fresh: bool) -> tuple[_Grants, int]:
    """The entries that still count, and the floor."""
    grants = _Grants(ledger)
    floor = ledger.floor
    for entry in ledger.all():
        seen = groups.seen.get(entry.token)
        if seen is not None:
            floor = max(floor, seen)
        elif not (fresh and now - entry.at > EXPIRY_MS):
            continue
        grants.remove(entry)
    return grants, floor


# --- as it stands in an object ----------------------------------------------------------------------------------------


_TERMS: Final = "@"
"""No name that is quoted begins with it."""
_FLAGS: Final = ("best-effort", "terminating", "crosses-namespaces")


def encode(ledger: Ledger) -> str:
    """The entries as one text: before each run of entries that were made at one time for the same, a line that says so.

    One value of a ConfigMap, so that the API server has little to keep of who owns which key.
    """
    lines: list[str] = []
    terms = ""
    for entry in ledger.all():
        if entry.terms != terms:
            terms = entry.terms
            lines.append(terms)
        lines.append(entry.line)
    return "\n".join(lines)


def decode(text: str, floor: str | None) -> Ledger:
    """The ledger that stands in a ConfigMap; what cannot be read is no entry of ours."""
    grants = _Grants(Ledger())
    terms, at, ask = "", 0, Ask({})
    for line in text.split("\n"):
        try:
            if line.startswith(_TERMS):
                terms = ""
                at, ask = _read_terms(line)
                terms = line
            elif terms:
                name, token = line.split(" ")
                grants.add(Entry(_unquoted(name), ask, token, at, line, terms))
        except ValueError:
            continue
    return grants.ledger(int(floor) if floor and floor.isdecimal() else 0)


def _terms(at: int, ask: Ask) -> str:
    """When, pods, requests, limits, class, flags: `@1763722500000 2 cpu=200,memory=1024 - =high -`.

    Names that users choose are quoted: none of them can look like the rest.
    """
    subject = ask.subject
    flags = (subject.best_effort, subject.terminating, subject.crosses_namespaces)
    named = ",".join(name for name, flag in zip(_FLAGS, flags, strict=True) if flag) or "-"
    amounts = f"{_amounts(ask.requests)} {_amounts(ask.limits)}"
    return f"{_TERMS}{at} {ask.pods} {amounts} ={_quoted(subject.priority_class)} {named}"


def _amounts(amounts: Resources) -> str:
    return ",".join(f"{_quoted(name)}={amount}" for name, amount in amounts.items()) or "-"


@lru_cache(maxsize=4096)
def _quoted(name: str) -> str:
    return quote(name, safe="/", errors="surrogatepass")


def _read_terms(line: str) -> tuple[int, Ask]:
    """What stands before a run of entries.

    Raises:
        ValueError: it is something else.
    """
    at, pods, requests, limits, priority_class, flags = line.removeprefix(_TERMS).split(" ")
    best_effort, terminating, crosses_namespaces = (flag in flags.split(",") for flag in _FLAGS)
    subject = Subject(best_effort, terminating, _unquoted(priority_class.removeprefix("=")), crosses_namespaces)
    return int(at), Ask(_read_amounts(requests), _read_amounts(limits), int(pods), subject)


def _read_amounts(text: str) -> Resources:
    if text == "-":
        return {}
    pairs = (part.split("=") for part in text.split(","))
    return {_unquoted(name): int(amount) for name, amount in pairs}


def _unquoted(text: str) -> str:
    return unquote(text, errors="surrogatepass") if "%" in text else text
