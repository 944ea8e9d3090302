"""The daemon for the length of one benchmark, and the places it lives in: all is gone afterwards."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.host import Host, build_tree
from bench.processes import family
from bench.watching import Changes
from tests.fakes.sysfs import SysfsTree
from xidwatch.config import rules_dir
from xidwatch.records import RecordError
from xidwatch.records.state import StateFile
from xidwatch.records.state import read as read_state

CHECKOUT = Path(__file__).parent.parent
MEMORY = Path("/dev/shm")
LEAVING_SECONDS = 30.0
READY_SECONDS = 150.0  # the first call of a real driver may take two minutes


class BenchError(Exception):
    """The figure could not be had, and why."""


@dataclass(frozen=True, slots=True)
class Place:
    """`disk` is on the checkout's filesystem, as evidence is on a disk; `memory` is a tmpfs, as /run and /sys are."""

    disk: Path
    memory: Path


@contextmanager
def place() -> Iterator[Place]:
    """Two empty folders."""
    above = CHECKOUT / ".bench"
    above.mkdir(exist_ok=True)
    chosen = Place(Path(tempfile.mkdtemp(dir=above)), Path(tempfile.mkdtemp(prefix="xidwatch-bench-", dir=MEMORY)))
    try:
        yield chosen
    finally:
        shutil.rmtree(chosen.disk)
        shutil.rmtree(chosen.memory)
        if not any(above.iterdir()):
            above.rmdir()


@dataclass(slots=True)
class KernelPipe:
    """Stands in for /dev/kmsg: nothing here ever writes to the machine's own log."""

    path: Path
    _fd: int = -1
    _next_seq: int = 100

    def open(self) -> None:
        """Both ends, so that the reader never sees an end of file."""
        os.mkfifo(self.path)
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)

    def close(self) -> None:
        """No more lines."""
        os.close(self._fd)

    def say(self, text: str) -> float:
        """One record written by the kernel now; returns the monotonic time just before the write."""
        now = time.monotonic()
        os.write(self._fd, f"4,{self._next_seq},{int(now * 1e6)},c;{text}\n".encode())
        self._next_seq += 1
        return now


@dataclass(slots=True)
class Daemon:
    """A running daemon."""

    process: subprocess.Popen[bytes]
    place: Place
    tree: SysfsTree | None  # None with the real bus
    kernel: KernelPipe
    begun: float  # monotonic, just before its exec

    @property
    def run_dir(self) -> Path:
        """Its state file, control socket and port."""
        return self.place.memory / "run"

    @property
    def state_dir(self) -> Path:
        """Its records."""
        return self.place.disk / "state"

    @property
    def log_path(self) -> Path:
        """What it says to people."""
        return self.place.memory / "log"

    def log_text(self) -> str:
        """All of it so far."""
        return self.log_path.read_text(errors="replace")

    def processes(self) -> dict[str, int]:
        """By name."""
        return family(self.process.pid)

    def state(self) -> StateFile | None:
        """What it shows now; None before it has shown anything. Raises BenchError when it has ended."""
        if self.process.poll() is not None:
            raise BenchError(f"the daemon ended with {self.process.returncode}:\n{self.log_text()[-2000:]}")
        try:
            return read_state(self.run_dir / "state.json")
        except RecordError:
            return None

    def wait_ready(self) -> None:
        """Until a tick in which every probe has answered, and the inventory after it. Raises BenchError."""

        def ready() -> bool | None:
            state = self.state()
            answered = state is not None and bool(state.tick) and all(probe.success for probe in state.probes.values())
            return True if answered else None

        self.run_dir.mkdir(exist_ok=True)
        with Changes().watch(self.run_dir) as changes:
            try:
                changes.until(ready, READY_SECONDS, "a tick answered by every probe")
            except TimeoutError as error:
                raise BenchError(f"{error}; {self._silent_probes()}") from error
        time.sleep(1.0)  # the inventory and its records

    def _silent_probes(self) -> str:
        state = self.state()
        silent = {name: probe.text for name, probe in state.probes.items() if not probe.success} if state else {}
        return "; ".join(f"{name}: {why}" for name, why in silent.items()) or "no tick was finished"

    def tick(self) -> int:
        """Of the last finished tick. Raises BenchError when there is none."""
        state = self.state()
        if state is None or state.tick is None:
            raise BenchError("no tick has been finished")
        return state.tick

    def wait_next_tick(self, seconds: float = 70.0) -> int:
        """Until another tick is finished; its number. Raises TimeoutError, BenchError."""
        before = self.tick()

        def newer() -> int | None:
            number = self.tick()
            return number if number > before else None

        with Changes().watch(self.run_dir) as changes:
            number, _ = changes.until(newer, seconds, "the next tick")
        return number


def quick_rules(target: Path) -> Path:
    """A copy of the shipped rules in which what is bad is good again after one good tick, so that a round takes seconds."""
    shutil.copytree(rules_dir(None), target)
    path = target / "conditions.toml"
    path.write_text(re.sub(r'^clear = ".*"', 'clear = "0s"', path.read_text(), flags=re.MULTILINE))
    return target


@contextmanager
def running(
    where: Place,
    host: Host,
    *,
    interval: str,
    metrics: str = "",
    rules: Path | None = None,
    profile: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Daemon]:
    """A daemon, from exec to exit. Raises BenchError when it does not leave as it should."""
    kernel = KernelPipe(where.memory / "kmsg")
    kernel.open()
    tree = None if host.real else build_tree(where.memory / "sys", host)
    config: dict[str, object] = {"interval": interval, "metrics": metrics, "kernel_log": str(kernel.path)}
    if tree is not None:
        config["probes"] = {"pci": {"root": str(tree.root)}}
    settings = where.memory / "settings.json"
    given = {
        "state_dir": str(where.disk / "state"),
        "run_dir": str(where.memory / "run"),
        "rules_dir": str(rules) if rules else None,
        "config": config,
        "fake_gpus": None if host.real else host.gpus,
        "working": host.working,
        "profile": str(profile) if profile else None,
    }
    settings.write_text(json.dumps(given))
    command = [sys.executable, "-m", "bench.launch", str(settings)]
    env = {**{name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}, **(environment or {})}
    with (where.memory / "log").open("wb") as log:
        begun = time.monotonic()
        process = subprocess.Popen(command, cwd=CHECKOUT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    daemon = Daemon(process, where, tree, kernel, begun)
    try:
        yield daemon
    finally:
        _end(daemon)
        kernel.close()


def _end(daemon: Daemon) -> None:
    """TERM and patience. Never KILL: a worker may hold a driver."""
    daemon.process.send_signal(signal.SIGTERM)
    try:
        status = daemon.process.wait(LEAVING_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"the daemon (pid {daemon.process.pid}) does not leave; it is left alone") from error
    if status:
        raise BenchError(f"the daemon ended with {status}:\n{daemon.log_text()[-2000:]}")
