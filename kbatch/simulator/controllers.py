"""What Kubernetes' controllers would do with the objects at hand: pods of Jobs and ReplicaSets, and statuses.

Only what decides about placement is imitated: how many pods there are and what they are called, how many may be evicted
of those that a PodDisruptionBudget guards, how much of a ResourceQuota is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from kbatch.api.names import GROUP_NAME_ANNOTATION, QUEUE_LABEL
from kbatch.api.objects import (
    Job,
    OwnerReference,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetStatus,
    PodTemplate,
    ReplicaSet,
    ResourceQuota,
    ResourceQuotaStatus,
)
from kbatch.model.quota import hard_limits, usage
from kbatch.model.selectors import selector_matches
from kbatch.resources import Resources, format_quantity
from kbatch.simulator.names import FOR_PODS
from kbatch.simulator.pods import Owner, from_template

_BACKOFF_LIMIT: Final = 6
"""Kubernetes' default of a Job's backoffLimit."""


@dataclass(slots=True)
class Maker:
    """A controller that keeps a number of pods of one template.

    Attributes:
        owner: how its pods refer to it.
        parallel: pods that are to be alive at a time.
        completions: pods that are to succeed in all; None: as many as there are.
        group: the PodGroup whose entry into its queue it waits for; empty: it need not wait.
        suspended: no pod is created before that; a suspended Job without a group waits for ever.
        waits: that is still to come, or was taken back.
        made, alive, succeeded: pods so far; `alive` counts those that were created and have not ended.
        limit: of how many of its pods may fail (its backoffLimit); None: of any number.
        forgives: those that were evicted, or lost their node, do not count.
        failed: how many count so far.
    """

    owner: Owner
    reference: OwnerReference
    template: PodTemplate
    prefix: str
    parallel: int
    completions: int | None = None
    group: str = ""
    suspended: bool = False
    waits: bool = False
    labels: dict[str, str] = field(default_factory=dict)
    indexed: bool = False
    made: int = 0
    alive: int = 0
    succeeded: int = 0
    limit: int | None = None
    forgives: bool = False
    failed: int = 0

    @property
    def ongoing(self) -> bool:
        """It may still make pods although none is there: a Job that has not ended. A ReplicaSet never tells."""
        if self.owner.kind != "Job":
            return False
        if self.completions is None:
            return self.alive > 0 or self.succeeded == 0
        return self.succeeded < self.completions

    def missing(self) -> int:
        """How many pods to create now."""
        if self.waits:
            return 0
        if self.completions is None:
            # Neither a Job without completions nor a simulated ReplicaSet starts again what has succeeded.
            return max(0, self.parallel - self.alive - self.succeeded)
        return max(0, min(self.parallel, self.completions - self.succeeded) - self.alive)

    def lost(self, *, disrupted: bool) -> bool:
        """A pod has failed, or (`disrupted`) was evicted or lost its node; whether the Job would fail by just this."""
        if disrupted and self.forgives:
            return False
        self.failed += 1
        return self.limit is not None and self.failed == self.limit + 1

    def withdraw(self, count: int) -> None:
        """So many of its pods were deleted because it must wait again; they are made anew, from the first name on."""
        self.waits = True
        self.alive -= count
        self.made = 0

    def make(self, taken: Iterable[str]) -> list[Pod]:
        """The missing pods, named by their index; names in `taken` (`namespace/name`) are passed over."""
        pods: list[Pod] = []
        for _ in range(self.missing()):
            while f"{self.owner.namespace}/{self.prefix}{self.made}" in taken:
                self.made += 1
            labels = dict(self.labels)
            if self.indexed:
                labels["batch.kubernetes.io/job-completion-index"] = str(self.made)
            name = f"{self.prefix}{self.made}"
            pods.append(from_template(self.template, name, self.reference, self.owner.namespace, labels))
            self.made += 1
            self.alive += 1
        return pods


def maker_of_job(job: Job) -> Maker:
    """What the Job controller does with a Job."""
    meta, spec = job.metadata, job.spec
    parallel = 1 if spec.parallelism is None else spec.parallelism
    completions = spec.completions
    if completions is None and spec.parallelism is None:
        completions = 1
    group = (spec.template.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION, "")
    limit = spec.backoff_limit
    labels = {"batch.kubernetes.io/job-name": meta.name, "job-name": meta.name}
    return Maker(
        owner=Owner("Job", meta.namespace, meta.name),
        reference=_reference("batch/v1", "Job", meta.name, meta.uid),
        template=_template(spec.template, meta.annotations, meta.labels),
        prefix=f"{meta.name}-",
        parallel=parallel,
        completions=completions,
        group=f"{meta.namespace}/{group}" if group else "",
        suspended=spec.suspend,
        waits=spec.suspend,
        labels=labels,
        indexed=spec.completion_mode == "Indexed",
        limit=None if spec.backoff_limit_per_index is not None else _BACKOFF_LIMIT if limit is None else limit,
        forgives=_forgives(job),
    )


def _forgives(job: Job) -> bool:
    """Whether its podFailurePolicy ignores pods that were evicted or lost their node."""
    policy = job.spec.pod_failure_policy
    for rule in (policy.rules or ()) if policy is not None else ():
        if any(pattern.type == "DisruptionTarget" for pattern in rule.on_pod_conditions or ()):
            return rule.action == "Ignore"  # the first rule that matches decides
    return False


def maker_of_replica_set(replica_set: ReplicaSet) -> Maker:
    """What the ReplicaSet controller does with a ReplicaSet."""
    meta, spec = replica_set.metadata, replica_set.spec
    return Maker(
        owner=Owner("ReplicaSet", meta.namespace, meta.name),
        reference=_reference("apps/v1", "ReplicaSet", meta.name, meta.uid),
        template=_template(spec.template, meta.annotations, meta.labels),
        prefix=f"{meta.name}-",
        parallel=1 if spec.replicas is None else spec.replicas,
    )


def _reference(api_version: str, kind: str, name: str, uid: str) -> OwnerReference:
    return OwnerReference(api_version=api_version, kind=kind, name=name, uid=uid, controller=True)


def _template(template: PodTemplate, annotations: dict[str, str] | None, labels: dict[str, str] | None) -> PodTemplate:
    """The template, with the owner's annotations for pods and its queue where it says nothing of its own."""
    owners = annotations or {}
    more = {name: owners[name] for name in FOR_PODS if name in owners}
    queue = {QUEUE_LABEL: labels[QUEUE_LABEL]} if labels and QUEUE_LABEL in labels else {}
    if not more and not queue:
        return template
    meta = template.metadata
    filled = replace(meta, annotations={**more, **(meta.annotations or {})}, labels={**queue, **(meta.labels or {})})
    return PodTemplate(metadata=filled, spec=template.spec)


