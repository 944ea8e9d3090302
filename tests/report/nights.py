"""Nights as the daemon would have recorded them: state directories built record by record, for every test of the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from xidwatch.clock import from_iso, iso
from xidwatch.core.model import (
    Action,
    ActionKind,
    Incident,
    KernelEvent,
    Missing,
    Moment,
    Outcome,
    PciAddress,
    Severity,
    Status,
    Subject,
    Transition,
)
from xidwatch.records import dumps, files, journal, samples
from xidwatch.records.journal import Record

DAY = "2026-09-17"
BOOT_A = "5f0c1111-0000-4000-8000-000000000001"
BOOT_B = "7a1b2222-0000-4000-8000-000000000002"
BOOTED = {BOOT_A: "01:10:00", BOOT_B: "02:19:40"}
GPUS = tuple(Subject("gpu", f"0000:{bus}:00.0") for bus in ("11", "12", "13", "14"))
ROOT = Subject("port", "0000:00:03.1")
SWITCH = Subject("port", "0000:0f:00.0")
OTHER_SWITCH = Subject("port", "0000:02:00.0")
NVME = Subject("nvme", "0000:03:00.0")
STUCK = Subject("probe", "pci")
CRITICAL = Severity.CRITICAL
LOST = "20260917T021008Z-gpu-lost-11"
SAMPLED = "20260917T021008Z-bus-lost-0f"
EARLIER = "20260917T014200Z-probe-stuck-pci"
ALL_ONES = "config_dword0 ffffffff"
BY_HAND = "not started by systemd: nothing restarts this process"
HOST_CELLS = {
    "host:load_1m": "3.1",
    "host:cpu_busy_ratio": "0.12",
    "host:memory_available_bytes": "120300000000",
    "host:tasks_blocked": "0",
}
DRIVER_COLUMNS = ("power_mean_watts", "power_peak_watts", "power_limit_watts", "temperature_celsius")
WORDS = {ROOT: "14831022", SWITCH: "c0101000", OTHER_SWITCH: "c0101000", NVME: "a80a144d"}


def xid_line(number: int, gpu: Subject, text: str) -> str:
    return f"NVRM: Xid (PCI:{gpu.name[:-2]}): {number}, {text}"


def wall(time: str) -> float:
    """Of that day, seconds since the epoch."""
    return from_iso(f"{DAY}T{time}Z")


class Pen:
    """Writes a state directory. Ids are counted; the monotonic clock runs from the boot's start."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.boot = BOOT_A
        self._number = 0
        self._lines: list[bytes] = []
        self._rows: list[samples.Row] = []

    def at(self, time: str) -> Moment:
        return Moment(wall(time), wall(time) - wall(BOOTED[self.boot]))

    def id(self, letter: str) -> str:
        self._number += 1
        return f"{letter}-{self._number:06d}"

    def write(self, record: Record) -> None:
        self._lines.append(msgspec.json.encode(record) + b"\n")

    def record(self, time: str, kind: str, **body: object) -> None:
        self.write(journal.record(kind, self.id("r"), self.at(time), self.boot, body))

    def edge(
        self,
        time: str,
        subject: Subject,
        type_: str,
        after: Status = Status.TRUE,
        *,
        reason: str = "",
        before: Status = Status.FALSE,
        since: str | None = None,
        incident: str | None = LOST,
        severity: Severity = CRITICAL,
        missing: Missing | None = None,
    ) -> str:
        name = self.id("t")
        not_before = self.at(since) if since else None
        edge = Transition(name, self.at(time), subject, type_, before, after, severity, reason, not_before, incident, missing)
        self.write(journal.transition(edge, self.boot))
        return name

    def opened(self, time: str, name: str, trigger: str, severity: Severity = CRITICAL) -> None:
        incident = Incident(name, self.at(time), trigger, severity, frozenset())
        self.write(journal.opened(incident, self.id("i"), self.at(time), self.boot))

    def closed(self, time: str, name: str, began: str) -> None:
        incident = Incident(name, Moment(wall(began), 0.0), "t", CRITICAL, frozenset())
        self.write(journal.closed(incident, self.id("i"), self.at(time), self.boot))

    def action(self, time: str, kind: ActionKind, cause: str, incident: str | None = None, unit: str = "") -> str:
        name = self.id("a")
        self.write(journal.action(Action(name, self.at(time), kind, cause, incident, unit), self.boot))
        return name

    def outcome(self, time: str, action: str, result: str = "ok", took_ms: int = 12, detail: str = "") -> None:
        self.write(journal.outcome(Outcome(self.id("o"), self.at(time), action, result, took_ms, detail), self.boot))

    def kernel(
        self, time: str, seq: int, text: str, *, kind: str = "xid", xid: int | None = None, pci: str | None = None,
        severity: Severity = CRITICAL, injected: bool = False, repeated: int = 1,
    ) -> str:  # fmt: skip
        name = self.id("k")
        address = PciAddress.parse(pci) if pci else None
        event = KernelEvent(seq, seq * 1000, kind, severity, text, xid=xid, pci=address, injected=injected, repeated=repeated)
        self.write(journal.kernel(event, name, self.at(time), self.boot))
        return name

    def xid(self, time: str, seq: int, number: int, gpu: Subject, text: str, severity: Severity = CRITICAL) -> None:
        self.kernel(time, seq, xid_line(number, gpu, text), xid=number, pci=gpu.name, severity=severity)

    def started(self, time: str, *, off: tuple[str, ...] = (), remark_first: bool = False, **more: str) -> None:
        """A start; old journals have the remark first."""
        probes = {name: {"enabled": name not in off} for name in ("nvml", "pci", "host")}
        if remark_first:
            self.remark(time, BY_HAND, "start:systemd")
        self.record(time, "started", version="0.1.0", pid=4242, settings={"interval": "30s", "probes": probes}, **more)
        if not remark_first:
            self.remark(time, BY_HAND, "start:systemd")

    def remark(self, time: str, text: str, key: str = "x") -> None:
        self.record(time, "note", remark=key, text=text)

    def tick(self, time: str, number: int, *, gone: bool = False, cells: Mapping[str, str] | None = None) -> None:
        found = device_cells(gone=gone) | dict(cells or {})
        found |= {
            "host:load_1m": "3.1",
            "host:cpu_busy_ratio": "0.12",
            "host:memory_available_bytes": "120300000000",
            "host:tasks_blocked": "0",
        }
        self._rows.append(samples.Row(time=iso(wall(time)), boot_id=self.boot, tick=number, cells=found))

    def dump(self, name: str, *, complete: bool = True) -> Path:
        """An evidence folder of three parts, one of which came too late."""
        folder = self.state_dir / dumps.FOLDER / name
        parts = (
            dumps.Part(name="010-samples.csv", stage=1, started=f"{DAY}T02:10:08.430Z", took_ms=3, status="ok", bytes=81234, sha256="00"),
            dumps.Part(name="020-kernel.txt", stage=1, started=f"{DAY}T02:10:08.433Z", took_ms=2, status="ok", bytes=20480, sha256="00"),
            dumps.Part(
                name="040-config-space.txt", stage=1, started=f"{DAY}T02:10:08.440Z", took_ms=5000, status="timeout", bytes=512,
                note="TimeoutError: its deadline passed",
            ),
        )  # fmt: skip
        state = "complete" if complete else "writing"
        manifest = dumps.Manifest(incident=name, boot_id=self.boot, trigger="t-1", state=state, parts=parts)
        folder.mkdir(parents=True)
        (folder / dumps.MANIFEST).write_bytes(msgspec.json.encode(manifest))
        return folder

    def finish(self, tail: bytes = b"") -> Path:
        """Put everything on the disk; `tail` is what a crash left behind the last whole line."""
        path = self.state_dir / journal.FOLDER / f"{DAY}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(self._lines) + tail)
        if self._rows:
            (self.state_dir / samples.FOLDER).mkdir(exist_ok=True)
            lines = files.LineFiles()
            writer = samples.SampleFile(self.state_dir / samples.FOLDER, 30, lines)
            for row in self._rows:
                writer.append(row)
            lines.release()
        return self.state_dir


