"""Files, folders and standard input, as plain documents with the place where each one stands.

YAML is read as the API server's clients read it: a time stays text, a key that stands twice is an error. What is JSON
is read as JSON, some fifty times as fast.
"""

from __future__ import annotations

import json
import operator
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import yaml

from kbatch.simulator.errors import Fault, InputError, Place

STANDARD_INPUT: Final = "-"
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_MOST_DEPTH: Final = 500
_MOST_BYTES: Final = 2**29
"""A text beyond this (512 MiB, more than a million pods) is taken for a mistake, such as a device."""
_MOST_NODES: Final = 1_000_000
"""Values of one YAML document with its aliases written out, beyond what a document may have where it uses any."""
_WHITE: Final = re.compile(r"\s*")
_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = _TAG + "merge"
_TEXT: Final = _TAG + "str"
_MAPPING: Final = _TAG + "map"
_SEQUENCE: Final = _TAG + "seq"
_INTEGER: Final = _TAG + "int"
_NUMBERS: Final = frozenset({_INTEGER, _TAG + "float"})
_PLAIN_INTEGER: Final = re.compile("0|[1-9][0-9]{0,17}")
_PLAIN_SCALARS: Final[dict[str, Callable[[Any, yaml.ScalarNode], Any]]] = {
    _TAG + "null": yaml.constructor.SafeConstructor.construct_yaml_null,
    _TAG + "bool": yaml.constructor.SafeConstructor.construct_yaml_bool,
    _INTEGER: yaml.constructor.SafeConstructor.construct_yaml_int,
    _TAG + "float": yaml.constructor.SafeConstructor.construct_yaml_float,
}
_MOST_TAGS: Final = 1 << 16
"""Of so many plain scalars of one text the tag is remembered."""


@dataclass(frozen=True, slots=True)
class Document:
    """A mapping as it was read, one object or a whole list of them."""

    place: Place
    content: dict[str, Any]


def read(paths: Sequence[str]) -> Iterator[Document]:
    """Every document of the files and folders (sorted by path, with all below them) and of `-`, in order.

    Raises:
        InputError: a path that does not exist or cannot be read, a folder without manifests, text that is neither YAML
            nor JSON, a document that is no mapping.
    """
    for path in paths:
        if path == STANDARD_INPUT:
            yield from parse(_decode(_bounded(sys.stdin.buffer, "standard input"), "standard input"), "standard input")
        else:
            for file in _files(Path(path)):
                try:
                    with file.open("rb") as opened:
                        content = _bounded(opened, str(file))
                except OSError as error:
                    raise _error(Place(str(file)), f"cannot be read: {error.strerror or error}") from None
                yield from parse(_decode(content, str(file)), str(file))


def parse(text: str, source: str) -> Iterator[Document]:
    """The documents of one text; empty documents are counted and left out.

    Raises:
        InputError: as for `read`.
    """
    looks_like_json = text.lstrip()[:1] in {"{", "["}
    contents = _parse_json(text, source) if looks_like_json else _parse_yaml(text, source)
    for number, content in enumerate(contents, start=1):
        if content is None:
            continue
        place = Place(source, number)
        if not isinstance(content, dict):
            raise _error(place, f"expected an object with apiVersion and kind, got {_name_of(content)}")
        yield Document(place, content)


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise _error(Place(str(path)), "there is no such file or folder")
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix.lower() in _SUFFIXES and file.is_file())
    if not found:
        raise _error(Place(str(path)), "the folder holds no .yaml, .yml or .json file")
    return found


def _bounded(stream: BinaryIO, source: str) -> bytes:
    content = stream.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise _error(Place(source), f"is larger than {_MOST_BYTES >> 20} MiB; give it in several files")
    return content


