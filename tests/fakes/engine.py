"""A host with engines, as the engine probe sees it: units, control groups, processes, a systemctl, and metrics pages.

    host = EngineHost(tmp_path)
    host.unit("vllm.service", pids=[4711, 4712])
    host.process(4711, "VLLM::EngineCore", waits_in="os_acquire_rwlock_write")   # a thread of it in state D
    host.systemctl("hang")                           # or "stubborn", "garbage", "half", "flood", "fail", "absent", "answer"
    with Page() as page:
        page.says(VLLM)                              # or page.does("drip"), "silent", "flood", "reset", "half", "rubbish", ...
        create({**host.options, "engines": [{"unit": "vllm.service", "metrics": page.url}]})

What must not be opened of a process (its command line and whatever else takes the lock of its memory) is a FIFO here: whoever
opens it waits for ever.
"""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

LOCKED = ("cmdline", "environ", "maps", "smaps", "exe")
INVOCATION = "3a3b6c1c59b44b7bb9f0d8f2c9f7f2b1"
DRIP_SECONDS = 0.01
PATIENCE_SECONDS = 60.0

# `hang` ends when it is told to, `stubborn` does not; both go on when somebody has opened and closed the FIFO.
SYSTEMCTL = """#!/bin/sh
here="{here}"
echo "$*" >> "$here/asked"
case $(cat "$here/mode") in
    answer) cat "$here/answer" ;;
    hang) exec cat "$here/gate" ;;
    stubborn) trap '' TERM; exec cat "$here/gate" ;;
    garbage) printf '\\377\\376 not what was asked for\\n\\000\\n' ;;
    half) head -c 40 "$here/answer" ;;
    flood) exec yes ActiveState=active ;;
    fail) echo 'Failed to connect to bus' >&2; exit 1 ;;
esac
"""


class EngineHost:
    """Folders that look like /run, /proc and /sys/fs/cgroup as far as engines go."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.run_root, self.proc_root, self.cgroup_root = root / "run", root / "proc", root / "cgroup"
        self.bin = root / "bin"
        self._units: dict[str, dict[str, object]] = {}
        for folder in (self.run_root / "systemd/system", self.run_root / "systemd/units", self.cgroup_root / "system.slice", self.bin):
            folder.mkdir(parents=True)
        self.proc_root.mkdir()
        self.gate = self.bin / "gate"
        os.mkfifo(self.gate)
        script = self.bin / "systemctl"
        script.write_text(SYSTEMCTL.format(here=self.bin))
        script.chmod(0o755)
        self.systemctl("answer")

    @property
    def options(self) -> dict[str, object]:
        """What `create` is given beside the engines."""
        roots = {"run_root": self.run_root, "proc_root": self.proc_root, "cgroup_root": self.cgroup_root}
        return {"systemctl": str(self.bin / "systemctl"), **{name: str(path) for name, path in roots.items()}}

    # --- systemd

    def systemctl(self, mode: str) -> None:
        """What it does from now on."""
        if mode == "absent":
            (self.bin / "systemctl").unlink()
        else:
            _write(self.bin / "mode", mode)

    def asked(self) -> list[str]:
        """The words of every call so far."""
        path = self.bin / "asked"
        return path.read_text().splitlines() if path.exists() else []

    def unit(self, name: str, pids: Iterable[int] = (), *, place: str = "system.slice", **properties: object) -> None:
        """A unit that runs, with its control group; properties by systemd's names, None takes one away. Again: changes it."""
        known = self._units.setdefault(
            name,
            {
                "Id": name,
                "Names": name,
                "LoadState": "loaded",
                "UnitFileState": "enabled",
                "ActiveState": "active",
                "SubState": "running",
                "InvocationID": INVOCATION,
                "MainPID": next(iter(pids), 0),
                "ControlGroup": f"/{place}/{name}",
                "NRestarts": 0,
                "Result": "success",
                "ExecMainCode": 0,
                "ExecMainStatus": 0,
                "StateChangeTimestampMonotonic": 1_000_000,
            },
        )
        known.update(properties)
        group = self.cgroup_root / place / name
        group.mkdir(parents=True, exist_ok=True)
        _write(group / "cgroup.procs", "".join(f"{pid}\n" for pid in pids))
        link = self.run_root / "systemd/units" / f"invocation:{name}"
        link.unlink(missing_ok=True)
        if known["InvocationID"] and known["ActiveState"] != "inactive":
            link.symlink_to(str(known["InvocationID"]))
        self._answer()

    def stopped(self, name: str, **properties: object) -> None:
        """The unit is down and its group gone."""
        self._units[name].update(properties)
        self.unit(name, ActiveState="inactive", SubState="dead", MainPID=0, ControlGroup="")
        shutil.rmtree(next(self.cgroup_root.rglob(name)))

    def unknown(self, name: str) -> None:
        """What systemd says of a unit that it does not know: no error."""
        self._units[name] = {"Id": name, "Names": name, "LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead"}
        self._answer()

    def _answer(self) -> None:
        blocks = ["".join(f"{key}={value}\n" for key, value in unit.items() if value is not None) for unit in self._units.values()]
        _write(self.bin / "answer", "\n".join(blocks))

    # --- processes

    def process(self, pid: int, name: str = "python3", *, pages: int = 100, state: str = "S", waits_in: str = "", start: int = 500) -> None:
        """One with two threads, the second in uninterruptible sleep when it `waits_in` a kernel function. Again: changes it."""
        folder = self.proc_root / str(pid)
        _thread(folder, pid, name, state, pages, start)
        _thread(folder / "task" / str(pid), pid, name, state, pages, start)
        second = folder / "task" / str(pid + 10000)
        _thread(second, pid + 10000, "worker", "D" if waits_in else "S", pages, start + 1)
        _write(second / "wchan", waits_in or "0")
        for file in LOCKED:
            if not (folder / file).exists():
                os.mkfifo(folder / file)

    def ended(self, pid: int) -> None:
        """It is gone."""
        shutil.rmtree(self.proc_root / str(pid))


