"""The scheduler configuration: kube-batch's files as they are, and errors that name the line and the nearest word."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from kbatch.api.configuration import DEFAULT, ConfigurationError, PluginConfiguration, Switch, nearest, parse

SEEDS = Path(__file__).resolve().parents[2] / "data" / "seeds"

TEXT = """\
actions: "allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enableJobOrder: false
- plugins:
  - name: predicates
    arguments:
      predicate.MemoryPressureEnable: true
      leastrequested.weight: 2
"""


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    memory_pressure: bool = Field(default=False, alias="predicate.MemoryPressureEnable")
    least_requested: int = Field(default=1, alias="leastrequested.weight", ge=0)
    names: list[str] = []


def _plugin(text: str, name: str) -> PluginConfiguration:
    found = parse(text, "f").plugin(name)
    assert found is not None
    return found


def _refused(text: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        parse(text, "scheduler.yaml")
    assert caught.value.source == "scheduler.yaml"
    return caught.value


def _arguments_refused(text: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        _plugin(text, "predicates").read_arguments(_Arguments)
    return caught.value


def test_the_seeds_sample_is_read_as_it_is() -> None:
    read = parse((SEEDS / "scheduler.yaml").read_text(), "scheduler.yaml")
    assert read.action_names == ("reclaim", "allocate", "backfill", "preempt")
    assert [[plugin.name for plugin in tier] for tier in read.tiers] == [
        ["priority", "gang", "conformance"],
        ["drf", "predicates", "proportion", "nodeorder"],
    ]
    predicates = read.plugin("predicates")
    assert predicates is not None
    assert {argument.entry.name: argument.value for argument in predicates.arguments} == {
        "predicate.MemoryPressureEnable": True,
        "predicate.DiskPressureEnable": True,
        "predicate.PIDPressureEnable": True,
    }


def test_the_seeds_older_spelling_switches_off() -> None:
    read = parse((SEEDS / "dynamic-plugins.yaml").read_text(), "dynamic.yaml")
    switched = {plugin.name: plugin.enabled(Switch.JOB_ORDER) for plugin in read.plugins()}
    assert switched == {"plugin_1": False, "plugin_2": True, "plugin_3": False}


def test_kube_batchs_built_in_configuration_is_read() -> None:
    text = """
actions: "allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""
    assert [plugin.name for plugin in parse(text, "f").plugins()] == [
        "priority",
        "gang",
        "drf",
        "predicates",
        "proportion",
        "nodeorder",
    ]


def test_the_default_runs_all_actions_in_the_designs_order() -> None:
    assert DEFAULT.action_names == ("enqueue", "reclaim", "allocate", "backfill", "preempt")
    assert [[plugin.name for plugin in tier] for tier in DEFAULT.tiers] == [
        ["priority", "gang", "conformance"],
        ["drf", "predicates", "proportion", "nodeorder"],
    ]
    assert all(plugin.enabled(switch) for plugin in DEFAULT.plugins() for switch in Switch)


def test_flow_style_json_and_a_list_of_actions_mean_the_same() -> None:
    flow = '{"actions": ["allocate", "backfill"], "tiers": [{"plugins": [{"name": "gang"}]}]}'
    block = "actions: allocate,backfill\ntiers:\n- plugins: [{name: gang}]\n"
    for text in (flow, block):
        read = parse(text, "f")
        assert read.action_names == ("allocate", "backfill")
        assert [plugin.name for plugin in read.plugins()] == ["gang"]


@pytest.mark.parametrize("switch", Switch)
@pytest.mark.parametrize(
    ("word", "value", "enabled"),
    [("enable", "false", False), ("disable", "false", True), ("enable", "true", True), ("disable", "true", False)],
)
def test_both_spellings_of_every_switch(switch: Switch, word: str, value: str, enabled: bool) -> None:
    plugin = _plugin(TEXT.replace("enableJobOrder: false", f"{word}{switch.value}: {value}"), "gang")
    assert plugin.enabled(switch) is enabled
    assert all(plugin.enabled(other) for other in Switch if other is not switch)


