"""Kernel records in, events out: the forms that drivers print, and everything else that a log may hold."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.core.lines import CASES, RULES, message, read
from xidwatch.core.kernel import Parser, is_driver_load, is_spoken
from xidwatch.core.kernel_nvidia import EXCEPTION_USEC
from xidwatch.core.model import KernelEvent, KernelMessage, PciAddress


def events(*texts: str, parser: Parser | None = None, apart_usec: int = 1000) -> list[KernelEvent]:
    """Of records that follow each other in one log."""
    return read(texts, parser=parser, apart_usec=apart_usec)


def event(text: str) -> KernelEvent:
    (only,) = events(text)
    return only


@pytest.mark.parametrize(
    ("text", "xid", "pci", "pid", "process"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", 79, "0000:3b:00.0", None, None),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", 79, "0000:3b:00.0", None, None),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid='N/A', GPU has fallen off the bus", 79, "0000:3b:00.0", None, None),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=0, GPU has fallen off the bus.", 79, "0000:3b:00.0", None, None),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1122, GPU has fallen off the bus.", 79, "0000:3b:00.0", 1122, None),
        ("NVRM: Xid (PCI:0000:3b:00): 45, pid=4242, name=python3, Ch 00000008", 45, "0000:3b:00.0", 4242, "python3"),
        ("NVRM: Xid (PCI:0000:3b:00): 109, pid=84,   name=render, channel 0x0000000d", 109, "0000:3b:00.0", 84, "render"),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=99, name=editor", 31, "0000:3b:00.0", 99, "editor"),
        ("NVRM: Xid (PCI:0000:3b:00): 145, pid=4, name=<unknown>, RLW_REMAP Nonfatal XC0", 145, "0000:3b:00.0", 4, None),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=5, name=irq/30-pciehp, GPU has fallen", 79, "0000:3b:00.0", 5, "irq/30-pciehp"),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=5, name=nvc:[driver], GPU has fallen", 79, "0000:3b:00.0", 5, "nvc:[driver]"),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=Xid 79, GPU , Ch 00000008", 31, "0000:3b:00.0", 7, "Xid 79"),
        ("NVRM: Xid (PCI:0000:3b:00): 43, pid=7, name=a,b, Ch 00000008", 43, "0000:3b:00.0", 7, "a,b"),
        ("NVRM: Xid (PCI:0000:3b:00.0): 79, GPU has fallen off the bus!", 79, "0000:3b:00.0", None, None),
        ("NVRM: Xid (PCI:0000:AF:00): 48, An uncorrectable double bit error (DBE)", 48, "0000:af:00.0", None, None),
        ("NVRM: Xid (PCI:10000:e1:00): 43, pid=7, name=x, Ch 00000008", 43, "10000:e1:00.0", 7, "x"),
        ("NVRM: Xid (PCI:00000018:01:00): 149, NETIR Fatal XC0", 149, "0018:01:00.0", None, None),
        ("NVRM: Xid (PCI:0000:00:1e): 31", 31, "0000:00:1e.0", None, None),
        ("NVRM: Xid (PCI:0000:17:00 GPU-I:02): 94, pid=7, Contained: SM (0x1).", 94, "0000:17:00.0", 7, None),
        ("NVRM: Xid (PCI:0000:17:00 GPU-I:02 GPU-CI:00): 43, pid=7, name=x, Ch 8", 43, "0000:17:00.0", 7, "x"),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", 14, "0000:03:00.0", None, None),
        ("NVRM: Xid (0001:00): 8, Channel 00000001", 8, "0000:01:00.0", None, None),
        ("NVRM: Xid (PCI:...): 119, Timeout waiting for RPC from GSP!", 119, None, None, None),
        ("NVRM: Xid (PCI:0000:3b:3f): 43, Ch 00000008", 43, None, None, None),
        ("NVRM: Xid: 12, COCOD 00000002", 12, None, None, None),
        ("NVRM: Xid 79, GPU has fallen off the bus.", 79, None, None, None),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=99999999999999999999, GPU has fallen", 79, "0000:3b:00.0", None, None),
        ("  NVRM: Xid (PCI:0000:3b:00): 31, Ch 00000003\r", 31, "0000:3b:00.0", None, None),
    ],
)
def test_an_xid_is_read_in_every_form(text: str, xid: int, pci: str | None, pid: int | None, process: str | None) -> None:
    """Number, device and process come from their own places, whatever the driver's age, and unknown ones are None."""
    said = event(text)
    assert (said.kind, said.xid, said.pid, said.process) == ("xid", xid, pid, process)
    assert said.pci == (PciAddress.parse(pci) if pci else None)
    assert said.text == text.strip()
    assert (said.seq, said.usec, said.injected, said.repeated) == (0, 1_000_000, False, 1)


