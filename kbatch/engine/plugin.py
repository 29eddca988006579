"""The contract between the engine (mechanism) and plugins (policy). Start here to write a plugin.

A plugin is made anew for each cycle with its arguments and a `View` of the session, and is asked for its opinion: in
which order, may it run there, how good is it there, may this be evicted. It overrides what it has an opinion on and
changes nothing. All that a `View` shows is read-only and follows the open statement: while a gang is being planned,
sums and room already include its earlier members.

Keys decide order: smaller first; the keys of all plugins are concatenated tier by tier; ties go to the older, then by
name. The key of a queue or job may depend on that queue or job alone (and on what is fixed for a cycle), because the
engine works it out again only for what a decision touched.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from kbatch.api.placement import Placement
from kbatch.api.reasons import Reason
from kbatch.engine.arguments import NoArguments as NoArguments  # noqa: PLC0414 -- part of the contract
from kbatch.engine.decisions import StartEstimate
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.node_resources import Index, NodeResources, Rows
from kbatch.engine.state.promises import Promises
from kbatch.engine.state.queues import QueueState
from kbatch.model.cluster import ClusterModel
from kbatch.model.jobs import Job
from kbatch.model.nodes import Column, Ids, Mask, NodeTable
from kbatch.model.shares import dominant_part
from kbatch.model.tasks import Task, TaskClass
from kbatch.model.usage import Anchor
from kbatch.resources import Resources

Key: TypeAlias = tuple[Any, ...]
"""An order key; the plugin's own keys must be comparable with one another."""

Codes: TypeAlias = npt.NDArray[np.uint8]
"""For each row asked about: 0 where the pod fits, else i for the plugin's `reasons_of(cls)[i - 1]`."""

Scores: TypeAlias = npt.NDArray[np.int64]
"""For each row asked about: how good it is, 0 or more."""

Undo: TypeAlias = Callable[[], None]
"""Takes back one change of a plugin's own index."""


def NO_UNDO() -> None:  # noqa: N802 -- a constant of the contract that happens to be callable
    """Nothing to take back."""


_FINE = 160
"""More bits than two denominators can have: distinct shares stay distinct."""


def ordinal(share: Fraction) -> int:
    """A share as an integer of the same order, exactly: keys made of integers compare ten times as fast.

    Two distinct fractions a/b and c/d differ by at least 1/(b*d), so scaled by more than b*d they differ as integers.
    """
    return (share.numerator << _FINE) // share.denominator


def dominant_ordinal(amounts: Mapping[str, int], total: Mapping[str, int]) -> int:
    """The `ordinal` of the dominant share: the largest amount/total over the dimensions of `total`.

    It needs no fraction in lowest terms, which takes longer to make than all the rest of a key.
    """
    top, bottom = dominant_part(amounts, total)
    return (top << _FINE) // bottom


@dataclass(frozen=True, slots=True, eq=False)
class NodeSet:
    """Nodes on which pods may stand together. Cheaper sets are tried first.

    Attributes:
        rows: of the table, true where a node belongs to it.
        cost: 0 or more; costs of several plugins are added.
    """

    rows: Mask
    cost: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class NodeSets:
    """Many sets of nodes at once, no two of which have a node in common: the domains of one level, for example.

    Of the sets of one job and of its roles those are taken whose largest spread over the roles is the least, then the
    sum of these, then the spread of the job's. Of sets of one spread and cost, where `parents` are given, that comes
    first which the pods leave with the least room, then that whose parents they do; then that with the better nodes.

    Attributes:
        of: for each row the number of its set, counted from 0; -1 where it is in none.
        spread: how far apart nodes of such a set are at most; 0 or more.
        parents: the larger sets that each of these is part of, from the smallest on, in the same form; None: how much
            room is left does not matter.
        cost: of each set; 0 or more.
        by_row: whether each row is a set by itself, and its number that of the set: then less need be counted.
    """

    of: Column
    spread: int = 0
    parents: tuple[Column, ...] | None = None
    cost: int = 0
    by_row: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class DomainLimit:
    """How many pods of a class domains may take because of one another: one each, or such numbers as differ little.

    Attributes:
        of: for each row the number of its domain; -1 where it is in none.
        counts: for each domain how many pods count there already.
        skew: None: a domain takes one pod where none counts yet, and rows in no domain any number. Else counts of the
            domains `present` differ by so much at most, and rows in no domain take none.
        present: the domains that take part where there is a `skew`, none: the least count is taken to be 0.
    """

    of: Ids
    counts: Column
    skew: int | None = None
    present: Index | None = None


