"""The recorder as it runs: a real child process at the other end of a real socket pair."""

from __future__ import annotations

import errno
import os
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from xidwatch.core.model import Condition, Incident, Moment, Severity, Status, Subject
from xidwatch.daemon import recorder
from xidwatch.records import baseline, frames, journal, samples
from xidwatch.records.frames import Answer, Trouble
from xidwatch.records.recovery import RecoveredRecord

BOOT = "5f0c0000-0000-4000-8000-000000000001"
DAY = "2026-09-17"
NOON = 1789646400.0  # 2026-09-17T12:00:00Z
PATIENCE_SECONDS = 60.0
RETRY_SECONDS = 0.02


def note(number: int, text: str = "") -> dict[str, object]:
    """A journal record with its own id and time."""
    return journal.record("note", f"n-{number:06d}", Moment(NOON + number / 1000, 100.0 + number / 1000), BOOT, {"text": text})


def row(tick: int, **cells: str) -> samples.Row:
    return samples.Row(
        time=f"{DAY}T12:{tick // 60:02d}:{tick % 60:02d}.000Z", boot_id=BOOT, tick=tick, cells=cells or {"host:load_1m": "0.21"}
    )


class Running:
    """A recorder in a child process, and our end of its channel."""

    def __init__(self, state_dir: Path, log: str = "plain", before: Callable[[], object] | None = None, **options: object) -> None:
        self.channel, theirs = socket.socketpair()
        self._lines = frames.Lines()
        self._heard: list[Answer] = []
        self.pid = os.fork()
        if self.pid == 0:
            self._become(theirs, before, {"state_dir": str(state_dir), "boot_id": BOOT, "interval_s": 30.0, "log": log, **options})
        theirs.close()

    def _become(self, theirs: socket.socket, before: Callable[[], object] | None, options: dict[str, object]) -> None:
        status = 1
        try:
            recorder.RETRY_SECONDS = RETRY_SECONDS
            if before:
                before()
            channel = socket.socket(fileno=os.dup2(theirs.fileno(), 3))
            os.closerange(4, 4096)  # as the nursery does: another recorder's channel must not be held open here
            recorder.main(channel, options)
            status = 0
        finally:
            os._exit(status)

    def send(self, *lines: bytes) -> None:
        self.channel.sendall(b"".join(lines))

    def until(self, wanted: Callable[[Answer], bool]) -> Answer:
        """The next answer of that kind; what comes before it is skipped."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            while self._heard:
                found = self._heard.pop(0)
                if wanted(found):
                    return found
            assert select.select([self.channel], [], [], max(0.0, deadline - time.monotonic()))[0], "no answer in time"
            data = self.channel.recv(65536)
            assert data, "the recorder has left"
            self._heard += map(frames.decode_answer, self._lines.feed(data))

    def durable(self, number: int) -> None:
        self.until(lambda answer: (answer.durable or 0) >= number)

    def recovered(self) -> RecoveredRecord:
        found = self.until(lambda answer: answer.recovered is not None).recovered
        assert found is not None
        return found

    def trouble(self) -> Trouble:
        found = self.until(lambda answer: isinstance(answer.trouble, Trouble)).trouble
        assert isinstance(found, Trouble)
        return found

    def leave(self) -> int:
        """End the channel as the daemon does, and wait for the process; its exit status."""
        self.channel.close()
        return self._reap()

    def kill(self) -> int:
        os.kill(self.pid, signal.SIGKILL)
        return self.leave()

    def _reap(self) -> int:
        descriptor = os.pidfd_open(self.pid)
        try:
            assert select.select([descriptor], [], [], PATIENCE_SECONDS)[0], "the recorder does not leave"
        finally:
            os.close(descriptor)
        pid, self.pid = self.pid, 0
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def __del__(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.channel.close()


def recorded(state_dir: Path) -> list[str]:
    problems: list[object] = []
    found = [entry.id for entry in journal.read(state_dir, since=None, problems=problems)]  # type: ignore[arg-type]
    assert problems == []
    return found


def ticks(state_dir: Path) -> list[int]:
    return [found.tick for path in samples.files(state_dir / "samples") for found in samples.read(path)]


def ids(numbers: range) -> list[str]:
    return [f"n-{number:06d}" for number in numbers]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"needs the right to mount: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_what_is_called_durable_is_in_the_files(tmp_path: Path) -> None:
    """A record, a row and a baseline are acknowledged with the highest number, and each is where its format says."""
    running = Running(tmp_path / "state")
    learnt = baseline.Baseline(boot_id=BOOT, time=f"{DAY}T12:00:00.000Z")
    assert running.recovered().next_id == 1
    running.send(frames.journal(1, note(1)), frames.sample(2, row(1)), frames.baseline(3, learnt))
    running.durable(3)
    assert recorded(tmp_path / "state") == ids(range(1, 2))
    assert ticks(tmp_path / "state") == [1]
    assert baseline.read(tmp_path / "state" / "baseline.json") == learnt
    assert running.leave() == 0


def test_everything_is_private(tmp_path: Path) -> None:
    """Folders are 0700 and files 0600 whatever the umask was, because records can hold secrets."""
    running = Running(tmp_path / "state", before=lambda: os.umask(0))
    running.send(frames.journal(1, note(1)), frames.sample(2, row(1)))
    running.durable(2)
    modes = {path.relative_to(tmp_path).as_posix(): path.stat().st_mode & 0o777 for path in (tmp_path / "state").rglob("*")}
    assert modes == {
        "state/journal": 0o700,
        f"state/journal/{DAY}.jsonl": 0o600,
        "state/samples": 0o700,
        f"state/samples/{DAY}.csv": 0o600,
        "state/incidents": 0o700,
    }
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_a_killed_recorder_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    """After kill -9 the successor is sent everything again that might not be durable; each record is there once, in order."""
    lines = [frames.journal(2 * n, note(n, "x" * 200)) + frames.sample(2 * n + 1, row(n)) for n in range(1, 400)]
    first = Running(tmp_path)
    first.send(*lines)
    first.durable(1)
    first.kill()
    second = Running(tmp_path)
    second.send(*lines)
    second.durable(2 * 399 + 1)
    assert second.leave() == 0
    assert recorded(tmp_path) == ids(range(1, 400))
    assert ticks(tmp_path) == list(range(1, 400))


def test_a_half_written_line_is_repaired_by_the_successor(tmp_path: Path) -> None:
    """A torn tail is cut off and kept beside; what was torn and is sent again is there once."""
    first = Running(tmp_path)
    first.send(frames.journal(1, note(1)), frames.journal(2, note(2)), frames.sample(3, row(1)), frames.sample(4, row(2)))
    first.durable(4)
    first.kill()
    for path in (tmp_path / "journal" / f"{DAY}.jsonl", tmp_path / "samples" / f"{DAY}.csv"):
        path.write_bytes(path.read_bytes()[:-7])
    second = Running(tmp_path)
    assert [damage.text for damage in second.recovered().damage] == ["no end of line: cut off while it was written"]
    second.send(frames.journal(2, note(2)), frames.sample(4, row(2)))
    second.durable(4)
    second.leave()
    assert recorded(tmp_path) == ids(range(1, 3))
    assert ticks(tmp_path) == [1, 2]
    assert (tmp_path / "journal" / f"{DAY}.jsonl.torn").read_bytes().startswith(b'{"v":1,"id":"n-000002"')
    assert (tmp_path / "samples" / f"{DAY}.csv.torn").read_bytes().startswith(b"2026-09-17T12:00:02")


def test_the_same_id_from_a_run_that_did_not_know_its_past_is_recorded(tmp_path: Path) -> None:
    """A record is recognised by id, boot and time together, so an id that was given twice costs no evidence."""
    first = Running(tmp_path)
    first.send(frames.journal(1, note(1)))
    first.durable(1)
    first.leave()
    second = Running(tmp_path)
    other = journal.record("note", "n-000001", Moment(NOON + 60, 160.0), BOOT, {"text": "another"})
    second.send(frames.journal(1, other))
    second.durable(1)
    assert recorded(tmp_path) == ["n-000001", "n-000001"]


def test_what_an_earlier_run_knew_is_told_first(tmp_path: Path) -> None:
    """Conditions, the open incident, the kernel-log position, the next id and this boot's baseline come back."""
    port = Subject("port", "0000:0f:00.0")
    began = Moment(NOON, 50.0)
    lost = Condition(port, "ConfigSpaceAllOnes", Status.TRUE, began, "dword0 ffffffff")
    incident = Incident("20260917T120000Z-bus-lost-0f", began, "t-000007", Severity.CRITICAL, frozenset({(port, "ConfigSpaceAllOnes")}))
    saved = journal.checkpoint("c-000041", began, BOOT, conditions=[lost], incident=incident, kmsg_seq=90412, next_id=42)
    first = Running(tmp_path)
    first.send(frames.journal(1, saved), frames.baseline(2, baseline.Baseline(boot_id=BOOT, time=f"{DAY}T12:00:00Z")))
    first.durable(2)
    first.leave()
    found = Running(tmp_path).recovered()
    assert found.recovered().conditions == {(port, "ConfigSpaceAllOnes"): lost}
    assert found.recovered().incident == incident
    assert (found.kmsg_seq, found.next_id, found.last_boot_id, found.stopped) == (90412, 42, BOOT, False)
    assert found.baseline is not None


