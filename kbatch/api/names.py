"""Names that stand in manifests: groups, kinds, labels, annotations. Changing one breaks users."""

from __future__ import annotations

from typing import Final

GROUP: Final = "scheduling.incubator.k8s.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

DEFAULT_SCHEDULER_NAME: Final = "kube-batch"
DEFAULT_QUEUE: Final = "default"

SCHEDULER_NAME_ANNOTATION: Final = "kbatch.dev/scheduler-name"
DEFAULT_QUEUE_ANNOTATION: Final = "kbatch.dev/default-queue"
NAMESPACES_ANNOTATION: Final = "kbatch.dev/namespaces"
"""On the ConfigMap of an installed scheduler: the schedulerName of its pods, the queue of those that name none, and the
namespaces that it looks after, where these are not all.
"""

GROUP_NAME_ANNOTATION: Final = "scheduling.k8s.io/group-name"
"""On a pod (or a pod template): the PodGroup in the same namespace that it belongs to."""

GROUP_MIN_MEMBER_ANNOTATION: Final = "scheduling.k8s.io/group-min-member"
"""On a pod without a group: the minimum of the shadow group that its controller's pods form."""

SUB_GROUP_LABEL: Final = "kbatch.dev/sub-group"
"""On a pod: its role, the name of one of its group's subGroups."""

QUEUE_LABEL: Final = "kbatch.dev/queue"
"""On a Job, or a pod without a group: the queue."""

JOB_SET_LABEL: Final = "kbatch.dev/job-set"
"""On PodGroups and Jobs of a queue: the name of the set that they are managed as."""

ADMITTED_ANNOTATION: Final = "kbatch.dev/admitted"
"""On a PodGroup admitted under the policy Reject: which entry of the ledger it was admitted by; behind that of
the review before, and a comma, if there was one."""

SUSPENDED_ANNOTATION: Final = "kbatch.dev/suspended"
"""On a Job that the webhook suspended until its group is InQueue; a Job that its user suspended has none."""

OWN_GROUP_ANNOTATION: Final = "kbatch.dev/own-group"
"""On a Job whose template the webhook has given the Job's own name as that of its group: its user named none."""

MAX_HOPS_ANNOTATION: Final = "kbatch.dev/max-hops"
"""On a PodGroup, what spec.topology.maxHops says: for groups that are made of pods alone. The spec comes first."""

IN_QUEUE_GATE: Final = "kbatch.dev/in-queue"
"""A scheduling gate on pods that wait for their group."""

FINISHED_FINALIZER: Final = "kbatch.dev/finished"
"""A finalizer on pods made from templates: they stay until their group's status says whether they ended well."""

LAST_CHECKPOINT_ANNOTATION: Final = "kbatch.dev/last-checkpoint"
"""On a PodGroup or a pod: when its work was last saved (RFC 3339). What it did since is lost if it is evicted."""

EXPECTED_SECONDS_ANNOTATION: Final = "kbatch.dev/expected-seconds"
"""On a PodGroup, a Job or a pod: for how many seconds its user expects each of its pods to run, from its start. What a
pod says comes before what its Job says, and that before its group's word."""

REPLACED_ANNOTATION: Final = "kbatch.dev/replaced"
"""On a PodGroup with templates: how many of its members failed and were made again."""

REPLACED_OF_ANNOTATION: Final = "kbatch.dev/replaced-of"
"""On a PodGroup with templates: of which group (its uid) `REPLACED_ANNOTATION` counts; a copy of it begins anew."""

REPLACEMENT_LIMIT_ANNOTATION: Final = "kbatch.dev/replacement-limit"
"""On a PodGroup with templates: how many failed members are made again, in all; 6 where it is not given."""

EVICTED_FOR_ANNOTATION: Final = "kbatch.dev/evicted-for"
"""On an Eviction, so in the API server's audit log: the group, or the pod without one, that is to have the room."""

EVICTED_BY_ANNOTATION: Final = "kbatch.dev/evicted-by"
"""On an Eviction: the action that decided on it."""

QUOTA_GUARD_LABEL: Final = "kbatch.dev/quota-guard"
"""On a namespace, with the value `enforce`: pods of other schedulers are held to reservations too."""

QUOTA_LABEL: Final = "kbatch.dev/quota"
"""On a namespace that has a ResourceQuota, by the queue operator: new pods of ours there are shown to the webhook."""

NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""On each namespace, by the API server: its own name."""
