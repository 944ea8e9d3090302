"""An engine on the container's host: a unit behind the gate, with a server, two workers, and bad manners on request.

engine = Engine(host, "--deaf")
host.tree.die(SWITCH)
engine.until("HELD")

Another program for the same unit is a class of its own: llama.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from itertools import groupby

from tests.daemon.harness import free_port
from tests.rig.container.disk import ROOT
from tests.rig.container.host import Host
from xidwatch.records import samples

UNIT = "engine.service"
PROGRAM = ROOT / "tests/rig/vm/programs/usr/local/lib/rig/engine.py"
UNIT_FILE = """
[Service]
ExecStart={command}
TimeoutStopSec={stop_seconds}
{more}
[Install]
WantedBy=multi-user.target
"""
CONFIG = """
[[engines]]
unit = "{unit}"
gpus = "all"
probe = "http://127.0.0.1:{port}/v1"
settle = "1s"
back_off = "1s"
ready_within = "{ready_within}"
stop_within = "30s"
"""
GATE_SECONDS = 120.0  # for a state that takes a stop or a start, on a busy machine
# What was bad is good again after two looks: the shipped rules wait for a minute.
QUICK = "".join(f'[conditions.{each}]\nclear = "1s"\n' for each in ("ConfigSpaceAllOnes", "GpuLost", "GpuMissing", "PortMissing"))


class Engine:
    """Supervised, behind an accepted baseline, proven, and started: which is the first of its starts. `more`: further lines of its unit."""

    program = PROGRAM
    command = "/usr/bin/python3 /rig/engine.py --port {port} {manners}"
    ready_within = "1m"
    more_config = ""

    def __init__(self, host: Host, manners: str = "", *, stop_seconds: int = 1, more: str = "") -> None:
        self.host = host
        self.port = free_port()
        shutil.copy(self.program, host.tree.root.parent)
        install = [str(ROOT / "scripts/install-gate.sh"), UNIT]
        subprocess.run(install, env={**os.environ, "DESTDIR": str(host.disk.root)}, check=True, capture_output=True, timeout=60)
        command = self.command.format(port=self.port, manners=manners)
        host.add_unit(UNIT, UNIT_FILE.format(command=command, stop_seconds=stop_seconds, more=more))
        host.run("systemctl", "enable", "--runtime", UNIT)
        rules = host.disk.root / "etc/xidwatch/rules.d"
        rules.mkdir(parents=True)
        (rules / "quick.toml").write_text(QUICK)
        config = CONFIG.format(unit=UNIT, port=self.port, ready_within=self.ready_within)
        host.configure(interval="0.5s", more_tables=config + self.more_config.format(port=self.port))
        host.start()
        host.until("a baseline worth accepting", lambda: host.container.attempt("xidwatch", "check", "--accept", "--yes").returncode == 0)
        host.run("systemctl", "start", UNIT)  # which leaves it out: nothing is proven yet in this boot
        self.until("RUNNING")

    def gate(self) -> str:
        """The gate's state of it, as in state.json."""
        shown = self.host.state()
        engine = (shown.engines or {}).get(UNIT) if shown else None
        return engine.state if engine and engine.state else ""

    def why(self) -> str:
        """The gate's reason."""
        shown = self.host.state()
        engine = (shown.engines or {}).get(UNIT) if shown else None
        return (engine.why or "") if engine else ""

    def until(self, *states: str) -> None:
        """Wait until its gate is there."""
        try:
            self.host.until(f"the gate is {' or '.join(states)}", lambda: self.gate() in states, seconds=GATE_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.gate()}: {self.why()}") from None

    def moves(self) -> list[str]:
        """The states its gate has been in, as they stand on record."""
        return [state for state, _ in groupby(entry.body["state"] for entry in self.host.records() if entry.kind == "gate")]

    def seen(self) -> dict[str, str]:
        """The youngest row of it: quantity to text."""
        rows = [row for path in samples.files(self.host.state_dir / samples.FOLDER) for row in samples.read(path, [])]
        of_it = f"engine:{UNIT}:"
        return {name.removeprefix(of_it): text for name, text in rows[-1].cells.items() if name.startswith(of_it)} if rows else {}

    def runs(self) -> bool:
        """As systemd sees it."""
        return self.host.container.show(UNIT, "ActiveState")["ActiveState"] == "active"

    def pids(self) -> list[int]:
        """Everybody in its control group, by their numbers in the container."""
        said = self.host.container.attempt("cat", f"/sys/fs/cgroup/system.slice/{UNIT}/cgroup.procs").stdout
        return [int(line) for line in said.split()]
