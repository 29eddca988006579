"""The wall clock of a process under test, off by as many seconds as a file says at the moment.

Python imports a module of this name before anything else when its folder is on PYTHONPATH. Only what tells the time of
day is moved: monotonic clocks go on as they are, as they do where somebody sets a machine's clock.
"""

import datetime as dt
import mmap
import os
import struct
import time

_FILE = os.environ.get("KBATCH_TEST_CLOCK")

if _FILE:
    with open(_FILE, "rb") as _file:  # noqa: PTH123 - nothing more than needed is imported into the process
        _seconds = mmap.mmap(_file.fileno(), 8, access=mmap.ACCESS_READ)
    _read = struct.Struct("d").unpack_from
    _time, _time_ns, _datetime = time.time, time.time_ns, dt.datetime

    def _moved() -> float:
        return _time() + _read(_seconds)[0]

    def _moved_ns() -> int:
        return _time_ns() + int(_read(_seconds)[0] * 1e9)

    class _Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, _datetime)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, _datetime)

    class _Moved(_datetime, metaclass=_Kind):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:  # type: ignore[override]
            return _datetime.fromtimestamp(_moved(), tz)

    time.time, time.time_ns = _moved, _moved_ns
    dt.datetime = _Moved  # type: ignore[misc]
