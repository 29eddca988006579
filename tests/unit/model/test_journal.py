"""Which changes are kept for readers that come back."""

from __future__ import annotations

from kbatch.model.journal import Journal


def test_the_last_changes_are_kept() -> None:
    journal: Journal[str] = Journal(4)
    for key in "abcd":
        journal.note(key)
    assert journal.since(0) == ["a", "b", "c", "d"]
    journal.note("e")
    assert journal.since(0) is None
    assert journal.since(3) == ["d", "e"]
    assert journal.since(journal.position) == []


def test_as_many_changes_are_kept_as_there_are_groups() -> None:
    groups = {f"g{number}": None for number in range(10)}
    journal: Journal[str] = Journal(4, groups)
    for key in groups:
        journal.note(key)
    assert journal.since(0) == list(groups)
    journal.note("more")
    assert journal.since(0) is None
    assert journal.since(6) == ["g6", "g7", "g8", "g9", "more"]
    groups.clear()
    journal.note("last")
    assert journal.since(10) == ["more", "last"]
    assert journal.since(6) is None


def test_who_reads_after_each_change_misses_none() -> None:
    journal: Journal[str] = Journal(4)
    seen = 0
    for number in range(50):
        journal.note(str(number))
        assert journal.since(seen) == [str(number)]
        seen = journal.position
