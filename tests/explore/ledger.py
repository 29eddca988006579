"""The search through the states of a ledger that three replicas keep.

Requests are answered as they come, and what is granted is made, unless something else happens first: these are the
quiet moves. Breadth first by the others; and, since a ledger goes wrong only after several reviews of several requests
each, in turn with that along random walks from the start, drawn by number.
"""

from __future__ import annotations

import hashlib
import logging
import random
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.explore.replicas import Cluster, Loop
from tests.explore.search import Found, Violation

PREFIX: Final = "ledger"
_BROAD: Final = 1
"""After so many moves that are not quiet not all that may follow are tried, but a few, drawn by the state."""
_FEW: Final = 4
_LONGEST: Final = 30
"""Moves of a walk."""
_QUIET: Final = 0.8
"""The part of a walk's moves that is quiet where it can be."""
_MOST_TOLD: Final = 3


def cluster(loop: Loop, seed: int, number: int) -> Cluster:
    """The cluster of that number: a quota, and four groups that do not fit it together.

    In two of three what is asked for again is of another size; in one of these it changes the group that stands.
    """
    dice = random.Random(f"ledger {seed}/{number}")
    sizes = tuple(dice.choice([1, 1, 2, 3]) for _ in range(4))
    hard = dice.randint(max(sizes), max(*sizes, sum(sizes) - 1))
    kind = number % 3
    again = sizes if kind == 0 else tuple(dice.randint(1, min(3, hard)) for _ in sizes)
    return Cluster(loop, sizes, hard, again, edits=kind == 2)


@dataclass
class Search:
    """The search of one ledger; plain data, so that it can be kept and gone on with."""

    seed: int
    number: int
    cap: int
    reached: set[int] = field(default_factory=set)
    waiting: deque[tuple[int, tuple[str, ...]]] = field(default_factory=deque)
    """The paths to states of which nobody has looked at what follows, with how many moves of each are not quiet."""
    found: Found = field(default_factory=Found)
    walks: int = 0

    def run(self) -> Iterator[None]:
        """Look at state after state, until the cap or the end; may be left off after each."""
        log = logging.getLogger("webhooks.commits")
        level = log.level
        log.setLevel(logging.CRITICAL)
        loop = Loop()
        try:
            if not self.reached:
                self._look(loop, 0, (), quiet=False)
            while self.waiting and len(self.reached) < self.cap:
                self._walk(loop)
                depth, path = self.waiting.popleft()
                now = taken(cluster(loop, self.seed, self.number), path)
                quiet = now.quiet()
                possible = [move for move in now.moves() if move != quiet]
                now.end()
                if depth > _BROAD and len(possible) > _FEW:
                    possible = random.Random(repr(path)).sample(possible, _FEW)
                for move in possible:
                    self._look(loop, depth + 1, (*path, move), quiet=False)
                if quiet is not None:
                    self._look(loop, depth, (*path, quiet), quiet=True)
                self.found.states = len(self.reached)
                yield
            self.found.states = len(self.reached)
            self.found.complete = not self.waiting
        finally:
            log.setLevel(level)
            loop.close()

    def _walk(self, loop: Loop) -> None:
        """Look at the states along one walk."""
        dice = random.Random(f"walk {self.seed}/{self.number}/{self.walks}")
        self.walks += 1
        now = cluster(loop, self.seed, self.number)
        path: list[str] = []
        depth = 0
        fresh = []
        while len(path) < _LONGEST:
            possible, quiet = list(now.moves()), now.quiet()
            if not possible:
                break
            goes_on = quiet is not None and dice.random() < _QUIET
            move = quiet if quiet is not None and goes_on else dice.choice(possible)
            depth += move != quiet
            path.append(move)
            now.take(move)
            if digest(now) not in self.reached:
                fresh.append((depth, tuple(path)))
        now.end()
        for depth, way in fresh:
            self._look(loop, depth, way, quiet=False)

    def _look(self, loop: Loop, depth: int, path: tuple[str, ...], *, quiet: bool) -> None:
        """Look at the state to which a path leads, unless it was seen."""
        now = taken(cluster(loop, self.seed, self.number), path)
        try:
            number = digest(now)
            if number in self.reached:
                return
            self.reached.add(number)
            self.found.deepest = max(self.found.deepest, depth)
            if quiet:
                self.waiting.appendleft((depth, path))
            else:
                self.waiting.append((depth, path))
            now.check()
            now.check_rest()
        except AssertionError as error:
            self._tell(path, str(error))
        finally:
            now.end()

    def _tell(self, path: tuple[str, ...], what: str) -> None:
        one = Violation(f"{PREFIX} {self.seed}.{self.number}", path, what)
        if sum(other.kind == one.kind for other in self.found.violations) < _MOST_TOLD:
            self.found.violations.append(one)
        else:
            self.found.untold += 1


def taken(now: Cluster, path: tuple[str, ...]) -> Cluster:
    """The cluster after these moves."""
    for move in path:
        now.take(move)
    return now


def digest(now: Cluster) -> int:
    """A number of 64 bits that like states have in common."""
    return int.from_bytes(hashlib.blake2b(now.canonical().encode(), digest_size=8).digest(), "big")


def replay(text: str) -> Iterator[str]:
    """The lines that tell of a path, as a violation names it: `ledger SEED.NUMBER:MOVE,MOVE,...`."""
    name, _, path = text.partition(":")
    seed, _, number = re.sub(r"[^\d.]", "", name).partition(".")
    loop = Loop()
    now = cluster(loop, int(seed), int(number))
    again = "changed to" if now.edits else "asked for again with"
    yield f"groups of {now.sizes} cores, {again} {now.again}, {now.hard} are allowed"
    try:
        for move in filter(None, path.split(",")):
            now.take(move)
            yield f"> {move}"
            yield f"  ledger {now._entries()}; groups {sorted(now.groups)}; granted {now.admitted}"
            for place, replica in enumerate(now.replicas):
                waits = [one.kind for one in replica.wire.pending]
                behind = len(now.log) - replica.watched
                yield f"  replica {place}: reviews {sorted(replica.reviews)}, asks {waits}, {behind} events behind"
            now.check()
        now.check_rest()
        yield "left in peace, it comes to rest"
    except AssertionError as error:
        yield f"  VIOLATION: {error}"
    finally:
        now.end()
        loop.close()
