"""Walks through the states of small worlds, as the engine decides in them, and of ledgers with three webhook replicas.

    python -m tests.explore [--states N] [--seed S] [--workers W] [--resume FILE] [--replay PATH]

Ends with 1 where something does not hold, with the shortest path of moves that leads there; `--replay` tells that path
step by step. With `--resume` the run keeps what it has come to in that file (and what is begun beside it), and goes on
from there when it is started again. The file says with which seed and sources it was begun: with others it ends with 2.
See docs/exploration.md.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import signal
import sys
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.explore import ledger
from tests.explore.replay import replay
from tests.explore.search import Search, Violation
from tests.explore.world import MORE, draw
from tests.sources import StaleError, digest, used_by

SAVED_SECONDS: Final = 30.0
"""How much work is lost at most where a run is killed."""
_LEDGER_EVERY: Final = 8
"""One of so many searches is of a ledger."""
_TOLD_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Unit:
    """One search: of the engine in a world, or of a ledger.

    Attributes:
        part: where what is begun is kept, but for the unit's name; empty: nowhere.
        head: see `head_of`.
        more: what is added to the world, see `tests.explore.world`.
    """

    kind: str
    seed: int
    number: int
    cap: int
    part: str
    strict: bool
    head: str = ""
    more: str = ""

    @property
    def name(self) -> str:
        """For the file of what is done."""
        return f"{self.kind} {self.seed}.{self.number}{self.more}"


@dataclass(frozen=True, slots=True)
class Done:
    """What a search came to; `finished` is false where it was broken off and kept."""

    name: str
    states: int
    deepest: int
    seconds: float
    finished: bool
    violations: tuple[Violation, ...]
    untold: int


def head_of(seed: int, *, strict: bool) -> str:
    """The first line of a file of what is done: for what it was looked, and a digest of the sources that matter."""
    sources = digest("kbatch", "webhooks", *used_by("tests/explore"))
    return json.dumps({"seed": seed, "strict": strict, "sources": sources})


def units(seed: int, cap: int, part: str, head: str = "", *, strict: bool) -> Iterator[Unit]:
    """All searches, without end. Every second world is one to which something is added."""
    number = 0
    while True:
        ledgers, rest = divmod(number, _LEDGER_EVERY)
        if rest == _LEDGER_EVERY - 1:
            yield Unit("ledger", seed, ledgers, cap, part, strict, head)
        else:
            world = number - ledgers
            more = MORE[world // 2 % len(MORE)] if world % 2 else ""
            yield Unit("engine", seed, world, cap, part, strict, head, more)
        number += 1


def work(unit: Unit) -> Done:
    """Do one search, or go on with it, in a process of its own."""
    begin = time.monotonic()
    part = Path(f"{unit.part}.{unit.kind}-{unit.number}{unit.more}") if unit.part else None
    search: Search | ledger.Search
    begun = _begun(part, unit.head) if part is not None else None
    if begun is not None:
        search = begun
    elif unit.kind == "ledger":
        search = ledger.Search(unit.seed, unit.number, unit.cap)
    else:
        search = Search(draw(unit.seed, unit.number, unit.more), unit.cap, unit.strict)
    saved = begin
    for _ in search.run():
        if part is not None and (_stopping or time.monotonic() - saved > SAVED_SECONDS):
            _save(search, part, unit.head)
            saved = time.monotonic()
        if _stopping:
            break
    finished = not _stopping
    if finished and part is not None:
        part.unlink(missing_ok=True)
    found = search.found
    seconds = time.monotonic() - begin
    return Done(unit.name, found.states, found.deepest, seconds, finished, tuple(found.violations), found.untold)


_stopping: list[int] = []
"""In a worker: the signals that it got. What it does is left off between two states."""


def _work_until_told() -> None:
    """Begin as a worker."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _: _stopping.append(got))


def _break_off(*_: object) -> None:
    raise KeyboardInterrupt


def _save(search: Any, part: Path, head: str) -> None:
    fresh = part.with_name(f"{part.name}.new")
    fresh.write_bytes(f"{head}\n".encode() + zlib.compress(pickle.dumps(search, protocol=5), 1))
    fresh.replace(part)


def _begun(part: Path, head: str) -> Any:
    """The search that was kept; None where there is none, or it was begun with other sources."""
    told, _, kept = part.read_bytes().partition(b"\n") if part.exists() else (b"", b"", b"")
    return pickle.loads(zlib.decompress(kept)) if kept and told == head.encode() else None  # noqa: S301 - our own file


