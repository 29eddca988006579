"""What would be free were some gone, kept row by row as nodes and groups change, is what is counted anew."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.engine.placement import kept_counts
from kbatch.engine.placement.kept_counts import ChangedRows, KeptCounts, RoomChanges
from kbatch.engine.preemption.given import beyond, beyond_amounts
from kbatch.engine.state.node_resources import NodeResources
from kbatch.model.nodes import Column
from kbatch.model.tasks import TaskClass
from tests.examples import examples
from tests.unit.engine.worlds import node, pod, world

ROWS = 40
SIZES = ("1", "2", "3")


class Small:
    """Nodes whose room changes within cycles and from one to the next, and what groups hold there."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        model = world([node(f"n{at:02}", "4") for at in range(ROWS)], [pod(f"p{size}", size) for size in SIZES])
        self.classes: list[TaskClass] = [model.tasks[f"ns/p{size}"].cls for size in SIZES]
        self.table = model.table
        self.room = NodeResources(self.table)
        self.held: dict[str, Column] = {}
        self.held_rows = ChangedRows()
        self.kept = KeptCounts(self.held, self.held_rows, ROWS)
        self.changes = RoomChanges(self.room)
        self.allowed = np.array([dice.random() < 0.8 for _ in range(ROWS)])

    def change(self) -> None:
        """Something happens."""
        dice, cls = self.dice, self.dice.choice(self.classes)
        match dice.randrange(6):
            case 0 | 1:
                self.room.pipeline(cls, dice.randrange(ROWS), dice.choice([1, -1]))
            case 2:
                self.room.allocate_all(cls, [dice.randrange(ROWS) for _ in range(dice.randint(1, 30))])
            case 3:
                for name, amount in cls.needs:
                    self.table.idle[name][dice.randrange(ROWS)] += dice.choice([1, -1]) * amount
                self.room = NodeResources(self.table)
            case 4:
                row = dice.randrange(ROWS)
                for name, amount in cls.needs:
                    self.held.setdefault(name, np.zeros(ROWS, np.int64))[row] += amount
                self.held_rows.note([row])
            case _:
                for column in self.held.values():
                    column += 1
                self.held_rows.forget()

    def check(self) -> None:
        """What is kept is what is counted anew."""
        self.changes.follow(self.room)
        self.kept.follow(self.changes)
        for cls in self.classes:
            free = {name: self.room.future[name] + self.held.get(name, 0) for name, _ in cls.needs}
            for name, column in self.kept.free([cls]).items():
                assert column.tolist() == free[name].tolist()
            most = self.dice.randint(1, 3)
            fitting, together = self.kept.fitting(cls, self.allowed, most)
            wanted = np.minimum(most, np.min([np.maximum(free[name], 0) // each for name, each in cls.needs], axis=0))
            assert fitting.tolist() == np.where(self.allowed, wanted, 0).tolist()
            assert together == fitting.sum()
            for name, amount in cls.needs:
                wanted = np.minimum(most, np.maximum(free[name], 0) // amount)
                assert self.kept.fitting_in(cls, name, self.allowed, most) == wanted[self.allowed].sum()
                there = free[name][self.allowed]
                amounts = self.kept.amounts(name, self.allowed)
                assert amounts is not None
                assert amounts.rows == Counter(there.tolist())
                assert amounts.sum == np.maximum(there, 0).sum()


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**32))
def test_what_is_kept_is_what_is_counted_anew(seed: int) -> None:
    small = Small(Random(seed))
    for _ in range(30):
        for _ in range(small.dice.randint(0, 3)):
            small.change()
        if small.dice.random() < 0.2:
            small.kept.keep()
        small.check()


def test_columns_of_many_different_amounts_are_not_told_apart() -> None:
    small = Small(Random(1))
    every = np.ones(ROWS, np.bool_)
    small.held["cpu"] = np.arange(ROWS) // 2
    small.check()
    assert small.kept.amounts("cpu", every) is not None
    many = KeptCounts({"cpu": np.arange(100)}, ChangedRows(), 100)
    assert many.amounts("cpu", np.ones(100, np.bool_)) is None


@settings(max_examples=examples(200))
@given(free=st.lists(st.integers(-2, 7), min_size=1, max_size=20), amount=st.integers(1, 4), more=st.integers(-2, 9))
def test_what_pods_lack_is_the_same_by_rows_and_by_amounts(free: list[int], amount: int, more: int) -> None:
    column = np.maximum(np.array(free, np.int64), 0)
    count = max(1, int((column // amount).sum()) + more)
    assert beyond_amounts(Counter(free), amount, count) == beyond(column, amount, column // amount, count)


def test_changes_that_nobody_asked_for_in_time_are_not_remembered() -> None:
    rows = ChangedRows()
    rows.note([1, 2])
    assert rows.since(0) == [1, 2]
    assert rows.since(1) == [2]
    position = rows.position
    rows.note(range(kept_counts._MOST))
    assert rows.since(position) is None
    assert rows.since(rows.position) == []
    rows.forget()
    assert rows.since(rows.position) == []
    assert rows.since(rows.position - 1) is None
