"""PCI core lines: AER in the words of every kernel, DPC, hot-plug, devices that do not wake up."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.lines import RULES, block, message, read, summary
from xidwatch.core.kernel import Parser
from xidwatch.core.kernel_pci import MOST_ADDRESSES, RECORD_USEC, RECOVERY_USEC

# One report each, as the kernels of its time print it, with what it says.
OLD_CORRECTED = """
    pcieport 0000:00:1c.5: AER: Corrected error received: id=00e5
    pcieport 0000:00:1c.5: can't find device of ID00e5
    pcieport 0000:00:1c.5: PCIe Bus Error: severity=Corrected, type=Physical Layer, id=00e5(Receiver ID)
    pcieport 0000:00:1c.5:   device [8086:9d15] error status/mask=00000001/00002000
    pcieport 0000:00:1c.5:    [ 0] Receiver Error         (First)
"""
OLD_FATAL = """
    pcieport 0000:00:02.0: AER: Uncorrected (Fatal) error received: id=0010
    pcieport 0000:00:02.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, id=0010(Receiver ID)
    pcieport 0000:00:02.0:   device [8086:6f04] error status/mask=00000020/00000000
    pcieport 0000:00:02.0:    [ 5] Surprise Down Error    (First)
    pcieport 0000:00:02.0: broadcast error_detected message
    nvidia 0000:02:00.0: device has no AER-aware driver
    pcieport 0000:00:02.0: Root Port link has been reset
    pcieport 0000:00:02.0: AER: Device recovery failed
"""
MIDDLE_FATAL = """
    pcieport 0000:00:03.0: AER: Uncorrected (Fatal) error received: 0000:00:03.0
    pcieport 0000:00:03.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)
    pcieport 0000:00:03.0: AER:   device [1022:1483] error status/mask=00004000/04400000
    pcieport 0000:00:03.0: AER:    [14] CmpltTO                (First)
    pcieport 0000:00:03.0: AER:   TLP Header: 34000000 00000052 00000000 00000000
    nvidia 0000:0a:00.0: AER: can't recover (no error_detected callback)
    snd_hda_intel 0000:0a:00.1: AER: can't recover (no error_detected callback)
    pcieport 0000:00:03.0: AER: Root Port link has been reset (0)
    pcieport 0000:00:03.0: AER: device recovery failed
"""
NEW_NONFATAL = """
    pcieport 0000:80:1b.4: AER: Uncorrectable (Non-Fatal) error message received from 0000:80:1b.4
    pcieport 0000:80:1b.4: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer, (Requester ID)
    pcieport 0000:80:1b.4:   device [8086:7ab8] error status/mask=00200000/00010000
    pcieport 0000:80:1b.4:    [21] ACSViol                (First)
    pcieport 0000:80:1b.4: AER:   TLP Header: 0x34000000 0x00000052 0x00000000 0x00000000
    pcieport 0000:80:1b.4: AER: device recovery successful
"""
OLDEST = """
    pcieport-driver 0000:00:01.0: AER: Multiple Corrected error received: id=0100
    nvidia 0000:01:00.0: PCIE Bus Error: severity=Corrected, type=Data Link Layer, id=0100(Receiver ID)
    nvidia 0000:01:00.0:   device [10de:0191] error status/mask=00000040/00002000
    nvidia 0000:01:00.0:    [ 6] Bad TLP
"""
DEVICE_NAMED = """
    pcieport 0001:00:00.0: AER: Multiple Correctable error message received from 0001:01:00.0
    nvidia 0001:01:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)
    nvidia 0001:01:00.0:   device [10de:2330] error status/mask=00001000/0000a000
    nvidia 0001:01:00.0:    [12] Timeout
"""
INACCESSIBLE = """
    pcieport 0000:40:01.1: AER: Uncorrectable (Fatal) error message received from 0000:41:00.0
    nvidia 0000:41:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Inaccessible, (Unregistered Agent ID)
    pcieport 0000:40:01.1: AER: Root Port link has been reset (-25)
    pcieport 0000:40:01.1: AER: subordinate device reset failed
    pcieport 0000:40:01.1: AER: device recovery failed
"""
DPC = """
    pcieport 0000:00:1c.0: DPC: containment event, status:0x1f05 source:0x0200
    pcieport 0000:00:1c.0: DPC: ERR_FATAL detected
    pcieport 0000:00:1c.0: AER: broadcast error_detected message
    nvidia 0000:02:00.0: AER: can't recover (no error_detected callback)
    pcieport 0000:00:1c.0: AER: device recovery failed
