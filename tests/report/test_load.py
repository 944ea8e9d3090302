"""What a report takes from the records: which incident, what is known of it, and that nothing on the disk makes it fall over."""

from __future__ import annotations

import os
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report import nights
from tests.report.nights import BOOT_A, GPUS, LOST, NVME, OTHER_SWITCH, ROOT, SWITCH, Pen, wall
from xidwatch.core.model import Moment, Severity, Status
from xidwatch.records import RecordError, journal
from xidwatch.report import ledger, load, text, timeline
from xidwatch.report.load import UnknownIncident
from xidwatch.report.story import Case, Story


def told(state_dir: Path, wanted: str = "", since: float | None = None) -> Story:
    book = ledger.read(state_dir, wanted, since)
    return load.story(state_dir, book, load.choose(book, wanted))


def case_of(state_dir: Path, wanted: str = "") -> Case:
    case = told(state_dir, wanted).case
    assert case is not None
    return case


def test_the_night_is_told_as_it_was_recorded(tmp_path: Path) -> None:
    """Beginning, end, first event, victims and who was still there come from the records of the two boots."""
    case = case_of(nights.supply_trip(tmp_path))
    assert (case.id, case.boot_id, case.state, case.severity) == (LOST, BOOT_A, "closed", Severity.CRITICAL)
    assert (case.began, case.not_before, case.ended) == (wall("02:10:08.412"), None, wall("02:25:31.100"))
    assert case.hardware is True
    first = case.first_event
    assert first is not None
    assert (first.source, first.kind, first.pci) == ("kernel", "xid", "0000:11:00.0")
    assert case.victims == (*GPUS, SWITCH)
    assert case.bystanders == (NVME, ROOT, OTHER_SWITCH)
    assert {seen.status for seen in case.observations} == {Status.FALSE}
    port = next(seen for seen in case.observations if seen.subject == SWITCH)
    assert (port.not_before, port.began, port.from_kernel) == (wall("02:09:38.004"), wall("02:10:08.520"), False)


def test_a_line_that_a_process_wrote_is_never_the_first_bad_one(tmp_path: Path) -> None:
    """An injected Xid a second earlier stands in the timeline, and is not what it began with."""
    events = case_of(nights.supply_trip(tmp_path)).events
    injected = [event for event in events if event.injected]
    assert [event.wall for event in injected] == [wall("02:10:07")]
    assert [event.wall for event in events if event.first_bad] == [wall("02:10:08.412")]


def test_a_run_that_died_lived_until_its_last_sample(tmp_path: Path) -> None:
    """The end without a word is put at the last row, which is later than the last journal record; nobody watched until the next start."""
    story = told(nights.supply_trip(tmp_path))
    assert story.case is not None
    [end] = [event for event in story.case.events if event.kind == "unclean-end"]
    assert end.wall == wall("02:12:38.004")
    blind = next(lack for lack in story.unseen if lack.what == "everything")
    assert (blind.began, blind.ended) == (wall("02:12:38.004"), wall("02:20:01"))
    assert "restarted" in blind.why


def test_what_was_missing_is_told_with_reason_and_time(tmp_path: Path) -> None:
    """Columns that went together are one line; one that was missing from the start has no beginning."""
    unseen = {(lack.what, lack.why): lack for lack in told(nights.supply_trip(tmp_path)).unseen}
    gpus = "GPUs 0000:11:00.0, 0000:12:00.0, 0000:13:00.0, 0000:14:00.0"
    asleep = unseen[f"{gpus}: power_*, temperature_celsius", "NOT_ASKED"]
    assert (asleep.began, asleep.ended) == (wall("02:10:38.020"), wall("02:20:01"))
    assert unseen[f"{gpus}: recovery_action", "UNSUPPORTED"].began is None
    assert ("evidence part 040-config-space.txt", "timeout: TimeoutError: its deadline passed") in unseen
    assert unseen["records of kmsg", "311 records of kmsg were not kept"].began == wall("02:10:40")


