"""Machine checks, EDAC, and the firmware's records with their many lines."""

from __future__ import annotations

import pytest

from tests.core.lines import RULES, block, message, read, summary
from xidwatch.core.kernel import Parser
from xidwatch.core.kernel_hardware import MOST_BETWEEN, MOST_LINES, RECORD_USEC

GHES_PCIE = """
    {1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 1
    {1}[Hardware Error]: event severity: recoverable
    {1}[Hardware Error]:  Error 0, type: fatal
    {1}[Hardware Error]:   section_type: PCIe error
    {1}[Hardware Error]:   port_type: 4, root port
    {1}[Hardware Error]:   version: 3.0
    {1}[Hardware Error]:   command: 0x0547, status: 0x4010
    {1}[Hardware Error]:   device_id: 0000:3b:00.0
    {1}[Hardware Error]:   slot: 0
    {1}[Hardware Error]:   secondary_bus: 0x3c
    {1}[Hardware Error]:   vendor_id: 0x10de, device_id: 0x2330
    {1}[Hardware Error]:   class_code: 060400
    {1}[Hardware Error]:   aer_uncor_status: 0x00000020, aer_uncor_mask: 0x00000000
    pcieport 0000:3b:00.0: AER: aer_status: 0x00000020, aer_mask: 0x00000000
"""
GHES_MEMORY = """
    {7}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4
    {7}[Hardware Error]: It has been corrected by h/w and requires no further action
    {7}[Hardware Error]: event severity: corrected
    {7}[Hardware Error]:  Error 0, type: corrected
    {7}[Hardware Error]:   section_type: memory error
    {7}[Hardware Error]:   error_status: 0x0000000000000400
    {7}[Hardware Error]:   physical_address: 0x0000001234567890
    {7}[Hardware Error]:   node: 0 card: 2 module: 0 rank: 1 bank: 3 row: 1 column: 9
"""
GHES_CORRECTED_LINK = GHES_PCIE.replace("recoverable", "corrected").replace("fatal", "corrected")
BERT = """
    BERT: Error records from previous boot:
    [Hardware Error]: event severity: fatal
    [Hardware Error]:  Error 0, type: fatal
    [Hardware Error]:   section_type: PCIe error
    [Hardware Error]:   device_id: 0000:00:01.1
"""
GHES_UNKNOWN = """
    {1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 0
    {1}[Hardware Error]: event severity: recoverable
    {1}[Hardware Error]:  imprecise tstamp: 2026-06-16 02:50:03
    {1}[Hardware Error]:  Error 0, type: recoverable
    {1}[Hardware Error]:  fru_text: Socket1
    {1}[Hardware Error]:   section type: unknown, e8ed898d-df16-43cc-8ecc-54f060ef157f
    {1}[Hardware Error]:   section length: 0x30
    {1}[Hardware Error]:   00000000: 00000005 ec30000e 00040110 80001001  ......0.........
"""
FATAL = GHES_MEMORY.replace("corrected", "fatal")


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (GHES_PCIE, ("ghes", "0000:3b:00.0", "error")),
        (GHES_MEMORY, ("ghes", None, "warning")),
        (GHES_CORRECTED_LINK, ("ghes", "0000:3b:00.0", "info")),
        (GHES_UNKNOWN, ("ghes", None, "error")),
        (BERT, ("ghes", "0000:00:01.1", "warning")),
        (FATAL, ("ghes", None, "critical")),
    ],
)
def test_a_record_of_the_firmware_is_one_event(report: str, said: tuple[str, str | None, str]) -> None:
    """Under its first line's number and time, with the device of a PCIe section; an earlier boot's is worth a look."""
    records = block(report)
    (event,) = read(records)
    assert (summary(event), event.seq, event.usec) == (said, 0, 1_000_000)
    assert event.text.startswith(records[0])
    assert " | " in event.text
    assert len(read([*records, *records])) == 2


def test_the_event_comes_with_the_line_that_decides() -> None:
    """It waits for nothing behind that."""
    parser = Parser(RULES)
    came = [len(parser.feed(message(text))) for text in block(GHES_PCIE)]
    assert came == [0] * 7 + [1] + [0] * 6


