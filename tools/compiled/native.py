"""What is changed in a module's text before it is compiled.

Nothing of what it does. mypyc makes of a class one whose attributes stand in it as a C struct has them; but what
`dataclass` writes at run time (`__init__`, `__eq__`, `__hash__`) stays interpreted, and goes to each attribute by its
name. So these are written out here, and compiled with the rest. `slots=True` is left out: such a class has no
dictionary, and `dataclass` would make a second class of it. `frozen=True` is left out too, as mypy has checked it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tools.compiled.modules import INHERITED, NATIVE_STRUCTS, OPEN

_COMPARED: Final = frozenset({"int", "str", "bool", "bytes"})
"""Of others it is asked first whether they are the same object, as tuples do it when they are compared."""
_EMPTYING: Final = "vars(self).clear()"
_IMPORT: Final = "from __future__ import annotations\n"


@dataclass(frozen=True, slots=True)
class Member:
    """A field of a dataclass or struct."""

    name: str
    type: str
    default: str | None
    factory: str | None
    compared: bool
    given: bool


@dataclass(slots=True)
class Edits:
    """Lines of a text to be replaced: from, up to, by what."""

    lines: list[str]
    made: list[tuple[int, int, list[str]]] = field(default_factory=list)

    def put(self, first: int, behind: int, lines: list[str]) -> None:
        """Replace these lines, counted from 0."""
        self.made.append((first, behind, lines))

    def text(self) -> str:
        """The text with all of it done."""
        lines = list(self.lines)
        for first, behind, new in sorted(self.made, key=lambda each: -each[0]):
            lines[first:behind] = new
        return "\n".join(lines)


def native(text: str) -> str:
    """The text of a module as it is compiled."""
    edits = Edits(text.split("\n"))
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            _class(node, edits)
    found = re.sub(r"^(\s*)@dataclass\(([^)\n]*)\)", _without_slots, edits.text(), flags=re.MULTILINE)
    imports = []
    if "@mypyc_attr" in found:  # a decorator for the compiler alone
        imports += [
            "from typing import TYPE_CHECKING",
            "if TYPE_CHECKING:",
            "    from mypy_extensions import mypyc_attr",
        ]
    if "@dataclass" in found and "import dataclass" not in found:
        imports.append("from dataclasses import dataclass")
    return found.replace(_IMPORT, "\n".join([_IMPORT.rstrip(), *imports, ""]), 1)


def _without_slots(found: re.Match[str]) -> str:
    kept = [each for each in found[2].split(", ") if each not in {"slots=True", "weakref_slot=True"}]
    return f"{found[1]}@dataclass({', '.join(kept)})" if kept else f"{found[1]}@dataclass"


def _class(node: ast.ClassDef, edits: Edits) -> None:
    decorator = next((each for each in node.decorator_list if _named(each, "dataclass")), None)
    struct = node.name in NATIVE_STRUCTS and any(ast.unparse(base) == "msgspec.Struct" for base in node.bases)
    if node.name in OPEN:
        first = _first_line(node)
        edits.put(first, first, ["@mypyc_attr(allow_interpreted_subclasses=True)"])
    if _EMPTYING in "\n".join(edits.lines[node.lineno : node.end_lineno]):
        _deletable(node, edits)
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
    named = {each.name for each in methods}
    if not (struct or (decorator is not None and not _inherits(node))) or "__init__" in named:
        return
    given = node.keywords if struct else decorator.keywords if isinstance(decorator, ast.Call) else []
    options = {each.arg: ast.literal_eval(each.value) for each in given}
    if options.get("order") or options.get("kw_only"):
        return
    members = list(_members(node))
    lines = _made(members, calls="__post_init__" in named)
    if options.get("eq", True) and "__eq__" not in named:
        lines += _compared(node.name, members)
        if options.get("frozen") and "__hash__" not in named:
            lines += _hashed(members)
    at = _first_line(methods[0]) if methods else node.end_lineno or node.lineno
    edits.put(at, at, ["", *lines, ""])
    plain = "@dataclass(init=False, eq=False" + (", repr=False)" if options.get("repr") is False else ")")
    if struct:
        untracked = ["@mypyc_attr(acyclic=True)"] if options.get("gc") is False else []
        edits.put(node.lineno - 1, node.lineno, [*untracked, plain, f"class {node.name}:"])
    elif decorator is not None:
        edits.put(decorator.lineno - 1, decorator.end_lineno or decorator.lineno, [plain])


def _first_line(node: ast.stmt) -> int:
    """Where a class or a function begins, with what stands above it."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)]) - 1


