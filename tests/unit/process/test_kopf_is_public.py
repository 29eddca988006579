"""Of kopf nothing is imported that it does not publish: its inner modules change with each minor release."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import kopf

ROOT = Path(__file__).resolve().parents[3]
PRODUCT = ("kbatch", "operators", "webhooks")


def inner(source: str) -> Iterator[str]:
    """What a module takes of kopf besides the names that the package publishes, as dotted names."""
    published = {name for name in vars(kopf) if not name.startswith("_")}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.startswith("kopf."))
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{one.name}" for one in node.names]
            yield from (name for name in names if name.startswith("kopf.") and name[5:] not in published)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "kopf":
            yield from {f"kopf.{node.attr}"} if node.attr not in published else ()


def test_what_is_not_published_would_be_found() -> None:
    lines = "import kopf, kopf._cogs", "from kopf._core import x", "from kopf import on, _cogs", "kopf.on", "kopf._core"
    found = inner("\n".join((*lines, "kopf.no_such")))
    assert sorted(found) == ["kopf._cogs", "kopf._cogs", "kopf._core", "kopf._core.x", "kopf.no_such"]


def test_nothing_is_taken_of_kopf_that_it_does_not_publish() -> None:
    modules = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")]
    users = [path for path in modules if "kopf" in path.read_text()]
    assert len(users) > 5
    assert {str(path): names for path in users if (names := list(inner(path.read_text())))} == {}
