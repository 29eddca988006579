"""What waiting pods say of themselves: the condition PodScheduled, and an Event where there is no PodGroup to write to.

Autoscalers add nodes for pods that say Unschedulable, so that is said only for lack of capacity, never for shares or
quotas; and only of a lack that lasts a moment, so that a gang on its way to its nodes costs no write per pod. It is
taken back, with the reason that holds instead, when it stops being true; the bind itself sets the condition to True.
Pods that wait for a share or a quota say nothing else: nobody acts on it, and their group says why. Pods with resource
claims say that nobody here allocates these, for they wait for ever, whatever becomes of their group.

While binds wait these writes come later, but they do come: without them no node would be added.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from kbatch.api.objects import Pod, PodCondition
from kbatch.api.reasons import ResourceClaimsUnsupported
from kbatch.engine import Report, Verdict
from kbatch.kube.client import Api
from kbatch.kube.errors import ApiError, KubeError
from kbatch.kube.events import EventRecorder, Regarding
from kbatch.kube.kinds import PODS, split_key
from kbatch.kube.writes import strategic_patch
from kbatch.model.tasks import Task
from operators.scheduler import FIELD_MANAGER
from operators.scheduler.cache import Cache
from operators.scheduler.write_loop import Write, WriteLoop

_log = logging.getLogger(__name__)

POD_SCHEDULED: Final = "PodScheduled"
UNSCHEDULABLE: Final = "Unschedulable"
LASTING_SECONDS: Final = 2.0
PATIENT_SECONDS: Final = 5.0
"""While binds wait, what is due is written so much later. With what it must last, and some to write it, the first pods
say within 10 s what they wait for."""

WRITES_A_SECOND: Final = 100.0
WRITES_A_SECOND_WHILE_BINDING: Final = 25.0
"""A write takes the API server about as long as a bind."""

AT_ONCE: Final = 8
AT_ONCE_WHILE_BINDING: Final = 2

LOOK_SECONDS: Final = 0.2
"""The longest between two looks whether something is due."""

AGAIN_SECONDS: Final = 1.0
"""A write that met another change of the pod is tried again so much later: by then the watch has told of it."""

_MOST_WORDS: Final = 1024
_PODS_AT_ONCE: Final = 200
"""To look at so many pods takes a millisecond or two."""
_SHARE: Final = 0.5
"""Of the Events that may wait: why pods wait may be thousands of them, and every one stands as a condition besides."""


_Look = tuple[int, str, bool, str]
"""What was noted of a job: its generation, its first waiting pod, whether its pods are unschedulable, the reason."""
_NEVER: Final[_Look] = (0, "", False, "")


@dataclass(frozen=True, slots=True)
class _Word:
    """What a pod's PodScheduled should say, from when on."""

    uid: str
    reason: str
    message: str
    due: float


