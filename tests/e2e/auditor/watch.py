"""The auditor's eyes: a list and a watch of each kind, on connections of its own, going on through every outage."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kbatch.localcluster.api import Api
from kbatch.localcluster.errors import ApiError

Tell = Callable[[str, str, dict[str, Any]], None]
"""Kind, `ADDED` / `MODIFIED` / `DELETED` / `LOST` (nothing is seen until the next `SEEN`), object."""

GROUPS = "/apis/scheduling.incubator.k8s.io/v1alpha1"
PATHS = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/pods",
    "PodGroup": f"{GROUPS}/podgroups",
    "Queue": f"{GROUPS}/queues",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
    "ResourceQuota": "/api/v1/resourcequotas",
    "Lease": "/apis/coordination.k8s.io/v1/leases",
}


class Watcher(threading.Thread):
    """Watches one kind until it is stopped.

    Args:
        kubeconfig: the administrator's.
        kind: a key of PATHS.
        tell: called in this thread for every change.
        selector: a field selector.
    """

    def __init__(self, kubeconfig: Path, kind: str, tell: Tell, *, selector: str = "") -> None:
        super().__init__(name=f"auditor {kind}", daemon=True)
        self.listed = threading.Event()
        """Set once everything that was there has been told."""
        self._kubeconfig = kubeconfig
        self._kind = kind
        self._tell = tell
        self._query = f"fieldSelector={selector}&" if selector else ""
        self._stopping = threading.Event()
        self._known: dict[tuple[str, str], dict[str, Any]] = {}
        self._answer: http.client.HTTPResponse | None = None
        self._socket: socket.socket | None = None

    def stop(self) -> None:
        """End the thread, and wait for it."""
        self._stopping.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self.join(timeout=40)

    def run(self) -> None:
        version = ""
        while not self._stopping.is_set():
            try:
                with Api(self._kubeconfig) as api:
                    if not version:
                        version = self._list(api)
                        self._tell(self._kind, "SEEN", {})
                        self.listed.set()
                    version = self._watch(api, version)
            except (ApiError, OSError, ValueError, http.client.HTTPException) as error:
                if isinstance(error, ApiError) and error.status == http.client.GONE:
                    version = ""
                self._tell(self._kind, "LOST", {})
                self._stopping.wait(0.2)

    def _list(self, api: Api) -> str:
        # Consistent, not from the cache: what was written before the auditor began must not look like news.
        page = api.request("GET", f"{PATHS[self._kind]}?{self._query}", timeout=10)
        there = {_key(item): item for item in page["items"]}
        for key in [key for key in self._known if key not in there]:
            self._tell(self._kind, "DELETED", self._known.pop(key))
        for key, item in there.items():
            known = self._known.get(key)
            if known is not None and known["metadata"]["uid"] != item["metadata"]["uid"]:
                self._tell(self._kind, "DELETED", known)
            self._known[key] = item
            self._tell(self._kind, "ADDED", item)
        return str(page["metadata"]["resourceVersion"])

    def _watch(self, api: Api, version: str) -> str:
        """Tell of changes until the server ends the watch; the version to go on from ("" to list anew)."""
        query = f"{self._query}watch=true&allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion={version}"
        connection = next(iter(api._connections(30.0)))  # the blocking client reads whole answers only
        try:
            connection.request("GET", f"{PATHS[self._kind]}?{query}", headers=api._headers)
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                raise ApiError("GET", PATHS[self._kind], answer.status, answer.read().decode("utf-8", "replace"))
            self._socket = connection.sock
            # Long enough for the minute between two bookmarks.
            connection.sock.settimeout(150.0)
            self._tell(self._kind, "SEEN", {})
            for line in answer:
                event = json.loads(line)
                if self._stopping.is_set():
                    break
                obj = event["object"]
                if event["type"] == "ERROR":
                    raise ApiError("GET", PATHS[self._kind], int(obj.get("code") or 0), str(obj.get("message")))
                version = obj["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    if event["type"] == "DELETED":
                        self._known.pop(_key(obj), None)
                    else:
                        self._known[_key(obj)] = obj
                    self._tell(self._kind, event["type"], obj)
        except ApiError as error:
            if error.status != http.client.GONE:
                raise
            return ""
        except (OSError, ValueError, http.client.HTTPException):
            self._tell(self._kind, "LOST", {})
            time.sleep(0.2)  # a server that has just died is back in a second or two
        finally:
            self._socket = None
            connection.close()
        return version


def _key(obj: dict[str, Any]) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
