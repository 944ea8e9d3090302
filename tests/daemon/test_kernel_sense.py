"""From the kernel log's descriptor to inputs of the watch: what is history, what is news, when it was, and what was lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.clock import MONO, WALL, FakeClock
from xidwatch.config import load_rules, rules_dir
from xidwatch.core.messages import DriverRenewed, Input, KernelLogUnreadable, KernelRead
from xidwatch.core.model import KernelMessage, Missing, Moment
from xidwatch.daemon.kernel_sense import RECORDS_PER_TURN, KernelSense, written_at
from xidwatch.daemon.loop import Loop

XIDS = load_rules(rules_dir(None)).xids
LOST = "NVRM: Xid (PCI:0000:0f:00): 79, pid=4242, name=python3, GPU has fallen off the bus."
FAULT = "NVRM: Xid (PCI:0000:0f:00): 31, pid=4242, name=python3, Ch 00000001, MMU Fault"
LOADING = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05"
AGO = int((MONO - 100) * 1e6)  # microseconds since boot, a hundred seconds ago


class Rig:
    """A sense on a FIFO, and what it told."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "kmsg"
        os.mkfifo(self.path)
        self.writer = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        self.clock = FakeClock()
        self.loop = Loop(self.clock)
        self.messages: list[KernelMessage] = []
        self.inputs: list[Input] = []
        self.closed: list[str] = []
        self.sense = KernelSense(self.loop, XIDS, self.messages.append, self.inputs.append)
        self.sense.on_closed = self.closed.append

    def write(self, seq: int, text: str, usec: int = AGO, facility: int = 0) -> None:
        line = f"{facility * 8 + 4},{seq},{usec},-;{text}\n".encode()
        assert os.write(self.writer, line) == len(line)

    def turns(self, count: int = 2) -> None:
        for _ in range(count):
            self.loop.turn(0)

    def open(self, history_until: int | None = None) -> None:
        """As the daemon does."""
        assert self.sense.open(str(self.path), history_until) == ""
        self.sense.catch_up()

    def told(self) -> list[tuple[list[int], int | None, int, bool]]:
        """Of each reading: the Xids, the last sequence number, how many were lost, and whether it is history; then all is forgotten."""
        reads = [given for given in self.inputs if isinstance(given, KernelRead)]
        self.inputs.clear()
        return [([event.xid or 0 for _, event in read.events], read.last_seq, read.lost, read.history) for read in reads]

    def close(self) -> None:
        self.sense.close()
        os.close(self.writer)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.close()


# --- history and news


def test_everything_is_news_to_the_first_daemon(rig: Rig) -> None:
    """It starts at the oldest record, and every record goes to the ring for dumps, event or not."""
    rig.write(5, "usb 1-1: new device")
    rig.write(6, LOST)
    rig.open()
    assert rig.told() == [([79], 6, 0, False)]
    assert [message.seq for message in rig.messages] == [5, 6]


@pytest.mark.parametrize(
    ("until", "told"),
    [
        (4, [([79, 31], 6, 0, False)]),
        (5, [([79], 5, 0, True), ([31], 6, 0, False)]),
        (6, [([79, 31], 6, 0, True)]),
        (9, [([79, 31], 6, 0, True)]),
        (10**12, [([79, 31], 6, 0, True)]),  # a damaged record: it must not make this run blind
    ],
)
def test_history_ends_at_the_predecessors_position(rig: Rig, until: int, told: object) -> None:
    """Its edges have been acted on; what came after it has not."""
    rig.write(5, LOST)
    rig.write(6, FAULT)
    rig.open(until)
    assert rig.told() == told
    rig.write(10, LOST)
    rig.turns()
    assert [read[3] for read in rig.told()] == [False]


def test_what_was_overwritten_while_no_daemon_ran_is_lost(rig: Rig) -> None:
    """The oldest record left is beyond the last one that was dealt with: so many are missing, and it is said once."""
    rig.write(500, FAULT)
    rig.open(99)
    assert rig.told() == [([31], 500, 400, False)]
    assert rig.sense.lost == 400
    rig.write(501, FAULT)
    rig.turns()
    assert rig.told() == [([31], 501, 0, False)]


