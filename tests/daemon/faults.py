"""The two edges of the fault matrix: what can go wrong (a row of FAULTS), and with which source (a row of SOURCES).

A new probe is a class here and its name in SOURCES; a new fault is a row in FAULTS and, where it needs one, a method of Source.
"""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.daemon.harness import PATIENCE_SECONDS, LoopDisk, Rig, poll_until
from tests.fakes.engine import EngineHost, Page
from tests.fakes.hwmon import HwmonTree
from tests.fakes.nvml_library import NvmlLibrary

SILENT_BYTES = 64
LATE_SECONDS = 0.6  # the deadline of a daemon that asks twice a second is 0.4 s
SWITCH = "0000:0f:00.0"
RUBBISH = b"\x00\xff\xfe \n nan 99999999999999999999999999999\n"


# ---------------------------------------------------------------------------------------------------- a disk that dies


class SilentDisk:
    """A filesystem behind a disk that stops answering: whoever reads a file of it that is not in memory waits in D. Needs root.

    A disk image on a disk that can be frozen: a write that is under way there is what every later read waits behind.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        folder.mkdir()
        self._below = LoopDisk(folder / "below")
        self.path = folder / "mounted"
        self.path.mkdir()
        self._image = self._below.path / "disk.img"
        with self._image.open("wb") as file:
            file.truncate(8 * 1024 * 1024)
        _command("mkfs.ext4", "-q", "-F", str(self._image))
        self._mount()
        for name in names:
            self.silent(name).write_bytes(bytes(SILENT_BYTES))
        _command("umount", str(self.path))  # none of it is in memory any more
        self._mount()
        for entry in self.path.iterdir():
            entry.stat()
        self._writer: subprocess.Popen[bytes] | None = None

    def _mount(self) -> None:
        _command("mount", "-o", "loop", str(self._image), str(self.path))

    def silent(self, name: str) -> Path:
        """One of the files to be waited at, once."""
        return self.path / f"silent-{name}"

    def blocked(self, name: str) -> Path:
        """A file to be created: that waits too."""
        return self._below.path / name

    def freeze(self) -> None:
        """From now on."""
        self._below.freeze()
        words = ["dd", "if=/dev/zero", f"of={self.path / 'written'}", "bs=4096", "count=1", "oflag=direct,dsync", "status=none"]
        self._writer = subprocess.Popen(words)
        stat = Path(f"/proc/{self._writer.pid}/stat")
        poll_until("the writer waits", lambda: stat.read_text().rpartition(")")[2].split()[0] == "D")

    def thaw(self) -> None:
        """It answers again, also whoever waits."""
        self._below.thaw()
        if self._writer:
            self._writer.wait(PATIENCE_SECONDS)
            self._writer = None

    def unmount(self) -> None:
        """When nobody needs it any more. The kernel lets go of the image a little later than umount(8) returns."""
        _command("umount", str(self.path))
        poll_until("the image is let go", self._unmount_below)

    def _unmount_below(self) -> bool:
        try:
            self._below.unmount()
        except subprocess.CalledProcessError:
            return False
        return True


def _command(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


# ----------------------------------------------------------------------------------------------------------- sources


class Source(ABC):
    """One probe as shipped, over hardware in the test's hands.

    `cell` is the one that is empty under every fault that has none of its own in `cells`, `healthy` what stands there otherwise;
    `condition`, where there is one, is UNKNOWN while nothing is known of it. A fault in `copes_with` costs the reading and no more:
    the probe answers all the same.
    """

    name: str
    cell: str
    healthy: str
    cells: Mapping[str, tuple[str, str]] = {}
    copes_with: frozenset[str] = frozenset()
    condition: tuple[str, str] | None = None
    in_rubbish = "UNKNOWN"  # its status when what is read makes no sense
    driver = False

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.trouble = rig.folder / f"trouble-{self.name}"

    @property
    def probe(self) -> str:
        """As a subject."""
        return f"probe:{self.name}"

    def shown(self, fault: str) -> tuple[str, str]:
        """The cell that is empty under a fault, and what stands there otherwise."""
        return self.cells.get(fault, (self.cell, self.healthy))

    @abstractmethod
    def real(self) -> Mapping[str, object]:
        """The probe's fields of a ProbeSpec."""

    @abstractmethod
    def waits_at(self, place: Path) -> None:
        """It reads there from now on, which does not return: a FIFO, or a file of a disk that is silent."""

    def is_late(self) -> None:
        """It answers, but never within the deadline."""
        self.is_disturbed(f"late: {LATE_SECONDS}")

    @abstractmethod
    def talks_rubbish(self) -> None:
        """What it reads makes no sense."""

    @abstractmethod
    def mend(self) -> None:
        """All is as it was built."""

    def spec(self) -> dict[str, object]:
        """The real probe in a process that can be disturbed."""
        real = self.real()
        options = {"target": real["target"], "options": real.get("options", {}), "when": str(self.trouble)}
        return {**real, "target": "tests.fakes.probes:disturbed", "options": options}

    def is_disturbed(self, trouble: str) -> None:
        """Its process misbehaves; see `tests.fakes.probes.TROUBLES`."""
        beside = self.trouble.with_suffix(".new")
        beside.write_text(trouble)
        beside.rename(self.trouble)

    def crashes(self) -> None:
        """Its process ends in the middle of an answer."""
        self.is_disturbed("crash")

    def sleeps(self) -> None:
        """It waits for something that does not happen."""
        gate = self.rig.folder / f"gate-{self.name}"
        os.mkfifo(gate)  # which nobody ever writes to
        self.waits_at(gate)

    def floods(self) -> None:
        """More comes than anybody wants."""
        self.is_disturbed("flood")

    def close(self) -> None:
        """Nothing of it is left."""
        self.trouble.unlink(missing_ok=True)

    def waits_behind(self, disk: SilentDisk) -> None:
        """It reads a file of a disk that does not answer."""
        self.waits_at(disk.silent(self.name))

    def waits_for_ever(self, disk: SilentDisk) -> None:
        """It is in uninterruptible sleep that not even SIGKILL ends."""
        self.is_disturbed(f"create: {disk.blocked(self.name)}")


