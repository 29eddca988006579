"""Where a review is decided: gather what the pure functions need, ask them, and turn their answer into changes.

All of it but the rendering of templates and the reading of large groups happens in the process's own event loop, where
`view` is fed: between two awaits nothing moves.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from kbatch.api.names import ADMITTED_ANNOTATION
from kbatch.api.objects import Job, Metadata, OwnerReference, Pod, PodGroupSpec
from kbatch.api.reasons import QuotaExceeded
from kbatch.kube import writes
from kbatch.kube.client import Api
from kbatch.kube.errors import KubeError
from kbatch.kube.kinds import JOBS, RESOURCEQUOTAS, key_of
from kbatch.kube.lists import list_all
from kbatch.model import template_check
from kbatch.model.minresources import from_owner
from kbatch.model.phase import OVER
from kbatch.model.quota import Ask
from kbatch.process.offload import Offload, rendering_budget
from kbatch.resources import format_resources
from webhooks import followed, jobs, podgroups, pods, queues, unread
from webhooks.cluster_view import ClusterView
from webhooks.commits import Ledgers, UndecidedError
from webhooks.defaults import defaults, with_defaults
from webhooks.ledger import Claim
from webhooks.review import Changes, Named, Review, StoredGroup, SubmittedGroup

_log = logging.getLogger(__name__)

READ_SECONDS: Final = 2.0
TEMPLATES_PART: Final = 0.5
"""Of the time for the answer, the part after which nobody waits for templates any more."""
MOST_NAMES: Final = 4096
"""Characters in the names of all resources of a group: a ledger has to hold them."""
QUEUE: Final = "Queue"
REJECT: Final = "Reject"
QUOTA_POLICIES: Final = (QUEUE, REJECT)
REFUSE: Final = "Refuse"
GATE: Final = "Gate"
OFF: Final = "Off"
RESERVATION_POLICIES: Final = (REFUSE, GATE, OFF)
_TOKEN: Final = re.compile(r"[0-9a-f]{12}", re.ASCII)


class RefusedError(Exception):
    """The object is refused: `code` is the HTTP status that the user's client sees."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What an administrator chose."""

    scheduler_name: str
    default_queue: str
    quota_policy: str = QUEUE
    reservations: str = REFUSE
    gate_pods: bool = False