def test_a_reboot_makes_what_was_seen_unknown(tmp_path: Path) -> None:
    """After another boot nothing stands as TRUE or FALSE until it is looked at again."""
    pen = Pen(tmp_path)
    nights.begin(pen)
    nights.fall(pen)
    pen.boot = nights.BOOT_B
    pen.started("02:20:01")
    case = case_of(pen.finish())
    assert case.state == "open"
    assert {seen.status for seen in case.observations} == {Status.UNKNOWN}


def test_a_torn_tail_and_a_missing_manifest_are_told(tmp_path: Path) -> None:
    """The incident stays open, the torn line is damage, the lonely part is listed as of unknown worth."""
    story = told(nights.torn(tmp_path))
    assert story.case is not None
    assert story.case.state == "open"
    assert story.coverage.ends_cleanly is False
    [damage] = story.damage
    assert "cut off" in damage.text
    [dump] = story.case.dumps
    assert (dump.state, [(part.name, part.status) for part in dump.parts]) == ("unknown", [("010-samples.csv", "unknown")])
    assert load.exit_code(story) == 2


def test_the_latest_incident_unless_another_is_named(tmp_path: Path) -> None:
    """A unique beginning of an id is enough; one that fits several, or none, is refused with those on record."""
    nights.two(tmp_path)
    assert case_of(tmp_path).id == LOST
    earlier = case_of(tmp_path, "20260917T0142")
    assert (earlier.id, earlier.state, earlier.severity, earlier.hardware) == (nights.EARLIER, "closed", Severity.ERROR, None)
    with pytest.raises(UnknownIncident, match="more than one") as several:
        told(tmp_path, "2026")
    assert several.value.known == [nights.EARLIER, LOST]
    with pytest.raises(UnknownIncident, match="no incident"):
        told(tmp_path, "2025")


def test_each_of_two_incidents_keeps_to_itself(tmp_path: Path) -> None:
    """The earlier one ends with its closing record; nothing of the later one is in it."""
    stories = load.stories(nights.two(tmp_path), ledger.read(tmp_path))
    cases = [story.case for story in stories if story.case]
    assert [case.id for case in cases] == [nights.EARLIER, LOST]
    assert cases[0].events[-1].kind == "closed"
    assert {seen.type for seen in cases[0].observations} == {"ProbeStuck"}
    assert {seen.type for seen in cases[1].observations} == {"GpuLost", "DriverFatalXid", "ConfigSpaceAllOnes"}


def test_a_sampled_edge_is_an_interval(tmp_path: Path) -> None:
    """It began after the last good row; the readings shown as last are of that very row."""
    case = case_of(nights.sampled(tmp_path))
    assert (case.not_before, case.began) == (wall("02:09:38.004"), wall("02:10:08.006"))
    assert {row.wall for row in case.readings.before} == {wall("02:09:38.004")}
    first = case.first_event
    assert first is not None
    assert (first.kind, first.pci) == ("ConfigSpaceAllOnes", "0000:0f:00.0")


def test_without_an_incident_the_coverage_is_told(tmp_path: Path) -> None:
    """How many ticks, from when to when, which kernel events, and what could not be seen; that is no failure."""
    story = told(nights.quiet(tmp_path))
    assert story.case is None
    cover = story.coverage
    assert (cover.ticks, cover.runs, cover.boots, cover.ends_cleanly) == (2, 1, 1, True)
    assert (cover.first, cover.last) == (wall("02:00:00"), wall("02:00:45"))
    assert [(count.kind, count.xid, count.count) for count in cover.kernel_counts] == [("xid", 31, 1)]
    assert {"hwmon", "the run"} < {lack.what for lack in story.unseen}
    assert load.exit_code(story) == 0


def test_what_was_bad_without_an_incident_is_told(tmp_path: Path) -> None:
    """Each condition once, how often it was TRUE, and how it stands: good again, unknown since a reboot, still TRUE."""
    nights.uneasy(tmp_path)
    seen = {each.subject: each for each in told(tmp_path).alone}
    assert {subject: (each.status, each.times) for subject, each in seen.items()} == {
        nights.RAIL: (Status.FALSE, 2),
        GPUS[0]: (Status.UNKNOWN, 1),
        GPUS[1]: (Status.UNKNOWN, 1),
        GPUS[2]: (Status.TRUE, 1),
    }
    assert (seen[nights.RAIL].not_before, seen[nights.RAIL].since) == (wall("01:59:30"), wall("02:11:00"))
    assert {each.subject for each in told(tmp_path, since=wall("02:15:00")).alone} == set(GPUS[:3])
    assert told(tmp_path, since=wall("03:00:00")).alone == (seen[GPUS[2]],)
    assert load.exit_code(told(tmp_path)) == 0


