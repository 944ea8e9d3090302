"""What an operator may set: TOML, strict, every mistake at once with its path and what to do.

    interval = "30s"
    metrics = "127.0.0.1:20079"                    # "" = off
    evidence_dirs = ["/mnt/usb/xidwatch"]          # records and dumps go there as well as into the state directory

    [probes.nvml]
    enabled = true
    deadline = "5s"

    [probes.hwmon]
    poll = ["corsair-psu"]                         # chips that are left alone otherwise

    [[rails]]
    name = "psu1_12v"
    chip = "nct6798@platform/nct6775.656"
    input = "in1"
    factor = 12.0                                  # nominal volts / volts at the pin; 1.0 where the driver knows
    nominal_volts = 12.0
    tolerance = "5%"

Without any file the defaults below hold.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from xidwatch.core import sensors
from xidwatch.core.rules import seconds
from xidwatch.rulefiles import ConfigError, Rules, load_rules, overrides_dir, parse_rules, read_toml, rule_tables, rules_dir

__all__ = [  # what an operator may write, the rules included: those are read by `rulefiles`
    "DEFAULT_CONFIG", "DEFAULT_RUN", "DEFAULT_STATE", "LONGEST_SHARE", "PROBES", "SHORTEST_DEADLINE", "SHORTEST_INTERVAL",
    "Config", "ConfigError", "HwmonProbeConfig", "ProbeConfig", "ProbesConfig", "RailConfig", "Rules", "TreeProbeConfig",
    "as_mapping", "check_watchdog", "load_config", "load_rules", "overrides_dir", "parse_config", "parse_rules", "percent",
    "rule_tables", "rules_dir",
]  # fmt: skip

DEFAULT_CONFIG = Path("/etc/xidwatch/config.toml")
DEFAULT_STATE = Path("/var/lib/xidwatch")
DEFAULT_RUN = Path("/run/xidwatch")
SHORTEST_INTERVAL = 0.2  # seconds, as all of these
SHORTEST_DEADLINE = 0.05
LONGEST_SHARE = 0.8  # of the interval, for a deadline
PROBES = ("nvml", "pci", "hwmon", "host")

_RAIL_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_CHIP = re.compile(r'[^\s@,"]+@[^\s,"]+')
_VOLTAGE_INPUT = re.compile(r"in[0-9]{1,3}")
_PERCENT = re.compile(r"([0-9]{1,2}(?:\.[0-9]{1,4})?)%")

Checks = Mapping[str, Callable[[Any], object]]  # by key; each raises ValueError


class ProbeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One probe. `deadline`: a tick waits no longer for its answer."""

    enabled: bool = True
    deadline: str = "4s"


class TreeProbeConfig(ProbeConfig, frozen=True, forbid_unknown_fields=True):
    """A probe that reads a tree of files. `root`: where that is mounted, "" for where it always is."""

    root: str = ""


class HwmonProbeConfig(TreeProbeConfig, frozen=True, forbid_unknown_fields=True):
    """The sensors. `poll`: drivers whose chips are read although that is known to disturb them."""

    poll: tuple[str, ...] = ()


class ProbesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All probes. The root of `pci` and `hwmon` is sysfs, that of `host` proc."""

    nvml: ProbeConfig = ProbeConfig(deadline="5s")
    pci: TreeProbeConfig = TreeProbeConfig()
    hwmon: HwmonProbeConfig = HwmonProbeConfig()
    host: TreeProbeConfig = TreeProbeConfig(deadline="2s")


class RailConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One supply rail and the sensor input that measures it.

    `factor` makes volts of the rail from volts at the pin. `tolerance`: how far from nominal is still good. The default is
    that of +12, +5 and +3.3 V in Intel's ATX12V design guide 2.0, table 2 (-12 V: 10 %; +12 V may go to 10 % at peak load).
    """

    name: str
    chip: str
    input: str
    nominal_volts: float
    factor: float = 1.0
    tolerance: str = "5%"

    @property
    def tolerance_ratio(self) -> float:
        """0.05 for "5%"."""
        return percent(self.tolerance)


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    interval: str = "30s"
    metrics: str = "127.0.0.1:20079"
    kernel_log: str = "/dev/kmsg"
    evidence_dirs: tuple[str, ...] = ()
    rails: tuple[RailConfig, ...] = ()
    probes: ProbesConfig = ProbesConfig()

    @property
    def interval_seconds(self) -> float:
        """Between the beginnings of two ticks."""
        return seconds(self.interval)

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host and port to listen on, None for not at all."""
        if not self.metrics:
            return None
        host, _, port = self.metrics.rpartition(":")
        return host.strip("[]"), int(port)

    def deadline_seconds(self, probe: str) -> float:
        """How long a tick waits for a probe: never so long that it runs into the next."""
        chosen: ProbeConfig = getattr(self.probes, probe)
        return min(seconds(chosen.deadline), self.longest_deadline_seconds)

    @property
    def longest_deadline_seconds(self) -> float:
        """Beyond it the answer of one tick would come in the next."""
        return LONGEST_SHARE * self.interval_seconds

    def root(self, probe: str) -> str:
        """Where the tree is that a probe reads, "" for where it always is, or when it reads none."""
        chosen: ProbeConfig = getattr(self.probes, probe)
        return chosen.root if isinstance(chosen, TreeProbeConfig) else ""


def load_config(path: Path | None) -> Config:
    """Read and check a file; without one (None, and the default path absent) the defaults. Raises ConfigError."""
    try:
        return parse_config(read_toml(path or DEFAULT_CONFIG), str(path or DEFAULT_CONFIG))
    except ConfigError as error:
        if path is None and isinstance(error.__cause__, FileNotFoundError):
            return Config()
        raise


def parse_config(table: Mapping[str, Any], name: str = "config") -> Config:
    """Check a parsed file. Raises ConfigError with every problem."""
    problems: list[str] = []
    cleaned = _fields(Config, table, "", problems)
    config = msgspec.convert(cleaned, Config)
    problems += _values(config)
    if problems:
        raise ConfigError([f"{name}: {problem}" for problem in problems])
    return config


def _fields(struct: type[msgspec.Struct], table: Mapping[str, Any], path: str, problems: list[str]) -> dict[str, Any]:
    """The keys that are known and of the right type; the others are problems."""
    known = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
    cleaned: dict[str, Any] = {}
    for key, value in table.items():
        where = f"{path}{key}"
        wanted = known.get(key)
        if wanted is None:
            problems.append(f"{where}: unknown key (known here: {', '.join(sorted(known))})")
        elif wanted in _TABLES_OF:
            cleaned[key] = list(_tables(*_TABLES_OF[wanted], value, where, problems))
        elif wanted not in _EXPECTED and isinstance(value, Mapping):
            cleaned[key] = _fields(wanted, value, f"{where}.", problems)
        else:
            try:
                cleaned[key] = msgspec.convert(value, wanted)
            except msgspec.ValidationError:  # whose words are for programmers
                problems.append(f"{where}: expected {_EXPECTED.get(wanted, f'a table, [{where}]')}, not {_as_toml(value)}")
    return cleaned


def _tables(struct: type[msgspec.Struct], checks: Checks, value: object, where: str, problems: list[str]) -> Iterable[dict[str, Any]]:
    """The tables of a `[[list]]` that have all they need; what they hold is checked here, where their place is still known."""
    if not isinstance(value, list | tuple) or not all(isinstance(each, Mapping) for each in value):
        problems.append(f"{where}: expected tables, each begun with [[{where}]], not {_as_toml(value)}")
        return
    needed = [field.encode_name for field in msgspec.structs.fields(struct) if field.required]
    for at, table in enumerate(value):
        cleaned = _fields(struct, table, f"{where}[{at}].", problems)
        problems += [f"{where}[{at}].{key}: missing" for key in needed if key not in table]
        problems += _failed({f"{where}[{at}].{key}": partial(checks[key], given) for key, given in cleaned.items()})
        if all(key in cleaned for key in needed):
            yield cleaned


_EXPECTED = {
    bool: "true or false",
    float: "a number, as in 12.0",
    str: 'a text in quotes, as in "30s"',
    tuple[str, ...]: 'a list of texts in quotes, as in ["/mnt/usb/xidwatch"]',
}


def _as_toml(value: object) -> str:
    """What the operator has written, or near enough to find it."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case Mapping():
            return "a table"
        case list():
            return f"[{', '.join(map(_as_toml, value))}]"
        case _:
            return str(value)


