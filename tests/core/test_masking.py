"""What leaves the house: nothing that names somebody, and all that is evidence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core.masking import HIDDEN, SERIAL, Masker

HEX = "0123456789abcdef"
LETTERS = "bcdfghjklmnpqrstvwxz"  # words that are neither hexadecimal nor terms
GLUE = st.sampled_from([" ", ", ", "=", ": ", " (", "\n", '"', "['", "; "])
byte = st.text(HEX, min_size=2, max_size=2)
uuids = st.uuids(version=4).map(str)
macs = st.lists(byte, min_size=6, max_size=6).map(":".join)
fours = st.ip_addresses(v=4).map(str).filter(lambda text: text.split(".")[0] not in ("0", "127", "192", "198", "203"))
sixes = st.ip_addresses(v=6).map(lambda address: str(address) if "::" not in str(address) else address.exploded)
names = st.text(LETTERS, min_size=6, max_size=12).map(lambda text: f"q{text}")
serials = st.integers(10**9, 10**12).map(str)
EVIDENCE = [
    "NVRM: Xid (PCI:0000:45:00): 79, pid=9120, name=python3, GPU has fallen off the bus.",
    "0000:00:01.1 dword0=14ab1022 class=060400 runtime=active power=D0 driver=pcieport path=devices/pci0000:00/0000:00:01.1",
    "2026-09-17T02:10:08.412Z,gpu:0000:11:00.0:power_mean_watts,246.1",
    "vbios 94.02.42.00.b4 and 94.02.42.00.12, driver 580.95.05",
    "chip:nct6798@platform/nct6775.656/in5:volts",
    "00: 22 10 ab 14 07 05 10 00 00 00 04 06 00 00 01 00",
    "pcieport 0000:00:01.1: AER: Corrected error received: 0000:01:00.0",
    "Serial: 8250/16550 driver, 32 ports, IRQ sharing enabled",
]


@pytest.mark.parametrize("line", EVIDENCE)
def test_evidence_stays_as_it_is(line: str) -> None:
    """Addresses on the bus, times, versions, sensors and registers name nobody."""
    masker = Masker(hosts=["qgpubox"], users=["qalice"])
    masker.learn(line)
    assert masker.mask(line) == line


@given(uuids, macs, fours, sixes, names, names, serials, GLUE, GLUE)
def test_no_secret_survives(uuid: str, mac: str, four: str, six: str, user: str, host: str, serial: str, before: str, after: str) -> None:
    """Whatever stands around it, and wherever a name is said again without a sign that it is one."""
    secrets = (uuid, mac, four, six, user, host, serial)
    told = [f"GPU-{uuid}", mac, four, six, f"{user}@{host}", f"GPU serial number is {serial}."]
    text = "".join(f"{before}{each}{after}" for each in told) + f"\nfoo_{user}_bar on {host.upper()}.example.org, again {serial}"
    masker = Masker()
    masker.learn(text)
    masked = masker.mask(text)
    assert [each for each in secrets if each.lower() in masked.lower()] == []
    assert masker.mask(masked) == masked


@given(st.lists(fours, min_size=2, max_size=300, unique=True))
def test_what_differs_has_different_masks(addresses: list[str]) -> None:
    """And what is the same has the same: who spoke to whom can still be followed."""
    masker = Masker()
    masks = [masker.mask(each) for each in addresses]
    assert len(set(masks)) == len(addresses)
    assert masks == [masker.mask(each) for each in addresses]


def test_a_boot_id_keeps_its_form() -> None:
    """With dashes and without, as the journal and journald write it."""
    masker = Masker()
    masker.know_boot("5f0c1a2b-1111-4222-8333-444455556666")
    assert masker.mask("boot 5f0c1a2b-1111-4222-8333-444455556666") == "boot 00000000-0000-4000-8000-000000000001"
    assert masker.mask("5f0c1a2b111142228333444455556666") == "00000000000040008000000000000001"


def test_what_was_asked_and_how_a_program_was_called_is_gone() -> None:
    """To the end of the line, since nobody knows where it ends."""
    assert Masker().mask("Command line: BOOT_IMAGE=/x root=abc\nnext") == f"Command line: {HIDDEN}\nnext"
    assert Masker().mask("prompt=tell me a secret") == f"prompt= {HIDDEN}"


def test_a_machine_that_is_called_like_a_term_takes_no_term_away() -> None:
    """Masked where it is named as a machine, and `gpu` remains `gpu` elsewhere."""
    assert Masker(hosts=["gpu"]).mask("gpu:0000:11:00.0 bob@gpu") == "gpu:0000:11:00.0 user1@host1"


def test_a_serial_is_found_where_no_word_says_so() -> None:
    """Known from the inventory, met in a kernel line."""
    masker = Masker()
    masker.know(SERIAL, "1322621004")
    assert masker.mask("board 1322621004 died, 13226210041 did not") == "board 0000000000001 died, 13226210041 did not"