class Scope(IntEnum):
    """What an answer about a row depends on."""

    STATIC = 0
    """The node alone: labels, taints, conditions. Worked out once, kept until some node changes in itself."""
    NODE = 1
    """Its use as well, as `Rows` shows it: worked out again for rows on which something was placed or evicted."""
    CLUSTER = 2
    """Other nodes too, or an index of the plugin's own: worked out again for all rows before each pod."""


class Vote(Enum):
    """What a plugin says of a victim. One VETO in any tier is final; without any YES it is no victim."""

    YES = "yes"
    ABSTAIN = "abstain"
    VETO = "veto"


ABSTAIN = Vote.ABSTAIN


@dataclass(frozen=True, slots=True)
class Unit:
    """What would be evicted together: one pod, or all that a group still holds (`whole`)."""

    job: JobState
    tasks: tuple[Task, ...]
    whole: bool
    request: Resources

    @property
    def priority(self) -> int:
        """The highest priority among its pods."""
        return max(task.priority for task in self.tasks)


class Holder(NamedTuple):
    """What is known of a group that holds something, before any vote on it.

    Attributes:
        priority: of the group.
        alone: it holds a single pod, and no other of it waits.
        ends: it has a lifetime.
        minimal: it is a gang that goes pod by pod or not at all, and holds no more than its minimum.
    """

    priority: int
    alone: bool
    ends: bool
    minimal: bool


@dataclass(frozen=True, slots=True, eq=False)
class Preemptor:
    """Who wants room: the job, the tasks that are to be placed, and what they ask for together.

    `intra` says that the preemptor's own job is where victims are sought (preempt inside a job). `lacks` are the
    dimensions of `request` in which there is no room: only in these can a victim help. `held` is what the job had
    before it. `ahead` says that the tasks are pods to come, for which only surplus goes. `never`: any of its pods may
    not preempt.
    """

    job: JobState
    tasks: tuple[Task, ...]
    request: Resources
    intra: bool = False
    ahead: bool = False
    lacks: frozenset[str] = frozenset()
    held: Resources = field(default_factory=dict)
    never: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "never", any(task.never_preempts for task in self.tasks))


@dataclass(frozen=True, slots=True)
class QueueStanding:
    """What a plugin has to say of a queue, for its status.

    Attributes:
        flow: what the queue has used; None: nothing ever.
        fair_share: the queue's part of the cluster by weight, in millionths of a unit of usage, such as a core.
        charged: what its groups take of its excessBudget together, in millionths of a resource-minute.
        half_life: after which past usage counts half, in microseconds.
    """

    flow: Anchor | None
    fair_share: int
    charged: int
    half_life: int


class View(Protocol):
    """What a plugin sees of the session. Read only."""

    now: int
    nodes: NodeTable
    """Labels, taints and conditions of nodes as columns; see `Rows` for what is free."""
    room: NodeResources
    total: Resources
    """Capacity of the cluster."""
    model: ClusterModel
    """Everything else (namespaces, volumes, all pods), as the snapshot has it: without this cycle's decisions."""
    promises: Promises
    """What groups in queue were promised and do not hold yet."""
    ever: bool
    """What is asked just now is whether something could be at some later instant: what fades by itself is left out."""
    emptied: bool
    """This is the cluster without this scheduler's pods, and without those that terminate: whoever counts what stands
    on nodes leaves them out. `room` does.
    """

    def plugin_state(self, name: str) -> Any:
        """What the plugin of this name left at the end of the cycle before; None: nothing."""
        ...

    def job(self, key: str) -> JobState:
        """A group."""
        ...

    def queue(self, name: str) -> QueueState:
        """A queue; raises KeyError where there is none."""
        ...

    def live(self) -> Sequence[JobState]:
        """The groups that the cycle looks at, the oldest first: all that are in queue and wait, and others."""
        ...

    def alone(self, job: JobState) -> Mapping[str, Sequence[int]]:
        """By role the rows on which the job's minimum would stand in the emptied cluster; empty where it would not, and
        where this is the emptied cluster. Only for jobs for which the plugin says so (`compares`).
        """
        ...

    @property
    def queues(self) -> Mapping[str, QueueState]:
        """All existing queues."""
        ...


