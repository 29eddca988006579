"""kopf's part: the handlers that are called with each review. They hand it to the desk, and its answer back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import kopf

from kbatch.api.names import GROUP, VERSION
from webhooks.desk import Desk, RefusedError
from webhooks.review import Request, Resource
from webhooks.review_context import give_up, leave, objects

PODGROUPS: Final = "podgroup-defaults"
JOBS: Final = "job-suspension"
PODS: Final = "pod-reservations"
QUEUES: Final = "queue-deletion"
HANDLERS: Final[Mapping[str, Resource]] = {
    PODGROUPS: Resource(GROUP, VERSION, "podgroups"),
    JOBS: Resource("batch", "v1", "jobs"),
    PODS: Resource("", "v1", "pods"),
    QUEUES: Resource(GROUP, VERSION, "queues"),
}
"""Each is served at the path of its name; the chart's webhook configurations say when it is called."""


def make_registry(desk: Desk) -> kopf.OperatorRegistry:
    """A registry of the webhook's own. What has an effect besides the answer is told of dry runs."""
    registry = kopf.OperatorRegistry()

    @kopf.on.mutate(GROUP, VERSION, "podgroups", id=PODGROUPS, operations=["CREATE", "UPDATE"], registry=registry)
    async def podgroup(body: kopf.Body, dryrun: bool, patch: kopf.Patch, **cause: Any) -> None:
        if cause["operation"] not in {"CREATE", "UPDATE"}:
            return
        new, old = objects(body, cause["old"])
        before = (old or {}) if cause["operation"] == "UPDATE" else None
        with _deciding():
            changes = await desk.podgroup(new, before, dry_run=dryrun)
        _answer(new, patch, changes)

    @kopf.on.mutate("batch", "v1", "jobs", id=JOBS, operations=["CREATE"], side_effects=False, registry=registry)
    async def job(body: kopf.Body, patch: kopf.Patch, **cause: Any) -> None:
        if cause["operation"] != "CREATE":
            return
        new, _ = objects(body, None)
        with _deciding():
            changes = desk.job(new)
        _answer(new, patch, changes)

    @kopf.on.mutate("", "v1", "pods", id=PODS, operations=["CREATE"], registry=registry)
    async def pod(body: kopf.Body, dryrun: bool, patch: kopf.Patch, **cause: Any) -> None:
        if cause["operation"] != "CREATE":
            return
        new, _ = objects(body, None)
        with _deciding():
            await desk.readmit(new, dry_run=dryrun)
            changes = desk.pod(new, dry_run=dryrun)
        _answer(new, patch, changes)

    @kopf.on.validate(GROUP, VERSION, "queues", id=QUEUES, operations=["DELETE"], side_effects=False, registry=registry)
    async def queue(body: kopf.Body, **cause: Any) -> None:
        if cause["operation"] != "DELETE":
            return
        going, _ = objects(body, None)
        with _deciding():
            desk.queue_deletion(going)

    return registry


def passes(desk: Desk) -> Callable[[str, Request], bool]:
    """Which reviews need no handler: most pods are created where nothing is reserved."""

    def passes(handler: str, request: Request) -> bool:
        return handler == PODS and desk.guards_no_pod(request.namespace or "")

    return passes


@contextmanager
def _deciding() -> Iterator[None]:
    """Turns a refusal into kopf's. A defect is no refusal: kopf would make one of it, and no failure policy count."""
    try:
        yield
    except RefusedError as error:
        raise kopf.AdmissionError(str(error), code=error.code) from None
    except Exception as error:
        give_up(error)
        raise


def _answer(body: Mapping[str, Any], patch: kopf.Patch, changes: Mapping[str, Any]) -> None:
    if changes and not leave(body, changes):
        _merge(patch, changes)


def _merge(patch: Any, changes: Mapping[str, Any]) -> None:
    """Take changes into a patch that may hold others."""
    for key, value in changes.items():
        if isinstance(value, Mapping):
            _merge(patch.setdefault(key, {}), value)
        else:
            patch[key] = value


class _NoRefusals(logging.Filter):
    """Drops what kopf says of each refusal, as an error: it is the user's business, who is told, and is counted."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is kept."""
        return not (record.exc_info is None and record.getMessage().startswith("Webhook "))


_LOGGER: Final = logging.getLogger("kopf.objects")
_LOGGER.addFilter(_NoRefusals())
_LOGGER.setLevel(logging.WARNING)  # it says of each review that it began, and that it ended
