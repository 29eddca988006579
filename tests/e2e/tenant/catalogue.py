"""The whole list of attacks, and its table in docs/security.md.

    python -m tests.e2e.tenant.catalogue

writes the table anew.
"""

from __future__ import annotations

from pathlib import Path

from tests.e2e.tenant import callers, floods, neighbours, objects, placement, templates
from tests.e2e.tenant.attack import Attack, table

ATTACKS: tuple[Attack, ...] = tuple(
    attack for module in (templates, objects, neighbours, callers, placement, floods) for attack in module.AREA.attacks
)
PAGE = Path(__file__).resolve().parents[3] / "docs" / "security.md"
BEGIN, END = "<!-- attacks -->\n", "<!-- end -->"


def written(text: str) -> str:
    """The page with the table as it must be."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(ATTACKS)}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
