"""Looking for engines, once: by unit, by command line where that is safe, and by the port they listen on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.probes.nvml_rig import Heard
from xidwatch.core.model import Missing, Subject, Value
from xidwatch.probes.base import Ask
from xidwatch.probes.engine_search import create, unit_of

FAR = 1e12  # a deadline nobody reaches


class Host:
    """A /proc in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "net").mkdir()
        self._listening: list[str] = []
        self._inode = 4000
        self._write_net()

    def process(self, pid: int, group: str, command: str, *, comm: str = "python3", state: str = "S", port: int = 0) -> Path:
        """One process with one thread more; its command line can be read once, as a file."""
        folder = self.root / str(pid)
        for thread, letter in ((pid, "S"), (pid + 1, state)):
            place = folder / "task" / str(thread)
            place.mkdir(parents=True)
            (place / "stat").write_text(f"{thread} ({comm}) {letter} 1 " + "0 " * 30 + "\n")
        (folder / "stat").write_text(f"{pid} ({comm}) S 1 " + "0 " * 30 + "\n")
        (folder / "cgroup").write_text(f"0::{group}\n")
        (folder / "cmdline").write_bytes(command.replace(" ", "\0").encode() + b"\0")
        (folder / "fd").mkdir()
        (folder / "fd/3").symlink_to("/dev/nvidia0")
        if port:
            self.listens(pid, port)
        return folder

    def listens(self, pid: int, port: int, address: str = "0100007F") -> None:
        self._inode += 1
        (self.root / str(pid) / "fd" / str(self._inode)).symlink_to(f"socket:[{self._inode}]")
        self._listening.append(f"  0: {address}:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 {self._inode} 1")
        self._write_net()

    def search(self, *gpu_pids: int) -> dict[str, dict[str, Value]]:
        """What is found, by unit."""
        recorder = Heard()
        create({"proc_root": str(self.root), "gpu_pids": list(gpu_pids)}).inventory(Ask(FAR), recorder)
        return {Subject.parse(subject).name: dict(values) for subject, values in recorder.facts.items()}

    def _write_net(self) -> None:
        (self.root / "net/tcp").write_text("\n".join(["  sl  local_address rem_address   st", *self._listening]) + "\n")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize(
    ("command", "comm", "port", "expected"),
    [
        ("/opt/venv/bin/python3 /opt/venv/bin/vllm serve some/model --port 8123", "vllm", 8123, ("vllm", 8123)),
        ("python3 -m vllm.entrypoints.openai.api_server", "python3", 8000, ("vllm", 8000)),
        ("python3 -m sglang.launch_server --port=30001", "python3", 30001, ("sglang", 30001)),
        ("/usr/local/bin/llama-server -m x.gguf", "llama-server", 8080, ("llama.cpp", 8080)),
        ("/usr/local/bin/llama-server -m x.gguf --port 9000", "llama-server", 9001, ("llama.cpp", 9001)),  # the only one it has
        ("/usr/local/bin/llama-server -m x.gguf", "llama-server", 0, ("llama.cpp", Missing.ABSENT)),
    ],
)
def test_an_engine_is_known_by_its_command_and_its_port_by_where_it_listens(
    host: Host, command: str, comm: str, port: int, expected: tuple[str, object]
) -> None:
    """What the command names counts only if somebody listens there."""
    host.process(4711, "/system.slice/engine.service", command, comm=comm, port=port)
    (found,) = host.search().values()
    assert (found["server"], found["serving_port"], found["pids"]) == (*expected, "4711")


def test_of_several_ports_that_nobody_names_none_is_guessed(host: Host) -> None:
    """A distributed engine has many."""
    host.process(4711, "/system.slice/engine.service", "python3 -m vllm.entrypoints.api_server", port=40001)
    host.listens(4711, 40003)
    assert host.search()["engine.service"]["serving_port"] is Missing.ABSENT


def test_what_listens_elsewhere_is_not_on_loopback(host: Host) -> None:
    """One address of a network card is out of reach for a metrics page on loopback."""
    host.process(4711, "/system.slice/engine.service", "llama-server", comm="llama-server")
    host.listens(4711, 8080, address="0A00000A")
    assert host.search()["engine.service"]["serving_port"] is Missing.ABSENT


def test_a_service_that_holds_a_gpu_is_found_whatever_it_runs(host: Host) -> None:
    """By what the driver says of its processes."""
    host.process(99, "/system.slice/train.service", "./a.out", comm="a.out")
    host.process(199, "/system.slice/cron.service", "cron", comm="cron")
    found = host.search(99)
    assert list(found) == ["train.service"]
    assert found["train.service"]["server"] is Missing.UNSUPPORTED


def test_the_command_line_of_a_stuck_process_is_not_opened(host: Host) -> None:
    """One thread in uninterruptible sleep may hold the lock that the reader would wait for; here the reader would wait for ever."""
    folder = host.process(4711, "/system.slice/engine.service", "", comm="vllm", state="D")
    (folder / "cmdline").unlink()
    os.mkfifo(folder / "cmdline")
    assert host.search(4711)["engine.service"]["server"] is Missing.UNSUPPORTED


def test_the_command_line_of_what_is_no_candidate_is_not_opened(host: Host) -> None:
    """A secret on the command line of some other service is none of our business."""
    folder = host.process(4711, "/system.slice/backup.service", "", comm="backup")
    (folder / "cmdline").unlink()
    os.mkfifo(folder / "cmdline")
    assert host.search() == {}


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("0::/system.slice/vllm.service\n", "vllm.service"),
        ("0::/system.slice/system-vllm.slice/vllm@a.service/worker\n", "vllm@a.service"),
        ("12:cpu:/system.slice/other.service\n1:name=systemd:/system.slice/vllm.service\n", "vllm.service"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/vllm.service\n", ""),
        ("0::/system.slice/docker-5f0c.scope\n", ""),
        ("0::/\n", ""),
        ("", ""),
    ],
)
def test_a_process_belongs_to_the_service_of_its_control_group(tmp_path: Path, text: str, unit: str) -> None:
    """A person's own units and containers without a unit are not what could be configured."""
    (tmp_path / "cgroup").write_text(text)
    assert unit_of(tmp_path / "cgroup") == unit


def test_a_process_that_has_ended_is_nobodys(tmp_path: Path) -> None:
    """Between the listing and the look."""
    assert unit_of(tmp_path / "cgroup") == ""


def test_it_answers_about_engines_only(host: Host) -> None:
    """Nothing at a tick, nothing at a look."""
    recorder = Heard()
    probe = create({"proc_root": str(host.root)})
    probe.sample(Ask(FAR), recorder)
    probe.look(Ask(FAR), recorder)
    probe.between()
    probe.close()
    assert recorder.facts == {}
    assert probe.between_seconds is None
    host.process(4711, "/system.slice/a.service", "llama-server", comm="llama-server")
    assert list(host.search()) == ["a.service"]