def test_what_belongs_to_an_incident_is_told_there_alone(tmp_path: Path) -> None:
    """And beside it what was bad the day before, however it ended; not what came later."""
    pen = Pen(tmp_path)
    nights.begin(pen)
    pen.edge("01:20:00", nights.RAIL, "RailOutOfRange", reason="volts 11.2", incident=None, severity=Severity.WARNING)
    pen.edge("01:30:00", nights.RAIL, "RailOutOfRange", Status.FALSE, before=Status.TRUE, incident=None)
    nights.fall(pen)
    for gpu in GPUS:
        for type_ in ("GpuLost", "DriverFatalXid"):
            pen.edge("02:25:31", gpu, type_, Status.FALSE, before=Status.TRUE)
    pen.closed("02:25:31", LOST, "02:10:08.412")
    pen.edge("03:00:00", NVME, "DeviceReplaced", incident=None, severity=Severity.WARNING)
    pen.finish()
    assert [seen.subject for seen in told(tmp_path).alone] == [nights.RAIL]


def test_the_peak_of_a_gpu_that_went_is_told_as_of_before(tmp_path: Path) -> None:
    """The row after it still holds what was counted up to then: that belongs to no later time."""
    pen = Pen(tmp_path)
    nights.begin(pen)
    nights.fall(pen)
    pen.tick("02:10:38.004", 120, gone=True, cells={f"{GPUS[0]}:power_peak_watts": "571"})
    found = case_of(pen.finish()).readings
    assert [(shown.subject, shown.values) for shown in found.parting] == [(GPUS[0], {"power_peak_watts": "571"})]
    assert {shown.values.get("power_peak_watts", "") for shown in found.latest} == {""}
    assert {shown.wall for shown in found.latest} == {wall("02:10:38.004")}


def test_a_replay_is_known_as_one(tmp_path: Path) -> None:
    """By what each of its runs says when it starts; a run of this host says nothing of the kind."""
    pen = Pen(tmp_path / "replayed")
    pen.started("01:50:00", replayed="rail-sag")
    assert told(pen.finish()).replayed == "rail-sag"
    assert told(nights.quiet(tmp_path / "own")).replayed == ""


def test_since_leaves_out_what_was_over_before(tmp_path: Path) -> None:
    """A closed incident counts until its end, and an open one for ever: it is not over."""
    nights.two(tmp_path)
    assert len(load.stories(tmp_path, ledger.read(tmp_path, since=wall("01:43:00")))) == 2
    for since in ("02:00:00", "03:00:00"):
        [left] = load.stories(tmp_path, ledger.read(tmp_path, since=wall(since)))
        assert left.case is not None
        assert (left.case.id, left.case.state) == (LOST, "open")
        assert load.exit_code(told(tmp_path, since=wall(since))) == 2


def test_since_leaves_out_a_night_that_is_over(tmp_path: Path) -> None:
    """After its end there is no incident in that time, only others on record; by its id it can be had all the same."""
    nights.supply_trip(tmp_path)
    later = told(tmp_path, since=wall("02:30:00"))
    assert (later.case, later.others, load.exit_code(later)) == (None, (LOST,), 0)
    named = told(tmp_path, LOST[:10], since=wall("02:30:00"))
    assert named.case is not None
    assert named.case.id == LOST


def test_what_is_counted_is_counted_since_then(tmp_path: Path) -> None:
    """Ticks, records, runs and kernel events of one and the same time; the last record is of all."""
    nights.quiet(tmp_path)
    cover = told(tmp_path, since=wall("02:00:20")).coverage
    assert (cover.ticks, cover.records, cover.runs, cover.kernel_counts, cover.first) == (1, 1, 1, (), wall("02:00:30"))
    later = told(tmp_path, since=wall("03:00:00"))
    assert later.coverage.nothing_since == wall("03:00:00")
    assert later.coverage.last == wall("02:00:45")
    assert [(lack.what, lack.began) for lack in later.unseen] == [("everything", wall("03:00:00"))]
    assert load.exit_code(later) == 0