@pytest.mark.parametrize(
    ("xid", "said", "severity"),
    [
        (29, "L1 -> L0", "info"),
        (45, "Ch 00000008", "warning"),
        (43, "channel 0x0000000a", "warning"),
        (31, "Ch 00000003, engmask 00000101", "error"),
        (61, "1927(16e4) 00000000", "error"),
        (62, "323f0f30 0000c3d8", "critical"),
        (64, "Row Remapper Error: - All reserved rows for bank are remapped", "critical"),
        (64, "DRAM Retirement failed due to pending row remap", "warning"),
        (74, "NVLink: failed to train link 2", "error"),
        (74, "NVLink: fatal error detected on link 1", "critical"),
        (94, "Contained: SM (0x1). RST: No", "error"),
        (94, "GSP-RISCV instance 0 fatal error", "critical"),
        (145, "RLW_REMAP Nonfatal XC0 i0 Link 02", "warning"),
        (145, "RLW_SRC_TRACK Fatal XC0 i1 Link 00", "critical"),
        (32, "L10 -> L1 temp 104C", "warning"),
        (110, "SEC_FAULT: _FAULT_ECC", "critical"),
        (9999, "something new", "warning"),
    ],
)
def test_the_text_decides_the_severity_before_the_number_does(xid: int, said: str, severity: str) -> None:
    """The same Xid is graver or milder by what its line says; an unknown one is a warning."""
    assert event(f"NVRM: Xid (PCI:0000:3b:00): {xid}, {said}").severity == severity


@pytest.mark.parametrize("xid", [79, 119, 120])
def test_after_these_the_driver_must_not_be_asked(xid: int) -> None:
    """A bus loss and a dead GSP are fatal to the driver; only the bus loss says that the device has gone."""
    said = event(f"NVRM: Xid (PCI:0000:3b:00): {xid}, pid=7, name=x, whatever")
    assert said.driver_fatal
    assert said.bus_lost is (xid == 79)


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 48, 62, 63, 94, 95, 143, 9999])
def test_no_other_xid_is_fatal_to_the_driver(xid: int) -> None:
    """Neither an application's fault, nor a memory error, nor an unknown number stops anybody from asking the driver."""
    said = event(f"NVRM: Xid (PCI:0000:3b:00): {xid}, whatever")
    assert not said.driver_fatal
    assert not said.bus_lost


@pytest.mark.parametrize(
    ("change", "recovery", "severity", "fatal"),
    [
        ("0x0 (None) to 0x2 (Node Reboot Required)", "Node Reboot Required", "critical", True),
        ("0x1 (GPU Reset Required) to 0x2 (Node Reboot Required)", "Node Reboot Required", "critical", True),
        ("0x0 (None) to 0x1 (GPU Reset Required)", "GPU Reset Required", "error", False),
        ("0x0 (None) to 0x1 (PF FLR)", "PF FLR", "error", False),
        ("0x0 (None) to 0x3 (Drain P2P)", "Drain P2P", "error", False),
        ("0x2 (Node Reboot Required) to 0x4 (Drain and Reset)", "Drain and Reset", "error", False),
        ("0x0 (None) to 0x5 (Recover IMEX Domain)", "Recover IMEX Domain", "error", False),
        ("0x0 (None) to 0x6 (Bus Reset)", "Bus Reset", "critical", True),
        ("0x0 (None) to 0x7 (System Reboot)", "System Reboot", "critical", True),
        ("0x0 (None) to 0x5 (Host Reboot Required)", "Host Reboot Required", "critical", True),
        ("0x0 (None) to 0x1f (Replace The Planet)", "Replace The Planet", "critical", True),
        ("0x2 (Node Reboot Required) to 0x0 (None)", "None", "info", False),
        ("0x0 (None)", None, "error", False),
        ("0x2 (Node Reboot Required)", None, "error", False),
    ],
)
def test_xid_154_says_what_it_now_asks_for(change: str, recovery: str | None, severity: str, fatal: bool) -> None:
    """The second action counts, never the first; a reboot or an action nobody knows is fatal to the driver."""
    said = event(f"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from {change}")
    assert (said.recovery, said.severity, said.driver_fatal, said.bus_lost) == (recovery, severity, fatal, False)


def test_an_echo_names_its_cause() -> None:
    """The Xid that an Xid 45 follows from is its cause, not its number."""
    said = event("NVRM: Xid (PCI:0000:3b:00): 45, pid=7, name=x, Ch 00000001 caused by previous Xid 149")
    assert (said.xid, said.caused_by, said.severity) == (45, 149, "warning")


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): ", "warning"),
        ("NVRM: Xid (PCI:0000:3b", "warning"),
        ("NVRM: Xid (PCI:0000:3b:00): 123456, too long", "warning"),
        ("NVRM: Xid (PCI:0000:3b:00): 79; damaged", "warning"),
        ("NVRM: Xid error: xyz, invalid data", "info"),
    ],
)
def test_a_damaged_xid_keeps_its_text(text: str, severity: str) -> None:
    """A record that cannot be read is still said, with no number; a sentence about Xids does not alarm."""
    said = event(text)
    assert (said.kind, said.xid, said.pci, said.text, said.severity) == ("xid", None, None, text.strip(), severity)
    assert not said.driver_fatal


