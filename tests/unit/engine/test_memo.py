"""What failed is not tried again until something could help it; what is said of it describes one state."""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

import pytest

from kbatch.api.objects import (
    Affinity,
    LabelSelector,
    Node,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodStatus,
    TopologySpreadConstraint,
)
from kbatch.api.reasons import ClusterTooSmall, NotEnoughResources
from kbatch.engine import Memo
from kbatch.engine.placement import gang
from kbatch.engine.placement.feasibility import Feasibility
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from kbatch.times import SECOND
from tests.unit.engine.worlds import EPOCH, Decisions, group, members, node, pod, policy, queue, run, world

ZONE = "zone"
_ALLOCATE = sys.modules["kbatch.engine.actions.allocate"]
"""The module: the package shows the action of that name in its place."""
_RECLAIM = sys.modules["kbatch.engine.actions.reclaim"]
RECLAIM = """
actions: "reclaim, allocate"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: proportion}]
"""


def apart(app: str) -> Affinity:
    term = PodAffinityTerm(topology_key=ZONE, label_selector=LabelSelector(match_labels={"app": app}))
    return Affinity(pod_anti_affinity=PodAffinity(required=(term,)))


def beside(app: str) -> Affinity:
    term = PodAffinityTerm(topology_key=ZONE, label_selector=LabelSelector(match_labels={"app": app}))
    return Affinity(pod_affinity=PodAffinity(required=(term,)))


def spread(app: str) -> tuple[TopologySpreadConstraint, ...]:
    return (
        TopologySpreadConstraint(
            max_skew=1, topology_key=ZONE, when_unsatisfiable="DoNotSchedule",
            label_selector=LabelSelector(match_labels={"app": app}),
        ),
    )  # fmt: skip


def nodes() -> list[Any]:
    return [node("n1", "4", labels={ZONE: "a"}), node("n2", "1", labels={ZONE: "b"})]


def counted(model: ClusterModel, memo: Memo, now: int = 0) -> tuple[Decisions, int]:
    """A cycle, and how many minimums it tried to place."""
    with mock.patch.object(_ALLOCATE, "placing", side_effect=gang.placing) as placing:
        found = run(model, policy(), now=now, memo=memo)
    return found, placing.call_count


def memo_of(found: Decisions) -> Memo:
    assert found.outcome is not None
    return found.outcome.memo


@pytest.mark.parametrize("how", ["apart", "beside", "spread", "unlike"])
def test_a_group_whose_pods_look_at_others_is_not_tried_again_until_something_on_the_nodes_changes(how: str) -> None:
    every: dict[str, dict[str, Any]] = {
        "apart": {"affinity": apart("g")}, "beside": {"affinity": beside("other")},
        "spread": {"topology_spread_constraints": spread("g")}, "unlike": {},
    }  # fmt: skip
    wants = every[how]
    cpus = ["3", "2"] if how == "unlike" else ["1"] * (4 if how == "spread" else 3)
    pods = [pod(f"g-{at}", cpu, of="g", labels={"app": "g"}, **wants) for at, cpu in enumerate(cpus)]
    model = world(queue(), nodes(), group("g", len(pods)), pods)
    first, tries = counted(model, Memo())
    assert tries == 1
    said = first.verdicts["ns/g"].reason
    assert isinstance(said, NotEnoughResources)

    model.apply(Upsert(group("unrelated", 2, at=5)))
    model.apply(Upsert(pod("gated", of="unrelated", at=5)))
    again, tries = counted(model, memo_of(first))
    assert tries == 0, "nothing has happened that could help"
    assert again.verdicts["ns/g"].reason == said

    model.apply(Upsert(pod("stands", "0", on="n1", scheduler="another", labels={"app": "other"})))
    after, tries = counted(model, memo_of(again))
    assert tries == 1, "who stands where has changed"
    assert after.verdicts["ns/g"].reason == run(model, policy()).verdicts["ns/g"].reason


def test_a_pod_that_comes_to_stand_somewhere_lets_those_follow_that_must_be_beside_it() -> None:
    model = world(queue(), nodes(), group("g", 2), members("g", 2, affinity=beside("db"), labels={"app": "g"}))
    first, _ = counted(model, Memo())
    assert not first.binds
    assert not first.verdicts["ns/g"].scheduled
    model.apply(Upsert(pod("db", "0", on="n1", scheduler="another", labels={"app": "db"})))
    second, _ = counted(model, memo_of(first))
    assert second.binds == {"g-0": "n1", "g-1": "n1"}


