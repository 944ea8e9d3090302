"""/run/xidwatch-<hash> of other state directories, which stay for `xidwatch status` when their run has ended.

Law: takes away what nobody needs any more and nothing else: a day old, of this boot, with no process left, its lock free. What is not
known for sure to be that stays until the reboot that takes all of it.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from xidwatch.config import DEFAULT_RUN
from xidwatch.daemon import control
from xidwatch.daemon.processes import Abandoned
from xidwatch.daemon.rundir import CHILDREN, LOCK, METRICS_PORT, STATE, AlreadyRunning, RunDir
from xidwatch.records import RecordError
from xidwatch.records import state as state_record

KEPT_SECONDS = 86400.0  # after its last word, for whoever wants to see how the run ended
_OF_ANOTHER = re.compile(rf"{DEFAULT_RUN.name}-[0-9a-f]{{8}}")
_FILES = (STATE, CHILDREN, METRICS_PORT, control.NAME, LOCK)  # the lock last: while it is there nobody else begins


def clear(folder: Path, now_mono: float, boot_id: str) -> list[Path]:
    """Those below `folder` that are taken away. `now_mono`: seconds of this boot. Never raises OSError."""
    with suppress(OSError):
        found = sorted(place for place in folder.iterdir() if _OF_ANOTHER.fullmatch(place.name) and place.is_dir())
        return [place for place in found if _is_over(place, now_mono, boot_id) and _take_away(place)]
    return []


def _is_over(place: Path, now_mono: float, boot_id: str) -> bool:
    try:
        shown = state_record.read(place / STATE)
        there = {path.name for path in place.iterdir()}
    except (RecordError, OSError):
        return False
    if not there.issubset(_FILES):  # more than a run leaves
        return False
    is_old = shown.boot_id == boot_id and now_mono - shown.mono_ms / 1000 > KEPT_SECONDS
    return is_old and not any(_lives(child) for child in state_record.read_children(place / CHILDREN, boot_id))


def _lives(child: state_record.Child) -> bool:
    return Abandoned(child.name, child.pid, child.start_ticks, child.since_mono).is_alive()


def _take_away(place: Path) -> bool:
    """Under its lock; False where somebody has it."""
    try:
        held = RunDir(place)
    except (AlreadyRunning, OSError):
        return False
    try:
        for name in _FILES:
            (place / name).unlink(missing_ok=True)
        place.rmdir()
    except OSError:
        return False
    finally:
        held.release()
    return True
