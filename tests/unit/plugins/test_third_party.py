"""A plugin from another package: the example as it would be installed, found by its entry point."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kbatch.api.configuration import ConfigurationError, parse
from kbatch.engine import CycleState, Memo, NullObserver, build_policy, cycle, take_snapshot
from kbatch.engine.cooperative import finish
from kbatch.engine.loader import known_plugins
from tests.unit.engine.worlds import node, pod, policy, queue, run, world
from tests.unit.plugins.installing import ROOT, distribution, own_tests

EXAMPLE = ROOT / "examples" / "plugin"
GUIDE = ROOT / "docs" / "writing-a-plugin.md"

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


@pytest.mark.usefixtures("installed")
def test_what_the_guide_keeps_from_cycle_to_cycle_lasts() -> None:
    """The block of the page that declares a `State`, run as it stands there."""
    (block,) = [
        block for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL) if "State =" in block
    ]
    names: dict[str, Any] = {"msgspec": msgspec, "Price": importlib.import_module("kbatch_price").Price}
    exec(block, names)  # noqa: S102 -- our own page
    steady = build_policy(parse(CONF, "test"), {**known_plugins(), "price": names["SteadyPrice"]})

    def after(state: CycleState | None, *prices: str) -> CycleState:
        nodes = [node(f"n{price}", labels={"example.com/price": price}) for price in prices]
        steps = cycle(take_snapshot(world(queue(), nodes), 0, state), steady, Memo(), NullObserver())
        return finish(steps).state

    both = after(None, "9", "40")
    assert both.plugins["price"].highest == 40
    assert after(both, "9").plugins["price"].highest == 40
    assert after(None, "9").plugins["price"].highest == 9
    assert both.plugins["price"].highest == 40


@pytest.mark.many
def test_its_own_tests_pass() -> None:
    assert "3 passed" in own_tests(EXAMPLE)
