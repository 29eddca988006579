"""Whether disruption budgets let all victims of a plan go, by what the API server says of them now.

A dry run evicts nothing, so that several victims of one budget are all taken by it where only the first would be in
earnest: a plan would be carried out by halves when what the watch has told of the budget is old.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kbatch.api.objects import PodDisruptionBudget
from kbatch.engine import Eviction
from kbatch.kube.client import Api
from kbatch.kube.errors import ApiError, Cause, KubeError
from kbatch.kube.kinds import PODDISRUPTIONBUDGETS
from kbatch.kube.lists import list_named
from kbatch.model.cluster import ClusterModel
from kbatch.model.selectors import selector_matches

REASON = "TooManyRequests"


async def overdrawn(api: Api, model: ClusterModel, victims: Sequence[Eviction]) -> list[tuple[Eviction, KubeError]]:
    """The victims that budgets do not let go together with the others, in their order, and why.

    Asks the API server only of budgets with two victims or more: for one, its dry run has asked.
    """
    several = {key: some for key, some in _by_budget(model, victims).items() if len(some) > 1}
    answers = await asyncio.gather(*(_refused(api, key, some) for key, some in several.items()))
    return [refusal for answer in answers for refusal in answer]


def _by_budget(model: ClusterModel, victims: Sequence[Eviction]) -> dict[tuple[str, str], list[Eviction]]:
    budgets = [
        one for one in model.objects.get(PodDisruptionBudget, {}).values() if isinstance(one, PodDisruptionBudget)
    ]
    found: dict[tuple[str, str], list[Eviction]] = {}
    for victim in victims if budgets else ():
        task = model.tasks.get(victim.pod)
        if task is None or task.uid != victim.uid or task.pod.status.phase == "Pending":
            continue  # of those that have not started no budget is asked
        pod = task.pod.metadata
        for budget in budgets:
            meta, selector = budget.metadata, budget.spec.selector
            if meta.namespace == pod.namespace and selector is not None and selector_matches(selector, pod.labels):
                found.setdefault((meta.namespace, meta.name), []).append(victim)
    return found


async def _refused(api: Api, key: tuple[str, str], victims: Sequence[Eviction]) -> list[tuple[Eviction, KubeError]]:
    namespace, name = key
    try:
        found = await list_named(api, PODDISRUPTIONBUDGETS, namespace=namespace, name=name)
    except KubeError as error:
        return [(victims[0], error)]
    if found is None:
        return []
    status = found.status
    allowed = status.disruptions_allowed if status is not None else 0
    why = f"budget {name} lets {allowed} pods go, and {len(victims)} are to"
    return [(victim, ApiError(429, REASON, why, (Cause("DisruptionBudget", why),))) for victim in victims[allowed:]]
