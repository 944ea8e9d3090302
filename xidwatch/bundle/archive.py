"""All of it in one folder, and the folder as an archive: the same records give the same bytes.

    20260917T021008Z-gpu-lost-11/README.txt  host.txt  timeline.txt  kmsg.txt  config.toml  records/...

Law: nothing is put into an archive that has not been masked here.
"""

from __future__ import annotations

import gzip
import importlib
import io
import sys
import tarfile
from collections.abc import Mapping
from typing import Any

from xidwatch.bundle import parts, readme, scene, timeline
from xidwatch.bundle.gather import Gathered
from xidwatch.core.masking import Masker
from xidwatch.records.regular import FILE_MODE

GZIP, ZSTD = ".tar.gz", ".tar.zst"
SUFFIXES = (GZIP, ".tgz", ZSTD)


class NoZstandard(Exception):
    """This Python has none; `.tar.gz` needs nothing."""


def contents(found: Gathered, masker: Masker) -> dict[str, str]:
    """Name and masked text of every file. Two passes: what is known from one file is looked for in all."""
    parts.introduce(found, masker)
    plain = {
        "host.txt": scene.host(found),
        "timeline.txt": timeline.timeline(found),
        "kmsg.txt": timeline.kernel_log(found),
        "config.toml": scene.config(found),
        **parts.texts(found),
    }
    for name, text in plain.items():
        if not parts.is_figures(name):
            masker.learn(text)
    masked = {name: parts.masked(name, text, masker) for name, text in plain.items()}
    manifest = parts.manifest(found, masked)
    if manifest:
        masked[f"{parts.FOLDER}/dump/manifest.json"] = parts.masked("manifest.json", manifest, masker)
    masked["README.txt"] = masker.mask(readme.text(found, sorted(masked), masker.used))
    return dict(sorted(masked.items()))


def pack(folder: str, files: Mapping[str, str], suffix: str, modified: float) -> bytes:
    """The archive. `modified`: wall seconds, of every file. Raises NoZstandard."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, text in files.items():
            data = text.encode()
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size, member.mtime, member.mode = len(data), int(modified), FILE_MODE
            tar.addfile(member, io.BytesIO(data))
    return _zstd(out.getvalue()) if suffix == ZSTD else gzip.compress(out.getvalue(), mtime=0)


def suffix_of(name: str) -> str | None:
    """Which of SUFFIXES a file's name has."""
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), None)


def _zstd(data: bytes) -> bytes:
    try:
        if sys.version_info >= (3, 14):
            module: Any = importlib.import_module("compression.zstd")
            return bytes(module.compress(data))
        module = importlib.import_module("zstandard")
        return bytes(module.ZstdCompressor().compress(data))
    except ImportError as error:
        raise NoZstandard from error
