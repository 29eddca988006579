"""The chart as Helm renders it, without a cluster."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import helm_python
import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "kbatch"
NAMESPACE = "kbatch-system"

Object = dict[str, Any]


class OnceEach(yaml.CSafeLoader):
    """Refuses a mapping in which a key stands twice: of the two the last counts, or whatever reads it refuses both."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As every loader does."""
        keys = [key.value for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"{twice} stands there twice", node.start_mark)
        found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return found


@dataclass(frozen=True)
class Rendered:
    """The objects of one rendering, and the notes that Helm would print."""

    objects: tuple[Object, ...]
    notes: str

    def of(self, kind: str) -> list[Object]:
        return [item for item in self.objects if item["kind"] == kind]

    def names(self, kind: str) -> set[str]:
        return {item["metadata"]["name"] for item in self.of(kind)}

    def one(self, kind: str, name: str) -> Object:
        (found,) = (item for item in self.of(kind) if item["metadata"]["name"] == name)
        return found

    def pod_spec(self, component: str) -> Object:
        (found,) = (
            item["spec"]["template"]["spec"]
            for item in self.of("Deployment")
            if item["metadata"]["labels"]["app.kubernetes.io/component"] == component
        )
        spec: Object = found
        return spec

    def container(self, component: str) -> Object:
        (container,) = self.pod_spec(component)["containers"]
        found: Object = container
        return found


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what carries, or does not carry, the mark
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder is in the layer of the many: most of it renders the chart, some of it dozens of times."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("many")


@pytest.fixture(scope="session")
def chart() -> Iterator[helm_python.Chart]:
    with helm_python.Chart.load(CHART) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def render(chart: helm_python.Chart) -> Callable[..., Rendered]:
    """Render the chart with values; `apis` are those that the cluster is to have besides Kubernetes' own."""

    texts: dict[tuple[str, str], str] = {}

    def rendered(
        values: Object | None = None,
        *,
        release: str = "kbatch",
        namespace: str = NAMESPACE,
        apis: tuple[str, ...] = (),
    ) -> Rendered:
        options = {"name": release, "namespace": namespace, "is_install": True, "api_versions": list(apis)}
        # Chart.render has no argument for the APIs that a cluster has; the library underneath does.
        asked = json.dumps(values or {}), json.dumps(options)
        if asked not in texts:
            texts[asked] = helm_python._native.call_string("helm_render", chart._raw(), *asked)
        text = texts[asked]
        files: dict[str, str] = json.loads(text)
        notes = "".join(files.pop(name) for name in list(files) if name.endswith("NOTES.txt"))
        documents = (document for name in sorted(files) for document in yaml.load_all(files[name], Loader=OnceEach))
        return Rendered(tuple(document for document in documents if document), notes)

    return rendered


@pytest.fixture(scope="session")
def default(render: Callable[..., Rendered]) -> Rendered:
    """The chart with its own values."""
    return render()


@pytest.fixture(scope="session")
def values_files() -> dict[str, Object]:
    """The values of charts/kbatch/ci by file name."""
    return {path.name: yaml.safe_load(path.read_text()) for path in sorted((CHART / "ci").glob("*-values.yaml"))}