def test_the_blindness_of_every_run_is_told(tmp_path: Path) -> None:
    """Each remark, lost record and switched off probe with its time; the same in runs that follow each other is one."""
    unseen = [(lack.what, lack.why.partition(":")[0], lack.began, lack.ended) for lack in told(nights.many(tmp_path)).unseen]
    assert unseen == [
        ("everything", "xidwatch was stopped", wall("01:30:00"), wall("01:40:00")),
        ("everything", "the run ended without a word", wall("01:50:00"), wall("02:00:00")),
        ("records of kmsg", "311 were not kept", wall("01:25:00"), wall("01:25:00")),
        (f"GPUs {', '.join(gpu.name for gpu in GPUS)}: recovery_action", "UNSUPPORTED", wall("01:10:05.200"), None),
        ("pci", "switched off in the settings (probes.pci.enabled = false)", wall("01:10:05"), wall("01:50:00")),
        ("the runs", "not started by systemd", wall("01:10:05"), None),
        ("nvml", "NVMLError_DriverNotLoaded", wall("01:41:00"), wall("01:50:00")),
        (f"GPU {GPUS[0].name}: temperature_celsius", "TIMED_OUT", wall("01:20:00"), wall("01:21:00")),
    ]
    later = told(tmp_path, since=wall("01:55:00"))
    assert [lack.what for lack in later.unseen] == ["everything", f"GPUs {', '.join(gpu.name for gpu in GPUS)}: recovery_action", "the run"]


def test_a_remark_that_comes_and_goes_is_counted(tmp_path: Path) -> None:
    """In every other run for long it is one line with how often, not one for each; so are the times in which nobody watched."""
    pen = Pen(tmp_path)
    for minute in range(40):
        pen.record(f"02:{minute:02}:00", "started", version="0.1.0")
        if minute % 2:
            pen.remark(f"02:{minute:02}:01", "nvml: not loaded")
        pen.record(f"02:{minute:02}:30", "stopped", why="SIGTERM")
    unseen = told(pen.finish()).unseen
    [nvml] = [lack for lack in unseen if lack.what == "nvml"]
    assert (nvml.began, nvml.ended, nvml.times) == (wall("02:01:01"), wall("02:39:30"), 20)
    unwatched = [lack for lack in unseen if lack.what == "everything"]
    assert len(unwatched) < 20
    assert sum(lack.times for lack in unwatched) == 39


@pytest.mark.parametrize("remark_first", [True, False])
@pytest.mark.parametrize("boot", [BOOT_A, nights.BOOT_B])
def test_a_remark_of_the_start_belongs_to_the_run_that_starts(tmp_path: Path, boot: str, *, remark_first: bool) -> None:
    """Just before `started` (as in old journals) or behind it, and also when the run before has said the same."""
    pen = Pen(tmp_path)
    pen.started("01:10:05")
    pen.remark("01:20:00", "nvml: not loaded")
    pen.boot = boot
    pen.started("02:20:01", remark_first=remark_first)
    runs = ledger.read(pen.finish()).runs
    assert [dict(run.remarks) for run in runs] == [
        {nights.BY_HAND: wall("01:10:05"), "nvml: not loaded": wall("01:20:00")},
        {nights.BY_HAND: wall("02:20:01")},
    ]
    assert [run.last for run in runs] == [wall("01:20:00"), wall("02:20:01")]


def test_the_wall_clock_has_no_say_in_whose_remark_it_is(tmp_path: Path) -> None:
    """Set back by an hour between the remark and `started`, the monotonic clock still tells that they belong together."""
    pen = Pen(tmp_path)
    pen.started("01:10:05")
    pen.remark("02:20:01", "nvml: not loaded")
    pen.write(journal.record("started", pen.id("r"), Moment(wall("01:20:00"), 4201.5), BOOT_A, {"version": "0.1.0"}))
    assert [list(run.remarks) for run in ledger.read(pen.finish()).runs] == [[nights.BY_HAND], ["nvml: not loaded"]]


