"""The engine beside the reference: `python -m tests.reference.compare --cases 20000 --seed 1 --kind place`.

Each case is one world of `tests.reference.world`. What the engine does is checked to be *sound*: a gang is placed whole
or not at all, within its roles' maximums, each bind feasible by the reference, nobody evicted in vain, and cycles at
one instant come to rest. It is *complete* as far as it places the gangs that the reference places. A case counts by its
features (a gang with spread and roles under both); the misses are listed, the smallest first.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.reference.brute import Answer, Search, goal_of, solve
from tests.reference.world import KINDS, Case, Standing, draw
from tests.unit.engine.worlds import EVERYTHING, Decisions, Simulation, policy, world

ENOUGH = 0.995
"""The part of the gangs that the reference places which the engine must place too."""
CYCLES = 10
"""Cycles at one instant; that many mean that they never end."""
SECONDS = 4
"""For how long a world with victims is followed; evicted pods are gone after one second."""

BY = policy(EVERYTHING.replace("enqueue, ", ""))


@dataclass
class Run:
    """What the engine did.

    `unsound` says what is wrong with it, empty if nothing is; `needless` is one who was evicted although the gang could
    have been placed without.
    """

    placed: bool = False
    evicted: list[str] = field(default_factory=list)
    needless: str = ""
    unsound: str = ""


@dataclass
class Compared:
    """One case: what the reference found, what the engine did, and what each took in seconds."""

    case: Case
    answer: Answer | None
    run: Run
    reference_seconds: float = 0.0
    engine_seconds: float = 0.0

    @property
    def missed(self) -> bool:
        """Whether only the reference places the gang."""
        return self.answer is not None and not self.run.placed

    @property
    def size(self) -> int:
        """Small ones are easily understood."""
        more = sum(len(each.shape.near) + len(each.shape.far) + len(each.shape.spreads) for each in self.case.members)
        return len(self.case.machines) + self.case.needed + len(self.case.standing) + len(self.case.members) + more


def compare(seed: int, kind: str) -> Compared:
    """Draw a world and let both decide."""
    case = draw(seed, kind)
    begin = time.perf_counter()
    answer = solve(case)
    middle = time.perf_counter()
    run = decide(case)
    end = time.perf_counter()
    if run.placed and answer is None and not run.unsound:
        run.unsound = "placed what the reference holds impossible"
    return Compared(case, answer, run, middle - begin, end - middle)


def decide(case: Case) -> Run:
    """Let the engine decide: one cycle where nobody may be evicted, else until evicted pods are gone, and bound."""
    sim = Simulation(world(case.objects()), BY, recreate=False)
    books = _Books(case)
    for _ in range(1 if case.kind == "place" else SECONDS):
        for _ in range(1 if case.kind == "place" else CYCLES):
            found = sim.cycle()
            books.note(found)
            if not found.transactions or books.run.placed:
                break
        else:
            if case.kind != "place":
                books.wrong("cycles at one instant never end")
        if books.run.placed or not (books.leaving or books.gone):
            break
        sim.tick()
        books.tick()
    books.close()
    return books.run


class _Books:
    """The placement by the reference's rules, kept while the engine decides."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.run = Run()
        self.leaving: set[str] = set()
        self.gone: set[str] = set()
        self._bound: list[tuple[int, int]] = []
        self._names = dict(case.pod_names())
        self._rows = {machine.name: at for at, machine in enumerate(case.machines)}

    def note(self, found: Decisions) -> None:
        """Take down what a cycle decided, in its order: who is evicted after a bind stood there beside it."""
        for transaction in found.transactions:
            one = Decisions([transaction])
            self._note_binds(one.binds)
            self.leaving.update(one.evicted)
            known = {each.name for each in self.case.standing if each.leaves}
            if not set(one.evicted) <= known:
                self.wrong("evicted who may not be")
            self.run.evicted += one.evicted

    def _note_binds(self, found: Mapping[str, str]) -> None:
        """Take down binds, and check them."""
        binds = [(self._names[name], self._rows[where]) for name, where in found.items() if name in self._names]
        if len(binds) != len(found):
            self.wrong("bound what fits nowhere")
        if not binds:
            return
        search = Search(self.case.machines, self._standing(), [each.shape for each in self.case.members])
        for bind in self._bound:
            search.put(*bind)
        if not search.valid(binds):
            self.wrong(f"binds {sorted(found.items())} are feasible in no order")
        self._bound += binds
        self._check_gang()

    def _standing(self) -> list[Standing]:
        return [
            replace(each, terminating=each.name in self.leaving)
            for each in self.case.standing
            if each.name not in self.gone
        ]

    def _check_gang(self) -> None:
        case = self.case
        counts = Counter(case.members[member].part for member, _ in self._bound)
        if len(self._bound) < case.needed or any(counts[at] < part.least for at, part in enumerate(case.parts)):
            self.wrong("placed in part")
        if any(part.most is not None and counts[at] > part.most for at, part in enumerate(case.parts)):
            self.wrong("above a role's maximum")
        self.run.placed = True

    def tick(self) -> None:
        """Those who were evicted are gone."""
        self.gone |= self.leaving
        self.leaving.clear()

    def close(self) -> None:
        """Nothing more comes."""
        if self.run.evicted and not self.run.placed:
            self.wrong(f"evicted {self.run.evicted} in vain")
        if self.run.placed and "choice" not in self.case.features:  # those above the minimum may have victims too
            self.run.needless = next((name for name in self.run.evicted if self._could_stay(name)), "")

    def _could_stay(self, name: str) -> bool:
        case = self.case
        standing = [each for each in case.standing if each.name == name or each.name not in self.run.evicted]
        found = Search(case.machines, standing, [each.shape for each in case.members]).place(goal_of(case))
        return found is not None

    def wrong(self, what: str) -> None:
        """The first thing that is wrong is told."""
        self.run.unsound = self.run.unsound or what