def device_cells(*, gone: bool) -> dict[str, str]:
    """A row's cells for the devices; `gone`: the switch and all below it."""
    cells: dict[str, str] = {}
    for index, gpu in enumerate(GPUS):
        values = {
            "power_mean_watts": f"{246.1 + index}", "power_peak_watts": f"{402.7 + index}", "temperature_celsius": f"{60 + index}",
            "nvml_status": "0", "link_gts": "16", "link_width": "16", "config_dword0": "220410de",
        }  # fmt: skip
        cells |= {f"{gpu}:{name}": "" if gone else value for name, value in values.items()}
    for subject, word in WORDS.items():
        dead = gone and subject == SWITCH
        cells |= {f"{subject}:config_dword0": "ffffffff" if dead else word, f"{subject}:link_gts": "" if dead else "16"}
    return cells


def quiet(state_dir: Path) -> Path:
    """(b) Nothing happened: two ticks, an application's Xid, a clean end."""
    pen = Pen(state_dir)
    pen.started("02:00:00")
    pen.record("02:00:00.100", "missing", reason="UNSUPPORTED", columns=[f"{gpu}:recovery_action" for gpu in GPUS])
    pen.record("02:00:00.200", "note", remark="hwmon:none", text="hwmon: no sensor chip is registered, so board rails cannot be read")
    pen.tick("02:00:00", 1)
    pen.xid("02:00:12.500", 900, 31, GPUS[0], "pid=77, name=python, MMU Fault", Severity.ERROR)
    pen.tick("02:00:30", 2)
    pen.record("02:00:45", "stopped", why="SIGTERM", pid=4242)
    return pen.finish()