@pytest.mark.parametrize(
    ("text", "pci", "fatal"),
    [
        ("NVRM: GPU at 0000:2b:00.0 has fallen off the bus.", "0000:2b:00.0", True),
        ("NVRM: GPU 0000:2b:00.0: GPU has fallen off the bus.", "0000:2b:00.0", True),
        ("NVRM: GPU at PCI:0000:2b:00 has fallen off the bus.", "0000:2b:00.0", True),
        ("NVRM: GPU has fallen off the bus.", None, False),
        ("NVRM: GPU of somebody at 0000:2b:00.0 has fallen off the bus.", None, False),
        ("NVRM: GPU at 0000:2b:3f.0 has fallen off the bus.", None, False),
        ("NVRM: The NVIDIA GPU 0000:2b:00.0 installed has fallen off the bus and is not responding", "0000:2b:00.0", False),
        ("NVRM: fallen off the bus and is not responding to commands.", None, False),
    ],
)
def test_a_bus_loss_needs_no_xid(text: str, pci: str | None, fatal: bool) -> None:
    """The words alone are critical, and a loss where an address stands in its place; at probe time no driver held the device."""
    said = event(text)
    assert (said.kind, said.xid, said.severity) == ("xid", None, "critical")
    assert said.pci == (PciAddress.parse(pci) if pci else None)
    assert said.bus_lost is (pci is not None)
    assert said.driver_fatal is fatal


