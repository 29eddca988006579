"""kopf's part: the handlers that are called with each review. They hand it to the desk, and its answer back."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import kopf

from kbatch.api.names import GROUP, VERSION
from webhooks.answers import leave
from webhooks.desk import Desk, RefusedError

DOMAIN: Final = "webhook.kbatch.dev"
PODGROUPS: Final = "podgroup-defaults"
JOBS: Final = "job-suspension"
PODS: Final = "pod-reservations"
QUEUES: Final = "queue-deletion"
HANDLERS: Final = (PODGROUPS, JOBS, PODS, QUEUES)
"""Each is served at the path of its name; the chart's webhook configurations say when it is called."""


def make_registry(desk: Desk) -> kopf.OperatorRegistry:
    """A registry of the webhook's own. What has an effect besides the answer is told of dry runs."""
    registry = kopf.OperatorRegistry()

    @kopf.on.mutate(GROUP, VERSION, "podgroups", id=PODGROUPS, operations=["CREATE", "UPDATE"], registry=registry)
    async def podgroup(body: kopf.Body, dryrun: bool, patch: kopf.Patch, **cause: Any) -> None:
        before = dict(cause["old"] or {}) if cause["operation"] == "UPDATE" else None
        try:
            changes = await desk.podgroup(dict(body), before, dry_run=dryrun)
        except RefusedError as error:
            raise kopf.AdmissionError(str(error), code=error.code) from None
        _answer(body, patch, changes)

    @kopf.on.mutate("batch", "v1", "jobs", id=JOBS, operations=["CREATE"], side_effects=False, registry=registry)
    async def job(body: kopf.Body, patch: kopf.Patch, **cause: Any) -> None:
        if cause["operation"] == "CREATE":
            _answer(body, patch, desk.job(dict(body)))

    @kopf.on.mutate("", "v1", "pods", id=PODS, operations=["CREATE"], registry=registry)
    async def pod(body: kopf.Body, dryrun: bool, patch: kopf.Patch, **cause: Any) -> None:
        if cause["operation"] != "CREATE":
            return
        try:
            changes = await desk.pod(dict(body), dry_run=dryrun)
        except RefusedError as error:
            raise kopf.AdmissionError(str(error), code=error.code) from None
        _answer(body, patch, changes)

    @kopf.on.validate(GROUP, VERSION, "queues", id=QUEUES, operations=["DELETE"], side_effects=False, registry=registry)
    async def queue(body: kopf.Body, **cause: Any) -> None:
        if cause["operation"] != "DELETE":
            return
        try:
            await desk.queue_deletion(dict(body))
        except RefusedError as error:
            raise kopf.AdmissionError(str(error), code=error.code) from None

    return registry


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


logging.getLogger("kopf.objects").addFilter(_NoRefusals())
