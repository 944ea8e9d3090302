"""The state as others see it: the state file, the metrics snapshot, the watcher watched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.clock import BOOT_ID, MONO, WALL, FakeClock
from xidwatch.clock import iso
from xidwatch.config import EngineConfig, load_rules, rules_dir
from xidwatch.core import tally, watch
from xidwatch.core.gate_model import Gate, GateSettings, GateState, Lease, Maintenance
from xidwatch.core.messages import KernelRead, Restored, SampleTaken, Supervised
from xidwatch.core.model import HOST, KernelEvent, Missing, Moment, PciAddress, Readings, Sample, Severity, Subject, Value
from xidwatch.core.tally import Tally
from xidwatch.core.ticks import Answer
from xidwatch.core.watch import State
from xidwatch.daemon import engine_views, views
from xidwatch.daemon.metrics import Snapshot
from xidwatch.daemon.views import RECORDER_LATE_SECONDS, ProbeHistory
from xidwatch.records import state as state_record
from xidwatch.records.order import Order
from xidwatch.records.state import EngineState, MaintenanceState, StateFile

RULES = load_rules(rules_dir(None)).conditions
NOW = FakeClock().now()
ENGINES = (EngineConfig("vllm.service"), EngineConfig("llama.service", gpus="all"))
SINCE = Moment(WALL - 60, MONO - 60)
GPU = Subject("gpu", "0000:11:00.0")
PORT = Subject("port", "0000:0f:00.0")
DEAD: Readings = {
    PORT: {"config_dword0": 0xFFFFFFFF, "driver": "pcieport"},
    GPU: {"config_dword0": Missing.BEHIND_DEAD_PARENT, "nvml_status": 15, "driver": "nvidia"},
}
GOOD: Readings = {PORT: {"config_dword0": 0x1000C010, "command": 0x547, "secondary_bus": 16, "driver": "pcieport"}}


def sampled(readings: Readings, state: State | None = None) -> tuple[State, Sample]:
    sample = Sample(120, NOW, BOOT_ID, readings)
    after, _ = watch.step(RULES, state or State(), SampleTaken(sample))
    return after, sample


def history() -> ProbeHistory:
    """pci answered at the last tick, nvml at the one before, host never."""
    found = ProbeHistory()
    found.add({"pci": Answer("pci", "done", {}, took_ms=41), "nvml": Answer("nvml", "done", {}, took_ms=17)}, Moment(WALL - 30, MONO - 30))
    found.add(
        {
            "pci": Answer("pci", "done", {}, took_ms=40),
            "nvml": Answer("nvml", "timeout", {}, "no answer in 5 s", took_ms=5000, at=str(GPU)),
            "host": Answer("host", "crashed", {}, "exit status 1"),
        },
        NOW,
    )
    return found


def state_file(state: State, sample: Sample | None = None, *, leaving: bool = False) -> StateFile:
    return views.state_file(
        RULES,
        state,
        boot_id=BOOT_ID,
        now=NOW,
        since=SINCE,
        sample=sample,
        interval=30.0,
        history=history(),
        stuck={"nvml": 27.46},
        engines=engine_views.shown(ENGINES, RULES, state, NOW, {}),
        baseline=None,
        pid=None if leaving else 4242,
    )


# --- the state file


def test_the_state_file_says_what_is_wrong_and_since_when(tmp_path: Path) -> None:
    """The verdict first; every condition with its reason and severity; readable by whoever reads such files."""
    state, sample = sampled(DEAD)
    shown = state_file(state, sample)
    assert (shown.verdict, shown.tick, shown.boot_id, shown.mono_ms) == ("failed", 120, BOOT_ID, int(MONO * 1000))
    assert (shown.since, shown.time) == ("2026-09-17T02:09:08.412Z", "2026-09-17T02:10:08.412Z")
    assert state.incident
    assert shown.incident == state.incident.id
    true = {(c.type, c.subject): c for c in shown.conditions if c.status == "TRUE"}
    assert set(true) == {("ConfigSpaceAllOnes", str(PORT)), ("GpuLost", str(GPU))}
    assert true["GpuLost", str(GPU)].severity == "critical"
    assert "nvml_status 15" in true["GpuLost", str(GPU)].reason
    path = tmp_path / "state.json"
    path.write_bytes(state_record.encode(shown))
    assert state_record.read(path) == shown
    assert state_record.freshness(shown, int(MONO * 1000) + 1, BOOT_ID) == "fresh"


def test_conditions_are_in_order_and_only_those_that_apply() -> None:
    """Sorted, so that two files can be compared; what cannot be so on this hardware is left out."""
    state, sample = sampled({**GOOD, Subject("gpu", "0000:12:00.0"): {"config_dword0": 1, "driver": "amdgpu"}})
    shown = state_file(state, sample)
    keys = [(c.type, c.subject) for c in shown.conditions]
    assert keys == sorted(keys)
    assert ("GpuLost", "gpu:0000:12:00.0") not in keys
    assert {c.status for c in shown.conditions} <= {"TRUE", "FALSE", "UNKNOWN"}


def test_before_the_first_tick_nothing_is_claimed() -> None:
    """No tick, no condition; the daemon that says so is there."""
    shown = state_file(State())
    assert (shown.tick, shown.conditions, shown.incident, shown.pid) == (None, (), None, 4242)


def test_a_daemon_that_leaves_knows_nothing_any_more() -> None:
    """Its last file has no pid and no verdict, whatever was true: nobody looks from now on. What it saw stays readable."""
    shown = state_file(*sampled(DEAD), leaving=True)
    assert (shown.verdict, shown.pid) == ("unknown", None)
    assert any(c.status == "TRUE" for c in shown.conditions)


def test_probes_show_their_age_and_where_they_are_stuck() -> None:
    """One that has never answered has no age, not age zero."""
    probes = state_file(State()).probes
    assert (probes["pci"].success, probes["pci"].age_s, probes["pci"].stuck_s) == (True, 0.0, 0.0)
    assert (probes["nvml"].success, probes["nvml"].age_s, probes["nvml"].stuck_s) == (False, 30.0, 27.5)
    assert probes["nvml"].text == "no answer in 5 s (at gpu:0000:11:00.0)"
    assert (probes["host"].success, probes["host"].age_s) == (False, None)


def test_a_probe_that_is_not_asked_any_more_does_not_answer() -> None:
    """From the moment it is left alone, not from the next tick on; state file and metrics say the same, and its age goes on."""
    told = history()
    told.refuse({"pci": "released", "engine": "released"})
    assert (told.answers["pci"].ended, told.answers["pci"].trouble, told.answers["pci"].in_full) == ("not-asked", "released", False)
    assert set(told.answers) == {"nvml", "pci", "host"}
    assert told.answers["nvml"].ended == "timeout"
    assert told.views({}, {})["pci"].success is False
    assert told.readings({}, {}, MONO + 2)[Subject("probe", "pci")]["age_seconds"] == 2.0


def test_a_probe_that_leaves_something_out_answers_in_part() -> None:
    """Which is neither an answer nor silence."""
    told = history()
    told.add({"pci": Answer("pci", "done", {}, left_out=(str(PORT),))}, NOW)
    shown = views.state_file(
        RULES, State(), boot_id=BOOT_ID, now=NOW, since=SINCE, sample=None, interval=30.0, history=told, stuck={}, engines={},
        baseline=None, pid=1,
    ).probes  # fmt: skip
    assert (shown["pci"].success, shown["pci"].partly, shown["pci"].text) == (False, True, f"leaves out {PORT}, where a process is stuck")
    assert not shown["nvml"].partly


# --- the watcher watched


def test_probes_are_readings_like_all_others() -> None:
    """Under names that the rules can look at; without an age where there never was an answer."""
    found = history().readings({"nvml": 27.46}, {}, MONO + 2)
    well = {"success": 1, "answering": 1, "took_ms": 40, "age_seconds": 2.0, "stuck_seconds": 0.0, "at": ""}
    late = {"success": 0, "answering": 0, "took_ms": 5000, "age_seconds": 32.0, "stuck_seconds": 27.5, "at": str(GPU)}
    assert found[Subject("probe", "pci")] == well
    assert found[Subject("probe", "nvml")] == late
    assert "age_seconds" not in found[Subject("probe", "host")]


CHIP = "chip:nct6798@platform/nct6775.656"
HUNG = Answer("hwmon", "timeout", {}, "no answer before the deadline", at=CHIP)
BESIDE = Answer("hwmon", "done", {}, left_out=(CHIP,))


def judged(answers: list[Answer], *, clearing: set[int]) -> list[tuple[str, str]]:
    """Status and reason of ProbeNotAnswering after each tick at the interval and with the rules as shipped; `clearing`: at which ticks."""
    found, state, seen = ProbeHistory(), State(), []
    for number, answer in enumerate(answers):
        at = Moment(WALL + 30.0 * number, MONO + 30.0 * number)
        found.add({"hwmon": answer}, at, {"hwmon"} if number in clearing else ())
        state, _ = watch.step(RULES, state, SampleTaken(Sample(number, at, BOOT_ID, found.readings({}, {}, at.mono))))
        condition = state.conditions[Subject("probe", "hwmon"), "ProbeNotAnswering"].condition
        seen.append((str(condition.status), condition.reason))
    return seen


def test_a_chip_at_which_every_worker_gets_stuck_and_is_ended_is_told_of() -> None:
    """Every other tick is served by one that leaves it out, which is no recovery: within two intervals it is said, and where."""
    well = Answer("hwmon", "done", {})
    seen = judged([well, HUNG, BESIDE, HUNG, BESIDE, HUNG, well], clearing={2, 4})
    assert [status for status, _ in seen[:3]] == ["FALSE"] * 3
    assert seen[3:6] == [("TRUE", f"answering 0, at {CHIP}")] * 3
    assert judged([HUNG, BESIDE, HUNG, well, well, well], clearing={1})[-1] == ("FALSE", "answering 1")


def test_a_probe_that_serves_beside_one_that_cannot_be_ended_is_answering() -> None:
    """That one is stuck for good, for which there is another condition."""
    seen = judged([HUNG, BESIDE, BESIDE, BESIDE], clearing={1})
    assert {status for status, _ in seen} <= {"FALSE", "UNKNOWN"}
    assert seen[-1] == ("FALSE", f"answering 1, at {CHIP}")


def test_a_silent_probe_that_is_not_asked_any_more_has_not_recovered() -> None:
    """A successor asks NVML only when it knows the past; and a driver that is let go was silent to the end."""
    left_alone = Answer("hwmon", "not-asked", {}, "released")
    seen = judged([HUNG, HUNG, HUNG, left_alone, left_alone, left_alone, left_alone], clearing=set())
    assert [status for status, _ in seen[2:]] == ["TRUE"] * 5
    assert judged([left_alone, left_alone], clearing=set())[-1][0] == "NOT_APPLICABLE"


@pytest.mark.parametrize(("behind", "success", "stuck"), [(0.0, 1, 0.0), (RECORDER_LATE_SECONDS, 1, 0.0), (90.04, 0, 90.0)])
def test_a_recorder_is_watched_like_a_probe(behind: float, success: int, stuck: float) -> None:
    """A few seconds are a busy disk; more is a disk that hangs."""
    found = history().readings({}, {"recorder": behind, "recorder-2": 0.0}, MONO)
    assert found[Subject("probe", "recorder")] == {"success": success, "answering": 1, "stuck_seconds": stuck}
    assert found[Subject("probe", "recorder-2")] == {"success": 1, "answering": 1, "stuck_seconds": 0.0}


def test_metrics_see_the_same_of_the_probes() -> None:
    """In base units."""
    seen = history().views({"nvml": 27.46}, {"recorder": 0.2, "recorder-2": 61.0})
    assert (seen["nvml"].success, seen["nvml"].answered_mono, seen["nvml"].took_seconds) == (False, MONO - 30, 5.0)
    assert seen["nvml"].stuck_seconds == 27.46
    assert seen["host"].answered_mono is None
    assert (seen["recorder"].success, seen["recorder"].stuck_seconds) == (True, 0.0)
    assert (seen["recorder-2"].success, seen["recorder-2"].stuck_seconds) == (False, 61.0)


# --- the snapshot


def snapshot(state: State, sample: Sample | None) -> Snapshot:
    return views.snapshot(
        RULES,
        state,
        sample=sample,
        readings=sample.readings if sample else {},
        inventory={},
        probes={},
        known_xids=(79,),
        gap_records=3,
        ticks_missed=2,
        dumps=1,
        engines=engine_views.shown(ENGINES, RULES, state, NOW, {}),
        behind=0.5,
        starts={},
        stops={"vllm.service": 1},
    )


def test_a_snapshot_holds_what_the_state_holds() -> None:
    """Xids as counted, conditions as judged, and whether an incident is open."""
    state, sample = sampled(DEAD)
    lost = KernelEvent(1, 0, "xid", Severity.CRITICAL, "x", xid=79, pci=PciAddress.parse("0000:11:00.0"), driver_fatal=True)
    state, _ = watch.step(RULES, state, KernelRead(((NOW, lost),), 1, NOW))
    shown = snapshot(state, sample)
    assert (shown.verdict, shown.tick, shown.sampled_mono, shown.sampled_wall) == ("failed", 120, MONO, WALL)
    assert dict(shown.xids) == {(PciAddress.parse("0000:11:00.0"), 79): 1}
    assert shown.incident_open
    assert len(shown.conditions) == len(state.conditions)
    assert (shown.kernel_gap_records, shown.ticks_missed, shown.dumps, shown.records_behind_seconds) == (3, 2, 1, 0.5)


def test_a_snapshot_shows_who_is_missed() -> None:
    """A card of an earlier boot has no readings in this one, and must not be left out for that."""
    gone = Subject("gpu", "0000:11:00.0")
    place = Subject("gpu", "0000:00/03.1/00.0")
    state, _ = watch.step(RULES, State(), Restored({}, None, 1, {}, (), {place: {"address": gone.name, "driver": "nvidia"}}))
    state, _ = watch.step(RULES, state, SampleTaken(Sample(1, NOW, "boot", {HOST: {"pci_functions": 3}})))
    assert snapshot(state, None).readings[gone] == {"present": 0}


def test_an_empty_snapshot_has_no_sample_time() -> None:
    """Not the epoch, and not age zero."""
    shown = snapshot(State(), None)
    assert (shown.sampled_mono, shown.tick, shown.incident_open) == (None, 0, False)


def test_the_counters_that_people_alert_on_exist_from_the_start() -> None:
    """`increase()` cannot see the birth of a series; yet every Xid times every GPU would make a page nobody wants to scrape."""
    xids = load_rules(rules_dir(None)).xids
    preset = views.preset_xids(xids)
    assert {13, 31, 43, 45, 48, 63, 79, 94, 95, 119, 120, 154} <= set(preset)
    assert len(preset) < 64


# --- engines


def test_an_engine_is_shown_with_what_was_seen_of_it() -> None:
    """Its state in systemd's words, which run it is, its GPUs and who says so; nothing where nothing was seen."""
    engine = Subject("engine", "vllm.service")
    unit: dict[str, Value] = {"active_state": "active", "sub_state": "running", "invocation_id": "3a3b", "pids": "10"}
    state, sample = sampled({GPU: {"compute_pids": "10"}, engine: unit})
    shown = state_file(state, sample).engines
    assert shown["vllm.service"] == EngineState(unit="active/running", invocation_id="3a3b", gpus=(GPU.name,), gpus_by="found")
    assert shown["llama.service"] == EngineState(gpus=(GPU.name,), gpus_by="configured")
    assert snapshot(state, sample).engines == shown
    hung = dict.fromkeys(unit, Missing.TIMED_OUT)
    later, _ = watch.step(RULES, state, SampleTaken(Sample(121, NOW, BOOT_ID, {GPU: {"compute_pids": Missing.DEVICE_LOST}, engine: hung})))
    assert state_file(later).engines["vllm.service"] == EngineState(gpus=(GPU.name,), gpus_by="found")


