"""How many pods the simulator lets a PodDisruptionBudget give, against the rule of Kubernetes' controller."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kbatch.api.objects import LabelSelector, Metadata, Pod, PodDisruptionBudget, PodDisruptionBudgetSpec
from kbatch.simulator.controllers import with_allowance
from tests.unit.engine.worlds import pod

SIZES = st.integers(0, 5) | st.sampled_from(["0%", "25%", "50%", "100%"])


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    found = pod("p", owner=draw(st.sampled_from(["", "rs"])), labels={"app": draw(st.sampled_from("aab"))})
    phase = draw(st.sampled_from(["Running", "Running", "Pending", "Succeeded"]))
    leaving = draw(st.sampled_from([None, None, "2026-01-01T00:00:00Z"]))
    meta = replace(found.metadata, deletion_timestamp=leaving)
    return replace(found, metadata=meta, status=replace(found.status, phase=phase))


@settings(deadline=None)
@given(st.lists(pods(), max_size=8), st.booleans(), SIZES)
def test_a_budget_gives_what_the_controller_would_allow(found: list[Pod], least: bool, size: int | str) -> None:
    spec = PodDisruptionBudgetSpec(
        selector=LabelSelector(match_labels={"app": "a"}),
        min_available=size if least else None,
        max_unavailable=None if least else size,
    )
    budget = PodDisruptionBudget(metadata=Metadata(name="b", namespace="ns"), spec=spec)
    guarded = [
        each for each in found
        if (each.metadata.labels or {}).get("app") == "a" and each.metadata.deletion_timestamp is None
        and each.status.phase != "Succeeded"
    ]  # fmt: skip
    healthy = sum(each.status.phase == "Running" for each in guarded)
    # A number of pods that must be there needs no controller; anything else is a part of what controllers keep.
    expected = len(guarded)
    if not (least and isinstance(size, int)):
        expected = sum(bool(each.metadata.owner_references) for each in guarded)
    amount = size if isinstance(size, int) else -(-int(size[:-1]) * expected // 100)
    desired = amount if least else max(0, expected - amount)
    allowed = max(0, healthy - desired) if expected else 0
    status = with_allowance(budget, found).status
    assert status is not None
    assert status.disruptions_allowed == allowed
