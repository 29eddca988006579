"""Fragments of changes become a section of the changelog."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from tools.changelog import ROOT, fragments, notes, release

DAY = dt.date(2026, 11, 22)


def checkout(root: Path, **texts: str) -> Path:
    (root / "changes").mkdir()
    (root / "changes" / "README.md").write_text("How.\n")
    (root / "CHANGELOG.md").write_text("# Changes\n\nIntroduction.\n")
    for name, text in texts.items():
        (root / "changes" / f"{name.replace('_', '.')}.md").write_text(text)
    return root


def test_what_is_to_be_released_can_be() -> None:
    assert fragments(ROOT / "changes")


def test_a_release_takes_the_fragments_and_its_notes_are_its_section(tmp_path: Path) -> None:
    root = checkout(tmp_path, b_fixed="Mended\nthat.\n", a_fixed="Mended this.", c_security="Closed.")
    release(root, "0.2.0", DAY)
    assert (root / "CHANGELOG.md").read_text() == (
        "# Changes\n\nIntroduction.\n\n## 0.2.0 (2026-11-22)\n\n"
        "### Security\n\n* Closed.\n\n### Fixed\n\n* Mended this.\n* Mended that.\n"
    )
    assert [path.name for path in (root / "changes").iterdir()] == ["README.md"]
    (root / "changes" / "d.added.md").write_text("New.")
    release(root, "0.3.0", DAY)
    text = (root / "CHANGELOG.md").read_text()
    assert text.index("## 0.3.0") < text.index("## 0.2.0")
    assert notes(text, "0.3.0") == "### Added\n\n* New.\n"
    assert notes(text, "0.2.0").startswith("### Security")
    with pytest.raises(ValueError, match=r"says nothing of 0\.4\.0"):
        notes(text, "0.4.0")


def test_what_is_no_fragment_is_refused(tmp_path: Path) -> None:
    root = checkout(tmp_path, a_mended="x")
    with pytest.raises(ValueError, match=r"changes/a\.mended\.md is no fragment"):
        release(root, "0.2.0", DAY)
    (root / "changes" / "a.mended.md").unlink()
    with pytest.raises(ValueError, match="no fragment in changes"):
        release(root, "0.2.0", DAY)
    (root / "changes" / "a.fixed.md").write_text(" \n")
    with pytest.raises(ValueError, match="with a text"):
        release(root, "0.2.0", DAY)
