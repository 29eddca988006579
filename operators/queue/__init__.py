"""The queue operator: statuses of Queues, who may use which, and the namespaces with quotas."""

from typing import Final

FIELD_MANAGER: Final = "kbatch-queue"
"""Who the queue operator is in the managed fields of what it writes."""