# --- gates

UNIT = "vllm.service"


def gated(gate: Gate, readings: Readings, **changes: Any) -> EngineState:
    state, _ = sampled({GPU: {"compute_pids": "10"}, Subject("engine", UNIT): {"pids": "10", "invocation_id": "3a3b"}, **readings})
    state = replace(state, engines=(GateSettings(UNIT, gpus=(GPU.name,)),), gates={UNIT: gate}, **changes)
    order = Order(unit=UNIT, boot_id=BOOT_ID, until_mono_ms=1, until="04:10", at="03:10", reason="x", by="root")
    return engine_views.shown((EngineConfig(UNIT, gpus=(GPU.name,)),), RULES, state, NOW, {UNIT: order})[UNIT]


def test_a_held_engine_is_shown_with_what_could_help() -> None:
    """The gate's own reason first, the ladder with what is in the way, and that an operator has gone past it."""
    shown = gated(Gate(UNIT, GateState.HELD, SINCE, "1 of 4 GPUs lost"), {**DEAD, Subject("engine", UNIT): {"pids": "10"}})
    assert (shown.state, shown.may_start, shown.why, shown.order) == ("HELD", False, "1 of 4 GPUs lost", "04:10")
    assert shown.since == iso(SINCE.wall)
    assert shown.recovery[1].endswith("blocked: held by process 10")
    assert shown.recovery[-1].startswith("without mains")


