"""Relatives of lines seen in the field: old and new wordings of one sentence, and wrappings that no pattern names."""

from __future__ import annotations

import textwrap
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.logs.styles import LOSS
from xidwatch.core.kernel import xid_rules
from xidwatch.core.logevents import Found
from xidwatch.core.logneedles import NEEDLES
from xidwatch.logs.events import events
from xidwatch.logs.find import search

XIDS = xid_rules(tomllib.loads((Path(__file__).parents[2] / "rules" / "xid.toml").read_text()))
SEARCH = search(NEEDLES, fast=False)
PORT, GPU = "0000:00:01.0", "0000:3b:00.0"
UPTIME = "[ 1234.567890] "
AER = f"pcieport {PORT}: AER: Uncorrectable (Non-Fatal) error message received from {GPU}"
XID = "NVRM: Xid (PCI:0000:3b:00): "


def decoded(text: str) -> list[Found]:
    return [found for batch in events([f"{text}\n".encode()], SEARCH, XIDS) for found in batch]


@pytest.mark.parametrize(
    ("line", "kind", "pci", "severity"),
    [
        (f"pcieport {GPU}: can't change power state from D3cold to D0 (config space inaccessible)", "power_state", GPU, "critical"),
        (f"pcieport {GPU}: Unable to change power state from D3cold to D0, device inaccessible", "power_state", GPU, "critical"),
        (f"pcieport {GPU}: not ready 65535ms after bus reset; giving up", "power_state", GPU, "critical"),
        (f"vfio-pci {GPU}: invalid power transition (from D3cold to D3hot)", "power_state", GPU, "critical"),
        (f"pci {GPU}: Device config space inaccessible; unable to save state", "power_state", GPU, "critical"),
        (f"pcieport {PORT}: Data Link Layer Link Active not set in 1000 msec", "power_state", PORT, "error"),
        (f"pciehp {PORT}:pcie04: Data Link Layer Link Active not set in 1000 msec", "power_state", PORT, "error"),
        (f"pcieport {PORT}: pciehp: Slot(0-1): Cannot train link: status 0x0001", "pciehp", PORT, "error"),
        (f"pcieport {PORT}: pciehp: Slot(4): No link", "pciehp", PORT, "error"),
        (f"pcieport {PORT}: AER: subordinate device reset failed", "aer", PORT, "critical"),
        (f"pcieport {PORT}: EDR: DPC port recovery failed", "dpc", PORT, "critical"),
        (f"aer {PORT}:pcie02: AER: Multiple Corrected error received: id=3b00", "aer", GPU, "info"),
        (f"pcieport {PORT}: Uncorrected (Fatal) error received: id=3b00", "aer", GPU, "critical"),
        (f"dpc {PORT}:pcie08: DPC unmasked uncorrectable error detected, remove downstream devices", "dpc", PORT, "critical"),
        (f"pciehp {PORT}:pcie04: Card not present on Slot(5)", "pciehp", PORT, "critical"),
        (f"pciehp {PORT}:pcie04: slot(5): Link Down event", "pciehp", PORT, "critical"),
        (f"pciehp {PORT}:pcie04: Power fault on slot 5", "pciehp", PORT, "critical"),
        ("nvme0n1: I/O Cmd(0x2) @ LBA 2048, 8 blocks, I/O Error (sct 0x2 / sc 0x81) MORE DNR", "nvme", None, "error"),
        ("EDAC MC0: 1 CE on mc#0csrow#3channel#0 (csrow:3 channel:0 page:0x1 offset:0x0 grain:64 syndrome:0x1)", "edac", None, "warning"),
        ("EDAC MC0: UE - no information available: INTERNAL ERROR", "edac", None, "error"),
        ("CPU 1: Machine Check Exception: 0000000000000004", "mce", None, "critical"),
        ("NMI: PCI system error (SERR) for reason b1 on CPU 0.", "mce", None, "error"),
        ("Uhhuh. NMI received for unknown reason 3d on CPU 7.", "mce", None, "info"),
        ("BUG: soft lockup detected on CPU#0!", "lockup", None, "error"),
        ("NVRM: GPU0 kgspBootstrap_GH100: unexpected WPR2 already up, cannot proceed with booting GSP", "gsp", None, "critical"),
        ("NVRM: BAR1 is 0M @ 0x0 (PCI:0000:3b:00.0)", "nvrm_init_fail", GPU, "critical"),
        (f"NVRM: GPU {GPU}: GPU does not have the necessary power cables connected.", "nvrm_init_fail", GPU, "critical"),
        ("NVRM: rm_init_adapter(0) failed", "nvrm_init_fail", None, "critical"),
        ("NVRM: None of the NVIDIA graphics adapters were initialized!", "nvrm_init_fail", None, "critical"),
        (f"NVRM:Xid (PCI:{GPU[:-2]}): 79, GPU has fallen off the bus.", "xid", GPU, "critical"),
        (f"NVRM: Xid (PCI:{GPU[:-2]}), 79, GPU has fallen off the bus.", "xid", GPU, "critical"),
        (f"{XID}79: GPU has fallen off the bus.", "xid", GPU, "critical"),
        (f"{XID}79.", "xid", GPU, "critical"),
        (f"{XID}149, NVLINK: NETIR NonFatal XC0 i0 Link 02 (0x1 0x0)", "xid", GPU, "warning"),
        (f"{XID}149, NVLINK: NETIR fatal XC0 i0 Link 02 (0x1 0x0)", "xid", GPU, "critical"),
        (f"{XID}74, NVLink: nonfatal error detected on link 5(0x0, 0x0)", "xid", GPU, "error"),
        (LOSS.replace("\n", "#012"), "xid", "0000:b3:00.0", "critical"),
    ],
)
def test_another_wording_is_the_same_event(line: str, kind: str, pci: str | None, severity: str) -> None:
    """Of an older kernel or driver, or of a device that only others were known to be."""
    found = decoded(UPTIME + line)
    told = [(each.event.kind, str(each.event.pci) if each.event.pci else None, str(each.event.severity)) for each in found]
    assert told == [(kind, pci, severity)]


