"""What admission says of a PodGroup besides defaults: is it within the quotas, which of its templates are new? Pure.

Rules look at what is new: an old object that breaks one can still be edited elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kbatch.api.names import API_VERSION
from kbatch.api.objects import OwnerReference, PodGroupSpec, ResourceQuota, SubGroup
from kbatch.api.reasons import QuotaExceeded
from kbatch.model.minresources import ask_of
from kbatch.model.quota import Ask, Excess, charge, exceeded, used_amounts
from kbatch.model.template_check import is_rendered, values_of
from kbatch.resources import QuantityError

MOST_AT_ONCE: Final = 5_000
"""Values of templates that are looked at in the event loop: about a millisecond."""


def ask(spec: PodGroupSpec) -> Ask | None:
    """What the group asks of quotas; None where its amounts cannot be read, or are less than nothing.

    The API server holds an object to its schema only after admission: until then a group may give back what it never
    had.
    """
    try:
        asked = ask_of(spec)
    except QuantityError:
        return None
    return None if asked.pods < 0 or min((*asked.requests.values(), *asked.limits.values()), default=0) < 0 else asked


def owning_job(owners: Iterable[OwnerReference]) -> OwnerReference | None:
    """The batch Job among the owners, the controller first."""
    jobs = [owner for owner in owners if owner.kind == "Job" and owner.api_version.partition("/")[0] == "batch"]
    return next((owner for owner in jobs if owner.controller), jobs[0] if jobs else None)


# --- templates --------------------------------------------------------------------------------------------------------


def new_templates(spec: PodGroupSpec, before: PodGroupSpec | None) -> dict[int, SubGroup]:
    """The roles of which pods are to be made as they were not before, by their places."""
    known = {role.name: role for role in (before.sub_groups or ())} if before is not None else {}
    return {
        place: role
        for place, role in enumerate(spec.sub_groups or ())
        if role.template is not None and (role.name not in known or _shape(known[role.name]) != _shape(role))
    }


def are_plain(roles: Mapping[int, SubGroup], objects: Sequence[Mapping[str, Any]]) -> bool:
    """Whether what is new is small and nothing in it is rendered, so that looking at it takes no time."""
    for seen, value in enumerate(values_of([[role.template for role in roles.values()], list(objects)])):
        if seen > MOST_AT_ONCE or (isinstance(value, str) and is_rendered(value)):
            return False
    return True


def new_objects(spec: PodGroupSpec, before: PodGroupSpec | None) -> Sequence[Mapping[str, Any]]:
    """The objects besides the pods, where anything that they are made of is new."""
    return () if before is not None and _around(spec) == _around(before) else spec.objects or ()


def _around(spec: PodGroupSpec) -> tuple[object, ...]:
    roles = [(role.name, role.template is None, role.min_member, role.max_member) for role in spec.sub_groups or ()]
    return spec.objects, spec.min_member, roles


def _shape(role: SubGroup) -> tuple[object, ...]:
    return role.template, role.min_member, role.max_member


# --- quotas -----------------------------------------------------------------------------------------------------------


def grows(asked: Ask, before: Ask | None) -> bool:
    """Whether something is asked that was not asked before; only that can be refused."""
    if before is None or asked.subject != before.subject:
        return True
    return (
        asked.pods > before.pods
        or any(amount > before.requests.get(name, 0) for name, amount in asked.requests.items())
        or any(amount > before.limits.get(name, 0) for name, amount in asked.limits.items())
    )


def too_large(quotas: Iterable[ResourceQuota], asked: Ask) -> QuotaExceeded | None:
    """The first limit that the group alone is larger than: however long it waited, it could never start."""
    for quota in quotas:
        try:
            passed = exceeded(quota, charge(quota, asked), {}, {})
            if passed:
                return reason_of(passed[0], used_amounts(quota).get(passed[0].resource, 0))
        except QuantityError:
            continue  # the API server would not have taken it; it limits nobody
    return None


def reason_of(excess: Excess, used: int) -> QuotaExceeded:
    """An excess with what is used of the limit, as the reason that people read."""
    return QuotaExceeded(excess.quota, excess.resource, excess.asked, excess.reserved, used, excess.hard)


def refusal(group: str, reason: QuotaExceeded) -> str:
    """The words with which a group is refused."""
    return f"PodGroup {group!r} ({API_VERSION}) {reason.message} ({reason.code})"
