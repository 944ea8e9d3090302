"""An Xid or SXid line taken apart, however its words stand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.lines import RULES, message, read
from xidwatch.core.kernel import Parser
from xidwatch.core.model import PciAddress

BLANKS = st.text(" ", min_size=1, max_size=9)
GPU = "0000:3b:00.0"
LOST = "GPU has fallen off the bus."


@given(st.lists(BLANKS, min_size=7, max_size=7))
def test_any_number_of_blanks_stands_for_one(blanks: list[str]) -> None:
    """Between any two words; the text stays as it was printed, and the line is as good a reason to act."""
    words = ["NVRM:", "Xid", "(PCI:0000:3b:00):", "79,", "pid=4711,", "name=python3,", "GPU", "has fallen off the bus."]
    line = words[0] + "".join(blank + word for blank, word in zip(blanks, words[1:], strict=True))
    (event,) = read([line])
    assert (event.xid, str(event.pci), event.pid, event.process, event.text) == (79, GPU, 4711, "python3", line)
    assert event.bus_lost
    assert event.driver_fatal


@pytest.mark.parametrize("speaker", ["nvidia-nvswitch0: ", "nvidia-nvswitch0 ", "nvidia-nvswitch11:   ", "nvidia-nvswitch: "])
def test_a_switch_is_named_with_a_colon_or_without(speaker: str) -> None:
    """Its number says nothing about its address."""
    (event,) = read([f"{speaker}SXid (PCI:0000:06:00.0): 20009, Non-fatal, Link 04 RX Short Error Rate"])
    assert (event.kind, event.xid, str(event.pci), str(event.severity)) == ("sxid", 20009, "0000:06:00.0", "warning")


@pytest.mark.parametrize("pid", ["4711", "'4711'", '"4711"'])
@pytest.mark.parametrize("name", ["python3", "'python3'", '"python3"'])
@pytest.mark.parametrize(("comma", "equals"), [(", ", "="), (",", "="), (" , ", "="), (",  ", "="), (", ", " = ")])
def test_whom_it_names_is_read_with_quotes_and_without_blanks(pid: str, name: str, comma: str, equals: str) -> None:
    """Pid and name are quoted or not, and set apart by a comma with any blanks or with none."""
    (event,) = read([f"NVRM: Xid (PCI:0000:3b:00): 79{comma}pid{equals}{pid}{comma}name{equals}{name}{comma}{LOST}"])
    assert (event.xid, str(event.pci), event.pid, event.process) == (79, GPU, 4711, "python3")


@pytest.mark.parametrize(
    "who", ["pid='<unknown>',name=<unknown>", "pid=0,name=<unknown>", "pid=<unknown>, name=<unknown >", "pid='', name="]
)
def test_nobody_is_nobody(who: str) -> None:
    """Also without blanks, and where a wrap has put one inside."""
    (event,) = read([f"NVRM: Xid (PCI:0000:3b:00): 79, {who}, {LOST}"])
    assert (event.xid, event.pid, event.process) == (79, None, None)


@pytest.mark.parametrize(
    ("line", "kind", "number", "severity"),
    [
        (f"Xid (PCI:0000:3b:00): 79, pid=7, name=x, {LOST}", "xid", 79, "critical"),
        (f"Xid (0000:3b:00): 79, {LOST}", "xid", 79, "critical"),
        ("Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "xid", 154, "critical"),
        ("Xid (PCI:0000:3b:00 GPU-I:02 GPU-CI:00): 43, Ch 8", "xid", 43, "warning"),
        ("SXid (PCI:0000:3b:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", "sxid", 20034, "critical"),
        ("SXid (PCI:0000:3b:00.0): 12028, Non-fatal, Link 31 egress", "sxid", 12028, "warning"),
    ],
)
def test_without_the_driver_s_name_it_is_said_and_not_acted_on(line: str, kind: str, number: int, severity: str) -> None:
    """As a tracepoint prints it, or a hand that cut the beginning off: nothing says that the driver has written it."""
    (event,) = read([line])
    assert (event.kind, event.xid, str(event.pci), str(event.severity)) == (kind, number, GPU, severity)
    assert event.text == line
    assert not event.driver_fatal
    assert not event.bus_lost
    (forged,) = read([line], facility=1)
    assert forged.injected


@pytest.mark.parametrize(
    "line",
    [
        "Xid (0001:00):8 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0",
        "Xid (0000:01:00: page allocation failure: order:9",
        "Xid (0000:01:00 (26039): attempted to duplicate a private mapping with mremap.",
        "Xid 79, GPU has fallen off the bus.",
        "Xid (PCI:0000:3b:00)[26039]: segfault at 0 ip 0 sp 0 error 4",
        "SXid (PCI:0000:[7]: 20034, Fatal",
        "Xid (PCI:0000:3b:00): text",
        "RTL8168h/8111h, XID 541, IRQ 139",
    ],
)
def test_no_name_of_a_process_is_an_xid(line: str) -> None:
    """A name has 15 characters: too few for an address and a number."""
    assert read([line]) == []


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=15),
    st.sampled_from(["[7]: ", ": ", " (7): ", " invoked ", " "]),
)
def test_no_name_at_the_beginning_is_an_xid(name: str, behind: str) -> None:
    """Whatever it holds, and whatever the kernel prints behind it."""
    for line in (
        f"{name}{behind}segfault at 0",
        f"{('Xid (PCI:' + name)[:15]}{behind}page allocation",
        f"{('SXid (' + name)[:15]}{behind}79",
    ):
        assert [event for event in read([line]) if event.kind in ("xid", "sxid") and event.xid is not None] == []


def test_a_nameless_line_changes_nothing_for_the_driver_s() -> None:
    """It swallows no loss that the driver then tells, and no further record of an exception."""
    parser = Parser(RULES)
    parser.feed(message(f"Xid (PCI:0000:3b:00): 79, {LOST}"))
    (event,) = parser.feed(message("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."))
    assert (event.pci, event.driver_fatal) == (PciAddress.parse(GPU), True)
    parser.feed(message("Xid (PCI:0000:3b:00): 13, Graphics SM Warp Exception on (GPC 1, TPC 4, SM 0): Misaligned Address"))
    assert len(parser.feed(message("NVRM: Xid (PCI:0000:3b:00): 13, Graphics Exception: ESR 0x519730=0x500000f"))) == 1
