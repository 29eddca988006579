"""How groups stand, in numbers: how many wait, why, since when and in which queue, and how attempts at them end."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection
from typing import Final

from kbatch.engine import GroupError, Report
from kbatch.metrics import SchedulerMetrics
from kbatch.model.cluster import ClusterModel
from kbatch.times import SECOND
from operators.scheduler.tally import Tally

NO_QUEUE: Final = "-"
"""Stands for all queues that do not exist, whatever users call them: the label stays bounded. None has this name."""


class Standing:
    """Keeps the metrics of groups current from what cycles say.

    Args:
        model: knows the groups and the queues.
        wall: seconds since the epoch.
    """

    def __init__(self, model: ClusterModel, metrics: SchedulerMetrics, wall: Callable[[], float] = time.time) -> None:
        self._model = model
        self._metrics = metrics
        self._wall = wall
        self._tally = Tally()
        self._reasons: set[str] = set()
        self._queues: set[str] = set()
        metrics.oldest.set_function(lambda: self._age(self._tally.oldest))

    def take(self, now: int, report: Report) -> None:
        """Take over what has changed of how many groups wait, and why; costs what there is a verdict of.

        `now`: the cycle's instant in microseconds, which stands for the creation of a group that is gone already.
        """
        metrics, jobs = self._metrics, self._model.jobs
        if report.whole:
            self._tally = Tally()
        tally = self._tally
        for key in report.gone:
            tally.drop(key)
        for key, verdict in report.verdicts.items():
            job = jobs.get(key)
            created, queue = (job.created, self.label_of(job.queue)) if job is not None else (now, NO_QUEUE)
            tally.put(key, verdict, created, queue)
            if not verdict.scheduled or queue != NO_QUEUE:
                self._follow(queue)
        for queue in [one for one in self._queues if one != NO_QUEUE and self.label_of(one) == NO_QUEUE]:
            self._queues.discard(queue)
            metrics.forget_queue(queue)
        metrics.avoiding.set(len(self._model.bad_nodes))
        metrics.groups.labels("scheduled").set(tally.scheduled)
        metrics.groups.labels("waiting").set(tally.waiting)
        for code in self._reasons - tally.reasons.keys():
            metrics.waiting.labels(code).set(0)
        for code, count in tally.reasons.items():
            metrics.waiting.labels(code).set(count)
        self._reasons |= tally.reasons.keys()

    def attempted(self, report: Report, placed: Collection[str], errors: Collection[GroupError]) -> None:
        """Count how attempts at groups ended; `placed`: the groups (`namespace/name`) of which pods are being bound."""
        ends = self._metrics.attempts
        for verdict in report.verdicts.values():
            if not verdict.scheduled:
                if verdict.attempted:
                    ends.labels("waiting").inc()
            elif verdict.group in placed:
                ends.labels("scheduled").inc()
        if errors:
            ends.labels("error").inc(len(errors))

    def label_of(self, queue: str) -> str:
        """What the queue is called in metrics."""
        record = self._model.queues.get(queue)
        return queue if record is not None and record.queue is not None else NO_QUEUE

    def _follow(self, queue: str) -> None:
        if queue not in self._queues:
            self._queues.add(queue)
            self._metrics.queue_oldest.labels(queue).set_function(functools.partial(self._oldest_age, queue))

    def _oldest_age(self, queue: str) -> float:
        return self._age(self._tally.oldest_of(queue))

    def _age(self, created: int | None) -> float:
        return 0.0 if created is None else max(0.0, self._wall() - created / SECOND)
