"""One step of recovery, on a tree of files that behaves as the kernel does when it is written to."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.fakes.sysfs import SysfsTree, port_of, two_switch_host
from xidwatch.core.model import Missing
from xidwatch.probes.child import Listener
from xidwatch.supervise import recovery
from xidwatch.supervise.recovery import DROP_IN, LETTING_GO_SECONDS, OFF_SECONDS, Host, Refused, Unable

CARD, SWITCH, DRIVE_SWITCH = "0000:12:00.0", "0000:0f:00.0", "0000:01:00.0"
SECONDS = 60.0


class Said(Listener):
    """Stands for programs: what each says when it is run, and what that does."""

    def __init__(self) -> None:
        self.ran: list[list[str]] = []
        self.answers: dict[str, bytes | Missing] = {}
        self.does: Callable[[list[str]], None] = lambda _: None

    def ask(self, words: Sequence[str], deadline: float) -> bytes | Missing:
        del deadline
        self.ran.append([Path(words[0]).name, *words[1:]])
        self.does(self.ran[-1])
        return self.answers.get(Path(words[0]).name, b"")


class Machine:
    """A host whose devices go when they are removed and come back at a rescan, as `comes_back` says. Time passes by pauses alone."""

    def __init__(self, folder: Path) -> None:
        self.tree: SysfsTree = two_switch_host(folder / "sys")
        self.sysfs, self.proc = self.tree.root, folder / "proc"
        self.now = 1000.0
        self.begun_at: float | None = None
        self.programs = Said()
        self.comes_back = True
        self.removed: list[str] = []
        for path in (self.proc, folder / "bin"):
            path.mkdir()
        for name in ("nvidia-smi", "modprobe", "systemctl", "sync"):
            (folder / "bin" / name).touch(0o755)
        (self.sysfs / "bus/pci/rescan").touch()
        for device in (self.sysfs / "bus/pci/devices").iterdir():
            (device / "remove").touch()
        (self.proc / "self").mkdir()
        (self.proc / "1/fd").mkdir(parents=True)
        (self.proc / "self/status").write_text("Name:\tx\nCapEff:\t000001ffffffffff\n")
        (self.proc / "self/mountinfo").write_text("28 1 8:1 / / rw - ext4 /dev/sda1 rw\n29 28 0:25 / /run rw - tmpfs tmpfs rw\n")
        bins = (folder / "bin",)
        self.host = Host(self.pause, self.begin, self.now + SECONDS, self.sysfs, self.proc, bins, (Path("/var/lib/xidwatch"),))
        self.host.monotonic, self.host.listener = (lambda: self.now), self.programs

    def begin(self) -> None:
        assert self.begun_at is None
        self.begun_at = self.now

    def pause(self, seconds: float) -> None:
        """Meanwhile the kernel does what it was told."""
        self.now += seconds
        for device in tuple((self.sysfs / "bus/pci/devices").iterdir()):
            if device.exists() and (device / "remove").exists() and (device / "remove").read_text() == "1":
                self.removed.append(device.name)
                self._take(device.name)
        if (self.sysfs / "bus/pci/rescan").read_text() == "1" and self.comes_back and self.removed:
            self._give()

    def _take(self, address: str) -> None:
        self._kept = self.tree.folder(address).parent.name
        self.tree.remove(address)

    def _give(self) -> None:
        for address in self.removed:
            parent = self._kept if not self._kept.startswith("pci") else ""
            if address == SWITCH:
                self.tree.bridge(address, parent, port_type="upstream", secondary=0x10, subordinate=0x14)
            else:
                self.tree.gpu(address, parent)
        self.removed.clear()

    def slot(self, name: str = "4", *, power: str = "1") -> Path:
        path = self.sysfs / "bus/pci/slots" / name / "power"
        path.write_text(power)
        return path

    def process(self, pid: int, name: str, node: str = "/dev/nvidia0", state: str = "S") -> Path:
        """Somebody who holds a node."""
        folder = self.proc / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "fd/3").symlink_to(node)
        (folder / "stat").write_text(f"{pid} ({name}) {state} " + " ".join(["1"] * 30))
        return folder

    def module(self, name: str, uses: int = 0, users: Sequence[str] = ()) -> None:
        (self.sysfs / "module" / name / "holders").mkdir(parents=True)
        (self.sysfs / "module" / name / "refcnt").write_text(f"{uses + len(users)}\n")
        for user in users:
            (self.sysfs / "module" / name / "holders" / user).touch()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# ------------------------------------------------------------------------------------------------------- removal, rescan


@pytest.mark.parametrize("address", [CARD, SWITCH])
def test_what_is_removed_is_scanned_for_and_answers(machine: Machine, address: str) -> None:
    """A card, or a switch with everything below it."""
    assert recovery.rescan(machine.host, address) == ("ok", f"{address} is back and answering")
    assert machine.begun_at is not None


def test_what_does_not_come_back_is_said(machine: Machine) -> None:
    """And it was scanned for."""
    machine.comes_back = False
    assert recovery.rescan(machine.host, CARD) == ("failed", f"{CARD} did not come back")
    assert (machine.sysfs / "bus/pci/rescan").read_text() == "1"


def test_what_comes_back_and_answers_nothing_has_not_come_back(machine: Machine) -> None:
    """All ones is the answer of nobody."""
    machine.tree.remove(CARD)
    machine.tree.gpu(CARD, "0000:10:04.0")
    machine.tree.die(CARD)
    (machine.sysfs / "bus/pci/devices" / CARD / "remove").touch()
    give = machine._give

    def dead() -> None:
        give()
        machine.tree.die(CARD)

    machine._give = dead  # type: ignore[method-assign]
    assert recovery.rescan(machine.host, CARD)[0] == "failed"


def test_what_is_not_listed_any_more_is_only_scanned_for(machine: Machine) -> None:
    """By its address where it has one."""
    parent = port_of(machine.tree, CARD)
    machine.tree.remove(CARD)
    machine.removed.append(CARD)
    machine._kept = parent
    assert recovery.rescan(machine.host, CARD)[0] == "ok"


def test_whoever_is_found_by_a_scan_for_nobody_by_name_is_named(machine: Machine) -> None:
    """A device that only its place names in this boot."""
    parent = port_of(machine.tree, CARD)
    machine.tree.remove(CARD)
    machine.removed.append(CARD)
    machine._kept = parent
    assert recovery.rescan(machine.host, "") == ("ok", f"{CARD} is back and answering")
    machine.begun_at, machine.comes_back = None, False
    machine.host.deadline = machine.now + SECONDS
    assert recovery.rescan(machine.host, "") == ("failed", "nobody came back")


@pytest.mark.parametrize("step", [recovery.rescan, recovery.slot_power])
def test_a_drive_is_never_taken_off_the_bus(machine: Machine, step: Callable[[Host, str], object]) -> None:
    """Also when it is not what the step is about, but below it."""
    machine.slot()
    (machine.sysfs / "bus/pci/slots/4/address").write_text(DRIVE_SWITCH.removesuffix(".0") + "\n")
    with pytest.raises(Refused, match=r"0000:03:00\.0 is used by nvme"):
        step(machine.host, "4" if step is recovery.slot_power else DRIVE_SWITCH)
    assert machine.begun_at is None


@pytest.mark.parametrize("driver", ["vfio-pci", "nouveau", "mlx5_core", "xhci_hcd"])
def test_nor_is_what_somebody_else_drives(machine: Machine, driver: str) -> None:
    """A controller that is no function of a card is no card."""
    machine.tree.other("0000:13:01.0", port_of(machine.tree, "0000:13:00.0"), driver=driver)
    with pytest.raises(Refused, match=f"is used by {driver}"):
        recovery.rescan(machine.host, SWITCH)


@pytest.mark.parametrize("class_code", [0x010802, 0x020000, 0x0C0330, 0x120000])
@pytest.mark.parametrize("target", ["0000:13:01.0", "0000:13:00.1", SWITCH])
def test_nor_is_what_nobody_drives_and_is_no_gpu(machine: Machine, class_code: int, target: str) -> None:
    """Whatever has an accused card's number by now, or sits below the same port: its driver may be about to be bound."""
    machine.tree.other("0000:13:01.0", port_of(machine.tree, "0000:13:00.0"), class_code=class_code)
    (machine.sysfs / "bus/pci/devices/0000:13:01.0/remove").touch()
    if target == "0000:13:00.1":
        machine.tree.other(target, port_of(machine.tree, "0000:13:00.0"), class_code=class_code)
        (machine.sysfs / "bus/pci/devices" / target / "remove").touch()
    with pytest.raises(Refused, match=r"0000:13:0[01]\.[01] is no GPU"):
        recovery.rescan(machine.host, target)
    assert machine.begun_at is None


