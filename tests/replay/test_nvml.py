"""The driver of a fixture, as the probe would ask it."""

from __future__ import annotations

import pynvml
import pytest

from xidwatch.replay.clock import VirtualClock
from xidwatch.replay.nvml import Board, Library

BUS_ID = "00000000:11:00.0"


@pytest.fixture
def clock() -> VirtualClock:
    """An hour of the wall clock ahead of the other."""
    return VirtualClock("boot", 3600.0)


@pytest.fixture
def library(clock: VirtualClock) -> Library:
    """One board, 100 W from the start."""
    library = Library("580.1")
    library.boards.append(Board(BUS_ID, "GPU-00000000-0000-0000-0000-000000000001", 0, watts=100.0))
    library.begin(clock)
    return library


def test_energy_follows_the_draw_that_was_told(library: Library, clock: VirtualClock) -> None:
    """100 W for ten seconds and 300 W for five are 2500 J."""
    board = library.nvmlDeviceGetHandleByPciBusId(BUS_ID)
    clock.go_to(10.0)
    library.set(board, "watts", "300")
    clock.go_to(15.0)
    assert library.nvmlDeviceGetTotalEnergyConsumption(board) == 2_500_000


def test_samples_are_those_since_the_last_asked_for(library: Library, clock: VirtualClock) -> None:
    """Stamped by the wall clock, at the draw of their time, the peak once a second; nothing new is NOT_FOUND."""
    board = library.boards[0]
    clock.go_to(10.0)
    library.set(board, "watts", "300")
    library.set(board, "peak_watts", "500")
    clock.go_to(11.0)
    _, samples = library.nvmlDeviceGetSamples(board, 0, 0)
    assert [sample.timeStamp for sample in samples[-2:]] == [3_610_900_000, 3_611_000_000]
    assert samples[-1].sampleValue.uiVal == 500_000
    assert 98_000 < samples[-20].sampleValue.uiVal < 102_000
    _, newer = library.nvmlDeviceGetSamples(board, 0, 3_610_800_000)
    assert newer == samples[-2:]
    with pytest.raises(pynvml.NVMLError_NotFound):
        library.nvmlDeviceGetSamples(board, 0, 3_611_000_000)


def test_a_lost_board_answers_nothing_else(library: Library) -> None:
    """The others would; a driver that is in trouble answers for nobody."""
    library.set(library.boards[0], "lost", "15")
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        library.nvmlDeviceGetHandleByIndex(0)
    assert library.nvmlDeviceGetCount() == 1
    library.error = 18
    with pytest.raises(pynvml.NVMLError_LibRmVersionMismatch):
        library.nvmlDeviceGetCount()


def test_a_board_reaches_its_peers_as_the_fixture_says(library: Library) -> None:
    """Not told unless it was said; itself it does not reach, and a lost one is the answer for both."""
    board, peer = library.boards[0], Board("00000000:12:00.0", "GPU-00000000-0000-0000-0000-000000000002", 1)
    library.boards.append(peer)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        library.nvmlDeviceGetP2PStatus(board, peer, 0)
    library.set(board, "p2p", "0")
    assert library.nvmlDeviceGetP2PStatus(board, peer, 0) == pynvml.NVML_P2P_STATUS_OK
    assert library.nvmlDeviceGetP2PStatus(board, board, 0) == pynvml.NVML_P2P_STATUS_NOT_SUPPORTED
    library.set(peer, "lost", "15")
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        library.nvmlDeviceGetP2PStatus(board, peer, 0)


def test_what_a_board_does_not_report_is_unsupported(library: Library) -> None:
    """A GeForce has no memory temperature and no serial to tell."""
    board = library.boards[0]
    values = library.nvmlDeviceGetFieldValues(board, [186, 82])
    assert [(value.nvmlReturn, value.value.uiVal) for value in values] == [(0, 100_000), (pynvml.NVML_ERROR_NOT_SUPPORTED, 0)]
    with pytest.raises(pynvml.NVMLError_NotSupported):
        library.nvmlDeviceGetSerial(board)
    with pytest.raises(AttributeError):
        library.nvmlDeviceClearEccErrorCounts(board)
