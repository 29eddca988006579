from kbatch.api.objects import Job, JobSpec, Metadata, PodTemplate, ResourceQuota, ResourceQuotaSpec, SubGroup
from kbatch.model.events import Upsert
from tests.unit.engine.worlds import EVERYTHING, Simulation, group, members, node, pod, policy, queue, run, world

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
