"""Death at the n-th file write, for any process of a daemon: imported by every Python that has this folder in its path.

The environment's XIDWATCH_TEST_FUSE names a file, and that says who dies and when: `recorder 7`. Whoever is called so counts its
calls that change a file (a worker: that say something) from when the file came, and at the seventh sends itself SIGKILL, in the
place of the call; of a write half is done. The file goes first, so that a successor lives.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Callable
from typing import Any

FUSE = os.environ.get("XIDWATCH_TEST_FUSE", "")
CHANGES = ("write", "fsync", "fdatasync", "rename", "ftruncate", "unlink", "mkdir")
WRITERS = ("daemon", "recorder", "dump")  # all others write to their channel only

_counted = {"fuse": 0, "calls": 0}
_unlink, _write, _open, _read, _close = os.unlink, os.write, os.open, os.read, os.close


def _text(path: str) -> str:
    descriptor = _open(path, os.O_RDONLY)
    try:
        return _read(descriptor, 4096).decode()
    finally:
        _close(descriptor)


def _role() -> str:
    name = _text("/proc/self/comm").strip()
    if name.startswith("xw-"):
        return name.removeprefix("xw-")
    return "daemon" if "tests.fakes.launch" in sys.orig_argv else ""


def _is_due(function: str, arguments: tuple[Any, ...]) -> bool:
    try:
        inode, (who, number) = os.stat(FUSE).st_ino, _text(FUSE).split()  # noqa: PTH116
    except OSError:  # no fuse: nobody has to die
        return False
    if who != _role() or (function == "write" and who in WRITERS and not stat.S_ISREG(os.fstat(arguments[0]).st_mode)):
        return False
    _counted["calls"] = _counted["calls"] + 1 if _counted["fuse"] == inode else 1
    _counted["fuse"] = inode
    return _counted["calls"] == int(number)


def _deadly(function: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        if _is_due(function, arguments):
            _unlink(FUSE)
            if function == "write":
                _write(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **named)

    return call


if FUSE:
    for _name in CHANGES:
        setattr(os, _name, _deadly(_name, getattr(os, _name)))
