"""A booted container: systemd as process 1 on this machine's own /usr, from the power switch to the last control group.

    with Container(disk, {"/rig": folder}) as container:
        container.run("systemctl", "start", "xidwatch")
        container.path("/run/xidwatch/state.json").read_text()

The machine is left alone: the container has its own processes, mounts and control groups, sees /usr and /sys read-only, and
the machine's kernel log only if it is given that, to read. It shares the network, as uevents and /metrics need. Leaving it is
pulling the plug; then nothing of it is left. Commands enter by nsenter(1), with the caller's rights and outside the
container's control groups: what is to be held to a unit's limits has to be run by a unit.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

from tests.daemon.harness import has_ended, poll_until
from tests.rig.container.disk import Disk

TOOLS = ("systemd-nspawn", "setpriv", "unshare", "nsenter", "mount")
KERNEL_LOG = "/dev/kmsg-of-the-machine"  # by its own name journald and systemd would write to it
BOOT_SECONDS = 60.0
COMMAND_SECONDS = 60.0
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/usr/sbin", "LANG": "C.UTF-8", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"}
WITH_ITS_TEST = ("setpriv", "--pdeathsig=TERM")  # nspawn takes it for an order to shut down
OWN_MOUNTS = ("unshare", "--mount", "--propagation=private")

# nspawn wants /run to be a tmpfs; nobody else sees this one.
START = """
for group in $RIG_GROUPS; do echo $$ >"$group/cgroup.procs" || exit; done
mount -t tmpfs tmpfs /run && exec "$@"
"""


class CannotBoot(Exception):
    """nspawn gave up before there was any process 1: this machine does not let it."""


def why_not() -> str:
    """What is missing here, and how to get it; empty when a container can be tried."""
    if os.geteuid() != 0:
        return "needs root"
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"needs {', '.join(missing)} (apt install systemd-container)"
    mounted = subprocess.run([*OWN_MOUNTS, "mount", "-t", "tmpfs", "tmpfs", "/run"], capture_output=True, text=True, check=False)
    if mounted.returncode:
        return f"needs to mount in a namespace of its own, as on a machine or in a privileged container: {mounted.stderr.strip()}"
    groups = control_groups()
    if not groups or not all(os.access(group, os.W_OK) for group in groups):
        return "needs control groups that it may write, as on a machine or in a privileged container"
    return ""


def control_groups() -> list[Path]:
    """This process's own folders in the hierarchies that systemd uses: the unified one, and where there is one the one named systemd."""
    paths = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        filesystem, _, options = after.split()[:3]
        name = {"cgroup2": "", "cgroup": "name=systemd"}.get(filesystem)
        if name is not None and name in ("", *options.split(",")) and name in paths:
            root, mount_point = before.split()[3:5]
            found.append(Path(mount_point) / os.path.relpath(paths[name], root))
    return found


