"""Exhaustion by what is rendered and read: templates, objects, deep and large texts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.e2e.tenant.attack import Area
from tests.e2e.tenant.tenant import ATTACKER, GROUPS, PODS, group, role, template

if TYPE_CHECKING:
    from tests.e2e.tenant.tenant import Tenant

AREA = Area("Templates")
STEPS = "more than 500000 steps"
MANY = 1_000_000


def roles(tenant: Tenant, *made: dict[str, Any], **spec: Any) -> Any:
    return tenant.create(GROUPS, group("t", subGroups=list(made), **spec))


def nested(depth: int) -> dict[str, Any]:
    """A structure so many levels deep."""
    whole: dict[str, Any] = {}
    for _ in range(depth):
        whole = {"a": whole}
    return whole


@AREA.refused(422, STEPS, "a role of a million members, each with a text that names all of them")
def peers_without_end(tenant: Tenant) -> Any:
    return roles(tenant, role("{% for p in peers %}{{ p }}{% endfor %}", maxMember=MANY))


@AREA.refused(422, "no loop inside a loop", "a loop over all peers in a loop over all peers")
def loops_in_loops(tenant: Tenant) -> Any:
    inner = "{% for p in peers %}{% for q in peers %}{{ q }}{% endfor %}{% endfor %}"
    return roles(tenant, role(inner, maxMember=MANY))


@AREA.refused(422, "steps together", "64 roles, each just below what one member may cost")
def many_dear_roles(tenant: Tenant) -> Any:
    text = "{% for p in peers %}{{ p }}{% endfor %}"
    return roles(tenant, *(role(text, name=f"w{index}", maxMember=10_000) for index in range(64)))


@AREA.refused(422, "no attributes here", "a way to Python's own classes from within a text")
def a_way_into_python(tenant: Tenant) -> Any:
    return roles(tenant, role("{{ ''.__class__.__mro__ }}"))


@AREA.refused(422, "a number beyond 2^63", "numbers that grow with each multiplication")
def growing_numbers(tenant: Tenant) -> Any:
    return roles(tenant, role("{{ " + " * ".join(["9999999999"] * 5) + " }}"))


@AREA.refused(422, "wants whole numbers", "a text times a million")
def a_text_a_million_times(tenant: Tenant) -> Any:
    return roles(tenant, role("{{ 'x' * 1000000 }}"))


@AREA.refused(422, "characters", "a text with expressions of 32,000 characters")
def a_long_expression(tenant: Tenant) -> Any:
    return roles(tenant, role("{{ index }}" + "x" * 32_000))


@AREA.refused(422, "characters with expressions in all templates together", "16,000 such characters in each of 5 roles")
def long_expressions_together(tenant: Tenant) -> Any:
    return roles(tenant, *(role("{{ index }}" + "x" * 16_000, name=f"w{index}") for index in range(5)))


@AREA.refused(422, "levels deep", "a template of 200 levels with one text to be rendered")
def a_deep_template(tenant: Tenant) -> Any:
    deep = template(args=["{{ index }}"])
    return roles(tenant, {"name": "w", "minMember": 1, "template": {**deep, "metadata": nested(200)}})


@AREA.refused(422, "levels deep", "a template of 5,000 levels without any text to be rendered")
def a_very_deep_template(tenant: Tenant) -> Any:
    return tenant.post_text(GROUPS, deep_text(5_000))


@AREA.harmless(
    "all of kbatch's processes can read it; no pods are made of it",
    "the same as deep as JSON may be, as it passes while no webhook answers",
)
def as_deep_as_json_may_be(tenant: Tenant) -> None:
    with tenant.without_the_webhook():
        tenant.post_text(GROUPS, deep_text(9_900))
    tenant.neighbours_gang()
    tenant.wait("the scheduler says something of it", lambda: tenant.condition("t", "Scheduled"))
    assert not tenant.items(PODS)


def deep_text(depth: int) -> str:
    """The JSON of a group with a template of so many levels, which Python's own writer refuses."""
    made = json.dumps(
        group("t", subGroups=[{"name": "w", "minMember": 1, "template": {**template(), "metadata": "DEEP"}}])
    )
    return made.replace('"DEEP"', '{"a":' * depth + "{}" + "}" * depth)


@AREA.refused(422, "levels deep", "an entry of spec.objects of 900 levels")
def a_deep_object(tenant: Tenant) -> Any:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "o"}, "data": nested(900)}
    return roles(tenant, objects=[body])


@AREA.refused(422, "cannot be read", "a template that asks for an amount of a thousand digits")
def an_amount_of_a_thousand_digits(tenant: Tenant) -> Any:
    asked = {"name": "w", "minMember": 1, "template": template(resources={"requests": {"cpu": "9" * 1000}})}
    return roles(tenant, asked)


@AREA.refused(413, "limit is 3145728", "a group of 4 MiB")
def a_group_of_megabytes(tenant: Tenant) -> Any:
    return tenant.alone().post(GROUPS.format(ATTACKER), group("t", subGroups=[role("x" * 2**22)]))


@AREA.refused(500, "request is too large", "a group of 2 MiB, which reviews take and storage does not")
def a_group_too_large_to_store(tenant: Tenant) -> Any:
    return roles(tenant, role("x" * (2**21 - 2**17)))


@AREA.harmless("reviewed beside the event loop, and kept", "four groups of a megabyte each")
def groups_of_a_megabyte(tenant: Tenant) -> None:
    bodies = [group(f"large-{index}", suspend=True, subGroups=[role("x" * 2**20)]) for index in range(4)]
    tenant.create_all(GROUPS, bodies, parallel=4)
    assert len(tenant.items(GROUPS)) == len(bodies)
