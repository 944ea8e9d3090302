"""`xidwatch decode` beside grep: a large log with few events, and logs in which every line is one.

grep writes into a pipe: with /dev/null it stops at the first match. Both read the file from memory: it has just been written. The
naive peer is a loop with one regular expression a line, in a process of its own as well.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.daemon import CHECKOUT, BenchError
from bench.figures import Figure
from bench.options import Options
from xidwatch.core.logneedles import NEEDLES
from xidwatch.logs.find import search

NAME = "decode"
LARGE_BYTES = 1 << 30
LINES_BETWEEN = 10_000
DENSE_LINES = 200_000
ROUNDS = 3
GREP = ("grep", "-cE", "Xid|AER|mce")
AIM_GREPS, AIM_GREPS_FAST = 25.0, 1.5
AIM_MIB, AIM_MIB_FAST = 60.0, 100.0
AIM_USEC_DISTINCT, AIM_USEC_SAME = 1e6 / 40_000, 1e6 / 300_000
NOISE = (
    "usb 1-1: new high-speed USB device number {} using xhci_hcd",
    'audit: type=1400 audit(1758002462.123:{}): apparmor="ALLOWED" operation="open" profile="snap.x" name="/etc/hosts" comm="python3"',
    "EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode. Quota mode: none. {}",
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth{}: link becomes ready",
    "docker0: port {}(veth1a2b3c) entered forwarding state",
    "perf: interrupt took too long ({} > 2500), lowering kernel.perf_event_max_sample_rate to 79000",
)
XID = "NVRM: Xid (PCI:0000:{:02x}:00): 31, pid={}, name=python3, Ch {:08x}, intr 00000000. MMU Fault: ENGINE GRAPHICS faulted @ 0x7f_{:08x}"
NAIVE = r"""
import dataclasses, json, re, sys
@dataclasses.dataclass(frozen=True)
class Event:
    line: int; time: str; xid: int; pci: str; text: str
xid = re.compile(r"\[ *([0-9.]+)\] (NVRM: Xid \(PCI:([0-9a-f:.]+)\): ([0-9]+),.*)")
for number, line in enumerate(open(sys.argv[1], errors="replace"), 1):
    if match := xid.search(line):
        event = Event(number, match[1], int(match[4]), match[3], match[2])
        print(json.dumps(dataclasses.asdict(event)))
