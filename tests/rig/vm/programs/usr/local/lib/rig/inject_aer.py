"""Signal an error as a device would, so many times, each after the kernel has counted the one before: `inject_aer.py DEVICE REQUEST TIMES`.

REQUEST: the 32 bytes that /dev/aer_inject takes, in hexadecimal.
"""

import sys
import time
from pathlib import Path

FILES = ("aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal")
PATIENCE_SECONDS = 30.0
LOOK_SECONDS = 0.005


def counted(device: str) -> int:
    """All errors of a device."""
    texts = (Path(f"/sys/bus/pci/devices/{device}/{name}").read_text() for name in FILES)
    return sum(int(text.split()[-1]) for text in texts)


def main(device: str, request: bytes, times: int) -> None:
    """An error the kernel does not count ends it."""
    begun = counted(device)
    for number in range(1, times + 1):
        Path("/dev/aer_inject").write_bytes(request)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while counted(device) < begun + number:
            if time.monotonic() > deadline:
                sys.exit(f"{device}: error {number} was not counted")
            time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1], bytes.fromhex(sys.argv[2]), int(sys.argv[3]))
