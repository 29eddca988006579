"""Who matches whom: labels and selectors, node affinity, taints and tolerations, host ports, namespaces of terms.

Pure functions over the typed objects, one object at a time, exactly as Kubernetes defines the matching. They are the
meaning; the predicates' columns over thousands of nodes are an optimisation of these and are tested against them.
"""
# ruff: noqa: A005 - `kbatch.model.selectors` hides nothing: imports are absolute

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kbatch.api.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    Node,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinityTerm,
    PodSpec,
    Taint,
    Toleration,
)

NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"
BINDING_EFFECTS: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})
"""The effects that keep a new pod away; PreferNoSchedule only makes a node less wanted."""

_NO_LABELS: Final[Mapping[str, str]] = {}


# --- labels -----------------------------------------------------------------------------------------------------------


def requirement_matches(
    requirement: LabelSelectorRequirement | NodeSelectorRequirement, labels: Mapping[str, str]
) -> bool:
    """Whether one expression holds. NotIn holds where the label is missing; an operator nobody knows never does."""
    value = labels.get(requirement.key)
    values = requirement.values or ()
    match requirement.operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            return value is not None and len(values) == 1 and _compares(value, operator, values[0])
        case _:
            return False


def _compares(value: str, operator: str, bound: str) -> bool:
    """Gt and Lt compare whole numbers; what is none compares with nothing."""
    left, right = _whole_number(value), _whole_number(bound)
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right


def _whole_number(text: str) -> int | None:
    digits = text[1:] if text[:1] in {"-", "+"} else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None


def selector_matches(selector: LabelSelector | None, labels: Mapping[str, str] | None) -> bool:
    """Whether a label selector selects these labels. No selector selects nothing; an empty one selects everything."""
    if selector is None:
        return False
    labels = labels or _NO_LABELS
    for key, value in (selector.match_labels or _NO_LABELS).items():
        if labels.get(key) != value:
            return False
    return all(requirement_matches(requirement, labels) for requirement in selector.match_expressions or ())


def with_label_keys(
    selector: LabelSelector | None,
    labels: Mapping[str, str] | None,
    match_keys: Sequence[str] | None,
    mismatch_keys: Sequence[str] | None = None,
) -> LabelSelector | None:
    """The selector narrowed by matchLabelKeys and mismatchLabelKeys of a pod with these labels.

    A key that the pod does not carry is ignored. Newer API servers have merged the keys already; doing so twice changes
    nothing.
    """
    if selector is None or not (match_keys or mismatch_keys):
        return selector
    labels = labels or _NO_LABELS
    extra = [
        LabelSelectorRequirement(key=key, operator=operator, values=(labels[key],))
        for keys, operator in ((match_keys, "In"), (mismatch_keys, "NotIn"))
        for key in keys or ()
        if key in labels
    ]
    if not extra:
        return selector
    return LabelSelector(
        match_labels=selector.match_labels, match_expressions=(*(selector.match_expressions or ()), *extra)
    )


# --- nodes ------------------------------------------------------------------------------------------------------------


