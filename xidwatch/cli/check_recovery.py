"""For `check`: whether the steps of recovery that are switched on could be taken at all. No command of its own.

    ProtectKernelTunables=yes            /sys is read-only
    ReadWritePaths=/sys/bus/pci /sys/devices          but for this
    CapabilityBoundingSet=cap_sys_admin cap_syslog

Source: systemd.exec(5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath

from xidwatch.cli.check_units import BAD, OK, UNKNOWN, WARNING, Check, Properties
from xidwatch.config import Config
from xidwatch.core.recovery_model import RecoveryStep

SERVICE = "xidwatch.service"
CURE = "a drop-in as systemd/recovery.conf; systemctl daemon-reload; systemctl restart xidwatch (docs/recovery.md)"
WRITTEN_TO = ("/sys/bus/pci", "/sys/devices")


def of_recovery(config: Config, known: Mapping[str, Properties] | None) -> Iterator[Check]:
    """Nothing where nothing is switched on. `known`: what systemd says of the service itself."""
    steps = config.recovery.enabled
    if steps and not config.engines:
        yield Check("recovery", "", WARNING, "is switched on, and no engine is configured: only for one that is held anything is done")
    said = (known or {}).get(SERVICE)
    for step in steps:
        if said is None:
            yield Check("recovery", step, UNKNOWN, "systemd does not answer, so nobody can say what the service may do")
        elif said.get("LoadState") == "not-found":
            yield Check("recovery", step, WARNING, f"is switched on, and there is no {SERVICE} to take it", "make install")
        else:
            why = forbidden(step, said)
            text = f"is switched on, and the service's sandbox forbids it ({why})" if why else "is switched on, and the service may take it"
            yield Check("recovery", step, BAD if why else OK, text, CURE if why else "")


def forbidden(step: RecoveryStep, said: Properties) -> str:
    """Which setting of the service is in its way; empty for none."""
    test = _FORBIDDEN.get(step)
    return test(said) if test else ""


def _of_sysfs(said: Properties) -> str:
    open_to = [PurePosixPath(path.lstrip("-+")) for path in said.get("ReadWritePaths", "").split()]
    is_open = all(any(PurePosixPath(place).is_relative_to(path) for path in open_to) for place in WRITTEN_TO)
    return "" if said.get("ProtectKernelTunables") == "no" or is_open else "ProtectKernelTunables="


def _of_modules(said: Properties) -> str:
    if said.get("ProtectKernelModules") != "no":
        return "ProtectKernelModules="
    return "" if "cap_sys_module" in said.get("CapabilityBoundingSet", "").lower().split() else "CapabilityBoundingSet="


_FORBIDDEN: Mapping[RecoveryStep, Callable[[Properties], str]] = {
    RecoveryStep.RESCAN: _of_sysfs,
    RecoveryStep.SLOT_POWER: _of_sysfs,
    RecoveryStep.MODULE_RELOAD: _of_modules,
}
