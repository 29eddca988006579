"""The scheduler configuration: which actions run, and which plugins advise them, in kube-batch's file format.

`parse` reads the shape strictly and keeps the line of every word; what actions, plugins and arguments exist is known to
whoever holds the registry (`kbatch.engine`), which asks `Entry.unknown` and `PluginConfiguration.read_arguments` for
errors of the same kind. Every error names the file, the line and, for a misspelt word, the nearest known one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from kbatch.api.yaml_nodes import MappingNode, Node, ScalarNode, SequenceNode, Value, YamlError, read_value, root_of

_Model = TypeVar("_Model", bound=BaseModel)

_MOST_PLUGINS: Final = 100
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?", re.ASCII)


class Switch(Enum):
    """What a plugin may be asked, each of which a configuration can switch off. Overused and JobValid have none."""

    JOB_ORDER = "JobOrder"
    TASK_ORDER = "TaskOrder"
    QUEUE_ORDER = "QueueOrder"
    JOB_READY = "JobReady"
    JOB_PIPELINED = "JobPipelined"
    PREEMPTABLE = "Preemptable"
    RECLAIMABLE = "Reclaimable"
    PREDICATE = "Predicate"
    NODE_ORDER = "NodeOrder"


_SWITCH_WORDS: Final = {
    **{f"enable{switch.value}": (switch, True) for switch in Switch},
    **{f"disable{switch.value}": (switch, False) for switch in Switch},
}
_PLUGIN_WORDS: Final = ("name", "arguments", *_SWITCH_WORDS)
_ACTION_WORDS: Final = ("name", "arguments")


class ConfigurationError(ValueError):
    """A configuration that cannot be used: `source` (a file's name), `line` from 1 or None, and why."""

    def __init__(self, source: str, line: int | None, message: str) -> None:
        super().__init__(f"{source}:{line}: {message}" if line is not None else f"{source}: {message}")
        self.source = source
        self.line = line
        self.message = message


@dataclass(frozen=True, slots=True)
class Entry:
    """A word of the file and where it stands."""

    name: str
    source: str
    line: int

    def error(self, message: str) -> ConfigurationError:
        """An error that points at this word; to be raised by the caller."""
        return ConfigurationError(self.source, self.line, message)

    def unknown(self, what: str, known: Collection[str]) -> ConfigurationError:
        """The error for a word that is none of the `known`; `what` says what it should have been, such as `plugin`."""
        return self.error(_unknown(what, self.name, known))


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a plugin or an action, and its place: the value as YAML means it (text, number, boolean, list or
    mapping).
    """

    entry: Entry
    value: Value


def _read(what: str, entry: Entry, arguments: tuple[Argument, ...], model: type[_Model]) -> _Model:
    """Arguments as a typed model; texts such as "1" and "true" are read as what they mean.

    A model whose arguments are not all known beforehand (a weight per resource) allows extras and names what they
    begin with in a class variable `extra_prefixes`.

    Raises:
        ConfigurationError: an unknown argument (with the nearest known one), or a value that the model refuses.
    """
    known = [name for name, field in model.model_fields.items() for name in (field.alias or name,)]
    prefixes: tuple[str, ...] = getattr(model, "extra_prefixes", ())
    values: dict[str, Value] = {}
    for argument in arguments:
        if argument.entry.name not in known and not argument.entry.name.startswith(prefixes):
            raise argument.entry.unknown(f"argument of {what} {entry.name}", known)
        values[argument.entry.name] = argument.value
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        word = next((argument.entry for argument in arguments if argument.entry.name == name), entry)
        where = ".".join(str(part) for part in first["loc"])
        raise word.error(f"argument {where or name} of {what} {entry.name}: {first['msg']}") from None


@dataclass(frozen=True, slots=True)
class ActionConfiguration:
    """An action's place among the others, and its arguments as they were written."""

    entry: Entry
    arguments: tuple[Argument, ...] = ()

    @property
    def name(self) -> str:
        """The action's name."""
        return self.entry.name

    def read_arguments(self, model: type[_Model]) -> _Model:
        """The arguments as the action's own typed model; see `PluginConfiguration.read_arguments`.

        Raises:
            ConfigurationError: an unknown argument (with the nearest known one), or a value that the model refuses.
        """
        return _read("action", self.entry, self.arguments, model)


@dataclass(frozen=True, slots=True)
class PluginConfiguration:
    """A plugin's place in a tier: its switches that stand in the file, and its arguments as they were written."""

    entry: Entry
    switches: Mapping[Switch, bool]
    arguments: tuple[Argument, ...] = ()

    @property
    def name(self) -> str:
        """The plugin's name."""
        return self.entry.name

    def enabled(self, switch: Switch) -> bool:
        """Whether the plugin is asked for this; yes, unless the file says no."""
        return self.switches.get(switch, True)

    def read_arguments(self, model: type[_Model]) -> _Model:
        """The arguments as the plugin's own typed model; texts such as "1" and "true" are read as what they mean.

        A model whose arguments are not all known beforehand (a weight per resource) allows extras and names what they
        begin with in a class variable `extra_prefixes`.

        Raises:
            ConfigurationError: an unknown argument (with the nearest known one), or a value that the model refuses.
        """
        return _read("plugin", self.entry, self.arguments, model)


@dataclass(frozen=True, slots=True)
class SchedulerConfiguration:
    """Actions in the order in which they run, and tiers of plugins in the order in which they are asked."""

    source: str
    actions: tuple[ActionConfiguration, ...]
    tiers: tuple[tuple[PluginConfiguration, ...], ...]

    @property
    def action_names(self) -> tuple[str, ...]:
        """The actions' names, in order."""
        return tuple(action.name for action in self.actions)

    def plugins(self) -> Iterator[PluginConfiguration]:
        """All plugins, tier after tier."""
        for tier in self.tiers:
            yield from tier

    def plugin(self, name: str) -> PluginConfiguration | None:
        """The plugin of this name, or None."""
        return next((plugin for plugin in self.plugins() if plugin.name == name), None)


def nearest(word: str, known: Collection[str]) -> str | None:
    """The known word that `word` was most likely meant to be, whatever the case; None where none is near."""
    by_folded = {candidate.casefold(): candidate for candidate in sorted(known, reverse=True)}
    found = difflib.get_close_matches(word[:128].casefold(), list(by_folded), n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def parse(text: str, source: str) -> SchedulerConfiguration:
    """Read a configuration file's text; `source` names it in errors.

    Raises:
        ConfigurationError: not YAML, too large, or not of the shape that `docs/reference/scheduler-configuration.md`
            describes; the first problem in the order of the file's parts.
    """
    try:
        return _Reader(source).configuration(text)
    except YamlError as error:
        raise ConfigurationError(source, error.line, error.message) from None


class _Reader:
    """One reading of one file; holds its name for the errors."""

    def __init__(self, source: str) -> None:
        self._source = source

    def configuration(self, text: str) -> SchedulerConfiguration:
        fields = root_of(text, "actions and tiers").fields("configuration")
        for key in fields:
            if key.value not in ("actions", "tiers"):
                raise self._entry(key).unknown("key", ("actions", "tiers"))
        by_name = {key.value: value for key, value in fields.items()}
        for name in ("actions", "tiers"):
            if name not in by_name:
                raise ConfigurationError(self._source, None, f"{name} is missing")
        actions = tuple(self._actions(by_name["actions"]))
        tiers = tuple(self._tiers(by_name["tiers"]))
        self._refuse_twice("plugin", [plugin.entry for tier in tiers for plugin in tier])
        return SchedulerConfiguration(source=self._source, actions=actions, tiers=tiers)

    def _actions(self, node: Node) -> list[ActionConfiguration]:
        if isinstance(node, ScalarNode) and node.is_text:
            parts = [part.strip() for part in node.value.split(",")]
            found = [ActionConfiguration(Entry(name=part, source=self._source, line=node.line)) for part in parts]
        elif isinstance(node, SequenceNode):
            found = [self._action(item) for item in node.items]
        else:
            raise self._error(node, 'actions must be a text such as "enqueue, allocate, backfill"')
        if not found or any(not action.name for action in found):
            raise self._error(node, "actions names no action between two commas" if found else "actions is empty")
        self._refuse_twice("action", [action.entry for action in found])
        return found

    def _action(self, node: Node) -> ActionConfiguration:
        """An action of a list: a word, or a mapping of its name and its arguments."""
        if not isinstance(node, MappingNode):
            return ActionConfiguration(self._name(node, "an action"))
        fields = node.fields("action")
        by_name = {key.value: value for key, value in fields.items()}
        for key in fields:
            if key.value not in _ACTION_WORDS:
                raise self._entry(key).unknown("key of an action", _ACTION_WORDS)
        if "name" not in by_name:
            raise self._error(node, "an action has no name")
        return ActionConfiguration(
            entry=self._name(by_name["name"], "an action's name"),
            arguments=tuple(self._arguments(by_name["arguments"])) if "arguments" in by_name else (),
        )

    def _tiers(self, node: Node) -> Iterator[tuple[PluginConfiguration, ...]]:
        if not isinstance(node, SequenceNode) or not node.items:
            raise self._error(node, "tiers must be a list of at least one tier: `- plugins: [...]`")
        for item in node.items:
            if not isinstance(item, MappingNode):
                raise self._error(item, "a tier must be a mapping with the key plugins")
            fields = item.fields("tier")
            for key in fields:
                if key.value != "plugins":
                    raise self._entry(key).unknown("key of a tier", ("plugins",))
            plugins = next(iter(fields.values()), None)
            if not isinstance(plugins, SequenceNode) or not plugins.items:
                raise self._error(plugins or item, "a tier's plugins must be a list of at least one plugin")
            if len(plugins.items) > _MOST_PLUGINS:
                raise self._error(plugins, f"a tier has at most {_MOST_PLUGINS} plugins")
            yield tuple(self._plugin(plugin) for plugin in plugins.items)

    def _plugin(self, node: Node) -> PluginConfiguration:
        if not isinstance(node, MappingNode):
            raise self._error(node, "a plugin must be a mapping with a name: `- name: gang`")
        fields = node.fields("plugin")
        by_name = {key.value: value for key, value in fields.items()}
        for key in fields:
            if key.value not in _PLUGIN_WORDS:
                raise self._entry(key).unknown("switch or key of a plugin", _PLUGIN_WORDS)
        if "name" not in by_name:
            raise self._error(node, "a plugin has no name")
        return PluginConfiguration(
            entry=self._name(by_name["name"], "a plugin's name"),
            switches=self._switches(fields),
            arguments=tuple(self._arguments(by_name["arguments"])) if "arguments" in by_name else (),
        )

    def _switches(self, fields: Mapping[ScalarNode, Node]) -> dict[Switch, bool]:
        given: dict[Switch, tuple[bool, ScalarNode]] = {}
        for key, node in fields.items():
            if key.value not in _SWITCH_WORDS:
                continue
            switch, positive = _SWITCH_WORDS[key.value]
            value = read_value(node)
            if not isinstance(value, bool):
                raise self._error(node, f"{key.value} must be true or false")
            wanted = value is positive
            if switch in given and given[switch][0] is not wanted:
                other = given[switch][1]
                raise self._error(key, f"{key.value} contradicts {other.value} on line {other.line}")
            given[switch] = (wanted, key)
        return {switch: wanted for switch, (wanted, _) in given.items()}

    def _arguments(self, node: Node) -> Iterator[Argument]:
        if isinstance(node, ScalarNode) and node.is_null:
            return
        if not isinstance(node, MappingNode):
            raise self._error(node, "arguments must be a mapping: `leastrequested.weight: 1`")
        for key, value in node.fields("arguments").items():
            yield Argument(entry=self._entry(key), value=read_value(value))

    def _name(self, node: Node, what: str) -> Entry:
        if not isinstance(node, ScalarNode) or not node.is_text or _NAME.fullmatch(node.value.strip()) is None:
            raise self._error(node, f"{what} must be a word of letters, digits, `-`, `_`, `.` and `/`")
        return Entry(name=node.value.strip(), source=self._source, line=node.line)

    def _refuse_twice(self, what: str, entries: list[Entry]) -> None:
        first: dict[str, Entry] = {}
        for entry in entries:
            if entry.name in first:
                raise entry.error(f"{what} {entry.name} is listed twice, first on line {first[entry.name].line}")
            first[entry.name] = entry

    def _entry(self, key: ScalarNode) -> Entry:
        return Entry(name=key.value, source=self._source, line=key.line)

    def _error(self, node: Node, message: str) -> ConfigurationError:
        return ConfigurationError(self._source, node.line, message)


def _unknown(what: str, word: str, known: Collection[str]) -> str:
    guess = nearest(word, known)
    shown = word if len(word) <= 64 else f"{word[:64]}…"
    if guess is not None:
        return f"unknown {what} {shown!r}; did you mean {guess!r}?"
    return f"unknown {what} {shown!r}; known: {', '.join(sorted(known)) or 'none'}"


DEFAULT_TEXT: Final = """\
actions: "enqueue, reclaim, allocate, backfill, preempt"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""
"""What runs where no file is given, and what the chart ships."""

DEFAULT: Final = parse(DEFAULT_TEXT, "built-in configuration")
