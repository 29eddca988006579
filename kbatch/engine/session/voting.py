"""What the plugins say of a victim, tier by tier.

One VETO, in whatever tier, is final. A unit's rank is the first tier that says YES; no YES: it is no victim.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

from kbatch.api.configuration import Switch
from kbatch.engine.plugin import Holder, Plugin, Preemptor, Unit, Vote
from kbatch.engine.policy.policy import Policy
from kbatch.engine.state.queues import QueueState

SWITCHES: Final[Mapping[str, Switch]] = {"preemptable": Switch.PREEMPTABLE, "reclaimable": Switch.RECLAIMABLE}
"""The votes that kbatch's own actions ask for, with the switch by which a configuration turns each off."""


class Voting:
    """The votes of one session. A ballot is the name of the plugin method that is asked."""

    def __init__(self, policy: Policy, plugins: Sequence[Plugin]) -> None:
        self._asked: dict[str, list[tuple[int, Callable[[Preemptor, Unit], Vote]]]] = {}
        self._by_class: dict[str, bool] = {}
        self._voters: dict[str, list[Plugin]] = {}
        self._parts = tuple(zip(policy.plugins, plugins, strict=True))

    def ask(self, ballot: str, preemptor: Preemptor, unit: Unit) -> tuple[bool, int | None]:
        """Whether no plugin forbids the unit, and the first tier that consents to it (None: no tier does)."""
        tier: int | None = None
        for at, vote_of in self._of(ballot):
            vote = vote_of(preemptor, unit)
            if vote is Vote.VETO:
                return False, None
            if vote is Vote.YES and tier is None:
                tier = at
        return True, tier

    def best(self, ballot: str, preemptor: Preemptor, holder: Holder) -> list[Vote]:
        """The most that each plugin could say of units of such groups; see `Plugin.best_vote`."""
        self._of(ballot)
        return [plugin.best_vote(ballot, preemptor, holder) for plugin in self._voters[ballot]]

    def most_given(self, ballot: str, preemptor: Preemptor, queue: QueueState) -> dict[str, int]:
        """Less than so much goes of a queue before the last unit of it; see `Plugin.most_given`. What any plugin
        forbids does not go, so the least that any of them says holds.
        """
        self._of(ballot)
        found: dict[str, int] = {}
        for plugin in self._voters[ballot]:
            for name, most in (plugin.most_given(ballot, preemptor, queue) or {}).items():
                found[name] = min(most, found.get(name, most))
        return found

    def by_class(self, ballot: str) -> bool:
        """Whether all votes on a pod depend, of the pod, only on its class, role and priority."""
        self._of(ballot)
        return self._by_class[ballot]

    def keys(self, ballot: str, unit: Unit) -> tuple[Hashable, ...] | None:
        """What each plugin's votes on the only pod of a group depend on; see `Plugin.vote_key`. None: one raised."""
        self._of(ballot)
        try:
            return tuple([plugin.vote_key(ballot, unit) for plugin in self._voters[ballot]])
        except Exception:  # noqa: BLE001 -- then the pod is asked about by itself, and what is raised there is told
            return None

    def _of(self, ballot: str) -> list[tuple[int, Callable[[Preemptor, Unit], Vote]]]:
        found = self._asked.get(ballot)
        if found is None:
            switch = SWITCHES.get(ballot)
            voters = [
                (part.tier, plugin) for part, plugin in self._parts
                if plugin.answers(ballot) and (switch is None or part.enabled(switch))
            ]  # fmt: skip
            found = self._asked[ballot] = [(tier, getattr(plugin, ballot)) for tier, plugin in voters]
            self._voters[ballot] = [plugin for _, plugin in voters]
            self._by_class[ballot] = all(plugin.votes_by_class for _, plugin in voters)
        return found

    def close(self) -> None:
        """Let go of the plugins."""
        self._asked.clear()
        self._voters.clear()
        self._parts = ()