def _thread(folder: Path, number: int, name: str, state: str, pages: int, start: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    fields = ["1", str(number), str(number), *["0"] * 15, str(start), "123456789", str(pages), *["0"] * 28]
    _write(folder / "stat", f"{number} ({name}) {state} {' '.join(fields)}\n")


def _write(path: Path, text: str) -> None:
    beside = path.with_name(path.name + ".new")
    beside.write_text(text)
    beside.rename(path)


# ------------------------------------------------------------------------------------------------------ metrics pages


class Page:
    """A server on loopback that answers every request in the way it was last told to."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._listener.bind((host, 0))
        self._listener.listen(64)
        self._over = threading.Event()
        self._deed: Callable[[socket.socket], None] = self._rubbish
        self.requests: list[bytes] = []
        self._serving = threading.Thread(target=self._serve, daemon=True)
        port = self._listener.getsockname()[1]
        self.url = f"http://[{host}]:{port}/metrics" if ":" in host else f"http://{host}:{port}/metrics"

    def __enter__(self) -> Self:
        self._serving.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._serving.join(PATIENCE_SECONDS)

    # --- what it does

    def says(self, body: str, status: int = 200, *headers: str) -> None:
        """A whole answer, and the connection is closed."""
        data = body.encode()
        self.sends(_head(status, f"Content-Length: {len(data)}", *headers) + data)

    def sends(self, data: bytes) -> None:
        """These bytes, and the connection is closed."""
        self._deed = lambda client: client.sendall(data)

    def keeps_open(self, body: str) -> None:
        """A whole answer on a connection that stays."""
        data = body.encode()
        self._deed = lambda client: self._then_wait(client, _head(200, f"Content-Length: {len(data)}", "Connection: keep-alive") + data)

    def does(self, deed: str) -> None:
        """`silent`, `drip`, `flood`, `reset`, `half`, `rubbish`."""
        self._deed = getattr(self, f"_{deed}")

    def _serve(self) -> None:
        while not self._over.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client:
            client.settimeout(PATIENCE_SECONDS)
            try:
                self.requests.append(client.recv(65536))
                self._deed(client)
            except OSError:  # hung up on
                return

    def _then_wait(self, client: socket.socket, data: bytes) -> None:
        client.sendall(data)
        client.recv(1)

    def _silent(self, client: socket.socket) -> None:
        self._then_wait(client, b"")

    def _drip(self, client: socket.socket) -> None:
        for byte in _head(200, "Content-Length: 100000") + b"#" * 100000:
            client.sendall(bytes([byte]))
            if self._over.wait(DRIP_SECONDS):
                return

    def _flood(self, client: socket.socket) -> None:
        client.sendall(_head(200))
        while not self._over.is_set():
            client.sendall(b"vllm:num_requests_running 1\n" * 4096)

    def _reset(self, client: socket.socket) -> None:
        client.sendall(_head(200, "Content-Length: 100"))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")

    def _half(self, client: socket.socket) -> None:
        client.sendall(_head(200, "Content-Length: 100") + b"vllm:num_requests_running 1\n")

    def _rubbish(self, client: socket.socket) -> None:
        client.sendall(b"\x00\xff SSH-2.0 or something\r\n\r\n")


def _head(status: int, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status} Word", "Content-Type: text/plain", *headers, "", ""]).encode()
