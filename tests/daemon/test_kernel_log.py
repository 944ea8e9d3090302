"""The reader of the kernel log, on this machine's own log and on pipes that behave worse than any kernel."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core.model import KernelMessage
from xidwatch.daemon.kernel_log import MAX_LINE_BYTES, READ_BYTES, Batch, KernelLog

XID = b"NVRM: Xid (PCI:0000:0f:00): 79, pid=4242, name=python3, GPU has fallen off the bus."


class Pipe:
    """A FIFO in place of the device: what is written to it, and the reader under test."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.log = KernelLog.open(str(path))
        self._writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK)

    def write(self, raw: bytes) -> None:
        assert os.write(self._writer, raw) == len(raw)

    def hang_up(self) -> None:
        os.close(self._writer)
        self._writer = -1

    def close(self) -> None:
        self.log.close()
        if self._writer >= 0:
            self.hang_up()


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    pipe = Pipe(tmp_path / "kmsg")
    yield pipe
    pipe.close()


def scripted(*answers: bytes | int) -> Callable[[int, int], bytes]:
    """A read that gives these one after the other: bytes, or the number of an error; then nothing more for now."""
    left = list(answers)

    def read(_fd: int, _size: int) -> bytes:
        answer = left.pop(0) if left else errno.EAGAIN
        if isinstance(answer, int):
            raise OSError(answer, os.strerror(answer))
        return answer

    return read


def texts(batch: Batch) -> list[str]:
    return [message.text for message in batch.messages]


def read_all(log: KernelLog, budget: int = 256) -> Batch:
    """Turn after turn, as the loop does it."""
    messages: list[KernelMessage] = []
    lost = malformed = 0
    while True:
        batch = log.read(budget)
        messages += batch.messages
        lost += batch.lost
        malformed += batch.malformed
        if not batch.more:
            return Batch(tuple(messages), lost, malformed, batch.more, batch.closed, batch.error)


def open_device() -> KernelLog:
    try:
        return KernelLog.open()
    except OSError as error:
        pytest.skip(f"this machine's kernel log cannot be read here: {error}")


def test_this_machine_s_log_is_read_to_its_end() -> None:
    """Every record the ring holds comes once, in order, with none malformed, and some of them are the kernel's own."""
    log = open_device()
    try:
        batch = read_all(log, budget=64)
        again = log.read()
    finally:
        log.close()
    seqs = [message.seq for message in batch.messages]
    assert seqs == sorted(set(seqs))
    assert any(message.from_kernel for message in batch.messages)
    assert batch.malformed == 0
    assert not batch.closed
    assert len(again.messages) < len(batch.messages)


def test_records_too_large_for_the_buffer_are_counted_and_passed() -> None:
    """The real device consumes a record that does not fit; each is malformed and lost, and the others still come."""
    log = open_device()
    try:
        whole = len(read_all(log).messages)
    finally:
        log.close()
    log = KernelLog(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), lambda fd, _size: os.read(fd, 48))
    try:
        narrow = read_all(log)
    finally:
        log.close()
    assert narrow.lost > 0
    assert narrow.lost == narrow.malformed
    assert len(narrow.messages) + narrow.lost >= whole


def test_a_record_has_its_header_and_its_text(pipe: Pipe) -> None:
    """Number, time, facility, level, flags and text are taken apart; flag `c` and unknown fields keep nothing back."""
    pipe.write(b"4,360,27282540,c;" + XID + b"\n4,361,27282541,-,caller=T1946,new=1;two\n")
    first, second = pipe.log.read().messages
    assert first == KernelMessage(seq=360, usec=27282540, facility=0, level=4, flags="c", text=XID.decode())
    assert (second.seq, second.flags, second.text) == (361, "-", "two")


@pytest.mark.parametrize(
    ("raw", "facility", "level"),
    [
        (b"3,606,27374980,-;", 0, 3),
        (b"11,606,27374980,-;", 1, 3),
        (b"12,606,27374980,-;", 1, 4),
        (b"10,606,27374980,-;", 1, 2),
        (b"8,606,27374980,-;", 1, 0),
        (b"30,606,27374980,-;", 3, 6),
    ],
)
def test_who_wrote_a_line_is_kept(pipe: Pipe, raw: bytes, facility: int, level: int) -> None:
    """The kernel turns what a process writes into another facility than its own, whatever priority it asks for."""
    pipe.write(raw + XID + b"\n")
    (message,) = pipe.log.read().messages
    assert (message.facility, message.level, message.from_kernel) == (facility, level, facility == 0)


