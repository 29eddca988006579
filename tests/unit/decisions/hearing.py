"""A scheduler in one thread, a sink in memory, and a log of both."""

from __future__ import annotations

from dataclasses import dataclass, field

from kbatch.api.configuration import DEFAULT, parse
from kbatch.decisions.recording import Decide, Heard, RecordedModel, Recorder
from kbatch.decisions.records import PolicyText
from kbatch.decisions.writing import beginning, line_of
from kbatch.engine import (
    CycleState,
    Memo,
    NullObserver,
    Policy,
    Transaction,
    Turn,
    Verdict,
    build_policy,
    cycle,
    take_snapshot,
)
from kbatch.model.image import Image
from kbatch.times import SECOND

TEXT = """
actions: "enqueue, reclaim, allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""
POLICY = build_policy(parse(TEXT, "test"))
START = 1_767_225_600 * SECOND


@dataclass
class MemorySink:
    logs: list[list[bytes]] = field(default_factory=list)
    open: bool = False
    accepts: bool = True
    endings: list[str] = field(default_factory=list)
    most: int = 10_000
    """Cycles in one log."""

    def ready(self) -> bool:
        return not self.open and self.accepts

    def start(self, image: Image, policy: PolicyText, state: CycleState) -> None:
        self.open = True
        self.logs.append(list(beginning(image, policy, state, "test")))
        self.cycles = 0

    def cycle(self, heard: Heard) -> bool:
        if not self.open or self.cycles >= self.most:
            self.open = False
            return False
        self.cycles += 1
        self.logs[-1].append(line_of(heard))
        return True

    def end(self, why: str) -> None:
        if self.open:
            self.open = False
            self.endings.append(why)


class Hearing:
    """Runs cycles on a recorded model as the live loop does, and carries out what is decided as marks."""

    def __init__(self, *, policy: Policy = POLICY, text: str = TEXT, decide: Decide = cycle) -> None:
        self.model = RecordedModel()
        self.sink = MemorySink()
        self.policy, self.text = policy, text
        self.recorder = Recorder(self.model, lambda: PolicyText(self.text, "test"), self.sink)
        self.decide = self.recorder.deciding(decide)
        self.memo, self.state = Memo(), CycleState()
        self.now = START

    def cycle(self, *, assume: bool = True) -> list[Transaction | Verdict]:
        self.now += SECOND
        steps = self.decide(take_snapshot(self.model, self.now, self.state), self.policy, self.memo, NullObserver())
        found: list[Transaction | Verdict] = []
        try:
            while True:
                step = next(steps)
                if not isinstance(step, Turn):
                    found.append(step)
        except StopIteration as end:
            self.memo, self.state = end.value.memo, end.value.state
        for decision in found:
            if assume and isinstance(decision, Transaction):
                for bind in decision.binds:
                    self.model.assume(bind.pod, bind.uid, bind.node)
                for victim in decision.evictions:
                    self.model.evicting(victim.pod, victim.uid)
        return found


__all__ = ["DEFAULT", "POLICY", "START", "TEXT", "Hearing", "MemorySink"]