def test_a_group_that_wants_to_be_together_is_tried_again_when_more_such_pods_wait() -> None:
    """The first of them goes where most have room: how many wait matters to what fits."""
    pods = members("g", 5, "1", affinity=beside("g"), labels={"app": "g"})
    model = world(queue(), nodes(), group("g", 5), pods)
    first, tries = counted(model, Memo())
    assert (tries, len(first.binds)) == (1, 0)
    model.apply(Upsert(pod("plain", "9", at=9)))
    second, tries = counted(model, memo_of(first))
    assert tries == 0
    model.apply(Upsert(pod("late", "9", at=9, labels={"app": "g"})))
    _, tries = counted(model, memo_of(second))
    assert tries == 1


def test_numbers_describe_the_cluster_as_the_cycle_leaves_it() -> None:
    """`late` is tried before `small` is placed (it is older), and yet its reason counts what `small` has taken."""
    model = world(
        queue(), node("n1", "6"), pod("old", "1", on="n1"), group("late", 2, at=0), members("late", 2, "3"),
        group("small", 1, at=1), pod("small", "1", of="small", at=1),
    )  # fmt: skip
    found = run(model, policy())
    assert found.binds == {"small": "n1"}
    said = found.verdicts["ns/late"].reason
    assert isinstance(said, NotEnoughResources)
    assert (said.placeable, said.missing) == (1, 2000), "of the 4 that small has left one takes 3, so 2 lack"
    _carry_out(model, found)
    assert run(model, policy(), memo=memo_of(found)).verdicts["ns/late"].reason == said


def test_numbers_are_told_again_before_they_are_half_a_minute_old() -> None:
    """A change of what is told besides numbers is told at once; without memory all is told as it is."""
    model = world(
        queue(), node("n1", "4"), node("n2", "4"), *(pod(f"old-{at}", "1", on="n1") for at in range(4)),
        pod("old", "4", on="n2"), group("g", 6), members("g", 6),
    )  # fmt: skip

    def told(memo: Memo, now: int) -> tuple[tuple[int, int], Decisions]:
        found = run(model, policy(), now=now, memo=memo)
        said = found.verdicts["ns/g"].reason
        assert isinstance(said, NotEnoughResources)
        return (said.placeable, said.missing), found

    numbers, found = told(Memo(), 0)
    assert numbers == (0, 6000)
    model.apply(Delete(Pod, "ns", "old-0"))
    numbers, found = told(memo_of(found), 5)
    assert numbers == (0, 6000)
    assert told(Memo(), 5)[0] == (1, 5000)
    assert found.outcome is not None
    assert found.outcome.next_wake == EPOCH + 30 * SECOND
    assert not run(model, policy(), now=29, memo=memo_of(found)).verdicts, "nothing has changed meanwhile"
    numbers, found = told(memo_of(found), 30)
    assert numbers == (1, 5000)
    assert found.outcome is not None
    assert found.outcome.next_wake == EPOCH + 600 * SECOND, "its ageing; the numbers are those of now"
    model.apply(Delete(Node, "", "n2"))
    found = run(model, policy(), now=62, memo=memo_of(found))
    assert isinstance(found.verdicts["ns/g"].reason, ClusterTooSmall)
    model.apply(Upsert(node("n2", "4")))
    found = run(model, policy(), now=63, memo=memo_of(found))
    assert type(found.verdicts["ns/g"].reason) is NotEnoughResources


def test_numbers_of_many_are_told_again_in_parts() -> None:
    """Each second a pod ends; of twelve groups two are told anew in each of the last seconds."""
    groups = [obj for at in range(12) for obj in (group(f"g{at}", at + 20), *members(f"g{at}", at + 20))]
    old = [pod(f"old-{at}", "1", on="n1") for at in range(12)]
    model = world(queue(), node("n1", "12"), node("n2", "40"), pod("other", "40", on="n2"), old, *groups)
    found = run(model, policy(), now=0)
    told = []
    for at, now in enumerate(range(24, 30)):
        model.apply(Delete(Pod, "ns", f"old-{at}"))
        found = run(model, policy(), now=now, memo=memo_of(found))
        reasons = [found.verdicts[f"ns/g{number}"].reason for number in range(12)]
        told.append(sum(1 for each in reasons if isinstance(each, NotEnoughResources) and each.placeable == at + 1))
    assert told == [2] * 6