@pytest.mark.root
def test_a_full_disk_keeps_order_and_loses_nothing(tiny_disk: Path) -> None:
    """ENOSPC is told once and its end once; what came meanwhile is written in order when there is room, torn by nothing."""
    state = tiny_disk / "state"
    running = Running(state)
    running.send(frames.journal(1, note(1)), frames.sample(2, row(1)))
    running.durable(2)
    filler = tiny_disk / "filler"
    filler.write_bytes(bytes(200 * 1024))
    for number in range(2, 100):
        running.send(frames.journal(2 * number - 1, note(number, "x" * 500)), frames.sample(2 * number, row(number)))
    found = running.trouble()
    assert found.errno == errno.ENOSPC
    assert found.text.startswith("No space left on device: ")
    assert all(path.read_bytes().endswith(b"\n") for path in (state / "journal").iterdir())
    assert len(recorded(state)) < 99
    filler.unlink()
    running.durable(198)
    running.until(lambda answer: answer.trouble is None)
    assert running.leave() == 0
    assert recorded(state) == ids(range(1, 100))
    assert ticks(state) == list(range(1, 100))


def test_a_failed_sync_is_written_again_and_not_doubled(tmp_path: Path) -> None:
    """After EIO from fdatasync nothing of the batch counts; when the disk works again every record is there exactly once."""
    broken = tmp_path / "broken"

    def break_sync() -> None:
        real = os.fdatasync

        def failing(descriptor: int) -> None:
            if broken.exists():
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            real(descriptor)

        os.fdatasync = failing  # type: ignore[assignment]

    running = Running(tmp_path / "state", before=break_sync)
    running.send(frames.journal(1, note(1)), frames.sample(2, row(1)))
    running.durable(2)
    broken.touch()
    running.send(frames.journal(3, note(2)), frames.sample(4, row(2, new="1")))
    found = running.trouble()
    assert (found.errno, found.text.rpartition("/")[2]) == (errno.EIO, f"{DAY}.jsonl")
    running.send(frames.journal(5, note(3)))
    broken.unlink()
    running.durable(5)
    assert running.leave() == 0
    assert recorded(tmp_path / "state") == ids(range(1, 4))
    assert ticks(tmp_path / "state") == [1, 2]


