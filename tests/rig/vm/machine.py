"""One virtual machine: a QEMU process, its disk overlay, its sockets, and the command channel into the guest.

    root port 00:04.0 ─ switch 01:00.0 ─┬─ 02:00.0 ─ GPU 03:00.0          root port 00:05.0 ─ switch 07:00.0 ─ 08:00.0 ─ NVMe 09:00.0
                                        ├─ 02:01.0 ─ GPU 04:00.0
                                        ├─ 02:02.0 ─ GPU 05:00.0
                                        └─ 02:03.0 ─ GPU 06:00.0

Emulated (TCG): it runs wherever QEMU does. Its clock counts instructions while it works and real time while it idles (icount): on
a host that is busy the guest takes longer, and notices nothing, so that no tick is late for somebody else's load.

A machine that was saved is carried on from a file in about two seconds; its disk is then an overlay over the one that was saved
with it, and neither is ever written again.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

from tests.rig.vm.build import Image

T = TypeVar("T")

QEMU = "qemu-system-x86_64"
MEMORY = Path("/dev/shm")  # overlays and sockets: short names, and a flush that costs nothing
PATIENCE_SECONDS = 180.0  # for a boot or an answer: other work may share the host's processors
POLL_SECONDS = 0.02
NANOSECONDS_AS_POWER = 2  # of two, an instruction: 250 million a second
GPUS = ("03:00.0", "04:00.0", "05:00.0", "06:00.0")
KERNEL_WORDS = (
    "console=ttyS0 rw quiet loglevel=3 panic=1 systemd.show_status=0 mitigations=off audit=0 nokaslr random.trust_cpu=1 no_timer_check"
)


class GuestGone(Exception):
    """The machine or its agent does not answer: the rig's own trouble, never a finding."""


def topology(without: Collection[str] = ()) -> list[str]:
    """Two switches, each below a root port of its own; `without` some GPUs, gpu0 to gpu3."""
    words = ["-device", "pcie-root-port,id=rp0,bus=pcie.0,chassis=1,slot=1,addr=4.0", "-device", "x3130-upstream,id=us0,bus=rp0"]
    for number in range(len(GPUS)):
        words += ["-device", f"xio3130-downstream,id=ds0{number},bus=us0,chassis={10 + number},slot={10 + number}"]
        if f"gpu{number}" not in without:
            words += ["-device", f"virtio-rng-pci,id=gpu{number},bus=ds0{number},aer=on"]
    words += ["-device", "pcie-root-port,id=rp1,bus=pcie.0,chassis=2,slot=2,addr=5.0", "-device", "x3130-upstream,id=us1,bus=rp1"]
    words += ["-device", "xio3130-downstream,id=ds10,bus=us1,chassis=20,slot=20"]
    words += ["-blockdev", "driver=null-co,node-name=nothing,size=67108864,read-zeroes=on"]
    return [*words, "-device", "virtio-blk-pci,id=nvme0,drive=nothing,bus=ds10,aer=on"]


def qemu_version() -> str:
    """A saved machine is carried on by the very version that saved it."""
    return subprocess.run([QEMU, "--version"], check=True, capture_output=True, text=True).stdout.splitlines()[0]


