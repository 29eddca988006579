"""What plugins say of queues, groups and pods: each question, and what the answers of those asked come to together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from kbatch.api.configuration import Switch
from kbatch.api.reasons import Reason, most_specific
from kbatch.engine.decisions import TURN, StartEstimate, Turn
from kbatch.engine.plugin import Plugin, QueueStanding, Undo, View
from kbatch.engine.policy.policy import Policy
from kbatch.engine.session.errors import CulpritError
from kbatch.engine.session.limits import ByPlugins
from kbatch.engine.session.voting import Voting
from kbatch.engine.state.growth import part_of_growth
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.queues import QueueState
from kbatch.model.jobs import Job
from kbatch.model.tasks import Task, TaskClass
from kbatch.resources import Resources, add_to, scale


class Plugins:
    """The plugins of one session, by what they are asked.

    Args:
        view: what they see; what it shows must be there already.
        restoring: whether what earlier cycles have decided is being put in its place.
        committed: keys of the groups whose sums have changed for good in this cycle; grows.

    Attributes:
        looks_ahead: the order of queues depends on what their first jobs would take.
        by_priority: groups of a queue are to come in queue by their priority before their age, whoever may be evicted.
        by_job: whether all that they say of groups that are not in queue depends on the group alone.
        limit: what they say of sums beyond capability; None: nothing. limits_alike: they say the same of groups of a
            queue that are alike (see `state.minimum.likeness`).
        chooses_donors: `may_give` may say no.
        learns: they know how long groups run of which nobody says so.
        starts: by key when groups are to start that wait, by what they foresee. starts_anew: the keys of those for
            which that is another instant than in the cycle before.
        task_keys: what orders the tasks of a job; the first counts most.
        predicates, scores: those that have a say in which nodes a pod may use, and prefers. gathering: those that keep
            pods together.
        following, delaying, removed_hooks: what is told of a pod that is placed, that is nominated instead of bound,
            and that goes; who follows says of which classes.
    """

    def __init__(self, policy: Policy, view: View, restoring: Callable[[], bool], committed: Sequence[str]) -> None:
        self._view = view
        self._restoring = restoring
        self._committed = committed
        self._plugins = [part.plugin(part.arguments, view) for part in policy.plugins]

        def those(method: str, switch: Switch | None = None) -> list[Plugin]:
            return [self._plugins[at] for at in policy.answering(method, switch)]

        ordering = those("queue_order_key", Switch.QUEUE_ORDER)
        self._queue_keys = [plugin.queue_order_key for plugin in ordering]
        self._queue_keys_with = [plugin.queue_order_key_with for plugin in ordering]
        self.looks_ahead = any(plugin.answers("queue_order_key_with") for plugin in ordering)
        self.by_priority = any(plugin.by_priority for plugin in self._plugins)
        self._job_keys = [plugin.job_order_key for plugin in those("job_order_key", Switch.JOB_ORDER)]
        self.task_keys = [plugin.task_order_key for plugin in those("task_order_key", Switch.TASK_ORDER)]
        self._valid = [plugin.job_valid for plugin in those("job_valid")]
        asked = (*those("job_valid"), *those("job_enqueueable"), *those("task_order_key"))
        self.limits_alike = all(plugin.limits_alike for plugin in those("headroom"))
        limiting = [plugin for plugin in self._plugins if not view.emptied and plugin.limits()]
        self._admission = [plugin.admission for plugin in limiting if plugin.answers("admission")]
        self.by_job = all(plugin.by_job for plugin in asked)
        headroom = [plugin for plugin in limiting if plugin.answers("headroom")]
        self.limit = ByPlugins(headroom, restoring) if headroom else None
        self._charges = [plugin.charge for plugin in those("charge")] if not view.emptied else []
        self._charges_with = [plugin.charge_with for plugin in those("charge_with")]
        self._may_give = [plugin.may_give for plugin in those("may_give")]
        self.chooses_donors = bool(self._may_give)
        self._give_first = [plugin.gives_first for plugin in those("gives_first")]
        self._minds_promises = not view.emptied and any(plugin.minds_promises for plugin in self._plugins)
        self._run_times = [plugin.run_time for plugin in those("run_time")] if not view.emptied else []
        self.learns = bool(self._run_times)
        self._planned_starts = [plugin.start_planned for plugin in those("start_planned")]
        self._foresee = [plugin.starts for plugin in those("starts")]
        self.starts: Mapping[str, StartEstimate] = {}
        self.starts_anew: set[str] = set()
        self._places: dict[str, int] | None = None
        self._enqueueable = [plugin.job_enqueueable for plugin in those("job_enqueueable")]
        self._ready = [plugin.job_ready for plugin in those("job_ready", Switch.JOB_READY)]
        self._pipelined = [plugin.job_pipelined for plugin in those("job_pipelined", Switch.JOB_PIPELINED)]
        self._overused = [plugin.overused for plugin in those("overused")]
        self.predicates: Sequence[Plugin] = those("predicate", Switch.PREDICATE)
        self.gathering: Sequence[Plugin] = those("node_sets")
        self.scores: Sequence[Plugin] = those("node_order", Switch.NODE_ORDER)
        self.following: list[tuple[Callable[[TaskClass], bool], Callable[[Task, int], Undo]]] = [
            (plugin.follows, plugin.placed) for plugin in those("placed")
        ]
        self.delaying = [(plugin.follows, plugin.delayed) for plugin in those("delayed")]
        self.removed_hooks: list[Callable[[Task, int], Undo]] = [plugin.removed for plugin in those("removed")]
        self.voting = Voting(policy, self._plugins)

    def preparing(self) -> Iterator[Turn]:
        """What takes long before anything can be asked."""
        for plugin in self._plugins:
            for _ in plugin.prepare():
                yield TURN

    def let_go(self) -> Iterator[Turn]:
        """Let go of what plugins have made, in pieces. Nothing is asked any more."""
        for plugin in self._plugins:
            for _ in plugin.let_go():
                yield TURN

    def close(self) -> None:
        """Let go of everything."""
        self.voting.close()
        vars(self).clear()

    # --- order and admission ------------------------------------------------------------------------------------------

    def queue_key(self, queue: QueueState, more: Mapping[str, int] | None = None) -> tuple[Any, ...]:
        """Order of queues, total; `more` is what the queue's first job would take next, where that is known."""
        if more is None:
            return (*[part for key in self._queue_keys for part in key(queue)], queue.name)
        return (*[part for key in self._queue_keys_with for part in key(queue, more)], queue.name)

    def job_key(self, job: JobState) -> tuple[Any, ...]:
        """Order of jobs, total: by what plugins say; then who has the smallest part of its growth; then by age.

        Raises:
            CulpritError: a plugin raised.
        """
        try:
            said = [part for key in self._job_keys for part in key(job)]
        except Exception as error:
            raise CulpritError(job) from error
        return (*said, part_of_growth(job), job.job.created, job.job.key)

    def task_key(self, task: Task) -> tuple[Any, ...]:
        """What plugins say of a task's order among those of its job."""
        return tuple([part for key in self.task_keys for part in key(task)])

    def valid(self, job: JobState) -> Reason | None:
        """Why the job cannot be tried at all."""
        if not self.by_job:
            return _said(self._valid, job)
        known = job.known
        if known.valid is None or known.valid[0] != job.in_queue:
            known.valid = job.in_queue, _said(self._valid, job)
        return known.valid[1]

    def enqueueable(self, job: JobState) -> Reason | None:
        """Why plugins keep the job out of the queue."""
        return _said(self._enqueueable, job)

    def admission(self, job: JobState, asked: Mapping[str, int]) -> Reason | None:
        """Why plugins keep the job out of the queue where it would be promised so much."""
        if len(self._admission) == 1:
            return self._admission[0](job, asked)
        return most_specific([admit(job, asked) for admit in self._admission]) if self._admission else None

    def limit_of(self, job: JobState, asked: Mapping[str, int]) -> Hashable:
        """What `admission` depends on besides the sums of queues; None where no plugin limits anything."""
        if not self._admission:
            return None
        lifetime = job.job.lifetime
        return job.queue, lifetime, job.charged, tuple(sorted(asked.items()))

    def promise(self, job: JobState, amounts: Mapping[str, int]) -> None:
        """The job is in queue, and is promised so much beyond what it has."""
        if self._minds_promises:
            self._view.promises.keep(job, amounts)

    def charge(self, job: JobState) -> None:
        """Take from its queue's excessBudget what plugins say that the job takes of it, if it has a lifetime."""
        if not (job.ends and self._charges) or self._restoring():
            return
        charged = max(charge(job) for charge in self._charges)
        queue = self._view.queues.get(job.queue)
        if queue is not None:
            queue.charged += charged - job.charged
        job.charged = charged

    def charge_with(self, job: JobState, more: Mapping[str, int]) -> int:
        """What the job would take of its queue's excessBudget, with so much more placed and the queue above its share,
        beyond what it takes now.
        """
        if not (job.ends and self._charges_with):
            return 0
        return max(0, max(ask(job, more) for ask in self._charges_with) - job.charged)

    def charged_now(self, queue: str) -> bool:
        """Whether a group for which plugins may take something of the queue's excessBudget has changed in this cycle
        what it holds, or waits for.
        """
        if not self._charges:
            return False
        changed = (self._view.job(key) for key in dict.fromkeys(self._committed))
        return any(job.queue == queue and job.ends and (job.placed or job.nominated) for job in changed)

    def charge_placed(self, job: JobState) -> None:
        """Something of a job with a lifetime has been placed for good. What it was promised was judged then."""
        promised = job.key in self._view.promises and job.pipelined <= job.minimum
        if not promised or self._view.promises.exceeded(job):
            self.charge(job)

    def over_limits(self, job: JobState, tasks: Sequence[Task]) -> bool:
        """Whether plugins let the job place fewer tasks than these, of some class."""
        if self.limit is None:
            return False
        if len(tasks) == 1:  # the commonest by far
            most = self.limit.headroom(job, tasks[0])
            return most is not None and most < 1
        kinds = Counter((task.cls.id, task.role) for task in tasks)
        first = {(task.cls.id, task.role): task for task in reversed(tasks)}
        counted: list[Resources] = []
        try:
            for kind, task in first.items():
                most = self.limit.headroom(job, task)
                if most is not None and most < kinds[kind]:
                    return True
                counted.append(scale(task.cls.request, kinds[kind]))  # the next kind comes besides
                self._count(job, counted[-1], 1)
            return False
        finally:
            for amounts in counted:
                self._count(job, amounts, -1)

    def _count(self, job: JobState, amounts: Resources, sign: int) -> None:
        """Count so much as held by the job, or no longer."""
        add_to(job.allocated, scale(amounts, sign))
        queue = self._view.queues.get(job.queue)
        if queue is not None:
            queue.add(amounts, sign, ends=job.ends)

    def may_give(self, donor: QueueState, receiver: QueueState) -> bool:
        """Whether plugins could let a unit of one queue go for a job of another."""
        for ask in self._may_give:  # noqa: SIM110 -- asked often
            if not ask(donor, receiver):
                return False
        return True

    def gives_at(self, queue: str) -> tuple[int, int]:
        """Its place among those whose units go as willingly to other queues, and how many places there are."""
        if self._places is None:
            keys = {
                queue.name: tuple([part for key in self._give_first for part in key(queue)])
                for queue in (self._view.queues.values() if self._give_first else ())
            }
            order = {key: at for at, key in enumerate(sorted(set(keys.values())))}
            self._places = {name: order[key] for name, key in keys.items()}
        return self._places.get(queue, 0), len(self._view.queues) if self._places else 1

    def ready(self, job: JobState) -> bool:
        """Whether what is bound is enough for the job to run."""
        for ask in self._ready:  # noqa: SIM110 -- asked of every group in every cycle
            if ask(job):
                return False
        return True

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

    def states(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """What each plugin that declares a `State` leaves to the next cycle, beside what nobody asked for."""
        kept = dict(before)
        for plugin in self._plugins:
            if plugin.State is not None:
                kept[plugin.name] = plugin.left()
        return kept

    def run_time(self, job: Job) -> int | None:
        """How long pods of a group run of which nobody says so, by the first plugin that knows it."""
        return next((length for ask in self._run_times if (length := ask(job)) is not None), None)

    def foresee(self) -> Iterator[Turn]:
        """Ask plugins when groups that wait are to start; the first one that says so of a group counts."""
        for ask in self._foresee:
            steps = ask()
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    found, anew = end.value
                    break
                yield TURN
            self.starts_anew |= anew - self.starts.keys()
            self.starts = {**found, **self.starts}

    def start_planned(self, job: Job, at: int) -> StartEstimate | None:
        """When a group starts for which room is kept from an instant on, by the first plugin that knows more."""
        return next((found for ask in self._planned_starts if (found := ask(job, at)) is not None), None)

    def standings(self) -> dict[str, QueueStanding]:
        """What the first plugin that has anything to say of a queue says of it, for its status; of those that exist."""
        found: dict[str, QueueStanding] = {}
        for plugin in self._plugins:
            if plugin.answers("standing"):
                for name, queue in self._view.queues.items():
                    said = plugin.standing(queue) if queue.record.queue is not None and name not in found else None
                    if said is not None:
                        found[name] = said
        return found

    def opinion(self, wakes: list[int]) -> int | None:
        """When the first plugin's opinion on the same snapshot changes by itself, and with it what is decided; None:
        never. Notes in `wakes` when something else is to be told.
        """
        found: int | None = None
        for plugin in self._plugins:
            wake = plugin.wake()
            if wake is None or wake <= self._view.now:
                continue
            if not plugin.wake_decides:
                wakes.append(wake)
            elif found is None or wake < found:
                found = wake
        return found

    def followers(self, cls: TaskClass) -> list[Callable[[Task, int], Undo]]:
        """What is to be told when a task of the class is placed: `placed` of the plugins that follow the class."""
        return [placed for follows, placed in self.following if follows(cls)]

    def delayers(self, cls: TaskClass) -> list[Callable[[Task, int], Undo]]:
        """What is to be told when a task of the class that was placed to be bound is nominated instead."""
        return [delayed for follows, delayed in self.delaying if follows(cls)]


def _said(asks: Sequence[Callable[[JobState], Reason | None]], job: JobState) -> Reason | None:
    """The most specific reason of those that plugins give; nearly always there is one plugin that is asked, or none."""
    if len(asks) == 1:
        return asks[0](job)
    return most_specific([ask(job) for ask in asks]) if asks else None