def test_notes_by_people_are_kept_without_an_incident(tmp_path: Path) -> None:
    """The latest of them, oldest first, and how many more there are; remarks of the program are none."""
    pen = Pen(tmp_path)
    pen.started("02:00:00")
    for minute in range(25):
        pen.record(f"02:{minute:02}:30", "note", text=f"note {minute}", uid=0)
    story = told(pen.finish())
    assert [note.text for note in story.notes] == [f"note {minute}" for minute in range(5, 25)]
    assert story.notes_left_out == 5
    assert [note.text for note in told(tmp_path, since=wall("02:24:00")).notes] == ["note 24"]


def test_a_kernel_line_stands_above_what_it_brought(tmp_path: Path) -> None:
    """Of one instant, in whatever order the journal has them: each record above the edges that quote it, all else as it was."""
    pen = Pen(tmp_path)
    lines = [nights.xid_line(79, gpu, "GPU has fallen off the bus.") for gpu in GPUS[:2]]
    for gpu, line in zip(GPUS, lines, strict=False):
        edge = pen.edge("02:10:08.412", gpu, "GpuLost", reason=f"kernel: {line}")
        if gpu == GPUS[0]:
            pen.opened("02:10:08.412", LOST, edge)
    pen.xid("02:10:08.412", 8, 79, GPUS[1], "GPU has fallen off the bus.")
    pen.xid("02:10:08.412", 7, 79, GPUS[0], "GPU has fallen off the bus.")
    pen.kernel("02:10:08.412", 9, "NVRM: GPU 0: GSP is dead", kind="gsp")
    events = case_of(pen.finish()).events
    assert [(event.source, event.pci) for event in events] == [
        ("kernel", GPUS[0].name), ("watch", GPUS[0].name), ("incident", None),
        ("kernel", GPUS[1].name), ("watch", GPUS[1].name), ("kernel", None),
    ]  # fmt: skip
    assert [event.first_bad for event in events] == [True] + 5 * [False]


def test_an_incident_that_was_never_closed_ends_nowhere(tmp_path: Path) -> None:
    """When a later one begins, nobody can say that the earlier one is open, or over."""
    pen = Pen(tmp_path)
    nights.begin(pen)
    trigger = pen.edge("01:42:00", SWITCH, "ConfigSpaceAllOnes", reason=nights.ALL_ONES, incident="20260917T014200Z-bus-lost-0f")
    pen.opened("01:42:00", "20260917T014200Z-bus-lost-0f", trigger)
    nights.fall(pen)
    story = told(pen.finish(), "20260917T014200Z")
    assert story.case is not None
    assert story.case.state == "unknown"
    assert story.unseen[0].what == "its end"
    assert load.exit_code(story) == 3


def test_a_folder_without_its_journal_is_still_an_incident(tmp_path: Path) -> None:
    """The evidence may be all that was copied: it is told as such, with nothing made up around it."""
    Pen(tmp_path).dump(LOST)
    story = told(tmp_path)
    assert story.case is not None
    assert (story.case.state, story.case.began, story.case.observations) == ("unknown", wall("02:10:08"), ())
    assert len(story.case.dumps[0].parts) == 3
    assert any("only its evidence folder" in line.text for line in text.report(story))


def test_the_edge_alone_makes_an_incident(tmp_path: Path) -> None:
    """It is written before `opened`: a crash in between loses the second, not the incident."""
    pen = Pen(tmp_path)
    pen.edge("02:10:08.412", GPUS[0], "GpuLost", reason="kernel: NVRM: Xid")
    case = case_of(pen.finish())
    assert (case.id, case.state, case.severity) == (LOST, "open", Severity.CRITICAL)


def test_a_wall_clock_that_was_set_does_not_change_the_order(tmp_path: Path) -> None:
    """Within a boot the monotonic clock orders: what came later stands later, whatever its wall time says."""
    pen = Pen(tmp_path)
    nights.begin(pen)
    nights.fall(pen)
    record = journal.record("note", pen.id("r"), Moment(wall("02:08:00"), 9000.0), BOOT_A, {"text": "clock set back"})
    pen.write(record)
    events = case_of(pen.finish()).events
    assert events[-1].text == "clock set back"