def test_log_lines_flow_while_the_disk_is_stuck(tmp_path: Path) -> None:
    """A file thread that hangs in fdatasync stops no log line, and when it comes back the record is acknowledged."""
    stuck = tmp_path / "stuck"
    os.mkfifo(stuck)
    reading, writing = os.pipe()

    def hang() -> None:
        os.dup2(writing, 1)
        real = os.fdatasync

        def hanging(descriptor: int) -> None:
            stuck.read_bytes()
            real(descriptor)

        os.fdatasync = hanging  # type: ignore[assignment]

    running = Running(tmp_path / "state", log="terminal", before=hang)
    running.recovered()
    running.send(frames.journal(1, note(1)))
    release = os.open(stuck, os.O_WRONLY)  # returns when the file thread is in the middle of it
    running.send(frames.log(6, "still here\x1b[2J"))
    assert select.select([reading], [], [], PATIENCE_SECONDS)[0]
    assert os.read(reading, 200).decode()[9:] == " still here?[2J\n"
    assert not select.select([running.channel], [], [], 0)[0]
    os.close(release)
    running.durable(1)
    assert running.leave() == 0
    os.close(reading)
    os.close(writing)


@pytest.mark.slow  # the farewell to a log that takes nothing lasts a second
def test_files_are_written_while_the_log_is_stuck(tmp_path: Path) -> None:
    """A terminal that takes nothing more stops no record, and does not keep the recorder from leaving."""
    reading, writing = os.pipe()
    running = Running(tmp_path, log="terminal", before=lambda: os.dup2(writing, 1))
    running.send(*(frames.log(6, "x" * 1000) for _ in range(200)))  # 200 KB into a pipe of 64 KiB
    running.send(frames.journal(1, note(1)))
    running.durable(1)
    assert running.leave() == 0
    os.close(reading)
    os.close(writing)