def test_fields_behind_a_record_are_passed_over(pipe: Pipe) -> None:
    """Lines with a leading space belong to the record before; they are neither records nor malformed."""
    pipe.write(b"6,198,88967,-;acpi PNP0A08:00: hello\n SUBSYSTEM=acpi\n DEVICE=+acpi:PNP0A08:00\n6,199,88968,-;next\n")
    batch = pipe.log.read()
    assert texts(batch) == ["acpi PNP0A08:00: hello", "next"]
    assert (batch.lost, batch.malformed) == (0, 0)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (rb"one\x0atwo", "one\ntwo"),
        (rb"caf\xc3\xa9 \xe2\x86\x92", "café →"),
        (rb"back\x5cslash \x5cx41", r"back\slash \x41"),
        (rb"half \xc3", "half \ufffd"),
        (b"raw \xff byte", "raw \ufffd byte"),
        (rb"not \xzz hex \x4", r"not \xzz hex \x4"),
        (b"semicolon; and, comma", "semicolon; and, comma"),
        (b"", ""),
    ],
)
def test_escapes_come_back_as_they_were_printed(pipe: Pipe, raw: bytes, text: str) -> None:
    """Escaped bytes are UTF-8 where they can be, replaced where not; an escaped backslash starts nothing."""
    pipe.write(b"6,1,1,-;" + raw + b"\n")
    assert texts(pipe.log.read()) == [text]


def test_half_a_record_waits_for_the_rest(pipe: Pipe) -> None:
    """A record cut anywhere, even inside its number or an escape, comes once it is whole."""
    raw = b"4,360,27282540,c;caf" + rb"\xc3\xa9" + b"\n"
    for cut in range(1, len(raw)):
        pipe.write(raw[:cut])
        assert pipe.log.read().messages == ()
        pipe.write(raw[cut:])
        assert texts(pipe.log.read()) == ["café"]


