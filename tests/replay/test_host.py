"""The host of a fixture in a folder, as the real probes of PCI and sensors find it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replay.stage import GPUS, HOST, SWITCH
from xidwatch.core.model import Missing, PciAddress
from xidwatch.probes import hwmon_chips, pci_config
from xidwatch.probes.pci import config_space_text
from xidwatch.probes.pci_config import ALL_ONES, TopDown
from xidwatch.replay.host import Host
from xidwatch.replay.script import FixtureError, events

DOWNSTREAM = "0000:10:00.0"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Two GPUs below a switch."""
    return Host(HOST, tmp_path)


def happens(host: Host, line: str) -> None:
    (event,) = events(f"2026-01-01T00:00:00Z {line}", "timeline.txt")
    assert host.apply(event)


def seen(host: Host) -> dict[str, object]:
    """The first dword of every function, or why it was not read."""
    functions = pci_config.enumerate_functions(host.sysfs).values()
    return {str(function.address): answer for function, answer in TopDown(functions, sleep=lambda _: None)}


def test_the_tree_is_the_one_that_was_written(host: Host) -> None:
    """Chains, boards and bus numbers, as the kernel would have numbered them."""
    functions = pci_config.enumerate_functions(host.sysfs)
    gpu = functions[PciAddress.parse(GPUS[1])]
    assert (gpu.kind, gpu.chain, gpu.board) == ("gpu", "0000:00/03.1/00.0/01.0/00.0", "10de:2204 1458:403b")
    switch = functions[PciAddress.parse(SWITCH)]
    assert pci_config.read_dword(switch.folder, pci_config.BUS_NUMBERS) == 0x00_12_10_0F
    assert pci_config.pcie_type(switch.folder) == 5
    assert pci_config.aer_roots(host.sysfs) == frozenset({PciAddress.parse("0000:00:03.1")})
    assert seen(host)[GPUS[0]] == 0x2204_10DE


def test_a_dead_switch_and_all_below_it(host: Host) -> None:
    """All ones at the switch, nothing asked below; then as before."""
    well = seen(host)
    happens(host, f"die {SWITCH}")
    assert seen(host) == {"0000:00:03.1": 0x1453_1022, SWITCH: ALL_ONES} | dict.fromkeys(
        (DOWNSTREAM, "0000:10:01.0", *GPUS), Missing.BEHIND_DEAD_PARENT
    )
    happens(host, f"revive {SWITCH}")
    assert seen(host) == well


def test_asleep_cleared_removed_and_back(host: Host) -> None:
    """Each as the probe knows it."""
    happens(host, f"sleep {GPUS[0]}")
    assert seen(host)[GPUS[0]] is Missing.ASLEEP
    happens(host, f"wake {GPUS[0]}")
    happens(host, f"clear {DOWNSTREAM}")
    folder = host.sysfs / f"devices/pci0000:00/0000:00:03.1/{SWITCH}/{DOWNSTREAM}"
    assert pci_config.read_dword(folder, pci_config.BUS_NUMBERS) == 0
    assert seen(host)[DOWNSTREAM] == 0xC010_1000
    happens(host, f"remove {GPUS[1]}")
    assert GPUS[1] not in seen(host)
    happens(host, f"add {GPUS[1]}")
    assert seen(host)[GPUS[1]] == 0x2204_10DE


def test_a_swapped_card_is_another_one(host: Host) -> None:
    """For the bus and for the driver."""
    happens(host, f"swap {GPUS[1]} ids=10de:2684 uuid=GPU-00000000-0000-0000-0000-000000000009")
    assert seen(host)[GPUS[1]] == 0x2684_10DE
    assert host.library.boards[1].uuid.endswith("9")


def test_a_sensor_that_fails(host: Host) -> None:
    """EIO, to the reader that the probe uses."""
    path = host.sysfs / "class/hwmon/hwmon0/in1_input"
    assert hwmon_chips.read_number(path) == 1008
    happens(host, "chip nct6798 in1_input=EIO")
    assert hwmon_chips.read_number(path) is Missing.MALFORMED
    happens(host, "chip nct6798 in1_input=990")
    assert hwmon_chips.read_number(path) == 990


def test_the_dump_of_it_is_as_on_a_host(host: Host) -> None:
    """Headers and rows of the real collector."""
    text = "\n".join(config_space_text(str(host.sysfs), sleep=lambda _: None))
    assert f"{GPUS[0]} dword0=220410de class=030200 runtime=active power=D0 driver=nvidia path=devices/pci0000:00/" in text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0000:11:00.0 gpu colour=red", "host.txt:1: colour: not known"),
        ("0000:11:00.0 gpu class=red", "host.txt:1: invalid literal"),
        ("proc colour=3", "host.txt:1: colour: not known; proc has"),
        ("toaster", "host.txt:1: expected an address"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(FixtureError) as caught:
        Host(text, tmp_path)
    assert str(caught.value).startswith(complaint)


def test_a_unit_runs_on_the_gpus_of_the_host_and_the_driver_names_its_processes(tmp_path: Path) -> None:
    """On all of them unless it says which; a mistake about it is told with its line."""
    host = Host(f"{HOST}unit vllm.service pids=100,101,102\n", tmp_path)
    happens(host, "unit vllm.service active")
    named = [[process.pid for process in host.library.nvmlDeviceGetComputeRunningProcesses_v3(board)] for board in host.library.boards]
    assert named == [[101], [102]]
    with pytest.raises(FixtureError, match=r"host\.txt:9: requests: not known"):
        Host(f"{HOST}unit vllm.service requests=3\n", tmp_path / "other")
    with pytest.raises(FixtureError, match=r"timeline\.txt:1: engine: ValueError: no `unit sglang\.service` in host\.txt"):
        happens(host, "engine sglang.service well")