def test_both_spellings_at_once_may_agree_and_must_not_contradict() -> None:
    both = TEXT.replace("enableJobOrder: false", "enableJobOrder: false\n    disableJobOrder: true")
    assert not _plugin(both, "gang").enabled(Switch.JOB_ORDER)
    error = _refused(both.replace("disableJobOrder: true", "disableJobOrder: false"))
    assert (error.line, error.message) == (7, "disableJobOrder contradicts enableJobOrder on line 6")


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("actions:", "action:", 1, "unknown key 'action'; did you mean 'actions'?"),
        ("tiers:", "configurations: []\ntiers:", 2, "unknown key 'configurations'; known: actions, tiers"),
        ("- plugins:\n  - name: pri", "- plugin:\n  - name: pri", 3, "key of a tier 'plugin'; did you mean 'plugins'?"),
        ("enableJobOrder", "enableJoborder", 6, "'enableJoborder'; did you mean 'enableJobOrder'?"),
        ("enableJobOrder", "enabledJobOrder", 6, "'enabledJobOrder'; did you mean 'enableJobOrder'?"),
        ("    arguments", "    argument", 9, "'argument'; did you mean 'arguments'?"),
        ("enableJobOrder: false", "enableJobOrder: never", 6, "enableJobOrder must be true or false"),
        ("enableJobOrder: false", 'enableJobOrder: "false"', 6, "enableJobOrder must be true or false"),
        ("name: gang", "name: priority", 5, "plugin priority is listed twice, first on line 4"),
        ("name: predicates", "name: priority", 8, "plugin priority is listed twice, first on line 4"),
        ("name: gang", "name: [gang]", 5, "a plugin's name must be a word"),
        ("name: gang", "name: 7", 5, "a plugin's name must be a word"),
        ("- name: gang", "- enableJobReady: true", 5, "a plugin has no name"),
        ("  - name: priority", "  - priority", 4, "a plugin must be a mapping with a name"),
        ("allocate, backfill", "allocate,, backfill", 1, "names no action between two commas"),
        ("allocate, backfill", "allocate, allocate", 1, "action allocate is listed twice"),
        ('"allocate, backfill"', "7", 1, "actions must be a text"),
        ('"allocate, backfill"', "[]", 1, "actions is empty"),
        ('"allocate, backfill"', "[[a]]", 1, "an action must be a word"),
        ("leastrequested.weight: 2", "predicate.MemoryPressureEnable: 1", 11, "stands twice, first on line 10"),
        ("leastrequested.weight: 2", "? [a]\n      : 1", 11, "a key of the arguments must be a word"),
        ("leastrequested.weight: 2", "leastrequested.weight: !!python/name:os.system", 11, "is not allowed"),
        ("leastrequested.weight: 2", "leastrequested.weight: !!int two", 11, "'two' is not a int"),
        ("weight: 2", "weight: &two 2\n      other: *two", 12, "the alias *two is not allowed"),
        ("  - name: gang", "\t- name: gang", 5, "not YAML"),
        ("tiers:", "tiers", 2, "not YAML: while scanning a simple key could not find expected ':'"),
        ("weight: 2", "weight: 2\nend", 12, "not YAML: while scanning a simple key could not find expected ':'"),
        ("enableJobOrder: false", "enableJobOrder: false\n---\nactions: x", 7, "only one document"),
    ],
)  # fmt: skip
def test_errors_name_line_and_nearest_word(old: str, new: str, line: int, message: str) -> None:
    assert old in TEXT
    error = _refused(TEXT.replace(old, new, 1))
    assert message in error.message
    assert error.line == line
    assert str(error) == f"scheduler.yaml:{line}: {error.message}"


