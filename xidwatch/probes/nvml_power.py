"""One GPU's power over time: its mean, its peak, and the trace that leaves the process as it is read.

Law: no import of pynvml; what is asked of the driver goes through the functions handed in.

The driver's buffer of total-power samples holds 2.4 s at 20 ms a step (H200, driver 580) and forgets what nobody has read by
then. It is drained every 2 s, and every 0.5 s while the GPU works: so much of the trace may be lost with a driver that locks up.

    (1796061974058302, 698773), (1796061974083019, 557394), ...   us of the wall clock, mW

Whether anything was missed is seen and not reckoned: each drain asks once more for the last entry of the one before. Where that
has been overwritten there is a gap, however long the steps are (a few per cent of them are 30 to 45 ms, inside the driver).

Where the driver keeps no samples, or none have come for ten seconds, the sensor is polled at the same pace instead, and every
sample says so. At each tick the buffer is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from xidwatch.core.model import Missing, Subject, Value
from xidwatch.core.power import Stretch, TraceSource
from xidwatch.probes.base import Emit
from xidwatch.probes.nvml_table import PEAK, TOTAL_POWER_SAMPLES, number_in
from xidwatch.wire import MAX_MILLIWATTS

IDLE_SECONDS = 2.0  # the buffer holds 2.4
LOAD_SECONDS = 0.5
BUSY_SHARE = 0.30  # of the enforced limit. An H200 draws 0.11 of it idle, 0.17 with a context open and nothing to do
IDLE_SHARE = 0.25
CALM_SECONDS = 10.0  # so long below IDLE_SHARE before it counts as idle: bursts of a server at work are seconds apart
BUSY_UTILISATION = 0.05  # where no limit is known
SILENT_SECONDS = 10.0  # without a sample, then the sensor is polled
STAMP_SLACK_US = 1_000_000  # a sample may be stamped a little later than our own clock reads
RECALL_US = 5_000  # the driver compares whole milliseconds (an H200, driver 580); a sample is 15 to 25 ms after the one before
SAME_ENTRY_US = 1_000  # told again, an entry may be stamped a microsecond off
CLOCK_STEP_US = 20_000  # less is no step but the clock being slewed, or the time between our two looks at it
ENERGY_WINDOW_SECONDS = 0.5  # the counter moves every 100 ms: over a shorter time its difference says little

Entry = tuple[int, float | Missing]  # stamp in us, mW
Polled = Iterable[tuple[TraceSource, Value]]  # watts, asked for one by one, the best source first


# --- mean and peak


@dataclass(frozen=True, slots=True)
class EnergyMark:
    """The energy counter at one instant: CLOCK_MONOTONIC seconds, millijoules since the driver loaded."""

    mono: float
    millijoules: int


def mean_watts(before: EnergyMark | None, after: EnergyMark) -> Value:
    """Mean draw between two marks; NOT_ASKED without a first one, over too short a time, or when the counter started anew."""
    if before is None or after.millijoules < before.millijoules or after.mono - before.mono < ENERGY_WINDOW_SECONDS:
        return Missing.NOT_ASKED
    return (after.millijoules - before.millijoules) / 1000 / (after.mono - before.mono)


@dataclass(slots=True)
class Peak:
    """The highest sample of the driver's buffer since the last `take`, and how many that rests on. Polls are none."""

    watts: float = 0.0
    samples: int = 0
    reason: Missing = Missing.NOT_ASKED  # why there was nothing the last time we looked

    def add(self, milliwatts: Sequence[int]) -> None:
        """Samples not counted before."""
        self.watts = max(self.watts, max(milliwatts) / 1000)
        self.samples += len(milliwatts)

    def take(self) -> tuple[Value, Value]:
        """Highest draw in watts and the count, or why there are none; then start anew."""
        peak: Value = self.watts if self.samples else self.reason
        count: Value = self.samples if self.samples or self.reason is Missing.ABSENT else self.reason
        self.watts, self.samples, self.reason = 0.0, 0, Missing.NOT_ASKED
        return peak, count


# --- how often


