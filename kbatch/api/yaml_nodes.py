"""YAML as a tree in which every value knows its line: bounded, without aliases, without duplicate keys.

PyYAML's loaders lose positions and take the last of two equal keys. Here the C parser's own node tree is wrapped, after
a pass over its events that refuses what could make the tree large: aliases (a few lines of them can stand for billions
of nodes), deep nesting, long files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import yaml

MOST_CHARACTERS: Final = 256 * 1024
MOST_DEPTH: Final = 20

Value: TypeAlias = "str | int | float | bool | list[Value] | dict[str, Value] | None"
"""What a node means, as JSON could say it."""

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG: Final = "tag:yaml.org,2002:"
_PLAIN: Final = frozenset(_TAG + name for name in ("str", "timestamp", "binary", "value"))
_CONSTRUCTED: Final = frozenset(_TAG + name for name in ("bool", "int", "float", "null"))


class YamlError(ValueError):
    """A text that is not such YAML: `line` from 1, None where the parser does not tell; and why."""

    def __init__(self, line: int | None, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


@dataclass(frozen=True, slots=True, eq=False)
class ScalarNode:
    """A text, number, boolean or null."""

    line: int
    value: str
    """As written, without quotes."""
    tag: str

    @property
    def is_text(self) -> bool:
        """Whether YAML reads it as a text."""
        return self.tag in _PLAIN

    @property
    def is_null(self) -> bool:
        """Whether nothing stands there, or `null`."""
        return self.tag == _TAG + "null"


@dataclass(frozen=True, slots=True, eq=False)
class SequenceNode:
    """A list."""

    line: int
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MappingNode:
    """A mapping, in the order of the file; keys may repeat until `fields` is asked."""

    line: int
    pairs: tuple[tuple[Node, Node], ...]

    def fields(self, what: str) -> dict[ScalarNode, Node]:
        """The pairs by key; keys compare by identity, so that each keeps its line.

        Raises:
            YamlError: a key that is no scalar, or one that stands twice; `what` names the mapping in the message.
        """
        found: dict[str, ScalarNode] = {}
        fields: dict[ScalarNode, Node] = {}
        for key, value in self.pairs:
            if not isinstance(key, ScalarNode):
                raise YamlError(key.line, f"a key of the {what} must be a word")
            if key.value in found:
                raise YamlError(key.line, f"{key.value[:64]!r} stands twice, first on line {found[key.value].line}")
            found[key.value] = key
            fields[key] = value
        return fields


Node: TypeAlias = ScalarNode | SequenceNode | MappingNode


def root_of(text: str, of: str) -> MappingNode:
    """The one document of `text`, which must be a mapping; `of` says in a message what its keys are.

    Raises:
        YamlError: not YAML, more than one document, an alias, or beyond the bounds.
    """
    if len(text) > MOST_CHARACTERS:
        raise YamlError(None, f"larger than {MOST_CHARACTERS // 1024} Ki characters")
    try:
        _check_events(text)
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        why = " ".join(part for part in (error.context, error.problem) if part)
        raise YamlError(_line_of(error, text), f"not YAML: {why}") from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise YamlError(None, f"not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(node, yaml.MappingNode):
        raise YamlError(None if node is None else node.start_mark.line + 1, f"must be a mapping with {of}")
    wrapped = _wrap(node)
    assert isinstance(wrapped, MappingNode)  # noqa: S101 -- what a yaml.MappingNode is wrapped as
    return wrapped


def read_value(node: Node) -> Value:
    """What a node means; numbers and booleans as YAML reads them, everything quoted as text.

    Raises:
        YamlError: a tag of a programming language, a value that contradicts its tag, a key that is no word.
    """
    if isinstance(node, SequenceNode):
        return [read_value(item) for item in node.items]
    if isinstance(node, MappingNode):
        return {key.value: read_value(value) for key, value in node.fields("mapping").items()}
    if node.tag in _PLAIN:
        return node.value
    if node.tag not in _CONSTRUCTED:
        raise YamlError(node.line, f"the tag {node.tag[:64]!r} is not allowed")
    try:
        value: Value = yaml.constructor.SafeConstructor().construct_document(yaml.ScalarNode(node.tag, node.value))
    except (ValueError, KeyError, yaml.YAMLError):
        raise YamlError(node.line, f"{node.value[:64]!r} is not a {node.tag.removeprefix(_TAG)}") from None
    return value


def _line_of(error: yaml.MarkedYAMLError, text: str) -> int | None:
    # A word without its colon is noticed only where the next one starts: the word's own line is what helps.
    early = error.context_mark if "simple key" in (error.context or "") else None
    mark = early or error.problem_mark or error.context_mark
    return None if mark is None else min(mark.line + 1, max(1, len(text.splitlines())))


def _check_events(text: str) -> None:
    depth = documents = 0
    for event in _events(text):
        line = event.start_mark.line + 1 if event.start_mark is not None else None
        if isinstance(event, yaml.AliasEvent):
            raise YamlError(line, f"the alias *{event.anchor} is not allowed; write the value out")
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise YamlError(line, "only one document is allowed")
        elif isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MOST_DEPTH:
                raise YamlError(line, f"nested deeper than {MOST_DEPTH} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _events(text: str) -> Iterator[yaml.Event]:
    yield from yaml.parse(text, Loader=_LOADER)


def _wrap(node: yaml.Node) -> Node:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        return MappingNode(line, tuple((_wrap(key), _wrap(value)) for key, value in node.value))
    if isinstance(node, yaml.SequenceNode):
        return SequenceNode(line, tuple(_wrap(item) for item in node.value))
    return ScalarNode(line=line, value=node.value, tag=node.tag)
