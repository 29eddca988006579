"""The reference pages say what the code does: every reason and its message, every switch, errors word by word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kbatch.api import conditions
from kbatch.api.configuration import DEFAULT_TEXT, ConfigurationError, Switch, parse
from kbatch.api.crd import DEFINITIONS, object_schema
from kbatch.api.node_reasons import NODE_REASONS, NodeReason
from kbatch.api.reasons import (
    GROUP_REASONS,
    BindFailed,
    ClusterTooSmall,
    EngineError,
    ExcessBudgetExceeded,
    GangExceedsReclaimableShare,
    Gated,
    InfiniteShareExceeded,
    JobSuspended,
    MinimumLost,
    MinResourcesTooLarge,
    NotEnoughResources,
    NotEnoughTasks,
    PodGroupNotFound,
    PriorityClassNotFound,
    Protection,
    Protector,
    QueueCapabilityExceeded,
    QueueClosed,
    QueueNotAllowed,
    QueueNotFound,
    QueueOverused,
    QuotaExceeded,
    Reason,
    Reserved,
    ResourceClaimsUnsupported,
    RoomInPieces,
    SentBack,
    Suspended,
    TopologyUnsatisfied,
    VictimsTerminating,
    WaitingInQueue,
)
from kbatch.api.reference import fill

PAGES = Path(__file__).resolve().parents[3] / "docs" / "reference"
GI = 2**30
GPU = "nvidia.com/gpu"

EXAMPLES: list[Reason] = [
    EngineError("ValueError", "allocate"),
    PodGroupNotFound("qj-1"),
    QueueNotFound("demo"),
    QueueClosed("demo"),
    QueueNotAllowed("demo", "team"),
    PriorityClassNotFound("high-priority"),
    Suspended(),
    JobSuspended("train"),
    ResourceClaimsUnsupported(1),
    MinimumLost(left=15, needed=16, seconds=60),
    NotEnoughTasks(created=4, needed=6),
    QueueCapabilityExceeded("demo", "cpu", asked=4000, reserved=2000, used=3000, hard=8000),
    QuotaExceeded("team", "requests.cpu", asked=4000, reserved=1500, used=2000, hard=6000),
    InfiniteShareExceeded(
        "demo", asked=4_000_000, flow=10_500_000, fair_share=10_000_000, most=12_000_000, factor="1.2"
    ),
    ExcessBudgetExceeded("demo", asked=40_000_000, charged=30_000_000, budget=60, fair_share=10_000_000),
    ClusterTooSmall(6, 4, GPU, 2, nodes=12, nodes_by_reason=((f"insufficient {GPU}", 7), ("taint dedicated", 5))),
    MinResourcesTooLarge("cpu", asked=100_000, held=64_000, nodes=2),
    GangExceedsReclaimableShare("demo", "cpu", asked=9000, allocated=1000, deserved=4000, idle=2500),
    TopologyUnsatisfied(needed=8, placeable=6, max_hops=2, role="worker", domain="z1/b2/r3", level="rack"),
    WaitingInQueue("demo", "memory", asked=16 * GI, available=12 * GI, reserved=8 * GI, ahead=2),
    RoomInPieces("demo", ahead=2),
    SentBack("demo", times=2, seconds=20),
    QueueOverused("demo", "cpu", allocated=6000, deserved=6000),
    Reserved("team/big", "cpu", 32000),
    VictimsTerminating(victims=3, nodes=2),
    BindFailed("team/qj-1-x", "node-3", failures=2, why="409 Conflict: the pod changed"),
    Gated(gated=2, needed=6, gates=("example.com/licence",)),
    NotEnoughResources(6, 4, "cpu", 2000, nodes=12, nodes_by_reason=(("insufficient cpu", 7), ("taint dedicated", 5))),
]


def _page(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


def test_the_page_of_reasons_holds_every_reason_in_order_with_its_message() -> None:
    rows = re.findall(r"^\| `([A-Za-z]+)` \| [^|]+ \| ([^|]+) \|$", _page("reasons.md"), re.MULTILINE)
    assert [type(example) for example in EXAMPLES] == list(GROUP_REASONS)
    assert rows == [(example.code, example.message) for example in EXAMPLES]


@pytest.mark.parametrize(
    "reason",
    [
        TopologyUnsatisfied(8, 6, 2, domain="z1/b2/r3", level="rack", emptied=True),
        TopologyUnsatisfied(8, 1, 2, domain="z1/b2/n3", level="rack", emptied=True, unlabelled="example.com/rack"),
    ],
)
def test_the_page_of_reasons_holds_the_other_words_of_a_reason(reason: Reason) -> None:
    assert f"`{reason.message}`" in _page("reasons.md").replace("\n", " ")


def test_the_page_of_reasons_holds_what_protects_pods() -> None:
    protected = (
        Protection(Protector.HOURLY, "research"), Protection(Protector.BUDGET, "team/web", others=True),
        Protection(Protector.RUNTIME, "team/a"), Protection(Protector.REFUSED, "team/b"),
    )  # fmt: skip
    words = NotEnoughResources(1, 0, protected=protected).message.split("; ")[2]
    assert f"`{words}`" in _page("reasons.md").replace("\n", " ")


@pytest.mark.parametrize("type_", NODE_REASONS)
def test_the_page_of_reasons_holds_what_nodes_are_counted_under(type_: type[NodeReason]) -> None:
    words = {
        "Insufficient": "insufficient RESOURCE",
        "UntoleratedTaint": "taint KEY",
        "ClaimNotFound": "claim NAME not found",
    }.get(type_.code, type_().short)
    assert f"`{words}`" in _page("reasons.md")


def test_the_page_of_reasons_holds_those_of_conditions_that_hold() -> None:
    for reason in (conditions.REASON_ENQUEUED, conditions.REASON_SCHEDULED, conditions.REASON_NOT_TRIED):
        assert f"| `{reason}` |" in _page("reasons.md")


def test_the_page_of_groups_holds_every_condition() -> None:
    for type_ in (*conditions.SCHEDULER_TYPES, *conditions.PODGROUP_TYPES):
        assert f"| `{type_}` |" in _page("podgroup.md")


def test_the_configurations_on_the_page_are_read_and_the_first_is_the_default() -> None:
    default, *others = re.findall(r"```yaml\n(.*?)```", _page("scheduler-configuration.md"), re.DOTALL)
    assert default == DEFAULT_TEXT
    assert others
    for text in others:
        assert parse(text, "page").actions


def test_every_switch_stands_on_the_page() -> None:
    for switch in Switch:
        assert f"`{switch.value}`" in _page("scheduler-configuration.md")


@pytest.mark.parametrize(
    ("plugins", "line"),
    [
        ("  - name: a\n    enableJobReady: true\n    enableJoborder: false", 6),
        ("  - name: a\n    enableJobOrder: true\n    disableJobOrder: true", 7),
        ("  - name: priority\n  - name: priority", 5),
    ],
)
def test_the_errors_on_the_page_are_those_that_are_raised(plugins: str, line: int) -> None:
    text = f"actions: allocate\ntiers:\n- plugins:\n{plugins}\n"
    if line == 7:
        text = "\n" + text
    with pytest.raises(ConfigurationError) as caught:
        parse(text, "scheduler.yaml")
    assert caught.value.line == line
    assert f"\n{caught.value}\n" in _page("scheduler-configuration.md")


def test_tables_of_fields_are_renewed_and_the_rest_of_a_page_is_left() -> None:
    schema = object_schema(DEFINITIONS[0].model)
    page = "before\n<!-- fields of spec -->\nold\n<!-- end -->\nafter <!-- fields -->\n"
    filled = fill(page, schema)
    assert filled.startswith("before\n<!-- fields of spec -->\n\n| field |")
    assert filled.endswith("|\n\n<!-- end -->\nafter <!-- fields -->\n")
    assert "\nold\n" not in filled
    assert "| `minMember` | integer, 1 to 1000000 | `1` |" in filled
    assert "| `subGroups[].name` | string | required |" in filled
    assert fill(filled, schema) == filled


@pytest.mark.parametrize("kind", DEFINITIONS, ids=lambda kind: kind.kind)
def test_every_field_of_spec_and_status_is_in_the_tables(kind: object) -> None:
    definition = next(one for one in DEFINITIONS if one is kind)
    page = _page(f"{definition.kind.lower()}.md")
    for part in ("spec", "status"):
        for name in object_schema(definition.model)["properties"][part]["properties"]:
            assert f"| `{name}` |" in page
