"""The alerts as Prometheus reads them: well formed, firing on what they are for, and quiet otherwise."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ALERTS

CASES = Path(__file__).parent / "alerts.test.yml"

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")


def promtool(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The rules and their tests side by side, as promtool wants them."""
    shutil.copy(ALERTS, tmp_path)
    shutil.copy(CASES, tmp_path)
    return tmp_path


def test_promtool_takes_the_rules(folder: Path) -> None:
    """Every expression and every annotation is understood."""
    checked = promtool("check", "rules", ALERTS.name, folder=folder)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.slow
def test_each_alert_fires_on_its_night_and_on_no_other(folder: Path) -> None:
    """A bad night, a host that is well, a daemon that is gone; each names the page to read."""
    tested = promtool("test", "rules", CASES.name, folder=folder)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_no_alert_is_without_a_night() -> None:
    """Each stands in the tests, once firing."""
    said = CASES.read_text()
    fires = set(re.findall(r"alertname: (\w+)\n +exp_alerts:", said))
    assert fires == set(re.findall(r"- alert: (\w+)", ALERTS.read_text()))


@pytest.mark.slow
def test_a_rule_that_never_fires_is_found(folder: Path) -> None:
    """The tests fail when an alert's expression is broken."""
    path = folder / ALERTS.name
    path.write_text(path.read_text().replace("xidwatch_records_behind_seconds > 60", "xidwatch_records_behind_seconds > 6000"))
    assert promtool("test", "rules", CASES.name, folder=folder).returncode != 0
