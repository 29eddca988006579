"""The pages on plugins say what the plugins are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kbatch.engine.plugin import Plugin
from kbatch.engine.plugins import BUILTIN

ROOT = Path(__file__).parents[3]
REFERENCE = (ROOT / "docs" / "reference" / "plugins.md").read_text()
GUIDE = (ROOT / "docs" / "writing-a-plugin.md").read_text()


def section(name: str) -> str:
    return REFERENCE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("plugin", BUILTIN.values(), ids=BUILTIN)
def test_every_argument_is_on_the_page_with_its_default(plugin: type[Plugin]) -> None:
    rows = dict(re.findall(r"^\| `([^`<]+)` \| ([^|]*) \|", section(plugin.name), re.MULTILINE))
    known = {field.alias: field.default for field in plugin.Arguments.model_fields.values()}
    want = {name: '""' if default == "" else str(default).lower() for name, default in known.items()}
    assert {name: default.strip() for name, default in rows.items()} == want
    assert section(plugin.name), "no section on the page"


@pytest.mark.parametrize("plugin", BUILTIN.values(), ids=BUILTIN)
def test_every_argument_is_in_the_docstring(plugin: type[Plugin]) -> None:
    told = plugin.__doc__ or ""
    for field in plugin.Arguments.model_fields.values():
        assert f"`{field.alias}`" in told, field.alias


def test_the_guide_names_what_a_plugin_can_override() -> None:
    methods = {name for name, value in vars(Plugin).items() if callable(value) and not name.startswith("_")}
    internal = {"Arguments", "consents", "reasons_of", "static_predicate"}
    missing = {name for name in methods - internal if f"`{name}`" not in GUIDE and f"def {name}(" not in GUIDE}
    assert missing <= {"predicate_scope", "score_scope"}
    assert "predicate_scope(cls)" in GUIDE


def test_the_files_that_the_guide_names_exist() -> None:
    for name in re.findall(r"`((?:examples|kbatch)/[\w/.-]+)`", GUIDE):
        assert (ROOT / name).exists(), name
