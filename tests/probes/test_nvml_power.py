"""One GPU's power over time: what leaves the process and how often, what is said of gaps, and what where there is no buffer."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.fakes.nvml import BUFFER_ENTRIES, FakeField, FakeGpu, FakeNvml
from tests.probes.nvml_rig import GPUS, Rig
from xidwatch.core.model import Missing, Subject, Value
from xidwatch.core.power import Stretch, TraceSource
from xidwatch.probes.nvml_power import CALM_SECONDS, IDLE_SECONDS, LOAD_SECONDS, SILENT_SECONDS, Buffer, EnergyMark, Load, mean_watts
from xidwatch.probes.nvml_table import Code, number_in

GPU = Subject.parse(GPUS[0])
IDLE, WORK = 80_000, 300_000  # mW, of a limit of 350 W
INSTANT = 186


@pytest.fixture
def rig() -> Rig:
    return Rig(FakeNvml.with_gpus(4))


@pytest.fixture
def one() -> Rig:
    return Rig(FakeNvml.with_gpus(1))


def live(rig: Rig, gpu: FakeGpu, milliwatts: int) -> None:
    """The driver fills this GPU's buffer from now on, whenever it is looked at."""
    began_us = int(rig.wall * 1e6)

    def fill(function: str) -> None:
        if function == "nvmlDeviceGetSamples":
            newest = gpu.buffer[-1][0] if gpu.buffer else began_us
            gpu.buffer += [(stamp, milliwatts) for stamp in range(newest + 20_000, int(rig.wall * 1e6) + 1, 20_000)]
            del gpu.buffer[:-BUFFER_ENTRIES]

    rig.library.before_call = fill


def stamps(traces: list[Stretch]) -> list[int]:
    return [stamp for stretch in traces for stamp in stretch.stamps_us]


# --- mean and peak


def test_the_first_mean_is_not_asked_and_a_counter_that_starts_anew_is_no_negative_draw(one: Rig) -> None:
    """The mean needs two readings of the same counter: after a reload of the module it begins again."""
    assert one.ask().facts[GPUS[0]]["power_mean_watts"] is Missing.NOT_ASKED
    one.later(30)
    one.gpus[0].energy_millijoules = 17
    assert one.ask().facts[GPUS[0]]["power_mean_watts"] is Missing.NOT_ASKED
    one.later(30)
    one.gpus[0].energy_millijoules += 3_000_000
    assert one.ask().facts[GPUS[0]]["power_mean_watts"] == pytest.approx(100)


@pytest.mark.parametrize(
    ("before", "after", "watts"),
    [
        (None, EnergyMark(10, 500), Missing.NOT_ASKED),
        (EnergyMark(10, 500), EnergyMark(10.2, 90_500), Missing.NOT_ASKED),
        (EnergyMark(10, 500), EnergyMark(12, 499), Missing.NOT_ASKED),
        (EnergyMark(10, 500), EnergyMark(12, 500), 0.0),
        (EnergyMark(10, 500), EnergyMark(12, 200_500), 100.0),
    ],
)
def test_a_mean_is_claimed_only_over_a_time_that_bears_it(before: EnergyMark | None, after: EnergyMark, watts: Value) -> None:
    """No first mark, too short a time or a smaller counter: not asked; an unchanged counter is a true 0."""
    assert mean_watts(before, after) == watts


def test_a_mean_does_not_reach_across_a_loss(one: Rig) -> None:
    """A GPU that was reset in between may have begun its counter anew and passed the old value."""
    one.ask()
    one.gpus[0].lost = Code.GPU_IS_LOST
    one.later(30)
    one.ask()
    one.gpus[0].lost = 0
    one.gpus[0].energy_millijoules += 1_000_000
    one.later(30)
    assert one.ask().facts[GPUS[0]]["power_mean_watts"] is Missing.NOT_ASKED


def test_a_burst_between_two_ticks_is_the_peak_though_no_average_shows_it(one: Rig) -> None:
    """Drained every two seconds, the buffer holds what the tick itself comes too late for."""
    gpu = one.gpus[0]
    one.ask()
    for milliwatts in (931_000, 130_000, 128_000):
        one.later(IDLE_SECONDS)
        gpu.buffer.clear()  # the driver's ring forgets
        one.draw(gpu, 127_000, milliwatts, 126_000)
        one.between()
    facts = one.ask().facts[GPUS[0]]
    assert facts["power_peak_watts"] == 931.0
    assert facts["power_samples"] == 9
    assert facts["power_average_watts"] == 250.0