@dataclass(slots=True)
class Load:
    """Is the GPU at work? By the highest of what was read last as a share of its limit; where none is known, by its utilisation.

    It works from BUSY_SHARE on, and no longer once nothing has reached IDLE_SHARE for CALM_SECONDS. With neither limit nor
    utilisation known it counts as working: a drain too many costs half a millisecond.
    """

    limit_watts: float | None = None
    utilisation: float | None = None
    working: bool = False
    _reached: float = 0.0  # monotonic: when it last was at IDLE_SHARE or above

    def note(self, quantity: str, value: Value) -> None:
        """What a tick has read."""
        known = float(value) if isinstance(value, int | float) else None
        if quantity == "power_limit_watts":
            self.limit_watts = known
        elif quantity == "utilisation_ratio":
            self.utilisation = known

    def feel(self, milliwatts: Iterable[int], mono: float) -> None:
        """What was drained or polled at that time; nothing drained says nothing."""
        highest = max(milliwatts, default=None)
        if self.limit_watts:
            self._judge(None if highest is None else highest / 1000 / self.limit_watts, mono)
        else:
            self.working = self.utilisation is None or self.utilisation >= BUSY_UTILISATION

    def _judge(self, share: float | None, mono: float) -> None:
        if share is not None and share >= (IDLE_SHARE if self.working else BUSY_SHARE):
            self.working, self._reached = True, mono
        elif mono - self._reached >= CALM_SECONDS:
            self.working = False

    def next_due(self, mono: float) -> float:
        """When to look again. All GPUs share one grid of times, so that the process wakes once for all of them."""
        seconds = LOAD_SECONDS if self.working else IDLE_SECONDS
        return (mono // seconds + 1) * seconds


# --- the driver's buffer


@dataclass(slots=True)
class Buffer:
    """How far the driver's sample buffer has been read."""

    cursor_us: int = 0  # stamp of the newest entry taken, on the wall clock, as the driver stamps them
    _ahead_us: int | None = None  # of the wall clock before the monotonic one
    _set_back: bool = False  # since the last stretch

    def look_at_clock(self, mono: float, now_us: int) -> None:
        """Was the clock set back? Then stamps come twice, and what lies between the last entry and the next is not known.

        A cursor that lies in the future is pulled back, or nothing would be newer for that long.
        """
        ahead_us = now_us - round(mono * 1e6)
        if self._ahead_us is not None and ahead_us < self._ahead_us - CLOCK_STEP_US:
            self._set_back = True
        self._ahead_us = ahead_us
        if self.cursor_us > now_us + STAMP_SLACK_US:
            self.cursor_us, self._set_back = now_us, True

    @property
    def ask_after_us(self) -> int:
        """The driver gives what is newer than this: the last entry taken, once more, and all that came since."""
        return max(0, self.cursor_us - RECALL_US)

    def take(self, subject: Subject, entries: Iterable[Entry], now_us: int) -> tuple[list[Stretch], Missing]:
        """What is new, each stamp once, and why there is no more. Those from a future that was set back have been taken before."""
        last_us, until_us = self.cursor_us, now_us + STAMP_SLACK_US
        after_us, reason = 0, Missing.ABSENT
        runs: list[list[tuple[int, int]]] = [[]]  # an entry that cannot be read ends one: then something is missing
        for stamp_us, value in sorted(entries, key=itemgetter(0)):
            if abs(stamp_us - last_us) <= SAME_ENTRY_US and not self._set_back:
                after_us = last_us
                continue
            if not self.cursor_us < stamp_us <= until_us:
                continue
            self.cursor_us = stamp_us
            if isinstance(value, Missing) or not 0 <= value <= MAX_MILLIWATTS:
                reason = Missing.MALFORMED
                runs.append([])
            else:
                runs[-1].append((stamp_us, round(value)))
        found = [_stretch(subject, run, 0 if number else after_us) for number, run in enumerate(runs) if run]
        self._set_back = self._set_back and not found
        return found, reason


def _stretch(subject: Subject, run: list[tuple[int, int]], after_us: int) -> Stretch:
    stamps, milliwatts = zip(*run, strict=True)
    return Stretch(subject, TraceSource.BUFFER, stamps, milliwatts, after_us)


# --- all of it


@dataclass(slots=True)
class Power:
    """What is known of one GPU's power between two ticks. The clocks come with every call: monotonic seconds, wall clock in us."""

    subject: Subject
    peak: Peak = field(default_factory=Peak)
    load: Load = field(default_factory=Load)
    buffer: Buffer = field(default_factory=Buffer)
    energy: EnergyMark | None = None
    source: TraceSource | None = None  # of the latest sample
    due: float = 0.0  # monotonic: when to be read again
    _polled_us: int = 0  # stamp of the last poll, 0 when something failed since
    _heard: float | None = None  # monotonic: when the buffer last had something new; or when it was first asked

    def let_go(self) -> None:
        """Its counters may start anew from here on, and what comes next follows nothing."""
        self.energy, self._heard, self._polled_us = None, None, 0

    def mean(self, millijoules: int, mono: float) -> Value:
        """Mean draw since the last call."""
        before, self.energy = self.energy, EnergyMark(mono, millijoules)
        return mean_watts(before, self.energy)

    @property
    def polls(self) -> bool:
        """The buffer gave nothing, and the sensor did: between the ticks that one alone is asked."""
        return self.source is not None and self.source is not TraceSource.BUFFER

    def follow(self, ask: Callable[..., Any], sensor: Polled, mono: float, now_us: int, *, buffer: bool) -> Iterator[Stretch]:
        """What is new in the driver's buffer, if that is to be looked at, and a poll where it gives nothing.

        `ask(function, *arguments)` answers or is Missing; `sensor` is gone through only as far as needed. Both may raise.
        """
        found = self._drain(ask, mono, now_us) if buffer else []
        if not found and (self.polls or self._is_silent(mono)):
            found = self._poll(sensor, now_us)
        self.load.feel([max(stretch.milliwatts) for stretch in found], mono)
        self.due = self.load.next_due(mono)
        for stretch in found:
            self.source = stretch.source
            yield stretch

    def _drain(self, ask: Callable[..., Any], mono: float, now_us: int) -> list[Stretch]:
        self._heard = mono if self._heard is None else self._heard
        self.buffer.look_at_clock(mono, now_us)
        answer = ask("nvmlDeviceGetSamples", TOTAL_POWER_SAMPLES, self.buffer.ask_after_us)
        if isinstance(answer, Missing):
            self.peak.reason = answer  # ABSENT: nothing new
            return []
        value_type, entries = answer
        stamped = [(entry.timeStamp, number_in(value_type, entry.sampleValue)) for entry in entries]
        found, self.peak.reason = self.buffer.take(self.subject, stamped, now_us)
        if found:
            self._heard, self._polled_us = mono, 0
        for stretch in found:
            self.peak.add(stretch.milliwatts)
        return found

    def _is_silent(self, mono: float) -> bool:
        """Not supported, or asked for SILENT_SECONDS and nothing came."""
        unsupported = self.peak.reason is Missing.UNSUPPORTED
        return unsupported or (self._heard is not None and mono - self._heard >= SILENT_SECONDS)

    def _poll(self, sensor: Polled, now_us: int) -> list[Stretch]:
        readings = ((source, value) for source, value in sensor if isinstance(value, int | float))
        source, watts = next(readings, (None, 0.0))
        if source is None or not 0 <= watts * 1000 <= MAX_MILLIWATTS:
            self._polled_us = 0
            return []
        follows = self._polled_us if source is self.source and self._polled_us < now_us else 0
        self._polled_us = now_us
        return [Stretch(self.subject, source, (now_us,), (round(watts * 1000),), follows)]

    # --- telling

    def tell_drained(self, emit: Emit) -> bool:
        """Emit the peak of what was drained since the last time; False when nothing was."""
        if not self.peak.samples:
            return False
        self._tell(emit, self.peak.take())
        return True

    def tell_peak(self, emit: Emit, reason: Missing | None, *, late: bool) -> None:
        """Emit the peak, or `reason` for its lack; keep it for the next tick when it would arrive too `late` to count."""
        if late:
            self._tell(emit, (Missing.TIMED_OUT, Missing.TIMED_OUT))
        elif reason is not None and not self.peak.samples:
            self._tell(emit, (reason, reason))
        else:
            self._tell(emit, self.peak.take())

    def tell_source(self, emit: Emit, reason: Missing | None) -> None:
        """Emit what the trace is taken from, once that is known, or `reason` while it is not taken."""
        if self.source is not None:
            emit.reading(self.subject, "power_trace_source", str(self.source) if reason is None else reason)

    def _tell(self, emit: Emit, values: tuple[Value, Value]) -> None:
        for quantity, value in zip(PEAK, values, strict=True):
            emit.reading(self.subject, quantity, value)
