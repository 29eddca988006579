"""All groups and queues: which pod belongs to which group, which group to which queue, and their sums.

An event marks the groups that it touched; `refreshing` works out only these again and carries the difference to their
queues. A group lives as long as its PodGroup or any pod that names it; a queue as long as its Queue or any such group.

Pods that were made for a PodGroup that had the name of another before it are a group of their own, an orphan: its key
is that of the other, `##`, and the uid of the one that they were made for. It begins in the queue of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kbatch.api.names import GROUP_NAME_ANNOTATION, QUEUE_LABEL
from kbatch.api.objects import Job as BatchJob
from kbatch.api.objects import Pod, PodGroup, Queue, timestamp_us
from kbatch.model.annotations import minimum_said
from kbatch.model.demand import Demand, account, demand_of, quota_ask
from kbatch.model.jobs import NO_SUMS, Job, QueueRecord
from kbatch.model.journal import Journal
from kbatch.model.made_for import is_former, made_for
from kbatch.model.makers import Maker, MakerIndex
from kbatch.model.others import OtherObjects
from kbatch.model.parts import Selections, parts_of
from kbatch.model.priorities import priority_of
from kbatch.model.quota import Ask
from kbatch.model.selections import SelectionTable
from kbatch.model.selectors import selector_matches
from kbatch.model.shares import Claim
from kbatch.model.tasks import Task
from kbatch.model.told import only_told
from kbatch.resources import Resources

_FORMER: Final = "##"
_WORK: Final = 500
"""So many groups, or pods of theirs, take a millisecond or two."""


class GroupIndex:
    """The groups and queues of a cluster. Changed by the `ClusterModel` alone.

    Attributes:
        jobs, queues: by key and by name, sums as of the last `refreshing`.
        live: the jobs that are not settled.
        changes: the keys of the jobs that changed or went.
        exclusive: the keys of those of which some pods want nodes for their group alone.
    """

    def __init__(
        self, default_queue: str, others: OtherObjects, selections: SelectionTable, scheduler_name: str
    ) -> None:
        self.jobs: dict[str, Job] = {}
        self.queues: dict[str, QueueRecord] = {}
        self.live: dict[str, Job] = {}
        self.exclusive: set[str] = set()
        self.changes: Final[Journal[str]] = Journal(alive=self.jobs)
        self._default_queue: Final = default_queue
        self._others: Final = others
        self._selections: Final = selections
        self._makers: Final = MakerIndex(scheduler_name)
        self._demands: dict[str, Demand] = {}
        self._quota_asks: dict[str, Ask] = {}
        self._dirty: dict[str, Job] = {}
        self._former: dict[str, dict[str, None]] = {}  # by the key of a group the keys of those before it

    # --- pods ---------------------------------------------------------------------------------------------------------

    def home(self, named: str, pod: Pod) -> str:
        """The key of the group of a pod that names the one of this key."""
        made = made_for(pod)
        if not made:
            return named
        job = self.jobs.get(named)
        if job is None or job.group is None or not is_former(made, job.group.metadata.uid):
            return named
        return f"{named}{_FORMER}{made}"

    def misplaced(self, key: str) -> list[Task]:
        """The pods that belong elsewhere, as the PodGroup of that key is gone, or is another than before."""
        keys = [key, *self._former.get(key, ())]
        jobs = [self.jobs[each] for each in keys if each in self.jobs]
        return [task for job in jobs for task in job.tasks.values() if self.home(key, task.pod) != task.job]

    def swap(self, old: Task | None, new: Task | None) -> None:
        """Put `new` in the place of `old`: the same pod before and after, None where it is not there."""
        left = old.job if old is not None else ""
        if new is not None and new.job:
            job = self.jobs.get(new.job)
            if job is None:
                job = self._begin(new, left)
            job.tasks[new.key] = new
            self._touch(job)
            if new.job == left:
                return
        if old is not None and left:
            job = self.jobs[left]
            job.tasks.pop(old.key, None)
            self._touch(job)
            self._drop_if_empty(job)

    # --- PodGroups and Queues -----------------------------------------------------------------------------------------

    def upsert_group(self, group: PodGroup) -> bool:
        """Take over what the PodGroup says. Whether it is news.

        Raises:
            QuantityError: its minResources cannot be read.
        """
        meta = group.metadata
        key = f"{meta.namespace}/{meta.name}"
        job = self.jobs.get(key)
        if job is not None and job.group == group:
            return False
        if job is not None and key not in self._dirty and only_told(job, group):
            job.group = group
            return True
        if job is None:
            job = Job(key, key, meta.namespace, shadow=False)
            job.read(group)
            self.jobs[key] = job
        else:
            job.read(group)
        (self.exclusive.add if job.wants_whole_nodes else self.exclusive.discard)(key)
        job.created = timestamp_us(meta.creation_timestamp) or 0
        self._enter(job, group.spec.queue or self._default_queue)
        self._touch(job)
        return True

    def remove_group(self, key: str) -> None:
        """The PodGroup is gone; pods that name it keep its job, which stays in its queue."""
        job = self.jobs.get(key)
        if job is not None and job.group is not None:
            job.read(None)
            self.exclusive.discard(key)
            self._touch(job)
            self._drop_if_empty(job)

    def upsert_maker(self, job: BatchJob, key: str) -> None:
        """Take over a batch Job: the group that its pods belong to asks for those that are to come."""
        self._touch_named(self._makers.upsert(job, key))

    def remove_maker(self, key: str) -> None:
        """The batch Job of that key is gone, or its pods belong to no group any more."""
        self._touch_named(self._makers.remove(key))

    def makers(self, group: str) -> Mapping[str, Maker]:
        """The batch Jobs whose pods belong to the group of that key, by name."""
        return self._makers.of(group)

    def upsert_queue(self, queue: Queue) -> bool:
        """Take over what the Queue says. Whether its spec is news.

        Raises:
            QuantityError: its capability cannot be read.
        """
        name = queue.metadata.name
        record = self.queues.get(name)
        if record is not None and record.queue is not None and record.queue.spec == queue.spec:
            record.queue = queue
            return False
        if record is None:
            record = QueueRecord(name)
        record.read(queue)
        self.queues[name] = record
        self._touch_all(record)
        return True

    def remove_queue(self, name: str) -> None:
        """The Queue is gone; groups that name it keep its record, in which they go on to count."""
        record = self.queues.get(name)
        if record is not None and record.queue is not None:
            record.forget()
            self._touch_all(record)
            if not record.jobs:
                del self.queues[name]

    def namespace_changed(self, name: str) -> None:
        """The labels of a namespace changed: other queues than before may be open to it."""
        for queue in self.queues.values():
            if queue.namespaces is not None:
                for job in queue.jobs.values():
                    if job.namespace == name:
                        self._touch(job)

    def _bars(self, job: Job) -> bool:
        """Whether a group's queue is not open to its namespace."""
        queue = self.queues.get(job.queue)
        if queue is None or queue.namespaces is None:
            return False
        return not selector_matches(queue.namespaces, self._others.namespace_labels(job.namespace))

    # --- sums ---------------------------------------------------------------------------------------------------------

    def touch_all(self) -> None:
        """Something changed that any group may depend on."""
        for job in self.jobs.values():
            self._touch(job)

    @property
    def stale(self) -> bool:
        """Whether any sum is out of date."""
        return bool(self._dirty)

    def refreshing(self) -> Iterator[None]:
        """Bring all sums up to date, in pieces; what is not done when it is left off is done next time."""
        while self._dirty:
            work = 0
            for key in list(self._dirty):  # once: a dict from whose front much was taken is slow to look into
                job = self._dirty.pop(key, None)
                if job is None:
                    continue  # gone since, or worked out by somebody who could not wait
                self._refresh(job)
                work += 3 + len(job.tasks)
                if work > _WORK:
                    work = 0
                    yield
            if not self._dirty:
                self._dirty.clear()  # else the places of all that was in it are looked through for the next one
            yield

    def demand(self, job: Job) -> Demand:
        """What a group asks for, as of the last `refreshing`; worked out when it is asked for."""
        found = self._demands.get(job.key)
        if found is None:
            found = self._demands[job.key] = demand_of(job)
        return found

    def quota_ask(self, job: Job) -> Ask:
        """What a group asks of quotas, as of the last `refreshing`; worked out when it is asked for."""
        found = self._quota_asks.get(job.key)
        if found is None:
            found = self._quota_asks[job.key] = quota_ask(job)
        return found

    def claims(self) -> list[Claim]:
        """What the existing queues bring to the division, in the order of names. As of the last `refreshing`."""
        return [
            Claim(
                name,
                record.weight,
                record.request if record.open else record.allocated,
                record.capability,
                record.allocated,
                record.ages.oldest() if record.open else None,
            )
            for name, record in sorted(self.queues.items())
            if record.queue is not None
        ]

    def parts(self, name: str) -> dict[Selections, Resources]:
        """What a queue brings to the division, by selections; the sum is its claim's request."""
        record = self.queues[name]
        return {selections: asked if record.open else held for selections, (held, asked) in record.parts.items()}

    def _refresh(self, job: Job) -> None:
        if job.group is None and job.tasks:
            oldest = min(job.tasks.values(), key=lambda task: (task.created, task.key))
            job.created = oldest.created
            named = (oldest.pod.metadata.labels or {}).get(QUEUE_LABEL)
            if job.shadow:  # what its oldest pod says of it
                job.minimum = minimum_said(oldest.pod.metadata) or 1
                self._enter(job, named or self._default_queue)
            else:  # nobody says where it belongs but its pods, and what was known of its PodGroup
                self._enter(job, named or job.queue or self._default_queue)
        job.barred = self._bars(job)
        name = job.group.spec.priority_class_name if job.group is not None else ""
        found = self._others.priority_class(name) if name else None
        job.priority_class_missing = name if name and found is None else ""
        makers = self.makers(job.key)
        job.refresh(makers)
        account(job, makers)
        self._demands.pop(job.key, None)
        self._quota_asks.pop(job.key, None)
        job.priority, job.proven = priority_of(job, found, self._others)
        if job.queue:
            queue = self.queues[job.queue]
            queue.changed(job.key)
            counted = (job.allocated, job.request, parts_of(job, self._selections))
            if counted != job.counted:  # mostly it is the status of its PodGroup alone that has changed
                queue.count(job.counted, counted)
                job.counted = counted
            if job.ending is not None:
                queue.count_ending(job.ending, -1)
            job.ending = (job.allocated, job.charged) if job.ends else None
            if job.ending is not None:
                queue.count_ending(job.ending, 1)
            queue.hold(job)
            if (job.waiting or job.outstanding) and not (job.asks_nothing or job.settled):
                queue.ages.put((job.created, job.key))
            else:
                queue.ages.drop(job.key)
        if job.settled:
            self.live.pop(job.key, None)
        else:
            self.live[job.key] = job

    # --- who belongs where --------------------------------------------------------------------------------------------

    def _drop_if_empty(self, job: Job) -> None:
        if not job.tasks and job.group is None:
            self.jobs.pop(job.key, None)
            self._forget_former(job.key)
            self._dirty.pop(job.key, None)
            self.changes.note(job.key)
            self.live.pop(job.key, None)
            self._demands.pop(job.key, None)
            self._quota_asks.pop(job.key, None)
            self._leave(job)

    def _begin(self, task: Task, left: str) -> Job:
        """The job of a pod that is the first of it; `left`: the key of the one that the pod leaves, empty for none."""
        job = self.jobs[task.job] = _shadow_or_missing(task)
        named, former, _ = task.job.partition(_FORMER)
        if former:
            self._former.setdefault(named, {})[task.job] = None
            self._enter(job, self.jobs[named].queue)
        elif left.startswith(f"{named}{_FORMER}"):
            self._enter(job, self.jobs[left].queue)
        return job

    def _forget_former(self, key: str) -> None:
        named = key.partition(_FORMER)[0]
        former = self._former.get(named)
        if former is not None and key != named:
            former.pop(key, None)
            if not former:
                del self._former[named]

    def _enter(self, job: Job, name: str) -> None:
        if job.queue != name:
            self._leave(job)
            job.queue = name
            queue = self.queues.get(name)
            if queue is None:
                queue = self.queues[name] = QueueRecord(name)
            queue.jobs[job.key] = job

    def _leave(self, job: Job) -> None:
        if not job.queue:
            return
        queue = self.queues[job.queue]
        queue.count(job.counted, NO_SUMS)
        job.counted = NO_SUMS
        if job.ending is not None:
            queue.count_ending(job.ending, -1)
            job.ending = None
        queue.jobs.pop(job.key, None)
        queue.let_go(job)
        queue.ages.drop(job.key)
        queue.changed(job.key)
        if not queue.jobs and queue.queue is None:
            del self.queues[job.queue]
        job.queue = ""

    def _touch(self, job: Job) -> None:
        job.generation += 1
        if job.key not in self._dirty:
            self._dirty[job.key] = job
            self.changes.note(job.key)

    def _touch_named(self, keys: Iterable[str]) -> None:
        for key in keys:
            if key in self.jobs:
                self._touch(self.jobs[key])

    def _touch_all(self, queue: QueueRecord) -> None:
        for job in queue.jobs.values():
            self._touch(job)


def _shadow_or_missing(task: Task) -> Job:
    """The job of a pod that is the first to name it: a shadow group, or a PodGroup that is not known yet."""
    meta = task.pod.metadata
    shadow = not (meta.annotations or {}).get(GROUP_NAME_ANNOTATION)
    return Job(task.job, task.job.partition("#")[0], meta.namespace, shadow)
