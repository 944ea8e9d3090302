"""The recorder: the process that owns every file and the log stream, because a disk is a driver too.

    loop ── frames ──►  main thread ──►  inbox     ──►  file thread ──►  the state directory
         ◄─ answers ──      ▲            log lines ──►  log thread  ──►  terminal, stderr or journald
                            └── outbox ◄── file thread

Three threads, so that nothing waits for what it does not need: a frozen disk stops neither log lines nor reading, a
stuck terminal or journald stops no file. All that lies between them is bounded: the inbox by the sender's window
(`frames.WINDOW`; should it be exceeded, reading stops until there is room and the loop's own buffer takes over), the
log by dropping its oldest lines and saying so, the outbox because of each kind of answer only the latest matters.

A disk that refuses (ENOSPC, EIO, EROFS) loses nothing: the frames stay, in order, and are tried again every second.
Journal, samples, baseline and publications may lie on different disks: what one of them refuses delays no other.
TERM, INT and HUP are for the daemon: the recorder leaves when the channel has ended and all is written.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from xidwatch.daemon.log_stream import LogStream
from xidwatch.records import frames
from xidwatch.records.frames import WINDOW, Answer, Frame, LogLine, Publish, Trouble
from xidwatch.records.store import Store
from xidwatch.records.streams import STATE_DIRECTORY, explain

RETRY_SECONDS = 1.0
LOCK_SECONDS = 0.05  # between looks whether a predecessor has left: the loop does not wait long for what is on record
READ_BYTES = 256 * 1024
LAST_ATTEMPTS = 2  # after the channel has ended: the one that fails, and one more
FAREWELL_SECONDS = 1.0  # for the log's last lines; files are waited for as long as it takes
EX_SOFTWARE = 70
WARNING = 4
ERROR = 3


def main(channel: socket.socket, options: Mapping[str, object]) -> None:
    """Record until the channel ends.

    Options: `state_dir`, `boot_id`, `interval_s`, `log` (terminal, plain or journal), `make_parents` (False: of `state_dir`
    only the last component is created, since the place it is on may not be mounted).
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o077)
    log = LogStream(str(options.get("log", "plain")))
    make_parents = bool(options.get("make_parents", True))
    place, interval_s = Path(str(options["state_dir"])), float(str(options["interval_s"]))
    store = Store(place, str(options["boot_id"]), interval_s, make_parents=make_parents)
    Recorder(channel, store, log).run()


class Inbox:
    """What waits to be written. Frames leave only when they are durable; of publications only the latest per path stays."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._frames: deque[Frame] = deque()
        self._publications: dict[str, str] = {}
        self._closed = False
        self._fresh = False  # something was put in since the last batch was taken

    @property
    def full(self) -> bool:
        """No more is to be put in."""
        return len(self._frames) >= WINDOW

    @property
    def closed(self) -> bool:
        """Nothing more will come."""
        return self._closed

    def put(self, frame: Frame) -> None:
        """A frame that has to become durable."""
        with self._changed:
            self._frames.append(frame)
            self._fresh = True
            self._changed.notify_all()

    def publish(self, publication: Publish) -> None:
        """A small file; replaces what has not been written yet."""
        with self._changed:
            self._publications[publication.path] = publication.text
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing more will come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wait(self) -> None:
        """Until there is something to do."""
        with self._changed:
            self._changed.wait_for(lambda: self._frames or self._publications or self._closed)

    def pause(self, seconds: float, *, for_new: bool = False) -> None:
        """So long, or until the end: new frames do not hurry a disk that refuses them. `for_new`: or until one has come."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (for_new and self._fresh), timeout=seconds)

    def batch(self) -> list[Frame]:
        """All frames that wait, oldest first; they stay until `settled`."""
        with self._changed:
            self._fresh = False
            return list(self._frames)

    def settled(self, places: frozenset[int]) -> int | None:
        """The frames at these places of the last batch are durable; the number of the oldest that still waits."""
        with self._changed:
            self._frames = deque(frame for place, frame in enumerate(self._frames) if place not in places)
            return self._frames[0].n if self._frames else None

    def take_publications(self) -> dict[str, str]:
        """All that wait; whoever fails to write one gives it back with `give_back`."""
        with self._changed:
            taken, self._publications = self._publications, {}
            return taken

    def give_back(self, path: str, text: str) -> None:
        """It could not be written; a newer text has precedence."""
        with self._changed:
            self._publications.setdefault(path, text)


class Outbox:
    """Answers on their way to the loop. A loop that does not read costs one slot per kind of answer, and no waiting."""

    def __init__(self, wake: int) -> None:
        self._wake = wake  # an eventfd: the main thread is to look
        self._lock = threading.Lock()
        self._slots: dict[str, bytes] = {}
        self._under_way = b""

    def put(self, kind: str, answer: Answer) -> None:
        """Send, in place of an answer of the same kind that has not been sent yet."""
        line = frames.answer(answer)
        with self._lock:
            self._slots[kind] = line
        os.eventfd_write(self._wake, 1)

    @property
    def empty(self) -> bool:
        """All is sent."""
        return not self._under_way and not self._slots

    def send(self, channel: socket.socket) -> None:
        """As much as the channel takes now. A loop that is gone needs no answers."""
        with self._lock:
            self._under_way += b"".join(self._slots.values())
            self._slots = {}
        try:
            self._under_way = self._under_way[channel.send(self._under_way, socket.MSG_DONTWAIT) :]
        except BlockingIOError:
            pass
        except OSError:
            self._under_way = b""