def _decode(content: bytes, source: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _error(Place(source), f"is no UTF-8 text (byte {error.start})") from None


def _parse_json(text: str, source: str) -> Iterator[Any]:
    """One JSON document, or several one after the other; what is not JSON after all is read as YAML."""
    try:
        yield msgspec.json.decode(text)
        return  # noqa: TRY300 -- a generator's `else` would hide what is tried
    except RecursionError:
        raise _error(Place(source, 1), "is not YAML: nested too deeply") from None
    except msgspec.DecodeError:
        pass
    contents: list[Any] = []
    decoder, position = json.JSONDecoder(), _after_white(text, 0)
    try:
        while position < len(text):
            content, position = decoder.raw_decode(text, position)
            contents.append(content)
            position = _after_white(text, position)
    except RecursionError:
        raise _error(Place(source, len(contents) + 1), "is not YAML: nested too deeply") from None
    except json.JSONDecodeError as error:
        if source.endswith(".json"):
            raise _error(
                Place(source, len(contents) + 1),
                f"is not JSON: {error.msg} (line {error.lineno}, column {error.colno})",
            ) from None
        yield from _parse_yaml(text, source)
        return
    yield from contents


def _after_white(text: str, position: int) -> int:
    match = _WHITE.match(text, position)
    return match.end() if match is not None else position


_resolve: Final[Callable[[Any, type[yaml.Node], Any, Any], str]] = yaml.CSafeLoader.resolve


class _NotPlainError(Exception):
    """A document of which some node is not of the commonest kinds."""


class _Loader(yaml.CSafeLoader):
    """PyYAML's C loader; times stay text, and a key that stands twice is an error."""

    yaml_implicit_resolvers = {  # noqa: RUF012 -- the base class's own shape
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._tags: dict[str, str] = {}

    # No tag depends on where a node stands, and PyYAML asks about that at each one.
    descend_resolver: Callable[..., Any] = staticmethod(operator.is_)
    ascend_resolver: Callable[..., Any] = staticmethod(bool)

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        """The tag of a node; of plain scalars, most of which occur again and again, it is remembered."""
        if kind is not yaml.ScalarNode:
            return _MAPPING if kind is yaml.MappingNode else _SEQUENCE
        if not implicit[0]:
            return _TEXT
        known = self._tags.get(value)
        if known is None:
            known = _resolve(self, kind, value, implicit)
            if ":" in value and known in _NUMBERS:  # 1:30 is a number to base 60 in YAML 1.1, but no longer to kubectl
                known = _TEXT
            if len(self._tags) < _MOST_TAGS:
                self._tags[value] = known
        return known

    def content_of(self, root: yaml.Node) -> Any:
        """As `construct_document`, several times as fast where all is plain: the commonest tags, no key twice."""
        try:
            return self._plain(root)
        except (_NotPlainError, RecursionError):
            return self.construct_document(root)

    def _plain(self, node: yaml.Node) -> Any:
        """The value of a node. Whoever meets an alias does not ask: what it stands for would be made twice.

        Raises:
            _NotPlainError: something that only PyYAML's own constructors know what to do with, or refuse.
        """
        tag, value = node.tag, node.value
        if tag == _TEXT and type(value) is str:
            return value
        if tag == _MAPPING and type(node) is yaml.MappingNode:
            found = {}
            for key, item in value:
                if key.tag != _TEXT or type(key.value) is not str:
                    raise _NotPlainError
                found[key.value] = self._plain(item)
            if len(found) != len(value):
                raise _NotPlainError
            return found
        if tag == _SEQUENCE and type(node) is yaml.SequenceNode:
            return [self._plain(item) for item in value]
        construct = _PLAIN_SCALARS.get(tag)
        if construct is None or type(node) is not yaml.ScalarNode:
            raise _NotPlainError
        if tag == _INTEGER and _PLAIN_INTEGER.fullmatch(value):
            return int(value)
        return construct(self, node)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key.value, str) and key.tag != _MERGE]
        if len(keys) != len(set(keys)):
            twice = next(key for key in keys if keys.count(key) > 1)
            marks = [key.start_mark for key, _ in node.value if key.value == twice]
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice!r} stands twice", marks[1])
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def _too_deep(text: str) -> bool:
    """Whether something is nested so deeply that the C parser, which calls itself, would run out of stack."""
    # The first of them stands apart: a pattern that begins with a group is tried at every character.
    if re.search(rf"[-?][ \t]+(?:[-?][ \t]+){{{_MOST_DEPTH - 1}}}", text) is not None:
        return True
    # Most texts have nothing but empty ones. The innermost two brackets of what is nested may be lost with these.
    filled = text.replace("[]", "").replace("{}", "")
    if filled.count("[") + filled.count("{") < _MOST_DEPTH - 1:
        return False
    depth = 0
    for match in re.finditer(r"[\[{\]}]|^---", text, re.MULTILINE):
        bracket = match[0]
        depth = 0 if bracket == "---" else depth + 1 if bracket in "[{" else max(0, depth - 1)
        if depth > _MOST_DEPTH:
            return True
    return False


def _parse_yaml(text: str, source: str) -> Iterator[Any]:
    if _too_deep(text):
        raise _error(Place(source), "is not YAML: nested too deeply")
    loader = _Loader(text)
    number, aliases = 1, "*" in text and "&" in text
    try:
        while loader.check_node():
            node = loader.get_node()
            if aliases and node is not None:
                _check_size(node)
            yield loader.construct_document(node) if aliases or node is None else loader.content_of(node)
            number += 1
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else ""
        what = re.sub(r"\s+", " ", error.problem or error.context or "not understood")
        raise _error(Place(source, number), f"is not YAML: {what}{where}") from None
    except yaml.YAMLError as error:
        raise _error(Place(source, number), f"is not YAML: {str(error).splitlines()[0]}") from None
    except (ValueError, RecursionError) as error:  # what PyYAML's constructors let through, such as a month 13
        what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise _error(Place(source, number), f"is not YAML: {what}") from None
    finally:
        loader.dispose()


def _check_size(root: yaml.Node) -> None:
    """Refuse a document whose aliases stand for far more than is written, or for what they are part of.

    PyYAML lets aliases share what they stand for; whoever walks through that meets it as often as it is named, and a
    few hundred bytes can name something billions of times.

    Raises:
        ValueError: it is such a document.
    """
    sizes: dict[int, int] = {}  # of what is done; 0 while it is being counted
    stack: list[tuple[yaml.Node, bool]] = [(root, False)]
    while stack:
        node, done = stack.pop()
        parts = _parts(node)
        if done:
            sizes[id(node)] = 1 + sum(sizes[id(part)] for part in parts)
            continue
        if id(node) in sizes:
            continue
        sizes[id(node)] = 0
        stack.append((node, True))
        for part in parts:
            size = sizes.get(id(part))
            if size is None:
                stack.append((part, False))
            elif size == 0:
                raise ValueError(f"an alias stands for what it is part of (line {node.start_mark.line + 1})")
    most = max(_MOST_NODES, 20 * len(sizes))
    if sizes[id(root)] > most:
        raise ValueError(f"its aliases stand for more than {most} values, {len(sizes)} are written")


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _name_of(content: object) -> str:
    names = {str: "text", list: "a list", bool: "a truth value", int: "a number", float: "a number"}
    return names.get(type(content), type(content).__name__)


def _error(place: Place, what: str) -> InputError:
    return InputError([Fault(place, "", what)])
