"""The policy: which actions run, and which plugins advise them, with their arguments read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from kbatch.api.configuration import PluginConfiguration, Switch
from kbatch.engine.plugin import Plugin


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
    """Actions in order and plugins tier by tier.

    Attributes:
        actions: the names of the actions. action_types: their classes (`kbatch.engine.actions.base.Action`).
        fingerprint: equal for configurations that say the same; what was worked out under one is good for the other.
        bind_timeout_ms: a gang bound in part is taken back after this.
        ageing_ms: a group that waits longer has room kept for it.
        nomination_grace_ms: a nomination ends this long after the last victim's grace.
        backoff_ms: the first back-off of a group that was sent back from InQueue; it doubles, up to `most_backoff_ms`.
    """

    actions: tuple[str, ...]
    action_types: tuple[type[Any], ...]
    plugins: tuple[PluginPolicy, ...]
    fingerprint: str
    bind_timeout_ms: int = 60_000
    ageing_ms: int = 600_000
    nomination_grace_ms: int = 30_000
    backoff_ms: int = 10_000
    most_backoff_ms: int = 600_000

    def backoff(self, attempts: int) -> int:
        """For how many milliseconds a group stays out of queue that was sent back so often (at least once)."""
        return min(self.backoff_ms << max(0, min(attempts - 1, 30)), self.most_backoff_ms)

    def has(self, action: str) -> bool:
        """Whether the action is configured."""
        return action in self.actions
