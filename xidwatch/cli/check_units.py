"""For `check`: what stands between a start of an engine and its gate, by systemd's word and docker's files. No command of its own.

    Id=vllm.service
    UnitFileState=enabled
    ExecConditionEx={ path=/bin/sh ; argv[]=/bin/sh -c ... xidwatch gate ... ; flags=privileged ; ... }

    /var/lib/docker/containers/5f0c.../hostconfig.json     {"RestartPolicy":{"Name":"unless-stopped"},"DeviceRequests":[...]}
    /var/lib/docker/containers/5f0c.../config.v2.json      {"Name":"/vllm","State":{"Running":true}}

Sources: systemd.service(5), systemctl(1); docker's engine API, HostConfig; the container device interface (nvidia.com/gpu).
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xidwatch.core.model import Missing
from xidwatch.probes import engine_containers
from xidwatch.probes.child import Listener
from xidwatch.probes.engine_units import blocks, is_booted, systemctl

OK, WARNING, BAD, UNKNOWN = "ok", "warning", "bad", "unknown"
PROPERTIES = (
    "Id", "Names", "LoadState", "UnitFileState", "ActiveState", "User", "NeedDaemonReload", "ExecConditionEx", "ExecStart",
    "ProtectKernelTunables", "ReadWritePaths", "ProtectKernelModules", "CapabilityBoundingSet",
)  # fmt: skip
ANSWER_SECONDS = 5.0
MOST_BYTES = 1024 * 1024
MOST_CONTAINERS = 1000
NEVER_STARTED = frozenset({"disabled", "masked", "masked-runtime"})
RESTARTED = frozenset({"always", "unless-stopped", "on-failure"})
DROP_IN_PLACES = ("etc/systemd/system", "run/systemd/system")
GATE_DROP_INS = "*.service.d/50-xidwatch*.conf"  # of scripts/install-gate.sh
PERSISTENCED = "nvidia-persistenced.service"

Properties = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. `cure`: what to do, where there is something to do."""

    area: str
    about: str
    verdict: str
    text: str
    cure: str = ""


# ------------------------------------------------------------------------------------------------------------ systemd


def ask_systemd(units: tuple[str, ...], root: Path = Path("/")) -> Mapping[str, Properties] | None:
    """What it says of them, by name; None when it does not run here, or does not answer."""
    if not is_booted(root / "run"):
        return None
    question = [systemctl(), "show", "--no-pager", f"--property={','.join(PROPERTIES)}", "--", *units]
    answer = Listener(MOST_BYTES).ask(question, time.monotonic() + ANSWER_SECONDS)
    return None if isinstance(answer, Missing) or not answer else blocks(answer.decode(errors="replace"))


def of_engine(unit: str, known: Mapping[str, Properties] | None) -> Iterator[Check]:
    """Is there such a unit, may it be started, and is its start asked about?"""
    if known is None or unit not in known:
        yield Check("engines", unit, UNKNOWN, "systemd does not answer, so nobody can say how it is started")
        return
    said = known[unit]
    if said.get("LoadState") == "not-found":
        yield Check("engines", unit, BAD, "systemd knows no such unit", "correct the name under [[engines]], or make the unit")
        return
    if said.get("UnitFileState") in NEVER_STARTED:
        yield Check(
            "engines", unit, WARNING, f"is {said['UnitFileState']}: it is never started", f"systemctl enable {unit}, if it is to run"
        )
    yield _gate(unit, said)
    starts = engine_containers.wanted(said.get("ExecStart", ""))
    if starts.any and not starts.names | starts.parents:
        text = "starts a container without a --name, whose processes are in no group of the unit's: they and its GPUs are not found"
        yield Check(
            "engines",
            unit,
            WARNING,
            text,
            'give it a --name, or name its GPUs (gpus = "all", or their addresses); and stop the container in ExecStop=',
        )


