"""What a text of a member template may say: a small part of jinja2, checked before it is compiled.

There are no calls, no attributes and no assignments, and how often a text visits each peer is known before it is
rendered. What a visit costs is not: filters and sums work on texts of any length, so they pay for them as they run.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

import jinja2
from jinja2 import filters, nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kbatch.model.peers import Peers
from kbatch.model.template_budget import Budget, RefusedTextError

MOST_TEXT: Final = 128 * 2**10
"""Characters of one rendered text: what Linux takes as one argument or variable."""
MOST_KEPT: Final = 512 * 2**10
"""Characters of all texts whose compiled form is kept: up to 50 bytes for each."""

_OF_ALL: Final = frozenset({"group", "size", "peers", "namespace"})
_OF_MEMBERS: Final = frozenset({"role", "index"})
VALUES: Final = _OF_ALL | _OF_MEMBERS
FILTERS: Final = frozenset({"default", "first", "int", "join", "last", "length", "lower", "tojson", "trim", "upper"})
TESTS: Final = frozenset({"defined", "divisibleby", "eq", "even", "ge", "gt", "in", "le", "lt", "ne", "odd"})
_LOOP: Final = frozenset({"index", "index0", "first", "last", "length", "revindex", "revindex0"})
_BUDGET: Final = "_budget"
"""Where the budget stands among the values; no text can name it."""


class Compiled(NamedTuple):
    """A text that can be rendered.

    Attributes:
        nodes: of its expressions. passes: how often it visits each peer, at most.
    """

    template: jinja2.Template
    nodes: int
    passes: int

    def render(self, values: Mapping[str, Any], budget: Budget) -> str:
        """The text with its values.

        Raises:
            RefusedTextError: it is too long, or takes too much.
            jinja2.TemplateError, ArithmeticError, TypeError, ValueError: it cannot be rendered.
        """
        return bounded(self.template.generate(**values, **{_BUDGET: budget}))


def compiled(source: str, budget: Budget) -> Compiled:
    """A text, checked and ready to be rendered; one that was compiled before is kept for a while.

    Raises:
        RefusedTextError: it says what no template may say, or takes too much.
        jinja2.TemplateSyntaxError: it cannot be read.
        RecursionError, SyntaxError, MemoryError: it is nested too deep.
    """
    new = budget.reads(source)
    known = _KEPT.find(source)
    if known is not None:
        if new:
            budget.compiles(known.nodes)
        return known
    tree = _ENVIRONMENT.parse(source)
    checker = _Checker()
    checker.check(tree)
    budget.compiles(checker.nodes)
    made = Compiled(_ENVIRONMENT.from_string(tree), checker.nodes, checker.passes)
    _KEPT.keep(source, made)
    return made


def bounded(chunks: Iterable[str]) -> str:
    """The chunks together.

    Raises:
        RefusedTextError: they are longer than a text may be.
    """
    parts: list[str] = []
    length = 0
    for chunk in chunks:
        length += len(chunk)
        if length > MOST_TEXT:
            raise RefusedTextError(f"renders to more than {MOST_TEXT} characters")
        parts.append(chunk)
    return "".join(parts)


# --- inside -----------------------------------------------------------------------------------------------------------


class _Kept:
    """The texts compiled last, for one thread. What they hold in memory follows their lengths, so these are limited."""

    def __init__(self) -> None:
        self._texts: OrderedDict[str, Compiled] = OrderedDict()
        self._length = 0

    def find(self, source: str) -> Compiled | None:
        found = self._texts.pop(source, None)
        if found is not None:
            self._texts[source] = found
        return found

    def keep(self, source: str, made: Compiled) -> None:
        self._texts[source] = made
        self._length += len(source)
        while self._length > MOST_KEPT:
            oldest, _ = self._texts.popitem(last=False)
            self._length -= len(oldest)


_KEPT: Final = _Kept()


class _Checker:
    """Walks a parsed text and refuses what is not on the list."""

    ALLOWED: ClassVar[tuple[type[nodes.Node], ...]] = (
        nodes.Template, nodes.Output, nodes.TemplateData, nodes.Const, nodes.Name, nodes.If, nodes.CondExpr,
        nodes.Add, nodes.Sub, nodes.Mul, nodes.FloorDiv, nodes.Mod, nodes.Neg, nodes.Pos, nodes.And, nodes.Or,
        nodes.Not, nodes.Compare, nodes.Operand, nodes.Getitem, nodes.Slice, nodes.List, nodes.Tuple,
    )  # fmt: skip
    DEEPEST: ClassVar = 24

    def __init__(self) -> None:
        self.nodes = 0
        self.passes = 0
        self._loop: str | None = None  # the variable of the loop that the walk is in

    def check(self, node: nodes.Node, depth: int = 0) -> None:
        if depth > self.DEEPEST:
            raise RecursionError
        self.nodes += 1
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
                    raise RefusedTextError(f"loop has no {attribute!r}; there are {', '.join(sorted(_LOOP))}")
                return
            case nodes.Filter():
                self._filter(node)
            case nodes.Test():
                if node.name not in TESTS:
                    raise RefusedTextError(f"no test {node.name!r} here; there are {', '.join(sorted(TESTS))}")
            case nodes.Concat():
                raise RefusedTextError("no `~` here: write one expression after the other")
            case _ if not isinstance(node, self.ALLOWED):
                raise RefusedTextError(f"no {_WORDS.get(type(node), type(node).__name__.lower())} here")
        for child in node.iter_child_nodes():
            self.check(child, depth + 1)

    def _name(self, name: str) -> None:
        if name not in VALUES and name != self._loop:
            everywhere, pods = ", ".join(sorted(_OF_ALL)), ", ".join(sorted(_OF_MEMBERS))
            raise RefusedTextError(f"{name!r} is undefined; there are {everywhere}, and in templates of pods {pods}")
        if name == "peers":
            if self._loop is not None:
                raise RefusedTextError("inside a loop only single peers, such as peers[0]")
            self.passes += 1

    def _for(self, node: nodes.For, depth: int) -> None:
        if self._loop is not None:
            raise RefusedTextError("no loop inside a loop")
        whole = node.iter.node if isinstance(node.iter, nodes.Getitem) else node.iter
        sliced = not isinstance(node.iter, nodes.Getitem) or isinstance(node.iter.arg, nodes.Slice)
        if not (isinstance(whole, nodes.Name) and whole.name == "peers" and sliced):
            raise RefusedTextError("a loop goes over peers, or a slice such as peers[1:]")
        if not isinstance(node.target, nodes.Name) or node.recursive:
            raise RefusedTextError("a loop has one variable")
        if node.target.name in VALUES or node.target.name == "loop":
            raise RefusedTextError(f"{node.target.name!r} cannot be a loop's variable")
        self.check(node.iter, depth + 1)
        self._loop = node.target.name
        for child in (*node.body, *([] if node.test is None else [node.test])):
            self.check(child, depth + 1)
        self._loop = None
        for child in node.else_:
            self.check(child, depth + 1)

    def _filter(self, node: nodes.Filter) -> None:
        if node.name not in FILTERS or node.node is None:
            raise RefusedTextError(f"no filter {node.name!r} here; there are {', '.join(sorted(FILTERS))}")


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
            hint = f"peers has no element {argument!r}" if isinstance(obj, Peers | tuple) else None
            return self.undefined(hint=hint, obj=obj, name=argument)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "+" and isinstance(left, str) and isinstance(right, str):
            if len(left) + len(right) > MOST_TEXT:
                raise RefusedTextError(f"renders to more than {MOST_TEXT} characters")
            context.parent[_BUDGET].spend_on_text(left, right)
            return left + right
        result = self.binop_table[operator](_whole(left, operator), _whole(right, operator))
        return _whole(result, operator)

    def call_unop(self, context: Any, operator: str, arg: Any) -> Any:
        return self.unop_table[operator](_whole(arg, operator))


def _whole(value: Any, operator: str) -> int:
    if isinstance(value, jinja2.Undefined):
        value._fail_with_undefined_error()  # noqa: SLF001  (jinja2's own message names what is missing)
    if type(value) is not int:
        raise RefusedTextError(f"`{operator}` wants whole numbers, not {type(value).__name__}")
    if abs(value) > 2**63:
        raise RefusedTextError("a number beyond 2^63")
    return value


def _join(values: Iterable[Any], separator: str = "") -> str:
    return bounded(chunk for value in values for chunk in (separator, str(value)))[len(separator) :]


def _tojson(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_listed)


def _listed(value: Any) -> list[Any]:
    if isinstance(value, Peers):
        return list(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _metered(of: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that pays for the texts that it takes and gives."""

    @jinja2.pass_context
    def metered(context: Context, value: Any, *arguments: Any, **named: Any) -> Any:
        budget: Budget = context.parent[_BUDGET]
        budget.spend_on_text(value)
        result = of(value, *arguments, **named)
        budget.spend_on_text(result)
        return result

    return metered


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
    known: dict[str, Callable[..., Any]] = {
        "default": filters.do_default,
        "first": lambda value: filters.do_first(environment, value),
        "int": filters.do_int,
        "join": _join,
        "last": lambda value: filters.do_last(environment, value),
        "length": len,
        "lower": filters.do_lower,
        "tojson": _tojson,
        "trim": filters.do_trim,
        "upper": filters.do_upper,
    }
    environment.filters = {name: _metered(known[name]) for name in FILTERS}
    environment.tests = {name: environment.tests[name] for name in TESTS}
    return environment


_ENVIRONMENT: Final = _make_environment()
