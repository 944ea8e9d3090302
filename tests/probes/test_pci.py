from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest

from tests.fakes.sysfs import AER_CORRECTABLE, SysfsTree, two_switch_host
from xidwatch.core.model import HOST, Missing, Subject, Value
from xidwatch.core.quantities import BY_NAME
from xidwatch.daemon.workers import MAX_ANSWER
from xidwatch.probes import pci, pci_config
from xidwatch.probes.base import Ask, ProbeFailed
from xidwatch.probes.pci import PciProbe, acting_port_type, aer_total, config_space_text, link_gts
from xidwatch.wire import Reply, encode, encode_reading

ROOT_PORT = "port:0000:00:03.1"
SWITCH = "port:0000:0f:00.0"
GPU_PORT = "port:0000:10:00.0"
GPU = "gpu:0000:11:00.0"
OTHER_GPU = "gpu:0000:12:00.0"
DRIVE = "nvme:0000:03:00.0"

HARDWARE = ("config_dword0", "command", "link_gts", "link_width")
BUSES = ("primary_bus", "secondary_bus", "subordinate_bus")
AER = ("aer_correctable", "aer_nonfatal", "aer_fatal")


class Heard:
    """An Emit that keeps everything, in order."""

    def __init__(self) -> None:
        self.touched: list[str] = []
        self.facts: dict[str, dict[str, Value]] = {}

    def at(self, subject: Subject) -> None:
        self.touched.append(str(subject))

    def reading(self, subject: Subject, quantity: str, value: Value) -> None:
        of_subject = self.facts.setdefault(str(subject), {})
        assert quantity not in of_subject, f"{subject} {quantity} reported twice"
        of_subject[quantity] = value


class Rig:
    """The probe on a fake tree, with a clock that stands still and a sleep that only counts and runs `while_asleep`."""

    def __init__(self, tree: SysfsTree) -> None:
        self.tree = tree
        self.slept: list[float] = []
        self.now = 0.0
        self.while_asleep: Callable[[], None] = lambda: None
        self.probe = PciProbe(str(tree.root), sleep=self._sleep, monotonic=lambda: self.now)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.while_asleep()

    def ask(self, what: str = "sample", *, skip: frozenset[str] = frozenset(), deadline: float = inf) -> Heard:
        heard = Heard()
        getattr(self.probe, what)(Ask(deadline=deadline, skip=skip), heard)
        return heard


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(two_switch_host(tmp_path / "sys"))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Every pread of the code under test: (address, bytes asked, offset)."""
    made: list[tuple[str, int, int]] = []
    real = os.pread

    def recorded(descriptor: int, count: int, offset: int) -> bytes:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        assert path.name == "config"
        made.append((path.parent.name, count, offset))
        return real(descriptor, count, offset)

    monkeypatch.setattr(os, "pread", recorded)
    return made


def refuse_config_of(monkeypatch: pytest.MonkeyPatch, folder: Path, error: OSError) -> None:
    """Opening that function's `config` fails. A mode bit would not do: root may read everything."""
    real = os.open

    def opened(path: str | os.PathLike[str], flags: int, *rest: int) -> int:
        if Path(path) == folder / "config":
            raise error
        return real(path, flags, *rest)

    monkeypatch.setattr(os, "open", opened)


# --- all is well


def test_a_healthy_gpu_reports_registers_link_counters_and_driver(rig: Rig) -> None:
    """Everything a sample promises of an endpoint, with the values of the tree."""
    assert rig.ask().facts[GPU] == {
        "present": 1,
        "chain": "0000:00/03.1/00.0/00.0/00.0",
        "board": "10de:2204 1043:87c5",
        "aer_native": 1,
        "config_dword0": 0x220410DE,
        "command": 0x0507,
        "link_gts": 16.0,
        "link_width": 16,
        "aer_correctable": 0,
        "aer_nonfatal": 0,
        "aer_fatal": 0,
        "driver": "nvidia",
    }


def test_a_bridge_also_reports_its_bus_numbers_and_a_root_port_its_totals(rig: Rig) -> None:
    """Bus numbers tell a re-powered bridge; error messages from below are counted only at the root."""
    facts = rig.ask().facts
    assert [facts[SWITCH][quantity] for quantity in BUSES] == [0x0F, 0x10, 0x14]
    assert facts[ROOT_PORT]["aer_root_fatal"] == 0
    assert "aer_root_fatal" not in facts[SWITCH]
    assert "secondary_bus" not in facts[GPU]


def test_only_ports_gpus_and_drives_are_read(rig: Rig) -> None:
    """Sound function and host bridge are counted, not touched."""
    facts = rig.ask("inventory").facts
    assert facts.pop(str(HOST)) == {"functions_elsewhere": 2, "virtual_functions": ""}
    assert {subject.split(":")[0] for subject in facts} == {"port", "gpu", "nvme"}
    assert len(facts) == 14


