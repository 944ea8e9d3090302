"""Which check belongs to which key, and what the parts of a configuration must not say of each other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from xidwatch.config.tables import PROBES, Config, EngineConfig, RailConfig
from xidwatch.config.values import (
    absolute,
    address,
    at_least,
    at_least_one,
    between,
    driver,
    gpus,
    loopback,
    match,
    not_zero,
    percent,
    watts,
)

SHORTEST_INTERVAL = 0.2  # seconds, as all of these
SHORTEST_DEADLINE = 0.05
SHORTEST_SETTLE, SHORTEST_WAIT = 1.0, 1.0
LONGEST, LONGEST_BACK_OFF, LONGEST_WINDOW = 6 * 3600.0, 3600.0, 7 * 86400.0
LONGEST_REBOOT_AFTER, SHORTEST_REBOOT_WINDOW, LONGEST_REBOOT_WINDOW = 86400.0, 3600.0, 400 * 86400.0
MOST_STARTS = 100

_RAIL_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_CHIP = re.compile(r'[^\s@,"]+@[^\s,"]+')
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]{0,200}\.service")
_A_UNIT = 'must be a service of systemd with its ending, as in "vllm.service"'
_VOLTAGE_INPUT = re.compile(r"in[0-9]{1,3}")

Checks = Mapping[str, Callable[[Any], object]]  # by key; each raises ValueError


def mistakes(config: Config) -> list[str]:
    """Of all that is not in a list of tables, and what those say twice."""
    checks: dict[str, Callable[[], object]] = {
        "interval": partial(at_least, config.interval, SHORTEST_INTERVAL),
        "metrics": partial(address, config.metrics),
        "kernel_log": partial(absolute, config.kernel_log),
        **{f"evidence_dirs[{at}]": partial(absolute, folder) for at, folder in enumerate(config.evidence_dirs)},
    }
    for probe in PROBES:
        checks[f"probes.{probe}.deadline"] = partial(at_least, getattr(config.probes, probe).deadline, SHORTEST_DEADLINE)
        checks[f"probes.{probe}.root"] = partial(absolute, config.root(probe) or "/")
    checks |= {
        "recovery.wait": partial(between, config.recovery.wait, SHORTEST_WAIT, LONGEST),
        "recovery.reboot_after": partial(between, config.recovery.reboot_after, SHORTEST_WAIT, LONGEST_REBOOT_AFTER),
        "recovery.reboot_window": partial(between, config.recovery.reboot_window, SHORTEST_REBOOT_WINDOW, LONGEST_REBOOT_WINDOW),
    }
    checks |= {f"probes.hwmon.poll[{at}]": partial(driver, name) for at, name in enumerate(config.probes.hwmon.poll)}
    return failed(checks) + _twice(config.rails) + _engines_twice(config.engines)


def failed(checks: Mapping[str, Callable[[], object]]) -> list[str]:
    """`where: what is wrong` of each check that failed."""
    problems = []
    for where, check in checks.items():
        try:
            check()
        except ValueError as error:
            problems.append(f"{where}: {error}")
    return problems


def _twice(rails: tuple[RailConfig, ...]) -> list[str]:
    """A name or an input that stands twice."""
    names = Counter(rail.name for rail in rails)
    sources = Counter((rail.chip, rail.input) for rail in rails)
    found = [f'rails: two are called "{name}"' for name, count in names.items() if count > 1]
    return found + [f"rails: {input_} of {chip} is named twice" for (chip, input_), count in sources.items() if count > 1]


def _engines_twice(engines: tuple[EngineConfig, ...]) -> list[str]:
    """Two words on one engine would contradict each other one day; so would one unit that stands in for another and is its own."""
    names = Counter(name for engine in engines for name in (engine.unit, engine.after_incident_unit) if name)
    return [f"engines: {unit} is named twice" for unit, count in names.items() if count > 1]


_RAIL_CHECKS: Checks = {
    "name": partial(match, _RAIL_NAME, 'must be small letters, digits, "_" and "-", as in "psu1_12v"'),
    "chip": partial(match, _CHIP, 'must be a chip as `xidwatch run` names it, as in "nct6798@platform/nct6775.656"'),
    "input": partial(match, _VOLTAGE_INPUT, 'must be a voltage input, as in "in1"'),
    "factor": not_zero,
    "nominal_volts": not_zero,
    "tolerance": percent,
}


def _unit_or_none(name: str) -> None:
    """A service, or none."""
    if name:
        match(_UNIT, _A_UNIT, name)


def _path_or_none(path: str) -> None:
    """A full path, or none."""
    if path:
        absolute(path)


_ENGINE_CHECKS: Checks = {
    "unit": partial(match, _UNIT, _A_UNIT),
    "gpus": gpus,
    "metrics": loopback,
    "probe": loopback,
    "health": loopback,
    "api_key_file": _path_or_none,
    "after_incident_unit": _unit_or_none,
    "settle": partial(between, least=SHORTEST_SETTLE, most=LONGEST),
    "ready_within": partial(between, least=SHORTEST_WAIT, most=LONGEST),
    "stop_within": partial(between, least=SHORTEST_WAIT, most=LONGEST),
    "back_off": partial(between, least=0.0, most=LONGEST_BACK_OFF),
    "window": partial(between, least=SHORTEST_SETTLE, most=LONGEST_WINDOW),
    "most_starts": partial(at_least_one, most=MOST_STARTS),
    "power_limit_watts": watts,
}
TABLES_OF: dict[object, tuple[type[msgspec.Struct], Checks]] = {
    tuple[RailConfig, ...]: (RailConfig, _RAIL_CHECKS),
    tuple[EngineConfig, ...]: (EngineConfig, _ENGINE_CHECKS),
}