def test_a_record_that_breaks_off_goes_out_as_it_stands() -> None:
    """At the end of the log, at the next record, when others have spoken too much, or when time has passed."""
    head, severity, *_ = block(GHES_PCIE)
    said = ("ghes", None, "error")
    assert [summary(event) for event in read([head, severity])] == [said]
    assert [summary(event) for event in read([head, severity, *block(GHES_MEMORY)])] == [said, ("ghes", None, "warning")]
    parser = Parser(RULES)
    for text in (head, severity):
        assert parser.feed(message(text)) == ()
    assert [len(parser.feed(message("eth0: link is up"))) for _ in range(MOST_BETWEEN + 1)] == [0] * MOST_BETWEEN + [1]
    for text in (head, severity):
        assert parser.feed(message(text, usec=5)) == ()
    assert [summary(event) for event in parser.feed(message("eth0: link is up", usec=6 + RECORD_USEC))] == [said]
    assert parser.finish() == ()


def test_others_may_speak_in_between() -> None:
    """Another processor prints when it likes; what comes late belongs to a record that has been told."""
    records = block(GHES_PCIE)
    mixed = [line for record in records for line in (record, "eth0: link is up")]
    (event,) = read(mixed)
    assert str(event.pci) == "0000:3b:00.0"


def test_a_record_without_its_beginning_is_still_one() -> None:
    """The ring has lost the first lines; the rest is not taken for another's."""
    _, severity, *rest = block(GHES_PCIE)
    (event,) = read([severity, *rest])
    assert summary(event) == ("ghes", "0000:3b:00.0", "error")
    said = read([*block(GHES_MEMORY)[:2], severity, *rest])
    assert [summary(event) for event in said] == [("ghes", None, "warning"), ("ghes", "0000:3b:00.0", "error")]


def test_a_record_without_end_is_cut() -> None:
    """Damaged firmware may say how bad it is for ever."""
    assert len(read(["{1}[Hardware Error]: event severity: fatal"] * (2 * MOST_LINES))) == 1


def test_what_a_process_wrote_is_not_mixed_in() -> None:
    """A forged end neither completes nor ends a real record, and a forged record is marked."""
    parser = Parser(RULES)
    records = block(GHES_PCIE)
    assert parser.feed(message(records[0])) == ()
    (forged,) = parser.feed(message(records[7], facility=1))
    assert forged.injected
    assert [len(parser.feed(message("eth0", facility=1))) for _ in range(2 * MOST_BETWEEN)] == [0] * 2 * MOST_BETWEEN
    (event,) = [event for text in records[1:] for event in parser.feed(message(text))]
    assert (str(event.pci), event.injected) == ("0000:3b:00.0", False)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("mce: [Hardware Error]: Machine check events logged", ("mce", None, "warning")),
        ("Machine check events logged", ("mce", None, "warning")),
        ("mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 4: a600000000020408", ("mce", None, "error")),
        ("mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 7: 8c00004000010092", ("mce", None, "warning")),
        ("[Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 5: be00000000800400", ("mce", None, "critical")),
        ("mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 1: bd80000000100134", ("mce", None, "error")),
        ("CPU 1: Machine Check Exception: 0000000000000004 Bank 4: b200000000070f0f", ("mce", None, "critical")),
        ("CPU 0: Machine Check Exception: 0 Bank 1: 940000000000009f", ("mce", None, "warning")),
        ("Memory failure: 0x46fab5: recovery action for reserved kernel page: Ignored", ("mce", None, "error")),
        ("Memory failure: 0x46fab5: recovery action for dirty swapcache page: Failed", ("mce", None, "error")),
        ("[Hardware Error]: Corrected error, no action required.", ("mce", None, "warning")),
        ("[Hardware Error]: Uncorrected, software containable error.", ("mce", None, "error")),
        ("mce: Uncorrected hardware memory error in user-access at 3f7a51240", ("mce", None, "error")),
        ("mce: CPUs not responding to MCE broadcast (may include false positives): 4-7", ("mce", None, "critical")),
        ("Memory failure: 0x3f7a51: Killing python3:8841 due to hardware memory corruption", ("mce", None, "error")),
        ("EDAC MC0: 4 CE error on CPU#0Channel#2_DIMM#0 (channel:2 slot:0 page:0x0 offset:0x0 grain:8)", ("edac", None, "warning")),
        ("EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#1_Ha#0_Chan#0_DIMM#0 (channel:0 slot:0)", ("edac", None, "warning")),
        ("EDAC MC1: 1 UE memory read error on CPU_SrcID#1_Ha#0_Chan#0_DIMM#0 (channel:0 slot:0)", ("edac", None, "error")),
        (
            'EDAC MC0: CE page 0x11dc5e, offset 0x0, grain 0, syndrome 0x30, row 3, channel 0, label "": x',
            ("edac", None, "warning"),
        ),
        ("EDAC DEVICE0: UE: xgene-l3 instance: l3c0 block: l3c0 count: 1 'L3C uncorrectable error'", ("edac", None, "error")),
        ("EDAC PCI: Signaled System Error on 0000:00:01.0", ("edac", "0000:00:01.0", "error")),
        ("BERT: Error records from previous boot:", ("ghes", None, "warning")),
        ("NMI: PCI system error (SERR) for reason b1 on CPU 12.", ("mce", None, "error")),
        ("NMI: IOCK error (debug interrupt?) for reason 61 on CPU 0.", ("mce", None, "error")),
        ("Uhhuh. NMI received for unknown reason 2c on CPU 3.", ("mce", None, "info")),
    ],
)
def test_single_lines(line: str, said: tuple[str, str | None, str]) -> None:
    """Corrected is worth a look, uncorrected is work lost, a lost context is the end of this boot."""
    (event,) = read([line])
    assert summary(event) == said


