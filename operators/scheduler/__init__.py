"""The scheduler: one loop that decides, and the writers that carry it out and say so."""

from typing import Final

FIELD_MANAGER: Final = "kbatch-scheduler"
"""Who the scheduler is in the managed fields of what it writes."""