"""
DPC_OF_THE_PORT = """
    pcieport 0000:00:01.4: DPC: containment event, status:0x1f01: unmasked uncorrectable error detected
    pcieport 0000:00:01.4: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Receiver ID)
    pcieport 0000:00:01.4:   device [1022:14ab] error status/mask=00000020/04004000
    pcieport 0000:00:01.4:    [ 5] SDES                   (First)
    pcieport 0000:00:01.4: DPC: Data Link Layer Link Active not set in 1000 msec
    pcieport 0000:00:01.4: AER: subordinate device reset failed
    pcieport 0000:00:01.4: AER: device recovery failed
"""
OLD_DPC = """
    dpc 0000:00:1c.0:pcie010: DPC containment event, status:0x1f01 source:0x0000
    dpc 0000:00:1c.0:pcie010: DPC unmasked uncorrectable error detected, remove downstream devices
"""
UNPLUGGED = """
    pcieport 0000:00:01.1: pciehp: Slot(0): Link Down
    pcieport 0000:00:01.1: pciehp: Slot(0): Card not present
"""
OLD_UNPLUGGED = """
    pciehp 0000:00:1c.0:pcie004: Slot(0-1): Card not present
    pciehp 0000:00:1c.0:pcie004: Slot(0-1): Link Down
