"""What holds for every test."""

from __future__ import annotations

import asyncio
import os

from hypothesis import settings

# The same code gives the same verdict: `make test` draws the same examples each time. `make explore` draws new ones.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("explore", print_blob=True, deadline=None)
settings.load_profile("explore" if os.environ.get("KBATCH_EXPLORE") else "fixed")


def pytest_configure() -> None:
    # pytest-asyncio asks for the current event loop before it sets its own. Where none was ever set, Python makes one,
    # nobody closes it, and some later test fails with its ResourceWarning.
    asyncio.set_event_loop(None)
