"""The ledger of the policy Reject: what was granted in a namespace and is not seen by everybody yet. Pure.

The sum that a quota limits is that of the live groups. A replica knows them from its watch, which lags: between a grant
and the moment at which all replicas see the new group, the grant stands in the ledger. An entry is *covered* once a
group was seen with the entry's token on it. It may go then, and the ledger notes as its *floor* the version in which
that was seen. Whoever decides on a watch that has not reached the floor would miss that group: he has to list first.

An entry whose group never appears (a request that timed out, or was refused by somebody after us) goes after
`EXPIRY_MS`, but only when a list that was made since says so. The clocks of the replicas need to agree to some seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kbatch.api.objects import ResourceQuota
from kbatch.api.reasons import QuotaExceeded
from kbatch.model.quota import Ask, Subject, charge, exceeded, used_amounts
from kbatch.resources import QuantityError, Resources, maximum
from webhooks.podgroups import reason_of
from webhooks.world import Groups, LiveGroup, Sums

EXPIRY_MS: Final = 30_000
"""Longer than a request takes: within it the group appears, or it was not made."""
FLOOR_KEY: Final = "kbatch.dev/floor"


@dataclass(frozen=True, slots=True)
class Entry:
    """One grant: what it counts as, the token that its group carries, and when it was made (milliseconds).

    `text` is the entry as it is written, kept so that a write costs what it adds.
    """

    ask: Ask
    token: str
    at: int
    text: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not self.text:
            object.__setattr__(self, "text", _written(self))


@dataclass(frozen=True, slots=True)
class Ledger:
    """The grants of one namespace by the names of their groups, and the version that whoever decides must have seen.

    `sums` is what all entries count as together, kept for the same reason.
    """

    entries: Mapping[str, Entry] = field(default_factory=dict)
    floor: int = 0
    sums: Sums = field(default_factory=Sums, compare=False)

    def __post_init__(self) -> None:
        if self.entries and not self.sums:
            for entry in self.entries.values():
                self.sums.add(entry.ask)


@dataclass(frozen=True, slots=True)
class Claim:
    """A review that wants a grant."""

    name: str
    ask: Ask
    token: str


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is decided about some claims: the ledger that must be written first, and who is refused.

    `granted` and `refused` are by the claims' places in their list. `merged` are the tokens whose entries also stand
    for an earlier claim of the same name.
    """

    ledger: Ledger
    granted: tuple[int, ...]
    refused: Mapping[int, QuotaExceeded]
    merged: frozenset[str]


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
    entries, entered, floor = _pruned(ledger, groups, now, fresh=fresh)
    sums = groups.sums.copy()
    sums.add_all(entered)
    for name in entries.keys() & groups.live.keys():
        # A group that is seen and granted anew counts as the larger of both, not as their sum.
        sums.remove(_common(entries[name].ask, groups.live[name]))
    granted: list[int] = []
    merged: set[str] = set()
    refused: dict[int, QuotaExceeded] = {}
    for place, claim in enumerate(claims):
        live, before = groups.live.get(claim.name), entries.get(claim.name)
        others = sums.copy()
        if live is not None:
            others.remove(live.ask)
        if before is not None:
            others.remove(before.ask)
            if live is not None:
                others.add(_common(before.ask, live))
        excess = _excess(quotas, claim.ask, others)
        if excess is not None:
            refused[place] = excess
            continue
        granted.append(place)
        # Two requests for one name: nobody knows which will be carried out, so the larger one counts.
        ask = claim.ask if before is None else larger(claim.ask, before.ask)
        if before is not None:
            merged.add(claim.token)
            entered.remove(before.ask)
        entered.add(ask)
        entries[claim.name] = Entry(ask, claim.token, now)
        sums = others
        sums.add(ask)
        if live is not None:
            sums.add(live.ask)
            sums.remove(_common(ask, live))
    return Settlement(Ledger(entries, floor, entered), tuple(granted), refused, frozenset(merged))


def without(ledger: Ledger, tokens: Collection[str]) -> Ledger:
    """The ledger without the entries of these tokens: claims that were given up before they were granted."""
    if not tokens:
        return ledger
    return Ledger({name: entry for name, entry in ledger.entries.items() if entry.token not in tokens}, ledger.floor)


