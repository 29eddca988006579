"""A model's sums worked out anew and compared with those it keeps; for tests, after each step."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from kbatch.api.objects import Job as BatchJob
from kbatch.model.bad_nodes import avoided, failed_on, remembered
from kbatch.model.demand import Demand, account, demand_of
from kbatch.model.jobs import Job
from kbatch.model.made_for import is_former, made_for
from kbatch.model.makers import Maker, group_key_of, maker_of
from kbatch.model.nodes import NodeRecord
from kbatch.model.selectors import selector_matches
from kbatch.model.tasks import Task
from kbatch.resources import LIMIT, PODS, Resources, add

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
    _validate_bad_nodes(model)
    makers = _makers(model)
    for job in model.jobs.values():
        _check(bool(job.tasks) or job.group is not None, job.key)
        _check(all(model.tasks.get(key) is task for key, task in job.tasks.items()), job.key)
        _check(not any(_is_former(job, task) for task in job.tasks.values()), job.key)
        _check(model.queues[job.queue].jobs.get(job.key) is job if job.queue else job.group is None, job.key)
        _check((job.key in model.live) == (not job.settled), job.key)
        _check(job.barred == _bars(model, job), job.key)
        _validate_demand(model, job, makers.get(job.key, {}))
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
        holders = {key for key, job in queue.jobs.items() if job.holding or job.terminating}
        _check(queue.holders.keys() == holders, queue.name)
        _check(queue.kinds == Counter(job.kind for job in queue.holders.values()), queue.name)
        asked = add(*(job.request for job in queue.jobs.values()))
        _check({k: v for k, v in asked.items() if v} == queue.request, queue.name)
        ending = [job for job in queue.jobs.values() if job.ends]
        held = add(*(job.allocated for job in ending))
        _check({k: v for k, v in held.items() if v} == queue.ending, queue.name)
        _check(sum(job.charged for job in ending) == queue.charged, queue.name)


def _is_former(job: Job, task: Task) -> bool:
    return job.group is not None and is_former(made_for(task.pod), job.group.metadata.uid)


def _bars(model: ClusterModel, job: Job) -> bool:
    selector = model.queues[job.queue].namespaces if job.queue else None
    return selector is not None and not selector_matches(selector, model.namespace_labels(job.namespace))


def _validate_bad_nodes(model: ClusterModel) -> None:
    found: dict[str, frozenset[str]] = {}
    for job in model.jobs.values():
        if job.group is not None:
            limit = job.group.spec.bad_node_limit
            seen = [(node, task.uid) for task in job.tasks.values() if (node := failed_on(task.pod))]
            nodes = avoided(remembered(job.group.status.node_failures or (), seen, limit), limit)
            if nodes:
                found[job.key] = nodes
    _check(found == model.bad_nodes, "bad nodes")
    for task in model.tasks.values():
        shunned = frozenset() if task.node else found.get(task.job, frozenset())
        _check(task.cls.shuns == shunned, task.key)


def _makers(model: ClusterModel) -> dict[str, dict[str, Maker]]:
    """The batch Jobs by the group that their pods belong to, read anew."""
    found: dict[str, dict[str, Maker]] = {}
    for obj in model.objects.get(BatchJob, {}).values():
        group = group_key_of(obj, model.scheduler_name) if isinstance(obj, BatchJob) else ""
        if group and isinstance(obj, BatchJob):
            found.setdefault(group, {})[obj.metadata.name] = maker_of(obj)
    return found


def _validate_demand(model: ClusterModel, job: Job, makers: dict[str, Maker]) -> None:
    kept = model.makers(job.key)
    _check(kept.keys() == makers.keys() and all(kept[name].like(maker) for name, maker in makers.items()), job.key)
    fresh = replace(job)
    account(fresh, makers)
    _check((fresh.request, fresh.outstanding) == (job.request, job.outstanding), job.key)
    _check(fresh.suspended_by == job.suspended_by, job.key)
    _check(_as_numbers(demand_of(job)) == _as_numbers(model.demand(job)), job.key)


def _as_numbers(demand: Demand) -> tuple[object, ...]:
    to_come = [
        [(pods.template.request, pods.template.role, pods.count, pods.sure) for pods in some]
        for some in (demand.needed, demand.eligible)
    ]
    return demand.minimum, demand.room, demand.least, demand.missing, demand.uncreated, demand.short, to_come


def _validate_node(model: ClusterModel, record: NodeRecord) -> None:
    fresh = NodeRecord(record.name, record.node, record.allocatable, stuck=set(record.stuck))
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
