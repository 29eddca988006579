"""PodDisruptionBudgets: how many more of their pods may be evicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kbatch.api.objects import PodDisruptionBudget
from kbatch.api.reasons import Protector
from kbatch.engine.plugin import Unit
from kbatch.model.cluster import ClusterModel
from kbatch.model.selectors import selector_matches
from kbatch.model.tasks import Task


class Budgets:
    """What each budget still allows, as a statement evicts and takes back."""

    def __init__(self, model: ClusterModel) -> None:
        self._model = model
        self._by_namespace: dict[str, list[tuple[str, PodDisruptionBudget]]] = {}
        for key, budget in sorted(model.objects.get(PodDisruptionBudget, {}).items()):
            if isinstance(budget, PodDisruptionBudget):
                self._by_namespace.setdefault(budget.metadata.namespace, []).append((key, budget))
        self._left: dict[str, int] = {}
        self._of: dict[str, tuple[str, ...]] = {}

    def allow(self, unit: Unit) -> bool:
        """Whether all pods of the unit may go at once."""
        return not self._forbidding(unit)

    def protecting(self, unit: Unit) -> list[tuple[Protector, str]]:
        """The budgets."""
        return [(Protector.BUDGET, key) for key in self._forbidding(unit)]

    def _forbidding(self, unit: Unit) -> Sequence[str]:
        """The budgets that keep the unit; none where it may go."""
        if not self._by_namespace:
            return ()
        asked: dict[str, int] = {}
        for task in unit.tasks:
            keys = self._matching(task)
            if len(keys) > 1:
                return keys  # the eviction API refuses a pod that counts in several budgets, whatever they allow
            for key in keys:
                asked[key] = asked.get(key, 0) + 1
        return [key for key, count in asked.items() if count > self._left[key]]

    def removed(self, task: Task, row: int) -> Callable[[], None]:
        """A pod is evicted; the answer takes that back."""
        if not self._by_namespace or not task.holds:
            return _nothing
        keys = self._matching(task)
        for key in keys:
            self._left[key] -= 1

        def undo() -> None:
            for key in keys:
                self._left[key] += 1

        return undo

    def of(self, task: Task) -> tuple[str, ...]:
        """The budgets that the eviction API asks about the pod."""
        return self._matching(task) if self._by_namespace else ()

    def _matching(self, task: Task) -> tuple[str, ...]:
        if task.pod.status.phase == "Pending":
            return ()  # the eviction API lets such a pod go whatever budgets say
        found = self._of.get(task.key)
        if found is None:
            budgets = self._by_namespace.get(task.pod.metadata.namespace, ())
            labels = task.pod.metadata.labels
            found = tuple(
                key for key, budget in budgets
                if budget.spec.selector is not None and selector_matches(budget.spec.selector, labels)
            )  # fmt: skip
            self._of[task.key] = found
            for key, budget in budgets:
                if key in found and key not in self._left:
                    self._left[key] = self._allowed(budget)
        return found

    def _allowed(self, budget: PodDisruptionBudget) -> int:
        """What its status allows, less the evictions under way; without a status, worked out from its spec."""
        namespace = budget.metadata.namespace
        pods = [
            task for task in self._model.tasks.values()
            if task.pod.metadata.namespace == namespace and not task.terminal
            and selector_matches(budget.spec.selector, task.pod.metadata.labels)
        ]  # fmt: skip
        status = budget.status  # once its controller has seen it, what that expects may be no pod at all
        if status is not None and (status.expected_pods or status.observed_generation):
            under_way = sum(1 for task in pods if task.terminating and task.release_at is None)
            return max(0, status.disruptions_allowed - under_way)
        healthy = sum(1 for task in pods if task.running and not task.terminating)
        if budget.spec.max_unavailable is not None:
            return max(0, healthy - (len(pods) - _amount(budget.spec.max_unavailable, len(pods))))
        return max(0, healthy - _amount(budget.spec.min_available, len(pods)))


def _amount(value: int | str | None, total: int) -> int:
    """A number, or a percentage of the total, rounded up; nothing that can be read counts as all."""
    if isinstance(value, int):
        return value
    text = (value or "").removesuffix("%")
    return -(-int(text) * total // 100) if text.isdigit() else total


def _nothing() -> None:
    """Nothing to take back."""
