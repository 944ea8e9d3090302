"""How times, spans, subjects and counts are said. Pure; every text that comes from outside goes through `clean`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xidwatch.clock import iso
from xidwatch.core.model import Subject

KINDS = {
    "gpu": ("GPU", "GPUs"),
    "port": ("port", "ports"),
    "nvme": ("NVMe", "NVMe drives"),
    "rail": ("rail", "rails"),
    "chip": ("sensor", "sensors"),
    "engine": ("engine", "engines"),
    "driver": ("driver", "drivers"),
    "probe": ("probe", "probes"),
    "kernel": ("kernel log", "kernel logs"),
    "host": ("host", "hosts"),
}
MOST_SUBJECTS = 4  # named one by one; more are counted
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def clean(text: str) -> str:
    """One line that moves no cursor: a process may have written it, and root will read it on a terminal."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape", "replace").decode() for sign in text.strip())


def day(wall: float) -> str:
    """`2026-09-17`, UTC like all of these."""
    return iso(wall)[:10]


def clock(wall: float) -> str:
    """`02:10:08.412`."""
    return iso(wall)[11:23]


def stamp(wall: float, *, near: float | None = None, exact: bool = False) -> str:
    """`2026-09-17 02:10:08`, with milliseconds when `exact`; without the date on the day of `near`."""
    time = clock(wall) if exact else clock(wall)[:8]
    return time if near is not None and day(near) == day(wall) else f"{day(wall)} {time}"


def between(began: float, ended: float, *, near: float | None = None) -> str:
    """`between 02:09:38 and 02:10:08`: the edge lies in there; finer where seconds would say nothing."""
    exact = int(began) == int(ended)
    return f"between {stamp(began, near=near, exact=exact)} and {stamp(ended, near=began, exact=exact)}"


def span(began: float | None, ended: float | None, *, near: float) -> str:
    """For how long something was missing."""
    if began is not None and began == ended:
        return f"at {stamp(began, near=near)}"
    if began is None:
        return "all along" if ended is None else f"until {stamp(ended, near=near)}"
    return f"since {stamp(began, near=near)}" if ended is None else f"{stamp(began, near=near)} to {stamp(ended, near=began)}"


def duration(seconds: float) -> str:
    """The two largest units: `26 min 23 s`."""
    if seconds < MINUTE:
        return f"{seconds:.1f} s"
    if seconds < HOUR:
        return f"{int(seconds // MINUTE)} min {int(seconds % MINUTE)} s"
    if seconds < DAY:
        return f"{int(seconds // HOUR)} h {int(seconds % HOUR // MINUTE)} min"
    return f"{int(seconds // DAY)} d {int(seconds % DAY // HOUR)} h"


def count(number: int, one: str, many: str = "") -> str:
    """`1 tick`, `2 ticks`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def subject(about: Subject) -> str:
    """`GPU 0000:11:00.0`."""
    return clean(f"{KINDS.get(about.kind, (about.kind,))[0]} {about.name}")


def counted(kind: str, number: int) -> str:
    """`4 GPUs`."""
    one, many = KINDS.get(kind, (kind, kind + "s"))
    return count(number, one, many)


def subjects(several: Sequence[Subject]) -> str:
    """Subjects of one kind: by name while they are few."""
    kind = several[0].kind
    if len(several) > MOST_SUBJECTS:
        return counted(kind, len(several))
    one, many = KINDS.get(kind, (kind, kind + "s"))
    return clean(f"{one if len(several) == 1 else many} {', '.join(about.name for about in several)}")


def listed(parts: Iterable[str]) -> str:
    """`a, b and c`."""
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last
