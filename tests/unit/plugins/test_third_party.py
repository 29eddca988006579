"""A plugin from another package: the example as it would be installed, found by its entry point."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kbatch.api.configuration import ConfigurationError, parse
from kbatch.engine import build_policy
from tests.unit.engine.worlds import node, pod, policy, queue, run, world
from tests.unit.plugins.installing import distribution, own_tests

EXAMPLE = Path(__file__).parents[3] / "examples" / "plugin"

CONF = """
actions: allocate
tiers:
- plugins: [{name: gang}, {name: predicates}, {name: price}]
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an installer leaves behind: the package on the path, and its entry points beside it."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.syspath_prepend(str(distribution(EXAMPLE, tmp_path)))
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
    assert "3 passed" in own_tests(EXAMPLE)