def test_no_records_are_said_to_be_none(tmp_path: Path) -> None:
    """An empty place, a place that is not there and a file are no state directory; the error says what to do."""
    (tmp_path / "file").write_text("")
    for place in (tmp_path, tmp_path / "nowhere", tmp_path / "file"):
        with pytest.raises(RecordError) as refused:
            ledger.read(place)
        assert refused.value.hint


@pytest.mark.slow
def test_a_large_open_incident_is_bounded(tmp_path: Path) -> None:
    """Of very many entries the first and the latest are kept and the others counted; conditions are followed through all of them."""
    pen = Pen(tmp_path)
    nights.begin(pen)
    nights.fall(pen)
    number = timeline.MOST_HEAD + timeline.MOST_TAIL + 1000
    for index in range(number):
        pen.kernel("02:11:00", 200_000 + index, f"NVRM: line {index}", kind="gsp")
    pen.edge("02:12:00", SWITCH, "ConfigSpaceAllOnes", Status.FALSE, before=Status.TRUE)
    story = told(pen.finish())
    assert story.case is not None
    assert story.case.events_left_out > 900
    assert story.case.first_event is not None
    assert next(seen for seen in story.case.observations if seen.subject == SWITCH).status is Status.FALSE
    assert len(text.report(story)) < 200


def test_bodies_that_make_no_sense_are_passed_over(tmp_path: Path) -> None:
    """Every kind of record with an empty, foreign or absurd body gives a report all the same."""
    pen = Pen(tmp_path)
    bodies: tuple[dict[str, object], ...] = (
        {},
        {"subject": "gpu:zz", "after": 3},
        {"incident": 7, "columns": "x", "reason": []},
        {"subject": ":", "after": "TRUE"},
        {"settings": {"probes": {"pci": {"enabled": 0}, "nvml": None, "": {"enabled": False}}}, "text": "x", "remark": "y"},
    )
    for kind in journal.KINDS:
        for body in bodies:
            pen.record("02:00:00", kind, **body)
    pen.write({"id": "x", "time": "0001-01-01T00:00:00Z", "opened": {"incident": "20260917T021009Z-old-x"}})
    pen.write({"id": "x", "time": "9999-12-31T23:59:59Z", "opened": {"incident": "20260917T021009Z-new-x"}})
    state_dir = pen.finish(b"\xff\xfe{{{\n\0\0\0\n[1]\n")
    book = ledger.read(state_dir)
    for known in book.in_order():
        assert text.report(load.story(state_dir, book, known))
    assert text.report(load.story(state_dir, book, None))


@pytest.mark.slow
@given(st.data())
def test_no_damage_makes_it_fall_over(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Bytes overwritten, lines cut out and files cut short anywhere in the night's records still give a report."""
    state_dir = nights.supply_trip(tmp_path_factory.mktemp("night"))
    paths = sorted(path for path in state_dir.rglob("*") if path.is_file())
    path = data.draw(st.sampled_from(paths))
    whole = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(whole) - 1))
    match data.draw(st.sampled_from(("cut", "overwrite", "drop a line"))):
        case "cut":
            del whole[place:]
        case "overwrite":
            whole[place : place + 20] = random.Random(place).randbytes(20)
        case _:
            del whole[place : whole.find(b"\n", place) + 1]
    path.write_bytes(bytes(whole))
    book = ledger.read(state_dir)
    assert text.report(load.story(state_dir, book, load.choose(book)))
    msgspec.json.encode([load.exit_code(each) for each in load.stories(state_dir, book)])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_records_that_may_not_be_read_are_refused_with_a_hint(tmp_path: Path) -> None:
    """They are for root only, and the error says so."""
    nights.quiet(tmp_path)
    (tmp_path / "journal").chmod(0)
    with pytest.raises(RecordError, match="sudo"):
        ledger.read(tmp_path)
    (tmp_path / "journal").chmod(0o700)
