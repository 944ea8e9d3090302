"""Load, memory and pressure of the host: what was going on around the GPUs.

    /proc/loadavg           0.05 0.10 0.04 1/84 7357
    /proc/uptime            1141.64 2196.32
    /proc/stat              procs_blocked 0
    /proc/pressure/memory   some avg10=0.00 avg60=0.00 avg300=0.02 total=1951530

CPU time, memory and swap come through psutil, which reads the same folder. Nothing here touches a device, but a count of
blocked tasks that climbs is often the first sign of a driver that has locked up.

Sources: proc(5); Documentation/accounting/psi.rst (absent with `psi=0` or without CONFIG_PSI).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from xidwatch.core.model import HOST, Missing, Value
from xidwatch.probes.base import Ask, Emit, Probe

_REASONS = {
    errno.ENOENT: Missing.UNSUPPORTED,
    errno.EOPNOTSUPP: Missing.UNSUPPORTED,  # pressure files of a kernel that has it compiled in and switched off
    errno.EACCES: Missing.DENIED,
    errno.EPERM: Missing.DENIED,
}


# --- what each file means


def first_number(text: str) -> float:
    """The first word, as /proc/loadavg and /proc/uptime have it. Raises ValueError."""
    words = text.split()
    if not words:
        raise ValueError("empty")
    return float(words[0])


def some_avg10(text: str) -> float:
    """Share of the last 10 s in which some task waited, 0 to 1. Raises ValueError."""
    for line in text.splitlines():
        kind, *pairs = line.split() or [""]
        if kind == "some":
            return float(dict(pair.split("=", 1) for pair in pairs).get("avg10", "")) / 100
    raise ValueError("no line for some")


def procs_blocked(text: str) -> int:
    """Tasks in uninterruptible sleep now. Raises ValueError."""
    for line in text.splitlines():
        name, _, count = line.partition(" ")
        if name == "procs_blocked":
            return int(count)
    raise ValueError("no line for procs_blocked")


# Quantity, file below /proc, reader.
FILES: tuple[tuple[str, str, Callable[[str], Value]], ...] = (
    ("load_1m", "loadavg", first_number),
    ("uptime_seconds", "uptime", first_number),
    ("tasks_blocked", "stat", procs_blocked),
    ("pressure_cpu_ratio", "pressure/cpu", some_avg10),
    ("pressure_memory_ratio", "pressure/memory", some_avg10),
    ("pressure_io_ratio", "pressure/io", some_avg10),
)


def busy_ratio(before: Mapping[str, float] | None, after: Mapping[str, float]) -> Value:
    """Share of CPU time between two readings (seconds by kind, all CPUs) that was neither idle nor waiting for storage.

    NOT_ASKED without a first reading or when no time has passed. Guest time is part of user time already, and the
    kernel lets the I/O-wait counter run backwards now and then: such a step counts as none.
    """
    if before is None:
        return Missing.NOT_ASKED
    spent = {kind: max(0.0, seconds - before.get(kind, 0.0)) for kind, seconds in after.items() if kind not in {"guest", "guest_nice"}}
    total = sum(spent.values())
    if total <= 0:
        return Missing.NOT_ASKED
    return (total - spent.get("idle", 0.0) - spent.get("iowait", 0.0)) / total


def reading(read: Callable[[], Value]) -> Value:
    """What `read` returns, or why it could not: a file of /proc that is not there is one this kernel does not offer."""
    try:
        return read()
    except OSError as error:
        return _REASONS.get(error.errno or 0, Missing.MALFORMED)
    except (ValueError, KeyError, IndexError, TypeError, OverflowError):  # how psutil meets a file cut short, or a number beyond measure
        return Missing.MALFORMED


class HostProbe:
    """The one host, read from `proc_root`."""

    between_seconds: float | None = None

    def __init__(self, proc_root: Path) -> None:
        self._proc = proc_root
        self._cpu_seconds: dict[str, float] | None = None
        self._procfs_before: str = psutil.PROCFS_PATH
        psutil.PROCFS_PATH = str(proc_root)  # psutil's own switch; it holds for the process, which is this probe's alone

    def sample(self, ask: Ask, emit: Emit) -> None:
        """Everything; a matter of a millisecond, so the deadline is not looked at."""
        readers: dict[str, Callable[[], Value]] = {
            "cpu_busy_ratio": self._busy,
            "memory_available_bytes": lambda: psutil.virtual_memory().available,
            "swap_used_bytes": lambda: psutil.swap_memory().used,
        }
        if str(HOST) in ask.skip:  # a process is stuck in there already: another would only join it
            for quantity in (*readers, *(quantity for quantity, _, _ in FILES)):
                emit.reading(HOST, quantity, Missing.NOT_ASKED)
            return
        emit.at(HOST)
        for quantity, read in readers.items():
            emit.reading(HOST, quantity, reading(read))
        for quantity, name, meaning in FILES:
            emit.reading(HOST, quantity, self._file(name, meaning))

    def look(self, ask: Ask, emit: Emit) -> None:
        """Nothing: no device here."""

    def inventory(self, ask: Ask, emit: Emit) -> None:
        """Nothing that stays as it is."""

    def between(self) -> None:
        """Never called."""

    def close(self) -> None:
        """psutil reads again where it did before."""
        psutil.PROCFS_PATH = self._procfs_before

    def _busy(self) -> Value:
        before, self._cpu_seconds = self._cpu_seconds, psutil.cpu_times()._asdict()
        return busy_ratio(before, self._cpu_seconds)

    def _file(self, name: str, meaning: Callable[[str], Value]) -> Value:
        return reading(lambda: meaning((self._proc / name).read_text(encoding="ascii")))


def create(options: Mapping[str, object]) -> Probe:
    """Options: `proc_root`, the folder to read in place of /proc."""
    return HostProbe(Path(str(options.get("proc_root", "/proc"))))
