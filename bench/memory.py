"""Memory of all processes together, after the caches of a few dozen ticks have filled."""

from __future__ import annotations

import time

from bench.daemon import place, running
from bench.figures import Figure
from bench.host import Host
from bench.options import Options
from bench.processes import memory_mib

NAME = "memory"
AIM_MIB = 130.0
INTERVAL = "0.2s"


def run(options: Options) -> list[Figure]:
    """Proportional set size, which other Python processes on the machine make smaller, and the part that nobody shares."""
    host = Host(real=True) if options.real else Host(8)
    with place() as where, running(where, host, interval=INTERVAL, metrics="127.0.0.1:0") as daemon:
        daemon.wait_ready()
        time.sleep(options.window_seconds)
        pss, uss = memory_mib(daemon.processes())
    library = "real NVML" if options.real else "fake NVML: the real one's worker is larger"
    return [
        Figure(NAME, f"proportional set size, {host}", sum(pss.values()), "MiB", AIM_MIB, parts=pss, note=library),
        Figure(NAME, "of it in no other process", uss, "MiB"),
    ]
