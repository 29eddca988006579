"""What the API server would refuse, as far as it bears on scheduling.

Each function looks at one object and raises a `FieldError` for the first field that is wrong. A reference to something
that does not exist is not refused where a live cluster accepts it: such a group waits with a condition.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final

from kbatch.api.objects import (
    AnyObject,
    Container,
    Job,
    LabelSelector,
    Metadata,
    Node,
    NodeSelectorTerm,
    PodAffinity,
    PodDisruptionBudget,
    PodGroup,
    PodSpec,
    PriorityClass,
    RawResources,
    ReplicaSet,
    ResourceQuota,
    ResourceRequirements,
)
from kbatch.model.template_budget import Budget
from kbatch.model.template_check import template_error
from kbatch.resources import QuantityError, parse_quantity
from kbatch.simulator.errors import FieldError

_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_HIGHEST_OF_USERS: Final = 10**9
"""The value of a PriorityClass whose name does not begin with `system-` is no higher."""

_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?", re.ASCII)
_OF_CONTAINERS: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_OF_QUEUES: Final = _OF_CONTAINERS | {"pods"}
_OF_QUOTAS: Final = frozenset(
    f"{part}{name}" for part in ("", "requests.", "limits.") for name in _OF_CONTAINERS
) | {
    "pods", "requests.storage", "configmaps", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas",
    "secrets", "services", "services.loadbalancers", "services.nodeports",
}  # fmt: skip
_POLICIES: Final = frozenset({"Never", "PreemptLowerPriority"})
_SYSTEM_CLASSES: Final = frozenset({"system-cluster-critical", "system-node-critical"})
_EFFECTS: Final = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})
_NODE_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})
_LABEL_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_TOLERATION_OPERATORS: Final = frozenset({"", "Exists", "Equal", "Lt", "Gt"})


def check_metadata(metadata: Metadata, *, namespaced: bool) -> None:
    """Names and label values, in Kubernetes' alphabet and length."""
    if len(metadata.name) > 253 or _SUBDOMAIN.fullmatch(metadata.name) is None:
        raise FieldError(
            "metadata.name", f"{metadata.name[:300]!r} is no valid name (lower-case letters, digits, - and .)"
        )
    if namespaced and (len(metadata.namespace) > 63 or _LABEL.fullmatch(metadata.namespace) is None):
        raise FieldError("metadata.namespace", f"{metadata.namespace[:300]!r} is no valid name of a namespace")
    for key, value in (metadata.labels or {}).items():
        if len(value) > 63 or _LABEL_VALUE.fullmatch(value) is None:
            raise FieldError(f"metadata.labels[{key}]", f"{value[:100]!r} is no valid label value")


def check_resources(resources: RawResources | None, field: str) -> None:
    """Every amount is a quantity and not negative."""
    for name, value in (resources or {}).items():
        try:
            amount = parse_quantity(name, value)
        except QuantityError as error:
            raise FieldError(f"{field}.{name}", str(error)) from None
        if amount < 0:
            raise FieldError(f"{field}.{name}", f"{value!r} is negative")


def check_queue_amounts(resources: RawResources | None, field: str) -> None:
    """As `check_resources`, of resources that pods can ask for: of another one a limit would limit nothing."""
    check_resources(resources, field)
    _check_names(resources, _OF_QUEUES, field)


def check_quota_amounts(resources: RawResources | None, field: str) -> None:
    """As `check_resources`, of what a ResourceQuota can count."""
    check_resources(resources, field)
    _check_names(resources, _OF_QUOTAS, field)


def _check_names(resources: RawResources | None, known: frozenset[str], field: str) -> None:
    for name in resources or ():
        if "/" in name or name in known or name.removeprefix("requests.").startswith("hugepages-"):
            continue
        near = difflib.get_close_matches(name, sorted(known), 1)
        raise FieldError(
            f"{field}.{name}",
            f"is none of {', '.join(sorted(known & _OF_QUEUES))}; others have a domain, as in nvidia.com/gpu"
            + (f". Is {near[0]} meant?" if near else ""),
        )


def check_object(obj: AnyObject) -> None:
    """What stands in the spec of a kind that has something to check."""
    match obj:
        case Node():
            check_node(obj)
        case Job():
            _check_count(obj.spec.parallelism, "spec.parallelism")
            _check_count(obj.spec.completions, "spec.completions")
            check_pod_spec(obj.spec.template.spec, "spec.template.spec")
        case ReplicaSet():
            _check_count(obj.spec.replicas, "spec.replicas")
            check_pod_spec(obj.spec.template.spec, "spec.template.spec")
        case ResourceQuota():
            check_quota_amounts(obj.spec.hard, "spec.hard")
        case PriorityClass():
            _check_preemption(obj.preemption_policy, "preemptionPolicy")
            if obj.metadata.name.startswith("system-") and obj.metadata.name not in _SYSTEM_CLASSES:
                raise FieldError("metadata.name", "names that begin with system- are Kubernetes' own")
            highest = 2**31 - 1 if obj.metadata.name.startswith("system-") else _HIGHEST_OF_USERS
            if not -(2**31) <= obj.value <= highest:
                raise FieldError("value", f"{obj.value} is not from {-(2**31)} to {highest}")
        case PodDisruptionBudget():
            _check_budget(obj)
        case _:
            pass


