"""Where the loop's time goes: cProfile over a daemon that ticks as often as it may. Run when named."""

from __future__ import annotations

import pstats
import time

from bench.daemon import place, running
from bench.figures import Figure
from bench.host import Host
from bench.options import Options
from bench.ticks import INTERVAL_SECONDS

NAME = "hotspots"
HOST = Host(16)
SHOWN = 30


def run(options: Options) -> list[Figure]:
    """Prints the functions by cumulative and by own time; one figure, the loop's profiled time a tick."""
    with place() as where:
        target = where.memory / "profile"
        with running(where, HOST, interval=f"{INTERVAL_SECONDS}s", profile=target) as daemon:
            daemon.wait_ready()
            time.sleep(options.window_seconds)
            ticks = daemon.tick()
        stats = pstats.Stats(str(target)).strip_dirs()
    for order in ("cumulative", "tottime"):
        stats.sort_stats(order).print_stats(SHOWN)
    busy = sum(own for key, (_, _, own, _, _) in _entries(stats).items() if "poll" not in key[2])
    return [
        Figure(NAME, f"loop under cProfile, {HOST}", 1000 * busy / ticks, "ms", note=f"n={ticks}, waiting left out, start-up shared out")
    ]


def _entries(stats: pstats.Stats) -> dict[tuple[str, int, str], tuple[int, int, float, float, object]]:
    entries: dict[tuple[str, int, str], tuple[int, int, float, float, object]] = stats.stats  # type: ignore[attr-defined]
    return entries
