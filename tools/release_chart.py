"""Makes the chart of a checkout that of a release: `python -m tools.release_chart IMAGE sha256:DIGEST URL`.

The values name the image by its digest, Chart.yaml says where the project is. Only the standard library: a release runs
it with whatever Python its runner has.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHART = Path(__file__).resolve().parent.parent / "charts" / "kbatch"


def replaced(text: str, before: str, after: str) -> str:
    """The text with the one place changed; ValueError where there is not just one."""
    if text.count(before) != 1:
        raise ValueError(f"{before!r} stands {text.count(before)} times where it should stand once")
    return text.replace(before, after)


def prepare(chart: Path, image: str, digest: str, url: str) -> None:
    """Change values.yaml and Chart.yaml of a chart; ValueError where they are not those of a checkout."""
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise ValueError(f"{digest!r} is no digest")
    values = (chart / "values.yaml").read_text(encoding="utf-8")
    values = replaced(values, "\n  repository: kbatch-operators\n", f"\n  repository: {image}\n")
    values = replaced(values, '\n  digest: ""\n', f"\n  digest: {digest}\n")
    described = (chart / "Chart.yaml").read_text(encoding="utf-8")
    described = replaced(described, "\nkeywords:", f"\nhome: {url}\nsources: [{url}]\nkeywords:")
    described = re.sub(r"\n      image: kbatch-operators:.*\n", f"\n      image: {image}@{digest}\n", described)
    (chart / "values.yaml").write_text(values, encoding="utf-8")
    (chart / "Chart.yaml").write_text(described, encoding="utf-8")


if __name__ == "__main__":
    prepare(CHART, *sys.argv[1:4])
