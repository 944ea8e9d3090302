"""The NVIDIA driver's lines: what belongs together, and what an Xid line says beside its number."""

from __future__ import annotations

import pytest

from tests.core.lines import RULES, message, read
from xidwatch.core.kernel import Parser
from xidwatch.core.kernel_nvidia import MOST_TOLD, TOLD_USEC

LOST = "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=x, GPU has fallen off the bus."
AGAIN = "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("where", "gi", "ci"),
    [
        ("PCI:0000:17:00", None, None),
        ("PCI:0000:17:00 GPU-I:02", 2, None),
        ("PCI:0000:17:00 GPU-I:02 GPU-CI:00", 2, 0),
        ("PCI:0000:17:00 GPU-I:xx", None, None),
    ],
)
def test_an_instance_of_a_gpu_is_named(where: str, gi: int | None, ci: int | None) -> None:
    """GPU instance 0 is one too; where the line names none it is None."""
    (event,) = read([f"NVRM: Xid ({where}): 43, pid=7, name=x, Ch 00000008"])
    assert (event.mig_gi, event.mig_ci) == (gi, ci)


def test_the_same_loss_in_other_words_is_no_second_one() -> None:
    """The driver prints the line without a number right behind its Xid 79, about the same GPU."""
    assert [event.xid for event in read([LOST, "NVRM: GPU at PCI:0000:3b:00: GPU-0", AGAIN])] == [79]
    assert len(read([LOST, AGAIN], apart_usec=TOLD_USEC)) == 1
    assert len(read([LOST, AGAIN], apart_usec=TOLD_USEC + 1)) == 2
    assert len(read([LOST, AGAIN], apart_usec=-1)) == 2
    assert len(read([LOST, AGAIN.replace("3b", "3c")])) == 2


def test_an_xid_is_never_swallowed() -> None:
    """Whatever has been said before it."""
    assert [event.xid for event in read([AGAIN, LOST, LOST])] == [None, 79, 79]


def test_a_forged_loss_swallows_no_real_one() -> None:
    """Nor does what stands behind a line break."""
    parser = Parser(RULES)
    parser.feed(message(LOST, facility=1))
    parser.feed(message(f"process 'a\n{LOST}"))
    (event,) = parser.feed(message(AGAIN))
    assert event.driver_fatal


def test_a_start_that_failed_is_told_once() -> None:
    """By the resource manager and then by the module around it."""
    failed, around = (
        "NVRM: GPU 0000:2a:00.0: RmInitAdapter failed! (0x62:0x65:1784)",
        "NVRM: GPU 0000:2a:00.0: rm_init_adapter failed, device minor number 0",
    )
    assert [event.text for event in read([failed, around, failed, around])] == [failed, failed]
    assert len(read([around])) == 1
    assert len(read([failed, around.replace("2a", "2b")])) == 2


UNUSABLE = ("NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:", "NVRM: BAR0 is 0M @ 0x0 (PCI:0000:02:00.0)")
SUMMED_UP = "NVRM: The NVIDIA probe routine failed for {} device(s)."


@pytest.mark.parametrize(
    "refused", ["nvidia: probe of {} failed with error -1", "nvidia {}: probe with driver nvidia failed with error -1"]
)
def test_a_device_that_the_driver_does_not_take(refused: str) -> None:
    """In the words of old and new kernels; where the driver has just said why, and how many in all, it is one event."""
    for device in ("0000:11:00.0", "10000:e1:00.0"):
        (event,) = read([refused.format(device)])
        assert (event.kind, str(event.pci), str(event.severity)) == ("nvrm_init_fail", device, "critical")
        assert not event.driver_fatal
    told = [*UNUSABLE, "NVRM: The system BIOS may have misconfigured your GPU.", refused.format("0000:02:00.0"), SUMMED_UP.format(1)]
    assert [event.text for event in read(told)] == [" ".join(UNUSABLE)]
    assert [event.text for event in read(["\n".join(UNUSABLE), *told[2:]])] == [" ".join(UNUSABLE)]
    assert len(read([*told[:-1], SUMMED_UP.format(2)])) == 2
    assert len(read([*told[:3], refused.format("0000:03:00.0"), SUMMED_UP.format(2)])) == 2
    assert [event.text for event in read([SUMMED_UP.format(1)])] == [SUMMED_UP.format(1)]


def test_a_gpu_that_was_lost_before_its_start_is_not_refused_as_well() -> None:
    """The loss is the event; other drivers and other buses are nobody's."""
    lost = (
        "NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:26b5)\nNVRM: installed in this system has fallen off the bus and is not responding"
    )
    assert [event.xid for event in read([lost, "nvidia: probe of 0000:b3:00.0 failed with error -1", SUMMED_UP.format(1)])] == [None]
    assert read(["nouveau: probe of 0000:11:00.0 failed with error -1", "nvidia: probe of somewhere failed with error -1"]) == []


