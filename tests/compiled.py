"""The tests that say nothing of the compiled engine, and why; `make test-compiled` leaves them out.

pytest loads this as a plugin there (`-p tests.compiled`).
"""

from __future__ import annotations

from typing import Final

import pytest

_CONSTANT: Final = "sets a constant of a module, which is compiled in"
_COUNTED: Final = "stands between two functions of the engine to count calls; compiled ones call one another directly"
_DOCSTRINGS: Final = "reads docstrings, or the members, of classes: compiled ones have other members and no docstrings"
_FAILS: Final = "puts a function that fails in the place of one that is compiled"
_FRAMES: Final = "looks into a generator's frames, which a compiled one does not have"
_METHOD: Final = "puts another method in the place of one that is compiled"
_OBJECTS: Final = "looks into objects by their dictionaries or slots"
_SOURCE: Final = "looks at functions of Python"
_STAND_IN: Final = "puts another class in the place of one that a compiled module makes"
_TYPES: Final = "gives a stand-in of another type than is declared"

_ENGINE: Final = "tests/unit/engine"
_QUEUES: Final = "tests/unit/queue/test_controller.py"
LEFT_OUT: Final = {
    "tests/property/test_alike.py": _COUNTED,
    "tests/property/test_cluster.py::test_a_task_changed_in_place_is_as_one_read_anew": _OBJECTS,
    "tests/property/test_decisions.py::test_a_recorded_run_is_decided_again_alike": _STAND_IN,
    "tests/property/test_decisions.py::test_the_same_policy_gives_the_recorded_starts": _STAND_IN,
    "tests/property/test_known_ends.py::test_more_changed_nodes_than_are_remembered_make_nobody_look_at_all_groups": (
        _COUNTED
    ),
    "tests/property/test_reserved.py": _COUNTED,
    "tests/unit/decisions/test_closed_loop.py": _STAND_IN,
    "tests/unit/decisions/test_replay.py::test_every_way_into_the_model_is_recorded": _SOURCE,
    f"{_ENGINE}/test_alike.py": _COUNTED,
    f"{_ENGINE}/test_asks_alike.py": _TYPES,
    f"{_ENGINE}/test_behind_in_vain.py::test_those_behind_are_not_asked_one_by_one": _COUNTED,
    f"{_ENGINE}/test_clearing.py::test_of_many_on_a_node_as_many_stay_as_can": _COUNTED,
    f"{_ENGINE}/test_clearing.py::test_only_those_go_that_the_spread_asks_for": _COUNTED,
    f"{_ENGINE}/test_clearing.py::test_where_all_together_are_too_few_none_is_tried": _COUNTED,
    f"{_ENGINE}/test_enough.py::test_trials_are_kept_for_as_many_groups_as_may_ask_for_them_again": _CONSTANT,
    f"{_ENGINE}/test_in_vain.py::test_of_too_many_kinds_some_keep_others_out": _CONSTANT,
    f"{_ENGINE}/test_lone_pods.py::test_each_is_worked_out_once": _COUNTED,
    f"{_ENGINE}/test_memo.py": _COUNTED,
    f"{_ENGINE}/test_reach.py": _COUNTED,
    f"{_ENGINE}/test_sparing.py::test_nobody_goes_for_a_group_that_fails_before_that_is_told": _FAILS,
    f"{_ENGINE}/test_turns.py::test_a_cycle_leaves_nothing_for_the_garbage_collector": _FRAMES,
    f"{_ENGINE}/test_turns.py::test_shares_are_divided_once_until_something_changes": _COUNTED,
    f"{_ENGINE}/test_victims.py::test_the_first_tier_that_consents_decides_how_willingly_a_unit_goes": _TYPES,
    "tests/unit/model/test_classes.py::test_labels_that_no_pod_selects_by_count_no_longer": _CONSTANT,
    "tests/unit/model/test_classes.py::test_what_nodes_say_of_classes_goes_with_them": _CONSTANT,
    "tests/unit/model/test_forgetting.py::test_what_is_kept_follows_from_what_is_alive": _OBJECTS,
    "tests/unit/model/test_unions.py": _CONSTANT,
    "tests/unit/plugins/test_documentation.py": _DOCSTRINGS,
    "tests/unit/traces/test_generation.py::test_what_cannot_be_is_refused_with_its_place": _CONSTANT,
    "tests/unit/traces/test_schedules.py::test_the_check_finds_a_job_that_delays_another": _METHOD,
    f"{_QUEUES}::test_an_object_that_breaks_the_model_is_left_out_and_named": _FAILS,
    f"{_QUEUES}::test_an_object_that_breaks_the_model_while_shares_are_divided_ends_no_round": (_FAILS),
    f"{_QUEUES}::test_shares_are_divided_once_until_something_changes": _COUNTED,
}
"""Tests, or files of them."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect them."""
    out = [item for item in items if _names(item.nodeid) & LEFT_OUT.keys()]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]


def _names(nodeid: str) -> set[str]:
    """A test's file, and the test without its parameters."""
    return {nodeid.partition("::")[0], nodeid.partition("[")[0]}
