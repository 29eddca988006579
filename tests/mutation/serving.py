"""Runs tests in forks of one process, which has imported what takes longest and no mutant changes.

Reads a line of JSON with pytest's arguments, and answers with a line: pytest's exit status (negative: the signal that
ended it) and what it printed.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

SECONDS: Final = 150
"""Of the processor, for one run. A mutant that takes more is noticed by that: it never ends."""
_BYTES: Final = 6 << 30
"""Address space of one run: a mutant that never ends may collect without end."""
_IMPORTED: Final = ("numpy", "msgspec", "pydantic", "yaml", "pytest")
"""No plugin of pytest: it wants to import these itself."""


def run(arguments: Sequence[str]) -> tuple[int, str]:
    """Run pytest in a fork; its exit status and what it printed."""
    with tempfile.NamedTemporaryFile() as out:
        child = os.fork()
        if not child:
            _be_pytest(arguments, out.fileno())
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status), Path(out.name).read_text(errors="replace")


def _be_pytest(arguments: Sequence[str], out: int) -> None:
    import pytest

    code = 70
    try:
        os.dup2(out, 1)
        os.dup2(out, 2)
        resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
        code = int(pytest.main([*arguments]))
        sys.stdout.flush()
    finally:
        os._exit(code)


def main() -> None:
    """Serve until the input ends."""
    for name in _IMPORTED:
        importlib.import_module(name)
    for line in sys.stdin:
        code, text = run(json.loads(line))
        print(json.dumps([code, text]), flush=True)


if __name__ == "__main__":
    main()
