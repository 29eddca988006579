"""estimates: when groups that wait are to start, by what was learned of those that came before."""

from kbatch.engine.plugins.estimates.plugin import Estimates

__all__ = ["Estimates"]
