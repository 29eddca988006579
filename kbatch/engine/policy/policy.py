"""The policy: which actions run, and which plugins advise them, with their arguments read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from kbatch.api.configuration import PluginConfiguration, Switch
from kbatch.api.placement import Placement
from kbatch.engine.plugin import Plugin
from kbatch.model.node_index import STUCK_AFTER
from kbatch.times import SECOND


@dataclass(frozen=True, slots=True)
class PluginPolicy:
    """One plugin of a tier, its arguments read."""

    plugin: type[Plugin]
    arguments: BaseModel
    configuration: PluginConfiguration
    tier: int

    def enabled(self, switch: Switch) -> bool:
        """Whether the plugin is asked for this."""
        return self.configuration.enabled(switch)


@dataclass(frozen=True, slots=True)
class Policy:
    """Actions in order and plugins tier by tier. Durations are in microseconds.

    Attributes:
        actions: the names of the actions. action_types: their classes (`kbatch.engine.actions.base.Action`).
        action_arguments: their arguments, read.
        fingerprint: equal for configurations that say the same; what was worked out under one is good for the other.
        stand_ins: for placements of queues whose plugin is not among these: the plugin, and its arguments.
        bind_timeout: a gang bound in part is taken back after this.
        ageing: a group that waits longer has room kept for it.
        nomination_grace: a nomination ends this long after the last victim's grace.
        backoff_base: the first back-off of a group that was sent back from InQueue; it doubles, up to `backoff_limit`.
    """

    actions: tuple[str, ...]
    action_types: tuple[type[Any], ...]
    plugins: tuple[PluginPolicy, ...]
    fingerprint: str
    stand_ins: Mapping[Placement, tuple[type[Plugin], BaseModel]] = field(default_factory=dict)
    action_arguments: tuple[BaseModel, ...] = ()
    bind_timeout: int = 60 * SECOND
    ageing: int = 600 * SECOND
    nomination_grace: int = STUCK_AFTER
    backoff_base: int = 10 * SECOND
    backoff_limit: int = 600 * SECOND
    _answering: dict[tuple[str, Switch | None], Sequence[int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def backoff(self, attempts: int) -> int:
        """For how many microseconds a group stays out of queue that was sent back so often (at least once)."""
        return min(self.backoff_base << max(0, min(attempts - 1, 30)), self.backoff_limit)

    def answering(self, method: str, switch: Switch | None = None) -> Sequence[int]:
        """Which of the plugins have something of their own to say where a method is asked, and are switched on."""
        found = self._answering.get((method, switch))
        if found is None:
            found = self._answering[method, switch] = tuple(
                at for at, part in enumerate(self.plugins)
                if part.plugin.answers(method) and (switch is None or part.enabled(switch))
            )  # fmt: skip
        return found

    def has(self, action: str) -> bool:
        """Whether the action is configured."""
        return action in self.actions

    def arguments_of(self, action: str) -> BaseModel | None:
        """The arguments of an action; None where it is not configured."""
        known = zip(self.actions, self.action_arguments, strict=False)
        return next((each for name, each in known if name == action), None)
