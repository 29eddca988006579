"""The podgroup operator: statuses, members and objects of PodGroups, and the Jobs that wait for them."""

from typing import Final

FIELD_MANAGER: Final = "kbatch-podgroup"
"""Who the podgroup operator is in the managed fields of what it writes."""
