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

    [recovery]
    rescan = true                                  # each step is off unless it is switched on

Without any file the defaults below hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from xidwatch.config.checks import mistakes
from xidwatch.config.strict import fields
from xidwatch.config.tables import PROBES, Config, EngineConfig, RailConfig, RecoveryConfig
from xidwatch.places import DEFAULT_CONFIG, DEFAULT_RUN, DEFAULT_STATE
from xidwatch.rulefiles import ConfigError, Rules, both, load_rules, overrides_dir, parse_rules, read_toml, rule_tables, rules_dir

__all__ = [
    "DEFAULT_CONFIG",
    "DEFAULT_RUN",
    "DEFAULT_STATE",
    "PROBES",
    "Config",
    "ConfigError",
    "EngineConfig",
    "RailConfig",
    "RecoveryConfig",
    "Rules",
    "as_mapping",
    "both",
    "check_watchdog",
    "load_checked_config",
    "load_config",
    "load_rules",
    "overrides_dir",
    "parse_config",
    "parse_rules",
    "rule_tables",
    "rules_dir",
    "with_one_evidence_dir",
]


def load_config(path: Path | None) -> Config:
    """Read and check a file; without one (None, and the default path absent) the defaults. Raises ConfigError."""
    try:
        return parse_config(read_toml(path or DEFAULT_CONFIG), str(path or DEFAULT_CONFIG))
    except ConfigError as error:
        if path is None and isinstance(error.__cause__, FileNotFoundError):
            return Config()
        raise


def load_checked_config(path: Path | None, watchdog_seconds: float) -> Config:
    """The same for a daemon, under systemd's watchdog or none (0). Raises ConfigError."""
    config = load_config(path)
    check_watchdog(config, watchdog_seconds)
    return config


def parse_config(table: Mapping[str, Any], name: str = "config") -> Config:
    """Check a parsed file. Raises ConfigError with every problem."""
    problems: list[str] = []
    cleaned = fields(Config, table, "", problems)
    config = msgspec.convert(cleaned, Config)
    problems += mistakes(config)
    if problems:
        raise ConfigError([f"{name}: {problem}" for problem in problems])
    return config


def with_one_evidence_dir(config: Config) -> Config:
    """The same without further ones: those are of the host it was written for."""
    return msgspec.structs.replace(config, evidence_dirs=())


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
