"""Member templates: the values of one pod of a role, written into the role's pod template.

A template is a parsed structure, and stays one: each text in it that contains `{{` or `{%` is rendered by jinja2 for
itself, and the result is the text that stands in its place. So no value can break out of its field, and the keys of the
structure are never touched. Results are always texts, as labels, annotations and environment variables want them.

The same goes for the objects that a group has besides its pods; of them `role` and `index` say nothing.

What a text may say is a small part of jinja2 (`kbatch.model.template_language`): the values `group`, `role`, `index`,
`size`, `peers` and `namespace`; arithmetic with whole numbers; comparisons; `peers[0]`, `peers[:size // 2]`; some
filters and tests; `{% if %}`, and one level of `{% for peer in peers %}` with `loop`. A name that does not exist is an
error. All of it is paid for from a budget: templates come from users, and are rendered inside the API server's
requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import jinja2

from kbatch.model.peers import Peers
from kbatch.model.template_budget import Budget, RefusedTextError
from kbatch.model.template_language import compiled

MOST_SOURCE: Final = 16 * 2**10
"""Characters of one text with expressions; `MOST_SOURCES` of all of a template together."""
MOST_SOURCES: Final = 64 * 2**10
MOST_OUTPUT: Final = 2**20
"""Characters of all rendered texts of a template together."""
MOST_NESTING: Final = 64

_USUAL_NAME: Final = 128
"""Characters of a peer's name that are made in one step."""


class TemplateError(ValueError):
    """A template that cannot be rendered.

    Attributes:
        path: the place inside the template, such as `spec.containers[0].env[1].value`; empty for the whole.
        message: what is wrong there.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message

    def of_role(self, place: int) -> str:
        """The error of the template of the role at this place, as its user is told of it."""
        dot = "." if self.path and not self.path.startswith("[") else ""
        return f"spec.subGroups[{place}].template{dot}{self.path}: {self.message}"


def render_member(
    template: Mapping[str, Any],
    *,
    group: str,
    role: str,
    index: int,
    size: int,
    namespace: str,
    budget: Budget | None = None,
) -> dict[str, Any]:
    """The template of one member, its expressions rendered; a new structure, nothing in it is shared.

    Args:
        template: the role's pod template as it stands in the manifest.
        group: the PodGroup's name.
        role: the role's name.
        index: the member's number in its role, from 0.
        size: how many members the role has.
        namespace: the PodGroup's namespace.
        budget: what all that is rendered at once may cost; None for one of this member alone.

    Raises:
        TemplateError: an expression cannot be read or rendered, or asks for too much.
    """
    peers = Peers(group, role, range(size))
    values = {"group": group, "role": role, "index": index, "size": size, "peers": peers, "namespace": namespace}
    return _render(template, values, size * _steps_of(group + role), budget or Budget())


def render_object(
    template: Mapping[str, Any],
    *,
    group: str,
    namespace: str,
    size: int,
    peers: tuple[str, ...],
    budget: Budget | None = None,
) -> dict[str, Any]:
    """An object of a group besides its pods, its expressions rendered: the same as for members, without role and index.

    Args:
        template: the object as it stands in the group's manifest.
        group: the PodGroup's name.
        namespace: the PodGroup's namespace.
        size: how many members the group's templates make.
        peers: the host names of these members, role by role.
        budget: what all that is rendered at once may cost; None for one of this object alone.

    Raises:
        TemplateError: an expression cannot be read or rendered, or asks for too much.
    """
    values = {"group": group, "namespace": namespace, "size": size, "peers": peers}
    return _render(template, values, sum(map(_steps_of, peers)), budget or Budget())


def _steps_of(name: str) -> int:
    """What it costs to make the name of a peer."""
    return 1 + len(name) // _USUAL_NAME


def _render(template: Mapping[str, Any], values: Mapping[str, Any], visit: int, budget: Budget) -> dict[str, Any]:
    budget.next_member()
    rendered = _Rendering(values, visit, budget).walk(template, ())
    if not isinstance(rendered, dict):
        raise TemplateError("", "a template is an object with metadata and spec")
    return rendered


# --- inside -----------------------------------------------------------------------------------------------------------


class _Step(NamedTuple):
    """One step of a path: a key of an object or an index of a list."""

    at: str | int


@dataclass(slots=True)
class _Rendering:
    """Of one member, or of objects: the values, what it costs to visit all peers, and what is left of the bounds."""

    values: Mapping[str, Any]
    visit: int
    budget: Budget
    sources: int = field(default=0)
    output: int = field(default=0)

    def walk(self, value: Any, path: tuple[_Step, ...]) -> Any:
        self._spend(1, path)
        if isinstance(value, str):
            return self._text(value, path) if "{{" in value or "{%" in value else value
        if len(path) > MOST_NESTING:
            raise TemplateError(_shown(path), f"nested more than {MOST_NESTING} levels deep")
        if isinstance(value, Mapping):
            return {key: self.walk(inner, (*path, _Step(str(key)))) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.walk(inner, (*path, _Step(index))) for index, inner in enumerate(value)]
        return value

    def _spend(self, steps: int, path: tuple[_Step, ...]) -> None:
        try:
            self.budget.spend(steps)
        except RefusedTextError as error:
            raise TemplateError(_shown(path), str(error)) from None

    def _text(self, source: str, path: tuple[_Step, ...]) -> str:
        self.sources += len(source)
        if len(source) > MOST_SOURCE or self.sources > MOST_SOURCES:
            raise TemplateError(
                _shown(path), f"more than {MOST_SOURCE} characters with expressions, or {MOST_SOURCES} in all"
            )
        try:
            found = compiled(source, self.budget)
            self.budget.spend(found.nodes + found.passes * self.visit)
            text = found.render(self.values, self.budget)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(_shown(path), _lined(error.message or "cannot be read", error.lineno)) from None
        except (jinja2.TemplateError, RefusedTextError, ArithmeticError, TypeError, ValueError) as error:
            raise TemplateError(_shown(path), str(error) or type(error).__name__) from None
        except (RecursionError, SyntaxError, MemoryError):
            raise TemplateError(_shown(path), "its expressions are nested too deep") from None
        self.output += len(text)
        if self.output > MOST_OUTPUT:
            raise TemplateError(_shown(path), f"more than {MOST_OUTPUT} characters are rendered in all")
        return text


def _shown(path: tuple[_Step, ...]) -> str:
    text = ""
    for step in path:
        if isinstance(step.at, int):
            text += f"[{step.at}]"
        elif step.at.isidentifier():
            text += f".{step.at}" if text else step.at
        else:
            text += f"[{step.at}]"
    return text


def _lined(message: str, line: int) -> str:
    return f"line {line}: {message}" if line > 1 else message
