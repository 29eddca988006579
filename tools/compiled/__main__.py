"""Compile the engine: `make compiled`.

    python -m tools.compiled [--folder .compiled] [--optimise 2] [--into SITE-PACKAGES]

Makes a folder that is put first on Python's path; nothing is done where it is current. With `--into` what was compiled
is put in the place of the package that is installed there. Needs a C compiler (gcc, or that of CC), Python's headers,
and the packages of the group `compile`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tools.compiled.build import build, current, install
from tools.compiled.modules import ROOT


def main() -> None:
    """Build what is not current."""
    parser = argparse.ArgumentParser(prog="python -m tools.compiled", description="Compile the engine.")
    parser.add_argument("--folder", type=Path, default=ROOT / ".compiled")
    parser.add_argument("--optimise", choices=["0", "1", "2", "3"], default="2", help="how much the C compiler does")
    parser.add_argument("--into", type=Path, help="an environment's folder of packages in which kbatch is installed")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if current(folder):
        print(f"{folder} is current")
    else:
        build(folder, arguments.optimise)
    if arguments.into is not None:
        install(folder, arguments.into)


if __name__ == "__main__":
    main()