def test_nor_is_a_display_of_another_make(machine: Machine) -> None:
    """The console of a board's management controller, without a driver."""
    machine.tree.other("0000:13:01.0", port_of(machine.tree, "0000:13:00.0"), class_code=0x030000)
    with pytest.raises(Refused, match=r"0000:13:01\.0 is no GPU"):
        recovery.rescan(machine.host, SWITCH)


@pytest.mark.parametrize("root_port", ["0000:00:01.1", "0000:00:03.1"])
def test_a_root_port_goes_only_with_gpus_below(machine: Machine, root_port: str) -> None:
    """The one above the drive never does."""
    machine.tree.other("0000:13:01.0", port_of(machine.tree, "0000:13:00.0"), driver="ixgbe")
    with pytest.raises(Refused, match=r"0000:03:00\.0 is used by nvme|0000:13:01\.0 is used by ixgbe"):
        recovery.rescan(machine.host, root_port)
    assert machine.begun_at is None


def test_a_virtual_function_that_a_guest_has_keeps_its_card(machine: Machine) -> None:
    """It goes with the physical one, and lies beside it."""
    function = machine.tree.virtual_function("0000:13:02.0", port_of(machine.tree, "0000:13:00.0"), "0000:13:00.0")
    (machine.tree.folder("0000:13:00.0") / "virtfn0").symlink_to(machine.tree.folder(function))
    (machine.tree.folder(function) / "driver").symlink_to(machine.sysfs / "bus/pci/drivers/vfio-pci")
    with pytest.raises(Refused, match=r"0000:13:02\.0 is used by vfio-pci"):
        recovery.rescan(machine.host, "0000:13:00.0")


