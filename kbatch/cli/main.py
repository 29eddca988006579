"""The `kbatch` command."""

from __future__ import annotations


def main() -> None:
    """Run the command line; the exit status is the process's."""
    raise SystemExit("kbatch: no commands yet")