def test_the_decoder_s_words_behind_the_log_s_are_the_same_event() -> None:
    """AMD's decoder says at once what was logged; an uncorrected one is said all the same."""
    logged, corrected = "mce: [Hardware Error]: Machine check events logged", "[Hardware Error]: Corrected error, no action required."
    detail = "[Hardware Error]: CPU:2 (17:31:0) MC17_STATUS[-|CE|MiscV|AddrV|-|-|SyndV|CECC|-|-|-]: 0x9c2040000000011b"
    assert len(read([logged, corrected, detail])) == 1
    assert len(read([logged, corrected, corrected])) == 2
    assert len(read([logged, corrected], apart_usec=RECORD_USEC + 1)) == 2
    assert len(read([logged, "[Hardware Error]: Uncorrected, software containable error."])) == 2


@pytest.mark.parametrize(
    "line",
    [
        "mce: CPU supports 32 MCE banks",
        "mce: CPU6: Core temperature/speed normal",
        "mce: CPU6: Core temperature above threshold, cpu clock throttled (total events = 2081)",
        "mce: [Hardware Error]: TSC 0 ADDR fef1ff40 MISC 4880018086",
        "mce: [Hardware Error]: PROCESSOR 0:50657 TIME 1665252572 SOCKET 0 APIC 0 microcode 5003303",
        "mce: [Hardware Error]: Run the above through 'mcelog --ascii'",
        "EDAC MC0: Giving out device to module sb_edac controller Broadwell SrcID#0_Ha#0: DEV 0000:ff:12.0 (INTERRUPT)",
        "EDAC sbridge MC1: HANDLING MCE MEMORY ERROR",
        "EDAC skx MC5: HANDLING MCE MEMORY ERROR",
        "EDAC MC: Ver: 3.0.0",
        "EDAC MC0: 1 UE invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "BERT: Total records found: 1",
        "NMI: Not continuing",
        "NMI backtrace for cpu 3",
        "Dazed and confused, but trying to continue",
        "mce: CPU3: Package temperature above threshold, cpu clock throttled (total events = 12)",
        "thermal thermal_zone0: critical temperature reached, shutting down",
        "Memory failure: 0x3f7a51: recovery action for dirty LRU page: Recovered",
        "GHES: APEI firmware first mode is enabled by APEI bit.",
        "somebody says {1}[Hardware Error]: event severity: fatal",
    ],
)
def test_what_is_no_event(line: str) -> None:
    """Boot lines, details, temperatures, and words of others."""
    assert read([line]) == []
