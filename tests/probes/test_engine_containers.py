"""The processes of a unit's containers: found by the name or the parent that its own command gives them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.engine import EngineHost
from tests.probes.test_engine import facts
from xidwatch.probes.engine import create
from xidwatch.probes.engine_containers import Wanted, wanted

UNIT = "vllm.service"
OWN, OTHER = "5f0c" * 16, "ab12" * 16
COMMAND = "{{ path=/usr/bin/docker ; argv[]=/usr/bin/docker {} ; ignore_errors=no ; start_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }}"


def container(host: EngineHost, number: str, name: str, pid: int, *, place: str = "system.slice/docker-{}.scope") -> None:
    """One that runs, with one process, and docker's file about it."""
    group = host.cgroup_root / place.format(number)
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text(f"{pid}\n")
    (group.parent / "cgroup.procs").touch()
    folder = host.root / "docker/containers" / number
    folder.mkdir(parents=True)
    (folder / "config.v2.json").write_text(json.dumps({"ID": number, "Name": f"/{name}", "State": {"Running": True}}))
    host.process(pid, "VLLM::Worker")


@pytest.fixture
def host(tmp_path: Path) -> EngineHost:
    return EngineHost(tmp_path)


def pids(host: EngineHost, command: str) -> str:
    """What is told of the unit's processes; it is up with docker's own client, and then down."""
    host.unit(UNIT, pids=[100], ExecStart=COMMAND.format(command))
    host.process(100, "docker")
    probe = create({**host.options, "docker_root": str(host.root / "docker"), "engines": [{"unit": UNIT}]})
    host.stopped(UNIT)
    told = facts(probe)
    assert not any("docker" in str(value) for name, value in told.items() if name != "control_group")  # a command line is no reading
    return str(told["pids"])


@pytest.mark.parametrize("place", ["system.slice/docker-{}.scope", "docker/{}", "systemd/docker/{}", "engines.slice/libpod-{}.scope"])
def test_what_outlives_the_client_is_the_units(host: EngineHost, place: str) -> None:
    """Wherever the runtime puts it; a container of another name is somebody else's."""
    container(host, OWN, "vllm", 4711, place=place)
    container(host, OTHER, "other", 4712)
    assert pids(host, "run --rm --name vllm --gpus all vllm/vllm-openai") == "4711"


def test_a_parent_of_its_own_holds_what_is_its_own(host: EngineHost) -> None:
    """The slice that it was told; one that is the host's is not."""
    container(host, OWN, "x", 4711, place="engines.slice/docker-{}.scope")
    container(host, OTHER, "y", 4712)
    assert pids(host, "run --cgroup-parent=engines.slice image") == "4711"
    assert pids(host, "run --cgroup-parent system.slice image") == ""


@pytest.mark.parametrize("content", [None, b"", b"[]", b'{"Name":7}', b"\xff"])
def test_a_container_of_which_nothing_can_be_read_is_nobodys(host: EngineHost, content: bytes | None) -> None:
    """It is being made, or is not docker's."""
    container(host, OWN, "vllm", 4711)
    file = host.root / "docker/containers" / OWN / "config.v2.json"
    file.unlink() if content is None else file.write_bytes(content)
    assert pids(host, "run --name vllm image") == ""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (COMMAND.format("run --name=vllm image"), Wanted(any=True, names=frozenset({"vllm"}))),
        (COMMAND.format("start -a vllm"), Wanted(any=True, names=frozenset({"vllm"}))),
        ("{ path=/bin/sh ; argv[]=/bin/sh -c 'exec docker run --name vllm image' ; }", Wanted(any=True, names=frozenset({"vllm"}))),
        ("{ path=/usr/bin/python3 ; argv[]=/usr/bin/python3 serve.py --name vllm ; }", Wanted()),
        ("", Wanted()),
        ("{ path=/usr/bin/docker ; argv[]=/usr/bin/docker run --name", Wanted(any=True)),
    ],
)
def test_what_a_command_says_of_its_containers(command: str, expected: Wanted) -> None:
    """Only one that starts a container says anything of one."""
    assert wanted(command) == expected
