"""A fixture run from its first event to its last: boots, starts, what happens in between, and ends. The verbs that are not the host's:

    boot                 the machine starts: monotonic time 0, another boot id, an empty kernel log
    start | stop | kill  of the daemon: by hand, by SIGTERM, without a word (also what a dying machine does to it)
    late pci 6s          the next answer of this probe comes so much later; `hang nvml`: it never comes
    clock +2h            somebody sets the wall clock
    uevent remove ADDR   the kernel announces it
    note TEXT            `xidwatch note`
    accept               `xidwatch check --accept`: who is here now is who should be
    reset UNIT           `xidwatch gate --reset`
    end                  nothing happens any more; the replay ends here

Law: it lets things happen in order and decides nothing; the daemon is the one that runs as a service.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from xidwatch.config import Rules
from xidwatch.core.rules import seconds
from xidwatch.daemon import gates
from xidwatch.daemon.announcements import Announcements
from xidwatch.daemon.metrics import page
from xidwatch.daemon.notify import Notifier
from xidwatch.daemon.oneself import Oneself
from xidwatch.daemon.probes import specs
from xidwatch.daemon.rundir import STATE, RunDir
from xidwatch.daemon.service import Daemon
from xidwatch.daemon.settings import Settings
from xidwatch.daemon.uevents import Uevent
from xidwatch.records import files, offer
from xidwatch.records import state as state_record
from xidwatch.records.frames import LogLine
from xidwatch.replay.children import FIRST_PID, HANGS, Stage, staged
from xidwatch.replay.clock import VirtualClock, VirtualLoop
from xidwatch.replay.fixture import BOOT, KILL, START, STOP, TIMELINE, Fixture, Record
from xidwatch.replay.host import Host
from xidwatch.replay.script import Event, FixtureError

GRACE_SECONDS = 0.1  # for workers to leave
PIPE_BYTES = 1024 * 1024  # of kernel records at one instant
METRICS = "metrics.txt"
RUN = "run"
MEMORY = Path("/dev/shm")  # noqa: S108  folders in it have names that nobody guesses
PCI_CLASS = "PCI_CLASS"
ROOT, OPERATOR = 0, "operator"  # who does what is done through the control socket


@dataclass(frozen=True, slots=True)
class Played:
    """How it went. `at`: wall seconds at the end, as the last boot's clock showed them."""

    at: float
    boots: int
    ticks: int
    verdict: str


@dataclass(frozen=True, slots=True)
class Stageplay:
    """What is to be run, and how. `until`: wall seconds; `pace` is called with every stretch of time that passes."""

    fixture: Fixture
    rules: Rules
    state_dir: Path
    until: float = float("inf")
    pace: Callable[[float], None] = lambda _seconds: None
    on_log: Callable[[LogLine, float], None] = lambda _line, _wall: None


def play(given: Stageplay) -> Played:
    """Run it. Raises FixtureError, OSError, rundir.AlreadyRunning. The state directory then holds what the host's would."""
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None  # the host's files change thousands of times
    with tempfile.TemporaryDirectory(prefix="xidwatch-replay-", dir=memory) as scratch, files.careless():
        return _Player(given, Path(scratch)).run()


# ----------------------------------------------------------------------------------------------------------- one daemon run


class _Announcer:
    """Announcements that the fixture makes."""

    def __init__(self) -> None:
        self._events: list[Uevent] = []
        self._ours, self._theirs = socket.socketpair()

    def fileno(self) -> int:
        return self._theirs.fileno()

    def read(self) -> tuple[list[Uevent], bool]:
        self._theirs.recv(64)
        told, self._events = self._events, []
        return told, False

    def tell(self, event: Uevent) -> None:
        self._events.append(event)
        self._ours.send(b"x")

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


