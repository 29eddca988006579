"""The picture of the engine's imports, drawn from the code.

    python -m tools.imports         writes docs/engine-imports.svg

The rooms of `kbatch/engine` (its folders, and the modules beside them) stand in the order of the import contract in
`pyproject.toml`, the topmost layer first. An arrow leads from the room that imports to the room that is imported;
imports inside functions and under `if TYPE_CHECKING` count. A test looks that the picture is current and that each
arrow points down.
"""

from __future__ import annotations

import ast
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias
from xml.sax.saxutils import escape

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURE: Final = ROOT / "docs" / "engine-imports.svg"
PACKAGE: Final = "kbatch.engine"
CONTRACT: Final = "inside the engine, rooms look down only"
SURFACE: Final = "__init__"
"""The room that stands for `kbatch/engine/__init__.py`. It is above all others, since nobody inside imports it."""

Layers: TypeAlias = tuple[tuple[str, ...], ...]
Arrow: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Room:
    """A folder or a top-level module. `says` is the first sentence of its docstring."""

    name: str
    folder: bool
    says: str

    @property
    def label(self) -> str:
        """Its name as a path."""
        return f"{self.name}/" if self.folder else f"{self.name}.py"


def layers(root: Path = ROOT) -> Layers:
    """The rooms by layer, the topmost first, as the import contract has them; the public surface above all."""
    settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    (contract,) = (one for one in settings["tool"]["importlinter"]["contracts"] if one["name"] == CONTRACT)
    rows = [tuple(part.strip() for part in row.split("|")) for row in contract["layers"]]
    return ((SURFACE,), *(tuple(name.removeprefix(f"{PACKAGE}.") for name in row) for row in rows))


def rooms(root: Path = ROOT) -> dict[str, Room]:
    """What there is in the engine's folder, by name."""
    found: dict[str, Room] = {}
    for path in sorted((root / PACKAGE.replace(".", "/")).iterdir()):
        source = path / "__init__.py" if path.is_dir() else path
        if source.suffix == ".py" and source.exists():
            name = path.name if path.is_dir() else path.stem
            said = ast.get_docstring(ast.parse(source.read_text("utf-8"))) or ""
            found[name] = Room(name, path.is_dir(), " ".join(said.split("\n\n")[0].split()).split(". ")[0].rstrip("."))
    return found


def arrows(root: Path = ROOT) -> frozenset[Arrow]:
    """Who imports whom: pairs of different rooms."""
    base = root / PACKAGE.replace(".", "/")
    modules = {_module(path, root): path for path in sorted(base.rglob("*.py"))}
    return frozenset(
        (here, there)
        for module, path in modules.items()
        for target in _imported(path, frozenset(modules))
        if (here := _room(module)) != (there := _room(target))
    )


def upward(drawn: frozenset[Arrow], order: Layers) -> list[Arrow]:
    """The arrows that do not lead to a lower layer; those from or to rooms in no layer are not judged."""
    level = {name: at for at, row in enumerate(order) for name in row}
    return sorted((a, b) for a, b in drawn if a in level and b in level and level[a] >= level[b])


def unplaced(found: dict[str, Room], order: Layers) -> tuple[str, ...]:
    """The rooms that the contract forgets."""
    named = {name for row in order for name in row}
    return tuple(sorted(name for name in found if name not in named))


