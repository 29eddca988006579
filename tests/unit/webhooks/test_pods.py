"""What is promised to groups in queue is not used by others."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from kbatch.api.objects import Job, Metadata, Pod, PodGroup, PodSpec, SchedulingGate
from kbatch.kube.informer import Batch
from kbatch.model.events import Delete, Upsert
from kbatch.model.promised import Sums
from kbatch.model.quota import Ask, Subject
from tests.unit.webhooks.build import cores, group, quota
from webhooks.cluster_view import ClusterView
from webhooks.pods import BURST_SECONDS, LONGEST_BURST, Used, eats_into, gated, group_of

TEN = (quota(requests_cpu="10", pods="20"),)


def sums(*asks: Ask) -> Sums:
    made = Sums()
    for ask in asks:
        made.add(ask)
    return made


def eaten(pod: int, *, own: Ask | None = None, others: list[Ask] | None = None, used: int = 0) -> str | None:
    promised = sums(*([cores(6)] if others is None else others), *([] if own is None else [own]))
    reason = eats_into(TEN, cores(pod), own=own, promised=promised, used={"quota": {"requests.cpu": used * 1000}})
    return None if reason is None else f"{reason.asked} {reason.reserved} {reason.used} {reason.hard} {reason.resource}"


def test_what_is_promised_to_nobody_may_be_used() -> None:
    assert eaten(4) is None
    assert eaten(5) == "5000 6000 0 10000 requests.cpu"
    assert eaten(1, used=4) == "1000 6000 4000 10000 requests.cpu"
    assert eaten(3, used=1) is None


def test_without_promises_the_quota_itself_is_enough() -> None:
    assert eaten(11, others=[]) is None


def test_a_group_uses_what_it_was_promised_and_the_rest_like_anybody() -> None:
    assert eaten(2, own=cores(2, 2), used=4) is None
    assert eaten(3, own=cores(2, 2), used=1) is None
    assert eaten(3, own=cores(2, 2), used=2) == "3000 8000 2000 10000 requests.cpu"
    # Others ate the quota already: that is no reason to refuse the group its own.
    assert eaten(2, own=cores(2, 2), used=9) is None


def test_only_what_is_reserved_is_guarded() -> None:
    assert eats_into(TEN, cores(5), own=None, promised=sums(cores(0, 20)), used={}) is not None
    assert eats_into((quota(requests_memory="1Gi"),), cores(5), own=None, promised=sums(cores(6)), used={}) is None
    assert eats_into((quota(requests_cpu="lots"),), cores(5), own=None, promised=sums(cores(6)), used={}) is None


def test_pods_let_through_count_until_the_quota_shows_them() -> None:
    quotas = (quota(requests_cpu="10", used_requests_cpu="2"),)
    used = Used()
    assert used.of(quotas, 0.0)["quota"]["requests.cpu"] == 2000
    for _ in range(3):
        used.let_through(quotas, cores(1), 0.0)
    assert used.of(quotas, 0.5)["quota"]["requests.cpu"] == 5000
    shown = (quota(requests_cpu="10", used_requests_cpu="5"),)
    assert used.of(shown, 0.6)["quota"]["requests.cpu"] == 5000  # not twice
    used.let_through(shown, cores(1), 0.6)
    assert used.of(shown, 0.7)["quota"]["requests.cpu"] == 6000
    assert used.of(quotas, 0.6 + BURST_SECONDS + 0.1)["quota"]["requests.cpu"] == 2000


def test_a_burst_without_end_is_measured_anew() -> None:
    quotas = (quota(requests_cpu="1k", used_requests_cpu="2"),)
    used = Used()
    now = 0.0
    while now <= LONGEST_BURST:
        used.let_through(quotas, cores(1), now)
        now += 0.5
    assert used.of(quotas, now)["quota"]["requests.cpu"] == 2000


def test_the_gate_is_there_once() -> None:
    ours = {"name": "kbatch.dev/in-queue"}
    assert gated(Pod(metadata=Metadata())) == [ours]
    gates = (SchedulingGate(name="a"), SchedulingGate(name=ours["name"]))
    assert gated(Pod(metadata=Metadata(), spec=PodSpec(scheduling_gates=gates))) == [{"name": "a"}, ours]


@pytest.mark.parametrize(("scheduler", "group"), [("kube-batch", "g"), ("other", "")])
def test_pods_of_other_schedulers_are_members_of_nothing(scheduler: str, group: str) -> None:
    body: dict[str, Any] = {
        "metadata": {"annotations": {"scheduling.k8s.io/group-name": "g"}}, "spec": {"schedulerName": scheduler},
    }  # fmt: skip
    assert group_of(msgspec.convert(body, Pod), "kube-batch") == group


def test_what_is_left_of_all_promises_is_kept_up_as_objects_come_and_go() -> None:
    """The sum that is kept equals the one made anew, whatever happened in whatever order."""
    chance = random.Random(7)
    view = ClusterView()

    def one(event: Any) -> None:
        view.receive(Batch((event,), complete=True))

    for _ in range(600):
        name = f"g{chance.randrange(4)}"
        match chance.randrange(5):
            case 0 | 1:
                cpu, phase = str(chance.randrange(1, 9)), chance.choice(["", "InQueue", "Running", "Completed"])
                one(Upsert(group(name, cpu, enqueued=chance.random() < 0.7, phase=phase, minMember=3)))
            case 2:
                one(Delete(PodGroup, "ns", name))
            case 3:
                one(Upsert(member(f"p{chance.randrange(6)}", name, chance.choice(["Pending", "Succeeded"]))))
            case _:
                one(Delete(Pod, "ns", f"p{chance.randrange(6)}"))
        groups = view.groups.get("ns")
        if groups is not None:
            assert groups.promised.total() == sums(*groups.left.values()).total()
            assert set(groups.left) <= {name for name, live in groups.live.items() if live.reserving}


def member(name: str, group: str, phase: str) -> Pod:
    container = {"name": "c", "resources": {"requests": {"cpu": "2"}}}
    return msgspec.convert(
        {
            "metadata": {
                "name": name, "namespace": "ns", "annotations": {"scheduling.k8s.io/group-name": group},
            },
            "spec": {"schedulerName": "kube-batch", "containers": [container]}, "status": {"phase": phase},
        },
        Pod,
    )  # fmt: skip


def test_a_groups_own_pods_are_taken_off_what_it_was_promised() -> None:
    view = ClusterView()

    def see(*objects: Any) -> None:
        view.receive(Batch(tuple(Upsert(one) for one in objects), complete=True))

    see(member("p0", "g", "Pending"), group("g", "6", enqueued=True, minMember=3))
    assert view.groups["ns"].left == {"g": Ask({"cpu": 4000}, {}, 2)}
    see(member("p1", "g", "Pending"), member("p2", "g", "Pending"))
    assert view.groups["ns"].left == {}
    see(member("p2", "g", "Failed"))
    assert view.groups["ns"].left == {"g": Ask({"cpu": 2000}, {}, 1)}
    see(group("g", "6", enqueued=True, phase="Running", minMember=3))
    assert view.groups["ns"].left == {}


def job_for(group: str, pods: int, *, limits: bool = False) -> Job:
    """A Job that names a group: pods of 2 CPU."""
    amounts = {"requests": {"cpu": "2"}, **({"limits": {"cpu": "3"}} if limits else {})}
    template = {
        "metadata": {"annotations": {"scheduling.k8s.io/group-name": group}},
        "spec": {"schedulerName": "kube-batch", "containers": [{"name": "c", "resources": amounts}]},
    }
    spec = {"parallelism": pods, "completions": pods, "template": template}
    return msgspec.convert({"metadata": {"name": f"{group}-job", "namespace": "ns", "uid": "j"}, "spec": spec}, Job)


def test_what_follows_from_the_jobs_that_name_a_group_is_promised_until_their_pods_exist() -> None:
    """Held or released: the group was made first, and says nothing of resources."""
    view = ClusterView()

    def see(*objects: Any) -> None:
        view.receive(Batch(tuple(Upsert(one) for one in objects), complete=True))

    see(group("g", enqueued=True, minMember=3), job_for("g", 3, limits=True))
    assert view.groups["ns"].left == {"g": Ask({"cpu": 6000}, {"cpu": 9000}, 3)}
    assert view.groups["ns"].sums.total() == Ask({}, {}, 3), "admission holds nobody to what came after him"
    see(member("p0", "g", "Pending"))
    assert view.groups["ns"].left == {"g": Ask({"cpu": 4000}, {"cpu": 9000}, 2)}
    see(job_for("g", 3))
    assert view.groups["ns"].left == {"g": Ask({"cpu": 4000}, {}, 2)}
    see(member("p1", "g", "Pending"), member("p2", "g", "Pending"))
    assert view.groups["ns"].left == {}
    see(group("other", enqueued=True, minMember=2))
    assert view.groups["ns"].left == {"other": Ask({}, {}, 2, Subject(best_effort=True))}
    see(job_for("other", 2))
    assert view.groups["ns"].left == {"other": Ask({"cpu": 4000}, {}, 2)}
    view.receive(Batch((Delete(Job, "ns", "other-job"), Delete(PodGroup, "ns", "g")), complete=True))
    assert view.groups["ns"].left == {"other": Ask({}, {}, 2, Subject(best_effort=True))}


def test_members_that_have_succeeded_have_had_their_part_of_what_was_promised() -> None:
    """They are not made again: the quota counts them no more, and nothing is kept for them."""
    view = ClusterView()
    done = [member(f"p{number}", "g", "Succeeded") for number in range(2)]
    seen: list[Any] = [group("g", enqueued=True, minMember=3), job_for("g", 3), *done]
    view.receive(Batch(tuple(Upsert(one) for one in seen), complete=True))
    assert view.groups["ns"].left == {"g": Ask({"cpu": 2000}, {}, 1)}
    view.receive(Batch((Upsert(member("p0", "g", "Failed")),), complete=True))
    assert view.groups["ns"].left == {"g": Ask({"cpu": 4000}, {}, 2)}
