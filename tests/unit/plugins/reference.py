"""What the predicates mean, one pod and one node at a time: slow, obvious, and what the fast ones are compared with."""

from __future__ import annotations

from collections.abc import Sequence

from kbatch.api.objects import Node, Pod, PodAffinityTerm, TopologySpreadConstraint
from kbatch.model.selectors import (
    host_ports,
    node_matches_pod,
    ports_conflict,
    selector_matches,
    term_covers_namespace,
    term_selector,
    untolerated,
    with_label_keys,
)


class Reference:
    """A cluster: nodes, and pods with the node they stand on and whether they are terminating there."""

    def __init__(self, nodes: Sequence[Node], pods: Sequence[tuple[Pod, str, bool]]) -> None:
        self.nodes = {node.metadata.name: node for node in nodes}
        self.pods = [(pod, self.nodes[on], leaving) for pod, on, leaving in pods]

    def why_not(self, pod: Pod, name: str, *, later: bool) -> str | None:
        """Why the pod may not go to the node; None where it may."""
        node = self.nodes[name]
        spec, labels = pod.spec, node.metadata.labels or {}
        if not node_matches_pod(spec, labels, name):
            return "node selector"
        taint = untolerated(node.spec.taints, spec.tolerations)
        if taint is not None:
            return f"taint {taint.key}"
        for other, where, leaving in self.pods:
            if where is node and not (later and leaving) and ports_conflict(host_ports(spec), host_ports(other.spec)):
                return "host port taken"
        if not self._affinity(pod, node):
            return "pod affinity"
        if not self._anti_affinity(pod, node, later=later):
            return "pod anti-affinity"
        if any(not self._spreads(pod, node, constraint) for constraint in self._hard(pod)):
            return "topology spread"
        return None

    def _means(self, carrier: Pod, term: PodAffinityTerm, other: Pod) -> bool:
        own, its = carrier.metadata.namespace, other.metadata.namespace
        if not term_covers_namespace(term, own, its, lambda name: {"kubernetes.io/metadata.name": name}):
            return False
        return selector_matches(term_selector(term, carrier.metadata.labels), other.metadata.labels)

    def _affinity(self, pod: Pod, node: Node) -> bool:
        affinity = pod.spec.affinity.pod_affinity if pod.spec.affinity else None
        terms = (affinity.required or ()) if affinity else ()
        if any(_domain(node, term.topology_key) is None for term in terms):
            return False
        partners = [
            where
            for other, where, leaving in self.pods
            if not leaving and all(self._means(pod, term, other) for term in terms)
        ]
        if all(
            any(_domain(where, term.topology_key) == _domain(node, term.topology_key) for where in partners)
            for term in terms
        ):
            return True
        nobody = not any(_domain(where, term.topology_key) is not None for where in partners for term in terms)
        return nobody and all(self._means(pod, term, pod) for term in terms)

    def _anti_affinity(self, pod: Pod, node: Node, *, later: bool) -> bool:
        for other, where, leaving in self.pods:
            if later and leaving:
                continue
            for carrier, its in ((pod, other), (other, pod)):
                affinity = carrier.spec.affinity.pod_anti_affinity if carrier.spec.affinity else None
                for term in (affinity.required or ()) if affinity else ():
                    here = _domain(node, term.topology_key)
                    if (
                        here is not None
                        and here == _domain(where, term.topology_key)
                        and self._means(carrier, term, its)
                    ):
                        return False
        return True

    def _hard(self, pod: Pod) -> list[TopologySpreadConstraint]:
        found = pod.spec.topology_spread_constraints or ()
        return [each for each in found if each.when_unsatisfiable == "DoNotSchedule"]

    def _spreads(self, pod: Pod, node: Node, constraint: TopologySpreadConstraint) -> bool:
        here = _domain(node, constraint.topology_key)
        if here is None:
            return False
        part = [each for each in self.nodes.values() if self._takes_part(pod, each, constraint)]
        selector = with_label_keys(constraint.label_selector, pod.metadata.labels, constraint.match_label_keys)

        def alike(other: Pod) -> bool:
            same = other.metadata.namespace == pod.metadata.namespace
            return same and selector_matches(selector, other.metadata.labels)

        counts = {_domain(each, constraint.topology_key): 0 for each in part}
        for other, where, leaving in self.pods:
            if not leaving and where in part and alike(other):
                counts[_domain(where, constraint.topology_key)] += 1
        least = min(counts.values(), default=0) if len(counts) >= (constraint.min_domains or 1) else 0
        return counts.get(here, 0) + alike(pod) - least <= constraint.max_skew

    def _takes_part(self, pod: Pod, node: Node, constraint: TopologySpreadConstraint) -> bool:
        if any(_domain(node, each.topology_key) is None for each in self._hard(pod)):
            return False
        if constraint.node_affinity_policy != "Ignore" and not node_matches_pod(
            pod.spec, node.metadata.labels or {}, node.metadata.name
        ):
            return False
        return constraint.node_taints_policy != "Honor" or untolerated(node.spec.taints, pod.spec.tolerations) is None


def _domain(node: Node, key: str) -> str | None:
    return (node.metadata.labels or {}).get(key)
