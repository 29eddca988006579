"""Whole simulated runs, recorded and decided again: every decision alike, wherever a log begins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.api.configuration import parse
from kbatch.decisions.recording import RecordedModel, Recorder
from kbatch.decisions.records import PolicyText
from kbatch.decisions.replay import replay
from kbatch.engine import Snapshot, build_policy, cycle
from kbatch.model.cluster import ClusterModel
from kbatch.simulator import run, store
from kbatch.simulator.documents import Document
from kbatch.simulator.errors import Place
from kbatch.simulator.manifests import from_documents
from kbatch.times import SECOND
from tests.examples import examples
from tests.property.test_simulator import PLAIN, SHIPPED, inputs
from tests.unit.decisions.hearing import TEXT, MemorySink

POLICIES = {"default": TEXT, "shipped": SHIPPED, "plain": PLAIN}


@settings(max_examples=examples(25), deadline=None)
@given(inputs(), st.sampled_from(sorted(POLICIES)), st.integers(1, 40))
def test_a_recorded_run_is_decided_again_alike(documents: list[Any], policy: str, cycles_per_log: int) -> None:
    sink = MemorySink(most=cycles_per_log)
    recorders: list[Recorder] = []

    def model(*arguments: Any) -> ClusterModel:
        made = RecordedModel(*arguments)
        recorders.append(Recorder(made, lambda: PolicyText(POLICIES[policy], policy), sink))
        return made

    def decide(snapshot: Snapshot, *arguments: Any) -> Any:
        # As a scheduler takes it: the simulator wants no numbers told again.
        return recorders[-1].deciding(cycle)(replace(snapshot, numbers_current=True), *arguments)

    manifests = from_documents(Document(Place("input", number), each) for number, each in enumerate(documents, start=1))
    with mock.patch.object(store, "ClusterModel", model), mock.patch.object(run, "cycle", decide):
        result = run.simulate(
            manifests, build_policy(parse(POLICIES[policy], policy)), run.Limits(max_cycles=200, until=600 * SECOND)
        )
    redecided = [one for log in sink.logs for one in replay(log)]
    assert [one for one in redecided if one.difference is not None] == []
    assert len(redecided) >= result.cycle_count // 2
