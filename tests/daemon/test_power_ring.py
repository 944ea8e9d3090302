"""The last two minutes of every GPU's power: bounded, whatever is sent, and never emptied by time."""

from __future__ import annotations

import tracemalloc

from xidwatch.core.model import Subject
from xidwatch.core.power import Stretch, TraceSource
from xidwatch.daemon.power_ring import MOST_GPUS, MOST_SAMPLES, MOST_TOGETHER, SLACK, PowerRing
from xidwatch.records.power_trace import Columns

STEP_US = 20_000
LIMIT_BYTES = 2 * 1024 * 1024


def a_second(number: int, gpu: int = 0) -> Stretch:
    """Second after second of one GPU at 50 Hz, each directly behind the one before."""
    first = (number * 50 + 1) * STEP_US
    stamps = tuple(range(first, first + 50 * STEP_US, STEP_US))
    return Stretch(Subject("gpu", f"0000:{gpu:02x}:00.0"), TraceSource.BUFFER, stamps, (698_773,) * 50, first - STEP_US)


def lengths(ring: PowerRing) -> list[int]:
    return [len(Columns.unpack(packed)) for packed in ring.packed().values()]


def test_two_minutes_of_sixteen_gpus_stay_below_two_mebibytes() -> None:
    """However long it goes on; the latest are there in one piece."""
    tracemalloc.start()
    ring = PowerRing()
    for number in range(140):
        for gpu in range(16):
            ring.add(a_second(number, gpu))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < LIMIT_BYTES
    assert all(MOST_SAMPLES <= length <= MOST_SAMPLES + SLACK for length in lengths(ring))
    (first, *_) = ring.packed().values()
    assert Columns.unpack(first).stamps_us[-1] == a_second(139).stamps_us[-1]


def test_a_gpu_that_sends_no_more_keeps_what_it_was_known_by() -> None:
    """Lost, it is what the evidence is about: another's samples do not push it out."""
    ring = PowerRing()
    ring.add(a_second(0, gpu=1))
    for number in range(500):
        ring.add(a_second(number, gpu=2))
    assert lengths(ring)[0] == 50


def test_made_up_gpus_push_out_nobody_and_fill_nothing() -> None:
    """A lying worker may name thousands: the first 64 share what there is, and the true ones keep their own."""
    ring = PowerRing()
    for number in range(200):
        ring.add(a_second(number))
    for gpu in range(1, 256):
        for number in range(40):
            ring.add(a_second(number, gpu))
    assert len(lengths(ring)) == MOST_GPUS
    assert lengths(ring)[0] >= MOST_TOGETHER // MOST_GPUS
    assert sum(lengths(ring)[1:]) <= MOST_TOGETHER + MOST_GPUS * SLACK


def test_an_empty_ring_has_nothing_to_hand_over() -> None:
    """A host without GPUs."""
    assert PowerRing().packed() == {}