def test_signals_for_the_daemon_do_not_end_the_recorder(tmp_path: Path) -> None:
    """TERM, INT and HUP reach the whole control group; the recorder stays until its channel ends."""
    running = Running(tmp_path)
    running.recovered()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(running.pid, number)
    running.send(frames.journal(1, note(1)))
    running.durable(1)
    assert running.leave() == 0


def test_what_was_sent_before_the_end_is_written(tmp_path: Path) -> None:
    """The daemon may close its end at once: everything it had sent is on the disk when the recorder has left."""
    running = Running(tmp_path)
    running.send(*(frames.journal(number, note(number)) for number in range(1, 200)))
    assert running.leave() == 0
    assert recorded(tmp_path) == ids(range(1, 200))


def test_a_daemon_that_only_stops_sending_still_hears_the_last_word(tmp_path: Path) -> None:
    """Half a close leaves the other half for the acknowledgement of the last frame."""
    running = Running(tmp_path)
    running.send(frames.journal(1, note(1)))
    running.channel.shutdown(socket.SHUT_WR)
    running.durable(1)
    assert running.leave() == 0


def test_a_disk_that_never_works_does_not_keep_the_recorder(tmp_path: Path) -> None:
    """At the end of the channel it tries once more, then leaves."""
    in_the_way = tmp_path / "state"
    in_the_way.write_text("a file where the directory should be")
    running = Running(in_the_way)
    running.send(frames.journal(1, note(1)))
    assert running.trouble().what == "state directory"
    assert running.leave() == 0


def test_two_recorders_never_write_the_same_directory(tmp_path: Path) -> None:
    """The second says who is in the way and begins when the first has left, knowing what the first wrote."""
    first = Running(tmp_path)
    first.recovered()
    second = Running(tmp_path)
    found = second.trouble()
    assert (found.what, found.errno) == ("state directory", errno.EAGAIN)
    assert "another recorder" in found.text
    first.send(frames.journal(1, note(1)))
    first.durable(1)
    first.leave()
    assert second.recovered().next_id == 2