MISMATCH = (
    "NVRM: API mismatch: the client has the version 550.76, but",
    "NVRM: this kernel module has the version 550.67.  Please",
    "NVRM: make sure that this kernel module and all NVIDIA driver",
    "NVRM: components have the same version.",
)
NAMED_MISMATCH = (
    "NVRM: API mismatch: the client 'nvidia-smi' (pid 26039)",
    "NVRM: has the version 535.54.03, but this kernel module has",
    "NVRM: the version 535.86.05.  Please make sure that this",
    "NVRM: kernel module and all NVIDIA driver components",
    "NVRM: have the same version.",
)


@pytest.mark.parametrize(("lines", "pid", "process"), [(MISMATCH, None, None), (NAMED_MISMATCH, 26039, "nvidia-smi")])
def test_a_client_of_another_version_is_a_warning_with_both_versions(lines: tuple[str, ...], pid: int | None, process: str | None) -> None:
    """In records of one line or in one record; the driver goes on for all others."""
    for records in (list(lines), ["\n".join(lines)], [lines[0], "eth0: link is up", *lines[1:]]):
        (event,) = read(records)
        assert (event.kind, str(event.severity), event.pid, event.process) == ("nvrm_init_fail", "warning", pid, process)
        assert lines[0] in event.text
        assert ("550.67" in event.text) or ("535.86.05" in event.text)
        assert not event.driver_fatal
    assert len(read([*lines, *lines])) == 2


def test_what_follows_a_mismatch_is_read_for_itself() -> None:
    """A loss right behind it is a loss; a version that is none is somebody's words."""
    assert [event.xid for event in read([MISMATCH[0], AGAIN, LOST])] == [None, 79]
    assert read([MISMATCH[0], "NVRM: this kernel module has the version of somebody.", *MISMATCH[2:]]) == []
    assert read([MISMATCH[1]]) == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("NVRM: No NVIDIA GPU found.", "nvrm_init_fail"),
        ("NVRM: No NVIDIA graphics adapter found!", "nvrm_init_fail"),
        ("NVRM: rpcRmApiControl_GSP: GspRmControl failed: hClient=0xc1d0c54f; status=0x00000065", "gsp"),
    ],
)
def test_what_deserves_a_look(text: str, kind: str) -> None:
    """A driver without a GPU, which may be right; a question that the firmware did not answer."""
    (event,) = read([text])
    assert (event.kind, str(event.severity), event.driver_fatal) == (kind, "warning", False)


def test_an_unusable_region_is_one_event_of_its_first_line() -> None:
    """In two records or in one."""
    lines = ["NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:", "NVRM: BAR0 is 0M @ 0x0 (PCI:0000:02:00.0)"]
    (event,) = read(["eth0: link is up", *lines])
    assert (event.kind, str(event.pci), event.seq, event.text) == ("nvrm_init_fail", "0000:02:00.0", 1, " ".join(lines))
    (event,) = read(["\n".join(lines)])
    assert (event.kind, str(event.pci)) == ("nvrm_init_fail", "0000:02:00.0")


def test_other_rules_can_be_taken_under_way() -> None:
    """What the log has said so far is remembered; what it says from here on is judged by the new ones."""
    parser = Parser({})
    (event,) = parser.feed(message(LOST))
    assert not event.driver_fatal
    parser.feed(message("NVRM: GPU at PCI:0000:3b:00: GPU-00000000"))
    parser.use(RULES)
    (event,) = parser.feed(message(LOST))
    assert event.driver_fatal
    assert len(parser.uuids) == 1


def test_the_memory_of_losses_is_bounded() -> None:
    """A damaged log may name any number of GPUs."""
    parser = Parser(RULES)
    for number in range(2 * MOST_TOLD + 1):
        assert len(parser.feed(message(f"NVRM: Xid (PCI:{number:04x}:3b:00): 79, GPU has fallen off the bus."))) == 1
    assert len(parser._nvidia._told) <= MOST_TOLD


def test_devices_of_which_none_was_started_are_told_where_the_failed_ones_were_not() -> None:
    """The driver sums up what it has said of each; alone, the summary is the event."""
    summed_up = "NVRM: None of the NVIDIA devices were initialized."
    failed = "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0xf:1133)"
    assert [event.text for event in read([failed, summed_up])] == [failed]
    assert [event.text for event in read([summed_up])] == [summed_up]
