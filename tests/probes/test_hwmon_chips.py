"""Sensor chips: who they are, whatever their number is today, and what they offer."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.fakes.hwmon import HwmonTree
from xidwatch.core.model import Missing
from xidwatch.probes.hwmon_chips import find, inputs, is_asleep, links, numbered, place, read_number, read_text


@pytest.fixture
def tree(tmp_path: Path) -> HwmonTree:
    return HwmonTree(tmp_path / "sys")


# --- who they are


def test_a_chip_is_its_name_and_where_its_device_sits(tree: HwmonTree) -> None:
    """Never its number."""
    tree.board()
    (chip,) = find(tree.root).values()
    assert (chip.identity, chip.driver) == ("nct6798@platform/nct6775.656", "nct6775")


def test_a_chip_stays_who_it_is_when_numbers_move(tree: HwmonTree) -> None:
    """What changes is the list of links, and that is how it is noticed."""
    tree.board()
    tree.supply()
    before, seen = find(tree.root), links(tree.root)
    tree.renumber()
    after = find(tree.root)
    assert links(tree.root) != seen
    assert after.keys() == before.keys()
    assert all(after[identity].folder != before[identity].folder for identity in before)


def test_two_of_a_kind_are_told_apart_by_their_address(tree: HwmonTree) -> None:
    """Two memory modules on one bus."""
    for address in ("0018", "0019"):
        tree.chip("jc42", f"pci0000:00/0000:00:1f.4/i2c-3/3-{address}", {"temp1_input": 40000})
    (tree.root / "devices/pci0000:00/0000:00:1f.4/i2c-3/name").write_text("SMBus I801 adapter at efa0\n")
    adapter = "pci0000:00/0000:00:1f.4/i2c-smbus-i801-adapter-at-efa0"
    assert list(find(tree.root)) == [f"jc42@{adapter}/0018", f"jc42@{adapter}/0019"]


def test_two_that_nothing_tells_apart_are_both_there(tree: HwmonTree) -> None:
    """Chips without a device of their own; numbered, so that neither hides the other."""
    for number in range(2):
        folder = tree.root / f"devices/virtual/hwmon/hwmon{number}"
        folder.mkdir(parents=True)
        (folder / "name").write_text("acpitz\n")
        (tree.root / f"class/hwmon/hwmon{number}").symlink_to(folder)
    assert list(find(tree.root)) == ["acpitz@virtual", "acpitz@virtual#2"]
    assert numbered("aab") == ["a", "a#2", "b"]


@pytest.mark.parametrize(
    ("device", "where"),
    [
        ("pci0000:00/0000:00:18.3", "pci0000:00/0000:00:18.3"),
        ("pci0000:00/0000:00:14.0/usb1/1-5/1-5:1.0/0003:1B1C:1C08.0004", "pci0000:00/0000:00:14.0/usb1/1-5/1-5:1.0/0003:1B1C:1C08"),
        ("pci0000:00/0000:00:01.1/0000:01:00.0/nvme/nvme3", "pci0000:00/0000:00:01.1/0000:01:00.0/nvme"),
        ("pci0000:00/0000:00:1f.4/i2c-7/7-0048", "pci0000:00/0000:00:1f.4/i2c/0048"),
        ("pci0000:00/0000:00:14.0/usb1/1-5", "pci0000:00/0000:00:14.0/usb1/1-5"),
    ],
)
def test_what_only_counts_is_no_part_of_a_place(device: str, where: str) -> None:
    """HID instances, NVMe controllers and adapters are numbered in the order of their arrival; a USB port is a place."""
    assert place(Path("/sys/devices") / device, Path("/sys/devices")) == where
    assert place(None, Path("/sys/devices")) == "virtual"


def test_a_driver_of_old_keeps_its_attributes_with_the_device(tree: HwmonTree) -> None:
    """The numbered folder then holds nothing but the link to it."""
    chip = tree.chip("lm78", "platform/lm78.656", {})
    (chip.folder / "name").unlink()
    (chip.device / "name").write_text("lm78\n")
    (chip.device / "in0_input").write_text("1200\n")
    (found,) = find(tree.root).values()
    assert found.identity == "lm78@platform/lm78.656"
    assert [read_number(found.folder / each.file) for each in found.inputs] == [1200]


def test_no_chips_are_no_error(tmp_path: Path) -> None:
    """Most virtual machines have no such folder at all."""
    assert links(tmp_path) == {}
    assert find(tmp_path) == {}


# --- what they offer


def test_inputs_come_in_the_order_people_number_them() -> None:
    """in10 behind in2; limits, labels and what nobody measures are no inputs."""
    found = inputs(["in10_input", "in2_input", "in2_min", "in2_label", "fan1_input", "temp1_type", "pwm1", "name", "energy1_input"])
    assert [each.name for each in found] == ["in2", "in10", "fan1", "energy1"]
    assert [each.has_label for each in found] == [True, False, False, False]


def test_a_power_without_a_momentary_value_is_its_average() -> None:
    """ACPI power meters have only that; where there are both it is the momentary one."""
    found = inputs(["power1_average", "power2_average", "power2_input"])
    assert [each.file for each in found] == ["power1_average", "power2_input"]


def test_alarms_belong_to_their_input() -> None:
    """Each kind under its own name."""
    (found,) = inputs(["in1_input", "in1_alarm", "in1_max_alarm", "in10_alarm", "in1_beep"])
    assert found.alarms == {"alarm": "in1_alarm", "max_alarm": "in1_max_alarm"}


# --- reading one


REASONS = {
    errno.EIO: Missing.MALFORMED,
    errno.ENODATA: Missing.ABSENT,
    errno.EAGAIN: Missing.TIMED_OUT,
    errno.ETIMEDOUT: Missing.TIMED_OUT,
    errno.ENXIO: Missing.DEVICE_LOST,
    errno.ENODEV: Missing.ABSENT,
    errno.EACCES: Missing.DENIED,
}


@pytest.mark.parametrize(("number", "reason"), REASONS.items(), ids=[errno.errorcode[number] for number in REASONS])
def test_a_sensor_that_fails_is_a_reading_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, reason: Missing
) -> None:
    """These are routine. None of them is an exception, and none is UNSUPPORTED, which would pass for "need not be looked at"."""
    (tmp_path / "in1_input").write_text("1008\n")

    def failing(_descriptor: int, _count: int) -> bytes:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "read", failing)
    assert read_number(tmp_path / "in1_input") is reason


def test_one_read_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one would ask the chip again, and might find an alarm already cleared."""
    (tmp_path / "in1_alarm").write_text("1\n")
    reads: list[int] = []
    real = os.read

    def counted(descriptor: int, count: int) -> bytes:
        reads.append(count)
        return real(descriptor, count)

    monkeypatch.setattr(os, "read", counted)
    assert read_number(tmp_path / "in1_alarm") == 1
    assert len(reads) == 1


