"""Which kinds of objects groups may have besides pods: a setting of the operator, as the chart writes it."""

from __future__ import annotations

import re
from typing import Any, Final

from kbatch.api.names import GROUP
from kbatch.kube.kinds import Kind

WITHHELD: Final = frozenset({GROUP, "rbac.authorization.k8s.io"})
"""API groups of which nothing is made. Who makes a role, or a PodGroup, is asked whether he has the rights that it
grants or uses: asked would be the operator, not the user.
"""

_ONE: Final = re.compile(
    r"(?:(?P<group>[a-z0-9][-a-z0-9.]*)/)?(?P<version>v[a-z0-9]+)/(?P<kind>[A-Z][A-Za-z0-9]*)=(?P<plural>[a-z0-9]+)"
)


def parse_kinds(text: str) -> dict[tuple[str, str], Kind[Any]]:
    """Kinds by apiVersion and name, from `v1/Service=services,networking.k8s.io/v1/Ingress=ingresses`.

    Raises:
        ValueError: it cannot be read, or names a kind that is never made.
    """
    found: dict[tuple[str, str], Kind[Any]] = {}
    for one in filter(None, (part.strip() for part in text.split(","))):
        match = _ONE.fullmatch(one)
        if match is None:
            raise ValueError(f"{one!r} is no kind such as networking.k8s.io/v1/Ingress=ingresses")
        group = match["group"] or ""
        if group in WITHHELD:
            raise ValueError(f"{one!r}: nothing of {group} is made for users")
        kind: Kind[Any] = Kind(dict, match["kind"], group, match["version"], match["plural"], namespaced=True)
        found[kind.api_version, kind.name] = kind
    return found
