"""CPU of a daemon that has nothing to do but its ticks, at the real interval.

The window begins 5 s after a tick and is a whole number of intervals long, so it holds exactly as many ticks as a longer
one would, drains of the power buffer and wakings of the metrics server included. Start-up is outside it and has a line
of its own; the last line adds the two up for the first ten minutes of a run.
"""

from __future__ import annotations

import time

from bench.daemon import BenchError, place, running
from bench.figures import Figure
from bench.host import Host
from bench.options import Options
from bench.processes import cpu_by_name, spent

NAME = "idle"
INTERVAL_SECONDS = 30
AFTER_TICK_SECONDS = 5.0
TEN_MINUTES = 600.0
AIM_PERCENT = 0.5


def run(options: Options) -> list[Figure]:
    """Per cent of one core, at least over one interval. Raises BenchError when the window did not hold the ticks it should."""
    host = Host(real=True) if options.real else Host(8)
    ticks = max(1, round(options.seconds / INTERVAL_SECONDS))
    window = ticks * INTERVAL_SECONDS
    with place() as where, running(where, host, interval=f"{INTERVAL_SECONDS}s", metrics="127.0.0.1:0") as daemon:
        daemon.wait_ready()
        time.sleep(AFTER_TICK_SECONDS - 1)
        pids = daemon.processes()
        first, before = daemon.tick(), cpu_by_name(pids)
        time.sleep(window)
        last, after = daemon.tick(), cpu_by_name(pids)
    if last - first != ticks:
        raise BenchError(f"{last - first} ticks in {window} s, {ticks} were planned")
    used = spent(before, after)
    percent = {name: 100 * seconds / window for name, seconds in used.items()}
    steady, start = sum(percent.values()), sum(before.values())
    ten_minutes = steady + 100 * start / TEN_MINUTES
    return [
        Figure(NAME, f"steady, {host}", steady, "% of a core", AIM_PERCENT, parts=percent, note=f"{ticks} ticks in {window} s"),
        Figure(NAME, "start-up, once", 1000 * start, "ms", parts={name: 1000 * seconds for name, seconds in before.items()}),
        Figure(NAME, "first ten minutes, start-up included", ten_minutes, "% of a core", note="steady, extrapolated, + start-up / 600 s"),
    ]
