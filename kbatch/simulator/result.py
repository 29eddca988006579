"""What a simulation came to: typed, and as the JSON object whose shape is a contract with everyone who reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from kbatch.api.objects import Condition
from kbatch.engine.decisions import Bind, Eviction, Nomination, StartEstimate
from kbatch.resources import MILLION, Resources, format_resources
from kbatch.simulator.closeness import Stand
from kbatch.simulator.foreseen import Foreseen, judged
from kbatch.simulator.names import START
from kbatch.times import SECOND


@dataclass(frozen=True, slots=True)
class CycleResult:
    """A cycle with decisions; `number` counts all cycles from 1, `time` is in microseconds after the start."""

    number: int
    time: int
    enqueued: tuple[str, ...]
    binds: tuple[Bind, ...]
    evictions: tuple[Eviction, ...]
    nominations: tuple[Nomination, ...]

    def json(self) -> dict[str, Any]:
        """As it stands in `cycles`."""
        return {
            "cycle": self.number,
            "time": self.time / SECOND,
            "enqueued": list(self.enqueued),
            "binds": [{"pod": bind.pod, "node": bind.node} for bind in self.binds],
            "evictions": [
                {"pod": eviction.pod, "action": eviction.action, "for": eviction.beneficiary or None}
                for eviction in self.evictions
            ],
            "nominations": [{"pod": nomination.pod, "node": nomination.node} for nomination in self.nominations],
        }


@dataclass(frozen=True, slots=True)
class PodResult:
    """A pod at the end; times in microseconds after the start."""

    phase: str
    node: str | None
    bound: int | None
    finished: int | None

    def json(self) -> dict[str, Any]:
        """As it stands in `pods`."""
        return {
            "phase": self.phase,
            "node": self.node,
            "bound": None if self.bound is None else self.bound / SECOND,
            "finished": None if self.finished is None else self.finished / SECOND,
        }


@dataclass(frozen=True, slots=True)
class Planned:
    """What the engine told of the start of a group that waits.

    Attributes:
        group: `namespace/name`. told: when it was told, in microseconds after the start.
        start: the instant, likewise; None: nobody knows.
    """

    group: str
    told: int
    start: int | None


@dataclass(frozen=True, slots=True)
class GroupResult:
    """A PodGroup or shadow group at the end.

    `arrival` and `started` (microseconds after the start; None: never) are for the report: when the PodGroup came, and
    when its minimum was first placed. `stands`: where it stands, and then its roles, if it asks to stand together.
    `objects`: what it has besides its pods, `kind/name`; None where it asks for nothing.
    `charged`: its `excessCharged`, in millionths of a resource-minute.
    `estimate`: when it is to start, if it waits and somebody plans that.
    """

    phase: str
    queue: str
    shadow: bool
    conditions: tuple[Condition, ...]
    arrival: int | None = None
    started: int | None = None
    stands: tuple[Stand, ...] = ()
    objects: tuple[str, ...] | None = None
    charged: int | None = None
    estimate: StartEstimate | None = None

    def json(self) -> dict[str, Any]:
        """As it stands in `podgroups`."""
        found: dict[str, Any] = {
            "phase": self.phase,
            "conditions": [
                {"type": each.type, "status": each.status, "reason": each.reason, "message": each.message}
                for each in self.conditions
            ],
        }
        if self.estimate is not None:
            found["estimatedStart"] = {
                "time": _seconds(self.estimate.time),
                "latest": _seconds(self.estimate.latest),
                "basis": self.estimate.basis,
            }
        if self.stands:
            whole, *roles = self.stands
            found["topology"] = {**whole.json(), "roles": {stand.role: stand.json() for stand in roles}}
        if self.objects is not None:
            found["objects"] = list(self.objects)
        if self.charged is not None:
            found["excessCharged"] = self.charged / MILLION
        return found


@dataclass(frozen=True, slots=True)
class FlowResult:
    """How much a queue has used, in millionths of a unit such as a core; `charged` of a resource-minute."""

    value: int
    unlimited_value: int
    usage: int
    unlimited_usage: int
    fair_share: int
    charged: int

    def json(self) -> dict[str, float]:
        """As it stands in a queue's `flow`, in whole units."""
        return {
            "value": self.value / MILLION,
            "unlimitedValue": self.unlimited_value / MILLION,
            "usage": self.usage / MILLION,
            "unlimitedUsage": self.unlimited_usage / MILLION,
            "fairShare": self.fair_share / MILLION,
            "excessCharged": self.charged / MILLION,
        }


@dataclass(frozen=True, slots=True)
class QueueResult:
    """A queue at the end.

    For the report: `mean`, what it held on average up to the last event; `waits` (microseconds) of the pods bound in
    it; `assumed`, that nobody declared it. `flow`: what it has used, where the plugin flow is configured.
    """

    weight: int
    deserved: Resources
    allocated: Resources
    share: float
    mean: Resources = field(default_factory=dict)
    waits: tuple[int, ...] = ()
    assumed: bool = False
    flow: FlowResult | None = None

    def json(self) -> dict[str, Any]:
        """As it stands in `queues`."""
        found: dict[str, Any] = {
            "deserved": format_resources(self.deserved),
            "allocated": format_resources(self.allocated),
            "share": self.share,
        }
        if self.flow is not None:
            found["flow"] = self.flow.json()
        return found


