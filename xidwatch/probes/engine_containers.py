"""The containers that a unit starts: their processes are in groups of the runtime's own making, and not in the unit's.

    ExecStart={ path=/usr/bin/docker ; argv[]=/usr/bin/docker run --rm --name vllm --gpus all ... ; ignore_errors=no ; ... }
    /sys/fs/cgroup/system.slice/docker-5f0c....scope             its group, with 64 digits; /sys/fs/cgroup/docker/5f0c... without systemd
    /var/lib/docker/containers/5f0c.../config.v2.json            {"Name":"/vllm", ...}
    --cgroup-parent engines.slice                                or wherever it was told to put it

By the name or the parent that the unit's own command gives it. A container's number and name never change together, so each is read
once: docker's folder is on a disk. A command line may hold secrets; of it nothing but these words is kept, and nothing is told.

Sources: docker run(1); org.freedesktop.systemd1(5), ExecStart; moby, daemon/oci_linux.go (cgroups path).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from xidwatch.probes import engine_processes
from xidwatch.probes.engine_processes import HIERARCHIES, Group

DOCKER_ROOT = Path("/var/lib/docker")
RUNTIMES = frozenset({"docker", "docker-compose", "podman", "podman-compose", "nerdctl"})
MOST_BYTES = 1024 * 1024
MOST_CONTAINERS = 512
SHARED_PARENTS = frozenset({"", "system.slice", "user.slice", "machine.slice", "-.slice", "docker"})
CHOSEN = {"--name": "names", "--cgroup-parent": "parents"}
_ARGV = re.compile(r"argv\[\]=(.*?) ; ")
_SCOPE = re.compile(r"(?:docker-|libpod-|nerdctl-|cri-containerd-)?([0-9a-f]{64})(?:\.scope)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a unit's command says of the containers it starts. `any`: it starts one, with or without a name."""

    any: bool = False
    names: frozenset[str] = frozenset()
    parents: frozenset[str] = frozenset()


def wanted(exec_start: str) -> Wanted:
    """From systemd's property, `docker run --name vllm` or `docker start -a vllm`; what a shell makes of it is not known here."""
    match = _ARGV.search(f"{exec_start} ; ")
    words = (match[1] if match else "").replace("'", " ").replace('"', " ").split()
    if not RUNTIMES & {word.rpartition("/")[2] for word in words}:
        return Wanted()
    found: dict[str, set[str]] = {"names": set(), "parents": set()}
    for word, after in zip(words, [*words[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        chosen = value if equals else after
        if option in CHOSEN and chosen:
            found[CHOSEN[option]].add(chosen)
    started = words[words.index("start") + 1 :] if "start" in words and "run" not in words else []
    found["names"] |= {word for word in started if not word.startswith("-")}
    return Wanted(any=True, names=frozenset(found["names"]), parents=frozenset(found["parents"]))


@dataclass(slots=True)
class Containers:
    """Those of this host. `docker_root` is where docker keeps them."""

    cgroup_root: Path
    docker_root: Path = DOCKER_ROOT
    _names: dict[str, str] = field(default_factory=dict)  # by number

    def groups(self, of: Wanted) -> list[Path]:
        """The control groups of the containers that run, and of the parents."""
        named = [place for number, place in self._running() if self._name(number) in of.names] if of.names else []
        parents = (self._parent(name) for name in sorted(of.parents))
        return [*named, *(place for place in parents if place is not None)]

    def add(self, group: Group, of: Wanted, proc_root: Path) -> None:
        """To the processes of a unit those of its containers. Raises OSError."""
        for place in self.groups(of):
            group.join(engine_processes.read(place, proc_root))

    def _parent(self, name: str) -> Path | None:
        """A slice by its name alone, a group by its path; one that is not for containers of this unit alone is nobody's."""
        if name.strip("/") in SHARED_PARENTS:
            return None
        by_name = engine_processes.find(self.cgroup_root, name) if name.endswith(".slice") else None
        return by_name or engine_processes.at(self.cgroup_root, name)

    def _running(self) -> Iterator[tuple[str, Path]]:
        for hierarchy in HIERARCHIES:
            top = self.cgroup_root / hierarchy
            for place in (*engine_processes.slices(top), top / "docker"):
                yield from islice(_in(place), MOST_CONTAINERS)

    def _name(self, number: str) -> str:
        if number not in self._names:
            if len(self._names) >= MOST_CONTAINERS:
                self._names.clear()
            self._names[number] = _read_name(self.docker_root / "containers" / number / "config.v2.json")
        return self._names[number]


def _in(place: Path) -> Iterator[tuple[str, Path]]:
    try:
        entries: Iterable[str] = sorted(os.listdir(place))  # noqa: PTH208  names alone
    except OSError:
        return
    for entry in entries:
        if (match := _SCOPE.fullmatch(entry)) is not None:
            yield match[1], place / entry


def _read_name(path: Path) -> str:
    """Empty for one that is not docker's, or is only being made."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return ""
    name = found.get("Name") if isinstance(found, dict) else None
    return name.lstrip("/") if isinstance(name, str) else ""
