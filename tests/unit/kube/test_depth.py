"""One object that is nested as deep as an API server takes ends nobody who reads it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import json, sys, threading
from kbatch.kube import decoding
from kbatch.kube.depth import allow_deep_objects
from kbatch.kube.kinds import PODGROUPS

if "deep" in sys.argv:
    allow_deep_objects()
levels = 9_950
one = (
    '{"metadata":{"name":"g","namespace":"n","uid":"u","resourceVersion":"7"},"spec":{"subGroups":[{"name":"w",'
    '"template":{"metadata":' + '{"a":' * levels + "{}" + "}" * levels + "}}]}}"
)

def read():
    listed = decoding.page(PODGROUPS, ('{"metadata":{"resourceVersion":"7"},"items":[' + one + "]}").encode())
    changed = decoding.change(PODGROUPS, ('{"type":"ADDED","object":' + one + "}").encode())
    json.loads(one)  # kopf's way
    if changed.object == listed.objects[0]:
        print(listed.objects[0].metadata.name)

read()
thread = threading.Thread(target=read)
thread.start()
thread.join()
"""


@pytest.mark.parametrize(("argument", "said"), [("deep", "g\ng\n"), ("", "")])
def test_what_an_api_server_takes_can_be_read_in_every_thread(argument: str, said: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, argument], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stdout == said
    assert ("RecursionError" in ran.stderr) == (not said)
