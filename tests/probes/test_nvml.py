"""The NVML probe over a fake library: what is asked, what is believed, and what one lost GPU may cost the others."""

from __future__ import annotations

from math import inf

import pynvml
import pytest

from tests.fakes.nvml import DEVICE_FUNCTIONS, FakeField, FakeGpu, FakeNvml
from tests.probes.nvml_rig import GPUS, Rig
from xidwatch.core.model import Missing, Value
from xidwatch.core.quantities import BY_NAME
from xidwatch.probes import nvml_table
from xidwatch.probes.nvml import UNNAMED_RETRY_SECONDS, NvmlProbe, create
from xidwatch.probes.nvml_p2p import PEERS
from xidwatch.probes.nvml_table import CALLS, FACTS, FIELDS, INVENTORIED, PEAK, SAMPLED, Code, number_in

ALL = {*SAMPLED, *PEAK, PEERS, "nvml_status"}
LOSSES = pytest.mark.parametrize("code", [Code.GPU_IS_LOST, Code.RESET_REQUIRED])


@pytest.fixture
def rig() -> Rig:
    return Rig(FakeNvml.with_gpus(4))


@pytest.fixture
def one() -> Rig:
    return Rig(FakeNvml.with_gpus(1))


# --- a healthy host


def test_every_quantity_of_a_healthy_gpu_is_read_in_its_unit(one: Rig) -> None:
    """Milliwatts become watts, per cent a ratio; the mask, the state and the counters stay as they are."""
    one.ask()
    one.later(30)
    one.gpus[0].energy_millijoules += 30 * 231_400
    one.draw(one.gpus[0], 240_000, 402_700, 250_000)
    one.gpus[0].pids = [4712, 0, 4711, 4711]  # MIG: one process, two instances; and one that has no number in our namespace
    assert one.ask().facts == {
        GPUS[0]: {
            "nvml_status": 0,
            "power_mean_watts": pytest.approx(231.4),
            "power_average_watts": 250.0,
            "power_instant_watts": 251.0,
            "power_peak_watts": 402.7,
            "power_samples": 3,
            "power_trace_source": "buffer",
            "power_limit_watts": 350.0,
            "temperature_celsius": 61,
            "temperature_memory_celsius": 37,
            "clock_sm_mhz": 1980,
            "clock_memory_mhz": 3201,
            "utilisation_ratio": 0.97,
            "memory_used_bytes": 644_939_776,
            "clock_event_reasons": 4,
            "performance_state": 0,
            "nvml_link_generation": 5,
            "nvml_link_width": 16,
            "pcie_replays": 3,
            "compute_pids": "4711 4712",
            "recovery_action": 0,
            "p2p_peers": 0,
        }
    }


def test_inventory_tells_who_is_there(rig: Rig) -> None:
    """Identity, index and factory limit of each GPU, and the version of the driver."""
    facts = rig.ask("inventory").facts
    assert facts["driver:nvidia"] == {"version": "580.159.04"}
    assert facts[GPUS[2]] == {
        "nvml_index": 2,
        "minor_number": 2,
        "mig_mode": 0,
        "uuid": "GPU-00000000-0000-0000-0000-000000000003",
        "serial": "0000000000003",
        "name": "NVIDIA Fake",
        "vbios": "96.00.A5.00.1A",
        "power_limit_default_watts": 400.0,
    }


@pytest.mark.parametrize("what", ["sample", "inventory"])
def test_only_quantities_of_the_table_are_emitted(rig: Rig, what: str) -> None:
    """Whatever the probe reports has a name, a meaning and a source in the one table."""
    emitted = {quantity for of_subject in rig.ask(what).facts.values() for quantity in of_subject}
    assert emitted
    assert emitted <= set(BY_NAME)


def test_each_gpu_is_announced_before_it_is_touched(rig: Rig) -> None:
    """First the driver, then GPU after GPU, so that a call that never returns has a name; and anew for what concerns two of them."""
    assert rig.ask().touched == ["driver:nvidia", *GPUS, *GPUS]


