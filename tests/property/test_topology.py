"""On small trees no arrangement has fewer hops than the one that is found, and one is found wherever there is one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.api.objects import GroupTopology
from kbatch.api.reasons import ClusterTooSmall, TopologyUnsatisfied
from tests.examples import examples
from tests.reference.hops import Part, Path, best, widest
from tests.unit.engine.worlds import group, node, pod, policy, queue, run, world

pytestmark = pytest.mark.many

POLICY = policy("""
actions: allocate
tiers:
- plugins: [{name: gang}, {name: predicates}, {name: nodeorder}, {name: topology, arguments: {levels: [zone, rack]}}]
""")


NOWHERE = Part(1, 1, keeps=False, bound=None)


@st.composite
def _parts(draw: st.DrawFn, most: int) -> Part:
    keeps = draw(st.booleans())
    bound = draw(st.sampled_from([None, 0, 2, 4, 6])) if keeps else None
    return Part(draw(st.integers(1, most)), draw(st.integers(1, 3)), keeps, bound)


_NODES = st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from("pq"), st.integers(0, 5)), min_size=1, max_size=5)


def _topology(part: Part) -> GroupTopology | None:
    return GroupTopology(max_hops=part.bound) if part.keeps else None


@settings(max_examples=examples(200), deadline=None)
@given(_NODES, st.lists(_parts(3), min_size=1, max_size=3), _parts(1))
def test_no_arrangement_has_fewer_hops(places: list[tuple[str, str, int]], parts: list[Part], whole: Part) -> None:
    nodes: list[tuple[Path, int]] = [((zone, rack, f"n{at}"), cpu) for at, (zone, rack, cpu) in enumerate(places)]
    made = group("g", sum(part.count for part in parts), roles={f"r{at}": part.count for at, part in enumerate(parts)})
    subs = made.spec.sub_groups or ()
    made.spec.sub_groups = tuple(
        type(sub)(name=sub.name, min_member=sub.min_member, topology=_topology(part))
        for sub, part in zip(subs, parts, strict=True)
    )
    made.spec.topology = _topology(whole)
    pods = [
        pod(f"r{at}-{number}", str(part.cpu), of="g", role=f"r{at}")
        for at, part in enumerate(parts) for number in range(part.count)
    ]  # fmt: skip
    labelled = [node(path[2], str(cpu), labels={"zone": path[0], "rack": path[1]}) for path, cpu in nodes]
    found = run(world(queue(), labelled, made, pods), POLICY)
    wanted = best(nodes, parts, whole)
    if wanted is None:
        assert not found.binds
        far = best(nodes, [Part(part.count, part.cpu, keeps=False, bound=None) for part in parts], NOWHERE)
        assert isinstance(found.verdicts["ns/g"].reason, ClusterTooSmall if far is None else TopologyUnsatisfied)
        return
    assert len(found.binds) == len(pods)
    where = {path[2]: path for path, _ in nodes}
    of_roles = [
        widest([where[found.binds[f"r{at}-{number}"]] for number in range(part.count)])
        for at, part in enumerate(parts) if part.keeps
    ]  # fmt: skip
    of_group = widest([where[name] for name in found.binds.values()]) if whole.keeps else 0
    assert (max(of_roles, default=0), sum(of_roles), of_group) == wanted