PROBE_TIME = (
    "NVRM: The NVIDIA GPU 0000:b3:00.0",
    "NVRM: (PCI ID: 10de:26b5) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)


def test_the_probe_time_loss_is_one_event_of_three_records() -> None:
    """The address stands two NVRM records before the words; other speakers may come in between."""
    first, second, third = PROBE_TIME
    (said,) = events(first, "usb 2-1: new low speed USB device", second, "eth0: link is up", "eth0: link is up", third)
    assert (said.pci, said.bus_lost, said.seq) == (PciAddress.parse("0000:b3:00.0"), True, 0)


def test_the_probe_time_loss_is_one_event_of_one_record() -> None:
    """One printk with line breaks inside says the same, and its text is the whole sentence."""
    (said,) = events("\n               ".join(PROBE_TIME))
    assert (said.pci, said.bus_lost, said.driver_fatal) == (PciAddress.parse("0000:b3:00.0"), True, False)
    assert said.text == " ".join(PROBE_TIME)


def test_each_lost_gpu_of_a_probe_keeps_its_own_address() -> None:
    """The latest announcement counts."""
    other = PROBE_TIME[0].replace("b3", "b4")
    said = events(*PROBE_TIME, other, *PROBE_TIME[1:])
    assert [str(loss.pci) for loss in said] == ["0000:b3:00.0", "0000:b4:00.0"]


def test_an_old_announcement_names_nobody() -> None:
    """Further than three NVRM records back, the address may belong to something else."""
    first, second, third = PROBE_TIME
    (said,) = events(first, second, "NVRM: is not supported by this driver", third)
    assert (said.pci, said.bus_lost) == (None, False)


def test_only_the_rest_of_the_sentence_takes_the_announced_address() -> None:
    """Other words about a loss, soon after an announcement, are about nobody known."""
    (said,) = events(PROBE_TIME[0], "NVRM: somebody has fallen off the bus and is not responding")
    assert (said.pci, said.bus_lost) == (None, False)


@pytest.mark.parametrize(
    ("text", "kind", "severity", "pci"),
    [
        (
            "nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover.",
            "uvm_fatal",
            "critical",
            None,
        ),
        ("GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 81 diff 6070 timeout 5200", "gsp", "critical", None),
        ("_kgspRpcRecvPoll: GSP RM heartbeat timed out", "gsp", "critical", None),
        ("_kgspLogXid119: ********************* GSP Timeout **********************", "gsp", "critical", None),
        ("kgspHealthCheck_TU102: **************** GSP-CrashCat Report ****************", "gsp", "critical", None),
        ("GPU3 _kgspRpcGspEventPmuHalted: Received signal from GSP that PMU has halted.", "gsp", "critical", None),
        ("GPU6 _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP", "gsp", "critical", None),
        ("Timeout after 6s of waiting for RPC response from GPU4 GSP! Expected function 103", "gsp", "critical", None),
        ("_issueRpcAndWait: rpcSendMessage failed with status 0x0000000f for fn 78 sequence 1016221!", "gsp", "error", None),
        ("_issueRpcAndWait: rpcRecvPoll timedout for fn 76 sequence 4!", "gsp", "error", None),
        ("rpcRmApiAlloc_GSP: GspRmAlloc failed: hClient=0xc1d1a616; status=0x00000062", "gsp", "error", None),
        (
            "Rate limiting GSP RPC error prints for GPU at PCI:0000:61:00 (printing 1 of every 30).  The GPU likely needs to be reset.",
            "gsp",
            "error",
            "0000:61:00.0",
        ),
        ("GPU 0000:2a:00.0: RmInitAdapter failed! (0x62:0x65:1784)", "nvrm_init_fail", "critical", "0000:2a:00.0"),
        ("GPU 0000:2a:00.0: rm_init_adapter failed, device minor number 0", "nvrm_init_fail", "critical", "0000:2a:00.0"),
        ("RmInitAdapter failed! (0x26:0xffff:1123)", "nvrm_init_fail", "critical", None),
        ("GPU6 RmInitAdapter: Cannot initialize GSP firmware RM", "nvrm_init_fail", "critical", None),
        ("The NVIDIA probe routine failed for 1 device(s).", "nvrm_init_fail", "critical", None),
        ("BAR0 is 0M @ 0x0 (PCI:0000:02:00.0)", "nvrm_init_fail", "critical", "0000:02:00.0"),
        ("nvidia_frontend_open: minor 0, module->open() failed, error -5", "nvrm_init_fail", "error", None),
    ],
)
def test_other_driver_lines_that_are_events(text: str, kind: str, severity: str, pci: str | None) -> None:
    """UVM, GSP and initialisation lines have their kind; only the global UVM error is fatal to the driver."""
    said = event(f"NVRM: {text}")
    assert (said.kind, said.xid, said.severity, said.bus_lost) == (kind, None, severity, False)
    assert said.pci == (PciAddress.parse(pci) if pci else None)
    assert said.driver_fatal is (kind == "uvm_fatal")


@pytest.mark.parametrize(
    "text",
    [
        "r8169 0000:06:00.0 eth0: RTL8168h/8111h, 00:00:5e:00:53:01, XID 541, IRQ 139",
        "r8169 0000:0d:00.0 eth2: unknown chip XID 688",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04",
        "NVRM: GPU Board Serial Number: 0000000000001",
        "NVRM: GPU 0000:09:00.0: GPU serial number is 0.",
        "NVRM: GPU0 GSP RPC buffer contains function 78 (DUMP_PROTOBUF_COMPONENT) ...",
        "NVRM: GPU1 RPC history (CPU -> GSP):",
        "NVRM:     -4    76   GSP_RM_CONTROL        0x0000000020802a02 0x0000000000000008    372us",
        "NVRM: _kgspLogXid119: Note: Please also check logs above.",
        "NVRM: kgspRcAndNotifyAllChannels_IMPL: RC all channels for critical error 79.",
        "NVRM: nvAssertOkFailedNoLog: Assertion failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST] (0x0000000F)",
        "NVRM: krcWatchdog_IMPL: RC watchdog: GPU is probably locked! Notify Timeout Seconds: 7",
        "NVRM: kgspCheckGspRmCcCleanup_GH100: CC secret cleanup successful!",
        "amdgpu 0000:04:00.0: device lost from bus!",
        "nvidia_uvm: module uses symbols from proprietary module nvidia, inheriting taint.",
        "process 7 wrote: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "process 7 wrote: SXid (PCI:0000:05:00.0): 12028, Fatal",
        "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Severity 0 Engine instance 31 Sub-engine instance 00",
        "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Data {0x000001c0, 0x00bd5c8a}",
        "",
    ],
)
def test_what_is_no_event(text: str) -> None:
    """Network chips, notes, tables, quotations and the further records of an event say nothing."""
    assert events(text) == []


@pytest.mark.parametrize(
    ("said", "number", "severity"),
    [
        ("22013, Non-fatal, Link 44 Minion Link DLREQ interrupt", 22013, "warning"),
        ("20034, Fatal, Link 30 LTSSM Fault Up", 20034, "critical"),
        ("10004, NVSWITCH Temperature 104C | TSENSE WARN Threshold 104C", 10004, "warning"),
        ("10005, NVSWITCH Temperature 98C | TSENSE WARN Threshold 104C", 10005, "info"),
        ("10006, NVSWITCH Temperature 120C | OVERT Threshold 120C", 10006, "critical"),
        ("xyz, Fatal error", None, "info"),
    ],
)
def test_a_switch_error_is_an_event_of_the_switch(said: str, number: int | None, severity: str) -> None:
    """Fatal is a word of the line; the number stands in `xid`; one without a number does not alarm."""
    found = event(f"nvidia-nvswitch1: SXid (PCI:0000:05:00.0): {said}")
    assert (found.kind, found.xid, found.severity, found.driver_fatal) == ("sxid", number, severity, False)
    assert found.pci == (PciAddress.parse("0000:05:00.0") if number else None)


HEAD = "NVRM: Xid (PCI:0000:00:06): 13, Graphics SM Warp Exception on (GPC 1, TPC 4, SM 0): Misaligned Address"
REGISTERS = "NVRM: Xid (PCI:0000:00:06): 13, Graphics Exception: ESR 0x519730=0x500000f 0x519734=0x0"
CHANNEL = "NVRM: Xid (PCI:0000:00:06): 13, pid=473, name=x, Graphics Exception: channel 0x0000000a, Class 0000cbc0"


def test_one_exception_in_three_records_is_one_event() -> None:
    """The event goes out with the first record; registers and channel belong to it."""
    (said,) = events(HEAD, REGISTERS, CHANNEL)
    assert (said.xid, said.seq, said.text) == (13, 0, HEAD)


def test_the_next_exception_is_another_event() -> None:
    """After the channel, or with a new head, another exception begins, however soon."""
    assert len(events(HEAD, REGISTERS, CHANNEL, HEAD, REGISTERS, CHANNEL)) == 2
    assert len(events(HEAD, REGISTERS, HEAD, REGISTERS, CHANNEL)) == 2
    assert len(events(HEAD, REGISTERS, CHANNEL, REGISTERS)) == 2
    assert len(events(CHANNEL, CHANNEL)) == 2


def test_records_without_a_head_are_an_event_of_their_own() -> None:
    """Registers that come too late, of another GPU, or after a step back of the clock, belong to nobody's head."""
    assert len(events(HEAD, REGISTERS, apart_usec=EXCEPTION_USEC)) == 1
    assert len(events(HEAD, REGISTERS, apart_usec=EXCEPTION_USEC + 1)) == 2
    assert len(events(HEAD, REGISTERS, apart_usec=-1)) == 2
    assert len(events(HEAD, REGISTERS.replace("00:06", "00:07"))) == 2
    assert len(events(HEAD, REGISTERS, apart_usec=1_000_000)) == 1  # the times of this log are whole seconds
    assert len(events(HEAD, REGISTERS, apart_usec=2_000_000)) == 2
    (said,) = events(REGISTERS, REGISTERS, CHANNEL)
    assert said.text == REGISTERS


def test_repeated_application_xids_are_not_swallowed() -> None:
    """Only the records of one Xid 13 are joined: a flood of Xid 45 is that many events."""
    assert len(events(*["NVRM: Xid (PCI:0000:3b:00): 45, pid=7, name=x, Ch 00000008"] * 5)) == 5


def test_a_uuid_line_teaches_who_a_gpu_is() -> None:
    """The line is no event; the address leads to the UUID, and the view cannot be written to."""
    parser = Parser(RULES)
    assert events("NVRM: GPU at PCI:0000:00:06: GPU-5f0c2d1e-0000-4000-8000-000000000001", parser=parser) == []
    assert parser.uuids == {PciAddress.parse("0000:00:06.0"): "GPU-5f0c2d1e-0000-4000-8000-000000000001"}
    with pytest.raises(TypeError):
        parser.uuids[PciAddress(0, 0, 0)] = "GPU-0"  # type: ignore[index]


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
        "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover.",
    ],
)
def test_what_a_process_wrote_is_said_and_cannot_be_acted_on(text: str) -> None:
    """The same words with a facility of user space come back marked, without any flag that somebody would act on."""
    (real,) = Parser(RULES).feed(message(text))
    (said,) = Parser(RULES).feed(message(text, facility=1))
    assert real.driver_fatal or real.bus_lost
    assert (said.injected, said.driver_fatal, said.bus_lost) == (True, False, False)
    assert (said.kind, said.xid, said.pci, said.text) == (real.kind, real.xid, real.pci, real.text)


