"""A group that failed says with numbers what of its minimum it had."""

from __future__ import annotations

from operators.podgroup.reconcile import observe, reconcile
from tests.unit.podgroup.build import NOW, group, index, job, pod


def test_what_has_succeeded_counts_in_why_a_group_failed() -> None:
    one = group(minimum=3, phase="Running", owner="j")
    seen = index(
        job(ended="Failed"), pod("a", "Succeeded", node="n"), pod("b", "Succeeded", node="n"), pod("c", "Failed")
    )
    (failed,) = reconcile(one, observe(seen, one), NOW).conditions
    assert (failed.type, failed.status, failed.reason) == ("Failed", "True", "MinimumUnattainable")
    assert failed.message == "2 pods run or succeeded, 3 needed, and no more will be made"
