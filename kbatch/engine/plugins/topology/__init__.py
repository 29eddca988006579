"""topology: keep the pods of groups and roles close together in the network."""

from __future__ import annotations

from kbatch.engine.plugins.topology.plugin import Topology

__all__ = ["Topology"]
