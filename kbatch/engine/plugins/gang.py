"""gang: a group runs with its minimum, and with each role's, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final

from kbatch.api import conditions
from kbatch.api.reasons import NotEnoughTasks, Reason
from kbatch.engine.plugin import ABSTAIN, Holder, Key, Plugin, Preemptor, Unit, View, Vote
from kbatch.engine.state.jobs import JobState
from kbatch.model.jobs import Role

_OF_ROLES: Final = "subGroups[].minMember"


class Gang(Plugin):
    """Groups that lack their minimum come before those that have it. Takes no arguments.

    Victims: VETO of a unit that would leave a group with some pods, but fewer than its minimum or a role's. Pods whose
    bind is yet to be made, or under way, do not count: it may fail.
    """

    name: ClassVar[str] = "gang"
    agrees: ClassVar[frozenset[str]] = frozenset()
    votes_by_class: ClassVar[bool] = True
    by_job: ClassVar[bool] = True
    reasons: ClassVar[tuple[type[Reason], ...]] = (NotEnoughTasks,)

    def __init__(self, arguments: Any, view: View) -> None:
        super().__init__(arguments, view)
        self._under_way: dict[str, list[str]] | None = None
        self._existing: dict[str, Mapping[str, int]] = {}

    def job_order_key(self, job: JobState) -> Key:
        """First who is not whole."""
        return (job.whole,)

    def job_valid(self, job: JobState) -> Reason | None:
        """Enough pods must exist, of the group and of each role; those beyond a role's maxMember do not count."""
        beyond = _beyond(job)
        exists = job.pipelined + len(job.job.waiting) - len(job.placed) - len(job.nominated) - beyond
        lacking = job.minimum - exists
        roles = self._lacking(job) if any(role.min_member for role in job.job.roles) else []
        if lacking > 0:
            # Where the pods of one role are all that lacks, it says more than the group's number.
            if len(roles) == 1 and roles[0][1] >= lacking:
                return self._of_role(job, *roles[0], _lower(job))
            missed = self._missed(job, roles)
            if missed is not None:
                return self._of_role(job, *missed, _OF_ROLES)
            return NotEnoughTasks(
                exists,
                job.minimum,
                coming=self._coming(job, lacking),
                lower=_lower(job),
                stalled=_stalled(job),
                beyond=beyond,
                most=_most(job),
            )
        return self._of_role(job, *roles[0], _OF_ROLES) if roles else None

    def _lacking(self, job: JobState) -> list[tuple[Role, int]]:
        """The roles of which fewer pods exist than their minimums, and how many lack."""
        there = self._there(job)
        found = [(role, role.min_member - there.get(role.name, 0)) for role in job.job.roles]
        return [(role, lacking) for role, lacking in found if lacking > 0]

    def _missed(self, job: JobState, roles: Sequence[tuple[Role, int]]) -> tuple[Role, int] | None:
        """The first of these roles of which too few pods exist or are to be made, where others name no role of the
        group: for them it is a likely one.
        """
        if not (roles and _strays(job)[0]):
            return None
        made = self._made(job)
        return next(((role, lacking) for role, lacking in roles if made.get(role.name, 0) < lacking), None)

    def _of_role(self, job: JobState, role: Role, lacking: int, lower: str) -> NotEnoughTasks:
        """So many pods of one role lack."""
        strays, stray = _strays(job)
        return NotEnoughTasks(
            role.min_member - lacking,
            role.min_member,
            role.name,
            strays,
            stray,
            self._coming(job, lacking, role.name),
            lower,
            _stalled(job),
        )

    def _coming(self, job: JobState, lacking: int, role: str | None = None) -> int:
        """How many of the pods that lack are to be made, of the role if one is named."""
        made = self._made(job)
        return min(lacking, sum(made.values()) if role is None else made.get(role, 0))

    def _made(self, job: JobState) -> Mapping[str, int]:
        """How many pods of each role are to be made, no more than may be placed."""
        made: dict[str, int] = {}
        for pods in job.job.to_come:
            made[pods.template.role] = made.get(pods.template.role, 0) + pods.count
        for each in job.job.roles if made else ():
            if each.max_member is not None and each.name in made:
                made[each.name] = min(made[each.name], max(0, each.max_member - self._there(job).get(each.name, 0)))
        return made

    def _there(self, job: JobState) -> Mapping[str, int]:
        """How many pods of each role exist, or have succeeded."""
        found = self._existing.get(job.key)
        if found is None:
            there = dict(job.job.gone)
            for task in job.job.tasks.values():
                if task.succeeded or not (task.terminal or task.terminating):
                    there[task.role] = there.get(task.role, 0) + 1
            found = self._existing[job.key] = there
        return found

    def job_ready(self, job: JobState) -> Reason | None:
        """The minimum must be bound."""
        return None if job.whole else NotEnoughTasks(job.ready, job.minimum)

    def job_pipelined(self, job: JobState) -> Reason | None:
        """The minimum must be bound or nominated."""
        return NotEnoughTasks(job.pipelined, job.minimum) if job.missing() else None

    def preemptable(self, preemptor: Preemptor, unit: Unit) -> Vote:
        """See the class."""
        return self._vote(unit)

    def reclaimable(self, preemptor: Preemptor, unit: Unit) -> Vote:
        """See the class."""
        return self._vote(unit)

    def vote_key(self, ballot: str, unit: Unit) -> Hashable:
        """Who has one pod has no minimum to lose."""
        return None

    def best_vote(self, ballot: str, preemptor: Preemptor, holder: Holder) -> Vote:
        """Nobody goes who is needed for a minimum."""
        return Vote.VETO if holder.minimal else ABSTAIN

    def _vote(self, unit: Unit) -> Vote:
        job = unit.job
        if unit.whole or not job.job.gang:
            return ABSTAIN
        under_way = self._assumed().get(job.key, ())
        if job.bound - len(under_way) - len(unit.tasks) < job.minimum:
            return Vote.VETO
        if job.job.roles:
            leaving = Counter(task.role for task in unit.tasks)
            unsure = Counter(under_way)
            unsure.update(task.role for task, _ in (*job.placed.values(), *job.nominated.values()))
            for role in job.job.roles:
                left = job.role_count(role.name) - unsure[role.name] - leaving[role.name]
                if leaving[role.name] and left < role.min_member:
                    return Vote.VETO
        return ABSTAIN

    def _assumed(self) -> Mapping[str, Sequence[str]]:
        """By group the roles of its pods whose bind is under way: it may fail yet."""
        if self._under_way is None:
            self._under_way = {}
            for key in self.view.model.marks()[0]:
                task = self.view.model.tasks.get(key)
                if task is not None and task.assumed and task.holds:
                    self._under_way.setdefault(task.job, []).append(task.role)
        return self._under_way


