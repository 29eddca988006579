"""What the scheduler keeps of what is gone: a million pods of a million kinds through a cluster that holds a thousand.

    python -m tests.bench.churn [--pods N] [--json FILE]

Every pod differs from all others in its requests, labels and ports, and in its selector, tolerations, affinity or
images. With them come and go nodes, PodGroups, Jobs, queues, namespaces and priority classes; after every 1,000 pods a
cycle runs and its binds are carried out. The clock goes on by ten milliseconds with each pod, so by ten seconds from
cycle to cycle: back-offs, refreshes and time-outs come as they do. In the second half only pods and groups change, so
that nothing goes merely because the nodes were read anew. The status is 1 where a limit is missed.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from kbatch.api.configuration import DEFAULT
from kbatch.api.names import GROUP_NAME_ANNOTATION
from kbatch.api.objects import AnyObject, Job, Namespace, Node, Pod, PodGroup, PriorityClass, Queue
from kbatch.engine import CycleState, Memo, NullObserver, Transaction, build_policy, cycle, take_snapshot
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Event, Upsert
from kbatch.process import memory
from kbatch.times import MILLISECOND, SECOND
from tests.bench.engine import NOW, STAMP, Figure, keep, tell
from tests.bench.scale import resident

LIVE: Final = 1000
"""So many pods are there at a time."""
WARM: Final = 10_000
"""What is held after so many pods is what is held at the end."""
GROWTH_LIMIT: Final = 1.2
EVENT_LIMIT: Final = 400.0
"""Microseconds of CPU for each event that the model takes: every pod is of a kind never seen before."""
CYCLE: Final = 1000
STEP: Final = 10 * MILLISECOND
"""By so much the clock goes on with each pod."""
_NODES: Final = 20
_GROUP: Final = 40
"""The pods of one group in a row; every other one of these has a PodGroup."""


class Churn:
    """A cluster through which ever other objects go; `step` is one pod more, and one less when there are enough.

    Args:
        live: how many pods there are at a time.
        nodes: how many nodes there are at a time.
        every: after so many pods each something else changes: a node, a queue, a namespace and so on.
    """

    def __init__(self, live: int, nodes: int = _NODES, every: int = CYCLE) -> None:
        self._live, self._nodes, self._every = live, nodes, every
        self.memo, self.state = Memo(), CycleState()
        self.policy = build_policy(DEFAULT)
        self.model = ClusterModel()
        self.events = 0
        self.seconds = 0.0
        self._stamp = STAMP
        self._places: list[str] = []
        self._gone = 0
        self._changes = 0
        self._apply(Upsert(self._of(Queue, "default", {}, space="")))
        for _ in range(nodes):
            self._come_node()
        self._apply(*self._arrive_others(0))

    def step(self, number: int, *, others: bool) -> None:
        """The pod of this number comes, the one that is too many goes; `others` may change too."""
        if not number % (SECOND // STEP):
            self._stamp = datetime.fromtimestamp((NOW + number * STEP) // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if not number % _GROUP:
            self._apply(*self._groups(number // _GROUP))
        self._apply(Upsert(self._pod(number)))
        if number >= self._live:
            self._apply(*self._depart(number - self._live))
        if others and not number % self._every:
            self._changes += 1
            self._apply(*self._arrive_others(self._changes), *self._leave_others(self._changes - 1))
            self._go_node()
            self._come_node()

    def decide(self, number: int) -> int:
        """One cycle; its binds are assumed and then confirmed. How many there were."""
        found: list[Transaction] = []
        snapshot = take_snapshot(self.model, NOW + number * STEP, self.state)
        steps = cycle(snapshot, self.policy, self.memo, NullObserver())
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                self.memo, self.state = end.value.memo, end.value.state
                break
            if isinstance(step, Transaction):
                found.append(step)
        binds = [bind for transaction in found for bind in transaction.binds]
        for bind in binds:
            self.model.assume(bind.pod, bind.uid, bind.node)
            task = self.model.tasks[bind.pod]
            spec = msgspec.structs.replace(task.pod.spec, node_name=bind.node)
            self._apply(Upsert(msgspec.structs.replace(task.pod, spec=spec)))
        for transaction in found:
            for eviction in transaction.evictions:
                self.model.evicting(eviction.pod, eviction.uid)
        return len(binds)

    def end(self, number: int) -> None:
        """Everything goes: the pods up to this number and all else."""
        for gone in range(max(0, number - self._live), number):
            self._apply(*self._depart(gone))
        self._apply(*self._leave_others(self._changes), Delete(Queue, "", "default"))
        while self._places:
            self._go_node()

    def _apply(self, *events: Event) -> None:
        began = time.process_time()
        for event in events:
            self.model.apply(event)
        self.seconds += time.process_time() - began
        self.events += len(events)

    # --- pods and groups ----------------------------------------------------------------------------------------------

    def _pod(self, number: int) -> Pod:
        """Of 16, two wait for a node, one of them in vain; two are of another scheduler; the others stand on a node."""
        kind = number % 16
        of, at = divmod(number, _GROUP)
        waits = kind in (3, 11)
        labels = {f"key{number}": f"v{number}", "app": f"app{number}"}
        spec: dict[str, Any] = {
            "schedulerName": "other" if kind in (5, 6) else "kube-batch",
            "nodeName": "" if waits else self._places[number % len(self._places)],
            "tolerations": [{"key": f"taint{number}", "operator": "Exists", "effect": "NoSchedule"}],
            "containers": [
                {
                    "name": f"c{number}",
                    "image": f"registry.example/image:{number}",
                    "ports": [{"containerPort": 80, "hostPort": 1024 + number % 60_000}],
                    "resources": {
                        "requests": {"cpu": f"{100 + number % 97}m", "memory": str(1_000_000 + number)},
                        "limits": {"cpu": f"{300 + number % 997}m", "memory": str(2_000_000 + number)},
                    },
                }
            ],
        }
        if not number % 10:
            for amounts in spec["containers"][0]["resources"].values():
                amounts[f"example.com/dimension{number}"] = "1"
        if kind == 11:
            spec["nodeSelector"] = {f"label{number}": f"value{number}"}
        elif not kind % 3:
            required = {"nodeSelectorTerms": [{"matchExpressions": [_expression(f"no{number}", "DoesNotExist")]}]}
            weighted = {"weight": 1, "preference": {"matchExpressions": [_expression(f"soft{number}", "Exists")]}}
            spec["affinity"] = {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": required,
                    "preferredDuringSchedulingIgnoredDuringExecution": [weighted],
                }
            }
        if not number % 500:
            term = {"labelSelector": {"matchLabels": {f"key{number}": f"v{number}"}}, "topologyKey": f"zone{number}"}
            part = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            spec.setdefault("affinity", {})["podAntiAffinity"] = part
        if not number % 700:
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"app": f"app{number}"}}, "matchLabelKeys": [f"key{number}"],
                }
            ]  # fmt: skip
        annotations = {GROUP_NAME_ANNOTATION: f"g{of}"} if of % 2 and at else {}
        more = {"labels": labels, "annotations": annotations}
        found: Pod = self._of(Pod, f"p{number}", {"spec": spec}, space=_space(of), **more)
        return found

    def _groups(self, number: int) -> Iterator[Event]:
        """A PodGroup that pods may name, and one with templates and a Job, of which no pod ever comes."""
        template = {
            "spec": {
                "schedulerName": "kube-batch",
                "nodeSelector": {f"of{number}": "x"},
                "containers": [{"name": "main", "resources": {"requests": {"cpu": f"{number}m", "memory": "1Mi"}}}],
            }
        }
        role = {"name": f"role{number}", "minMember": 2, "template": template}
        queue = f"q{self._changes}" if number % 3 else "default"
        space = _space(number)
        if number % 2:
            yield Upsert(self._of(PodGroup, f"g{number}", {"spec": {"minMember": 2, "queue": queue}}, space=space))
        to_come = {"spec": {"minMember": 2, "queue": queue, "subGroups": [role]}}
        yield Upsert(self._of(PodGroup, f"t{number}", to_come, space=space))
        template = {**template, "metadata": {"annotations": {GROUP_NAME_ANNOTATION: f"t{number}"}}}
        yield Upsert(self._of(Job, f"j{number}", {"spec": {"parallelism": 2, "template": template}}, space=space))

    def _depart(self, number: int) -> Iterator[Event]:
        of, at = divmod(number, _GROUP)
        yield Delete(Pod, _space(of), f"p{number}")
        if at == _GROUP - 1:
            yield Delete(PodGroup, _space(of), f"g{of}")
            yield Delete(PodGroup, _space(of), f"t{of}")
            yield Delete(Job, _space(of), f"j{of}")

    # --- the rest -----------------------------------------------------------------------------------------------------

    def _arrive_others(self, number: int) -> Iterator[Event]:
        capability = {f"example.com/c{number}": 1}
        yield Upsert(self._of(Queue, f"q{number}", {"spec": {"weight": 1, "capability": capability}}))
        yield Upsert(self._of(Namespace, f"space{number}", {}, labels={f"team{number}": "x"}))
        yield Upsert(self._of(PriorityClass, f"class{number}", {"value": number}))

    def _leave_others(self, number: int) -> Iterator[Event]:
        yield Delete(Queue, "", f"q{number}")
        yield Delete(Namespace, "", f"space{number}")
        yield Delete(PriorityClass, "", f"class{number}")

    def _come_node(self) -> None:
        number = self._gone + len(self._places)
        name = f"n{number:07}"
        self._places.append(name)
        allocatable = {"cpu": "64", "memory": f"{256_000_000 + number}Ki", "pods": "200", f"example.com/x{number}": "1"}
        body = {
            "spec": {"taints": [{"key": f"taint{number}", "value": f"v{number}", "effect": "PreferNoSchedule"}]},
            "status": {
                "allocatable": allocatable,
                "images": [{"names": [f"registry.example/node:{number}"], "sizeBytes": 100_000_000}],
            },
        }
        labels = {"kubernetes.io/hostname": name, "zone": f"z{number % 3}", f"only{number}": "x"}
        self._apply(Upsert(self._of(Node, name, body, labels=labels)))

    def _go_node(self) -> None:
        self._gone += 1
        self._apply(Delete(Node, "", self._places.pop(0)))

    def _of(self, kind: type[AnyObject], name: str, body: dict[str, Any], *, space: str = "", **more: Any) -> Any:
        """An object made now, as a decoder makes it: nothing of it is shared with another."""
        meta = {"name": name, "namespace": space, "uid": f"uid-{name}", "creationTimestamp": self._stamp}
        return msgspec.convert({"metadata": {**meta, **more}, **body}, kind)


def _space(group: int) -> str:
    return f"space{group // 5}"


def _expression(key: str, operator: str) -> dict[str, Any]:
    return {"key": key, "operator": operator}


def measure(pods: int) -> list[Figure]:
    """Send the pods through."""
    memory.set_up()
    churn, held, began, binds = Churn(LIVE), 0.0, time.process_time(), 0
    for number in range(pods):
        churn.step(number, others=number < pods // 2)
        if number % CYCLE == CYCLE - 1:
            binds += churn.decide(number)
        if number + 1 == min(WARM, pods // 2):
            held = _settled()
            print(f"     {number + 1:9,} pods: {held:.1f} MiB", flush=True)
        elif not (number + 1) % max(1, pods // 10):
            print(f"     {number + 1:9,} pods: {resident():.1f} MiB, {time.process_time() - began:.0f} s", flush=True)
    assert binds >= pods // 32, binds
    assert len(churn.model.tasks) == LIVE
    end, what = _settled(), f"{pods:,} kinds of pods through {LIVE:,}"
    taken = churn.seconds / churn.events * 1e6
    return [
        Figure("churn-memory", f"{what}: resident", end, GROWTH_LIMIT * held, "MiB", pods=pods, nodes=_NODES),
        Figure("churn-growth", f"{what}: over that of 10,000", end / held, GROWTH_LIMIT, "x", pods=pods, nodes=_NODES),
        Figure("churn-event", f"{what}: an event, taken", taken, EVENT_LIMIT, "µs", pods=pods, nodes=_NODES),
    ]  # fmt: skip


def _settled() -> float:
    """MiB that the process holds, without what the garbage collector has not looked at yet."""
    gc.collect()
    return resident()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.churn")
    parser.add_argument("--pods", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path, help="write one JSON line per figure to this file")
    chosen = parser.parse_args()
    figures = measure(chosen.pods)
    for figure in figures:
        tell(figure)
    return keep(figures, chosen.json)


if __name__ == "__main__":
    sys.exit(main())
