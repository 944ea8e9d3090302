"""What every scenario begins with: a guest in which this checkout's xidwatch has been running for a few healthy ticks.

    booted   the image's own Debian, up, the stand-in driver loaded                        (as long as the image is the same)
    ready    over it the checkout, the fake NVML and a configuration; the unit active      (as long as the checkout is the same)
    engine   over it an engine behind its gate, proven and running                         (likewise; made when first asked for)

All are saved machines in files; a scenario carries on from `ready` or `engine` and throws away what it did. Time is shortened: the
interval is 2 s and every hold and clear of the rules a fifteenth of what is shipped, as the interval is.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.fakes import nvml_library
from tests.rig.vm import build, engine
from tests.rig.vm.build import HERE, ROOT, Image, digest
from tests.rig.vm.guest import CONFIG, Guest
from tests.rig.vm.machine import GuestGone, Machine, qemu_version

SHIPPED_SECONDS = 30.0
INTERVAL_SECONDS = 2.0
HEALTHY_TICKS = 6
PACKAGE = "opt/xidwatch/lib/python3.11/site-packages/xidwatch"
DROP_IN = """[Service]
# The fake library looks there what it is, and counts its calls.
Environment=NVML_FAKE=/var/lib/nvml-fake
ReadWritePaths=/var/lib/nvml-fake
RestartSec=1
"""
_DURATION = re.compile(r'(?m)^(hold|clear)( *= *)"([0-9.]+)(ms|s|m|h)"')
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Saved:
    """A machine that can be carried on, any number of times."""

    disk: Path
    state: Path


class Stage:
    """Builds what is not there yet, below one folder; `say` is told what takes its time."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        folder.mkdir(parents=True, exist_ok=True)
        self._say("the image: kernel, Debian, dependencies (minutes when it has to be built)")
        self.image: Image = build.built(folder)
        booted_key = digest([HERE / "machine.py"], self.image.key, qemu_version())
        project = [ROOT / name for name in ("xidwatch", "rules", "systemd", "tests/fakes/nvml_c", "tests/fakes/nvml_library.py")]
        ready_key = digest([*project, HERE / "programs", HERE / "stage.py"], booted_key, CONFIG)
        self._booted = self._saved(f"booted-{booted_key}", lambda: Machine(self.image, self.image.disk), self._boot)
        self._ready = self._saved(f"ready-{ready_key}", lambda: self._machine(self._booted), self._make_ready)
        self._engine_key = digest([HERE / "engine.py"], ready_key, engine.GATE)
        self._engine: Saved | Exception | None = None
        self._one_at_a_time = threading.Lock()

    def _saved(self, name: str, begun: Callable[[], Machine], prepare: Callable[[Guest], None]) -> Saved:
        """From the file, or prepared and saved now."""
        place = self._folder / name
        saved = Saved(place / "disk.qcow2", place / "state")
        if saved.disk.exists():
            return saved
        kind = name.partition("-")[0]
        self._say(f"the {kind} guest")
        for old in self._folder.glob(f"{kind}-*"):
            shutil.rmtree(old)
        place.mkdir()
        machine = begun()
        try:
            prepare(Guest(machine))
            machine.save(saved.state)
            shutil.copy(machine.overlay, place / "disk.new")
            (place / "disk.new").rename(saved.disk)
        finally:
            machine.close()
        return saved

    def _machine(self, saved: Saved) -> Machine:
        return Machine(self.image, saved.disk, saved.state)

    def ready(self) -> Guest:
        """Healthy, and sampling."""
        return Guest(self._machine(self._ready))

    def supervised(self) -> Guest:
        """The same with an engine that runs behind its gate. What kept it from being made is told to everybody who asks."""
        with self._one_at_a_time:
            if self._engine is None:
                try:
                    self._engine = self._saved(f"engine-{self._engine_key}", lambda: self._machine(self._ready), self._make_supervised)
                except (AssertionError, GuestGone) as error:
                    self._engine = error
        if isinstance(self._engine, Exception):
            raise self._engine
        return Guest(self._machine(self._engine))

    def cold(self) -> Guest:
        """The same from a boot: for what a machine that was carried on cannot do, as keeping a crash record in the firmware."""
        guest = Guest(Machine(self.image, self._ready.disk))
        self._until_healthy(guest)
        return guest

    # --- preparing

    @staticmethod
    def _boot(guest: Guest) -> None:
        guest.run("systemctl is-system-running --wait", seconds=120)
        guest.run("udevadm settle")

    @staticmethod
    def _make_ready(guest: Guest) -> None:
        guest.run(f"rm -rf /{PACKAGE}")
        guest.unpack(payload(), "/")
        guest.put("/etc/xidwatch/config.toml", CONFIG)
        guest.put("/etc/systemd/system/xidwatch.service.d/rig.conf", DROP_IN)
        guest.run("ldconfig; systemctl daemon-reload; systemctl enable --now xidwatch", seconds=60)
        Stage._until_healthy(guest)
        guest.run("sync")

    @staticmethod
    def _make_supervised(guest: Guest) -> None:
        engine.supervise(guest)
        guest.run("sync")

    @staticmethod
    def _until_healthy(guest: Guest) -> None:
        guest.until("it is healthy", lambda: guest.state().get("verdict") == "healthy" and guest.tick() >= HEALTHY_TICKS)


def payload() -> bytes:
    """The checkout as `make install` lays it out, with byte code, the fake NVIDIA library and the rig's programs: a tar archive."""
    scratch = Path(tempfile.mkdtemp(prefix="xidwatch-rig-"))
    try:
        package = scratch / PACKAGE
        shutil.copytree(ROOT / "xidwatch", package, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "rules", package / "_rules")
        conditions = package / "_rules/conditions.toml"
        conditions.write_text(hastened(conditions.read_text()))
        subprocess.run(
            ["/usr/bin/python3", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", str(scratch), str(package)],
            check=True,
        )
        unit = scratch / "usr/local/lib/systemd/system/xidwatch.service"
        unit.parent.mkdir(parents=True)
        shutil.copy(ROOT / "systemd/xidwatch.service", unit)
        nvml_library.build(scratch / "usr/lib/x86_64-linux-gnu")
        shutil.copytree(HERE / "programs", scratch, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as archive:
            for top in scratch.iterdir():  # and not the scratch folder, whose mode would become that of /
                archive.add(top, top.name, filter=_owned_by_root)
        return data.getvalue()
    finally:
        shutil.rmtree(scratch)


def _owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    return member


def hastened(rules: str) -> str:
    """Holds and clears as much shorter as the interval is; of those about the watcher itself a third is left, for the guest is slow."""
    sections = re.split(r"(?m)^(?=\[\w+\]$)", rules)
    return "".join(
        _DURATION.sub(partial(_shorter, 3.0 if section.startswith("[Probe") else SHIPPED_SECONDS / INTERVAL_SECONDS), section)
        for section in sections
    )


def _shorter(factor: float, match: re.Match[str]) -> str:
    key, equals, number, unit = match.groups()
    seconds = float(number) * _SECONDS[unit] / factor
    return f'{key}{equals}"{seconds:.1f}s"' if seconds else match[0]
