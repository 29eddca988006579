from typing import Any

import pytest
from msgspec.structs import replace

from kbatch.api.names import IN_QUEUE_GATE
from kbatch.api.objects import (
    Condition,
    Job,
    JobSpec,
    Metadata,
    Pod,
    PodGroup,
    PodTemplate,
    ResourceQuota,
    ResourceQuotaSpec,
    SchedulingGate,
    SubGroup,
)
from kbatch.api.reasons import QuotaExceeded
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from kbatch.times import SECOND
from tests.unit.engine.worlds import (
    EPOCH,
    EVERYTHING,
    Simulation,
    group,
    members,
    node,
    pod,
    policy,
    queue,
    run,
    stamp,
    world,
)

ALL = policy(EVERYTHING)
HELD = {"kbatch.dev/suspended": "true"}
"""kbatch suspended the Job, and resumes it."""


def test_room_is_promised_once() -> None:
    found = run(
        world(
            queue(), node("n1", "4"),
            [group("a", min_resources={"cpu": "3"}), group("b", at=1, min_resources={"cpu": "3"})],
            group("c", at=2, min_resources={"cpu": "1"}),
        ),
        ALL,
    )  # fmt: skip
    assert [found.verdicts[f"ns/{name}"].enqueued for name in "abc"] == [True, False, True]
    assert found.reason("b") == "WaitingInQueue"
    assert found.reason("a") == "NotEnoughTasks"


def test_a_reservation_lasts_and_ends_with_the_time_out() -> None:
    sim = Simulation(
        world(queue(), node("n1", "4"), group("a", min_resources={"cpu": "3"}, schedule_timeout_seconds=5)),
    )
    sim.cycle()
    sim.model.apply(Upsert(group("b", at=2, min_resources={"cpu": "3"})))
    sim.now = 4
    assert sim.cycle().verdicts["ns/b"].enqueued is False
    assert sim.last.outcome is not None
    assert sim.last.outcome.next_wake is not None
    sim.now = 5
    found = sim.cycle()
    assert found.verdicts["ns/a"].enqueued is False
    assert found.verdicts["ns/a"].attempts == 1
    assert found.verdicts["ns/b"].enqueued is True


def test_who_waits_for_a_quota_is_told_of_that_of_the_own_namespace() -> None:
    def quota(namespace: str, cpu: str) -> ResourceQuota:
        hard = ResourceQuotaSpec(hard={"requests.cpu": cpu})
        return ResourceQuota(metadata=Metadata(name=f"of-{namespace}", namespace=namespace, uid=namespace), spec=hard)

    groups: list[PodGroup] = []
    for at, (namespace, asked) in enumerate([("a", "5"), ("b", "7"), ("a", "5"), ("b", "8"), ("a", "6")]):
        groups.append(group(f"g{at}", at=at, min_resources={"cpu": asked}))
        groups[-1].metadata.namespace = namespace
    sim = Simulation(world(queue(), node("n1", "99"), quota("a", "4"), quota("b", "6"), groups))
    for less in (0, 0, 1):  # from the third cycle on all of them stand in the backlog, as their statuses stay the same
        sim.model.apply(Upsert(quota("a", str(4 - less))))
        sim.model.apply(Upsert(quota("b", str(6 - less))))
        told = {key: verdict.reason for key, verdict in sim.cycle().verdicts.items()}
        assert {
            key: (why.quota, why.asked, why.hard) for key, why in told.items() if isinstance(why, QuotaExceeded)
        } == {
            "a/g0": ("of-a", 5000, 4000 - 1000 * less),
            "b/g1": ("of-b", 7000, 6000 - 1000 * less),
            "a/g2": ("of-a", 5000, 4000 - 1000 * less),
            "b/g3": ("of-b", 8000, 6000 - 1000 * less),
            "a/g4": ("of-a", 6000, 4000 - 1000 * less),
        }
        sim.now += 60


def test_quota_and_capability_hold_a_group_back() -> None:
    quota = ResourceQuota(
        metadata=Metadata(name="q", namespace="ns", uid="q"), spec=ResourceQuotaSpec(hard={"requests.cpu": "4"})
    )
    groups = [group("a", min_resources={"cpu": "3"}), group("b", at=1, min_resources={"cpu": "2"})]
    found = run(world(queue(), node("n1", "8"), quota, groups), ALL)
    assert found.verdicts["ns/a"].enqueued
    assert found.reason("b") == "QuotaExceeded"
    found = run(world(queue(capability={"cpu": "4"}), node("n1", "8"), groups), ALL)
    assert found.verdicts["ns/a"].enqueued
    assert found.reason("b") == "QueueCapabilityExceeded"