def test_whose_driver_cannot_be_seen_is_not_taken_for_driven_by_nobody(machine: Machine) -> None:
    """What is not known is no reason to do anything."""
    (machine.tree.folder(CARD) / "driver").unlink()
    (machine.tree.folder(CARD) / "driver").touch()
    with pytest.raises(Refused, match=f"it is not known who drives {CARD}"):
        recovery.rescan(machine.host, SWITCH)


@pytest.mark.parametrize("target", [CARD, SWITCH])
def test_a_card_with_a_display_stays(machine: Machine, target: str) -> None:
    """Who draws on it may have no node of the driver open. One at another card is nobody's business."""
    card = machine.sysfs / "class/drm/card0"
    (card / "card0-DP-1").mkdir(parents=True)
    (card / "device").symlink_to(machine.tree.folder(CARD))
    (machine.sysfs / "class/drm/card0-DP-1").symlink_to(card / "card0-DP-1")
    (card / "card0-DP-1/status").write_text("connected\n")
    with pytest.raises(Refused, match=r"a display is connected \(card0-DP-1\)"):
        recovery.rescan(machine.host, target)
    assert machine.begun_at is None
    assert recovery.rescan(machine.host, "0000:13:00.0")[0] == "ok"


def test_a_slot_is_its_whole_bus(machine: Machine) -> None:
    """Its address names one device, and its power is that of all below its port."""
    (machine.sysfs / "bus/pci/slots/7").mkdir()
    (machine.sysfs / "bus/pci/slots/7/address").write_text("0000:13:00\n")
    machine.slot("7")
    machine.tree.other("0000:13:01.0", port_of(machine.tree, "0000:13:00.0"), driver="ixgbe")
    with pytest.raises(Refused, match=r"0000:13:01\.0 is used by ixgbe"):
        recovery.slot_power(machine.host, "7")
    assert (machine.sysfs / "bus/pci/slots/7/power").read_text() == "1"


