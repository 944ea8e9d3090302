"""`xidwatch check`: whether what is switched on could be done at all, by what systemd says of the service."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from xidwatch.cli.check_recovery import SERVICE, of_recovery
from xidwatch.cli.check_units import BAD, OK, UNKNOWN, WARNING
from xidwatch.config import Config, parse_config

DROP_IN = (Path(__file__).resolve().parents[2] / "systemd/recovery.conf").read_text()
SHIPPED: Mapping[str, str] = {
    "LoadState": "loaded",
    "ProtectKernelTunables": "yes",
    "ReadWritePaths": "",
    "ProtectKernelModules": "yes",
    "CapabilityBoundingSet": "cap_dac_read_search cap_sys_admin cap_sys_ptrace cap_syslog",
}
OPEN = next(line.partition("=")[2] for line in DROP_IN.splitlines() if line.startswith("ReadWritePaths="))


def config(*steps: str, engines: bool = True) -> Config:
    table: dict[str, object] = {"recovery": dict.fromkeys(steps, True)}
    return parse_config(table | ({"engines": [{"unit": "vllm.service"}]} if engines else {}))


def verdicts(*steps: str, **said: str) -> dict[str, str]:
    return {found.about: found.verdict for found in of_recovery(config(*steps), {SERVICE: {**SHIPPED, **said}})}


ALL = ("rescan", "slot_power", "gpu_reset", "module_reload", "allow_reboot")


def test_nothing_is_said_where_nothing_is_switched_on() -> None:
    """Which is how it comes."""
    assert list(of_recovery(Config(), None)) == []


def test_the_shipped_unit_forbids_what_it_forbids() -> None:
    """And no drop-in is needed for the rest."""
    assert verdicts(*ALL) == {"rescan": BAD, "slot-power": BAD, "gpu-reset": OK, "module-reload": BAD, "reboot": OK}


@pytest.mark.parametrize("said", [{"ReadWritePaths": OPEN}, {"ReadWritePaths": "-/sys"}, {"ProtectKernelTunables": "no"}])
def test_the_drop_in_allows_what_it_is_for(said: Mapping[str, str]) -> None:
    """By its own words, or wider ones."""
    assert verdicts("rescan", "slot_power", **said) == {"rescan": OK, "slot-power": OK}


def test_half_of_it_is_not_enough() -> None:
    """Devices lie below the one, their names below the other; a module needs the right and the door."""
    assert verdicts("rescan", ReadWritePaths="/sys/bus/pci") == {"rescan": BAD}
    assert verdicts("module_reload", ProtectKernelModules="no") == {"module-reload": BAD}
    assert verdicts("module_reload", ProtectKernelModules="no", CapabilityBoundingSet="cap_sys_module") == {"module-reload": OK}


def test_what_to_do_is_said() -> None:
    """With the setting that is in the way."""
    (found,) = of_recovery(config("rescan"), {SERVICE: SHIPPED})
    assert "ProtectKernelTunables=" in found.text
    assert "systemd/recovery.conf" in found.cure


def test_without_systemd_without_the_service_and_without_an_engine() -> None:
    """Nobody knows; nobody is there to do it; and there is nobody to do it for."""
    assert [found.verdict for found in of_recovery(config("rescan"), None)] == [UNKNOWN]
    assert [found.verdict for found in of_recovery(config("rescan"), {SERVICE: {"LoadState": "not-found"}})] == [WARNING]
    first, *_ = of_recovery(config("rescan", engines=False), {SERVICE: SHIPPED})
    assert (first.verdict, "no engine" in first.text) == (WARNING, True)
