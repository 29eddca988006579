"""Decision logs of simulated runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from unittest import mock

from kbatch.api.configuration import parse
from kbatch.decisions.recording import RecordedModel, Recorder
from kbatch.decisions.records import PolicyText
from kbatch.engine import Snapshot, build_policy, cycle
from kbatch.model.cluster import ClusterModel
from kbatch.simulator import run, store
from kbatch.simulator.documents import Document
from kbatch.simulator.errors import Place
from kbatch.simulator.manifests import from_documents
from kbatch.simulator.result import Result
from tests.unit.decisions.hearing import MemorySink


def record(
    documents: Iterable[Any], text: str, limits: run.Limits | None = None, most: int = 10_000
) -> tuple[list[list[bytes]], Result]:
    """Simulate manifests under the policy of a text; the logs, of `most` cycles each, and what it came to."""
    sink = MemorySink(most=most)
    recorders: list[Recorder] = []

    def model(*arguments: Any) -> ClusterModel:
        made = RecordedModel(*arguments)
        recorders.append(Recorder(made, lambda: PolicyText(text, "test"), sink))
        return made

    def decide(snapshot: Snapshot, *arguments: Any) -> Any:
        # As a scheduler takes it: the simulator wants no numbers told again.
        return recorders[-1].deciding(cycle)(replace(snapshot, numbers_current=True), *arguments)

    manifests = from_documents(Document(Place("input", number), each) for number, each in enumerate(documents, start=1))
    with mock.patch.object(store, "ClusterModel", model), mock.patch.object(run, "cycle", decide):
        result = run.simulate(manifests, build_policy(parse(text, "test")), limits)
    return sink.logs, result
