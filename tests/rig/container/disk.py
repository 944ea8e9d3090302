"""What a container's disk holds: this machine's own /usr, a bare /etc and /var, and a real installation of this checkout.

    stage = install(folder / "stage")          # `make install`, a quarter of a minute, once
    disk = Disk(folder / "disk", stage)        # as often as wanted, in milliseconds: installed files are hard links to the stage's

Of the machine only /usr is seen, read-only, and over its /usr/local lies the installation's own. The unit is the one that
`make install` puts there, and nobody edits it: what a test needs otherwise is a drop-in, as an operator would make it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
INSTALL_SECONDS = 300.0
MERGED = ("bin", "sbin", "lib", "lib64")  # links into /usr

# Nobody logs in.
MASKED = ("console-getty.service", "getty.target", "systemd-logind.service", "systemd-networkd.service", "systemd-resolved.service")
ETC = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "group": "root:x:0:\nnogroup:x:65534:\n",
    "hostname": "rig\n",
}


def install(stage: Path) -> Path:
    """`make install` of this checkout below `stage`, which is returned: the real script, the real unit, from the locks."""
    outer = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")  # of the `make` that runs the tests
    environment = {key: value for key, value in os.environ.items() if key not in outer}
    places = ("PREFIX=/opt/xidwatch", "BINDIR=/usr/local/bin", "UNITDIR=/usr/local/lib/systemd/system")
    command = ("make", "--no-print-directory", "-C", str(ROOT), "install", f"DESTDIR={stage}", *places)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return stage


class Disk:
    """`root` is the container's /, `local` its /usr/local. As after an installation and before the first boot."""

    def __init__(self, folder: Path, stage: Path) -> None:
        self.root = folder / "root"
        self.local = folder / "local"
        shutil.copytree(stage / "usr/local", self.local, symlinks=True, copy_function=os.link)
        shutil.copytree(stage / "opt", self.root / "opt", symlinks=True, copy_function=os.link)
        self._lay_out()

    def _lay_out(self) -> None:
        units = self.root / "etc/systemd/system"
        for folder in (units, self.root / "usr", self.root / "root", self.root / "var/log/journal"):
            folder.mkdir(parents=True)
        for name in MERGED:
            (self.root / name).symlink_to(f"usr/{name}")
        for unit in MASKED:
            (units / unit).symlink_to("/dev/null")
        (units / "default.target").symlink_to("/lib/systemd/system/multi-user.target")
        etc = self.root / "etc"
        for name, text in ETC.items():
            (etc / name).write_text(text)
        (etc / "machine-id").write_text(f"{uuid.uuid4().hex}\n")  # or systemd takes it for a first boot and enables what /usr offers
        shutil.copy("/usr/lib/os-release", etc / "os-release")  # nspawn boots nothing without
        shutil.copy("/etc/ld.so.cache", etc / "ld.so.cache")  # or ctypes, and so pyudev, finds no library