def test_an_endless_line_is_dropped_and_the_next_one_read(pipe: Pipe) -> None:
    """A line past the bound counts once as malformed, keeps no memory, and ends at its line break."""
    malformed = 0
    for _ in range(4 * MAX_LINE_BYTES // READ_BYTES):
        pipe.write(b"x" * READ_BYTES)
        malformed += pipe.log.read().malformed
    assert malformed == 1
    pipe.write(b"still the same line\n4,2,2,-;next\n")
    batch = pipe.log.read()
    assert (texts(batch), batch.malformed) == (["next"], 0)


@pytest.mark.parametrize(
    "rubbish", [b"hello", b"4,;text", b"4,1,-;text", b"x,1,1,-;text", b"4,1,1,-", b"\xff\xfe", b"4," + b"9" * 30 + b",1,-;x"]
)
def test_a_malformed_line_is_counted_and_nothing_else(pipe: Pipe, rubbish: bytes) -> None:
    """What is no record neither ends the reading nor looks like a loss."""
    pipe.write(b"4,1,1,-;before\n" + rubbish + b"\n4,2,2,-;after\n")
    batch = pipe.log.read()
    assert texts(batch) == ["before", "after"]
    assert (batch.lost, batch.malformed) == (0, 1)


def test_a_gap_in_the_numbers_is_a_loss(pipe: Pipe) -> None:
    """The records between two numbers are counted, also between two turns; the first number ever seen is none."""
    pipe.write(b"4,90,1,-;a\n4,92,2,-;b\n")
    assert pipe.log.read().lost == 1
    pipe.write(b"4,404,3,-;c\n")
    assert pipe.log.read().lost == 311


def test_a_step_back_in_the_numbers_is_no_loss(pipe: Pipe) -> None:
    """Another boot's log in the same pipe starts again; from there on it is counted anew."""
    pipe.write(b"4,90,1,-;a\n4,3,2,-;b\n4,4,3,-;c\n4,6,4,-;d\n")
    batch = pipe.log.read()
    assert texts(batch) == ["a", "b", "c", "d"]
    assert batch.lost == 1


def test_a_flood_is_taken_in_turns(pipe: Pipe) -> None:
    """A turn never brings more than its budget, says that there is more, and nothing is lost over the turns."""
    pipe.write(b"".join(b"4,%d,%d,-;line %d\n" % (n, n, n) for n in range(1000)))
    first = pipe.log.read(budget=100)
    assert (len(first.messages), first.more) == (100, True)
    rest = read_all(pipe.log, budget=100)
    assert [message.seq for message in first.messages + rest.messages] == list(range(1000))
    assert (rest.lost, rest.malformed, rest.more) == (0, 0, False)


def test_a_flood_of_rubbish_spends_the_budget_too(pipe: Pipe) -> None:
    """Neither malformed lines, nor fields without a record, nor a line without an end can hold a turn."""
    pipe.write(b"?\n" * 1000)
    batch = pipe.log.read(budget=10)
    assert (batch.malformed, batch.more) == (10, True)
    for noise in (b" FIELD=1\n", b"x"):
        assert KernelLog(-1, scripted(*[noise * 1000] * 20)).read(budget=10).more


def test_an_overrun_is_no_end() -> None:
    """The ring overran: the next read goes on at the oldest record, and its number says how many are gone."""
    log = KernelLog(-1, scripted(b"4,10,1,-;a\n", errno.EPIPE, b"4,322,2,-;b\n"))
    batch = log.read()
    assert texts(batch) == ["a", "b"]
    assert (batch.lost, batch.closed) == (311, False)


def test_an_overrun_before_the_first_record_is_at_least_one_lost() -> None:
    """Nobody knows how many, and none would be a claim."""
    batch = KernelLog(-1, scripted(errno.EPIPE, b"4,322,2,-;b\n")).read()
    assert (texts(batch), batch.lost) == (["b"], 1)


def test_a_record_that_does_not_fit_is_counted_once() -> None:
    """It is malformed and lost, and the number after it is no second loss."""
    batch = KernelLog(-1, scripted(b"4,10,1,-;a\n", errno.EINVAL, b"4,12,2,-;b\n")).read()
    assert texts(batch) == ["a", "b"]
    assert (batch.lost, batch.malformed) == (1, 1)


def test_an_error_ends_the_log_after_what_came_before_it() -> None:
    """What was read is handed over; the reason is said."""
    batch = KernelLog(-1, scripted(b"4,10,1,-;a\n", errno.EIO)).read()
    assert texts(batch) == ["a"]
    assert (batch.closed, batch.more) == (True, False)
    assert "Input/output error" in batch.error


def test_nothing_new_is_an_empty_batch(pipe: Pipe) -> None:
    """Reading never waits."""
    assert pipe.log.read() == Batch((), 0, 0, more=False, closed=False)
    assert os.get_blocking(pipe.log.fileno()) is False
    assert os.get_inheritable(pipe.log.fileno()) is False


def test_a_pipe_without_a_writer_is_closed(pipe: Pipe) -> None:
    """What was written before still comes, then the end."""
    pipe.write(b"4,1,1,-;last\n")
    pipe.hang_up()
    batch = pipe.log.read()
    assert (texts(batch), batch.closed, batch.more, batch.error) == (["last"], True, False, "")


def test_a_file_may_stand_in_for_the_device(tmp_path: Path) -> None:
    """It is read through and then closed."""
    path = tmp_path / "kmsg.txt"
    path.write_bytes(b"".join(b"4,%d,1,-;%s\n" % (n, b"x" * 100) for n in range(1000)))
    log = KernelLog.open(str(path))
    try:
        batch = read_all(log)
    finally:
        log.close()
    assert (len(batch.messages), batch.lost, batch.closed) == (1000, 0, True)


def test_a_log_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    """Opening raises what the system said."""
    with pytest.raises(FileNotFoundError):
        KernelLog.open(str(tmp_path / "absent"))


@given(st.lists(st.binary(max_size=200) | st.sampled_from([b"4,1,1,-;a\n", b"4,2", b"\n", b" K=V\n", rb"\x", b";"]), max_size=20))
def test_no_bytes_end_the_reading(chunks: list[bytes]) -> None:
    """Whatever comes, and wherever it is cut, the record behind it is read."""
    log = KernelLog(-1, scripted(*(chunk for chunk in chunks if chunk), b"\n4,5,6,-;after\n"))
    batch = read_all(log, budget=3)
    assert texts(batch)[-1] == "after"
