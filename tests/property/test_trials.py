"""One trial on the emptied nodes serves for all groups that are alike: each gets what a trial of its own would give."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kbatch.api.objects import (
    Affinity,
    ContainerPort,
    LabelSelector,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodGroup,
    SubGroup,
    TopologySpreadConstraint,
)
from kbatch.engine import CycleState, take_snapshot
from kbatch.engine.placement.feasibility import Feasibility, Trial
from kbatch.engine.session.session import Session
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Upsert
from tests.examples import examples
from tests.unit.engine.worlds import EPOCH, EVERYTHING, group, node, pod, policy, queue, world

HOST, ZONE = "kubernetes.io/hostname", "zone"
STYLES = ("plain", "apart", "apart by zone", "spread", "together", "shuns g0", "port")


@dataclass
class Styled:
    """Groups of three pods of like size."""

    styles: list[str]
    sizes: list[int]
    roles: list[bool]
    foreign: list[tuple[str, str, int]]
    rooms: list[int]

    def model(self) -> ClusterModel:
        nodes = [
            node(f"n{at}", str(cpu), labels={HOST: f"n{at}", ZONE: f"z{at % 2}"}) for at, cpu in enumerate(self.rooms)
        ]
        found = world(queue("default"), nodes)
        waiting: list[Pod | PodGroup] = []
        for at, style in enumerate(self.styles):
            roles = {"m": 1, "w": 2} if self.roles[at] else None
            waiting.append(group(f"g{at}", 3, at=at, roles=roles))
            for index in range(3):
                role = ("m" if index == 0 else "w") if roles else ""
                one = pod(f"g{at}-{index}", str(self.sizes[at]), of=f"g{at}", at=at, role=role)
                waiting.append(styled(one, f"g{at}", style))
        others = [
            styled(pod(f"o{at}", "1", on=f"n{row % len(self.rooms)}", scheduler="other"), app, style)
            for at, (app, style, row) in enumerate(self.foreign)
        ]
        return world(queue("default"), nodes, waiting, others) if waiting else found


def styled(one: Pod, app: str, style: str) -> Pod:
    """The pod as one of `app`, with the demands of a style."""
    one.metadata.labels = {**(one.metadata.labels or {}), "app": app}
    same = LabelSelector(match_labels={"app": "g0" if style == "shuns g0" else app})
    near = PodAffinityTerm(topology_key=ZONE, label_selector=same)
    if style in {"apart", "apart by zone", "shuns g0"}:
        term = PodAffinityTerm(topology_key=HOST if style == "apart" else ZONE, label_selector=same)
        one.spec.affinity = Affinity(pod_anti_affinity=PodAffinity(required=(term,)))
    elif style == "together":
        one.spec.affinity = Affinity(pod_affinity=PodAffinity(required=(near,)))
    elif style == "spread":
        one.spec.topology_spread_constraints = (
            TopologySpreadConstraint(
                max_skew=1, topology_key=ZONE, when_unsatisfiable="DoNotSchedule", label_selector=same
            ),
        )
    elif style == "port":
        ports = (ContainerPort(container_port=80, host_port=80),)
        one.spec.containers = (replace(one.spec.containers[0], ports=ports),)
    return one


@st.composite
def worlds(draw: st.DrawFn) -> Styled:
    count = draw(st.integers(2, 6))
    return Styled(
        draw(st.lists(st.sampled_from(STYLES), min_size=count, max_size=count)),
        draw(st.lists(st.sampled_from([1, 1, 2]), min_size=count, max_size=count)),
        draw(st.lists(st.sampled_from([False, False, True]), min_size=count, max_size=count)),
        draw(
            st.lists(
                st.tuples(
                    st.sampled_from(["g0", "g1", "g2"]), st.sampled_from(["plain", "plain", *STYLES]), st.integers(0, 3)
                ),
                max_size=3,
            )
        ),
        draw(st.lists(st.integers(1, 4), min_size=2, max_size=4)),
    )


def session_of(model: ClusterModel) -> Session:
    snapshot = take_snapshot(model, EPOCH, CycleState())
    for _ in snapshot.open():
        pass
    session = Session(snapshot, policy(EVERYTHING))
    for _ in session.open():
        pass
    return session


@settings(deadline=None, max_examples=examples(60))
@given(worlds())
def test_a_group_gets_what_a_trial_of_its_own_would_give(found: Styled) -> None:
    model = found.model()
    session = session_of(model)
    shared = Feasibility(session, {}, {})
    for job in session.live():
        own = Feasibility(session, {}, {})
        assert shared.attempt(job) == own.attempt(job), job.key
        own.close()
    shared.close()


def trials(model: ClusterModel) -> tuple[dict[str, Trial], int]:
    """What is found for each group, and how many trials were made."""
    session = session_of(model)
    feasibility = Feasibility(session, {}, {})
    found = {job.key: feasibility.attempt(job) for job in session.live()}
    return found, len(feasibility.alike)


def test_groups_that_differ_in_names_alone_are_tried_once() -> None:
    for style in ("spread", "together", "apart", "port"):
        found, made = trials(Styled([style] * 4, [1] * 4, [False] * 4, [], [4, 4]).model())
        assert len(found) == 4
        assert made == 1, style


def test_a_group_whose_pods_look_at_pods_that_stand_is_tried_by_itself() -> None:
    found, made = trials(Styled(["apart"] * 2, [1] * 2, [False] * 2, [("g1", "plain", 0)], [4, 4, 4]).model())
    assert made == 2
    assert found["ns/g0"].fits
    assert not found["ns/g1"].fits


def test_groups_that_demand_different_things_are_tried_each() -> None:
    """On the node of the other zone stands somebody else, who leaves no room."""
    found, made = trials(Styled(["plain", "spread"], [1] * 2, [False] * 2, [("x", "plain", 1)], [3, 1]).model())
    assert made == 2
    assert found["ns/g0"].fits
    assert not found["ns/g1"].fits


def test_what_a_role_may_have_at_most_tells_groups_apart() -> None:
    def role(most: int) -> SubGroup:
        return SubGroup(name="w", min_member=1, max_member=most)

    model = world(queue("default"), node("n0", "2"))
    for name, most in (("few", 2), ("all", 3)):
        one = group(name, 3)
        one.spec.sub_groups = (role(most),)
        model.apply(Upsert(one))
        for at in range(3):
            model.apply(Upsert(pod(f"{name}-{at}", of=name, role="w")))
    found, _ = trials(model)
    assert not found["ns/all"].fits
    assert found["ns/few"].fits  # two of its pods have a place, and the third is not known yet
