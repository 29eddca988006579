"""nodeorder: every part by itself, and who comes first."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.api.objects import AnyObject
from kbatch.engine.plugin import Plugin, Scope
from kbatch.engine.plugins.nodeorder import NodeOrder
from tests.examples import examples
from tests.unit.engine.worlds import world
from tests.unit.plugins.views import class_of, conf, node, plugin_of, pod, scores, session_of

PARTS = {
    "leastrequested": 0,
    "mostrequested": 0,
    "balancedresource": 0,
    "nodeaffinity": 0,
    "podaffinity": 0,
    "tainttoleration": 0,
    "imagelocality": 0,
    "podtopologyspread": 0,
}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
WEB = {"app": "web"}


def scored(*objects: AnyObject, of: str = "ns/p", **weights: int) -> dict[str, int]:
    """Scores with only the parts that are named."""
    told = {f"{name}.weight": weight for name, weight in {**PARTS, **weights}.items()}
    session = session_of(world(*objects), conf("nodeorder", **told))
    return scores(session, plugin_of(session, NodeOrder), of)


MACHINES = (node("empty"), node("half"), node("full"))
BUSY = (
    pod("a", "half", requests={"cpu": "5", "memory": "50"}),
    pod("b", "full", requests={"cpu": "9", "memory": "90"}),
)
ONE = pod("p", requests={"cpu": "1", "memory": "10"})


def test_least_requested_is_the_mean_of_the_free_parts_after_the_pod() -> None:
    assert scored(*MACHINES, *BUSY, ONE, leastrequested=1) == {"empty": 90, "half": 40, "full": 0}
    lopsided = pod("p", requests={"cpu": "1", "memory": "50"})
    assert scored(*MACHINES, *BUSY, lopsided, leastrequested=1) == {"empty": 70, "half": 20, "full": 0}


def test_most_requested_is_the_mean_of_the_used_parts() -> None:
    assert scored(*MACHINES, *BUSY, ONE, mostrequested=1) == {"empty": 10, "half": 60, "full": 100}


def test_balanced_is_the_distance_of_the_used_parts() -> None:
    machines = (node("even"), node("cores"), node("full"))
    busy = (pod("a", "cores", requests={"cpu": "6", "memory": "20"}), pod("b", "full", requests={"cpu": "9"}))
    assert scored(*machines, *busy, ONE, balancedresource=1) == {"even": 100, "cores": 60, "full": 0}


def test_a_pod_without_cpu_and_memory_goes_by_places() -> None:
    machines = (node("n1", status={"allocatable": {"pods": "10"}}), node("n2", status={"allocatable": {"pods": "10"}}))
    idle = [pod(f"i{at}", "n1", requests={}) for at in range(4)]
    assert scored(*machines, *idle, pod("p", requests={}), leastrequested=1) == {"n1": 50, "n2": 90}


def test_weights_multiply_and_parts_add_up() -> None:
    least = scored(*MACHINES, *BUSY, ONE, leastrequested=1)
    most = scored(*MACHINES, *BUSY, ONE, mostrequested=1)
    both = scored(*MACHINES, *BUSY, ONE, leastrequested=3, mostrequested=2)
    assert both == {name: 3 * least[name] + 2 * most[name] for name in least}


def test_preferred_node_affinity_counts_matched_weights() -> None:
    def prefers(weight: int, zone: str) -> dict[str, Any]:
        expression = {"key": "zone", "operator": "In", "values": [zone]}
        return {"weight": weight, "preference": {"matchExpressions": [expression]}}

    affinity = {"nodeAffinity": {PREFERRED: [prefers(60, "a"), prefers(20, "b"), {"weight": 50, "preference": {}}]}}
    machines = (node("a", {"zone": "a"}), node("b", {"zone": "b"}), node("c"))
    assert scored(*machines, pod("p", affinity=affinity), nodeaffinity=1) == {"a": 46, "b": 15, "c": 0}


def test_soft_taints_push_away() -> None:
    def soft(*keys: str) -> dict[str, Any]:
        return {"taints": [{"key": key, "effect": "PreferNoSchedule"} for key in keys]}

    machines = (node("clean"), node("one", **soft("x")), node("two", **soft("x", "y")))
    assert scored(*machines, pod("p"), tainttoleration=1) == {"clean": 100, "one": 50, "two": 0}
    tolerant = pod("p", tolerations=[{"key": "x", "operator": "Exists"}])
    assert scored(*machines, tolerant, tainttoleration=1) == {"clean": 100, "one": 100, "two": 50}


def test_images_that_are_there_draw() -> None:
    mib = 1024 * 1024
    has = {"images": [{"names": ["docker.io/app:latest"], "sizeBytes": 1023 * mib}]}
    machines = (node("has", status=has), node("bare"))
    image: dict[str, Any] = {"containers": [{"name": "c", "image": "docker.io/app"}]}
    assert scored(*machines, pod("p", **image), imagelocality=1) == {"has": 50, "bare": 0}, "half of the nodes have it"
    assert scored(machines[0], pod("p", **image), imagelocality=1) == {"has": 100}
    assert scored(*machines, pod("p", containers=[{"name": "c", "image": "other"}]), imagelocality=1) == {
        "has": 0,
        "bare": 0,
    }


def weighted(weight: int, **more: Any) -> dict[str, Any]:
    return {
        "weight": weight,
        "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": WEB}, **more},
    }


ZONES = (node("a1", {"zone": "a"}), node("a2", {"zone": "a"}), node("b", {"zone": "b"}), node("out"))


def test_preferred_inter_pod_affinity_draws_to_the_fullest_domain() -> None:
    drawn = pod("p", affinity={"podAffinity": {PREFERRED: [weighted(5)]}})
    busy = [pod(f"w{at}", on, labels=WEB) for at, on in enumerate(("a1", "a2", "b"))]
    assert scored(*ZONES, *busy, drawn, podaffinity=1) == {"a1": 100, "a2": 100, "b": 50, "out": 0}
    repelled = pod("p", affinity={"podAntiAffinity": {PREFERRED: [weighted(5)]}})
    assert scored(*ZONES, *busy, repelled, podaffinity=1) == {"a1": 0, "a2": 0, "b": 50, "out": 100}


def test_what_others_prefer_of_the_pod_counts_too() -> None:
    host = pod("h", "b", affinity={"podAffinity": {PREFERRED: [weighted(5)]}})
    assert scored(*ZONES, host, pod("p", labels=WEB), podaffinity=1) == {"a1": 0, "a2": 0, "b": 100, "out": 0}
    shy = pod("h", "b", affinity={"podAntiAffinity": {PREFERRED: [weighted(5)]}})
    assert scored(*ZONES, shy, pod("p", labels=WEB), podaffinity=1) == {"a1": 100, "a2": 100, "b": 0, "out": 100}
    term = weighted(1)["podAffinityTerm"]
    bound = pod("h", "b", affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
    assert scored(*ZONES, bound, pod("p", labels=WEB), podaffinity=1)["b"] == 100


def test_soft_spread_draws_to_the_emptiest_domain() -> None:
    constraint = {
        "topologyKey": "zone",
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": WEB},
    }
    busy = [pod(f"w{at}", on, labels=WEB) for at, on in enumerate(("a1", "a2", "b"))]
    spread = pod("p", labels=WEB, topologySpreadConstraints=[constraint])
    assert scored(*ZONES, *busy, spread, podtopologyspread=2) == {"a1": 0, "a2": 0, "b": 200, "out": 0}
    assert scored(*ZONES, spread, podtopologyspread=2) == {"a1": 200, "a2": 200, "b": 200, "out": 0}


def opened(*objects: AnyObject) -> tuple[Any, NodeOrder]:
    session = session_of(world(*objects), conf("nodeorder"))
    return session, plugin_of(session, NodeOrder)


def test_preferences_follow_the_session() -> None:
    drawn = pod("p", affinity={"podAffinity": {PREFERRED: [weighted(5)]}})
    session, plugin = opened(*ZONES, drawn, pod("w", labels=WEB), pod("v", "b", labels=WEB))
    before = scores(session, plugin, "ns/p")
    undo = plugin.placed(session.model.tasks["ns/w"], 0)
    gone = plugin.removed(session.model.tasks["ns/v"], 2)
    after = scores(session, plugin, "ns/p")
    assert after["a2"] == before["a2"] + 100
    assert after["b"] == before["b"] - 100
    gone()
    undo()
    assert scores(session, plugin, "ns/p") == before


def test_only_pods_with_preferences_look_at_all_nodes() -> None:
    drawn = pod("p", affinity={"podAffinity": {PREFERRED: [weighted(5)]}})
    session, plugin = opened(*ZONES, drawn, pod("w", labels=WEB), pod("q", labels={"app": "db"}))
    assert plugin.score_scope(class_of(session, "ns/p")) is Scope.CLUSTER
    assert plugin.score_scope(class_of(session, "ns/q")) is Scope.NODE
    told = {f"{name}.weight": 0 for name in PARTS}
    session = session_of(world(*ZONES, pod("p")), conf("nodeorder", **told))
    assert plugin_of(session, NodeOrder).score_scope(class_of(session, "ns/p")) is Scope.STATIC


# --- against the plain formulas ---------------------------------------------------------------------------------------

amounts = st.integers(0, 10_000)


@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 10_000), amounts, amounts, amounts), min_size=1, max_size=4),
    st.integers(1, 5000),
    amounts,
)
def test_formulas(machines: list[tuple[int, int, int, int]], cpu: int, memory: int) -> None:
    nodes, busy, want = [], [], {}
    for at, (cores, bytes_, cpu_used, memory_used) in enumerate(machines):
        name = f"n{at}"
        nodes.append(node(name, status={"allocatable": {"cpu": f"{cores}m", "memory": bytes_, "pods": 9}}))
        busy.append(pod(f"b{at}", name, requests={"cpu": f"{cpu_used}m", "memory": memory_used}))
        parts = [_used(cpu_used + cpu, cores), _used(memory_used + memory, bytes_)]
        free = sum(max(0, 100 - part) for part in parts) // 2
        even = 0 if max(parts) >= 100 else 100 - abs(parts[0] - parts[1])
        want[name] = free + even
    asks = pod("p", requests={"cpu": f"{cpu}m", "memory": memory})
    assert scored(*nodes, *busy, asks, leastrequested=1, balancedresource=1) == want


def _used(used: int, there: int) -> int:
    """Per cent, rounded up."""
    return -(-Fraction(100 * used, there) // 1) if there else 100


def test_every_score_is_within_its_bounds() -> None:
    session = session_of(world(*MACHINES, *BUSY, ONE), conf("nodeorder"))
    plugin: Plugin = plugin_of(session, NodeOrder)
    assert all(
        0 <= score <= 100 * (1 + 0 + 1 + 1 + 1 + 1 + 1 + 2) for score in scores(session, plugin, "ns/p").values()
    )
