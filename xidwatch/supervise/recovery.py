"""One step of recovery, taken once: what could still be in its way is looked at last, then it is done, then what came of it.

    /sys/bus/pci/devices/0000:0f:00.0/remove    1        its folder goes, with all that is below it
    /sys/bus/pci/rescan                         1        it is there again, if it answers
    /sys/bus/pci/slots/4/power                  0, 1

Law: nothing is written before everything has been looked at, and nothing is left half done: what was removed is scanned for.
`Refused`: not now. `Unable`: not here. Either way nothing was done.

Sources: Documentation/ABI/testing/sysfs-bus-pci, drivers/pci/{pci-sysfs,remove,probe}.c; nvidia-smi(1), modprobe(8), systemctl(1).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from xidwatch.core.model import Missing
from xidwatch.core.recovery_model import FAILED, OK, TIMEOUT
from xidwatch.probes.child import Listener
from xidwatch.supervise import holders

DROP_IN = "the service's sandbox forbids it: a drop-in as systemd/recovery.conf allows it (docs/recovery.md)"
LOOK_SECONDS = 0.25
LETTING_GO_SECONDS = 10.0  # for our own NVML worker, which has been told to leave
OFF_SECONDS = 3.0  # a slot without power
SYNC_SECONDS = 20.0
ORDER_SECONDS = 20.0
MOST_BYTES = 64 * 1024
MOST_CHARACTERS = 300
ALL_ONES = b"\xff\xff\xff\xff"
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
# Drivers of what may be taken off the bus: of a card, by the GPU on it, with its further functions; of a bridge.
OF_A_CARD = frozenset({"", "nvidia", "snd_hda_intel", "xhci_hcd", "xhci-pci-renesas", "nvidia-gpu"})
OF_A_BRIDGE = frozenset({"", "pcieport", "shpchp"})
DISPLAY, BRIDGE, NVIDIA = "0x03", "0x0604", "0x10de"
CAP_SYS_MODULE = 16
# What a reboot empties, or may: a live system's upper layer is in memory more often than not.
VOLATILE = frozenset({"tmpfs", "ramfs", "devtmpfs", "rootfs", "overlay"})
RAM_DISKS = ("/dev/ram", "/dev/zram")


class Refused(Exception):
    """Not now: something is in the way that may go."""


class Unable(Exception):
    """Not on this host, or not in this sandbox."""


@dataclass(slots=True)
class Host:
    """What a step acts on; other places than the host's own are for tests. `begun` is called once, before the first thing is done."""

    pause: Callable[[float], None]
    begun: Callable[[], None]
    deadline: float  # monotonic
    sysfs: Path = Path("/sys")
    proc: Path = Path("/proc")
    programs: tuple[Path, ...] = (Path("/usr/bin"), Path("/usr/sbin"), Path("/bin"), Path("/sbin"))
    evidence: tuple[Path, ...] = ()
    monotonic: Callable[[], float] = time.monotonic
    listener: Listener = field(default_factory=lambda: Listener(MOST_BYTES, hears_errors=True))

    # ------------------------------------------------------------------------------------------------------- looking

    def device(self, address: str) -> Path:
        """Its folder, by the name that all devices are listed under."""
        return self.sysfs / "bus/pci/devices" / address

    def functions(self, address: str) -> list[Path]:
        """It and everything below it, that are listed now; the virtual functions of one go with it, and lie beside it."""
        if not self.device(address).exists():
            return []
        top = self.device(address).resolve()
        below = [path for path in sorted(top.rglob("*:*:*.*")) if ADDRESS.fullmatch(path.name) and not path.is_symlink()]
        return [top, *below, *(link.resolve() for path in (top, *below) for link in sorted(path.glob("virtfn*")))]

    def answers(self, address: str) -> bool:
        """Its first dword is there and not all ones."""
        try:
            descriptor = os.open(self.device(address) / "config", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            word = os.pread(descriptor, 4, 0)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return len(word) == 4 and word != ALL_ONES

    def until(self, wanted: Callable[[], bool], seconds: float = float("inf")) -> bool:
        """Whether it came true before the deadline, or within so long."""
        until = min(self.deadline, self.monotonic() + seconds)
        while not wanted():
            if self.monotonic() >= until:
                return False
            self.pause(LOOK_SECONDS)
        return True

    def program(self, name: str) -> str:
        """Its path. Raises Unable."""
        found = next((str(place / name) for place in self.programs if os.access(place / name, os.X_OK)), "")
        if not found:
            raise Unable(f"there is no {name} here")
        return found

    # --------------------------------------------------------------------------------------------------- what objects

    def needs(self, *files: Path) -> None:
        """These can be written to. Raises Unable."""
        for path in files:
            if not path.exists():
                raise Unable(f"there is no {path}")
            if not os.access(path, os.W_OK):
                raise Unable(f"{path} cannot be written to; {DROP_IN}")

    def needs_nobody(self) -> None:
        """Nobody holds the driver any more. Raises Refused."""
        if not self.until(lambda: not holders.objection(self.proc, self.sysfs), LETTING_GO_SECONDS):
            raise Refused(holders.objection(self.proc, self.sysfs) or "it was held until a moment ago")

    def needs_gpus_only(self, addresses: Iterable[str]) -> None:
        """What would go with them is GPUs, their own further functions and bridges, and shows nobody a picture. Raises Refused."""
        everybody = {path for address in addresses for path in self.functions(address)}
        cards = {_card(path) for path in everybody if _is_gpu(path)}
        for path in sorted(everybody):
            driver = _driver(path)
            is_bridge = _word(path / "class").startswith(BRIDGE)
            if driver is None:
                raise Refused(f"it is not known who drives {path.name}, which would go with it")
            if driver not in (OF_A_CARD if _card(path) in cards else OF_A_BRIDGE if is_bridge else ()):
                raise Refused(f"{path.name} is {f'used by {driver}' if driver else 'no GPU'}, and would go with it")
        for reason in _displays(self, lambda device: device.resolve() in everybody):
            raise Refused(reason)

    # ---------------------------------------------------------------------------------------------------------- doing

    def write(self, path: Path, text: str) -> str:
        """The kernel's objection, empty when it has none. It may not return."""
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:
            return f"{path.name}: {error.strerror}"
        try:
            os.write(descriptor, text.encode())
        except OSError as error:
            return f"{path.name}: {error.strerror}"
        finally:
            os.close(descriptor)
        return ""

    def order(self, *words: str, seconds: float = float("inf")) -> str | Missing:
        """What a program says, on one line; TIMED_OUT when it has not ended in time."""
        answer = self.listener.ask(words, min(self.deadline, self.monotonic() + seconds))
        return answer if isinstance(answer, Missing) else " ".join(answer.decode("utf-8", "replace").split())[:MOST_CHARACTERS]


Result = tuple[str, str]


def rescan(host: Host, target: str) -> Result:
    """Remove these addresses, as far as they are listed, and scan for whoever answers."""
    addresses = target.split()
    trigger = host.sysfs / "bus/pci/rescan"
    listed = [address for address in addresses if host.device(address).exists()]
    host.needs(trigger, *(host.device(address) / "remove" for address in listed))
    host.needs_gpus_only(listed)
    host.needs_nobody()
    before = _listed(host)
    host.begun()
    said = [host.write(host.device(address) / "remove", "1") for address in listed]
    gone = [address for address in listed if not host.until(lambda a=address: not host.device(a).exists())]  # type: ignore[misc]
    said += [f"{address} did not go" for address in gone]
    said += [host.write(trigger, "1")]
    return _came_back(host, addresses, before, said)


def _came_back(host: Host, addresses: list[str], before: set[str], said: list[str]) -> Result:
    is_back = host.until(lambda: all(map(host.answers, addresses)) if addresses else bool(_listed(host) - before))
    objections = [each for each in said if each]
    if is_back and not objections:
        new = sorted(_listed(host) - before)
        return OK, f"{', '.join(addresses or new)} {'is' if len(addresses or new) == 1 else 'are'} back and answering"
    lacking = [address for address in addresses if not host.answers(address)]
    objections += [f"{', '.join(lacking)} did not come back"] if lacking else [] if is_back else ["nobody came back"]
    return FAILED, "; ".join(objections)


def _listed(host: Host) -> set[str]:
    return {path.name for path in (host.sysfs / "bus/pci/devices").iterdir()}


def slot_power(host: Host, target: str) -> Result:
    """Power of this slot off, for a few seconds, and on. A slot below a port is all of its bus, whatever its address says."""
    folder = host.sysfs / "bus/pci/slots" / target
    if not (folder / "power").exists():
        raise Unable(f"slot {target} has no switch for its power")
    host.needs(folder / "power")
    address = _word(folder / "address")
    own = sorted(name for name in _listed(host) if name.rpartition(".")[0] == address)
    if not own:
        raise Refused(f"nobody is listed in slot {target}: it is not known what its power is the power of")
    above = [folder for folder in {host.device(name).resolve().parent for name in own} if ADDRESS.fullmatch(folder.name)]
    host.needs_gpus_only({*own, *(path.name for port in above for path in port.iterdir() if ADDRESS.fullmatch(path.name))})
    host.needs_nobody()
    before = _listed(host)
    host.begun()
    said = [host.write(folder / "power", "0")]
    said += [] if host.until(lambda: not any(host.device(each).exists() for each in own)) else [f"{own[0]} did not go"]
    host.pause(OFF_SECONDS)
    said += [host.write(folder / "power", "1")]
    return _came_back(host, own, before, said)


def gpu_reset(host: Host, target: str) -> Result:
    """By nvidia-smi, one GPU after the other; not every board offers it, which it says in words only."""
    program = host.program("nvidia-smi")
    if not target.split():
        raise Refused("there is no address of the GPU that is to be reset")
    host.needs_nobody()
    host.begun()
    said: list[str] = []
    for address in target.split():
        answer = host.order(program, "--gpu-reset", "-i", address)
        if isinstance(answer, Missing):
            return TIMEOUT, f"nvidia-smi does not come back from the reset of {address}"
        if "successfully reset" not in answer.lower():
            return FAILED, "; ".join([*said, f"{address}: {answer or 'nvidia-smi says nothing'}"])
        said.append(f"{address} was reset")
    return OK, "; ".join(said)


def module_reload(host: Host, target: str) -> Result:
    """Unload the NVIDIA modules, the users first, and load again those that were there."""
    program = host.program("modprobe")
    if not _has_capability(host.proc, CAP_SYS_MODULE):
        raise Unable(f"modules cannot be loaded from here (CAP_SYS_MODULE); {DROP_IN}")
    loaded = [name for name in holders.MODULES if (host.sysfs / "module" / name).is_dir()]
    if target not in loaded:
        raise Refused(f"the {target} module is not loaded")
    host.needs_nobody()
    for reason in _in_use(host, loaded):
        raise Refused(reason)
    host.begun()
    unloaded = host.order(program, "-r", *loaded)
    if isinstance(unloaded, Missing):
        return TIMEOUT, "the modules do not unload"
    is_loaded = (host.sysfs / "module" / target).is_dir()
    said = [host.order(program, name) for name in reversed(loaded)]  # also when it failed half way: other GPUs may be well
    if is_loaded:
        return FAILED, f"the {target} module does not unload: {unloaded}"
    if any(isinstance(each, Missing) for each in said):
        return TIMEOUT, "the modules do not load"
    if not (host.sysfs / "module" / target).is_dir():
        return FAILED, f"the {target} module does not load: {'; '.join(filter(None, map(str, said)))}"
    return OK, f"{' '.join(reversed(loaded))} loaded anew"


def _in_use(host: Host, loaded: list[str]) -> Iterator[str]:
    for name in loaded:
        yield from (
            f"{user} uses {name}, and is not to be unloaded" for user in holders.users(host.sysfs, name) if user not in holders.MODULES
        )
    yield from _displays(host, lambda device: _link(device / "driver") == "nvidia")


def _displays(host: Host, is_theirs: Callable[[Path], bool]) -> Iterator[str]:
    """At a card that this is true of. Who draws on it may have no node of the driver open, and its removal waits for him."""
    for status in sorted((host.sysfs / "class/drm").glob("card*-*/status")):
        card = status.parent.parent / status.parent.name.partition("-")[0]
        if _word(status) == "connected" and is_theirs(card / "device"):
            yield f"a display is connected ({status.parent.name})"


def reboot(host: Host, _target: str) -> Result:
    """Warm, by systemd, after what is in memory has been written as far as it can be. The shutdown itself may hang in the driver."""
    program = host.program("systemctl")
    if not any(_outlives_a_reboot(host.proc, place) for place in host.evidence[:1]):  # the one that is asked about the past
        raise Unable("the state directory is not known to outlive a reboot: nothing would keep the host from rebooting again and again")
    found, hidden = holders.processes(host.proc)
    work = [each for each in found if each.is_work]
    if work:
        raise Refused(f"{work[0]} works on a GPU")
    if hidden:
        raise Refused(f"process {hidden[0]} does not let itself be looked at, and may work on a GPU")
    host.begun()
    with suppress(Unable):
        host.order(host.program("sync"), seconds=SYNC_SECONDS)
    said = host.order(program, "--no-block", "reboot", seconds=ORDER_SECONDS)
    if isinstance(said, Missing):
        return TIMEOUT, "systemd does not answer to `reboot`"
    return (FAILED, said) if said else (OK, "systemd has been told to reboot")


STEPS: dict[str, Callable[[Host, str], Result]] = {
    "rescan": rescan,
    "slot-power": slot_power,
    "gpu-reset": gpu_reset,
    "module-reload": module_reload,
    "reboot": reboot,
}


def _word(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _link(path: Path) -> str:
    """The name of what it leads to; empty when it leads nowhere."""
    try:
        return path.readlink().name
    except OSError:
        return ""


def _driver(path: Path) -> str | None:
    """Of a device: "" when it has none, None when that cannot be seen."""
    try:
        return (path / "driver").readlink().name
    except FileNotFoundError:
        return ""
    except OSError:
        return None


def _is_gpu(path: Path) -> bool:
    """Its driver has taken it for one, or it has none and is an NVIDIA display controller."""
    is_display = _word(path / "class").startswith(DISPLAY) and _word(path / "vendor") == NVIDIA
    return is_display or _driver(path) == holders.MODULE


def _card(path: Path) -> str:
    """Whose function it is."""
    return path.name.rpartition(".")[0]


def _has_capability(proc_root: Path, number: int) -> bool:
    lines = _word(proc_root / "self/status").splitlines()
    bits = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(bits, 16) >> number & 1)


def _outlives_a_reboot(proc_root: Path, place: Path) -> bool:
    """By the mount that holds it (proc(5), mountinfo), wherever links lead to; False when that is not known."""
    real, best, is_kept = place.resolve() if place.is_absolute() else place, "", False
    for line in _word(proc_root / "self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        words, how = left.split(), right.split()
        if len(words) > 4 and len(how) > 1 and real.is_relative_to(words[4]) and len(words[4]) >= len(best):
            best, is_kept = words[4], how[0] not in VOLATILE and not how[1].startswith(RAM_DISKS)
    return is_kept
