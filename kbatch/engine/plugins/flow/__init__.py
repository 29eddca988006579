"""flow: queues in turn by what they have used, the past fading."""

from kbatch.engine.plugins.flow.plugin import Flow

__all__ = ["Flow"]
