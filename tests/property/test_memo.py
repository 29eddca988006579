"""The memo saves work and changes nothing: neither what is decided nor what is said, numbers included.

Over clusters with pods that look at other pods, and with groups of unlike pods, where what fits depends on what was
placed before.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kbatch.api.names import GROUP_NAME_ANNOTATION
from kbatch.api.objects import (
    Affinity,
    LabelSelector,
    Node,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodGroup,
    TopologySpreadConstraint,
)
from kbatch.api.reasons import NotEnoughResources
from kbatch.engine import Policy
from kbatch.model.events import Upsert
from tests.property.test_engine import POLICIES, Checked, World, relaxed, worlds
from tests.unit.engine.worlds import Simulation, group, pod

HOST, ZONE = "kubernetes.io/hostname", "zone"
STYLES = ("plain", "apart by host", "apart by zone", "spread", "together", "beside g0", "unlike")


def styled(one: Pod, app: str, style: str, number: int) -> None:
    """Let a pod speak of the others of its group."""
    one.metadata.labels = {**(one.metadata.labels or {}), "app": app}
    same = LabelSelector(match_labels={"app": app})
    if style.startswith("apart"):
        term = PodAffinityTerm(topology_key=HOST if style == "apart by host" else ZONE, label_selector=same)
        one.spec.affinity = Affinity(pod_anti_affinity=PodAffinity(required=(term,)))
    elif style in {"together", "beside g0"}:
        other = LabelSelector(match_labels={"app": "g0"})
        term = PodAffinityTerm(topology_key=ZONE, label_selector=same if style == "together" else other)
        one.spec.affinity = Affinity(pod_affinity=PodAffinity(required=(term,)))
    elif style == "spread":
        one.spec.topology_spread_constraints = (
            TopologySpreadConstraint(
                max_skew=1, topology_key=ZONE, when_unsatisfiable="DoNotSchedule", label_selector=same
            ),
        )
    elif style == "unlike" and number % 2:
        one.spec.containers = pod("x", "1").spec.containers


@st.composite
def coupled(draw: st.DrawFn) -> World:
    """A world in which some groups' pods speak of each other; nodes stand in two zones."""
    found = draw(worlds())
    styles: dict[str, str] = {}
    for obj in found.objects:
        if isinstance(obj, Node):
            obj.metadata.labels = {HOST: obj.metadata.name, ZONE: draw(st.sampled_from(["z0", "z1"]))}
        elif isinstance(obj, PodGroup):
            styles[obj.metadata.name] = draw(st.sampled_from(STYLES))
    for number, obj in enumerate(found.objects):
        if isinstance(obj, Pod) and not obj.spec.node_name:
            name = (obj.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION, "")
            styled(obj, name or obj.metadata.name, styles.get(name, "plain"), number)
    return found


@relaxed
@given(coupled(), st.sampled_from(POLICIES), st.data())
def test_the_memo_changes_nothing_where_pods_look_at_each_other(found: World, by: Policy, data: st.DataObject) -> None:
    """`Checked` runs every cycle with and without it. In between, things happen that help nobody, or somebody."""
    sim = Checked(found.model(), by)
    for round_ in range(3):
        sim.settle()
        what = data.draw(st.sampled_from(["nothing", "a group", "a pod", "time"]))
        if what == "a group":
            sim.model.apply(Upsert(group(f"new{round_}", 3, at=1000 + round_, queue="q0")))
        elif what == "a pod":
            late = pod(f"late{round_}", "1", at=1000 + round_, queue="q0")
            styled(late, "g0", data.draw(st.sampled_from(STYLES)), 0)
            sim.model.apply(Upsert(late))
        elif what == "time":
            sim.tick()


@relaxed
@given(coupled(), st.sampled_from(POLICIES))
def test_what_is_said_does_not_change_while_nothing_happens(found: World, by: Policy) -> None:
    sim = Simulation(found.model(), by)
    for _ in range(3):
        sim.settle()
        said = sim.cycle()
        assert not said.transactions
        again = sim.cycle()
        assert again.verdicts == said.verdicts
        sim.tick()


@relaxed
@given(coupled(), st.sampled_from(POLICIES))
def test_numbers_are_those_of_the_cluster_as_the_cycle_leaves_it(found: World, by: Policy) -> None:
    """So the next cycle, if it decides nothing, says the same of who lacks room."""

    def lacking(said: Any) -> dict[str, NotEnoughResources]:
        return {
            key: verdict.reason for key, verdict in said.verdicts.items()
            if isinstance(verdict.reason, NotEnoughResources) and verdict.enqueued is not False
        }  # fmt: skip

    sim = Simulation(found.model(), by)
    for _ in range(12):
        before, after = sim.last, sim.cycle()
        if before.transactions and not after.transactions:
            both = lacking(before).keys() & lacking(after).keys()
            assert {key: lacking(before)[key] for key in both} == {key: lacking(after)[key] for key in both}
            sim.tick()