def test_the_slot_of_a_card_with_sound_is_one_of_a_card(machine: Machine) -> None:
    """Its functions are looked at together."""
    (machine.sysfs / "bus/pci/slots/8").mkdir()
    (machine.sysfs / "bus/pci/slots/8/address").write_text("0000:11:00\n")
    machine.slot("8")
    machine.comes_back = False
    recovery.slot_power(machine.host, "8")
    assert machine.begun_at is not None


def test_the_sound_of_a_card_goes_with_it(machine: Machine) -> None:
    """It is the same card."""
    assert recovery.rescan(machine.host, "0000:11:00.0")[0] == "ok"


# --------------------------------------------------------------------------------------------------------- who holds it


@pytest.mark.parametrize("step", ["rescan", "slot-power", "gpu-reset", "module-reload"])
def test_nothing_is_done_while_somebody_holds_the_driver(machine: Machine, step: str) -> None:
    """Also nvidia-persistenced; who is about to leave is waited for, for a while."""
    machine.slot()
    machine.module("nvidia")
    target = {"slot-power": "4", "module-reload": "nvidia"}.get(step, CARD)
    machine.process(812, "nvidia-persiste", "/dev/nvidiactl")
    with pytest.raises(Refused, match=r"held by process 812 \(nvidia-persiste\)"):
        recovery.STEPS[step](machine.host, target)
    assert machine.begun_at is None
    assert machine.now - 1000.0 >= LETTING_GO_SECONDS
    assert not machine.programs.ran


def test_who_leaves_in_time_is_waited_for(machine: Machine) -> None:
    """Our own NVML worker, say."""
    held = machine.process(900, "xw-nvml")
    pause = machine.pause

    def leaving(seconds: float) -> None:
        pause(seconds)
        if machine.now > 1002.0 and (held / "fd/3").is_symlink():
            (held / "fd/3").unlink()

    machine.host.pause = leaving
    assert recovery.rescan(machine.host, CARD)[0] == "ok"
    assert machine.begun_at is not None
    assert machine.begun_at > 1002.0


@pytest.mark.parametrize(("count", "said"), [("3\n", "in use 3 times more than can be seen"), ("x\n", "cannot be read")])
def test_a_use_that_no_process_shows_counts(machine: Machine, count: str, said: str) -> None:
    """A mapping keeps the driver without a descriptor; and what cannot be read is not 0."""
    machine.module("nvidia")
    (machine.sysfs / "module/nvidia/refcnt").write_text(count)
    with pytest.raises(Refused, match=said):
        recovery.rescan(machine.host, CARD)


@pytest.mark.parametrize("name", ["nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia_peermem"])
def test_a_use_of_a_module_above_it_counts(machine: Machine, name: str) -> None:
    """Who has a display open has no node of the driver open, perhaps."""
    loaded(machine)
    if name == "nvidia_peermem":
        machine.module(name)
        (machine.sysfs / "module/nvidia/holders/nvidia_peermem").touch()
        (machine.sysfs / "module/nvidia/refcnt").write_text("3\n")
    uses = machine.sysfs / "module" / name / "refcnt"
    uses.write_text(f"{int(uses.read_text()) + 1}\n")
    with pytest.raises(Refused, match=f"the {name} module is in use 1 times more"):
        recovery.rescan(machine.host, CARD)


