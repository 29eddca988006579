"""Controllers and operators of a simulated cluster: they answer to what changed, as those of a live one would.

How many pods there are is for `kbatch.simulator.controllers` (Jobs, ReplicaSets) and `kbatch.model.members` (roles) to
say, the phase for `kbatch.model.phase`. Here is who is asked when, and what becomes of the answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from kbatch.api import conditions
from kbatch.api.names import SUB_GROUP_LABEL, SUSPENDED_ANNOTATION
from kbatch.api.objects import Job, Pod, PodDisruptionBudget, PodGroup, ReplicaSet, ResourceQuota
from kbatch.model.events import Upsert
from kbatch.model.jobs import Job as GroupOfModel
from kbatch.model.jobs_release import HELD, RELEASED
from kbatch.model.members import REST_SECONDS
from kbatch.model.objects import objects_of
from kbatch.model.phase import Phase
from kbatch.model.templates import TemplateError
from kbatch.simulator import pods as changes
from kbatch.simulator.controllers import Maker, QuotaUse, maker_of_job, maker_of_replica_set, with_allowance
from kbatch.simulator.groups import ending, phase_of
from kbatch.simulator.late import LateMembers
from kbatch.simulator.members import MemberError, has_templates, planned
from kbatch.simulator.names import timestamp
from kbatch.simulator.pods import Owner
from kbatch.simulator.records import PodRecord
from kbatch.simulator.store import Store, uid_of
from kbatch.simulator.timeline import Rested
from kbatch.times import SECOND

_LEFT_PENDING: Final = frozenset({Phase.IN_QUEUE, Phase.RUNNING, Phase.UNKNOWN})


class Controllers:
    """All controllers together.

    Attributes:
        adopted: how many pods of the input say that they belong to a controller.
        late: recorded members that come only after their group's entry into its queue.
    """

    def __init__(self, store: Store) -> None:
        self.adopted: dict[Owner, int] = defaultdict(int)
        self._quotas: dict[str, dict[str, QuotaUse]] = defaultdict(dict)
        self._budgets: dict[str, dict[str, PodDisruptionBudget]] = defaultdict(dict)
        self._store = store
        self._makers: dict[Owner, Maker] = {}
        self._makers_of_group: dict[str, list[Maker]] = defaultdict(list)
        self._suspended: dict[Owner, Job] = {}
        self._replaced: dict[str, int] = defaultdict(int)
        self.late = LateMembers(store)
        self._resting: dict[str, dict[str, int]] = defaultdict(dict)
        """By group until when its roles do not grow, in microseconds after the start."""

    def succeeded(self, record: PodRecord, now: int) -> None:
        """A pod has succeeded: its Job makes the next one."""
        maker = self._makers.get(record.owner) if record.owner is not None else None
        if maker is not None:
            maker.alive -= 1
            maker.succeeded += 1
            self._store.create(maker.make(self._store.taken), now)

    def drop(self, owner: Owner) -> None:
        """An owner was deleted: nobody makes pods for it any more."""
        if owner.kind == "PodGroup":
            self._resting.pop(f"{owner.namespace}/{owner.name}", None)
        maker = self._makers.pop(owner, None)
        if maker is not None and maker.group:
            self._makers_of_group[maker.group].remove(maker)

    def add(self, obj: Job | ReplicaSet) -> list[Pod]:
        """Set the controller of an object to work; the pods that it makes at once."""
        obj = replace(obj, metadata=replace(obj.metadata, uid=obj.metadata.uid or uid_of(obj)))
        if isinstance(obj, Job):
            maker = maker_of_job(obj)
            if maker.suspended:
                self._suspended[maker.owner] = obj
        else:
            maker = maker_of_replica_set(obj)
        maker.alive = self.adopted[maker.owner]
        self._makers[maker.owner] = maker
        if maker.group:
            self._makers_of_group[maker.group].append(maker)
            self._store.dirty_groups.add(maker.group)
        return maker.make(self._store.taken)

    def guard(self, obj: ResourceQuota | PodDisruptionBudget) -> None:
        """A quota or budget is there from now on: it counts the pods of its namespace."""
        namespace, name = obj.metadata.namespace, obj.metadata.name
        if isinstance(obj, ResourceQuota):
            self._quotas[namespace][name] = QuotaUse(obj)
        else:
            self._budgets[namespace][name] = obj
        self._store.dirty_pods[namespace].update(self._store.by_namespace[namespace])

    def unguard(self, obj: ResourceQuota | PodDisruptionBudget) -> None:
        """It is there no more."""
        held = self._quotas if isinstance(obj, ResourceQuota) else self._budgets
        held[obj.metadata.namespace].pop(obj.metadata.name, None)

    def settle(self, now: int) -> None:
        """Let controllers answer to what changed, until they have nothing more to do."""
        while self._store.dirty_groups:
            dirty, self._store.dirty_groups = sorted(self._store.dirty_groups), set()
            jobs = self._store.model.jobs  # brings sums up to date; what a group's controllers do is about no other
            for key in dirty:
                group = self._store.groups.get(key)
                if group is not None:
                    self._derive(key, group, jobs[key], now)
        touched, self._store.dirty_pods = self._store.dirty_pods, defaultdict(set)
        for namespace in sorted(touched):
            self._count(namespace, touched[namespace])

    def _derive(self, key: str, group: PodGroup, job: GroupOfModel, now: int) -> None:
        """The podgroup operator's part: the phase, and the members that wait for it."""
        standing = group.status.conditions or ()
        makers = self._makers_of_group.get(key, ())
        ongoing = any(maker.ongoing for maker in makers)
        done = (
            bool(makers)
            and all(maker.owner.kind == "Job" for maker in makers)
            and not (ongoing or has_templates(group))
        )
        phase = phase_of(job, standing, group.status.phase, ongoing=ongoing, done=done)
        ended = ending(job, phase, standing)
        merged = conditions.merge(standing, ended, timestamp(now)) if ended else standing
        if phase.value != group.status.phase or merged != standing:
            derived = replace(group, status=replace(group.status, phase=phase.value, conditions=merged))
            self._store.groups[key] = derived
            self._store.model.apply(Upsert(derived))
        if phase in _LEFT_PENDING and not self._has_objects(key, group):
            return
        if phase in _LEFT_PENDING:
            self.late.call(key, now)
        elif phase is Phase.PENDING:
            self.late.send_back(key)
        for maker in self._makers_of_group.get(key, ()):
            if phase in _LEFT_PENDING and maker.waits:
                maker.waits = False
                self._suspend(maker.owner, suspend=False)
                self._store.create(maker.make(self._store.taken), now)
            elif phase is Phase.PENDING and maker.suspended and not maker.waits:
                self._hold(maker)
        if has_templates(group) and not self.late.delayed(key, now):
            self._make_members(group, phase, now)

    def _has_objects(self, key: str, group: PodGroup) -> bool:
        """Whether the objects of a group can be made, which come before its pods; they are there at once then."""
        if group.spec.objects and key not in self._store.objects:
            try:
                made = objects_of(group)
            except TemplateError as error:
                self._store.warn(f"PodGroup {key}: no pods are made: spec.{error}")
                return False
            self._store.objects[key] = tuple([f"{one.ref.kind}/{one.ref.name}" for one in made])
        return True

    def _make_members(self, group: PodGroup, phase: Phase, now: int) -> None:
        """Members of roles with templates come and go with the phase."""
        owner = Owner("PodGroup", group.metadata.namespace, group.metadata.name)
        key = f"{owner.namespace}/{owner.name}"
        try:
            resting = [role for role, until in self._resting[key].items() if until > now]
            pods, surplus = planned(
                group, self._store.by_owner[owner].values(), phase, resting, self._store.recorded.scheduler_name
            )
        except MemberError as error:
            warning = f"PodGroup {key}: no pods are made: {error}"
            self._store.warn(warning)
            return
        for record in surplus:
            self._store.withdraw(record)
        fresh: list[Pod] = []
        for pod in pods:
            name = pod.metadata.name
            if f"{owner.namespace}/{name}" in self._store.pods:  # of one that was evicted, and is remembered
                again = self._next_name(owner.namespace, name)
                self._store.create([replace(pod, metadata=replace(pod.metadata, name=again))], now, base=name)
            else:
                fresh.append(pod)
        self._store.create(fresh, now)

    def _hold(self, maker: Maker) -> None:
        """A Job that kbatch let go is suspended again: its group was sent back, and none of its pods has a node."""
        records = list(self._store.by_owner[maker.owner].values())
        if any(record.pod.spec.node_name for record in records):
            return
        for record in records:
            self._store.withdraw(record)
        maker.withdraw(len(records))
        self._suspend(maker.owner, suspend=True)

    def _suspend(self, owner: Owner, *, suspend: bool) -> None:
        job = self._suspended.get(owner)
        if job is not None:
            annotations = {**(job.metadata.annotations or {}), SUSPENDED_ANNOTATION: HELD if suspend else RELEASED}
            metadata = replace(job.metadata, annotations=annotations)
            self._store.model.apply(Upsert(replace(job, metadata=metadata, spec=replace(job.spec, suspend=suspend))))

    def _count(self, namespace: str, touched: Iterable[str]) -> None:
        """Quota and disruption controllers: what is used of the namespace, and what may be evicted of it."""
        records = self._store.by_namespace[namespace]
        for use in self._quotas.get(namespace, {}).values():
            for key in touched:
                record = records.get(key)
                use.count(key, None if record is None else record.pod)
            if use.news:
                self._store.model.apply(Upsert(use.stated()))
        budgets = self._budgets.get(namespace)
        if budgets:
            pods = [record.pod for record in records.values()]
            for name, budget in budgets.items():
                budgets[name] = with_allowance(budget, pods)
                self._store.model.apply(Upsert(budgets[name]))

    def replace_pod(self, record: PodRecord, now: int) -> None:
        """The pod's controller makes another one in its place, if it has a controller that still exists.

        A member of a role with a template is made again with the others of its group, if that needs it; else the role
        grows again when it has rested.
        """
        if record.owner is None:
            return
        maker = self._makers.get(record.owner)
        if maker is not None and maker.lost(disrupted=not record.failed):
            self._store.warn(
                f"Job {record.owner.namespace}/{record.owner.name}: more of its pods failed or were evicted than its "
                f"backoffLimit of {maker.limit}: in a live cluster it fails (evicted pods do not count with a "
                "podFailurePolicy that ignores DisruptionTarget)"
            )
        group = self._store.groups.get(record.group)
        if record.owner.kind == "PodGroup" and group is not None and has_templates(group) and not record.failed:
            self._rest(record, now)
            return
        name = self._next_name(record.pod.metadata.namespace, record.base)
        self._store.create([changes.replacement(record.pod, name)], now, base=record.base)

    def _rest(self, record: PodRecord, now: int) -> None:
        """Let the pod's role rest before it grows again, as the operator does."""
        until = now + REST_SECONDS * SECOND
        role = (record.pod.metadata.labels or {}).get(SUB_GROUP_LABEL, "")
        if until not in self._resting[record.group].values():
            self._store.timeline.add(until, Rested(record.group))
        self._resting[record.group][role] = until
        self._store.dirty_groups.add(record.group)

    def _next_name(self, namespace: str, base: str) -> str:
        """`<base>-r<n>`, with the first n that no pod had."""
        key = f"{namespace}/{base}"
        while True:
            self._replaced[key] += 1
            name = f"{base}-r{self._replaced[key]}"
            if f"{namespace}/{name}" not in self._store.taken:
                return name
