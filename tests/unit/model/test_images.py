"""Image lists of nodes change all the time: that matters only where something was worked out by those images."""

from __future__ import annotations

from kbatch.api.objects import Container, ContainerImage, Node, PodSpec
from kbatch.engine.plugins.columns import image_locality
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Upsert
from tests.unit.engine.worlds import node, world

GIBIBYTE = 2**30


def holding(name: str, *images: str, size: int = GIBIBYTE) -> Node:
    found = node(name)
    found.status.images = tuple(ContainerImage(names=(image,), size_bytes=size) for image in images)
    return found


def scores(model: ClusterModel, *images: str) -> list[int]:
    spec = PodSpec(containers=tuple(Container(image=image) for image in images))
    found: list[int] = image_locality(model.table, spec).tolist()
    return found


def test_images_that_nobody_asked_for_change_nothing_and_are_known_all_the_same() -> None:
    model = world(holding("a", "other:1"), holding("b"))
    assert scores(model, "app") == [0, 0]
    before = model.generation, model.room_generation, model.table.static_generation
    model.apply(Upsert(holding("a", "other:2", "more:1")))
    model.apply(Upsert(holding("b", "other:2")))
    assert scores(model, "app") == [0, 0]
    assert (model.generation, model.room_generation, model.table.static_generation) == before
    fresh = world(holding("a", "other:2", "more:1"), holding("b", "other:2"))
    for image in ("other:1", "other:2", "more:1"):
        assert scores(model, image) == scores(fresh, image), "who asks for them now gets what is there now"


def test_an_image_that_was_asked_for_changes_the_node() -> None:
    model = world(holding("a"), holding("b"))
    assert scores(model, "app") == [0, 0]
    before = model.room_generation
    model.apply(Upsert(holding("a", "app:latest", "other:1")))
    assert model.room_generation > before
    assert scores(model, "app")[0] > 0
    before = model.room_generation
    model.apply(Upsert(holding("a", "app:latest", size=GIBIBYTE // 2)))
    assert model.room_generation > before, "its size too"
    model.apply(Upsert(holding("a")))
    assert scores(model, "app") == [0, 0]


def test_who_asks_for_no_images_hears_of_none() -> None:
    model = world(holding("a", "app:1"))
    assert len(model.table) == 1
    before = model.generation
    for number in range(5):
        model.apply(Upsert(holding("a", f"app:{number}")))
    assert model.generation == before
    model.validate()
