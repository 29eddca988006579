"""A plugin from another package: the example as it would be installed, found by its entry point."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kbatch.api.configuration import ConfigurationError, parse
from kbatch.engine import build_policy
from tests.unit.engine.worlds import node, pod, policy, queue, run, world

EXAMPLE = Path(__file__).parents[3] / "examples" / "plugin"

CONF = """
actions: allocate
tiers:
- plugins: [{name: gang}, {name: predicates}, {name: price}]
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an installer leaves behind: the package on the path, and its entry points beside it."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    info = tmp_path / "kbatch_price-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "kbatch_price", raising=False)


@pytest.mark.usefixtures("installed")
def test_it_is_found_by_its_entry_point_and_decides() -> None:
    dear, cheap = node("a-dear", labels={"example.com/price": "9"}), node("b-cheap", labels={"example.com/price": "1"})
    assert run(world(queue(), dear, cheap, pod("p")), policy(CONF)).binds == {"p": "b-cheap"}


@pytest.mark.usefixtures("installed")
def test_its_arguments_are_checked_like_all_others() -> None:
    with pytest.raises(ConfigurationError, match=r"unknown argument of plugin price 'price\.wieght'; did you mean"):
        build_policy(parse(CONF.replace("{name: price}", "{name: price, arguments: {price.wieght: 1}}"), "test"))


def test_it_is_unknown_where_it_is_not_installed() -> None:
    with pytest.raises(ConfigurationError, match="unknown plugin 'price'"):
        build_policy(parse(CONF, "test"))


def test_its_own_tests_pass() -> None:
    """As its author would run them: in its own folder, with its own configuration."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "tests"],
        cwd=EXAMPLE,
        env={"PYTHONPATH": f"{EXAMPLE}:{EXAMPLE.parents[1]}", "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