def test_what_a_process_wrote_changes_nothing_for_the_kernel_s_lines() -> None:
    """It neither swallows a real exception, nor names a lost GPU, nor teaches a UUID."""
    parser = Parser(RULES)
    for text in (HEAD, PROBE_TIME[0], "NVRM: GPU at PCI:0000:00:06: GPU-0000"):
        parser.feed(message(text, facility=1))
    assert len(parser.feed(message(REGISTERS))) == 1
    (loss,) = parser.feed(message(PROBE_TIME[2]))
    assert loss.pci is None
    assert parser.uuids == {}


def test_lines_of_one_record_are_read_one_by_one() -> None:
    """A line that names no speaker goes on with the one before; each line that does is its own."""
    said = events(
        "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None)\n      to 0x2 (Node Reboot Required)\n"
        "NVRM: Xid (PCI:0000:3c:00): 43, pid=7, name=x, Ch 00000008"
    )
    assert [(each.xid, str(each.pci)) for each in said] == [(154, "0000:3b:00.0"), (43, "0000:3c:00.0")]
    assert said[0].recovery == "Node Reboot Required"
    assert "\n" not in said[0].text


# A name has 15 bytes of any kind; the name of a file, of a device or a client's version may hold a whole line of the driver.
NAMES = (
    "NVRM: Xid 79, a",
    "NVRM: Xid 79,",
    "\nNVRM: Xid 79",
    "a\nNVRM: Xid 79",
    "NVRM: Xid: 119,",
    "NVRM: Xid (PCI:",
    "NVRM: Xid(11:00",
    "NVRM: GPU at PC",
    "NVRM: The NVIDI",
    "NVRM: loading N",
    "nvidia-uvm: uvm",
    "nvidia-nvswitch",
    "* GSP Timeout *",
    "x, to 0x2 (x)",
    "a[1]: ",
    "",
)
LINES = (
    "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
    "NVRM: Xid 79, GPU has fallen off the bus.",
    "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
    "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover.",
    "nvidia-uvm: uvm encountered global fatal error 0x60, requiring os reboot to recover.",
    "NVRM: GPU at PCI:0000:3b:00: GPU-00000000-0000-4000-8000-000000000666",
    "NVRM: _kgspLogXid119: ********** GSP Timeout **********",
    "nvidia-nvswitch1: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0x65:1784)",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build",
    "\n".join(PROBE_TIME),
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "said",
    [
        ": segfault at 0 ip 0000000000401136 sp 00007ffd error 6 in x[401000+1000]",
        " bad frame in rt_sigreturn frame:00000000 ip:0 sp:0 orax:0",
        *(f": segfault at 0 ip 0 sp 0 error 4 in {line})[401000+1000]" for line in LINES),
        *(f": segfault at 0 ip 0 sp 0 error 4 in a b\n{line}\n[401000+1000]" for line in LINES),
    ],
)
def test_a_process_that_the_kernel_names_is_no_driver(name: str, said: str) -> None:
    """Whatever its name and its file's are, `name[pid]` says nothing about a GPU, in any line of the record."""
    parser = Parser(RULES)
    assert events(f"{name}[26039]{said}", parser=parser) == []
    assert parser.uuids == {}
    assert not is_driver_load(f"{name}[26039]{said}")


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: Xid 79, a invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "NVRM: Xid 79, a: page allocation failure: order:9, mode:0xcc0(GFP_KERNEL)",
        "NVRM: Xid 79, GPU has fallen off the bus.",
        "NVRM: Xid: 119, whatever",
        "NVRM: Xid (PCI:...): 120, whatever",
        "NVRM: Xid (PCI:0000:3b:3f): 79, GPU has fallen off the bus.",
        "NVRM: Xid (26039): 79 bytes",
        "NVRM: Xid (PCI:...): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
        "NVRM: Xid 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
        "NVRM: somebody says that uvm encountered global fatal error 0x60, requiring os reboot to recover.",
        "nvidia-uvm: somebody says that uvm encountered global fatal error 0x60",
    ],
)
def test_without_its_place_a_fatal_word_is_said_and_not_acted_on(text: str) -> None:
    """An Xid that names no device, and words that stand elsewhere than the driver puts them, keep their severity only."""
    said = event(text)
    assert (said.severity, said.pci, said.driver_fatal, said.bus_lost) == ("critical", None, False, False)


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover.",
        "NVRM: GPU3 nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover.",
        "NVRM: uvm encountered global fatal error 0x60, requiring os reboot to recover.",
        "nvidia-uvm: uvm encountered global fatal error 0x60, requiring os reboot to recover.",
        "nvidia-uvm: uvm_global.c:432 uvm_global_set_fatal_error_impl[pid:26039] Encountered a global fatal error: RC error",
    ],
)
def test_the_global_error_of_uvm_is_fatal_in_its_own_forms(text: str) -> None:
    """By the resource manager and by the UVM module itself."""
    said = event(text)
    assert (said.kind, said.severity, said.driver_fatal) == ("uvm_fatal", "critical", True)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("start", ["process '", "usb 1-1: Product: ", "traps: a[7] trap invalid opcode ip:0 sp:0 error:0 in ", "[U] "])
