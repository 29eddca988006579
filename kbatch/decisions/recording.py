"""Listening in on a scheduler: what its model is told, what its engine decides.

`RecordedModel` is a model that notes each change; `Recorder.deciding` wraps the engine's `cycle` and hands what it
heard to a `Sink`. Here is only what must happen at once, and it is cheap: references are kept, nothing is encoded.
The objects are never changed once they are in the model, so the sink can write them down later and elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from kbatch.decisions.records import Delta, Mark, PolicyText
from kbatch.engine import CycleState, Memo, Observer, Outcome, Policy, Snapshot, Step, Transaction, Turn, Verdict
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Event
from kbatch.model.image import Image, take_image

Decide: TypeAlias = Callable[[Snapshot, Policy, Memo, Observer], Generator[Step, None, Outcome]]

MOST_DELTAS: Final = 200_000
"""More changes than this between two cycles are not kept: the log ends, and the next starts whole."""


class RecordedModel(ClusterModel):
    """A model that notes what it is told, while somebody listens. `journal` is None while nobody does."""

    journal: list[Delta] | None = None

    def apply(self, event: Event) -> None:
        """As `ClusterModel.apply`; what breaks the model is noted too."""
        self._note(event)
        super().apply(event)

    def assume(self, pod_key: str, uid: str, node: str) -> None:
        """As `ClusterModel.assume`."""
        self._note(Mark("assume", pod_key, uid, node))
        super().assume(pod_key, uid, node)

    def forget(self, pod_key: str, uid: str) -> None:
        """As `ClusterModel.forget`."""
        self._note(Mark("forget", pod_key, uid))
        super().forget(pod_key, uid)

    def evicting(self, pod_key: str, uid: str) -> None:
        """As `ClusterModel.evicting`."""
        self._note(Mark("evicting", pod_key, uid))
        super().evicting(pod_key, uid)

    def not_evicting(self, pod_key: str, uid: str) -> None:
        """As `ClusterModel.not_evicting`."""
        self._note(Mark("not_evicting", pod_key, uid))
        super().not_evicting(pod_key, uid)

    def refuse_bind(self, pod_key: str, uid: str, node: str, until: int | None, why: str = "") -> None:
        """As `ClusterModel.refuse_bind`."""
        self._note(Mark("refuse_bind", pod_key, uid, node, until, why))
        super().refuse_bind(pod_key, uid, node, until, why)

    def refuse_eviction(self, pod_key: str, uid: str, until: int | None, why: str = "") -> None:
        """As `ClusterModel.refuse_eviction`."""
        self._note(Mark("refuse_eviction", pod_key, uid, "", until, why))
        super().refuse_eviction(pod_key, uid, until, why)

    def _note(self, delta: Delta) -> None:
        if self.journal is not None:
            self.journal.append(delta)
            if len(self.journal) > MOST_DELTAS:
                self.journal = None


@dataclass(slots=True)
class Heard:
    """One cycle as it was heard; `records.Cycle` says what the fields mean. `decisions` grow until it has ended."""

    number: int
    now: int
    deltas: list[Delta]
    policy: PolicyText | None
    fresh: bool
    decisions: list[Transaction | Verdict]
    same: bool = False
    next_wake: int | None = None
    failed: str = ""
    cut: bool = False


class Sink(Protocol):
    """Where a log goes. None of the calls may wait."""

    def ready(self) -> bool:
        """Whether a new log may start now."""

    def start(self, image: Image, policy: PolicyText, state: CycleState) -> None:
        """A new log, of cycles that go on from `state`; the log before, if any, has ended."""

    def cycle(self, heard: Heard) -> bool:
        """One more cycle; False where the log has ended and this cycle is no part of it."""

    def end(self, why: str) -> None:
        """The log ends here, if one is open."""


class Recorder:
    """Hears one scheduler.

    Args:
        model: what the scheduler decides on.
        policy: the text of the policy in force.
        sink: gets what is heard.
    """

    def __init__(self, model: RecordedModel, policy: Callable[[], PolicyText], sink: Sink) -> None:
        self._model = model
        self._text = policy
        self._sink = sink
        self._number = 0
        self._policy: Policy | None = None
        self._memo: Memo | None = None
        self._state: CycleState | None = None
        self._last: list[Transaction | Verdict] = []

    def deciding(self, decide: Decide) -> Decide:
        """The engine, listened to: it decides as it did."""

        def listened(
            snapshot: Snapshot, policy: Policy, memo: Memo, observer: Observer
        ) -> Generator[Step, None, Outcome]:
            self._number += 1
            heard, memo = self._begin(snapshot, policy, memo)
            if heard is None:
                return (yield from decide(snapshot, policy, memo, observer))
            deciding = decide(snapshot, policy, memo, observer)
            try:
                while True:
                    try:
                        step = next(deciding)
                    except StopIteration as end:
                        outcome: Outcome = end.value
                        break
                    if not isinstance(step, Turn):
                        heard.decisions.append(step)
                    yield step
            except GeneratorExit:
                heard.cut = True
                raise
            except Exception as error:
                heard.failed = f"{type(error).__name__}: {error}"
                raise
            else:
                heard.next_wake, self._memo, self._state = outcome.next_wake, outcome.memo, outcome.state
                return outcome
            finally:
                deciding.close()
                self._ended(heard)

        return listened

    def _begin(self, snapshot: Snapshot, policy: Policy, memo: Memo) -> tuple[Heard | None, Memo]:
        """What this cycle will be noted in, and the memo that it gets; None where nothing is noted."""
        journal = self._model.journal
        known = memo is self._memo or memo == Memo()
        goes_on = snapshot.state is self._state
        if journal is not None and known and goes_on:
            self._model.journal = []
            text = None if policy is self._policy else self._text()
            self._policy = policy
            fresh = memo is not self._memo
            return Heard(self._number, snapshot.now, journal, text, fresh, []), memo
        whose = "a memo" if goes_on else "a state"
        self._sink.end("too much happened between two cycles" if journal is None else f"{whose} of unknown origin")
        self._model.journal = None
        if not self._sink.ready():
            return None, memo
        self._sink.start(take_image(self._model), self._text(), snapshot.state)
        self._model.journal = []
        self._policy, self._last, self._state = policy, [], snapshot.state
        return Heard(self._number, snapshot.now, [], None, fresh=False, decisions=[]), Memo()

    def _ended(self, heard: Heard) -> None:
        if heard.failed or heard.cut:
            self._memo, self._last = None, []
        else:
            heard.same = bool(heard.decisions) and heard.decisions == self._last
            self._last = heard.decisions
        if not self._sink.cycle(heard):
            self._model.journal = None
