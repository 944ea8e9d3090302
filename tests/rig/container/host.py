"""A host to try the service on: a container with xidwatch installed, and a PCI tree, a kernel log and a driver that obey the test.

    host.start()                                    # `systemctl start xidwatch`
    host.tree.die("0000:0f:00.0")
    host.kernel.says("NVRM: Xid (PCI:0000:11:00): 79, GPU has fallen off the bus.")
    host.until_condition("GpuLost", "gpu:0000:11:00.0", "TRUE")
    host.run("systemctl", "is-active", "xidwatch")

What stands in for hardware lies below /rig in the container, and a drop-in shows it to the service: that is all which is added
to the unit, unless a test says `host.drop_in(WatchdogSec="5s")`. A test that needs a second disk, to be frozen, finds it in /rig/disk.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

from tests.daemon.harness import PATIENCE_SECONDS, KernelPipe, LoopDisk, poll_until
from tests.fakes.nvml_library import NvmlLibrary
from tests.fakes.sysfs import two_switch_host
from tests.rig.container.disk import Disk
from tests.rig.container.machine import COMMAND_SECONDS, KERNEL_LOG, Container
from xidwatch.clock import BOOT_ID
from xidwatch.records import Damage, RecordError, journal, state
from xidwatch.records.journal import Entry
from xidwatch.records.state import Child, StateFile

T = TypeVar("T")

UNIT = "xidwatch.service"
UNIT_FILE = f"/usr/local/lib/systemd/system/{UNIT}"
STATE_DIR = "/var/lib/xidwatch"
RUN_DIR = "/run/xidwatch"
SWITCH = "0000:0f:00.0"
LOST_GPU = "gpu:0000:11:00.0"
LOST = "NVRM: Xid (PCI:0000:11:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."

CONFIG = """
interval = "{interval}"
metrics = "127.0.0.1:0"
kernel_log = "{kernel_log}"
[probes.pci]
root = "/rig/sys"
[probes.hwmon]
root = "/rig/sys"
"""
# The fake library counts its calls in a file, and gets stuck on the disk. systemd gives a unit such as this one a /proc of its own;
# nspawn's boot id is not in there, so the rig puts it in.
RIG_DROP_IN = f"""
[Unit]
Requires=rig-boot-id.service
After=rig-boot-id.service
[Service]
Environment=LD_LIBRARY_PATH=/rig/nvml NVML_FAKE=/rig/gpus
ReadWritePaths=/rig
BindReadOnlyPaths=/run/boot_id:{BOOT_ID}
"""
RIG_BOOT_ID = f"""
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/cp {BOOT_ID} /run/boot_id
"""

# Holds a process as a debugger does (ptrace(2): SEIZE, INTERRUPT), and looks after it until it is dead.
HANG = """
import ctypes, os, sys
pid, libc = int(sys.argv[1]), ctypes.CDLL(None)
assert not libc.ptrace(0x4206, pid, None, None) and not libc.ptrace(0x4207, pid, None, None)
while os.WIFSTOPPED(os.waitpid(pid, 0)[1]):
    print("hangs", flush=True)
