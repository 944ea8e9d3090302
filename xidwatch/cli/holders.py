"""Who the processes are that a gate's reason names: for people at a terminal, from what is there now.

    process 4711 is VLLM::Worker TP, in system.slice/docker-5f0c....scope

    /proc/4711/stat      4711 (VLLM::Worker TP) D ...
    /proc/4711/cgroup    0::/system.slice/docker-5f0c....scope

Nothing else of a process is opened: whoever asks for a command line waits behind a thread that is stuck (`engine_processes`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from xidwatch.probes import engine_processes

PROC = Path("/proc")
MOST_NAMED = 16
MOST_CHARACTERS = 60  # of a group: its end tells more than its beginning
_NAMED = re.compile(r"process(?:es)? ([0-9]{1,7}(?:, [0-9]{1,7})*) (?:is|are) still on it")


def named(reasons: Iterable[str], proc_root: Path = PROC) -> Iterator[str]:
    """A line about each that is still there."""
    pids = dict.fromkeys(int(pid) for why in reasons for match in _NAMED.finditer(why) for pid in match[1].split(", "))
    for pid in list(pids)[:MOST_NAMED]:
        stat = engine_processes.stat_of(proc_root / str(pid) / "stat")
        if stat is not None:
            group = _group(proc_root / str(pid) / "cgroup")
            yield f"process {pid} is {stat[1]}, state {stat[2][0]}" + (f", in {group}" if group else "")


def _group(path: Path) -> str:
    """Of the hierarchy that has units."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    fields = [line.split(":", 2) for line in lines]
    places = [each[2].lstrip("/") for each in fields if len(each) == 3 and each[1] in ("", "name=systemd")]
    place = max(places, key=len, default="")
    return place if len(place) <= MOST_CHARACTERS else f"...{place[-MOST_CHARACTERS:]}"
