"""Small nights, run by the real daemon: what a fixture can let happen, and that it comes out as on a host."""

from __future__ import annotations

import filecmp
import os
from pathlib import Path

import pytest

from tests.replay.stage import GPUS, SWITCH, XID, edges, journal, play, rows, write
from xidwatch.config import ConfigError
from xidwatch.daemon.rundir import STATE
from xidwatch.daemon.service import Daemon
from xidwatch.records import state
from xidwatch.replay import player
from xidwatch.replay.children import FIRST_PID
from xidwatch.replay.script import FixtureError

GPU = f"gpu:{GPUS[0]}"
DIES = f"+60s die {SWITCH}\n+0s lost gpus\n+65s end\n"
KMSG = "# boot 1\n" + XID.format(seq=1, usec=85_020_000)


def test_the_same_bytes_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs in different places, one of them without a file system in memory: not one byte differs."""
    folder = write(tmp_path / "night", DIES, kmsg=KMSG)
    play(folder, tmp_path / "first")
    monkeypatch.setattr(player, "MEMORY", tmp_path / "nowhere")
    play(folder, tmp_path / "second")
    left, right = (sorted(path.relative_to(tmp_path / name) for path in (tmp_path / name).rglob("*")) for name in ("first", "second"))
    assert left == right
    plain = [str(path) for path in left if (tmp_path / "first" / path).is_file()]
    assert filecmp.cmpfiles(tmp_path / "first", tmp_path / "second", plain, shallow=False) == (plain, [], [])
    assert any("manifest.json" in path for path in plain)


def test_a_lost_switch_is_an_incident_with_a_dump(tmp_path: Path) -> None:
    """By the kernel's line, the look that follows, and the next tick; the driver is let go and not asked again."""
    played = play(write(tmp_path / "night", DIES, kmsg=KMSG), tmp_path / "state")
    found = edges(tmp_path / "state")
    assert (GPU, "GpuLost", "TRUE") in found
    assert (f"port:{SWITCH}", "ConfigSpaceAllOnes", "TRUE") in found
    assert (GPU, "ConfigSpaceAllOnes", "UNKNOWN") in found
    assert [action["kind"] for action in journal(tmp_path / "state", "action")] == ["TAKE_DUMP", "LOOK", "RELEASE_DRIVER"]
    (dump,) = (tmp_path / "state" / "incidents").iterdir()
    assert "dword0=ffffffff class=060400" in (dump / "040-config-space.txt").read_text()
    assert rows(tmp_path / "state")[-1].cells[f"{GPU}:power_mean_watts"] == ""
    assert played.verdict == "failed"


def test_a_look_takes_its_time_and_nobody_waits_for_it(tmp_path: Path) -> None:
    """All ones is a fact 100 ms after the first read; a kernel line in between is heard at once."""
    kmsg = KMSG + XID.format(seq=2, usec=85_060_000).replace("11:00", "12:00")
    play(write(tmp_path / "night", DIES, kmsg=kmsg), tmp_path / "state")
    found = edges(tmp_path / "state")
    assert found.index((f"gpu:{GPUS[1]}", "GpuLost", "TRUE")) < found.index((f"port:{SWITCH}", "ConfigSpaceAllOnes", "TRUE"))


def test_an_answer_that_is_late_once_is_no_incident(tmp_path: Path) -> None:
    """The tick's row goes without it, the next one has it again."""
    play(write(tmp_path / "night", "+10s late nvml 8s\n+60s end\n"), tmp_path / "state")
    power = [row.cells[f"{GPU}:temperature_celsius"] for row in rows(tmp_path / "state")]
    assert power == ["38", "", "38"]
    assert journal(tmp_path / "state", "opened") == []


def test_a_driver_call_that_never_returns_is_said_to_be_stuck(tmp_path: Path) -> None:
    """And no second process is sent after it."""
    play(write(tmp_path / "night", "+10s hang nvml\n+130s end\n"), tmp_path / "state")
    assert ("probe:nvml", "ProbeStuck", "TRUE") in edges(tmp_path / "state")
    assert len(journal(tmp_path / "state", "opened")) == 1


def test_setting_the_clock_changes_no_interval(tmp_path: Path) -> None:
    """Rows go on every 30 s of the clock that nobody can set."""
    play(write(tmp_path / "night", "+40s clock +2h\n+50s end\n"), tmp_path / "state")
    times = [row.time[11:19] for row in rows(tmp_path / "state")]
    assert times == ["00:00:25", "00:00:55", "02:01:25", "02:01:55"]
    assert [edge for edge in edges(tmp_path / "state") if edge[2] == "TRUE"] == []


def test_a_restart_within_a_boot_fires_nothing_again(tmp_path: Path) -> None:
    """The kernel's ring still holds the line; the journal says that it was dealt with."""
    story = f"+60s die {SWITCH}\n+0s lost gpus\n+10s kill\n+5s start\n+40s stop\n+1s end\n"
    play(write(tmp_path / "night", story, kmsg=KMSG), tmp_path / "state")
    assert len(journal(tmp_path / "state", "opened")) == 1
    assert edges(tmp_path / "state").count((GPU, "GpuLost", "TRUE")) == 1
    assert [record["why"] for record in journal(tmp_path / "state", "stopped")] == ["SIGTERM"]


def test_what_was_stopped_can_be_started_again(tmp_path: Path) -> None:
    """It has let go of its files, and said that it left."""
    play(write(tmp_path / "night", "+40s stop\n+5s start\n+40s stop\n+1s end\n"), tmp_path / "state")
    assert len(journal(tmp_path / "state", "stopped")) == len(journal(tmp_path / "state", "started")) == 2


