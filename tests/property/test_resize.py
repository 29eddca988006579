"""A pod that is resized in place holds the most of what it asks for, what is allocated, and what is in force."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.api.objects import Pod
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Upsert
from tests.examples import examples
from tests.unit.engine.worlds import node

amounts = st.none() | st.integers(0, 8)


def pod_of(states: list[tuple[int | None, int | None, int | None]], infeasible: bool, on: str) -> Pod:
    containers: list[dict[str, Any]] = []
    statuses: list[dict[str, Any]] = []
    for at, (asked, allocated, actual) in enumerate(states):
        containers.append({"name": f"c{at}"})
        if asked is not None:
            containers[-1]["resources"] = {"requests": {"cpu": str(asked)}}
        statuses.append({"name": f"c{at}"})
        if allocated is not None:
            statuses[-1]["allocatedResources"] = {"cpu": str(allocated)}
        if actual is not None:
            statuses[-1]["resources"] = {"requests": {"cpu": f"{actual}000m"}}
    pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible" if infeasible else "Deferred"}
    raw = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "p"},
        "spec": {"nodeName": on, "schedulerName": "kube-batch", "containers": containers},
        "status": {"phase": "Running", "conditions": [pending], "containerStatuses": statuses[::-1]},
    }
    return msgspec.convert(raw, Pod)


@settings(deadline=None, max_examples=examples(30))
@given(
    st.lists(
        st.tuples(st.lists(st.tuples(amounts, amounts, amounts), min_size=1, max_size=3), st.booleans(), st.booleans()),
        min_size=1, max_size=4,
    )
)  # fmt: skip
def test_a_pod_holds_the_most_of_the_three(
    stream: list[tuple[list[tuple[int | None, int | None, int | None]], bool, bool]],
) -> None:
    model = ClusterModel()
    model.apply(Upsert(node("n1", "8")))
    for states, infeasible, bound in stream:
        model.apply(Upsert(pod_of(states, infeasible, "n1" if bound else "")))
        held = 0
        for asked, allocated, actual in states:
            told = [each for each in (allocated, actual) if each is not None]
            if bound and told and (any(each != asked for each in told)):
                held += max(*told, 0, 0 if infeasible else asked or 0)
            else:
                held += asked or 0
        assert model.tasks["ns/p"].cls.request.get("cpu", 0) == held * 1000
        assert model.nodes["n1"].used.get("cpu", 0) == (held * 1000 if bound else 0)
        model.validate()
