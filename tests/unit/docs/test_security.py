"""The attacks on docs/security.md are those that the test tenant tries, and say what it looks for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.e2e.tenant.attack import Area, Harmless, Refused, table
from tests.e2e.tenant.catalogue import ATTACKS, PAGE, written

FEWEST = 40


def test_the_page_has_the_attacks_that_are_tried() -> None:
    text = PAGE.read_text("utf-8")
    assert written(text) == text, "python -m tests.e2e.tenant.catalogue writes it anew"


def test_the_list_is_as_long_as_it_has_to_be_and_names_nothing_twice() -> None:
    assert len(ATTACKS) >= FEWEST
    assert [name for name, times in Counter(attack.name for attack in ATTACKS).items() if times > 1] == []
    assert [tries for tries, times in Counter(attack.tries for attack in ATTACKS).items() if times > 1] == []


def test_a_refusal_says_a_status_and_words_and_all_else_why_it_does_no_harm() -> None:
    for attack in ATTACKS:
        if isinstance(attack.outcome, Refused):
            assert 400 <= attack.outcome.status <= 500, attack.name
            assert attack.outcome.says, attack.name
        else:
            assert attack.outcome.because, attack.name


def test_a_table_is_drawn_under_each_heading() -> None:
    area = Area("Names")
    area.refused(403, "a | b", "one")(lambda _: None)
    area.harmless("nobody cares", "two")(lambda _: None)
    (first, second) = area.attacks
    assert isinstance(second.outcome, Harmless)
    assert table(area.attacks).splitlines() == [
        "### Names",
        "",
        "| attack | what is tried | what comes of it |",
        "|---|---|---|",
        rf"| `{first.name}` | one | refused (403): a \| b |",
        f"| `{second.name}` | two | harmless: nobody cares |",
    ]


def test_whoever_finds_a_hole_is_told_where_to_say_so() -> None:
    text = (Path(PAGE).parents[1] / "SECURITY.md").read_text("utf-8")
    assert "docs/security.md" in text
