"""What a ResourceQuota says about a group: which of its limits the group is charged to, and whether it still fits.

A quota limits names such as `requests.cpu`, `limits.memory`, `pods`, `count/pods` or `requests.nvidia.com/gpu`. The
functions here speak in those names, amounts in the unit of the resource behind them: `requests.cpu` in milli-cores.

A group is charged with what it asks beyond the pods that it already has: those stand in the quota's `used`
(`outstanding`). So for one quota, `used` + reserved for other groups + asked by this one must stay within `hard`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kbatch.api.objects import Pod, PodAffinityTerm, PodSpec, RawResources, ResourceQuota, ScopedSelectorRequirement
from kbatch.model.requests import effective_limit, effective_request, is_best_effort
from kbatch.resources import PODS, QuantityError, Resources, add, parse_quantity, scale, subtract

_REQUESTS: Final = "requests."
_LIMITS: Final = "limits."
_PLAIN: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Resources whose bare name in a quota means their request; any other needs the prefix, but hugepages."""
_NUMBER_OF_PODS: Final = frozenset({PODS, "count/pods"})


@dataclass(frozen=True, slots=True)
class Subject:
    """What a quota's scopes look at in a pod.

    Attributes:
        best_effort: neither cpu nor memory is requested or limited.
        terminating: it has an activeDeadlineSeconds (Kubernetes' name for a pod that will end by itself).
        priority_class: the name of its PriorityClass; empty for none.
        crosses_namespaces: its affinity speaks of pods in other namespaces.
    """

    best_effort: bool = False
    terminating: bool = False
    priority_class: str = ""
    crosses_namespaces: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """What a group (or some pods) would use: sums over its pods.

    Attributes:
        requests: by resource name, as in minResources.
        limits: by resource name; what limits are not known of counts as nothing.
        pods: how many pods.
        subject: what they look like to scopes.
    """

    requests: Resources
    limits: Resources = field(default_factory=dict)
    pods: int = 0
    subject: Subject = Subject()


@dataclass(frozen=True, slots=True)
class Excess:
    """One limit of one quota that would be passed, with the numbers of the condition QuotaExceeded."""

    quota: str
    resource: str
    asked: int
    reserved: int
    used: int
    hard: int

    @property
    def headroom(self) -> int:
        """What is left for others than those that already use or reserved it; never negative."""
        return max(0, self.hard - self.used - self.reserved)

    @property
    def hopeless(self) -> bool:
        """Whether the group alone is larger than the quota: no waiting helps."""
        return self.asked > self.hard


# --- what is asked ----------------------------------------------------------------------------------------------------


def subject_of(spec: PodSpec) -> Subject:
    """What a quota's scopes see of a pod, or of a template.

    Raises:
        QuantityError: a resource amount cannot be read.
    """
    return Subject(
        best_effort=is_best_effort(spec),
        terminating=spec.active_deadline_seconds is not None,
        priority_class=spec.priority_class_name,
        crosses_namespaces=_crosses_namespaces(spec),
    )


def ask_of_group(
    min_resources: Mapping[str, int], pods: int, priority_class: str = "", template: PodSpec | None = None
) -> Ask:
    """What a PodGroup asks for with its minResources and a number of pods.

    minResources may itself name `requests.cpu`, `limits.memory` or `pods`, as a quota does. Where it names no limits, a
    template's limits times the number of pods stand for them. Without a template, scopes see a pod of the group's
    PriorityClass that ends only when it is done.

    Raises:
        QuantityError: a resource amount of the template cannot be read.
    """
    requests: Resources = {}
    limits: Resources = {}
    for name, amount in min_resources.items():
        if name in _NUMBER_OF_PODS:
            pods = amount
        elif name.startswith(_LIMITS):
            limits[name.removeprefix(_LIMITS)] = amount
        else:
            requests[name.removeprefix(_REQUESTS)] = amount
    if template is None:
        best_effort = not (requests.keys() | limits.keys()) & {"cpu", "memory"}
        return Ask(requests, limits, pods, Subject(best_effort=best_effort, priority_class=priority_class))
    return Ask(requests, limits or scale(effective_limit(template), pods), pods, subject_of(template))


def ask_of_pod(pod: Pod) -> Ask:
    """What one pod is charged with.

    Raises:
        QuantityError: a resource amount cannot be read.
    """
    return Ask(effective_request(pod.spec), effective_limit(pod.spec), 1, subject_of(pod.spec))


def outstanding(ask: Ask, own: Iterable[Ask]) -> Ask:
    """What a group asks beyond its own pods that exist: those the quota already counts."""
    own = tuple(own)
    return Ask(
        subtract(ask.requests, add(*(part.requests for part in own))),
        subtract(ask.limits, add(*(part.limits for part in own))),
        max(0, ask.pods - sum(part.pods for part in own)),
        ask.subject,
    )


# --- what a quota says of it ------------------------------------------------------------------------------------------


def applies(quota: ResourceQuota, subject: Subject) -> bool:
    """Whether pods of this kind are within the quota's scopes: all of them, and all of its scope selector."""
    expressions = (quota.spec.scope_selector.match_expressions or ()) if quota.spec.scope_selector else ()
    return all(_in_scope(scope, subject) for scope in quota.spec.scopes or ()) and all(
        _in_selected_scope(expression, subject) for expression in expressions
    )


def concerns_pods(quota: ResourceQuota) -> bool:
    """Whether pods can come up against it; not where it limits other objects only, as `count/podgroups...` does.

    A quota whose limits are not known yet may.
    """
    names = _hard_of(quota)
    return not names or any(name in _NUMBER_OF_PODS or name.startswith(_LIMITS) or _is_request(name) for name in names)