def test_a_reboot_that_one_gpu_asks_for_stands_first() -> None:
    """By the last line of the log about it, though the first was another one."""
    ask = KernelEvent(2, 0, "xid", Severity.CRITICAL, "154", xid=154, pci=PciAddress.parse(GPU.name), recovery="Node Reboot Required")
    books, _ = tally.count(Tally(), [(NOW, ask)])
    shown = gated(Gate(UNIT, GateState.HELD, SINCE, "1 of 4 GPUs lost"), DEAD, tally=books)
    assert shown.recovery[0].startswith("warm reboot, for less does not help (the driver asks for 'Node Reboot Required' (0000:11:00.0))")


def test_a_latched_engine_is_shown_with_who_outlived_its_stop() -> None:
    """Behind the reason for which it is latched, with how often they have been asked to end since."""
    shown = gated(Gate(UNIT, GateState.LATCHED, SINCE, "lost twice", leftovers=("process 10 (VLLM::Worker) state S",), asked_again=2), {})
    assert shown.why == "lost twice; process 10 (VLLM::Worker) state S, asked again to end (2 of 8 times)"


def test_a_running_engine_on_bad_hardware_may_not_be_started_again() -> None:
    """With the condition that says so, not with how it came to run; nothing is advised before it is held."""
    shown = gated(Gate(UNIT, GateState.RUNNING, SINCE, "systemd has restarted it"), DEAD)
    assert shown.may_start is False
    assert shown.why.startswith("GpuLost TRUE gpu:0000:11:00.0")
    assert shown.recovery == ()


