"""Logs on disk: bounded, whole, readable while they are written."""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kbatch.api.objects import AnyObject
from kbatch.cli.main import app
from kbatch.decisions.files import LogFolder, logs_at, logs_in, read_lines
from kbatch.decisions.recording import Recorder
from kbatch.decisions.records import Cycle, End, LogError, PolicyText, decode_line
from kbatch.decisions.replay import replay
from kbatch.model.events import Upsert
from tests.unit.decisions.hearing import TEXT, Hearing
from tests.unit.scheduler.fakes import group, node, pod, queue


def until(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, condition
        pause.wait(0.005)


def hearing(sink: LogFolder, nodes: int = 2) -> Hearing:
    heard = Hearing()
    heard.decide = Recorder(heard.model, lambda: PolicyText(TEXT, "test"), sink).deciding(_cycle())
    things: list[AnyObject] = [queue(), group("g", minimum=2), pod("a"), pod("b")]
    things += [node(f"n{number}") for number in range(nodes)]
    for obj in things:
        heard.model.apply(Upsert(obj))
    return heard


def recorded(folder: Path, cycles: int = 1) -> Path:
    """A log of so many cycles, the only one in its folder."""
    sink = LogFolder(folder, max_bytes=1 << 20)
    heard = hearing(sink)
    for _ in range(cycles):
        heard.cycle()
    sink.close()
    (path,) = logs_in(folder)
    return path


def _cycle() -> Any:
    from kbatch.engine import cycle

    return cycle


def written(sink: LogFolder) -> None:
    until(lambda: not sink._waiting)


def test_a_log_is_readable_while_it_is_written_and_says_why_it_ends(tmp_path: Path) -> None:
    sink = LogFolder(tmp_path / "new", max_bytes=1 << 20)
    heard = hearing(sink)
    heard.cycle()
    written(sink)
    (path,) = logs_in(tmp_path / "new")
    assert [type(decode_line(line)) for line in read_lines(path)][-1] is Cycle
    heard.cycle()
    sink.close()
    lines = [decode_line(line) for line in read_lines(path)]
    assert lines[-1] == End("stopped")
    assert gzip.decompress(path.read_bytes()).count(b"\n") == len(lines)
    assert [result.difference for result in replay(read_lines(path))] == [None, None]


def test_a_log_cut_off_anywhere_is_good_up_to_there(tmp_path: Path) -> None:
    sink = LogFolder(tmp_path, max_bytes=1 << 20)
    heard = hearing(sink)
    for _ in range(3):
        heard.cycle()
        written(sink)
    sink.close()
    (path,) = logs_in(tmp_path)
    data = path.read_bytes()
    cut = tmp_path / "cut"
    counts = set()
    for length in range(len(data) // 2, len(data), 29):
        cut.write_bytes(data[:length])
        try:
            results = list(replay(read_lines(cut)))
        except LogError:
            continue  # not even the beginning is whole
        assert all(result.difference is None for result in results)
        counts.add(len(results))
    assert counts >= {1, 2, 3}


def test_full_logs_end_and_the_oldest_go(tmp_path: Path) -> None:
    now = 0.0
    sink = LogFolder(tmp_path, max_bytes=5_000, max_files=3, rest_seconds=1, clock=lambda: now)
    heard = hearing(sink, nodes=20)
    for number in range(150):
        now += 0.5
        heard.model.apply(Upsert(node(f"m{number * 7919 % 97}", cpu=str(number))))
        heard.cycle()
        written(sink)
    sink.close()
    assert sink.ended["full"] > 3
    files = logs_in(tmp_path)
    assert 1 < len(files) <= 3
    assert sum(path.stat().st_size for path in files) <= 5_000 * 1.1
    for path in files:
        results = list(replay(read_lines(path)))
        assert results
        assert all(result.difference is None for result in results)


def test_a_writer_that_cannot_keep_up_ends_the_log(tmp_path: Path) -> None:
    now = 0.0
    sink = LogFolder(tmp_path, max_bytes=1 << 20, most_waiting=3, clock=lambda: now)
    heard = hearing(sink)
    heard.cycle()
    written(sink)
    gate = threading.Event()
    handle = sink._handle

    def slow(item: Any, *, flush: bool) -> None:
        gate.wait(10)
        handle(item, flush=flush)

    sink._handle = slow  # type: ignore[method-assign]
    for _ in range(6):
        heard.cycle()
    assert heard.model.journal is None
    gate.set()
    written(sink)
    assert sink.ended["more is decided than can be written"] == 1
    heard.cycle()
    assert len(logs_in(tmp_path)) == 1, "not before the rest is over"
    now = 11.0
    heard.cycle()
    sink.close()
    first, second = logs_in(tmp_path)
    for path in (first, second):
        assert all(result.difference is None for result in replay(read_lines(path)))


def test_a_beginning_too_large_for_its_bytes_is_given_up(tmp_path: Path) -> None:
    sink = LogFolder(tmp_path, max_bytes=500)
    heard = hearing(sink, nodes=200)
    heard.cycle()
    written(sink)
    assert sink.ended["too large"] == 1
    assert logs_in(tmp_path) == []
    assert not sink.ready()


def test_a_disk_that_refuses_harms_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    sink = LogFolder(tmp_path / "file", max_bytes=1 << 20)
    heard = hearing(sink)
    assert heard.cycle()
    written(sink)
    assert sink.ended["could not be written"] == 1
    assert heard.cycle() is not None
    sink.close()


def test_the_command_replays_a_folder_and_finds_a_difference(tmp_path: Path) -> None:
    path = recorded(tmp_path, cycles=2)
    runner = CliRunner()
    result = runner.invoke(app, ["replay", str(tmp_path), "-o", "json"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.output)
    assert (said["equal"], said["cycles"], said["differences"]) == (True, 2, 0)

    lines = list(read_lines(path))
    tampered = tmp_path / "tampered.gz"
    tampered.write_bytes(
        gzip.compress(b"".join(line.replace(b'"node":"n0"', b'"node":"n7"') + b"\n" for line in lines))
    )
    result = runner.invoke(app, ["replay", str(tampered)])
    assert result.exit_code == 1
    assert "1 decided otherwise" in result.output
    assert "cycle 1 at" in result.output
    assert '"n7"' in result.output
    result = runner.invoke(app, ["replay", str(tampered), "-o", "json"])
    assert result.exit_code == 1
    (difference,) = json.loads(result.output)["files"][0]["differences"]
    assert difference["cycle"] == 1


@pytest.mark.parametrize("content", [None, b"plain text", gzip.compress(b'{"record":"end","why":"x"}\n', mtime=0)])
def test_the_command_says_what_is_no_log(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "x"
    if content is not None:
        path.write_bytes(content)
    result = CliRunner().invoke(app, ["replay", str(path)])
    assert result.exit_code == 2
    assert str(path) in result.output


@pytest.mark.parametrize(
    "content", [b"", gzip.compress(b"", mtime=0), "first line", "middle of the objects", "half a line"]
)
def test_the_command_says_of_a_log_that_it_was_cut_off_in_its_beginning(tmp_path: Path, content: bytes | str) -> None:
    lines = [line + b"\n" for line in read_lines(recorded(tmp_path / "logs"))]
    if isinstance(content, str):
        ends = {"first line": lines[:1], "middle of the objects": lines[:3], "half a line": [*lines[:2], lines[2][:9]]}
        content = gzip.compress(b"".join(ends[content]))
    cut = tmp_path / "cut"
    cut.write_bytes(content)
    result = CliRunner().invoke(app, ["replay", str(cut)])
    assert result.exit_code == 2
    assert "ends before its beginning is whole" in result.output


def test_a_log_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    """A disk that was full, or a process killed while a log began, leaves one behind in the folder."""
    good = recorded(tmp_path)
    cut = tmp_path / "decisions-20200101T000000.000000-000001.jsonl.gz"
    cut.write_bytes(good.read_bytes()[:20])
    text = CliRunner().invoke(app, ["replay", str(tmp_path)])
    assert text.exit_code == 2
    assert f"{good}: 1 cycles" in text.stdout
    assert str(cut) in text.stderr
    result = CliRunner().invoke(app, ["replay", str(tmp_path), "-o", "json"])
    assert result.exit_code == 2
    said = json.loads(result.stdout)
    assert (said["equal"], said["cycles"], said["unreadable"]) == (False, 1, 1)
    first, second = said["files"]
    assert "beginning" in first["error"]
    assert (second["file"], second["cycles"], "error" in second) == (str(good), 1, False)


def test_what_was_decided_again_before_the_damage_is_told(tmp_path: Path) -> None:
    path = recorded(tmp_path, cycles=2)
    lines = [*read_lines(path)]
    lines[-2] = b"{}"
    path.write_bytes(gzip.compress(b"\n".join(lines) + b"\n"))
    result = CliRunner().invoke(app, ["replay", str(path)])
    assert result.exit_code == 2
    assert "1 cycles" in result.stdout
    assert "no record of a decision log" in result.stderr
    path.write_bytes(gzip.compress(b"\n".join(lines[:-2]).replace(b'"node":"n0"', b'"node":"n7"') + b"\n{}\n"))
    both = CliRunner().invoke(app, ["replay", str(path)])
    assert both.exit_code == 1, "that something differs is what one asks a replay for"


@pytest.mark.parametrize("now", [10**30, -(10**17), 10**18])
def test_a_time_that_is_none_is_shown_as_it_stands(tmp_path: Path, now: int) -> None:
    sink = LogFolder(tmp_path, max_bytes=1 << 20)
    hearing(sink).cycle()
    sink.close()
    (path,) = logs_in(tmp_path)
    text = b"".join(line + b"\n" for line in read_lines(path)).replace(b'"node":"n0"', b'"node":"n7"')
    path.write_bytes(gzip.compress(re.sub(rb'"now":\d+', b'"now":%d' % now, text)))
    result = CliRunner().invoke(app, ["replay", str(path), "-o", "json"])
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert json.loads(result.stdout)["files"][0]["differences"][0]["time"] == f"{now} µs"


def test_an_empty_folder_holds_no_logs(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no decision logs"):
        logs_at(tmp_path)