def test_the_driver_s_words_in_a_record_of_another_say_nothing(start: str, line: str) -> None:
    """Names of files, programs and devices may repeat any line of the driver."""
    assert events(f"{start}{line.splitlines()[0]}") == []


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize(
    "start", ["process 'a", "NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=", "NVRM: API mismatch: the client has the version "]
)
def test_after_a_line_break_everything_is_said_and_nothing_acted_on(start: str, line: str) -> None:
    """Who wrote that is not known: the events are there, without a flag and without a UUID."""
    parser = Parser(RULES)
    said = [each for each in events(f"{start}\n{line}", parser=parser) if each.xid != 31]
    assert [(each.kind, each.xid, each.severity) for each in said] == [(each.kind, each.xid, each.severity) for each in events(line)]
    assert not any(each.driver_fatal or each.bus_lost for each in said)
    assert parser.uuids == {}
    assert not is_driver_load(f"{start}\n{line}")


def test_after_a_line_break_nothing_reaches_other_records() -> None:
    """It neither swallows a real exception, nor names a lost GPU."""
    for line in (HEAD, PROBE_TIME[0]):
        parser = Parser(RULES)
        events(f"process 'a\n{line}", parser=parser)
        (said,) = events(REGISTERS if line == HEAD else PROBE_TIME[2], parser=parser)
        assert (said.pci is None) is (line != HEAD)