def test_templates_stand_for_min_resources() -> None:
    template = pod("x", "3", of="a")
    job = Job(
        metadata=Metadata(name="j", namespace="ns", annotations=HELD),
        spec=JobSpec(parallelism=2, suspend=True, template=PodTemplate(metadata=template.metadata, spec=template.spec)),
    )
    for cpu, enters in (("6", True), ("5", False)):
        found = run(world(queue(), node("n1", cpu), group("a", 2), job), ALL)
        assert found.verdicts["ns/a"].enqueued is enters
    found = run(world(queue(), node("n1"), group("a", 2)), ALL)
    assert found.reason("a") == "NotEnoughTasks"


def test_a_gang_that_the_cluster_cannot_hold_says_what_could_be_placed() -> None:
    found = run(
        world(
            queue(), node("n1", "10"), group("big", 3), members("big", 3, "4"), group("s", at=1), members("s", 1, "3")
        ),
        ALL,
    )
    assert list(found.binds) == ["s-0"]
    assert found.reason("big") == "NotEnoughResources"
    assert "2" in str(found.verdicts["ns/big"].reason)


def test_pods_without_requests_count_towards_a_gang_and_the_others_are_filled_in() -> None:
    sim = Simulation(
        world(
            queue(), node("n1", "1"), group("g", 3),
            [pod("g-0", "1", of="g"), *(pod(f"g-{i}", "0", of="g") for i in range(1, 5))],
        )
    )  # fmt: skip
    sim.run(2)
    assert len(sim.running("g")) == 5


def test_a_group_that_no_empty_cluster_holds_stays_out_and_keeps_no_room() -> None:
    found = run(
        world(
            queue(), [node(f"n{at}", "32") for at in range(4)],
            group("large", 3), members("large", 3, "40"), group("small", 3, at=1, min_resources={"cpu": "96"}),
        ),
        ALL,
    )  # fmt: skip
    assert not found.verdicts["ns/large"].enqueued
    assert found.verdicts["ns/large"].pods_unschedulable
    assert found.verdicts["ns/small"].enqueued
    reason = found.verdicts["ns/large"].reason
    assert reason is not None
    assert reason.message.startswith(
        "0 of 3 pods would fit the cluster even without kbatch's other pods; short of 8 cpu"
    )


def test_a_template_that_no_node_holds_keeps_its_group_out() -> None:
    model = world(queue(), [node(f"n{at}", "32") for at in range(4)], group("large", 3))
    template = PodTemplate(
        metadata=Metadata(annotations={"scheduling.k8s.io/group-name": "large"}), spec=pod("t", "40").spec
    )
    meta = Metadata(name="j", namespace="ns", annotations=HELD)
    job = Job(metadata=meta, spec=JobSpec(suspend=True, parallelism=3, template=template))
    model.apply(Upsert(job))
    found = run(model, ALL)
    assert not found.verdicts["ns/large"].enqueued
    assert found.reason("large") == "NotEnoughResources"


def test_what_a_cluster_is_too_small_by_is_counted_without_our_pods() -> None:
    found = run(
        world(
            queue(), [node(f"n{at}", "32") for at in range(3)], group("a", 2), members("a", 2, on="n0"),
            group("b", 4, at=1), members("b", 4, "30"),
        ),
        ALL,
    )  # fmt: skip
    reason = found.verdicts["ns/b"].reason
    assert reason is not None
    assert reason.message.startswith(
        "3 of 4 pods would fit the cluster even without kbatch's other pods; short of 24 cpu; "
        "beside them 0/3 nodes fit: 3 insufficient cpu"
    )


def test_a_template_that_cannot_be_read_stops_nobody() -> None:
    unreadable = PodTemplate(
        metadata=Metadata(annotations={"scheduling.k8s.io/group-name": "b"}),
        spec=pod("t", "two").spec,
    )
    roles = group("a", 2)
    template = {"spec": {"containers": [{"name": "m", "resources": {"requests": {"cpu": "{{ size }}"}}}]}}
    roles.spec.sub_groups = (SubGroup(name="w", min_member=2, template=template),)
    meta = Metadata(name="j", namespace="ns", annotations=HELD)
    job = Job(metadata=meta, spec=JobSpec(suspend=True, template=unreadable))
    found = run(world(queue(), node("n1"), roles, group("b"), job, group("c", at=1), pod("c-0", of="c")), ALL)
    assert found.binds == {"c-0": "n1"}
    assert (found.reason("a"), found.reason("b")) == ("NotEnoughTasks", "NotEnoughTasks")


