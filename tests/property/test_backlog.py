"""The backlog says of all groups at once what it says of each alone, and of none more than it knows."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch.api.names import GROUP_NAME_ANNOTATION
from kbatch.api.objects import Metadata, Node, Pod, PodGroup, Queue, ResourceQuota, ResourceQuotaSpec
from kbatch.engine import Policy
from kbatch.engine.admission import rows as at_once
from kbatch.engine.admission.rows import Rows, Standings
from kbatch.engine.carryover import backlog
from kbatch.engine.carryover.backlog import Backlog, Index
from kbatch.engine.carryover.standing import Standing
from kbatch.engine.cooperative import finish
from kbatch.engine.decisions import Turn
from kbatch.model.events import Upsert
from tests.property.test_engine import POLICIES, Remembering, World, relaxed, worlds
from tests.unit.engine.test_never_preempts import full, of_pods
from tests.unit.engine.worlds import EVERYTHING, policy

_STANDINGS, _OF_KINDS, _ALL_AHEAD = Rows.standings, Rows.of_kinds, Backlog.all_ahead


def _twice(by: Rows, those: Backlog, rows: Index) -> Generator[Turn, None, Standings]:
    """The standings of the rows, each compared with what is said of its group alone."""
    found = yield from _STANDINGS(by, those, rows)
    for row, standing in zip(rows.tolist(), found.tolist(), strict=True):
        entry = those.entry(row)
        alone = finish(by._sums.of(entry))
        together = Standing.PASSES if standing == Standing.SENT_BACK else Standing(standing)
        assert alone is together, (entry, alone, together)
    return found


def _kinds_twice(by: Rows, those: Backlog, rows: Index, kind: Index) -> Generator[Turn, None, Standings | None]:
    """What is said of each kind, compared with what is said of each of its groups alone."""
    found = yield from _OF_KINDS(by, those, rows, kind)
    if found is not None:
        for row, standing in zip(rows.tolist(), found[kind].tolist(), strict=True):
            alone = finish(by._sums.of(those.entry(row)))
            assert alone is Standing(standing), (those.entry(row), alone, standing)
    return found


def _ahead_twice(those: Backlog, rows: Index, *, ranks: bool = False) -> list[int]:
    """How many come before each, counted in all lines at once and looked up one by one."""
    found = _ALL_AHEAD(those, rows, ranks=ranks)
    assert found == [those.ahead(row, ranks=ranks) for row in rows.tolist()]
    return found


def _confine(draw: st.DrawFn, found: World) -> None:
    """Some nodes get a label, and the pods of some groups go to these alone."""
    groups = {obj.metadata.name for obj in found.objects if isinstance(obj, PodGroup) and draw(st.booleans())}
    for obj in found.objects:
        if isinstance(obj, Node) and draw(st.booleans()):
            obj.metadata.labels = {**(obj.metadata.labels or {}), "pool": "a"}
        elif isinstance(obj, Pod) and (obj.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION) in groups:
            obj.spec.node_selector = {"pool": "a"} if not obj.spec.node_name else None


@st.composite
def limited(draw: st.DrawFn) -> World:
    """A world with capabilities, quotas, minResources, groups that may use some of the nodes only, and polite pods."""
    found = draw(worlds())
    if draw(st.booleans()):
        _confine(draw, found)
    never = draw(st.booleans())
    for obj in found.objects:
        if never and isinstance(obj, Pod) and draw(st.booleans()):
            obj.spec.preemption_policy = "Never"
        if isinstance(obj, Queue) and draw(st.booleans()):
            obj.spec.capability = {"cpu": str(draw(st.integers(0, 6)))}
        elif isinstance(obj, PodGroup) and draw(st.booleans()):
            obj.spec.min_resources = {"cpu": str(draw(st.integers(0, 5)))}
    if draw(st.booleans()):
        hard: dict[str, Any] = {"requests.cpu": str(draw(st.integers(0, 8))), "pods": draw(st.integers(1, 9))}
        quota = ResourceQuota(metadata=Metadata(name="quota", namespace="ns"), spec=ResourceQuotaSpec(hard=hard))
        found.objects.append(quota)
    return found


@relaxed
@given(limited(), st.sampled_from(POLICIES), st.booleans(), st.data())
def test_of_all_at_once_as_of_each_alone(found: World, by: Policy, of_kinds: bool, data: st.DataObject) -> None:
    """And all is decided and said as with nothing remembered; where one of each kind is asked (`of_kinds`), too."""
    sim = Remembering(found.model(), by)
    many, alike, few = (0, 0, 0) if of_kinds else (at_once._MANY, at_once._ALIKE, backlog._FEW)
    with (
        mock.patch.object(Rows, "standings", _twice),
        mock.patch.object(Rows, "of_kinds", _kinds_twice),
        mock.patch.object(Backlog, "all_ahead", _ahead_twice),
        mock.patch.object(backlog, "_FEW", few),
        mock.patch.object(at_once, "_MANY", many), mock.patch.object(at_once, "_ALIKE", alike),
    ):  # fmt: skip
        for _ in range(3):
            sim.settle()
            if data.draw(st.booleans()) and sim.running():
                key = f"ns/{data.draw(st.sampled_from(sim.running()))}"
                pod = sim.model.tasks[key].pod
                ended = type(pod)(metadata=pod.metadata, spec=pod.spec, status=type(pod.status)(phase="Succeeded"))
                sim.model.apply(Upsert(ended))
            sim.tick()
            sim.now += data.draw(st.sampled_from([0, 25, 700]))


@pytest.mark.parametrize("holder", ["default", "other"], ids=["preempt", "reclaim"])
def test_so_it_is_where_the_pods_preempt_nobody(holder: str) -> None:
    sim = Remembering(full(holder, *of_pods("meek")), policy(EVERYTHING))
    with mock.patch.object(Rows, "standings", _twice):
        for _ in range(3):
            sim.cycle()
            sim.tick()
