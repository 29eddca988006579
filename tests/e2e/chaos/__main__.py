"""`make chaos`: the long form of the fault tests.

    python -m tests.e2e.chaos [PYTEST ARGUMENT...]

KBATCH_CHAOS_SEED chooses another run, KBATCH_CHAOS_SCALE (1) scales durations and counts. What is injected, and the
schedulers' logs, stay in pytest's temporary folder, which a failure names.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    here = Path(__file__).parent
    raise SystemExit(
        pytest.main([str(here / "long_faults.py"), "-v", "-s", "--durations=0", "--durations-min=1", *sys.argv[1:]])
    )