def test_rubbish_from_the_daemon_is_logged_and_skipped(tmp_path: Path) -> None:
    """What is no frame, or a row that belongs to no day, is named in the log; the frames around it are recorded."""
    reading, writing = os.pipe()
    running = Running(tmp_path, before=lambda: os.dup2(writing, 2))
    undated = samples.Row(time="yesterday", boot_id=BOOT, tick=1, cells={})
    running.send(b"\xff rubbish\n", b'{"n":5}\n', b'{"n":6,"sample":7}\n', frames.sample(7, undated), frames.journal(8, note(1)))
    running.durable(8)
    assert running.leave() == 0
    os.close(writing)
    with os.fdopen(reading) as said:
        lines = said.read().splitlines()
    complaints = ("no frame", "a frame with nothing in it", "no frame", "Invalid isoformat")
    assert [what in line and line.startswith("<4>not recorded") for what, line in zip(complaints, lines, strict=True)] == [True] * 4
    assert recorded(tmp_path) == ids(range(1, 2))


def test_a_record_that_tells_no_day_is_kept_all_the_same(tmp_path: Path) -> None:
    """Evidence without a usable time goes into today's file rather than nowhere."""
    running = Running(tmp_path)
    running.send(frames.journal(1, {"v": 1, "id": "x-1", "note": {"text": "undated"}}))
    running.durable(1)
    [path] = (tmp_path / "journal").iterdir()
    assert msgspec.json.decode(path.read_bytes()) == {"v": 1, "id": "x-1", "note": {"text": "undated"}}


def test_only_the_latest_publication_of_a_path_matters(tmp_path: Path) -> None:
    """A state file on an ordinary disk is replaced as a whole, readable by everyone."""
    running = Running(tmp_path / "state")
    running.recovered()
    target = tmp_path / "state" / "state.json"
    running.send(*(frames.publish(str(target), f'{{"tick":{tick}}}') for tick in range(50)))
    running.leave()
    assert target.read_text() == '{"tick":49}'
    assert target.stat().st_mode & 0o777 == 0o644


# --- what somebody else does to the files


def said(running: Running, reading: int, writing: int) -> str:
    """All that the recorder wrote to its log until it left."""
    assert running.leave() == 0
    os.close(writing)
    with os.fdopen(reading) as log:
        return log.read()


def test_a_deleted_state_directory_is_begun_anew_and_told(tmp_path: Path) -> None:
    """What is acknowledged after `rm -r` is in the directory of that name, and the log says that there was another."""
    reading, writing = os.pipe()
    running = Running(tmp_path / "state", before=lambda: os.dup2(writing, 2))
    running.send(frames.journal(1, note(1)), frames.sample(2, row(1)))
    running.durable(2)
    shutil.rmtree(tmp_path / "state")
    running.send(frames.journal(3, note(2)), frames.sample(4, row(2)))
    running.durable(4)
    assert (recorded(tmp_path / "state"), ticks(tmp_path / "state")) == (ids(range(2, 3)), [2])
    assert f"<4>{tmp_path}/state was deleted, moved or mounted over" in said(running, reading, writing)


def test_fifos_in_the_place_of_files_hang_nobody(tmp_path: Path) -> None:
    """They are renamed away, told in the log, and reported as damage where they stood before the start."""
    (tmp_path / "journal").mkdir()
    (tmp_path / "samples").mkdir()
    for name in (f"journal/{DAY}.jsonl", f"samples/{DAY}.csv", "baseline.json", ".baseline.json.tmp"):
        os.mkfifo(tmp_path / name)
    reading, writing = os.pipe()
    running = Running(tmp_path, before=lambda: os.dup2(writing, 2))
    assert len(running.recovered().damage) == 2
    learnt = baseline.Baseline(boot_id=BOOT, time=f"{DAY}T12:00:00.000Z")
    running.send(frames.journal(1, note(1)), frames.sample(2, row(1)), frames.baseline(3, learnt))
    running.durable(3)
    assert (recorded(tmp_path), ticks(tmp_path)) == (ids(range(1, 2)), [1])
    assert said(running, reading, writing).count("was a FIFO, no file: renamed to") == 3


