"""What holds for every test."""

from __future__ import annotations

import asyncio

from hypothesis import settings

from tests.examples import EXPLORING, examples

# The same code gives the same verdict: `make test` draws the same examples each time. `make properties` draws new ones.
# These hold for properties that do not say themselves how many examples they need.
settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=examples(30))
settings.register_profile("explore", print_blob=True, deadline=None, max_examples=examples(30))
settings.load_profile("explore" if EXPLORING else "fixed")


def pytest_configure() -> None:
    # pytest-asyncio asks for the current event loop before it sets its own. Where none was ever set, Python makes one,
    # nobody closes it, and some later test fails with its ResourceWarning.
    asyncio.set_event_loop(None)