def test_an_entry_is_counted_once_and_a_peak_told_once(one: Rig) -> None:
    """The buffer gives the last 2.4 s each time; only what is newer than the last drain counts."""
    one.draw(one.gpus[0], 300_000, 900_000)
    first, second = one.ask().facts[GPUS[0]], one.ask().facts[GPUS[0]]
    assert (first["power_peak_watts"], first["power_samples"]) == (900.0, 2)
    assert (second["power_peak_watts"], second["power_samples"]) == (Missing.ABSENT, 0)


def test_what_was_drained_is_told_before_anything_is_touched(rig: Rig) -> None:
    """If the first call of a tick never returns, the last seconds before it have left the process."""
    rig.ask()
    rig.later(2)
    rig.draw(rig.gpus[3], 402_700)
    rig.between()
    order = rig.ask().order
    assert order.index("power_peak_watts") < order.index("driver:nvidia")


def test_the_last_peak_of_a_gpu_that_is_lost_is_kept(rig: Rig) -> None:
    """What it drew just before is evidence; from the next tick on there is nothing."""
    rig.ask()
    rig.later(2)
    rig.draw(rig.gpus[1], 402_700)
    rig.between()
    rig.gpus[1].lost = Code.GPU_IS_LOST
    assert rig.ask().facts[GPUS[1]]["power_peak_watts"] == 402.7
    after = rig.ask().facts[GPUS[1]]
    assert (after["power_peak_watts"], after["power_samples"]) == (Missing.DEVICE_LOST, Missing.DEVICE_LOST)


def test_a_lost_gpu_is_left_alone_between_the_ticks(rig: Rig) -> None:
    """Once seen lost, by a drain or by a sample, it is not touched again before the next request; the others are."""
    rig.ask()
    rig.gpus[0].lost = Code.GPU_IS_LOST
    for _ in range(3):
        rig.later(IDLE_SECONDS)
        rig.between()
    assert rig.library.count("nvmlDeviceGetSamples", rig.gpus[0]) == 2
    assert rig.library.count("nvmlDeviceGetSamples", rig.gpus[1]) == 4


@pytest.mark.parametrize("code", [*Code, 777])
def test_draining_never_raises(one: Rig, code: int) -> None:
    """Whatever the driver answers between two ticks, the next tick is where it is told."""
    one.ask()
    one.library.driver_error = code
    one.between()


def test_a_clock_set_back_does_not_blind_the_peak(one: Rig) -> None:
    """Stamps are wall time: a host whose clock was two hours ahead at boot would see no peak for two hours."""
    gpu = one.gpus[0]
    one.draw(gpu, 700_000)
    one.ask()
    one.wall -= 7200
    one.draw(gpu, 300_000)
    one.ask()
    one.later(2)
    one.draw(gpu, 310_000, 320_000)
    facts = one.ask().facts[GPUS[0]]
    assert (facts["power_peak_watts"], facts["power_samples"]) == (320.0, 2)


def test_entries_of_an_unknown_type_are_no_zero_watts() -> None:
    """A union member that cannot be chosen leaves the peak missing."""
    assert Buffer().take(GPU, [(10_000, number_in(17, None))], now_us=20_000) == ([], Missing.MALFORMED)


def test_a_peak_that_would_come_too_late_is_kept_for_the_next_tick(one: Rig) -> None:
    """The deadline passes during the drain: what it brought is told by the next sample, before all else."""
    one.ask()
    one.draw(one.gpus[0], 402_700)
    one.library.before_call = lambda name: one.later(10) if name == "nvmlDeviceGetSamples" else None
    assert one.ask(deadline=one.mono + 4).facts[GPUS[0]]["power_peak_watts"] is Missing.TIMED_OUT
    one.library.before_call = lambda _name: None
    assert one.ask().facts[GPUS[0]]["power_peak_watts"] == 402.7


# --- how often


