"""The wall clock of a process under test, off by as many seconds as a file says at the moment.

Python imports a module of this name before anything else when its folder is on PYTHONPATH. Only what tells the time of
day is moved: monotonic clocks go on as they are, as they do where somebody sets a machine's clock.
"""

import ctypes
import datetime as dt
import gc
import mmap
import os
import struct
import time

_FILE = os.environ.get("KBATCH_TEST_CLOCK")

if _FILE:
    with open(_FILE, "rb") as _file:  # noqa: PTH123 - nothing more than needed is imported into the process
        _seconds = mmap.mmap(_file.fileno(), 8, access=mmap.ACCESS_READ)
    _read = struct.Struct("d").unpack_from
    _time, _time_ns, _now = time.time, time.time_ns, dt.datetime.now

    def _moved() -> float:
        return float(_time() + _read(_seconds)[0])

    def _moved_ns() -> int:
        return _time_ns() + int(_read(_seconds)[0] * 1e9)

    def _moved_now(cls: type[dt.datetime], tz: dt.tzinfo | None = None) -> dt.datetime:
        return _now(tz) + dt.timedelta(seconds=_read(_seconds)[0])

    time.time, time.time_ns = _moved, _moved_ns
    # The type itself must stay what it is (others look for it by identity), and does not let its methods be set.
    gc.get_referents(dt.datetime.__dict__)[0]["now"] = classmethod(_moved_now)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(dt.datetime))