def test_a_gpu_of_another_vendor_is_not_ours(rig: Rig) -> None:
    """Display controllers that NVIDIA's driver does not serve are counted elsewhere."""
    rig.tree.other("0000:00:02.0", class_code=0x030000)
    facts = rig.ask("inventory").facts
    assert facts[str(HOST)]["functions_elsewhere"] == 3
    assert "gpu:0000:00:02.0" not in facts


def test_of_too_many_functions_gpus_and_what_is_above_them_are_kept(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is left out and counted, also below a port that is kept; the list is not called whole then, or they would be missed."""
    monkeypatch.setattr(pci, "MOST_FUNCTIONS", 11)
    for what in ("inventory", "sample", "look"):
        facts = rig.ask(what).facts
        host = facts.pop(str(HOST))
        assert host == (
            {"functions_elsewhere": 2, "functions_unread": 3, "virtual_functions": ""}
            if what == "inventory"
            else {"pci_functions": Missing.NOT_ASKED}
        )
        assert {subject for subject in facts if subject.startswith("gpu")} == {f"gpu:0000:{bus}:00.0" for bus in (11, 12, 13, 14)}
        assert {ROOT_PORT, SWITCH, GPU_PORT} <= set(facts)
        assert len(facts) == 11
    touched = rig.ask().touched
    assert touched.index(ROOT_PORT) < touched.index(SWITCH) < touched.index(GPU_PORT) < touched.index(GPU)


def test_the_most_that_is_told_fits_into_an_answer(rig: Rig) -> None:
    """Were every function as talkative as the longest-winded here."""
    for what in ("inventory", "sample"):
        facts = rig.ask(what).facts
        del facts[str(HOST)]
        sizes = []
        for name, values in facts.items():
            subject = Subject.parse(name)
            lines = [encode_reading(10**9, subject, quantity, value) for quantity, value in values.items()]
            sizes.append(sum(map(len, lines)) + len(encode(Reply(ask=10**9, at=name))))
        assert max(sizes) * pci.MOST_FUNCTIONS < MAX_ANSWER


def test_parents_come_before_children(rig: Rig) -> None:
    """Whoever is asked has all bridges above it already asked."""
    touched = rig.ask().touched
    chain = [touched.index(subject) for subject in (ROOT_PORT, SWITCH, GPU_PORT, GPU)]
    assert chain == sorted(chain)
    assert len(touched) == 14


def test_config_space_is_read_four_bytes_at_a_time(rig: Rig, reads: list[tuple[str, int, int]]) -> None:
    """A request costs a handful of transactions per function, never a page of them."""
    rig.ask("sample")
    rig.ask("look")
    assert {(count, offset) for _, count, offset in reads} == {(4, 0x00), (4, 0x04), (4, 0x18)}
    assert len(reads) == 2 * (9 * 3 + 5 * 2)
    rig.ask("inventory")
    assert {count for _, count, _ in reads} == {4}


def test_a_look_brings_registers_and_nothing_slower(rig: Rig) -> None:
    """What follows a kernel line has to be quick."""
    facts = rig.ask("look").facts
    assert set(facts[GPU]) == {"present", "chain", "board", "config_dword0", "command", "driver"}
    assert set(facts[SWITCH]) == {*facts[GPU], *BUSES}
    assert facts[str(HOST)] == {"pci_functions": 16}


@pytest.mark.parametrize("state", ["healthy", "dead", "asleep", "gone"])
def test_every_quantity_is_in_the_table(rig: Rig, state: str) -> None:
    """Names and units come from one list, whatever the state of the hardware."""
    rig.ask()
    {"healthy": lambda _: None, "dead": rig.tree.die, "asleep": rig.tree.sleep, "gone": rig.tree.remove}[state]("0000:0f:00.0")
    said = {quantity for what in ("sample", "look", "inventory") for facts in rig.ask(what).facts.values() for quantity in facts}
    assert said <= set(BY_NAME)


# --- all ones


def test_below_a_dead_switch_nothing_is_read(rig: Rig, reads: list[tuple[str, int, int]]) -> None:
    """The switch is asked twice, 100 ms apart; its ports and GPUs not once."""
    rig.tree.die("0000:0f:00.0")
    facts = rig.ask().facts
    assert facts[SWITCH]["config_dword0"] == 0xFFFFFFFF
    assert [read for read in reads if read[0] == "0000:0f:00.0"] == [("0000:0f:00.0", 4, 0)] * 2
    assert rig.slept == [0.1]
    for subject in (GPU_PORT, GPU, OTHER_GPU):
        assert [facts[subject][quantity] for quantity in HARDWARE] == [Missing.BEHIND_DEAD_PARENT] * 4
    assert not [read for read in reads if read[0][5:7] in {"10", "11", "12", "13", "14"}]


def test_beside_a_dead_switch_the_other_side_is_read(rig: Rig) -> None:
    """The drive answers, and so does the root port above the dead switch: that is what rules the host out."""
    rig.tree.die("0000:0f:00.0")
    facts = rig.ask().facts
    assert facts[DRIVE]["config_dword0"] == 0xA80A144D
    assert facts[ROOT_PORT]["secondary_bus"] == 0x0F


def test_a_dead_function_has_no_registers_and_no_link(rig: Rig) -> None:
    """63 lanes at an unknown speed and a command of ffff are nothing that was measured."""
    rig.tree.die("0000:0f:00.0")
    switch = rig.ask().facts[SWITCH]
    assert [switch[quantity] for quantity in ("command", *BUSES, "link_gts", "link_width")] == [Missing.DEVICE_LOST] * 6


def test_counters_and_driver_of_a_dead_function_are_still_evidence(rig: Rig) -> None:
    """They live in the kernel and cost no transaction."""
    rig.tree.write("0000:11:00.0", "aer_dev_correctable", AER_CORRECTABLE.replace("TOTAL_ERR_COR 0", "TOTAL_ERR_COR 12"))
    rig.tree.die("0000:0f:00.0")
    gpu = rig.ask().facts[GPU]
    assert (gpu["aer_correctable"], gpu["driver"]) == (12, "nvidia")


def test_one_dead_downstream_port_costs_one_gpu(rig: Rig) -> None:
    """Its siblings and the switch above go on being read."""
    rig.tree.die("0000:10:00.0")
    facts = rig.ask().facts
    assert facts[GPU_PORT]["config_dword0"] == 0xFFFFFFFF
    assert facts[GPU]["config_dword0"] is Missing.BEHIND_DEAD_PARENT
    assert facts[OTHER_GPU]["config_dword0"] == 0x220410DE
    assert facts[SWITCH]["config_dword0"] == 0xC0101000


def test_all_suspects_of_a_level_share_one_wait(rig: Rig) -> None:
    """Four GPUs lost at once do not cost four times 100 ms."""
    for bus in (0x11, 0x12, 0x13, 0x14):
        rig.tree.die(f"0000:{bus:02x}:00.0")
    facts = rig.ask("look").facts
    assert [facts[f"gpu:0000:{bus:02x}:00.0"]["config_dword0"] for bus in (0x11, 0x12, 0x13, 0x14)] == [0xFFFFFFFF] * 4
    assert rig.slept == [0.1]


def test_all_ones_that_are_gone_after_100_ms_are_no_all_ones(rig: Rig) -> None:
    """Only the second answer counts, and what is below is then read as usual."""
    rig.tree.die("0000:0f:00.0")
    rig.while_asleep = lambda: rig.tree.recover("0000:0f:00.0")
    facts = rig.ask().facts
    assert facts[SWITCH]["config_dword0"] == 0xC0101000
    assert facts[GPU]["command"] == 0x0507
    assert rig.slept == [0.1]


def test_nobody_waits_on_a_healthy_host(rig: Rig) -> None:
    """The confirmation is paid for only when there is something to confirm."""
    rig.ask()
    assert rig.slept == []


def test_a_function_that_dies_between_two_reads_has_no_command(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ffff was never in that register."""
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, count, offset: real(fd, count, offset) if offset == 0 else b"\xff" * count)
    facts = rig.ask("look").facts
    assert facts[SWITCH]["config_dword0"] == 0xC0101000
    assert [facts[SWITCH][quantity] for quantity in ("command", *BUSES)] == [Missing.DEVICE_LOST] * 4


