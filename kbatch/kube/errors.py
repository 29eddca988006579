"""What can go wrong between a process and the API server, as types that carry the facts."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec


class KubeError(Exception):
    """Anything that a request to the API server can end in."""


class CredentialsError(KubeError):
    """No credentials were found, or they cannot be read; the message says which file and why."""


class NotLeadingError(KubeError):
    """A write was refused here, before it was sent: this process does not hold its Lease (any more)."""


class NoAnswerError(KubeError):
    """The request got no complete answer: no connection, a connection cut, or a time-out.

    `sent` is False where the server cannot have seen the request; else it may or may not have been carried out, and
    whoever sent it reads the object again to find out.
    """

    def __init__(self, method: str, path: str, *, sent: bool, why: str) -> None:
        super().__init__(f"{method} {path}: {why}")
        self.sent = sent
        self.why = why


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of a Status's `details.causes`."""

    reason: str = ""
    message: str = ""
    field: str = ""


class ApiError(KubeError):
    """An answer of the API server that is not a success.

    `status` is the HTTP status, `reason` Kubernetes' word for it (`Conflict`, `NotFound`, ...), `retry_after` the
    seconds that the server asks to wait, where it does.
    """

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        causes: tuple[Cause, ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes
        self.retry_after = retry_after

    @property
    def disrupts_budget(self) -> bool:
        """Whether an eviction was refused by a PodDisruptionBudget: waiting a moment does not help."""
        return any(cause.reason == "DisruptionBudget" for cause in self.causes)

    @property
    def of_this_object(self) -> bool:
        """Whether the answer is about the very object that was asked for, so that another might be answered otherwise.

        Not where the server is in trouble or busy, wants other credentials, or met another write.
        """
        return self.disrupts_budget or self.status in (400, 403, 422)

    @property
    def namespace_ends(self) -> bool:
        """Whether something was refused because its namespace is being terminated: no attempt will ever succeed."""
        return any(cause.reason == "NamespaceTerminating" for cause in self.causes)

    @property
    def initializing(self) -> bool:
        """Whether the server's storage for this kind is just coming up (after a start, or a new CRD)."""
        return self.status == 429 and "(re)initializing" in self.message

    def lacks(self, field: str) -> bool:
        """Whether an apply was refused (with the status 500) for naming this field, such as `.status.phase`, which the
        CRD does not have: it is of an older release.
        """
        return f"{field}: field not declared in schema" in self.message


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, rename="camel"):
    causes: list[_Cause] | None = None
    retry_after_seconds: float | None = None


class _Status(msgspec.Struct):
    """Kubernetes' Status object, as far as it is read."""

    reason: str = ""
    message: str = ""
    code: int = 0
    details: _Details | None = None


_STATUS = msgspec.json.Decoder(_Status)


def error_from(status: int, payload: bytes, retry_after: str | None = None) -> ApiError:
    """The error that an answer stands for; a body that is no Status (a proxy's page) becomes the message, shortened."""
    wait = _seconds(retry_after)
    try:
        body = _STATUS.decode(payload)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return ApiError(status, message=payload[:200].decode(errors="replace").strip(), retry_after=wait)
    details = body.details or _Details()
    causes = tuple(Cause(cause.reason, cause.message, cause.field) for cause in details.causes or ())
    if wait is None and details.retry_after_seconds:
        wait = details.retry_after_seconds
    return ApiError(status or body.code, body.reason, body.message, causes, wait)


def _seconds(text: str | None) -> float | None:
    """A Retry-After in seconds; its form as a date is not used by Kubernetes and read as absent."""
    try:
        return max(0.0, float(text)) if text else None
    except ValueError:
        return None
