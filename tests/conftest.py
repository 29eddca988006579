"""What holds for every test."""

from __future__ import annotations

import asyncio


def pytest_configure() -> None:
    # pytest-asyncio asks for the current event loop before it sets its own. Where none was ever set, Python makes one,
    # nobody closes it, and some later test fails with its ResourceWarning.
    asyncio.set_event_loop(None)
