"""The ledger of the policy Reject: what was granted in a namespace and is not seen by everybody yet. Pure.

The sum that a quota limits is that of the live groups. A replica knows them from its watch, which lags: between a grant
and the moment at which all replicas see the new group, the grant stands in the ledger. An entry is *covered* once a
group was seen with the entry's token on it. It may go then, and the ledger notes as its *floor* the version in which
that was seen. Whoever decides on a watch that has not reached the floor would miss that group: he has to list first.

An entry whose group never appears (a request that timed out, or was refused by somebody after us) goes after
`EXPIRY_MS`, but only when a list that was made since says so. The clocks of the replicas need to agree to some seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from kbatch.api.objects import ResourceQuota
from kbatch.api.reasons import QuotaExceeded
from kbatch.model.quota import Ask, Subject, charge, exceeded, used_amounts
from kbatch.resources import QuantityError, Resources, maximum, subtract
from webhooks.podgroups import reason_of
from webhooks.world import Groups, LiveGroup, Sums

EXPIRY_MS: Final = 30_000
"""Longer than a request takes: within it the group appears, or it was not made."""
FLOOR_KEY: Final = "kbatch.dev/floor"


@dataclass(frozen=True, slots=True)
class Entry:
    """One grant: what it counts as, the token that its group carries, and when it was made (milliseconds)."""

    ask: Ask
    token: str
    at: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """The grants of one namespace by the names of their groups, and the version that whoever decides must have seen."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    floor: int = 0


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
    entries, floor = _pruned(ledger, groups, now, fresh=fresh)
    sums = groups.sums.copy()
    extras = {name: _extra(entry.ask, groups.live.get(name)) for name, entry in entries.items()}
    for each in extras.values():
        sums.add(each)
    granted: list[int] = []
    refused: dict[int, QuotaExceeded] = {}
    for place, claim in enumerate(claims):
        live, extra = groups.live.get(claim.name), extras.get(claim.name)
        others = sums.copy()
        for own in (live.ask if live is not None else None, extra):
            if own is not None:
                others.remove(own)
        excess = _excess(quotas, claim.ask, others)
        if excess is not None:
            refused[place] = excess
            continue
        granted.append(place)
        if extra is not None:
            sums.remove(extra)
        before = entries.get(claim.name)
        # Two requests for one name: nobody knows which will be carried out, so the larger one counts.
        ask = claim.ask if before is None else larger(claim.ask, before.ask)
        entries[claim.name] = Entry(ask, claim.token, now)
        extras[claim.name] = _extra(ask, live)
        sums.add(extras[claim.name])
    return Settlement(Ledger(entries, floor), tuple(granted), refused)


def larger(left: Ask, right: Ask) -> Ask:
    """What is at least both, and looks like the first."""
    return Ask(
        maximum(left.requests, right.requests),
        maximum(left.limits, right.limits),
        max(left.pods, right.pods),
        left.subject,
    )


def _pruned(ledger: Ledger, groups: Groups, now: int, *, fresh: bool) -> tuple[dict[str, Entry], int]:
    entries: dict[str, Entry] = {}
    floor = ledger.floor
    for name, entry in ledger.entries.items():
        seen = groups.seen.get(entry.token)
        if seen is not None:
            floor = max(floor, seen)
        elif not (fresh and now - entry.at > EXPIRY_MS):
            entries[name] = entry
    return entries, floor


def _extra(ask: Ask, live: LiveGroup | None) -> Ask:
    """What a grant counts beyond the group as it is seen: a group that was raised counts as the larger."""
    if live is None or live.ask.subject != ask.subject:
        return ask
    return Ask(
        subtract(ask.requests, live.ask.requests),
        subtract(ask.limits, live.ask.limits),
        max(0, ask.pods - live.ask.pods),
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


class _Stored(msgspec.Struct, rename="camel", omit_defaults=True):
    at: int
    token: str
    pods: int = 0
    requests: Resources = {}
    limits: Resources = {}
    priority_class: str = ""
    best_effort: bool = False
    terminating: bool = False
    crosses_namespaces: bool = False


_DECODER: Final = msgspec.json.Decoder(_Stored)


def encode(ledger: Ledger) -> dict[str, str]:
    """The entries as data of a ConfigMap, whose keys are names of PodGroups."""
    return {name: msgspec.json.encode(_stored(entry)).decode() for name, entry in ledger.entries.items()}


def decode(data: Mapping[str, str] | None, floor: str | None) -> Ledger:
    """The ledger that stands in a ConfigMap; what cannot be read is no entry of ours."""
    entries: dict[str, Entry] = {}
    for name, text in (data or {}).items():
        try:
            entries[name] = _entry(_DECODER.decode(text))
        except msgspec.DecodeError:
            continue
    return Ledger(entries, int(floor) if floor and floor.isdecimal() else 0)


def _stored(entry: Entry) -> _Stored:
    ask, subject = entry.ask, entry.ask.subject
    return _Stored(
        at=entry.at,
        token=entry.token,
        pods=ask.pods,
        requests=ask.requests,
        limits=ask.limits,
        priority_class=subject.priority_class,
        best_effort=subject.best_effort,
        terminating=subject.terminating,
        crosses_namespaces=subject.crosses_namespaces,
    )


def _entry(stored: _Stored) -> Entry:
    subject = Subject(stored.best_effort, stored.terminating, stored.priority_class, stored.crosses_namespaces)
    return Entry(Ask(stored.requests, stored.limits, stored.pods, subject), stored.token, stored.at)
