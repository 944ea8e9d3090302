"""The guest, made from packages: a kernel, an initramfs and a disk with Debian, the stand-in driver and xidwatch's dependencies.

    image = built(folder)        # seconds when it is there already, else two to five minutes

What the disk holds of xidwatch is what `make install` put there when it was built; the checkout's own code is laid over it
after the boot, so that a changed line costs no new image. The key of an image is all that goes into it.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.rig.vm import needs

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).parent
PACKAGES = (
    "systemd", "systemd-sysv", "udev", "dbus", "kmod", "python3", "python3-minimal", "libsystemd0", "pciutils", "procps", "i2c-tools",
    "busybox-static",
)  # fmt: skip
BOOT_MODULES = ("virtio_pci", "virtio_blk", "ext4", "crc32c_generic", "virtio_console")
MODULES = (*BOOT_MODULES, "loop", "i2c-dev", "i2c-stub", "ltc4245", "aer_inject", "i6300esb", "overlay")
MASKED = ("systemd-update-utmp.service", "getty.target", "systemd-logind.service", "apt-daily.timer", "apt-daily-upgrade.timer",
          "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer", "systemd-tmpfiles-clean.timer",
          "dev-hugepages.mount", "dev-mqueue.mount", "sys-kernel-tracing.mount", "sys-fs-fuse-connections.mount")  # fmt: skip
GENERATORS = "usr/lib/systemd/system-generators"  # a dozen programs at every boot and every daemon-reload, and no unit here is theirs
ENABLED = {"rig-agent.service": "sysinit.target", "rig-shell.service": "multi-user.target"}
DISK_BYTES = 1 << 30
FROZEN_BYTES = 32 << 20
SETTINGS = ("requirements.lock", "requirements-systemd.lock", "scripts/install.sh")
MOST_SECONDS = 20 * 60.0

INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
while read -r module; do /bin/busybox insmod "$module"; done </order
until [ -b /dev/vda ]; do /bin/busybox sleep 0.1; done
/bin/busybox mount -t ext4 /dev/vda /newroot || exec /bin/busybox sh
/bin/busybox umount /proc
/bin/busybox umount /sys
/bin/busybox mount -o move /dev /newroot/dev
exec /bin/busybox switch_root /newroot /lib/systemd/systemd
"""


class BuildFailed(Exception):
    """With the last words of whoever failed."""


@dataclass(frozen=True, slots=True)
class Image:
    """What QEMU boots. The disk is only ever read: a guest writes into an overlay of its own."""

    key: str
    kernel: Path
    initramfs: Path
    disk: Path