def test_nothing_is_lost_where_the_ring_still_goes_back_far_enough(rig: Rig) -> None:
    """Nor is anything for the first daemon, which has no position, whatever the first number is."""
    rig.write(100, "x")
    rig.open(99)
    assert rig.told() == [([], 100, 0, False)]


def test_a_gap_under_way_is_counted(rig: Rig) -> None:
    """By the jump in the numbers, and a line that is none counts as one lost."""
    rig.open()
    rig.write(1, "x")
    rig.write(12, LOST)
    os.write(rig.writer, b"rubbish\n")
    rig.turns()
    assert rig.told() == [([79], 12, 11, False)]
    assert rig.sense.lost == 11


def test_a_line_that_a_process_wrote_is_injected(rig: Rig) -> None:
    """Recorded, never acted on; and it loads no driver."""
    rig.open()
    rig.write(1, LOST, facility=1)
    rig.write(2, LOADING, facility=1)
    rig.turns()
    (read,) = (given for given in rig.inputs if isinstance(given, KernelRead))
    assert [event.injected for _, event in read.events] == [True]
    assert not any(isinstance(given, DriverRenewed) for given in rig.inputs)


# --- the driver is loaded anew


def test_a_fresh_driver_comes_between_what_was_said_before_and_after(rig: Rig) -> None:
    """What the old one said about devices is told first, and then holds no longer."""
    rig.write(1, LOST)
    rig.write(2, LOADING)
    rig.write(3, FAULT)
    rig.open()
    kinds = [type(given).__name__ for given in rig.inputs]
    assert kinds == ["KernelRead", "DriverRenewed", "KernelRead"]
    assert rig.told() == [([79], 2, 0, False), ([31], 3, 0, False)]


def test_a_driver_that_a_predecessor_saw_loading_is_history(rig: Rig) -> None:
    """What was released since stays released."""
    rig.write(1, LOADING)
    rig.write(2, LOST)
    rig.open(2)
    assert rig.told() == [([79], 2, 0, True)]
    assert not any(isinstance(given, DriverRenewed) for given in rig.inputs)


# --- times


def test_a_record_of_the_backlog_has_the_time_of_its_stamp(rig: Rig) -> None:
    """On both clocks; the reading itself is now."""
    rig.write(1, LOST)
    rig.open()
    (read,) = (given for given in rig.inputs if isinstance(given, KernelRead))
    ((at, _),) = read.events
    assert at.mono == pytest.approx(MONO - 100)
    assert at.wall == pytest.approx(WALL - 100)
    assert read.at == Moment(WALL, MONO)


@pytest.mark.parametrize("drift", [-400, 0, 400])
def test_a_record_read_as_it_comes_was_written_now(rig: Rig, drift: int) -> None:
    """The kernel's own clock drifts by minutes in a year of uptime: an edge must not be dated by it."""
    rig.open()
    rig.write(1, LOST, usec=int((MONO + drift) * 1e6))
    rig.turns()
    (read,) = (given for given in rig.inputs if isinstance(given, KernelRead))
    assert [at for at, _ in read.events] == [rig.clock.now()]


def test_a_stamp_from_the_future_is_now() -> None:
    """Nothing happened later than it was read."""
    now = Moment(WALL, MONO)
    assert written_at(KernelMessage(1, int((MONO + 5) * 1e6), 0, 4, "-", ""), now) == now
    assert written_at(KernelMessage(1, 0, 0, 4, "-", ""), now).mono == 0


# --- how much at a time


def test_a_flood_gets_its_share_of_every_turn_and_no_more(rig: Rig) -> None:
    """However long it lasts, and although the descriptor is readable all the time; in the end all of it has been read."""
    rig.open()
    total = RECORDS_PER_TURN * 20
    written = 0
    while len(rig.messages) < total:
        while written < total:
            try:
                rig.write(written, "flood")
            except BlockingIOError:
                break
            written += 1
        before = len(rig.messages)
        rig.loop.turn(0)
        assert 0 < len(rig.messages) - before <= RECORDS_PER_TURN * 2
    rig.turns(3)
    assert [message.seq for message in rig.messages] == list(range(total))
    assert rig.loop._timers == []


