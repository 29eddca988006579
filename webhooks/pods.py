"""What admission says of a new pod: does it wait at a gate, would it eat into what others were promised? Pure.

A group in queue was promised the part of its minResources that it does not use yet. A pod may use what is promised to
its own group, and what is promised to nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kbatch.api.names import GROUP_NAME_ANNOTATION, IN_QUEUE_GATE
from kbatch.api.objects import Pod, ResourceQuota
from kbatch.api.reasons import QuotaExceeded
from kbatch.model.promised import Sums
from kbatch.model.quota import Ask, ask_of_pod, charge, hard_limits, used_amounts
from kbatch.resources import QuantityError, Resources, add, maximum, subtract

BURST_SECONDS: Final = 1.0
"""How long a quota's `used` may take to show a pod that was let through here."""
LONGEST_BURST: Final = 5.0
"""How long pods let through are added up before the quota's `used` is believed again: meanwhile others have ended."""
_MOST_BURSTS: Final = 1000
"""So many are kept before those that are over are looked for: nobody may ask about their quotas again."""


def ask(pod: Pod) -> Ask | None:
    """What the pod is charged with; None where its amounts cannot be read."""
    try:
        return ask_of_pod(pod)
    except QuantityError:
        return None


def group_of(pod: Pod, scheduler_name: str) -> str:
    """The group that the pod is a member of; empty for none, and for pods of other schedulers."""
    if pod.spec.scheduler_name != scheduler_name:
        return ""
    return (pod.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION, "")


def gated(pod: Pod) -> list[dict[str, str]]:
    """The pod's scheduling gates with ours among them."""
    names = [gate.name for gate in pod.spec.scheduling_gates or () if gate.name != IN_QUEUE_GATE]
    return [{"name": name} for name in (*names, IN_QUEUE_GATE)]


def eats_into(
    quotas: Iterable[ResourceQuota],
    pod: Ask,
    *,
    own: Ask | None,
    promised: Sums,
    used: Mapping[str, Resources],
) -> QuotaExceeded | None:
    """The first limit in which the pod would use what is promised to others; None if there is none.

    Args:
        quotas: the namespace's.
        pod: what the pod is charged with.
        own: what its own group was promised and does not use yet.
        promised: the same of all groups together, its own too.
        used: of each quota, what is used; by the quota's name.
    """
    for quota in quotas:
        try:
            asked = charge(quota, pod)
            mine = charge(quota, own) if own is not None else {}
            reserved = subtract(promised.charged(quota), mine)
            hard = hard_limits(quota)
        except QuantityError:
            continue  # the API server would not have taken it; it limits nobody
        taken = used.get(quota.metadata.name, {})
        wanted = maximum(asked, mine)
        for name in sorted(asked):
            if asked[name] <= mine.get(name, 0) or not reserved.get(name, 0):
                continue
            if taken.get(name, 0) + reserved[name] + wanted[name] > hard[name]:
                return QuotaExceeded(
                    quota.metadata.name, name, asked[name], reserved[name] + mine.get(name, 0), taken.get(name, 0),
                    hard[name],
                )  # fmt: skip
    return None


@dataclass(slots=True)
class _Burst:
    base: Resources
    first: float
    let_through: Resources = field(default_factory=dict)
    last: float = 0.0


class Used:
    """What is used of each quota, pods that were let through a moment ago included, before `status.used` shows them."""

    def __init__(self) -> None:
        self._bursts: dict[str, _Burst] = {}
        self._most = _MOST_BURSTS

    def of(self, quotas: Iterable[ResourceQuota], now: float) -> dict[str, Resources]:
        """By the quotas' names; `now` in monotonic seconds."""
        found: dict[str, Resources] = {}
        for quota in quotas:
            try:
                told = used_amounts(quota)
            except QuantityError:
                continue
            burst = self._bursts.get(_key(quota))
            if burst is not None and _over(burst, now):
                del self._bursts[_key(quota)]
                burst = None
            found[quota.metadata.name] = told if burst is None else maximum(told, add(burst.base, burst.let_through))
        return found

    def let_through(self, quotas: Iterable[ResourceQuota], pod: Ask, now: float) -> None:
        """A pod was let through."""
        for quota in quotas:
            try:
                asked = charge(quota, pod)
                base = used_amounts(quota)
            except QuantityError:
                continue
            if len(self._bursts) >= self._most:  # of quotas that are gone, or of which nothing was asked since
                self._bursts = {key: burst for key, burst in self._bursts.items() if not _over(burst, now)}
                self._most = max(_MOST_BURSTS, 2 * len(self._bursts))
            burst = self._bursts.setdefault(_key(quota), _Burst(base, now))
            burst.let_through = add(burst.let_through, asked)
            burst.last = now


def _over(burst: _Burst, now: float) -> bool:
    return now - burst.last > BURST_SECONDS or now - burst.first > LONGEST_BURST


def _key(quota: ResourceQuota) -> str:
    return f"{quota.metadata.namespace}/{quota.metadata.name}"


def refusal(reason: QuotaExceeded) -> str:
    """The words with which a pod is refused."""
    return f"the pod would use what PodGroups in queue were promised: it {reason.message} ({reason.code})"