RAIL = Subject("rail", "psu1_12v")


def uneasy(state_dir: Path) -> Path:
    """(j) No incident, and not quiet: a rail that sags twice, two cards on few lanes until the host is restarted, another one since."""
    pen = Pen(state_dir)
    pen.started("01:50:00")
    for began, over in (("02:00:30", "02:02:00"), ("02:10:30", "02:11:00")):
        low = {"incident": None, "severity": Severity.WARNING, "since": "01:59:30"}
        pen.edge(began, RAIL, "RailOutOfRange", reason="volts 11.28", **low)  # type: ignore[arg-type]
        pen.edge(over, RAIL, "RailOutOfRange", Status.FALSE, before=Status.TRUE, reason="volts 11.9", incident=None)
    for gpu in GPUS[:2]:
        pen.edge("02:04:00", gpu, "LinkWidthBelowBaseline", reason="link_width 4", incident=None, severity=Severity.WARNING)
    pen.tick("02:11:30", 2)
    pen.boot = BOOT_B
    pen.started("02:20:01")
    pen.edge("02:20:30", GPUS[2], "DeviceReplaced", reason="uuid GPU-2", incident=None, severity=Severity.WARNING)
    return pen.finish()


def begin(pen: Pen, *, old: bool = False) -> None:
    """An hour before."""
    pen.started("01:10:05", remark_first=old)
    pen.record("01:10:05.200", "missing", reason="UNSUPPORTED", columns=[f"{gpu}:recovery_action" for gpu in GPUS])


def fall(pen: Pen, *, old: bool = False) -> None:
    """The second in which four GPUs and their switch go, and what the daemon does about it.

    A kernel line's record stands behind the edges that it brought; in `old` journals it stands before them.
    """
    for minute in range(10):
        pen.tick(f"02:0{minute}:08", 2 * minute + 100)
        pen.tick(f"02:0{minute}:38.004", 2 * minute + 101)
    pen.record("02:04:00", "note", text="load test begins", uid=0)
    pen.kernel("02:10:07", 89_999, "NVRM: Xid (PCI:0000:11:00): 79, \x1b[31mfun", xid=79, pci="0000:11:00.0", injected=True)
    for index, gpu in enumerate(GPUS):
        _gpu_falls(pen, index, gpu, old=old)
    for gpu in GPUS:
        pen.xid(
            "02:10:08.470", 90_020 + GPUS.index(gpu), 154, gpu, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
        )
    pen.kernel("02:10:08.500", 90_030, "NVRM: GPU 0: GSP is dead", kind="gsp", pci=GPUS[0].name)


def _gpu_falls(pen: Pen, index: int, gpu: Subject, *, old: bool) -> None:
    time, seq = f"02:10:08.41{2 + index}", 90_000 + index
    text = "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    reason = f"kernel: {xid_line(79, gpu, text)}"
    if old:
        pen.xid(time, seq, 79, gpu, text)
    lost = pen.edge(time, gpu, "GpuLost", reason=reason)
    dump = ""
    if index == 0:
        pen.opened(time, LOST, lost)
        dump = pen.action(time, ActionKind.TAKE_DUMP, lost, LOST)
    fatal = pen.edge(time, gpu, "DriverFatalXid", reason=reason)
    if not old:
        pen.xid(time, seq, 79, gpu, text)
    if index == 0:
        _what_is_done(pen, time, fatal, dump)


