"""Members that failed, with no replacements left: what is made again all the same counts."""

from __future__ import annotations

from kbatch.api.names import REPLACED_ANNOTATION
from kbatch.api.objects import OwnerReference, Pod, PodCondition, PodGroup, PodGroupSpec, SubGroup
from kbatch.model.members import State, plan
from kbatch.model.phase import Phase
from operators.podgroup.reconcile import observe, reconcile
from tests.unit.podgroup.build import NOW, condition, group, index, pod

TEMPLATE = {"spec": {"containers": [{"name": "c"}]}}


def of_template(one: Pod) -> Pod:
    one.metadata.owner_references = (OwnerReference(kind="PodGroup", name="pg", uid="g", controller=True),)
    return one


def elastic(*, suspend: bool = False) -> PodGroup:
    of = group(2, phase="Running", conditions=(condition("Enqueued"), condition("Scheduled")))
    of.metadata.annotations = {REPLACED_ANNOTATION: "6"}
    role = SubGroup(name="w", min_member=2, max_member=4, template=TEMPLATE)
    of.spec = PodGroupSpec(min_member=2, sub_groups=(role,), suspend=suspend)
    return of


def failed(number: int) -> Pod:
    return of_template(pod(f"pg-w-{number}", "Failed", node="n", role="w"))


def phase(of: PodGroup, *pods: Pod) -> str:
    return reconcile(of, observe(index(of, *pods), of), NOW).phase


def test_before_the_dip_it_runs() -> None:
    pods = [of_template(pod(f"pg-w-{i}", "Running", node="n", role="w")) for i in (0, 1)]
    assert phase(elastic(), *pods, failed(2)) == "Running"


def test_a_drained_node_takes_a_member_of_the_minimum_which_the_operator_would_make_again() -> None:
    of = elastic()
    pods = [
        of_template(pod("pg-w-0", "Running", node="n", role="w")),
        of_template(pod("pg-w-1", "Running", node="n", role="w", leaving=True)),
    ]
    # what the plan would do once the pod is gone: make pg-w-1 again, at no retry
    wanted = plan("pg", of.spec, {"pg-w-0": State.PLACED, "pg-w-2": State.FAILED}, Phase.RUNNING, retries=0)
    assert ("w", 1) in wanted.create
    assert phase(of, *pods, failed(2)) != "Failed"


def test_suspended_by_its_user() -> None:
    of = elastic(suspend=True)
    pods = [of_template(pod(f"pg-w-{i}", "Running", node="n", role="w", leaving=True)) for i in (0, 1)]
    assert phase(of, *pods, failed(2)) != "Failed"


def test_sent_back_to_wait_or_evicted_whole() -> None:
    of = elastic()
    of.status.conditions = (condition("Enqueued", "False"), condition("Scheduled", "False"))
    assert phase(of, failed(2)) != "Failed"


def test_a_member_of_the_minimum_that_failed_is_made_no_more() -> None:
    assert phase(elastic(), of_template(pod("pg-w-0", "Running", node="n", role="w")), failed(1)) == "Failed"


def runs(number: int, *, leaving: bool = False) -> Pod:
    return of_template(pod(f"pg-w-{number}", "Running", node="n", role="w", leaving=leaving))


def of_three_or_four() -> PodGroup:
    of = elastic()
    role = SubGroup(name="w", min_member=3, max_member=4, template=TEMPLATE)
    of.spec = PodGroupSpec(min_member=3, sub_groups=(role,))
    return of


def test_the_last_replacement_counts_until_it_is_there() -> None:
    of = of_three_or_four()
    assert phase(of, runs(2), runs(3), failed(1)) == "Running", "pg-w-0 failed, was deleted, and is made again"
    assert phase(of, runs(0, leaving=True), runs(2), runs(3), failed(1)) == "Running"
    assert phase(of, failed(0), runs(2), runs(3), failed(1)) == "Failed"
    assert phase(of, runs(3), failed(1), failed(2)) == "Failed", "not even with it"


def test_a_group_that_has_failed_stays_so_while_its_pods_go() -> None:
    of = of_three_or_four()
    of.status.phase = "Failed"
    assert phase(of, runs(2), runs(3), failed(1)) == "Failed"
    assert phase(of, runs(2), runs(3, leaving=True), failed(1)) == "Failed"


def test_a_member_that_others_have_ended_is_made_again_beside_one_that_failed_for_good() -> None:
    of = of_three_or_four()
    lost = failed(0)
    lost.status.conditions = (PodCondition(type="DisruptionTarget", status="True"),)
    assert phase(of, lost, failed(1), runs(2), runs(3)) == "Running"
