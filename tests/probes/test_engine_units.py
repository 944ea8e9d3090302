"""What systemd says of units, as `systemctl show` prints it."""

from __future__ import annotations

from pathlib import Path

import pytest

from xidwatch.core.model import Missing
from xidwatch.core.quantities import BY_NAME
from xidwatch.probes import engine_units

# As systemd 252 prints it; the second of them is an alias, the third nobody knows.
SHOWN = """\
Id=vllm.service
Names=vllm.service
LoadState=loaded
ActiveState=active
SubState=running
UnitFileState=enabled
InvocationID=3a3b6c1c59b44b7bb9f0d8f2c9f7f2b1
MainPID=4711
ControlGroup=/system.slice/vllm.service
NRestarts=2
Result=success
ExecMainCode=0
ExecMainStatus=0
StateChangeTimestampMonotonic=5000000

MainPID=0
Result=exit-code
NRestarts=0
ExecMainCode=1
ExecMainStatus=78
ControlGroup=
Id=llama-server.service
Names=llama.service llama-server.service
LoadState=loaded
ActiveState=failed
SubState=failed
UnitFileState=
StateChangeTimestampMonotonic=0
InvocationID=

MainPID=0
Id=typo.service
Names=typo.service
LoadState=not-found
ActiveState=inactive
SubState=dead
"""


def test_a_unit_is_read_by_name_in_whatever_order() -> None:
    """Numbers as numbers, words as words, the age of its state from systemd's monotonic stamp."""
    values = engine_units.readings(engine_units.blocks(SHOWN)["vllm.service"], 65.0)
    assert values == {
        "load_state": "loaded",
        "unit_file_state": "enabled",
        "active_state": "active",
        "sub_state": "running",
        "invocation_id": "3a3b6c1c59b44b7bb9f0d8f2c9f7f2b1",
        "main_pid": 4711,
        "control_group": "/system.slice/vllm.service",
        "restarts": 2,
        "result": "success",
        "exit_code": 0,
        "exit_status": 0,
        "state_seconds": 60.0,
    }
    assert set(values) == set(engine_units.QUANTITIES) <= set(BY_NAME)


def test_an_alias_is_found_and_what_is_empty_is_absent() -> None:
    """It is answered under its real name."""
    values = engine_units.readings(engine_units.blocks(SHOWN)["llama.service"], 65.0)
    assert (values["active_state"], values["exit_code"], values["exit_status"]) == ("failed", 1, 78)
    absent = {name for name, value in values.items() if value is Missing.ABSENT}
    assert absent == {"unit_file_state", "invocation_id", "control_group", "state_seconds"}


def test_a_unit_nobody_knows_is_said_to_be_that_and_nothing_else() -> None:
    """The call succeeds and calls it inactive: that would pass for an engine at rest."""
    values = engine_units.readings(engine_units.blocks(SHOWN)["typo.service"], 65.0)
    assert values.pop("load_state") == "not-found"
    assert values.pop("unit_file_state") is Missing.MALFORMED
    assert set(values.values()) == {Missing.ABSENT}


def test_what_is_not_in_the_answer_is_malformed() -> None:
    """Another version, half an answer, another unit's."""
    assert set(engine_units.readings(None, 65.0).values()) == {Missing.MALFORMED}
    values = engine_units.readings(engine_units.blocks("Id=vllm.service\nActiveState=active\nMainPID=[not set]\n")["vllm.service"], 65.0)
    assert (values["active_state"], values["sub_state"], values["main_pid"]) == ("active", Missing.MALFORMED, Missing.ABSENT)


@pytest.mark.parametrize("text", ["", "\n\n\n", "no equals\n", "=\n", "Names=\n", "\x00=\x00\n"])
def test_rubbish_has_no_unit_in_it(text: str) -> None:
    """And is no error."""
    assert "vllm.service" not in engine_units.blocks(text)


def test_all_units_are_asked_about_in_one_call() -> None:
    """Names come behind `--`, so that none is an option."""
    words = engine_units.question("/bin/systemctl", ["a.service", "b.service"])
    assert words[:3] == ["/bin/systemctl", "show", "--no-pager"]
    assert words[-3:] == ["--", "a.service", "b.service"]
    assert {"Id", "Names", "InvocationID"} < set(words[3].removeprefix("--property=").split(","))


def test_which_run_it_is_can_be_seen_without_asking(tmp_path: Path) -> None:
    """A link that systemd keeps while the unit runs."""
    assert not engine_units.is_booted(tmp_path)
    (tmp_path / "systemd/system").mkdir(parents=True)
    (tmp_path / "systemd/units").mkdir()
    assert engine_units.is_booted(tmp_path)
    assert engine_units.invocation(tmp_path, "vllm.service") == ""
    (tmp_path / "systemd/units/invocation:vllm.service").symlink_to("3a3b6c1c")
    assert engine_units.invocation(tmp_path, "vllm.service") == "3a3b6c1c"


def test_systemctl_is_where_it_is_on_this_host() -> None:
    """Or where it would be."""
    assert engine_units.systemctl() in engine_units.PLACES
