"""Reading the configuration again: a child reads the disk, the loop takes its answer or does without."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.clock import FakeClock
from xidwatch.config import Config, load_rules, parse_config, rules_dir
from xidwatch.daemon import reload
from xidwatch.daemon.loop import Loop
from xidwatch.daemon.main import waiting_for_restart
from xidwatch.daemon.reload import SECONDS, Reload


class Nursery:
    """Hands out a channel and keeps the child's end."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.child: socket.socket | None = None

    def start(self, target: str, _name: str, options: Mapping[str, object]) -> tuple[int, socket.socket]:
        self.asked.append((target, options))
        ours, self.child = socket.socketpair()
        return 1, ours


class Rig:
    """One reading under way, and what it came to."""

    def __init__(self, path: Path | None, watchdog_seconds: float = 0.0, rules: tuple[Path, Path] | None = None) -> None:
        self.clock = FakeClock()
        self.loop = Loop(self.clock)
        self.nursery = Nursery()
        self.ends: list[tuple[Config | None, list[str]]] = []
        self.reload = Reload(self.loop, self.nursery, path, watchdog_seconds, lambda *end: self.ends.append(end), rules)  # type: ignore[arg-type]

    @property
    def child(self) -> socket.socket:
        assert self.nursery.child
        return self.nursery.child

    def run_child(self) -> None:
        """What the nursery would fork."""
        ((target, options),) = self.nursery.asked
        assert target == "xidwatch.daemon.reload:main"
        reload.main(self.child, json.loads(json.dumps(options)))
        self.child.close()
        self.turns()

    def turns(self) -> None:
        for _ in range(3):
            self.loop.turn(0)


def test_a_valid_file_is_taken(tmp_path: Path) -> None:
    """As the daemon would have taken it at its start."""
    path = tmp_path / "config.toml"
    path.write_text('interval = "5s"\nprobes.pci.root = "/host/sys"\nevidence_dirs = ["/mnt/usb"]\n')
    rig = Rig(path, watchdog_seconds=120)
    rig.run_child()
    expected = parse_config({"interval": "5s", "probes": {"pci": {"root": "/host/sys"}}, "evidence_dirs": ["/mnt/usb"]})
    assert rig.ends == [(expected, [])]


def test_an_invalid_file_is_refused_with_all_that_is_wrong(tmp_path: Path) -> None:
    """And no configuration is given."""
    path = tmp_path / "config.toml"
    path.write_text("interval = 5\nmetrics = 1\n")
    rig = Rig(path)
    rig.run_child()
    ((config, problems),) = rig.ends
    assert config is None
    assert len(problems) == 2
    assert all(str(path) in problem for problem in problems)


def test_an_interval_that_the_watchdog_would_not_bear_is_refused(tmp_path: Path) -> None:
    """Taking it would have systemd end the daemon."""
    path = tmp_path / "config.toml"
    path.write_text('interval = "5m"\n')
    rig = Rig(path, watchdog_seconds=120)
    rig.run_child()
    ((config, problems),) = rig.ends
    assert config is None
    assert "WatchdogSec" in problems[0]


def test_without_a_file_the_defaults_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Someone has removed it: that is a change too."""
    monkeypatch.setattr("xidwatch.config.DEFAULT_CONFIG", tmp_path / "nowhere.toml")
    rig = Rig(None)
    rig.run_child()
    assert rig.ends == [(Config(), [])]


def test_the_rules_come_with_it(tmp_path: Path) -> None:
    """As shipped, and as the site has changed them since."""
    (tmp_path / "a.toml").write_text('[xid]\n92 = { severity = "error" }\n[conditions.GpuLost]\nhold = "7s"\n')
    (tmp_path / "config").write_text("")
    rig = Rig(tmp_path / "config", rules=(rules_dir(None), tmp_path))
    rig.run_child()
    assert rig.ends == [(Config(), [])]
    assert rig.reload.rules
    assert rig.reload.rules.xids == load_rules(rules_dir(None), tmp_path).xids != load_rules(rules_dir(None)).xids
    assert [rule.hold_seconds for rule in rig.reload.rules.conditions if rule.type == "GpuLost"] == [7.0]


def test_rules_that_are_wrong_refuse_the_configuration_as_well(tmp_path: Path) -> None:
    """With file and key; neither is taken."""
    (tmp_path / "a.toml").write_text('[xid]\n92 = { severity = "awful" }\n')
    (tmp_path / "config").write_text('interval = "5s"\n')
    rig = Rig(tmp_path / "config", rules=(rules_dir(None), tmp_path))
    rig.run_child()
    ((config, problems),) = rig.ends
    assert (config, rig.reload.rules) == (None, None)
    assert problems[0].startswith(f"{tmp_path / 'a.toml'}: xid.92.severity: expected one of info")


def test_a_reader_that_dies_is_told_once() -> None:
    """Whatever it had begun to say."""
    rig = Rig(None)
    rig.child.send(b'{"config"')
    rig.child.close()
    rig.turns()
    rig.clock.advance(SECONDS + 1)
    rig.turns()
    ((config, problems),) = rig.ends
    assert config is None
    assert "ended without an answer" in problems[0]


def test_a_disk_that_hangs_is_told_and_a_late_answer_is_not_heard(tmp_path: Path) -> None:
    """The loop goes on without; as long as the reader hangs, no second one is put beside it."""
    rig = Rig(tmp_path / "config.toml")
    rig.turns()
    assert rig.ends == []
    rig.clock.advance(SECONDS + 0.1)
    rig.turns()
    assert rig.ends == [(None, ["no answer within 5 s: is the disk hanging?"])]
    assert not rig.reload.is_over
    os.write(rig.child.fileno(), b'{"config":{}}\n')
    rig.turns()
    assert len(rig.ends) == 1
    rig.child.close()
    rig.turns()
    assert rig.reload.is_over


def test_what_takes_a_restart_is_named() -> None:
    """A running probe keeps the rails and the drivers it was started with."""
    rail = {"name": "psu1_12v", "chip": "nct6798@platform/nct6775.656", "input": "in1", "nominal_volts": 12.0}
    new = parse_config({"rails": [rail], "probes": {"hwmon": {"poll": ["nvme"], "root": "/host/sys", "deadline": "1s"}}})
    assert waiting_for_restart(Config(), new) == ["rails", "probes.hwmon.poll", "probes.hwmon.root"]
    assert waiting_for_restart(new, new) == []
