"""What the pages name is there: other pages, files, commands and their options, targets, chart values, metrics."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main
import yaml

from kbatch.cli.main import app

ROOT: Final = Path(__file__).resolve().parents[3]
PAGES: Final = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
)
FOLDERS: Final = (
    "kbatch", "operators", "webhooks", "tests", "docs", "charts", "crds", "tools", "examples", "localcluster",
    ".github", ".ci",
)  # fmt: skip

_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE: Final = re.compile(r"```.*?```|`[^`\n]+`|^    .*$", re.DOTALL | re.MULTILINE)
_PATH: Final = re.compile(rf"(?<![\w./-])((?:{'|'.join(map(re.escape, FOLDERS))})/[\w./*-]*[\w*/])")
_COMMAND: Final = re.compile(r"(?:^|[`\s/(])kbatch ([a-z][a-z-]*)((?: [^\n`|]*)?)", re.MULTILINE)
_FLAG: Final = re.compile(r"(?<!\S)\[?(--[a-z][a-z-]*)")
_TARGET: Final = re.compile(r"(?:^    |`)make ([a-z][a-z-]*)", re.MULTILINE)
_MODULE: Final = re.compile(r"python -m ([\w.]+)")


def pages(function: Any) -> Any:
    return pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))(function)


def code_of(page: Path) -> str:
    """Everything on the page that is set as code, one piece on a line."""
    return "\n".join(piece for piece in _CODE.findall(page.read_text("utf-8")))


def anchors(page: Path) -> set[str]:
    """The anchors that headings make, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in found}


@pages
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(page.read_text("utf-8")):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


@pages
def test_files_that_are_named_are_there(page: Path) -> None:
    for piece in _PATH.findall(code_of(page)):
        assert list(ROOT.glob(piece.rstrip("/"))) or list(page.parent.glob(piece.rstrip("/"))), piece


@pages
def test_modules_and_targets_that_are_named_are_there(page: Path) -> None:
    text = page.read_text("utf-8")
    for module in _MODULE.findall(text):
        assert importlib.util.find_spec(module), module
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in _TARGET.findall(text):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pages
def test_commands_take_the_options_that_are_shown(page: Path) -> None:
    group: Any = typer.main.get_command(app)
    for name, rest in _COMMAND.findall(code_of(page)):
        if name not in group.commands:
            assert not rest.lstrip().startswith("-"), (
                f"no command {name}"
            )  # prose, such as `helm install kbatch charts`
            continue
        known = {flag for option in group.commands[name].params for flag in option.opts}
        for flag in _FLAG.findall(rest):
            assert flag in known | {"--help"}, f"kbatch {name} {flag}"


def test_chart_values_that_are_named_are_there() -> None:
    values = yaml.safe_load((ROOT / "charts" / "kbatch" / "values.yaml").read_text("utf-8"))
    named = 0
    for page in PAGES:
        for name in _values_in(code_of(page), values):
            named += 1
            assert _has(values, name.split(".")), f"{page.relative_to(ROOT)}: {name}"
    assert named > 20


def _values_in(code: str, values: dict[str, Any]) -> Iterator[str]:
    """Dotted names that begin as a value of the chart does, alone in their quotes or with `=`, or set for helm."""
    for name in re.findall(r"(?:`|--set(?:-string|-file)? )([a-z]\w*(?:\.\w+)+)(?=`|=)", code):
        if name.split(".")[0] in values and not name.endswith(".yaml"):
            yield name


def _has(values: Any, path: list[str]) -> bool:
    for key in path:
        if not isinstance(values, dict) or key not in values:
            return isinstance(values, dict) and not values  # an empty table takes any key
        values = values[key]
    return True


def test_metrics_that_are_named_are_measured() -> None:
    measured = "".join((ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8").split())
    for page in PAGES:
        for name in re.findall(r"`(kbatch_[a-z0-9_]+)[`{(]", page.read_text("utf-8")):
            assert name in measured or importlib.util.find_spec(name) or name == "kbatch_price", f"{page.name}: {name}"


def test_the_glossary_has_each_word_once_and_in_order() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.MULTILINE)
    words = [word for word, _ in rows if word not in ("term", "---")]
    assert len(words) > 30
    assert words == sorted(set(words))
    assert [word for word, meaning in rows if word in words and not meaning.endswith((".", ".)"))] == []


def test_the_way_through_the_engine_passes_every_room() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    folders = [path for path in (ROOT / "kbatch" / "engine").iterdir() if (path / "__init__.py").exists()]
    assert [path.name for path in folders if f"`kbatch/engine/{path.name}/" not in page] == []


def test_the_tests_of_placement_that_are_named_are_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "placement-tests.md").read_text("utf-8")))
    there = {
        name for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", file.read_text("utf-8"), re.MULTILINE)
    }  # fmt: skip
    assert named
    assert sorted(named - there) == []


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = sorted(int(page.name[:4]) for page in (ROOT / "docs" / "decisions").glob("*.md"))
    assert numbers == list(range(1, len(numbers) + 1))