class PodReporter:
    """Takes verdicts; lets waiting pods say what an autoscaler or a user must know.

    Args:
        api: refuses writes while this process does not lead.
        cache: knows the pods.
        recorder: gets the Events.
        binding: whether binds are waiting: then less is written here, and later.
        lasting_seconds: how long pods must lack capacity before they say so.
        patient_seconds: how much later that is said while binds wait.
    """

    def __init__(
        self,
        api: Api,
        cache: Cache,
        recorder: EventRecorder,
        *,
        binding: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        lasting_seconds: float = LASTING_SECONDS,
        patient_seconds: float = PATIENT_SECONDS,
    ) -> None:
        self._api = api
        self._cache = cache
        self._recorder = recorder
        self._binding = binding
        self._clock = clock
        self._lasting = lasting_seconds
        self._patient = patient_seconds
        self._words: OrderedDict[str, _Word] = OrderedDict()
        self._writing: set[str] = set()
        self._looked: dict[str, _Look] = {}
        self._loop = WriteLoop(
            self._next,
            at_once=lambda: AT_ONCE_WHILE_BINDING if binding() else AT_ONCE,
            look_again=lambda: LOOK_SECONDS if self._words else None,
            apart=lambda: 1 / (WRITES_A_SECOND_WHILE_BINDING if binding() else WRITES_A_SECOND),
            first_pause=0.5,
        )

    @property
    def pending(self) -> int:
        """Pods whose condition is still to be written."""
        return len(self._words) + len(self._writing)

    def report(self, report: Report) -> Iterator[None]:
        """Note how groups stand after a cycle, in pieces of a few milliseconds. Groups that look as they did cost
        nothing.
        """
        jobs = self._cache.model.jobs
        looked: dict[str, _Look] = {} if report.whole else self._looked
        for key in report.gone:
            looked.pop(key, None)
        work = 0
        for key, verdict in report.verdicts.items():
            work += 1
            if work > _PODS_AT_ONCE:
                work = 0
                yield
            job = jobs.get(key)
            if job is None or not (job.claiming or _waits(verdict)):
                looked.pop(key, None)
                continue
            first = job.waiting[0].uid if job.waiting else ""  # a job made anew counts its generations anew
            code = verdict.reason.code if _waits(verdict) and verdict.reason is not None else ""
            look = (job.generation, first, verdict.pods_unschedulable, code)
            before = self._looked.get(key, _NEVER)
            looked[key] = look
            if before == look:
                continue
            if verdict.shadow and code and before[-1] != code:
                self._tell(job.waiting, verdict)
            claims = ResourceClaimsUnsupported(job.claiming) if job.claiming else None
            for task in job.waiting:
                if task.claims and claims is not None:
                    self._say(task, claims.code, claims.message, 0.0)
                elif code:
                    self._note(task, verdict)
            work += len(job.waiting)
        self._looked = looked
        if self._words:
            self._loop.wake()

    def _tell(self, waiting: list[Task], verdict: Verdict) -> None:
        """Say on one pod why it waits: a group without a PodGroup has no other place for it."""
        first = min(waiting, key=lambda task: (task.created, task.key), default=None)
        if first is not None and verdict.reason is not None:
            meta = first.pod.metadata
            about = Regarding("v1", "Pod", meta.namespace, meta.name, meta.uid)
            code, message = verdict.reason.code.replace("/", "."), verdict.reason.message
            self._recorder.normal(about, code, "Scheduling", message, share=_SHARE)

    def _note(self, task: Task, verdict: Verdict) -> None:
        reason = verdict.reason
        if reason is None:
            return
        wanted = UNSCHEDULABLE if verdict.pods_unschedulable else reason.code
        said = _said(task.pod)
        if said == wanted or (wanted != UNSCHEDULABLE and said != UNSCHEDULABLE):
            self._words.pop(task.key, None)
            return
        wait = self._lasting if wanted == UNSCHEDULABLE else 0.0
        self._say(task, wanted, reason.message, wait)

    def _say(self, task: Task, reason: str, message: str, wait: float) -> None:
        """Have a pod say this in so many seconds, unless it does, or is about to."""
        if _said(task.pod) == reason:
            self._words.pop(task.key, None)
            return
        pending = self._words.get(task.key)
        if pending is None or pending.reason != reason or pending.uid != task.uid:
            self._words[task.key] = _Word(task.uid, reason, message[:_MOST_WORDS], self._clock() + wait)

    async def run(self) -> None:
        """Write, until cancelled: some at a time, at a bounded rate; less and later while binds wait."""
        await self._loop.run()

    def _next(self) -> Write | None:
        key = self._choose()
        if key is None:
            return None
        self._writing.add(key)
        return Write(f"condition {key}", self._try(key, self._words.pop(key)))

    def _choose(self) -> str | None:
        now = self._clock() - (self._patient if self._binding() else 0.0)
        return next((key for key, word in self._words.items() if word.due <= now and key not in self._writing), None)

    async def _try(self, key: str, word: _Word) -> bool:
        """Write one pod's condition; False if the server should be left alone for a moment."""
        try:
            again = await self._write(key, word)
        except KubeError as error:
            _log.info("condition of %s: %s", key, error)
            self._words.setdefault(key, word)  # unless there is something newer to say of it
            return False
        except Exception:  # noqa: BLE001 - one pod's condition must not end the writing of all
            _log.exception("condition of %s", key)
            return False
        finally:
            self._writing.discard(key)
        if again:
            self._words.setdefault(key, replace(word, due=self._clock() + AGAIN_SECONDS))
        return True

    async def _write(self, key: str, word: _Word) -> bool:
        """Whether it must be tried again: somebody else has changed the pod, and perhaps bound it."""
        task = self._cache.model.tasks.get(key)
        # By now the pod may be gone, another one, on its way to a node, or say so already.
        if task is None or task.uid != word.uid or task.node or _said(task.pod) == word.reason:
            return False
        before = _condition(task.pod)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        flipped = before is None or before.status != "False" or before.last_transition_time is None
        condition = {
            "type": POD_SCHEDULED,
            "status": "False",
            "reason": word.reason,
            "message": word.message,
            "lastTransitionTime": now if before is None or flipped else before.last_transition_time,
        }
        version = task.pod.metadata.resource_version  # what is bound since then must not say that it is not
        patch = {"metadata": {"uid": word.uid, "resourceVersion": version}, "status": {"conditions": [condition]}}
        namespace, name = split_key(key)
        try:
            await strategic_patch(
                self._api,
                PODS,
                namespace=namespace,
                name=name,
                patch=patch,
                subresource="status",
                field_manager=FIELD_MANAGER,
            )
        except ApiError as error:
            if error.status not in {404, 409, 422}:  # gone, or another pod by now
                raise
            return error.status == 409
        return False


def _waits(verdict: Verdict) -> bool:
    """Whether the group waits, for a reason that is known."""
    return not verdict.scheduled and verdict.reason is not None


def _condition(pod: Pod) -> PodCondition | None:
    return next((one for one in pod.status.conditions or () if one.type == POD_SCHEDULED), None)


def _said(pod: Pod) -> str:
    """The reason that the pod's condition gives for not being scheduled; empty where it gives none."""
    condition = _condition(pod)
    return condition.reason if condition is not None and condition.status == "False" else ""