def test_a_device_that_is_not_ready_is_shown_as_it_is_and_left_alone(rig: Rig, reads: list[tuple[str, int, int]]) -> None:
    """Any register but the vendor id would make the root complex repeat the read until it times out."""
    rig.tree.write("0000:0f:00.0", "config", (0xFFFF0001).to_bytes(4, "little") + bytes(4092))
    facts = rig.ask().facts
    assert facts[SWITCH]["config_dword0"] == 0xFFFF0001
    assert facts[SWITCH]["command"] is Missing.NOT_ASKED
    assert facts[GPU]["config_dword0"] is Missing.NOT_ASKED
    assert [read for read in reads if read[0] == "0000:0f:00.0"] == [("0000:0f:00.0", 4, 0)]


def test_a_bridge_with_power_back_answers_with_cleared_registers(rig: Rig) -> None:
    """Its id is right, its bus numbers are 0, and nobody below answers yet."""
    rig.tree.die("0000:0f:00.0")
    rig.tree.revive_cleared("0000:0f:00.0")
    facts = rig.ask().facts
    assert [facts[SWITCH][quantity] for quantity in ("config_dword0", "command", *BUSES)] == [0xC0101000, 0, 0, 0, 0]
    assert facts[GPU_PORT]["config_dword0"] == 0xFFFFFFFF
    assert facts[GPU]["config_dword0"] is Missing.BEHIND_DEAD_PARENT