def test_whom_poisoned_memory_killed() -> None:
    """His name and number are in the line, in the words of 2.6.32 too."""
    for speaker in ("Memory failure:", "MCE"):
        [found] = decoded(f"{UPTIME}{speaker} 0x3a8a1: Killing python3:4242 due to hardware memory corruption")
        assert (found.event.kind, found.event.pid, found.event.process) == ("mce", 4242, "python3")


def test_two_words_of_the_text_are_no_host_and_programme() -> None:
    """Behind a clock alone, where nobody has named a host."""
    for stamp in ("[Tue Sep 16 08:01:02 2025] ", "2025-09-16T08:01:02,123456+02:00 ", "Sep 16 08:01:02 "):
        [found] = decoded(f"{stamp}Memory failure: 0x46fab5: recovery action for dirty swapcache page: Failed")
        assert (found.event.kind, found.event.injected) == ("mce", False)


def test_what_the_record_device_adds_is_no_text() -> None:
    """The device a record is about has lines of its own, behind what was printed."""
    record = "4,1,6000000,-,caller=T9;nvme nvme0: Device not ready; aborting reset, CSTS=0x1\n SUBSYSTEM=nvme\n DEVICE=c239:0"
    assert [found.event.text for found in decoded(record)] == ["nvme nvme0: Device not ready; aborting reset, CSTS=0x1"]


def test_a_quoted_record_of_several_lines_is_one() -> None:
    """The mark of a quotation stands before what the printer has indented."""
    told = ("API mismatch: the client has the version 535.54.03, but", "this kernel module has the version 535.86.05.  Please")
    quoted = f"> {UPTIME}NVRM: {told[0]}\n> {' ' * len(UPTIME)}NVRM: {told[1]}"
    assert [found.event.kind for found in decoded(quoted)] == ["nvrm_init_fail"]