def node_term_matches(term: NodeSelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    """Whether all of a term holds for a node. A term without any requirement matches no node."""
    if not term.match_expressions and not term.match_fields:
        return False
    if not all(requirement_matches(requirement, labels) for requirement in term.match_expressions or ()):
        return False
    fields = {"metadata.name": name}  # the only field that Kubernetes knows here
    return all(
        requirement.key in fields and requirement_matches(requirement, fields)
        for requirement in term.match_fields or ()
    )


def node_selector_matches(selector: NodeSelector, labels: Mapping[str, str], name: str) -> bool:
    """Whether any term of a node selector matches a node."""
    return any(node_term_matches(term, labels, name) for term in selector.node_selector_terms)


def node_matches_pod(spec: PodSpec, labels: Mapping[str, str], name: str) -> bool:
    """Whether a node satisfies a pod's nodeSelector and its required node affinity."""
    for key, value in (spec.node_selector or _NO_LABELS).items():
        if labels.get(key) != value:
            return False
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return True
    return node_selector_matches(affinity.required, labels, name)


def domain_of(node: Node, topology_key: str) -> str | None:
    """The topology domain that a node stands in; None where it lacks the label and so stands in none."""
    return (node.metadata.labels or _NO_LABELS).get(topology_key)


# --- taints -----------------------------------------------------------------------------------------------------------


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration covers one taint.

    An empty effect covers every effect; an empty key with Exists covers every key. Gt and Lt compare the taint's value
    with the toleration's as whole numbers.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return bool(toleration.key) and toleration.value == taint.value
        case "Gt" | "Lt" as operator:
            return bool(toleration.key) and _compares(taint.value, operator, toleration.value)
        case _:
            return False


def untolerated(
    taints: Iterable[Taint] | None, tolerations: Iterable[Toleration] | None, effects: frozenset[str] = BINDING_EFFECTS
) -> Taint | None:
    """The first taint of one of these effects that no toleration covers; None where there is none."""
    tolerations = tuple(tolerations or ())
    for taint in taints or ():
        if taint.effect in effects and not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


# --- host ports -------------------------------------------------------------------------------------------------------


class HostPort(NamedTuple):
    """A port of the node itself that a pod takes. The address `0.0.0.0` means all of them."""

    ip: str
    protocol: str
    port: int

    def meets(self, other: HostPort) -> bool:
        """Whether no two pods can take both on one node."""
        same = (self.protocol, self.port) == (other.protocol, other.port)
        return same and (self.ip == other.ip or ANY_ADDRESS in (self.ip, other.ip))


ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - a wildcard to compare with; nothing listens on it


def host_ports(spec: PodSpec) -> frozenset[HostPort]:
    """The host ports that a pod takes while it runs: its containers' and its sidecars'.

    On the host's network every port of a container is one of the host.
    """
    sidecars = [container for container in spec.init_containers or () if container.restart_policy == "Always"]
    found: set[HostPort] = set()
    for container in (*spec.containers, *sidecars):
        for port in container.ports or ():
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number > 0:
                found.add(HostPort(port.host_ip or ANY_ADDRESS, port.protocol or "TCP", number))
    return frozenset(found)


def ports_conflict(left: Iterable[HostPort], right: Iterable[HostPort]) -> bool:
    """Whether two sets of host ports cannot stand on one node: same port and protocol, and addresses that meet."""
    right = tuple(right)
    return any(
        a.port == b.port and a.protocol == b.protocol and (a.ip == b.ip or ANY_ADDRESS in {a.ip, b.ip})
        for a in left
        for b in right
    )


# --- terms of inter-pod affinity --------------------------------------------------------------------------------------


def term_covers_namespace(
    term: PodAffinityTerm,
    own_namespace: str,
    namespace: str,
    labels_of: Callable[[str], Mapping[str, str]],
) -> bool:
    """Whether an affinity term of a pod in `own_namespace` speaks of pods in `namespace`.

    Neither names nor a selector: its own namespace. An empty selector: all. Otherwise the named ones and the selected.

    Args:
        term: the term.
        own_namespace: the namespace of the pod that carries the term.
        namespace: the namespace in question.
        labels_of: the labels of a namespace by name; empty for one that is not known.
    """
    if not term.namespaces and term.namespace_selector is None:
        return namespace == own_namespace
    if namespace in (term.namespaces or ()):
        return True
    return term.namespace_selector is not None and selector_matches(term.namespace_selector, labels_of(namespace))


def term_selector(term: PodAffinityTerm, labels: Mapping[str, str] | None) -> LabelSelector | None:
    """The selector of a term, narrowed by the keys of the pod (with these labels) that carries it."""
    return with_label_keys(term.label_selector, labels, term.match_label_keys, term.mismatch_label_keys)