"""


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (OLD_CORRECTED, ("aer", "0000:00:1c.5", "info")),
        (OLD_FATAL, ("aer", "0000:00:02.0", "critical")),
        (MIDDLE_FATAL, ("aer", "0000:00:03.0", "critical")),
        (NEW_NONFATAL, ("aer", "0000:80:1b.4", "error")),
        (OLDEST, ("aer", "0000:01:00.0", "info")),
        (DEVICE_NAMED, ("aer", "0001:01:00.0", "info")),
        (INACCESSIBLE, ("aer", "0000:41:00.0", "critical")),
        (DPC, ("dpc", "0000:00:1c.0", "critical")),
        (DPC_OF_THE_PORT, ("dpc", "0000:00:01.4", "critical")),
        (OLD_DPC, ("dpc", "0000:00:1c.0", "critical")),
        (UNPLUGGED, ("pciehp", "0000:00:01.1", "critical")),
        (OLD_UNPLUGGED, ("pciehp", "0000:00:1c.0", "critical")),
    ],
)
def test_one_report_is_one_event(report: str, said: tuple[str, str, str]) -> None:
    """With its first line, and twice when it comes twice."""
    records = block(report)
    (event,) = read(records)
    assert (summary(event), event.seq, event.text) == (said, 0, records[0])
    assert not event.driver_fatal
    assert not event.bus_lost
    parser = Parser(RULES)
    hours = [parser.feed(message(text, usec=hour * 3_600_000_000)) for hour in range(2) for text in records]
    assert [summary(each) for each in itertools.chain(*hours)] == [said] * 2


def test_without_the_announcement_the_report_itself_is_the_event() -> None:
    """Since 6.16 the two are limited apart, and a ring may have lost the first."""
    for report in (OLD_CORRECTED, MIDDLE_FATAL, DEVICE_NAMED):
        _, *rest = block(report)
        (event,) = read(line for line in rest if "can't find" not in line)
        assert (event.kind, event.text) == ("aer", next(line for line in rest if "PCIe Bus Error" in line))


def test_a_device_that_was_not_announced_keeps_its_address() -> None:
    """The port did not know who it was (all zero), the report behind it does: two addresses, two events."""
    said = read([
        "pcieport 0000:00:03.1: AER: Correctable error message received from 0000:00:00.0",
        "nvidia 0000:07:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)",
        "nvidia 0000:07:00.0:   device [10de:2184] error status/mask=00001000/0000a000",
        "pcieport 0000:00:03.1: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Receiver ID)",
    ])  # fmt: skip
    assert [summary(event) for event in said] == [("aer", "0000:00:03.1", "info"), ("aer", "0000:07:00.0", "info")]


def test_worse_than_was_announced_is_another_event() -> None:
    """A corrected error never hides a fatal one."""
    said = read([
        "pcieport 0000:00:03.1: AER: Correctable error message received from 0000:07:00.0",
        "nvidia 0000:07:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Inaccessible, (Unregistered Agent ID)",
    ])  # fmt: skip
    assert [str(event.severity) for event in said] == ["info", "critical"]


def test_what_comes_too_late_belongs_to_nobody() -> None:
    """A report a second later, the end of a recovery minutes later, or after a step back of the clock."""
    announced = "pcieport 0000:00:03.1: AER: Uncorrectable (Fatal) error message received from 0000:07:00.0"
    report = "nvidia 0000:07:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Inaccessible, (Unregistered Agent ID)"
    failed = "pcieport 0000:00:03.1: AER: device recovery failed"
    assert len(read([announced, report], apart_usec=RECORD_USEC)) == 1
    assert len(read([announced, report], apart_usec=RECORD_USEC + 1)) == 2
    assert len(read([announced, report], apart_usec=-1)) == 2
    assert len(read([announced, failed], apart_usec=RECOVERY_USEC)) == 1
    assert [summary(event) for event in read([failed])] == [("aer", "0000:00:03.1", "critical")]
    assert len(read([announced, failed], apart_usec=RECOVERY_USEC + 1)) == 2


def test_a_link_that_comes_and_goes_is_an_event_each_time() -> None:
    """However fast: it was back in between."""
    port = "pcieport 0000:00:01.1: pciehp: Slot(0): "
    assert len(read([port + "Link Down", port + "Link Up", port + "Link Down", port + "Card not present"])) == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("pcieport 0000:00:01.1: AER: Corrected error received: 0000:00:00.0", ("aer", "0000:00:01.1", "info")),
        ("pcieport 10000:00:01.1: AER: Corrected error received: 10000:01:00.0", ("aer", "10000:01:00.0", "info")),
        ("aer 0000:00:1c.0:pcie002: Uncorrected (Non-Fatal) error received: id=0200", ("aer", "0000:02:00.0", "error")),
        ("pcieport 0001:80:00.0: AER: Multiple Uncorrected (Fatal) error received: id=8308", ("aer", "0001:83:01.0", "critical")),
        (
            "pcieport 0000:00:01.1: AER: Correctable error message received from 0000:01:00.0 (no details found)",
            ("aer", "0000:01:00.0", "info"),
        ),
        (
            "pcieport 0015:00:00.0: DPC: containment event, status:0x200d, ERR_FATAL received from 0015:01:00.0",
            ("dpc", "0015:00:00.0", "critical"),
        ),
        ("pcieport 0000:00:1c.0: DPC: unmasked uncorrectable error detected", ("dpc", "0000:00:1c.0", "critical")),
        ("pcieport 0000:00:1c.0: DPC: RP PIO error detected", ("dpc", "0000:00:1c.0", "critical")),
        ("pcieport 0000:00:01.1: pciehp: Slot(0-2): Power fault", ("pciehp", "0000:00:01.1", "critical")),
        ("pciehp 0000:00:1c.0:pcie004: Card not present on Slot(1)", ("pciehp", "0000:00:1c.0", "critical")),
        ("pciehp 0000:00:1c.0:pcie004: Slot(1): Link Down event", ("pciehp", "0000:00:1c.0", "critical")),
        (
            "nvme 0000:02:00.0: Unable to change power state from D3cold to D0, device inaccessible",
            ("power_state", "0000:02:00.0", "critical"),
        ),
        (
            "pci 0000:02:00.0: can't change power state from D3cold to D0 (config space inaccessible)",
            ("power_state", "0000:02:00.0", "critical"),
        ),
        ("xhci_hcd 0000:09:00.2: Refused to change power state, currently in D3", ("power_state", "0000:09:00.2", "critical")),
        ("nvidia 0000:09:00.0: Refused to change power state from D3hot to D0", ("power_state", "0000:09:00.0", "critical")),
        ("ahci 0000:09:00.0: Refused to change power state from D0 to D3hot", ("power_state", "0000:09:00.0", "warning")),
        ("vfio-pci 0000:c1:00.0: not ready 1023ms after FLR; waiting", ("power_state", "0000:c1:00.0", "warning")),
        ("vfio-pci 0000:c1:00.0: not ready 65535ms after FLR; giving up", ("power_state", "0000:c1:00.0", "critical")),
        ("pci 0000:c1:00.0: not ready 65535ms after bus reset; giving up", ("power_state", "0000:c1:00.0", "critical")),
        (
            "pcieport-driver 0000:00:01.0: PCIE Bus Error: severity=Uncorrected (Non-Fatal), type=Unaccessible, id=0008(x)",
            ("aer", "0000:00:01.0", "error"),
        ),
        (
            "aer 0000:00:01.0:pcie02: PCIE Bus Error: severity=Corrected, type=Physical Layer, id=0008(Receiver ID)",
            ("aer", "0000:00:01.0", "info"),
        ),
        ("nvme 0000:02:00.0: probe with driver nvme failed with error -12", ("nvme", "0000:02:00.0", "critical")),
        ("nvme: probe of 0000:02:00.0 failed with error -19", ("nvme", "0000:02:00.0", "critical")),
        ("nvme 0000:02:00.0: I/O 566 QID 7 timeout, reset controller", ("nvme", "0000:02:00.0", "error")),
    ],
)
def test_single_lines(line: str, said: tuple[str, str, str]) -> None:
    """Kind, device and severity of each, whatever the kernel's age."""
    (event,) = read([line])
    assert summary(event) == said


