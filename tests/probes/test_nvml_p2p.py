"""Whom a GPU reaches peer to peer: what is counted, what leaves the number unknown, and what is not asked."""

from __future__ import annotations

import pynvml
import pytest

from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_library import NvmlLibrary
from tests.fakes.worker import HandWorker
from tests.probes.nvml_rig import GPUS, Heard, Rig
from xidwatch.core.model import Missing, Value
from xidwatch.probes import nvml_table
from xidwatch.probes.nvml_p2p import PEERS, reached
from xidwatch.probes.nvml_table import Code

STATUS = "nvmlDeviceGetP2PStatus"
OK, CHIPSET, GPU, REGKEY, REFUSED, UNKNOWN = 0, 1, 2, 4, 5, 6  # nvmlGpuP2PStatus_t


@pytest.fixture
def rig() -> Rig:
    return Rig(FakeNvml.with_gpus(4))


def peers(heard: Heard) -> list[Value]:
    return [heard.facts[gpu][PEERS] for gpu in GPUS]


@pytest.mark.parametrize(
    ("statuses", "value"),
    [
        ([], 0),
        ([OK, OK, OK], 3),
        ([OK, CHIPSET, OK], 2),
        ([GPU, CHIPSET, REFUSED, REGKEY], 0),
        ([OK, UNKNOWN], Missing.MALFORMED),
        ([OK, 0xFFFF_FFFF], 1),
        ([Missing.UNSUPPORTED, Missing.UNSUPPORTED], Missing.UNSUPPORTED),
        ([Missing.UNSUPPORTED, OK], 1),
        ([Missing.UNSUPPORTED, CHIPSET], 0),
        ([Missing.UNSUPPORTED, Missing.TIMED_OUT], Missing.TIMED_OUT),
        ([OK, Missing.DEVICE_LOST, Missing.TIMED_OUT], Missing.DEVICE_LOST),
    ],
)
def test_only_ok_counts_and_what_is_not_known_is_no_zero(statuses: list[Value], value: Value) -> None:
    """Refused is an answer, whatever for; one pair that nobody can tell leaves the number unknown."""
    assert reached(iter(statuses)) == value


def test_each_gpu_is_asked_about_every_other_and_nobody_about_himself(rig: Rig) -> None:
    """From it to them: the other way round may be another answer."""
    rig.gpus[0].p2p = {rig.gpus[1].bus_id: CHIPSET, rig.gpus[2].bus_id: REGKEY}
    assert peers(rig.ask()) == [1, 3, 3, 3]
    assert rig.library.count(STATUS) == 12


def test_what_the_driver_allows_now_is_what_is_told(rig: Rig) -> None:
    """It is asked anew at every tick: a gate believes nothing older."""
    assert peers(rig.ask()) == [3, 3, 3, 3]
    for gpu in rig.gpus:
        gpu.p2p = {other.bus_id: GPU for other in rig.gpus}
    assert peers(rig.ask()) == [0, 0, 0, 0]


def test_a_single_gpu_reaches_nobody_and_is_not_asked() -> None:
    """0, even of a driver that does not know the function."""
    one = Rig(FakeNvml.with_gpus(1))
    one.library.missing.add(STATUS)
    assert one.ask().facts[GPUS[0]][PEERS] == 0
    assert one.library.count(STATUS) == 0


def test_a_driver_without_the_function_is_asked_once_a_pair(rig: Rig) -> None:
    """UNSUPPORTED, and remembered as long as the same GPUs are there."""
    rig.library.missing.add(STATUS)
    for _ in range(3):
        assert peers(rig.ask()) == [Missing.UNSUPPORTED] * 4
    assert rig.library.count(STATUS) == 12


def test_a_gpu_that_does_not_support_it_costs_the_others_nothing(rig: Rig) -> None:
    """The refusal of one is its own."""
    rig.gpus[1].fail(STATUS, Code.NOT_SUPPORTED)
    assert peers(rig.ask()) == [3, Missing.UNSUPPORTED, 3, 3]


@pytest.mark.parametrize("code", [Code.GPU_IS_LOST, Code.RESET_REQUIRED])
def test_a_lost_gpu_is_not_reached_and_nobody_is_asked_about_it(rig: Rig, code: int) -> None:
    """Its own number is not known; the others reach one fewer, and no call has it at either end."""
    rig.ask()
    before = rig.library.count(STATUS)
    rig.gpus[2].lost = code
    heard = rig.ask()
    assert peers(heard) == [2, 2, Missing.DEVICE_LOST, 2]
    assert rig.library.count(STATUS) == before + 6
    assert [heard.facts[gpu]["nvml_status"] for gpu in GPUS] == [0, 0, code, 0]
    rig.gpus[2].lost = 0
    assert peers(rig.ask()) == [3, 3, 3, 3]


