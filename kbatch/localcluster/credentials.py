"""Credentials with a ServiceAccount's rights, for processes outside of pods.

A token file that is renewed at half its life, and a kubeconfig that points at it: so that the roles that the chart
ships are what a process has, and no more.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import yaml

if TYPE_CHECKING:
    from pathlib import Path

    from kbatch.localcluster.api import Api

LIFETIME = 24 * 3600
"""Seconds; the API server may grant less."""


@dataclass(frozen=True)
class Token:
    """A ServiceAccount token and when to ask for the next one, in seconds of the wall clock."""

    text: bytes
    renew_at: float


class TokenSource:
    """Tokens of the ServiceAccounts of one namespace, each kept until half of its life has passed."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._tokens: dict[tuple[str, str | None, int, str], Token] = {}

    def get(
        self, service_account: str, audience: str | None = None, lifetime: int = LIFETIME, *, owner: str = ""
    ) -> bytes:
        """Return a token that is valid for at least another half of its life.

        `owner`: the uid of whom it is for. A release that is installed anew has other ServiceAccounts of the same
        names, and the API server takes no token of those before.
        """
        key = (service_account, audience, lifetime, owner)
        kept = self._tokens.get(key)
        if kept is None or time.time() >= kept.renew_at:
            kept = self._tokens[key] = self._request(service_account, audience, lifetime)
        return kept.text

    def _request(self, service_account: str, audience: str | None, lifetime: int) -> Token:
        spec: dict[str, object] = {"expirationSeconds": max(lifetime, 600)}  # less is refused
        if audience:
            spec["audiences"] = [audience]
        asked = time.time()
        answer = self._api.post(
            f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{quote(service_account)}/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
        )
        status = answer["status"]
        expires = dt.datetime.fromisoformat(status["expirationTimestamp"]).timestamp()
        return Token(status["token"].encode(), asked + (expires - asked) / 2)


def write_kubeconfig(path: Path, *, server: str, authority: Path, token: Path, namespace: str) -> None:
    """Write a kubeconfig that reads its token from a file each time."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "kbatch",
        "clusters": [{"name": "kbatch", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": "kbatch", "user": {"tokenFile": str(token)}}],
        "contexts": [{"name": "kbatch", "context": {"cluster": "kbatch", "user": "kbatch", "namespace": namespace}}],
    }
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
