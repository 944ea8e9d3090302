"""`python -m bench [NAME...]`: run benchmarks and print one table.

Every benchmark but `decode` and `gate` runs the whole daemon, with a fake NVML library behind the shipped probe and sysfs in memory, or
with `--nvml real` on what this machine has. The kernel log is always a pipe: nothing is read from or written to /dev/kmsg.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from bench import decode, gate, hotspots, idle, latency, memory, scrape, startup, ticks, trace
from bench.daemon import BenchError
from bench.figures import Figure, table
from bench.options import Options

BENCHES: dict[str, Callable[[Options], list[Figure]]] = {
    module.NAME: module.run for module in (ticks, memory, idle, trace, latency, scrape, startup, gate, decode, hotspots)
}
ONLY_BY_NAME = frozenset({hotspots.NAME})
ONLY_FAKE = frozenset({hotspots.NAME, latency.NAME, trace.NAME})
SHORTEST_SECONDS = 6.0
EX_USAGE = 64


def machine() -> dict[str, object]:
    """What the figures hold for."""
    return {
        "cores": os.cpu_count(),
        "cpu": _cpu_model(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_1m": round(os.getloadavg()[0], 2),
    }


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def arguments() -> argparse.Namespace:
    """As given."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = ", ".join(name for name in BENCHES if name not in ONLY_BY_NAME)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which (default: {default}; also: {', '.join(ONLY_BY_NAME)})")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="how long idling is watched, 600 for the aim's ten minutes; the rest scales"
    )
    parser.add_argument("--nvml", choices=("fake", "real"), default="fake", help="real: this machine's own GPUs and PCI bus")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures for machines as well")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in BENCHES]
    if unknown or given.seconds < SHORTEST_SECONDS:
        problem = f"no such benchmark: {unknown[0]}" if unknown else f"--seconds: at least {SHORTEST_SECONDS:g}"
        print(f"bench: {problem}", file=sys.stderr)
        sys.exit(EX_USAGE)
    return given


def main() -> int:
    """0, or 1 when a benchmark could not be carried out. A missed aim is a figure, not a failure."""
    given = arguments()
    options = Options(given.seconds, given.nvml == "real")
    about = machine()
    figures: list[Figure] = []
    failed = 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # unwinds: no daemon and no folder is left behind
    for name in given.names or [name for name in BENCHES if name not in ONLY_BY_NAME]:
        fake = " (with the fake NVML)" if options.real and name in ONLY_FAKE else ""
        print(f"bench: {name}{fake} ...", file=sys.stderr)
        try:
            figures += BENCHES[name](options)
        except (BenchError, TimeoutError, OSError) as error:
            print(f"bench: {name}: {error}", file=sys.stderr)
            failed = 1
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    print(table(figures))
    if given.json:
        given.json.write_text(json.dumps({"machine": about, "figures": [asdict(figure) for figure in figures]}, indent=1) + "\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