def _module(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _room(module: str) -> str:
    return module.removeprefix(PACKAGE).lstrip(".").split(".")[0] or SURFACE


def _imported(path: Path, modules: frozenset[str]) -> Iterator[str]:
    """The engine's modules that a file imports. `from package import name` means the module where it is one."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if name in modules:
                    yield name
                elif node.module in modules:
                    yield node.module


# --- the drawing ------------------------------------------------------------------------------------------------------

_ROW: Final = 46
_BOX: Final = 28
_INDENT: Final = 34
_LEFT: Final = 24
_TOP: Final = 84
_LEGEND: Final = (
    "A line goes down from each room; a dot on it, with the arrow from there, is an import. Rooms on one band are one "
    "layer."
)
_STEM: Final = 14
"""How far from its left edge a box's line of imports begins."""
_LETTER: Final = 8
_WIDTH: Final = 1200
_WRAP: Final = 56

_FONT: Final = """
  text { font: 13px system-ui, "DejaVu Sans", sans-serif }
  .title { font-size: 18px; font-weight: 600 }
  .says { font-size: 12px }
  .room { font: 13px ui-monospace, "DejaVu Sans Mono", monospace }
  .line { fill: none; stroke-width: 1.5 }
  .loose { stroke-dasharray: 4 3 }
  .bad { fill: none; stroke-width: 2; stroke-dasharray: 5 3 }
"""


@dataclass(frozen=True, slots=True)
class _Theme:
    """Colours: of the background and every second layer, of words and lesser words, of lines and boxes."""

    paper: str
    band: str
    ink: str
    soft: str
    line: str
    box: str
    bad: str

    @property
    def css(self) -> str:
        return (
            f"text {{ fill: {self.ink} }} .says {{ fill: {self.soft} }} .paper {{ fill: {self.paper} }} "
            f".band {{ fill: {self.band} }} .box {{ fill: {self.box}; stroke: {self.line} }} "
            f".line {{ stroke: {self.line} }} .dot, .head {{ fill: {self.line} }} .bad {{ stroke: {self.bad} }}"
        )


_LIGHT: Final = _Theme("#ffffff", "#f2f4f7", "#1c2430", "#56606e", "#4a6fa5", "#e3ecf8", "#c62828")
_DARK: Final = _Theme("#0f141b", "#171e28", "#e8edf4", "#a4afbd", "#86b0ea", "#22334d", "#ff7b72")
_STYLE: Final = f"{_FONT}  {_LIGHT.css}\n  @media (prefers-color-scheme: dark) {{ {_DARK.css} }}\n"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a room is drawn: left edge and middle of its box, and its width."""

    left: int
    middle: int
    width: int

    @property
    def stem(self) -> int:
        return self.left + _STEM


def svg(root: Path = ROOT) -> str:
    """The picture; the same code gives the same bytes.

    Rooms go down as a staircase. From each a line goes down; where it meets the row of a room that it imports there is
    a dot, from which an arrow leads to that room.
    """
    found, order, drawn = rooms(root), layers(root), arrows(root)
    loose = unplaced(found, order)
    rows = [*(tuple(name for name in row if name in found) for row in order), *([loose] if loose else [])]
    places: dict[str, _Place] = {}
    bands: list[str] = []
    for at, row in enumerate(rows):
        top = _TOP + len(places) * _ROW
        if at % 2 == 0:
            bands.append(f'<rect class="band" x="0" y="{top}" width="{_WIDTH}" height="{len(row) * _ROW}"/>')
        for name in row:
            count = len(places)
            width = len(found[name].label) * _LETTER + 22
            places[name] = _Place(_LEFT + count * _INDENT, _TOP + count * _ROW + _ROW // 2, width)
    height = _TOP + len(places) * _ROW + 16
    body = [
        f'<rect class="paper" width="{_WIDTH}" height="{height}"/>',
        f'<text class="title" x="{_LEFT}" y="34">Who imports whom in kbatch/engine</text>',
        f'<text class="says" x="{_LEFT}" y="58">{_LEGEND}</text>',
        *bands,
        *_lines(places, drawn),
        *(part for name, place in places.items() for part in _box(found[name], place, loose=name in loose)),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'role="img" aria-label="Imports between the rooms of kbatch/engine">'
    )
    return "\n".join([head, f"<style>{_STYLE}</style>", *body, "</svg>", ""])


def _lines(places: dict[str, _Place], drawn: frozenset[Arrow]) -> Iterator[str]:
    """All arrows: down from the importer, then right to the imported."""
    for name, place in places.items():
        below = [places[there].middle for here, there in drawn if here == name and places[there].middle > place.middle]
        if below:
            yield f'<path class="line" d="M{place.stem} {place.middle + _BOX // 2}V{max(below)}"/>'
    for name, place in places.items():
        stems = sorted(
            places[here].stem for here, there in drawn if there == name and places[here].middle < place.middle
        )
        if stems:
            tip, middle = place.left, place.middle
            yield f'<path class="line" d="M{stems[0]} {middle}H{tip - 7}"/>'
            yield f'<path class="head" d="M{tip} {middle}l-9 -4.5v9z"/>'
            yield from (f'<circle class="dot" cx="{stem}" cy="{middle}" r="3.5"/>' for stem in stems)
    for here, there in sorted(drawn):
        begin, end = places[here], places[there]
        if end.middle < begin.middle:
            yield (
                f'<path class="bad" d="M{begin.left + begin.width // 2} {begin.middle - _BOX // 2}V{end.middle}'
                f'H{end.left + end.width}"/>'
            )


def _box(room: Room, place: _Place, *, loose: bool) -> Iterator[str]:
    top = place.middle - _BOX // 2
    kind = "box loose" if loose else "box"
    yield f'<rect class="{kind}" x="{place.left}" y="{top}" width="{place.width}" height="{_BOX}" rx="5"/>'
    yield f'<text class="room" x="{place.left + 11}" y="{place.middle + 4}">{escape(room.label)}</text>'
    text: Sequence[str] = textwrap.wrap(room.says, _WRAP, max_lines=2, placeholder=" …")
    first = place.middle + 4 - 8 * (len(text) - 1)
    for at, line in enumerate(text):
        yield f'<text class="says" x="{place.left + place.width + 12}" y="{first + 16 * at}">{escape(line)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(svg(), encoding="utf-8")
