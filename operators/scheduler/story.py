"""What a cycle decided, as log lines: from a pod's name one finds the cycle, the node and why.

A line names many binds at once, since a gang may have thousands; a group's reason for waiting is told when it changes.
The number of the cycle is the one that stands in the decision log.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from kbatch.engine import Report, Transaction

_log = logging.getLogger(__name__)

PODS_IN_A_LINE: Final = 50
GROUPS_IN_A_CYCLE: Final = 100
"""More groups than this that change their reason in one cycle are only counted."""


class Story:
    """Tells the cycles of one scheduler."""

    def __init__(self) -> None:
        self._waiting: dict[str, str] = {}

    def tell(self, cycle: int, transactions: Sequence[Transaction], report: Report) -> None:
        """Tell one cycle; a cycle that changes nothing is not worth a line."""
        if not _log.isEnabledFor(logging.INFO):
            return
        self.decided(cycle, transactions)
        self._verdicts(cycle, report)

    def decided(self, cycle: int, transactions: Sequence[Transaction]) -> None:
        """Tell what is being carried out; alone where the cycle failed before it had a verdict on every group."""
        binds = [f"{bind.pod}={bind.node}" for each in transactions for bind in each.binds]
        self._lines(cycle, "bind", binds)
        nominations = [f"{one.pod}={one.node or '-'}" for each in transactions for one in each.nominations]
        self._lines(cycle, "nominate", nominations)
        for each in transactions:
            for victim in each.evictions:
                _log.info(
                    "evict",
                    extra={
                        "cycle": cycle,
                        "pod": victim.pod,
                        "node": victim.node,
                        "action": victim.action,
                        "beneficiary": victim.beneficiary,
                    },
                )

    def _lines(self, cycle: int, what: str, pods: Sequence[str]) -> None:
        for start in range(0, len(pods), PODS_IN_A_LINE):
            part = pods[start : start + PODS_IN_A_LINE]
            _log.info(what, extra={"cycle": cycle, "count": len(part), "pods": " ".join(part)})

    def _verdicts(self, cycle: int, report: Report) -> None:
        before = self._waiting
        waiting: dict[str, str] = {} if report.whole else before
        for key in report.gone:
            waiting.pop(key, None)
        told = 0
        for key, verdict in report.verdicts.items():
            known = before.get(key)
            if verdict.scheduled or verdict.reason is None:
                waiting.pop(key, None)
                if known is not None and verdict.scheduled:
                    told += 1
                    if told <= GROUPS_IN_A_CYCLE:
                        _log.info("scheduled", extra={"cycle": cycle, "group": verdict.group})
                continue
            code = waiting[key] = verdict.reason.code
            if known != code:
                told += 1
                if told <= GROUPS_IN_A_CYCLE:
                    extra = {"cycle": cycle, "group": verdict.group, "reason": code, "why": verdict.reason.message}
                    _log.info("waits", extra=extra)
        if told > GROUPS_IN_A_CYCLE:
            _log.info("and more groups", extra={"cycle": cycle, "count": told - GROUPS_IN_A_CYCLE})
        self._waiting = waiting