class Admission:
    """Decides reviews.

    Args:
        rules: what was chosen.
        view: fed in the same event loop.
        api: the API server.
        ledgers: for the policy Reject.
    """

    def __init__(self, rules: Rules, view: ClusterView, api: Api, ledgers: Ledgers) -> None:
        self._rules = rules
        self._view = view
        self._api = api
        self._ledgers = ledgers
        self._used = pods.Used()
        self._offload = Offload("templates")

    async def decide(self, review: Review) -> Changes:
        """What is to be changed of the object under review.

        Raises:
            RefusedError: it is refused.
        """
        match review.operation, review.new, review.old:
            case "CREATE" | "UPDATE", SubmittedGroup() as group, _:
                return await self._podgroup(group, review)
            case "CREATE", Job() as job, _:
                review.warnings += unread.warnings(job)
                return jobs.delay(job, scheduler_name=self._rules.scheduler_name)
            case "CREATE", Pod() as pod, _:
                return await self._pod(pod, review)
            case "DELETE", _, Named(metadata=metadata):
                self._queue_deletion(metadata.name)
        return {}

    # --- PodGroups ----------------------------------------------------------------------------------------------------

    async def _podgroup(self, group: SubmittedGroup, review: Review) -> Changes:
        review.warnings += unread.warnings(group)
        creating, metadata = review.operation == "CREATE", group.metadata
        old = review.old if not creating and isinstance(review.old, StoredGroup) else None
        before = None if old is None else old.spec
        if old is not None:
            review.warnings += followed.warnings(group, old)
        fill = partial(defaults, group.spec, creating=creating, default_queue=self._rules.default_queue)
        filled = await self._offload.run(metadata.namespace, fill) if review.large else fill()
        spec = with_defaults(group.spec, filled)
        error = await self._template_error(spec, before, metadata, review)
        if error is not None:
            raise RefusedError(422, error)
        if creating and spec.min_resources is None:
            filled |= await self._from_owner(spec, metadata)
        changes = {"spec": filled} if filled else {}
        if metadata.namespace in self._view.quotas and (old is None or old.status.phase not in OVER):
            changes |= await self._within_quotas(spec, before, metadata, review)
        return changes

    async def _template_error(
        self, spec: PodGroupSpec, before: PodGroupSpec | None, metadata: Metadata, review: Review
    ) -> str | None:
        """Why pods or objects cannot be made of what is new; None, and a warning, where that was not found out in time.

        Then the podgroup operator does: what it makes of a template is bounded by the same limits.
        """
        new, objects = podgroups.new_templates(spec, before), podgroups.new_objects(spec, before)
        group, namespace = metadata.name, metadata.namespace

        def look() -> str | None:
            budget = rendering_budget()
            error = template_check.template_error(new, group=group, namespace=namespace, budget=budget)
            if error is None and objects:
                error = template_check.object_error(spec, group=group, namespace=namespace, budget=budget)
            return error

        if podgroups.are_plain(new, objects):
            return look()
        seconds = (review.deadline - time.monotonic()) * TEMPLATES_PART
        try:
            async with asyncio.timeout(seconds):
                return await self._offload.run(metadata.namespace, look)
        except TimeoutError:
            review.warnings.append(
                "the templates could not be checked in time; the condition Stalled will say if pods cannot be made"
            )
            return None

    async def _from_owner(self, spec: PodGroupSpec, metadata: Metadata) -> Changes:
        """MinResources by the template of the Job that owns the group."""
        owner = podgroups.owning_job(metadata.owner_references)
        if owner is None:
            return {}
        derived = await self._derived(spec, metadata.namespace, owner)
        if derived:
            spec.min_resources = dict(derived)
        return {"minResources": derived} if derived else {}

    async def _derived(self, spec: PodGroupSpec, namespace: str, owner: OwnerReference) -> dict[str, str]:
        try:
            async with asyncio.timeout(READ_SECONDS):
                job = await writes.get(self._api, JOBS, name=owner.name, namespace=namespace)
        except (KubeError, msgspec.DecodeError, TimeoutError) as error:
            _log.info("minResources are not derived from Job %s/%s: %s", namespace, owner.name, error)
            return {}
        if job.metadata.uid != owner.uid:
            return {}
        return format_resources(from_owner(spec, job) or {})

    async def _within_quotas(
        self, spec: PodGroupSpec, before: PodGroupSpec | None, metadata: Metadata, review: Review
    ) -> Changes:
        asked = podgroups.ask(spec)
        if asked is None or not podgroups.grows(asked, podgroups.ask(before) if before is not None else None):
            return {}
        reason = podgroups.too_large(self._view.quotas.get(metadata.namespace, ()), asked)
        if reason is not None:
            reason = await self._still_too_large(metadata.namespace, asked, reason)
        if reason is not None:
            raise RefusedError(403, podgroups.refusal(metadata.name or metadata.generate_name, reason))
        if self._rules.quota_policy != REJECT:
            return {}
        return await self._granted(asked, metadata, review)

    async def _still_too_large(self, namespace: str, asked: Ask, reason: QuotaExceeded) -> QuotaExceeded | None:
        """The same by the quotas as they are now: the watch may be a moment behind an administrator who raised one."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                quotas = await list_all(self._api, RESOURCEQUOTAS, namespace=namespace)
        except (KubeError, msgspec.DecodeError, TimeoutError):
            return reason
        return podgroups.too_large(quotas, asked)

    async def _granted(self, asked: Ask, metadata: Metadata, review: Review) -> Changes:
        token = secrets.token_hex(6)
        # Of a request that is reviewed again, as another webhook changed the object, nobody would see the first token.
        before = (metadata.annotations or {}).get(ADMITTED_ANNOTATION, "").rpartition(",")[2]
        both = f"{before},{token}" if _TOKEN.fullmatch(before) else token
        noted: Changes = {"annotations": {ADMITTED_ANNOTATION: both}}
        name = metadata.name
        if not name:
            if not metadata.generate_name:
                return {}  # the API server refuses it
            # The ledger needs to know the name; the API server makes one only after admission.
            name = noted["name"] = jobs.generated_name(metadata.generate_name)
        if not template_check.may_exist(name):
            return {}  # the API server refuses it
        await self._admit(metadata.namespace, Claim(name, asked, token), review)
        return {"metadata": noted}

    async def _admit(self, namespace: str, claim: Claim, review: Review) -> None:
        """Have the claim granted.

        Raises:
            RefusedError: it is not.
        """
        if sum(map(len, (*claim.ask.requests, *claim.ask.limits))) > MOST_NAMES:
            raise RefusedError(
                422, f"PodGroup {claim.name!r}: the names of its resources have more than {MOST_NAMES} characters"
            )
        try:
            reason = await self._ledgers.admit(namespace, claim, dry_run=review.dry_run, deadline=review.deadline)
        except UndecidedError as error:
            raise RefusedError(
                503, f"PodGroup {claim.name!r} could not be held against the quotas, try again: {error}"
            ) from None
        if reason is not None:
            raise RefusedError(403, podgroups.refusal(claim.name, reason))

    # --- Queues -------------------------------------------------------------------------------------------------------

    def _queue_deletion(self, name: str) -> None:
        message = queues.refusal(name, self._phases_in(name))
        if message is not None:
            raise RefusedError(403, message)

    def _phases_in(self, queue: str) -> list[str]:
        found = self._view.phases_in(queue)
        # A group that was taken while no webhook answered may name none: it belongs to the default queue.
        return found + self._view.phases_in("") if queue == self._rules.default_queue else found

    # --- pods ---------------------------------------------------------------------------------------------------------

    def guards_no_pod(self, namespace: str) -> bool:
        """Whether each new pod of the namespace can pass as it is: nothing is reserved there that it could use."""
        return not (self._rules.gate_pods or self._reserves(namespace) or self._may_revive(namespace))

    def _may_revive(self, namespace: str) -> bool:
        rules, view = self._rules, self._view
        return rules.quota_policy == REJECT and namespace in view.quotas and bool(view.lapsed.among(namespace))

    async def _pod(self, pod: Pod, review: Review) -> Changes:
        if pod.spec.node_name:
            return {}
        namespace, group = pod.metadata.namespace, pods.group_of(pod, self._rules.scheduler_name)
        if self._may_revive(namespace):
            await self._revive(namespace, group, review)
        let_in = not group or key_of(namespace, group) in self._view.enqueued
        gate = self._rules.gate_pods and not let_in
        if self._reserves(namespace):
            asked = pods.ask(pod)
            reason = None if asked is None else self._guarded(namespace, group, asked, review.dry_run)
            if reason is not None:
                if self._rules.reservations != GATE or let_in:  # nobody would lift the gate, or he would at once
                    raise RefusedError(403, pods.refusal(reason))
                gate = True
        return {"spec": {"schedulingGates": pods.gated(pod)}} if gate else {}

    async def _revive(self, namespace: str, group: str, review: Review) -> None:
        """If the pod's group was over, it comes to life again by it, and must fit once more.

        Raises:
            RefusedError: it does not fit any more, or that could not be found out.
        """
        asked = self._view.lapsed.among(namespace).get(group)
        if asked is not None:
            await self._admit(namespace, Claim(group, asked, secrets.token_hex(6)), review)
            if not review.dry_run:
                self._view.lapsed.held(namespace, group)

    def _reserves(self, namespace: str) -> bool:
        if self._rules.reservations == OFF or not self._view.knows_pods or namespace not in self._view.quotas:
            return False
        groups = self._view.groups.get(namespace)
        return groups is not None and bool(groups.left)

    def _guarded(self, namespace: str, group: str, asked: Ask, dry_run: bool) -> QuotaExceeded | None:
        groups = self._view.groups[namespace]
        quotas = self._view.quotas.get(namespace, ())
        now = time.monotonic()
        own = groups.left.get(group)
        if len(groups.left) == (own is not None):
            return None  # nothing is promised to others
        reason = pods.eats_into(quotas, asked, own=own, promised=groups.promised, used=self._used.of(quotas, now))
        if reason is None and not dry_run:
            self._used.let_through(quotas, asked, now)
        return reason
