"""What a scenario does to the guest, and how it looks at what came of it.

    guest.switch.vanish()
    guest.until_condition("ConfigSpaceAllOnes", "port:0000:01:00.0", "TRUE")
    assert guest.records().incidents

Everything waits for something that happens, with a deadline, and nothing for time to pass: the agent watches the files.
"""

from __future__ import annotations

import io
import json
import shlex
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.fakes.nvml_library import NvmlLibrary
from tests.rig.vm.hardware import Disk, Rails, Switch, aer_injection
from tests.rig.vm.machine import GPUS, Machine
from tests.rig.vm.records import Records

T = TypeVar("T")

PATIENCE_SECONDS = 180.0  # the host may have other work
UNIT = "xidwatch.service"
STATE = "/run/xidwatch/state.json"
RECORDS = "/var/lib/xidwatch"
DRIVER = "/var/lib/nvml-fake"
WATCHED = ("/run/xidwatch", f"{RECORDS}/journal", f"{RECORDS}/incidents")
CONFIG = 'interval = "2s"\n'
METRICS = "127.0.0.1/20079"
SAY = "/sys/module/nvidia/parameters/say"


class Failed(AssertionError):
    """The guest did not become what the scenario says it should."""


class GuestNvml(NvmlLibrary):
    """The fake NVIDIA library, answering for the guest's GPUs; every change is in the guest when it returns."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        super().__init__(Path("/"), Path("/"), first_bus=int(GPUS[0][:2], 16))

    def _write(self, state: str) -> None:
        self._guest.put(f"{DRIVER}/state", state)

    def _counters(self) -> bytes:
        return self._guest.get(f"{DRIVER}/calls")


class Guest:
    """A machine with xidwatch in it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.switch = Switch(self)
        self.rails = Rails(self)
        self.nvml = GuestNvml(self)
        self.say: Callable[[str], None] = lambda _: None  # what a run wants to have told beside its line
        self._copies: list[Path] = []

    def close(self) -> None:
        """Nothing is left of it."""
        self.machine.close()
        for copy in self._copies:
            shutil.rmtree(copy, ignore_errors=True)

    # --- commands and files

    def run(self, command: str, seconds: float = 60.0, *, check: bool = True) -> str:
        """A shell command's output, both streams. Raises Failed when it fails (unless `check` is false) or goes on for longer."""
        request: dict[str, object] = {"do": "run", "command": command, "seconds": seconds}
        answer, output = self.machine.ask(request, seconds=seconds)
        text = output.decode(errors="replace")
        if answer["status"] is None or (check and answer["status"]):
            how = "goes on" if answer["status"] is None else f"ended with {answer['status']}"
            raise Failed(f"{command}: {how}\n{text}")
        return text

    def put(self, path: str, content: str | bytes, mode: int = 0o644) -> None:
        """A file, as a whole or not at all."""
        data = content.encode() if isinstance(content, str) else content
        self.machine.ask({"do": "put", "path": path, "mode": mode}, data)

    def get(self, path: str) -> bytes:
        """A file's content, empty when there is none."""
        return self.machine.ask({"do": "get", "path": path})[1]

    def unpack(self, archive: bytes, folder: str) -> None:
        """The content of a tar archive into a folder."""
        self.put("/run/rig.tar", archive)
        self.run(f"tar -x -f /run/rig.tar -C {shlex.quote(folder)}; rm /run/rig.tar")

    # --- waiting

    def until(self, what: str, wanted: Callable[[], T | None], *paths: str, seconds: float = PATIENCE_SECONDS) -> T:
        """The first truthy answer of `wanted`, asked again whenever a file below `paths` (else xidwatch's) changes. Raises Failed."""
        deadline = time.monotonic() + seconds
        seen = ""
        while not (found := wanted()):
            left = deadline - time.monotonic()
            if left <= 0:
                raise Failed(f"not within {seconds:g} s: {what}\n{self.story()}")
            request: dict[str, object] = {"do": "await", "paths": list(paths or WATCHED), "seen": seen, "seconds": left}
            seen = self.machine.ask(request, seconds=left)[0]["seen"]
        return found

    def until_condition(self, type_: str, subject: str, status: str) -> None:
        """Wait until state.json says so."""
        self.until(f"{type_} {subject} {status}", lambda: self.condition(type_, subject) == status)

    def until_record(self, kind: str, **body: object) -> Records:
        """Wait until the journal has an entry of that kind whose body says all this; all records as they are then."""

        def found() -> Records | None:
            records = self.records()
            return records if records.of(kind, **body) else None

        return self.until(f"a record {kind} {body}", found)

    def until_in_full(self, probe: str) -> None:
        """Wait until a probe's latest answer is a full one."""
        self.until(f"{probe} answers in full", lambda: self.records().cells(f"probe:{probe}:success")[-1] == "1")

    def ticks_more(self, count: int) -> None:
        """Wait for so many further ticks."""
        wanted = self.tick() + count
        self.until(f"tick {wanted}", lambda: self.tick() >= wanted)

    # --- looking

    def state(self) -> dict[str, Any]:
        """state.json, whatever its age; empty when there is none."""
        return dict(json.loads(self.get(STATE) or b"{}"))

    def tick(self) -> int:
        """The number of the latest finished tick, 0 before the first."""
        return int(self.state().get("tick") or 0)

    def condition(self, type_: str, subject: str) -> str:
        """Its status in state.json, or nothing."""
        found = (each["status"] for each in self.state().get("conditions", ()) if (each["type"], each["subject"]) == (type_, subject))
        return str(next(found, ""))

    def records(self) -> Records:
        """All that is on record now."""
        copy = Path(tempfile.mkdtemp(prefix="xidwatch-rig-"))
        self._copies.append(copy)
        self.run(f"tar -c -f /run/rig.tar --warning=no-file-changed -C {RECORDS} . || [ $? = 1 ]")
        with tarfile.open(fileobj=io.BytesIO(self.get("/run/rig.tar"))) as archive:
            archive.extractall(copy, filter="data")
        return Records(copy)

    def metrics(self) -> dict[str, float]:
        """One scrape: series as printed to value."""
        page = self.run(f"exec 3<>/dev/tcp/{METRICS}; printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3")
        lines = page.partition("\r\n\r\n")[2].splitlines()
        pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {series: float(value) for series, _, value in pairs}

    def records_behind(self) -> float:
        """Seconds by which the disk is behind the memory."""
        return self.metrics()["xidwatch_records_behind_seconds"]

    def report(self) -> dict[str, Any]:
        """`xidwatch report --format json`."""
        return dict(json.loads(self.run("xidwatch report --format json", check=False)))

    def unit(self, name: str = UNIT) -> dict[str, str]:
        """Every property systemd has of a unit."""
        lines = self.run(f"systemctl show {name}").splitlines()
        return {key: value for key, _, value in (line.partition("=") for line in lines)}

    def story(self) -> str:
        """What happened lately, for whoever has to find out why a scenario failed."""
        said = self.run(f"journalctl --no-pager -o cat -u {UNIT} | grep -v ^tick | tail -n 40", check=False)
        conditions = self.state().get("conditions", ())
        return said + "".join(
            f"{each['type']} {each['subject']} {each['status']}: {each['reason']}\n" for each in conditions if each["status"] != "FALSE"
        )

    # --- doing

    def configure(self, text: str) -> None:
        """A configuration beside the rig's own, and a restart to take it over."""
        self.put("/etc/xidwatch/config.toml", f"{CONFIG}{text}")
        self.run(f"systemctl restart {UNIT}", seconds=120)
        self.until("it samples again", lambda: self.tick() >= 2 and self.state().get("pid"))

    def allow_writing(self, folder: str) -> None:
        """As README has it for a second evidence directory."""
        self.put("/etc/systemd/system/xidwatch.service.d/evidence.conf", f"[Service]\nReadWritePaths=-{folder}\n")
        self.run("systemctl daemon-reload")

    def on_a_disk_of_its_own(self) -> Disk:
        """Begin anew with the evidence on a small disk that can be full or frozen."""
        self.run(f"systemctl stop {UNIT}; rm -rf {RECORDS}", seconds=60)
        disk = Disk(self, RECORDS)
        self.run(f"systemctl start {UNIT}", seconds=60)
        return disk

    def replace_probe(self, name: str, source: str) -> None:
        """Another module in the place of a probe's, and a restart."""
        place = f"/opt/xidwatch/lib/python3.11/site-packages/xidwatch/probes/{name}.py"
        self.put(place, source)
        self.run(f"rm -f {place.replace(name + '.py', '__pycache__/' + name)}.*.pyc; systemctl restart {UNIT}", seconds=60)

    def leave(self, command: str) -> None:
        """A command after which nobody answers."""
        self.machine.send({"do": "run", "command": command, "seconds": 60})

    def kernel_says(self, *lines: str) -> None:
        """Lines of true kernel origin."""
        self.run("".join(f"echo {shlex.quote(line)} >{SAY}\n" for line in lines))

    def root_says(self, *lines: str) -> None:
        """The same through /dev/kmsg, as any process of root's can."""
        self.run("".join(f"echo {shlex.quote(line)} >/dev/kmsg\n" for line in lines))

    def inject_aer(self, address: str, times: int = 1, *, correctable: int = 0, uncorrectable: int = 0) -> None:
        """Errors as if the device had signalled them, each counted by the kernel; status bits as in the AER registers."""
        request = aer_injection(address, correctable=correctable, uncorrectable=uncorrectable).hex()
        self.run(f"modprobe aer_inject; python3 /usr/local/lib/rig/inject_aer.py 0000:{address} {request} {times}", seconds=120)