def test_gpus_are_looked_up_by_pci_address_and_by_nothing_that_fails_with_a_neighbour(rig: Rig) -> None:
    """Index once, PCI address at every tick, UUID and serial never: those fail when any GPU of the host is lost."""
    for _ in range(3):
        rig.ask()
    lookups = {name for name, _ in rig.library.calls if "GetHandleBy" in name}
    assert lookups == {"nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByPciBusId"}
    assert rig.library.count("nvmlDeviceGetHandleByIndex") == 4
    assert rig.library.count("nvmlDeviceGetHandleByPciBusId") == 12


def test_a_look_hands_over_the_peaks_in_memory_and_asks_the_driver_nothing(rig: Rig) -> None:
    """It comes when a GPU has just been lost: the last peaks before that are what a tripped supply is told by."""
    rig.ask()
    rig.later(2.0)
    rig.draw(rig.gpus[0], 402_700)
    rig.between()
    before = list(rig.library.calls)
    assert rig.ask("look").facts[GPUS[0]] == {"power_peak_watts": 402.7, "power_samples": 1}
    assert rig.library.calls == before


def test_calls_that_block_are_not_made(rig: Rig) -> None:
    """The throughput counters take 20 ms a call."""
    rig.ask()
    rig.ask("inventory")
    assert not [name for name, _ in rig.library.calls if "Throughput" in name]


def test_fields_are_asked_in_one_call(one: Rig) -> None:
    """Three numbers, one trip into the driver."""
    assert one.calls_after().count("nvmlDeviceGetFieldValues") == 1


def test_nothing_is_loaded_before_the_first_request(one: Rig) -> None:
    """Making the probe, draining and looking do not open the driver."""
    one.between()
    assert not one.ask("look").order
    one.probe.close()
    assert not one.library.calls
    assert isinstance(create({}), NvmlProbe)


def test_close_lets_go_of_the_driver_once_and_tolerates_its_absence(one: Rig) -> None:
    """An open session pins the kernel module; shutting down a driver that is gone is no trouble."""
    one.ask()
    one.library.driver_error = Code.DRIVER_NOT_LOADED
    one.probe.close()
    one.probe.close()
    assert one.library.count("nvmlShutdown") == 1


# --- one GPU is lost


@LOSSES
def test_a_lost_gpu_leaves_the_others_fully_read(rig: Rig, code: int) -> None:
    """Of four GPUs one is gone: it is lost in every reading, with the driver's code, and three miss nothing."""
    rig.ask()
    rig.gpus[2].lost = code
    heard = rig.ask()
    lost = heard.facts[GPUS[2]]
    assert lost.pop("nvml_status") == code
    assert set(lost) == ALL - {"nvml_status"}
    assert set(lost.values()) == {Missing.DEVICE_LOST}
    for name in (GPUS[0], GPUS[1], GPUS[3]):
        assert set(heard.facts[name]) == ALL
        assert heard.facts[name]["nvml_status"] == 0
        assert heard.missing(name) == {}


@pytest.mark.parametrize(
    "function", sorted({"nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetFieldValues", *(c.function for c in CALLS)})
)
def test_a_gpu_lost_in_mid_sample_keeps_what_it_said_and_is_asked_no_more(rig: Rig, function: str) -> None:
    """Whichever call finds it out: no status 0, no further call on it in this tick, the neighbours untouched."""
    rig.ask()
    rig.gpus[0].fail(function, Code.GPU_IS_LOST)
    before = len(rig.library.calls)
    heard = rig.ask()
    of_gpu = [name for name, bus_id in rig.library.calls[before:] if bus_id == rig.gpus[0].bus_id]
    assert of_gpu[-1] == function
    assert heard.facts[GPUS[0]]["nvml_status"] == Code.GPU_IS_LOST
    assert set(heard.facts[GPUS[0]]) == ALL
    assert Missing.DEVICE_LOST in heard.facts[GPUS[0]].values()
    assert heard.facts[GPUS[1]]["nvml_status"] == 0


