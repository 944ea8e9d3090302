"""The real daemon on a stage: a PCI tree in a folder, a FIFO as kernel log, probes of the test's choosing.

    with Rig(tmp_path) as rig:
        running = rig.start(rig.pci(), rig.host(), interval="0.5s")
        running.tick(2)
        rig.tree.die("0000:0f:00.0")
        rig.kernel.says("NVRM: Xid (PCI:0000:11:00): 79, GPU has fallen off the bus.")
        running.line("incident .* opened")

Everything waits for something that happens, with a deadline, and nothing for time to pass. When the rig is left, also by
an exception, disks are thawed and unmounted, every process that descends from the rig has ended, and its folders are gone.
"""

from __future__ import annotations

import json
import os
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest

from tests.daemon.pace import Pace
from tests.fakes import uevents
from tests.fakes.nvml_library import NvmlLibrary
from tests.fakes.sysfs import two_switch_host
from xidwatch.records import Damage, journal, samples
from xidwatch.records.journal import Entry

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
MEMORY = Path("/dev/shm")  # a tmpfs on every Linux, as /run is
PATIENCE_SECONDS = 60.0  # against hanging, and no promise: a busy machine takes its time
POLL_MS = 20
MARK = "XIDWATCH_TEST_RIG"


# -------------------------------------------------------------------------------------------------------- waiting


