"""Who may read what a process shows: accounts of the cluster that may get the path, as the API server says it.

A reader shows a token, as it would to the API server. Whose it is (TokenReview), and whether that account may
(SubjectAccessReview), is asked there, and believed for a while.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from kbatch.kube.client import Api
from kbatch.kube.errors import KubeError

BELIEVED_SECONDS: Final = 60.0
REFUSED_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 5.0
AT_ONCE: Final = 2
"""Questions under way: whoever reaches the port can ask for some."""
MOST_KNOWN: Final = 256
MOST_TOKEN: Final = 16_384
"""Characters."""

_TOKENS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _Status(msgspec.Struct):
    authenticated: bool = False
    allowed: bool = False
    user: _User = msgspec.field(default_factory=_User)


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


class Readers:
    """Decides who may read. `api` needs the rights of Kubernetes' role system:auth-delegator."""

    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._known: dict[tuple[str, bytes], tuple[float, int]] = {}
        """By path and token: until when which answer holds."""
        self._places = asyncio.Semaphore(AT_ONCE)

    async def status(self, authorization: str, path: str) -> int:
        """The HTTP status for who shows this header: 200, 401 (nobody known), 403 (may not), 503 (not found out)."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not 0 < len(token := token.strip()) <= MOST_TOKEN:
            return 401
        key = path, hashlib.sha256(token.encode()).digest()
        if (known := self._still(key)) is not None:
            return known
        try:
            async with asyncio.timeout(ANSWER_SECONDS), self._places:
                if (known := self._still(key)) is not None:
                    return known
                found = await self._ask(token, path)
        except (KubeError, msgspec.DecodeError, TimeoutError):
            return 503
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[key] = self._clock() + (BELIEVED_SECONDS if found == 200 else REFUSED_SECONDS), found
        return found

    def _still(self, key: tuple[str, bytes]) -> int | None:
        until, found = self._known.get(key, (0.0, 0))
        return found if self._clock() < until else None

    async def _ask(self, token: str, path: str) -> int:
        who = await self._review(_TOKENS, "TokenReview", {"token": token})
        if not who.authenticated:
            return 401
        user = {key: value for key, value in msgspec.to_builtins(who.user).items() if key != "username"}
        asked = {**user, "user": who.user.username, "nonResourceAttributes": {"path": path, "verb": "get"}}
        return 200 if (await self._review(_ACCESS, "SubjectAccessReview", asked)).allowed else 403

    async def _review(self, path: str, kind: str, spec: Mapping[str, Any]) -> _Status:
        group = path.removeprefix("/apis/").rpartition("/")[0]
        answer = await self._api.request(
            "POST", path, body={"apiVersion": group, "kind": kind, "spec": spec}, idempotent=True, attempts=2,
            timeout_seconds=ANSWER_SECONDS,
        )  # fmt: skip
        return msgspec.json.decode(answer, type=_Review).status