class FileSource(Source):
    """A probe that reads a folder: one file of it is what goes wrong."""

    @property
    @abstractmethod
    def file(self) -> Path:
        """The file that goes wrong."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig)
        self.build()
        self._good = self.file.read_bytes()

    def build(self) -> None:
        """Lay out what is to be read."""

    def waits_at(self, place: Path) -> None:
        """A link to there takes the place of the file."""
        link = self.file.with_name("swap")
        link.symlink_to(place)
        link.rename(self.file)

    def talks_rubbish(self) -> None:
        """Of a length that no number, and no register, has."""
        self._put(RUBBISH[:3])

    def mend(self) -> None:
        """The file as it was built."""
        self._put(self._good)

    def _put(self, data: bytes) -> None:
        beside = self.file.with_name("swap")
        beside.write_bytes(data)
        beside.rename(self.file)


class Pci(FileSource):
    """The first dword of the switch above four GPUs."""

    name = "pci"
    cell = f"port:{SWITCH}:config_dword0"
    healthy = "c0101000"
    condition = ("ConfigSpaceAllOnes", f"port:{SWITCH}")

    @property
    def file(self) -> Path:
        return self.rig.tree.folder(SWITCH) / "config"

    def real(self) -> Mapping[str, object]:
        return self.rig.pci()


class Hwmon(FileSource):
    """A rail that the operator has named."""

    name = "hwmon"
    cell = "rail:psu1_12v:volts"
    healthy = "12.096"
    condition = ("RailOutOfRange", "rail:psu1_12v")
    RAIL: Mapping[str, object] = {
        "name": "psu1_12v",
        "chip": "nct6798@platform/nct6775.656",
        "input": "in1",
        "factor": 12.0,
        "nominal_volts": 12.0,
        "tolerance_ratio": 0.05,
    }

    def build(self) -> None:
        self._tree = HwmonTree(self.rig.folder / "sensors")
        self._tree.board()

    @property
    def file(self) -> Path:
        return self._tree.chips[0].folder / "in1_input"

    def real(self) -> Mapping[str, object]:
        return self.rig.probe("hwmon", "xidwatch.probes.hwmon:create", options={"root": str(self._tree.root), "rails": [self.RAIL]})


class Host(FileSource):
    """A file of a copied /proc."""

    name = "host"
    cell = "host:load_1m"
    healthy = "1.25"
    FILES: Mapping[str, str] = {
        "loadavg": "1.25 0.50 0.25 1/84 7357\n",
        "uptime": "1141.64 2196.32\n",
        "stat": "cpu  100 0 50 9000 10 0 5 0 0 0\ncpu0 100 0 50 9000 10 0 5 0 0 0\nprocs_blocked 0\n",
        "meminfo": "MemTotal: 64000000 kB\nMemFree: 32000000 kB\nMemAvailable: 48000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
        "vmstat": "pswpin 0\npswpout 0\n",
    }

    def build(self) -> None:
        (self.rig.folder / "proc").mkdir()
        for name, text in self.FILES.items():
            (self.rig.folder / "proc" / name).write_text(text)

    @property
    def file(self) -> Path:
        return self.rig.folder / "proc/loadavg"

    def real(self) -> Mapping[str, object]:
        return self.rig.probe("host", "xidwatch.probes.host:create", options={"proc_root": str(self.rig.folder / "proc")})


class Nvml(Source):
    """The driver's library in C, behind the real binding."""

    name = "nvml"
    cell = "gpu:0000:11:00.0:power_average_watts"
    healthy = "250"
    condition = ("GpuLost", "gpu:0000:11:00.0")
    in_rubbish = "FALSE"  # a driver that answers, if not sensibly: the GPU is there
    driver = True
    OPEN = "nvmlDeviceGetHandleByPciBusId_v2"

    def __init__(self, rig: Rig, library: NvmlLibrary) -> None:
        super().__init__(rig)
        self._library = library

    def real(self) -> Mapping[str, object]:
        return self.rig.driver(self._library)

    def waits_at(self, place: Path) -> None:
        self._library.gpu(0, **{self.OPEN: f"read {place}"})

    def waits_for_ever(self, disk: SilentDisk) -> None:
        """Inside the library."""
        self._library.gpu(0, **{self.OPEN: f"create {disk.blocked(self.name)}"})

    def is_late(self) -> None:
        self._library.gpu(0, **{self.OPEN: f"sleep {LATE_SECONDS * 1000:.0f}"})

    def talks_rubbish(self) -> None:
        """All ones, as from a register behind a bus that is dead."""
        self._library.gpu(0, power_mw=0xFFFFFFFF)

    def crashes(self) -> None:
        self._library.gpu(0, **{self.OPEN: "abort"})

    def mend(self) -> None:
        self._library.gpu(0, **{self.OPEN: None, "power_mw": 250000})


