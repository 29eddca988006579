"""Member templates: the values of one pod of a role, written into the role's pod template.

A template is a parsed structure, and stays one: each text in it that contains `{{` or `{%` is rendered by jinja2 for
itself, and the result is the text that stands in its place. So no value can break out of its field, and the keys of the
structure are never touched. Results are always texts, as labels, annotations and environment variables want them.

The same goes for the objects that a group has besides its pods; of them `role` and `index` say nothing.

What a text may say is a small part of jinja2: the values `group`, `role`, `index`, `size`, `peers` and `namespace`;
arithmetic with whole numbers; comparisons; `peers[0]`, `peers[:size // 2]`; the filters and tests listed below;
`{% if %}`, and one level of `{% for peer in peers %}` with `loop`. A name that does not exist is an error. There are no
calls, no attributes and no assignments, and the number of steps is known before the first is taken: templates come
from users, and are rendered inside the API server's requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple

import jinja2
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST_SOURCE: Final = 16 * 2**10
"""Characters of one text with expressions; `MOST_SOURCES` of all of a template together."""
MOST_SOURCES: Final = 64 * 2**10
MOST_TEXT: Final = 128 * 2**10
"""Characters of one rendered text: what Linux takes as one argument or variable. `MOST_OUTPUT` of all together."""
MOST_OUTPUT: Final = 2**20
MOST_STEPS: Final = 2_000_000
"""Visits of peers: each mention of `peers` is one of every peer, each part of a loop's body too."""
MOST_NESTING: Final = 64

VALUES: Final = frozenset({"group", "role", "index", "size", "peers", "namespace"})
FILTERS: Final = frozenset({"default", "first", "int", "join", "last", "length", "lower", "tojson", "trim", "upper"})
TESTS: Final = frozenset({"defined", "divisibleby", "eq", "even", "ge", "gt", "in", "le", "lt", "ne", "odd"})
_LOOP: Final = frozenset({"index", "index0", "first", "last", "length", "revindex", "revindex0"})


class TemplateError(ValueError):
    """A template that cannot be rendered.

    Attributes:
        path: the place inside the template, such as `spec.containers[0].env[1].value`; empty for the whole.
        message: what is wrong there.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message


def member_name(group: str, role: str, index: int) -> str:
    """The name of a pod that is made from a role's template."""
    return f"{group}-{role}-{index}"


def render_member(
    template: Mapping[str, Any],
    *,
    group: str,
    role: str,
    index: int,
    size: int,
    peers: tuple[str, ...],
    namespace: str,
) -> dict[str, Any]:
    """The template of one member, its expressions rendered; a new structure, nothing in it is shared.

    Args:
        template: the role's pod template as it stands in the manifest.
        group: the PodGroup's name.
        role: the role's name.
        index: the member's number in its role, from 0.
        size: how many members the role has.
        peers: the host names of the role's members, by index.
        namespace: the PodGroup's namespace.

    Raises:
        TemplateError: an expression cannot be read or rendered, or asks for too much.
    """
    return _render(
        template,
        {"group": group, "role": role, "index": index, "size": size, "peers": peers, "namespace": namespace},
        peers,
    )


def render_object(
    template: Mapping[str, Any], *, group: str, namespace: str, size: int, peers: tuple[str, ...]
) -> dict[str, Any]:
    """An object of a group besides its pods, its expressions rendered: the same as for members, without role and index.

    Args:
        template: the object as it stands in the group's manifest.
        group: the PodGroup's name.
        namespace: the PodGroup's namespace.
        size: how many members the group's templates make.
        peers: the host names of these members, role by role.

    Raises:
        TemplateError: an expression cannot be read or rendered, or asks for too much.
    """
    return _render(template, {"group": group, "namespace": namespace, "size": size, "peers": peers}, peers)


def _render(template: Mapping[str, Any], values: Mapping[str, Any], peers: tuple[str, ...]) -> dict[str, Any]:
    rendered = _Rendering(values, len(peers)).walk(template, ())
    if not isinstance(rendered, dict):
        raise TemplateError("", "a template is an object with metadata and spec")
    return rendered


# --- inside -----------------------------------------------------------------------------------------------------------


class _Step(NamedTuple):
    """One step of a path: a key of an object or an index of a list."""

    at: str | int


