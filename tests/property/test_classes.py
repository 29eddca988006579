"""Classes of tasks live as long as their tasks, and equal content never means two of them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.api.objects import Pod
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from kbatch.model.image import build_model, take_image
from tests.examples import examples
from tests.unit.engine.worlds import node
from tests.unit.plugins.views import pod

NAMES = st.sampled_from(["a", "b", "c", "d"])
SPREAD = [
    {
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
]  # fmt: skip


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    found = pod(
        draw(NAMES),
        draw(st.sampled_from(["", "n1"])),
        requests={"cpu": str(draw(st.integers(0, 2)))},
        topologySpreadConstraints=SPREAD if draw(st.integers(0, 5)) == 0 else None,
    )
    found.metadata.labels = draw(st.sampled_from([None, {"app": "x"}, {"app": "y"}, {"other": "x"}]))
    return found


@settings(deadline=None, max_examples=examples(30))
@given(st.lists(st.tuples(st.none() | pods(), NAMES, st.booleans()), max_size=30))
def test_classes_live_as_long_as_their_tasks(stream: list[tuple[Pod | None, str, bool]]) -> None:
    model = ClusterModel()
    model.apply(Upsert(node("n1")))
    seen: dict[int, object] = {}
    for event, name, look in stream:
        model.apply(Upsert(event) if event is not None else Delete(Pod, "ns", name))
        if not look:
            continue
        model.refresh()
        model.classes.sweep()
        live = {task.cls.id: task.cls for task in model.tasks.values()}
        bases = {cls.id for cls in live.values()}
        # A variant by labels keeps the class that it is a variant of.
        assert len(bases) <= len(model.classes) <= 2 * len(bases)
        for number, cls in live.items():
            assert seen.setdefault(number, cls) is cls
            assert all(model.classes.classify(t.pod) is cls for t in model.tasks.values() if t.cls is cls)
        again = build_model(take_image(model))
        rank = {number: at for at, number in enumerate(sorted(live))}
        numbers = sorted({task.cls.id for task in again.tasks.values()})
        assert {key: rank[task.cls.id] for key, task in model.tasks.items()} == {
            key: numbers.index(task.cls.id) for key, task in again.tasks.items()
        }
    for name in ("a", "b", "c", "d"):
        model.apply(Delete(Pod, "ns", name))
    model.refresh()
    model.classes.sweep()
    assert len(model.classes) == 0