@pytest.mark.parametrize("name", ["\nNVRM: Xid 79", "a\nNVRM: Xid 79,", "a\nNVRM: Xid 79\n"])
def test_a_process_named_after_a_line_break_is_no_driver_either(name: str) -> None:
    """A trap is told with a word before the name; the rest of the name begins a line, and the number of the process ends it."""
    assert events(f"traps: {name}[26039] general protection fault ip:401136 sp:7ffd error:0 in x[401000+1000]") == []


@pytest.mark.parametrize("name", ["GSP Timeout", "rpc timeouts", "* gsp timeout *", "Xid 79", "global fatal er"])
def test_words_of_a_client_are_not_the_driver_s(name: str) -> None:
    """The driver repeats the name and the version of a client that does not fit; neither is an event."""
    assert events(f"NVRM: API mismatch: the client '{name}' (pid 26039)") == []
    assert events(f"NVRM: API mismatch: the client has the version {LINES[3]}, but") == []
    assert events(f"NVRM: has the version {LINES[4]}, but") == []
    assert events(f"NVRM: some other line that names '{name}' in passing") == []


def test_a_name_does_not_say_what_the_driver_asks_for() -> None:
    """Only the driver's own sentence says which action an Xid 154 asks for."""
    start = "NVRM: Xid (PCI:0000:3b:00): 154, pid=7, name=a, to 0x2 (x), GPU recovery action changed"
    assert event(f"{start} from 0x0 (None) to 0x1 (GPU Reset Required)").recovery == "GPU Reset Required"
    assert event(f"{start} to 0x4 (Drain and Reset)").recovery == "Drain and Reset"
    assert event(start).recovery is None


@pytest.mark.parametrize(
    ("text", "load"),
    [
        ("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (dvs-builder@host1)", True),
        ("NVRM: loading NVIDIA UNIX Open Kernel Module for aarch64  590.48.01  Release Build  (dvs-builder@host1)\n", True),
        ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.67  Tue Mar 12 23:54:15 UTC 2024", True),
        ("NVRM: loading NVIDIA UNIX x86 Kernel Module  1.0-9755  Mon Feb 26 23:21:15 PST 2007", True),
        ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.67", True),
        ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module", False),
        ("NVRM: loading NVIDIA", False),
        ("NVRM: loading N[26039]: segfault at 0 ip 0 sp 0 error 4 in NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.67", False),
        ("process 'NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.67' launched 'a' with NULL argv", False),
        ("process 'a\nNVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.67", False),
        ("NVRM: API mismatch: the client has the version NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.67", False),
    ],
)
def test_a_start_of_the_driver_is_known_by_its_whole_beginning(text: str, load: bool) -> None:
    """It forgives what was said before, so no name and no quotation may pass for it."""
    assert is_driver_load(text) is load