@pytest.mark.slow
def test_a_boot_forgets_what_the_machine_forgets(tmp_path: Path) -> None:
    """Another boot id, clocks and kernel log anew; what is on the disk stays."""
    story = f"+60s die {SWITCH}\n+0s lost gpus\n+10s boot\n+0s revive {SWITCH}\n+0s found gpus\n+25s start\n+150s end\n"
    played = play(write(tmp_path / "night", story, kmsg=KMSG), tmp_path / "state")
    assert {row.boot_id[-1] for row in rows(tmp_path / "state")} == {"1", "2"}
    assert len(journal(tmp_path / "state", "closed")) == 1
    assert (played.boots, played.verdict) == (2, "healthy")


def test_an_announcement_is_heard(tmp_path: Path) -> None:
    """A removed GPU is missed at once, not at the next tick."""
    story = f"+10s remove {GPUS[1]}\n+0s uevent remove {GPUS[1]} class=30000\n+2s end\n"
    play(write(tmp_path / "night", story), tmp_path / "state")
    assert journal(tmp_path / "state", "uevent") == [{"action": "remove", "subsystem": "pci", "name": GPUS[1]}]
    assert (f"gpu:{GPUS[1]}", "GpuMissing", "TRUE") in edges(tmp_path / "state")


def test_a_sensor_can_fail_and_come_back(tmp_path: Path) -> None:
    """EIO is a missing value and not 0."""
    story = "+10s chip nct6798 in1_input=EIO\n+30s chip nct6798 in1_input=1000\n+30s end\n"
    play(write(tmp_path / "night", story), tmp_path / "state")
    column = "chip:nct6798@platform/nct6775.656/in1:pin_volts"
    assert [row.cells[column] for row in rows(tmp_path / "state")] == ["1.008", "", "1"]


def test_until_stops_where_somebody_wants_to_look(tmp_path: Path) -> None:
    """As if nothing had happened after it."""
    played = play(write(tmp_path / "night", DIES, kmsg=KMSG), tmp_path / "state", "00:01:20")
    assert (played.verdict, len(rows(tmp_path / "state"))) == ("healthy", 2)


def test_the_state_is_marked_and_believed_by_nobody(tmp_path: Path) -> None:
    """Whatever boot and time it is here: what was replayed is not what is true."""
    play(write(tmp_path / "night", "+10s end\n"), tmp_path / "state")
    shown = state.read(tmp_path / "state" / player.RUN / STATE)
    assert (shown.replayed, shown.verdict) == ("night", "healthy")
    assert state.freshness(shown, shown.mono_ms, shown.boot_id) == "replayed"


def test_no_process_of_this_host_can_be_meant() -> None:
    """The kernel gives no number as high as the first of ours (proc(5), pid_max)."""
    assert FIRST_PID > 2**22
    assert not Path(f"/proc/{FIRST_PID}").exists()


def test_a_second_evidence_directory_is_left_alone(tmp_path: Path) -> None:
    """It was on the other host."""
    folder = write(tmp_path / "night", "+10s end\n", config=f'evidence_dirs = ["{tmp_path}/usb"]\n')
    play(folder, tmp_path / "state")
    assert not (tmp_path / "usb").exists()


@pytest.mark.parametrize(
    ("timeline", "complaint"),
    [
        ("+1s explode 0000:11:00.0\n", "timeline.txt:3: explode: nothing of this name can happen"),
        ("+1s die 0000:99:00.0\n", "timeline.txt:3: not in host.txt: 0000:99:00.0"),
        ("+1s set gpus colour=red\n", "timeline.txt:3: colour: not known"),
        ("+1s set gpus watts=much\n", "timeline.txt:3: set: ValueError"),
        ("+1s kill\n+1s note hello\n", "timeline.txt:4: note: the daemon does not run then"),
        ("+1s late nvml\n", "timeline.txt:3: late:"),
        ("+1s start\n", "timeline.txt:3: it runs already"),
    ],
)
def test_what_cannot_happen_is_told_with_its_line(tmp_path: Path, timeline: str, complaint: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(FixtureError) as caught:
        play(write(tmp_path / "night", timeline), tmp_path / "state")
    assert str(caught.value).startswith(complaint)


def test_a_fixture_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    """Before anything is run."""
    folder = write(tmp_path / "night", "", kmsg="hello\n")
    with pytest.raises(FixtureError, match=r"kmsg.txt:1: no record of /dev/kmsg"):
        play(folder, tmp_path / "state")
    write(folder, "", config="interval = 30")
    with pytest.raises(ConfigError):
        play(folder, tmp_path / "state")
    write(folder, "", host="0000:11:00.0 toaster\n")
    with pytest.raises(FixtureError, match=r"host.txt:1: expected an address and one of root"):
        play(folder, tmp_path / "state")
    (folder / "host.txt").unlink()
    with pytest.raises(FixtureError, match="No such file"):
        play(folder, tmp_path / "state")
    assert not (tmp_path / "state").exists()


def test_nothing_is_left_open(tmp_path: Path) -> None:
    """Not a descriptor more than before, also when it ends in a mistake."""
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  a count
    play(write(tmp_path / "night", DIES, kmsg=KMSG), tmp_path / "state")
    with pytest.raises(FixtureError):
        play(write(tmp_path / "night", "+1s die nobody\n"), tmp_path / "other")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_view_that_was_put_off_does_not_revive_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shown behind the last state still says that the run has ended."""
    monkeypatch.setattr(Daemon, "checkpoint", Daemon.show)  # as a timer that was set before does
    play(write(tmp_path / "night", "+60s stop\n+1s end\n"), tmp_path / "state")
    assert state.read(tmp_path / "state" / player.RUN / STATE).pid is None