class Engine(FileSource):
    """A unit with two processes and a page: systemctl, a control group and a server on loopback, each of which can fail alone."""

    name = "engine"
    UNIT = "vllm.service"
    cell, healthy = f"engine:{UNIT}:processes", "2"
    _OF_PAGE = (f"engine:{UNIT}:requests_running", "5")
    cells: Mapping[str, tuple[str, str]] = {
        "sleeping": (f"engine:{UNIT}:active_state", "active"),
        **dict.fromkeys(("late", "garbage read", "flood"), _OF_PAGE),
    }
    copes_with = frozenset(cells)
    SAYS = (Path(__file__).resolve().parents[2] / "fixtures/engine-metrics/vllm.txt").read_text()

    def build(self) -> None:
        self._host = EngineHost(self.rig.folder / "engines")
        for pid in (4711, 4712):
            self._host.process(pid)
        self._host.unit(self.UNIT, [4711, 4712])
        self._page = Page()
        self._page.__enter__()
        self._page.says(self.SAYS)

    @property
    def file(self) -> Path:
        return self._host.cgroup_root / "system.slice" / self.UNIT / "cgroup.procs"

    def real(self) -> Mapping[str, object]:
        return self.rig.engine({**self._host.options, "engines": [{"unit": self.UNIT, "metrics": self._page.url}]})

    def sleeps(self) -> None:
        """The bus does not answer."""
        self._host.systemctl("hang")

    def is_late(self) -> None:
        """A byte every now and then."""
        self._page.does("drip")

    def talks_rubbish(self) -> None:
        self._page.does("rubbish")

    def floods(self) -> None:
        self._page.does("flood")

    def mend(self) -> None:
        self._host.systemctl("answer")
        self._page.says(self.SAYS)
        super().mend()

    def close(self) -> None:
        let_through(self._host.gate)  # whoever was left waiting by a worker that was ended
        self._page.__exit__()


