"""From a kernel line to the edge, and to stage one of the dump on the disk.

A round: shortly after a tick a GPU's Xid 79 goes into the pipe. The *edge* is recognised when the state file shows the GPU
lost (the first thing that anybody else can see; on a tmpfs, woken for by inotify). *Stage one* is durable when the daemon
says so, which it does after the dump worker's last fsync of file and folder. Then Xids of three other GPUs follow into
the open incident, one by one and at any moment: ticks come every 0.5 s here, so these meet a busy loop sixty times as often
as at 30 s. Last the driver is allowed again, and the round ends with the tick that finds all good.

In the second half of the rounds the switch above the GPUs goes with the line, as in a loss of its supply: its first dword is
read as all ones, and a second time 100 ms later, before anything below is left alone.
"""

from __future__ import annotations

import random
import re
import time
from dataclasses import dataclass, field

from bench.daemon import BenchError, Daemon, place, quick_rules, running
from bench.disk import SyncProbe
from bench.figures import Figure, percentile, spread
from bench.host import FIRST_SWITCH, Host, gpu_address
from bench.options import Options
from bench.watching import Changes
from xidwatch.daemon.control import ask
from xidwatch.records.dumps import load

NAME = "latency"
HOST = Host(8)
GPUS_A_ROUND = 4
ROUNDS_A_DAEMON = 20  # dumps a day, by design
INTERVAL_SECONDS = 0.5
PATIENCE_SECONDS = 10.0
PARTS = 5
AIM_EDGE_MS = 50.0
AIM_STAGE_ONE_MS = 250.0
XID_79 = "NVRM: Xid (PCI:{}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
_DUMPED = re.compile(r"TAKE_DUMP for \S+: (.*)")


@dataclass(slots=True)
class _Seen:
    """Milliseconds, one entry a round (`later`: one a line)."""

    opening: list[float] = field(default_factory=list)
    later: list[float] = field(default_factory=list)
    stage_one: list[float] = field(default_factory=list)
    fsync: list[float] = field(default_factory=list)
    parts: dict[str, list[float]] = field(default_factory=dict)  # of the dump, by name


def run(options: Options) -> list[Figure]:
    """Percentiles, beside what fsync costs on the same disk. Always with the fake GPUs: it is they who are accused."""
    alive = _rounds(options.rounds(40), switch_dies=False)
    dead = _rounds(options.rounds(30), switch_dies=True)
    fsync = alive.fsync + dead.fsync
    figures = spread(NAME, "line to edge, opens an incident", alive.opening + dead.opening, "ms", aim_p99=AIM_EDGE_MS)
    figures += spread(NAME, "line to edge, incident open", alive.later + dead.later, "ms", aim_p99=AIM_EDGE_MS)
    figures += spread(NAME, "line to stage one durable, bus answers", alive.stage_one, "ms", aim_p99=AIM_STAGE_ONE_MS)
    figures += spread(
        NAME, "line to stage one durable, switch dead", dead.stage_one, "ms", aim_p99=AIM_STAGE_ONE_MS, note="100 ms to ask twice"
    )
    figures += spread(NAME, "write and fsync of 4 KiB on this disk", fsync, "ms")
    return [*figures, _composition(alive, fsync)]


def _composition(seen: _Seen, fsync: list[float]) -> Figure:
    """What the median is made of; the rest is the edge, the wait for its record, and the manifest between the parts."""
    median = percentile(seen.stage_one, 50)
    parts = {name: percentile(took, 50) for name, took in seen.parts.items()}
    parts["rest"] = median - sum(parts.values())
    return Figure(NAME, "median stage one, bus answers", median, "ms", ratio=median / percentile(fsync, 50), peer="fsync", parts=parts)


def _rounds(count: int, *, switch_dies: bool) -> _Seen:
    seen = _Seen()
    while count > 0:
        now = min(count, ROUNDS_A_DAEMON)
        _one_daemon(now, seen, switch_dies=switch_dies)
        count -= now
    return seen


