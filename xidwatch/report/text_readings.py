"""The last readings before, and the latest, as a small table.

at         mean W  peak W   C  link          dword0
GPU 0000:11:00.0   02:09:38    246.1   402.7  61  16 GT/s x16   220410de
"""

from __future__ import annotations

from collections.abc import Iterable

from xidwatch.core.model import HOST
from xidwatch.report import words
from xidwatch.report.lines import Line, Style, heading
from xidwatch.report.story import Case, Shown

NONE = "-"
GIGA = 1e9


def readings(case: Case) -> list[Line]:
    """The section: `-` is a value that was not there."""
    shown = case.readings
    if not shown.before and not shown.latest:
        return [*heading("LAST READINGS BEFORE"), Line("  no sample is on record for the day before it, nor since")]
    columns = f"    {'':18}  {'at':8}  {'mean W':>7} {'peak W':>7} {'C':>4}  {'link':14} dword0"
    lines = heading("LAST READINGS BEFORE  (- is a value that was not there)")
    nothing = [Line("  no sample is on record for the day before it")]
    lines += [Line(columns, "dim"), *_rows(shown.before, case.began)] if shown.before else nothing
    if shown.latest:
        until = "AT THE END" if case.ended is not None else "SINCE"
        lines += [*heading(f"LATEST READINGS {until}"), Line(columns, "dim"), *_rows(shown.latest, case.began)]
    return lines


def _rows(rows: Iterable[Shown], near: float) -> list[Line]:
    return [_host(row, near) if row.subject == HOST else _device(row, near) for row in rows]


def _device(row: Shown, near: float) -> Line:
    value = {name: words.clean(text) or NONE for name, text in row.values.items()}
    speed, width = value["link_gts"], value["link_width"]
    link = f"{speed} GT/s x{width}" if (speed, width) != (NONE, NONE) else NONE
    word = value["config_dword0"]
    power, peak, celsius = value["power_mean_watts"], value["power_peak_watts"], value["temperature_celsius"]
    style: Style = "bad" if word == "ffffffff" else ""
    at = words.stamp(row.wall, near=near)
    return Line(f"    {words.subject(row.subject):18}  {at:8}  {power:>7} {peak:>7} {celsius:>4}  {link:14} {word:8}".rstrip(), style)


def _host(row: Shown, near: float) -> Line:
    values = row.values
    parts = [f"load {values['load_1m'] or NONE}"]
    busy, memory, blocked = (_number(values[name]) for name in ("cpu_busy_ratio", "memory_available_bytes", "tasks_blocked"))
    parts.append(f"CPU {busy * 100:.0f} %" if busy is not None else "CPU -")
    parts.append(f"memory left {memory / GIGA:.1f} GB" if memory is not None else "memory left -")
    parts.append(f"tasks blocked {blocked:.0f}" if blocked is not None else "tasks blocked -")
    return Line(f"    {'host':18}  {words.stamp(row.wall, near=near):8}  {', '.join(parts)}")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
