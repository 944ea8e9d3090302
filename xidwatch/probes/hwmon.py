"""Board rails, fans, temperatures, supplies and processor power: what the sensor chips of the host say.

Law: turns what `hwmon_chips` and `hwmon_energy` find into readings. A chip is the unit of getting stuck, so it is announced
before it is asked; one that fails, sleeps or is left out never keeps another from being read.

    class/hwmon/hwmon3/name         nct6798
    class/hwmon/hwmon3/in1_input    1008      chip:nct6798@platform/nct6775.656/in1 pin_volts 1.008, or as the operator
                                              has named it, with factor 12:  rail:psu1_12v volts 12.096
    class/hwmon/hwmon5/power1_input 214000000 chip:corsairpsu@.../power1 watts 214

What a chip says of an input that nobody has named stays under the chip's own name and in its own units: behind a divider
that only the board's maker knows, 1.008 V can be +12 V, or a processor core, or a pin that leads nowhere. Alarm bits
compare with limits that the firmware left there (often 0, which is an alarm for ever) and may clear when they are read: each is read
once a tick and recorded as it is.
Sources: Documentation/hwmon/sysfs-interface.rst; Documentation/hwmon/nct6775.rst ("conversions ... in user space").
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xidwatch.core.model import HOST, Missing, Subject, Value
from xidwatch.probes import hwmon_chips, hwmon_energy
from xidwatch.probes.base import Ask, Emit, Probe, ProbeFailed
from xidwatch.probes.hwmon_chips import Chip, Input
from xidwatch.probes.hwmon_energy import Meter, Zone

# What an input measures, and how much of that unit one count is.
UNITS = {
    "in": ("pin_volts", 1e-3),
    "curr": ("amperes", 1e-3),
    "power": ("watts", 1e-6),
    "temp": ("celsius", 1e-3),
    "fan": ("rpm", 1.0),
}
NEAR_ONE_VOLT = (0.8, 1.3)  # where the +12 V rail of most boards arrives at a pin
NEAR_TWELVE_VOLTS = (10.8, 13.2)


@dataclass(frozen=True, slots=True)
class Rail:
    """What the operator says an input is. `tolerance_ratio`: how far from nominal is still good, 0.05 for 5 %."""

    name: str
    chip: str
    input: str
    factor: float
    nominal_volts: float
    tolerance_ratio: float

    @property
    def subject(self) -> Subject:
        """Under the operator's name."""
        return Subject("rail", self.name)


@dataclass(frozen=True, slots=True)
class Pin:
    """A voltage as last read, for a proposal."""

    chip: str
    input: str
    volts: float
    real: bool


def create(options: Mapping[str, Any]) -> Probe:
    """Options: `root`, where sysfs is mounted (default /sys); `rails`, each with the fields of Rail; `poll`, drivers left out otherwise."""
    rails = tuple(Rail(**rail) for rail in options.get("rails", ()))
    return HwmonProbe(str(options.get("root", "/sys")), rails, frozenset(options.get("poll", ())))


