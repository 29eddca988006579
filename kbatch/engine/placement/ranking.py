"""Which nodes the next pods of a class go to.

For each class the answers of predicates and scores are kept as one int64 *key* per row: score times the number of rows,
plus the row counted from the end, so that the largest key is the best node and, of equals, the first by name; -1 where
the pod does not fit. Only rows that changed since are worked out again.

A gang of k like pods touches at most the k rows with the largest keys, because a row's key depends on that row alone:
these are taken by partition, and for each the keys with one pod more, two more, ... are worked out together (a
*ladder*).
A heap over the ladders then gives the very sequence that placing pod by pod would give. Where an answer depends on
other rows (`Scope.CLUSTER`), or a predicate on use, it is pod by pod indeed.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from kbatch.api.node_reasons import Insufficient, NodeExclusive, NodeFailedPods, NodeReason, RefusedPod, TooManyPods
from kbatch.api.placement import Placement
from kbatch.api.reasons import Reason
from kbatch.engine.cooperative import emptying
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.placement.capacity import Capacity
from kbatch.engine.placement.kept_counts import ENDLESS, KeptCounts
from kbatch.engine.placement.own_nodes import JobRanking
from kbatch.engine.placement.scoring import Scoring
from kbatch.engine.plugin import DomainLimit, Plugin, Scope
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.node_resources import Index, NodeResources, Rows
from kbatch.model.nodes import Column, Mask
from kbatch.model.tasks import TaskClass
from kbatch.resources import PODS

_C = TypeVar("_C", Column, Mask)

SEARCHES: Final = 20
"""Gangs of one cycle for which another arrangement is searched, the first in order: each may cost 0.1 s."""
_MOST_CELLS: Final = 1 << 23
"""So many rows of rankings are kept at a time, some 100 MiB: of 10,000 nodes 800 rankings. The oldest goes first and is
made again when it is asked for."""
STEPS: Final = 300
"""Placements that a search tries at most: each costs a look at all nodes for each kind of the gang's pods."""


_RUN: Final = 4
"""When so many pods of a class have followed one another, as many again are looked for at once."""
_ENDLESS: Final = 2**53
_SPARSE: Final = 4
"""Where no more than one row in so many has room, the others are not looked at any further."""
_ONE_BY_ONE: Final = 12
"""So few rows are looked at faster one by one, where only room decides."""


class When(Enum):
    """Room that is there now, or that will be once what terminates is gone."""

    NOW = "now"
    LATER = "later"