MIXED = ("3", "1", "1", "1")
"""The oldest three of these ask for 5 CPU, the smallest three for 3."""


def mixed(name: str, **more: Any) -> list[Pod]:
    return [pod(f"{name}-{index}", cpu, of=name, **more) for index, cpu in enumerate(MIXED)]


def held_job(name: str, count: int, cpu: str, of: str) -> Job:
    template = PodTemplate(metadata=Metadata(annotations={"scheduling.k8s.io/group-name": of}), spec=pod("t", cpu).spec)
    meta = Metadata(name=name, namespace="ns", uid=name, annotations=HELD)
    return Job(metadata=meta, spec=JobSpec(suspend=True, parallelism=count, template=template))


@pytest.mark.parametrize(("cpu", "hard"), [("4", "64"), ("64", "4")], ids=["room", "capability"])
def test_a_group_comes_in_queue_whose_smaller_pods_fit(cpu: str, hard: str) -> None:
    found = run(world(queue(capability={"cpu": hard}), node("n1", cpu), group("g", 3), mixed("g")), ALL)
    assert found.verdicts["ns/g"].enqueued
    assert list(found.binds) == ["g-1", "g-2", "g-3"]
    assert run(world(queue(), node("n1", "2"), group("g", 3), mixed("g")), ALL).verdicts["ns/g"].enqueued is False


def test_the_gate_of_kbatch_keeps_no_group_of_smaller_pods_out() -> None:
    gates = (SchedulingGate(name=IN_QUEUE_GATE),)
    found = run(world(queue(), node("n1", "4"), group("g", 3), mixed("g", scheduling_gates=gates)), ALL)
    assert found.verdicts["ns/g"].enqueued


def test_each_role_asks_at_least_for_its_own_smallest_pods() -> None:
    def world_of(cpu: str) -> ClusterModel:
        return world(
            queue(), node("n1", cpu), group("g", 2, roles={"a": 1, "b": 1}),
            [pod("a-0", "4", of="g", role="a"), pod("a-1", "3", of="g", role="a", at=1)],
            [pod("b-0", "2", of="g", role="b"), pod("b-1", "1", of="g", role="b", at=1)],
        )  # fmt: skip

    assert sorted(run(world_of("4"), ALL).binds) == ["a-1", "b-1"]
    assert run(world_of("3"), ALL).verdicts["ns/g"].enqueued is False


def test_what_a_group_in_queue_may_use_is_kept_for_it() -> None:
    """5 CPU hold the group's oldest pods: who comes after it is not promised 2 of them, as the smallest would leave."""
    sim = Simulation(world(queue(), node("n1", "5"), group("g", 3), mixed("g"), group("h", 2, at=1)))
    sim.model.apply(Upsert(held_job("h", 2, "1", "h")))
    found = sim.cycle()
    assert found.reason("h") == "WaitingInQueue"
    assert sorted(found.binds) == ["g-0", "g-1", "g-2"]


def test_a_group_that_took_less_than_was_kept_for_it_leaves_the_rest_to_others() -> None:
    sim = Simulation(world(queue(), node("n1", "4"), group("g", 3), mixed("g"), group("h", at=1)))
    sim.model.apply(Upsert(held_job("h", 1, "1", "h")))
    assert sim.cycle().verdicts["ns/h"].enqueued is False
    assert sim.running("g") == ["g-1", "g-2", "g-3"]
    assert sim.cycle().verdicts["ns/h"].enqueued


def test_of_several_jobs_the_smaller_pods_may_make_up_the_minimum() -> None:
    """Both Jobs are resumed with the group; that the first Job's pod fits no node keeps the second's from nothing."""
    model = world(queue(), node("n1", "4"), group("g", 3))
    for job in (held_job("a", 1, "6", "g"), held_job("b", 3, "1", "g")):
        model.apply(Upsert(job))
    assert run(model, ALL).verdicts["ns/g"].enqueued