@dataclass(slots=True)
class _Rendering:
    """One member's: the values, and what is left of the bounds."""

    values: Mapping[str, Any]
    peers: int
    sources: int = field(default=0)
    output: int = field(default=0)
    steps: int = field(default=0)

    def walk(self, value: Any, path: tuple[_Step, ...]) -> Any:
        if isinstance(value, str):
            return self._text(value, path) if "{{" in value or "{%" in value else value
        if len(path) > MOST_NESTING:
            raise TemplateError(_shown(path), f"nested more than {MOST_NESTING} levels deep")
        if isinstance(value, Mapping):
            return {key: self.walk(inner, (*path, _Step(str(key)))) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.walk(inner, (*path, _Step(index))) for index, inner in enumerate(value)]
        return value

    def _text(self, source: str, path: tuple[_Step, ...]) -> str:
        self.sources += len(source)
        if len(source) > MOST_SOURCE or self.sources > MOST_SOURCES:
            raise TemplateError(
                _shown(path), f"more than {MOST_SOURCE} characters with expressions, or {MOST_SOURCES} in all"
            )
        try:
            compiled = _compiled(source)
            self.steps += compiled.passes * self.peers
            if self.steps > MOST_STEPS:
                raise _RefusedError(f"its loops over peers take more than {MOST_STEPS} steps")
            text = _bounded(compiled.template.generate(**self.values))
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(_shown(path), _lined(error.message or "cannot be read", error.lineno)) from None
        except (jinja2.TemplateError, _RefusedError, ArithmeticError, TypeError, ValueError) as error:
            raise TemplateError(_shown(path), str(error) or type(error).__name__) from None
        except (RecursionError, SyntaxError, MemoryError):
            raise TemplateError(_shown(path), "its expressions are nested too deep") from None
        self.output += len(text)
        if self.output > MOST_OUTPUT:
            raise TemplateError(_shown(path), f"more than {MOST_OUTPUT} characters are rendered in all")
        return text


def _bounded(chunks: Iterable[str]) -> str:
    parts: list[str] = []
    length = 0
    for chunk in chunks:
        length += len(chunk)
        if length > MOST_TEXT:
            raise _RefusedError(f"renders to more than {MOST_TEXT} characters")
        parts.append(chunk)
    return "".join(parts)


def _shown(path: tuple[_Step, ...]) -> str:
    text = ""
    for step in path:
        if isinstance(step.at, int):
            text += f"[{step.at}]"
        elif step.at.isidentifier():
            text += f".{step.at}" if text else step.at
        else:
            text += f"[{step.at}]"
    return text


def _lined(message: str, line: int) -> str:
    return f"line {line}: {message}" if line > 1 else message


class _RefusedError(Exception):
    """What jinja2 could do, but templates here may not."""


class _Compiled(NamedTuple):
    template: jinja2.Template
    passes: int
    """How often it visits each peer, at most."""


@lru_cache(maxsize=1024)
def _compiled(source: str) -> _Compiled:
    tree = _ENVIRONMENT.parse(source)
    checker = _Checker()
    checker.check(tree)
    return _Compiled(_ENVIRONMENT.from_string(tree), checker.passes)


class _Checker:
    """Walks a parsed text and refuses what is not on the list."""

    ALLOWED: ClassVar[tuple[type[nodes.Node], ...]] = (
        nodes.Template, nodes.Output, nodes.TemplateData, nodes.Const, nodes.Name, nodes.If, nodes.CondExpr,
        nodes.Add, nodes.Sub, nodes.Mul, nodes.FloorDiv, nodes.Mod, nodes.Neg, nodes.Pos, nodes.And, nodes.Or,
        nodes.Not, nodes.Compare, nodes.Operand, nodes.Getitem, nodes.Slice, nodes.List, nodes.Tuple,
    )  # fmt: skip
    DEEPEST: ClassVar = 24

    def __init__(self) -> None:
        self.passes = 0
        self._loop: str | None = None  # the variable of the loop that the walk is in

    def check(self, node: nodes.Node, depth: int = 0) -> None:
        if depth > self.DEEPEST:
            raise RecursionError
        if self._loop is not None:
            self.passes += 1
        match node:
            case nodes.For():
                self._for(node, depth)
                return
            case nodes.Name(name=name):
                self._name(name)
            case nodes.Getitem(node=nodes.Name(name="peers"), arg=argument) if not isinstance(argument, nodes.Slice):
                self.check(argument, depth + 1)  # one peer: the only way to name peers inside a loop
                return
            case nodes.Getattr(node=nodes.Name(name="loop"), attr=attribute) if self._loop is not None:
                if attribute not in _LOOP:
                    raise _RefusedError(f"loop has no {attribute!r}; there are {', '.join(sorted(_LOOP))}")
                return
            case nodes.Filter():
                self._filter(node)
            case nodes.Test():
                if node.name not in TESTS:
                    raise _RefusedError(f"no test {node.name!r} here; there are {', '.join(sorted(TESTS))}")
            case nodes.Concat():
                raise _RefusedError("no `~` here: write one expression after the other")
            case _ if not isinstance(node, self.ALLOWED):
                raise _RefusedError(f"no {_WORDS.get(type(node), type(node).__name__.lower())} here")
        for child in node.iter_child_nodes():
            self.check(child, depth + 1)

    def _name(self, name: str) -> None:
        if name not in VALUES and name != self._loop:
            raise _RefusedError(f"{name!r} is undefined; there are {', '.join(sorted(VALUES))}")
        if name == "peers":
            if self._loop is not None:
                raise _RefusedError("inside a loop only single peers, such as peers[0]")
            self.passes += 1

    def _for(self, node: nodes.For, depth: int) -> None:
        if self._loop is not None:
            raise _RefusedError("no loop inside a loop")
        whole = node.iter.node if isinstance(node.iter, nodes.Getitem) else node.iter
        sliced = not isinstance(node.iter, nodes.Getitem) or isinstance(node.iter.arg, nodes.Slice)
        if not (isinstance(whole, nodes.Name) and whole.name == "peers" and sliced):
            raise _RefusedError("a loop goes over peers, or a slice such as peers[1:]")
        if not isinstance(node.target, nodes.Name) or node.recursive:
            raise _RefusedError("a loop has one variable")
        if node.target.name in VALUES or node.target.name == "loop":
            raise _RefusedError(f"{node.target.name!r} cannot be a loop's variable")
        self.check(node.iter, depth + 1)
        self._loop = node.target.name
        for child in (*node.body, *([] if node.test is None else [node.test])):
            self.check(child, depth + 1)
        self._loop = None
        for child in node.else_:
            self.check(child, depth + 1)

    def _filter(self, node: nodes.Filter) -> None:
        if node.name not in FILTERS or node.node is None:
            raise _RefusedError(f"no filter {node.name!r} here; there are {', '.join(sorted(FILTERS))}")


