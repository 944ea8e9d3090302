"""The probes as the daemon knows them: by string. A new one is a row here, a module under probes/ and its settings."""

from __future__ import annotations

from collections.abc import Mapping

from xidwatch.config import PROBES, Config
from xidwatch.daemon.workers import ProbeSpec

FIRST_NVML_SECONDS = 120.0  # without persistence the first NVML call initialises every GPU

ROOT_OPTION = {"pci": "root", "hwmon": "root", "host": "proc_root"}  # what the probe's own `create` calls it


def specs(config: Config) -> tuple[ProbeSpec, ...]:
    """Every enabled probe; that of the engines where there are any."""
    return tuple(_spec(name, config) for name in PROBES if getattr(config.probes, name).enabled and (name != "engine" or config.engines))


def _spec(name: str, config: Config) -> ProbeSpec:
    root = config.root(name)
    options: dict[str, object] = {ROOT_OPTION[name]: root} if root else {}
    options |= _sensors(config) if name == "hwmon" else {}
    options |= {"engines": _engines(config)} if name == "engine" else {}
    seconds = config.deadline_seconds(name)
    return ProbeSpec(
        name=name,
        target=_target(name),
        options=options,
        deadline_seconds=seconds,
        first_deadline_seconds=FIRST_NVML_SECONDS if name == "nvml" else seconds,
        holds_driver=name == "nvml",
        looks=name == "pci",
    )


def _engines(config: Config) -> list[dict[str, str]]:
    """Each, and what is started in its stead after an incident."""
    own = [{"unit": each.unit, "metrics": each.metrics} for each in config.engines]
    return own + [{"unit": each.after_incident_unit, "metrics": each.metrics} for each in config.engines if each.after_incident_unit]


def _sensors(config: Config) -> dict[str, object]:
    """Plain values, for they go to another process."""
    rails = [
        {
            "name": rail.name,
            "chip": rail.chip,
            "input": rail.input,
            "factor": rail.factor,
            "nominal_volts": rail.nominal_volts,
            "tolerance_ratio": rail.tolerance_ratio,
        }
        for rail in config.rails
    ]
    return {"rails": rails, "poll": list(config.probes.hwmon.poll)}


def _target(name: str) -> str:
    return f"xidwatch.probes.{name}:create"


def deadlines(chosen: tuple[ProbeSpec, ...], config: Config) -> Mapping[str, float]:
    """How long a tick waits for each: as configured now, which may be later than `chosen` was. Foreign probes bring their own."""
    return {
        spec.name: config.deadline_seconds(spec.name)
        if spec.name in PROBES and spec.target == _target(spec.name)
        else min(spec.deadline_seconds, config.longest_deadline_seconds)
        for spec in chosen
    }


def preload(chosen: tuple[ProbeSpec, ...]) -> list[str]:
    """What the nursery imports so that no child needs the disk for it."""
    own = ["xidwatch.probes.worker", "xidwatch.daemon.recorder", "xidwatch.daemon.forensics", "xidwatch.daemon.reload"]
    own += ["xidwatch.supervise.worker", "xidwatch.supervise.recovery_worker"]
    return [*own, *(spec.target.partition(":")[0] for spec in chosen)]


def sysfs_root(config: Config) -> str:
    """For the dump's own reading of configuration space."""
    return config.root("pci") or "/sys"
