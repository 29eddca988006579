"""Whether two versions of the engine decide alike: random worlds, simulated, and a digest of all that was decided.

    python -m tests.bench.digest [--cycles 10000] [--seed 1] [--write FILE | --compare FILE] [--logs DIR] [--show WORLD]

The worlds depend on the seed and on nothing else, so every version of kbatch gets the same ones. Each world is run by
`kbatch.simulator`; its digest (SHA-256) is of every cycle's transactions and verdicts, in order, and of the simulated
times at which something was decided. Of a reason the code counts, not the message. No instant of the engine and no time
of this machine is in it, so it does not matter in which unit the engine counts.

`--write` keeps the digests in a file. `--compare` runs the same worlds as those of the file (its seed, as many worlds),
names the first that differ, and ends with status 1 if any does; `--show` prints what the digest of one world is made
of, so that the output of two versions can be compared with `diff`.

`--logs` records the decision logs of the first worlds into a folder if it holds none. Otherwise it decides those that
are there again, which compares messages and wakes as well, and ends with status 1 where a decision differs, or a log
cannot be read. `--cycles 0` leaves the digests out.

Only what a user of these packages may import is used here, so that it runs unchanged on versions whose engine is
arranged otherwise: `kbatch.engine` itself, `kbatch.simulator`, `kbatch.decisions`, `kbatch.model` and `kbatch.api`.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias
from unittest import mock

from kbatch.api.configuration import DEFAULT_TEXT, parse
from kbatch.api.names import GROUP, GROUP_NAME_ANNOTATION, QUEUE_LABEL, SUB_GROUP_LABEL
from kbatch.decisions.files import logs_in, read_lines
from kbatch.decisions.recording import Heard, RecordedModel, Recorder
from kbatch.decisions.records import LogError, PolicyText
from kbatch.decisions.replay import replay
from kbatch.decisions.writing import beginning, line_of
from kbatch.engine import Policy, Transaction, Verdict, build_policy, cycle
from kbatch.model.cluster import ClusterModel
from kbatch.model.image import Image
from kbatch.simulator import run as simulation
from kbatch.simulator import store
from kbatch.simulator.documents import Document
from kbatch.simulator.errors import Place
from kbatch.simulator.manifests import from_documents

Json: TypeAlias = dict[str, Any]

SHIPPED_TEXT: Final = """
actions: "reclaim, allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""
"""As kube-batch ships it: there is no enqueue."""
PREEMPT_FIRST_TEXT: Final = """
actions: "enqueue, preempt, allocate, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}, {name: drf}, {name: predicates}, {name: proportion},
            {name: binpack}]
"""
POLICIES: Final = {"default": DEFAULT_TEXT, "shipped": SHIPPED_TEXT, "preempt-first": PREEMPT_FIRST_TEXT}

MOST_CYCLES: Final = 60
"""Of one world."""
LOGS: Final = 150
"""How many worlds are recorded."""
_NAMED: Final = 10
_PERIOD: Final = 60


# --- worlds -----------------------------------------------------------------------------------------------------------


def world(seed: int, number: int) -> tuple[str, list[Json]]:
    """The name of a policy, and the documents of a cluster."""
    draw = Random(f"{seed}/{number}")
    return sorted(POLICIES)[number % len(POLICIES)], _World(draw).documents


