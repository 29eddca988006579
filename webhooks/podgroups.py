"""What admission says of a PodGroup besides defaults: is it within the quotas, can its templates be rendered? Pure.

Rules look at what is new: an old object that breaks one can still be edited elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kbatch.api.names import API_VERSION
from kbatch.api.objects import OwnerReference, PodGroupSpec, PodTemplate, ResourceQuota, SubGroup
from kbatch.api.reasons import QuotaExceeded
from kbatch.model.minresources import ask_of
from kbatch.model.objects import render
from kbatch.model.quota import Ask, Excess, charge, exceeded, used_amounts
from kbatch.model.requests import effective_limit, effective_request
from kbatch.model.template_budget import Budget
from kbatch.model.templates import MOST_NESTING, MOST_SOURCES, TemplateError, render_member
from kbatch.resources import QuantityError
from webhooks.review import place_of

MOST_AT_ONCE: Final = 5_000
"""Values of templates that are looked at in the event loop: about a millisecond."""

_NAME: Final = re.compile(r"[a-z0-9.-]{1,253}", re.ASCII)


def ask(spec: PodGroupSpec) -> Ask | None:
    """What the group asks of quotas; None where its amounts cannot be read, or are less than nothing.

    The API server holds an object to its schema only after admission: until then a group may give back what it never
    had.
    """
    try:
        asked = ask_of(spec)
    except QuantityError:
        return None
    return None if asked.pods < 0 or min((*asked.requests.values(), *asked.limits.values()), default=0) < 0 else asked


def may_exist(name: str) -> bool:
    """Whether the API server, which looks at names after admission, could take a group of this name."""
    return _NAME.fullmatch(name) is not None


def owning_job(owners: Iterable[OwnerReference]) -> OwnerReference | None:
    """The batch Job among the owners, the controller first."""
    jobs = [owner for owner in owners if owner.kind == "Job" and owner.api_version.partition("/")[0] == "batch"]
    return next((owner for owner in jobs if owner.controller), jobs[0] if jobs else None)


# --- templates --------------------------------------------------------------------------------------------------------


def new_templates(spec: PodGroupSpec, before: PodGroupSpec | None) -> dict[int, SubGroup]:
    """The roles of which pods are to be made as they were not before, by their places."""
    known = {role.name: role for role in (before.sub_groups or ())} if before is not None else {}
    return {
        place: role
        for place, role in enumerate(spec.sub_groups or ())
        if role.template is not None and (role.name not in known or _shape(known[role.name]) != _shape(role))
    }


def are_plain(roles: Mapping[int, SubGroup], objects: Sequence[Mapping[str, Any]]) -> bool:
    """Whether what is new is small and nothing in it is rendered, so that looking at it takes no time."""
    for seen, value in enumerate(_values([[role.template for role in roles.values()], list(objects)])):
        if seen > MOST_AT_ONCE or (isinstance(value, str) and _is_rendered(value)):
            return False
    return True


def template_error(roles: Mapping[int, SubGroup], *, group: str, namespace: str, budget: Budget) -> str | None:
    """Why a role's template cannot be made into pods, with the place of the error; None if all of them can."""
    expressions = {place: _expressions(role.template) for place, role in roles.items()}
    if sum(expressions.values()) > MOST_SOURCES:
        return f"spec.subGroups: more than {MOST_SOURCES} characters with expressions in all templates together"
    for place, role in roles.items():
        try:
            if expressions[place]:
                _render(role, group if may_exist(group) else "group", namespace, budget)
            else:
                _read(role.template)
        except TemplateError as error:
            return error.of_role(place)
    return None


def new_objects(spec: PodGroupSpec, before: PodGroupSpec | None) -> Sequence[Mapping[str, Any]]:
    """The objects besides the pods, where anything that they are made of is new."""
    return () if before is not None and _around(spec) == _around(before) else spec.objects or ()


def object_error(spec: PodGroupSpec, *, group: str, namespace: str, budget: Budget) -> str | None:
    """Why the objects besides the pods cannot be made, with the place of the error; None if they can be."""
    try:
        render(spec, group=group if may_exist(group) else "group", namespace=namespace, budget=budget)
    except TemplateError as error:
        return f"spec.{error}"
    return None