def test_a_field_that_says_lost_is_a_loss(one: Rig) -> None:
    """The call as a whole succeeds; the verdict stands in the element."""
    one.gpus[0].fields[82] = FakeField(code=Code.GPU_IS_LOST)
    assert one.ask().facts[GPUS[0]]["nvml_status"] == Code.GPU_IS_LOST


def test_a_lost_gpu_does_not_make_every_tick_an_enumeration(rig: Rig) -> None:
    """The loss is one reason to look at the indexes again; staying lost is none, for however long."""
    rig.ask()
    rig.gpus[1].lost = Code.GPU_IS_LOST
    rig.ask()
    assert "nvmlDeviceGetHandleByIndex" in rig.calls_after()
    rig.later(UNNAMED_RETRY_SECONDS)
    assert "nvmlDeviceGetHandleByIndex" not in rig.calls_after()


def test_a_gpu_that_comes_back_is_read_again_under_its_address(rig: Rig) -> None:
    """Its index is learnt anew."""
    rig.ask()
    rig.gpus[1].lost = Code.RESET_REQUIRED
    rig.ask()
    assert rig.ask("inventory").facts[GPUS[1]]["nvml_index"] is Missing.DEVICE_LOST
    rig.gpus[1].lost = 0
    assert rig.ask().facts[GPUS[1]]["nvml_status"] == 0
    assert rig.ask("inventory").facts[GPUS[1]]["nvml_index"] == 1


def test_a_gpu_no_longer_on_the_bus_is_absent_and_shifts_no_name(rig: Rig) -> None:
    """The count fell and indexes moved: the one that left is ABSENT, the others keep their addresses."""
    rig.ask()
    del rig.gpus[1]
    heard = rig.ask()
    assert set(heard.facts[GPUS[1]].values()) == {Missing.ABSENT}
    assert heard.facts[GPUS[3]]["nvml_status"] == 0
    assert rig.ask("inventory").facts[GPUS[3]]["nvml_index"] == 2


def test_a_gpu_that_was_added_is_found(rig: Rig) -> None:
    """A changed count is reason enough to enumerate."""
    rig.ask()
    rig.gpus.append(FakeGpu("00010000:3B:00.0"))
    assert rig.ask().facts["gpu:10000:3b:00.0"]["nvml_status"] == 0


def test_a_gpu_that_never_answered_has_no_name_and_is_tried_again_seldom(rig: Rig) -> None:
    """Opening it makes the driver try to start it, so not at every tick; when it answers, it is known from then on."""
    rig.gpus[3].lost = Code.GPU_IS_LOST
    assert list(rig.ask().facts) == GPUS[:3]
    assert "nvmlDeviceGetHandleByIndex" not in rig.calls_after()
    rig.gpus[3].lost = 0
    rig.later(UNNAMED_RETRY_SECONDS)
    assert list(rig.ask().facts) == GPUS


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (Code.NO_PERMISSION, Missing.DENIED),
        (Code.OPERATING_SYSTEM, Missing.DENIED),
        (Code.TIMEOUT, Missing.TIMED_OUT),
        (Code.UNKNOWN, Missing.MALFORMED),
    ],
)
def test_a_lookup_that_fails_otherwise_is_no_statement_about_the_gpu(rig: Rig, code: int, reason: Missing) -> None:
    """A sandbox or a time-out is neither "lost" nor "answered": the status is missing too."""
    rig.ask()
    rig.gpus[0].fail("nvmlDeviceGetHandleByPciBusId", code)
    assert set(rig.ask().facts[GPUS[0]].values()) == {reason}


# --- one call is refused


@pytest.mark.parametrize("row", CALLS, ids=lambda row: row.quantity)
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (Code.NOT_SUPPORTED, Missing.UNSUPPORTED),
        (Code.INVALID_ARGUMENT, Missing.UNSUPPORTED),
        (Code.NO_PERMISSION, Missing.DENIED),
        (Code.OPERATING_SYSTEM, Missing.DENIED),
        (Code.TIMEOUT, Missing.TIMED_OUT),
        (Code.UNKNOWN, Missing.MALFORMED),
        (777, Missing.MALFORMED),
    ],
)
def test_a_refused_call_costs_its_own_quantities_only(one: Rig, row: nvml_table.Call, code: int, reason: Missing) -> None:
    """The reason stands where the value would; the GPU has answered and all else is read."""
    for function in filter(None, (row.function, row.older)):
        one.gpus[0].fail(function, code)
    heard = one.ask()
    assert heard.missing(GPUS[0]) == {other.quantity: reason for other in CALLS if other.function == row.function}
    assert heard.facts[GPUS[0]]["nvml_status"] == 0


