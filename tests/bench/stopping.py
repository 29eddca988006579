"""How a benchmark that has a control plane of its own is stopped."""

from __future__ import annotations

import signal


def end_when_asked() -> None:
    """Let SIGTERM interrupt the program as SIGINT does, so that it still ends its control plane.

    A shell without job control has what it starts in the background ignore SIGINT, and asyncio then leaves the signal
    alone: so the default is set here, before asyncio looks.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
