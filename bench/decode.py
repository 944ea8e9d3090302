"""`xidwatch decode` beside grep: a large log with few events, and logs in which every line is one.

grep writes into a pipe: with /dev/null it stops at the first match. Both read the file from memory: it has just been written, once. What
takes as long as a breath is run several times, in turn with grep; what takes longer, once beside it. The naive peer is a loop with one
regular expression a line, in a process of its own as well; of the large log it reads a part, and its time is that of all of it.

Peak memory is that of all its processes, in a run of its own: it is looked at every 20 ms, and that takes time.
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
from bench.processes import family_mib
from xidwatch.core.logneedles import NEEDLES
from xidwatch.logs.find import search

NAME = "decode"
LARGE_BYTES = 1 << 30
NAIVE_PART = 8  # of the large log the naive loop reads one in so many bytes
LINES_BETWEEN = 10_000
DENSE_LINES = 400_000
ROUNDS, LONG_ROUNDS = 3, 2
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
STAMP, UPTIME = "@stamp@", "@uptime@"
XID = "NVRM: Xid (PCI:0000:{:02x}:00): 31, pid={}, name=python3, Ch {:08x}, intr 00000000. MMU Fault: ENGINE GRAPHICS faulted @ 0x7f_{:08x}"
NAIVE = r"""
import dataclasses, json, re, sys
@dataclasses.dataclass(frozen=True)
class Event:
    line: int; time: str; xid: int; pci: str; text: str
xid = re.compile(r"\[ *([0-9.]+)\] (NVRM: Xid \(PCI:([0-9a-f:.]+)\): ([0-9]+),.*)")
left = int(sys.argv[2]) if len(sys.argv) > 2 else float("inf")
for number, line in enumerate(open(sys.argv[1], errors="replace"), 1):
    left -= len(line)
    if left < 0:
        break
    if match := xid.search(line):
        event = Event(number, match[1], int(match[4]), match[3], match[2])
        print(json.dumps(dataclasses.asdict(event)))
