"""Which other pods a pod's spec speaks of: terms of affinity and spread in a form that can be compared and hashed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from kbatch.api.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    PodAffinityTerm,
    PodSpec,
    TopologySpreadConstraint,
)
from kbatch.model.cluster import ClusterModel
from kbatch.model.selectors import requirement_matches, with_label_keys
from kbatch.model.tasks import TaskClass

NamespaceLabels: TypeAlias = Callable[[str], Mapping[str, str]]
"""The labels of a namespace by its name."""

_NOTHING: Final = LabelSelectorRequirement(key="", operator="In", values=())


@dataclass(frozen=True, slots=True)
class _Labels:
    """A label selector in a form that can be compared and hashed."""

    equal: tuple[tuple[str, str], ...]
    expressions: tuple[LabelSelectorRequirement, ...]

    def match(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.equal) and all(
            requirement_matches(each, labels) for each in self.expressions
        )


def _labels(selector: LabelSelector | None) -> _Labels:
    if selector is None:
        return _Labels((), (_NOTHING,))
    return _Labels(tuple(sorted((selector.match_labels or {}).items())), selector.match_expressions or ())


@dataclass(frozen=True, slots=True)
class _Part:
    """Pods of some namespaces with some labels."""

    labels: _Labels
    namespaces: frozenset[str]
    namespace_labels: _Labels | None

    def match(self, namespace: str, labels: Mapping[str, str], labels_of: NamespaceLabels) -> bool:
        if not self.labels.match(labels):
            return False
        if namespace in self.namespaces:
            return True
        return self.namespace_labels is not None and self.namespace_labels.match(labels_of(namespace))


@dataclass(frozen=True, slots=True)
class Who:
    """Which pods are meant: those for which every part holds."""

    parts: tuple[_Part, ...]

    def match(self, cls: TaskClass, labels_of: NamespaceLabels) -> bool:
        """Whether pods of a class are meant."""
        return all(part.match(cls.namespace, cls.labels, labels_of) for part in self.parts)

    @property
    def anchor(self) -> tuple[str, str] | None:
        """A label that every pod that is meant carries; None where there is no such one."""
        for part in self.parts:
            if part.labels.equal:
                return part.labels.equal[0]
            for each in part.labels.expressions:
                if each.operator == "In" and each.values is not None and len(each.values) == 1:
                    return each.key, each.values[0]
        return None


def who_of(term: PodAffinityTerm, carrier: TaskClass) -> Who:
    """The pods that a term speaks of when pods of class `carrier` carry it."""
    return Who((_part_of(term, carrier),))


def who_of_all(terms: Iterable[PodAffinityTerm], carrier: TaskClass) -> Who:
    """The pods of which all the terms speak: those that required affinity counts."""
    return Who(tuple(_part_of(term, carrier) for term in terms))


def who_alike(selector: LabelSelector | None, keys: tuple[str, ...] | None, carrier: TaskClass) -> Who:
    """The pods of the carrier's own namespace that a spread constraint counts."""
    narrowed = with_label_keys(selector, carrier.labels, keys)
    return Who((_Part(_labels(narrowed), frozenset((carrier.namespace,)), None),))


def _part_of(term: PodAffinityTerm, carrier: TaskClass) -> _Part:
    narrowed = with_label_keys(term.label_selector, carrier.labels, term.match_label_keys, term.mismatch_label_keys)
    names = frozenset(term.namespaces or ())
    if not names and term.namespace_selector is None:
        names = frozenset((carrier.namespace,))
    selector = _labels(term.namespace_selector) if term.namespace_selector is not None else None
    return _Part(_labels(narrowed), names, selector)


def required_terms(spec: PodSpec) -> tuple[tuple[PodAffinityTerm, ...], tuple[PodAffinityTerm, ...]]:
    """The required terms of a pod: those of affinity, and those of anti-affinity."""
    affinity = spec.affinity
    if affinity is None:
        return (), ()
    near, far = affinity.pod_affinity, affinity.pod_anti_affinity
    return (near.required or ()) if near is not None else (), (far.required or ()) if far is not None else ()


def preferred_terms(spec: PodSpec) -> list[tuple[PodAffinityTerm, int]]:
    """The preferred terms of a pod with their weights, those of anti-affinity below zero."""
    affinity = spec.affinity
    if affinity is None:
        return []
    near = (affinity.pod_affinity.preferred or ()) if affinity.pod_affinity is not None else ()
    far = (affinity.pod_anti_affinity.preferred or ()) if affinity.pod_anti_affinity is not None else ()
    return [
        *((weighted.pod_affinity_term, weighted.weight) for weighted in near if weighted.weight),
        *((weighted.pod_affinity_term, -weighted.weight) for weighted in far if weighted.weight),
    ]


def hard_constraints(spec: PodSpec) -> tuple[TopologySpreadConstraint, ...]:
    """The spread constraints that must hold."""
    found = spec.topology_spread_constraints or ()
    return tuple(each for each in found if each.when_unsatisfiable == "DoNotSchedule")


def soft_constraints(spec: PodSpec) -> tuple[TopologySpreadConstraint, ...]:
    """The spread constraints that only make some nodes better than others."""
    found = spec.topology_spread_constraints or ()
    return tuple(each for each in found if each.when_unsatisfiable == "ScheduleAnyway")


def namespace_labels(model: ClusterModel, namespace: str) -> Mapping[str, str]:
    """The labels of a namespace, its own name among them."""
    return model.namespace_labels(namespace)
