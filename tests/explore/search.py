"""The search through the states of one world, those with the fewest disturbances first.

From every state the quiet moves are followed until the world is at rest, or where that was seen before. So it is known
of every state that it comes to rest, at the cost of one cycle for each.
"""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kbatch.engine import Memo, Verdict
from tests.explore import checks, moves
from tests.explore.moves import Decided, Move, decide
from tests.explore.state import Objects, State, digest
from tests.explore.world import World
from tests.property.test_victims import checked_plans

_BROAD: Final = 1
"""After so many disturbances not all of those that may follow are tried, but a few, drawn by the state."""
_FEW: Final = 6
_LONGEST: Final = 80
"""Quiet moves that are followed from one state. Groups that can never start time out and come back again and again."""
_MOST_TOLD: Final = 3
"""Violations of one kind that are told of one world."""


@dataclass(frozen=True, slots=True)
class Violation:
    """What did not hold, and the moves that lead there from the start."""

    world: str
    path: tuple[str, ...]
    what: str

    @property
    def replay(self) -> str:
        """What `--replay` takes."""
        return f"{self.world}:{','.join(self.path)}"

    @property
    def kind(self) -> str:
        """What is alike of violations that have one cause, most likely."""
        return re.sub(r"\(.*|[\w/-]*\d[\w-]*", "_", self.what, flags=re.DOTALL)[:100]


@dataclass
class Found:
    """What a search has come to."""

    states: int = 0
    deepest: int = 0
    complete: bool = False
    violations: list[Violation] = field(default_factory=list)
    untold: int = 0


@dataclass
class Search:
    """The search of one world; plain data, so that it can be kept and gone on with.

    Attributes:
        cap: how many states are looked at.
        strict: see `checks.Following`.
        reached: each state's digest with that of the state before, the move between, and the disturbances until it.
        waiting: states that nobody has looked at.
        done: digests of the states that were looked at.
    """

    world: World
    cap: int
    strict: bool = False
    reached: dict[int, tuple[int, str, int]] = field(default_factory=dict)
    waiting: deque[tuple[State, int]] = field(default_factory=deque)
    done: set[int] = field(default_factory=set)
    found: Found = field(default_factory=Found)

    @property
    def name(self) -> str:
        """Which world this is, as `--replay` takes it."""
        return self.world.name

    def run(self) -> Iterator[None]:
        """Look at state after state, until the cap or the end; may be left off after each."""
        objects = Objects(self.world)
        if not self.reached:
            first = start(self.world, objects)
            number = digest(self.world, first)
            self.reached[number] = (0, "", 0)
            self.waiting.append((first, number))
        while self.waiting and len(self.done) < self.cap:
            state, number = self.waiting.popleft()
            if number not in self.done:
                self._follow(objects, state, number)
            self.found.states = len(self.done)
            yield
        self.found.complete = not self.waiting

    def _follow(self, objects: Objects, state: State, number: int) -> None:
        """Look at a state and those that follow it quietly."""
        following = checks.Following(self.strict, began=state.now if self._began(number) else -1)
        model, memo = objects.model(state), Memo()
        stands: dict[str, Verdict] = {}
        chain: dict[int, tuple[State, Decided]] = {}
        before: checks.Before | None = None
        try:
            for _ in range(_LONGEST):
                fresh = objects.model(state)
                checks.standing(fresh)
                if before is not None:
                    before.carried_out(fresh)
                before = checks.Before(fresh)
                decided = said_anew(self.world, fresh, state)
                kept = decide(model, self.world.policy, state.now, memo, state.carried)
                stands = checks.remembered(decided, kept, stands)
                memo = kept.outcome.memo
                before.decisions(decided)
                checks.within_quota(self.world, state, decided)
                following.step(self.world, state, decided)
                first = number not in self.done
                self.done.add(number)
                chain[number] = state, decided
                depth = self.reached[number][2]
                self.found.deepest = max(self.found.deepest, depth)
                if first and len(self.done) + len(self.waiting) < self.cap:
                    self._disturb(objects, state, number, decided)
                move = moves.quiet(self.world, state, decided)
                if move is None:
                    following.rest(self.world, state)
                    return
                if move.name != "all":
                    before = None
                after = digest(self.world, move.state)
                if after in chain:
                    numbers = list(chain)
                    checks.loops(self.world, [chain[one] for one in numbers[numbers.index(after) :]])
                    return
                if after in self.done and not following.owed:
                    return
                objects.move(model, state, move.state)
                if after not in self.reached:
                    self.reached[after] = (number, move.name, depth)
                state, number = move.state, after
        except AssertionError as error:
            self.done.add(number)
            self._tell(number, error)

    def _disturb(self, objects: Objects, state: State, number: int, decided: Decided) -> None:
        """Note the states that a disturbance leads to."""
        depth = self.reached[number][2] + 1
        possible = list(disturbing(self.world, state, decided))
        if depth > _BROAD + 1 and len(possible) > _FEW:
            possible = random.Random(number).sample(possible, _FEW)
        for move in possible:
            after = digest(self.world, move.state)
            if after not in self.reached:
                self.reached[after] = (number, move.name, depth)
                self.waiting.append((move.state, after))

    def _tell(self, number: int, error: AssertionError) -> None:
        what = str(error) or repr(error)
        one = Violation(self.name, self.path(number), what)
        if sum(other.kind == one.kind for other in self.found.violations) < _MOST_TOLD:
            self.found.violations.append(one)
        else:
            self.found.untold += 1

    def _began(self, number: int) -> bool:
        """Whether the process began at the instant of this state."""
        while True:
            number, name, _ = self.reached[number]
            if not name or name == "time":
                return False
            if name.startswith(("crash", "restart")):
                return True

    def path(self, number: int) -> tuple[str, ...]:
        """The moves to a state."""
        found: list[str] = []
        while True:
            number, name, _ = self.reached[number]
            if not name:
                return tuple(reversed(found))
            found.append(name)


def said_anew(world: World, model: object, state: State) -> Decided:
    """A cycle of a process that knows nothing but the state; each plan in it is tried again without each victim."""
    with checked_plans():
        return decide(model, world.policy, state.now, Memo(), state.carried)  # type: ignore[arg-type]


def disturbing(world: World, state: State, decided: Decided) -> Iterator[Move]:
    """Every move but the quiet one."""
    yield from moves.outcomes(world, state, decided)
    yield from moves.disturbances(world, state)


def start(world: World, objects: Objects) -> State:
    """The state from which a world is explored: some groups came one after another, and each was left in peace."""
    state = State(0, tuple(range(len(world.nodes))), (None,) * len(world.groups))
    for place in range(world.arrived):
        state = moves.arrive(world, state._replace(now=state.now + 1), place)
        for _ in range(_LONGEST):
            decided = decide(objects.model(state), world.policy, state.now, Memo(), state.carried)
            move = moves.quiet(world, state, decided)
            if move is None or move.state.now > state.now + 60:
                break
            state = move.state
    return state