@dataclass(frozen=True, slots=True)
class Use:
    """What was allocated of which capacity from `time` (microseconds after the start) on."""

    time: int
    allocated: Resources
    capacity: Resources


@dataclass(frozen=True, slots=True)
class Delay:
    """A job that was delayed; instants in microseconds after the start.

    Attributes:
        group: the job. backfilled: those that started while it waited for the start that was planned.
        planned: the instant that was planned for it when the first of these started; None: nobody knew it.
        started, without: when it started, and when it did without them; None: never.
    """

    group: str
    backfilled: tuple[str, ...]
    planned: int | None
    started: int | None
    without: int | None

    def json(self) -> dict[str, Any]:
        """As one entry of `delayed`; times in seconds after the start."""
        times = {"planned": self.planned, "started": self.started, "without": self.without}
        return {
            "group": self.group,
            "backfilled": list(self.backfilled),
            **{name: None if at is None else at / SECOND for name, at in times.items()},
        }

    @property
    def text(self) -> str:
        """The same for people."""
        return (
            f"{self.group} starts {_instant(self.started)}, and {_instant(self.without)} without "
            f"{', '.join(self.backfilled)}; planned {_instant(self.planned)}"
        )


@dataclass(frozen=True, slots=True)
class Check:
    """What it came to when a run was repeated without the jobs that were backfilled.

    Attributes:
        planned: so many jobs had their start planned. beside: so many of them waited while others were backfilled.
        delays: those that started later for it.
    """

    planned: int
    beside: int
    delays: tuple[Delay, ...]

    def json(self) -> dict[str, Any]:
        """As it stands in `backfill`."""
        return {"planned": self.planned, "beside": self.beside, "delayed": [delay.json() for delay in self.delays]}


@dataclass(frozen=True, slots=True)
class Result:
    """A whole run.

    Attributes:
        cycles: those with decisions.
        cycle_count: of all cycles.
        makespan: time of the last event, in microseconds.
        mean_wait: of the pods that were bound, from arrival to bind, in microseconds; 0 if none was.
        utilisation: by resource, allocated over capacity on [0, makespan].
        fragmentation: by resource, the part of what was idle that pods that waited could not use; see
            `kbatch.model.fragmentation`. The mean over the time in which any waited.
        nodes_opened: how many nodes held a pod at any time.
        uses: the steps that `utilisation` is the integral of.
        engine_seconds: spent in cycles; longest_slice: the longest stretch of that without a turn for the shell.
        idle_cycle_seconds: mean of the extra cycles; None if there were none.
        limited: the run was cut off by the limit on cycles.
        planned: what was told of starts to come, in order. started: when groups first ran, by `namespace/name`.
        backfilled: of these those that did so while others waited for their planned starts.
        foreseen: what groups were told first of their starts.
        check: whom the backfilled jobs delayed, if that was found out.
        warnings: what goes otherwise than the input seems to mean.
    """

    cycles: tuple[CycleResult, ...]
    cycle_count: int
    pods: dict[str, PodResult]
    groups: dict[str, GroupResult]
    queues: dict[str, QueueResult]
    makespan: int
    mean_wait: float
    utilisation: dict[str, float]
    uses: tuple[Use, ...]
    engine_seconds: float
    longest_slice: float
    fragmentation: dict[str, float] = field(default_factory=dict)
    nodes_opened: int = 0
    idle_cycle_seconds: float | None = None
    limited: bool = False
    warnings: tuple[str, ...] = field(default=())
    planned: tuple[Planned, ...] = ()
    started: dict[str, int] = field(default_factory=dict)
    backfilled: dict[str, int] = field(default_factory=dict)
    check: Check | None = None
    foreseen: tuple[Foreseen, ...] = ()

    def json(self) -> dict[str, Any]:
        """The object of `-o json`."""
        summary: dict[str, Any] = {
            "cycles": self.cycle_count,
            "binds": sum(len(cycle.binds) for cycle in self.cycles),
            "evictions": sum(len(cycle.evictions) for cycle in self.cycles),
            "makespan": self.makespan / SECOND,
            "mean_wait": round(self.mean_wait / SECOND, 6),
            "utilisation": self.utilisation,
            "fragmentation": self.fragmentation,
            "nodes_opened": self.nodes_opened,
            "engine_seconds": round(self.engine_seconds, 6),
        }
        if self.planned:
            summary["planned"] = len({each.group for each in self.planned})
            summary["backfilled"] = len(self.backfilled)
        if self.foreseen:
            summary["estimates"] = judged(self.foreseen)
        if self.idle_cycle_seconds is not None:
            summary["idle_cycle_seconds"] = round(self.idle_cycle_seconds, 9)
        found = {
            "cycles": [cycle.json() for cycle in self.cycles],
            "pods": {key: pod.json() for key, pod in self.pods.items()},
            "podgroups": {key: group.json() for key, group in self.groups.items()},
            "queues": {name: queue.json() for name, queue in self.queues.items()},
            "summary": summary,
        }
        if self.check is not None:
            found["backfill"] = self.check.json()
        return found

    def encode(self) -> bytes:
        """The JSON text, one value a line, ending with a newline."""
        return msgspec.json.format(msgspec.json.encode(self.json()), indent=1) + b"\n"


def _seconds(instant: int | None) -> float | None:
    """An instant (microseconds since the epoch) in seconds after the start."""
    return None if instant is None else (instant - START) / SECOND


def _instant(instant: int | None) -> str:
    return "never" if instant is None else f"at {instant / SECOND:g} s"