def test_an_admin_command_that_fails_is_no_trouble() -> None:
    """Tools ask every drive for what only some of them have."""
    assert decoded(f"{UPTIME}nvme0: Admin Cmd(0x6), I/O Error (sct 0x0 / sc 0x2) DNR") == []


def test_a_firmware_record_of_two_first_lines_is_one() -> None:
    """As kernels before 3.13 print it."""
    head = f"{UPTIME}[Hardware Error]: "
    lines = ("Hardware error from APEI Generic Hardware Error Source: 1", "APEI generic hardware error status", "severity: 2, corrected")
    assert len(decoded("\n".join(head + line for line in (*lines, "section_type: memory error")))) == 1


@pytest.mark.parametrize(
    "wrapped",
    [
        f"[pod/dmesg-x7k2/dmesg] {UPTIME}{AER}",
        f"gpu_1  | Sep 16 08:01:02 host1 kernel: {AER}",
        f"root@host1:~# {UPTIME}{AER}",
        f"host1 login: {UPTIME}{AER}",
        f'        "{UPTIME}{AER}",',
        f"- {UPTIME}{AER}",
        f"<pre><code>{UPTIME}{AER}</code></pre>",
        f"   123\t{UPTIME}{AER}",
        f'2025-09-16T08:01:02Z,host1,"{UPTIME}{AER}"',
        f'2025-09-16T08:01:02Z,host1,kernel,"{AER}"',
        f"2025-09-16T08:01:02Z\thost1\tkernel\t{AER}",
        f"Sep 16 08:01:02\thost1\tkernel:\t{AER}",
        f"Sep 16 08:01:02 2001:db8::1 kernel: {AER}",
        f"Sep 16 08:01:02 host1 kern.err kernel: {AER}",
        f"Sep 16 08:01:02 <kern.crit> host1 kernel: {AER}",
        f"Sep 16 08:01:02 host1 kernel:{UPTIME}{AER}",
        f" kernel:{UPTIME}{AER}",
        f"123 <4>1 2025-09-16T08:01:02Z host1 kernel - - - {AER}",
        f"^[[32m{UPTIME}^[[0m{AER}",
        f'2025-09-16T08:01:02+02:00 {{job="journal", host="host1"}} {AER}',
        f'2025-09-16T06:01:02.1Z stdout F {{"_TRANSPORT":"kernel","MESSAGE":"{AER}"}}',
        f'{{"textPayload":"{UPTIME}{AER}","timestamp":"2025-09-16T06:01:02Z"}}',
        f'{{"data":{{"result":[{{"stream":{{"host":"a"}},"values":[["1758002462123456789","{UPTIME}{AER}"]]}}]}}}}',
    ],
)
def test_a_wrapping_that_no_pattern_names(wrapped: str) -> None:
    """What stands behind a head of the kernel's own is read, whatever stands before it, as long as that names nobody else."""
    [found] = decoded(wrapped)
    assert (found.event.kind, str(found.event.pci), found.event.injected) == ("aer", GPU, False)


@pytest.mark.parametrize(
    "head",
    [
        f"Sep 16 08:01:02 host1 app[42]: {UPTIME}",
        "Sep 16 08:01:02 host1 app[42]: kernel: ",
        "Sep 16 08:01:02 host1 app: kernel: ",
        f"app[42]: {UPTIME}",
        f"<14>{UPTIME}",
        "user  :warn  : kernel: ",
    ],
)
def test_a_head_inside_another_speakers_words_makes_nobody_the_kernel(head: str) -> None:
    """Anybody can write an uptime or a name."""
    assert all(found.event.injected for found in decoded(head + AER))


def test_an_iso_time_takes_no_word_of_the_text() -> None:
    """`EDAC` behind it is not a time zone."""
    [found] = decoded("2025-09-16T08:01:02,123456+02:00 EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0)")
    assert found.event.kind == "edac"