def test_an_idle_gpu_is_read_every_two_seconds_and_one_at_work_every_half(one: Rig) -> None:
    """The worker is told how long it can wait; the change to the quicker pace comes with the first drain that shows work."""
    live(one, one.gpus[0], IDLE)
    one.ask()
    called = one.passes(8.0)
    assert {later - earlier for earlier, later in pairwise(called)} == {IDLE_SECONDS}
    live(one, one.gpus[0], WORK)
    called = one.passes(8.0)
    steps = [later - earlier for earlier, later in pairwise(called)]
    assert set(steps) == {LOAD_SECONDS}
    assert called[0] <= 1008.0 + IDLE_SECONDS


def test_each_gpu_has_its_own_pace(rig: Rig) -> None:
    """One of four works: the others are not asked more often for it."""
    for gpu in rig.gpus:
        rig.draw(gpu, IDLE if gpu is not rig.gpus[2] else WORK)
    rig.ask()
    before = [rig.library.count("nvmlDeviceGetSamples", gpu) for gpu in rig.gpus]
    rig.passes(CALM_SECONDS - 1)
    assert before == [1, 1, 1, 1]
    assert [rig.library.count("nvmlDeviceGetSamples", gpu) for gpu in rig.gpus] == [5, 5, 18, 5]


def test_one_gpu_is_asked_a_call_so_that_a_request_never_waits_for_all(rig: Rig) -> None:
    """Between two of them the worker looks whether somebody asks; when all have been drained there is time again."""
    rig.ask()
    rig.later(IDLE_SECONDS)
    for done in range(4):
        assert rig.probe.between_seconds == 0
        calls = len(rig.library.calls)
        rig.probe.between()
        assert rig.library.calls[calls:] == [("nvmlDeviceGetSamples", rig.gpus[done].bus_id)]
    assert rig.probe.between_seconds == IDLE_SECONDS


@pytest.mark.parametrize(
    ("limit", "utilisation", "shares", "working"),
    [
        (350.0, 0.97, [0.11], False),  # an H200 with nothing to do
        (350.0, 0.0, [0.17], False),  # with a context open
        (350.0, 0.0, [0.29], False),
        (350.0, 0.0, [0.30], True),
        (350.0, 0.0, [0.30, 0.26], True),  # down to a quarter it goes on
        (350.0, 0.0, [0.30, 0.24], True),  # not calm for long enough
        (None, 0.97, [], True),
        (None, 0.0, [0.9], False),
        (None, None, [], True),  # nothing is known: rather a drain too many
    ],
)
def test_work_is_seen_by_the_highest_sample_as_a_share_of_the_limit(
    limit: float | None, utilisation: float | None, shares: list[float], working: bool
) -> None:
    """Two thresholds, so that a draw between them changes nothing; without a limit the utilisation of the last tick decides."""
    load = Load()
    load.note("power_limit_watts", Missing.UNSUPPORTED if limit is None else limit)
    load.note("utilisation_ratio", Missing.UNSUPPORTED if utilisation is None else utilisation)
    for second, share in enumerate(shares or [0.0]):
        load.feel([80_000, round(share * 350_000)], 1000.0 + second)
    assert load.working is working


def test_work_ends_when_nothing_has_reached_a_quarter_for_ten_seconds() -> None:
    """A server's bursts are seconds apart: each keeps the quicker pace for a while."""
    load = Load(limit_watts=350.0)
    load.feel([300_000], 1000.0)
    load.feel([40_000], 1009.0)
    load.feel([100_000], 1009.5)
    load.feel([40_000], 1019.0)
    assert load.working
    load.feel([], 1019.5)
    assert not load.working


# --- what leaves the process


def test_every_sample_leaves_once_with_its_own_stamp(one: Rig) -> None:
    """Drain after drain, a tick's own included: no sample is missing or twice, and each stretch names the sample it follows."""
    live(one, one.gpus[0], IDLE)
    one.passes(0.1)
    one.ask()
    one.passes(5.0)
    one.ask()
    one.passes(3.0)
    sent = stamps(one.traces)
    assert [later - earlier for earlier, later in pairwise(sent)] == [20_000] * (len(sent) - 1)
    assert [stretch.after_us for stretch in one.traces] == [0, *(stretch.stamps_us[-1] for stretch in one.traces[:-1])]
    assert {stretch.source for stretch in one.traces} == {TraceSource.BUFFER}
    assert len(one.traces) > 4


