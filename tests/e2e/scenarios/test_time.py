"""When groups start, and what queues have used, on the real control plane: planned starts, backfill, flow, fail-over.

Each run is made once and watched: what is asserted of it are all the values that were written, not samples.
"""

from __future__ import annotations

import contextlib
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml

from tests.e2e.scenarios.life import job, watching
from tests.e2e.scenarios.manifests import gang, queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.scenarios.conftest import Installed

pytestmark = pytest.mark.installed

FLOW = Path(__file__).parents[3] / "examples" / "configurations" / "flow.yaml"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
EXPECTED = "kbatch.dev/expected-seconds"
NODES = 3
CORES = 32
"""Of each node."""


class Start(NamedTuple):
    """Where a pod was bound, and when the watch told of it (seconds since the epoch)."""

    node: str
    at: float


class Told(NamedTuple):
    """What a status said, and when the watch told of it."""

    said: dict[str, Any]
    at: float


class Writes:
    """Every value of what is asked about below, as the API server tells of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._starts: dict[str, Start] = {}
        self._said: dict[tuple[str, str], list[Told]] = {}

    def tell(self, kind: str, change: str, obj: dict[str, Any]) -> None:
        """One change of an object of a kind."""
        now = time.time()
        if change not in {"ADDED", "MODIFIED"}:
            return
        name, status = obj["metadata"]["name"], obj.get("status", {})
        with self._lock:
            if kind == "Pod":
                if obj["spec"].get("nodeName"):
                    self._starts.setdefault(name, Start(obj["spec"]["nodeName"], now))
                return
            said = status.get("flow" if kind == "Queue" else "estimatedStart", {})
            told = self._said.setdefault((kind, name), [])
            if said != (told[-1].said if told else {}):
                told.append(Told(said, now))

    def starts(self, group: str) -> list[Start]:
        """Of the pods whose names begin so and that were bound, in the order in which they were."""
        with self._lock:
            found = [start for name, start in self._starts.items() if name.startswith(f"{group}-")]
        return sorted(found, key=lambda start: start.at)

    def promised(self, group: str) -> list[float]:
        """The instants for which its start was planned, all of them with certainty, in the order of the words."""
        said = [told.said for told in self.planned(group) if told.said]
        assert {(one["basis"], one["latest"] == one["time"]) for one in said} == {("reservation", True)}
        return [instant(one["time"]) for one in said]

    def planned(self, group: str) -> list[Told]:
        """What `status.estimatedStart` of a group has said; `{}` where it says nothing."""
        with self._lock:
            return list(self._said.get(("PodGroup", group), ())) or [Told({}, 0.0)]

    def flows(self, name: str) -> list[Told]:
        """What `status.flow` of a queue has said."""
        with self._lock:
            return list(self._said.get(("Queue", name), ()))


@contextlib.contextmanager
def watched(kbatch: Installed) -> Iterator[Writes]:
    """Watch pods, groups and queues from now on; afterwards nothing of them is left."""
    writes = Writes()
    try:
        with watching(kbatch, writes.tell, "Queue"):
            yield writes
    finally:
        kbatch.clean()


@pytest.fixture(scope="module")
def original(installed: Installed) -> Iterator[str]:
    """The chart's configuration, which is in force again afterwards."""
    text = installed.configuration()
    installed.ensure_nodes(NODES)
    yield text
    installed.configure(text)


def plan_starts(kbatch: Installed, configuration: str, mode: str, **flow: Any) -> None:
    """Have starts planned, by a change of the ConfigMap that the running scheduler takes up.

    Args:
        mode: of backfill.
        flow: arguments of the plugin flow, if the configuration has it, in the place of its own.
    """
    policy = yaml.safe_load(configuration)
    backfill = {"name": "backfill", "arguments": {"mode": mode}}
    policy["actions"] = [backfill if name == "backfill" else name for name in policy["actions"].split(", ")]
    for plugin in (plugin for tier in policy["tiers"] for plugin in tier["plugins"]):
        if plugin["name"] == "flow":
            plugin["arguments"] = flow
    kbatch.configure(yaml.safe_dump(policy))


def instant(said: str) -> float:
    """A time as Kubernetes writes it, in seconds since the epoch."""
    return datetime.fromisoformat(said).timestamp()


