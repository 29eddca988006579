"""What cycles leave to one another (`CycleState`), as plain data and back.

Its fields are plain data. What plugins keep is of a type of their own, known from the policy under which it is read; of
a plugin that the policy does not name, from those that are installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from kbatch.engine import CycleState, Policy
from kbatch.engine.loader import known_plugins
from kbatch.engine.plugin import Plugin


def write_state(state: CycleState) -> dict[str, Any] | None:
    """The state; None where it is the one that a process begins with."""
    if state == CycleState():
        return None
    written: dict[str, Any] = msgspec.to_builtins(state)
    return written


def read_state(written: dict[str, Any] | None, policy: Policy) -> CycleState:
    """The state that was written.

    Raises:
        msgspec.MsgspecError: it is none, or what a plugin kept is not of the type that it keeps here.
    """
    if written is None:
        return CycleState()
    state = msgspec.convert(written, CycleState)
    kept: dict[str, Any] = {}
    for name, value in state.plugins.items():
        plugin = _plugin(name, policy)
        kind = plugin.State if plugin is not None else None
        kept[name] = value if kind is None else msgspec.convert(value, kind)
    return replace(state, plugins=kept)


def write_lasting(state: CycleState, policy: Policy) -> dict[str, msgspec.Struct]:
    """By plugin name, what of it is to outlive the process."""
    found: dict[str, msgspec.Struct] = {}
    for part in policy.plugins:
        name = part.plugin.name
        lasting = part.plugin.lasting(state.plugins[name]) if part.plugin.Lasting and name in state.plugins else None
        if lasting is not None:
            found[name] = lasting
    return found


def read_lasting(written: Mapping[str, str], policy: Policy) -> tuple[CycleState, dict[str, str]]:
    """The state that a process begins with for which that was written, as JSON by plugin name; and of which plugins it
    cannot be used, and why: they begin with nothing.
    """
    kept: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for part in policy.plugins:
        name, kind = part.plugin.name, part.plugin.Lasting
        if kind is None or name not in written:
            continue
        try:
            begins = part.plugin.resumed(msgspec.json.decode(written[name], type=kind))
        except msgspec.MsgspecError as error:
            refused[name] = str(error)
            continue
        if begins is not None:
            kept[name] = begins
    return CycleState(plugins=kept), refused


def _plugin(name: str, policy: Policy) -> type[Plugin] | None:
    found = next((part.plugin for part in policy.plugins if part.plugin.name == name), None)
    return found or known_plugins().get(name)
