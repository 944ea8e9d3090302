"""Start, stop, reload: what an operator or systemd does to the running daemon."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.harness import PATIENCE_SECONDS, Rig, Running, has_ended, poll_until, wait_at_gate
from xidwatch.records import samples

pytestmark = pytest.mark.slow


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as rig:
        yield rig


def in_a_driver_call(rig: Rig, **patience: float) -> tuple[Running, int, int]:
    """A daemon whose NVML worker is in the middle of an answer; the worker's pid, and what lets it go on when it is closed."""
    gate = rig.folder / "gate"
    os.mkfifo(gate)
    settings = {f"xidwatch.daemon.main:{name}": seconds for name, seconds in patience.items()}
    running = rig.start(rig.pci(), rig.host(), rig.nvml(), interval="1s", patience=settings)
    running.settle(1)
    rig.steer(gate=str(gate))
    descriptor = wait_at_gate(gate)
    (holder,) = rig.processes("nvml")
    return running, holder.pid, descriptor


def write_config(rig: Rig, text: str) -> Path:
    path = rig.folder / "config.toml"
    path.write_text(f'kernel_log = "{rig.kernel.path}"\n{text}\n[probes.pci]\nroot = "{rig.tree.root}"\n[probes.nvml]\nenabled = false\n')
    return path


def start_for_real(rig: Rig, config: Path, *words: str) -> Running:
    """Through the command line, as the unit does."""
    return rig.launch("xidwatch", "--config", str(config), "--state-dir", str(rig.state_dir), "run", *words)


def test_term_waits_for_a_driver_call_under_way(rig: Rig) -> None:
    """A driver call is not cut off: the daemon leaves when it has come to its end, and nobody is left behind."""
    running, holder, gate = in_a_driver_call(rig)
    running.process.send_signal(signal.SIGTERM)
    assert not has_ended(running.pid, 1.2)  # without the call it leaves in a tenth of that
    began = time.monotonic()
    os.close(gate)
    assert running.ended() == 0
    assert running.ours(time.monotonic() - began) < 2.0
    assert has_ended(holder, PATIENCE_SECONDS)
    assert not running.find("does not end")


def test_term_does_not_wait_for_ever(rig: Rig) -> None:
    """A driver call that does not end is left to the next run, unharmed, and the journal is closed all the same."""
    running, holder, gate = in_a_driver_call(rig, DRIVER_CALL_SECONDS=1.0)
    status, seconds = running.terminate()
    assert (status, seconds >= 1.0, running.ours(seconds) < 2.5) == (0, True, True)
    running.line(f"nvml: process {holder} does not end")
    assert not has_ended(holder, 0.0)
    assert rig.journal()[-1].kind == "stopped"
    os.close(gate)
    assert has_ended(holder, PATIENCE_SECONDS)  # end of input: it leaves by itself


def test_hup_takes_a_valid_configuration_and_refuses_an_invalid_one(rig: Rig) -> None:
    """The interval changes within the new interval; of a bad file every mistake is named, and the good settings stay."""
    config = write_config(rig, 'interval = "30s"\nmetrics = ""')
    running = rig.start(rig.pci(), rig.host(), interval="30s", config_path=config)
    running.tick(1)
    write_config(rig, 'interval = "0.5s"\nmetrics = ""')
    running.process.send_signal(signal.SIGHUP)
    taken = running.line("configuration taken: interval 0.5s")
    assert rig.ours(taken.at, running.tick(2).at, "daemon", "test") < 1.0
    running.tick(4)

    write_config(rig, 'interval = "soon"\nmetrics = "example.org:80"\ncolour = "blue"')
    running.process.send_signal(signal.SIGHUP)
    running.line("configuration refused, the old one stays: .*interval: .soon.")
    running.line("configuration refused, the old one stays: .*metrics: .example.org:80.")
    running.line("configuration refused, the old one stays: .*colour: unknown key")
    running.ticks_more(2)
    assert running.terminate()[0] == 0
    settings = [entry.body["interval"] for entry in rig.journal() if entry.kind == "settings"]
    assert settings == ["0.5s"]
    heads = [samples.read_head(path) for path in samples.files(rig.state_dir / samples.FOLDER)]
    assert {head.interval for head in heads if head} == {"30", "0.5"}


def test_a_second_daemon_is_turned_away(rig: Rig) -> None:
    """Through the command line: the second says who is there and leaves with 75; the first does not notice."""
    config = write_config(rig, 'interval = "0.5s"\nmetrics = "127.0.0.1:0"')
    first = start_for_real(rig, config)
    first.tick(1)
    second = start_for_real(rig, config)
    assert second.ended() == 75
    message = second.errors.read_text()
    assert re.fullmatch(rf"xidwatch: another xidwatch \(pid {first.pid}\) runs with {rig.run_dir}\. .*\n", message)
    first.ticks_more(2)
    status, seconds = first.terminate()
    assert (status, first.ours(seconds) < 1.0) == (0, True)
    assert rig.journal()[-1].kind == "stopped"


def test_one_tick_is_one_row(rig: Rig) -> None:
    """`run --once` asks everything once, records it, and ends with 0."""
    running = start_for_real(rig, write_config(rig, 'interval = "2s"\nmetrics = ""'), "--once")
    assert running.ended() == 0
    (row,) = rig.rows()
    assert row.cells["port:0000:0f:00.0:config_dword0"] == "c0101000"
    assert row.cells["host:load_1m"]
    kinds = [entry.kind for entry in rig.journal()]
    assert "inventory" in kinds
    assert kinds[-1] == "stopped"
    assert json.loads((rig.run_dir / "state.json").read_bytes())["tick"] == 1
    poll_until("nobody is left", lambda: not rig.processes())


def test_one_tick_asks_the_driver_however_slow_the_past_is(rig: Rig) -> None:
    """It is the only one: nothing is left out of it because the journal has not been read yet."""
    impatient = {"xidwatch.daemon.service:IMPATIENCE_SECONDS": 0.0}
    assert rig.start(rig.host(), rig.nvml(), interval="2s", patience=impatient, once=True).ended() == 0
    (row,) = rig.rows()
    assert row.cells["gpu:0000:11:00.0:nvml_status"] == "0"


def test_one_tick_that_is_not_everywhere_on_disk_is_no_success(rig: Rig) -> None:
    """A further directory whose disk is not mounted: it is named, the tick is in the other one, and the status is 1."""
    missing = rig.folder / "not" / "mounted"
    running = start_for_real(rig, write_config(rig, f'interval = "2s"\nmetrics = ""\nevidence_dirs = ["{missing}"]'), "--once")
    assert running.ended() == 1
    assert running.find(f"is it mounted.*{missing.parent}")
    assert running.find(f"this tick is not on disk in {missing}")
    assert len(rig.rows()) == 1