STARTS = ("", "NVRM: ", "NVRM: Xid", "NVRM: Xid (", "NVRM: Xid (PCI:0000:3b:00): ", "NVRM: Xid (PCI:0000:3b:00): 13, ")
MORE_STARTS = (
    "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from ",
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=",
    "NVRM: GPU at PCI:",
)
OTHER_STARTS = tuple(record[: 3 * len(record) // 4] for case in CASES for record in case["records"])
SWITCH_STARTS = (
    "nvidia-nvswitch0: SXid (",
    "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): ",
    "NVRM: The NVIDIA GPU ",
    "NVRM: fallen off the bus",
)
ANY_TEXT = st.text(st.characters(codec=None, categories=None)) | st.binary().map(lambda raw: raw.decode("latin-1"))
RECORDS = st.builds(
    lambda start, rest, facility: message(start + rest, facility=facility),
    st.sampled_from(STARTS + MORE_STARTS + SWITCH_STARTS) | st.sampled_from(OTHER_STARTS),
    ANY_TEXT | st.text("0123456789abcdefx:.,()= -\n<>'"),
    st.sampled_from([0, 1, 3]),
)


@given(st.lists(RECORDS, max_size=3))
def test_no_text_is_too_much(records: list[KernelMessage]) -> None:
    """Whatever a log holds, reading it never fails, and what a process wrote never carries a flag to act on."""
    parser = Parser(RULES)
    given = {(record.seq, record.usec) for record in records}
    for said in (*(event for record in records for event in parser.feed(record)), *parser.finish()):
        assert (said.seq, said.usec) in given
        assert said.text
        assert "\n" not in said.text
        assert not (said.injected and (said.driver_fatal or said.bus_lost))
    assert {event.injected for record in records if not record.from_kernel for event in Parser(RULES).feed(record)} <= {True}


ANY_NAME = st.sampled_from(NAMES) | st.binary(max_size=15).map(lambda raw: raw.decode("utf-8", "replace"))
ANY_WORDS = st.lists(st.sampled_from(LINES) | st.sampled_from(["\n", " ", ", ", "'"]) | ANY_TEXT, max_size=4).map("".join)
FRAMES = (
    "NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name={name}, channel 0x0000000a, intr 00000000. MMU Fault",
    "NVRM: Xid (PCI:0000:3b:00): 154, pid=7, name={name}, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    "NVRM: API mismatch: the client '{name}' (pid 7)\nNVRM: has the version {words}, but this kernel module has\nNVRM: the version 580.",
    "{name} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "{name}: page allocation failure: order:9, mode:0xcc0(GFP_KERNEL), nodemask=(null),cpuset=/,mems_allowed=0",
    "{name} (7): attempted to duplicate a private mapping with mremap.  This is not supported.",
    "traps: {name}[7] trap invalid opcode ip:401136 sp:7ffd error:0 in {words}[401000+1000]",
    "process '{words}' launched '{words}' with NULL argv: empty string added",
    "usb 1-1: Product: {words}",
)


@given(ANY_NAME, st.integers(0, 4_194_304), ANY_WORDS)
@example("NVRM: Xid 79, a", 26039, " segfault at 0")
def test_no_name_makes_a_process_an_event(name: str, pid: int, words: str) -> None:
    """Any name of 15 bytes before `[pid]:`, and any words behind."""
    parser = Parser(RULES)
    assert parser.feed(message(f"{name}[{pid}]: {words}")) == ()
    assert parser.uuids == {}


@given(st.sampled_from(FRAMES), ANY_NAME, ANY_WORDS)
def test_no_name_and_no_words_are_acted_on(frame: str, name: str, words: str) -> None:
    """Wherever the kernel or the driver prints what a user chose, no event of the record carries a flag to act on."""
    parser = Parser(RULES)
    text = frame.format(name=name, words=words)
    assert not any(said.driver_fatal or said.bus_lost for said in parser.feed(message(text)))
    assert parser.uuids == {}
    assert not is_driver_load(text)


@given(ANY_NAME)
def test_no_name_takes_a_loss_away(name: str) -> None:
    """A genuine Xid 79 is acted on whatever the process that noticed it is called."""
    first, *_ = Parser(RULES).feed(message(f"NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name={name}, GPU has fallen off the bus."))
    assert (first.xid, first.pci, first.driver_fatal, first.bus_lost) == (79, PciAddress.parse("0000:3b:00.0"), True, True)


@given(ANY_TEXT)
def test_lines_of_other_speakers_are_no_event(text: str) -> None:
    """Without a speaker's own words at its beginning a line says nothing, whatever else it holds."""
    assert events(*(f"{start}{text}" for start in ("docker0: ", "[UFW BLOCK] ", "audit: ", "usb 1-1: Product: ") if "\n" not in text)) == []


def test_what_is_an_event_begins_as_its_speaker_begins() -> None:
    """So that others can tell where in a pasted line the kernel's words begin."""
    spoken = [record for case in CASES for record in case["records"] if read([record])]
    assert len(spoken) > 150
    assert all(map(is_spoken, spoken))
    assert not any(is_spoken(f"host1 kernel: {record}") for record in spoken)


@pytest.mark.parametrize("line", dict.fromkeys(record for case in CASES for record in case["records"]))
def test_what_a_process_wrote_in_anybody_s_words_is_marked(line: str) -> None:
    """Every line of the field, with a facility of user space: the same events, marked, and nothing to act on."""
    real, said = read([line]), read([line], facility=1)
    assert [(each.kind, each.xid, each.pci, each.severity) for each in said] == [
        (each.kind, each.xid, each.pci, each.severity) for each in real
    ]
    assert all(each.injected and not each.driver_fatal and not each.bus_lost for each in said)


@pytest.mark.slow
@pytest.mark.parametrize(
    "start", ["NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=", "pcieport 0000:00:01.1: pciehp: Slot(", "INFO: task ", "EDAC MC0: 1 CE ", ""]
)
@pytest.mark.parametrize(
    "piece", [" ", "a", ",", "\n", "a: ", "1 ", "NVRM: ", "NVRM: \n", "error ", "x 0000:00:01.1: ", "(", " blocked", "pid=1, name="]
)
def test_a_line_without_end_costs_little(start: str, piece: str) -> None:
    """64 KiB of anything, with a closing word or without: the time grows with the length and not with its square."""
    began = time.process_time()
    for end in ("", ", GPU has fallen off the bus.", " blocked for more than 120 seconds."):
        events(start + piece * (65_536 // len(piece)) + end)
    assert time.process_time() - began < 1.5
