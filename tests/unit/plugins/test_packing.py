"""binpack and lostopportunity: what they count, and who comes first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kbatch.api.configuration import ConfigurationError, parse
from kbatch.api.objects import Affinity, AnyObject, LabelSelector, Node, PodAffinity, PodAffinityTerm
from kbatch.engine import build_policy
from kbatch.engine.plugins.binpack import Binpack
from kbatch.engine.plugins.lostopportunity import LostOpportunity
from tests.unit.engine import worlds
from tests.unit.engine.worlds import world
from tests.unit.plugins.views import class_of, conf, node, plugin_of, pod, rows_of, scores, session_of

GPU = "x.y/gpu"


def packed(*objects: AnyObject, of: str = "ns/p", **arguments: Any) -> dict[str, int]:
    session = session_of(world(*objects), conf("binpack", **arguments))
    return scores(session, plugin_of(session, Binpack), of)


def least_lost(*objects: AnyObject, of: str = "ns/p", **arguments: Any) -> dict[str, int]:
    session = session_of(world(*objects), conf("lostopportunity", **arguments))
    return scores(session, plugin_of(session, LostOpportunity), of)


def machine(name: str, cpu: int, memory: int, gpus: int = 0) -> Node:
    gpu = {GPU: str(gpus)} if gpus else {}
    return node(name, status={"allocatable": {"cpu": str(cpu), "memory": str(memory), "pods": "9", **gpu}})


MACHINES = (node("empty"), node("half"), node("full"))
BUSY = (
    pod("a", "half", requests={"cpu": "5", "memory": "50"}),
    pod("b", "full", requests={"cpu": "9", "memory": "90"}),
)
ONE = pod("p", requests={"cpu": "1", "memory": "10"})
TRAINING = pod("p", requests={"cpu": "1", "memory": "10", GPU: "1"})


def first(found: dict[str, int]) -> str:
    return max(found, key=lambda name: (found[name], name))


# --- binpack ----------------------------------------------------------------------------------------------------------


def test_binpack_prefers_the_fullest_that_fits() -> None:
    assert packed(*MACHINES, *BUSY, ONE) == {"empty": 1000, "half": 6000, "full": 10_000}


def test_binpack_counts_what_the_pod_does_not_request() -> None:
    cores_only = pod("p", requests={"cpu": "1"})
    busy = pod("a", "half", requests={"memory": "90"})
    assert packed(*MACHINES, busy, cores_only) == {"empty": 500, "half": 5000, "full": 500}


def test_binpack_compares_nodes_by_what_is_left_not_by_the_part_used() -> None:
    assert first(packed(machine("large", 10, 100), machine("small", 4, 40), ONE)) == "small"


def test_binpack_weighs_resources() -> None:
    machines = (node("cores"), node("bytes"))
    busy = (pod("a", "cores", requests={"cpu": "5"}), pod("b", "bytes", requests={"memory": "50"}))
    assert packed(*machines, *busy, ONE) == {"cores": 3500, "bytes": 3500}
    heavy: dict[str, Any] = {"binpack.cpu": 3}
    fine: dict[str, Any] = {"binpack.memory": 0, "binpack.weight": 10}
    assert packed(*machines, *busy, ONE, **heavy) == {"cores": 4750, "bytes": 2250}
    assert packed(*machines, *busy, ONE, **fine) == {"cores": 60_000, "bytes": 10_000}


def test_binpack_counts_further_resources_where_they_are_named() -> None:
    disks = {"allocatable": {"cpu": "10", "memory": "100", "pods": "9", "ephemeral-storage": "100"}}
    machines = (node("n1", status=disks), node("n2", status=disks))
    busy = pod("a", "n1", requests={"ephemeral-storage": "50"})
    assert packed(*machines, busy, ONE) == {"n1": 1000, "n2": 1000}
    also: dict[str, Any] = {"binpack.resources": "ephemeral-storage"}
    assert packed(*machines, busy, ONE, **also) == {"n1": 2333, "n2": 666}


@pytest.mark.parametrize("cores", [2, 9])
def test_binpack_keeps_pods_without_gpu_off_nodes_with_some_free(cores: int) -> None:
    machines = (machine("plain", 10, 100), machine("gpus", cores, cores * 10, 1))
    assert first(packed(*machines, ONE)) == "plain"
    taken = pod("a", "gpus", requests={GPU: "1"})
    assert first(packed(*machines, taken, ONE)) == "gpus", "no GPU is left to be lost"
    careless: dict[str, Any] = {f"binpack.resources.{GPU}": 0}
    assert first(packed(*machines, ONE, **careless)) == "gpus", "nobody cares for GPUs"


def test_binpack_leaves_gpus_the_cpu_that_they_need() -> None:
    # 16 cores and 8 GPUs in all. Weighed alone, 4 cores and 0 GPUs left are as little as 0 cores and 2 GPUs.
    machines = (machine("bare", 4, 800, 3), machine("cores", 8, 800, 1), machine("other", 4, 10, 4))
    wide = pod("p", requests={"cpu": "4", "memory": "1", GPU: "1"})
    fine: dict[str, Any] = {"binpack.memory": 0}
    found = packed(*machines, wide, **fine)
    assert found["bare"] < found["cores"], "two GPUs would have no core beside them"


@pytest.mark.parametrize("argument", [f"binpack.resources.{GPU}", "binpack.weight"])
def test_a_weight_below_zero_is_refused(argument: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"test:7: argument {argument} of plugin binpack"):
        build_policy(parse(conf("binpack", **{argument: -1}), "test"))


# --- lostopportunity --------------------------------------------------------------------------------------------------


def test_the_smaller_node_loses_less() -> None:
    asks = pod("p", requests={"cpu": "50", "memory": "32"})
    found = least_lost(machine("large", 72, 128), machine("small", 60, 64), asks)
    assert first(found) == "small"


def test_weights_say_what_is_dear() -> None:
    machines = (machine("cores", 10, 10 << 30), machine("bytes", 4, 40 << 30))
    dear: dict[str, Any] = {"lostopportunity.cpu": 10, "lostopportunity.memory": 1}
    even: dict[str, Any] = {"lostopportunity.cpu": 1, "lostopportunity.memory": 1}
    assert first(least_lost(*machines, ONE, **dear)) == "bytes"
    assert first(least_lost(*machines, ONE, **even)) == "cores"


def test_what_is_scarce_is_dear_by_itself() -> None:
    # Of 2 GPUs in the cluster one is lost, or 8 of 28 cores with as much memory.
    machines = (machine("gpus", 2, 20, 1), machine("plain", 9, 90), machine("more", 17, 170, 1))
    assert first(least_lost(*machines, ONE)) == "plain"
    cheap: dict[str, Any] = {
        "lostopportunity.cpu": 1,
        "lostopportunity.memory": 0,
        f"lostopportunity.resources.{GPU}": 1,
    }
    assert first(least_lost(*machines, ONE, **cheap)) == "gpus"


def test_the_nodes_of_the_job_cost_nothing_more() -> None:
    session = session_of(world(machine("a", 10, 100), machine("b", 2, 20), ONE), conf("lostopportunity"))
    plugin, cls = plugin_of(session, LostOpportunity), class_of(session, "ns/p")
    rows = rows_of(session, cls)
    rows.opened = np.array([True, False])
    found = plugin.node_order(cls, rows)
    assert found is not None
    assert found.tolist()[0] == 10_000
    assert found.tolist()[1] < 10_000


def test_a_node_that_is_filled_exactly_is_not_better_than_one_of_the_job() -> None:
    assert least_lost(machine("a", 1, 10), ONE) == {"a": 9999}


def test_what_comes_together_is_counted_together() -> None:
    session = session_of(world(machine("a", 8, 80), machine("b", 3, 30), TRAINING), conf("lostopportunity"))
    plugin, cls = plugin_of(session, LostOpportunity), class_of(session, "ns/p")
    rows = rows_of(session, cls)
    rows.coming = np.array([8, 3])
    found = plugin.node_order(cls, rows)
    assert found is not None
    assert found.tolist() == [9999, 9999]


def test_a_gang_whose_pods_are_placed_one_by_one_fills_the_node_that_it_opened() -> None:
    by = worlds.policy("""
actions: allocate
tiers:
- plugins: [{name: gang}, {name: predicates}]
- plugins: [{name: lostopportunity, arguments: {lostopportunity.memory: 0, lostopportunity.cpu: 1}}]
""")
    term = PodAffinityTerm(topology_key="zone", label_selector=LabelSelector(match_labels={"app": "nobody"}))
    shy = Affinity(pod_anti_affinity=PodAffinity(required=(term,)))
    nodes = [worlds.node("a", "3", labels={"zone": "a"}), worlds.node("b", "1700m", labels={"zone": "b"})]
    ways: list[dict[str, Any]] = [{}, {"affinity": shy}]
    for more in ways:  # of one pod alone less would be lost on b
        gang = [worlds.group("g", 2), *worlds.members("g", 2, **more)]
        assert worlds.run(world(worlds.queue(), *nodes, *gang), by).binds == {"g-0": "a", "g-1": "a"}