class _Session:
    """One daemon from its start to its end. `ring`: what the kernel has said in this boot."""

    def __init__(self, given: Stageplay, host: Host, clock: VirtualClock, ring: list[Record], pipe: Path) -> None:
        self.loop = VirtualLoop(clock)
        self.stage = Stage(host, clock, self.loop, given.on_log)
        self._rundir = RunDir(pipe.with_name(RUN))
        self._pipe = pipe
        self._announcer = _Announcer()
        os.mkfifo(pipe)
        self._log = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.fcntl(self._log, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        for record in ring:
            self.hear(record)
        config = given.fixture.config
        settings = Settings(
            given.state_dir,
            self._rundir.path,
            config,
            given.rules,
            log="plain",
            specs=specs(config),
            oneself=Oneself(FIRST_PID, by_systemd=True, is_root=True, replays=given.fixture.name),
            nursery=staged(self.stage),
        )
        self.daemon = daemon = Daemon(settings, self.loop, Notifier({}), self._rundir, self._begun, lambda _number: None)
        self._announcements = Announcements(self.loop, daemon.scribe, daemon.take, daemon.inventory.want, lambda: self._announcer)
        daemon.start()

    def _begun(self, history_until: int | None) -> None:
        trouble = self.daemon.kernel.open(str(self._pipe), history_until)
        if trouble:
            raise OSError(trouble)
        self.daemon.kernel.catch_up()
        self._announcements.open()

    def hear(self, record: Record) -> None:
        """The kernel says something."""
        os.write(self._log, record.text.encode())

    def may_start(self, unit: str) -> bool:
        """What a unit's own condition is told: by the state file alone."""
        shown = state_record.read(self._rundir.path / STATE).engines.get(unit)
        return shown is not None and shown.may_start is True

    def announce(self, event: Uevent) -> None:
        """The kernel announces something."""
        self._announcer.tell(event)

    def stop(self) -> None:
        """As after SIGTERM: workers first, records last."""
        daemon = self.daemon
        daemon.leave()
        daemon.workers.finish()
        daemon.dumps.finish()
        daemon.show(leaving=True)
        daemon.checkpoint()
        daemon.scribe.record("stopped", {"why": "SIGTERM", "pid": FIRST_PID})
        self.loop.run_until(self.stage.clock.mono() + GRACE_SECONDS)
        daemon.evidence.finish(lambda: None)
        self.close()

    def close(self) -> None:
        """Everything of it is gone, what it had handed over is in its files."""
        self.loop.settle()
        self.daemon.nursery.close()
        self.daemon.kernel.close()
        self._announcer.close()
        os.close(self._log)
        self.loop.close()
        self._rundir.release()


# ---------------------------------------------------------------------------------------------------------------- all of it


class _Player:
    """Goes through what happens, in order."""

    def __init__(self, given: Stageplay, scratch: Path) -> None:
        self._given = given
        self._scratch = scratch
        self._host = Host(given.fixture.host, scratch)
        self._host.units.may_start = lambda unit: self._session is not None and self._session.may_start(unit)
        self._clock = VirtualClock("", 0.0)
        self._boots_at = 0.0
        self._boots = 0
        self._starts = 0
        self._ring: list[Record] = []
        self._session: _Session | None = None
        self._last: Daemon | None = None

    def run(self) -> Played:
        """To the end, or until."""
        try:
            for at, happens in self._everything():
                if at > self._given.until:
                    self._go_to(self._given.until)
                    break
                self._go_to(at)
                if isinstance(happens, Record):
                    self._hear(happens)
                else:
                    self._happen(happens)
            return self._finish()
        finally:
            self._kill()

    def _everything(self) -> Iterator[tuple[float, Event | Record]]:
        """Events and kernel records by time; at the same instant the kernel speaks first."""
        fixture = self._given.fixture
        boots = [event for event in fixture.events if event.verb == BOOT]
        said = deque((boot.at + record.mono, record) for boot, records in zip(boots, fixture.records, strict=False) for record in records)
        for event in fixture.events:
            while said and (said[0][0] < event.at or (said[0][0] == event.at and event.verb != BOOT)):
                yield said.popleft()
            yield event.at, event
        yield from said

    def _go_to(self, at: float) -> None:
        mono = at - self._boots_at
        if self._session:
            self._session.loop.run_until(mono)
        else:
            self._clock.go_to(mono)

    def _hear(self, record: Record) -> None:
        self._ring.append(record)
        if self._session:
            self._session.hear(record)

    def _happen(self, event: Event) -> None:
        if self._boots and self._host.apply(event):
            return
        happen = _VERBS.get(event.verb)
        if happen is None or (event.verb != BOOT and not self._boots):
            raise event.line.error(f"{event.verb}: the machine has to `boot` first")
        try:
            happen(self, event)
        except (ValueError, IndexError) as error:
            raise event.line.error(f"{event.verb}: {error}") from error

    # ------------------------------------------------------------------------------------------------------------ verbs

    def _boot(self, event: Event) -> None:
        self._kill()
        self._boots += 1
        self._boots_at = event.at
        self._clock = VirtualClock(f"00000000-0000-4000-8000-{self._boots:012d}", event.at, self._given.pace)
        self._host.begin(self._clock)
        self._ring = []

    def _start(self, event: Event) -> None:
        if self._session:
            raise event.line.error("it runs already")
        self._starts += 1
        self._session = _Session(self._given, self._host, self._clock, self._ring, self._scratch / f"kmsg-{self._starts}")
        self._last = self._session.daemon

    def _stop(self, event: Event) -> None:
        self._running(event).stop()
        self._session = None

    def _kill(self, _event: Event | None = None) -> None:
        if self._session:
            session, self._session = self._session, None
            session.close()

    def _late(self, event: Event) -> None:
        probe, duration = event.line.words
        self._running(event).stage.late.setdefault(probe, []).append(seconds(duration))

    def _hang(self, event: Event) -> None:
        (probe,) = event.line.words
        self._running(event).stage.late.setdefault(probe, []).append(HANGS)

    def _set_clock(self, event: Event) -> None:
        (step,) = event.line.words
        self._clock.set_wall(seconds(step.lstrip("+-")) * (-1 if step.startswith("-") else 1))

    def _uevent(self, event: Event) -> None:
        action, name = event.line.words
        subsystem = event.line.options.get("subsystem", "pci")
        code = event.line.options.get("class", "")
        self._running(event).announce(Uevent(action, subsystem, name, {PCI_CLASS: code} if code else {}))

    def _note(self, event: Event) -> None:
        self._running(event).daemon.scribe.record("note", {"text": " ".join(event.line.words), "uid": 0})

    def _accept(self, event: Event) -> None:
        session = self._running(event)
        session.loop.settle()
        baselines = session.daemon.baselines
        offered = offer.from_plain(baselines.answer({"do": "baseline"}, ROOT)["offer"])
        baselines.answer({"do": "accept-baseline", "digest": offered.digest, "user": OPERATOR}, ROOT)

    def _reset(self, event: Event) -> None:
        (unit,) = event.line.words
        daemon = self._running(event).daemon
        daemon.take(gates.reset({"unit": unit, "user": OPERATOR}, ROOT, daemon.gates, self._clock.now()))

    def _end(self, _event: Event) -> None:
        """The time has been reached: that is all."""

    def _running(self, event: Event) -> _Session:
        if self._session is None:
            raise event.line.error(f"{event.verb}: the daemon does not run then; `start` comes first")
        return self._session

    # -------------------------------------------------------------------------------------------------------------- end

    def _finish(self) -> Played:
        at = self._clock.wall()
        if self._last is None:
            raise FixtureError(f"{TIMELINE}: the daemon was never started")
        self._settle()
        metrics = page(self._last.collector)
        self._kill()
        shown = state_record.read(self._scratch / RUN / STATE)
        place = self._given.state_dir / RUN
        files.make_folder(place)
        state_record.write_atomic(place / METRICS, metrics.encode())
        state_record.write_atomic(place / STATE, state_record.encode(state_record.marked_replayed(shown, self._given.fixture.name)))
        return Played(at, self._boots, shown.tick or 0, shown.verdict)

    def _settle(self) -> None:
        if self._session:
            self._session.loop.settle()


_VERBS: dict[str, Callable[[_Player, Event], None]] = {
    BOOT: _Player._boot,  # noqa: SLF001
    START: _Player._start,  # noqa: SLF001
    STOP: _Player._stop,  # noqa: SLF001
    KILL: _Player._kill,  # noqa: SLF001
    "late": _Player._late,  # noqa: SLF001
    "hang": _Player._hang,  # noqa: SLF001
    "clock": _Player._set_clock,  # noqa: SLF001
    "uevent": _Player._uevent,  # noqa: SLF001
    "note": _Player._note,  # noqa: SLF001
    "accept": _Player._accept,  # noqa: SLF001
    "reset": _Player._reset,  # noqa: SLF001
    "end": _Player._end,  # noqa: SLF001
}
