"""Figures: a value with its unit, the aim it is held to, and the peer it was measured beside."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. `aim` is in the same unit and is met at or below; `parts` say what the value is made of."""

    bench: str
    name: str
    value: float
    unit: str
    aim: float | None = None
    ratio: float | None = None  # value / the peer's
    peer: str = ""
    parts: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def met(self) -> bool | None:
        """None without an aim."""
        return None if self.aim is None else self.value <= self.aim


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest rank: a value that was really measured. With fewer than 100 of them the 99th is the largest. Raises ValueError for none."""
    if not values:
        raise ValueError("nothing was measured")
    return sorted(values)[math.ceil(percent / 100 * len(values)) - 1]


def spread(bench: str, name: str, values: Sequence[float], unit: str, *, aim_p99: float | None = None, note: str = "") -> list[Figure]:
    """Median, 95th and 99th percentile as three lines; the aim is the 99th's."""
    count = f"n={len(values)}" + (f", {note}" if note else "")
    return [
        Figure(bench, f"{name}, p{percent}", percentile(values, percent), unit, aim_p99 if percent == 99 else None, note=count)
        for percent in (50, 95, 99)
    ]


def table(figures: Iterable[Figure]) -> str:
    """For people: a heading for each benchmark, aligned columns, no line wraps."""
    rows = list(figures)
    cells = {id(row): (row.name, _number(row.value), row.unit, _aim(row), _ratio(row)) for row in rows}
    widths = [max((len(cell[column]) for cell in cells.values()), default=0) for column in range(5)]
    lines: list[str] = []
    bench = ""
    for row in rows:
        if row.bench != bench:
            bench = row.bench
            lines += ["", bench]
        name, value, unit, aim, ratio = cells[id(row)]
        text = f"  {name:<{widths[0]}}  {value:>{widths[1]}} {unit:<{widths[2]}}  {aim:<{widths[3]}}  {ratio:<{widths[4]}}"
        lines.append(f"{text}  {_remark(row)}".rstrip())
    return "\n".join(lines[1:])


def _number(value: float) -> str:
    """Three digits that mean something."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(decimals, 4)}f}"


def _aim(row: Figure) -> str:
    return "" if row.aim is None else f"aim {row.aim:g}{'' if row.met else ' MISSED'}"


def _ratio(row: Figure) -> str:
    return "" if row.ratio is None else f"{row.ratio:.1f} x {row.peer}"


def _remark(row: Figure) -> str:
    parts = " + ".join(f"{name} {_number(value)}" for name, value in sorted(row.parts.items(), key=lambda part: -part[1]) if value)
    return "; ".join(filter(None, (parts, row.note)))
