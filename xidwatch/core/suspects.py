"""Which sensor inputs could be supply rails and which services could be engines, and why one would think so.

Law: pure, and a guess each: nobody but a meter or the board's manual knows which pin is which rail. What is proposed is neither judged
nor watched before an operator has said that it is so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from xidwatch.core.model import Missing, Readings, Subject, Value

NEAR = 0.07  # of nominal: a rail that is off by more is no example to learn from
NOMINALS = {12.0: "12v", 5.0: "5v", 3.3: "3v3"}
PIN_OF_TWELVE_VOLTS = (0.9, 1.1)  # volts: boards divide +12 V by eleven to thirteen, so that it fits into the chip's range
_VOLTAGE = re.compile(r"(?:in)\d{1,3}")
_LABELLED = re.compile(r"(?<![\d.])\+?(12|5|3\.3|3)[ _]?v", re.IGNORECASE)
_WORD = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Suspect:
    """An input, as it would stand under `[[rails]]`."""

    name: str
    chip: str
    input: str
    factor: float  # volts of the rail / volts at the pin
    nominal_volts: float
    why: str


@dataclass(frozen=True, slots=True)
class EngineSuspect:
    """A service, as it would stand under `[[engines]]`. `port` 0: where it serves was not seen."""

    unit: str
    server: str
    port: int
    gpus: tuple[str, ...]
    why: str


def engines(found: Readings, holders: Mapping[str, str]) -> tuple[EngineSuspect, ...]:
    """Of the services found; `holders`: the processes on each GPU, by its address."""
    return tuple(_engine(subject, values, holders) for subject, values in sorted(found.items()) if subject.kind == "engine")


def _engine(subject: Subject, values: Mapping[str, Value], holders: Mapping[str, str]) -> EngineSuspect:
    pids = set(_text(values.get("pids")).split())
    gpus = tuple(sorted(address for address, on_it in holders.items() if pids & set(on_it.split())))
    server, port = _text(values.get("server")), values.get("serving_port")
    looks = f"it looks like {server}" if server else "of a kind that is not known here"
    holds = f"it holds {len(gpus)} GPU{'' if len(gpus) == 1 else 's'} ({', '.join(gpus)})" if gpus else "no GPU of it was seen"
    serves = f"it listens on port {port}" if isinstance(port, int) else "where it serves was not seen"
    why = f"{looks}, {holds}, {serves}"
    return EngineSuspect(subject.name, server, port if isinstance(port, int) else 0, gpus, why)


def _text(value: Value | None) -> str:
    return value if isinstance(value, str) and not isinstance(value, Missing) else ""


def rails(readings: Readings, inventory: Readings) -> tuple[Suspect, ...]:
    """In the order of their inputs, each name once."""
    found: dict[str, Suspect] = {}
    for subject in sorted(readings):
        suspect = _suspect(subject, readings[subject], inventory.get(subject, {}))
        if suspect is not None:
            found.setdefault(suspect.name, suspect)
    return tuple(found.values())


def _suspect(subject: Subject, values: Mapping[str, Value], facts: Mapping[str, Value]) -> Suspect | None:
    chip, _, source = subject.name.rpartition("/")
    if subject.kind != "chip" or not chip or not _VOLTAGE.fullmatch(source):
        return None
    label = facts.get("label", Missing.UNSUPPORTED)
    called = "" if isinstance(label, Missing) else str(label)
    for nominal, factor, why in _readings_of(values, called):
        return Suspect(_name(chip, source, nominal, called), chip, source, factor, nominal, why)
    return None


def _readings_of(values: Mapping[str, Value], label: str) -> Iterator[tuple[float, float, str]]:
    """Nominal volts, factor and the reason, the best first."""
    volts, pin = values.get("volts"), values.get("pin_volts")
    said = f', which its driver calls "{label}"' if label else ""
    if _is_number(volts):
        yield from ((nominal, 1.0, f"reads {volts:.3f} V itself{said}") for nominal in NOMINALS if abs(volts / nominal - 1) <= NEAR)
    if not _is_number(pin):
        return
    named = _LABELLED.search(label)
    if named and pin > 0.1:
        nominal = 3.3 if named[1].startswith("3") else float(named[1])
        ratio = nominal / pin
        yield nominal, 1.0 if abs(ratio - 1) <= NEAR else round(ratio, 3), f"reads {pin:.3f} V at the pin{said}"
    elif PIN_OF_TWELVE_VOLTS[0] <= pin <= PIN_OF_TWELVE_VOLTS[1]:
        yield 12.0, round(12 / pin, 2), f"reads {pin:.3f} V at the pin, as +12 V divided by about twelve would"


def _is_number(value: Value | None) -> TypeGuard[float]:
    return isinstance(value, int | float)


def _name(chip: str, source: str, nominal: float, label: str) -> str:
    word = _WORD.sub("_", label.lower()).strip("_")
    maker = _WORD.sub("_", chip.partition("@")[0].lower()).strip("_")
    return f"{maker}_{word or source}_{NOMINALS[nominal]}"[:40].strip("_")