def _carry_out(model: ClusterModel, found: Decisions) -> None:
    for transaction in found.transactions:
        for bind in transaction.binds:
            old = model.tasks[bind.pod].pod
            assert isinstance(old, Pod)
            done = pod(old.metadata.name, "1", of=old.metadata.name, at=1, on=bind.node)
            done.status = PodStatus(phase="Running", start_time=done.status.start_time)
            model.apply(Upsert(done))


def test_what_did_not_fit_is_tried_again_when_the_queue_asks_for_another_placement() -> None:
    many = 310  # more pods than a search for another arrangement places
    nodes_ = [*(node(f"n{at}", "32", labels={ZONE: "a"}) for at in range(10)), node("o", "32")]
    small = [pod(f"g-s{at}", "100m", of="g", role="small", node_selector={ZONE: "a"}) for at in range(many)]
    large = [pod(f"g-l{at}", "32", of="g", role="large") for at in range(5)]
    made = group("g", many + 5, queue="q", roles={"small": many, "large": 5})
    model = world(queue("q", placement="Spread"), nodes_, made, small, large)
    before = run(model)
    assert not before.binds
    model.apply(Upsert(queue("q", placement="Pack")))
    assert len(run(model, memo=memo_of(before)).binds) == many + 5


def _above_its_share(*waiting: Any) -> ClusterModel:
    """A queue that holds more than its share, of a group that never gives anything, and who waits in another one."""
    running = [pod(f"r-{at}", of="r", on="n3") for at in range(6)]
    large = [group("large", at=9), pod("large", "20", of="large", at=9)]  # fits nowhere, but its queue asks for it
    full = group("r", queue="full", disruption="Never")
    return world(queue(weight=3), queue("full"), nodes(), node("n3", "6"), full, running, large, *waiting)


def _tries(model: ClusterModel, memo: Memo) -> tuple[Decisions, int, int]:
    """A cycle, and how many minimums reclaim and allocate tried to place."""
    with (
        mock.patch.object(_RECLAIM, "placing", side_effect=gang.placing) as aside,
        mock.patch.object(_ALLOCATE, "placing", side_effect=gang.placing) as placing,
    ):
        found = run(model, policy(RECLAIM), memo=memo)
    return found, aside.call_count, placing.call_count


def test_what_was_set_aside_and_given_back_has_changed_nothing() -> None:
    model = _above_its_share(group("g", 2), pod("g-0", "3", of="g"), pod("g-1", "2", of="g"))
    first, aside, tries = _tries(model, Memo())
    assert (aside, tries, first.binds) == (1, 1, {})
    model.apply(Upsert(group("unrelated", 2, at=5)))
    again, aside, tries = _tries(model, memo_of(first))
    assert (aside, tries) == (0, 0), "nothing has happened that could help"
    assert again.verdicts["ns/g"].reason == _tries(model, Memo())[0].verdicts["ns/g"].reason


def test_room_that_was_set_aside_is_not_looked_for_again() -> None:
    model = _above_its_share(*(each for name in "gh" for each in (group(name, 2), *members(name, 2))))
    found, aside, tries = _tries(model, Memo())
    assert (aside, tries) == (2, 0)
    assert len(found.binds) == 4


def test_a_group_like_one_that_was_tried_on_the_emptied_nodes_needs_none_of_these() -> None:
    """They differ in their names and labels alone."""
    model = world(queue(), nodes(), pod("p", "3", on="n1"), group("g", 4), members("g", 4, labels={"app": "g"}))
    ground = "kbatch.engine.placement.feasibility.Feasibility._ground"
    with mock.patch(ground, autospec=True, side_effect=Feasibility._ground) as emptied:
        first, _ = counted(model, Memo())
        assert emptied.call_count == 1
        emptied.reset_mock()
        for one in members("h", 4, labels={"app": "h"}, at=1):
            model.apply(Upsert(one))
        model.apply(Upsert(group("h", 4, at=1)))
        like, _ = counted(model, memo_of(first))
        assert emptied.call_count == 0
        for one in members("s", 4, labels={"app": "s"}, at=2, topology_spread_constraints=spread("s")):
            model.apply(Upsert(one))
        model.apply(Upsert(group("s", 4, at=2)))
        unlike, _ = counted(model, memo_of(like))
        assert emptied.call_count > 0, "its pods look at one another"
    afresh, _ = counted(model, Memo())
    assert like.verdicts["ns/h"].reason == afresh.verdicts["ns/h"].reason
    assert unlike.verdicts["ns/s"].reason == afresh.verdicts["ns/s"].reason