def check_templates(group: PodGroup) -> None:
    """Pods can be made of the templates of the group's roles, as the webhook finds out."""
    roles = {place: role for place, role in enumerate(group.spec.sub_groups or ()) if role.template is not None}
    error = template_error(roles, group=group.metadata.name, namespace=group.metadata.namespace, budget=Budget())
    if error is not None:
        field, _, what = error.partition(": ")
        raise FieldError(field, what)


def check_node(node: Node) -> None:
    """Amounts and taints of a node."""
    check_resources(node.status.allocatable, "status.allocatable")
    check_resources(node.status.capacity, "status.capacity")
    for index, taint in enumerate(node.spec.taints or ()):
        _one_of(taint.effect, _EFFECTS, f"spec.taints[{index}].effect")


def check_pod_spec(spec: PodSpec, field: str = "spec") -> None:
    """What a pod asks for: amounts, limits, selectors, tolerations."""
    for index, container in enumerate(spec.containers):
        _check_container(container, f"{field}.containers[{index}]")
    for index, container in enumerate(spec.init_containers or ()):
        _check_container(container, f"{field}.initContainers[{index}]")
    _check_preemption(spec.preemption_policy, f"{field}.preemptionPolicy")
    _check_requirements(spec.resources, f"{field}.resources")
    check_resources(spec.overhead, f"{field}.overhead")
    for index, toleration in enumerate(spec.tolerations or ()):
        at = f"{field}.tolerations[{index}]"
        _one_of(toleration.operator, _TOLERATION_OPERATORS, f"{at}.operator")
        if toleration.effect:
            _one_of(toleration.effect, _EFFECTS, f"{at}.effect")
        if not toleration.key and toleration.operator != "Exists":
            raise FieldError(f"{at}.operator", "must be Exists where the key is empty")
        if toleration.value and toleration.operator == "Exists":
            raise FieldError(f"{at}.value", "may not be given with the operator Exists")
        if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
            raise FieldError(f"{at}.tolerationSeconds", "may be given with the effect NoExecute alone")
    spread_by: set[tuple[str, str]] = set()
    for index, spread in enumerate(spec.topology_spread_constraints or ()):
        at = f"{field}.topologySpreadConstraints[{index}]"
        if spread.max_skew < 1:
            raise FieldError(f"{at}.maxSkew", f"{spread.max_skew} is below 1")
        _one_of(spread.when_unsatisfiable, frozenset({"DoNotSchedule", "ScheduleAnyway"}), f"{at}.whenUnsatisfiable")
        _check_topology_key(spread.topology_key, at)
        if (spread.topology_key, spread.when_unsatisfiable) in spread_by:
            raise FieldError(at, f"topologyKey {spread.topology_key!r} stands there twice")
        spread_by.add((spread.topology_key, spread.when_unsatisfiable))
        if spread.min_domains is not None and spread.min_domains < 1:
            raise FieldError(f"{at}.minDomains", f"{spread.min_domains} is below 1")
        if spread.min_domains is not None and spread.when_unsatisfiable != "DoNotSchedule":
            raise FieldError(f"{at}.minDomains", "may be given with whenUnsatisfiable DoNotSchedule alone")
        check_label_selector(spread.label_selector, f"{at}.labelSelector")
    if spec.affinity is not None:
        _check_affinity(spec, f"{field}.affinity")


def _check_affinity(spec: PodSpec, field: str) -> None:
    assert spec.affinity is not None  # noqa: S101 -- the caller looked
    node = spec.affinity.node_affinity
    if node is not None:
        at = f"{field}.nodeAffinity"
        if node.required is not None:
            required = f"{at}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
            if not node.required.node_selector_terms:
                raise FieldError(required, "at least one term is required")
            _check_terms(node.required.node_selector_terms, required)
        preferred = f"{at}.{_PREFERRED}"
        _check_terms((term.preference for term in node.preferred or ()), preferred, ".preference")
        _check_weights((term.weight for term in node.preferred or ()), preferred)
    for name, affinity in (
        ("podAffinity", spec.affinity.pod_affinity),
        ("podAntiAffinity", spec.affinity.pod_anti_affinity),
    ):
        if affinity is not None:
            _check_pod_affinity(affinity, f"{field}.{name}")
            _check_weights((term.weight for term in affinity.preferred or ()), f"{field}.{name}.{_PREFERRED}")


def _check_weights(weights: Iterable[int], field: str) -> None:
    for index, weight in enumerate(weights):
        if not 1 <= weight <= 100:
            raise FieldError(f"{field}[{index}].weight", f"{weight} is not from 1 to 100")