@dataclass
class Tally:
    """Counts over cases."""

    cases: int = 0
    feasible: int = 0
    by_feature: Counter[str] = field(default_factory=Counter)
    missed: list[Compared] = field(default_factory=list)
    unsound: list[Compared] = field(default_factory=list)
    reference_seconds: float = 0.0
    engine_seconds: float = 0.0
    slowest: tuple[float, int] = (0.0, 0)
    evicting: int = 0
    needless: list[int] = field(default_factory=list)

    def add(self, each: Compared) -> None:
        """Count a case."""
        self.cases += 1
        self.reference_seconds += each.reference_seconds
        self.engine_seconds += each.engine_seconds
        self.slowest = max(self.slowest, (each.reference_seconds, each.case.seed))
        self.evicting += bool(each.run.evicted)
        if each.run.needless:
            self.needless.append(each.case.seed)
        if each.run.unsound:
            self.unsound.append(each)
        if each.answer is not None:
            self.feasible += 1
            self.by_feature.update(each.case.features)
            if each.missed:
                self.missed.append(each)

    @property
    def completeness(self) -> float:
        """The part of the gangs that the reference places which the engine placed."""
        return 1 - len(self.missed) / self.feasible if self.feasible else 1.0


def tally(seeds: Iterable[int], kind: str) -> Tally:
    """Compare the worlds of these seeds."""
    found = Tally()
    for seed in seeds:
        found.add(compare(seed, kind))
    return found


def report(kind: str, found: Tally, *, listed: int, examples: int) -> Iterable[str]:
    """What there is to say, line by line."""
    part = 100 * found.feasible / max(1, found.cases)
    yield f"{kind}: {found.cases} cases, {found.feasible} ({part:.1f} %) that the reference places"
    yield f"  completeness {100 * found.completeness:.2f} % ({len(found.missed)} missed); unsound {len(found.unsound)}"
    yield (
        f"  seconds: reference {found.reference_seconds:.1f} (slowest {found.slowest[0]:.3f}, seed {found.slowest[1]}),"
        f" engine {found.engine_seconds:.1f}"
    )
    if found.evicting:
        needless = f"{len(found.needless)} with a victim that could have stayed {found.needless[:examples]}"
        yield f"  cases with evictions {found.evicting}, {needless}"
    by_feature = Counter(feature for each in found.missed for feature in each.case.features)
    alone = Counter(feature for each in found.missed if (feature := only(each.case.features)))
    yield "  by feature: missed / placed by the reference; missed with it alone (roles, choice aside); smallest seeds"
    ordered = sorted(found.missed, key=lambda each: (each.size, each.case.seed))
    for feature, number in sorted(found.by_feature.items()):
        seeds = [each.case.seed for each in ordered if feature in each.case.features][:examples]
        missed = by_feature[feature]
        part = 100 * missed / number
        yield f"    {feature:14} {missed:5} / {number:5} ({part:6.2f} %)  {alone[feature]:5}  {seeds}"
    for each in sorted(found.unsound, key=lambda each: (each.size, each.case.seed))[:listed]:
        yield f"  UNSOUND {describe(each)}: {each.run.unsound}"
    for each in ordered[:listed]:
        yield f"  missed {describe(each)}"


def only(features: Sequence[str]) -> str:
    """The one feature of a case; roles and a choice count only where there is nothing else. Empty if there are more."""
    found = [feature for feature in features if feature not in {"roles", "choice"}] or [features[0]]
    return found[0] if len(found) == 1 else ""


def describe(each: Compared) -> str:
    """A case in one line."""
    case = each.case
    return (
        f"seed {case.seed}: {len(case.machines)} nodes, {len(case.standing)} running, "
        f"gang of {case.needed} ({', '.join(case.features)})"
    )


def show(each: Compared) -> Iterable[str]:
    """A case in full."""
    case = each.case
    yield describe(each)
    for machine in case.machines:
        yield f"  node {machine.name} {machine.room} {machine.labels} {machine.taints}"
    for pod in case.standing:
        yield f"  {'victim' if pod.leaves else 'other'} {pod.name} on {case.machines[pod.machine].name} {pod.shape}"
    yield f"  minimum {case.minimum}, roles {case.parts}"
    for at, members in enumerate(case.members):
        yield f"  {members.count} of class {at}, role {members.part}: {members.shape}"
    yield f"  reference: {each.answer}"
    yield f"  engine: {each.run}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 where the engine is unsound or not complete enough."""
    parser = argparse.ArgumentParser(prog="python -m tests.reference.compare", description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1, help="the first seed; the others follow it")
    parser.add_argument("--kind", choices=KINDS, default="place")
    parser.add_argument("--list", type=int, default=1_000_000, help="list at most so many misses")
    parser.add_argument("--examples", type=int, default=5, help="seeds for each feature")
    parser.add_argument("--show", action="store_true", help="show the world of --seed and what both decide, no more")
    chosen = parser.parse_args(arguments)
    if chosen.show:
        sys.stdout.writelines(f"{line}\n" for line in show(compare(chosen.seed, chosen.kind)))
        return 0
    found = tally(range(chosen.seed, chosen.seed + chosen.cases), chosen.kind)
    lines = report(chosen.kind, found, listed=chosen.list, examples=chosen.examples)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0 if not found.unsound and found.completeness >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
