"""What the host must have before a guest can be built and run, and how to get what it has not."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

PACKAGE_OF: Mapping[str, str] = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "modprobe": "kmod",
    "cpio": "cpio",
    "dpkg-deb": "dpkg",
    "cc": "gcc",
    "make": "make",
}
HEADERS = "linux-headers-amd64"
_GENERIC = re.compile(r"linux-headers-[0-9.]+-[0-9]+-amd64")  # the cloud flavour lacks most modules


def kernel_headers() -> Path | None:
    """Where a kernel module can be built for Debian's newest kernel that has its headers here."""
    generic = (path for path in Path("/usr/src").glob("linux-headers-*-amd64") if _GENERIC.fullmatch(path.name))
    return max(generic, key=lambda path: path.stat().st_mtime, default=None)


def release() -> Mapping[str, str]:
    """The host's os-release: the guest is of the same release, so that what is built here runs there."""
    lines = Path("/etc/os-release").read_text().splitlines()
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines if line)}


def missing() -> list[str]:
    """What keeps the rig from running here, a sentence each; empty when nothing does."""
    reasons = []
    if release().get("ID") != "debian":
        reasons.append("the guest is a Debian like its host, and this host is none")
    if os.uname().machine != "x86_64":
        reasons.append("the guest is an x86-64 machine, and so must be its host")
    if os.geteuid() != 0:
        reasons.append("building the guest needs root")
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    packages = {package for program, package in PACKAGE_OF.items() if not shutil.which(program, path=path)}
    packages |= set() if kernel_headers() else {HEADERS}
    if packages:
        reasons.append(f"packages are missing: apt-get install --no-install-recommends {' '.join(sorted(packages))}")
    return reasons
