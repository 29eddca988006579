"""A digest of sources: what was found with these, and is kept in a file, says nothing of others."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]


class StaleError(Exception):
    """A file was begun with other sources, or to look for something else."""


def digest(*paths: str, root: Path = ROOT) -> str:
    """Of these files and of all that is in these folders, by names from the root; what Python compiled is left out."""
    found = hashlib.blake2b(digest_size=8)
    for file in sorted({file for path in paths for file in _files(root / path)}):
        content = file.read_bytes()
        found.update(f"{file.relative_to(root).as_posix()} {len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()


def used_by(folder: str, root: Path = ROOT) -> list[str]:
    """The modules of a folder of tests, and those in `tests` that these import, and so on."""
    found: set[Path] = set()
    waiting = list(_files(root / folder))
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += _imported(file, root)
    return sorted(file.relative_to(root).as_posix() for file in found)


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    else:
        yield from (one for one in path.rglob("*") if one.is_file() and "__pycache__" not in one.parts)


def _imported(file: Path, root: Path) -> Iterable[Path]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
    files = (root / f"{name.replace('.', '/')}.py" for name in names if name.startswith("tests."))
    return [one for one in files if one.is_file()]
