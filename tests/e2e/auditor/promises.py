"""Rules about what others were promised: budgets of disruption, and quotas of namespaces.

The server holds both by itself where it is asked: it refuses evictions, and pods. These rules see who goes round that,
and who promises a quota twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from tests.e2e.auditor.constraints import selected
from tests.e2e.auditor.quantities import Amounts, add
from tests.e2e.auditor.rules import Eviction, ForAMoment, PodChange, Rule, Violation
from tests.e2e.auditor.world import OVER, BudgetFact, GroupFact, PodFact, World


class WithinBudgets(Rule):
    """No eviction of a pod that has started leaves fewer pods than a budget wants.

    One that has not started is Pending: the eviction API lets it go without asking a budget, for it is none of those
    that do the work. Whether pods are Ready is not looked at. What went for other reasons in the last moments counts as
    there: the server may have carried out the eviction before.

    Args:
        race: how long such a moment is, in seconds.
    """

    def __init__(self, race: float) -> None:
        self._race = race
        self._gone: deque[tuple[float, PodFact]] = deque()
        """Pods that ended, or went, without having been evicted, and when."""
        self._victims: deque[tuple[float, PodFact]] = deque()
        """Pods that are there no more but are not long gone: their record may still be read."""

    def seen(self, world: World, change: PodChange, at: float) -> Iterable[Violation]:
        before, after = change.before, change.after
        if before is not None and _stands(before) and (after is None or not _stands(after)):
            evicted = before.evicted or (after is not None and after.evicted)
            (self._victims if evicted else self._gone).append((at, before))
        return ()

    def evicted(self, world: World, eviction: Eviction, at: float) -> Iterable[Violation]:
        if not eviction.by:
            return
        victim = world.pods.get(eviction.victim)
        if victim is None or (eviction.uid and victim.uid != eviction.uid):
            went = [pod for _, pod in self._victims if eviction.uid in {"", pod.uid} and pod.key == eviction.victim]
            victim = went[-1] if went else None
        if victim is None or victim.phase == "Pending":
            return
        late = [pod for since, pod in self._gone if at - since <= self._race]
        for budget in world.budgets.values():
            space = budget.key.partition("/")[0] + "/"
            if not victim.key.startswith(space) or not selected(budget.selector, victim.asks.labels):
                continue
            there = [pod for pod in world.pods.values() if _stands(pod) and pod.uid != victim.uid]
            left = sum(pod.key.startswith(space) and selected(budget.selector, pod.asks.labels) for pod in there + late)
            if left < budget.wanted:
                what = (
                    f"{victim.key} was evicted by {eviction.by}: {left} of {budget.wanted} pods are"
                    f" left; {self._went(space, budget, at)}"
                )
                yield Violation("over budget", budget.key, what)

    def _went(self, space: str, budget: BudgetFact, at: float) -> str:
        """The pods of a budget that are not long gone, in which phase and when."""
        said = [
            f"{pod.key} ({pod.phase}) {how} {at - since:.2f} s ago"
            for how, kept in (("evicted", self._victims), ("gone", self._gone))
            for since, pod in kept
            if pod.key.startswith(space) and selected(budget.selector, pod.asks.labels)
        ]
        return ", ".join(said) or "none has gone in the last seconds"

    def tick(self, world: World, at: float) -> Iterable[Violation]:
        for kept in (self._gone, self._victims):
            while kept and at - kept[0][0] > _REMEMBERED:
                kept.popleft()
        return ()


_REMEMBERED = 30.0
"""Seconds for which a pod that has gone is remembered."""


def _stands(pod: PodFact) -> bool:
    return pod.phase not in OVER and not pod.deleting


class WithinQuotas(ForAMoment[tuple[str, str]]):
    """What groups in queue were promised, with what a namespace's pods use, is within its quotas, but for a moment, in
    which others may have made pods.

    Judged are requests of CPU and memory, by quotas without scopes.
    """

    what = "promised beyond a quota"
    again = True

    def now(self, world: World) -> Mapping[tuple[str, str], str]:
        return {key: f"{what}," for key, what in _over(world)}

    def violation(self, key: tuple[str, str], what: str) -> Violation:
        return Violation("over quota", key[0], what)


def _over(world: World) -> Iterator[tuple[tuple[str, str], str]]:
    """Quota and resource of which more was promised than is there, and how much."""
    for quota in world.quotas.values():
        space = quota.key.partition("/")[0]
        used: Amounts = {}
        for pod in world.pods.values():
            if pod.key.startswith(f"{space}/") and pod.phase not in OVER:
                add(used, pod.request)
        promised: Amounts = {}
        for group in world.groups.values():
            if group.key.startswith(f"{space}/") and _in_queue(group):
                add(promised, outstanding(world, group))
        if not promised:
            continue
        for name, hard in quota.hard.items():
            total = used.get(name, Fraction(0)) + promised.get(name, Fraction(0))
            if promised.get(name) and total > hard:
                yield (quota.key, name), f"{name}: {float(total):g} used and promised of {float(hard):g}"


def _in_queue(group: GroupFact) -> bool:
    return not group.deleting and group.conditions.get("Enqueued", ("", ""))[0] == "True"


def outstanding(world: World, group: GroupFact) -> Amounts:
    """What a group asks beyond the pods that it has."""
    left = dict(group.asks)
    for pod in world.members.get(group.key, {}).values():
        add(left, pod.request, -1)
    return {name: amount for name, amount in left.items() if amount > 0}
