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

    [[engines]]
    unit = "vllm.service"
    gpus = ["0000:11:00.0", "0000:12:00.0"]        # or "all"; without it those that it is found to use
    metrics = "http://127.0.0.1:8000/metrics"
    probe = "http://127.0.0.1:8000/v1"

Without any file the defaults below hold.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from xidwatch.config.checks import mistakes
from xidwatch.config.strict import fields
from xidwatch.config.tables import PROBES, Config, EngineConfig, RailConfig
from xidwatch.core.kernel import XidRule, xid_rules
from xidwatch.core.rules import Rule, RulesError, load

__all__ = [
    "DEFAULT_CONFIG",
    "DEFAULT_RUN",
    "DEFAULT_STATE",
    "PROBES",
    "Config",
    "ConfigError",
    "EngineConfig",
    "RailConfig",
    "Rules",
    "as_mapping",
    "check_watchdog",
    "load_config",
    "load_rules",
    "parse_config",
    "rules_dir",
]

DEFAULT_CONFIG = Path("/etc/xidwatch/config.toml")
DEFAULT_STATE = Path("/var/lib/xidwatch")
DEFAULT_RUN = Path("/run/xidwatch")

T = TypeVar("T")


class ConfigError(Exception):
    """Everything that is wrong, one line each: where, what, and what to do."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Rules:
    """All rule files, checked."""

    conditions: tuple[Rule, ...]
    xids: Mapping[int, XidRule]


def load_config(path: Path | None) -> Config:
    """Read and check a file; without one (None, and the default path absent) the defaults. Raises ConfigError."""
    try:
        return parse_config(_toml(path or DEFAULT_CONFIG), str(path or DEFAULT_CONFIG))
    except ConfigError as error:
        if path is None and isinstance(error.__cause__, FileNotFoundError):
            return Config()
        raise


def _toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError([f"{path}: not TOML: {error}"]) from error


def parse_config(table: Mapping[str, Any], name: str = "config") -> Config:
    """Check a parsed file. Raises ConfigError with every problem."""
    problems: list[str] = []
    cleaned = fields(Config, table, "", problems)
    config = msgspec.convert(cleaned, Config)
    problems += mistakes(config)
    if problems:
        raise ConfigError([f"{name}: {problem}" for problem in problems])
    return config


def rules_dir(given: Path | None) -> Path:
    """Where the rules are: as given, inside the installed package, or in the checkout beside it."""
    if given is not None:
        return given
    package = Path(__file__).parent.parent
    inside = package / "_rules"
    return inside if inside.is_dir() else package.parent / "rules"


def load_rules(directory: Path) -> Rules:
    """Read and check every rule file. Raises ConfigError with every problem."""
    problems: list[str] = []
    conditions = _rule_file(directory / "conditions.toml", load, problems)
    xids = _rule_file(directory / "xid.toml", xid_rules, problems)
    if conditions is None or xids is None:
        raise ConfigError(problems)
    return Rules(conditions, xids)


def _rule_file(path: Path, read: Callable[[Mapping[str, object]], T], problems: list[str]) -> T | None:
    try:
        return read(_toml(path))
    except RulesError as error:
        problems += [f"{path}: {problem}" for problem in error.problems]
    except ConfigError as error:
        problems += error.problems
    return None


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
