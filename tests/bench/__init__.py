"""Benchmarks. They measure the compiled engine where there is one that is current (`make compiled`).

With `--interpreted` among its arguments, or with KBATCH_ENGINE=interpreted, a benchmark measures the sources as they
are; so does `tests.bench.against`, which compares two versions of them. What is measured is said on standard error,
once, by the process that was started by hand.
"""

from __future__ import annotations

import os
import platform
import sys

from tools.compiled.build import current
from tools.compiled.modules import ROOT

_VARIABLE = "KBATCH_ENGINE"
_FLAG = "--interpreted"
_OF_SOURCES = "tests.bench.against"


def _choose() -> None:
    """Put what was compiled first on the path, of this process and of those that it starts."""
    first = _VARIABLE not in os.environ
    asked = os.environ.get(_VARIABLE, "interpreted" if {_FLAG, _OF_SOURCES} & {*sys.orig_argv} else "compiled")
    sys.argv[1:] = [each for each in sys.argv[1:] if each != _FLAG]
    folder = ROOT / ".compiled"
    why = ""
    if asked == "compiled" and first and not current(folder):
        asked, why = "interpreted", " (.compiled is of other sources)" if folder.exists() else " (no .compiled)"
    os.environ[_VARIABLE] = asked
    if asked == "compiled":
        sys.path.insert(0, str(folder))
        if first:
            os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    if first:
        print(
            f"engine: {asked}{why}; Python {platform.python_version()}, {sys.executable}", file=sys.stderr, flush=True
        )


# Of a benchmark that is run, not of one that a test imports: `python -m` has not found its module yet.
if sys.argv[:1] == ["-m"] and "kbatch" not in sys.modules:
    _choose()