def test_a_stretch_has_left_before_the_next_gpu_is_touched(rig: Rig) -> None:
    """The call on the second never returns: what the first drew is out already."""
    for gpu in rig.gpus:
        rig.draw(gpu, IDLE)
    sent: list[int] = []
    rig.library.before_call = lambda name: sent.append(len(rig.traces)) if name == "nvmlDeviceGetHandleByPciBusId" else None
    rig.ask()
    assert sent == [0, 1, 2, 3]


def test_a_buffer_that_has_overrun_is_a_gap_and_is_not_filled(one: Rig) -> None:
    """Nobody could ask for ten seconds. The entry last seen is no longer there, so nobody knows what came after it."""
    live(one, one.gpus[0], IDLE)
    one.later(1.0)
    one.ask()
    one.later(10.0)
    one.between()
    one.later(2.0)
    one.between()
    assert [stretch.after_us for stretch in one.traces] == [0, 0, one.traces[1].stamps_us[-1]]
    assert one.traces[1].stamps_us[0] - one.traces[0].stamps_us[-1] > 7_000_000
    assert len(one.traces[1].stamps_us) == BUFFER_ENTRIES


def test_long_steps_inside_the_driver_are_no_gap(one: Rig) -> None:
    """A few per cent of an H200's steps are 30 to 45 ms: what the buffer holds in one piece is whole."""
    gpu, now_us = one.gpus[0], int(one.wall * 1e6)
    gpu.buffer += [(now_us - 500_000, IDLE)]
    one.ask()
    gpu.buffer += [(now_us - 100_000, IDLE), (now_us - 55_000, IDLE)]
    one.between()
    assert [stretch.after_us for stretch in one.traces] == [0, now_us - 500_000]


def test_an_unreadable_entry_ends_a_stretch() -> None:
    """Then something is missing, and what comes after it follows nothing."""
    drawn: list[float | Missing] = [1.0, 2.0, Missing.MALFORMED, 4.0, 4.0, -1.0]
    entries = list(zip((10_000, 20_000, 30_000, 40_000, 40_000, 50_000), drawn, strict=True))
    found, reason = Buffer(cursor_us=10_000).take(GPU, entries, now_us=60_000)
    told = [(stretch.stamps_us, stretch.milliwatts, stretch.after_us) for stretch in found]
    assert told == [((20_000,), (2,), 10_000), ((40_000,), (4,), 0)]
    assert reason is Missing.MALFORMED


@pytest.mark.parametrize("off_us", [-1, 1])
def test_an_entry_told_again_may_be_stamped_a_microsecond_off(off_us: int) -> None:
    """An H200 does so now and then: it is the same sample, and the next one follows it."""
    found, _ = Buffer(cursor_us=20_000).take(GPU, [(20_000 + off_us, 1.0), (40_000, 2.0)], now_us=60_000)
    assert [(stretch.stamps_us, stretch.after_us) for stretch in found] == [((40_000,), 20_000)]


@pytest.mark.parametrize("seconds", [0.5, 2.0, 7200.0])
def test_a_clock_set_back_is_a_gap(one: Rig, seconds: float) -> None:
    """Stamps come twice then: nothing is claimed of what lies between, and nothing is sent twice."""
    live(one, one.gpus[0], IDLE)
    one.later(1.0)
    one.ask()
    one.wall -= seconds
    one.gpus[0].buffer.clear()
    live(one, one.gpus[0], IDLE)
    for _ in range(2):
        one.later(1.5)
        one.between()
    (first, second, *others) = one.traces
    assert (first.after_us, second.after_us) == (0, 0)
    assert [stretch.after_us for stretch in others] == [second.stamps_us[-1] for _ in others]
    sent = stamps(one.traces)
    assert len(sent) == len(set(sent))


# --- without a buffer


