"""Whether a gang can be placed, and whether a placement is valid, by Kubernetes' rules, trying everything.

A set of binds is valid if there is an order in which each pod is feasible at the moment of its bind, given the pods
that stand by then. That is what kube-scheduler's filters mean, which look at one pod at a time: NodeResourcesFit,
NodeAffinity, TaintToleration, NodePorts, InterPodAffinity, PodTopologySpread. The rules are written down here once
more, from Kubernetes' documentation and source; nothing is shared with the engine.

Rules that are easily got wrong:

* Required anti-affinity of a pod that stands binds those who come after it. A node without the label of the term's
  topology is in no domain, so nothing is forbidden there.
* Required affinity counts the pods that *all* terms of the pod mean, and each term needs one in its domain. Where no
  such pod stands in any domain of the terms, a pod that its own terms mean may be the first, on a node with all the
  labels.
* Spread counts over the nodes that carry the labels of all the pod's constraints, and are chosen by its node selector
  and affinity (and by its tolerations, with nodeTaintsPolicy Honor). With fewer domains than minDomains the least is 0.
  Terminating pods do not count; for all other rules they do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from tests.reference.world import Case, Machine, Shape, Spread, Standing, Term

_Domains = list[int]
"""For each node the number of its domain, -1 for none."""


@dataclass(slots=True)
class _Near:
    """One term of a class's affinity: nodes where a standing pod serves, and per node the nodes of its domain."""

    served: int
    same: list[int]


@dataclass(slots=True)
class _Even:
    """One spread constraint of a class."""

    domain: _Domains
    counted: list[bool]
    base: list[int]
    present: list[int]
    meant: list[int]
    own: int
    spread: Spread


