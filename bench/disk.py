"""What durability costs on the disk that the records are on."""

from __future__ import annotations

import os
import time
from pathlib import Path

BLOCK = bytes(4096)


class SyncProbe:
    """Appends 4 KiB and waits for fsync, as often as it is asked; `milliseconds` holds what each took."""

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder / "sync-probe", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.milliseconds: list[float] = []

    def measure(self) -> None:
        """Once."""
        begun = time.monotonic()
        os.write(self._fd, BLOCK)
        os.fsync(self._fd)
        self.milliseconds.append(1000 * (time.monotonic() - begun))

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)
