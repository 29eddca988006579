"""kopf's part: the handlers that are called with each review. They hand it on, and a refusal back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import kopf

from kbatch.api.names import GROUP, VERSION
from webhooks import review
from webhooks.admission import Admission, RefusedError
from webhooks.review import Resource, Review
from webhooks.review_context import current

PODGROUPS: Final = "podgroup-defaults"
JOBS: Final = "job-suspension"
PODS: Final = "pod-reservations"
QUEUES: Final = "queue-deletion"
HANDLERS: Final[Mapping[str, Resource]] = {
    PODGROUPS: review.PODGROUPS,
    JOBS: review.JOBS,
    PODS: review.PODS,
    QUEUES: review.QUEUES,
}
"""Each is served at the path of its name; the chart's webhook configurations say when it is called."""


def make_registry(admission: Admission) -> kopf.OperatorRegistry:
    """A registry of the webhook's own. What has an effect besides the answer is told of dry runs."""
    registry = kopf.OperatorRegistry()

    @kopf.on.mutate(GROUP, VERSION, "podgroups", id=PODGROUPS, operations=["CREATE", "UPDATE"], registry=registry)
    @kopf.on.mutate("batch", "v1", "jobs", id=JOBS, operations=["CREATE"], side_effects=False, registry=registry)
    @kopf.on.mutate("", "v1", "pods", id=PODS, operations=["CREATE"], registry=registry)
    @kopf.on.validate(GROUP, VERSION, "queues", id=QUEUES, operations=["DELETE"], side_effects=False, registry=registry)
    async def decide(**_: Any) -> None:
        review = current()
        try:
            review.changes = await admission.decide(review)
        except RefusedError as error:
            raise kopf.AdmissionError(str(error), code=error.code) from None
        except Exception as error:
            review.failed = error  # kopf would make a refusal of it, and no failure policy count
            raise

    return registry


def passes(admission: Admission) -> Callable[[Review], bool]:
    """Which reviews need no handler: most pods are created where nothing is reserved."""
    return lambda one: one.resource == review.PODS and admission.guards_no_pod(one.namespace)


class _NoRefusals(logging.Filter):
    """Drops what kopf says of each refusal, as an error: it is the user's business, who is told, and is counted."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is kept."""
        return not (record.exc_info is None and record.getMessage().startswith("Webhook "))


_LOGGER: Final = logging.getLogger("kopf.objects")
_LOGGER.addFilter(_NoRefusals())
_LOGGER.setLevel(logging.WARNING)  # it says of each review that it began, and that it ended