def test_a_wrap_at_the_width_of_a_terminal() -> None:
    """Between two words, and where the rest looks like a speaker."""
    for line in (
        f"{UPTIME}{XID}79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        f"Sep 16 08:01:02 host1 kernel: {UPTIME}nvme nvme0: controller is down; will reset: CSTS=0x3, PCI_STATUS=0x10",
    ):
        [found] = decoded(f"{line[:80]}\n{line[80:]}")
        assert (found.event.process, found.event.text) == (None, line[line.index("] ") + 2 :])


LONG = (
    f"{XID}79, pid=4711, name=python3, GPU has fallen off the bus.",
    f"{XID}149, pid='<unknown>', name=<unknown>, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000)",
    f"{XID}154, pid=4711, name=python3, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
    f"{AER} and what more the kernel may have to say of it",
)
FORMS = (
    f"Xid (PCI:0000:3b:00): 79, pid=7, name=x, {LONG[0].rpartition(', ')[2]}",
    "SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 31 egress non-posted PRIV error",
    f"nvidia: probe of {GPU} failed with error -1",
    f"nvidia {GPU}: probe with driver nvidia failed with error -1",
    f"nvme: probe of {GPU} failed with error -19",
    "BUG: workqueue lockup - pool cpus=3 node=0 flags=0x0 nice=0 stuck for 32s!",
    "Kernel panic - not syncing: Hard LOCKUP",
    "Kernel panic - not syncing: Fatal hardware error!",
    "NMI: IOCK error (debug interrupt?) for reason 61 on CPU 0.",
    f"pcieport {PORT}: Data Link Layer Link Active not set in 1000 msec",
    f"pci {GPU}: Device config space inaccessible; unable to save state",
    f"vfio-pci {GPU}: invalid power transition (from D3cold to D3hot)",
    f"pcieport {PORT}: PCIE Bus Error: severity=Corrected, type=Physical Layer, id=0008(Receiver ID)",
    "NVRM: API mismatch: the client has the version 535.54.03, but\nNVRM: this kernel module has the version 535.86.05.  Please",
    "+------ PCI-Express Device Error ------+\nError Severity\t\t: Corrected\nPCIE Bus Error type\t: Physical Layer\nReceiver ID\t\t: 0008",
)
HEADS = ("", UPTIME, "Sep 16 08:01:02 host1 kernel: ", "2026-09-17T08:01:02.123456+02:00 host1.example.net kernel: ")


def facts(text: str) -> list[tuple[object, ...]]:
    events = [each.event for each in decoded(text)]
    return [(e.kind, e.xid, str(e.pci), e.pid, e.process, str(e.severity), e.recovery) for e in events]


@pytest.mark.slow
@given(
    st.sampled_from(("Sep 16 08:01:02", "2026-09-17T08:01:02.123456+02:00")),
    st.integers(1, 63),
    st.booleans(),
    st.sampled_from(LONG + FORMS[:-1]),  # a line of hyphens goes on with none
)
def test_a_wrap_right_through_a_needle(stamp: str, host: int, uptime: bool, line: str) -> None:
    """A host's name of any length moves the break of a terminal through every place: the needles, the uptime, `kernel:` itself."""
    head = f"{stamp} {'h' * host} kernel: {UPTIME if uptime else ''}"
    lines = [f"{head}{each}" for text in ("usb 1-1: new high-speed USB device", line, "usb 1-1: gone") for each in text.split("\n")]
    wrapped = [each[at : at + 80] for each in lines for at in range(0, len(each), 80)]
    assert facts("\n".join(wrapped)) == facts("\n".join(lines))


@given(st.sampled_from(HEADS[1:]), st.sampled_from(LONG), st.integers(80, 200), st.booleans())
def test_a_wrap_at_any_width(head: str, line: str, width: int, stripped: bool) -> None:
    """As a terminal breaks lines, inside words too, also where whoever copied them has taken the blanks off their ends."""
    lines = [f"{head}{line}"[at : at + width] for at in range(0, len(head + line), width)]
    assert facts("\n".join(piece.rstrip() if stripped else piece for piece in lines)) == facts(head + line)


