"""What a group asks for: the one answer that scheduler, queue operator, webhook and command go by.

A group's pods come in several ways: they exist, its roles have templates, batch Jobs name it. However its work was
submitted, and whether or not its user wrote minResources, it asks for the same:

* its *minimum* needs minResources; without them, what the pods that make up the minimum ask for, those that hold a node
  first, then those that wait, then those to come;
* *outstanding* for room and capability is the minimum less what its bound, assumed and succeeded pods have of it;
* the *least* is what it can do with of this where there is room for no more: without minResources it starts with
  whichever of its pods fit;
* *outstanding* for quotas is the minimum less all its pods that exist: these the quotas count themselves;
* *requested* of its queue is what it holds, and the larger of what its other pods ask for, to come or waiting, and what
  is outstanding; the latter not while the group is sent back: its place was kept for its pods, and they did not come.

A group whose queue is not open to its namespace asks for nothing: nobody raises the share of a queue by naming it. Nor
does a group whose PriorityClass does not exist: nothing of it starts until it does.

A Job that its user has suspended makes no pods, so it asks for nothing. A group whose minimum cannot be had without
such a Job asks for no more than its pods do: it keeps no place. Nor does a group that is suspended itself, unless it
has its minimum on nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kbatch.api.names import IN_QUEUE_GATE
from kbatch.api.objects import Metadata, PodGroup, PodGroupSpec
from kbatch.model.jobs import Job
from kbatch.model.least import Offer, least_of
from kbatch.model.makers import NO_MAKERS, Maker, Template, ToCome, common_subject, jobs_of
from kbatch.model.quota import Ask, ask_of_group, ask_of_pod, outstanding
from kbatch.model.tasks import Task, counted
from kbatch.resources import PODS, Resources, add, maximum, positive, scale, subtract

_ANY_NUMBER: Final[dict[str, int]] = {}
BY_GROUP: Final = "PodGroup"
"""Who suspended a group that is suspended itself; no Job has this name, for its capitals."""


class Demand(NamedTuple):
    """What one group asks for. `pods` is no dimension of any of its vectors.

    Attributes:
        minimum: what its minimum needs in all; None where nothing says it.
        room: what of it is outstanding for room and capability; None where nothing says it.
        least: in each dimension by itself the least that `room` could be, whichever pods make up the minimum: where
            this does not fit, none of them do. It is `room` where minResources are stated, or there is no choice.
        missing: pods of the minimum without a node. uncreated: those of them that do not exist.
        short: those of them that nobody is going to make, as far as is known.
        needed: of each template that is to make pods of the minimum how many, in the order in which they are taken.
        eligible: the same of all templates whose pods the minimum could take, where it has a choice; else `needed`.
    """

    minimum: Resources | None
    room: Resources | None
    least: Resources | None
    missing: int
    uncreated: int
    short: int
    needed: tuple[ToCome, ...]
    eligible: tuple[ToCome, ...]


def account(job: Job, makers: Mapping[str, Maker]) -> None:
    """Work out what follows from a group's pods and from who makes more: `to_come`, `outstanding`, `request`.

    Args:
        job: the sums of its pods up to date.
        makers: the Jobs that name it, by name.
    """
    job.to_come = _to_come(job, makers)
    job.suspended_by = ""
    job.outstanding = {}
    if job.asks_nothing:
        job.request = dict(job.allocated)
        return
    says = makers or job.to_come or job.min_resources  # else its pods are all that is known, and nothing is outstanding
    settled = job.over or job.whole()
    if job.group is not None and job.group.spec.suspend and not settled:
        job.suspended_by = BY_GROUP
    elif says and not settled:
        withheld = min((name for name, maker in makers.items() if maker.withheld and not maker.ended), default="")
        demand = demand_of(job) if withheld or job.to_come else None
        if withheld and job.group is not None and demand is not None and demand.short:
            job.suspended_by = withheld
        elif job.min_resources:
            job.outstanding = _beyond(job.min_resources, job.own)
        elif demand is not None:
            job.outstanding = dict(demand.room or {})
    more = job.asked
    if job.to_come and not job.suspended_by:
        more = add(more, *(scale(pods.template.request, pods.count) for pods in job.to_come))
    if job.outstanding and not job.sent_back:
        more = maximum(more, job.outstanding)
    job.request = add(job.bound, more) if job.bound else more


def demand_of(job: Job) -> Demand:
    """What the group asks for, its `to_come` up to date; costs what it has pods."""
    if _is_plain(job):
        asked = scale(job.waiting[0].cls.request, job.minimum)
        return Demand(asked, asked, asked, job.minimum, 0, 0, (), ())
    choice = _Choice(job)
    for role in job.roles:
        choice.take(role.name, role.min_member)
    choice.take(None, job.minimum - choice.taken)
    smallest, eligible = choice.close()
    if job.min_resources:
        minimum: Resources | None = {name: amount for name, amount in job.min_resources.items() if name != PODS}
        room: Resources | None = _beyond(job.min_resources, job.own)
        least = room
    elif choice.short:
        minimum = room = least = None
    else:
        minimum = add(choice.had, choice.room) if choice.had else choice.room
        room, least = choice.room, smallest
    needed = tuple(choice.needed)
    return Demand(minimum, room, least, choice.missing, choice.uncreated, choice.short, needed, eligible)


def quota_ask(job: Job) -> Ask:
    """What the group asks of quotas beyond its pods that exist: those the quotas count already.

    minResources may name `pods`, `limits.*` and `requests.*`, as a quota does. What they do not name is taken, name by
    name, from the templates of the pods to come: a quota counts these pods by all that they ask for.
    """
    spec = job.group.spec if job.group is not None else PodGroupSpec()
    class_name = spec.priority_class_name
    demand = demand_of(job)
    requests = add(*(scale(one.template.request, one.count) for one in demand.needed))
    limits = add(*(scale(one.template.limit, one.count) for one in demand.needed))
    own = [task for task in job.tasks.values() if not task.terminal or task.succeeded]
    gone = sum(job.gone.values())
    if not job.min_quota:
        asked = ask_of_group({} if demand.short else requests, max(0, job.minimum - len(own) - gone), class_name)
        left = Ask(asked.requests, positive(limits), asked.pods, asked.subject)
    else:
        said = ask_of_group(job.min_quota, job.minimum, class_name)
        made = [ask_of_pod(task.pod) for task in own]
        made += [
            Ask(scale(template.request, count), scale(template.limit, count), count)
            for template, _ in job.templates
            if (count := job.gone.get(template.role, 0))
        ]
        left = outstanding(said, made) if made else said
        left = Ask(
            {**_unnamed(requests, said.requests), **left.requests},
            {**_unnamed(limits, said.limits), **left.limits},
            left.pods,
            left.subject,
        )
    subject = common_subject([one.template for one in demand.needed], class_name)
    return left if subject is None else Ask(left.requests, left.limits, left.pods, subject)


def of_spec(spec: PodGroupSpec, makers: Mapping[str, Maker] = NO_MAKERS) -> Job:
    """A group without pods, of this spec and with these Jobs that name it: what it asks for when it is created.

    Raises:
        QuantityError: an amount of minResources cannot be read.
    """
    job = Job("", "", "", shadow=False)
    job.read(PodGroup(metadata=Metadata(name=""), spec=spec))
    account(job, makers)
    return job


# --- inside -----------------------------------------------------------------------------------------------------------


def _beyond(needs: Resources, own: Mapping[str, int]) -> Resources:
    return {name: amount for name, amount in subtract(needs, own).items() if amount and name != PODS}


def _unnamed(amounts: Resources, named: Resources) -> Resources:
    return {name: amount for name, amount in amounts.items() if amount and name != PODS and name not in named}


def _to_come(job: Job, makers: Mapping[str, Maker]) -> tuple[ToCome, ...]:
    """The pods that templates and Jobs will make beside those that exist, roles first, then Jobs by name."""
    if job.group is None or job.over or not (job.templates or makers):
        return ()
    found: list[ToCome] = []
    if job.templates:
        roles = dict(job.gone)
        for task in job.tasks.values():
            if task.succeeded or not (task.terminal or task.terminating):
                roles[task.role] = roles.get(task.role, 0) + 1
        for template, base in job.templates:
            _put(found, template, base - roles.get(template.role, 0), sure=True)
    active = [name for name, maker in makers.items() if maker.template and not (maker.ended or maker.withheld)]
    if active:
        alive, succeeded = _by_owner(job.tasks.values())
        for name in sorted(active):
            maker = makers[name]
            if maker.template is not None:
                owner = maker.uid or maker.name
                left = maker.left(alive.get(owner, 0), succeeded.get(owner, 0))
                _put(found, maker.template, left, sure=maker.sure)
    return tuple(found)


def _put(found: list[ToCome], template: Template, count: int, *, sure: bool) -> None:
    if count > 0:
        found.append(ToCome(template, count, sure))


def _by_owner(tasks: Iterable[Task]) -> tuple[dict[str, int], dict[str, int]]:
    """How many pods of each Job live and stay, and how many have succeeded; by its uid, its name where it has none."""
    alive: dict[str, int] = {}
    succeeded: dict[str, int] = {}
    for task in tasks:
        for key in jobs_of(task.pod):
            if task.succeeded:
                succeeded[key] = succeeded.get(key, 0) + 1
            elif not (task.terminal or task.terminating):
                alive[key] = alive.get(key, 0) + 1
    return alive, succeeded


def _is_plain(job: Job) -> bool:
    """Whether the group is nothing but pods that wait, all alike, and enough of them: the commonest kind."""
    waiting = job.waiting
    if job.roles or job.to_come or job.min_resources or not job.minimum <= len(waiting) == len(job.tasks):
        return False
    cls = waiting[0].cls
    for task in waiting:  # noqa: SIM110 -- asked of every group that changes: a generator takes twice as long
        if task.cls is not cls or task.gated:
            return False
    return True


def _free(task: Task) -> bool:
    """Whether all that keeps a gated pod is the gate that is removed when its group is in queue."""
    return not task.claims and all(gate.name == IN_QUEUE_GATE for gate in task.pod.spec.scheduling_gates or ())


def _first(tasks: list[Task], count: int) -> tuple[list[Task], list[Task]]:
    """The first so many in the order in which they are placed by default, and the others."""
    if len(tasks) > count and len({task.cls.id for task in tasks}) > 1:
        tasks = sorted(tasks, key=lambda task: (-task.priority, task.created, task.key))
    return tasks[:count], tasks[count:]


class _Choice:
    """Which pods make up a group's minimum: of each role its part, then the rest from any."""

    def __init__(self, job: Job) -> None:
        self.had: Resources = {}
        self.room: Resources = {}
        self.taken = 0
        self.missing = 0
        self.uncreated = 0
        self.short = 0
        self.needed: list[ToCome] = []
        self._lacking: dict[str | None, int] = {}
        self._roles = job.roles
        self._placed: dict[str, list[Task]] = {}
        self._waiting: dict[str, list[Task]] = {}
        for task in job.tasks.values():
            if task.terminal or task.terminating:
                if task.succeeded:
                    self._placed.setdefault(task.role, []).append(task)
            elif task.node:
                self._placed.setdefault(task.role, []).append(task)
            elif not task.gated or _free(task):
                self._waiting.setdefault(task.role, []).append(task)
        self._gone = dict(job.gone)
        self._requests = {template.role: template.request for template, _ in job.templates}
        self._coming = job.to_come
        self._left = [pods.count for pods in job.to_come]
        self._there = dict(self._gone)
        for role, tasks in self._placed.items() if self._roles else ():
            self._there[role] = self._there.get(role, 0) + len(tasks)
        self._all_waiting = dict(self._waiting)

    def take(self, role: str | None, count: int) -> None:
        """So many pods of a role; None: of any."""
        if count <= 0:
            return
        self.taken += count
        count -= self._of_gone(role, count)
        count -= self._of_tasks(self._placed, role, count, self.had)
        self._lacking[role] = count
        self.missing += count
        more = self._headroom() if role is None else _ANY_NUMBER
        count -= self._of_tasks(self._waiting, role, count, self.room, more)
        self.uncreated += count
        for index, pods in enumerate(self._coming):
            name = pods.template.role
            some = min(count, self._left[index], more.get(name, count)) if role is None or name == role else 0
            if some:
                self._left[index] -= some
                count -= some
                if name in more:
                    more[name] -= some
                _sum(self.room, pods.template.request, some)
                self.needed.append(ToCome(pods.template, some, pods.sure))
        self.short += count

    def _headroom(self) -> dict[str, int]:
        """How many pods without a node each role that has a maximum may have above its minimum."""
        return {
            role.name: max(0, role.max_member - self._there.get(role.name, 0) - self._lacking.get(role.name, 0))
            for role in self._roles
            if role.max_member is not None
        }

    def close(self) -> tuple[Resources, tuple[ToCome, ...]]:
        """The least that the missing pods ask for, and the pods to come that could be among them."""
        needed = tuple(self.needed)
        waiting = sum(len(tasks) for tasks in self._all_waiting.values())
        if waiting + sum(pods.count for pods in self._coming) <= self.missing:
            return self.room, needed
        offers = _offers(self._all_waiting, self._coming)
        requests = [request for of_role in offers.values() for request, _ in of_role]
        if len(self._coming) < 2 and all(request == requests[0] for request in requests):
            return self.room, needed
        own = {role: count for role, count in self._lacking.items() if role is not None}
        eligible = tuple(ToCome(pods.template, min(pods.count, self.missing), pods.sure) for pods in self._coming)
        return least_of(offers, own, self._lacking.get(None, 0), self._headroom()), eligible

    def _of_gone(self, role: str | None, count: int) -> int:
        """Members that have succeeded and have no pod any more."""
        taken = 0
        for name in sorted(self._gone) if role is None else [role]:
            some = min(count - taken, self._gone.get(name, 0))
            if some:
                self._gone[name] -= some
                taken += some
                _sum(self.had, self._requests.get(name, {}), some)
        return taken

    def _of_tasks(
        self,
        known: dict[str, list[Task]],
        role: str | None,
        count: int,
        vector: Resources,
        more: dict[str, int] = _ANY_NUMBER,
    ) -> int:
        """Take so many of the tasks that are known; where any role may be taken, no more than `more` says of one, which
        is lessened by them.
        """
        if not (known and count):
            return 0
        if role is None:
            pool = []
            for name in sorted(known):
                tasks = known[name]
                pool += _first(tasks, more[name])[0] if name in more else tasks
            known.clear()
            name = ""
        else:
            name, pool = role, known.get(role, [])
        chosen, known[name] = _first(pool, count)
        for task in chosen if more else ():
            if task.role in more:
                more[task.role] -= 1
        for cls, some in counted(chosen).items():
            _sum(vector, cls.request, some)
        return len(chosen)


def _offers(waiting: Mapping[str, Sequence[Task]], coming: Sequence[ToCome]) -> dict[str, list[Offer]]:
    """By role its waiting pods and those to come."""
    found: dict[str, list[Offer]] = {}
    for role, tasks in waiting.items():
        alike = Counter(task.cls.id for task in tasks)
        requests = {task.cls.id: task.cls.request for task in tasks}
        found[role] = [(requests[kind], count) for kind, count in alike.items()]
    for pods in coming:
        found.setdefault(pods.template.role, []).append((pods.template.request, pods.count))
    return found


def _sum(vector: Resources, request: Mapping[str, int], count: int) -> None:
    for name, amount in request.items():
        vector[name] = vector.get(name, 0) + amount * count