@pytest.mark.parametrize("code", [Code.GPU_IS_LOST, Code.RESET_REQUIRED])
def test_an_error_of_a_pair_is_no_word_about_the_one_that_was_asked(rig: Rig, code: int) -> None:
    """Lost is one of both, or a third: whoever was asked stays well, keeps its handle, and its power is followed on."""
    rig.ask()
    rig.gpus[0].fail(STATUS, code)
    heard = rig.ask()
    assert peers(heard) == [Missing.DEVICE_LOST, 3, 3, 3]
    assert heard.facts[GPUS[0]]["nvml_status"] == 0
    rig.later(30)
    rig.gpus[0].energy_millijoules += 30 * 200_000
    assert rig.ask().facts[GPUS[0]]["power_mean_watts"] == pytest.approx(200.0)
    assert rig.library.count("nvmlDeviceGetHandleByIndex") == 4


def test_who_is_gone_for_good_is_nobodys_peer(rig: Rig) -> None:
    """The driver counts it no more: the others reach one fewer, and no handle of its is used."""
    rig.ask()
    del rig.gpus[3]
    assert peers(rig.ask()) == [2, 2, 2, Missing.ABSENT]


def test_with_one_to_be_left_alone_nobody_is_asked(rig: Rig) -> None:
    """A process is stuck at it: the number is not known, and it is not touched through its neighbour."""
    rig.ask()
    before = rig.library.count(STATUS)
    assert peers(rig.ask(skip=frozenset({GPUS[1]}))) == [Missing.NOT_ASKED] * 4
    assert rig.library.count(STATUS) == before


def test_after_the_deadline_no_pair_is_asked(rig: Rig) -> None:
    """Each answer takes a second: two come in time, which is no number."""
    rig.ask()
    start = rig.mono

    def slow(function: str) -> None:
        if function == STATUS:
            rig.later(1)

    rig.library.before_call = slow
    heard = rig.ask(deadline=start + 2)
    assert peers(heard) == [Missing.TIMED_OUT] * 4
    assert [heard.facts[gpu]["nvml_status"] for gpu in GPUS] == [0, 0, 0, 0]


def test_each_is_announced_before_it_is_asked_and_all_else_is_told_before(rig: Rig) -> None:
    """A call that never returns has a name, and takes nothing with it that was read."""
    order = rig.ask().order
    last_pass = order[order.index(PEERS) - 1 :]
    assert last_pass == [word for gpu in GPUS for word in (gpu, PEERS)]
    assert order.count("nvml_status") == 4


def test_a_driver_that_leaves_in_between_fails_the_probe(rig: Rig) -> None:
    """No GPU is called lost for it."""
    rig.ask()

    def unload(function: str) -> None:
        if function == STATUS:
            rig.library.driver_error = Code.DRIVER_NOT_LOADED

    rig.library.before_call = unload
    assert rig.fails().kind == "NVMLError_DriverNotLoaded"


def test_numbers_are_those_of_the_header() -> None:
    """But for the index, which this binding has as a tuple that it does not take back."""
    assert nvml_table.P2P_OK == pynvml.NVML_P2P_STATUS_OK
    assert nvml_table.P2P_UNKNOWN == pynvml.NVML_P2P_STATUS_UNKNOWN
    assert pynvml.NVML_P2P_CAPS_INDEX_READ in (nvml_table.P2P_READ, (nvml_table.P2P_READ,))
    assert set(nvml_table.OF_PAIRS) == {STATUS}
    assert callable(getattr(pynvml, STATUS))


# --- through the real binding


def test_the_binding_takes_the_index(nvml_library: NvmlLibrary) -> None:
    """With the library in C: three others, none once the chipset cannot, two beside a lost one."""
    with HandWorker("nvml", nvml_library.environment) as worker:
        assert [worker.ask().value(gpu, PEERS) for gpu in GPUS] == [3, 3, 3, 3]
        nvml_library.gpu(1, p2p_status=CHIPSET)
        assert worker.ask().value(GPUS[1], PEERS) == 0
        nvml_library.gpu(2, every="error 15")
        readings = worker.ask()
        assert (readings.value(GPUS[0], PEERS), readings.value(GPUS[2], PEERS)) == (2, Missing.DEVICE_LOST)
        nvml_library.gpu(2, every=None)
        nvml_library.gpu(0, **{STATUS: "error 3"})
        assert worker.ask().value(GPUS[0], PEERS) is Missing.UNSUPPORTED
