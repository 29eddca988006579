"""A configuration's words against the engine's registry: errors name the line and the nearest word that is known."""

from __future__ import annotations

import pytest

from kbatch.api.configuration import ConfigurationError, parse
from kbatch.engine import build_policy

TEXT = """\
actions: "allocate"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates
  - name: nodeorder
"""


def test_what_is_known_becomes_a_policy_in_the_files_order() -> None:
    policy = build_policy(parse(TEXT, "scheduler.yaml"))
    assert policy.actions == ("allocate",)
    assert [(part.plugin.name, part.tier) for part in policy.plugins] == [
        ("priority", 0),
        ("gang", 0),
        ("predicates", 1),
        ("nodeorder", 1),
    ]


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ('"allocate"', '"alocate"', 1, "unknown action 'alocate'; did you mean 'allocate'?"),
        ('"allocate"', "[allocate,\n  alocate]", 2, "unknown action 'alocate'; did you mean 'allocate'?"),
        ("name: gang", "name: gnag", 5, "unknown plugin 'gnag'; did you mean 'gang'?"),
        ("name: predicates", "name: Predicates", 7, "unknown plugin 'Predicates'; did you mean 'predicates'?"),
        ("name: gang", "name: gang\n    arguments:\n      weihgt: 1", 7, "unknown argument of plugin gang 'weihgt'"),
    ],
)
def test_what_is_unknown_is_refused_where_it_stands(old: str, new: str, line: int, message: str) -> None:
    assert old in TEXT
    with pytest.raises(ConfigurationError) as caught:
        build_policy(parse(TEXT.replace(old, new), "scheduler.yaml"))
    assert str(caught.value).startswith(f"scheduler.yaml:{line}: {message}")
