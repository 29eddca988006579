"""From a configuration to a policy: every word must be known, and the set of plugins must be able to work.

With `cycle`, the only module that knows concrete plugins and actions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pydantic import BaseModel

from kbatch.api.configuration import SchedulerConfiguration, Switch
from kbatch.api.placement import Placement
from kbatch.engine import actions as builtin_actions
from kbatch.engine import plugins as builtin_plugins
from kbatch.engine.actions.base import Action
from kbatch.engine.plugin import Plugin
from kbatch.engine.policy.policy import PluginPolicy, Policy
from kbatch.engine.policy.registry import ACTIONS, PLUGINS, registered
from kbatch.engine.session.voting import SWITCHES


def known_plugins() -> Mapping[str, type[Plugin]]:
    """The plugins by name: kbatch's own, then those that installed packages register under `kbatch.plugins`."""
    return registered(PLUGINS, Plugin, builtin_plugins.BUILTIN)


def known_actions() -> Mapping[str, type[Action]]:
    """The actions by name: kbatch's own, then those that installed packages register under `kbatch.actions`."""
    return registered(ACTIONS, Action, builtin_actions.BUILTIN)  # type: ignore[type-abstract]


def build_policy(
    configuration: SchedulerConfiguration,
    plugins: Mapping[str, type[Plugin]] | None = None,
    actions: Mapping[str, type[Action]] | None = None,
) -> Policy:
    """The policy that a configuration describes; `plugins` and `actions` stand in for the registries in tests.

    Raises:
        ConfigurationError: an unknown action, plugin or argument, or a set that cannot work; it names the line.
    """
    known = plugins if plugins is not None else known_plugins()
    known_by_name = actions if actions is not None else known_actions()
    for action in configuration.actions:
        if action.name not in known_by_name:
            raise action.entry.unknown("action", known_by_name)
    found: list[PluginPolicy] = []
    for tier, entries in enumerate(configuration.tiers):
        for entry in entries:
            plugin = known.get(entry.name)
            if plugin is None:
                raise entry.entry.unknown("plugin", known)
            found.append(PluginPolicy(plugin, entry.read_arguments(plugin.Arguments), entry, tier))
    chosen = tuple(known_by_name[name] for name in configuration.action_names)
    arguments = tuple(action.read_arguments(known_by_name[action.name].Arguments) for action in configuration.actions)
    _can_work(configuration, chosen, found)
    said = [
        (part.plugin.__module__, part.plugin.__qualname__, part.tier, part.arguments.model_dump_json(),
         tuple(switch.value for switch in Switch if part.enabled(switch)))
        for part in found
    ]  # fmt: skip
    return Policy(
        configuration.action_names,
        chosen,
        tuple(found),
        repr((configuration.action_names, [each.model_dump_json() for each in arguments], said)),
        _stand_ins(known, {part.plugin.name for part in found if part.enabled(Switch.NODE_ORDER)}),
        arguments,
    )


def _stand_ins(
    known: Mapping[str, type[Plugin]], scoring: Collection[str]
) -> dict[Placement, tuple[type[Plugin], BaseModel]]:
    """What scores nodes for queues that ask for a placement of which none of the scoring plugins knows."""
    return {
        placement: (plugin, plugin.Arguments.model_validate(arguments))
        for name, plugin in reversed([*known.items()]) if name not in scoring
        for placement, arguments in plugin.stands_in.items()
    }  # fmt: skip


def _can_work(
    configuration: SchedulerConfiguration, actions: tuple[type[Action], ...], plugins: list[PluginPolicy]
) -> None:
    """Refuse a set in which an action could never do anything."""
    words = [action.entry for action in configuration.actions]
    for word, action in zip(words, actions, strict=True):
        for method in sorted(action.needs):
            if not any(part.plugin.answers(method) for part in plugins):
                raise word.error(
                    f"action {action.name} needs a plugin that answers {method}, and none is enabled in any tier; add "
                    f"{action.example or 'one'}, or leave the action out"
                )
        ballot = action.victims
        if ballot is not None and not any(_may_consent(part, ballot) for part in plugins):
            raise word.error(
                f"action {action.name} can never find a victim: no plugin that says yes to one is enabled in any "
                f"tier; add {action.example or f'one that answers {ballot}'}, or leave the action out"
            )


def _may_consent(part: PluginPolicy, ballot: str) -> bool:
    switch = SWITCHES.get(ballot)
    return (switch is None or part.enabled(switch)) and part.plugin.answers(ballot) and part.plugin.consents(ballot)
