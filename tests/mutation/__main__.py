"""Do the tests notice errors? `python -m tests.mutation [--only ID]... [--workers 2] [--resume FILE]`.

Each mutant of the catalogue is one error that somebody could make in the engine or in the quota ledger. Ends with 1
where the tests notice less than 95 % of them. A run of all writes docs/benchmarks/mutants.md. The file of `--resume`
says with which code and tests it was begun: with others it is refused, for what they notice may be something else.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.mutation.catalogue import ALL
from tests.mutation.mutant import ROOT
from tests.mutation.runner import BrokenError, Result, Runner
from tests.sources import StaleError, digest

LEAST: Final = 0.95
"""The part of the mutants that the tests must notice."""
SOURCES: Final = (
    "kbatch", "webhooks", "operators", "crds", "charts", "examples", "pyproject.toml", "uv.lock",
    "tests/unit", "tests/property", "tests/cases", "tests/data", "tests/reference", "tests/explore", "tests/bench",
    "tests/conftest.py", "tests/examples.py", "tests/varied.py", "tests/mutation/serving.py",
)  # fmt: skip
"""What decides whether a mutant is noticed."""
PAGE: Final = ROOT / "docs" / "benchmarks" / "mutants.md"


def page(results: Sequence[Result]) -> str:
    """The report as a page of the documentation."""
    killed = [each for each in results if each.killed_by]
    survived = [each for each in results if not each.killed_by]
    lines = [
        "# Do the tests notice errors?",
        "",
        f"By `make mutants`: {len(results)} errors made on purpose in the engine and the quota ledger, one at a time.",
        f"The tests notice {len(killed)} of them ({100 * len(killed) / len(results):.1f} %); {100 * LEAST:.0f} %",
        "are asked for. `tests/mutation` lists them; CONTRIBUTING.md says more.",
        "",
        "## What survives",
        "",
    ]
    if survived:
        lines += ["| mutant | where | what goes wrong | why no test notices it |", "|---|---|---|---|"]
        for each in survived:
            one = each.mutant
            lines.append(f"| {one.id} | `{one.file}` | {one.harm} | {one.survives or '**not known**'} |")
    else:
        lines.append("None.")
    lines += ["", "## What is noticed", "", "| mutant | where | what goes wrong | noticed by | s |"]
    lines.append("|---|---|---|---|--:|")
    for each in killed:
        one, test = each.mutant, each.killed_by.removeprefix("tests/").partition("[")[0]
        lines.append(f"| {one.id} | `{one.file}` | {one.harm} | {test.replace('::', ' ')} | {seconds(each)} |")
    return "\n".join(lines) + "\n"


def seconds(result: Result) -> str:
    """How long it took; nothing where that was not measured."""
    return f"{result.seconds:.0f}" if result.seconds else ""


def told(results: Iterable[Result], total: int) -> list[Result]:
    """The results, each told as it is found."""
    found: list[Result] = []
    for each in results:
        found.append(each)
        word = f"killed by {each.killed_by}" if each.killed_by else "SURVIVED " + each.mutant.survives
        print(f"{len(found)}/{total} {each.mutant.id}: {word.strip()} ({each.seconds:.1f} s)", flush=True)
    return found


def head() -> str:
    """The first line of a file of results: a digest of what they depend on."""
    return json.dumps({"sources": digest(*SOURCES)})


def known(file: Path | None, first: str) -> dict[str, Result]:
    """By id the mutants that an earlier run has seen noticed, as they are now; begins the file where there is none.

    Raises:
        StaleError: its first line is another.
    """
    found: dict[str, Result] = {}
    mutants = {mutant.id: mutant for mutant in ALL}
    lines = file.read_text().splitlines() if file is not None and file.exists() else []
    if file is not None and not lines:
        file.write_text(f"{first}\n")
    elif lines and lines[0] != first:
        raise StaleError(f"{file} was begun with other code or tests: delete it to begin anew")
    for line in lines[1:]:
        one = json.loads(line)
        mutant = mutants.get(one["id"])
        if mutant is not None and (one["fragment"], one["replacement"]) == (mutant.fragment, mutant.replacement):
            found[mutant.id] = Result(mutant, one["killed_by"], one["seconds"])
    return found


def noted(results: Iterable[Result], file: Path | None) -> Iterator[Result]:
    """The results, each that was noticed written down for `known`."""
    for each in results:
        if file is not None and each.killed_by:
            one = each.mutant
            with file.open("a") as out:
                fields = {"id": one.id, "fragment": one.fragment, "replacement": one.replacement}
                out.write(json.dumps({**fields, "killed_by": each.killed_by, "seconds": each.seconds}) + "\n")
        yield each


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 where too few are noticed, 2 where nothing can be said."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--only", action="append", metavar="ID", choices=[mutant.id for mutant in ALL])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--stages", type=int, metavar="N", help="run only the N narrowest stages of tests")
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="where results are kept: what was noticed is not tried again"
    )
    chosen = parser.parse_args(arguments)
    mutants = [mutant for mutant in ALL if not chosen.only or mutant.id in chosen.only]
    try:
        before = known(chosen.resume, head() if chosen.resume else "")
    except StaleError as error:
        print(error, file=sys.stderr)
        return 2
    mutants_left = [mutant for mutant in mutants if mutant.id not in before]
    begin = time.monotonic()
    try:
        found = told(noted(Runner(chosen.workers, chosen.stages).run(mutants_left), chosen.resume), len(mutants_left))
    except BrokenError as error:
        print(error, file=sys.stderr)
        return 2
    by_id = {**before, **{each.mutant.id: each for each in found}}
    results = [by_id[mutant.id] for mutant in mutants]
    killed = sum(1 for each in results if each.killed_by)
    print(f"{killed} of {len(results)} noticed, {time.monotonic() - begin:.0f} s")
    for each in results:
        if not each.killed_by:
            print(f"survived: {each.mutant.id} ({each.mutant.file}): {each.mutant.harm}")
    if not (chosen.only or chosen.stages):
        PAGE.write_text(page(results))
    return 0 if killed >= LEAST * len(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