def test_where_not_even_the_first_process_shows_others_are_hidden(machine: Machine) -> None:
    """A /proc that shows only one's own, or nothing."""
    (machine.proc / "1/fd").rmdir()
    (machine.proc / "1").rmdir()
    for step, target in (("rescan", CARD), ("reboot", "")):
        with pytest.raises(Refused, match="process 1 does not let itself be looked at"):
            recovery.STEPS[step](machine.host, target)
    assert machine.begun_at is None


@pytest.mark.parametrize("error", [PermissionError, OSError])
def test_who_holds_it_and_cannot_be_read_is_no_nobody(machine: Machine, monkeypatch: pytest.MonkeyPatch, error: type[OSError]) -> None:
    """Its files, or its name."""
    folder = machine.process(77, "x")
    (folder / "stat").unlink()
    with pytest.raises(Refused, match="process 77 does not let itself be looked at"):
        recovery.rescan(machine.host, CARD)
    read = os.readlink

    def denied(path: Path) -> str:
        if Path(path).is_relative_to(folder):
            raise error(5, "no")
        return read(path)

    monkeypatch.setattr("xidwatch.supervise.holders.os.readlink", denied)
    machine.host.deadline = machine.now + SECONDS
    with pytest.raises(Refused, match="process 77 does not let itself be looked at"):
        recovery.rescan(machine.host, CARD)


def test_other_modules_that_use_it_are_no_processes(machine: Machine) -> None:
    """nvidia_uvm is always there."""
    machine.module("nvidia", users=("nvidia_uvm", "nvidia_modeset"))
    assert recovery.rescan(machine.host, CARD)[0] == "ok"