@pytest.mark.parametrize(
    "line",
    [
        "pcieport 0000:00:01.1: AER: enabled with IRQ 30",
        "pcieport 0000:00:01.1: PME: Signaling with IRQ 30",
        "pcieport 0000:00:01.1: pciehp: Slot #0 AttnBtn- PwrCtrl- MRL- AttnInd- PwrInd- HotPlug+ Surprise+ Interlock- NoCompl+ LLActRep+",
        "pcieport 0000:00:01.1: pciehp: Slot(0): Card present",
        "pcieport 0000:00:01.1: pciehp: Slot(0): Link Up",
        "pcieport 0000:00:01.1: pciehp: Slot(0): Link Down/Up ignored (recovered by DPC)",
        "pciehp 0000:00:1c.0:pcie004: Link Down event ignored on slot(1): already powering off",
        "pcieport 0000:00:01.1: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+ SwTrigger+, DL_ActiveErr+",
        "pcieport 0000:00:01.1: AER: device recovery successful",
        "pcieport 0000:00:01.1: AER: aer_status: 0x00004000, aer_mask: 0x00000000",
        "pcieport 0000:00:01.1:    [ 7] BadDLLP               ",
        "vfio-pci 0000:c1:00.0: ready 1023ms after FLR",
        "pci 0000:c1:00.0: power state changed by ACPI to D3cold",
        "amdgpu 0000:04:00.0: SMU: bus error for message: TransferTableSmu2Dram(18) response:0xFFFFFFFF",
        "xhci_hcd 0000:09:00.2: HC died; cleaning up",
        "pcieport 0000:00:3f.1: AER: Corrected error received: 0000:00:00.0",
        "somebody says pcieport 0000:00:01.1: AER: Corrected error received: 0000:00:00.0",
    ],
)
def test_what_is_no_event(line: str) -> None:
    """Boot lines, details, recoveries, and words of others."""
    assert read([line]) == []


@given(st.lists(st.tuples(st.integers(0, 0xFFFF), st.integers(0, 31)), min_size=1, max_size=30))
def test_any_number_of_devices_is_remembered_within_bounds(devices: list[tuple[int, int]]) -> None:
    """Each announcement is an event, and its report is not; the memory is bounded."""
    for domain, device in devices:
        where = f"{domain:04x}:01:{device:02x}.1"
        said = read([
            f"pcieport {domain:04x}:00:01.0: AER: Corrected error received: {where}",
            f"x 0{where}: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        ])  # fmt: skip
        assert [str(event.pci) for event in said] == [where]


def test_the_memory_is_bounded() -> None:
    """A damaged log names any number of ports, and costs no more than a few hundred of them."""
    parser = Parser(RULES)
    for number in range(3 * MOST_ADDRESSES):
        parser.feed(message(f"pcieport {number:04x}:00:01.0: AER: Corrected error received: {number:04x}:01:00.0"))
    *_, pci = parser._families
    assert len(pci._announced) <= MOST_ADDRESSES  # type: ignore[attr-defined]


def test_a_link_that_stays_down_is_told_where_nothing_else_is() -> None:
    """Below a port that has been said to be down, or to have cut its link, it is not another event."""
    line = "pcieport 0000:00:01.1: Data Link Layer Link Active not set in 1000 msec"
    assert [summary(event) for event in read([line])] == [("power_state", "0000:00:01.1", "error")]
    for before in ("pciehp: Slot(0): Link Down", "DPC: containment event, status:0x1f01 source:0x0000"):
        assert len(read([f"pcieport 0000:00:01.1: {before}", line], apart_usec=60_000_000)) == 1
    assert read(["pcieport 0000:00:01.1: Data Link Layer Link Active not cleared in 1000 msec"]) == []


def test_a_card_that_does_not_answer_in_its_slot() -> None:
    """Once, whatever is said of it within the same second, and as an error: the slot may be tried again."""
    for words in ("Cannot train link: status 0x0001", "No link", "No device found"):
        lines = [f"pcieport 0000:00:01.1: pciehp: Slot(0): {said}" for said in ("Card present", words, words)]
        assert [summary(event) for event in read(lines)] == [("pciehp", "0000:00:01.1", "error")]
