"""The systemd unit: what must be in it, what must never be, and that systemd itself accepts it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).resolve().parent.parent / "systemd" / "xidwatch.service"

# Loosened on purpose; each needs a comment beside it that says what for.
EXCEPTIONS = (
    "CapabilityBoundingSet",
    "RestrictAddressFamilies",
    "PrivateDevices",
    "DevicePolicy",
    "ProtectClock",
    "ProtectKernelLogs",
    "PrivateNetwork",
    "PrivateUsers",
    "ProtectProc",
)


def settings() -> dict[str, str]:
    """Every `Key=value` of the unit; no key stands twice in it."""
    pairs = [line.split("=", 1) for line in UNIT.read_text().splitlines() if "=" in line and not line.startswith("#")]
    keys = [key for key, _ in pairs]
    assert len(keys) == len(set(keys)), "a key stands twice"
    return dict(pairs)


def test_no_value_carries_a_comment() -> None:
    """systemd takes `# ...` behind a value for part of the value, so none stands there."""
    assert not [f"{key}={value}" for key, value in settings().items() if "#" in value or ";" in value]


@pytest.mark.parametrize("key", EXCEPTIONS)
def test_every_exception_says_what_for(key: str) -> None:
    """Directly above each loosened setting stands a comment."""
    lines = UNIT.read_text().splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith(f"{key}=")]
    assert lines[at - 1].startswith("# ")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Type", "notify"),
        ("KillMode", "control-group"),
        ("WatchdogSignal", "SIGTERM"),
        ("FinalKillSignal", "SIGTERM"),
        ("RuntimeDirectoryPreserve", "yes"),
        ("StateDirectoryMode", "0700"),
        ("PrivateDevices", "no"),
        ("ProtectClock", "no"),
        ("ProtectKernelLogs", "no"),
    ],
)
def test_what_the_drivers_need_is_not_hardened_away(key: str, value: str) -> None:
    """Settings that would take /dev/nvidia* or /dev/kmsg away, or kill a worker inside a driver call, stay as they are."""
    assert settings()[key] == value


def stop_post(main_pid: str) -> int:
    """Run what the unit runs when a stop is over, with systemd's `$$` undone; the exit status."""
    command = shlex.split(settings()["ExecStopPost"].replace("$$", "$"))
    return subprocess.run(command, env={**os.environ, "MAINPID": main_pid}, check=False, timeout=60).returncode


def test_a_hung_daemon_is_killed_in_the_end() -> None:
    """systemd itself sends no SIGKILL here, so a main process that is still there when all has timed out is killed by the unit."""
    with subprocess.Popen(["sleep", "60"]) as hung:
        assert stop_post(str(hung.pid)) == 0
        assert hung.wait(10) == -9


def test_a_daemon_that_has_left_is_nobody_to_kill() -> None:
    """After an ordinary stop systemd names no main process, and nothing happens."""
    assert stop_post("") == 0


def test_no_device_allow_list() -> None:
    """One DeviceAllow= line would deny every device that is not listed, resolved once at start."""
    assert "DeviceAllow" not in settings()


def test_capabilities_are_the_four_that_are_explained() -> None:
    """Each capability kept is named in a comment with its use, and no other is kept."""
    explained = {line.split()[2].rstrip(":") for line in UNIT.read_text().splitlines() if line.startswith("# Exception, CAP_")}
    assert set(settings()["CapabilityBoundingSet"].split()) == explained


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_it(tmp_path: Path) -> None:
    """`systemd-analyze verify` has nothing to say about it."""
    unit = tmp_path / "xidwatch.service"
    unit.write_text(UNIT.read_text().replace("/usr/local/bin/xidwatch", "/bin/true"))
    answer = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False, timeout=60)
    assert answer.returncode == 0
    assert "xidwatch.service" not in answer.stderr