@pytest.mark.parametrize("text", ["", "twelve", "1.5", "\x00"])
def test_what_is_no_number_is_malformed(tmp_path: Path, text: str) -> None:
    """And what is not there is absent."""
    (tmp_path / "in1_input").write_text(text)
    assert read_number(tmp_path / "in1_input") is Missing.MALFORMED
    assert read_text(tmp_path / "in2_input") is Missing.ABSENT


# --- not disturbing


@pytest.mark.parametrize(
    ("device", "sleeping", "asleep"),
    [
        ("pci0000:00/0000:00:03.1/0000:0f:00.0", "pci0000:00/0000:00:03.1/0000:0f:00.0", True),
        ("pci0000:00/0000:00:03.1/0000:0f:00.0/nvme/nvme0", "pci0000:00/0000:00:03.1", True),
        ("pci0000:00/0000:00:1f.4/i2c-3/3-0018", "pci0000:00/0000:00:1f.4", False),
        ("pci0000:00/0000:00:14.0/usb1/1-5/1-5:1.0/0003:1B1C:1C08.0004", "pci0000:00/0000:00:14.0", False),
    ],
)
def test_a_device_that_sleeps_is_left_asleep(tree: HwmonTree, device: str, sleeping: str, asleep: bool) -> None:
    """Itself or what it hangs on; not the adapter of a bus, which dozes between any two transfers."""
    tree.chip("x", device, {"temp1_input": 1})
    (tree.root / "devices" / sleeping / "power").mkdir()
    status = tree.root / "devices" / sleeping / "power/runtime_status"
    (chip,) = find(tree.root).values()
    status.write_text("suspended\n")
    assert is_asleep(chip) is asleep
    status.write_text("active\n")
    assert not is_asleep(chip)
