"""AER as kernels before 2.6.33 printed it: a block of lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.lines import block, read, summary
from xidwatch.core.kernel_pci_block import BLOCK_USEC, MOST_LINES

BLOCK = """
    +------ PCI-Express Device Error ------+
    Error Severity\t\t: Uncorrected (Non-Fatal)
    PCIE Bus Error type\t: Transaction Layer
    Completion Timeout  \t: First
    Requester ID\t\t: 0300
    VendorID=10deh, DeviceID=0191h, Bus=03h, Device=00h, Function=00h
    TLP Header:
    04000001 0000000f 03000000 00000000
"""
UNREACHABLE = """
    +------ PCI-Express Device Error ------+
    Error Severity\t\t: Uncorrected (Fatal)
    PCIE Bus Error type\t: (Unaccessible)
    Unaccessible Received\t: First
    Unregistered Agent ID\t: 00e5
"""


@pytest.mark.parametrize(("text", "said"), [(BLOCK, ("aer", "0000:03:00.0", "error")), (UNREACHABLE, ("aer", "0000:00:1c.5", "critical"))])
def test_a_block_is_one_event(text: str, said: tuple[str, str, str]) -> None:
    """Of the device that it names, under its first line; twice when it comes twice."""
    records = block(text)
    (event,) = read(["eth0: link is up", *records])
    assert (summary(event), event.seq) == (said, 1)
    assert event.text.startswith("+------ PCI-Express Device Error ------+ | Error Severity : Uncorrected")
    assert [summary(event) for event in read(records * 2)] == [said] * 2


@given(
    st.sampled_from([("Corrected", "info"), ("Uncorrected (Non-Fatal)", "error"), ("Uncorrected (Fatal)", "critical")]),
    st.sampled_from(["Receiver", "Requester", "Completer", "Transmitter", "Unregistered Agent"]),
    st.integers(0, 0xFF),
    st.integers(0, 0x1F),
    st.integers(0, 7),
    st.sampled_from(["\t\t", "   ", " "]),
)
def test_every_block_names_its_device(severity: tuple[str, str], agent: str, bus: int, device: int, function: int, gap: str) -> None:
    """Whoever the agent is, with tabs or blanks."""
    (event,) = read([
        "+------ PCI-Express Device Error ------+",
        f"Error Severity{gap}: {severity[0]}",
        f"PCIE Bus Error type{gap}: Data Link Layer",
        f"Bad TLP{gap}: Multiple",
        f"{agent} ID{gap}: {bus << 8 | device << 3 | function:04x}",
    ])  # fmt: skip
    assert summary(event) == ("aer", f"0000:{bus:02x}:{device:02x}.{function}", severity[1])


def test_a_block_that_breaks_off_goes_out_as_it_stands() -> None:
    """At the end of the log, at the next block, after too many lines of others, and after too long."""
    begun = block(BLOCK)[:3]
    assert [summary(event) for event in read(begun)] == [("aer", None, "error")]
    assert [summary(event)[1] for event in read([*begun, *block(BLOCK)])] == [None, "0000:03:00.0"]
    assert len(read([*begun, *["eth0: link is up"] * (MOST_LINES + 1), block(BLOCK)[4]])) == 1
    assert [summary(event)[1] for event in read(begun + block(BLOCK)[4:5], apart_usec=BLOCK_USEC)] == [None]


@pytest.mark.parametrize("line", block(BLOCK)[1:])
def test_a_line_of_a_block_is_nothing_without_it(line: str) -> None:
    """Anybody may have printed it."""
    assert read([line]) == []
