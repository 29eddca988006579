"""The list of mutants: each still stands for one place in the code, and the report says what became of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.mutation.__main__ import SOURCES, head, known, main, noted, page
from tests.mutation.catalogue import ALL, stages_of
from tests.mutation.mutant import ROOT, Mutant
from tests.mutation.runner import Result, _made
from tests.sources import StaleError


def test_every_mutant_changes_one_place_of_its_file() -> None:
    texts = {file: (ROOT / file).read_text() for file in {mutant.file for mutant in ALL}}
    for mutant in ALL:
        changed = mutant.applied(texts[mutant.file])
        assert changed != texts[mutant.file], mutant.id
        assert all((ROOT / path).exists() for stage in stages_of(mutant) for path in stage), mutant.id


def test_there_are_enough_of_them_in_engine_and_ledger_and_each_has_a_name_and_a_harm() -> None:
    ids = Counter(mutant.id for mutant in ALL)
    assert max(ids.values()) == 1
    assert sum(mutant.file.startswith("kbatch/engine/") for mutant in ALL) >= 60
    assert sum(mutant.file.startswith("webhooks/") for mutant in ALL) >= 15
    assert all(mutant.harm for mutant in ALL)


def test_a_fragment_that_is_gone_or_not_the_only_one_is_an_error() -> None:
    with pytest.raises(ValueError, match="0 times"):
        Mutant("a", "b.py", "x", "y", "").applied("z")
    with pytest.raises(ValueError, match="2 times"):
        Mutant("a", "b.py", "x", "y", "").applied("x x")


def test_the_file_is_afterwards_what_it_was(tmp_path: Path) -> None:
    file = tmp_path / "b.py"
    file.write_text("x = 1\n")
    before = file.stat().st_mtime_ns
    with _made(tmp_path, Mutant("a", "b.py", "1", "2", "")):
        assert file.read_text() == "x = 2\n"
        assert file.stat().st_mtime_ns != before
    assert file.read_text() == "x = 1\n"
    assert file.stat().st_mtime_ns == before


def test_what_was_noticed_is_not_tried_again_unless_the_mutant_is_another(tmp_path: Path) -> None:
    file = tmp_path / "results"
    assert known(file, "code") == {}
    results = [Result(ALL[0], "tests/a.py::test", 1.0), Result(ALL[1], "", 2.0)]
    assert list(noted(results, file)) == results
    assert known(file, "code") == {ALL[0].id: results[0]}
    file.write_text(file.read_text().replace(ALL[0].fragment, "another"))
    assert known(file, "code") == {}


def test_what_was_noticed_with_other_code_or_tests_is_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "results"
    known(file, "code")
    list(noted([Result(ALL[0], "tests/a.py::test", 1.0)], file))
    with pytest.raises(StaleError, match="delete it"):
        known(file, "other code")


def test_an_old_file_of_results_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "results"
    file.write_text('{"id": "lift-any-queue"}\n')
    assert main(["--only", ALL[0].id, "--resume", str(file)]) == 2
    assert "delete it to begin anew" in capsys.readouterr().err


def test_results_depend_on_code_and_tests() -> None:
    stages = {path.partition("::")[0] for mutant in ALL for stage in stages_of(mutant) for path in stage}
    for path in (*stages, *(mutant.file for mutant in ALL)):
        assert any(path == source or path.startswith(f"{source}/") for source in SOURCES), path
    assert all((ROOT / source).exists() for source in SOURCES)
    assert head() == head()


def test_the_page_names_the_survivors_and_who_noticed_the_others() -> None:
    text = page([Result(ALL[0], "tests/unit/a.py::test_it[1-2]", 1.0), Result(ALL[1], "", 2.0)])
    assert f"| {ALL[1].id} | `{ALL[1].file}` | {ALL[1].harm} | **not known** |" in text
    assert "| unit/a.py test_it | 1 |" in text


def test_a_name_that_no_mutant_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "nothing-of-the-kind"])
    assert "invalid choice" in capsys.readouterr().err