# --- asleep


@pytest.mark.parametrize("status", ["suspended", "suspending", "resuming"])
def test_a_sleeping_device_is_asleep_whatever_its_config_says(rig: Rig, status: str, reads: list[tuple[str, int, int]]) -> None:
    """All ones in D3cold are no loss, and reading would have woken it."""
    rig.tree.sleep("0000:11:00.0")
    rig.tree.write("0000:11:00.0", "power/runtime_status", f"{status}\n")
    heard = rig.ask()
    assert [heard.facts[GPU][quantity] for quantity in HARDWARE] == [Missing.ASLEEP] * 4
    assert GPU not in heard.touched
    assert not [read for read in reads if read[0] == "0000:11:00.0"]
    assert rig.slept == []


def test_a_sleeping_bridge_is_not_woken_for_what_is_below(rig: Rig, reads: list[tuple[str, int, int]]) -> None:
    """A read of a child resumes its parent first."""
    rig.tree.sleep("0000:0f:00.0")
    facts = rig.ask().facts
    assert facts[SWITCH]["secondary_bus"] is Missing.ASLEEP
    assert facts[GPU]["link_width"] is Missing.ASLEEP
    assert {address for address, _, _ in reads} == {"0000:00:01.1", "0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:00:03.1"}


def test_a_bridge_of_no_kind_that_sleeps_is_not_woken_either(tmp_path: Path, reads: list[tuple[str, int, int]]) -> None:
    """Not every function with others below it is a PCI-to-PCI bridge."""
    tree = SysfsTree(tmp_path)
    controller = tree.other("0000:00:0e.0", class_code=0x088000)
    tree.nvme("0000:e1:00.0", controller)
    tree.sleep(controller)
    assert Rig(tree).ask().facts["nvme:0000:e1:00.0"]["config_dword0"] is Missing.ASLEEP
    assert reads == []


def test_without_runtime_power_management_everything_is_awake(rig: Rig) -> None:
    """A kernel built without it has no such file."""
    rig.tree.unlink("0000:11:00.0", "power/runtime_status")
    assert rig.ask().facts[GPU]["config_dword0"] == 0x220410DE


# --- gone, new, virtual


def test_a_function_that_left_sysfs_is_absent_until_the_next_inventory(rig: Rig) -> None:
    """Its readings do not just stop: a silent column looks like a quiet device."""
    before = rig.ask().facts[GPU]
    rig.tree.remove("0000:11:00.0")
    heard = rig.ask()
    listed = {"present": 0, "aer_native": 1}
    assert heard.facts[GPU] == {**dict.fromkeys(before.keys() - {"chain", "board"}, Missing.ABSENT), **listed}
    assert heard.facts[str(HOST)] == {"pci_functions": 15}
    assert GPU not in heard.touched
    assert GPU not in rig.ask("inventory").facts
    assert GPU not in rig.ask().facts


def test_a_function_that_comes_is_read_at_once_and_one_that_left_is_not_forgotten(rig: Rig) -> None:
    """A hot-plug event needs no inventory to be seen."""
    rig.ask()
    rig.tree.remove("0000:12:00.0")
    rig.tree.gpu("0000:11:00.2", "0000:10:00.0")
    facts = rig.ask().facts
    assert facts["gpu:0000:11:00.2"]["config_dword0"] == 0x220410DE
    assert facts[OTHER_GPU]["config_dword0"] is Missing.ABSENT


def test_another_device_at_an_address_that_was_free_for_a_while_is_seen_for_what_it_is(rig: Rig) -> None:
    """Between two requests a slot can be emptied, and later be filled with something else."""
    rig.ask()
    rig.tree.remove("0000:11:00.0")
    rig.ask()
    rig.tree.nvme("0000:11:00.0", "0000:10:00.0")
    facts = rig.ask().facts
    assert facts["nvme:0000:11:00.0"]["config_dword0"] == 0xA80A144D
    assert GPU not in facts


def test_virtual_functions_are_left_out(rig: Rig, reads: list[tuple[str, int, int]]) -> None:
    """Their ids read ffff on a healthy device."""
    rig.tree.virtual_function("0000:11:00.4", "0000:10:00.0", "0000:11:00.0")
    facts = rig.ask("inventory").facts
    assert "gpu:0000:11:00.4" not in facts
    assert facts[str(HOST)]["functions_elsewhere"] == 3
    assert not [read for read in reads if read[0] == "0000:11:00.4"]