class Machine:
    """Running from the beginning. Either boots its disk, or carries on what was saved in `state`."""

    def __init__(self, image: Image, disk: Path, state: Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="xidwatch-rig-", dir=MEMORY))
        self.overlay = self.folder / "disk.qcow2"
        self._image = image
        form = "raw" if disk.suffix == ".img" else "qcow2"
        create = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(disk), "-F", form, str(self.overlay)]
        subprocess.run(create, check=True)
        with (self.folder / "firmware").open("wb") as file:
            file.truncate(128 << 10)
        self.start(state)

    # --- the process

    def start(self, state: Path | None = None, without: Collection[str] = ()) -> None:
        """Switch it on (again), `without` some of its devices. A boot is waited for until its agent answers."""
        for name in ("command", "qmp", "shell"):
            (self.folder / name).unlink(missing_ok=True)
        incoming = ["-incoming", f"exec:cat {state}"] if state else []
        with (self.folder / "qemu.log").open("ab") as log:
            self._process = subprocess.Popen(self._words() + topology(without) + incoming, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._channel = self.connect("command")
        self._received = b""
        self._qmp = self.connect("qmp").makefile("rwb")
        self._qmp.readline()
        self.qmp("qmp_capabilities")
        if state:
            self._carry_on()
        else:
            self.wait_for_boot()

    def _words(self) -> list[str]:
        image, folder = self._image, self.folder
        firmware = f"memory-backend-file,id=erst,mem-path={folder / 'firmware'},size=0x20000,share=on"
        return [
            QEMU, "-name", "xidwatch-rig", "-machine", "q35,hpet=off", "-cpu", "max", "-m", "640", "-smp", "1",
            "-accel", "tcg,thread=single", "-icount", f"shift={NANOSECONDS_AS_POWER}",
            "-nodefaults", "-no-user-config", "-display", "none",
            "-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off",  # native pciehp
            "-kernel", str(image.kernel), "-initrd", str(image.initramfs), "-append", KERNEL_WORDS,
            "-drive", f"file={self.overlay},if=none,id=root,format=qcow2",
            "-device", "virtio-blk-pci,drive=root,bus=pcie.0,addr=2.0",
            "-device", "virtio-serial-pci,bus=pcie.0,addr=3.0",
            "-object", firmware, "-device", "acpi-erst,memdev=erst,bus=pcie.0,addr=6.0",
            "-device", "i6300esb,bus=pcie.0,addr=7.0", "-action", "watchdog=reset",
            "-chardev", f"file,id=console,path={folder / 'console'}", "-serial", "chardev:console",
            "-chardev", f"socket,id=command,path={folder / 'command'},server=on,wait=off",
            "-device", "virtserialport,chardev=command,name=xidwatch.rig",
            "-chardev", f"socket,id=shell,path={folder / 'shell'},server=on,wait=off", "-device", "virtconsole,chardev=shell",
            "-qmp", f"unix:{folder / 'qmp'},server=on,wait=off",
        ]  # fmt: skip

    def connect(self, name: str) -> socket.socket:
        """The host's end of one of its lines: command, qmp or shell."""

        def connected() -> socket.socket | None:
            if self._process.poll() is not None:
                raise GuestGone(f"QEMU ended: {(self.folder / 'qemu.log').read_text(errors='replace')[-2000:]}")
            found = socket.socket(socket.AF_UNIX)
            try:
                found.connect(str(self.folder / name))
            except OSError:
                found.close()
                return None
            return found

        return poll_until(f"QEMU's {name} socket", connected)

    def cut_power(self) -> None:
        """What has not reached the disk is gone. Tells of no failure."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def close(self) -> None:
        """Nothing is left of it."""
        self.cut_power()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ends(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until it has switched itself off."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise GuestGone(f"still running after {seconds:g} s") from error

    # --- saving

    def save(self, state: Path) -> None:
        """Freeze it into a file. Its disk has to be kept beside: `overlay`. It is over then."""
        self.qmp("stop")
        self.qmp("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
        self.qmp("migrate", uri=f"exec:cat >{state}")
        self._migrated()
        self.qmp("quit")
        self.ends()

    def _carry_on(self) -> None:
        self._migrated()
        self.qmp("cont")

    def _migrated(self) -> None:
        def over() -> bool:
            status = self.qmp("query-migrate").get("status", "")
            if status in ("failed", "cancelled"):
                raise GuestGone(f"its state could not be saved or taken over: {self.qmp('query-migrate')}")
            return bool(status == "completed")

        poll_until("the state to be saved or taken over", over)

    # --- the monitor

    def qmp(self, command: str, **arguments: object) -> Any:
        """One command of QEMU's monitor, and what it answers."""
        self._qmp.write(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        self._qmp.flush()
        while line := self._qmp.readline():
            answer = json.loads(line)
            if "error" in answer:
                raise GuestGone(f"QEMU refused {command}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]
        raise GuestGone(f"QEMU ended over {command}: {(self.folder / 'qemu.log').read_text(errors='replace')[-2000:]}")

    def hmp(self, line: str) -> str:
        """One line as a person would type it into the monitor."""
        return str(self.qmp("human-monitor-command", **{"command-line": line}))

    # --- the agent

    def wait_for_boot(self) -> None:
        """Until the agent of a fresh boot says hello."""
        while "hello" not in self._answer(PATIENCE_SECONDS)[0]:
            pass

    def send(self, head: dict[str, object], data: bytes = b"") -> None:
        """A request, without waiting for its answer."""
        self._channel.sendall(json.dumps({**head, "bytes": len(data)}).encode() + b"\n" + data)

    def ask(self, head: dict[str, object], data: bytes = b"", seconds: float = 0.0) -> tuple[dict[str, Any], bytes]:
        """A request and its answer; `seconds`: how long it may take beside the usual."""
        self.send(head, data)
        answer, data = self._answer(PATIENCE_SECONDS + seconds)
        if "error" in answer:
            raise GuestGone(answer["error"])
        return answer, data

    def _answer(self, seconds: float) -> tuple[dict[str, Any], bytes]:
        deadline = time.monotonic() + seconds
        while b"\n" not in self._received:
            self._receive(deadline)
        line, _, self._received = self._received.partition(b"\n")
        head: dict[str, Any] = json.loads(line)
        while len(self._received) < head["bytes"]:
            self._receive(deadline)
        data, self._received = self._received[: head["bytes"]], self._received[head["bytes"] :]
        return head, data

    def _receive(self, deadline: float) -> None:
        self._channel.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            data = self._channel.recv(1 << 20)
        except TimeoutError as error:
            raise GuestGone(f"no answer from the guest; its console says\n{self.console()[-2000:]}") from error
        if not data:
            raise GuestGone("QEMU ended")
        self._received += data

    def console(self) -> str:
        """What the guest wrote to its serial line."""
        path = self.folder / "console"
        return path.read_text(errors="replace") if path.exists() else ""


def poll_until(what: str, wanted: Callable[[], T | None], seconds: float = PATIENCE_SECONDS) -> T:
    """The first truthy answer. For what announces itself nowhere. Raises GuestGone."""
    deadline = time.monotonic() + seconds
    while not (found := wanted()):
        if time.monotonic() > deadline:
            raise GuestGone(f"not within {seconds:g} s: {what}")
        time.sleep(POLL_SECONDS)
    return found
