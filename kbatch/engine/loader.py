"""From a configuration to a policy: every word must be known, and the set of plugins must be able to work."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Final

from kbatch.api.configuration import SchedulerConfiguration, Switch
from kbatch.engine.actions import ACTIONS
from kbatch.engine.plugin import Plugin
from kbatch.engine.plugins import BUILTIN
from kbatch.engine.policy.policy import PluginPolicy, Policy

ENTRY_POINTS: Final = "kbatch.plugins"


def known_plugins() -> Mapping[str, type[Plugin]]:
    """The plugins by name: kbatch's own, then those that installed packages register under `kbatch.plugins`."""
    found: dict[str, type[Plugin]] = dict(BUILTIN)
    for entry in entry_points(group=ENTRY_POINTS):
        if entry.name not in found:
            loaded = entry.load()
            if isinstance(loaded, type) and issubclass(loaded, Plugin):
                found[entry.name] = loaded
    return found


def build_policy(configuration: SchedulerConfiguration, plugins: Mapping[str, type[Plugin]] | None = None) -> Policy:
    """The policy that a configuration describes; `plugins` stands in for the registry in tests.

    Raises:
        ConfigurationError: an unknown action, plugin or argument, or a set that cannot work; it names the line.
    """
    known = plugins if plugins is not None else known_plugins()
    for action in configuration.actions:
        if action.name not in ACTIONS:
            raise action.unknown("action", ACTIONS)
    found: list[PluginPolicy] = []
    for tier, entries in enumerate(configuration.tiers):
        for entry in entries:
            plugin = known.get(entry.name)
            if plugin is None:
                raise entry.entry.unknown("plugin", known)
            found.append(PluginPolicy(plugin, entry.read_arguments(plugin.Arguments), entry, tier))
    _can_work(configuration, found)
    said = [
        (part.plugin.__module__, part.plugin.__qualname__, part.tier, part.arguments.model_dump_json(),
         tuple(switch.value for switch in Switch if part.enabled(switch)))
        for part in found
    ]  # fmt: skip
    return Policy(configuration.action_names, tuple(found), repr((configuration.action_names, said)))


_NEEDS: Final = {
    "reclaim": (Switch.RECLAIMABLE, "reclaimable", "proportion"),
    "preempt": (Switch.PREEMPTABLE, "preemptable", "priority or drf"),
}


def _can_work(configuration: SchedulerConfiguration, plugins: list[PluginPolicy]) -> None:
    """Refuse a set in which an action could never do anything."""
    for action in configuration.actions:
        if action.name in _NEEDS:
            switch, method, example = _NEEDS[action.name]
            consenting = [
                part for part in plugins
                if part.enabled(switch) and part.plugin.consents(method)
            ]  # fmt: skip
            if not consenting:
                raise action.error(
                    f"action {action.name} can never find a victim: no plugin that says yes to one is enabled in any "
                    f"tier; add {example}, or leave the action out"
                )