def test_a_board_without_the_buffer_is_polled_and_says_so(one: Rig) -> None:
    """GeForce boards may lack it: no peak, no count, no further call; the sensor is asked at the pace the buffer would be."""
    gpu = one.gpus[0]
    gpu.fail("nvmlDeviceGetSamples", Code.NOT_SUPPORTED)
    for _ in range(2):
        facts = one.ask().facts[GPUS[0]]
        assert (facts["power_peak_watts"], facts["power_samples"]) == (Missing.UNSUPPORTED, Missing.UNSUPPORTED)
        assert facts["power_trace_source"] == "poll_instant"
        one.passes(4.0)
    assert one.library.count("nvmlDeviceGetSamples") == 1
    assert {(stretch.source, stretch.milliwatts) for stretch in one.traces} == {(TraceSource.POLL_INSTANT, (251_000,))}
    assert [stretch.after_us for stretch in one.traces] == [0, *(stretch.stamps_us[0] for stretch in one.traces[:-1])]
    assert one.library.count("nvmlDeviceGetFieldValues") >= 2 * 4.0 / LOAD_SECONDS


def test_an_average_is_never_called_an_instant(one: Rig) -> None:
    """Where the field is missing as well, GetPowerUsage is polled, and every sample says that it is a mean."""
    one.library.missing.add("nvmlDeviceGetSamples")
    one.gpus[0].fields.clear()
    assert one.ask().facts[GPUS[0]]["power_trace_source"] == "poll_average"
    one.passes(4.0)
    assert {(stretch.source, stretch.milliwatts) for stretch in one.traces} == {(TraceSource.POLL_AVERAGE, (250_000,))}


def test_a_buffer_that_stays_empty_is_polled_until_it_fills(one: Rig) -> None:
    """NOT_FOUND may pass: for ten seconds it is believed, then the sensor stands in; a tick looks whether there is more by now."""
    one.ask()
    one.passes(SILENT_SECONDS - 1)
    assert one.traces == []
    assert "power_trace_source" not in one.ask().facts[GPUS[0]]
    one.passes(4.0)
    assert {stretch.source for stretch in one.traces} == {TraceSource.POLL_INSTANT}
    live(one, one.gpus[0], IDLE)
    one.later(1.0)
    facts = one.ask().facts[GPUS[0]]
    assert (facts["power_trace_source"], one.traces[-1].source, one.traces[-1].after_us) == ("buffer", TraceSource.BUFFER, 0)
    asked = one.library.count("nvmlDeviceGetFieldValues")
    one.passes(8.0)
    assert one.library.count("nvmlDeviceGetFieldValues") == asked


def test_a_sensor_that_does_not_answer_either_leaves_the_trace_empty(one: Rig) -> None:
    """No zero is made up, and nothing is said of a source there is none of."""
    gpu = one.gpus[0]
    gpu.fields[INSTANT] = FakeField(code=Code.NOT_SUPPORTED)
    for function in ("nvmlDeviceGetSamples", "nvmlDeviceGetPowerUsage"):
        gpu.fail(function, Code.NOT_SUPPORTED)
    assert "power_trace_source" not in one.ask().facts[GPUS[0]]
    one.passes(12.0)
    assert one.traces == []


def test_a_poll_that_failed_is_a_gap(one: Rig) -> None:
    """The next one follows nothing."""
    gpu = one.gpus[0]
    gpu.fail("nvmlDeviceGetSamples", Code.NOT_SUPPORTED)
    one.ask()
    one.passes(LOAD_SECONDS)
    gpu.fail("nvmlDeviceGetFieldValues", Code.NO_PERMISSION, times=1)
    gpu.fail("nvmlDeviceGetPowerUsage", Code.NO_PERMISSION, times=1)
    one.passes(2 * LOAD_SECONDS)
    follows = [stretch.after_us > 0 for stretch in one.traces]
    assert follows.count(False) == 2
    assert follows[-1] is False


def test_the_source_of_a_lost_gpu_is_not_claimed(rig: Rig) -> None:
    """It is known for the inventory as well, and gives its reason while nothing is taken from it."""
    rig.draw(rig.gpus[0], IDLE)
    rig.ask()
    assert rig.ask("inventory").facts[GPUS[0]]["power_trace_source"] == "buffer"
    rig.gpus[0].lost = Code.GPU_IS_LOST
    assert rig.ask().facts[GPUS[0]]["power_trace_source"] is Missing.DEVICE_LOST