def larger(left: Ask, right: Ask) -> Ask:
    """What is at least both, and looks like the first."""
    return Ask(
        maximum(left.requests, right.requests),
        maximum(left.limits, right.limits),
        max(left.pods, right.pods),
        left.subject,
    )


def _pruned(ledger: Ledger, groups: Groups, now: int, *, fresh: bool) -> tuple[dict[str, Entry], Sums, int]:
    """The entries that still count, what they count as together, and the floor."""
    entries = dict(ledger.entries)
    sums = ledger.sums.copy()
    floor = ledger.floor
    for name, entry in ledger.entries.items():
        seen = groups.seen.get(entry.token)
        if seen is not None:
            floor = max(floor, seen)
        elif not (fresh and now - entry.at > EXPIRY_MS):
            continue
        del entries[name]
        sums.remove(entry.ask)
    return entries, sums, floor


def _common(ask: Ask, live: LiveGroup) -> Ask:
    """What an entry and its group, as it is seen, have in common."""
    if live.ask.subject != ask.subject:
        return Ask({}, subject=ask.subject)
    return Ask(
        {name: min(amount, live.ask.requests.get(name, 0)) for name, amount in ask.requests.items()},
        {name: min(amount, live.ask.limits.get(name, 0)) for name, amount in ask.limits.items()},
        min(ask.pods, live.ask.pods),
        ask.subject,
    )


def _excess(quotas: Iterable[ResourceQuota], ask: Ask, others: Sums) -> QuotaExceeded | None:
    """The first limit that the sum of all live groups would pass with this one."""
    for quota in quotas:
        try:
            passed = exceeded(quota, charge(quota, ask), others.charged(quota), {})
            if passed:
                return reason_of(passed[0], used_amounts(quota).get(passed[0].resource, 0))
        except QuantityError:
            continue  # the API server would not have taken it; it limits nobody
    return None


# --- as it stands in an object ----------------------------------------------------------------------------------------


_FLAGS: Final = ("best-effort", "terminating", "crosses-namespaces")


def encode(ledger: Ledger) -> dict[str, str]:
    """The entries as data of a ConfigMap, whose keys are names of PodGroups."""
    return {name: entry.text for name, entry in ledger.entries.items()}


def decode(data: Mapping[str, str] | None, floor: str | None) -> Ledger:
    """The ledger that stands in a ConfigMap; what cannot be read is no entry of ours."""
    entries: dict[str, Entry] = {}
    for name, text in (data or {}).items():
        try:
            entries[name] = _read(text)
        except ValueError:
            continue
    return Ledger(entries, int(floor) if floor and floor.isdecimal() else 0)


def _written(entry: Entry) -> str:
    """At, token, pods, requests, limits, class, flags: `1763722500000 4f1b 2 cpu=200,memory=1024 - high -`."""
    ask, subject = entry.ask, entry.ask.subject
    flags = (subject.best_effort, subject.terminating, subject.crosses_namespaces)
    named = ",".join(name for name, flag in zip(_FLAGS, flags, strict=True) if flag)
    parts = (
        entry.at, entry.token, ask.pods, _amounts(ask.requests), _amounts(ask.limits), subject.priority_class or "-",
        named or "-",
    )  # fmt: skip
    return " ".join(map(str, parts))


def _amounts(amounts: Resources) -> str:
    return ",".join(f"{name}={amount}" for name, amount in amounts.items()) or "-"


def _read(text: str) -> Entry:
    at, token, pods, requests, limits, priority_class, flags = text.split(" ")
    best_effort, terminating, crosses_namespaces = (flag in flags.split(",") for flag in _FLAGS)
    named = "" if priority_class == "-" else priority_class
    subject = Subject(best_effort, terminating, named, crosses_namespaces)
    return Entry(Ask(_read_amounts(requests), _read_amounts(limits), int(pods), subject), token, int(at), text)


def _read_amounts(text: str) -> Resources:
    if text == "-":
        return {}
    pairs = (part.split("=") for part in text.split(","))
    return {name: int(amount) for name, amount in pairs}
