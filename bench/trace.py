"""CPU of following the power of eight GPUs, idle (every 2 s) and at work (every 0.5 s): two daemons side by side, between their ticks."""

from __future__ import annotations

import time
from contextlib import ExitStack

from bench.daemon import BenchError, Daemon, place, running
from bench.figures import Figure
from bench.host import Host
from bench.options import Options
from bench.processes import cpu_by_name, spent

NAME = "trace"
INTERVAL = "30s"
SETTLING_SECONDS = 4.0
LONGEST_SECONDS = 20.0  # and the next tick is still to come
FOLLOWING = ("nvml", "loop")
IDLE, WORKING = Host(8), Host(8, working=True)


def run(options: Options) -> list[Figure]:
    """Per cent of one core, of the worker that drains and the loop that keeps. Raises BenchError when a tick got in between."""
    window = min(LONGEST_SECONDS, options.seconds / 3)
    with ExitStack() as stack:
        daemons = [stack.enter_context(running(stack.enter_context(place()), host, interval=INTERVAL)) for host in (IDLE, WORKING)]
        for daemon in daemons:
            daemon.wait_ready()
        time.sleep(SETTLING_SECONDS)
        ticks, before = [daemon.tick() for daemon in daemons], [_used(daemon) for daemon in daemons]
        time.sleep(window)
        after = [_used(daemon) for daemon in daemons]
        if [daemon.tick() for daemon in daemons] != ticks:
            raise BenchError("a tick got in between")
    parts = [{name: 100 * seconds / window for name, seconds in spent(*pair).items()} for pair in zip(before, after, strict=True)]
    rest, work = (sum(part.values()) for part in parts)
    note = f"drained for {window:.0f} s"
    return [
        Figure(NAME, f"idle, {IDLE}", rest, "% of a core", parts=parts[0], note=note),
        Figure(NAME, f"at work, {WORKING}", work, "% of a core", ratio=work / rest, peer="idle", parts=parts[1], note=note),
    ]


def _used(daemon: Daemon) -> dict[str, float]:
    return {name: seconds for name, seconds in cpu_by_name(daemon.processes()).items() if name in FOLLOWING}