@pytest.mark.parametrize("arguments", ["null", "", "{}"])
def test_empty_arguments_are_none(arguments: str) -> None:
    text = TEXT.replace("enableJobOrder: false", f"arguments: {arguments}")
    assert _plugin(text, "gang").arguments == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be a mapping"),
        ("just words", "must be a mapping"),
        ("- a", "must be a mapping"),
        ("actions: allocate", "tiers is missing"),
        ("tiers:\n- plugins: [{name: gang}]", "actions is missing"),
        ("actions: allocate\ntiers:", "tiers must be a list"),
        ("actions: allocate\ntiers: []", "tiers must be a list"),
        ("actions: allocate\ntiers: [{}]", "a tier's plugins must be a list"),
        ("actions: allocate\ntiers: [{plugins: []}]", "a tier's plugins must be a list"),
        ("actions: allocate\ntiers: [plugins]", "a tier must be a mapping"),
        ("a: \x00", "not YAML"),
        ("a: \ud800", "not YAML"),
    ],
)
def test_other_shapes_are_refused_with_what_was_expected(text: str, message: str) -> None:
    assert message in _refused(text).message


def test_large_deep_and_multiplying_files_are_refused_at_once() -> None:
    assert "larger than" in _refused(TEXT + "#" * 300_000).message
    assert "nested deeper" in _refused("a: " + "[" * 100_000).message
    layers = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 10))
    assert "alias" in _refused(f"l0: &l0 lol\n{layers}").message


def test_arguments_become_a_typed_model_whether_quoted_or_bare() -> None:
    expected = _Arguments.model_validate({"predicate.MemoryPressureEnable": True, "leastrequested.weight": 2})
    assert _plugin(TEXT, "predicates").read_arguments(_Arguments) == expected
    quoted = TEXT.replace(": true", ': "true"').replace(": 2", ': "2"')
    assert _plugin(quoted, "predicates").read_arguments(_Arguments) == expected


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("leastrequested.weight", "leastRequested.weights", 11, "did you mean 'leastrequested.weight'?"),
        ("leastrequested.weight", "zzz", 11, "known: leastrequested.weight, names, predicate.MemoryPressureEnable"),
        ("weight: 2", "weight: -1", 11, "greater than or equal to 0"),
        ("weight: 2", "weight: much", 11, "valid integer"),
        ("weight: 2", "weight: 2.5", 11, "valid integer"),
        ("Enable: true", "Enable: often", 10, "valid boolean"),
        ("leastrequested.weight: 2", "names: [a, [b]]", 11, "argument names.1 of plugin predicates"),
    ],
)
def test_wrong_arguments_name_their_own_line(old: str, new: str, line: int, message: str) -> None:
    assert old in TEXT
    error = _arguments_refused(TEXT.replace(old, new))
    assert message in error.message
    assert "plugin predicates" in error.message
    assert error.line == line


def test_an_unknown_plugin_is_the_registrys_to_find_and_points_at_its_line() -> None:
    entry = _plugin(TEXT.replace("name: gang", "name: gnag"), "gnag").entry
    error = entry.unknown("plugin", ["gang", "drf"])
    assert str(error) == "f:5: unknown plugin 'gnag'; did you mean 'gang'?"


def test_nearest_forgives_case_and_invents_nothing() -> None:
    assert nearest("PREDICATES", ["predicates", "priority"]) == "predicates"
    assert nearest("xyz", ["predicates", "priority"]) is None
    assert nearest("", []) is None


def _error_of(text: str) -> ConfigurationError | None:
    try:
        parse(text, "f")
    except ConfigurationError as error:
        return error
    return None


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
def test_any_text_without_the_two_keys_is_refused_as_a_configuration_error(text: str) -> None:
    error = _error_of(text)
    assert error is not None
    assert str(error).startswith("f:")


@given(st.data())
def test_a_spoilt_file_is_read_or_refused_on_one_of_its_lines(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(TEXT)))
    end = data.draw(st.integers(start, min(len(TEXT), start + 8)))
    text = TEXT[:start] + data.draw(st.text(alphabet="[]{}:,-&*!|>'\"\n\t #a1", max_size=6)) + TEXT[end:]
    error = _error_of(text)
    assert error is None or error.line is None or 1 <= error.line <= text.count("\n") + 1