class Recorder:
    """The three threads of one recorder; `run` is the main one."""

    def __init__(self, channel: socket.socket, store: Store, log: LogStream) -> None:
        self._channel = channel
        self._store = store
        self._log = log
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._inbox = Inbox()
        self._outbox = Outbox(self._wake)
        self._lines = frames.Lines()
        self._written = threading.Event()  # the file thread is through
        self._trouble: Trouble | None = None  # as last told to the loop
        self._settled_to = 0  # the highest number that is durable, whatever before it is not
        self._journal_to = 0  # of the journal everything up to this one is

    def run(self) -> None:
        """Until the channel has ended, all is written, and the loop (if it still listens) has been told."""
        threading.Thread(target=self._log.run, name="log", daemon=True).start()
        threading.Thread(target=self._write_files, name="files").start()
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        while not (self._written.is_set() and self._outbox.empty):
            self._set_interest(poller)
            for descriptor, events in poller.poll():
                if descriptor == self._wake:
                    os.eventfd_read(self._wake)
                else:
                    self._serve_channel(events)
        self._log.close(FAREWELL_SECONDS)

    # ----------------------------------------------------------------------------------------------------- main thread

    def _set_interest(self, poller: select.poll) -> None:
        """Registered only while something is wanted of it: an ended channel would otherwise report that for ever."""
        wanted = select.POLLOUT if not self._outbox.empty else 0
        if not self._inbox.closed and not self._inbox.full:
            wanted |= select.POLLIN
        if wanted:
            poller.register(self._channel, wanted)
            return
        try:
            poller.unregister(self._channel)
        except KeyError:
            pass

    def _serve_channel(self, events: int) -> None:
        if not self._outbox.empty:
            self._outbox.send(self._channel)
        if events & ~select.POLLOUT and not self._inbox.closed:
            self._read()

    def _read(self) -> None:
        try:
            data = self._channel.recv(READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        for line in self._lines.feed(data):
            self._take(line)
        if not data:
            if self._lines.half:
                self._say(WARNING, f"the daemon left in the middle of a frame: {self._lines.half[:160]!r}")
            self._inbox.close()

    def _take(self, line: bytes) -> None:
        try:
            frame = frames.decode_frame(line)
        except ValueError as error:
            self._say(WARNING, f"not recorded, no frame: {error}")
            return
        if frame.log is not None:
            self._log.put(frame.log)
        elif frame.publish is not None:
            self._inbox.publish(frame.publish)
        elif frame.for_files:
            self._inbox.put(frame)
        else:
            self._say(WARNING, f"not recorded, a frame with nothing in it: {line[:160]!r}")

    # ----------------------------------------------------------------------------------------------------- file thread

    def _write_files(self) -> None:
        try:
            if self._open_store():
                self._write_until_end()
            self._store.close()
        except BaseException as error:  # noqa: BLE001  a bug: its successor is sent all that is not durable, so make room for it
            self._say(ERROR, f"the recorder fails: {type(error).__name__}: {error}")
            self._log.close(FAREWELL_SECONDS)
            os._exit(EX_SOFTWARE)
        self._written.set()
        os.eventfd_write(self._wake, 1)

    def _open_store(self) -> bool:
        """False when the channel ended before the directory could be had."""
        while True:
            last = self._inbox.closed
            try:
                recovered = self._store.open()
            except OSError as error:
                patience = LOCK_SECONDS if isinstance(error, BlockingIOError) else RETRY_SECONDS
                self._tell_trouble(explain("state directory", error))
            else:
                self._outbox.put("recovered", Answer(recovered=recovered))
                self._tell_trouble(None)
                return True
            finally:
                self._say_remarks()
            self._publish()  # where this goes may work
            if last:
                return False
            self._inbox.pause(patience)

    def _write_until_end(self) -> None:
        attempts = 0
        while True:
            self._inbox.wait()
            last = self._inbox.closed  # asked before the batch is taken, or its final frames could be left behind
            unwritten, unpublished = self._write_batch(), self._publish()
            trouble = unwritten or unpublished
            self._say_remarks()
            self._tell_trouble(trouble)
            attempts += last
            if last and (trouble is None or attempts >= LAST_ATTEMPTS):
                return
            if trouble:
                self._inbox.pause(RETRY_SECONDS, for_new=trouble.what not in ("journal", STATE_DIRECTORY))

    def _write_batch(self) -> Trouble | None:
        batch = self._inbox.batch()
        if not batch:
            return None
        written = self._store.write(batch)
        for text in written.refused:
            self._say(WARNING, f"not recorded: {text}")
        if written.settled:
            self._acknowledge(batch, written.settled)
        return written.trouble

    def _acknowledge(self, batch: list[Frame], places: frozenset[int]) -> None:
        for frame in (batch[place] for place in places):
            self._settled_to = max(self._settled_to, frame.n)
            if frame.stream == "journal":
                self._journal_to = max(self._journal_to, frame.n)
        oldest = self._inbox.settled(places)
        durable = self._settled_to if oldest is None else min(self._settled_to, oldest - 1)
        ahead = self._journal_to if self._journal_to > durable else None
        self._outbox.put("durable", Answer(durable=durable, journal_durable=ahead))

    def _publish(self) -> Trouble | None:
        trouble = None
        for path, text in self._inbox.take_publications().items():
            failed = self._store.publish(path, text)
            if failed:
                trouble = failed
                self._inbox.give_back(path, text)
        return trouble

    def _tell_trouble(self, trouble: Trouble | None) -> None:
        """Edges only: the same trouble is not told twice."""
        if (trouble and (trouble.what, trouble.errno)) == (self._trouble and (self._trouble.what, self._trouble.errno)):
            return
        self._trouble = trouble
        self._outbox.put("trouble", Answer(trouble=trouble))

    def _say_remarks(self) -> None:
        for text in self._store.take_remarks():
            self._say(WARNING, text)

    def _say(self, priority: int, text: str) -> None:
        self._log.put(LogLine(priority=priority, text=text))
