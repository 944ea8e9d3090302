"""The guest's end of the command channel: a line of JSON each way, with so many bytes behind it as it says.

    -> {"do": "run", "command": "uptime", "seconds": 60}            <- {"status": 0, "bytes": 62} ...
    -> {"do": "put", "path": "/run/x", "mode": 420, "bytes": 3} ... <- {"bytes": 0}
    -> {"do": "get", "path": "/run/x"}                              <- {"bytes": 3} ...
    -> {"do": "await", "paths": [...], "seen": "...", "seconds": 5} <- {"seen": "...", "bytes": 0}

`run` answers with the command's output, both streams; status null: it went on longer and was left alone. `await` returns as
soon as the files below `paths` are others than `seen` says, or when the time is over: inotify tells when to look again.
The first line after a boot is {"hello": UPTIME_SECONDS}. What goes wrong is {"error": "..."}.

Runs on the guest's own interpreter and imports nothing but its library.
"""

import ctypes
import json
import os
import select
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

PORT = "/dev/virtio-ports/xidwatch.rig"
NOBODY_SECONDS = 0.05  # the host's end is closed: look again
LOOK_SECONDS = 0.5  # for what inotify does not tell
IN_CLOSE_WRITE, IN_MODIFY, IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x8, 0x2, 0x80, 0x100, 0x200
CHANGES = IN_CLOSE_WRITE | IN_MODIFY | IN_MOVED_TO | IN_CREATE | IN_DELETE

Answer = tuple[dict[str, Any], bytes]


class Channel:
    """Both directions of the port."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._received = b""

    def line(self) -> bytes:
        while b"\n" not in self._received:
            self._more()
        line, _, self._received = self._received.partition(b"\n")
        return line

    def take(self, count: int) -> bytes:
        while len(self._received) < count:
            self._more()
        data, self._received = self._received[:count], self._received[count:]
        return data

    def _more(self) -> None:
        data = os.read(self._descriptor, 1 << 16)
        if not data:
            time.sleep(NOBODY_SECONDS)
        self._received += data

    def tell(self, head: dict[str, Any], data: bytes = b"") -> None:
        rest = memoryview(json.dumps({**head, "bytes": len(data)}).encode() + b"\n" + data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]


def run(request: dict[str, Any], _data: bytes) -> Answer:
    """A file for its output and no pipe: what a command leaves running behind it keeps nobody waiting."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(["/bin/bash", "-c", request["command"]], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            status: int | None = process.wait(request["seconds"])
        except subprocess.TimeoutExpired:
            status = None
        output.seek(0)
        return {"status": status}, output.read()


def put(request: dict[str, Any], data: bytes) -> Answer:
    """As a whole or not at all."""
    path = Path(request["path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    beside.write_bytes(data)
    beside.chmod(request["mode"])
    beside.rename(path)
    return {}, b""


def get(request: dict[str, Any], _data: bytes) -> Answer:
    """Nothing where there is nothing."""
    path = Path(request["path"])
    return {}, path.read_bytes() if path.exists() else b""


def seen(paths: list[str]) -> str:
    """What tells one state of these folders and files from another."""
    found = []
    for top in map(Path, paths):
        for path in sorted([top, *top.rglob("*")]):
            try:
                there = path.stat()
            except OSError:
                continue
            found.append(f"{path}:{there.st_ino}:{there.st_size}:{there.st_mtime_ns}")
    return str(hash("\n".join(found)))


def wait(request: dict[str, Any], _data: bytes) -> Answer:
    deadline = time.monotonic() + request["seconds"]
    libc = ctypes.CDLL(None)
    inotify = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while (now := seen(request["paths"])) == request["seen"] and time.monotonic() < deadline:
            for folder in _folders(request["paths"]):
                libc.inotify_add_watch(inotify, os.fsencode(folder), CHANGES)
            if seen(request["paths"]) == now:  # nothing between the look and the watch
                select.select([inotify], [], [], min(LOOK_SECONDS, max(0.0, deadline - time.monotonic())))
                _drain(inotify)
    finally:
        os.close(inotify)
    return {"seen": now}, b""


def _folders(paths: list[str]) -> list[Path]:
    """A file is watched as well as a folder, and every folder below it."""
    return [folder for top in map(Path, paths) for folder in (top, *(path for path in top.rglob("*") if path.is_dir()))]


def _drain(inotify: int) -> None:
    try:
        os.read(inotify, 1 << 16)
    except BlockingIOError:
        pass


DEEDS = {"run": run, "put": put, "get": get, "await": wait}


def main() -> None:
    """Serve whoever is at the other end, for ever."""
    while not Path(PORT).exists():
        time.sleep(NOBODY_SECONDS)
    channel = Channel(os.open(PORT, os.O_RDWR))
    channel.tell({"hello": float(Path("/proc/uptime").read_text().split()[0])})
    while True:
        request = json.loads(channel.line())
        data = channel.take(request.get("bytes", 0))
        try:
            channel.tell(*DEEDS[request["do"]](request, data))
        except OSError as error:
            channel.tell({"error": f"{request['do']}: {error}"})


if __name__ == "__main__":
    main()
