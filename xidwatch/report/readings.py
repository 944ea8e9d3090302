"""The last readings before an incident, and the latest: what the sample files say about it.

Law: reads the files of the days in question only, and keeps no more than an hour of rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path

from xidwatch.clock import iso
from xidwatch.core.model import HOST, PCI_KINDS, Subject
from xidwatch.records import Damage, samples
from xidwatch.records.samples import Row
from xidwatch.report import facts
from xidwatch.report.ledger import few
from xidwatch.report.story import Readings, Shown

DEVICE = ("power_mean_watts", "power_peak_watts", "temperature_celsius", "link_gts", "link_width", "config_dword0")
ALIVE = ("power_mean_watts", "temperature_celsius")  # a row that has neither says nothing about a GPU's last moments
PEAK = "power_peak_watts"  # since the row before: in the row of a GPU that has gone, what it drew while it was there
OF_HOST = ("load_1m", "cpu_busy_ratio", "memory_available_bytes", "tasks_blocked")
ROWS_BEFORE = 120  # an hour at 30 s
ROWS_AFTER = 20
DAY_SECONDS = 86400.0
ALL_ONES = "ffffffff"


@dataclass(frozen=True, slots=True)
class Window:
    """What is asked for: `horizon` is the last time at which all was good, `began` when it no longer was; `ended` None: still open."""

    boot_id: str
    horizon: float
    began: float
    ended: float | None
    victims: tuple[Subject, ...]


def read(state_dir: Path, window: Window, damage: list[Damage]) -> Readings:
    """What could not be read goes to `damage`."""
    try:
        paths = samples.files(state_dir / samples.FOLDER)
    except OSError as error:
        damage.append(Damage(str(state_dir / samples.FOLDER), 0, error.strerror or str(error)))
        return Readings()
    before, after = _around(paths, window, damage)
    latest = _latest(paths, window.ended)
    others = tuple(about for about in window.victims if about.kind != "gpu")
    shown_latest = () if latest is None or (before and latest.identity == before[-1].identity) else tuple(_shown([latest], others))
    same_boot = [row for row in after if row.boot_id == window.boot_id]
    return Readings(
        before=tuple(_shown(before, others)),
        parting=tuple(_parting(same_boot[:1])),
        latest=tuple(map(_without_parting, shown_latest)),
        answered=_answered(same_boot) - set(window.victims),
    )


def _around(paths: list[Path], window: Window, damage: list[Damage]) -> tuple[list[Row], list[Row]]:
    first, last = _day(window.horizon - DAY_SECONDS), _day(window.began + DAY_SECONDS)
    before: deque[Row] = deque(maxlen=ROWS_BEFORE)
    after: list[Row] = []
    for path in (path for path in paths if first <= path.name[:10] <= last):
        problems: list[Damage] = []
        for row in samples.read(path, problems):
            if row.wall <= window.horizon:
                before.append(row)
            elif row.wall > window.began and len(after) < ROWS_AFTER and (window.ended is None or row.wall <= window.ended):
                after.append(row)
        damage += few(problems)
    return list(before), after


def _latest(paths: list[Path], ended: float | None) -> Row | None:
    """The last row up to the end."""
    last = "9999" if ended is None else _day(ended)
    for path in (path for path in reversed(paths) if path.name[:10] <= last):
        rows = deque((row for row in samples.read(path) if ended is None or row.wall <= ended), maxlen=1)
        if rows:
            return rows[0]
    return None


def _day(wall: float) -> str:
    try:
        return iso(wall)[:10]
    except (ValueError, OverflowError):  # before year 1: a clock that was never set
        return ""


@lru_cache(maxsize=65536)
def _split(column: str) -> tuple[Subject | None, str]:
    name, _, quantity = column.rpartition(":")
    return facts.subject(name), quantity


def _by_subject(row: Row) -> dict[Subject, dict[str, str]]:
    found: dict[Subject, dict[str, str]] = {}
    for column, cell in row.cells.items():
        subject, quantity = _split(column)
        if subject is not None:
            found.setdefault(subject, {})[quantity] = cell
    return found


def _shown(rows: list[Row], others: tuple[Subject, ...]) -> Iterable[Shown]:
    """Of each GPU the last row in which it was alive, else the last; of `others` and the host the last."""
    if not rows:
        return
    last = _by_subject(rows[-1])
    gpus = sorted(about for about in last if about.kind == "gpu")
    alive: dict[Subject, Shown] = {}
    for row in reversed(rows):
        page = _by_subject(row)
        for gpu in gpus:
            if gpu not in alive and _is_alive(page.get(gpu, {})):
                alive[gpu] = _pick(gpu, row, page, DEVICE)
        if len(alive) == len(gpus):
            break
    for gpu in gpus:
        yield alive.get(gpu) or _pick(gpu, rows[-1], last, DEVICE)
    for subject in (about for about in others if about in last):
        yield _pick(subject, rows[-1], last, DEVICE)
    if HOST in last:
        yield _pick(HOST, rows[-1], last, OF_HOST)


def _is_alive(values: Mapping[str, str]) -> bool:
    return any(values.get(name) for name in ALIVE)


def _parting(rows: Iterable[Row]) -> Iterable[Shown]:
    """Peaks of GPUs that say nothing else any more."""
    for row in rows:
        page = _by_subject(row)
        for gpu in sorted(about for about, values in page.items() if about.kind == "gpu" and values.get(PEAK) and not _is_alive(values)):
            yield _pick(gpu, row, page, (PEAK,))


def _without_parting(shown: Shown) -> Shown:
    """Under the time of a row only what was so by then."""
    return shown if _is_alive(shown.values) or PEAK not in shown.values else replace(shown, values={**shown.values, PEAK: ""})


def _pick(subject: Subject, row: Row, page: Mapping[Subject, Mapping[str, str]], names: tuple[str, ...]) -> Shown:
    values = page.get(subject, {})
    return Shown(subject, row.wall, {name: values.get(name, "") for name in names})


def _answered(rows: Iterable[Row]) -> frozenset[Subject]:
    good: set[Subject] = set()
    for row in islice(rows, ROWS_AFTER):
        for subject, values in _by_subject(row).items():
            word = values.get("config_dword0", "")
            if subject.kind in PCI_KINDS and ((word and word != ALL_ONES) or values.get("nvml_status") == "0"):
                good.add(subject)
    return frozenset(good)


@dataclass(frozen=True, slots=True)
class Ticks:
    """How many rows there are, and from when to when; None: not counted."""

    count: int | None = 0
    first: float | None = None
    last: float | None = None


def count_ticks(state_dir: Path, since: float | None) -> Ticks:
    """All rows, or those not older than `since`."""
    start = "" if since is None else iso(since)
    number, first, last = 0, "", ""
    for path in samples.files(state_dir / samples.FOLDER):
        if path.name[:10] < start[:10]:
            continue
        for time in samples.times(path):
            if time >= start:
                number += 1
                first = min(first or time, time)
                last = max(last, time)
    return Ticks(number, facts.time({"t": first}, "t"), facts.time({"t": last}, "t"))


def newest(state_dir: Path) -> float | None:
    """When the last row was taken."""
    for path in reversed(samples.files(state_dir / samples.FOLDER)):
        latest = max(samples.times(path), default="")
        if latest:
            return facts.time({"t": latest}, "t")
    return None


def last_times(state_dir: Path, limits: list[float]) -> list[float | None]:
    """For each limit, the time of the last row before it: a run that ended without a word may have sampled after its last record."""
    found: list[float | None] = [None] * len(limits)
    files = samples.files(state_dir / samples.FOLDER)
    for index, limit in enumerate(limits):
        for path in (path for path in reversed(files) if path.name[:10] <= _day(limit)):
            times = [time for time in samples.times(path) if time < iso(limit)]
            if times:
                found[index] = facts.time({"t": max(times)}, "t")
                break
    return found