def test_a_process_that_may_not_be_looked_at_counts_as_a_holder(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what it holds."""
    folder = machine.process(77, "hidden", "/dev/null")

    listed = os.listdir

    def denied(path: Path) -> list[str]:
        if Path(path) == folder / "fd":
            raise PermissionError
        return listed(path)

    monkeypatch.setattr("xidwatch.supervise.holders.os.listdir", denied)
    with pytest.raises(Refused, match="process 77 does not let itself be looked at"):
        recovery.rescan(machine.host, CARD)


# ----------------------------------------------------------------------------------------------------------- the sandbox


@pytest.mark.parametrize(("step", "target"), [("rescan", CARD), ("slot-power", "4"), ("module-reload", "nvidia")])
def test_what_the_sandbox_forbids_says_which_drop_in_allows_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, step: str, target: str
) -> None:
    """A file that is there and cannot be written to; a capability that is not there."""
    machine.slot()
    machine.module("nvidia")
    (machine.proc / "self/status").write_text("CapEff:\t00000000002a0004\n")
    monkeypatch.setattr("xidwatch.supervise.recovery.os.access", lambda _path, mode: mode != os.W_OK)
    with pytest.raises(Unable, match=DROP_IN.split("(")[0]):
        recovery.STEPS[step](machine.host, target)
    assert machine.begun_at is None


# ------------------------------------------------------------------------------------------------------------ slot power


def test_a_slot_is_off_for_a_while_and_on_again(machine: Machine) -> None:
    """The switch in it comes back with its power."""
    power = machine.slot()
    pause, seen = machine.pause, []

    def hardware(seconds: float) -> None:
        is_on, is_there = power.read_text() == "1", (machine.sysfs / "bus/pci/devices" / SWITCH).exists()
        seen.append((machine.now, is_on))
        if is_there and not is_on:
            machine._take(SWITCH)
            machine.removed.append(SWITCH)
        if is_on and not is_there:
            machine._give()
        pause(seconds)

    machine.host.pause = hardware
    assert recovery.slot_power(machine.host, "4") == ("ok", f"{SWITCH} is back and answering")
    off = [now for now, is_on in seen if not is_on]
    assert next(now for now, is_on in seen if is_on) - off[0] >= OFF_SECONDS
    assert power.read_text() == "1"


def test_a_slot_without_a_switch_has_no_power_to_take(machine: Machine) -> None:
    """Most have none."""
    with pytest.raises(Unable, match="no switch for its power"):
        recovery.slot_power(machine.host, "4")


def test_a_slot_in_which_nobody_is_listed_is_left_alone(machine: Machine) -> None:
    """Nobody knows what hangs on it."""
    machine.slot()
    machine.tree.remove(SWITCH)
    with pytest.raises(Refused, match="nobody is listed in slot 4"):
        recovery.slot_power(machine.host, "4")


# -------------------------------------------------------------------------------------------------- reset, reload, reboot


def test_a_reset_is_what_nvidia_smi_says_it_is(machine: Machine) -> None:
    """Its exit status says less than its words, and not every board has one."""
    machine.programs.answers["nvidia-smi"] = b"GPU 00000000:12:00.0 was successfully reset.\nAll done.\n"
    assert recovery.gpu_reset(machine.host, CARD) == ("ok", f"{CARD} was reset")
    assert machine.programs.ran == [["nvidia-smi", "--gpu-reset", "-i", CARD]]
    machine.begun_at = None
    machine.programs.answers["nvidia-smi"] = b"Resetting GPU 00000000:12:00.0 is not supported.\n"
    assert recovery.gpu_reset(machine.host, CARD) == ("failed", f"{CARD}: Resetting GPU 00000000:12:00.0 is not supported.")
    machine.begun_at = None
    machine.programs.answers["nvidia-smi"] = Missing.TIMED_OUT
    assert recovery.gpu_reset(machine.host, CARD)[0] == "timeout"


def loaded(machine: Machine) -> None:
    machine.module("nvidia", users=("nvidia_uvm", "nvidia_modeset"))
    machine.module("nvidia_modeset", users=("nvidia_drm",))
    machine.module("nvidia_uvm")
    machine.module("nvidia_drm")


def test_a_reset_of_nobody_is_none(machine: Machine) -> None:
    """One that only its place names has no address."""
    with pytest.raises(Refused, match="no address"):
        recovery.gpu_reset(machine.host, "")
    assert machine.begun_at is None


def test_modules_go_with_their_users_first_and_those_that_were_there_come_back(machine: Machine) -> None:
    """And no others."""
    loaded(machine)

    def modprobe(words: list[str]) -> None:
        for name in words[2:] if words[1] == "-r" else ():
            (machine.sysfs / "module" / name).rename(machine.sysfs / f"unloaded-{name}")
        if words[1] != "-r":
            (machine.sysfs / f"unloaded-{words[1]}").rename(machine.sysfs / "module" / words[1])

    machine.programs.does = modprobe
    assert recovery.module_reload(machine.host, "nvidia")[0] == "ok"
    order = ["nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia"]
    assert machine.programs.ran == [["modprobe", "-r", *order], *(["modprobe", name] for name in reversed(order))]


def test_modules_that_stay_are_said(machine: Machine) -> None:
    """In the program's words; those that had gone already are loaded again, for other GPUs may be well."""
    loaded(machine)
    machine.programs.answers["modprobe"] = b"modprobe: FATAL: Module nvidia is in use.\n"
    result, detail = recovery.module_reload(machine.host, "nvidia")
    assert (result, "Module nvidia is in use" in detail) == ("failed", True)
    assert ["modprobe", "nvidia_uvm"] in machine.programs.ran
    machine.begun_at = None
    machine.programs.answers["modprobe"] = Missing.TIMED_OUT
    assert recovery.module_reload(machine.host, "nvidia")[0] == "timeout"


def test_modules_that_somebody_uses_are_not_unloaded(machine: Machine) -> None:
    """A foreign module, an open file, a display."""
    loaded(machine)
    (machine.sysfs / "module/nvidia_uvm/holders/gdrdrv").touch()
    (machine.sysfs / "module/nvidia_uvm/refcnt").write_text("1\n")
    with pytest.raises(Refused, match="gdrdrv uses nvidia_uvm"):
        recovery.module_reload(machine.host, "nvidia")
    (machine.sysfs / "module/nvidia_uvm/holders/gdrdrv").unlink()
    with pytest.raises(Refused, match="the nvidia_uvm module is in use"):
        recovery.module_reload(machine.host, "nvidia")
    (machine.sysfs / "module/nvidia_uvm/refcnt").write_text("0\n")
    card = machine.sysfs / "class/drm/card0"
    (card / "card0-DP-1").mkdir(parents=True)
    (card / "device").symlink_to(machine.tree.folder(CARD))
    (machine.sysfs / "class/drm/card0-DP-1").symlink_to(card / "card0-DP-1")
    (card / "card0-DP-1/status").write_text("connected\n")
    with pytest.raises(Refused, match="a display is connected"):
        recovery.module_reload(machine.host, "nvidia")
    assert not machine.programs.ran


def test_a_reboot_syncs_and_tells_systemd(machine: Machine) -> None:
    """What is stuck, and the driver's own daemons, are no work that would be lost."""
    machine.process(812, "nvidia-persiste", "/dev/nvidiactl")
    machine.process(4711, "VLLM::Worker", state="D")
    assert recovery.reboot(machine.host, "") == ("ok", "systemd has been told to reboot")
    assert machine.programs.ran == [["sync"], ["systemctl", "--no-block", "reboot"]]


def test_a_disk_that_does_not_sync_does_not_keep_it(machine: Machine) -> None:
    """The evidence is on it before anything is decided; an objection of systemd is passed on."""
    machine.programs.answers |= {"sync": Missing.TIMED_OUT, "systemctl": b"Failed to start reboot.target: Access denied\n"}
    assert recovery.reboot(machine.host, "") == ("failed", "Failed to start reboot.target: Access denied")


def test_somebodys_work_is_not_rebooted_away(machine: Machine) -> None:
    """Whoever he is."""
    machine.process(5000, "python3")
    with pytest.raises(Refused, match=r"process 5000 \(python3\) works on a GPU"):
        recovery.reboot(machine.host, "")
    assert not machine.programs.ran


@pytest.mark.parametrize("places", [("/run/xidwatch",), ("elsewhere",), ("/run/xidwatch", "/var/lib/xidwatch")])
def test_without_records_that_outlive_it_there_is_no_reboot(machine: Machine, places: tuple[str, ...]) -> None:
    """Nothing would keep the host from doing it again and again; a second directory does not, for it is the first that is asked."""
    machine.host.evidence = tuple(map(Path, places))
    with pytest.raises(Unable, match="outlive a reboot"):
        recovery.reboot(machine.host, "")
    assert machine.begun_at is None


@pytest.mark.parametrize("mount", ["overlay overlay rw,upperdir=/run/rw", "ext4 /dev/ram0 rw", "ext4 /dev/zram1 rw", "rootfs rootfs rw"])
def test_nor_is_there_one_where_the_disk_is_in_memory(machine: Machine, mount: str) -> None:
    """A live system's, or one that is loaded into memory as a whole."""
    (machine.proc / "self/mountinfo").write_text(f"28 1 8:1 / / rw - {mount}\n")
    with pytest.raises(Unable, match="outlive a reboot"):
        recovery.reboot(machine.host, "")
    assert machine.begun_at is None


def test_where_the_records_are_is_where_a_link_leads(machine: Machine, tmp_path: Path) -> None:
    """Its name may be on a disk, and its content in memory."""
    (tmp_path / "volatile").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "volatile")
    (machine.proc / "self/mountinfo").write_text(
        f"28 1 8:1 / / rw - ext4 /dev/sda1 rw\n29 28 0:25 / {tmp_path.resolve()}/volatile rw - tmpfs tmpfs rw\n"
    )
    machine.host.evidence = (tmp_path / "state",)
    with pytest.raises(Unable, match="outlive a reboot"):
        recovery.reboot(machine.host, "")
