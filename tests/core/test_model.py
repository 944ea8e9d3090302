"""The words of the program: spellings that join, and values that cannot be changed."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core.model import HOST, KernelMessage, Missing, PciAddress, Severity, Subject

_addresses = st.builds(PciAddress, st.integers(0, 0xFFFFFFFF), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("PCI:0000:3b:00", "0000:3b:00.0"),
        ("3b:1f.7", "0000:3b:1f.7"),
        ("10000:e1:00.0", "10000:e1:00.0"),
        ("  0000:3b:00.0\n", "0000:3b:00.0"),
    ],
)
def test_one_device_has_one_address_however_it_is_spelt(text: str, address: str) -> None:
    """sysfs, NVML and the kernel log write it differently."""
    assert str(PciAddress.parse(text)) == address


@pytest.mark.parametrize("text", ["", "3b", "0000:3b:20.0", "0000:3b:00.8", "000:3b:00.0", "0000:3b:00.0.0", "gpu:0000:3b:00.0", "zz:00.0"])
def test_anything_else_is_no_address(text: str) -> None:
    """Device numbers end at 1f and functions at 7."""
    with pytest.raises(ValueError, match="not a PCI address"):
        PciAddress.parse(text)


@given(_addresses)
def test_an_address_reads_back(address: PciAddress) -> None:
    """From its own spelling, and from NVML's."""
    assert PciAddress.parse(str(address)) == address
    assert PciAddress.parse(f"{address.domain:08X}:{address.bus:02X}:{address.device:02X}.{address.function}") == address


@given(st.sampled_from(["gpu", "port", "host", "probe"]), st.text(alphabet="abc019:.-", max_size=12))
def test_a_subject_reads_back(kind: str, name: str) -> None:
    """Names may hold colons: only the first one ends the kind."""
    assert Subject.parse(str(Subject(kind, name))) == Subject(kind, name)


def test_a_subject_has_a_kind() -> None:
    """Without one it is about nothing."""
    assert Subject.parse("host") == HOST
    with pytest.raises(ValueError, match="not a subject"):
        Subject.parse(":0000:3b:00.0")


def test_only_a_pci_subject_has_an_address() -> None:
    """A probe called like a device is none."""
    assert Subject("gpu", "0000:3b:00.0").pci == PciAddress(0, 0x3B, 0)
    assert Subject("gpu", "0000:00/03.1/00.0").pci is None  # where another one answers in this boot, only its place names it
    assert Subject("probe", "0000:3b:00.0").pci is None
    assert HOST.pci is None


def test_severities_are_ordered() -> None:
    """By rank, for their names do not sort."""
    assert sorted(Severity, key=lambda severity: severity.rank) == [Severity.INFO, Severity.WARNING, Severity.ERROR, Severity.CRITICAL]


@pytest.mark.parametrize(("facility", "from_kernel"), [(0, True), (1, False), (3, False)])
def test_only_facility_zero_is_the_kernel(facility: int, from_kernel: bool) -> None:
    """A process that writes to the log can have any other, never this one."""
    assert KernelMessage(1, 0, facility, 4, "-", "NVRM: Xid").from_kernel is from_kernel


def test_a_missing_reading_is_no_number() -> None:
    """It equals neither zero nor anything else a rule compares with."""
    values: list[object] = list(Missing)
    for missing in values:
        assert not isinstance(missing, int | float)
        assert missing not in (0, "", None)


def test_values_cannot_be_changed() -> None:
    """What was recorded stays what it was."""
    with pytest.raises(FrozenInstanceError):
        HOST.name = "other"  # type: ignore[misc]