def _lower(job: JobState) -> str:
    """The fields that the group's minimum stands in: minMember, or where the roles' add up to as much, theirs."""
    roles, group = sum(role.min_member for role in job.job.roles), job.job.group
    if roles < job.minimum:
        return "minMember"
    return _OF_ROLES if group is None or group.spec.min_member < roles else f"minMember and {_OF_ROLES}"


def _beyond(job: JobState) -> int:
    """How many of its waiting pods can never be placed, because their role would have more than its maxMember."""
    found = 0
    for role in job.job.roles:
        headroom = job.role_headroom(role.name)
        if headroom is not None:
            waiting = sum(
                1 for task in job.job.waiting
                if task.role == role.name and task.key not in job.placed and task.key not in job.nominated
            )  # fmt: skip
            found += max(0, waiting - headroom)
    return found


def _stalled(job: JobState) -> bool:
    """Whether pods cannot be made from the group's templates."""
    return job.job.is_true(conditions.STALLED)


def _most(job: JobState) -> int:
    """How many pods its roles may have in all, if that is less than its minimum; 0 if not."""
    most = 0
    for role in job.job.roles:
        if role.max_member is None:
            return 0
        most += role.max_member
    return most if most < job.minimum else 0


def _strays(job: JobState) -> tuple[int, str]:
    """How many of its pods, and of those to be made, name a role that is none of the group's, or no role; and the first
    of these roles, those that name one before the others.
    """
    declared = {role.name for role in job.job.roles}
    found = Counter(task.role for task in job.job.tasks.values() if not (task.terminal or task.terminating))
    for pods in job.job.to_come:
        found[pods.template.role] += pods.count
    strays = {role: count for role, count in found.items() if role not in declared}
    return sum(strays.values()), min(strays, key=lambda role: (not role, role), default="")
