"""The engine that xidwatch is to stop and start: a stand-in with a unit, an HTTP server, workers and bad manners on request."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.rig.vm.build import ROOT
from tests.rig.vm.guest import PATIENCE_SECONDS, Failed, Guest

UNIT = "engine.service"
CONFIG = f"""
[[engines]]
unit = "{UNIT}"
gpus = "all"
probe = "http://127.0.0.1:8000/v1"
settle = "6s"
back_off = "2s"
ready_within = "3m"
stop_within = "1m"
"""
GATE = (ROOT / "systemd/engine-gate.conf").read_text()
OPEN, CLOSED, UNKNOWN = 0, 2, 3
PROMPT = json.dumps({"model": "rig", "prompt": "hello", "max_tokens": 1})


def supervise(guest: Guest) -> None:
    """From a guest that only watches to one whose engine is behind an accepted baseline, proven, and started."""
    guest.put(f"/etc/systemd/system/{UNIT}.d/50-xidwatch.conf", GATE)
    guest.run(f"systemctl daemon-reload; systemctl enable {UNIT}")
    guest.configure(CONFIG)
    guest.run("xidwatch check --accept --yes")
    guest.run(f"systemctl start {UNIT}")  # which leaves it out: nothing is proven yet in this boot
    Engine(guest).until_gate("RUNNING")


class Engine:
    """That of a supervised guest, running; begun anew when it is to have `manners`, options of the stand-in."""

    def __init__(self, guest: Guest, manners: str = "") -> None:
        self._guest = guest
        if manners:
            guest.put("/etc/default/engine", f'MANNERS="{manners}"\n')
            guest.run(f"systemctl stop {UNIT}")
            self.until_gate("OFF")  # or the next would be mistaken for this one
            guest.run(f"systemctl start {UNIT}")
            guest.until("it answers, so that all its processes are there", lambda: self._asked().endswith("}"))
            self.until_gate("RUNNING")

    def state(self) -> str:
        """What systemd says of it: active, inactive, failed."""
        return self._guest.unit(UNIT)["ActiveState"]

    def until(self, *states: str) -> None:
        """Wait for it, however many ticks it takes."""
        self._guest.until(f"{UNIT} is {' or '.join(states)}", lambda: self.state() in states, seconds=2 * PATIENCE_SECONDS)

    def until_gate(self, state: str) -> None:
        """Wait until its gate is there."""
        wanted = f"the gate of {UNIT} is {state}"
        try:
            self._guest.until(wanted, lambda: self.supervised_as() == state, seconds=2 * PATIENCE_SECONDS)
        except Failed as error:
            raise Failed(f"{error}\nits gate: {self._told()}") from None

    def stays(self, *states: str, ticks: int = 8) -> None:
        """Nothing else for so many ticks."""
        for _ in range(ticks):
            self._guest.ticks_more(1)
            assert self.state() in states, f"{UNIT} became {self.state()}"

    def gate(self) -> int:
        """Exit status of `xidwatch gate`."""
        return int(self._guest.run(f"xidwatch gate {UNIT} >/dev/null 2>&1; echo $?"))

    def supervised_as(self) -> str:
        """The gate's own state of it, as in state.json; empty while nothing has been said in this boot."""
        return str(self._told().get("state", ""))

    def _told(self) -> Mapping[str, object]:
        engines: Mapping[str, Mapping[str, object]] = self._guest.state().get("engines", {})
        return engines.get(UNIT, {})

    def answers(self) -> str:
        """The token it gives for a prompt."""
        return str(json.loads(self._asked().partition("\r\n\r\n")[2])["choices"][0]["text"])

    def _asked(self) -> str:
        request = f"POST /v1/completions HTTP/1.0\\r\\nContent-Length: {len(PROMPT)}\\r\\n\\r\\n"
        talk = f"exec 3<>/dev/tcp/127.0.0.1/8000 && printf '{request}' >&3 && printf '%s' '{PROMPT}' >&3 && cat <&3"
        return self._guest.run(talk, check=False)
