"""One cycle's view of the cluster: the snapshot, the plugins, and the state of groups and queues as decisions fall."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from kbatch.api.configuration import Switch
from kbatch.api.reasons import Reason, most_specific
from kbatch.engine.carryover.unschedulable import Failures
from kbatch.engine.coming import overuses, surplus
from kbatch.engine.cooperative import Pace
from kbatch.engine.decisions import TURN, Memo, Turn
from kbatch.engine.placement.feasibility import Emptied
from kbatch.engine.placement.ranking import Placement
from kbatch.engine.plugin import Claim, Key, Plugin, Undo, Unit, Vote
from kbatch.engine.policy.policy import Policy
from kbatch.engine.preemption.budgets import Budgets
from kbatch.engine.reservation.holds import Holds
from kbatch.engine.state.jobs import JobState, QueueState
from kbatch.engine.state.node_resources import Room
from kbatch.engine.state.snapshot import Snapshot
from kbatch.model.jobs import Job
from kbatch.model.nodes import NodeTable
from kbatch.model.tasks import Task
from kbatch.resources import Resources, total

_UNASKED: Final = 1_000
"""The rank of units to which no plugin consents, and which go because their group has more than it asked for."""


class Session:
    """The engine's working state; it is the `View` that plugins get.

    Attributes:
        room_moves: how often this cycle made room (evictions, withdrawn nominations): while it and the snapshot's
            `room_generation` stand still, room only shrinks, and what did not fit does not fit.
        reasons: for each group key, why it was refused so far in this cycle. unfit: keys of those that lack room.
        attempted: keys of groups that were tried against the nodes, in this cycle or before with the same outcome.
        holds: room kept for a group that has waited too long.
        leaving: keys of pods that this cycle evicts. commits: how many statements it has committed.
        wake: instants (ms) at which the same snapshot could be decided otherwise.
        due: told of each piece of work, says when the cycle's caller should get a turn.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy, memo: Memo) -> None:
        self.snapshot = snapshot
        self.policy = policy
        self.memo = memo
        self.now = snapshot.now
        self.model = snapshot.model
        self.nodes: NodeTable = snapshot.table
        self.room = Room(snapshot.table)
        self._usable = snapshot.table.open & snapshot.table.ready & ~snapshot.table.cordoned
        self.total: Resources = snapshot.capacity
        deserved = self.model.deserved()
        self._queues = {
            name: QueueState(record, deserved.get(name, {}), dict(record.allocated))
            for name, record in sorted(self.model.queues.items())
            if record.queue is not None
        }
        self._jobs: dict[str, JobState] = {}
        self.room_moves = 0
        self.reasons: dict[str, list[Reason]] = {}
        self.attempted: set[str] = set()
        self.wake: list[int] = []
        self.due = Pace().due
        self.failures = Failures(self, memo)
        self.unfit: set[str] = set()
        self.holds = Holds()
        self._promises: list[tuple[JobState, Resources]] | None = None
        self._live: list[JobState] = []
        self.commits = 0
        self.leaving: set[str] = set()
        self._below: dict[str, set[str]] | None = None
        self._emptied: Emptied | None = None
        self._vain: dict[object, int] = {}
        self._load(policy)
        self.budgets = Budgets(self.model)
        self.removed_hooks.append(self.budgets.removed)

    def _load(self, policy: Policy) -> None:
        plugins: list[tuple[int, Callable[[Switch], bool], Plugin]] = [
            (part.tier, part.enabled, part.plugin(part.arguments, self)) for part in policy.plugins
        ]
        self._plugins = [plugin for _, _, plugin in plugins]

        def those(method: str, switch: Switch | None = None) -> list[Plugin]:
            return [
                plugin for _, enabled, plugin in plugins
                if getattr(type(plugin), method) is not getattr(Plugin, method)
                and (switch is None or enabled(switch))
            ]  # fmt: skip

        self._queue_keys: list[Callable[[QueueState], Key]] = [
            plugin.queue_order_key for plugin in those("queue_order_key", Switch.QUEUE_ORDER)
        ]
        self._job_keys: list[Callable[[JobState], Key]] = [
            plugin.job_order_key for plugin in those("job_order_key", Switch.JOB_ORDER)
        ]
        self._task_keys: list[Callable[[Task], Key]] = [
            plugin.task_order_key for plugin in those("task_order_key", Switch.TASK_ORDER)
        ]
        self._valid = [plugin.job_valid for plugin in those("job_valid")]
        self._enqueueable = [plugin.job_enqueueable for plugin in those("job_enqueueable")]
        self._ready = [plugin.job_ready for plugin in those("job_ready", Switch.JOB_READY)]
        self._pipelined = [plugin.job_pipelined for plugin in those("job_pipelined", Switch.JOB_PIPELINED)]
        self._overused = [plugin.overused for plugin in those("overused")]
        self.predicates: Sequence[Plugin] = those("predicate", Switch.PREDICATE)
        self.scores: Sequence[Plugin] = those("node_order", Switch.NODE_ORDER)
        self.placed_hooks: list[Callable[[Task, int], Undo]] = [plugin.placed for plugin in those("placed")]
        self.removed_hooks: list[Callable[[Task, int], Undo]] = [plugin.removed for plugin in those("removed")]
        self._votes: dict[str, list[tuple[int, Callable[[Claim, Unit], Vote]]]] = {
            "preempt": [
                (tier, plugin.preemptable) for tier, enabled, plugin in plugins
                if type(plugin).preemptable is not Plugin.preemptable and enabled(Switch.PREEMPTABLE)
            ],
            "reclaim": [
                (tier, plugin.reclaimable) for tier, enabled, plugin in plugins
                if type(plugin).reclaimable is not Plugin.reclaimable and enabled(Switch.RECLAIMABLE)
            ],
        }  # fmt: skip
        self._each = {
            action: any(
                getattr(type(plugin), method) is not getattr(Plugin, method) and not plugin.votes_by_class
                for plugin in self._plugins
            )
            for action, method in (("preempt", "preemptable"), ("reclaim", "reclaimable"))
        }
        self.placement = Placement(self.room, self.predicates, self.scores, policy.fingerprint)

    def open(self) -> Iterator[Turn]:
        """What takes long before anything can be asked: the plugins' preparations, and a look at each live group."""
        for plugin in self._plugins:
            for _ in plugin.prepare():
                yield TURN
        found: list[JobState] = []
        for job in sorted(self.model.live.values(), key=lambda job: (job.created, job.key)):
            state = self._jobs[job.key] = self._state(job)
            found.append(state)
            if self.due(1 + len(job.waiting) // 10):
                yield TURN
        self._live = found

    def keep(self, memo: Memo) -> None:
        """Put into the next cycle's memo what may hold then."""
        self.failures.keep(memo)
        if self._emptied is not None:
            self._emptied.keep(memo)

    def close(self) -> None:
        """Let go of everything: session and plugins hold one another, and the collector should have nothing to find."""
        self.placement.close()
        if self._emptied is not None:
            self._emptied.close()
        vars(self).clear()

    # --- View ---------------------------------------------------------------------------------------------------------

    @property
    def queues(self) -> Mapping[str, QueueState]:
        """The existing queues, in the order of names."""
        return self._queues

    def queue(self, name: str) -> QueueState:
        """A queue; raises KeyError where there is none."""
        return self._queues[name]

    def job(self, key: str) -> JobState:
        """A group; raises KeyError where there is none."""
        found = self._jobs.get(key)
        if found is None:
            found = self._jobs[key] = self._state(self.model.jobs[key])
        return found

    def _state(self, job: Job) -> JobState:
        state = JobState(job, job.queue, dict(job.bound))
        state.bound = job.holding + job.succeeded
        waiting = [task for task in job.waiting if not task.gated]
        state.gated = len(job.waiting) - len(waiting)
        if len(waiting) > 1:
            keys = self._task_keys
            waiting.sort(key=lambda task: (*[part for key in keys for part in key(task)], task.created, task.key))
        state.waiting = waiting
        asks: dict[str, None] = {}
        seen: set[int] = set()
        for task in waiting:
            if task.cls.id not in seen:
                seen.add(task.cls.id)
                asks.update(dict.fromkeys(task.cls.request))
        state.asks = tuple(asks)
        if job.roles:
            state.by_role = job.placed_by_role()
        return state

    def live(self) -> Sequence[JobState]:
        """The groups that are not settled, the oldest first."""
        return self._live

    def promises(self) -> Sequence[tuple[JobState, Resources]]:
        """What groups in queue were promised whose minimum's pods do not exist yet; nothing where nobody promises."""
        if self._promises is None and not self.policy.has("enqueue"):
            self._promises = []
        if self._promises is None:
            self._promises = [
                (job, job.job.outstanding) for job in self.live()
                if job.job.outstanding and job.in_queue and job.possible and not job.job.shadow
                and job.bound + len(job.job.waiting) < job.minimum
            ]  # fmt: skip
        return self._promises

    @property
    def emptied(self) -> Emptied:
        """The nodes as they would be without this scheduler's pods."""
        if self._emptied is None:
            self._emptied = Emptied(self)
        return self._emptied

    def below_share(self) -> Mapping[str, set[str]]:
        """By dimension the queues below their deserved share whose groups wait for more of it; `refresh_below` anew."""
        if self._below is None:
            below = self._below = {}
            nominated: dict[str, Resources] = {}
            asked: dict[str, set[str]] = {}
            for job in self.live():
                if job.in_queue and job.possible and job.queue in self._queues and (job.nominated or not job.idle):
                    asked.setdefault(job.queue, set()).update(job.asks)
                    if job.nominated:
                        sums = nominated.setdefault(job.queue, {})
                        for task, _ in job.nominated.values():
                            for name, amount in task.cls.request.items():
                                sums[name] = sums.get(name, 0) + amount
            for queue, names in asked.items():
                state, waits = self._queues[queue], nominated.get(queue, {})
                for name in names:
                    if state.deserved.get(name, 0) > state.allocated.get(name, 0) - waits.get(name, 0):
                        below.setdefault(name, set()).add(queue)
        return self._below

    def refresh_below(self) -> None:
        """Decisions have fallen since `below_share` was worked out."""
        self._below = None

    def others_first(self, job: JobState) -> bool:
        """Whether another queue below its share waits for what the job asks for: it gets what comes free first."""
        below = self.below_share()
        return any(below.get(name, set()) - {job.queue} for name in job.asks)

    def limited(self, job: JobState, tasks: Sequence[Task]) -> bool:
        """Whether its queue's share or capability, not room, is what keeps the job waiting."""
        queue = self._queues[job.queue]
        if self.others_first(job) and self.overused(queue, job) is not None:
            return True
        asked = total(task.cls.request for task in tasks)
        hard = queue.record.capability or {}
        return any(queue.allocated.get(name, 0) + asked.get(name, 0) > hard[name] for name in hard if asked.get(name))

    def idle(self, name: str) -> int:
        """Idle room of a dimension over all nodes that may be used."""
        column = self.room.idle.get(name)
        return int(np.maximum(column[self._usable], 0).sum()) if column is not None else 0

    def usable(self) -> Resources:
        """Idle and releasing room, less what is nominated, over all nodes that may be used."""
        return {name: int(np.maximum(column[self._usable], 0).sum()) for name, column in self.room.future.items()}

    # --- what plugins say ---------------------------------------------------------------------------------------------

    def queue_key(self, queue: QueueState) -> tuple[Any, ...]:
        """Order of queues, total."""
        return (*[part for key in self._queue_keys for part in key(queue)], queue.name)

    def job_key(self, job: JobState) -> tuple[Any, ...]:
        """Order of jobs, total."""
        return (*[part for key in self._job_keys for part in key(job)], job.job.created, job.job.key)

    def valid(self, job: JobState) -> Reason | None:
        """Why the job cannot be tried at all."""
        return most_specific([ask(job) for ask in self._valid])

    def enqueueable(self, job: JobState) -> Reason | None:
        """Why plugins keep the job out of the queue."""
        return most_specific([ask(job) for ask in self._enqueueable])

    def ready(self, job: JobState) -> bool:
        """Whether what is bound is enough for the job to run."""
        return not any(ask(job) for ask in self._ready)

    def pipelined(self, job: JobState) -> bool:
        """Whether what is bound and nominated is enough."""
        return not any(ask(job) for ask in self._pipelined)

    def overused(self, queue: QueueState, job: JobState) -> Reason | None:
        """Why the queue has had enough for this job; the first plugin that says so."""
        for ask in self._overused:
            reason = ask(queue, job)
            if reason is not None:
                return reason
        return None

    def rank(self, action: str, claim: Claim, unit: Unit) -> int | None:
        """How willingly the unit goes: 0 where its group has outlived its lifetime, else one more than the tier that
        offers it; None where a plugin forbids it or none consents. Surplus beyond minResources needs no consent to
        make room for pods that are to come.
        """
        if claim.never or not self.budgets.allow(unit) or (claim.ahead and not surplus(unit)):
            return None
        rank: int | None = None
        for tier, ask in self._votes[action]:
            vote = ask(claim, unit)
            if vote is Vote.VETO:
                return None
            if vote is Vote.YES and rank is None:
                rank = tier + 1
        if action == "preempt" and self.may_follow(claim.job, unit.job) and not claim.intra:
            return 0
        if rank is None and claim.ahead and unit.job.priority <= claim.job.priority and overuses(unit):
            return _UNASKED
        return 0 if rank is not None and action == "reclaim" and self.expired(unit.job) else rank

    def kind(self, action: str, task: Task) -> object:
        """What the votes on a pod alone depend on, besides its job: pods of one job and kind get the same votes."""
        if self._each[action]:
            return task.key
        return task.cls.id, task.role, task.priority, self.budgets.of(task)

    def may_follow(self, job: JobState, other: JobState) -> bool:
        """Whether the job may take the place of one that has outlived its lifetime; only one that itself stays may."""
        endless = job.job.group is None or job.job.group.spec.lifetime_seconds is None
        return endless and other is not job and other.priority <= job.priority and self.expired(other)

    def deficit(self, action: str, claim: Claim, unit: Unit) -> Resources:
        """By how much more its queue would lack what it deserves, in what the claim lacks, were the unit to go.

        Only reclaim asks; empty where the queue keeps its share.
        """
        donor = self._queues.get(unit.job.queue) if action == "reclaim" else None
        if donor is None:
            return {}
        found: Resources = {}
        for name in claim.lacks:
            amount = unit.request.get(name, 0)
            if amount:
                above = donor.allocated.get(name, 0) - donor.deserved.get(name, 0)
                if amount > above:
                    found[name] = amount - max(0, above)
        return found

    def too_young(self, job: JobState) -> bool:
        """Whether the group is within its minRuntimeSeconds."""
        group = job.job.group
        if group is None or not group.spec.min_runtime_seconds or job.job.started is None:
            return False
        until = job.job.started + group.spec.min_runtime_seconds * 1000
        if self.now < until:
            self.wake.append(until)
            return True
        return False

    def expired(self, job: JobState) -> bool:
        """Whether the group has outlived its lifetimeSeconds: then it may go as a whole, whatever its disruption."""
        group = job.job.group
        if group is None or group.spec.lifetime_seconds is None or job.job.started is None:
            return False
        until = job.job.started + group.spec.lifetime_seconds * 1000
        if self.now >= until:
            return True
        self.wake.append(until)
        return False

    # --- reasons ------------------------------------------------------------------------------------------------------

    def refuse(self, job: JobState, reason: Reason, *, attempted: bool = False) -> None:
        """Note why the job waits."""
        self.reasons.setdefault(job.key, []).append(reason)
        if attempted:
            self.attempted.add(job.key)

    def refuse_room(self, job: JobState) -> None:
        """Note that there is no room for what the job's minimum lacks; how much, is said when all is decided."""
        self.unfit.add(job.key)
        self.attempted.add(job.key)

    def hopeless(self, mark: object) -> bool:
        """Whether the like of this was sought for in vain since the last decision."""
        return self._vain.get(mark) == self.commits

    def note_hopeless(self, mark: object) -> None:
        """Nothing could be done for it, as things are."""
        self._vain[mark] = self.commits