@given(st.sampled_from(HEADS[:3]), st.sampled_from(LONG), st.integers(66, 200), st.sampled_from(["", "    "]))
def test_a_wrap_between_words_at_any_width(head: str, line: str, width: int, indent: str) -> None:
    """As an editor or a mail programme breaks them, with its indent or without."""
    wrapped = textwrap.fill(head + line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    assert facts(wrapped) == facts(head + line)


def test_many_wraps_of_one_log_have_one_width() -> None:
    """From the second one on, a line of that width goes on even where the rest looks like a speaker of its own."""
    other = f"{UPTIME}nvme nvme0: controller is down; will reset: CSTS=0x3, PCI_STATUS=0x10"
    width = len(UPTIME + "nvme nvme0: controller is ")
    lines = [f"{UPTIME}{LONG[0]}", other.replace("down; will reset", "Disabling: device")]
    text = "\n".join(line[at : at + width] for line in lines for at in range(0, len(line), width))
    assert next(found.event.text for found in decoded(text)) == LONG[0]


@pytest.mark.parametrize(
    "remark", ["Pending reboot tonight", "Any ideas?", "Driver: 550.67", "the machine is an 8x H200", "Fatal, as it seems", "[edit] solved"]
)
def test_a_remark_below_a_pasted_line_changes_nothing(remark: str) -> None:
    """It is not the driver's, whatever words it uses."""
    line = f"{UPTIME}{XID}64, pid=7, name=python3, Row Remapper Error: - All reserved rows for bank are remapped"
    assert facts(f"{line}.\n{remark}") == facts(line)
    assert remark.startswith("the ") or facts(f"{line}\n{remark}") == facts(line)


def test_what_stands_below_is_read_for_itself() -> None:
    """A line without a head that is an event of its own is never taken for a rest."""
    for other in (AER, f"{XID}31, Ch 1", "nvme nvme0: Device not ready; aborting initialisation, CSTS=0x0", "EDAC MC0: 1 CE x on y"):
        assert facts(f"{UPTIME}{LONG[0]}\n{other}") == [*facts(LONG[0]), *facts(other)]


@pytest.mark.parametrize("clock", ["[ 4001.2] ", "[4001.25] ", "[4001] "])
def test_behind_a_clock_that_somebody_has_shortened_an_event_is_one(clock: str) -> None:
    """It is no rest of the line before, though no kernel prints such a head. A number alone is one before the driver's own words."""
    others = (f"{XID}31, Ch 1", *((AER, "NMI: PCI system error (SERR) for reason b1 on CPU 0.") if "." in clock else ()))
    for other in others:
        assert facts(f"Sep 17 01:10:03 host kernel: {LONG[0]}\n{clock}{other}") == [*facts(LONG[0]), *facts(other)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("head", HEADS)
def test_every_form_is_found_in_a_large_log(form: str, head: str) -> None:
    """By its needles, wherever it stands, and is one event; a record of several lines is read to its end."""
    noise = "".join(f"{UPTIME}usb 1-{port}: new high-speed USB device\n" for port in range(300))
    (found,) = decoded(noise + "".join(f"{head}{line}\n" for line in form.split("\n")) + noise)
    assert found.number == 301
    assert not found.event.injected


@pytest.mark.parametrize("form", FORMS)
def test_no_form_is_the_kernel_s_where_somebody_else_speaks(form: str) -> None:
    """Of another programme, by its name or by its facility."""
    for head in ("Sep 16 08:01:02 host1 app[42]: ", "12,34,5678901,-;", "<14>Sep 16 08:01:02 host1 "):
        assert all(found.event.injected for found in decoded("".join(f"{head}{line}\n" for line in form.split("\n"))))