# --- statuses ---------------------------------------------------------------------------------------------------------


class QuotaUse:
    """A quota, and what the pods of its namespace use of it, kept pod by pod: a change costs what it changes.

    Attributes:
        news: something else may be used of it than was last stated.
    """

    def __init__(self, quota: ResourceQuota) -> None:
        self._quota = replace(quota, status=ResourceQuotaStatus(hard=quota.spec.hard))
        self._used: Resources = dict.fromkeys(hard_limits(self._quota), 0)
        self._charged: dict[str, tuple[str, Resources]] = {}
        self.news = True

    def count(self, key: str, pod: Pod | None) -> None:
        """The pod of this key is this one now; None: there is none."""
        if pod is not None and pod.status.phase in {"Succeeded", "Failed"}:
            pod = None
        uid, amounts = self._charged.get(key, ("", {}))
        if pod is not None and pod.metadata.uid == uid:
            return  # what it asks for does not change
        self.news = self.news or bool(amounts)
        for name, amount in amounts.items():
            self._used[name] -= amount
        self._charged.pop(key, None)
        if pod is not None:
            amounts = usage(self._quota, [pod])
            for name, amount in amounts.items():
                self._used[name] += amount
            self._charged[key] = pod.metadata.uid, amounts
            self.news = self.news or bool(amounts)

    def stated(self) -> ResourceQuota:
        """The quota with what is used of it."""
        self.news = False
        written: dict[str, str | int | float] = {
            name: format_quantity(name.removeprefix("requests.").removeprefix("limits."), amount)
            for name, amount in sorted(self._used.items())
        }
        return replace(self._quota, status=replace(self._quota.status, used=written))


def with_allowance(budget: PodDisruptionBudget, pods: Sequence[Pod]) -> PodDisruptionBudget:
    """The budget with how many of these pods of its namespace may be evicted now.

    Terminating pods are neither healthy nor expected: what replaces them is among the pods already. For maxUnavailable,
    and for percentages, as many pods are expected as their controllers are to keep; a pod without a controller is not
    expected to come again, so such a budget over these alone lets none of them go.
    """
    spec = budget.spec
    if spec.min_available is None and spec.max_unavailable is None:
        return budget
    guarded = [
        pod
        for pod in pods
        if pod.metadata.deletion_timestamp is None
        and pod.status.phase not in {"Succeeded", "Failed"}
        and selector_matches(spec.selector, pod.metadata.labels)
    ]
    healthy = sum(pod.status.phase == "Running" for pod in guarded)
    kept = sum(any(owner.controller for owner in pod.metadata.owner_references) for pod in guarded)
    expected = len(guarded) if spec.max_unavailable is None and isinstance(spec.min_available, int) else kept
    if spec.max_unavailable is not None:
        desired = expected - _count(spec.max_unavailable, expected)
    else:
        desired = _count(spec.min_available, expected)
    status = PodDisruptionBudgetStatus(
        disruptions_allowed=max(0, healthy - max(0, desired)) if expected else 0,
        current_healthy=healthy,
        desired_healthy=max(0, desired),
        expected_pods=expected,
        observed_generation=max(1, budget.metadata.generation),
    )
    return budget if budget.status == status else replace(budget, status=status)


def _count(value: int | str | None, of: int) -> int:
    """A number, or a percentage of `of`, rounded up as Kubernetes does."""
    if isinstance(value, str):
        return -(-int(value.rstrip("%")) * of // 100)
    return value or 0