class Plugin:
    """Base of all plugins. `name` is the word in the configuration, `Arguments` the pydantic model of its arguments."""

    name: ClassVar[str]
    Arguments: ClassVar[type[BaseModel]] = NoArguments
    scope: ClassVar[Scope] = Scope.NODE
    reasons: ClassVar[tuple[type[Reason], ...]] = ()
    agrees: ClassVar[frozenset[str] | None] = None
    """Of `preemptable` and `reclaimable`, those that ever answer YES; None: each that is overridden may."""

    votes_by_class: ClassVar[bool] = False
    """Whether its votes on a pod alone depend, of the pod, only on its class, role and priority: then one vote serves
    for all such pods of a job.
    """

    shrinks: ClassVar[bool] = False
    """Whether with less room `node_sets` never offers a set in which more pods have room: a single kind of pods that
    did not fit does not fit again before something goes.
    """

    by_job: ClassVar[bool] = False
    """Whether what it says in `job_valid`, `job_enqueueable` and `task_order_key` depends on the job and its pods
    alone: then a group that waits to come in queue is asked about only when it has changed, and not in each cycle.
    """

    limits_alike: ClassVar[bool] = False
    """Whether `headroom` says the same of all groups of a queue that have no lifetime, hold nothing and were promised
    the same, for pods of one class, as long as nothing is decided: then one of several that are alike is asked about
    for all.
    """

    own_nodes: ClassVar[bool] = False
    """Whether `node_order` reads `opened` and `coming` of its rows: where the pod's own job has pods already."""

    stands_in: ClassVar[Mapping[Placement, Mapping[str, Any]]] = {}
    """For which placements of queues the plugin scores nodes, and with which arguments where the configuration does not
    name it. Such a stand-in is asked for `node_order` alone, and only for pods of queues that ask for the placement.
    """

    State: ClassVar[type[msgspec.Struct] | None] = None
    """What the plugin keeps across cycles, in `self.state`: given at construction (made without arguments the first
    time), returned with the cycle's outcome, recorded in the decision log. No other plugin reads it. It is the
    plugin's own copy: a cycle that does not end leaves what was.
    """

    @classmethod
    def answers(cls, method: str) -> bool:
        """Whether this plugin has something of its own to say where this method is asked."""
        return getattr(cls, method, None) is not getattr(Plugin, method, None)

    @classmethod
    def consents(cls, method: str) -> bool:
        """Whether this method may ever answer YES: an action that nobody consents to can never do anything."""
        return method in cls.agrees if cls.agrees is not None else cls.answers(method)

    Lasting: ClassVar[type[msgspec.Struct] | None] = None
    """What of its `State` is to outlive the process, where that is written to no object: see `lasting`, `resumed`."""

    @classmethod
    def lasting(cls, state: Any) -> msgspec.Struct | None:
        """That part of what the plugin keeps; None: nothing. The scheduler writes it now and then."""
        return None

    @classmethod
    def resumed(cls, lasting: Any) -> msgspec.Struct | None:
        """What the plugin begins with in a process for which such a part was kept; None: with nothing."""
        return None

    minds_promises: ClassVar[bool] = False
    """Whether it reads `View.promises`; else they need not be kept."""

    wake_decides: ClassVar[bool] = True
    """Whether what changes at the instant that `wake` names may change what is decided; False: only what is told."""

    by_priority: ClassVar[bool] = False
    """Whether the groups of a queue are to come in queue by their priority before their age, whoever may be evicted."""

    def __init__(self, arguments: Any, view: View) -> None:
        self.arguments = arguments
        self.view = view
        self.state: Any = None
        if self.State is not None:
            kept = view.plugin_state(self.name)
            self.state = copy.deepcopy(kept) if isinstance(kept, self.State) else self.State()

    def wake(self) -> int | None:
        """The instant at which this plugin's opinion on an unchanged cluster changes by itself; None: never."""
        return None

    def left(self) -> Any:
        """What it leaves to the next cycle: asked when all is decided."""
        return self.state

    def standing(self, queue: QueueState) -> QueueStanding | None:
        """What is to be written to the queue's status, as things stand when all is decided; None: nothing."""
        return None

    def run_time(self, job: Job) -> int | None:
        """How long pods of a group run from their start, in microseconds, where nobody says so; None: not known. The
        room of its pods is expected then.
        """
        return None

    def starts(self) -> Generator[None, None, tuple[Mapping[str, StartEstimate], set[str]]]:
        """When groups that wait are to start, by their keys, and those for whom that is new in this cycle. Asked once
        in a cycle, before anything is decided; yields every few milliseconds.
        """
        yield from ()
        return {}, set()

    def start_planned(self, job: Job, at: int) -> StartEstimate | None:
        """The same of a group for which room is kept from an instant on that counts on ends which nobody is held to;
        None: it starts then. Asked when all is decided.
        """
        return None

    def prepare(self) -> Iterable[None]:
        """Work of a plugin that takes long, done before anything is asked: a generator that yields every few
        milliseconds, so that whoever runs the engine may do something else in between.
        """
        return ()

    def let_go(self) -> Iterable[None]:
        """Let go of what takes long to free, as `prepare` makes it: nothing is asked any more in this cycle."""
        return ()

    # --- order --------------------------------------------------------------------------------------------------------

    def queue_order_key(self, queue: QueueState) -> Key:
        """Which queue comes first."""
        return ()

    def queue_order_key_with(self, queue: QueueState, more: Mapping[str, int]) -> Key:
        """Which queue comes first where each is asked about what its first job would take next. By default this does
        not matter. `queue_order_key` is still asked where no job is at hand.
        """
        return self.queue_order_key(queue)

    def job_order_key(self, job: JobState) -> Key:
        """Which job of a queue comes first."""
        return ()

    def task_order_key(self, task: Task) -> Key:
        """Which pod of a job comes first; must not change within a cycle."""
        return ()

    # --- nodes --------------------------------------------------------------------------------------------------------

    def predicate_scope(self, cls: TaskClass) -> Scope:
        """What `predicate` depends on for pods of this class; the tighter, the faster."""
        return self.scope

    def score_scope(self, cls: TaskClass) -> Scope:
        """What `node_order` depends on for pods of this class."""
        return self.scope

    def predicate(self, cls: TaskClass, rows: Rows) -> Codes | None:
        """Which rows may take one pod of the class; None: all. Room itself is the engine's business."""
        return None

    def static_predicate(self, cls: TaskClass, rows: Rows) -> Codes | None:
        """The part of `predicate` that the nodes alone decide, for classes whose scope is wider; None: there is none.

        Asked so that nobody evicts on a node that would not take the pod however empty.
        """
        return None

    def depends(self, cls: TaskClass) -> Hashable:
        """What an answer of scope CLUSTER about the class depends on besides the nodes and what stands on them.

        While this and all that stands are as they were, what did not fit is not tried again. By default on anything.
        """
        return self.view.model.generation

    def heeds(self, cls: TaskClass, other: TaskClass) -> bool:
        """Whether an answer of scope CLUSTER about the class may change where a pod of the class `other` goes.

        On a node that such an answer keeps the class from, no victims are sought that it does not heed; and from one
        that such an answer lets the class onto, it does not keep the class once those have gone that it does not heed.
        """
        return True

    def excludes(self, cls: TaskClass, other: TaskClass) -> bool:
        """Whether no pod of the class and none of the class `other` can be on one node at a time, whatever its room."""
        return False

    def heeds_elsewhere(self, cls: TaskClass, other: TaskClass) -> bool:
        """The same as `heeds`, of pods of the class `other` on other nodes than those that the class asks for."""
        return self.heeds(cls, other)

    def one_by_one(self, cls: TaskClass) -> bool:
        """Whether pods of the class, were no others placed, never stand in one another's way more than they must:
        placed one by one wherever `predicate` lets them, they are as many as can be. Where it is not known, it is not.
        """
        return False

    def takes_one(self, cls: TaskClass) -> Mask | None:
        """The rows on which no two pods of the class can ever stand, as they keep apart from one another; None: there
        are none. It saves tries to place several there.
        """
        return None

    def domain_limits(self, cls: TaskClass, others: Sequence[TaskClass]) -> Sequence[DomainLimit]:
        """What pods of the class demand of one another by domains, as things stand, where pods of the classes `others`
        may come at the same time: of the class itself, too, where some of them may stand outside of the set of nodes
        that is looked at. It saves tries to place more in a set than can stand there.
        """
        return ()

    def alike(self, classes: Sequence[TaskClass]) -> Hashable:
        """What decides the answers of `predicate`, `one_by_one` and `told_apart` about pods of these classes on the
        emptied nodes, where none are placed but pods of these classes: for other classes of which this is equal they
        are equal, class by class. By default each class is one of its own.

        Asked of the nodes as they are it may tell more classes apart, but must say the same of no others.
        """
        return tuple(cls.id for cls in classes)

    def told_apart(self, cls: TaskClass) -> Sequence[Column] | None:
        """For a class of scope CLUSTER a column for each thing by which, besides its labels and its room, a row differs
        from others to the class; None: any two rows may differ. It saves a search from trying what is alike.
        """
        return None

    def reasons_of(self, cls: TaskClass) -> tuple[Reason, ...]:
        """What the codes of `predicate` mean for this class; by default one of each type in `reasons`."""
        return tuple(reason() for reason in self.reasons)

    def node_order(self, cls: TaskClass, rows: Rows) -> Scores | None:
        """How good each row is, 0..100 times the plugin's weights, or finer; None: no opinion. Never normalised over
        the rows asked about, unless the scope is CLUSTER (then all rows are asked about).
        """
        return None

    def node_sets(
        self, job: JobState, role: str | None, fitting: Column, placed: Sequence[int]
    ) -> Sequence[NodeSet | NodeSets] | None:
        """Where all pods of a role of the job (None: of the job) may stand together; None: anywhere.

        The sets are tried in the order of spread and cost, and the first that takes the whole minimum is kept. Sets of
        several plugins are intersected; the sets of a role count within those of the job. A pod above the minimum is
        placed in the first set that takes it.

        Args:
            job: whose minimum is to be placed.
            role: the role that is asked about; None: all pods together.
            fitting: for each row how many of the waiting pods would have room there, each kind of them by itself.
            placed: the rows of those that stand or wait for a node already, one element for each.
        """
        return None

    def together(self, job: JobState) -> Hashable | None:
        """What `node_sets` depends on for this job besides nodes, room and where its pods stand; None: nothing is said
        about the job. Jobs that are alike in it, in their pods and in where these stand are given the same sets.
        """
        return job.key

    def strict(self, job: JobState) -> bool:
        """Whether pods of the job must stand in its sets or not at all, so that victims help only there. Where not, the
        sets are a wish, and one of them has all nodes.
        """
        return True

    def compares(self, job: JobState) -> bool:
        """Whether `View.alone` is to be worked out before it is asked about this job's sets."""
        return False

    def within(self, job: JobState, task: Task) -> Mask | None:
        """The rows to which the pods that stand already bind one more pod of the job; None: all. Asked whenever a pod
        is placed, whoever places it.
        """
        return None

    def apart(self, job: JobState, role: str | None, needed: int, placeable: int, row: int) -> Reason | None:
        """Why the job waits that only its sets keep from starting: of `needed` pods of the role (None: of the job) no
        more than `placeable` could be placed in the best set, that of `row` (-1: there is none).
        """
        return None

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def job_valid(self, job: JobState) -> Reason | None:
        """Why the job cannot be tried at all."""
        return None

    def job_enqueueable(self, job: JobState) -> Reason | None:
        """Why the job must not come in queue yet."""
        return None

    def admission(self, job: JobState, asked: Mapping[str, int]) -> Reason | None:
        """Why the job must not come in queue yet, where it would be promised so much. It depends on the sums of its
        queue, and of the job on its queue, its lifetime and its charge alone.
        """
        return None

    def headroom(self, job: JobState, task: Task) -> int | None:
        """How many more tasks of this one's class and role the job may place now, whatever room there is; None: any
        number. Asked of the very tasks that are placed, of all sums as they stand then.
        """
        return None

    def too_much(self, job: JobState, task: Task) -> Reason:
        """Why one more such task may not be placed now; asked where there is no headroom."""
        raise NotImplementedError

    def limits(self) -> bool:
        """Whether `admission` or `headroom` may refuse anything in this cycle; else they are not asked."""
        return True

    def charge_with(self, job: JobState, more: Mapping[str, int]) -> int:
        """What a group would take of its queue's excessBudget with so much more placed, in millionths of a
        resource-minute, were the queue above its share then. Asked of groups whose start is planned.
        """
        return job.charged

    def charge(self, job: JobState) -> int:
        """What a job with a lifetime takes of its queue's excessBudget from now on, in millionths of a resource-minute.
        Asked when it has come in queue, and when something of it has been placed for good; its sums count it already.
        """
        return job.charged

    def job_ready(self, job: JobState) -> Reason | None:
        """Why what the open statement binds is not enough for the job to run."""
        return None

    def job_pipelined(self, job: JobState) -> Reason | None:
        """Why what the open statement binds or nominates is not enough."""
        return None

    def overused(self, queue: QueueState, job: JobState) -> Reason | None:
        """Why the queue has had enough for this job, as long as others have not."""
        return None

    # --- victims ------------------------------------------------------------------------------------------------------

    def preemptable(self, preemptor: Preemptor, unit: Unit) -> Vote:
        """Whether the unit may go for a preemptor of its own queue, against the state after those already chosen."""
        return ABSTAIN

    def reclaimable(self, preemptor: Preemptor, unit: Unit) -> Vote:
        """Whether the unit may go for a preemptor of another queue, against the state after those already chosen."""
        return ABSTAIN

    def may_give(self, donor: QueueState, receiver: QueueState) -> bool:
        """Whether `reclaimable` could ever let a unit of one queue go for a job of another, as things are."""
        return True

    def gives_first(self, queue: QueueState) -> Key:
        """Which queue gives first, of units of other queues that go as willingly; must not change within a cycle."""
        return ()

    def best_vote(self, ballot: str, preemptor: Preemptor, holder: Holder) -> Vote:
        """The most that its vote (`ballot`: preemptable, reclaimable) could be on any unit of any such group, but for
        the preemptor's own, whatever has gone before. VETO: it forbids all; ABSTAIN: it consents to none.

        Where only groups could give anything that are sure not to, no victims are sought.
        """
        return Vote.YES if self.consents(ballot) else Vote.ABSTAIN

    def most_given(self, ballot: str, preemptor: Preemptor, queue: QueueState) -> Mapping[str, int] | None:
        """What units of a queue may come to together by its vote (`ballot`), by dimension, before the last one of them
        is asked about: less than so much. In dimensions that are not named there is no bound; None: in none.

        Where nodes and queues could not give enough, no victims are sought.
        """
        return None

    def vote_key(self, ballot: str, unit: Unit) -> Hashable:
        """What its vote (`ballot`) depends on besides the preemptor, for a unit that is the only pod of its group while
        no other waits or is to come; and besides what the pod asks for, its role and its priority, and the group's
        queue and priority. Pods for which that and this are equal get the same vote at any moment. By default each has
        its own.

        One vote then serves for all of them. The answer is kept while the group stays as it is, in later cycles too, so
        it must depend on nothing else that changes. Only where `votes_by_class`.
        """
        return unit.job.key

    # --- a plugin's own indexes ---------------------------------------------------------------------------------------

    def follows(self, cls: TaskClass) -> bool:
        """Whether `placed` has anything to count of a task of this class: else it is not told of any."""
        return True

    def placed(self, task: Task, row: int) -> Undo:
        """The open statement put a task there: nominated, where `view.job(task.job).nominated` has it, else bound. The
        engine calls the undo if it is taken back.
        """
        return NO_UNDO

    def delayed(self, task: Task, row: int) -> Undo:
        """A task of which `placed` was told as bound is nominated to that row instead. If it is taken back, this undo
        is called before that of `placed`.
        """
        return NO_UNDO

    def removed(self, task: Task, row: int) -> Undo:
        """The open statement evicts a task from there, or withdraws its nomination."""
        return NO_UNDO
