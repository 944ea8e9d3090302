"""Probes that misbehave on purpose, each named for what it does. Run by the real worker in a real process.

All of them know three ports and answer for each, as the pci probe does. While the file named by the option `when` exists
(without the option: always) they do what they were made for when they come to the second port.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from tests.fakes.nvml import FakeNvml
from xidwatch.core.model import Missing, Subject, Value
from xidwatch.core.power import Stretch, TraceSource
from xidwatch.probes import engine
from xidwatch.probes.base import Ask, Emit, Probe
from xidwatch.probes.nvml import NvmlProbe
from xidwatch.wire import encode_trace

CHANNEL = 3  # the descriptor the nursery gives every child
PORTS = tuple(Subject("port", f"0000:00:{n:02x}.0") for n in range(1, 7))
FIRST, SECOND, THIRD = PORTS[:3]
ALIVE = 0xC0101000

Options = Mapping[str, object]
Trouble = Callable[[Ask, Emit], None]


class Scripted:
    """Answers for its ports in order; at the ones in `bad` trouble comes first. What it is told to skip it does not touch."""

    between_seconds: float | None = None

    def __init__(self, options: Options, trouble: Trouble, *, ports: tuple[Subject, ...] = (FIRST, SECOND, THIRD)) -> None:
        self._when = Path(str(options["when"])) if "when" in options else None
        self._trouble = trouble
        self._ports = ports
        self.bad = frozenset({SECOND})

    def sample(self, ask: Ask, emit: Emit) -> None:
        """One port good, then trouble at the next, unless told to leave it out."""
        for port in self._ports:
            if str(port) in ask.skip:
                emit.reading(port, "config_dword0", Missing.NOT_ASKED)
                continue
            emit.at(port)
            if port in self.bad:
                self.trouble_now(ask, emit)
            emit.reading(port, "config_dword0", ALIVE)

    def trouble_now(self, ask: Ask, emit: Emit) -> None:
        """If it is time for it."""
        if self._when is None or self._when.exists():
            self._trouble(ask, emit)

    def look(self, ask: Ask, emit: Emit) -> None:
        """The same, without trouble."""

    def inventory(self, ask: Ask, emit: Emit) -> None:
        """Nothing."""

    def between(self) -> None:
        """Never called."""

    def close(self) -> None:
        """Nothing is held."""


def never_answers(options: Options) -> Probe:
    """Hangs in user space, deaf to SIGTERM."""
    return Scripted(options, _hang)


def _hang(_ask: Ask, _emit: Emit) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


def crashes(options: Options) -> Probe:
    """Dies as a library that aborts does."""
    return Scripted(options, lambda _ask, _emit: os.abort())


def says_rubbish(options: Options) -> Probe:
    """A line that is no line of the protocol."""
    return Scripted(options, lambda _ask, _emit: _raw(b"\x00\xffnot json at all\n"))


def says_half_a_line(options: Options) -> Probe:
    """Half a line, and then its end."""
    return Scripted(options, _says_half_a_line_and_ends)


def floods(options: Options) -> Probe:
    """Readings without end, every one of them well formed."""

    def flood(_ask: Ask, emit: Emit) -> None:
        while True:
            emit.reading(FIRST, "link_width", 16)

    return Scripted(options, flood)


def floods_unasked(options: Options) -> Probe:
    """Power over time without end, every stretch of it well formed and behind the one before."""

    def flood(_ask: Ask, _emit: Emit) -> None:
        for second in itertools.count(1):
            stamps = tuple(range(second * 1_000_000, (second + 1) * 1_000_000, 20_000))
            _raw(encode_trace(Stretch(Subject("gpu", "0000:11:00.0"), TraceSource.BUFFER, stamps, (931_000,) * 50)))

    return Scripted(options, flood)


def says_one_endless_line(options: Options) -> Probe:
    """A line that never comes to its end."""

    def endless(_ask: Ask, _emit: Emit) -> None:
        while True:
            _raw(b"x" * 65536)

    return Scripted(options, endless)


def answers_late(options: Options) -> Probe:
    """Waits until somebody has opened the FIFO `gate` for writing and closed it again, which may be long after the deadline."""
    return Scripted(options, lambda _ask, _emit: _pass(Path(str(options["gate"]))))


def opens_file(options: Options) -> Probe:
    """Creates the file `file`: on a frozen filesystem that is real uninterruptible sleep."""
    return Scripted(options, lambda _ask, _emit: _create(str(options["file"])))


def opens_file_everywhere(options: Options) -> Probe:
    """The same at five of its six ports, so that a worker which leaves out one gets stuck at the next."""
    probe = Scripted(options, lambda _ask, _emit: _create(str(options["file"])), ports=PORTS)
    probe.bad = frozenset(PORTS[1:])
    return probe


def _create(path: str) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))


def _pass(gate: Path) -> None:
    gate.read_bytes()


def _raw(data: bytes) -> None:
    while data:
        data = data[os.write(CHANNEL, data) :]


class _Steered(NvmlProbe):
    """The real NVML probe over the fake library, steered by a file.

    {"lost": [0, 2], "hang": true}, {"gate": "/a/fifo"}, {"pids": [[4711], []]}: of the processes on each GPU.
    """

    def __init__(self, gpus: int, steering: Path | None) -> None:
        self.library = FakeNvml.with_gpus(gpus)
        self._steering = steering
        super().__init__(self.library)

    def sample(self, ask: Ask, emit: Emit) -> None:
        """As steered."""
        wanted = self._wanted()
        for index, gpu in enumerate(self.library.gpus):
            gpu.lost = 15 if index in wanted.get("lost", ()) else 0
            gpu.pids = dict(enumerate(wanted.get("pids", ()))).get(index, [])
        if wanted.get("hang"):
            _hang(ask, emit)
        if "gate" in wanted:
            _pass(Path(wanted["gate"]))
        super().sample(ask, emit)

    def _wanted(self) -> dict[str, Any]:
        if self._steering is None or not self._steering.exists():
            return {}
        return dict(json.loads(self._steering.read_text()))


def steered_nvml(options: Options) -> Probe:
    """Options: `gpus`, their number; `steering`, the file (absent: all is well)."""
    steering = options.get("steering")
    return _Steered(int(str(options.get("gpus", 4))), Path(str(steering)) if steering else None)


# ----------------------------------------------------------------------------------------------- a real probe, disturbed


def _talks_endlessly(ask: Ask, emit: Emit) -> NoReturn:
    while True:
        emit.reading(FIRST, "link_width", 16)


def _says_half_a_line_and_ends(_ask: Ask, _emit: Emit) -> NoReturn:
    _raw(b'{"ask": 1, "reading": {"subj')
    os._exit(0)


TROUBLES: Mapping[str, Callable[..., object]] = {
    "crash": lambda _ask, _emit: os.abort(),
    "flood": _talks_endlessly,
    "create": lambda _ask, _emit, file: _create(file),
    "late": lambda _ask, _emit, seconds: time.sleep(float(seconds)),
    "rubbish": lambda _ask, _emit: _raw(b"\x00\xffnot json at all\n"),
    "half a line": _says_half_a_line_and_ends,
    "a lie": lambda _ask, _emit: _raw(b'{"ask":999999999,"reading":{"subject":"gpu:0000:11:00.0","quantity":"nvml_status","value":0}}\n'),
}
"""What only a process can do wrong, whatever it reads. The file `when` has the name, and behind it what else it needs."""


class _Disturbed:
    """A real probe. While the file `when` names a trouble, that comes in place of its first fact."""

    def __init__(self, inner: Probe, when: Path) -> None:
        self._inner = inner
        self._when = when
        self.between_seconds = inner.between_seconds
        self.look, self.inventory, self.between, self.close = inner.look, inner.inventory, inner.between, inner.close

    def sample(self, ask: Ask, emit: Emit) -> None:
        """As the real one, so far as it comes."""
        name, _, detail = self._when.read_text().partition(": ") if self._when.exists() else ("", "", "")
        details = [detail] if detail else []
        self._inner.sample(ask, _Interrupted(emit, partial(TROUBLES[name], ask, emit, *details)) if name else emit)


class _Interrupted:
    """What a real probe hands its facts to when the trouble is to come."""

    def __init__(self, emit: Emit, trouble: Callable[[], object]) -> None:
        self._emit = emit
        self._troubles = [trouble]

    def at(self, subject: Subject) -> None:
        self._emit.at(subject)

    def reading(self, subject: Subject, quantity: str, value: Value) -> None:
        if self._troubles:
            self._emit.at(subject)
            self._troubles.pop()()
        self._emit.reading(subject, quantity, value)


def disturbed(options: Options) -> Probe:
    """Options: `target` and `options` of the real probe; `when`, the file that names a trouble (see TROUBLES; absent: all is well)."""
    module, _, function = str(options["target"]).partition(":")
    inner: Probe = getattr(importlib.import_module(module), function)(options["options"])
    return _Disturbed(inner, Path(str(options["when"])))


class _SteeredEngine:
    """The real engine probe, which gets into trouble when it comes to its first engine."""

    between_seconds: float | None = None

    def __init__(self, real: Probe, first: Subject, scripted: Scripted) -> None:
        self._first = first
        self._scripted = scripted
        self.look, self.inventory, self.between, self.close = real.look, real.inventory, real.between, real.close
        self._sample = real.sample

    def sample(self, ask: Ask, emit: Emit) -> None:
        """Trouble first, unless told to leave that engine out."""
        if str(self._first) not in ask.skip:
            emit.at(self._first)
            self._scripted.trouble_now(ask, emit)
        self._sample(ask, emit)


def steered_engine(options: Mapping[str, Any]) -> Probe:
    """Options of the engine probe, and: `trouble`, one of the probes above by name; `when`, `gate`, `file` as they have it."""
    scripted = globals()[options["trouble"]](options)
    return _SteeredEngine(engine.create(options), Subject("engine", options["engines"][0]["unit"]), scripted)
