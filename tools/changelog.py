"""What changed from release to release: fragments in changes/, a section of CHANGELOG.md at each release.

    python -m tools.changelog VERSION         make the section of a version of the fragments, and remove them
    python -m tools.changelog --notes VERSION print the section of a version

A fragment is a file `changes/NAME.KIND.md` with a sentence or two for users; two branches never write the same one.
Only the standard library: a release runs it with whatever Python its runner has.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = {
    "security": "Security", "removed": "Removed", "changed": "Changed", "added": "Added", "fixed": "Fixed",
}  # fmt: skip
"""By the word in the file's name; in the order of the sections, what may need a hand first."""
_FRAGMENT = re.compile(rf"[a-z0-9-]+\.({'|'.join(KINDS)})\.md")


def fragments(folder: Path) -> dict[str, list[str]]:
    """The fragments' texts by kind, by name within; ValueError where a file is none or is empty."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*")):
        if path.name == "README.md":
            continue
        match = _FRAGMENT.fullmatch(path.name)
        text = " ".join(path.read_text(encoding="utf-8").split())
        if match is None or not text:
            raise ValueError(
                f"changes/{path.name} is no fragment: NAME.KIND.md with a text, KIND one of {', '.join(KINDS)}"
            )
        found.setdefault(match[1], []).append(text)
    return found


def section(version: str, day: dt.date, found: dict[str, list[str]]) -> str:
    """The section of a version."""
    lines = [f"## {version} ({day.isoformat()})", ""]
    for kind, heading in KINDS.items():
        if kind in found:
            lines += [f"### {heading}", "", *(f"* {text}" for text in found[kind]), ""]
    return "\n".join(lines)


def notes(changelog: str, version: str) -> str:
    """The section of a version without its heading; ValueError where there is none."""
    for part in re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        if heading.split(" ")[0] == version and body.strip():
            return body.strip() + "\n"
    raise ValueError(f"CHANGELOG.md says nothing of {version}: python -m tools.changelog {version}")


def release(root: Path, version: str, day: dt.date) -> None:
    """Put the fragments into CHANGELOG.md, the newest version first, and remove them."""
    path = root / "CHANGELOG.md"
    text = path.read_text(encoding="utf-8")
    found = fragments(root / "changes")
    if not found:
        raise ValueError("there is no fragment in changes/")
    if f"\n## {version} (" in text:
        raise ValueError(f"CHANGELOG.md has a section of {version} already")
    head, mark, rest = text.partition("\n## ")
    path.write_text(f"{head.rstrip()}\n\n{section(version, day, found)}{mark}{rest}".rstrip() + "\n", encoding="utf-8")
    for fragment in (root / "changes").glob("*.md"):
        if fragment.name != "README.md":
            fragment.unlink()


def main(arguments: list[str]) -> int:
    """Do what the command line says."""
    try:
        match arguments:
            case ["--notes", version]:
                print(notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version), end="")
            case [version] if re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", version):
                release(ROOT, version, dt.datetime.now(dt.UTC).date())
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