class HwmonProbe:
    """Readings about `rail:` and `chip:`. Finds the chips anew whenever one comes, goes or is renumbered."""

    between_seconds: float | None = None

    def __init__(
        self,
        root: str = "/sys",
        rails: tuple[Rail, ...] = (),
        poll: frozenset[str] = frozenset(),
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = Path(root)
        self._rails = {(rail.chip, rail.input): rail for rail in rails}
        self._poll = poll
        self._monotonic = monotonic
        self._links: dict[str, str] | None = None
        self._chips: dict[str, Chip] = {}
        self._meters: dict[Subject, Meter] = {}
        self._zones: tuple[Zone, ...] = hwmon_energy.zones(self._root)
        self._pins: dict[Subject, Pin] = {}

    # ----------------------------------------------------------------------------------------------------- requests

    def sample(self, ask: Ask, emit: Emit) -> None:
        """Every input of every chip that may be read, chips with a rail first; then the processors' own meters."""
        self._notice()
        self._report_lost_rails(emit)
        for identity in self._in_order():
            if self._monotonic() >= ask.deadline:
                return
            chip = self._still_there(identity)
            if chip is None:
                self._report_lost_rails(emit)
            else:
                self._report(chip, ask, emit)
        self._report_zones(ask, emit)

    def look(self, ask: Ask, emit: Emit) -> None:
        """Nothing: no sensor tells at once whether a device still answers."""

    def inventory(self, ask: Ask, emit: Emit) -> None:
        """Which chips there are, what their drivers call the inputs, what is left out; no measurement."""
        self._notice()
        self._zones = self._zones or hwmon_energy.zones(self._root)
        emit.reading(HOST, "hwmon_chips", len(self._chips))
        emit.reading(HOST, "rapl_zones", self._readable_zones())
        emit.reading(HOST, "voltage_inputs", sum(1 for chip in self._read_chips() for source in chip.inputs if source.kind == "in"))
        emit.reading(HOST, "rail_proposal", self._proposal())
        for rail in self._rails.values():
            emit.reading(rail.subject, "present", int(self._source(rail) is not None))
            emit.reading(rail.subject, "measured_by", f"{rail.chip}/{rail.input}")
            _report_limits(rail, emit)
        for chip in self._chips.values():
            emit.reading(chip.subject, "driver", chip.driver)
            if self._is_left_out(chip) and chip.reluctant:
                emit.reading(chip.subject, "left_out", chip.reluctant.driver)
            elif str(chip.subject) not in ask.skip:
                self._report_labels(chip, emit)

    def between(self) -> None:
        """Nothing: sensors keep no buffer."""

    def close(self) -> None:
        """Nothing is held between requests."""

    # -------------------------------------------------------------------------------------------------- which chips

    def _notice(self) -> None:
        """Raises ProbeFailed when the folder of chips cannot be listed; that there is none is no failure."""
        try:
            links = hwmon_chips.links(self._root)
            if links != self._links:
                self._chips = hwmon_chips.find(self._root)
                # A chip that comes or goes just now is found in part or not at all, under a link that stays as it is: look again.
                self._links = links if self._is_whole(len(links)) else None
        except OSError as error:
            raise ProbeFailed("NoSensors", f"{self._root}/class/hwmon: {error.strerror}") from error

    def _is_whole(self, count: int) -> bool:
        """Whether all chips are known, each with all that it needs to have."""
        all_there = len(self._chips) == count and all(chip.is_whole for chip in self._chips.values())
        return all_there and all(self._source(rail) for rail in self._rails.values())

    def _in_order(self) -> list[str]:
        """Chips with a rail first; those that are slow or sulk, and are read only because somebody asked for it, last."""
        with_rail = {rail.chip for rail in self._rails.values()}
        return sorted(self._chips, key=lambda name: (self._chips[name].reluctant is not None, name not in with_rail, name))

    def _still_there(self, identity: str) -> Chip | None:
        """The chip as it is to be found now: its module may have been loaded again since this tick began."""
        chip = self._chips.get(identity)
        if chip is None or chip.folder.is_dir():
            return chip
        self._links = None
        self._notice()
        return self._chips.get(identity)

    def _is_left_out(self, chip: Chip) -> bool:
        return chip.reluctant is not None and not self._poll & {chip.reluctant.driver, chip.reluctant.chip}

    def _read_chips(self) -> list[Chip]:
        return [chip for chip in self._chips.values() if not self._is_left_out(chip)]

    def _why_not(self, chip: Chip, ask: Ask) -> Missing | None:
        if self._is_left_out(chip) or str(chip.subject) in ask.skip:
            return Missing.NOT_ASKED
        return Missing.ASLEEP if hwmon_chips.is_asleep(chip) else None

    def _source(self, rail: Rail) -> Input | None:
        chip = self._chips.get(rail.chip)
        return next((source for source in chip.inputs if source.name == rail.input), None) if chip else None

    # ------------------------------------------------------------------------------------------------ what they say

    def _report(self, chip: Chip, ask: Ask, emit: Emit) -> None:
        why_not = self._why_not(chip, ask)
        for source in chip.inputs:
            if why_not is None:
                emit.at(chip.subject)  # each time, so that what was learnt has left the process when the next input blocks
            rail = self._rails.get((chip.identity, source.name)) if source.kind == "in" else None
            if rail is None and self._is_left_out(chip):
                continue  # a column that is empty by decision for ever
            about = rail.subject if rail else chip.about(source)
            self._report_input(chip, source, rail, why_not or hwmon_chips.read_number(chip.folder / source.file), emit)
            for quantity, file in source.alarms.items():
                emit.reading(about, quantity, why_not or hwmon_chips.read_number(chip.folder / file))

    def _report_input(self, chip: Chip, source: Input, rail: Rail | None, count: int | Missing, emit: Emit) -> None:
        about = chip.about(source)
        if count is Missing.ABSENT and not (chip.folder / source.file).exists():
            self._links = None  # look again before the next tick
        if source.kind == "energy":
            meter = self._meters.setdefault(about, Meter())
            emit.reading(about, "power_mean_watts", meter.mean_watts(self._monotonic(), count))
            return
        quantity, unit = UNITS[source.kind]
        value = count if isinstance(count, Missing) else count * unit
        if source.kind == "in" and not isinstance(value, Missing):
            self._pins[about] = Pin(chip.identity, source.name, value, chip.real_volts)
        if rail is not None:
            emit.reading(rail.subject, "present", 1)
            emit.reading(rail.subject, "volts", value if isinstance(value, Missing) else value * rail.factor)
            _report_limits(rail, emit)
        else:
            emit.reading(about, "volts" if quantity == "pin_volts" and chip.real_volts else quantity, value)

    def _report_lost_rails(self, emit: Emit) -> None:
        """Rails whose chip or input is not there. Said before any chip is asked: this needs none."""
        for rail in self._rails.values():
            if self._source(rail) is None:
                emit.reading(rail.subject, "present", 0)
                emit.reading(rail.subject, "volts", Missing.ABSENT)
                _report_limits(rail, emit)

    def _report_zones(self, ask: Ask, emit: Emit) -> None:
        for zone in self._zones:
            if str(zone.unit) in ask.skip:
                emit.reading(zone.subject, "power_mean_watts", Missing.NOT_ASKED)
            else:
                emit.at(zone.unit)
                emit.reading(zone.subject, "power_mean_watts", zone.mean_watts(self._monotonic()))

    # --------------------------------------------------------------------------------------------------- who they are

    def _report_labels(self, chip: Chip, emit: Emit) -> None:
        """A label may be asked of the device itself, so the chip is announced."""
        labelled = [source for source in chip.inputs if source.has_label]
        if labelled:
            emit.at(chip.subject)
        for source in labelled:
            emit.reading(chip.about(source), "label", hwmon_chips.read_text(chip.folder / f"{source.name}_label"))

    def _readable_zones(self) -> Value:
        if self._zones and not any(zone.may_be_read() for zone in self._zones):
            return Missing.DENIED
        return len(self._zones)

    def _proposal(self) -> str:
        """An input that could be a +12 V rail, as it would be written down; empty when none looks like one."""
        pins = [pin for _, pin in sorted(self._pins.items())]
        real = [pin for pin in pins if pin.real and NEAR_TWELVE_VOLTS[0] <= pin.volts <= NEAR_TWELVE_VOLTS[1]]
        behind_divider = [pin for pin in pins if not pin.real and NEAR_ONE_VOLT[0] <= pin.volts <= NEAR_ONE_VOLT[1]]
        for pin in (*real, *behind_divider):
            factor = "1.0" if pin.real else f"{12 / pin.volts:.3g}  # 12 V / {pin.volts:.3f} V as read now"
            return f'chip = "{pin.chip}", input = "{pin.input}", factor = {factor}'
        return ""


def _report_limits(rail: Rail, emit: Emit) -> None:
    emit.reading(rail.subject, "nominal_volts", rail.nominal_volts)
    emit.reading(rail.subject, "tolerance_ratio", rail.tolerance_ratio)
