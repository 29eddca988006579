"""Log lines: one object each, and no secrets."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from kbatch.process import logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What was logged; the test run's own handlers come back afterwards."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    logs.configure(level="info", style="json", stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_object_with_extras(stream: io.StringIO) -> None:
    logging.getLogger("some.where").info("two\nlines of %s", "text", extra={"port": 8080, "path": "/x"})
    (line,) = lines(stream)
    assert line["message"] == "two\nlines of text"
    assert (line["level"], line["logger"], line["port"], line["path"]) == ("info", "some.where", 8080, "/x")
    assert line["time"].endswith("+00:00")


def test_kopfs_object_reference_becomes_object_and_kind(stream: io.StringIO) -> None:
    reference = {"kind": "PodGroup", "namespace": "ns", "name": "pg", "uid": "1"}
    logging.getLogger("kopf.other").warning("hm", extra={"k8s_ref": reference, "k8s_skip": True, "settings": object()})
    (line,) = lines(stream)
    assert (line["object"], line["kind"]) == ("ns/pg", "PodGroup")
    assert "settings" not in line
    assert "k8s_skip" not in line


def test_an_error_keeps_its_traceback_in_the_same_line(stream: io.StringIO) -> None:
    try:
        raise ValueError("password: hunter22")
    except ValueError:
        logging.getLogger("x").exception("failed")
    (line,) = lines(stream)
    assert "Traceback" in line["error"]
    assert "hunter22" not in line["error"]


def test_a_line_of_text_has_the_extras_too() -> None:
    record = logging.LogRecord("x", logging.INFO, __file__, 1, "bind", (), None)
    record.__dict__ |= {"cycle": 7, "pods": "ns/a=n1 ns/b=n2", "settings": object(), "token": "abcdefgh1234"}
    text = logs.TextFormatter().format(record)
    assert text.endswith('INFO    x: bind cycle=7 pods="ns/a=n1 ns/b=n2" token=<redacted>')
    try:
        raise ValueError("odd")
    except ValueError:
        record.exc_info = sys.exc_info()
    first, *rest = logs.TextFormatter().format(record).splitlines()
    assert first == text, "an error comes after all of the line"
    assert rest[-1] == "ValueError: odd"


def test_a_wrong_format_string_loses_no_line() -> None:
    record = logging.LogRecord("x", logging.INFO, __file__, 1, "%d pods", ("many",), None)
    assert "many" in json.loads(logs.JsonFormatter().format(record))["message"]


def test_what_kopf_says_for_each_handler_call_is_left_out(stream: io.StringIO) -> None:
    logging.getLogger("kopf.objects").info("Handler 'x' succeeded.")
    assert lines(stream) == []


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abcdefgh12345678", "abcdefgh12345678"),
        ("header basic dXNlcjpwYXNzd29yZA==", "dXNlcjpwYXNzd29yZA"),
        ("got eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl back", "eyJzdWIiOiJ4In0"),
        ("-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEI\n-----END EC PRIVATE KEY-----", "MHcCAQEEI"),
        ("-----BEGIN PRIVATE KEY-----\nMHcCAQEEI cut off", "MHcCAQEEI"),
        ("{'token': 'abcd1234', 'name': 'x'}", "abcd1234"),
        ("password=swordfish", "swordfish"),
        ("the token endpoint says access_token=abcdefgh1234", "abcdefgh1234"),
        ('{"accessToken": "abcdefgh1234"}', "abcdefgh1234"),
        ("exec plugin: client_secret='abcdefgh1234' is wrong", "abcdefgh1234"),
        ("AWS_SECRET_ACCESS_KEY=abcdefgh1234", "abcdefgh1234"),
        ("X-Auth-Token: abcdefgh1234", "abcdefgh1234"),
    ],
)
def test_secrets_are_blotted_out(stream: io.StringIO, text: str, secret: str) -> None:
    logging.getLogger("x").info("%s", text, extra={"more": text})
    written = stream.getvalue()
    assert secret not in written
    assert logs.REDACTED in written


@pytest.mark.parametrize(
    "text",
    [
        "PodGroup default/token-job: 0/12 nodes fit",
        "bearer of news",
        "group secret-santa in queue tokens",
        "default/rotate-token=node-17 default/secret=node-18",
        "status of batch/token: QueueNotFound",
    ],
)
def test_names_that_look_like_secrets_stay(text: str) -> None:
    assert logs.redact(text) == text
