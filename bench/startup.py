"""From exec to READY, to the end of the first tick, and to its row on the disk; beside an interpreter that imports the program.

READY and the first tick are told by the daemon as systemd would hear it. The row is taken as durable when it is in the
file and one more fdatasync of this process has returned: an upper bound, since the recorder has synced by then or is about to.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench.daemon import CHECKOUT, Daemon, place, running
from bench.figures import Figure, percentile
from bench.host import Host
from bench.options import Options

NAME = "startup"
ROUNDS = 7
AIM_SECONDS = 1.0
PATIENCE_SECONDS = 150.0
LOOK_SECONDS = 0.001
PEER = "import xidwatch.cli"


@dataclass(frozen=True, slots=True)
class _Start:
    ready: float  # seconds from exec
    tick: float
    durable: float


def run(options: Options) -> list[Figure]:
    """Medians, each as a multiple of the peer's."""
    host = Host(real=True) if options.real else Host(8)
    rounds = options.rounds(ROUNDS)
    starts = [_start(host) for _ in range(rounds)]
    imports = percentile([_import() for _ in range(rounds)], 50)
    return [
        _figure("READY", [start.ready for start in starts], imports, AIM_SECONDS),
        _figure(f"first tick over, {host}", [start.tick for start in starts], imports, AIM_SECONDS),
        _figure("first row durable", [start.durable for start in starts], imports, None),
        Figure(NAME, f"python -c '{PEER}'", imports, "s", note=f"median of {rounds}"),
    ]


def _figure(name: str, seconds: list[float], peer: float, aim: float | None) -> Figure:
    median = percentile(seconds, 50)
    note = f"median of {len(seconds)}, longest {max(seconds):.2f}"
    return Figure(NAME, name, median, "s", aim, ratio=median / peer, peer=PEER, note=note)


def _start(host: Host) -> _Start:
    with place() as where, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        address = where.memory / "notify"
        systemd.bind(str(address))
        systemd.settimeout(PATIENCE_SECONDS)
        with running(where, host, interval="30s", metrics="127.0.0.1:0", environment={"NOTIFY_SOCKET": str(address)}) as daemon:
            ready = _told(systemd, b"READY=1")
            tick = _told(systemd, b"WATCHDOG=1")
            durable = _row_durable(daemon)
        return _Start(ready - daemon.begun, tick - daemon.begun, durable - daemon.begun)


def _told(systemd: socket.socket, word: bytes) -> float:
    """When (monotonic). Raises TimeoutError."""
    while word not in systemd.recv(4096).split(b"\n"):
        pass
    return time.monotonic()


def _row_durable(daemon: Daemon) -> float:
    """When (monotonic). Raises TimeoutError."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        for path in (daemon.state_dir / "samples").glob("*.csv"):
            if _has_row(path):
                _sync(path)
                return time.monotonic()
        time.sleep(LOOK_SECONDS)
    raise TimeoutError("no row was written")


def _has_row(path: Path) -> bool:
    return path.read_bytes().count(b"\n") > 2  # a comment, the header, and then


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _import() -> float:
    """Seconds."""
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", PEER], cwd=CHECKOUT, check=True)
    return time.monotonic() - begun
