"""Whole simulated runs, recorded and decided again: every decision alike, wherever a log begins."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.api.configuration import parse
from kbatch.closed_loop.comparison import compare
from kbatch.closed_loop.history import read_history
from kbatch.decisions.replay import replay
from kbatch.engine import build_policy
from kbatch.simulator.run import Limits
from kbatch.times import SECOND
from tests.examples import examples
from tests.property.test_simulator import PLAIN, SHIPPED, inputs
from tests.unit.decisions.hearing import TEXT
from tests.unit.decisions.recorded_run import record

POLICIES = {"default": TEXT, "shipped": SHIPPED, "plain": PLAIN}
LIMITS = Limits(max_cycles=200, until=600 * SECOND)


@settings(max_examples=examples(25), deadline=None)
@given(inputs(), st.sampled_from(sorted(POLICIES)), st.integers(1, 40))
def test_a_recorded_run_is_decided_again_alike(documents: list[Any], policy: str, cycles_per_log: int) -> None:
    logs, result = record(documents, POLICIES[policy], LIMITS, cycles_per_log)
    redecided = [one for log in logs for one in replay(log)]
    assert [one for one in redecided if one.difference is not None] == []
    assert len(redecided) >= result.cycle_count // 2


@settings(max_examples=examples(15), deadline=None)
@given(inputs(), st.sampled_from(sorted(POLICIES)))
def test_the_same_policy_gives_the_recorded_starts(documents: list[Any], policy: str) -> None:
    (log, *_), _ = record(documents, POLICIES[policy], LIMITS)
    found = compare(read_history(log), build_policy(parse(POLICIES[policy], policy)))
    assert [(one.group, one.new) for one in found.starts] == [(one.group, one.recorded) for one in found.starts]
    assert (found.new.evictions, found.new.wasted) == (found.recorded.evictions, found.recorded.wasted)
    assert found.new.held.keys() == found.recorded.held.keys()
