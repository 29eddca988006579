"""An action from another package: the example as it would be installed, found by its entry point."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from kbatch.api.configuration import ConfigurationError, parse
from kbatch.engine import actions, build_policy
from kbatch.engine.actions.base import Action
from kbatch.engine.loader import known_actions
from tests.unit.plugins.installing import ROOT, distribution, own_tests, python

EXAMPLE = ROOT / "examples" / "action"
CONF = (EXAMPLE / "scheduler.yaml").read_text()
GUIDE = (ROOT / "docs" / "writing-an-action.md").read_text()

SIMULATE = ("-c", "from kbatch.cli.main import main; main()", "simulate", "world.yaml", "--scheduler-conf")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an installer leaves behind: the package on the path, and its entry points beside it."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.syspath_prepend(str(distribution(EXAMPLE, tmp_path)))
    monkeypatch.delitem(sys.modules, "kbatch_vacate", raising=False)


@pytest.mark.usefixtures("installed")
def test_it_is_found_by_its_entry_point() -> None:
    assert set(known_actions()) - set(actions.BUILTIN) == {"vacate"}
    assert [action.name for action in build_policy(parse(CONF, "test")).action_types][-1] == "vacate"


@pytest.mark.usefixtures("installed")
def test_without_its_plugin_it_is_refused_with_the_plugin_to_add() -> None:
    with pytest.raises(ConfigurationError, match=r"action vacate can never find a victim.*add surplus"):
        build_policy(parse(CONF.replace(", {name: surplus}", ""), "test"))


def test_it_is_unknown_where_it_is_not_installed() -> None:
    with pytest.raises(ConfigurationError, match="unknown action 'vacate'"):
        build_policy(parse(CONF, "test"))


def test_the_simulator_runs_it(tmp_path: Path) -> None:
    """Four pods of a group of minimum 2 on a cordoned node: all move, one after the other, and the group runs on."""
    path = (EXAMPLE, distribution(EXAMPLE, tmp_path))
    done = python(*SIMULATE, "scheduler.yaml", "-o", "json", cwd=EXAMPLE, path=path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    evictions = [
        (cycle["time"], gone["pod"], gone["action"]) for cycle in result["cycles"] for gone in cycle["evictions"]
    ]
    assert evictions == [(at, f"default/elastic-{at}", "vacate") for at in range(4)]
    nodes = [pod["node"] for pod in result["pods"].values() if pod["phase"] == "Running"]
    assert nodes == ["node-2"] * 4
    assert result["podgroups"]["default/elastic"]["phase"] == "Running"


@pytest.mark.many
def test_its_own_tests_pass() -> None:
    assert "8 passed" in own_tests(EXAMPLE)


def test_the_guide_shows_the_example_as_it_is() -> None:
    """Each Python block of the page is a piece of the example, but for those that begin with a comment."""
    source = (EXAMPLE / "kbatch_vacate" / "__init__.py").read_text()
    blocks = [block for block in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL) if not block.startswith("#")]
    assert blocks
    for block in blocks:
        assert block in source


def test_the_guide_names_the_whole_contract() -> None:
    own = {name for name in vars(Action) if not name.startswith("_")}
    assert {name for name in own if f"`{name}`" not in GUIDE} == set()
    modules = set(
        re.findall(
            r"^from (kbatch\.engine[\w.]*) import", (EXAMPLE / "kbatch_vacate/__init__.py").read_text(), re.MULTILINE
        )
    )
    assert {name for name in modules if f"`{name}`" not in GUIDE} == set()