class Record:
    """What was finished, one line of JSON for each search below `head`; kept in a file if there is one.

    Raises:
        StaleError: the file was begun with another head.
    """

    def __init__(self, file: Path | None, head: str = "") -> None:
        self.file = file
        self.done: dict[str, Done] = {}
        lines = file.read_text("utf-8").splitlines() if file is not None and file.exists() else []
        if file is not None and not lines:
            file.write_text(f"{head}\n", "utf-8")
        elif file is not None:
            if lines[0] != head:
                raise StaleError(
                    f"{file} was begun with other sources, another seed or other options, and says nothing of these: "
                    f"delete it (rm {file}*) to begin anew\n  there: {lines[0][:200]}\n  now:   {head}"
                )
            for line in lines[1:]:
                told = json.loads(line)
                told["violations"] = tuple(
                    Violation(one["world"], tuple(one["path"]), one["what"]) for one in told["violations"]
                )
                self.done[told["name"]] = Done(**told)

    def add(self, done: Done) -> None:
        """One more."""
        self.done[done.name] = done
        if self.file is not None:
            with self.file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(asdict(done)) + "\n")

    def states(self, kind: str = "") -> int:
        """How many states were looked at."""
        return sum(one.states for one in self.done.values() if one.name.startswith(kind))


def explore(states: int, seed: int, cap: int, workers: int, record: Record, head: str, *, strict: bool) -> Record:
    """Search until so many states were looked at, those of earlier runs with the same file included."""
    file = record.file
    begin, before, spoken = time.monotonic(), record.states(), time.monotonic()
    pending: dict[Future[Done], Unit] = {}
    source = (unit for unit in units(seed, cap, str(file or ""), head, strict=strict) if unit.name not in record.done)
    signal.signal(signal.SIGTERM, _break_off)
    with ProcessPoolExecutor(workers, initializer=_work_until_told) as pool:
        try:
            while True:
                while len(pending) < workers and record.states() + cap * len(pending) < states:
                    unit = next(source)
                    pending[pool.submit(work, unit)] = unit
                if not pending:
                    break
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    del pending[future]
                    done = future.result()
                    record.add(done)
                    for one in done.violations:
                        print(f"{done.name}: {one.what}\n    --replay {one.replay}", flush=True)
                if time.monotonic() - spoken > _TOLD_SECONDS:
                    spoken = time.monotonic()
                    rate = (record.states() - before) / (spoken - begin)
                    print(f"{record.states():,} states, {rate:.0f}/s", flush=True)
        except KeyboardInterrupt:
            print("broken off; what was begun is kept" if file else "broken off", flush=True)
            for process in pool._processes.values():
                if process.pid is not None:
                    os.kill(process.pid, signal.SIGTERM)
    return record


def summary(record: Record, seed: int, seconds: float, new: int) -> str:
    """The one line in which a run ends."""
    worlds = sum(one.name.startswith("engine") for one in record.done.values())
    ledgers = len(record.done) - worlds
    violations = sum(len(one.violations) + one.untold for one in record.done.values())
    deepest = max((one.deepest for one in record.done.values()), default=0)
    return (
        f"explored {record.states('engine'):,} states of the engine in {worlds} worlds and {record.states('ledger'):,} "
        f"of the ledger in {ledgers}, up to {deepest} disturbances deep (seed {seed}): {seconds:.0f} s, "
        f"{new / max(seconds, 0.001):.0f} states/s, {violations} violations"
    )


def shortest(record: Record) -> list[Violation]:
    """Of each kind of violation the one with the fewest moves."""
    best: dict[str, Violation] = {}
    for done in record.done.values():
        for one in done.violations:
            if one.kind not in best or len(one.path) < len(best[one.kind].path):
                best[one.kind] = one
    return list(best.values())


def told(path: str, *, strict: bool) -> Iterator[str]:
    """A path, step by step."""
    return ledger.replay(path) if path.startswith(ledger.PREFIX) else replay(path, strict=strict)


def main() -> int:
    """Explore, or replay; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.explore", description=__doc__.partition("\n")[0])
    parser.add_argument("--states", type=int, default=1_000_000, help="how many states are looked at, more or less")
    parser.add_argument("--cap", type=int, default=5_000, help="how many of one world")
    parser.add_argument("--seed", type=int, default=0, help="which worlds are drawn")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keep what is done in it, and go on from there")
    parser.add_argument("--strict", action="store_true", help="count what follows from the order of actions too")
    parser.add_argument("--replay", metavar="PATH", help="tell a path of moves, as a violation names it")
    options = parser.parse_args()
    if options.replay:
        for line in told(options.replay, strict=options.strict):
            print(line)
        return 0
    begin = time.monotonic()
    head = head_of(options.seed, strict=options.strict)
    try:
        record = Record(options.resume, head)
    except StaleError as error:
        print(error, file=sys.stderr)
        return 2
    before = record.states()
    explore(options.states, options.seed, options.cap, options.workers, record, head, strict=options.strict)
    found = shortest(record)
    for one in found:
        print(f"\nviolation: {one.what}\n  python -m tests.explore --replay {one.replay}\nwhich is:")
        for line in told(one.replay, strict=options.strict):
            print(f"  {line}")
    print(summary(record, options.seed, time.monotonic() - begin, record.states() - before), flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
