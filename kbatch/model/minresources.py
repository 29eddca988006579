"""What is said of a PodGroup when it is created: the minResources that follow from its templates or its owner.

Only what follows is ever said: where the templates do not say all, the answer is None, and whoever asked lets the
silence of the user stand. What a group asks for is worked out by `kbatch.model.demand`, here of a spec alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from kbatch.api.objects import Job, PodGroupSpec
from kbatch.model.demand import demand_of, of_spec, quota_ask
from kbatch.model.makers import NO_MAKERS, Maker
from kbatch.model.quota import Ask
from kbatch.model.requests import effective_request
from kbatch.resources import QuantityError, Resources, check_limit, positive, scale


def minimum_of(spec: PodGroupSpec) -> int:
    """Pods that must be placed together: the larger of the group's own minimum and the sum of its roles'."""
    return max(spec.min_member, sum(role.min_member for role in spec.sub_groups or ()))


def from_templates(spec: PodGroupSpec) -> Resources | None:
    """What the minimum asks for by the roles' templates; None where they do not say all.

    They say all when each role with a minimum has one that can be read, and what is made of them makes up the group's.
    A sum beyond 2^53 is as unreadable as a single amount.
    """
    silent = PodGroupSpec(min_member=spec.min_member, sub_groups=spec.sub_groups)
    try:
        return _exact(demand_of(of_spec(silent)).minimum or {})
    except QuantityError:
        return None


def from_owner(spec: PodGroupSpec, owner: Job) -> Resources | None:
    """What the minimum asks for if all its pods are made by this Job; None where its template cannot be read."""
    try:
        return _exact(scale(effective_request(owner.spec.template.spec), minimum_of(spec)))
    except QuantityError:
        return None


def _exact(asked: Resources) -> Resources | None:
    check_limit(asked)
    return positive(asked) or None


def ask_of(spec: PodGroupSpec, makers: Mapping[str, Maker] = NO_MAKERS) -> Ask:
    """What the group asks of quotas while it has no pods: its minimum. `makers`: the Jobs that name it.

    Raises:
        QuantityError: an amount of minResources cannot be read.
    """
    asked = quota_ask(of_spec(spec, makers))
    # Before the schema is checked a minimum may be less than one pod.
    return asked if minimum_of(spec) >= 0 else dataclasses.replace(asked, pods=minimum_of(spec))