def test_a_host_without_a_pci_bus_says_so(tmp_path: Path) -> None:
    """The probe as a whole has no source."""
    probe = PciProbe(str(tmp_path))
    for request in (probe.sample, probe.look, probe.inventory):
        with pytest.raises(ProbeFailed, match="NoPciBus"):
            request(Ask(deadline=inf), Heard())


# --- errors of one device stay with it


@pytest.mark.parametrize(
    ("error", "missing"),
    [
        (PermissionError(13, "Permission denied"), Missing.DENIED),
        (PermissionError(1, "Operation not permitted"), Missing.DENIED),
        (OSError(19, "No such device"), Missing.ABSENT),
        (OSError(5, "Input/output error"), Missing.MALFORMED),
    ],
)
def test_an_error_is_a_reason_and_the_others_are_read(rig: Rig, monkeypatch: pytest.MonkeyPatch, error: OSError, missing: Missing) -> None:
    """One device that cannot be read is one device's missing readings."""
    refuse_config_of(monkeypatch, rig.tree.folder("0000:11:00.0"), error)
    facts = rig.ask().facts
    assert [facts[GPU][quantity] for quantity in HARDWARE] == [missing] * 4
    assert facts[OTHER_GPU]["command"] == 0x0507


def test_a_short_answer_is_malformed(rig: Rig) -> None:
    """Two bytes are no dword."""
    rig.tree.write("0000:11:00.0", "config", b"\xde\x10")
    assert rig.ask().facts[GPU]["config_dword0"] is Missing.MALFORMED


def test_what_a_device_does_not_have_is_unsupported_not_silent(rig: Rig) -> None:
    """Neither link files nor AER: said, not left out."""
    for name in ("current_link_speed", "current_link_width", "aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal"):
        rig.tree.unlink("0000:11:00.0", name)
    gpu = rig.ask().facts[GPU]
    assert [gpu[quantity] for quantity in ("link_gts", "link_width", *AER)] == [Missing.UNSUPPORTED] * 5
    assert rig.ask("inventory").facts[GPU]["aer"] == 0


@pytest.mark.parametrize("lanes", ["63", "255"])
def test_the_width_of_a_device_that_died_under_the_read_is_no_width(rig: Rig, lanes: str) -> None:
    """All ones are not more lanes than any link has: somebody would compare them."""
    rig.tree.write("0000:11:00.0", "current_link_width", f"{lanes}\n")
    assert rig.ask().facts[GPU]["link_width"] is Missing.DEVICE_LOST


def test_a_port_without_a_link_has_no_lanes(rig: Rig) -> None:
    """An empty slot says 0, and that is what it has."""
    rig.tree.write("0000:10:00.0", "current_link_width", "0\n")
    assert rig.ask().facts[GPU_PORT]["link_width"] == 0


def test_the_kernel_handles_errors_only_of_root_ports_with_a_service(rig: Rig) -> None:
    """The counters are there either way; with the firmware in charge they stay at zero for ever."""
    service = rig.tree.root / "bus/pci_express/drivers/aer"
    assert {rig.ask().facts[subject]["aer_native"] for subject in (ROOT_PORT, GPU, DRIVE)} == {1}
    (service / "0000:00:03.1:pcie002").unlink()
    facts = rig.ask().facts
    assert [facts[subject]["aer_native"] for subject in (ROOT_PORT, GPU, DRIVE)] == [0, 0, 1]
    shutil.rmtree(service)
    assert rig.ask().facts[DRIVE]["aer_native"] == 0


def test_a_drive_is_known_by_its_serial(rig: Rig) -> None:
    """As its driver has cached it; without a driver nobody has asked."""
    assert rig.ask("inventory").facts[DRIVE]["serial"] is Missing.UNSUPPORTED
    controller = rig.tree.folder("0000:03:00.0") / "nvme/nvme0"
    controller.mkdir(parents=True)
    (controller / "serial").write_text("S0000000000001      \n")
    assert rig.ask("inventory").facts[DRIVE]["serial"] == "S0000000000001"


def test_two_root_buses_with_the_same_tree_are_told_apart(tmp_path: Path) -> None:
    """Chains begin with the root bus."""
    tree = SysfsTree(tmp_path)
    tree.gpu("0000:01:00.0", tree.bridge("0000:00:01.1", secondary=0x01))
    tree.gpu("0000:41:00.0", tree.bridge("0000:40:01.1", secondary=0x41))
    facts = Rig(tree).ask().facts
    assert [facts[f"gpu:0000:{bus}:00.0"]["chain"] for bus in ("01", "41")] == ["0000:00/01.1/00.0", "0000:40/01.1/00.0"]


def test_rubbish_in_an_attribute_is_malformed(rig: Rig) -> None:
    """It never becomes a number."""
    rig.tree.write("0000:11:00.0", "current_link_width", "many\n")
    rig.tree.write("0000:11:00.0", "aer_dev_fatal", b"\xff\xfe\n")
    gpu = rig.ask().facts[GPU]
    assert (gpu["link_width"], gpu["aer_fatal"]) == (Missing.MALFORMED, Missing.MALFORMED)


