"""When pods are expected to end: what their deadlines, and the estimates of their users, say.

The room of a pod is expected when its deadline ends (`activeDeadlineSeconds` of the pod, or of its Job), or when it has
run for as long as its user expects (`kbatch.dev/expected-seconds`), whichever comes first. Who runs on past that is
expected to end a tenth of the whole length later, and then another tenth. Of a pod of which nobody says anything it is
not known when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kbatch.api.objects import AnyObject, Job, Pod, PodTemplate, timestamp_us
from kbatch.model.annotations import expected_said
from kbatch.model.cluster import ClusterModel
from kbatch.model.jobs import Job as Group
from kbatch.model.tasks import Task
from kbatch.times import SECOND

_STEP: Final = SECOND // 10
_NONE: Final[Mapping[str, int]] = {}


def end_after(start: int, length: int, now: int) -> int:
    """`start + length * (1 + k/10)` for the least k from 0 on with which that is after now, rounded up; microseconds.

    `length` is above 0.
    """
    k = max(0, 10 * (now - start) // length - 9)
    return start + -(-length * (10 + k) // 10)


def _end(start: int, length: int, now: int) -> int:
    """The same, by steps of a tenth of a second at least: at each of them starts are planned anew."""
    late = now - start - length
    if late < 0 or length >= SECOND:
        return end_after(start, length, now)
    return now + _STEP - late % _STEP


class Expected:
    """What the objects of a cluster say, at one instant (`now`, in microseconds since the epoch).

    `learned`: how long groups run of whose pods nobody says when they end, where that is known; microseconds.
    `begun`: since when binds are under way, by key of the pod; where that is not known, they count as begun now.
    """

    def __init__(
        self,
        model: ClusterModel,
        now: int,
        learned: Callable[[Group], int | None] | None = None,
        begun: Mapping[str, int] = _NONE,
    ) -> None:
        self._now = now
        self._begun = begun
        self._learned = learned
        self._groups = model.jobs
        self._jobs: Mapping[str, AnyObject] = model.objects.get(Job, {})

    def end(self, task: Task) -> int | None:
        """When a pod that holds a node is expected to end: always after now. None: nobody knows."""
        now, job = self._now, self._job_of(task.pod) if self._jobs else None
        start = self._start(task)
        said, limit = self._estimate(task, job), _deadline(task.pod)
        if said is not None and limit is None and job is None:
            return _end(start, said, now)
        found = [_end(start, length, now) for length in (said, limit) if length is not None]
        if job is not None and job.spec.active_deadline_seconds:
            began = timestamp_us(job.status.start_time)
            begin = start if began is None else min(began, now)
            found.append(end_after(begin, job.spec.active_deadline_seconds * SECOND, now))
        if not found and self._learned is not None and task.job in self._groups:
            length = self._learned(self._groups[task.job])
            return _end(start, length, now) if length is not None else None
        return min(found, default=None)

    def _start(self, task: Task) -> int:
        """Since when a pod that holds a node runs, in microseconds since the epoch."""
        return min(self._begun.get(task.key, self._now) if task.assumed else task.started, self._now)

    def lasting(self, task: Task) -> bool:
        """Whether `end`, or that nobody knows it, stays so until that instant if neither the pod nor its group changes:
        nothing else, and not the present instant, has a say in it.
        """
        references = task.pod.metadata.owner_references
        if task.assumed or task.started > self._now:
            return False
        if references and any(each.kind == "Job" for each in references):
            return False
        if self._learned is None:
            return True
        return self._estimate(task, None) is not None or _deadline(task.pod) is not None

    def sure(self, task: Task) -> bool:
        """Whether somebody sees to it that the pod has ended when it is expected to: nobody expects it sooner than its
        deadline.
        """
        now, job = self._now, self._job_of(task.pod)
        expected = self._estimate(task, job)
        start = self._start(task)
        end = self.end(task)
        if expected is not None and end == _end(start, expected, now):
            return False
        limited = _deadline(task.pod) is not None or (job is not None and bool(job.spec.active_deadline_seconds))
        return limited and end is not None

    def of_group(self, group: Group) -> int | None:
        """For how long the pods of a group run that are not made yet, in microseconds; None: nobody knows."""
        said = group.expected
        lengths = []
        for pod in [each.template.pod for each in group.to_come]:
            known = [length for length in (expected_said(pod.metadata) or said, _deadline(pod)) if length is not None]
            if not known:
                return None
            lengths.append(min(known))
        return max(lengths, default=said)

    def length(self, task: Task) -> int | None:
        """For how long a pod would run that started now, in microseconds; None: nobody knows."""
        job = self._job_of(task.pod) if self._jobs else None
        said, deadline = self._estimate(task, job), _deadline(task.pod)
        if deadline is None and job is None:
            return said
        found = [length for length in (said, deadline) if length is not None]
        if job is not None and job.spec.active_deadline_seconds:
            limit = job.spec.active_deadline_seconds * SECOND
            began = timestamp_us(job.status.start_time)
            found.append(limit if began is None else end_after(min(began, self._now), limit, self._now) - self._now)
        return min(found, default=None)

    def _estimate(self, task: Task, job: Job | None) -> int | None:
        """What the user expects: the pod's own word first, then its Job's, then its group's."""
        own = expected_said(task.pod.metadata)
        if own is None and job is not None:
            own = expected_said(job.metadata)
        if own is not None or not task.job:
            return own
        group = self._groups.get(task.job)
        return group.expected if group is not None else None

    def _job_of(self, pod: Pod) -> Job | None:
        """The batch Job that made the pod; None where none did, or it is not known any more."""
        if not self._jobs:
            return None
        for reference in pod.metadata.owner_references:
            if reference.controller and reference.kind == "Job":
                found = self._jobs.get(f"{pod.metadata.namespace}/{reference.name}")
                same = isinstance(found, Job) and found.metadata.uid in ("", reference.uid)
                return found if isinstance(found, Job) and same else None
        return None


def _deadline(pod: Pod | PodTemplate) -> int | None:
    """For how long the kubelet lets the pod run."""
    limit = pod.spec.active_deadline_seconds
    return limit * SECOND if limit else None