class NodeRanking:
    """The keys of all rows for one class; see the module. `way` is what the queue of the pods asks for."""

    def __init__(self, placement: NodeRankings, cls: TaskClass, when: When, way: Placement | None = None) -> None:
        self.cls = cls
        self._way = way
        self.when = when
        self._placement = placement
        self._room = placement.room
        among = () if placement.alone else placement.predicates
        self._predicates = [p for p in among if p.predicate_scope(cls) is Scope.NODE]
        scores = placement.scores_for(way)
        self._scores = [p for p in scores if p.score_scope(cls) is Scope.NODE]
        self.own_nodes = any(p.own_nodes for p in scores)
        self._far_predicates = [p for p in among if p.predicate_scope(cls) is Scope.CLUSTER]
        self._far_scores = [p for p in scores if p.score_scope(cls) is Scope.CLUSTER]
        self.stepwise = bool(self._predicates or self._far_predicates or self._far_scores)
        self._allowed, self._static_score = placement.static(cls, way)
        self._every = placement.every
        self._needs = [(name, np.int64(amount)) for name, amount in cls.needs]
        self._cursor = -1
        """How much of the log the keys heed; below 0: none were worked out yet."""
        self._ahead: list[int] = []
        self._taken = 0
        self._seen = 0
        self._base = 0
        self._run = 0
        self._capacity = Capacity(self._room, cls, self._allowed, now=when is When.NOW)
        self._near: Column = np.zeros(0, np.int64)
        self._by_room = not (self.stepwise or self._scores or self.own_nodes)
        """Whether the key of a row is always the same, as long as there is room."""
        self._with_room: Column | None = None
        self._key: Column = self._near

    @property
    def key(self) -> Column:
        """The keys as of the last time that they were asked for."""
        return self._key if self._cursor >= 0 else self.refresh()

    def refresh(self) -> Column:
        """The keys as of now."""
        log = self._room.log
        if self._cursor < 0:
            self._near = self._evaluate(self._every, whole=True)
            self._cursor = len(log)
        elif self._cursor < len(log):
            changed = sorted(set(log[self._cursor :]))
            if self._by_room and len(changed) <= _ONE_BY_ONE:
                near, keys = self._near, self._keys_with_room()
                for row in changed:
                    near[row] = keys[row] if self.fits(row) else -1
            elif len(changed) * 4 > len(self._every):
                self._near = self._evaluate(self._every, whole=True)
            else:
                index = np.array(changed, np.intp)
                self._near[index] = self._evaluate(index)
            self._cursor = len(log)
        self._key = self._near
        if self._far_predicates or self._far_scores:
            self._key = self._with_others(self._near)
        return self._key

    def _keys_with_room(self) -> Column:
        """The keys of all rows, were there room on each; where nothing but room decides."""
        if self._with_room is None:  # a `cached_property` of a compiled class is worked out each time
            count = len(self._every)
            self._with_room = self._static_score * count + (count - 1 - self._every)
        return self._with_room

    def keys_for(self, coming: Column, own: Index) -> Column:
        """The keys for a job that has pods on its own rows, where so many like pods would come to each of the others.

        Only for scores of plugins with `own_nodes`.
        """
        near = self._evaluate(self._every, whole=True, coming=coming)
        if len(own):
            near[own] = self._evaluate(own, opened=True)
        return self._with_others(near) if self._far_predicates or self._far_scores else near

    def _with_others(self, near: Column) -> Column:
        """The keys with what other rows have to say, for all rows."""
        late = self.when is When.LATER
        key = near.copy()
        if not np.any(near >= 0):
            return key
        rows = Rows(self._room, self._every, self.cls, whole=True, later=late, placement=self._way)
        if self._far_scores:
            more = np.zeros(len(key), np.int64)
            for plugin in self._far_scores:
                scores = plugin.node_order(self.cls, rows)
                if scores is not None:
                    more += scores
            key += more * np.int64(len(key))
            key[near < 0] = -1
        for plugin in self._far_predicates:
            codes = plugin.predicate(self.cls, rows)
            if codes is not None:
                key[codes != 0] = -1
        return key

    def _evaluate(
        self,
        index: Index,
        *,
        whole: bool = False,
        extra: Column | None = None,
        opened: bool = False,
        coming: Column | int = 1,
    ) -> Column:
        """Keys of some rows, with `extra` further pods of the class on each; where such came, the job has `opened` it.

        See `Rows` for `coming`.
        """
        room = self._room
        at: Index | slice = slice(None) if whole else index
        ok: Mask = self._allowed[at].copy()
        now = self.when is When.NOW
        for name, amount in self._needs:
            need: Column | np.int64 = amount if extra is None else amount * (extra + 1)
            free = room.future[name][at]
            ok &= (np.minimum(free, room.idle[name][at]) if now else free) >= need
        if whole and np.count_nonzero(ok) * _SPARSE <= len(ok):  # what does not fit needs no score
            found: Column = np.full(len(ok), -1, np.int64)
            some = np.flatnonzero(ok)
            if len(some):
                found[some] = self._evaluate(some, coming=coming if isinstance(coming, int) else coming[some])
            return found
        late = self.when is When.LATER
        rows = Rows(room, index, self.cls, extra, whole=whole, later=late, placement=self._way, coming=coming)
        if self.own_nodes and (opened or extra is not None):
            rows.opened = np.ones(len(index), np.bool_)
        for plugin in self._predicates:
            codes = plugin.predicate(self.cls, rows)
            if codes is not None:
                ok &= codes == 0
        score = self._static_score[at].copy()
        for plugin in self._scores:
            scores = plugin.node_order(self.cls, rows)
            if scores is not None:
                score += scores
        count = len(self._every)
        score *= count
        score += count - 1 - index
        score[~ok] = -1
        return score

    @property
    def asks_the_node(self) -> bool:
        """Whether what else stands on a node decides about the pod, besides room: such as a host port."""
        return bool(self._predicates)

    def many_open(self) -> int:
        """On how many rows there is room for one pod, and nothing on the row itself keeps it away."""
        self.refresh()
        return int(np.count_nonzero(self._near >= 0))

    def fits(self, row: int) -> bool:
        """Whether one pod fits a row now; scores do not matter, and no other row is looked at."""
        room, now = self._room, self.when is When.NOW
        if not self._allowed[row]:
            return False
        for name, amount in self.cls.needs:
            if room.future[name].item(row) < amount or (now and room.idle[name].item(row) < amount):
                return False
        if not (self._predicates or self._far_predicates):
            return True
        rows = Rows(room, self._every[row : row + 1], self.cls, later=not now)
        for plugin in (*self._predicates, *self._far_predicates):
            codes = plugin.predicate(self.cls, rows)
            if codes is not None and codes[0]:
                return False
        return True

    def kept_out(self) -> Mask | None:
        """The rows that pods elsewhere, or on the row, keep the class from now; None: no such predicate has a say."""
        if not self._far_predicates:
            return None
        rows = Rows(self._room, self._every, self.cls, whole=True, later=self.when is When.LATER)
        found = np.zeros(len(self._every), np.bool_)
        for plugin in self._far_predicates:
            codes = plugin.predicate(self.cls, rows)
            if codes is not None:
                found |= codes != 0
        return found

    def choose(self, count: int, among: Mask | None = None) -> list[int]:
        """The rows of the next pods of the class, in order; up to `count`, or up to one where it must go stepwise.

        Empty: none fits. With `among`, only these rows are looked at.
        """
        if among is not None:
            return self._choose(1 if self.stepwise else count, among)
        if self.stepwise or self.when is When.LATER:
            return self._choose(1 if self.stepwise else count)
        if not self._on_course():
            self._ahead, self._taken, self._seen, self._base = [], 0, 0, len(self._room.log)
            self._run = 0
        if self._taken == len(self._ahead):
            self._base = len(self._room.log)
            ahead = min(256, self._run) if self._run >= _RUN else 1  # for one: others may come between
            self._ahead, self._taken, self._seen = self._choose(max(count, ahead)), 0, 0
            self._run += len(self._ahead)
        found = self._ahead[self._taken : self._taken + count]
        self._taken += len(found)
        return found

    def _on_course(self) -> bool:
        """Whether all that happened since the last look ahead is that its pods were bound where it said."""
        log, causes = self._room.log, self._room.causes
        if len(log) - self._base != self._taken:
            return False
        while self._seen < self._taken:
            at = self._base + self._seen
            if log[at] != self._ahead[self._seen] or causes[at] != self.cls.id:
                return False
            self._seen += 1
        return True

    def _choose(self, count: int, among: Mask | None = None) -> list[int]:
        key = self.refresh()
        some: Index | None = None
        if among is not None:
            some = np.flatnonzero(among)
            key = key[some]
        return self.best_of(key, count, some)

    def best_of(self, key: Column, count: int, some: Index | None = None) -> list[int]:
        """The rows of the next pods by these keys, in order, up to `count`: keys of all rows, or of the rows `some`."""
        if not len(key):
            return []
        if count == 1:
            best = int(key.argmax())
            return [best if some is None else int(some[best])] if key.item(best) >= 0 else []
        top = np.flatnonzero(key >= 0)  # first: where nearly all is taken, they are few
        if not len(top):
            return []
        if len(top) > count:
            top = top[np.argpartition(key[top], len(top) - count)[len(top) - count :]]
        top = top[np.argsort(-key[top])]
        return self._ladders(top if some is None else some[top], key[top].tolist(), count)

    def _ladders(self, top: Index, first: list[int], count: int) -> list[int]:
        most = self._capacity.at(top).tolist()
        rows: list[int] = top.tolist()
        heap = [(-key, position, 0) for position, key in enumerate(first)]  # sorted, hence a heap
        rungs: list[list[int]] = []
        chosen: list[int] = []
        while heap and len(chosen) < count:
            _, position, step = heap[0]
            chosen.append(rows[position])
            step += 1
            if step >= most[position]:
                heapq.heappop(heap)
                continue
            if not rungs:
                rungs = self._rungs(top, 2 + 2 * count // len(rows))
            ladder = rungs[position]
            if step > len(ladder):
                extra = np.arange(step, step + 16, dtype=np.int64)
                ladder.extend(self._evaluate(np.repeat(top[position : position + 1], 16), extra=extra).tolist())
            heapq.heapreplace(heap, (-ladder[step - 1], position, step))
        return chosen

    def _rungs(self, top: Index, depth: int) -> list[list[int]]:
        """For each row of `top` its keys with 1, 2, ... `depth` further pods."""
        index = np.repeat(top, depth)
        extra = np.tile(np.arange(1, depth + 1, dtype=np.int64), len(top))
        found: list[list[int]] = self._evaluate(index, extra=extra).reshape(len(top), depth).tolist()
        return found

    @property
    def coupled(self) -> bool:
        """Whether pods on other nodes, or of others on the node, may keep the class out."""
        return bool(self._far_predicates)

    def capacity(self) -> Column:
        """How many pods of the class each row has room for, were no other in the way; 0 where it never may stand.

        Not to be changed, nor to be kept: it follows the rows.
        """
        return self._capacity.each()

    def least_room(self) -> Index:
        """Of the rows for which that is not 0 those that have the least room."""
        return self._capacity.least()

    def capacity_now(self) -> Column:
        """How many pods of the class each row has room for as things are."""
        return self._capacity.at(slice(None))


class NodeRankings:
    """The fits of all classes against one `NodeResources`. `alone`: as though no other pod stood anywhere.

    `searches` is how many gangs may still be searched an arrangement for, `steps` how long each search may be.
    """

    def __init__(
        self,
        room: NodeResources,
        predicates: Sequence[Plugin],
        scores: Sequence[Plugin],
        fingerprint: str,
        *,
        alone: bool = False,
        scoring: Scoring | None = None,
    ) -> None:
        self.alone = alone
        self._scoring = scoring
        self.room = room
        self.predicates = predicates
        self.scores = scores
        self.every: Index = np.arange(len(room.table), dtype=np.intp)
        self._fingerprint = fingerprint
        self._fits: dict[tuple[int, When, Placement | None], NodeRanking] = {}
        self._most: dict[int, tuple[int, int]] = {}
        self._idle: dict[str, tuple[int, int]] = {}
        self.counts: Callable[[], KeptCounts] | None = None
        """What is free now, as it is kept from cycle to cycle; None: nobody keeps it."""
        self._static: dict[tuple[int, Placement | None], tuple[Mask, Column]] = {}
        self._allowed: dict[int, Mask] = {}
        self._takes_one: dict[int, Mask | None] = {}
        self._far: dict[int, Sequence[Plugin]] = {}
        self.searches = SEARCHES
        self.steps = STEPS

    def let_go(self) -> Iterator[Turn]:
        """Let go of the fits, which hold this, in pieces."""
        for _ in emptying(self._fits):
            yield TURN

    def close(self) -> None:
        """Let go of the fits, which hold this."""
        self._fits.clear()

    def scores_for(self, way: Placement | None) -> Sequence[Plugin]:
        """The plugins that score nodes for pods of queues that ask for this."""
        return self.scores if way is None or self._scoring is None else self._scoring.plugins(way)

    def of(self, cls: TaskClass, when: When, job: JobState | None = None) -> NodeRanking:
        """The keys of a class, scored as the job's queue asks; without a job, as the configuration says."""
        way = self._way(job) if job is not None else None
        found = self._fits.get((cls.id, when, way))
        if found is None:
            if len(self._fits) * len(self.every) > _MOST_CELLS:
                del self._fits[next(iter(self._fits))]
            self.room.ensure(cls)
            found = self._fits[cls.id, when, way] = NodeRanking(self, cls, when, way)
        return found

    def full(self, cls: TaskClass, when: When, job: JobState) -> bool:
        """Whether it is sure that no node has room for a pod of the class. Looked at only while no ranking was made for
        it: the ranking knows, and this is to save making it.
        """
        if self.counts is None or (cls.id, when, self._way(job)) in self._fits:
            return False
        self.room.ensure(cls)
        if when is When.NOW and any(amount > self._largest_idle(name) for name, amount in cls.needs):
            return True
        return self.most(cls) == 0

    def _largest_idle(self, name: str) -> int:
        """Of a dimension what is idle on the node that has most of it."""
        moment, found = len(self.room.log), self._idle.get(name)
        if found is None or found[0] != moment:
            found = self._idle[name] = moment, int(self.room.idle[name].max(initial=0))
        return found[1]

    def _way(self, job: JobState) -> Placement | None:
        """What the job's queue asks for."""
        scoring = self._scoring
        return scoring.placement(job) if scoring is not None and scoring.by_job else None

    def preference(self, job: JobState) -> Hashable:
        """What decides which nodes the job's pods prefer, besides their class and what stands on the nodes."""
        own = self._scoring.own_nodes if self._scoring is not None else None
        return self._way(job), tuple(own.rows(job)) if own is not None else ()

    def for_job(self, cls: TaskClass, when: When, job: JobState) -> NodeRanking | JobRanking:
        """What chooses nodes for pods of a job."""
        found = self.of(cls, when, job)
        if found.own_nodes and self._scoring is not None and self._scoring.own_nodes is not None:
            return JobRanking(found, partial(self._scoring.own_nodes.rows, job))
        return found

    def most(self, cls: TaskClass) -> int:
        """How many pods of the class there is room for at most, now or once what terminates is gone: as though no other
        pod was in the way.
        """
        moment = len(self.room.log)
        found = self._most.get(cls.id)
        if found is None or found[0] != moment:
            self.room.ensure(cls)
            if self.counts is not None and cls.needs:
                many = self.counts().fitting(cls, self.static(cls)[0], ENDLESS)[1]
                self._most[cls.id] = moment, many
                return many
            least: Column | None = None
            for name, amount in cls.needs:
                fitting: Column = self.room.future[name] // amount
                least = fitting if least is None else np.minimum(least, fitting)
            many = _ENDLESS if least is None else int(np.maximum(least[self.static(cls)[0]], 0).sum())
            found = self._most[cls.id] = moment, many
        return found[1]

    def in_sum(self, cls: TaskClass) -> int:
        """How many pods of the class all room together would hold, on whatever nodes it is: no fewer than `most`."""
        return min([self.room.free(name) // amount for name, amount in cls.needs], default=_ENDLESS)

    def stepwise(self, cls: TaskClass) -> bool:
        """Whether more than room decides which nodes its pods may take or prefer: `NodeRanking.stepwise`, without one
        that is made for it. Where the configuration says how nodes are scored.
        """
        among = () if self.alone else self.predicates
        return any(p.predicate_scope(cls) is not Scope.STATIC for p in among) or any(
            p.score_scope(cls) is Scope.CLUSTER for p in self.scores
        )

    def coupled(self, cls: TaskClass) -> bool:
        """Whether placing one pod can open a node for another of this class."""
        return any(p.predicate_scope(cls) is Scope.CLUSTER for p in self.predicates)

    def one_by_one(self, cls: TaskClass) -> bool:
        """Whether like pods of the class, placed one by one wherever they fit, are as many as can be placed at all."""
        return self.alone or all(
            p.predicate_scope(cls) is Scope.STATIC or p.one_by_one(cls) for p in self.predicates
        )  # fmt: skip

    def free(self, name: str, when: When) -> Column:
        """What each row has free of a dimension; below zero where more is taken than there is."""
        free: Column = self.room.future[name]
        return np.minimum(free, self.room.idle[name]) if when is When.NOW else free.copy()

    def takes_one(self, cls: TaskClass) -> Mask | None:
        """The rows on which no two pods of the class can stand, however empty they are; None: there are none."""
        if cls.id not in self._takes_one:
            said = [mask for p in self.predicates if (mask := p.takes_one(cls)) is not None]
            self._takes_one[cls.id] = np.logical_or.reduce(said) if said else None
        return self._takes_one[cls.id]

    def domain_limits(self, cls: TaskClass, others: Sequence[TaskClass]) -> list[DomainLimit]:
        """What its pods demand of one another by domains (`Plugin.domain_limits`)."""
        return [limit for p in self.far_predicates(cls) for limit in p.domain_limits(cls, others)]

    def heeds(self, cls: TaskClass, other: TaskClass) -> bool:
        """Whether one of the class `other` that goes may let pods of the class onto a node, or keep them from it,
        besides by the room that it leaves.
        """
        return any(p.heeds(cls, other) for p in self.far_predicates(cls))

    def excludes(self, cls: TaskClass, other: TaskClass) -> bool:
        """Whether no pods of the two classes can be on one node at a time, whatever its room."""
        return any(p.excludes(cls, other) for p in self.predicates)

    def heeds_elsewhere(self, cls: TaskClass, other: TaskClass) -> bool:
        """The same as `heeds`, of one on another node."""
        return any(p.heeds_elsewhere(cls, other) for p in self.far_predicates(cls))

    def far_predicates(self, cls: TaskClass) -> list[Plugin]:
        """The plugins whose predicates of the class depend on more than the node asked about."""
        return [p for p in self.predicates if p.predicate_scope(cls) is Scope.CLUSTER]

    def far(self, cls: TaskClass) -> Sequence[Plugin]:
        """The plugins whose answers about the class depend on more than the node asked about."""
        found = self._far.get(cls.id)
        if found is None:
            found = self._far[cls.id] = (
                *(p for p in self.predicates if p.predicate_scope(cls) is Scope.CLUSTER),
                *(p for p in self.scores if p.score_scope(cls) is Scope.CLUSTER),
            )
        return found

    def static(self, cls: TaskClass, way: Placement | None = None) -> tuple[Mask, Column]:
        """Rows that static predicates allow, and the static part of the scores; kept until some node changes."""
        known = self._static.get((cls.id, way))
        if known is not None:
            return known
        cache = self.room.table.static_cache
        # With the scopes: an answer that was static may depend on other pods later, and the other way round.
        scored = self.scores_for(way)
        scopes = (*(p.predicate_scope(cls) for p in self.predicates), *(p.score_scope(cls) for p in scored))
        key = (self._fingerprint, cls.id, scopes, self.alone, way)
        found: tuple[Mask, Column] | None = cache.get(key)
        if found is None:
            rows = Rows(self.room, self.every, cls, whole=True, placement=way)
            allowed = self.allowed(cls) & ~self._refused(cls) if cls.avoids else self.allowed(cls)
            score: Column | None = None
            for plugin in scored:
                if plugin.score_scope(cls) is Scope.STATIC:
                    scores = plugin.node_order(cls, rows)
                    if scores is not None:
                        score = np.zeros(len(self.every), np.int64) if score is None else score
                        score += scores
            if score is None:
                found = cache[key] = _one(cache, allowed), self._zeros(cache)
            else:
                found = cache[key] = _one(cache, allowed), _one(cache, score)
        self._static[cls.id, way] = found
        return found

    def _zeros(self, cache: dict[Any, Any]) -> Column:
        found: Column = cache.setdefault(("zeros",), np.zeros(len(self.every), np.int64))
        return found

    def _refused(self, cls: TaskClass) -> Mask:
        """Rows of nodes that refused the pods of the class. What the emptied cluster could hold does not mind them."""
        return self._rows_of(frozenset() if self.alone else cls.avoids)

    def _rows_of(self, nodes: frozenset[str]) -> Mask:
        found = np.zeros(len(self.every), np.bool_)
        if nodes:
            found[[row for name in nodes if (row := self.room.table.row.get(name)) is not None]] = True
        return found

    def allowed(self, cls: TaskClass) -> Mask:
        """Rows that static predicates, and the static part of the others, allow; without asking after scores."""
        known = self._allowed.get(cls.id)
        if known is not None:
            return known
        cache = self.room.table.static_cache
        key = ("allowed", self._fingerprint, cls.id, tuple([p.predicate_scope(cls) for p in self.predicates]))
        found: Mask | None = cache.get(key)
        if found is None:
            rows = Rows(self.room, self.every, cls, whole=True)
            found = self.room.table.open & ~self._rows_of(cls.shuns)
            for plugin in self.predicates:
                near = plugin.predicate_scope(cls) is Scope.STATIC
                codes = plugin.predicate(cls, rows) if near else plugin.static_predicate(cls, rows)
                if codes is not None:
                    found &= codes == 0
            found = cache[key] = _one(cache, found)
        self._allowed[cls.id] = found
        return found

    def hardness(self, cls: TaskClass) -> tuple[int, int]:
        """Smaller is harder to place: how many nodes could ever take one; of equals less the largest part of a node
        that it needs, over the dimensions, in 2^-32 of the largest node.
        """
        cache = self.room.table.static_cache
        key = ("hardness", self._fingerprint, cls.id, tuple([p.predicate_scope(cls) for p in self.predicates]))
        found: tuple[int, int] | None = cache.get(key)
        if found is None:
            able = self.allowed(cls).copy()
            part = 0
            for name, amount in cls.needs:
                column = self.room.table.allocatable.get(name)
                if column is None:
                    able[:] = False
                    continue
                able &= column >= amount
                part = max(part, (amount << 32) // max(1, int(column.max(initial=0))))
            found = cache[key] = (int(np.count_nonzero(able)), -part)
        return found

    def allows(self, cls: TaskClass, row: int, when: When) -> bool:
        """Whether one pod of the class fits that row."""
        return bool(self.of(cls, when).refresh()[row] >= 0)

    def histogram(self, cls: TaskClass, open_to: Mask | None = None) -> tuple[int, tuple[tuple[str, int], ...]]:
        """How many nodes take one pod of the class now, and the others counted by the first reason against them.

        Rows that are not `open_to` the pod are other groups' own, or not its group's alone.
        """
        self.room.ensure(cls)
        left = np.ones(len(self.every), np.bool_)
        counts: dict[str, int] = {}

        def count(mask: Mask, text: str) -> None:
            nonlocal left
            hit = int(np.count_nonzero(mask & left))
            if hit:
                counts[text] = counts.get(text, 0) + hit
                left &= ~mask

        count(~self.room.table.open, "unreadable pod")
        if cls.avoids:
            count(self._rows_of(cls.shuns), NodeFailedPods().short)
            count(self._refused(cls), RefusedPod().short)
        rows = Rows(self.room, self.every, cls, whole=True)
        for plugin in self.predicates:
            near = self.alone and plugin.predicate_scope(cls) is not Scope.STATIC
            codes = plugin.static_predicate(cls, rows) if near else plugin.predicate(cls, rows)
            if codes is not None:
                for code, reason in enumerate(plugin.reasons_of(cls), start=1):
                    count(codes == code, _short(reason))
        for name, amount in cls.needs:
            text = TooManyPods().short if name == PODS else Insufficient(name).short
            count(np.minimum(self.room.idle[name], self.room.future[name]) < amount, text)
        if open_to is not None:
            count(~open_to, NodeExclusive().short)
        by_count = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return int(np.count_nonzero(left)), tuple(by_count)


def _one(cache: dict[Any, Any], column: _C) -> _C:
    """The column, or another one that is equal and kept already: thousands of classes share a few answers."""
    key = ("column", column.dtype.char, zlib.crc32(column.tobytes()))
    known: _C = cache.setdefault(key, column)
    return known if np.array_equal(known, column) else column


def _short(reason: Reason) -> str:
    return reason.short if isinstance(reason, NodeReason) else reason.code