def _one_daemon(count: int, seen: _Seen, *, switch_dies: bool) -> None:
    with place() as where:
        rules = quick_rules(where.memory / "rules")
        with running(where, HOST, interval=f"{INTERVAL_SECONDS}s", rules=rules) as daemon, Changes() as changes:
            daemon.wait_ready()
            daemon.wait_next_tick()
            changes.watch(daemon.run_dir).watch(daemon.log_path)
            probe = SyncProbe(where.disk)
            for number in range(count):
                probe.measure()
                _round(daemon, changes, number, seen, switch_dies=switch_dies)
            probe.close()
            seen.fsync += probe.milliseconds
        _check_dumps(daemon, count, seen)


def _round(daemon: Daemon, changes: Changes, number: int, seen: _Seen, *, switch_dies: bool) -> None:
    """One incident, from the end of a good tick to the end of a good tick."""
    first, *others = (gpu_address((number + offset) % GPUS_A_ROUND) for offset in range(GPUS_A_ROUND))
    dumps = len(_dumped(daemon))
    time.sleep(random.uniform(0.02, 0.1))
    if switch_dies and daemon.tree:
        daemon.tree.die(FIRST_SWITCH)
    begun = daemon.kernel.say(XID_79.format(first))
    seen.opening.append(1000 * (_edge(daemon, changes, first) - begun))
    seen.stage_one.append(1000 * (_stage_one(daemon, changes, dumps) - begun))
    for other in others:
        time.sleep(random.uniform(0.0, INTERVAL_SECONDS))
        said = daemon.kernel.say(XID_79.format(other))
        seen.later.append(1000 * (_edge(daemon, changes, other) - said))
    _recover(daemon, changes)


def _edge(daemon: Daemon, changes: Changes, address: str) -> float:
    """When the state file shows that GPU lost (monotonic). Raises TimeoutError."""

    def shown() -> bool | None:
        state = daemon.state()
        lost = state is not None and any(
            condition.type == "GpuLost" and condition.status == "TRUE" and condition.subject == f"gpu:{address}"
            for condition in state.conditions
        )
        return True if lost else None

    return changes.until(shown, PATIENCE_SECONDS, f"GpuLost of {address}")[1]


def _dumped(daemon: Daemon) -> list[str]:
    """What the daemon has said about each dump."""
    return _DUMPED.findall(daemon.log_text())


def _stage_one(daemon: Daemon, changes: Changes, before: int) -> float:
    """When the next dump is called done (monotonic). Raises TimeoutError, and BenchError for one that is not whole."""

    def said() -> str | None:
        return next(iter(_dumped(daemon)[before:]), None)

    result, at = changes.until(said, PATIENCE_SECONDS, "the dump")
    if not result.startswith("ok in ") or "late" in result:
        raise BenchError(f"a dump that does not count: {result}")
    return at


def _recover(daemon: Daemon, changes: Changes) -> None:
    """As after a repair: the bus answers, the operator allows the driver, ticks are good."""
    if daemon.tree:
        daemon.tree.recover(FIRST_SWITCH)
    ask(daemon.run_dir, {"do": "allow-driver", "text": "next round"})

    def healthy() -> bool | None:
        state = daemon.state()
        return True if state is not None and state.verdict == "healthy" and state.incident is None else None

    changes.until(healthy, PATIENCE_SECONDS, "all good again")


def _check_dumps(daemon: Daemon, count: int, seen: _Seen) -> None:
    """What was called durable is there. Raises BenchError."""
    manifests = [load(folder) for folder in (daemon.state_dir / "incidents").iterdir()]
    parts = [part for manifest in manifests for part in manifest.parts]
    whole = all(manifest.state == "complete" for manifest in manifests) and all(part.status == "ok" and part.bytes for part in parts)
    if not whole or len(parts) != count * PARTS:
        raise BenchError(f"{len(parts)} parts in {len(manifests)} dumps, {count * PARTS} were to be whole")
    for part in parts:
        seen.parts.setdefault(part.name, []).append(part.took_ms)