"""


def run(options: Options) -> list[Figure]:
    """Wall time, CPU and peak memory of whole processes, the best of some rounds."""
    rounds = options.rounds(ROUNDS)
    with tempfile.TemporaryDirectory(prefix="xidwatch-bench-", dir=_roomy()) as folder:
        large = _written(Path(folder) / "large.log", _sparse(int(LARGE_BYTES * min(1.0, options.seconds / 60))))
        figures = list(_large(large, rounds))
        large.unlink()
        figures += _dense("distinct", Path(folder), rounds, lambda at: XID.format(at % 8 + 1, at, at & 0xFFFF, at * 4096 & 0xFFFFFFFF))
        figures += _dense("identical", Path(folder), rounds, lambda _: XID.format(1, 1, 1, 1))
    return figures


def _large(path: Path, rounds: int) -> Iterator[Figure]:
    size = f"{path.stat().st_size / 1e9:.2f} GB, 1 Xid in {LINES_BETWEEN} lines"
    decode = _decode(path)
    grep, slow = _beside(rounds, [[*GREP, str(path)], [*decode, "--no-fast"]])
    yield Figure(NAME, f"LC_ALL=C {' '.join(GREP)} | cat", grep.seconds, "s", note=f"{size}; CPU {grep.cpu_seconds:.2f} s")
    yield _in_greps("without hyperscan", slow, grep, AIM_GREPS)
    yield Figure(NAME, "peak memory, without", slow.peak_mib, "MiB", AIM_MIB)
    yield Figure(NAME, "naive loop", _shortest(1, [sys.executable, "-c", NAIVE, str(path)]).seconds, "s")
    if search(NEEDLES).is_fast:
        grep, fast = _beside(rounds, [[*GREP, str(path)], decode])
        yield _in_greps("with hyperscan", fast, grep, AIM_GREPS_FAST)
        yield Figure(NAME, "peak memory, with", fast.peak_mib, "MiB", AIM_MIB_FAST)


def _in_greps(name: str, took: _Run, grep: _Run, aim: float) -> Figure:
    note = f"aim {aim:g} x grep; CPU {took.cpu_seconds:.2f} s = {took.cpu_seconds / grep.cpu_seconds:.1f} x grep"
    return Figure(NAME, name, took.seconds, "s", aim * grep.seconds, took.seconds / grep.seconds, "grep", note=note)


def _dense(name: str, folder: Path, rounds: int, text: Callable[[int], str]) -> list[Figure]:
    path = _written(folder / f"{name}.log", (f"Sep 16 08:01:02 host1 kernel: [    1.000000] {text(at)}\n" for at in range(DENSE_LINES)))
    naive = [sys.executable, "-c", NAIVE, str(path)]
    ours, peer = _beside(rounds, [[*_decode(path), "--no-fast"], naive])
    aim = AIM_USEC_DISTINCT if name == "distinct" else AIM_USEC_SAME
    usec = ours.seconds / DENSE_LINES * 1e6
    cpu = f"CPU {ours.cpu_seconds / DENSE_LINES * 1e6:.1f} us = {ours.cpu_seconds / peer.cpu_seconds:.1f} x"
    note = f"{cpu}; {DENSE_LINES / ours.seconds:,.0f} lines/s with start-up, peak {ours.peak_mib:.0f} MiB"
    return [Figure(NAME, f"every line an event, {name}", usec, "us/line", aim, ours.seconds / peer.seconds, "naive loop", note=note)]


class _Run:
    """One process, measured from outside."""

    def __init__(self, command: list[str]) -> None:
        environment = {**os.environ, "LC_ALL": "C", "PYTHONPATH": str(CHECKOUT), "PYTHONIOENCODING": "utf-8"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed: what has been compiled once is kept
        begun = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=CHECKOUT, env=environment)
        assert process.stdout
        while process.stdout.read(1 << 16):
            pass
        _, status, usage = os.wait4(process.pid, 0)
        self.seconds = time.monotonic() - begun
        self.cpu_seconds = usage.ru_utime + usage.ru_stime
        self.peak_mib = usage.ru_maxrss / 1024
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        if process.returncode:
            raise BenchError(f"{command[0]} ended with {process.returncode}")


def _shortest(rounds: int, command: list[str]) -> _Run:
    return _best([_Run(command) for _ in range(rounds)])


def _best(runs: Sequence[_Run]) -> _Run:
    """The shortest, with the least CPU and the most memory that any of them took."""
    best = min(runs, key=lambda run: run.seconds)
    best.cpu_seconds = min(run.cpu_seconds for run in runs)
    best.peak_mib = max(run.peak_mib for run in runs)
    return best


def _beside(rounds: int, commands: list[list[str]]) -> list[_Run]:
    """The best of each, in turn: whatever else the machine does hits all of them."""
    turns = [[_Run(command) for command in commands] for _ in range(rounds)]
    return [_best(runs) for runs in zip(*turns, strict=True)]


def _decode(path: Path) -> list[str]:
    return [sys.executable, "-m", "xidwatch", "decode", "--json", str(path)]


def _sparse(size: int) -> Iterator[str]:
    written = at = 0
    while written < size:
        at += 1
        text = XID.format(15, at, at & 0xFFFF, at) if at % LINES_BETWEEN == 0 else NOISE[at * 7919 % len(NOISE)].format(at)
        line = f"Sep 16 {at // 3600000 % 24:02}:{at // 60000 % 60:02}:{at // 1000 % 60:02} host1 kernel: [{at / 1000:12.6f}] {text}\n"
        written += len(line)
        yield line


def _written(path: Path, lines: Iterator[str]) -> Path:
    with path.open("w") as file:
        file.writelines(lines)
    return path


def _roomy() -> str | None:
    """Memory where there is room for it, else wherever temporary files go."""
    status = os.statvfs("/dev/shm") if Path("/dev/shm").is_dir() else None
    return "/dev/shm" if status and status.f_bavail * status.f_frsize > 3 * LARGE_BYTES else None
