"""The last readings before, and the latest, as a small table.

at         mean W  peak W   C  link          dword0
GPU 0000:11:00.0   02:09:38    246.1   402.7  61  16 GT/s x16   220410de
"""

from __future__ import annotations

from collections.abc import Iterable

from xidwatch.core.model import HOST, Subject
from xidwatch.report import words
from xidwatch.report.lines import Line, Style, heading, paragraph
from xidwatch.report.story import Case, Shown

NONE = "-"
GIGA = 1e9
SECOND_LINE = " " * 24

_Row = tuple[str, str, Style]  # a left and a right half


def readings(case: Case, width: int) -> list[Line]:
    """The section: `-` is a value that was not there. Where a page is too narrow, each row is on two lines."""
    shown = case.readings
    if not shown.before and not shown.latest:
        return [*heading("LAST READINGS BEFORE"), Line("  no sample is on record for the day before it, nor since")]
    lines = heading("LAST READINGS BEFORE  (- is a value that was not there)")
    lines += _table(shown.before, case.began, width) or [Line("  no sample is on record for the day before it")]
    if shown.parting:
        lines += paragraph(f"Highest power between then and the last answer: {_peaks(shown.parting)}.", indent="    ", hanging="    ")
    if shown.latest:
        until = "AT THE END" if case.ended is not None else "SINCE"
        lines += [*heading(f"LATEST READINGS {until}"), *_table(shown.latest, case.began, width)]
    return lines


def _peaks(parting: Iterable[Shown]) -> str:
    """`571 W (GPUs 0000:11:00.0, 0000:12:00.0)`: alike ones together."""
    alike: dict[str, list[Subject]] = {}
    for each in parting:
        alike.setdefault(words.clean(each.values["power_peak_watts"]), []).append(each.subject)
    return ", ".join(f"{watts} W ({words.subjects(gpus)})" for watts, gpus in alike.items())


def _table(shown: Iterable[Shown], near: float, width: int) -> list[Line]:
    rows = [_host(row, near) if row.subject == HOST else _device(row, near) for row in shown]
    if not rows:
        return []
    rows.insert(0, (f"    {'':18}  {'at':8}  {'mean W':>7} {'peak W':>7} {'C':>4}", f"{'link':14} dword0", "dim"))
    broken = any(right and len(left) + 2 + len(right) > width for left, right, _ in rows)
    lines: list[Line] = []
    for left, right, style in rows:
        if broken and right:
            lines += [Line(left, style), Line(f"{SECOND_LINE}{right}", style)]
        else:
            lines.append(Line(f"{left}  {right}".rstrip(), style, hanging=SECOND_LINE))
    return lines


def _device(row: Shown, near: float) -> _Row:
    value = {name: words.clean(text) or NONE for name, text in row.values.items()}
    speed, width = value["link_gts"], value["link_width"]
    link = f"{speed} GT/s x{width}" if (speed, width) != (NONE, NONE) else NONE
    word = value["config_dword0"]
    power, peak, celsius = value["power_mean_watts"], value["power_peak_watts"], value["temperature_celsius"]
    left = f"    {words.subject(row.subject):18}  {words.stamp(row.wall, near=near):8}  {power:>7} {peak:>7} {celsius:>4}"
    return left, f"{link:14} {word:8}".rstrip(), "bad" if word == "ffffffff" else ""


def _host(row: Shown, near: float) -> _Row:
    values = row.values
    parts = [f"load {values['load_1m'] or NONE}"]
    busy, memory, blocked = (_number(values[name]) for name in ("cpu_busy_ratio", "memory_available_bytes", "tasks_blocked"))
    parts.append(f"CPU {busy * 100:.0f} %" if busy is not None else "CPU -")
    parts.append(f"memory left {memory / GIGA:.1f} GB" if memory is not None else "memory left -")
    parts.append(f"tasks blocked {blocked:.0f}" if blocked is not None else "tasks blocked -")
    return f"    {'host':18}  {words.stamp(row.wall, near=near):8}  {', '.join(parts)}", "", ""


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
