"""numpy's linear algebra, which nothing here uses: left alone it starts a thread for each processor with numpy.

On a large machine these are many, in each process and for each command; in a container that may have few threads their
start fails, and says so on standard error.
"""

from __future__ import annotations

import os


def keep_to_one_thread() -> None:
    """Have no further threads started; called before numpy is imported. Who has set the variable is left alone."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
