"""What a group holds and asks for, by the nodes that may serve it: the parts of which its queue's demand is made.

A part is named by the selections of the tasks that it is for, in the order of their ids: it may be served by any node
that one of them may use. The part named by no selection is what a group asks for ahead of pods of which nothing but
their resources is known.
"""

from __future__ import annotations

from kbatch.model.jobs import Job, Parts
from kbatch.model.selections import Selection, SelectionTable
from kbatch.model.tasks import Task

Selections = tuple[Selection, ...]
UNKNOWN: Selections = ()


def parts_of(job: Job, selections: SelectionTable) -> Parts:
    """The parts of a group; added up they are its `allocated` and its `request`.

    Each live pod, and each that is to come, asks by its own selection. What minResources ask for beyond these is asked
    by any selection of the group's pods and templates; by `UNKNOWN` where there is neither, or neither for one of its
    roles.
    """
    coming = () if job.suspended_by or job.asks_nothing else job.to_come
    live = [task for task in job.tasks.values() if not (task.terminal or task.terminating)]
    kinds = {task.cls.selection for task in live}
    if len(kinds) == 1 and not job.outstanding and not coming:
        return {tuple(kinds): (job.allocated, job.request)}
    parts: Parts = {}
    rest = dict(job.request)
    for task in live:
        if job.asks_nothing and not (task.node or task.nominated):
            continue
        allocated, request = parts.setdefault((task.cls.selection,), ({}, {}))
        for name, amount in task.cls.request.items():
            rest[name] = rest.get(name, 0) - amount
            request[name] = request.get(name, 0) + amount
            if task.node or task.nominated:
                allocated[name] = allocated.get(name, 0) + amount
    for pods in coming:
        selection = selections.read(pods.template.pod.spec)
        kinds.add(selection)
        _, request = parts.setdefault((selection,), ({}, {}))
        for name, amount in pods.template.request.items():
            rest[name] = rest.get(name, 0) - amount * pods.count
            request[name] = request.get(name, 0) + amount * pods.count
    more = {name: amount for name, amount in rest.items() if amount > 0}
    if more:
        ahead = _ahead(job, kinds, live, selections)
        allocated, request = parts.get(ahead, ({}, {}))
        parts[ahead] = allocated, {name: request.get(name, 0) + more.get(name, 0) for name in request.keys() | more}
    return parts


def _ahead(job: Job, kinds: set[Selection], live: list[Task], selections: SelectionTable) -> Selections:
    """By which selections a group asks for what its pods do not ask for yet."""
    found = set(kinds)
    present = {task.role for task in live}
    for role in (job.group.spec.sub_groups or ()) if job.group is not None else ():
        if role.template is not None:
            selection = selections.read_template(role.template)
            if selection is None:
                return UNKNOWN
            found.add(selection)
        elif role.name not in present and role.min_member:
            return UNKNOWN
    return tuple(sorted(found, key=lambda each: each.id))