# --- skip and deadline


def test_a_skipped_subtree_is_not_touched(rig: Rig, reads: list[tuple[str, int, int]]) -> None:
    """A predecessor got stuck in it; its counters need no hardware and are still read."""
    heard = rig.ask(skip=frozenset({SWITCH}))
    for subject in (SWITCH, GPU_PORT, GPU):
        assert [heard.facts[subject][quantity] for quantity in HARDWARE] == [Missing.NOT_ASKED] * 4
    assert heard.facts[GPU]["aer_fatal"] == 0
    assert heard.facts[DRIVE]["command"] == 0x0507
    assert {address[5:7] for address, _, _ in reads} == {"00", "01", "02", "03"}
    assert SWITCH not in heard.touched


def test_past_the_deadline_no_further_device_is_touched(rig: Rig) -> None:
    """What was said before stands; the daemon knows what the rest means."""
    clock = iter(range(100))
    rig.probe = PciProbe(str(rig.tree.root), monotonic=lambda: float(next(clock)))
    heard = rig.ask(deadline=3.0)
    assert heard.touched == ["port:0000:00:01.1", ROOT_PORT, "port:0000:01:00.0"]
    assert [subject for subject, facts in heard.facts.items() if "config_dword0" in facts] == heard.touched


def test_all_ones_that_could_not_be_confirmed_before_the_deadline_are_not_reported(rig: Rig) -> None:
    """One read is no verdict."""
    rig.tree.die("0000:0f:00.0")
    rig.while_asleep = lambda: setattr(rig, "now", 5.0)
    facts = rig.ask(deadline=4.0).facts
    assert "config_dword0" not in facts[SWITCH]
    assert "config_dword0" in facts[ROOT_PORT]


# --- inventory


def test_inventory_says_who_a_gpu_is_and_what_it_can_do(rig: Rig) -> None:
    """Identity that survives renumbering, and limits to compare with later."""
    assert rig.ask("inventory").facts[GPU] == {
        "chain": "0000:00/03.1/00.0/00.0/00.0",
        "parent": "0000:10:00.0",
        "vendor": 0x10DE,
        "device": 0x2204,
        "subsystem": "1043:87c5",
        "class": 0x030000,
        "driver": "nvidia",
        "slot": Missing.UNSUPPORTED,
        "numa_node": -1,
        "aer": 1,
        "aer_native": 1,
        "max_link_gts": 16.0,
        "max_link_width": 16,
    }


def test_inventory_names_the_place_of_each_port(rig: Rig) -> None:
    """Root, upstream and downstream, from the PCI Express capability."""
    facts = rig.ask("inventory").facts
    assert [facts[subject]["port_type"] for subject in (ROOT_PORT, SWITCH, GPU_PORT)] == ["root", "upstream", "downstream"]
    assert (facts[ROOT_PORT]["parent"], facts[SWITCH]["slot"]) == ("", "4")


def test_a_dead_device_has_no_limits(rig: Rig) -> None:
    """63 lanes would be a limit that no healthy link ever reaches."""
    rig.tree.die("0000:0f:00.0")
    facts = rig.ask("inventory").facts
    assert [facts[SWITCH][quantity] for quantity in ("port_type", "max_link_gts", "max_link_width")] == [Missing.DEVICE_LOST] * 3
    assert facts[GPU]["max_link_width"] is Missing.BEHIND_DEAD_PARENT
    assert facts[GPU]["chain"] == "0000:00/03.1/00.0/00.0/00.0"


def test_a_limit_of_63_lanes_is_a_device_that_died_just_now(rig: Rig) -> None:
    """The link file is read after the first dword; the device can go in between."""
    rig.tree.write("0000:11:00.0", "max_link_width", "63\n")
    assert rig.ask("inventory").facts[GPU]["max_link_width"] is Missing.DEVICE_LOST


def test_without_the_right_to_all_of_config_space_there_is_no_port_type(rig: Rig) -> None:
    """The kernel gives an ordinary user 64 bytes and no error."""
    image = (rig.tree.folder("0000:0f:00.0") / "config").read_bytes()
    rig.tree.write("0000:0f:00.0", "config", image[:64])
    switch = rig.ask("inventory").facts[SWITCH]
    assert (switch["port_type"], switch["max_link_width"]) == (Missing.DENIED, 16)


def test_a_bridge_without_pci_express_is_a_bridge(rig: Rig) -> None:
    """Conventional PCI has no port types."""
    image = bytearray((rig.tree.folder("0000:0f:00.0") / "config").read_bytes())
    image[0x06] = 0
    rig.tree.write("0000:0f:00.0", "config", bytes(image))
    assert rig.ask("inventory").facts[SWITCH]["port_type"] == "bridge"


