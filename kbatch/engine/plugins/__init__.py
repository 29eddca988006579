"""The built-in plugins, by the name that stands in configurations."""

from __future__ import annotations

from typing import Final

from kbatch.engine.plugin import Plugin
from kbatch.engine.plugins.binpack import Binpack
from kbatch.engine.plugins.conformance import Conformance
from kbatch.engine.plugins.drf import Drf
from kbatch.engine.plugins.estimates import Estimates
from kbatch.engine.plugins.flow import Flow
from kbatch.engine.plugins.gang import Gang
from kbatch.engine.plugins.lostopportunity import LostOpportunity
from kbatch.engine.plugins.nodeorder import NodeOrder
from kbatch.engine.plugins.predicates import Predicates
from kbatch.engine.plugins.priority import Priority
from kbatch.engine.plugins.proportion import Proportion
from kbatch.engine.plugins.topology import Topology

BUILTIN: Final[dict[str, type[Plugin]]] = {
    plugin.name: plugin
    for plugin in (
        Binpack,
        Conformance,
        Drf,
        Estimates,
        Flow,
        Gang,
        LostOpportunity,
        NodeOrder,
        Predicates,
        Priority,
        Proportion,
        Topology,
    )
}
