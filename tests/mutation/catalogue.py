"""All mutants, and the tests that must notice each."""

from __future__ import annotations

from typing import Final, TypeAlias

from tests.mutation import decisions, flows, groups, placement, quotas, reservations, victims
from tests.mutation.mutant import Mutant

ALL: Final = (
    *reservations.MUTANTS, *victims.MUTANTS, *decisions.MUTANTS, *placement.MUTANTS, *quotas.MUTANTS, *flows.MUTANTS,
    *groups.MUTANTS,
)  # fmt: skip

Stage: TypeAlias = "tuple[str, ...]"
"""Tests that are run together, by what pytest calls them."""


def _unit(*names: str) -> Stage:
    return tuple(f"tests/unit/engine/test_{name}.py" for name in names)


_KEPT: Final = _unit("ledger", "resume", "timeline", "enqueue", "planned_starts")
_ADMITTED: Final = _unit("admission", "enqueue", "pods_to_come", "resume")
_VICTIMS: Final = (
    *_unit("evictions", "victims", "sparing", "failing_victims", "refusals", "pods_to_come"),
    "tests/unit/plugins/test_votes.py",
)  # fmt: skip
_PLACED: Final = _unit("sums", "allocate", "memo", "evictions", "resume")
_ELASTIC: Final = _unit("growth", "shrinking")
_STANDING: Final = _unit("topology", "domain_choice", "node_sets", "other_sets", "whole_nodes")
_ENGINE: Final[Stage] = ("tests/unit/engine", "tests/unit/plugins/test_votes.py")
_WEBHOOKS: Final[Stage] = ("tests/unit/webhooks",)
_PODGROUP: Final[Stage] = ("tests/unit/podgroup",)
_CASES: Final[Stage] = tuple(
    f"tests/unit/simulator/test_{name}.py"
    for name in (
        "reservation_cases", "victim_cases", "gang_cases", "demand_cases", "more_cases", "model_cases", "cases",
        "elastic_cases", "topology_cases", "whole_node_cases", "backfill_cases", "examples",
    )
)  # fmt: skip
_PROPERTIES: Final[Stage] = ("tests/property",)
_FLOW: Final[Stage] = (
    *_unit("flow"), "tests/unit/model/test_usage.py", "tests/unit/plugins/test_flow.py",
    "tests/unit/simulator/test_flow_cases.py",
)  # fmt: skip
_FLOW_PROPERTIES: Final[Stage] = ("tests/property/test_flow.py",)

_STAGES: Final[tuple[tuple[str, tuple[Stage, ...]], ...]] = (
    ("webhooks/commits.py", (("tests/unit/webhooks/test_commits.py",), _WEBHOOKS)),
    ("webhooks/ledger.py", (("tests/unit/webhooks/test_ledger.py",), _WEBHOOKS)),
    ("webhooks/", (("tests/unit/webhooks/test_pods.py", "tests/unit/webhooks/test_podgroups.py"), _WEBHOOKS)),
    (
        "kbatch/model/promised.py",
        (("tests/unit/webhooks/test_pods.py", "tests/unit/webhooks/test_ledger.py"), _WEBHOOKS),
    ),
    ("kbatch/model/usage.py", (_FLOW, _FLOW_PROPERTIES)),
    ("kbatch/engine/plugins/flow/", (_FLOW, _FLOW_PROPERTIES)),
    ("kbatch/engine/state/promises.py", (_FLOW, _FLOW_PROPERTIES)),
    ("kbatch/model/quota.py", (("tests/unit/model/test_quota.py",), _ENGINE, _WEBHOOKS, _CASES, _PROPERTIES)),
    ("kbatch/model/demand.py", (("tests/property/test_demand.py",), _CASES, _ENGINE, _PROPERTIES)),
    ("kbatch/model/makers.py", (("tests/unit/model",), _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/model/phase.py", (("tests/unit/model/test_phase.py",), _PODGROUP)),
    ("operators/podgroup/", (_PODGROUP,)),
    ("kbatch/model/node", (_unit("stuck"), _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/model/cluster.py", (_unit("stuck"), ("tests/unit/model/test_cluster.py",), _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/reservation/", (_KEPT, _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/state/cycle_state.py", (_KEPT, _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/state/timeline.py", (_KEPT, _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/admission/", (_ADMITTED, _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/carryover/awake.py", (_ADMITTED, _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/carryover/backlog.py", (_ADMITTED, _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/actions/enqueue.py", (_ADMITTED, _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/actions/in_queue.py", (_ADMITTED, _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/actions/comers.py", (_ADMITTED, _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/model/domains.py", (_STANDING, _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/plugins/topology/", (_STANDING, _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/placement/together.py", (_STANDING, _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/placement/node_sets.py", (_STANDING, _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/placement/clearable.py", (_STANDING, _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/session/whole_nodes.py", (_STANDING, _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/preemption/closeness.py", (_STANDING, _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/model/bad_nodes.py", (_unit("bad_nodes"), _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/session/hourly.py", (_unit("hourly"), _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/preemption/", (_VICTIMS, _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/plugins/", (_VICTIMS, _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/session/consent.py", (_VICTIMS, _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/session/voting.py", (_VICTIMS, _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/state/growth.py", (_ELASTIC, _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/state/shrinking.py", ((*_ELASTIC, *_unit("lost_work")), _ENGINE, _CASES, _PROPERTIES)),
    ("kbatch/engine/", (_PLACED, _ENGINE, _CASES, _PROPERTIES)),
)


def stages_of(mutant: Mutant) -> tuple[Stage, ...]:
    """The tests for a mutant, the narrowest and quickest first."""
    return next(stages for prefix, stages in _STAGES if mutant.file.startswith(prefix))
