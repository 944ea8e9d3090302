"""The key that an engine's API wants: the first line of a file, read when a token is asked for, sent to loopback, and never said.

    /etc/xidwatch/vllm.key      root, 0600      5c1d0f...

llama.cpp takes such a file itself (--api-key-file, a key a line). What is said of a file that holds none does not quote it.
Sources: RFC 6750, section 2.1; llama.cpp, tools/server/README.md.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

MOST_BYTES = 4096
_KEY = re.compile(rb"[\x21-\x7e]+")  # anything else could end the header that it stands in


class NoKey(Exception):
    """Why there is none, in words that do not hold any of it."""


def read(path: Path) -> str:
    """Raises NoKey. A pipe without a writer is empty, and nobody waits for one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            data = os.read(descriptor, MOST_BYTES)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise NoKey(f"{path}: {(error.strerror or 'cannot be read').lower()}") from None
    line = next(filter(None, map(bytes.strip, data.splitlines())), b"")
    if not line:
        raise NoKey(f"{path}: is empty")
    if not _KEY.fullmatch(line) or len(line) == MOST_BYTES:
        raise NoKey(f"{path}: its first line is no key")
    return line.decode("ascii")