def poll_until(what: str, wanted: Callable[[], T | None], seconds: float = PATIENCE_SECONDS) -> T:
    """The first truthy answer. For what announces itself nowhere: looked at every 20 ms."""
    idle = select.poll()
    deadline = time.monotonic() + seconds
    while not (found := wanted()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        idle.poll(POLL_MS)
    return found


def open_gate(gate: Path) -> None:
    """Let through whoever waits at a FIFO, as soon as somebody does."""
    os.close(wait_at_gate(gate))


def wait_at_gate(gate: Path) -> int:
    """Wait until somebody waits at a FIFO; it lets him through when the descriptor is closed."""

    def opened() -> int:
        try:
            return os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # ENXIO: nobody yet
            return 0

    return poll_until(f"somebody waits at {gate}", opened)


def has_ended(pid: int, seconds: float) -> bool:
    """Whether a process has ended within so long (a zombie has)."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


# ---------------------------------------------------------------------------------------------------- kernel log


class KernelPipe:
    """A FIFO that says what /dev/kmsg would say. Held open for reading too, so that it never ends and keeps what nobody reads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._said = bytearray()
        self.seq = 100

    def says(self, *texts: str, facility: int = 0, level: int = 4, flags: str = "c") -> float:
        """One record for each text; the monotonic time at which the last was written."""
        usec = int(time.monotonic() * 1e6)
        records = []
        for text in texts:
            records.append(f"{facility * 8 + level},{self.seq},{usec},{flags};{text}\n")
            self.seq += 1
        self._said += "".join(records).encode()
        self.write("".join(records).encode())
        return time.monotonic()

    def rewind(self) -> None:
        """All that was ever said is there again, for the next who opens it: the device keeps what has been read, a FIFO does not."""
        with suppress(BlockingIOError):
            while os.read(self._descriptor, 65536):
                pass
        self.write(bytes(self._said))

    def write(self, data: bytes) -> None:
        """All of it, as fast as it is read."""
        writable = select.poll()
        writable.register(self._descriptor, select.POLLOUT)
        view = memoryview(data)
        while view:
            assert writable.poll(PATIENCE_SECONDS * 1000), "nobody reads the kernel log"
            view = view[os.write(self._descriptor, view[:4096]) :]

    def end(self) -> None:
        """Nobody writes to it any more: who reads gets its end."""
        os.close(self._descriptor)
        self._descriptor = -1

    def close(self) -> None:
        if self._descriptor >= 0:
            self.end()


class UeventPipe:
    """A FIFO that announces what the kernel would (see `tests.fakes.uevents`)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def announce(self, action: str, address: str, class_code: str = "30000") -> float:
        """One announcement about a PCI function; the monotonic time at which it was written."""
        event = {"ACTION": action, "SUBSYSTEM": "pci", "PCI_SLOT_NAME": address, "PCI_CLASS": class_code}
        os.write(self._descriptor, uevents.record(event))
        return time.monotonic()

    def close(self) -> None:
        os.close(self._descriptor)


# ---------------------------------------------------------------------------------------------------------- disks


class LoopDisk:
    """A small ext4 filesystem of its own that can be frozen: whoever writes to it then waits in uninterruptible sleep. Needs root."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.path = folder / "mounted"
        self.path.mkdir()
        image = folder / "disk.img"
        with image.open("wb") as file:
            file.truncate(32 * 1024 * 1024)
        _command("mkfs.ext4", "-q", "-F", str(image))
        try:
            _command("mount", "-o", "loop", str(image), str(self.path))
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no loop device can be mounted here: {error.stderr.strip()}")
        self.frozen = False

    def freeze(self) -> None:
        _command("fsfreeze", "-f", str(self.path))
        self.frozen = True

    def thaw(self) -> None:
        if self.frozen:
            _command("fsfreeze", "-u", str(self.path))
            self.frozen = False

    def unmount(self) -> None:
        _command("umount", str(self.path))


def _command(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


# ------------------------------------------------------------------------------------------------------ processes


@dataclass(frozen=True, slots=True)
class Process:
    """`name` is what the nursery called it (`pci`, `recorder`, `dump`), `nursery`, or `daemon`."""

    pid: int
    name: str
    state: str  # R, S, D, Z ...


def _process(pid: int, mark: bytes) -> Process | None:
    folder = Path(f"/proc/{pid}")
    try:
        if mark not in (folder / "environ").read_bytes():
            return None
        comm = (folder / "comm").read_text().strip()
        words = (folder / "cmdline").read_bytes().split(b"\0")
        state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # ended while it was looked at, or somebody else's
        return None
    if comm.startswith("xw-"):
        return Process(pid, comm.removeprefix("xw-"), state)
    return Process(pid, "nursery" if b"xidwatch.daemon.nursery" in words else "daemon", state)


# ----------------------------------------------------------------------------------------------------- the daemon


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the daemon's log as it arrived, without its clock time."""

    at: float  # monotonic
    text: str


@dataclass(slots=True)
class Running:
    """One daemon from its start to its end, as seen from outside."""

    process: subprocess.Popen[bytes]
    run_dir: Path
    state_dir: Path
    errors: Path
    pace: Pace
    probes: frozenset[str] = frozenset()  # by name, of those that it was given
    lines: list[Line] = field(default_factory=list)
    _half: bytes = b""
    _poll: select.poll = field(default_factory=select.poll)

    def __post_init__(self) -> None:
        assert self.process.stdout
        os.set_blocking(self.process.stdout.fileno(), False)
        self._poll.register(self.process.stdout, select.POLLIN)

    @property
    def pid(self) -> int:
        return self.process.pid

    # --- listening

    def hear(self, wait_ms: int = 0) -> None:
        """Take in what has been said; wait so long for something."""
        assert self.process.stdout
        self._poll.poll(wait_ms)
        while data := self._read(self.process.stdout.fileno()):
            *whole, self._half = (self._half + data).split(b"\n")
            now = time.monotonic()
            self.lines += [Line(now, line.decode().partition(" ")[2]) for line in whole]

    @staticmethod
    def _read(descriptor: int) -> bytes:
        try:
            return os.read(descriptor, 65536)
        except BlockingIOError:
            return b""

    def until(self, what: str, wanted: Callable[[], T | None], seconds: float = PATIENCE_SECONDS) -> T:
        """The first truthy answer of `wanted`, asked again whenever the daemon says something, and every 20 ms."""
        deadline = time.monotonic() + seconds
        while True:
            self.hear()
            if found := wanted():
                return found
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}\n{self.story()}"
            self.hear(POLL_MS)

    def line(self, pattern: str, *, after: int = 0, seconds: float = PATIENCE_SECONDS) -> Line:
        """The first line that matches, said already or soon; `after`: not among the first so many lines."""
        return self.until(f"a line like {pattern!r}", lambda: self.find(pattern, after=after), seconds)

    def find(self, pattern: str, *, after: int = 0) -> Line | None:
        """The first line that matches among those heard."""
        return next((line for line in self.lines[after:] if re.search(pattern, line.text)), None)

    def story(self) -> str:
        """What it has said, for whoever has to find out why a test failed."""
        said = "\n".join(f"{line.at:.3f} {line.text}" for line in self.lines[-60:])
        return f"--- said\n{said}\n--- errors\n{self.errors.read_text()[-4000:]}"

    # --- ticks

    def tick_lines(self) -> dict[int, Line]:
        """Number to line, of every tick heard of."""
        found = ((re.match(r"tick (\d+) ", line.text), line) for line in self.lines)
        return {int(match[1]): line for match, line in found if match}

    def tick(self, number: int, seconds: float = PATIENCE_SECONDS) -> Line:
        """The line of that tick, or of the first after it."""
        return self.line(rf"^tick ({'|'.join(map(str, range(number, number + 50)))}) ", seconds=seconds)

    def settle(self, ticks: int = 2, without: str = "") -> None:
        """Wait until every probe, without one that cannot, has answered in full at the same tick, and for so many ticks.

        Before, they are still starting, and a busy host lets them wait.
        """
        wanted = self.probes - {without}
        self.until(f"{', '.join(sorted(wanted))} have answered", lambda: self._answer(wanted))
        self.tick(ticks)

    def _answer(self, wanted: frozenset[str]) -> bool:
        shown = self.state()
        return shown.get("pid") == self.pid and all(shown["probes"].get(name, {}).get("success") for name in wanted)

    def ticks_more(self, count: int) -> int:
        """Wait for so many further ticks; the number of the last."""
        self.hear()
        number = max(self.tick_lines(), default=0) + count
        self.tick(number)
        return number

    # --- looking

    def state(self) -> dict[str, Any]:
        """state.json, whatever its age; empty when there is none."""
        try:
            return dict(json.loads((self.run_dir / "state.json").read_bytes()))
        except FileNotFoundError:
            return {}

    def condition(self, type_: str, subject: str) -> str:
        """Its status in state.json, or nothing."""
        found = (c for c in self.state().get("conditions", ()) if (c["type"], c["subject"]) == (type_, subject))
        return str(next(found, {"status": ""})["status"])

    def until_condition(self, type_: str, subject: str, status: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until state.json says so."""
        self.until(f"{type_} {subject} {status}", lambda: self.condition(type_, subject) == status, seconds)

    def child(self, name: str) -> int:
        """The process number of a child, as the daemon wrote it down for its successor; 0 when there is none."""
        try:
            children = json.loads((self.run_dir / "children.json").read_bytes())["children"]
        except FileNotFoundError:
            return 0
        return next((int(child["pid"]) for child in reversed(children) if child["name"] == name), 0)

    def metrics_port(self) -> int:
        return int(self.until("the metrics port", self._port_text))

    def _port_text(self) -> str:
        path = self.run_dir / "metrics.port"
        return path.read_text().strip() if path.exists() else ""

    def metrics(self) -> dict[str, float]:
        """One scrape: series as printed, `xidwatch_probe_success{probe="pci"}`, to value."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port()}/metrics", timeout=PATIENCE_SECONDS) as page:
            lines = page.read().decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {series: float(value) for series, _, value in pairs}

    # --- ending

    def ask(self, request: Mapping[str, object]) -> dict[str, Any]:
        """Through the control socket."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(PATIENCE_SECONDS)
            sock.connect(str(self.run_dir / "control.sock"))
            sock.sendall(json.dumps(request).encode() + b"\n")
            return dict(json.loads(sock.makefile("rb").readline()))

    def terminate(self, seconds: float = PATIENCE_SECONDS) -> tuple[int, float]:
        """TERM; exit status and how long it took, in seconds."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        return self.ended(seconds), time.monotonic() - began

    def ours(self, seconds: float) -> float:
        """It has ended: of its last so many seconds those that the machine did not take from it, its children and their disks."""
        self.pace.close()
        return seconds - self.pace.held_up(self.pace.until - seconds, self.pace.until)

    def kill(self) -> None:
        """As the kernel does when memory runs out."""
        self.process.kill()
        self.ended()

    def ended(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Wait for its end; the exit status. What it said until then is heard, or it would wait for its reader."""
        self.until("the end of the daemon", lambda: has_ended(self.pid, 0), seconds)
        return self.process.wait()

    def forget(self) -> None:
        """It has ended: take its status, close its pipe."""
        self.process.wait(PATIENCE_SECONDS)
        self.pace.close()
        assert self.process.stdout
        self.process.stdout.close()


# -------------------------------------------------------------------------------------------------------- the rig


class Rig:
    """A stage for one daemon after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state_dir = folder / "state"
        self.kernel = KernelPipe(folder / "kmsg")
        self.uevents = UeventPipe(folder / "uevents")
        self.tree = two_switch_host(folder / "sys")
        self.steering = folder / "steering.json"
        self.further_modules: list[str] = []  # folders of Python modules, for every process of the daemon
        self.environment: dict[str, str] = {}  # for whoever is launched from now on, on top of the test's own
        self._mark = f"{MARK}={uuid.uuid4().hex}"
        self._disks: list[LoopDisk] = []
        self._started: list[Running] = []
        self._memory = Path(tempfile.mkdtemp(prefix="xidwatch-test-", dir=MEMORY))  # last: what fails before it leaves nothing
        self.run_dir = self._memory / "run"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- probes

    def pci(self, **changes: object) -> dict[str, object]:
        """The pci probe on the tree."""
        return self.probe("pci", "xidwatch.probes.pci:create", options={"root": str(self.tree.root)}, looks=True, **changes)

    def host(self) -> dict[str, object]:
        """The host probe on this host."""
        return self.probe("host", "xidwatch.probes.host:create")

    def nvml(self, **changes: object) -> dict[str, object]:
        """The nvml probe over the fake library, steered by `steer`."""
        options = {"gpus": 4, "steering": str(self.steering)}
        return self.probe("nvml", "tests.fakes.probes:steered_nvml", options=options, holds_driver=True, **changes)

    def driver(self, library: NvmlLibrary, **changes: object) -> dict[str, object]:
        """The nvml probe as shipped, through the real binding, over the fake library in C."""
        self.environment |= library.environment
        return self.probe("nvml", "xidwatch.probes.nvml:create", holds_driver=True, **changes)

    def engine(self, options: Mapping[str, object], **changes: object) -> dict[str, object]:
        """The engine probe, with its options."""
        return self.probe("engine", "xidwatch.probes.engine:create", options=options, **changes)

    def probe(self, name: str, target: str, **changes: object) -> dict[str, object]:
        """Any probe, as the fields of a ProbeSpec. What says nothing of deadlines gets the longest that fit into the interval."""
        return {"name": name, "target": target, **changes}

    def steer(self, **wanted: object) -> None:
        """What the NVML library does from the next tick on; see `tests.fakes.probes`."""
        beside = self.steering.with_suffix(".new")
        beside.write_text(json.dumps(wanted))
        beside.rename(self.steering)

    # --- starting

    def rules(self, **changes: Mapping[str, str]) -> Path:
        """A copy of the shipped rules with other times: `rules(ProbeStuck={"hold": "1s"})`."""
        folder = self.folder / "rules"
        shutil.copytree(ROOT / "rules", folder, dirs_exist_ok=True)
        path = folder / "conditions.toml"
        text = path.read_text()
        for name, settings in changes.items():
            for key, value in settings.items():
                text, count = re.subn(rf'(?ms)(^\[{name}\]\n(?:(?!^\[).)*?^{key} = )"[^"]*"', rf'\1"{value}"', text)
                assert count == 1, f"no {key} in [{name}]"
        path.write_text(text)
        return folder

    def start(
        self,
        *probes: Mapping[str, object],
        interval: str = "0.5s",
        metrics: str = "127.0.0.1:0",
        state_dir: Path | None = None,
        rules_dir: Path | None = None,
        config_path: Path | None = None,
        patience: Mapping[str, object] | None = None,
        wall_shift: Path | None = None,
        kernel_trouble: Path | None = None,
        boot_id: str = "",
        configured: Mapping[str, object] | None = None,
        once: bool = False,
    ) -> Running:
        """Start a daemon; it is on its way when this returns."""
        longest = 0.8 * float(interval.removesuffix("s"))
        deadlines = {"deadline_seconds": longest, "first_deadline_seconds": longest}
        settings = {
            "state_dir": str(state_dir or self.state_dir),
            "run_dir": str(self.run_dir),
            "config": {**self.config(interval, metrics), **(configured or {})},
            "config_path": str(config_path) if config_path else None,
            "rules_dir": str(rules_dir) if rules_dir else None,
            "specs": [{**deadlines, **probe} for probe in probes],
            "uevents": str(self.uevents.path),
            "patience": patience or {},
            "once": once,
        }
        settings |= {"wall_shift": str(wall_shift)} if wall_shift else {}
        settings |= {"kernel_trouble": str(kernel_trouble)} if kernel_trouble else {}
        settings |= {"boot_id": boot_id} if boot_id else {}
        path = self.folder / f"settings-{len(self._started)}.json"
        path.write_text(json.dumps(settings))
        names = frozenset(str(probe["name"]) for probe in probes)
        return self.launch("tests.fakes.launch", str(path), state_dir=state_dir, probes=names)

    def config(self, interval: str, metrics: str = "127.0.0.1:0") -> dict[str, object]:
        """The configuration as an operator would write it."""
        return {
            "interval": interval,
            "metrics": metrics,
            "kernel_log": str(self.kernel.path),
            "probes": {"pci": {"root": str(self.tree.root)}},
        }

    def launch(self, module: str, *words: str, state_dir: Path | None = None, probes: frozenset[str] = frozenset()) -> Running:
        """`python -m module words...` on this stage."""
        errors = self.folder / f"errors-{len(self._started)}.txt"
        name, _, mark = self._mark.partition("=")
        modules = os.pathsep.join([str(ROOT), *self.further_modules])
        environment = {**os.environ, **self.environment, name: mark, "PYTHONPATH": modules, "RUNTIME_DIRECTORY": str(self.run_dir)}
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *words],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        pace = Pace(process.pid, self._memory / f"pace-{len(self._started)}.jsonl")
        running = Running(process, self.run_dir, state_dir or self.state_dir, errors, pace, probes)
        self._started.append(running)
        return running

    def loop_disk(self) -> LoopDisk:
        """A disk to be frozen; see to `@pytest.mark.root`."""
        disk = LoopDisk(self.folder / f"disk-{len(self._disks)}")
        self._disks.append(disk)
        return disk

    # --- looking

    def processes(self, name: str = "") -> list[Process]:
        """Everything alive that descends from this rig, also what has been orphaned; with a name only those of that name."""
        mark = self._mark.encode()
        found = [_process(int(entry.name), mark) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [process for process in found if process and process.state not in "ZX" and name in ("", process.name)]

    def journal(self, state_dir: Path | None = None) -> list[Entry]:
        """Every record; a damaged one fails the test."""
        problems: list[Damage] = []
        entries = list(journal.read(state_dir or self.state_dir, since=None, problems=problems))
        assert not problems
        return entries

    def rows(self, state_dir: Path | None = None) -> list[samples.Row]:
        """Every row; a damaged one fails the test."""
        problems: list[Damage] = []
        files = samples.files((state_dir or self.state_dir) / samples.FOLDER)
        rows = [row for path in files for row in samples.read(path, problems)]
        assert not problems
        return rows

    # --- judging what was promised

    def ours(self, begin: float, end: float, *names: str) -> float:
        """Of the seconds between two monotonic times those that the machine did not take from these processes; see `tests.daemon.pace`."""
        return end - begin - sum(running.pace.held_up(begin, end, *names) for running in self._started)

    def most_late(self, rows: list[samples.Row], interval: float) -> float:
        """By how much a tick of one run began behind its plan at most, in seconds; what the machine took from the daemon is not counted."""
        begun = [(row.wall - time.time() + time.monotonic(), late) for row, late in lateness(rows, interval)]
        return max(self.ours(at - late, at, "daemon") for at, late in begun)

    def given_time(self, rows: list[samples.Row], *probes: str, within: float) -> list[samples.Row]:
        """Those in which the machine left these probes at least half of so many seconds to answer in."""
        begun = [(row.wall - time.time() + time.monotonic(), row) for row in rows]
        return [row for at, row in begun if self.ours(at, at + within, "daemon", *probes) > within / 2]

    # --- leaving

    def close(self) -> None:
        """Leave nothing behind: every step is taken, whatever becomes of the one before."""
        with ExitStack() as last_first:
            last_first.callback(shutil.rmtree, self._memory)
            last_first.callback(self.kernel.close)
            last_first.callback(self.uevents.close)
            for disk in self._disks:
                last_first.callback(disk.unmount)
            for running in self._started:
                last_first.callback(running.forget)
            last_first.callback(self.end_everybody)
            for disk in self._disks:
                last_first.callback(disk.thaw)

    def end_everybody(self) -> None:
        """KILL to all that is left, until none is: one that is just being born is caught the next time."""
        while left := self.processes():
            for process in left:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            for process in left:
                assert has_ended(process.pid, PATIENCE_SECONDS), process


# ------------------------------------------------------------------------------------------- what records must keep


def lateness(rows: list[samples.Row], interval: float) -> list[tuple[samples.Row, float]]:
    """Each row of one run, and by how much its tick began behind its plan, in seconds.

    Plans are an interval apart. The tick nearest to its plan says where they are; what one left out because it was late moves those
    behind it, and is its own lateness.
    """
    first = min(row.wall - row.tick * interval for row in rows)
    found, left_out = [], 0
    for row in rows:
        late = row.wall - first - (row.tick + left_out) * interval
        found.append((row, late))
        left_out += int(late // interval)
    return found


def answered(rows: list[samples.Row], probe: str) -> list[samples.Row]:
    """Those in which this probe has answered in full: on a busy host one may come too late at any time."""
    return [row for row in rows if row.cells.get(f"probe:{probe}:success") == "1"]


def settled(rows: list[samples.Row], *probes: str) -> list[samples.Row]:
    """From the first row in which all these probes have answered: before, they are still starting, which a busy host takes its time for."""
    begun = next(n for n, row in enumerate(rows) if all(row.cells.get(f"probe:{name}:success") == "1" for name in probes))
    return rows[begun:]


def numbers(entries: list[Entry]) -> list[int]:
    """The numbers of the records, in the order of the file."""
    return [int(entry.id.rpartition("-")[2]) for entry in entries]


def missing_reasons(entries: list[Entry], column: str) -> list[str | None]:
    """The reasons on record for one column, in order; None where it came back."""
    return [entry.body["reason"] for entry in entries if entry.kind == "missing" and column in entry.body["columns"]]


def free_port() -> int:
    """A port of loopback that nobody listens on, and that the kernel gives to nobody who asks for any."""
    lowest_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(lowest_given // 2, lowest_given), 100):
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")