def digest(paths: Iterable[Path], *words: str) -> str:
    """Of names and contents of files, folders with all that is below them; byte code aside."""
    found = hashlib.sha256("\0".join(words).encode())
    for top in paths:
        for path in sorted([top] if top.is_file() else top.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                found.update(f"\0{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:16]


def built(folder: Path) -> Image:
    """The image of this checkout, built when there is none below `folder` yet. Raises BuildFailed."""
    headers = needs.kernel_headers()
    assert headers
    sources = [HERE / "build.py", HERE / "files", HERE / "driver", *(ROOT / name for name in SETTINGS)]
    key = digest(sources, headers.name, needs.release().get("VERSION_ID", ""))
    place = folder / f"image-{key}"
    if not (place / "disk.img").exists():
        for old in folder.glob("image-*"):
            shutil.rmtree(old)
        place.mkdir(parents=True)
        # A mount of its own: on a tmpfs the root filesystem takes a third of the time, and nothing of it stays behind.
        command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "tests.rig.vm.build", str(place)]
        log = place / "build.log"
        with log.open("wb") as file:
            done = subprocess.run(command, cwd=ROOT, check=False, stdin=subprocess.DEVNULL, stdout=file, stderr=file, timeout=MOST_SECONDS)
        if done.returncode:
            said = "".join(log.read_text(errors="replace").splitlines(keepends=True)[-20:])
            raise BuildFailed(f"the image could not be built ({log}):\n{said}")
    return Image(key, place / "kernel", place / "initramfs", place / "disk.img")


# --- inside the private mount


def build(place: Path) -> None:
    """All of it into `place`; the disk last, under its name only when it is whole."""
    headers = needs.kernel_headers()
    assert headers
    version = headers.name.removeprefix("linux-headers-")
    work = Path(tempfile.mkdtemp(prefix="xidwatch-rig-"))
    try:
        _run("mount", "-t", "tmpfs", "-o", "size=4g,mode=755", "rig", str(work))
        rootfs = work / "rootfs"
        _rootfs(rootfs)
        kernel = _kernel(work, version)
        shutil.copy(kernel / f"boot/vmlinuz-{version}", place / "kernel")
        _modules(kernel, rootfs, version)
        _driver(work, rootfs, headers, version)
        _initramfs(work, rootfs, version, place / "initramfs")
        _furnish(rootfs)
        _disk(rootfs, place)
    finally:
        subprocess.run(["umount", str(work)], check=False)
        work.rmdir()


def _run(*words: str, folder: Path | None = None, **environment: str) -> str:
    """Its output; what it says besides goes to the log."""
    print("+", *words, flush=True)
    inherited = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    done = subprocess.run(words, cwd=folder, env=inherited | environment, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def _rootfs(rootfs: Path) -> None:
    """From where this host takes its own packages."""
    listed = [Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list")]
    sources = next(path for path in listed if path.is_file())
    lean = ["/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*"]
    _run(
        "mmdebstrap", "--mode=root", "--variant=essential", f"--include={','.join(PACKAGES)}",
        '--aptopt=APT::Install-Recommends "false"', '--aptopt=Acquire::Languages "none"', "--dpkgopt=force-unsafe-io",
        *(f"--dpkgopt=path-exclude={path}" for path in lean),
        needs.release()["VERSION_CODENAME"], str(rootfs), str(sources),
    )  # fmt: skip


def _kernel(work: Path, version: str) -> Path:
    """The kernel's package, unpacked and not installed."""
    _run("apt-get", "update", "-qq")
    _run("apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", f"linux-image-{version}", folder=work)
    (package,) = work.glob("linux-image-*.deb")
    _run("dpkg-deb", "-x", str(package), str(work / "kernel"))
    return work / "kernel"


def _with_dependencies(tree: Path, version: str, names: Iterable[str]) -> list[str]:
    """Files of these modules and of what they need, in the order of loading, relative to the tree."""
    files: dict[str, None] = {}
    for name in names:
        listed = _run("modprobe", "-d", str(tree), "-S", version, "--show-depends", name)
        lines = (line.split() for line in listed.splitlines())
        files |= {str(Path(words[1]).relative_to(tree)): None for words in lines if words[0] == "insmod"}
    return list(files)


def _modules(kernel: Path, rootfs: Path, version: str) -> None:
    """The few that are needed, out of four thousand."""
    _run("depmod", "-b", str(kernel), version)
    folder = Path("lib/modules") / version
    for name in (*_with_dependencies(kernel, version, MODULES), *(str(folder / f"modules.{part}") for part in ("builtin", "order"))):
        (rootfs / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(kernel / name, rootfs / name)


def _driver(work: Path, rootfs: Path, headers: Path, version: str) -> None:
    shutil.copytree(HERE / "driver", work / "driver")
    _run("make", "-C", str(headers), f"M={work / 'driver'}", "modules")
    place = rootfs / "lib/modules" / version / "extra"
    place.mkdir()
    shutil.copy(work / "driver/nvidia.ko", place)
    _run("depmod", "-b", str(rootfs), version)


def _initramfs(work: Path, rootfs: Path, version: str, target: Path) -> None:
    """Busybox, what the disk needs to be found, and a few lines of shell."""
    tree = work / "initramfs"
    for folder in ("bin", "proc", "sys", "dev", "newroot"):
        (tree / folder).mkdir(parents=True)
    shutil.copy(rootfs / "bin/busybox", tree / "bin")
    order = []
    for number, name in enumerate(_with_dependencies(rootfs, version, BOOT_MODULES)):
        order.append(f"/{number:02d}-{Path(name).name}")
        shutil.copy(rootfs / name, tree / order[-1].lstrip("/"))
    (tree / "order").write_text("\n".join(order) + "\n")
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*"))).encode()
    archive = subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=tree, input=names, check=True, stdout=subprocess.PIPE)
    target.write_bytes(gzip.compress(archive.stdout, 1))


def _furnish(rootfs: Path) -> None:
    """xidwatch as `make install` installs it, and the rig's own files."""
    _run(str(ROOT / "scripts/install.sh"), PYTHON="/usr/bin/python3", DESTDIR=str(rootfs))
    shutil.copytree(HERE / "files", rootfs, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    units = rootfs / "etc/systemd/system"
    for unit, target in ENABLED.items():
        wants = units / f"{target}.wants"
        wants.mkdir(exist_ok=True)
        (wants / unit).symlink_to(f"../{unit}")
    for unit in MASKED:
        (units / unit).unlink(missing_ok=True)
        (units / unit).symlink_to("/dev/null")
    for path in (rootfs / GENERATORS).iterdir():
        path.unlink()
    (rootfs / "etc/hostname").write_text("rig\n")
    (rootfs / "var/log/journal").mkdir(exist_ok=True)  # so that the log of the boot before can be read
    shutil.rmtree(rootfs / "var/cache/apt", ignore_errors=True)
    shutil.rmtree(rootfs / "var/lib/apt/lists", ignore_errors=True)
    image = rootfs / "usr/local/lib/rig/disk.img"  # the guest has nothing to make a filesystem with
    with image.open("wb") as file:
        file.truncate(FROZEN_BYTES)
    _run("mke2fs", "-q", "-t", "ext4", "-F", str(image))


def _disk(rootfs: Path, place: Path) -> None:
    """Under its name only when it is whole."""
    beside = place / "disk.new"
    with beside.open("wb") as file:
        file.truncate(DISK_BYTES)
    options = "lazy_itable_init=1,lazy_journal_init=1,nodiscard"
    _run("mke2fs", "-q", "-t", "ext4", "-E", options, "-O", "^metadata_csum", "-d", str(rootfs), str(beside))
    beside.rename(place / "disk.img")


if __name__ == "__main__":
    build(Path(sys.argv[1]))