class _World:
    """A random cluster: nodes, queues, limits, work that runs already, and work that comes and goes."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.documents: list[Json] = []
        self.rooms: dict[str, list[int]] = {}
        self.queues: list[str] = []
        self.apps: list[str] = []
        self._nodes()
        self._queues()
        for name, value in (("high", 100), ("low", 1), ("polite", 50)):
            never = "Never" if name == "polite" else "PreemptLowerPriority"
            self._add("scheduling.k8s.io/v1", "PriorityClass", name, value=value, preemptionPolicy=never)
        elastic = self._chance(4)
        if elastic:
            self._elastic()
        for number in range(0 if elastic else draw.choice([0, 1, 2, 3, 4])):
            self._work(f"c{number}", standing=True)
        for number in range(draw.randint(1, 8)):
            self._work(f"w{number}", standing=False)
        for number in range(draw.choice([0, 0, 1, 3])):
            self._single(f"s{number}")
        self._limits()

    def _chance(self, of: int) -> bool:
        """True once in so many times."""
        return self.draw.randrange(of) == 0

    def _add(self, api_version: str, kind: str, name: str, *, metadata: Json | None = None, **parts: Any) -> None:
        document = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **(metadata or {})}, **parts}
        self.documents.append(document)

    def _times(self, *, departs: int = 8) -> Json:
        """Arrival and departure of an object, as annotations."""
        found = {}
        arrival = self.draw.choice([0, 0, 0, 2, 5, 9, 30])
        if arrival:
            found["simulate.kbatch.dev/arrival"] = str(arrival)
        if self._chance(departs):
            found["simulate.kbatch.dev/departure"] = str(arrival + self.draw.choice([1, 7, 40]))
        return found

    def _nodes(self) -> None:
        for number in range(self.draw.randint(1, 7)):
            name = f"n{number}"
            cpu, gibs, slots = self.draw.randint(1, 12), self.draw.randint(2, 20), self.draw.choice([110, 110, 3])
            allocatable = {"cpu": str(cpu), "memory": f"{gibs}Gi", "pods": str(slots)}
            if self._chance(4):
                allocatable["example.com/gpu"] = str(self.draw.randint(1, 4))
            labels = {"kubernetes.io/hostname": name, "disk": self.draw.choice(["ssd", "hdd"])}
            if not self._chance(8):
                labels["zone"] = f"z{self.draw.randrange(3)}"
            spec: Json = {}
            if self._chance(5):
                effect = self.draw.choice(["NoSchedule", "NoExecute", "PreferNoSchedule"])
                spec["taints"] = [{"key": "dedicated", "value": "batch", "effect": effect}]
            if self._chance(12):
                spec["unschedulable"] = True
            annotations: Json = {}
            if number and self._chance(5):
                annotations = self._times(departs=3)
            if not annotations and not spec:
                self.rooms[name] = [cpu, gibs, slots]
            status: Json = {"allocatable": allocatable}
            if self._chance(15):
                status["conditions"] = [{"type": "MemoryPressure", "status": "True"}]
            metadata = {"labels": labels, "annotations": annotations}
            self._add("v1", "Node", name, metadata=metadata, spec=spec, status=status)
            if self._chance(4):
                drivers = [{"name": "example.com", "nodeID": name, "allocatable": {"count": 1}}]
                self._add("storage.k8s.io/v1", "CSINode", name, spec={"drivers": drivers})

    def _queues(self) -> None:
        for number in range(self.draw.randint(1, 4)):
            spec: Json = {"weight": self.draw.choice([1, 1, 1, 2, 3, 5])}
            if self._chance(6):
                spec["capability"] = {"cpu": str(self.draw.randint(1, 8))}
                if self._chance(2):
                    spec["capability"]["memory"] = f"{self.draw.randint(1, 8)}Gi"
            if self._chance(6):
                spec["reclaimable"] = False
            if self._chance(30):
                spec["state"] = "Closed"
            annotations = self._times(departs=6) if number and self._chance(8) else {}
            self._add(f"{GROUP}/v1alpha1", "Queue", f"q{number}", metadata={"annotations": annotations}, spec=spec)
            self.queues.append(f"q{number}")

    def _elastic(self) -> None:
        """A group that holds more than it needs at least, and held Jobs of its queue that come one after another."""
        times: Json = {}
        for number in range(self.draw.randint(2, 5)):
            name = f"e{number}"
            count = self.draw.randint(1, 4) if number else self.draw.randint(4, 16)
            cpu = self.draw.randint(1, 2) if number else 1
            minimum = self.draw.randint(1, min(count, 4))
            if number:
                times = {"simulate.kbatch.dev/arrival": str(10 * number)}
            metadata: Json = {"labels": {"app": name}, "annotations": {GROUP_NAME_ANNOTATION: name}}
            container = {"name": "main", "resources": {"requests": {"cpu": str(cpu)}}}
            pods = {"metadata": metadata, "spec": {"schedulerName": "kube-batch", "containers": [container]}}
            spec = {"minMember": minimum, "queue": self.queues[0], "minResources": {"cpu": str(minimum * cpu)}}
            self._group(name, spec, times)
            self.apps.append(name)
            if number:
                body = {"parallelism": count, "completions": count, "suspend": True, "template": pods}
                self._add("batch/v1", "Job", name, metadata={"annotations": times}, spec=body)
            else:
                self._add("apps/v1", "ReplicaSet", name, spec={"replicas": count, "template": pods})

    def _claim(self, name: str) -> Json:
        """A volume of one zone or one node, the claim that has it, and how a pod names the claim."""
        key, value = self.draw.choice(
            [("zone", f"z{self.draw.randrange(3)}"), ("kubernetes.io/hostname", f"n{self.draw.randrange(4)}")]
        )
        terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]
        volume: Json = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if self._chance(2) else {}
        volume["claimRef"] = {"namespace": "default", "name": name}
        volume["csi"] = {"driver": "example.com", "volumeHandle": name}
        self._add("v1", "PersistentVolume", name, spec=volume)
        modes = [self.draw.choice(["ReadWriteMany", "ReadWriteOncePod"])]
        claim = {"volumeName": name, "storageClassName": "", "accessModes": modes}
        # Where the claim is missing there is another one: without any, only a replay asks after claims.
        there = f"{name}-other" if self._chance(8) else name
        self._add("v1", "PersistentVolumeClaim", there, spec=claim, status={"phase": "Bound"})
        return {"name": "data", "persistentVolumeClaim": {"claimName": name}}

    def _limits(self) -> None:
        """A quota, and budgets for some of the work."""
        if self._chance(4):
            hard = {"requests.cpu": str(self.draw.randint(2, 16)), "pods": str(self.draw.randint(3, 20))}
            self._add("v1", "ResourceQuota", "quota", metadata={"annotations": self._times()}, spec={"hard": hard})
        for app in self.apps:
            if self._chance(6):
                bound: Json = self.draw.choice([{"maxUnavailable": 1}, {"minAvailable": 1}, {"minAvailable": "50%"}])
                spec = {**bound, "selector": {"matchLabels": {"app": app}}}
                self._add("policy/v1", "PodDisruptionBudget", app, spec=spec)

    def _queue(self, *, standing: bool = False) -> str:
        """Most of what runs from the start is in the first queue, so that others have something to claim."""
        if standing and not self._chance(4):
            return self.queues[0]
        return "gone" if self._chance(60) else self.draw.choice(self.queues)

    def _priority(self, *, standing: bool) -> Json:
        """A priority class, or none."""
        if standing:
            name = self.draw.choice(["low", "low", ""])
        else:
            name = self.draw.choice(["", "", "low", "high", "high", "polite"])
        return {"priorityClassName": name} if name else {}

    def _single(self, name: str) -> None:
        """A pod without a group."""
        container: Json = {"name": "main"}
        if self._chance(2):
            container["resources"] = {"requests": {"cpu": str(self.draw.randint(1, 2))}}
        annotations = self._times()
        if self._chance(2):
            annotations["simulate.kbatch.dev/duration"] = str(self.draw.choice([3, 20]))
        metadata = {"annotations": annotations, "labels": {QUEUE_LABEL: self._queue(), "app": name}}
        spec = {"schedulerName": "kube-batch", "containers": [container], **self._priority(standing=False)}
        if self._chance(10):
            spec["schedulingGates"] = [{"name": "example.com/wait"}]
        self._add("v1", "Pod", name, metadata=metadata, spec=spec)

    def _work(self, name: str, *, standing: bool) -> None:
        """A PodGroup and its pods. Most pods of a `standing` one run from the start, as far as there is room."""
        count = self.draw.randint(1, 16 if standing else 7)
        cpu, gibs = self.draw.choice([1, 1, 1, 2, 3]), self.draw.choice([0, 0, 1, 2])
        on = self._room(cpu, gibs, count) if standing else []
        if standing:
            count = len(on)
            if not count:
                return
        priority = self._priority(standing=standing)
        times = {} if standing else self._times()
        more = self.draw.choice([1, 2, 3]) if standing and self._chance(4) else 0
        minimum = self.draw.choice([1, count, self.draw.randint(1, count + more)])
        spec: Json = {"minMember": minimum, "queue": self._queue(standing=standing), **priority}
        if not self._chance(3):
            spec["disruption"] = self.draw.choice(["Surplus", "Surplus", "Whole", "Whole", "Whole", "Never"])
        if self._chance(5):
            spec["lifetimeSeconds"] = self.draw.choice([0, 5, 20])
        if self._chance(5):
            spec["minRuntimeSeconds"] = self.draw.choice([3, 20])
        if self._chance(2):
            spec["scheduleTimeoutSeconds"] = self.draw.choice([5, 30, 120])
        if self._chance(4):
            spec["minResources"] = {"cpu": str(cpu * self.draw.randint(1, count))}
        pods = self._template(name, cpu, gibs, priority, standing=standing)
        self.apps.append(name)
        if standing:
            self._group(name, spec, times)
            for number, node in enumerate([*on, *[""] * more]):
                state = {"spec": {**pods["spec"], "nodeName": node}, "status": {"phase": "Running"}} if node else pods
                self._add("v1", "Pod", f"{name}-{number}", **{**pods, **state})
            return
        self._made(name, count, spec, times, pods)

    def _made(self, name: str, count: int, spec: Json, times: Json, pods: Json) -> None:
        """A group whose pods are made by a controller, by its roles, or one by one."""
        maker = self.draw.choice(["ReplicaSet", "ReplicaSet", "Job", "held", "roles", "pods"])
        if maker == "roles":
            masters = 1 if count > 1 else 0
            workers = count - masters
            spec["subGroups"] = [
                {"name": "worker", "minMember": self.draw.randint(0, workers), "maxMember": workers, "template": pods}
            ]
            if masters:
                spec["subGroups"].insert(0, {"name": "master", "minMember": 1, "maxMember": 1, "template": pods})
            spec["minMember"] = max(1, sum(role["minMember"] for role in spec["subGroups"]))
            self._group(name, spec, times)
            return
        if maker == "pods":
            roles = count > 1 and self._chance(2)
            if roles:
                least = self.draw.randint(0, count - 1)
                spec["subGroups"] = [{"name": "master", "minMember": 1}, {"name": "worker", "minMember": least}]
                spec["minMember"] = 1 + least
            self._group(name, spec, times)
            for number in range(count):
                metadata = {**pods["metadata"], "annotations": {**pods["metadata"]["annotations"], **times}}
                if self._chance(4):
                    late = self.draw.choice([6, 12, 31])
                    metadata["annotations"] = {**pods["metadata"]["annotations"], "simulate.kbatch.dev/arrival": late}
                if roles:
                    role = "worker" if number else "master"
                    metadata["labels"] = {**metadata["labels"], SUB_GROUP_LABEL: role}
                self._add("v1", "Pod", f"{name}-{number}", metadata=metadata, spec=pods["spec"])
            return
        self._group(name, spec, times)
        metadata = {"annotations": times}
        if maker == "ReplicaSet":
            self._add("apps/v1", maker, name, metadata=metadata, spec={"replicas": count, "template": pods})
            return
        completions = count + self.draw.choice([0, 0, 3])
        body = {"parallelism": count, "completions": completions, "template": pods}
        if maker == "held":
            body["suspend"] = True
        self._add("batch/v1", "Job", name, metadata=metadata, spec=body)

    def _group(self, name: str, spec: Json, times: Json) -> None:
        self._add(f"{GROUP}/v1alpha1", "PodGroup", name, metadata={"annotations": times}, spec=spec)

    def _template(self, name: str, cpu: int, gibs: int, priority: Json, *, standing: bool) -> Json:
        """Metadata and spec of the pods of a group."""
        annotations = {GROUP_NAME_ANNOTATION: name}
        duration = self.draw.choice([0, 0, 0, 40] if standing else [0, 0, 3, 10, 25])
        if duration:
            annotations["simulate.kbatch.dev/duration"] = str(duration)
        if self._chance(4):
            annotations["simulate.kbatch.dev/termination"] = str(self.draw.choice([0, 4, 15]))
        requests = {"cpu": str(cpu)} if standing or not self._chance(12) else {}
        if gibs and requests:
            requests["memory"] = f"{gibs}Gi"
        if not standing and self._chance(12):
            requests["example.com/gpu"] = "1"
        limits = {name: amount for name, amount in requests.items() if "/" in name}
        container: Json = {"name": "main", "resources": {"requests": requests, "limits": limits}}
        spec: Json = {"schedulerName": "kube-batch", "containers": [container], **priority}
        if not standing:
            self._rules(name, spec, container)
        if self._chance(4):
            spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        return {"metadata": {"labels": {"app": name}, "annotations": annotations}, "spec": spec}

    def _rules(self, name: str, spec: Json, container: Json) -> None:
        """Where the pods of a group may go."""
        other = self.draw.choice([*self.apps, name])
        key = self.draw.choice(["zone", "kubernetes.io/hostname"])
        alike, term = self._term(name, key), self._term(other, key)
        match self.draw.randrange(20):
            case 0:
                spec["affinity"] = {"podAntiAffinity": _required(alike)}
            case 1:
                spec["affinity"] = {"podAffinity": _required(alike)}
            case 2:
                spec["affinity"] = {"podAntiAffinity": _required(term)}
            case 3:
                spec["affinity"] = {"podAffinity": _required(term), "podAntiAffinity": _preferred(alike)}
            case 4:
                spec["affinity"] = {"podAffinity": _preferred(term)}
            case 5 | 6:
                spec["topologySpreadConstraints"] = [
                    {
                        **alike,
                        "maxSkew": self.draw.choice([1, 1, 2]),
                        "whenUnsatisfiable": self.draw.choice(["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]),
                    }
                ]
            case 7:
                container["ports"] = [{"containerPort": 80, "hostPort": 8000 + self.draw.randrange(2)}]
            case 8:
                spec["nodeSelector"] = {"disk": "ssd"}
            case 9:
                values = self.draw.sample(["z0", "z1", "z2"], 2)
                wanted = {"matchExpressions": [{"key": "zone", "operator": "In", "values": values}]}
                rule = {"nodeSelectorTerms": [wanted]}
                spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": rule}}
            case 10:
                wanted = {"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": ["hdd"]}]}
                rules = [{"weight": 10, "preference": wanted}]
                spec["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": rules}}
            case 11 | 12:
                spec["volumes"] = [self._claim(f"{name}-data")]
            case 13:
                named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}
                rule = {"nodeSelectorTerms": [named]}
                spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": rule}}
            case _:
                pass

    def _term(self, app: str, key: str) -> Json:
        return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}

    def _room(self, cpu: int, gibs: int, count: int) -> list[str]:
        """Nodes on which so many pods, or as many as have room, run from the start."""
        found: list[str] = []
        names = sorted(self.rooms)
        self.draw.shuffle(names)
        for name in names:
            room = self.rooms[name]
            while len(found) < count and room[0] >= cpu and room[1] >= gibs and room[2]:
                self.rooms[name] = room = [room[0] - cpu, room[1] - gibs, room[2] - 1]
                found.append(name)
        return found


def _required(term: Json) -> Json:
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _preferred(term: Json) -> Json:
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": term}]}


# --- runs -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Ran:
    """What one world came to. `lines` is what its digest is made of, and `counts` what was decided how often."""

    cycles: int
    lines: list[str]
    counts: Counter[str]

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()


@dataclass(slots=True)
class _Log:
    """A sink that keeps one log in memory."""

    lines: list[bytes] = field(default_factory=list)

    def ready(self) -> bool:
        return not self.lines

    def start(self, image: Image, policy: PolicyText, *state: Any) -> None:
        arguments: tuple[Any, ...] = (image, policy, *state, "digest")
        self.lines.extend(beginning(*arguments))

    def cycle(self, heard: Heard) -> bool:
        self.lines.append(line_of(heard))
        return True

    def end(self, why: str) -> None:
        pass


def policies() -> dict[str, Policy]:
    return {name: build_policy(parse(text, name)) for name, text in POLICIES.items()}


def ran(seed: int, number: int, built: dict[str, Policy], log: _Log | None = None) -> Ran:
    """Run one world; `log` gets its decisions too."""
    policy, documents = world(seed, number)
    manifests = from_documents(Document(Place("world", at), each) for at, each in enumerate(documents, start=1))
    lines: list[str] = []
    counts: Counter[str] = Counter()
    heard = 0
    recorders: list[Recorder] = []

    def model(*arguments: Any, **named: Any) -> ClusterModel:
        if log is None:
            return ClusterModel(*arguments, **named)
        made = RecordedModel(*arguments, **named)
        recorders.append(Recorder(made, lambda: PolicyText(POLICIES[policy], policy), log))
        return made

    def deciding(*arguments: Any, **named: Any) -> Generator[Any, None, Any]:
        nonlocal heard
        heard += 1
        lines.append(f"cycle {heard}")
        if recorders and hasattr(arguments[0], "numbers_current"):  # logs are decided again as a scheduler decides
            arguments = (replace(arguments[0], numbers_current=True), *arguments[1:])
        steps = (recorders[-1].deciding(cycle) if recorders else cycle)(*arguments, **named)
        try:
            while True:
                try:
                    step = next(steps)
                except StopIteration as end:
                    return end.value
                if isinstance(step, Transaction | Verdict):
                    lines.append(_line(step))
                    _count(step, counts)
                yield step
        finally:
            steps.close()

    with mock.patch.object(store, "ClusterModel", model), mock.patch.object(simulation, "cycle", deciding):
        result = simulation.simulate(manifests, built[policy], simulation.Limits(max_cycles=MOST_CYCLES))
    output = result.json()
    if heard - result.cycle_count not in {0, 1}:  # at the end the simulator asks once more how groups stand
        raise RuntimeError(f"the simulator ran {result.cycle_count} cycles, and {heard} were heard")
    counts["limited"] += result.limited
    lines.extend(_text("decided", each["cycle"], round(each["time"], 3), each["enqueued"]) for each in output["cycles"])
    lines.extend(_text("pod", key, pod["phase"], pod["node"]) for key, pod in output["pods"].items())
    return Ran(heard, lines, counts)


def _line(step: Transaction | Verdict) -> str:
    if isinstance(step, Transaction):
        return _text(
            "transaction",
            step.group,
            [[bind.pod, bind.uid, bind.node] for bind in step.binds],
            [[gone.pod, gone.uid, gone.node, gone.action, gone.beneficiary] for gone in step.evictions],
            [[named.pod, named.uid, named.node] for named in step.nominations],
        )
    code = step.reason.code if step.reason is not None else None
    return _text(
        "verdict", step.group, step.shadow, step.enqueued, step.scheduled, code, step.attempted,
        step.pods_unschedulable, step.attempts,
    )  # fmt: skip


def _text(*parts: Any) -> str:
    return json.dumps(parts)


def _count(step: Transaction | Verdict, counts: Counter[str]) -> None:
    if isinstance(step, Verdict):
        counts[f"waits: {step.reason.code}" if step.reason is not None else "scheduled"] += 1
        return
    counts["binds"] += len(step.binds)
    counts["nominations"] += len(step.nominations)
    counts.update(f"evictions: {gone.action}" for gone in step.evictions)


@dataclass(slots=True)
class Digests:
    """A series of worlds from number 0 on, with the digest of each."""

    seed: int
    worlds: list[str] = field(default_factory=list)
    cycles: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def digest(self) -> str:
        """Of all."""
        return hashlib.sha256("\n".join(self.worlds).encode()).hexdigest()

    def add(self, found: Ran) -> None:
        self.worlds.append(found.digest)
        self.cycles.append(found.cycles)
        self.counts += found.counts

    def json(self) -> Json:
        return {
            "seed": self.seed,
            "digest": self.digest,
            "total": sum(self.cycles),
            "counts": dict(sorted(self.counts.items())),
            "cycles": self.cycles,
            "worlds": self.worlds,
        }


def digests(seed: int, *, cycles: int = 0, worlds: int = 0) -> Digests:
    """Run worlds until so many cycles and so many worlds have run."""
    built = policies()
    found = Digests(seed)
    total = 0
    while total < cycles or len(found.worlds) < worlds:
        each = ran(seed, len(found.worlds), built)
        found.add(each)
        total += each.cycles
        if len(found.worlds) % _PERIOD == 0 and sys.stderr.isatty():
            print(f"\r{len(found.worlds)} worlds, {total} cycles", end="", file=sys.stderr, flush=True)
    return found


def differing(before: Json, now: Digests) -> list[str]:
    """A line for each world that is decided otherwise."""
    told = zip(before["worlds"], now.worlds, before["cycles"], now.cycles, strict=True)
    return [
        f"world {number} ({sorted(POLICIES)[number % len(POLICIES)]}): {was[:12]} in {was_cycles} cycles, "
        f"now {digest[:12]} in {cycles}"
        for number, (was, digest, was_cycles, cycles) in enumerate(told)
        if was != digest
    ]


# --- decision logs ----------------------------------------------------------------------------------------------------


def record(folder: Path, seed: int, count: int = LOGS) -> int:
    """Write the logs of the first worlds into a folder; how many cycles are in them."""
    folder.mkdir(parents=True, exist_ok=True)
    built = policies()
    cycles = 0
    for number in range(count):
        log = _Log()
        cycles += ran(seed, number, built, log).cycles
        packed = gzip.compress(b"".join(log.lines), mtime=0)
        (folder / f"decisions-{number:06}.jsonl.gz").write_bytes(packed)
    return cycles


def redecided(paths: Sequence[Path]) -> Iterator[tuple[Path, int, list[str]]]:
    """Each log decided again: how many cycles it has, and a line for each that differs or cannot be read."""
    for path in paths:
        cycles = 0
        wrong: list[str] = []
        try:
            for each in replay(read_lines(path)):
                cycles += 1
                if (found := each.difference) is not None:
                    wrong.append(
                        f"{path.name}, cycle {each.number}, decision {found.position}:\n"
                        f"  recorded: {found.recorded or '(nothing more)'}\n"
                        f"  decided:  {found.decided or '(nothing more)'}"
                    )
        except (OSError, LogError) as error:
            wrong.append(f"{path.name}: {error}")
        if not cycles and not wrong:
            wrong.append(f"{path.name}: there are no cycles in it")
        yield path, cycles, wrong


def logs(folder: Path, seed: int) -> bool:
    """Record logs where there are none, or else decide them again; whether all is equal."""
    paths = logs_in(folder)
    if not paths:
        cycles = record(folder, seed)
        print(f"{LOGS} decision logs of {cycles} cycles recorded in {folder}")
        return True
    cycles, wrong = 0, []
    for _, count, found in redecided(paths):
        cycles += count
        wrong += found
    return _told(f"{len(paths)} decision logs of {cycles} cycles decided again", wrong)


# --- the command ------------------------------------------------------------------------------------------------------


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cycles", type=int, default=10_000, help="go on until so many cycles have run")
    parser.add_argument("--seed", type=int, default=1, help="of the worlds")
    parser.add_argument("--logs", type=Path, help="record decision logs here, or decide again those that are here")
    parser.add_argument("--show", type=int, help="print what the digest of this world is made of, and nothing else")
    files = parser.add_mutually_exclusive_group()
    files.add_argument("--write", type=Path, help="keep the digests in this file")
    files.add_argument("--compare", type=Path, help="run the worlds of this file and compare; its seed is taken")
    arguments = parser.parse_args(given)
    before = json.loads(arguments.compare.read_text()) if arguments.compare else None
    seed = before["seed"] if before else arguments.seed
    if arguments.show is not None:
        policy, documents = world(seed, arguments.show)
        print(json.dumps({"policy": policy, "documents": documents}, indent=1))
        print("\n".join(ran(seed, arguments.show, policies()).lines))
        return 0
    equal = True
    began = time.process_time()
    if before is not None or arguments.cycles > 0:
        found = digests(seed, worlds=len(before["worlds"])) if before else digests(seed, cycles=arguments.cycles)
        seconds = time.process_time() - began
        print(f"{sum(found.cycles)} cycles, {len(found.worlds)} worlds, digest {found.digest}, {seconds:.1f} s of CPU")
        print(", ".join(f"{name} {count}" for name, count in sorted(found.counts.items())))
        if before is not None:
            equal = _told(f"{len(found.worlds)} worlds", differing(before, found))
        if arguments.write:
            arguments.write.parent.mkdir(parents=True, exist_ok=True)
            arguments.write.write_text(json.dumps(found.json(), indent=1) + "\n")
    if arguments.logs:
        equal = logs(arguments.logs, seed) and equal
    return 0 if equal else 1


def _told(what: str, wrong: Sequence[str]) -> bool:
    """Print how a comparison ended; whether nothing is wrong."""
    print(f"{what}: {f'{len(wrong)} differ' if wrong else 'all equal'}")
    print("\n".join(wrong[:_NAMED]), end="\n" if wrong else "")
    return not wrong


if __name__ == "__main__":
    sys.exit(main())