def test_nobody_grows_old_enough_to_come_in_while_room_gathers_for_a_group_in_queue() -> None:
    sim = Simulation(
        world(
            queue(), node("n1", "4"), pod("x", on="n1"),
            group("aged", 4), members("aged", 4), group("later", 4, at=100), members("later", 4),
        ),
        ALL,
    )  # fmt: skip
    sim.now = 600
    assert sim.cycle().verdicts["ns/aged"].enqueued
    sim.now = 699
    sim.cycle()
    assert sim.last.outcome is not None
    assert sim.last.outcome.state.gathered is not None
    assert sim.last.outcome.next_wake != EPOCH + 700 * SECOND
    for now in (700, 5000):
        sim.now = now
        assert not sim.cycle().verdicts["ns/later"].enqueued
    sim.model.apply(Delete(PodGroup, "ns", "aged"))
    for index in range(4):
        sim.model.apply(Delete(Pod, "ns", f"aged-{index}"))
    assert sim.cycle().verdicts["ns/later"].enqueued


def _templated(minimum: int, count: int) -> PodGroup:
    made = group("g", minimum)
    template = {"spec": {"containers": [{"name": "m", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}
    made.spec.sub_groups = (SubGroup(name="w", min_member=count, max_member=count, template=template),)
    return made


def test_what_templates_make_need_not_be_created() -> None:
    """minMember is above what the templates make: two pods are what lacks, if the role may have them."""

    def said(most: int | None) -> str:
        made = _templated(5, 3)
        made.spec.sub_groups = tuple(replace(role, max_member=most) for role in made.spec.sub_groups or ())
        reason = run(world(queue(), node("n1", "9"), made), ALL).verdicts["ns/g"].reason
        assert reason is not None
        return reason.message.removeprefix("0 of 5 pods exist, and 3 more are to be made; ")

    assert said(None) == "create 2 more, or lower minMember"
    assert said(3) == "its roles may have 3 pods in all: raise maxMember, or lower minMember"


def test_of_templates_of_which_no_pod_can_be_made_it_is_not_said_that_pods_are_to_be_created() -> None:
    made = _templated(3, 3)
    made.status.conditions = (
        Condition(type="Enqueued", status="True", reason="Admitted", last_transition_time=stamp(0)),
        Condition(type="Stalled", status="True", reason="Invalid", last_transition_time=stamp(1)),
    )
    reason = run(world(queue(), node("n1", "9"), made), ALL, now=2).verdicts["ns/g"].reason
    assert reason is not None
    assert reason.message == "0 of 3 pods of role w exist; more cannot be made: see the condition Stalled"


def test_nobody_is_told_to_create_pods_that_are_all_to_be_made() -> None:
    reason = run(world(queue(), node("n1", "9"), _templated(3, 3)), ALL).verdicts["ns/g"].reason
    assert reason is not None
    assert reason.message == (
        "0 of 3 pods of role w exist, and 3 more are to be made; "
        "if they are not, Events of their Job or of the group say why"
    )


@pytest.mark.parametrize("count", [1, 2])
def test_nothing_is_kept_for_a_group_in_queue_that_no_arrangement_could_hold(count: int) -> None:
    """Its pods ask for more than it has said, as those of a RuntimeClass with an overhead do."""
    sim = Simulation(world(queue(), node("n1", "8"), node("n2", "8"), group("a", count, min_resources={"cpu": "14"})))
    assert sim.cycle().verdicts["ns/a"].enqueued
    sim.model.apply(Upsert(group("b", 1, at=1, min_resources={"cpu": "4"})))
    sim.now = 1
    assert sim.cycle().verdicts["ns/b"].enqueued is False
    for one in members("a", count, "9"):
        sim.model.apply(Upsert(one))
    sim.now = 2
    found = sim.cycle()
    assert found.verdicts["ns/a"].enqueued, "it stays in queue: nodes may come"
    assert found.verdicts["ns/b"].enqueued
    for sim.now in (3, 4, 5):  # nothing changes of it: one of a single pod rests
        sim.model.apply(Upsert(group(f"x{sim.now}", 1, at=2, min_resources={"cpu": "16"})))
        sim.cycle()
    sim.model.apply(Upsert(group("c", 1, at=2, min_resources={"cpu": "10"})))
    sim.now = 6
    assert sim.cycle().verdicts["ns/c"].enqueued