def test_an_endless_backlog_does_not_keep_the_first_tick_waiting(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """So much at the start, the rest in turns of the loop."""
    monkeypatch.setattr("xidwatch.daemon.kernel_sense.TURNS_TO_CATCH_UP", 2)
    for seq in range(RECORDS_PER_TURN * 3):
        rig.write(seq, "x")
    rig.open()
    assert len(rig.messages) == RECORDS_PER_TURN * 2
    rig.turns()
    assert len(rig.messages) == RECORDS_PER_TURN * 3


def test_closing_in_the_middle_of_a_flood_ends_it(rig: Rig) -> None:
    """No timer reads from a descriptor that is gone; closing twice is closing."""
    for seq in range(RECORDS_PER_TURN * 4):
        rig.write(seq, "x")
    assert rig.sense.open(str(rig.path), None) == ""
    rig.turns(1)
    rig.sense.close()
    rig.sense.close()
    before = len(rig.messages)
    rig.turns()
    rig.sense.catch_up()
    assert len(rig.messages) == before < RECORDS_PER_TURN * 4


# --- no log


def test_a_log_that_is_not_there_is_said_with_the_cure(rig: Rig) -> None:
    """And the watch knows that nothing is known."""
    said = rig.sense.open("/nowhere/kmsg", None)
    assert said == "/nowhere/kmsg: No such file or directory. Xid lines cannot be seen. Is /dev/kmsg there (containers need it bound in)?"
    assert rig.inputs == [KernelLogUnreadable(Missing.ABSENT)]
    rig.sense.catch_up()


@pytest.mark.root
def test_a_log_that_may_not_be_read_is_said_with_the_cure(tmp_path: Path) -> None:
    """Asked by a child that is nobody."""
    tmp_path.chmod(0o755)
    rig = Rig(tmp_path)
    rig.path.chmod(0o600)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setuid(65534)
            said = rig.sense.open(str(rig.path), None)
            os.write(write, f"{rig.inputs} {said}".encode())
        finally:
            os._exit(0)
    said = os.read(read, 4096).decode()
    os.waitpid(child, 0)
    os.close(read)
    os.close(write)
    rig.close()
    assert "DENIED" in said
    assert "permission denied. Xid lines cannot be seen. Run as root" in said


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_cannot_be_followed_is_said(rig: Rig, tmp_path: Path, kind: str) -> None:
    """A plain file never announces anything: no error that ends the daemon, and no silence either."""
    path = tmp_path / kind
    path.touch() if kind == "file" else path.mkdir()
    assert "cannot be followed" in rig.sense.open(str(path), None)
    assert rig.inputs == [KernelLogUnreadable(Missing.UNSUPPORTED)]
    rig.sense.catch_up()
    rig.turns()
    assert rig.messages == []


def test_a_log_that_ends_is_told_once_and_after_its_last_record(rig: Rig) -> None:
    """From then on nothing is known, and the operator hears of it."""
    rig.open()
    rig.write(1, LOST)
    os.close(rig.writer)
    rig.turns(4)
    assert isinstance(rig.inputs[-1], KernelLogUnreadable)
    assert rig.told() == [([79], 1, 0, False)]
    assert rig.closed == [f"{rig.path}: end of file. Xid lines cannot be seen from here on"]
    rig.writer = os.open(os.devnull, os.O_RDONLY)


def test_this_machines_own_log_can_be_read(rig: Rig) -> None:
    """Where it may be: every record the ring holds, none of them lost, in order."""
    if rig.sense.open("/dev/kmsg", None):
        pytest.skip("/dev/kmsg cannot be read here")
    rig.sense.catch_up()
    seqs = [message.seq for message in rig.messages]
    assert seqs == sorted(set(seqs))
    assert rig.sense.lost == 0
