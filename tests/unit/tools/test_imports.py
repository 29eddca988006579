"""The picture of the engine's imports is what the code is now, and shows no arrow that points up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import imports
from tools.imports import SURFACE


def test_the_picture_is_what_the_script_draws_now() -> None:
    assert imports.PICTURE.read_text("utf-8") == imports.svg(), "run make pictures"


def test_every_arrow_points_down() -> None:
    drawn = imports.arrows()
    assert len(drawn) > 40
    assert imports.upward(drawn, imports.layers()) == []


def test_every_room_has_a_layer_and_every_layer_a_room() -> None:
    found, order = imports.rooms(), imports.layers()
    assert imports.unplaced(found, order) == ()
    assert {name for row in order for name in row} <= set(found)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """An engine of four rooms: `top` above `left` and `right`, which are one layer, and `lost`, which has none."""
    engine = tmp_path / "kbatch" / "engine"
    (engine / "top").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(
        f'[[tool.importlinter.contracts]]\nname = "{imports.CONTRACT}"\n'
        'layers = ["kbatch.engine.top", "kbatch.engine.left | kbatch.engine.right"]\n'
    )
    files = {
        "__init__.py": '"""The surface. More."""\nfrom kbatch.engine.top.inner import run\n',
        "top/__init__.py": '"""What is <above>: all."""\n',
        "top/inner.py": "from kbatch.engine import left\nfrom kbatch.engine.top import __doc__\n",
        "left.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from kbatch.engine.top.inner import run\n",
        "right.py": "def late():\n    import kbatch.engine.left\n",
        "lost.py": "import json\n",
    }
    for name, text in files.items():
        (engine / name).write_text(text)
    return tmp_path


def test_imports_in_functions_and_for_types_count(small: Path) -> None:
    assert imports.arrows(small) == {(SURFACE, "top"), ("top", "left"), ("left", "top"), ("right", "left")}


def test_arrows_up_and_sideways_are_found(small: Path) -> None:
    assert imports.upward(imports.arrows(small), imports.layers(small)) == [("left", "top"), ("right", "left")]


def test_a_room_without_a_layer_is_found_and_drawn_apart(small: Path) -> None:
    assert imports.unplaced(imports.rooms(small), imports.layers(small)) == ("lost",)
    assert imports.svg(small).count('class="box loose"') == 1


def test_what_points_up_stands_out(small: Path) -> None:
    assert imports.svg(small).count('class="bad"') == 2  # left to top, right to left


def test_a_room_says_the_first_sentence_of_its_docstring(small: Path) -> None:
    assert imports.rooms(small)[SURFACE].says == "The surface"
    assert "What is &lt;above&gt;: all" in imports.svg(small)
