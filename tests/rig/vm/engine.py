"""The engine that xidwatch is to stop and start: a stand-in with a unit, an HTTP server, workers and bad manners on request."""

from __future__ import annotations

import json

from tests.rig.vm.guest import PATIENCE_SECONDS, Guest

UNIT = "engine.service"
OWED = "the gate"
CONFIG = f"""
[[engines]]
unit = "{UNIT}"
gpus = "all"
probe = "http://127.0.0.1:8000/v1"
"""
GATE = f"[Service]\nExecCondition=+/usr/local/bin/xidwatch gate {UNIT}\n"
OPEN, CLOSED, UNKNOWN = 0, 2, 3
PROMPT = json.dumps({"model": "rig", "prompt": "hello", "max_tokens": 1})


class Engine:
    """Supervised from the beginning, and running. `manners`: options of the stand-in."""

    def __init__(self, guest: Guest, manners: str = "") -> None:
        self._guest = guest
        guest.run("xidwatch gate --help")  # what is owed is not there: fails here, and at once
        drop_in = GATE
        if manners:
            drop_in += f"ExecStart=\nExecStart=/usr/bin/python3 /usr/local/lib/rig/engine.py {manners}\n"
        guest.put(f"/etc/systemd/system/{UNIT}.d/50-xidwatch.conf", drop_in)
        guest.run(f"systemctl daemon-reload; systemctl enable {UNIT}")
        guest.configure(CONFIG)
        guest.run(f"systemctl start {UNIT}")
        self.until("active")

    def state(self) -> str:
        """What systemd says of it: active, inactive, failed."""
        return self._guest.unit(UNIT)["ActiveState"]

    def until(self, *states: str) -> None:
        """Wait for it, however many ticks it takes."""
        self._guest.until(f"{UNIT} is {' or '.join(states)}", lambda: self.state() in states, seconds=2 * PATIENCE_SECONDS)

    def stays(self, *states: str, ticks: int = 8) -> None:
        """Nothing else for so many ticks."""
        for _ in range(ticks):
            self._guest.ticks_more(1)
            assert self.state() in states, f"{UNIT} became {self.state()}"

    def gate(self) -> int:
        """Exit status of `xidwatch gate`."""
        return int(self._guest.run(f"xidwatch gate {UNIT} >/dev/null 2>&1; echo $?"))

    def supervised_as(self) -> str:
        """The gate's own state of it, as in state.json."""
        return str(self._guest.state()["engines"][UNIT]["state"])

    def answers(self) -> str:
        """The token it gives for a prompt."""
        request = f"POST /v1/completions HTTP/1.0\\r\\nContent-Length: {len(PROMPT)}\\r\\n\\r\\n"
        page = self._guest.run(f"exec 3<>/dev/tcp/127.0.0.1/8000; printf '{request}' >&3; printf '%s' '{PROMPT}' >&3; cat <&3")
        return str(json.loads(page.partition("\r\n\r\n")[2])["choices"][0]["text"])