_WORDS: Final[Mapping[type[nodes.Node], str]] = {
    nodes.Call: "calls",
    nodes.Getattr: "attributes",
    nodes.Assign: "assignments",
    nodes.AssignBlock: "assignments",
    nodes.Pow: "powers",
    nodes.Div: "fractions (`/`; whole numbers divide by `//`)",
    nodes.Include: "includes",
    nodes.Import: "imports",
    nodes.FromImport: "imports",
    nodes.Extends: "inheritance",
    nodes.Block: "blocks",
    nodes.Macro: "macros",
    nodes.Dict: "objects",
}


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox; its arithmetic is checked, as `'x' * 10**9` and `'%999999999d' % 1` are arithmetic too."""

    intercepted_binops = frozenset({"+", "-", "*", "//", "%"})
    intercepted_unops = frozenset({"+", "-"})

    def getitem(self, obj: Any, argument: Any) -> Any:  # as jinja2 has it, it finds methods by their names
        try:
            return obj[argument]
        except (LookupError, TypeError):
            return self.undefined(obj=obj, name=argument)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "+" and isinstance(left, str) and isinstance(right, str):
            if len(left) + len(right) > MOST_TEXT:
                raise _RefusedError(f"renders to more than {MOST_TEXT} characters")
            return left + right
        result = self.binop_table[operator](_whole(left, operator), _whole(right, operator))
        return _whole(result, operator)

    def call_unop(self, context: Any, operator: str, arg: Any) -> Any:
        return self.unop_table[operator](_whole(arg, operator))


def _whole(value: Any, operator: str) -> int:
    if isinstance(value, jinja2.Undefined):
        value._fail_with_undefined_error()  # noqa: SLF001  (jinja2's own message names what is missing)
    if type(value) is not int:
        raise _RefusedError(f"`{operator}` wants whole numbers, not {type(value).__name__}")
    if abs(value) > 2**63:
        raise _RefusedError("a number beyond 2^63")
    return value


def _join(values: Iterable[Any], separator: str = "") -> str:
    return _bounded(chunk for value in values for chunk in (separator, str(value)))[len(separator) :]


def _tojson(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _make_environment() -> _Environment:
    # A comment as jinja2 has it starts with `{#`, as shells' `${#name}` does.
    environment = _Environment(
        undefined=jinja2.StrictUndefined,
        comment_start_string="{{#",
        comment_end_string="#}}",
        keep_trailing_newline=True,
        autoescape=False,
        cache_size=0,
    )
    environment.globals.clear()
    environment.filters = {name: environment.filters[name] for name in FILTERS - {"join", "tojson"}}
    environment.filters |= {"join": _join, "tojson": _tojson}
    environment.tests = {name: environment.tests[name] for name in TESTS}
    return environment


_ENVIRONMENT: Final = _make_environment()