def _gate(unit: str, said: Properties) -> Check:
    condition = said.get("ExecConditionEx", "")
    install = f"make install-gate UNIT={unit}, then systemctl daemon-reload"
    if "xidwatch" not in condition or " gate " not in condition:
        if said.get("NeedDaemonReload") == "yes":
            return Check("engines", unit, WARNING, "has changed on the disk, and systemd does not know of it", "systemctl daemon-reload")
        return Check("engines", unit, WARNING, "is not gated: at a boot it starts on whatever is there", install)
    if "privileged" not in condition and said.get("User"):
        text = f"its condition runs as {said['User']}, in the unit's sandbox, and may never be able to answer"
        return Check("engines", unit, BAD, text, install)
    return Check("engines", unit, OK, "is gated: xidwatch is asked before every start")


def of_stray_gates(units: Collection[str], root: Path = Path("/")) -> Iterator[Check]:
    """Drop-ins of ours beside units that no [[engines]] table has: their gate is unknown for ever, so that they never start."""
    own = {*units, *map(_template, units)}
    for path in sorted(path for place in DROP_IN_PLACES for path in (root / place).glob(GATE_DROP_INS)):
        unit = path.parent.name.removesuffix(".d")
        if unit not in own and _asks_gate(path):
            cure = f'add [[engines]] with unit = "{unit}" and restart xidwatch, or make uninstall-gate UNIT={unit}; systemctl daemon-reload'
            yield Check("engines", unit, BAD, f"is gated ({path}), and no [[engines]] table has it: it never starts", cure)


def _template(unit: str) -> str:
    """`vllm@.service` of `vllm@0.service`, which has its drop-ins too."""
    name, at, rest = unit.partition("@")
    return f"{name}@.{rest.rpartition('.')[2]}" if at else unit


def _asks_gate(path: Path) -> bool:
    try:
        lines = path.read_bytes()[:MOST_BYTES].decode(errors="replace").splitlines()
    except OSError:
        return False
    return any(line.startswith("ExecCondition=") and "xidwatch" in line and " gate " in line for line in lines)


# ----------------------------------------------------------------------------------------------------------- containers


def of_containers(root: Path = Path("/")) -> Iterator[Check]:
    """Those with GPUs that docker itself starts again: they go round every gate."""
    folder = _data_root(root) / "containers"
    try:
        places = sorted(folder.iterdir())[:MOST_CONTAINERS]
    except FileNotFoundError:
        return
    except OSError as error:
        text = f"docker's containers cannot be looked at: {(error.strerror or str(error)).lower()}"
        yield Check("containers", str(folder), UNKNOWN, text, "run this as root")
        return
    for place in places:
        host, config = _document(place / "hostconfig.json"), _document(place / "config.v2.json")
        policy = _text(_table(host, "RestartPolicy"), "Name")
        if policy in RESTARTED and uses_gpus(host):
            name = _text(config, "Name").lstrip("/") or place.name[:12]
            text = f"uses GPUs and is started again by docker itself (restart: {policy}), whatever its gate says"
            yield Check("containers", name, BAD, text, f"docker update --restart=no {name}, and let a systemd unit start it")


def uses_gpus(host: Mapping[str, Any]) -> bool:
    """By request, by CDI name, by the NVIDIA runtime, or by device nodes."""
    for request in _tables(host, "DeviceRequests"):
        wanted = json.dumps([request.get("Capabilities"), request.get("DeviceIDs"), request.get("Driver")]).lower()
        if "gpu" in wanted or "nvidia" in wanted:
            return True
    nodes = (_text(device, "PathOnHost") for device in _tables(host, "Devices"))
    return _text(host, "Runtime").startswith("nvidia") or any(node.startswith("/dev/nvidia") for node in nodes)


def _data_root(root: Path) -> Path:
    """/var/lib/docker, unless its configuration says otherwise."""
    chosen = _text(_document(root / "etc/docker/daemon.json"), "data-root") or "/var/lib/docker"
    return root / chosen.lstrip("/")


def _document(path: Path) -> Mapping[str, Any]:
    """A table; empty for what cannot be read, or is none."""
    try:
        found = json.loads(path.read_bytes()[:MOST_BYTES])
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    return value if isinstance(value, str) else ""


def _table(table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = table.get(key)
    return value if isinstance(value, dict) else {}


def _tables(table: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = table.get(key)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