def _values(config: Config) -> list[str]:
    checks: dict[str, Callable[[], object]] = {
        "interval": partial(_at_least, config.interval, SHORTEST_INTERVAL),
        "metrics": partial(_address, config.metrics),
        "kernel_log": partial(_absolute, config.kernel_log),
        **{f"evidence_dirs[{at}]": partial(_absolute, folder) for at, folder in enumerate(config.evidence_dirs)},
    }
    for probe in PROBES:
        checks[f"probes.{probe}.deadline"] = partial(_at_least, getattr(config.probes, probe).deadline, SHORTEST_DEADLINE)
        checks[f"probes.{probe}.root"] = partial(_absolute, config.root(probe) or "/")
    checks |= {f"probes.hwmon.poll[{at}]": partial(_driver, name) for at, name in enumerate(config.probes.hwmon.poll)}
    return _failed(checks) + _twice(config.rails)


def _failed(checks: Mapping[str, Callable[[], object]]) -> list[str]:
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


def _match(pattern: re.Pattern[str], words: str, text: str) -> None:
    if not pattern.fullmatch(text):
        raise ValueError(f'{words}, not "{text}"')


def _not_zero(number: float) -> None:
    if not math.isfinite(number) or number == 0:
        raise ValueError(f"must be a number other than 0, not {number:g}")


def percent(text: str) -> float:
    """A share with its sign (`5%`, more than 0 and less than 50) as a ratio. Raises ValueError."""
    match = _PERCENT.fullmatch(text)
    if not match or not 0 < float(match[1]) < 50:
        raise ValueError(f'must be a share above 0 and below 50 with its sign, as in "5%", not "{text}"')
    return float(match[1]) / 100


_RAIL_CHECKS: Checks = {
    "name": partial(_match, _RAIL_NAME, 'must be small letters, digits, "_" and "-", as in "psu1_12v"'),
    "chip": partial(_match, _CHIP, 'must be a chip as `xidwatch run` names it, as in "nct6798@platform/nct6775.656"'),
    "input": partial(_match, _VOLTAGE_INPUT, 'must be a voltage input, as in "in1"'),
    "factor": _not_zero,
    "nominal_volts": _not_zero,
    "tolerance": percent,
}
_TABLES_OF: dict[object, tuple[type[msgspec.Struct], Checks]] = {tuple[RailConfig, ...]: (RailConfig, _RAIL_CHECKS)}


def _driver(name: str) -> None:
    known = sorted(row.driver for row in sensors.OPT_IN)
    if name not in known:
        raise ValueError(f'"{name}" is no driver that is left alone (those are: {", ".join(known)}); all others are read anyway')


def _at_least(duration: str, least: float) -> None:
    if seconds(duration) < least:
        raise ValueError(f'must be at least "{least:g}s", not "{duration}"')


def _absolute(path: str) -> None:
    if not path.startswith("/"):
        raise ValueError(f'must be a full path, beginning with "/", not "{path}"')


def _address(text: str) -> None:
    if not text:
        return
    host, _, port = text.rpartition(":")
    try:
        ipaddress.ip_address(host.strip("[]"))
        good = port.isdecimal() and int(port) < 65536
    except ValueError:
        good = False
    if not good:
        raise ValueError(f'"{text}" is not an address to listen on (an IP address and a port, as in "127.0.0.1:20079", or "" for none)')


def check_watchdog(config: Config, watchdog_seconds: float) -> None:
    """systemd's watchdog is fed by finished ticks, so a tick must fit twice into it. Raises ConfigError."""
    if watchdog_seconds and config.interval_seconds > watchdog_seconds / 2:
        limit = f"half of the unit's WatchdogSec ({watchdog_seconds:g} s)"
        cure = "systemd would end a healthy daemon; shorten the one or raise the other"
        raise ConfigError([f'interval: "{config.interval}" is longer than {limit}: {cure}'])


def as_mapping(config: Config) -> dict[str, Any]:
    """As plain values, for records and for passing between processes."""
    built: dict[str, Any] = msgspec.to_builtins(config)
    return built
