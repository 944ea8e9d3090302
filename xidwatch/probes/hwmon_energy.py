"""Energy counters: power as the mean between two looks, and the zones of the processor's own meter (RAPL).

    class/powercap/intel-rapl:0/name                 package-0        (AMD processors have the same folders)
    class/powercap/intel-rapl:0/energy_uj            165223374512     (readable by root only)
    class/powercap/intel-rapl:0/max_energy_range_uj  262143328850     (then it starts again from 0)
    class/powercap/intel-rapl:0:0/name               dram

A read is an MSR read on a processor of that package: while that one is locked up, it does not return.
Sources: Documentation/power/powercap/powercap.rst; drivers/powercap/intel_rapl_common.c; CVE-2020-8694 (why root only).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from xidwatch.core.model import Missing, Subject
from xidwatch.probes.hwmon_chips import numbered, read_number, read_text

# No zone draws more: in less time than this would take to fill the counter, it has gone around once at most.
MOST_WATTS = 1000.0
_ZONE = re.compile(r"intel-rapl:\d+(?::\d+)*")  # not intel-rapl-mmio, which counts the same energy a second time


@dataclass(slots=True)
class Meter:
    """One counter of microjoules. `range_uj` 0: it does not say where it starts again."""

    range_uj: int = 0
    _before: tuple[float, int] | None = None  # monotonic seconds, microjoules

    def mean_watts(self, now: float, energy_uj: int | Missing) -> float | Missing:
        """Mean draw since the last look; NOT_ASKED at the first, and when the counter may have gone around unseen."""
        if isinstance(energy_uj, Missing):
            self._before = None
            return energy_uj
        before, self._before = self._before, (now, energy_uj)
        if before is None or now <= before[0]:
            return Missing.NOT_ASKED
        elapsed, spent = now - before[0], energy_uj - before[1]
        if self.range_uj and elapsed * MOST_WATTS * 1e6 > self.range_uj:
            return Missing.NOT_ASKED
        if spent < 0:
            spent += self.range_uj
        return spent / 1e6 / elapsed if spent >= 0 else Missing.NOT_ASKED


@dataclass(slots=True)
class Zone:
    """One RAPL zone. A package and all within it get stuck together."""

    package: str  # rapl@package-0
    part: str  # total, or the name of what is within it: core, dram
    folder: Path
    meter: Meter

    @property
    def subject(self) -> Subject:
        """Under which its power goes."""
        return Subject("chip", f"{self.package}/{self.part}")

    @property
    def unit(self) -> Subject:
        """The unit of getting stuck."""
        return Subject("chip", self.package)

    def mean_watts(self, now: float) -> float | Missing:
        """Reads the counter."""
        return self.meter.mean_watts(now, read_number(self.folder / "energy_uj"))

    def may_be_read(self) -> bool:
        """By this process; asks the file system, not the processor."""
        return os.access(self.folder / "energy_uj", os.R_OK)


def zones(root: Path) -> tuple[Zone, ...]:
    """Every zone there is, packages before what is within them; empty without RAPL or permission to look."""
    try:
        names = sorted(name for name in os.listdir(root / "class/powercap") if _ZONE.fullmatch(name))  # noqa: PTH208  names only
    except OSError:
        return ()
    folders = {name: root / "class/powercap" / name for name in names}
    said = {name: read_text(folder / "name") for name, folder in folders.items()}
    called = {name: name if isinstance(text, Missing) else text for name, text in said.items()}
    tops = [name for name in names if name.count(":") == 1]
    packages = dict(zip(tops, numbered(f"rapl@{called[name]}" for name in tops), strict=True))
    found = []
    for name in names:
        top = ":".join(name.split(":")[:2])
        part = "total" if name == top else "/".join(called[name] for name in _path(name) if name in called)
        found.append(Zone(packages.get(top, f"rapl@{top}"), part, folders[name], Meter(_range(folders[name]))))
    return tuple(found)


def _path(zone: str) -> list[str]:
    """The zone and those around it below its package, outermost first: `intel-rapl:0:1:0` is in `intel-rapl:0:1`."""
    words = zone.split(":")
    return [":".join(words[:length]) for length in range(3, len(words) + 1)]


def _range(folder: Path) -> int:
    value = read_number(folder / "max_energy_range_uj")
    return 0 if isinstance(value, Missing) else value