def _check_terms(terms: Iterable[NodeSelectorTerm], field: str, part_of: str = "") -> None:
    for index, term in enumerate(terms):
        for part, requirements in (("matchExpressions", term.match_expressions), ("matchFields", term.match_fields)):
            for position, requirement in enumerate(requirements or ()):
                at = f"{field}[{index}]{part_of}.{part}[{position}]"
                _one_of(requirement.operator, _NODE_OPERATORS, f"{at}.operator")
                _check_values(requirement.operator, requirement.values, at)


def _check_values(operator: str, values: tuple[str, ...] | None, field: str) -> None:
    if operator in {"In", "NotIn"} and not values:
        raise FieldError(f"{field}.values", f"must be given with the operator {operator}")
    if operator in {"Exists", "DoesNotExist"} and values:
        raise FieldError(f"{field}.values", f"may not be given with the operator {operator}")
    if operator in {"Gt", "Lt"} and len(values or ()) != 1:
        raise FieldError(f"{field}.values", f"must be one number with the operator {operator}")


def _check_pod_affinity(affinity: PodAffinity, field: str) -> None:
    terms = [*(affinity.required or ()), *(term.pod_affinity_term for term in affinity.preferred or ())]
    for index, term in enumerate(terms):
        _check_topology_key(term.topology_key, f"{field}[{index}]")
        check_label_selector(term.label_selector, f"{field}[{index}].labelSelector")
        check_label_selector(term.namespace_selector, f"{field}[{index}].namespaceSelector")


def _check_topology_key(key: str, field: str) -> None:
    if not key:
        raise FieldError(f"{field}.topologyKey", "may not be empty")


def check_label_selector(selector: LabelSelector | None, field: str) -> None:
    """Its expressions are such as Kubernetes takes."""
    for index, requirement in enumerate((selector.match_expressions if selector is not None else None) or ()):
        at = f"{field}.matchExpressions[{index}]"
        _one_of(requirement.operator, _LABEL_OPERATORS, f"{at}.operator")
        _check_values(requirement.operator, requirement.values, at)


def _check_container(container: Container, field: str) -> None:
    _check_requirements(container.resources, f"{field}.resources")


def _check_requirements(requirements: ResourceRequirements | None, field: str) -> None:
    if requirements is None:
        return
    check_resources(requirements.requests, f"{field}.requests")
    check_resources(requirements.limits, f"{field}.limits")
    for part, amounts in (("requests", requirements.requests), ("limits", requirements.limits)):
        _check_names(amounts, _OF_CONTAINERS, f"{field}.{part}")
    requests: Mapping[str, str | int | float] = requirements.requests or {}
    for name in requests:
        if _is_extended(name) and name not in (requirements.limits or {}):
            raise FieldError(f"{field}.limits.{name}", "is missing: the limit must be given, and be the request")
    for name, limit in (requirements.limits or {}).items():
        if name in requests and parse_quantity(name, requests[name]) > parse_quantity(name, limit):
            raise FieldError(f"{field}.requests.{name}", f"{requests[name]!r} is above the limit {limit!r}")
        if not _is_extended(name):
            continue
        if not _is_whole(limit):
            raise FieldError(f"{field}.limits.{name}", f"{limit!r} is no whole number")
        if name in requests and parse_quantity(name, requests[name]) != parse_quantity(name, limit):
            raise FieldError(f"{field}.requests.{name}", f"{requests[name]!r} is not the limit {limit!r}")


def _is_extended(name: str) -> bool:
    """Whether a resource is of a device plugin: counted in whole numbers, its request the same as its limit."""
    return "/" in name and not name.partition("/")[0].endswith("kubernetes.io")


def _is_whole(amount: str | float) -> bool:
    """Whether a quantity that can be read is a whole number: in thousandths, as cpu is counted, too."""
    try:
        return parse_quantity("cpu", amount) % 1000 == 0
    except QuantityError:  # more thousandths than are counted
        return True


def _check_budget(budget: PodDisruptionBudget) -> None:
    spec = budget.spec
    if spec.min_available is not None and spec.max_unavailable is not None:
        raise FieldError("spec", "minAvailable and maxUnavailable may not both be given")
    for name, value in (("minAvailable", spec.min_available), ("maxUnavailable", spec.max_unavailable)):
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,3}%", value) is None:
            raise FieldError(f"spec.{name}", f"{value!r} is neither a number nor a percentage")
        if isinstance(value, str) and int(value.removesuffix("%")) > 100:
            raise FieldError(f"spec.{name}", f"{value!r} is above 100%")
        if isinstance(value, int):
            _check_count(value, f"spec.{name}")
    check_label_selector(spec.selector, "spec.selector")


def _check_preemption(policy: str | None, field: str) -> None:
    if policy is not None:
        _one_of(policy, _POLICIES, field)


def _check_count(value: int | None, field: str) -> None:
    if value is not None and not 0 <= value < 2**31:
        raise FieldError(field, f"{value} is not a count of 0 or more")


def _one_of(value: str, allowed: frozenset[str], field: str) -> None:
    if value not in allowed:
        names = ", ".join(sorted(name for name in allowed if name))
        raise FieldError(field, f"{value!r} is none of {names}")
