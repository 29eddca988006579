"""The reference page of the processes' flags, made of the classes that declare them.

python -m tools.flags          writes docs/reference/flags.md
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Final

from kbatch.process.settings import ENVIRONMENT_PREFIX, LeaderSettings, ProcessSettings, default_text
from operators.podgroup.process import PodGroupSettings
from operators.queue.process import QueueSettings
from operators.scheduler.process import SchedulerSettings
from webhooks.process import WebhookSettings

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "flags.md"
SECTIONS: Final[tuple[tuple[str, type[ProcessSettings], type[ProcessSettings] | None], ...]] = (
    ("All processes", ProcessSettings, None),
    ("Processes with a Lease: scheduler, podgroup, queue", LeaderSettings, ProcessSettings),
    ("kbatch-scheduler", SchedulerSettings, LeaderSettings),
    ("kbatch-podgroup", PodGroupSettings, LeaderSettings),
    ("kbatch-queue", QueueSettings, LeaderSettings),
    ("kbatch-webhook", WebhookSettings, ProcessSettings),
)
"""Titles, the settings, and those whose flags are listed in a section before."""


def page() -> str:
    """The reference page."""
    lines = [
        "# Flags of the processes",
        "",
        "The chart sets most of them from its values; `extraArgs` of a process adds others. Each flag can also be set",
        f"by an environment variable: `--lease-name` is `{ENVIRONMENT_PREFIX}LEASE_NAME`. A flag takes precedence over",
        "the variable. An unknown flag ends the process with status 2 and names the nearest known one. Durations are",
        "written as `50ms`, `1s`, `5m` or `1h`. A boolean flag such as `--gate-pods` is set to false by",
        "`--no-gate-pods`. `/configz` shows the values in force. This page is made from the code",
        "(`python -m tools.flags`).",
    ]
    for title, settings, base in SECTIONS:
        lines += ["", f"## {title}", "", "| flag | default | meaning |", "|---|---|---|"]
        listed = {field.name for field in dataclasses.fields(base)} if base is not None else set()
        lines += [_row(field) for field in dataclasses.fields(settings) if field.name not in listed]
    return "\n".join(lines) + "\n"


def _row(field: dataclasses.Field[Any]) -> str:
    choices = field.metadata["choices"]
    allowed = f" ({', '.join(f'`{one}`' for one in choices)})" if choices else ""
    default = f"`{default_text(field.default)}`" if field.default != "" else ""
    flag, text = field.name.replace("_", "-"), field.metadata["help"].replace("|", "\\|")
    return f"| `--{flag}` | {default} | {text}{allowed} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