def _what_is_done(pen: Pen, time: str, fatal: str, dump: str) -> None:
    look = pen.action(time, ActionKind.LOOK, fatal)
    release = pen.action(time, ActionKind.RELEASE_DRIVER, fatal)
    pen.outcome("02:10:08.418", release, took_ms=0)
    pen.edge("02:10:08.520", SWITCH, "ConfigSpaceAllOnes", reason=ALL_ONES, since="02:09:38.004")
    for behind in GPUS:
        reason = f"BEHIND_DEAD_PARENT: {SWITCH} does not answer"
        pen.edge("02:10:08.520", behind, "ConfigSpaceAllOnes", Status.UNKNOWN, reason=reason, missing=Missing.BEHIND_DEAD_PARENT)
    pen.outcome("02:10:08.521", look, took_ms=104)
    pen.outcome("02:10:08.640", dump, took_ms=212, detail="040-config-space.txt timeout")


def supply_trip(state_dir: Path) -> Path:
    """(a) The whole night: the fall, the machine dying, a reboot, recovery."""
    pen = Pen(state_dir)
    begin(pen)
    fall(pen)
    columns = [
        f"{gpu}:{name}" for gpu in GPUS for name in ("power_mean_watts", "power_peak_watts", "power_limit_watts", "temperature_celsius")
    ]
    pen.record("02:10:38.020", "missing", reason="NOT_ASKED", columns=columns)
    pen.record("02:10:38.021", "missing", reason="BEHIND_DEAD_PARENT", columns=[f"{gpu}:config_dword0" for gpu in GPUS])
    pen.kernel("02:10:38.030", 90_000, "NVRM: Xid (PCI:0000:11:00): 79, again", xid=79, pci="0000:11:00.0", repeated=3)
    pen.write(journal.gap("kmsg", 311, pen.id("g"), pen.at("02:10:40"), pen.boot))
    pen.tick("02:10:38.004", 120, gone=True)
    pen.tick("02:12:38.004", 124, gone=True)
    pen.dump(LOST)
    pen.boot = BOOT_B
    pen.started("02:20:01")
    pen.tick("02:20:01.100", 1)
    pen.record("02:24:00", "note", text="both PSUs on, board feed and switch feeds swapped", uid=0)
    pen.record("02:24:30", "uevent", action="bind", subsystem="pci", name="0000:11:00.0")
    for gpu in GPUS:
        for type_ in ("ConfigSpaceAllOnes", "GpuLost", "DriverFatalXid"):
            pen.edge("02:25:31.100", gpu, type_, Status.FALSE, reason="bus_lost_lines 0", before=Status.UNKNOWN)
    pen.edge("02:25:31.100", SWITCH, "ConfigSpaceAllOnes", Status.FALSE, reason="config_dword0 c0101000", before=Status.UNKNOWN)
    pen.closed("02:25:31.100", LOST, "02:10:08.412")
    pen.tick("02:25:31.100", 12)
    pen.record("02:40:00", "stopped", why="SIGTERM", pid=4243)
    return pen.finish()


def engine_stopped(state_dir: Path, *, back: bool = True) -> Path:
    """The fall with an engine on it: stopped, held over the reboot; with `back` proven and started again after all is good."""
    pen = Pen(state_dir)
    unit = "vllm.service"
    begin(pen)
    fall(pen)
    pen.record("02:10:08.650", "gate", unit=unit, before="RUNNING", state="STOPPING", why="4 of 4 GPUs lost")
    stop = pen.action("02:10:08.651", ActionKind.STOP_ENGINE, "g-1", LOST, unit)
    pen.outcome("02:10:20.700", stop, "leftovers", 12_049, "4711 VLLM::Worker_TP0, state D in uvm_va_space")
    pen.record("02:10:20.701", "gate", unit=unit, before="STOPPING", state="HELD", why="4711 VLLM::Worker_TP0 cannot be ended")
    pen.boot = BOOT_B
    pen.started("02:20:01")
    pen.edge("02:25:31.100", SWITCH, "ConfigSpaceAllOnes", Status.FALSE, reason="config_dword0 c0101000", before=Status.UNKNOWN)
    pen.closed("02:25:31.100", LOST, "02:10:08.412")
    pen.record("02:25:31.200", "gate", unit=unit, before="HELD", state="PROVING", why="nothing speaks against it")
    pen.record("02:26:01.200", "gate", unit=unit, before="PROVING", state="PROVING", why="every proof holds; it has to settle")
    if back:
        start = pen.action("02:26:31.300", ActionKind.START_ENGINE, "g-2", None, unit)
        pen.record("02:26:31.301", "gate", unit=unit, before="PROVING", state="STARTING", why="every proof held for 60 s")
        pen.outcome("02:28:40.000", start, "ready", 128_700)
        pen.record("02:28:40.001", "gate", unit=unit, before="STARTING", state="RUNNING", why="")
    pen.record("02:30:00", "note", text="long after", uid=0)
    pen.record("02:31:00", "gate", unit=unit, before="RUNNING", state="OFF", why="stopped by somebody else")
    return pen.finish()


