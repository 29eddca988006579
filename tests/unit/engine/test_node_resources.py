"""What is free on all nodes together is kept current, whatever comes and goes."""

from __future__ import annotations

import random

import numpy as np

from kbatch.engine.state.node_resources import NodeResources
from tests.unit.engine.worlds import node, pod, world


def test_what_is_free_in_all_follows_every_change() -> None:
    nodes = [node(f"n{number}", str(number)) for number in range(1, 9)]
    pods = [pod(f"p{size}", str(size)) for size in (1, 2, 3)]
    model = world(*nodes, *pods)
    classes = [model.tasks[f"ns/p{size}"].cls for size in (1, 2, 3)]
    names = [name for name, _ in classes[0].needs]
    chance = random.Random(1)
    for _ in range(50):
        room = NodeResources(model.table)
        for _ in range(40):
            cls, row, sign = chance.choice(classes), chance.randrange(8), chance.choice((1, 1, -1))
            rows = chance.sample(range(8), 3)
            step = chance.randrange(6)
            if step == 0:
                room.allocate(cls, row, sign)  # more than there is, too: that frees nothing elsewhere
            elif step == 1:
                room.pipeline(cls, row, sign)
            elif step == 2:
                room.release(cls, row, sign)
            elif step == 3:
                room.keep(np.array(rows), {"cpu": np.array([1000, 0, 5000])}, sign)
            elif step == 4:
                room.allocate_all(cls, [*rows, rows[0]])
            else:
                room.expect_no_more(cls, row)
            asked = chance.choice(names)
            assert room.free(asked) == int(np.maximum(room.future[asked], 0).sum())
    assert room.free("example.com/none") == 0