def test_a_capability_list_that_runs_in_a_circle_ends(rig: Rig) -> None:
    """A broken device must not hold the worker."""
    image = bytearray((rig.tree.folder("0000:0f:00.0") / "config").read_bytes())
    image[0x41] = 0x40
    rig.tree.write("0000:0f:00.0", "config", bytes(image))
    assert rig.ask("inventory").facts[SWITCH]["port_type"] is Missing.MALFORMED


@pytest.mark.parametrize(("claimed", "above", "acting"), [(4, None, 4), (5, 4, 5), (6, 5, 6), (6, 4, 5), (6, 6, 5), (5, 5, 6)])
def test_a_port_that_claims_the_wrong_direction_is_corrected(claimed: int, above: int | None, acting: int) -> None:
    """Two downstream or two upstream ports in a row cannot be."""
    assert acting_port_type(claimed, above) == acting


# --- texts


@pytest.mark.parametrize(
    ("text", "gts"),
    [
        ("16.0 GT/s PCIe", 16.0),
        ("2.5 GT/s", 2.5),
        ("8 GT/s", 8.0),
        ("Unknown", Missing.MALFORMED),
        ("", Missing.MALFORMED),
        (Missing.UNSUPPORTED, Missing.UNSUPPORTED),
    ],
)
def test_link_speed_is_the_leading_number(text: str, gts: float | Missing) -> None:
    """Kernels print it with and without ` PCIe`."""
    assert link_gts(text) == gts


@pytest.mark.parametrize(
    ("text", "total"),
    [
        ("RxErr 3\nBadTLP 0\nTOTAL_ERR_COR 3", 3),
        ("Receiver Error 2\nBad TLP 1\nTOTAL_ERR_COR 2", 2),
        ("Data Link Protocol 0\nSurprise Down Error 1\nTOTAL_ERR_FATAL 1", 1),
        ("DLP 0\nSDES 1\nfatal_errs_bit[27] 1\nTOTAL_ERR_FATAL 1\n", 1),
        ("RxErr 3", Missing.MALFORMED),
        ("TOTAL_ERR_COR many", Missing.MALFORMED),
        ("", Missing.MALFORMED),
        (Missing.ABSENT, Missing.ABSENT),
    ],
)
def test_aer_total_reads_the_names_of_kernel_and_document(text: str, total: int | Missing) -> None:
    """The total counts events: it is read, not summed."""
    assert aer_total(text) == total


# --- forensic text


def dump(tree: SysfsTree, **options: frozenset[str]) -> list[str]:
    return "\n".join(config_space_text(str(tree.root), sleep=lambda _: None, **options)).split("\n")


def rows_of(lines: list[str], address: str) -> list[str]:
    """The hex rows under one function's header."""
    start = next(number for number, line in enumerate(lines) if line.startswith((address, f"# {address}")))
    end = next((number for number in range(start, len(lines)) if not lines[number]), len(lines))
    return [line for line in lines[start:end] if re.match(r"[0-9a-f]{2,3}: ", line)]


def test_the_dump_holds_all_of_every_function_that_answers(rig: Rig, reads: list[tuple[str, int, int]]) -> None:
    """Whatever size the file has, also of functions that are never sampled, and each byte once."""
    lines = dump(rig.tree)
    blocks = [("0000:11:00.0", pci.BLOCK_BYTES, offset) for offset in range(0, 4096, pci.BLOCK_BYTES)]
    assert [read for read in reads if read[0] == "0000:11:00.0"] == [("0000:11:00.0", 4, 0), *blocks]
    rows = rows_of(lines, "0000:11:00.0")
    assert bytes.fromhex("".join(row.partition(": ")[2] for row in rows)) == (rig.tree.folder("0000:11:00.0") / "config").read_bytes()
    assert len(rows_of(lines, "0000:11:00.1")) == 16
    assert (
        "0000:11:00.0 dword0=220410de class=030000 runtime=active power=D0 driver=nvidia "
        "path=devices/pci0000:00/0000:00:03.1/0000:0f:00.0/0000:10:00.0/0000:11:00.0"
    ) in lines


def test_the_dump_reads_no_more_than_a_dword_of_what_does_not_answer(rig: Rig, reads: list[tuple[str, int, int]]) -> None:
    """1024 completion timeouts with interrupts off would make a bad night worse."""
    rig.tree.die("0000:0f:00.0")
    lines = dump(rig.tree)
    assert "# 0000:0f:00.0 no answer (all ones twice, 100 ms apart): nothing more was read" in lines
    assert "# 0000:11:00.0 the bridge above does not answer: not read" in lines
    assert [read for read in reads if read[0] == "0000:0f:00.0"] == [("0000:0f:00.0", 4, 0)] * 2
    assert not [read for read in reads if read[0].startswith("0000:1")]
    assert len(rows_of(lines, "0000:00:03.1")) == 256


