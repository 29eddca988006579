"""Logs: one format for kbatch, kopf, aiohttp and everything else in a process, and no secrets in it.

kopf's own log set-up is never called; its records reach the root handler like all others and carry the object they
speak of in `k8s_ref`.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

_STANDARD: Final = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {
    "message",
    "asctime",
    "taskName",
    "k8s_ref",
    "k8s_skip",
    "settings",
}
"""Attributes of every record, and kopf's inner ones: whatever else a record has was given as `extra`."""

_SECRETS: Final = (
    (("bearer", "basic"), re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")),
    (("eyj",), re.compile(r"\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]*")),
    (
        ("-----begin",),
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    ),
    (
        ("passw", "token", "secret", "key"),
        re.compile(
            r"(?i)(?P<keep>(?:(?<![\w./-])[a-z0-9-]+(?P<object>/)[a-z0-9.-]*)?"
            r"(?:passw(?:or)?d|token|client-?key-?data|secret|(?:access|api|secret)[_-]?key)['\"]?\s*[:=]\s*)"
            r"['\"]?[^\s'\",}]{4,}['\"]?"
        ),
    ),
)
"""Patterns, each with words of which one is in every text that it fits: most lines are looked through only for those.

`object`: what looks like a secret's name is the end of an object's, such as the pod's in `default/rotate-token=node-1`.
"""
REDACTED: Final = "<redacted>"

_CHATTY: Final = (
    "aiohttp.access",
    "asyncio",
    "kubernetes",
    "kopf.objects",
    "kopf.activities",
    "kopf._core.engines.activities",
)
"""Loggers that say at `info` what belongs to `debug`."""


def redact(text: str) -> str:
    """The text with bearer tokens, passwords and private keys blotted out."""
    lower = text.lower()
    for words, pattern in _SECRETS:
        if any(word in lower for word in words):
            text = pattern.sub(_blotted, text)
    return text


def _blotted(match: re.Match[str]) -> str:
    found = match.groupdict()
    return match[0] if found.get("object") else (found.get("keep") or "") + REDACTED


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message; object and error where there are any; extras."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line without a line break."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(_message(record)),
        }
        line |= _extras(record)
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = redact(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """For a terminal: time, level, logger, message, extras as `name=value`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """The record as text, secrets blotted out."""
        return redact(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        """The line without what an error adds."""
        return " ".join(
            (super().formatMessage(record), *(f"{name}={_spelled(value)}" for name, value in _extras(record).items()))
        )


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    """What a record has besides its message: what kopf speaks of, and what was given as `extra`."""
    found: dict[str, Any] = {}
    reference = getattr(record, "k8s_ref", None)
    if isinstance(reference, dict):
        found["object"] = "/".join(filter(None, (reference.get("namespace"), reference.get("name"))))
        found["kind"] = reference.get("kind")
    for name, value in vars(record).items():
        if name not in _STANDARD:
            found[name] = value if isinstance(value, int | float | bool | None) else redact(str(value))
    return found


def _spelled(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(sign in text for sign in ' "\n') else text


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError):  # a wrong format string is a defect, but no reason to lose the line
        return f"{record.msg!s} {record.args!r}"


def configure(*, level: str, style: str, stream: TextIO | None = None) -> None:
    """Send all logs of this process to one stream (stderr).

    Args:
        level: debug, info, warning or error.
        style: `json` or `text`.
        stream: where to write; stderr if None.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    set_level(level)
    logging.captureWarnings(capture=True)


def set_level(level: str) -> None:
    """The least severe lines that are written from now on: debug, info, warning or error."""
    logging.getLogger().setLevel(level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.NOTSET if level == "debug" else logging.WARNING)
