"""Whether pods and objects can be made of the templates of a PodGroup, and if not, why. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kbatch.api.objects import PodGroupSpec, PodTemplate, SubGroup
from kbatch.api.places import place_of
from kbatch.model.objects import render
from kbatch.model.requests import effective_limit, effective_request
from kbatch.model.template_budget import Budget
from kbatch.model.templates import MOST_NESTING, MOST_SOURCES, TemplateError, render_member
from kbatch.resources import QuantityError

_NAME: Final = re.compile(r"[a-z0-9.-]{1,253}", re.ASCII)


def may_exist(name: str) -> bool:
    """Whether the API server, which looks at names after admission, could take a group of this name."""
    return _NAME.fullmatch(name) is not None


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


def object_error(spec: PodGroupSpec, *, group: str, namespace: str, budget: Budget) -> str | None:
    """Why the objects besides the pods cannot be made, with the place of the error; None if they can be."""
    try:
        render(spec, group=group if may_exist(group) else "group", namespace=namespace, budget=budget)
    except TemplateError as error:
        return f"spec.{error}"
    return None


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
    return sum(len(value) for value in values_of(template) if isinstance(value, str) and is_rendered(value))


def is_rendered(text: str) -> bool:
    """Whether there are expressions in the text."""
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


def values_of(whole: Any) -> Iterator[Any]:
    """All values of a structure, itself too."""
    pending = [whole]
    while pending:
        one = pending.pop()
        yield one
        if isinstance(one, Mapping):
            pending += one.values()
        elif isinstance(one, list | tuple):
            pending += one