def test_the_dump_wakes_nobody_and_asks_no_virtual_function(rig: Rig, reads: list[tuple[str, int, int]]) -> None:
    """Each is named with the reason why it was left alone."""
    rig.tree.sleep("0000:10:04.0")
    rig.tree.virtual_function("0000:11:00.4", "0000:10:00.0", "0000:11:00.0")
    lines = dump(rig.tree, skip=frozenset({"gpu:0000:13:00.0"}))
    assert "# 0000:12:00.0 asleep, or below a sleeping bridge: not read, reading would wake it" in lines
    assert "# 0000:11:00.4 virtual function: its ids read ffff by design: not read" in lines
    assert "# 0000:13:00.0 left out, or below a bridge that was left out or is not ready: not read" in lines
    assert not {address for address, _, _ in reads} & {"0000:10:04.0", "0000:12:00.0", "0000:11:00.4", "0000:13:00.0"}


def test_the_dump_gives_up_on_a_device_that_dies_under_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of all ones is checked against the first dword before the next is read."""
    real = os.pread
    died: list[int] = []

    def dying(descriptor: int, count: int, offset: int) -> bytes:
        mine = Path(f"/proc/self/fd/{descriptor}").readlink().parent.name == "0000:11:00.0"
        if mine and (died or offset >= 0x100):
            died.append(count)
            return b"\xff" * count
        return real(descriptor, count, offset)

    monkeypatch.setattr(os, "pread", dying)
    lines = dump(rig.tree)
    assert len(rows_of(lines, "0000:11:00.0")) == 16
    assert "# stopped answering before 140" in lines
    assert died == [pci.BLOCK_BYTES, 4]


def test_the_dump_of_an_ordinary_user_says_where_it_ends(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file claims 4096 bytes and gives 64."""
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, count, offset: real(fd, max(0, min(count, 64 - offset)), offset))
    lines = dump(rig.tree)
    assert len(rows_of(lines, "0000:11:00.0")) == 4
    assert "# ends at 40: the rest needs CAP_SYS_ADMIN" in lines


def test_no_line_of_the_dump_is_too_long_for_lspci(tmp_path: Path) -> None:
    """It refuses the whole file over one such line; the tail of an absurdly deep path is the least loss."""
    tree, parent = SysfsTree(tmp_path), ""
    for bus in range(20):
        parent = tree.bridge(f"0000:{bus:02x}:00.0", parent, secondary=bus + 1)
    assert max(map(len, dump(tree))) == pci.LINE_LIMIT


@pytest.mark.skipif(not shutil.which("lspci"), reason="lspci (pciutils) is not installed")
def test_lspci_decodes_the_dump(rig: Rig, tmp_path: Path) -> None:
    """The comments of what did not answer do not disturb it, and the rest is decoded."""
    rig.tree.die("0000:10:00.0")
    written = tmp_path / "config-space.txt"
    written.write_text("\n".join(dump(rig.tree)) + "\n")
    decoded = subprocess.run(["lspci", "-F", written, "-D", "-n", "-vv"], capture_output=True, text=True, timeout=20, check=True)
    assert "Express (v2) Legacy Endpoint" in decoded.stdout
    assert "0000:0f:00.0 0604: 1000:c010" in decoded.stdout
    assert "Bus: primary=0f, secondary=10, subordinate=14" in decoded.stdout
    assert "0000:11:00.0" not in decoded.stdout
    assert "header" not in decoded.stderr


def test_a_dump_without_a_pci_bus_says_so(tmp_path: Path) -> None:
    """An empty part would look like an empty host."""
    with pytest.raises(ProbeFailed, match="NoPciBus"):
        next(config_space_text(str(tmp_path)))


# --- the real thing


@pytest.mark.skipif(not Path("/sys/bus/pci/devices").is_dir(), reason="this host has no PCI bus")
def test_the_probe_reads_this_host(reads: list[tuple[str, int, int]]) -> None:
    """Whatever is here: every function is either read, four bytes at a time, or counted."""
    probe = pci.create({})
    inventory, sample = Heard(), Heard()
    probe.inventory(Ask(deadline=inf), inventory)
    probe.sample(Ask(deadline=inf), sample)
    elsewhere = inventory.facts.pop(str(HOST))["functions_elsewhere"]
    assert isinstance(elsewhere, int)
    assert sample.facts.pop(str(HOST)) == {"pci_functions": len(sample.facts) + elsewhere}
    assert set(inventory.facts) == set(sample.facts)
    assert len(sample.facts) + elsewhere == len(pci_config.links(Path("/sys")))
    assert {count for _, count, _ in reads} <= {4}