def charge(quota: ResourceQuota, ask: Ask) -> Resources:
    """The amounts by which a quota's limits are charged, by the quota's own names.

    Every limit of the quota that pods can use at all stands in the answer, with 0 where nothing is asked; limits on
    other things (services, storage claims) do not. Empty where the scopes leave the pods out.
    """
    if not applies(quota, ask.subject):
        return {}
    charged: Resources = {}
    for name in _hard_of(quota):
        if name in _NUMBER_OF_PODS:
            charged[name] = ask.pods
        elif name.startswith(_LIMITS):
            charged[name] = ask.limits.get(name.removeprefix(_LIMITS), 0)
        elif _is_request(name):
            charged[name] = ask.requests.get(name.removeprefix(_REQUESTS), 0)
    return charged


def usage(quota: ResourceQuota, pods: Iterable[Pod]) -> Resources:
    """What these pods use of a quota, as its controller would count: those that have not ended.

    Raises:
        QuantityError: a resource amount of a pod cannot be read.
    """
    return add(*(charge(quota, ask_of_pod(pod)) for pod in pods if pod.status.phase not in {"Succeeded", "Failed"}))


def hard_limits(quota: ResourceQuota) -> Resources:
    """The limits by the quota's own names, cpu in milli-cores; those in force, else those that are wanted.

    Raises:
        QuantityError: a limit cannot be read.
    """
    return _amounts(_hard_of(quota))


def used_amounts(quota: ResourceQuota) -> Resources:
    """What the quota's controller says is used, by the quota's own names; empty before it has counted.

    Raises:
        QuantityError: an amount cannot be read.
    """
    return _amounts(quota.status.used or {})


def headroom(quota: ResourceQuota, reserved: Mapping[str, int], used: Mapping[str, int] | None = None) -> Resources:
    """What is left of each limit beside what is used and what is reserved; never negative.

    Args:
        quota: the quota.
        reserved: by the quota's names, what other groups were promised and do not use yet.
        used: by the quota's names; None takes what the quota's controller says.

    Raises:
        QuantityError: an amount cannot be read.
    """
    return subtract(hard_limits(quota), add(used_amounts(quota) if used is None else used, reserved))


def exceeded(
    quota: ResourceQuota, asked: Mapping[str, int], reserved: Mapping[str, int], used: Mapping[str, int] | None = None
) -> tuple[Excess, ...]:
    """The limits that `asked` (a `charge`) would pass, in the order of their names; those that no wait can help first.

    A limit of which nothing is asked is not passed, however much is used of it.

    Raises:
        QuantityError: an amount cannot be read.
    """
    hard = hard_limits(quota)
    used = used_amounts(quota) if used is None else used
    over = [
        Excess(quota.metadata.name, name, amount, reserved.get(name, 0), used.get(name, 0), hard[name])
        for name, amount in asked.items()
        if amount > 0 and name in hard and used.get(name, 0) + reserved.get(name, 0) + amount > hard[name]
    ]
    return tuple(sorted(over, key=lambda excess: (not excess.hopeless, excess.resource)))


# --- inside -----------------------------------------------------------------------------------------------------------


def _hard_of(quota: ResourceQuota) -> RawResources:
    return quota.status.hard or quota.spec.hard or {}


def _amounts(raw: RawResources) -> Resources:
    """Amounts of a quota: `requests.cpu` and `limits.cpu` are cpu, so they are read in milli-cores."""
    amounts: Resources = {}
    for name, value in raw.items():
        try:
            amounts[name] = parse_quantity(name.removeprefix(_REQUESTS).removeprefix(_LIMITS), value)
        except QuantityError as error:
            raise QuantityError(error.text, f"{str(error).rpartition(': ')[2]} (quota {name})") from None
    return amounts


def _is_request(name: str) -> bool:
    """Whether a quota's name means a request of pods; `requests.storage` is of volume claims."""
    if name == "requests.storage":
        return False
    return name.startswith((_REQUESTS, "hugepages-")) or name in _PLAIN


def _in_scope(scope: str, subject: Subject) -> bool:
    """A scope that nobody knows here leaves pods out: it is about something else (a volume's attributes)."""
    match scope:
        case "BestEffort":
            return subject.best_effort
        case "NotBestEffort":
            return not subject.best_effort
        case "Terminating":
            return subject.terminating
        case "NotTerminating":
            return not subject.terminating
        case "PriorityClass":
            return subject.priority_class != ""
        case "CrossNamespacePodAffinity":
            return subject.crosses_namespaces
        case _:
            return False


def _in_selected_scope(expression: ScopedSelectorRequirement, subject: Subject) -> bool:
    if expression.scope_name != "PriorityClass":
        return _in_scope(expression.scope_name, subject)  # the others are matched by Exists only
    name, values = subject.priority_class, expression.values or ()
    match expression.operator:
        case "In":
            return name != "" and name in values
        case "NotIn":
            return name == "" or name not in values
        case "Exists":
            return name != ""
        case "DoesNotExist":
            return name == ""
        case _:
            return False


def _crosses_namespaces(spec: PodSpec) -> bool:
    affinity = spec.affinity
    if affinity is None:
        return False
    terms: list[PodAffinityTerm] = []
    for part in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if part is not None:
            terms += part.required or ()
            terms += [weighted.pod_affinity_term for weighted in part.preferred or ()]
    return any(term.namespaces or term.namespace_selector is not None for term in terms)
