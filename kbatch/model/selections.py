"""What pods ask of nodes besides room, as far as it decides which part of a cluster they may use.

A `Selection` is the selector, the required node affinity and the tolerations of a pod, without what names single nodes
(the host name, the field metadata.name): a pod that is tied to one node uses its queue's share of the cluster like any
other. Equal ones are one object, so that a cluster of thousands of classes of tasks has a handful of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from kbatch.api.objects import Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorTerm, PodSpec, Toleration
from kbatch.model.selectors import BINDING_EFFECTS, node_matches_pod, untolerated

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
_FIELD_OF_NAME: Final = "metadata.name"
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


@dataclass(eq=False, frozen=True, slots=True, weakref_slot=True)
class Selection:
    """What tasks ask of nodes besides room.

    Attributes:
        id: small integer, unique within one `SelectionTable`.
        spec: a pod's spec with nothing but this.
        plain: whether it chooses no nodes and tolerates nothing.
    """

    id: int
    spec: PodSpec
    plain: bool

    def admits(self, node: Node) -> bool:
        """Whether labels and taints of a node allow it."""
        spec, meta = self.spec, node.metadata
        chosen = (spec.node_selector is None and spec.affinity is None) or node_matches_pod(
            spec, meta.labels or {}, meta.name
        )
        return chosen and (not node.spec.taints or untolerated(node.spec.taints, spec.tolerations) is None)


@dataclass
class SelectionTable:
    """The selections in use, interned by content. The id of one that went out of use is never given again."""

    _by_content: WeakValueDictionary[bytes, Selection] = field(default_factory=WeakValueDictionary)
    _count: int = 0

    def __len__(self) -> int:
        return len(self._by_content)

    @property
    def forgotten(self) -> int:
        """How many went out of use so far."""
        return self._count - len(self._by_content)

    @property
    def plain(self) -> Selection:
        """That of a pod that chooses no nodes and tolerates nothing."""
        return self.read(PodSpec())

    def read(self, spec: PodSpec) -> Selection:
        """The selection of a pod's spec."""
        selector = {key: value for key, value in (spec.node_selector or {}).items() if key != HOSTNAME_LABEL}
        reduced = PodSpec(
            node_selector=selector or None,
            affinity=_affinity(spec),
            tolerations=_tolerations(spec.tolerations or ()),
        )
        content = _encode((reduced.node_selector, reduced.affinity, reduced.tolerations))
        found = self._by_content.get(content)
        if found is None:
            plain = not (selector or reduced.affinity or reduced.tolerations)
            found = self._by_content[content] = Selection(self._count, reduced, plain)
            self._count += 1
        return found

    def read_template(self, template: dict[str, Any]) -> Selection | None:
        """The selection of pods made from a template; None where that depends on the pod, or cannot be read."""
        raw = template.get("spec")
        if not isinstance(raw, dict):
            return None
        parts = {key: raw[key] for key in ("nodeSelector", "affinity", "tolerations") if raw.get(key) is not None}
        text = repr(parts)
        if "{{" in text or "{%" in text:
            return None
        try:
            return self.read(msgspec.convert(parts, PodSpec))
        except msgspec.ValidationError:
            return None


def _affinity(spec: PodSpec) -> Affinity | None:
    """The required node affinity without what names single nodes; None where it chooses no nodes then."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return None
    terms: list[NodeSelectorTerm] = []
    for term in affinity.required.node_selector_terms:
        expressions = tuple(each for each in term.match_expressions or () if each.key != HOSTNAME_LABEL)
        fields = tuple(each for each in term.match_fields or () if each.key != _FIELD_OF_NAME)
        if not expressions and not fields and (term.match_expressions or term.match_fields):
            return None  # by all that counts here, every node matches this term
        terms.append(NodeSelectorTerm(match_expressions=expressions or None, match_fields=fields or None))
    return Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=tuple(terms))))


def _tolerations(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...] | None:
    """Those that may let a pod onto a node, in one order: for how long it may stay there makes no difference."""
    kept = {
        Toleration(key=each.key, operator=each.operator, value=each.value, effect=each.effect)
        for each in tolerations
        if not each.effect or each.effect in BINDING_EFFECTS
    }
    order = sorted(kept, key=lambda each: (each.key, each.operator, each.value, each.effect))
    return tuple(order) or None
