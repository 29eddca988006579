"""conformance: what Kubernetes itself runs on is nobody's victim."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar, Final

from kbatch.engine.plugin import ABSTAIN, Plugin, Preemptor, Unit, Vote

_SYSTEM_CLASSES: Final = frozenset({"system-cluster-critical", "system-node-critical"})
_SYSTEM_NAMESPACE: Final = "kube-system"


class Conformance(Plugin):
    """VETO of any unit with a pod of kube-system, or of one of Kubernetes' own priority classes. No arguments."""

    name: ClassVar[str] = "conformance"
    agrees: ClassVar[frozenset[str]] = frozenset()
    votes_by_class: ClassVar[bool] = True

    def preemptable(self, preemptor: Preemptor, unit: Unit) -> Vote:
        """See the class."""
        return _vote(unit)

    def reclaimable(self, preemptor: Preemptor, unit: Unit) -> Vote:
        """See the class."""
        return _vote(unit)

    def vote_key(self, ballot: str, unit: Unit) -> Hashable:
        """Whether it is one of these."""
        return _vote(unit)


def _vote(unit: Unit) -> Vote:
    for task in unit.tasks:
        pod = task.pod
        if pod.metadata.namespace == _SYSTEM_NAMESPACE or pod.spec.priority_class_name in _SYSTEM_CLASSES:
            return Vote.VETO
    return ABSTAIN