def test_a_function_the_driver_lacks_is_asked_once_until_the_next_enumeration(one: Rig) -> None:
    """UNSUPPORTED is remembered for as long as the same GPUs are there."""
    one.library.missing.add("nvmlDeviceGetPcieReplayCounter")
    for _ in range(4):
        assert one.ask().facts[GPUS[0]]["pcie_replays"] is Missing.UNSUPPORTED
    assert one.library.count("nvmlDeviceGetPcieReplayCounter") == 1
    one.gpus.append(FakeGpu("00000000:12:00.0"))
    one.ask()
    assert one.library.count("nvmlDeviceGetPcieReplayCounter", one.gpus[0]) == 2


def test_what_one_gpu_cannot_do_the_next_is_still_asked(rig: Rig) -> None:
    """A mixed host: the memory of a refusal belongs to the GPU that refused."""
    rig.gpus[0].fail("nvmlDeviceGetPcieReplayCounter", Code.NOT_SUPPORTED)
    facts = rig.ask().facts
    assert facts[GPUS[0]]["pcie_replays"] is Missing.UNSUPPORTED
    assert facts[GPUS[1]]["pcie_replays"] == 3


@pytest.mark.parametrize("row", [row for row in CALLS if row.older], ids=lambda row: row.quantity)
@pytest.mark.parametrize("code", [Code.FUNCTION_NOT_FOUND, Code.ARGUMENT_VERSION_MISMATCH, Code.DEPRECATED])
def test_an_older_name_answers_where_the_newest_is_unknown(one: Rig, row: nvml_table.Call, code: int) -> None:
    """Temperature and clock-event reasons have had two names; the unknown one is tried once."""
    one.gpus[0].fail(row.function, code)
    for _ in range(3):
        assert not isinstance(one.ask().facts[GPUS[0]][row.quantity], Missing)
    assert one.library.count(row.function) == 1
    assert one.library.count(row.older) == 3