def test_where_it_ran_before_is_shown_until_it_is_seen_to_run() -> None:
    """After a reboot nobody has seen it on a GPU yet; it is known where it was."""
    kept = Gate(UNIT, GateState.HELD, SINCE, gpus=("0000:00/03.1/00.0",), gpus_of="found")
    state = replace(sampled(GOOD)[0], engines=(GateSettings(UNIT),), gates={UNIT: kept})
    shown = engine_views.shown((EngineConfig(UNIT),), RULES, state, NOW, {})[UNIT]
    assert (shown.gpus, shown.gpus_by) == (("0000:00/03.1/00.0",), "before")


def test_a_granted_start_is_shown_with_its_end() -> None:
    """For the start itself, which asks this file."""
    lease = Lease("a-000001", Moment(NOW.wall + 900, NOW.mono + 900))
    shown = gated(Gate(UNIT, GateState.STARTING, SINCE, lease=lease), {})
    assert (shown.may_start, shown.lease) == (True, iso(NOW.wall + 900))


def test_in_maintenance_nobody_knows() -> None:
    """And why is said, by the engine and by the host."""
    on = Maintenance(NOW, NOW.wall + 1800, "card swap", "alice (uid 0)")
    shown = gated(Gate(UNIT, GateState.RUNNING, SINCE), {}, maintenance=on)
    assert shown.may_start is None
    assert shown.why == f"in maintenance until {iso(on.until)}: card swap"
    state = replace(sampled(GOOD)[0], maintenance=on)
    assert state_file(state).maintenance == MaintenanceState(until=iso(on.until), reason="card swap", by="alice (uid 0)")


def test_an_engine_that_nobody_looks_at_says_so() -> None:
    """With the engine probe switched off its gate is unknown for ever; a person has to learn what to switch on."""
    state, _ = watch.step(RULES, sampled(GOOD)[0], Supervised(NOW, BOOT_ID, (GateSettings("vllm.service"),)))
    (shown,) = engine_views.shown(ENGINES[:1], RULES, state, NOW, {}).values()
    assert (shown.state, shown.may_start) == ("ADOPTING", None)
    assert "probes.engine" in shown.why
