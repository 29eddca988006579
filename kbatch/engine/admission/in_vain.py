"""Groups in queue for whose pods there is no room: all of them are there, and are to be placed in vain.

What is free in all may be as much as they ask for, in pieces that are too small: ten nodes with half of their CPUs free
have room for no pod that asks for three quarters of a node. Such a group keeps nobody out who could use the pieces. Nor
do others come in queue behind it that ask for the same: their pods would wait beside its own.

Of pods that ask for the same of the same nodes these hold so many, and no more: one node with room for one of them is
not kept for a thousand groups. Where the pods of a group are unlike, a large one takes the room of several small ones.
Of pods with a host port a node holds one, and none while another pod has the port.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Final, TypeAlias

from kbatch.engine.context import CycleContext
from kbatch.engine.placement.enough import could_fit
from kbatch.engine.placement.kinds import counts_of
from kbatch.engine.placement.ranking import When
from kbatch.engine.preemption.prospective import never_preempts
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import next_tasks, unplaced
from kbatch.model.selectors import HostPort, host_ports
from kbatch.model.tasks import TaskClass
from kbatch.resources import PODS

_KINDS: Final = 4
"""Of so many kinds such groups keep nobody out; else one more of each kind that there is would come in queue after the
other, and have its pods made for nothing. And room and victims are sought for each in each cycle: with 100 kinds, where
10,000 groups of 200 shapes wait, that took three times as long, and nothing was gained.
"""

_Kind: TypeAlias = tuple[tuple[tuple[str, int], ...], int]
"""What a pod needs, and a number for the nodes that it may use."""
_Wanted: TypeAlias = tuple[_Kind, frozenset[HostPort], TaskClass, int]
"""So many pods of a kind, with such ports; and a class of theirs."""


class InVain:
    """Those of one run of `enqueue`.

    Where starts are planned there are none: there so many groups wait for their turn and keep nobody out (`InQueue`).
    """

    def __init__(self, context: CycleContext) -> None:
        self._none = context.planned is not None
        self._rankings = context.rankings
        self._feasibility = context.feasibility
        self._session = context.session
        self._priorities: dict[Hashable, int] = {}
        """By queue and what such groups ask for the highest priority of these groups."""
        self._pods: dict[Hashable, int] = {}
        """By what they ask for, and of which nodes, the pods for which there was room; by host ports besides."""
        self._ports_of: dict[int, frozenset[HostPort]] = {}

    def waits(self, job: JobState) -> bool:
        """Whether a group in queue is one of them, of not too many kinds. One that runs in part keeps the room for the
        rest of it.
        """
        if self._none or job.bound or job.nominated or len(job.job.waiting) < job.minimum or not job.missing():
            return False
        if self._finds_room(job):
            self._count(job)
            return False
        if len(next_tasks(job, unplaced(job))) < job.missing():
            return False  # pods are lacking of some role, or wait behind gates: it is not room that it waits for
        mark = self._mark(job)
        if mark not in self._priorities and len(self._priorities) == _KINDS:
            return False
        self._priorities[mark] = max(job.priority, self._priorities.get(mark, job.priority))
        return True

    def first(self, job: JobState) -> bool:
        """Whether one of them comes before a group that asks for the same, and could get no more than it."""
        priority = self._priorities.get(self._mark(job)) if self._priorities else None
        return priority is not None and priority >= job.priority and not self._finds_room(job)

    def comes_in(self, job: JobState) -> None:
        """A group is in queue from now on; those that were before have all been asked (`waits`)."""
        if self._priorities:
            self._count(job)

    def _count(self, job: JobState) -> None:
        """The room of its pods is taken, for whoever asks next."""
        pods = self._pods
        for kind, ports, _, count in self._wanted(job):
            pods[kind] = pods.get(kind, 0) + count
            if ports:
                pods[kind, ports] = pods.get((kind, ports), 0) + count

    def _finds_room(self, job: JobState) -> bool:
        """Whether there may be room for what its minimum lacks, beside those that were counted."""
        wanted, pods = self._wanted(job), self._pods
        if len(wanted) == 1 and not job.job.roles:
            if self._rankings.in_sum(wanted[0][2]) < wanted[0][3]:
                return False  # the quickest answer; the other half of `could_fit` comes below
        elif not could_fit(self._rankings, job):
            return False
        for at, (kind, ports, cls, count) in enumerate(wanted):
            taken = pods.get(kind, 0) + count
            if len(wanted) > 1:  # beside the others, on the same nodes
                taken += sum(
                    _slots(other, cls) * many
                    for number, (known, _, other, many) in enumerate(wanted)
                    if number != at and known[1] == kind[1]
                )
            if taken > self._rankings.most(cls):
                return False
            if ports and pods.get((kind, ports), 0) + count > self._rankings.of(cls, When.LATER, job).many_open():
                return False  # each takes one of these nodes
        return True

    def _wanted(self, job: JobState) -> Sequence[_Wanted]:
        """Its pods by kind, as many as its minimum takes; nothing where it has a choice."""
        kinds = counts_of(job)
        if len(kinds) == 1:
            cls = kinds[0][0]
            return ((self._kind(cls), self._ports(cls), cls, job.missing()),)
        if sum(count for _, _, count in kinds) > job.missing():
            return ()
        found: dict[Hashable, _Wanted] = {}
        for cls, _, count in kinds:
            kind, ports = self._kind(cls), self._ports(cls)
            known = found.get((kind, ports))
            found[kind, ports] = kind, ports, cls, count + (known[3] if known is not None else 0)
        return list(found.values())

    def _kind(self, cls: TaskClass) -> _Kind:
        return cls.needs, id(self._rankings.allowed(cls))

    def _ports(self, cls: TaskClass) -> frozenset[HostPort]:
        found = self._ports_of.get(cls.id)
        if found is None:
            found = self._ports_of[cls.id] = host_ports(cls.spec)
        return found

    def _mark(self, job: JobState) -> Hashable:
        """What decides what room the group finds and whose it may be given, its priority aside: all that its pods ask
        for, of nodes and of other pods, and not their number and size alone.
        """
        model = job.job
        wishes = job.strict, model.wants_whole_nodes, model.lifetime, never_preempts(self._session, job)
        pods, rest = self._feasibility.asks(job)
        many: Counter[Hashable] = Counter()
        for (cls, role), count in pods.items():
            many[self._kind(cls), _beside(cls), role] += count
        return job.queue, wishes, frozenset(many.items()), rest


def _slots(cls: TaskClass, of: TaskClass) -> int:
    """For how many pods of another class, at the least, one of this class takes the room of a node: as many as it is
    larger, in the dimension in which it is so least. How many pods a node may have is left out: it is rarely short.
    """
    needs = dict(cls.needs)
    sizes = [needs.get(name, 0) // amount for name, amount in of.needs if name != PODS]
    return min(sizes, default=0)


def _beside(cls: TaskClass) -> Hashable:
    """What pods of the class ask for besides room, and what others ask of them. Not the class itself where that is all:
    pods have a priority and tolerations that their template does not have, and so another class.
    """
    known = cls.id if cls.couples or cls.volumes or cls.avoids else 0
    return host_ports(cls.spec), cls.namespace, tuple(sorted(cls.labels.items())), known
