"""A systemctl that plays a script: what it shows now, what each order makes of that, look by look.

    systemd = Systemd(tmp_path)
    systemd.shows(ActiveState="active")
    systemd.on("stop", {"ActiveState": "deactivating", "Job": 7}, {"ActiveState": "inactive", "Job": ""})
    Stop(systemd.service(), ...).run()
    systemd.orders                          # ["stop --no-block -- engine.service"]

Around it a control group and processes as `EngineHost` has them, and a clock that moves only when somebody pauses.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.fakes.clock import MONO
from tests.fakes.engine import EngineHost
from xidwatch.supervise.service import Service

UNIT = "engine.service"
SCRIPT = """#!/bin/sh
here="{here}"
[ ! -e "$here/hangs" ] || exec cat "$here/hangs"
verb=$1
if [ "$verb" = show ]; then
    cat "$here/now"
    next=$(ls "$here/then" | head -n 1)
    [ -z "$next" ] || mv "$here/then/$next" "$here/now"
    exit
fi
echo "$*" >>"$here/orders"
if [ -e "$here/objects" ]; then cat "$here/objects" >&2; exit 1; fi
[ ! -d "$here/on-$verb" ] || mv "$here/on-$verb/"* "$here/then/"
next=$(ls "$here/then" | head -n 1)
[ -z "$next" ] || mv "$here/then/$next" "$here/now"
"""
RUNNING: Mapping[str, object] = {
    "Id": UNIT,
    "Names": UNIT,
    "LoadState": "loaded",
    "UnitFileState": "enabled",
    "ActiveState": "active",
    "SubState": "running",
    "Result": "success",
    "InvocationID": "aaaa",
    "ControlGroup": f"/system.slice/{UNIT}",
    "Job": "",
    "ConditionResult": "yes",
    "NRestarts": 0,
    "ExecMainStatus": 0,
    "UID": "[not set]",
}
DOWN: Mapping[str, object] = {"ActiveState": "inactive", "SubState": "dead", "ControlGroup": ""}


class Systemd:
    """One unit, running, with two processes."""

    def __init__(self, folder: Path) -> None:
        self.host = EngineHost(folder / "host")
        self.mono = MONO
        self.paused: list[float] = []
        self.seen: list[Mapping[str, object]] = []
        self._here = folder / "systemd"
        (self._here / "then").mkdir(parents=True)
        self._script = self._here / "systemctl"
        self._script.write_text(SCRIPT.format(here=self._here))
        self._script.chmod(0o755)
        self._count = 0
        self._shown = dict(RUNNING)
        self.shows()
        self.host.unit(UNIT, pids=[4711, 4712])
        for pid in (4711, 4712):
            self.host.process(pid, "VLLM::Worker TP")

    @property
    def places(self) -> dict[str, object]:
        """As a job names them."""
        return {"systemctl": str(self._script), "cgroup_root": str(self.host.cgroup_root), "proc_root": str(self.host.proc_root)}

    def service(self) -> Service:
        """The unit as the code under test has it."""
        return Service(
            UNIT,
            self.seen.append,
            systemctl=str(self._script),
            cgroup_root=self.host.cgroup_root,
            proc_root=self.host.proc_root,
            monotonic=self.monotonic,
        )

    def monotonic(self) -> float:
        return self.mono

    def pause(self, seconds: float) -> None:
        self.paused.append(seconds)
        self.mono += seconds

    # --- what it shows

    def shows(self, **changes: object) -> None:
        """From now on."""
        self._shown.update(changes)
        (self._here / "now").write_text(self._text(self._shown))

    def on(self, verb: str, *looks: Mapping[str, object]) -> None:
        """What each look after the order shows, on top of the one before."""
        folder = self._here / f"on-{verb}"
        folder.mkdir(exist_ok=True)
        shown = dict(self._shown)
        for look in looks:
            shown.update(look)
            self._count += 1
            (folder / f"{self._count:04d}").write_text(self._text(shown))

    def objects(self, text: str) -> None:
        """To every order."""
        (self._here / "objects").write_text(text)

    def knows_nothing_of_it(self) -> None:
        """Such a call succeeds."""
        self.shows(LoadState="not-found", **DOWN)

    @staticmethod
    def _text(shown: Mapping[str, object]) -> str:
        return "".join(f"{name}={value}\n" for name, value in shown.items())

    @property
    def orders(self) -> list[str]:
        path = self._here / "orders"
        return path.read_text().splitlines() if path.exists() else []

    # --- its processes

    def nobody_is_left(self) -> None:
        """Its control group is gone with the last of them."""
        self.host.stopped(UNIT)

    def one_is_left(self, waits_in: str = "") -> None:
        """Of two processes."""
        self.host.unit(UNIT, pids=[4712])
        self.host.process(4712, "VLLM::Worker TP", waits_in=waits_in)