def _named(decorator: ast.expr, name: str) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called) == name


def _inherits(node: ast.ClassDef) -> bool:
    """Whether fields may come from elsewhere, or go elsewhere."""
    bases = [ast.unparse(base) for base in node.bases]
    return node.name in INHERITED or any(not base.startswith(("Generic", "Protocol", "ABC")) for base in bases)


def _members(node: ast.ClassDef) -> Iterator[Member]:
    for each in node.body:
        if not isinstance(each, ast.AnnAssign) or not isinstance(each.target, ast.Name):
            continue
        kind, value = ast.unparse(each.annotation), each.value
        if kind.startswith("ClassVar"):
            continue
        said: dict[str | None, ast.expr] = {}
        if isinstance(value, ast.Call) and _named(value, "field"):
            said = {word.arg: word.value for word in value.keywords}
            if unknown := said.keys() - {"default", "default_factory", "compare", "init", "repr"}:
                raise ValueError(f"{node.name}.{each.target.id}: what {unknown} says of a field is not known here")
            value = said.get("default")
        default = ast.unparse(value) if value is not None else None
        factory = ast.unparse(said["default_factory"]) if "default_factory" in said else None
        compared, given = (ast.literal_eval(said[word]) if word in said else True for word in ("compare", "init"))
        yield Member(each.target.id, kind, default, factory, compared, given)


def _made(members: list[Member], *, calls: bool) -> list[str]:
    """`__init__`, as `dataclass` writes it."""
    taken, body = ["self"], []
    for each in members:
        made = f"({each.factory})()" if each.factory is not None else each.default
        if not each.given:
            body += [f"self.{each.name} = {made}"] if made is not None else []
        elif each.factory is not None:
            taken.append(f"{each.name}: ({each.type}) | None = None")
            body.append(f"self.{each.name} = {made} if {each.name} is None else {each.name}")
        else:
            taken.append(f"{each.name}: {each.type}" + (f" = {each.default}" if each.default is not None else ""))
            body.append(f"self.{each.name} = {each.name}")
    body += ["self.__post_init__()"] if calls else []
    return [f"    def __init__({', '.join(taken)}) -> None:", *(f"        {line}" for line in body or ["pass"])]


def _compared(name: str, members: list[Member]) -> list[str]:
    """`__eq__`, as `dataclass` writes it for a class that nobody inherits from."""
    parts = [
        f"self.{each.name} == other.{each.name}"
        if each.type in _COMPARED
        else f"(self.{each.name} is other.{each.name} or self.{each.name} == other.{each.name})"
        for each in members
        if each.compared
    ]
    return [
        "    def __eq__(self, other: object) -> bool:",
        f"        if not isinstance(other, {name}):",
        "            return NotImplemented",
        f"        return bool({' and '.join(parts) or 'True'})",
    ]


def _hashed(members: list[Member]) -> list[str]:
    """`__hash__`, as `dataclass` writes it: the same number."""
    parts = "".join(f"self.{each.name}, " for each in members if each.compared)
    return ["    def __hash__(self) -> int:", f"        return hash(({parts.rstrip()}))"]


def _deletable(node: ast.ClassDef, edits: Edits) -> None:
    """Let an object go of its attributes one by one, where it has no dictionary of them that could be emptied."""
    found: dict[str, None] = {}
    for each in ast.walk(node):
        targets = (
            each.targets if isinstance(each, ast.Assign) else [each.target] if isinstance(each, ast.AnnAssign) else []
        )
        for target in targets:
            for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self":
                    found[part.attr] = None
    at = next(number for number in range(node.lineno, node.end_lineno or 0) if _EMPTYING in edits.lines[number])
    indented = edits.lines[at][: -len(edits.lines[at].lstrip())]
    edits.put(at, at + 1, [f"{indented}del {', '.join(f'self.{name}' for name in found)}"])
    first = node.body[1] if ast.get_docstring(node) is not None else node.body[0]
    before = _first_line(first)
    edits.put(before, before, [f"    __deletable__ = {list(found)!r}", ""])
