"""Nodes on which pods failed: whoever writes it down, and whatever is gone by then, each failure counts once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kbatch.api.objects import NodeFailures
from kbatch.model.bad_nodes import MOST_NODES, avoided, remembered

_pods = st.dictionaries(st.integers(0, 30).map("u{}".format), st.integers(0, 5).map("n{}".format), max_size=20)
"""By uid the node on which a pod failed."""


@given(_pods, st.lists(st.sets(st.integers(0, 30).map("u{}".format)), max_size=6), st.integers(1, 4))
def test_a_node_is_avoided_exactly_when_so_many_were_ever_seen_to_fail_there(
    failed: dict[str, str], looks: list[set[str]], limit: int
) -> None:
    """At each look only some of the pods are there: those before are known from what was written."""
    standing: tuple[NodeFailures, ...] = ()
    seen: dict[str, str] = {}
    for there in looks:
        now = [(failed[uid], uid) for uid in there if uid in failed]
        seen.update({uid: node for node, uid in now})
        unwritten = avoided(remembered(standing, now, limit), limit)
        standing = remembered(standing, now, limit)
        assert remembered(standing, now, limit) == standing, "what is written is what is wanted"
        nodes = list(seen.values())
        assert avoided(standing, limit) == {node for node in nodes if nodes.count(node) >= limit}
        assert unwritten == avoided(standing, limit), "the scheduler need not wait until it is written"


@given(st.integers(1, 3), st.integers(MOST_NODES, MOST_NODES + 20))
def test_it_does_not_grow_for_ever(limit: int, nodes: int) -> None:
    seen = [(f"n{at}", f"u{at}-{again}") for at in range(nodes) for again in range(5)]
    found = remembered((), seen, limit)
    assert len(found) == MOST_NODES
    assert all(len(one.pods) == limit for one in found)
    assert remembered(found, seen, limit) == found