# --- a gang of all nodes under a stream -------------------------------------------------------------------------------


def work(name: str, cpu: int, *, seconds: float, **spec: Any) -> dict[str, Any]:
    """A Job of one pod that runs for so many seconds."""
    return job(name, 1, str(cpu), seconds=str(seconds), **spec)


def short(name: str) -> dict[str, Any]:
    """Half a node for a second and a half, of which its user says that it takes no more than three."""
    found = work(name, CORES // 2, seconds=1.5)
    found["metadata"]["annotations"] = {EXPECTED: "3"}
    return found


class Turn(NamedTuple):
    """How a gang of all nodes got its turn.

    Attributes:
        writes: what was seen.
        waiting: how many short jobs had not started when it had.
    """

    writes: Writes
    waiting: int


SHORT, LONG = 24, 2
GANG = "all"
"""Before the names of the others, in the order of those that were made in the same second."""


@pytest.fixture(scope="module", params=["easy", "conservative"])
def turn(request: pytest.FixtureRequest, installed: Installed, original: str) -> Turn:
    """One node comes free at once, two after a while; a gang waits for all three, and one-pod jobs stream in."""
    kbatch = installed
    plan_starts(kbatch, original, request.param)
    with watched(kbatch) as writes, kbatch.api() as api:
        before = [work(f"before-{at}", CORES, seconds=8, activeDeadlineSeconds=11) for at in (1, 2)]
        api.post_all(JOBS, [work("before-0", CORES, seconds=1, activeDeadlineSeconds=3), *before])
        kbatch.wait("all nodes are taken", lambda: len(writes.starts("before")) == NODES)
        kbatch.apply(job(GANG, NODES, str(CORES), activeDeadlineSeconds=600))
        kbatch.wait("its start is planned", lambda: "time" in writes.planned(GANG)[0].said)
        long = [work(f"long-{at}", CORES // 2, seconds=600, activeDeadlineSeconds=600) for at in range(LONG)]
        api.post_all(JOBS, [*long, *(short(f"short-{at}") for at in range(SHORT))])
        kbatch.wait("the gang has started", lambda: len(writes.starts(GANG)) == NODES)
        return Turn(writes, SHORT - len(writes.starts("short")))


def test_a_gang_of_all_nodes_starts_when_it_was_first_told_under_a_stream_of_jobs(turn: Turn) -> None:
    assert turn.writes.starts(GANG)[-1].at <= turn.writes.promised(GANG)[0]
    assert len({start.node for start in turn.writes.starts(GANG)}) == NODES
    assert turn.waiting > 0, "the stream has not ended by itself"


def test_short_jobs_start_in_the_room_that_is_kept_for_later_and_long_ones_do_not(turn: Turn) -> None:
    began = turn.writes.starts(GANG)[0].at
    assert len([start for start in turn.writes.starts("short") if start.at < began]) >= 2, "more on a quick machine"
    assert not [start for start in turn.writes.starts("long") if start.at < began]


# --- the scheduler is killed ------------------------------------------------------------------------------------------


HALF_TIME = 10.0
APART = 30.0
"""Seconds within which what a queue has used is written."""
SLACK = 5.0
"""Seconds that a write may take on a busy machine."""


class FailOver(NamedTuple):
    """What was written while the leader was killed.

    Attributes:
        writes: what was seen.
        killed: when; in seconds since the epoch, as all times.
        used: from when on at the earliest how many cores the queue used.
        flows: of the queue, by the successor's metrics, until half of what was above its usage had faded.
    """

    writes: Writes
    killed: float
    used: list[tuple[float, float]]
    flows: list[float]


def holder(name: str, deadline: int) -> list[dict[str, Any]]:
    """A pod of the queue `past` that takes a node, and may for so many seconds."""
    group, pod = gang(name, 1, str(CORES), queue="past")
    pod["spec"]["activeDeadlineSeconds"] = deadline
    return [group, pod]


@pytest.fixture(scope="module")
def fail_over(installed: Installed, original: str) -> FailOver:
    """A queue has all nodes; its pods end one by one, long before their deadlines: one while nobody leads."""
    kbatch = installed
    past = queue("past")
    past["spec"]["reclaimable"] = False
    used: list[tuple[float, float]] = []
    flows: list[float] = []

    def end(name: str) -> None:
        used.append((time.time(), used[-1][1] - CORES))
        kbatch.run("patch", "pod", f"{name}-0", "--subresource=status", "-p", '{"status":{"phase":"Succeeded"}}')

    def written(cores: int) -> bool:
        return bool(writes.flows("past")) and writes.flows("past")[-1].said["usage"] == cores

    def fading() -> bool:
        flows.append(kbatch.metric("scheduler", 'kbatch_scheduler_queue_flow{queue="past"}'))
        return flows[-1] <= 2 * CORES

    with watched(kbatch) as writes:
        kbatch.apply(past)
        kbatch.create_all([*holder("first", 300), *holder("second", 200), *holder("third", 100)])
        kbatch.wait("all nodes are taken", lambda: all(writes.starts(name) for name in ("first", "second", "third")))
        plan_starts(kbatch, FLOW.read_text(), "conservative", halfTime=f"{HALF_TIME:.0f}s")
        kbatch.wait("what it uses is written", lambda: written(NODES * CORES))
        used.append((instant(writes.flows("past")[-1].said["time"]), NODES * CORES))
        kbatch.apply(job(GANG, NODES, str(CORES)))
        kbatch.wait("its start is planned", lambda: "time" in writes.planned(GANG)[0].said)
        end("first")
        usage = 'kbatch_scheduler_queue_usage{queue="past"}'
        kbatch.wait("the leader knows", lambda: kbatch.metric("scheduler", usage) == 2 * CORES)
        kbatch.kill("scheduler")
        killed = time.time()
        end("second")
        kbatch.wait("the successor has written what is used", lambda: written(CORES), 60)
        kbatch.wait("half of the past has faded", fading)
        end("third")
        kbatch.wait("the gang has started", lambda: len(writes.starts(GANG)) == NODES)
        kbatch.wait("what is used is written again", lambda: written(0), APART + SLACK)
    return FailOver(writes, killed, used, flows)


class Flow(NamedTuple):
    """What a status said of what a queue has used, in cores, and from when on."""

    value: float
    usage: float
    since: float


def flow(told: Told) -> Flow:
    """It as numbers: never below what is used."""
    said = told.said
    assert float(said["unlimitedUsage"]) == float(said["usage"]) <= float(said["value"])
    assert said["unlimitedValue"] == said["value"], "no group has a lifetime"
    return Flow(float(said["value"]), float(said["usage"]), instant(said["time"]))


def faded(value: float, usage: float, seconds: float) -> float:
    """What a flow comes down to in a time."""
    return float(usage + max(0.0, value - usage) * 0.5 ** (seconds / HALF_TIME))


def test_what_a_queue_has_used_outlives_the_process_that_counted_it(fail_over: FailOver) -> None:
    told = fail_over.writes.flows("past")
    flows = [flow(one) for one in told]
    first = next(flow(one) for one in told if one.at > fail_over.killed)
    least, last = 0.0, Flow(0.0, 0.0, 0.0)
    for since, cores in [used for used in fail_over.used if used[0] < first.since]:
        least = max(faded(least, last.usage, since - last.since), cores)
        last = Flow(least, cores, since)
    assert first.usage == CORES
    assert faded(least, last.usage, first.since - last.since) <= first.value <= NODES * CORES, "nothing is lost"
    assert min(fail_over.flows) >= CORES
    assert flows[-1].usage == 0
    assert flows[-1].value == pytest.approx(faded(first.value, CORES, flows[-1].since - first.since), abs=0.01)
    late = [one.at - flow(one).since for one in told]
    assert max(late) <= APART + SLACK, "so much would be lost at most"


def test_a_planned_start_never_moves_later_while_those_before_keep_their_deadlines(fail_over: FailOver) -> None:
    promised = fail_over.writes.promised(GANG)
    assert promised == sorted(promised, reverse=True)
    assert len(promised) >= 2, "once by each of two schedulers"
    assert fail_over.writes.starts(GANG)[-1].at <= promised[-1]
    assert fail_over.writes.planned(GANG)[-1].said == {}, "it has started"
