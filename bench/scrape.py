"""A scrape of /metrics as Prometheus does it: a new connection, gzip accepted, the whole page read."""

from __future__ import annotations

import gzip
import time
from http.client import HTTPConnection

from bench.daemon import BenchError, Daemon, place, running
from bench.figures import Figure, spread
from bench.host import Host
from bench.options import Options
from bench.processes import cpu_seconds

NAME = "scrape"
HOST = Host(16)
INTERVAL = "30s"  # no tick falls into the measurement
SCRAPES = 200


def run(options: Options) -> list[Figure]:
    """Time and the daemon's CPU for each. Raises BenchError when a tick got in between."""
    host = Host(real=True) if options.real else HOST
    with place() as where, running(where, host, interval=INTERVAL, metrics="127.0.0.1:0") as daemon:
        daemon.wait_ready()
        time.sleep(1.0)
        port = int((daemon.run_dir / "metrics.port").read_text())
        page = _scrape(port)
        tick, before = daemon.tick(), cpu_seconds(daemon.process.pid)
        times = [_timed(port) for _ in range(options.rounds(SCRAPES))]
        cpu_ms = 1000 * (cpu_seconds(daemon.process.pid) - before) / len(times)
        _check(daemon, tick)
    series = sum(1 for line in page.splitlines() if line and not line.startswith(b"#"))
    return [
        *spread(NAME, f"time, {host}", times, "ms"),
        Figure(NAME, "CPU of the daemon", cpu_ms, "ms", note=f"{series} series, {len(page)} bytes before gzip"),
    ]


def _timed(port: int) -> float:
    """Milliseconds."""
    begun = time.monotonic()
    _scrape(port)
    return 1000 * (time.monotonic() - begun)


def _scrape(port: int) -> bytes:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
        response = connection.getresponse()
        body = response.read()
        return gzip.decompress(body) if response.getheader("Content-Encoding") == "gzip" else body
    finally:
        connection.close()


def _check(daemon: Daemon, tick: int) -> None:
    if daemon.tick() != tick:
        raise BenchError("a tick fell into the measurement")
