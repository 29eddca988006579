"""Gangs that are to stand close together and whose pods keep apart, or spread: no arrangement of them has fewer hops,
and what is counted beforehand never leaves out a set of nodes that would hold them.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.api.objects import (
    Affinity,
    GroupTopology,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from tests.examples import examples
from tests.reference.hops import widest
from tests.unit.engine.worlds import group, node, pod, policy, queue, run, world

pytestmark = pytest.mark.many

POLICY = policy("""
actions: allocate
tiers:
- plugins: [{name: gang}, {name: predicates}, {name: nodeorder}, {name: topology, arguments: {levels: [zone, rack]}}]
""")
HOST = "kubernetes.io/hostname"
ALIKE = LabelSelector(match_labels={"app": "g"})

_NODES = st.lists(
    st.tuples(st.sampled_from("xyz"), st.sampled_from("pq"), st.integers(0, 3)), min_size=2, max_size=6
)  # fmt: skip
_KEYS = st.sampled_from([HOST, "zone", "rack"])


def _allowed(rows: tuple[int, ...], labels: list[dict[str, str]], key: str, skew: int | None) -> bool:
    """Whether pods on these rows keep apart by the label, or are spread by it as evenly as this."""
    counts = {each[key]: 0 for each in labels}
    for row in rows:
        counts[labels[row][key]] += 1
    if skew is None:
        return max(counts.values()) <= 1
    return max(counts.values()) - min(counts.values()) <= skew


@settings(max_examples=examples(300), deadline=None)
@given(_NODES, st.integers(1, 4), _KEYS, st.sampled_from([None, 1, 2]), st.sampled_from([None, 0, 2, 4, 6]))
def test_no_arrangement_of_pods_that_keep_apart_has_fewer_hops(
    places: list[tuple[str, str, int]], size: int, key: str, skew: int | None, bound: int | None
) -> None:
    labels = [{"zone": zone, "rack": rack, HOST: f"n{at}"} for at, (zone, rack, _) in enumerate(places)]
    term = PodAffinityTerm(topology_key=key, label_selector=ALIKE)
    spread = TopologySpreadConstraint(
        max_skew=skew or 1, topology_key=key, when_unsatisfiable="DoNotSchedule", label_selector=ALIKE
    )
    pods = [pod(f"p{at}", "1", of="g", labels={"app": "g"}) for at in range(size)]
    for each in pods:
        if skew is None:
            each.spec.affinity = Affinity(pod_anti_affinity=PodAffinity(required=(term,)))
        else:
            each.spec.topology_spread_constraints = (spread,)
    nodes = [node(f"n{at}", str(cpu), labels=labels[at]) for at, (_, _, cpu) in enumerate(places)]
    found = run(world(queue(), nodes, group("g", size, topology=GroupTopology(max_hops=bound)), pods), POLICY)

    paths = [(zone, rack, f"n{at}") for at, (zone, rack, _) in enumerate(places)]
    hops = [
        widest([paths[row] for row in rows])
        for rows in combinations_with_replacement(range(len(places)), size)
        if all(rows.count(row) <= places[row][2] for row in rows) and _allowed(rows, labels, key, skew)
    ]
    best = min(hops, default=None)
    if best is None or (bound is not None and best > bound):
        assert not found.binds
    else:
        assert len(found.binds) == size
        assert widest([paths[int(name[1:])] for name in found.binds.values()]) == best
