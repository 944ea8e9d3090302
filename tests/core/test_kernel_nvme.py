"""NVMe controllers: time-outs, resets, and the ones that are gone."""

from __future__ import annotations

import pytest

from tests.core.lines import block, read, summary

GONE = """
    nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff
    nvme nvme0: Does your device have a faulty power saving mode enabled?
    nvme nvme0: Try "nvme_core.default_ps_max_latency_us=0 pcie_aspm=off" and report a bug
"""


def test_the_driver_s_advice_is_no_event() -> None:
    """The first line is; its controller does not even answer where it is configured."""
    (event,) = read(block(GONE))
    assert (summary(event), event.seq) == (("nvme", None, "critical"), 0)


def test_a_controller_is_known_by_its_device() -> None:
    """Where the driver has said which one it is; the latest word counts, and no other controller is meant."""
    said = read([
        "nvme nvme0: pci function 0000:01:00.0",
        "nvme nvme1: pci function 10000:e1:00.0",
        "nvme nvme1: controller is down; will reset: CSTS=0x3, PCI_STATUS=0x10",
        "nvme nvme0: pci function 0000:02:00.0",
        "nvme nvme0: Device not ready; aborting reset, CSTS=0x1",
        "nvme nvme2: Device not ready; aborting reset, CSTS=0x1",
    ])  # fmt: skip
    assert [str(event.pci) for event in said] == ["10000:e1:00.0", "0000:02:00.0", "None"]


@pytest.mark.parametrize(
    ("said", "severity"),
    [
        ("I/O 566 QID 7 timeout, aborting", "error"),
        ("I/O 0 QID 0 timeout, reset controller", "error"),
        ("I/O 12 QID 3 timeout, completion polled", "warning"),
        ("I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller", "error"),
        ("I/O tag 77 (104d) opcode 0x2 (I/O Cmd) QID 9 timeout, aborting req_op:READ(0) size:4096", "error"),
        ("I/O tag 77 (104d) QID 9 timeout, disable controller", "error"),
        ("controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10", "error"),
        ("controller is down; will reset: CSTS=0xffffffff, PCI_STATUS read failed (134)", "critical"),
        ("Device not ready; aborting initialisation, CSTS=0x0", "critical"),
        ("failed to mark controller live state", "error"),
        ("Disabling device after reset failure: -19", "critical"),
        ("Removing after probe failure status: -19", "critical"),
        ("resetting controller due to AER", "error"),
        ("frozen state error detected, reset controller", "error"),
        ("Failed status: ffffffff, reset controller", "error"),
    ],
)
def test_what_the_driver_did_decides(said: str, severity: str) -> None:
    """A time-out is work lost, a controller given up is a device lost; a late interrupt is worth a look."""
    (event,) = read([f"nvme nvme4: {said}"])
    assert summary(event) == ("nvme", None, severity)


@pytest.mark.parametrize("status", ["I/O Error", "Unrecovered Read Error", "Write Fault", "Host Path Error"])
@pytest.mark.parametrize("what", ["nvme0n1: Read(0x2)", "nvme12c3n45: Write(0x1)", "nvme0n1: I/O Cmd(0x2)"])
def test_a_command_of_the_host_that_fails_is_an_error(what: str, status: str) -> None:
    """Whether the kernel has words for it or not."""
    (event,) = read([f"{what} @ LBA 1050624, 256 blocks, {status} (sct 0x2 / sc 0x81) DNR"])
    assert summary(event) == ("nvme", None, "error")


@pytest.mark.parametrize("line", ["nvme: probe of {} failed with error -19", "nvme {}: probe with driver nvme failed with error -12"])
def test_a_drive_that_the_driver_does_not_take(line: str) -> None:
    """Its address stands in the line."""
    (event,) = read([line.format("0000:02:00.0")])
    assert summary(event) == ("nvme", "0000:02:00.0", "critical")


@pytest.mark.parametrize(
    "line",
    [
        "nvme nvme0: pci function 0000:01:00.0",
        "nvme nvme0: pci function 0000:01:3f.0",
        "nvme nvme0: 16/0/0 default/read/poll queues",
        "nvme nvme0: restart after slot reset",
        "nvme nvme0: Abort status: 0x371",
        "nvme nvme0: Shutdown timeout set to 10 seconds",
        "nvme nvme0: allocated 64 MiB host memory buffer.",
        "BTRFS info (device nvme0n1p3): bdev /dev/nvme0n1p3 errs: wr 0, rd 21, flush 0, corrupt 350, gen 0",
        "nvme0n1: p1 p2 p3",
        "somebody says nvme nvme0: Device not ready; aborting reset, CSTS=0x1",
    ],
)
def test_what_is_no_event(line: str) -> None:
    """Boot lines, results of what was told already, and file systems."""
    assert read([line]) == []