def test_a_binding_without_the_function_is_as_good_as_a_driver_without_it(one: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older nvidia-ml-py has no attribute of that name."""
    monkeypatch.delitem(DEVICE_FUNCTIONS, "nvmlDeviceGetTemperatureV")
    assert one.ask().facts[GPUS[0]]["temperature_celsius"] == 61


@pytest.mark.parametrize("code", [Code.TIMEOUT, Code.UNKNOWN])
def test_an_error_that_passes_is_asked_twice(one: Rig, code: int) -> None:
    """A single time-out or "unknown error" says nothing."""
    one.gpus[0].fail("nvmlDeviceGetPowerUsage", code, times=1)
    assert one.ask().facts[GPUS[0]]["power_average_watts"] == 250.0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (FakeField(0, timestamp=0, value_type=0), Missing.UNSUPPORTED),
        (FakeField(5, timestamp=0), Missing.UNSUPPORTED),
        (FakeField(5, code=Code.NOT_SUPPORTED), Missing.UNSUPPORTED),
        (FakeField(5, code=Code.INVALID_ARGUMENT), Missing.UNSUPPORTED),
        (FakeField(5, code=Code.NO_PERMISSION), Missing.DENIED),
        (FakeField(5, value_type=99), Missing.MALFORMED),
        (FakeField(5), 5),
        (FakeField(7), 7),
        (FakeField(0), 0),
    ],
)
def test_a_field_is_believed_only_if_the_driver_filled_it_in(one: Rig, field: FakeField, value: Value) -> None:
    """Success without a time stamp is how an untouched element looks; a recovery action nobody knows yet passes as it is."""
    one.gpus[0].fields[230] = field
    heard = one.ask()
    assert heard.facts[GPUS[0]]["recovery_action"] == value
    assert heard.facts[GPUS[0]]["temperature_memory_celsius"] == 37


def test_a_field_the_board_does_not_have_is_left_out_of_the_next_call(one: Rig) -> None:
    """GDDR6X boards report no memory temperature, older drivers no recovery action; with none left there is no call."""
    del one.gpus[0].fields[82]
    one.ask()
    assert one.ask().missing(GPUS[0]) == {"temperature_memory_celsius": Missing.UNSUPPORTED}
    one.gpus[0].fields.clear()
    one.ask()
    assert "nvmlDeviceGetFieldValues" not in one.calls_after()


def test_a_driver_without_field_values_lacks_all_three(one: Rig) -> None:
    """The call as a whole is unknown."""
    one.library.missing.add("nvmlDeviceGetFieldValues")
    for _ in range(2):
        assert one.ask().missing(GPUS[0]) == {row.quantity: Missing.UNSUPPORTED for row in FIELDS}
    assert one.library.count("nvmlDeviceGetFieldValues") == 1


def test_an_unknown_performance_state_is_no_state(one: Rig) -> None:
    """32 is NVML's word for "unknown"."""
    one.gpus[0].performance_state = 32
    assert one.ask().facts[GPUS[0]]["performance_state"] is Missing.MALFORMED


def test_a_string_that_is_none_is_malformed(one: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A board that no longer answers fills its serial number with ff."""
    monkeypatch.setitem(DEVICE_FUNCTIONS, "nvmlDeviceGetSerial", lambda _gpu: b"\xff\xff".decode())
    facts = one.ask("inventory").facts[GPUS[0]]
    assert facts["serial"] is Missing.MALFORMED
    assert facts["name"] == "NVIDIA Fake"


# --- the driver as a whole


@pytest.mark.parametrize(
    ("code", "kind", "words", "restart"),
    [
        (Code.LIBRARY_NOT_FOUND, "NVMLError_LibraryNotFound", "no NVIDIA driver library", False),
        (Code.DRIVER_NOT_LOADED, "NVMLError_DriverNotLoaded", "not loaded", False),
        (Code.LIB_RM_VERSION_MISMATCH, "NVMLError_LibRmVersionMismatch", "differ in version", True),
        (Code.NO_PERMISSION, "NVMLError_NoPermission", "DeviceAllow", False),
        (Code.OPERATING_SYSTEM, "NVMLError_OperatingSystem", "DeviceAllow", False),
        (Code.UNKNOWN, "NVMLError_Unknown", "Unknown Error (999)", False),
    ],
)
@pytest.mark.parametrize("what", ["sample", "inventory"])
def test_a_driver_that_does_not_start_says_what_to_do(one: Rig, what: str, code: int, kind: str, words: str, restart: bool) -> None:
    """One plain line; a restart is asked for only where the mapped library is the trouble; the next request tries again."""
    one.library.init_error = code
    for _ in range(2):
        failed = one.fails(what)
        assert (failed.kind, failed.restart) == (kind, restart)
        assert words in failed.text
        assert "\n" not in failed.text
    one.library.init_error = 0
    assert one.ask().facts[GPUS[0]]["nvml_status"] == 0


@pytest.mark.parametrize(
    "function",
    ["nvmlDeviceGetCount", "nvmlDeviceGetHandleByPciBusId", "nvmlDeviceGetClockInfo", "nvmlDeviceGetFieldValues", "nvmlDeviceGetSamples"],
)
def test_a_driver_unloaded_in_mid_flight_fails_the_probe_and_not_the_gpu(rig: Rig, function: str) -> None:
    """Somebody removed the module: no GPU is called lost; with the module back, the session is opened anew."""
    rig.ask()

    def unload(name: str) -> None:
        if name == function:
            rig.library.driver_error = Code.DRIVER_NOT_LOADED

    rig.library.before_call = unload
    failed = rig.fails()
    assert (failed.kind, failed.restart) == ("NVMLError_DriverNotLoaded", False)
    assert rig.fails().kind == "NVMLError_DriverNotLoaded"
    rig.library.before_call = lambda _name: None
    rig.library.driver_error = 0
    rig.later(30)
    heard = rig.ask()
    assert {heard.facts[name]["nvml_status"] for name in GPUS} == {0}
    assert {heard.facts[name]["power_mean_watts"] for name in GPUS} == {Missing.NOT_ASKED}


def test_a_driver_unloaded_during_the_enumeration_is_opened_anew(rig: Rig) -> None:
    """It is the driver that left, not the GPUs: the next request begins with a new session."""

    def unload(name: str) -> None:
        if name == "nvmlDeviceGetHandleByIndex":
            rig.library.driver_error = Code.DRIVER_NOT_LOADED

    rig.library.before_call = unload
    assert rig.fails().kind == "NVMLError_DriverNotLoaded"
    rig.library.before_call = lambda _name: None
    rig.library.driver_error = 0
    assert list(rig.ask().facts) == GPUS


def test_a_driver_without_any_gpu_is_a_failure_and_no_silence(one: Rig) -> None:
    """A source that has nothing to say must not look healthy."""
    one.gpus.clear()
    assert one.fails().kind == "NoGpu"


def test_gpus_that_are_counted_but_not_opened_are_a_failure(rig: Rig) -> None:
    """Counted by the driver, out of reach for us: the reason is told, and they are not tried at every tick."""
    for gpu in rig.gpus:
        gpu.fail("nvmlDeviceGetHandleByIndex", Code.NO_PERMISSION)
    for _ in range(2):
        failed = rig.fails()
        assert failed.kind == "NVMLError_NoPermission"
        assert "none of the 4 GPUs" in failed.text
    assert rig.library.count("nvmlDeviceGetHandleByIndex") == 4


def test_a_pci_address_that_is_none_names_no_gpu(rig: Rig) -> None:
    """A GPU whose address cannot be read is left out; the others are not."""
    rig.gpus[1].bus_id = "not an address"
    assert list(rig.ask().facts) == [GPUS[0], GPUS[2], GPUS[3]]


# --- what is not to be done


@pytest.mark.parametrize("spelling", [GPUS[1], GPUS[1].removeprefix("gpu:")])
def test_a_gpu_to_be_skipped_is_not_touched(rig: Rig, spelling: str) -> None:
    """Neither sampled nor drained nor opened by an enumeration that is due; it is told as not asked."""
    rig.ask()
    before = rig.library.calls.count(("nvmlDeviceGetHandleByPciBusId", rig.gpus[1].bus_id))
    rig.gpus.append(FakeGpu("00000000:15:00.0"))
    start = len(rig.library.calls)
    heard = rig.ask(skip=frozenset({spelling}))
    rig.between()
    assert set(heard.facts[GPUS[1]].values()) == {Missing.NOT_ASKED}
    assert GPUS[1] not in heard.touched
    assert not [call for call in rig.library.calls[start:] if call[1] == rig.gpus[1].bus_id]
    assert before == 1
    assert heard.facts[GPUS[2]]["nvml_status"] == 0
    assert rig.ask().facts[GPUS[1]]["nvml_status"] == 0


def test_after_the_deadline_no_gpu_is_touched_and_what_was_read_stands(rig: Rig) -> None:
    """Each call takes a second of four: the first GPU is cut short, having answered; the others are not begun."""
    rig.ask()
    start = len(rig.library.calls)
    rig.library.before_call = lambda _name: rig.later(1)
    heard = rig.ask(deadline=rig.mono + 4)
    assert heard.facts[GPUS[0]]["power_average_watts"] == 250.0
    assert heard.facts[GPUS[0]]["temperature_celsius"] is Missing.TIMED_OUT
    assert heard.facts[GPUS[0]]["nvml_status"] == 0
    assert set(heard.facts[GPUS[1]].values()) == {Missing.TIMED_OUT}
    assert [bus_id for _, bus_id in rig.library.calls[start:] if bus_id not in {"", rig.gpus[0].bus_id}] == []


# --- the table against the binding


@pytest.mark.parametrize("code", Code, ids=lambda code: code.name)
def test_an_error_code_is_the_one_of_the_header(code: Code) -> None:
    """The numbers written out here are those of pynvml."""
    assert getattr(pynvml, f"NVML_ERROR_{code.name}") == code


@pytest.mark.parametrize("function", sorted({*(c.function for c in (*CALLS, *FACTS)), *(c.older for c in CALLS if c.older)}))
def test_a_function_of_the_table_exists_in_the_binding(function: str) -> None:
    """A misspelt name would pass for a driver that lacks it."""
    assert callable(getattr(pynvml, function))


def test_constants_of_the_table_are_those_of_the_header() -> None:
    """Fields, sensors, clocks, buffers and value types by number."""
    assert {row.quantity: row.number for row in FIELDS} == {
        "power_instant_watts": pynvml.NVML_FI_DEV_POWER_INSTANT,
        "temperature_memory_celsius": pynvml.NVML_FI_DEV_MEMORY_TEMP,
        "recovery_action": pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
    }
    assert {row.quantity: row.arguments for row in CALLS if row.arguments} == {
        "temperature_celsius": (pynvml.NVML_TEMPERATURE_GPU,),
        "clock_sm_mhz": (pynvml.NVML_CLOCK_SM,),
        "clock_memory_mhz": (pynvml.NVML_CLOCK_MEM,),
    }
    assert nvml_table.TOTAL_POWER_SAMPLES == pynvml.NVML_TOTAL_POWER_SAMPLES
    assert nvml_table.PSTATE_UNKNOWN == pynvml.NVML_PSTATE_UNKNOWN


@pytest.mark.parametrize(
    ("value_type", "member", "value"),
    [
        (pynvml.NVML_VALUE_TYPE_DOUBLE, "dVal", 2.5),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, "uiVal", 79852),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG, "ulVal", 1 << 40),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "ullVal", 1 << 63),
        (pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG, "sllVal", -5),
        (pynvml.NVML_VALUE_TYPE_SIGNED_INT, "siVal", -5),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT, "usVal", 65535),
    ],
)
def test_the_member_of_a_union_is_chosen_by_its_type(value_type: int, member: str, value: float) -> None:
    """Margins can be negative and counters wide: the wrong member would be a plausible lie."""
    union = pynvml.c_nvmlValue_t()
    setattr(union, member, value)
    assert number_in(value_type, union) == value


@pytest.mark.parametrize("number", [inf, -inf, float("nan")])
def test_a_number_that_is_none_is_malformed(number: float) -> None:
    """JSON has no word for it and a sum does not survive it."""
    union = pynvml.c_nvmlValue_t()
    union.dVal = number
    assert number_in(pynvml.NVML_VALUE_TYPE_DOUBLE, union) is Missing.MALFORMED


@pytest.mark.parametrize("ones", [0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF])
def test_all_ones_are_no_measurement(one: Rig, ones: int) -> None:
    """A driver's way of saying that it does not know, and what a dead bus reads as: never 4,294,967 W, and no mean from it either."""
    gpu = one.gpus[0]
    one.ask()
    one.later(30)
    gpu.power_milliwatts = gpu.temperature_celsius = gpu.utilisation_percent = gpu.replays = 0xFFFF_FFFF
    gpu.memory_used_bytes = gpu.energy_millijoules = gpu.reasons = ones
    gpu.fields = dict.fromkeys(gpu.fields, FakeField(0xFFFF_FFFF))
    facts = one.ask().facts[GPUS[0]]
    asked = ("power_average_watts", "temperature_celsius", "utilisation_ratio", "pcie_replays", "memory_used_bytes", "clock_event_reasons")
    for quantity in (*asked, "power_mean_watts", *(row.quantity for row in FIELDS)):
        assert facts[quantity] is Missing.MALFORMED, quantity


def test_every_owed_quantity_is_in_the_table() -> None:
    """What is promised for a GPU that cannot be read has the same names as what is read from one that can."""
    assert {*ALL, *INVENTORIED} <= set(BY_NAME)
