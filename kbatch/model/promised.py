"""The live PodGroups of a namespace: what they ask of quotas, and what they were promised and do not use yet."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kbatch.api import conditions
from kbatch.api.names import ADMITTED_ANNOTATION
from kbatch.api.objects import PodGroup, PodGroupSpec, ResourceQuota
from kbatch.model.makers import NO_MAKERS, Maker
from kbatch.model.minresources import ask_of
from kbatch.model.phase import OVER, STARTED
from kbatch.model.quota import Ask, Subject, charge
from kbatch.resources import QuantityError, Resources, add, subtract

MOST_TOKENS: Final = 8192
"""Tokens that are remembered in a namespace: those of the last half minute at any rate are enough."""

LONGEST_TOKEN: Final = 32
"""Characters. The webhook's own have 12; what a user writes there is not remembered where it is longer."""

_NOTHING: Final = Ask({})


class Sums:
    """What some groups ask for in all, by what they look like to scopes."""

    def __init__(self, parts: Mapping[Subject, Ask] | None = None) -> None:
        self._parts = dict(parts or {})

    def copy(self) -> Sums:
        """A copy that can be changed by itself."""
        return Sums(self._parts)

    def add(self, ask: Ask) -> None:
        """One more."""
        have = self._parts.get(ask.subject, _NOTHING)
        self._parts[ask.subject] = Ask(
            _some(add(have.requests, ask.requests)),
            _some(add(have.limits, ask.limits)),
            have.pods + ask.pods,
            ask.subject,
        )

    def add_all(self, others: Sums) -> None:
        """All of some others."""
        for part in others._parts.values():
            self.add(part)

    def remove(self, ask: Ask) -> None:
        """One less, which was added before."""
        have = self._parts.get(ask.subject, _NOTHING)
        left = Ask(
            _some({name: amount - ask.requests.get(name, 0) for name, amount in have.requests.items()}),
            _some({name: amount - ask.limits.get(name, 0) for name, amount in have.limits.items()}),
            have.pods - ask.pods,
            ask.subject,
        )
        if left.pods or left.requests or left.limits:
            self._parts[ask.subject] = left
        else:
            self._parts.pop(ask.subject, None)

    def __bool__(self) -> bool:
        return bool(self._parts)

    def total(self) -> Ask:
        """All of it, whatever it looks like to scopes."""
        parts = self._parts.values()
        return Ask(
            add(*(part.requests for part in parts)),
            add(*(part.limits for part in parts)),
            sum(part.pods for part in parts),
        )

    def charged(self, quota: ResourceQuota) -> Resources:
        """What they are charged to a quota with, by its own names."""
        return add(*(charge(quota, part) for part in self._parts.values()))


@dataclass(frozen=True, slots=True)
class LiveGroup:
    """A PodGroup that is not over.

    Attributes:
        ask: what its minimum asks of quotas, by its spec alone.
        enqueued: it was let in.
        reserving: it was let in, and its minimum does not run yet: what it asks for is kept for it.
        needs: what is kept: `ask`, and what follows from the Jobs that name it.
        spec: of one that needs more than its spec says if a Job names it; else None.
    """

    ask: Ask
    enqueued: bool
    reserving: bool
    needs: Ask
    spec: PodGroupSpec | None = field(default=None, compare=False, repr=False)


class Groups:
    """The live groups of one namespace."""

    def __init__(self, groups: Iterable[PodGroup] = ()) -> None:
        self.live: dict[str, LiveGroup] = {}
        self.sums = Sums()
        self.left: dict[str, Ask] = {}
        """What the groups in queue were promised and do not use yet, by group; groups of which nothing is left are not
        in it."""
        self.promised = Sums()
        """All of that together."""
        self.seen: dict[str, int] = {}
        """The tokens that were seen, each with the first version of it; also of groups that are over or gone since."""
        for group in groups:
            self.put(group)

    def put(self, group: PodGroup, makers: Mapping[str, Maker] = NO_MAKERS) -> LiveGroup | None:
        """Take a group as it is now, and the Jobs that name it; what is kept of it, None if it is over."""
        name = group.metadata.name
        self.drop(name)
        version = version_of(group)
        tokens = (group.metadata.annotations or {}).get(ADMITTED_ANNOTATION, "")
        for token in tokens.rsplit(",", 1) if tokens else ():
            if len(token) > LONGEST_TOKEN:
                continue
            self.seen.setdefault(token, version)
            if len(self.seen) > MOST_TOKENS:
                del self.seen[next(iter(self.seen))]
        if group.status.phase in OVER:
            return None
        try:
            ask = ask_of(group.spec)
        except QuantityError:
            return None  # nothing can be reserved for it either
        enqueued = _enqueued(group)
        reserving = enqueued and group.status.phase not in STARTED
        spec = None if any(role.template for role in group.spec.sub_groups or ()) else group.spec
        self.live[name] = found = LiveGroup(ask, enqueued, reserving, _needs(ask, spec, makers), spec)
        self.sums.add(ask)
        return found

    def made_by(self, name: str, makers: Mapping[str, Maker]) -> None:
        """The Jobs that name a group are these from now on."""
        group = self.live.get(name)
        if group is not None and group.spec is not None:
            self.live[name] = dataclasses.replace(group, needs=_needs(group.ask, group.spec, makers))

    def drop(self, name: str) -> None:
        """Forget a group."""
        before = self.live.pop(name, None)
        if before is not None:
            self.sums.remove(before.ask)
        self._keep(name, None)

    def use(self, name: str, used: Ask | None) -> None:
        """Bring up to date what is left of what a group was promised; `used` is what its pods use."""
        group = self.live.get(name)
        if group is None or not group.reserving:
            self._keep(name, None)
        elif used is None:
            self._keep(name, group.needs)
        else:
            needs = group.needs
            left = Ask(
                subtract(needs.requests, used.requests),
                subtract(needs.limits, used.limits),
                max(0, needs.pods - used.pods),
                needs.subject,
            )
            self._keep(name, left if left.pods or any(left.requests.values()) or any(left.limits.values()) else None)

    def _keep(self, name: str, left: Ask | None) -> None:
        before = self.left.pop(name, None)
        if before is not None:
            self.promised.remove(before)
        if left is not None:
            self.left[name] = left
            self.promised.add(left)


def _needs(ask: Ask, spec: PodGroupSpec | None, makers: Mapping[str, Maker]) -> Ask:
    if not makers or spec is None:
        return ask
    try:
        return ask_of(spec, makers)
    except QuantityError:
        return ask


def _some(amounts: Resources) -> Resources:
    """Without dimensions of which there is nothing: groups name what they like, and no name would ever go."""
    return {name: amount for name, amount in amounts.items() if amount}


def version_of(group: PodGroup) -> int:
    """The resourceVersion as the number that it is; 0 where there is none."""
    return number_of(group.metadata.resource_version)


def number_of(version: str) -> int:
    """A resourceVersion as the number that it is; 0 where it is none."""
    return int(version) if version.isdecimal() else 0


def _enqueued(group: PodGroup) -> bool:
    return group.status.phase in STARTED or conditions.let_in(group.status.conditions)
