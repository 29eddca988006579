"""Which modules are compiled, and which are not, and why."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = "kbatch"
PLACES: Final = (
    "kbatch/engine/**/*.py",
    "kbatch/model/**/*.py",
    "kbatch/simulator/*.py",
    "kbatch/simulator/traces/*.py",
    "kbatch/api/conditions.py",
    "kbatch/resources.py",
    "kbatch/times.py",
)

INTERPRETED: Final = {
    "kbatch/engine/decisions.py": "structs of msgspec, which are read from decision logs and written to them",
    "kbatch/engine/loader.py": "what other packages register: classes that are not compiled",
    "kbatch/engine/plugins/estimates/state.py": "structs of msgspec with fields that it makes itself",
    "kbatch/engine/plugins/flow/state.py": "a struct of msgspec that is read from decision logs and written to them",
    "kbatch/engine/state/cycle_state.py": "dataclasses that msgspec reads from decision logs, by their annotations",
    "kbatch/model/events.py": "structs of msgspec that are not known to the garbage collector",
    "kbatch/model/image.py": "dataclasses that msgspec reads from decision logs, by their annotations",
    "kbatch/model/peers.py": "inherits from a class of Python that is not compiled",
    "kbatch/model/selections.py": "held by weak references",
    "kbatch/model/template_language.py": "inherits from a class of Jinja",
    "kbatch/model/usage.py": "a struct of msgspec that is kept from one process to the next",
    "kbatch/simulator/documents.py": "inherits from a class of PyYAML",
    "kbatch/simulator/kinds.py": "a class with a field of the name `type`, by which mypyc reads its annotations",
    "kbatch/simulator/run.py": "leaves a loop within try and finally, which mypyc does not know",
    "kbatch/simulator/traces/reading.py": "catches exceptions of several classes by one name in a generator: for mypyc "
    "all of them are of the first",
}
"""These stay as they are; so does every module with a model of pydantic's."""
_STAYS: Final = ("(BaseModel)",)

NATIVE_STRUCTS: Final = frozenset({"Entry", "Giving", "Needs", "Task", "Trial"})
"""Structs of msgspec that are neither read from anything nor written: compiled, they are classes like the others."""
INHERITED: Final = frozenset({"Claim"})
"""Dataclasses that other dataclasses inherit from: left as they are."""
OPEN: Final = frozenset({"Action", "ClusterModel", "Plugin"})
"""Classes that modules which are not compiled inherit from."""


def chosen(root: Path = ROOT) -> Iterator[str]:
    """The modules that are compiled, by their paths."""
    found = {path for place in PLACES for path in root.glob(place)}
    for path in sorted(found):
        name = path.relative_to(root).as_posix()
        if path.name != "__init__.py" and name not in INTERPRETED:
            text = path.read_text("utf-8")
            if not any(word in text for word in _STAYS):
                yield name


def sources(root: Path = ROOT) -> list[Path]:
    """All modules of the package, and what else stands in its folders; not what tools leave there."""

    def belongs(part: str) -> bool:
        return part != "__pycache__" and not part.startswith(".")

    found = (path for path in (root / PACKAGE).rglob("*") if path.is_file())
    return sorted(path for path in found if all(map(belongs, path.relative_to(root).parts)))


def digest(root: Path = ROOT) -> str:
    """Of all that decides what comes out: the package, this tool, and the versions of what it is built with."""
    found = hashlib.sha256()
    tool = Path(__file__).parent
    named = {path.relative_to(root).as_posix(): path for path in (*sources(root), root / "uv.lock")}
    named |= {path.relative_to(tool).as_posix(): path for path in sorted(tool.glob("*.py"))}
    for name, path in named.items():
        found.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()
