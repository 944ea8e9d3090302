"""Where things are on a host, for all who need no more than that: a command that has to be quick imports little.

/etc/xidwatch/config.toml   settings          /var/lib/xidwatch   records          /run/xidwatch   what is true now
"""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT_CONFIG = Path("/etc/xidwatch/config.toml")
DEFAULT_STATE = Path("/var/lib/xidwatch")
DEFAULT_RUN = Path("/run/xidwatch")
STATE_FILE = "state.json"


def run_dir(state_dir: Path, given: str = "") -> Path:
    """Where a daemon with this state directory keeps what is true now.

    The service's own: /run/xidwatch, whoever asks. Root with another: a neighbour of it. Others: below the state directory.
    `given` is systemd's RUNTIME_DIRECTORY, and is for `run` alone: a command inside the unit of an engine would inherit
    the engine's.
    """
    if given:
        return Path(given.partition(":")[0])
    place = state_dir.absolute()
    if place == DEFAULT_STATE:
        return DEFAULT_RUN
    return _of_root(place) if os.geteuid() == 0 else place / "run"


def find_run_dir(state_dir: Path) -> Path:
    """The same for a reader, who may be another user than the daemon: the place that holds a state file."""
    own = run_dir(state_dir)
    if os.access(own / STATE_FILE, os.R_OK):
        return own
    others = (_of_root(state_dir.absolute()), state_dir.absolute() / "run")
    return next((place for place in others if os.access(place / STATE_FILE, os.R_OK)), own)


def _of_root(place: Path) -> Path:
    from hashlib import sha256  # noqa: PLC0415  it loads a library, and the service's own place needs none

    return DEFAULT_RUN.with_name(f"xidwatch-{sha256(os.fsencode(place)).hexdigest()[:8]}")
