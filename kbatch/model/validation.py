"""A model's sums worked out anew and compared with those it keeps; for tests, after each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbatch.model.nodes import NodeRecord
from kbatch.resources import LIMIT, PODS, Resources

if TYPE_CHECKING:
    from kbatch.model.cluster import ClusterModel


def validate(model: ClusterModel) -> None:
    """Compare every sum of a model.

    Raises:
        AssertionError: one that is kept differs from the one worked out.
    """
    model.refresh()
    for record in model.nodes.values():
        _validate_node(model, record)
    total: Resources = {}
    for record in model.nodes.values():
        for name, amount in record.capacity().items():
            total[name] = total.get(name, 0) + amount
    _check({k: v for k, v in total.items() if v and k != PODS} == model.capacity, "capacity")
    for job in model.jobs.values():
        _check(bool(job.tasks) or job.group is not None, job.key)
        _check(all(model.tasks.get(key) is task for key, task in job.tasks.items()), job.key)
        _check(model.queues[job.queue].jobs.get(job.key) is job if job.queue else job.group is None, job.key)
        _check((job.key in model.live) == (not job.settled), job.key)
    for queue in model.queues.values():
        allocated: Resources = {}
        for job in queue.jobs.values():
            for task in job.tasks.values():
                if task.holds or (task.pending and task.nominated):
                    for name, amount in task.cls.request.items():
                        allocated[name] = allocated.get(name, 0) + amount
        _check({k: v for k, v in allocated.items() if v} == queue.allocated, queue.name)
        for at, whole in enumerate((queue.allocated, queue.request)):
            added: Resources = {}
            for part in queue.parts.values():
                for name, amount in part[at].items():
                    added[name] = added.get(name, 0) + amount
            _check(added == whole, queue.name)


def _validate_node(model: ClusterModel, record: NodeRecord) -> None:
    fresh = NodeRecord(record.name, record.node, record.allocatable)
    for task in model.tasks.values():
        if task.node == record.name and not task.terminal:
            fresh.count(task, 1)
    for kept, wanted in (
        (record.used, fresh.used),
        (record.releasing, fresh.releasing),
        (record.foreign, fresh.foreign),
    ):
        _check({k: v for k, v in kept.items() if v} == {k: v for k, v in wanted.items() if v}, record.name)
    _check(record.tasks == fresh.tasks, record.name)
    _check(record.astray == fresh.astray, record.name)
    row = model.table.row.get(record.name)
    _check((row is not None) == (record.node is not None), record.name)
    if row is not None:
        for name, idle in model.table.idle.items():
            used, releasing = min(fresh.used.get(name, 0), LIMIT), min(fresh.releasing.get(name, 0), LIMIT)
            _check(int(idle[row]) == record.allocatable.get(name, 0) - used, record.name)
            _check(int(model.table.releasing[name][row]) == releasing, record.name)
            _check(int(model.table.capacity[name][row]) == record.capacity().get(name, 0), record.name)
        _check(bool(model.table.open[row]) == (not record.closed), record.name)
    _check(record.overfull == any(amount > LIMIT for amount in fresh.used.values()), record.name)


def _check(holds: bool, where: str) -> None:
    if not holds:
        raise AssertionError(f"the model's sums are wrong at {where}")