@pytest.mark.root
def test_the_journal_goes_on_beside_samples_that_cannot_be_written(tmp_path: Path) -> None:
    """Its records are on the disk, each at once, and acknowledged as the journal's; nothing of the rows is, until they can be written."""
    running = Running(tmp_path, before=lambda: setattr(recorder, "RETRY_SECONDS", 3600.0))
    running.recovered()
    blocked = tmp_path / "samples" / f"{DAY}.csv"
    blocked.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(blocked)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"needs the right to mount: {mounted.stderr.decode().strip()}")
    try:
        running.send(frames.sample(1, row(1)), frames.journal(2, note(1)))
        assert running.until(lambda answer: answer.journal_durable == 2).durable == 0
        assert running.trouble().what == "samples"
        running.send(frames.journal(3, note(2)))
        assert running.until(lambda answer: answer.journal_durable == 3).durable == 0
        assert recorded(tmp_path) == ids(range(1, 3))
    finally:
        subprocess.run(["umount", "-l", str(blocked)], check=True)
    running.send(frames.journal(4, note(3)))
    running.durable(4)
    assert ticks(tmp_path) == [1]
    assert running.leave() == 0


@pytest.mark.root
def test_a_full_disk_does_not_keep_publications_from_another(tiny_disk: Path, tmp_path: Path) -> None:
    """`status` stays fresh while no record can be written."""
    running = Running(tiny_disk / "state")
    running.recovered()
    (tiny_disk / "filler").write_bytes(bytes(250 * 1024))
    running.send(frames.journal(1, note(1, "x" * 20000)))
    assert running.trouble().errno == errno.ENOSPC
    target = tmp_path / "run" / "state.json"
    target.parent.mkdir()
    running.send(*(frames.publish(str(target), f'{{"tick":{tick}}}') for tick in range(5)))
    running.leave()
    assert target.read_text() == '{"tick":4}'


def test_publications_do_not_wait_for_the_state_directory(tmp_path: Path) -> None:
    """While another recorder still holds it, what people look at is written all the same; a folder that went is made again."""
    first = Running(tmp_path / "state")
    first.recovered()
    second = Running(tmp_path / "state")
    second.trouble()
    second.send(frames.publish(str(tmp_path / "run" / "state.json"), "{}"))
    second.leave()
    assert (tmp_path / "run" / "state.json").read_text() == "{}"
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o755


def test_a_place_that_is_not_mounted_is_not_made(tmp_path: Path) -> None:
    """With `make_parents` off a missing parent is trouble that asks the right question; when it is there, recording begins."""
    running = Running(tmp_path / "usb" / "xidwatch", make_parents=False)
    assert "is it mounted?" in running.trouble().text
    assert not list(tmp_path.iterdir())
    (tmp_path / "usb").mkdir()
    running.send(frames.journal(1, note(1)))
    running.durable(1)
    assert recorded(tmp_path / "usb" / "xidwatch") == ids(range(1, 2))
    assert running.leave() == 0


def test_a_poisoned_journal_does_not_stop_the_recorder(tmp_path: Path) -> None:
    """Lines with numbers and times that nothing real shows are told as damage, and the recorder begins."""
    (tmp_path / "journal").mkdir()
    poison = b"".join(
        b'{"id":"x-1","time":"%s","boot_id":"%s","mono_us":%s,"checkpoint":{"conditions":[],"incident":null,"kmsg_seq":%s,"next_id":%s}}\n'
        % (time.encode(), BOOT.encode(), mono, seq, next_id)
        for time, mono, seq, next_id in (
            ("2026-09-17T00:00:00Z", b"9" * 400, b"1", b"1"),
            ("9999-12-31T23:59:59.9999999-12:00", b"1", b"1", b"1"),
            ("0001-01-01T00:00:00+14:00", b"1", b"1", b"1"),
            ("2026-09-17T00:00:00Z", b"1", b"9" * 400, b"1"),
            ("2026-09-17T00:00:00Z", b"1", b"1", b"-9"),
        )
    )
    (tmp_path / "journal" / f"{DAY}.jsonl").write_bytes(poison)
    running = Running(tmp_path)
    found = running.recovered()
    assert [damage.line for damage in found.damage] == [1, 2, 3, 4, 5]
    running.send(frames.journal(1, note(1)))
    running.durable(1)
    assert running.leave() == 0
