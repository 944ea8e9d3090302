"""Which GPUs an engine uses: found while all is well, remembered when nobody can tell any more."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.fakes.clock import BOOT_ID, FakeClock
from xidwatch.core import engines, learning, watch
from xidwatch.core.messages import Learnt, SampleTaken
from xidwatch.core.model import Missing, Readings, Sample, Subject, Value
from xidwatch.core.watch import State

VLLM = Subject("engine", "vllm.service")
NAMES = tuple(f"0000:{0x11 + n:02x}:00.0" for n in range(4))
GPUS = tuple(Subject("gpu", name) for name in NAMES)


def engine(pids: str = "10 11 12", invocation: Value = "first", status: Value = 200) -> dict[str, Value]:
    return {"pids": pids, "invocation_id": invocation, "metrics_status": status}


def host(*pids: Value, unit: Mapping[str, Value]) -> Readings:
    """One text of process numbers for each GPU, and the engine."""
    return {**{gpu: {"compute_pids": text} for gpu, text in zip(GPUS, pids, strict=False)}, VLLM: unit}


def learn(readings: Readings, expected: Mapping[str, Value] | None = None) -> Mapping[str, Value]:
    return learning.news(readings, {VLLM: expected} if expected else {}).get(VLLM, {})


def test_a_gpu_belongs_to_the_engine_that_has_a_process_on_it() -> None:
    """By process number, whole words only; a desktop's process on the same GPU changes nothing."""
    assert engines.used(engine("10 11"), host("10", "110 1", "11 999", "", unit={})) == (NAMES[0], NAMES[2])
    assert learn(host("10", "11", "", "77", unit=engine("10 11"))) == {"gpus": f"{NAMES[0]} {NAMES[1]}", "invocation_id": "first"}


@pytest.mark.parametrize("pids", [Missing.TIMED_OUT, Missing.DENIED, ""])
def test_without_process_numbers_nothing_is_learnt(pids: Value) -> None:
    """The word for why they are missing is no process number."""
    assert learn(host("10 TIMED_OUT DENIED", unit={**engine(), "pids": pids})) == {}
    assert learn(host(pids, pids, unit=engine())) == {}


def test_within_one_run_the_set_only_grows() -> None:
    """Workers come one after the other, and one that died has used its GPU all the same."""
    known = {"gpus": f"{NAMES[0]} {NAMES[1]}", "invocation_id": "first"}
    assert learn(host("10", "11", "12", unit=engine()), known)["gpus"] == " ".join(NAMES[:3])
    assert learn(host("10", "", unit=engine()), known) == {}
    assert learn(host("", "", "12", unit=engine()), known)["gpus"] == " ".join(NAMES[:3])
    assert learn(host("10", "11", unit=engine()), known) == {}


def test_another_run_uses_what_it_uses_as_soon_as_it_serves() -> None:
    """Before that it has merely not come that far; nor when a GPU could not be asked."""
    known = {"gpus": " ".join(NAMES), "invocation_id": "first"}
    assert learn(host("10", "", "", "", unit=engine(invocation="second", status=503)), known) == {}
    assert learn(host("10", Missing.TIMED_OUT, "", "", unit=engine(invocation="second")), known) == {}
    assert learn(host("10", "", "", "", unit=engine(invocation="second")), known) == {"gpus": NAMES[0], "invocation_id": "second"}
    whole = host("10", "10", "10", "10", unit=engine(invocation="second", status=503))
    assert learn(whole, known) == {**known, "invocation_id": "second"}


def test_another_set_in_another_run_is_added_until_it_serves() -> None:
    """Moved to other GPUs: both are its own until it is known which."""
    known = {"gpus": f"{NAMES[0]} {NAMES[1]}", "invocation_id": "first"}
    loading = learn(host("", "10", "11", "", unit=engine(invocation="second", status=Missing.ABSENT)), known)
    assert loading == {"gpus": " ".join(NAMES[:3]), "invocation_id": "first"}
    assert learn(host("", "10", "11", "", unit=engine(invocation="second")), loading) == {
        "gpus": f"{NAMES[1]} {NAMES[2]}",
        "invocation_id": "second",
    }


def test_what_is_configured_outranks_what_was_found() -> None:
    """All, some, or what was found; and who says so."""
    found = {"gpus": f"{NAMES[1]} {NAMES[0]}"}
    assert engines.belonging("found", found, NAMES) == (NAMES[:2], "found")
    assert engines.belonging("found", {}, NAMES) == ((), "")
    assert engines.belonging("all", found, NAMES) == (NAMES, "configured")
    assert engines.belonging(("PCI:0000:13:00", "00000000:11:00.0"), found, NAMES) == ((NAMES[0], NAMES[2]), "configured")


def test_the_watch_remembers_it_and_has_it_written_down() -> None:
    """Once; and when the GPUs no longer tell, it stays."""
    now = FakeClock().now()
    state, outputs = watch.step((), State(), SampleTaken(Sample(1, now, BOOT_ID, host("10", "11", unit=engine()))))
    assert [output.expected[VLLM]["gpus"] for output in outputs if isinstance(output, Learnt)] == [f"{NAMES[0]} {NAMES[1]}"]
    lost = host(Missing.DEVICE_LOST, Missing.DEVICE_LOST, unit=engine())
    state, outputs = watch.step((), state, SampleTaken(Sample(2, now, BOOT_ID, lost)))
    assert not [output for output in outputs if isinstance(output, Learnt)]
    assert engines.gpus(state.expected[VLLM]) == NAMES[:2]


def test_where_everything_is() -> None:
    """By its place in this boot; who is missed, by where he was."""
    switch, lower = Subject("port", "0000:0f:00.0"), Subject("port", "0000:10:08.0")
    readings: Readings = {
        switch: {"chain": "0000:00/03.1/00.0"},
        GPUS[0]: {"chain": "0000:00/03.1/00.0/08.0/00.0"},
        GPUS[1]: {"chain": Missing.ABSENT},
    }
    members: Readings = {
        Subject("port", "0000:00/03.1/00.0/08.0"): {"address": lower.name},
        Subject("gpu", "0000:00/03.1/00.0/09.0/00.0"): {"address": NAMES[1]},
    }
    places = engines.places(readings, members)
    assert places[GPUS[1]] == "0000:00/03.1/00.0/09.0/00.0"
    assert (places[switch], places[lower]) == ("0000:00/03.1/00.0", "0000:00/03.1/00.0/08.0")
