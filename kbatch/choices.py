"""What can be chosen for a trace on the command line. Nothing else is imported with it: `--help` is quick."""

from __future__ import annotations

import enum


class TraceForm(enum.StrEnum):
    """The format of a trace."""

    SWF = "swf"
    OPENB = "openb"
    CSV = "csv"


class TracePolicy(enum.StrEnum):
    """In which order the jobs of a trace start; or by the engine's own configuration."""

    FCFS = "fcfs"
    SJF = "sjf"
    CONF = "conf"


class Backfill(enum.StrEnum):
    """Which jobs may start before one that does not fit."""

    NONE = "none"
    EASY = "easy"
    CONSERVATIVE = "conservative"


class PodShape(enum.StrEnum):
    """What becomes of a job of several processors or tasks: as many pods, or one."""

    PODS = "pods"
    RIGID = "rigid"
