"""Groups that ask for topology are told where no plugin acts on it."""

from __future__ import annotations

from typing import Any

from kbatch.api.configuration import parse
from kbatch.api.objects import GroupTopology, PodGroup, PodGroupSpec, SubGroup
from kbatch.engine import Policy, Report, Verdict, build_policy
from kbatch.kube.events import EventRecorder
from operators.scheduler.unheeded import UnheededTopology
from tests.unit.scheduler.fakes import FakeApi, cache_with, finish, group


def policy(plugin: str) -> Policy:
    return build_policy(parse(f"actions: allocate\ntiers:\n- plugins:\n  - name: {plugin}\n", "scheduler.yaml"))


def asking(name: str, uid: str, **spec: Any) -> PodGroup:
    made = group(name)
    made.metadata.uid = uid
    made.spec = PodGroupSpec(min_member=1, **spec)
    return made


def report_of(*names: str) -> Report:
    return Report({f"ns/{name}": Verdict(f"ns/{name}", False, True, True) for name in names})


async def notes(*groups: PodGroup, of: Policy, cycles: int = 1) -> list[tuple[str, str, str]]:
    """Name, reason and note of the Events after so many cycles."""
    api = FakeApi()
    async with EventRecorder(api, controller="c", instance="i") as recorder:
        cache = cache_with(*groups)
        unheeded = UnheededTopology(cache, recorder, lambda: of)
        for _ in range(cycles):
            finish(unheeded.report(report_of(*(each.metadata.name for each in groups))))
    bodies = [dict(one.body) for one in api.made("POST", "/events")]
    return [(body["regarding"]["name"], body["reason"], body["note"]) for body in bodies]


CLOSE = asking("close", "1", topology=GroupTopology(mode="Required"))
ROLE = asking(
    "role", "2", sub_groups=(SubGroup(name="worker", min_member=1, topology=GroupTopology(mode="Preferred")),)
)
ANY = asking("any", "3")


async def test_those_that_ask_are_told_once() -> None:
    found = await notes(CLOSE, ROLE, ANY, of=policy("gang"), cycles=3)
    assert [(name, reason) for name, reason, _ in found] == [
        ("close", "TopologyNotConfigured"),
        ("role", "TopologyNotConfigured"),
    ]
    assert found[0][2].startswith("the group asks for topology (Required), and nothing acts on it:")
    assert found[1][2].startswith("the group asks for topology, and nothing acts on it:")


async def test_nobody_is_told_where_the_plugin_is_configured() -> None:
    assert await notes(CLOSE, ROLE, of=policy("topology")) == []