class Search:
    """The nodes, the pods that stand on them, and the classes of the pods that may come.

    Args:
        machines: the nodes.
        standing: the pods that stand; all others are gone.
        shapes: the classes of those that may come.
    """

    def __init__(self, machines: Sequence[Machine], standing: Sequence[Standing], shapes: Sequence[Shape]) -> None:
        self._machines = machines
        self._standing = standing
        self._shapes = shapes
        self._domains: dict[str, tuple[_Domains, list[int]]] = {}
        size, classes = len(machines), len(shapes)
        self._free = self._room()
        self._needs = [[("pods", 1), *((k, v) for k, v in shape.request.items() if v)] for shape in shapes]
        self._allowed = [self._static(shape) for shape in shapes]
        self._conflicts = [
            [[self._conflict(c, d, n) for n in range(size)] for d in range(classes)] for c in range(classes)
        ]
        self._conflicting = [
            [d for d in range(classes) if any(self._conflicts[c][d])] for c in range(classes)
        ]  # fmt: skip
        self._near = [[self._term(shape, term) for term in shape.near] for shape in shapes]
        self._near_by = [[d for d in range(classes) if _all_mean(shape, shapes[d])] for shape in shapes]
        self._near_any = [self._reach(shape) for shape in shapes]
        self._near_first = [self._nobody_yet(shape) for shape in shapes]
        self._even = [[self._evenly(c, spread) for spread in shape.spreads] for c, shape in enumerate(shapes)]
        self._coupled = any(self._near) or any(self._even)
        self._counts = [[0] * size for _ in shapes]
        self._where = [0] * classes
        """For each class the nodes, as bits, where pods of it came."""

    # --- what does not change -----------------------------------------------------------------------------------------

    def _room(self) -> list[dict[str, int]]:
        free = [dict(machine.room) for machine in self._machines]
        for each in self._standing:
            room = free[each.machine]
            room["pods"] -= 1
            for name, amount in each.shape.request.items():
                room[name] = room.get(name, 0) - amount
        return free

    def _domain(self, key: str) -> tuple[_Domains, list[int]]:
        """The domain of each node, and for each node the nodes of its domain as bits."""
        found = self._domains.get(key)
        if found is None:
            known: dict[str, int] = {}
            values = [machine.labels.get(key) for machine in self._machines]
            domain = [-1 if value is None else known.setdefault(value, len(known)) for value in values]
            same = [sum(1 << m for m, other in enumerate(domain) if other == mine >= 0) for mine in domain]
            found = self._domains[key] = (domain, same)
        return found

    def _static(self, shape: Shape) -> list[bool]:
        """The nodes that labels, taints, ports and the anti-affinity from and against standing pods leave."""
        allowed = [
            _selected(machine, shape) and not _refused(machine, shape.tolerations) for machine in self._machines
        ]  # fmt: skip
        for each in self._standing:
            if set(shape.ports) & set(each.shape.ports):
                allowed[each.machine] = False
            for mine, theirs in ((shape, each.shape), (each.shape, shape)):
                for term in mine.far:
                    if _means(term.labels, theirs):
                        same = self._domain(term.key)[1][each.machine]
                        allowed = [ok and not same >> n & 1 for n, ok in enumerate(allowed)]
        return allowed

    def _conflict(self, c: int, d: int, n: int) -> int:
        """The nodes, as bits, on which a pod of class d forbids node n to class c: anti-affinity, ports."""
        found = 0
        mine, theirs = self._shapes[c], self._shapes[d]
        if set(mine.ports) & set(theirs.ports):
            found |= 1 << n
        for one, other in ((mine, theirs), (theirs, mine)):
            for term in one.far:
                if _means(term.labels, other):
                    found |= self._domain(term.key)[1][n]
        return found

    def _term(self, shape: Shape, term: Term) -> _Near:
        same = self._domain(term.key)[1]
        served = 0
        for each in self._standing:
            if _all_mean(shape, each.shape):
                served |= same[each.machine]
        return _Near(served, same)

    def _reach(self, shape: Shape) -> int:
        """The nodes that stand in a domain of any of the affinity's terms."""
        return sum(
            1 << n for n in range(len(self._machines)) if any(self._domain(term.key)[0][n] >= 0 for term in shape.near)
        )

    def _nobody_yet(self, shape: Shape) -> bool:
        """Whether a pod of the class may be the first as far as the standing pods go."""
        if not shape.near or not _all_mean(shape, shape):
            return False
        reach = self._reach(shape)
        return not any(_all_mean(shape, each.shape) and reach >> each.machine & 1 for each in self._standing)

    def _evenly(self, c: int, spread: Spread) -> _Even:
        shape = self._shapes[c]
        domain = self._domain(spread.key)[0]
        counted = [
            all(self._domain(other.key)[0][n] >= 0 for other in shape.spreads)
            and (not spread.selected_only or _selected(machine, shape))
            and (not spread.taints_count or not _refused(machine, shape.tolerations))
            for n, machine in enumerate(self._machines)
        ]
        base = [0] * (max(domain, default=-1) + 1)
        for each in self._standing:
            if counted[each.machine] and not each.terminating and _means(spread.labels, each.shape):
                base[domain[each.machine]] += 1
        present = sorted({domain[n] for n, there in enumerate(counted) if there})
        meant = [d for d, other in enumerate(self._shapes) if _means(spread.labels, other)]
        return _Even(domain, counted, base, present, meant, int(_means(spread.labels, shape)), spread)

    # --- one pod ------------------------------------------------------------------------------------------------------

    def feasible(self, c: int, n: int) -> bool:
        """Whether a pod of class c may be bound to node n now."""
        if not self._allowed[c][n]:
            return False
        free = self._free[n]
        for name, amount in self._needs[c]:
            if free.get(name, 0) < amount:
                return False
        conflicts, where = self._conflicts[c], self._where
        for d in self._conflicting[c]:
            if conflicts[d][n] & where[d]:
                return False
        if self._near[c] and not self._in_company(c, n):
            return False
        return all(self._is_even(even, n) for even in self._even[c])

    def _in_company(self, c: int, n: int) -> bool:
        there = 0
        for d in self._near_by[c]:
            there |= self._where[d]
        lonely = False
        for near in self._near[c]:
            if not near.same[n]:
                return False
            if not (near.served >> n & 1 or near.same[n] & there):
                lonely = True
        return not lonely or (self._near_first[c] and not there & self._near_any[c])

    def _is_even(self, even: _Even, n: int) -> bool:
        domain = even.domain
        if domain[n] < 0:
            return False
        counts = even.base.copy()
        for d in even.meant:
            for m, count in enumerate(self._counts[d]):
                if count and even.counted[m]:
                    counts[domain[m]] += count
        least = 0
        if even.present and len(even.present) >= (even.spread.least_domains or 1):
            least = min(counts[at] for at in even.present)
        return counts[domain[n]] + even.own - least <= even.spread.skew

    def put(self, c: int, n: int, sign: int = 1) -> None:
        """A pod of class c stands on node n (1), or no longer (-1)."""
        free = self._free[n]
        for name, amount in self._needs[c]:
            free[name] = free.get(name, 0) - sign * amount
        counts = self._counts[c]
        counts[n] += sign
        if counts[n]:
            self._where[c] |= 1 << n
        else:
            self._where[c] &= ~(1 << n)

    # --- all pods -----------------------------------------------------------------------------------------------------

    def valid(self, binds: Sequence[tuple[int, int]]) -> bool:
        """Whether some order of these binds (class, node) is feasible throughout; they are put if so."""
        left: dict[tuple[int, int], int] = {}
        for bind in binds:
            left[bind] = left.get(bind, 0) + 1
        return self._order(left, set())

    def _order(self, left: dict[tuple[int, int], int], failed: set[tuple[int, ...]]) -> bool:
        state = tuple(left.values())
        if not any(state):
            return True
        if state in failed:
            return False
        for (c, n), count in left.items():
            if count and self.feasible(c, n):
                left[c, n] -= 1
                self.put(c, n)
                if self._order(left, failed):
                    return True
                self.put(c, n, -1)
                left[c, n] += 1
        failed.add(state)
        return False

    def place(self, goal: Goal) -> list[tuple[int, int]] | None:
        """Binds (class, node), in an order that is feasible, that reach the goal; None where there are none."""
        order = sorted(
            range(len(self._shapes)),
            key=lambda c: (sum(self._allowed[c]), -sum(amount for _, amount in self._needs[c])),
        )
        moves = [(c, n) for c in order for n in range(len(self._machines)) if self._allowed[c][n]]
        if self._coupled:
            even, near = self._even, self._near
            self._even, self._near = [[] for _ in even], [[] for _ in near]
            loosely = self._ordered(goal, moves, 0, [])
            self._even, self._near = even, near
            if loosely is None:
                return None
            for c, n in loosely:
                self._move(goal, c, n, -1)
            return self._anyhow(goal, moves, [], set())
        return self._ordered(goal, moves, 0, [])

    def _ordered(
        self, goal: Goal, moves: list[tuple[int, int]], first: int, done: list[tuple[int, int]]
    ) -> list[tuple[int, int]] | None:
        """Where the order of binds plays no part: each set of binds is looked at once. Pods that are put stay put."""
        if goal.reached():
            return done
        for at in range(first, len(moves)):
            c, n = moves[at]
            if goal.wants(c) and self.feasible(c, n):
                self._move(goal, c, n, 1)
                done.append((c, n))
                if self._hopeful(goal, moves, at) and self._ordered(goal, moves, at, done) is not None:
                    return done
                done.pop()
                self._move(goal, c, n, -1)
        return None

    def _anyhow(
        self, goal: Goal, moves: list[tuple[int, int]], done: list[tuple[int, int]], failed: set[tuple[int, ...]]
    ) -> list[tuple[int, int]] | None:
        """Where it does: each state is looked at once, however it was reached."""
        if goal.reached():
            return done
        state = tuple([count for counts in self._counts for count in counts])
        if state in failed:
            return None
        for c, n in moves:
            if goal.wants(c) and self.feasible(c, n):
                self._move(goal, c, n, 1)
                done.append((c, n))
                if self._hopeful(goal, moves, 0) and self._anyhow(goal, moves, done, failed) is not None:
                    return done
                done.pop()
                self._move(goal, c, n, -1)
        failed.add(state)
        return None

    def _move(self, goal: Goal, c: int, n: int, sign: int) -> None:
        self.put(c, n, sign)
        goal.count(c, sign)

    def _hopeful(self, goal: Goal, moves: list[tuple[int, int]], first: int) -> bool:
        """Whether each role could still get its own if its pods were alone: by room and by conflicts only."""
        places: dict[int, int] = {}
        for at in range(first, len(moves)):
            c, n = moves[at]
            if goal.wants(c):
                places[c] = places.get(c, 0) + self._fitting(c, n)
        return goal.within(places)

    def _fitting(self, c: int, n: int) -> int:
        for d in self._conflicting[c]:
            if self._conflicts[c][d][n] & self._where[d]:
                return 0
        free = self._free[n]
        most = min([free.get(name, 0) // amount for name, amount in self._needs[c]])
        if self._conflicts[c][c][n] >> n & 1:
            most = min(most, 1)
        return max(0, most)


class Goal:
    """How many pods of which class are still wanted: each role's minimum, and the gang's.

    Args:
        needed: pods in all.
        parts: of each role its minimum and its maximum (None: no bound).
        members: of each class the index of its role (-1: none) and how many pods there are.
    """

    def __init__(
        self, needed: int, parts: Sequence[tuple[int, int | None]], members: Sequence[tuple[int, int]]
    ) -> None:
        self._left = [count for _, count in members]
        self._part = [part for part, _ in members]
        self._rest = needed
        self._lacks = [least for least, _ in parts]
        self._may = [sum(self._left) if most is None else most for _, most in parts]

    def reached(self) -> bool:
        """Whether all that is wanted stands."""
        return self._rest <= 0 and not any(lack > 0 for lack in self._lacks)

    def wants(self, c: int) -> bool:
        """Whether one more of a class counts."""
        if not self._left[c]:
            return False
        part = self._part[c]
        open_ = self._rest - sum([lack for lack in self._lacks if lack > 0])
        if part < 0:
            return open_ > 0
        return self._may[part] > 0 and (open_ > 0 or self._lacks[part] > 0)

    def count(self, c: int, sign: int) -> None:
        """One more (1) or one less (-1) of a class stands."""
        self._left[c] -= sign
        self._rest -= sign
        part = self._part[c]
        if part >= 0:
            self._lacks[part] -= sign
            self._may[part] -= sign

    def within(self, places: dict[int, int]) -> bool:
        """Whether so many more of each class would be enough."""
        by_part: dict[int, int] = {}
        for c, more in places.items():
            by_part[self._part[c]] = by_part.get(self._part[c], 0) + min(more, self._left[c])
        if any(lack > by_part.get(part, 0) for part, lack in enumerate(self._lacks)):
            return False
        return sum([min(more, self._may[part]) if part >= 0 else more for part, more in by_part.items()]) >= self._rest


def _means(labels: dict[str, str], shape: Shape) -> bool:
    return all(shape.labels.get(key) == value for key, value in labels.items())


def _all_mean(carrier: Shape, shape: Shape) -> bool:
    """Whether all terms of a pod's affinity mean pods of a shape; never without any."""
    return bool(carrier.near) and all(_means(term.labels, shape) for term in carrier.near)


def _selected(machine: Machine, shape: Shape) -> bool:
    labels = machine.labels
    if any(labels.get(key) != value for key, value in shape.selector.items()):
        return False
    for key, operator, values in shape.affinity_to_nodes:
        there = labels.get(key)
        good = {
            "In": there in values,
            "NotIn": there not in values,
            "Exists": there is not None,
            "DoesNotExist": there is None,
        }[operator]
        if not good:
            return False
    return True


def _refused(machine: Machine, tolerations: Sequence[str]) -> bool:
    return any(
        effect in {"NoSchedule", "NoExecute"} and key not in tolerations for key, _, effect in machine.taints
    )  # fmt: skip


# --- a case -----------------------------------------------------------------------------------------------------------


def goal_of(case: Case) -> Goal:
    """What the gang of a case wants."""
    return Goal(
        case.needed,
        [(part.least, part.most) for part in case.parts],
        [(each.part, each.count) for each in case.members],
    )


@dataclass(frozen=True)
class Answer:
    """A placement of the gang: (index of its members' class, node), and the names of pods that leave before."""

    binds: tuple[tuple[int, int], ...]
    victims: tuple[str, ...] = ()


def solve(case: Case) -> Answer | None:
    """A way to place the gang; None where there is none.

    Those who may be evicted are gone, all of them, but for such as the gang's affinity or spread speaks of: of these
    every subset is tried. Nobody else's presence helps a pod.
    """
    shapes = [each.shape for each in case.members]
    for staying in _subsets(case, shapes):
        standing = [each for each in case.standing if not each.leaves or each.name in staying]
        found = Search(case.machines, standing, shapes).place(goal_of(case))
        if found is not None:
            gone = tuple(each.name for each in case.standing if each.leaves and each.name not in staying)
            return Answer(tuple(found), gone)
    return None


def _subsets(case: Case, shapes: list[Shape]) -> Iterator[frozenset[str]]:
    """The sets of victims that stay for the gang's sake; the empty one first."""
    helpful = [
        each.name
        for each in case.standing
        if each.leaves
        and any(
            _all_mean(shape, each.shape) or any(_means(spread.labels, each.shape) for spread in shape.spreads)
            for shape in shapes
        )
    ]
    for chosen in product((False, True), repeat=len(helpful)):
        yield frozenset(name for name, stays in zip(helpful, chosen, strict=True) if stays)
