"""Where a pod may stand, read from its manifest and its node's by the auditor itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Labels = Mapping[str, str]

CORDONED = "node.kubernetes.io/unschedulable"
"""Kubernetes' taint for what `spec.unschedulable` says; the rule of closed nodes judges that."""


ANY = "0.0.0.0"  # noqa: S104  (what a host's port has where no address is named)


@dataclass(frozen=True)
class Marks:
    """What of a node decides who may stand on it."""

    name: str
    labels: Labels
    taints: tuple[Mapping[str, str], ...]


@dataclass(frozen=True)
class Asks:
    """What a pod asks of a node and of its neighbours."""

    labels: Labels
    selector: Labels
    terms: tuple[Mapping[str, Any], ...] | None
    """Of required node affinity: one of them must hold; None: there is none."""
    tolerations: tuple[Mapping[str, str], ...]
    apart: tuple[Mapping[str, Any], ...]
    """Required anti-affinity to other pods."""
    together: tuple[Mapping[str, Any], ...]
    """Required affinity to other pods."""
    ports: frozenset[tuple[str, str, int]]
    """Of the host: address, protocol, port."""


def marks_of(node: Mapping[str, Any]) -> Marks:
    """A node's labels, and those taints that keep pods away."""
    meta = node["metadata"]
    taints = [one for one in (node.get("spec") or {}).get("taints") or () if one.get("effect") != "PreferNoSchedule"]
    return Marks(meta["name"], dict(meta.get("labels") or {}), tuple(one for one in taints if one["key"] != CORDONED))


def asks_of(pod: Mapping[str, Any]) -> Asks:
    """A pod's constraints."""
    spec, meta = pod["spec"], pod["metadata"]
    affinity = spec.get("affinity") or {}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    of_nodes = (affinity.get("nodeAffinity") or {}).get(required)
    return Asks(
        labels=dict(meta.get("labels") or {}),
        selector=dict(spec.get("nodeSelector") or {}),
        terms=None if of_nodes is None else tuple(of_nodes.get("nodeSelectorTerms") or ()),
        tolerations=tuple(spec.get("tolerations") or ()),
        apart=tuple((affinity.get("podAntiAffinity") or {}).get(required) or ()),
        together=tuple((affinity.get("podAffinity") or {}).get(required) or ()),
        ports=frozenset(_ports(spec)),
    )


def _ports(spec: Mapping[str, Any]) -> Iterable[tuple[str, str, int]]:
    for container in spec.get("containers") or ():
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (port.get("containerPort") if spec.get("hostNetwork") else 0)
            if number:
                yield port.get("hostIP") or ANY, port.get("protocol") or "TCP", number


def unwelcome(asks: Asks, node: Marks) -> str:
    """Why a pod must not stand on a node; empty where it may."""
    for name, value in asks.selector.items():
        if node.labels.get(name) != value:
            return f"selects {name}={value}"
    if asks.terms is not None and not any(_term_holds(term, node) for term in asks.terms):
        return "its node affinity does not hold"
    for taint in node.taints:
        if not any(_tolerates(toleration, taint) for toleration in asks.tolerations):
            return f"does not tolerate {taint['key']}"
    return ""


def _term_holds(term: Mapping[str, Any], node: Marks) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    return bool(expressions or fields) and (
        all(expression_holds(one, node.labels) for one in expressions)
        and all(expression_holds(one, {"metadata.name": node.name}) for one in fields)
    )


def expression_holds(expression: Mapping[str, Any], labels: Labels) -> bool:
    """One requirement of a selector."""
    value, values = labels.get(expression["key"]), list(expression.get("values") or ())
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            try:
                has, bound = int(value or ""), int(values[0])
            except ValueError:
                return False
            return has > bound if operator == "Gt" else has < bound
    return False


def _tolerates(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    operator, key = toleration.get("operator") or "Equal", toleration.get("key") or ""
    if not key:
        return operator == "Exists"
    if key != taint["key"]:
        return False
    if operator in {"Gt", "Lt"}:
        return True  # numeric tolerations are not judged
    return operator == "Exists" or (toleration.get("value") or "") == (taint.get("value") or "")


def collide(one: Asks, other: Asks) -> bool:
    """Whether two pods want the same port of one host."""
    return any(
        protocol == theirs and port == number and (address == there or ANY in {address, there})
        for address, protocol, port in one.ports
        for there, theirs, number in other.ports
    )


def about(term: Mapping[str, Any], labels: Labels) -> bool:
    """Whether a term of affinity, or anti-affinity, is about a pod with these labels, in its own namespace."""
    selector = term.get("labelSelector")
    if selector is None or set(term) - {"labelSelector", "topologyKey", "namespaces"}:
        return False  # other namespaces by labels, keys of revisions: not judged
    return selected(selector, labels)


def selected(selector: Mapping[str, Any], labels: Labels) -> bool:
    """Whether a selector is about these labels."""
    return all(labels.get(name) == value for name, value in (selector.get("matchLabels") or {}).items()) and all(
        expression_holds(one, labels) for one in selector.get("matchExpressions") or ()
    )
