"""The report for programs: keys and their meaning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.report import nights
from xidwatch.report import json as report_json
from xidwatch.report import ledger, load


def document(state_dir: Path, *, every: bool = False) -> dict[str, Any]:
    book = ledger.read(state_dir)
    told = load.story(state_dir, book, load.choose(book))
    several = load.stories(state_dir, book) if every else []
    found: dict[str, Any] = json.loads(report_json.dumps(report_json.document(told, several)))
    return found


def test_an_incident_has_the_keys_of_the_interface(tmp_path: Path) -> None:
    """Incident, subjects, timeline, observations, engine, missing and dumps are there; conclusions nobody drew are not."""
    found = document(nights.supply_trip(tmp_path))
    assert set(found) == {"incident", "subjects", "timeline", "observations", "engine", "missing", "dumps", "records"}
    incident = found["incident"]
    assert incident["first_event"] == {"kind": "xid", "pci": "0000:11:00.0"}
    assert (incident["state"], incident["hardware"]) == ("closed", True)
    assert [subject["pci"] for subject in found["subjects"] if subject["role"] == "victim" and subject["kind"] == "gpu"] == [
        gpu.name for gpu in nights.GPUS
    ]
    assert {subject["pci"] for subject in found["subjects"] if subject["role"] == "bystander"} == {
        "0000:00:03.1", "0000:02:00.0", "0000:03:00.0"
    }  # fmt: skip


def test_the_timeline_marks_its_first_bad_entry(tmp_path: Path) -> None:
    """One entry is marked; every entry says when, in which boot, from which source, what and how bad."""
    timeline = document(nights.supply_trip(tmp_path))["timeline"]
    assert [entry["pci"] for entry in timeline if entry.get("first_bad")] == ["0000:11:00.0"]
    for entry in timeline:
        assert {"time", "source", "boot", "kind", "pci", "severity", "text"} <= set(entry)
    assert len({entry["boot"] for entry in timeline}) == 2
    assert [entry["time"] for entry in timeline if entry.get("injected")] == ["2026-09-17T02:10:07.000Z"]


def test_every_lack_says_what_why_and_when(tmp_path: Path) -> None:
    """Damage of the records is among what is missing."""
    missing = document(nights.torn(tmp_path))["missing"]
    assert all(set(lack) >= {"what", "why", "from", "to"} for lack in missing)
    assert any("cut off" in lack["why"] for lack in missing)


def test_without_an_incident_the_answer_is_null(tmp_path: Path) -> None:
    """The lists are empty and the records' span is given."""
    found = document(nights.quiet(tmp_path))
    assert (found["incident"], found["subjects"], found["timeline"], found["dumps"]) == (None, [], [], [])
    assert found["records"]["ticks"] == 2
    assert found["missing"]
    assert (found["notes"], found["notes_left_out"]) == ([], 0)


def test_what_was_bad_without_an_incident_is_there_with_its_evidence(tmp_path: Path) -> None:
    """Beside the kernel events; a replay says that it is one."""
    found = document(nights.uneasy(tmp_path))
    seen = found["records"]["conditions_without_incident"]
    assert [(each["type"], each["status"]) for each in seen] == [
        ("RailOutOfRange", "FALSE"),
        ("LinkWidthBelowBaseline", "UNKNOWN"),
        ("LinkWidthBelowBaseline", "UNKNOWN"),
        ("DeviceReplaced", "TRUE"),
    ]
    assert (seen[0]["severity"], seen[0]["times"], seen[0]["reason"], len(seen[0]["evidence"])) == ("warning", 2, "volts 11.28", 1)
    assert (found["observations"], found["records"]["replayed"]) == ([], None)


def test_notes_by_people_are_there_without_an_incident(tmp_path: Path) -> None:
    """With one, they are in its timeline."""
    assert document(nights.many(tmp_path / "quiet"))["notes"] == [
        {"time": "2026-09-17T01:29:00.000Z", "text": "swapped the riser of card 2"},
        {"time": "2026-09-17T02:04:00.000Z", "text": "load test begins"},
    ]
    assert "notes" not in document(nights.supply_trip(tmp_path / "night"))


def test_several_incidents_are_a_list_with_the_same_keys(tmp_path: Path) -> None:
    """Only when there is more than one; a stuck probe alone says nothing about hardware."""
    assert "incidents" not in document(nights.sampled(tmp_path / "one"), every=True)
    found = document(nights.two(tmp_path / "two"), every=True)
    assert [each["incident"]["id"] for each in found["incidents"]] == [nights.EARLIER, nights.LOST]
    assert [each["incident"]["hardware"] for each in found["incidents"]] == [None, True]
    assert set(found["incidents"][0]) == set(found) - {"incidents", "incidents_left_out"}