def _around(spec: PodGroupSpec) -> tuple[object, ...]:
    roles = [(role.name, role.template is None, role.min_member, role.max_member) for role in spec.sub_groups or ()]
    return spec.objects, spec.min_member, roles


def _shape(role: SubGroup) -> tuple[object, ...]:
    return role.template, role.min_member, role.max_member


def _render(role: SubGroup, group: str, namespace: str, budget: Budget) -> None:
    """Make the first and the last pod of the role.

    Raises:
        TemplateError: it cannot be done.
    """
    template = role.template or {}
    size = max(role.max_member or role.min_member, 1)
    for index in sorted({0, size - 1}):
        rendered = render_member(
            template, group=group, role=role.name, index=index, size=size, namespace=namespace, budget=budget
        )
        _read(rendered)


def _read(template: object) -> None:
    """Read what is to become a pod.

    Raises:
        TemplateError: it can become none.
    """
    if _is_deep(template):
        raise TemplateError("", f"nested more than {MOST_NESTING} levels deep")
    try:
        pod = msgspec.convert(template, PodTemplate)
    except msgspec.ValidationError as error:
        place, what = place_of(error)
        raise TemplateError(place[1:], what) from None
    if not pod.spec.containers:
        raise TemplateError("spec.containers", "a pod has at least one container")
    try:
        effective_request(pod.spec), effective_limit(pod.spec)
    except QuantityError as error:
        raise TemplateError("spec.containers", f"its resources cannot be read: {error}") from None


def _expressions(template: Any) -> int:
    """Characters of the texts that are to be rendered."""
    return sum(len(value) for value in _values(template) if isinstance(value, str) and _is_rendered(value))


def _is_rendered(text: str) -> bool:
    return "{{" in text or "{%" in text


def _is_deep(whole: Any) -> bool:
    """Whether the structure is nested deeper than what is rendered may be."""
    level = [whole]
    for _ in range(MOST_NESTING + 1):
        level = [inner for one in level if isinstance(one, Mapping | list | tuple) for inner in _inside(one)]
        if not level:
            return False
    return any(isinstance(one, Mapping | list | tuple) for one in level)


def _inside(one: Mapping[str, Any] | Sequence[Any]) -> Iterable[Any]:
    return one.values() if isinstance(one, Mapping) else one


def _values(whole: Any) -> Iterator[Any]:
    """All values of a structure, itself too."""
    pending = [whole]
    while pending:
        one = pending.pop()
        yield one
        if isinstance(one, Mapping):
            pending += one.values()
        elif isinstance(one, list | tuple):
            pending += one


# --- quotas -----------------------------------------------------------------------------------------------------------


def grows(asked: Ask, before: Ask | None) -> bool:
    """Whether something is asked that was not asked before; only that can be refused."""
    if before is None or asked.subject != before.subject:
        return True
    return (
        asked.pods > before.pods
        or any(amount > before.requests.get(name, 0) for name, amount in asked.requests.items())
        or any(amount > before.limits.get(name, 0) for name, amount in asked.limits.items())
    )


def too_large(quotas: Iterable[ResourceQuota], asked: Ask) -> QuotaExceeded | None:
    """The first limit that the group alone is larger than: however long it waited, it could never start."""
    for quota in quotas:
        try:
            passed = exceeded(quota, charge(quota, asked), {}, {})
            if passed:
                return reason_of(passed[0], used_amounts(quota).get(passed[0].resource, 0))
        except QuantityError:
            continue  # the API server would not have taken it; it limits nobody
    return None


def reason_of(excess: Excess, used: int) -> QuotaExceeded:
    """An excess with what is used of the limit, as the reason that people read."""
    return QuotaExceeded(excess.quota, excess.resource, excess.asked, excess.reserved, used, excess.hard)


def refusal(group: str, reason: QuotaExceeded) -> str:
    """The words with which a group is refused."""
    return f"PodGroup {group!r} ({API_VERSION}) {reason.message} ({reason.code})"
