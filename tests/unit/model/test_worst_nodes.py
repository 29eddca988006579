"""Of more nodes than a group's status can name, those are named on which most of its pods failed."""

from __future__ import annotations

from kbatch.api.objects import NodeFailures
from kbatch.model.bad_nodes import MOST_NODES, avoided, remembered


def test_a_node_that_is_avoided_is_not_forgotten_for_others_that_are_not() -> None:
    standing = [NodeFailures(node=f"a{number:03}", pods=("once",)) for number in range(MOST_NODES)]
    found = remembered(standing, [("z", "one"), ("z", "two")], 2)
    assert len(found) == MOST_NODES
    assert avoided(found, 2) == {"z"}
