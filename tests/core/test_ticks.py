"""From the answers of a tick to a complete sample: what did not come is missing, for a reason."""

from __future__ import annotations

import pytest

from xidwatch.core.model import Missing, Subject, Value
from xidwatch.core.ticks import Answer, Columns, missing_changes, why_missing

GPU, HOST = Subject("gpu", "0000:11:00.0"), Subject("host")


def answer(probe: str, ended: str = "done", failure: str = "", **readings: Value) -> Answer:
    return Answer(probe, ended, {GPU: readings} if readings else {}, failure=failure)


@pytest.mark.parametrize(
    ("ended", "failure", "reason"),
    [
        ("done", "", Missing.ABSENT),
        ("failed", "NVMLError_DriverNotLoaded", Missing.ABSENT),
        ("failed", "NVMLError_NoPermission", Missing.DENIED),
        ("failed", "PermissionError", Missing.DENIED),
        ("timeout", "", Missing.TIMED_OUT),
        ("crashed", "", Missing.TIMED_OUT),
        ("garbage", "", Missing.MALFORMED),
        ("not-asked", "", Missing.NOT_ASKED),
    ],
)
def test_how_an_answer_ended_is_why_its_readings_are_missing(ended: str, failure: str, reason: Missing) -> None:
    """Each ending has its own reason."""
    assert why_missing(answer("nvml", ended, failure)) is reason


def test_a_probe_that_is_not_there_was_not_asked() -> None:
    """Switched off by configuration."""
    assert why_missing(None) is Missing.NOT_ASKED


def test_what_came_before_the_deadline_counts() -> None:
    """Half an answer is half a row; the other half says that it timed out."""
    columns = Columns()
    columns.complete({"nvml": answer("nvml", power_mean_watts=231.4, temperature_celsius=61)})
    row = columns.complete({"nvml": answer("nvml", "timeout", power_mean_watts=230.0)})
    assert row == {GPU: {"power_mean_watts": 230.0, "temperature_celsius": Missing.TIMED_OUT}}


def test_a_stuck_probe_takes_nothing_from_the_others() -> None:
    """Two probes may report about one subject; each answers for its own columns."""
    columns = Columns()
    columns.complete({"nvml": answer("nvml", nvml_status=0), "pci": answer("pci", config_dword0=1)})
    row = columns.complete({"nvml": answer("nvml", "timeout"), "pci": answer("pci", config_dword0=2)})
    assert row == {GPU: {"config_dword0": 2, "nvml_status": Missing.TIMED_OUT}}


def test_a_column_once_seen_stays() -> None:
    """A device that is gone is missing, not forgotten."""
    columns = Columns()
    columns.complete({"nvml": answer("nvml", nvml_status=0)})
    assert columns.complete({}) == {GPU: {"nvml_status": Missing.NOT_ASKED}}
    assert columns.complete({"nvml": answer("nvml")}) == {GPU: {"nvml_status": Missing.ABSENT}}


def test_a_probe_that_never_answered_has_no_columns() -> None:
    """Nobody knows yet what it would have said."""
    assert Columns().complete({"nvml": answer("nvml", "timeout")}) == {}


def test_a_reason_given_by_the_probe_itself_is_kept() -> None:
    """It knows better than the way its answer ended."""
    row = Columns().complete({"nvml": answer("nvml", temperature_celsius=Missing.DEVICE_LOST)})
    assert row[GPU]["temperature_celsius"] is Missing.DEVICE_LOST


def test_completing_a_row_leaves_the_answer_as_it_came() -> None:
    """Readings are handed on, never written into."""
    columns, first = Columns(), answer("nvml", nvml_status=0)
    columns.complete({"nvml": answer("nvml", temperature_celsius=61)})
    columns.complete({"nvml": first})
    assert first.readings == {GPU: {"nvml_status": 0}}


def test_the_journal_hears_of_a_lack_when_it_begins_changes_or_ends() -> None:
    """An empty cell has its reason on record, once."""
    lost: dict[Subject, dict[str, Value]] = {GPU: {"b": Missing.TIMED_OUT, "a": Missing.TIMED_OUT}, HOST: {"load_1m": 0.5}}
    now, changed = missing_changes({}, lost)
    assert changed == {"TIMED_OUT": ["gpu:0000:11:00.0:b", "gpu:0000:11:00.0:a"]}
    now, changed = missing_changes(now, lost)
    assert changed == {}
    now, changed = missing_changes(now, {GPU: {"b": Missing.DEVICE_LOST, "a": Missing.TIMED_OUT}})
    assert changed == {"DEVICE_LOST": ["gpu:0000:11:00.0:b"]}
    now, changed = missing_changes(now, {GPU: {"b": 1, "a": 2}})
    assert (now, changed) == ({}, {"back": ["gpu:0000:11:00.0:a", "gpu:0000:11:00.0:b"]})


def test_many_columns_come_back_in_a_settled_order() -> None:
    """Two runs of the same night write the same journal."""
    names = [f"q{number:02}" for number in range(40)]
    now, _ = missing_changes({}, {GPU: dict.fromkeys(names, Missing.ABSENT)})
    assert missing_changes(now, {GPU: dict.fromkeys(names, 1)})[1] == {"back": [f"{GPU}:{name}" for name in names]}


def test_a_column_that_left_is_not_back() -> None:
    """Only a value is."""
    now, _ = missing_changes({}, {GPU: {"a": Missing.ABSENT}})
    assert missing_changes(now, {HOST: {"load_1m": 1.0}}) == ({}, {})


def test_an_answer_that_left_a_device_out_is_not_in_full() -> None:
    """Its readings count; that it was all there is to ask is not claimed."""
    whole, spared = Answer("pci", "done", {}), Answer("pci", "done", {}, left_out=("port:0000:0f:00.0",))
    assert (whole.in_full, whole.trouble) == (True, "")
    assert (spared.in_full, spared.trouble) == (False, "leaves out port:0000:0f:00.0, where a process is stuck")
    assert not Answer("pci", "timeout", {}).in_full
