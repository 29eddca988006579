"""Lists on the pages are complete: names in manifests, Events, flags, commands, plugins; and every page is linked."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer.main

from kbatch.api import conditions
from kbatch.api import names as api_names
from kbatch.cli.main import app
from kbatch.engine.actions import BUILTIN as ACTIONS
from kbatch.engine.plugins import BUILTIN as PLUGINS
from kbatch.simulator import names as simulator_names
from tools import flags

ROOT: Final = Path(__file__).resolve().parents[3]
DOCS: Final = ROOT / "docs"
REFERENCE: Final = DOCS / "reference"
OWN_NAME: Final = re.compile(r"(?<![\w.])kbatch\.dev/[a-z][a-z-]*[a-z]")
EVENT_ARGUMENT: Final = {
    "normal": 1, "warning": 1, "remark": 1, "tell": 2, "_normal": 1, "_warn": 1,
    "job_trouble": 1, "_stall": 2, "_RefusedError": 0,
}  # fmt: skip
"""Calls that make an Event, and which of their arguments is its reason."""


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".py", ".yaml", ".tpl"}:
                yield path


def names_on(page: Path) -> set[str]:
    """What the tables of a page have in their first column, in code quotes."""
    rows = re.findall(r"^\| (`[^|]+`) \|", page.read_text("utf-8"), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def events_of_the_code() -> set[str]:
    found = set()
    for path in sources("operators"):
        if path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            place = EVENT_ARGUMENT.get(called)
            if place is None or len(node.args) <= place:
                continue
            reason = node.args[place]
            if isinstance(reason, ast.Constant) and re.fullmatch(r"(?:[A-Z][a-z]+)+", str(reason.value)):
                found.add(str(reason.value))
    return found


def test_every_name_in_manifests_is_on_its_page() -> None:
    used = {
        name for path in sources("kbatch", "operators", "webhooks", "charts")
        for name in OWN_NAME.findall(path.read_text("utf-8"))
    }  # fmt: skip
    declared = {
        value for value in vars(api_names).values() if isinstance(value, str) and value.startswith("kbatch.dev/")
    }
    kubernetes = {api_names.GROUP_NAME_ANNOTATION, api_names.GROUP_MIN_MEMBER_ANNOTATION}
    assert declared <= used
    assert names_on(REFERENCE / "labels.md") == used | kubernetes


def test_every_annotation_of_simulations_is_on_its_page() -> None:
    declared = {
        value for value in vars(simulator_names).values()
        if isinstance(value, str) and re.fullmatch(r"simulate\.kbatch\.dev/[a-z-]+", value)
    }  # fmt: skip
    assert declared
    assert declared == {name for name in names_on(DOCS / "simulator.md") if name.startswith("simulate.")}


def test_every_event_is_on_its_page() -> None:
    made = events_of_the_code()
    assert len(made) > 20
    assert names_on(REFERENCE / "events.md") - {"PodGroupNotFound"} == made  # that one is a group's reason, too


def test_every_reason_of_the_podgroup_operators_conditions_is_on_its_page() -> None:
    text = (ROOT / "operators" / "podgroup" / "reconcile.py").read_text("utf-8")
    text += textwrap.dedent(inspect.getsource(conditions.completed))
    own = {
        str(node.value) for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and re.fullmatch(r"(?:[A-Z][a-z]+){2,}", str(node.value))
    }  # fmt: skip
    assert {"MinimumSucceeded", "NoMoreMembers", "MembersMade"} <= own
    page = (REFERENCE / "reasons.md").read_text("utf-8")
    assert [reason for reason in sorted(own) if f" | `{reason}` | " not in page] == []


def test_every_health_check_is_on_its_page() -> None:
    made = re.compile(r'\.(?:ready|live)\("([a-z]+)"|while_active\([^"]*"([a-z]+)"')
    found = {
        first or second for path in sources("kbatch/process", "operators", "webhooks")
        for first, second in made.findall(path.read_text("utf-8"))
    }  # fmt: skip
    assert len(found) > 10
    section = (DOCS / "operations.md").read_text("utf-8").partition("| check |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`[^|]+`[^|]*) \|", section, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`([a-z]+)`", row)} == found


def test_the_page_of_flags_is_what_the_settings_make() -> None:
    assert flags.PAGE.read_text("utf-8") == flags.page(), "run python -m tools.flags"


def test_every_command_is_on_its_page() -> None:
    group: Any = typer.main.get_command(app)
    page = (DOCS / "commands.md").read_text("utf-8")
    assert [name for name in group.commands if f"`kbatch {name}" not in page] == []


def test_every_plugin_and_action_is_in_its_table() -> None:
    table = re.findall(r"^\| \[([a-z]+)\]\(#\1\) \|", (REFERENCE / "plugins.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(table) == sorted(PLUGINS)
    actions = (DOCS / "glossary.md").read_text("utf-8").partition("| action |")[2].partition("|")[0]
    assert [name for name in ACTIONS if name not in actions] == []


def test_every_page_is_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in reached:
            continue
        reached.add(page)
        for link in re.findall(r"\]\(([^)\s#]+)[^)]*\)", page.read_text("utf-8")):
            target = (page.parent / link).resolve()
            if target.suffix == ".md" and target.is_file():
                ahead.append(target)
    pages = {page for page in DOCS.rglob("*.md") if page.parent.name != "decisions"}
    assert sorted(str(page.relative_to(ROOT)) for page in pages - reached) == []
