"""The kinds whose controllers make pods."""

from __future__ import annotations

import msgspec

from kbatch.api.objects.meta import LabelSelector, Metadata, Object
from kbatch.api.objects.pods import PodCondition, PodTemplate


class PodConditionPattern(Object, kw_only=True):
    type: str = ""


class PodFailureRule(Object, kw_only=True):
    action: str = ""
    on_pod_conditions: tuple[PodConditionPattern, ...] | None = None


class PodFailurePolicy(Object, kw_only=True):
    rules: tuple[PodFailureRule, ...] | None = None


class JobSpec(Object, kw_only=True):
    parallelism: int | None = None
    completions: int | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    suspend: bool = False
    active_deadline_seconds: int | None = None
    completion_mode: str | None = None
    template: PodTemplate = msgspec.field(default_factory=PodTemplate)


class JobStatus(Object, kw_only=True):
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: tuple[PodCondition, ...] | None = None
    start_time: str | None = None


class Job(Object, kw_only=True):
    api_version: str = "batch/v1"
    kind: str = "Job"
    metadata: Metadata
    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobStatus = msgspec.field(default_factory=JobStatus)


class ReplicaSetSpec(Object, kw_only=True):
    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplate = msgspec.field(default_factory=PodTemplate)


class ReplicaSet(Object, kw_only=True):
    api_version: str = "apps/v1"
    kind: str = "ReplicaSet"
    metadata: Metadata
    spec: ReplicaSetSpec = msgspec.field(default_factory=ReplicaSetSpec)