SOURCES: dict[str, Callable[[Rig, NvmlLibrary], Source]] = {
    "nvml": Nvml,
    "pci": lambda rig, _library: Pci(rig),
    "hwmon": lambda rig, _library: Hwmon(rig),
    "host": lambda rig, _library: Host(rig),
    "engine": lambda rig, _library: Engine(rig),
}


# ------------------------------------------------------------------------------------------------------------ faults


@dataclass(frozen=True)
class Fault:
    """`reasons`: what may be on record for the empty cell, the first of them first; `condition`: what becomes TRUE of the probe.

    `killable`: of a process stuck in it only who holds the driver stays, since all others are killed and replaced, over and over.
    """

    name: str
    begin: Callable[[Source, SilentDisk | None], None]
    reasons: tuple[str, ...]
    condition: str = ""
    killable: bool = False
    root: bool = False

    def lasting(self, source: Source) -> str:
        """The condition that is TRUE from its hold time until the fault is mended; empty when there is none."""
        if self.name in source.copes_with:
            return ""
        return "ProbeNotAnswering" if self.killable and not source.driver else self.condition


def _waits_behind_a_disk(source: Source, disk: SilentDisk | None) -> None:
    assert disk
    source.waits_behind(disk)


def _waits_for_ever(source: Source, disk: SilentDisk | None) -> None:
    assert disk
    source.waits_for_ever(disk)


def _disturbed(trouble: str) -> Callable[[Source, SilentDisk | None], None]:
    return lambda source, _disk: source.is_disturbed(trouble)


WAITED = ("TIMED_OUT", "NOT_ASKED")
ROWS = (
    Fault("sleeping", lambda source, _disk: source.sleeps(), WAITED, "ProbeStuck", killable=True),
    Fault("disk silent", _waits_behind_a_disk, WAITED, "ProbeStuck", killable=True, root=True),
    Fault("uninterruptible", _waits_for_ever, WAITED, "ProbeStuck", root=True),
    Fault("crash", lambda source, _disk: source.crashes(), ("TIMED_OUT",), "ProbeNotAnswering"),
    Fault("garbage read", lambda source, _disk: source.talks_rubbish(), ("MALFORMED",)),
    Fault("garbage said", _disturbed("rubbish"), ("MALFORMED",), "ProbeNotAnswering"),
    Fault("a lie", _disturbed("a lie"), ("MALFORMED",), "ProbeNotAnswering"),
    Fault("late", lambda source, _disk: source.is_late(), WAITED, "ProbeNotAnswering"),
    Fault("flood", lambda source, _disk: source.floods(), ("MALFORMED",), "ProbeNotAnswering"),
    Fault("half a line", _disturbed("half a line"), ("MALFORMED",), "ProbeNotAnswering"),
)
FAULTS: dict[str, Fault] = {row.name: row for row in ROWS}


def let_through(gate: Path) -> None:
    """Whoever waits at a FIFO goes on; nobody has to."""
    try:
        os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:  # ENXIO: nobody waits
        return
