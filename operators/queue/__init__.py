"""The queue operator: statuses of Queues, who may use which, and the namespaces with quotas."""

from typing import Final

FIELD_MANAGER: Final = "kbatch-queue"
"""Who the queue operator is in the managed fields of what it writes."""

RETRY_SECONDS: Final = 1.0
RETRY_LONGEST: Final = 60.0
"""After so many seconds what failed is tried again, and after so many where it fails again and again."""