"""


def run(options: Options) -> list[Figure]:
    """Wall time, CPU and peak memory of whole processes, the best of some rounds."""
    with tempfile.TemporaryDirectory(prefix="xidwatch-bench-", dir=_roomy()) as folder:
        large = _written(Path(folder) / "large.log", _sparse(int(LARGE_BYTES * min(1.0, options.seconds / 60))))
        figures = list(_large(large, options.rounds(ROUNDS)))
        large.unlink()
        figures += _dense("distinct", Path(folder), lambda at: XID.format(at % 8 + 1, at, at & 0xFFFF, at * 4096 & 0xFFFFFFFF))
        figures += _dense("identical", Path(folder), lambda _: XID.format(1, 1, 1, 1))
    return figures


def _large(path: Path, rounds: int) -> Iterator[Figure]:
    bytes_ = path.stat().st_size
    size = f"{bytes_ / 1e9:.2f} GB, 1 Xid in {LINES_BETWEEN} lines"
    grep = [*GREP, str(path)]
    beside_slow, slow = _beside(1, [grep, _decode(path, "--no-fast")])
    naive = _Run([sys.executable, "-c", NAIVE, str(path), str(bytes_ // NAIVE_PART)])
    if search(NEEDLES).is_fast:
        beside_fast, fast = _beside(rounds, [grep, _decode(path)])
    else:
        beside_fast, fast = beside_slow, None
    yield Figure(NAME, f"LC_ALL=C {' '.join(GREP)} | cat", beside_fast.seconds, "s", note=f"{size}; CPU {beside_fast.cpu_seconds:.2f} s")
    yield _in_greps("without hyperscan", slow, beside_slow, AIM_GREPS)
    yield Figure(NAME, "peak memory, without", _peak_mib(_decode(path, "--no-fast")), "MiB", AIM_MIB)
    if fast:
        yield _in_greps("with hyperscan", fast, beside_fast, AIM_GREPS_FAST)
        yield Figure(NAME, "peak memory, with", _peak_mib(_decode(path)), "MiB", AIM_MIB_FAST)
    took = naive.seconds * NAIVE_PART
    yield Figure(NAME, "naive loop", took, "s", ratio=took / beside_slow.seconds, peer="grep", note=f"{NAIVE_PART} x its first part")


def _in_greps(name: str, took: _Run, grep: _Run, aim: float) -> Figure:
    note = f"aim {aim:g} x grep; CPU {took.cpu_seconds:.2f} s = {took.cpu_seconds / grep.cpu_seconds:.1f} x grep"
    return Figure(NAME, name, took.seconds, "s", aim * grep.seconds, took.seconds / grep.seconds, "grep", note=note)


def _dense(name: str, folder: Path, text: Callable[[int], str]) -> list[Figure]:
    path = _written(folder / f"{name}.log", (f"Sep 16 08:01:02 host1 kernel: [    1.000000] {text(at)}\n" for at in range(DENSE_LINES)))
    naive = [sys.executable, "-c", NAIVE, str(path)]
    ours, peer = _beside(LONG_ROUNDS, [_decode(path, "--no-fast"), naive])
    aim = AIM_USEC_DISTINCT if name == "distinct" else AIM_USEC_SAME
    usec = ours.seconds / DENSE_LINES * 1e6
    cpu = f"CPU {ours.cpu_seconds / DENSE_LINES * 1e6:.1f} us = {ours.cpu_seconds / peer.cpu_seconds:.1f} x"
    note = f"{cpu}; {DENSE_LINES / ours.seconds:,.0f} lines/s with start-up, peak {_peak_mib(_decode(path, '--no-fast')):.0f} MiB"
    return [Figure(NAME, f"every line an event, {name}", usec, "us/line", aim, ours.seconds / peer.seconds, "naive loop", note=note)]


def _started(command: Sequence[str], to: int) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "LC_ALL": "C", "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed: what has been compiled once is kept
    return subprocess.Popen(command, stdout=to, cwd=CHECKOUT, env=environment)


class _Run:
    """One command: time and CPU, with whoever it has started and waited for."""

    def __init__(self, command: Sequence[str]) -> None:
        begun = time.monotonic()
        process = _started(command, subprocess.PIPE)
        assert process.stdout
        while process.stdout.read(1 << 16):
            pass
        _, status, usage = os.wait4(process.pid, 0)
        self.seconds = time.monotonic() - begun
        self.cpu_seconds = usage.ru_utime + usage.ru_stime
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        _needs_success(process)


def _needs_success(process: subprocess.Popen[bytes]) -> None:
    if process.returncode:
        raise BenchError(f"{process.args!r} ended with {process.returncode}")


def _peak_mib(command: Sequence[str]) -> float:
    """The most that a command and whoever it has started had at a time."""
    process, peak = _started(command, subprocess.DEVNULL), 0.0
    while process.poll() is None:
        peak = max(peak, family_mib(process.pid))
        time.sleep(0.02)
    _needs_success(process)
    return peak


def _best(runs: Sequence[_Run]) -> _Run:
    """The shortest, with the least CPU that any of them took."""
    best = min(runs, key=lambda run: run.seconds)
    best.cpu_seconds = min(run.cpu_seconds for run in runs)
    return best


def _beside(rounds: int, commands: list[list[str]]) -> list[_Run]:
    """The best of each, in turn: whatever else the machine does hits all of them."""
    turns = [[_Run(command) for command in commands] for _ in range(rounds)]
    return [_best(runs) for runs in zip(*turns, strict=True)]


def _decode(path: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "xidwatch", "decode", "--json", *options, str(path)]


def _sparse(size: int) -> Iterator[str]:
    """Blocks of as many lines as lie between two Xids, of 100 s each: made once, and given their own time."""
    lines = [f"{STAMP} host1 kernel: [{UPTIME}.{at:04}00] {NOISE[at * 7919 % len(NOISE)].format(at)}\n" for at in range(LINES_BETWEEN - 1)]
    block = "".join(lines)
    written = at = 0
    while written < size:
        at += 1
        stamp, uptime = f"Sep {at // 864 % 30 + 1:2} {at // 36 % 24:02}:{at * 5 // 3 % 60:02}:{at * 100 % 60:02}", f"{at * 100:7}"
        xid = f"{stamp} host1 kernel: [{uptime}.999999] {XID.format(15, at, at & 0xFFFF, at)}\n"
        text = block.replace(STAMP, stamp).replace(UPTIME, uptime) + xid
        written += len(text)
        yield text


def _written(path: Path, lines: Iterator[str]) -> Path:
    with path.open("w") as file:
        file.writelines(lines)
    return path


def _roomy() -> str | None:
    """Memory where there is room for it, else wherever temporary files go."""
    status = os.statvfs("/dev/shm") if Path("/dev/shm").is_dir() else None
    return "/dev/shm" if status and status.f_bavail * status.f_frsize > 3 * LARGE_BYTES else None