"""

SIBLING = "xidwatch-sibling.service"
# How the daemon is started and watched. The rest of the unit says what it may do, and the sibling may do the same.
DAEMON_ONLY = (
    "Type", "NotifyAccess", "ExecStart", "ExecReload", "ExecStopPost", "Restart", "RestartSec", "RestartPreventExitStatus",
    "WatchdogSec", "WatchdogSignal",
)  # fmt: skip


class Host:
    """Switched on and installed, nothing started. Leaving it thaws the disk, pulls the plug and leaves nothing."""

    def __init__(
        self,
        folder: Path,
        stage: Path,
        library: Path,
        frozen: LoopDisk | None = None,
        *,
        kernel_log: bool = False,
        views: Mapping[str, Path] | None = None,
    ) -> None:
        rig = folder / "rig"
        (rig / "gpus").mkdir(parents=True)
        self.disk = Disk(folder, stage)
        self.state_dir = self.disk.root / STATE_DIR.lstrip("/")
        self.tree = two_switch_host(rig / "sys")
        self.library = NvmlLibrary(library, rig / "gpus")
        self.kernel = KernelPipe(rig / "kmsg")
        self._at_the_end = ExitStack()
        self._at_the_end.callback(self.kernel.close)
        self._binds = {"/rig": rig, "/rig/nvml": library} | ({"/rig/disk": frozen.path} if frozen else {})
        self._views = dict(views or {})
        self._frozen = frozen
        self._kernel_log = kernel_log
        self.configure()
        self._write_unit(f"{UNIT}.d/rig.conf", RIG_DROP_IN)
        self._write_unit("rig-boot-id.service", RIG_BOOT_ID)
        with ExitStack() as if_it_fails:
            if_it_fails.push(self._at_the_end)
            self.boot()
            if_it_fails.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._at_the_end:
            if self._frozen:
                self._frozen.thaw()
            self.container.end()

    # --- the machine

    def boot(self) -> None:
        """Switch it on. The disk is as it was left."""
        self.container = Container(self.disk, self._binds, self._views, kernel_log=self._kernel_log)

    def lose_power(self) -> None:
        """Without a warning. It stays off until `boot`."""
        self.container.end()

    def shut_down(self) -> None:
        """In good order. It stays off until `boot`."""
        self.container.shut_down()

    def run(self, *words: str, status: int = 0, seconds: float = COMMAND_SECONDS) -> str:
        """What a command in the container prints; it has to end with this status. It is root, and free of the unit's limits."""
        return self.container.run(*words, status=status, seconds=seconds)

    def add_unit(self, name: str, text: str) -> None:
        """Another unit of this boot: an engine, say."""
        self.container.path(f"/run/systemd/system/{name}").write_text(text)
        self.run("systemctl", "daemon-reload")

    @property
    def boot_id(self) -> str:
        return self.container.path(str(BOOT_ID)).read_text().strip()

    def process(self, pid: int) -> dict[str, str]:
        """/proc/PID/status of a process of the container, by its number in there; empty when there is none."""
        try:
            lines = self.container.path(f"/proc/{pid}/status").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            return {}
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def send(self, name: str, pid: int) -> None:
        """A signal, by the process's number in the container."""
        self.run("sh", "-c", f"kill -s {name} {pid}")

    # --- waiting

    def until(self, what: str, wanted: Callable[[], T | None], seconds: float = PATIENCE_SECONDS) -> T:
        """The first truthy answer; what the service has said is shown if there is none."""
        try:
            return poll_until(what, wanted, seconds)
        except AssertionError as error:
            story = self.container.attempt("journalctl", "--output=short-precise", "--lines=60").stdout
            raise AssertionError(f"{error}\n{story}") from None

    def until_unit(self, unit: str, seconds: float = PATIENCE_SECONDS, **properties: str) -> None:
        """Wait until `systemctl show` says so."""
        self.until(f"{unit} {properties}", lambda: self.container.show(unit, *properties) == properties, seconds)

    def until_condition(self, type_: str, subject: str, status: str) -> None:
        """Wait until state.json says so."""
        self.until(f"{type_} {subject} {status}", lambda: self.condition(type_, subject) == status)

    def until_line(self, pattern: str) -> str:
        """Wait for a line of the service in the systemd journal of this boot."""
        return self.until(f"a line like {pattern!r}", lambda: next((line for line in self.lines() if re.search(pattern, line)), None))

    def ticks_more(self, count: int) -> None:
        """Wait for so many further finished ticks of the daemon that runs now."""
        pid = self.main_pid

        def tick() -> int:
            shown = self.state()
            return (shown.tick or 0) if shown and shown.pid == pid else 0

        wanted = tick() + count
        self.until(f"tick {wanted} of process {pid}", lambda: tick() >= wanted)

    # --- the service

    def configure(self, interval: str = "1s", more: str = "", more_tables: str = "") -> None:
        """/etc/xidwatch/config.toml; `more` stands before the tables, `more_tables` behind them."""
        path = self.disk.root / "etc/xidwatch/config.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(more + CONFIG.format(interval=interval, kernel_log=KERNEL_LOG if self._kernel_log else "/rig/kmsg") + more_tables)

    def drop_in(self, **settings: str) -> None:
        """What a test needs otherwise than the unit has it, in its [Service]."""
        self._write_unit(f"{UNIT}.d/test.conf", "[Service]\n" + "".join(f"{key}={value}\n" for key, value in settings.items()))
        self.run("systemctl", "daemon-reload")

    def _write_unit(self, name: str, text: str) -> None:
        path = self.disk.root / "etc/systemd/system" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def start(self) -> None:
        """Until it is ready, has finished a tick, and every GPU has answered."""
        self.run("systemctl", "start", UNIT)
        self.until("all probes answer", lambda: (s := self.state()) and len(s.probes) > 2 and all(p.success for p in s.probes.values()))

    @property
    def main_pid(self) -> int:
        """0 while there is none."""
        return int(self.container.show(UNIT, "MainPID")["MainPID"])

    def state(self) -> StateFile | None:
        """state.json, whatever its age."""
        try:
            return state.read(self.container.path(f"{RUN_DIR}/state.json"))
        except RecordError:
            return None

    def condition(self, type_: str, subject: str) -> str:
        """Its status in state.json, or nothing."""
        shown = self.state()
        return next((c.status for c in shown.conditions if (c.type, c.subject) == (type_, subject)), "") if shown else ""

    def child(self, name: str) -> Child | None:
        """The child of that name which the daemon has written down for its successor, the youngest."""
        found = state.read_children(self.container.path(f"{RUN_DIR}/children.json"), self.boot_id)
        return next((child for child in reversed(found) if child.name == name), None)

    def metrics(self) -> dict[str, float]:
        """One scrape: series as printed to value."""
        port = self.container.path(f"{RUN_DIR}/metrics.port").read_text().strip()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS) as page:
            lines = page.read().decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {series: float(value) for series, _, value in pairs}

    def lines(self, *words: str) -> list[str]:
        """What the service has said in this boot, and what systemd says of it."""
        return [str(entry["MESSAGE"]) for entry in self.container.journal(f"--unit={UNIT}", "--boot", *words)]

    def records(self) -> list[Entry]:
        """Its journal of all boots; a damaged record fails the test."""
        problems: list[Damage] = []
        entries = list(journal.read(self.state_dir, since=None, problems=problems))
        assert not problems
        return entries

    # --- what happens to it

    def lose_switch(self) -> str:
        """The switch above the four GPUs dies and the driver says so; the incident, when it is on record with its dump."""
        self.tree.die(SWITCH)
        self.kernel.says(LOST)
        self.until_line("TAKE_DUMP .* ok")
        shown = self.until("an incident", self.state)
        assert shown.incident
        return shown.incident

    def remove_switch(self) -> None:
        """Neither it nor the GPUs below are on the bus any more, and the driver finds none."""
        self.tree.remove(SWITCH)
        for _ in range(4):
            self.library.remove(0)

    def tell_again(self) -> None:
        """The kernel's ring from its beginning, as whoever opens /dev/kmsg reads it: for the next daemon. Call it while there is none."""
        self.kernel.seq -= 1
        self.kernel.says(LOST)

    def stick(self) -> int:
        """The process that holds the driver goes into uninterruptible sleep in a driver call; its number. Needs the disk."""
        assert self._frozen
        holder = self.child("nvml")
        assert holder
        self._frozen.freeze()
        self.library.gpu(2, nvmlDeviceGetUtilizationRates="create /rig/disk/new")
        self.until("the driver call that does not return", lambda: self.is_stuck(holder.pid))
        return holder.pid

    def is_stuck(self, pid: int) -> bool:
        """In uninterruptible sleep, and not sent SIGKILL, which would strike as soon as it wakes."""
        status = self.process(pid)
        if not status:
            return False
        pending = int(status["SigPnd"], 16) | int(status["ShdPnd"], 16)
        return status["State"].startswith("D") and not pending & 1 << signal.SIGKILL - 1

    def hang(self, pid: int) -> None:
        """As in a loop that never ends: it takes no signal but SIGKILL. STOP would not do, since systemd sends CONT behind every TERM."""
        hanger = subprocess.Popen([sys.executable, "-c", HANG, str(self.container.outside(pid))], stdout=subprocess.PIPE)
        self._at_the_end.enter_context(hanger)
        assert hanger.stdout
        assert hanger.stdout.readline() == b"hangs\n"

    # --- its limits

    def sibling(self, script: str) -> str:
        """What a shell script prints that runs with everything the installed unit allows and forbids; it has to succeed."""
        allowed = [line for line in self.container.path(UNIT_FILE).read_text().splitlines() if line.partition("=")[0] not in DAEMON_ONLY]
        at = allowed.index("[Service]") + 1
        own = ["Type=oneshot", "ExecStart=/bin/sh -eu /rig/sibling.sh", "StandardOutput=truncate:/rig/sibling.txt", "StandardError=inherit"]
        (self._binds["/rig"] / "sibling.sh").write_text(script)
        self.add_unit(SIBLING, "\n".join([*allowed[:at], *own, *allowed[at:], ""]))
        done = self.container.attempt("systemctl", "start", SIBLING)
        said = (self._binds["/rig"] / "sibling.txt").read_text()
        assert done.returncode == 0, said + done.stderr
        return said

    def sibling_json(self, script: str) -> Any:
        """The same for a Python script that prints one JSON value."""
        (self._binds["/rig"] / "sibling.py").write_text(script)
        return json.loads(self.sibling("exec /usr/bin/python3 /rig/sibling.py"))