def torn(state_dir: Path) -> Path:
    """(c) The machine died in the dump: the incident is open, the last line torn, the manifest was never written. An old journal."""
    pen = Pen(state_dir)
    begin(pen, old=True)
    fall(pen, old=True)
    folder = pen.dump(LOST)
    (folder / dumps.MANIFEST).unlink()
    (folder / "010-samples.csv").write_text("time\n")
    return pen.finish(b'{"v":1,"id":"r-0003')


def two(state_dir: Path) -> Path:
    """(d) A stuck probe earlier that night, then the fall."""
    pen = Pen(state_dir)
    begin(pen)
    reason = "stuck_seconds 46"
    trigger = pen.edge("01:42:00", STUCK, "ProbeStuck", reason=reason, since="01:41:00", incident=EARLIER, severity=Severity.ERROR)
    pen.opened("01:42:00", EARLIER, trigger, Severity.ERROR)
    pen.edge("01:44:00", STUCK, "ProbeStuck", Status.FALSE, before=Status.TRUE, reason="stuck_seconds 0", incident=EARLIER)
    pen.closed("01:44:00", EARLIER, "01:42:00")
    fall(pen)
    return pen.finish()


def sampled(state_dir: Path) -> Path:
    """(e) A switch port that a tick found dead; still open, nothing from the kernel."""
    pen = Pen(state_dir)
    pen.started("02:00:00")
    pen.tick("02:09:38.004", 20)
    trigger = pen.edge("02:10:08.006", SWITCH, "ConfigSpaceAllOnes", reason=ALL_ONES, since="02:09:38.004", incident=SAMPLED)
    pen.opened("02:10:08.006", SAMPLED, trigger)
    pen.action("02:10:08.006", ActionKind.TAKE_DUMP, trigger, SAMPLED)
    pen.tick("02:10:08.006", 21, cells={f"{SWITCH}:config_dword0": "ffffffff"})
    return pen.finish()


def many(state_dir: Path) -> Path:
    """(f) Quiet, over three runs that were blind in different ways, with notes by people."""
    pen = Pen(state_dir)
    pen.started("01:10:05", off=("pci",))
    pen.record("01:10:05.200", "missing", reason="UNSUPPORTED", columns=[f"{gpu}:recovery_action" for gpu in GPUS])
    pen.record("01:20:00", "missing", reason="TIMED_OUT", columns=[f"{GPUS[0]}:temperature_celsius"])
    pen.record("01:21:00", "missing", reason=None, columns=[f"{GPUS[0]}:temperature_celsius"])
    pen.write(journal.gap("kmsg", 311, pen.id("g"), pen.at("01:25:00"), pen.boot))
    pen.record("01:29:00", "note", text="swapped the riser of card 2", uid=0)
    pen.record("01:30:00", "stopped", why="SIGTERM", pid=4242)
    pen.started("01:40:00", off=("pci",), remark_first=True)
    pen.record("01:40:00.200", "missing", reason="UNSUPPORTED", columns=[f"{gpu}:recovery_action" for gpu in GPUS])
    pen.remark("01:41:00", "nvml: NVMLError_DriverNotLoaded: the module is not loaded", "nvml:x")
    pen.tick("01:50:00", 20)
    pen.started("02:00:00")
    pen.record("02:00:00.200", "missing", reason="UNSUPPORTED", columns=[f"{gpu}:recovery_action" for gpu in GPUS])
    pen.record("02:04:00", "note", text="load test begins", uid=0)
    pen.tick("02:05:00", 10)
    return pen.finish()