class Container:
    """One boot of a disk. `binds`: folder inside to folder outside, written to by both; `views`: only read. Raises CannotBoot."""

    def __init__(self, disk: Disk, binds: Mapping[str, Path], views: Mapping[str, Path] | None = None, *, kernel_log: bool = False) -> None:
        self.name = f"xidwatch-rig-{uuid.uuid4().hex[:8]}"
        self.leader = 0
        self._console = disk.root.with_name(f"{self.name}.txt")
        self._groups = [group / self.name for group in control_groups()]
        self._at_the_end = ExitStack()
        options = [f"--bind={outside}:{inside}" for inside, outside in {"/usr/local": disk.local, **binds}.items()]
        options += [f"--bind-ro={outside}:{inside}" for inside, outside in (views or {}).items()]
        options += [f"--bind-ro=/dev/kmsg:{KERNEL_LOG}", "--capability=CAP_SYSLOG"] if kernel_log else []
        try:
            with self._hear() as told:
                self._process = self._start(disk, options)
                self._wait_for_boot(told)
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    # --- starting

    def _hear(self) -> socket.socket:
        """Where nspawn will say who is process 1, and that it is ready (sd_notify(3))."""
        told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        told.bind(f"\0{self.name}")
        told.setblocking(False)
        return told

    def _start(self, disk: Disk, options: list[str]) -> subprocess.Popen[bytes]:
        for group in self._groups:
            group.mkdir()
            self._at_the_end.callback(remove_group, group)
        nspawn = [
            "systemd-nspawn", "--quiet", f"--directory={disk.root}", f"--machine={self.name}", "--register=no", "--keep-unit",
            "--console=read-only", "--notify-ready=yes", "--bind-ro=/usr", *options, "--boot",
        ]  # fmt: skip
        environment = {
            **os.environ,
            "RIG_GROUPS": " ".join(map(str, self._groups)),
            "NOTIFY_SOCKET": f"@{self.name}",
            "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",  # version 2 inside, whatever the machine has
        }
        with self._console.open("wb") as console:
            process = subprocess.Popen(
                [*WITH_ITS_TEST, *OWN_MOUNTS, "sh", "-c", START, "sh", *nspawn],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
            )
        self._at_the_end.callback(process.wait, COMMAND_SECONDS)
        self._at_the_end.callback(self._pull_the_plug)
        return process

    def _wait_for_boot(self, told: socket.socket) -> None:
        def ready() -> bool:
            with suppress(BlockingIOError):
                words = dict(line.split("=", 1) for line in told.recv(4096).decode().splitlines() if "=" in line)
                self.leader = int(words.get("X_NSPAWN_LEADER_PID", self.leader))
                return words.get("READY") == "1"
            if self._process.poll() is not None:
                raise (AssertionError if self.leader else CannotBoot)(self.console())
            return False

        poll_until("the container has booted", ready, BOOT_SECONDS)

    # --- looking

    def path(self, inside: str) -> Path:
        """A file of the container, its /run and /proc included, as seen from outside."""
        return Path(f"/proc/{self.leader}/root{inside}")

    def outside(self, pid: int) -> int:
        """The number that a process of the container has on this machine."""
        namespace = Path(f"/proc/{self.leader}/ns/pid").readlink()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # ended while it was looked at
                numbers = re.search(r"^NSpid:.*\s(\d+)$", (folder / "status").read_text(), re.MULTILINE)
                if numbers and int(numbers[1]) == pid and (folder / "ns/pid").readlink() == namespace:
                    return int(folder.name)
        raise ProcessLookupError(pid)

    def console(self) -> str:
        """What nspawn and systemd have said since the power was switched on."""
        return self._console.read_text(errors="replace").strip()

    def show(self, unit: str, *properties: str) -> dict[str, str]:
        """`systemctl show`, as text."""
        said = self.run("systemctl", "show", unit, f"--property={','.join(properties)}")
        return dict(line.split("=", 1) for line in said.splitlines())

    def journal(self, *words: str) -> list[dict[str, Any]]:
        """The entries that `journalctl` finds, oldest first."""
        return [json.loads(line) for line in self.run("journalctl", "--output=json", "--all", *words).splitlines()]

    # --- acting

    def run(self, *words: str, status: int = 0, seconds: float = COMMAND_SECONDS) -> str:
        """What a command says on its standard output; it has to end, with this status."""
        done = self.attempt(*words, seconds=seconds)
        assert done.returncode == status, f"{' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def attempt(self, *words: str, seconds: float = COMMAND_SECONDS) -> subprocess.CompletedProcess[str]:
        """The same, however it ends."""
        enter = ("nsenter", f"--target={self.leader}", "--mount", "--uts", "--ipc", "--pid", "--cgroup", "--wd", "--")
        return subprocess.run([*enter, *words], env=ENVIRONMENT, capture_output=True, text=True, timeout=seconds, check=False)

    # --- ending

    def shut_down(self) -> None:
        """An orderly end, as by `poweroff`."""
        self.run("systemctl", "poweroff")
        poll_until("the container is off", lambda: self._process.poll() is not None, BOOT_SECONDS)
        self.end()

    def end(self) -> None:
        """No process and no control group of it is left. Calling it again does nothing."""
        self._at_the_end.close()

    def _pull_the_plug(self) -> None:
        """With process 1 the kernel ends all others, and nspawn follows. Killed itself, nspawn would leave them behind."""
        with suppress(ProcessLookupError):
            os.kill(*((self.leader, signal.SIGKILL) if self.leader else (self._process.pid, signal.SIGTERM)))
        assert has_ended(self._process.pid, COMMAND_SECONDS), "a process of the container cannot be ended"


def remove_group(group: Path) -> None:
    """A control group with all below it, as soon as the kernel has let the last process go."""

    def removed() -> bool:
        with suppress(OSError):  # EBUSY: a process of it is still ending
            for folder, _, _ in os.walk(group, topdown=False):
                Path(folder).rmdir()
        return not group.exists()

    poll_until(f"{group} is empty", removed)
