"""What an engine stands on, and what is held against that."""

from __future__ import annotations

from dataclasses import replace

from tests.core.engine_story import SETTINGS, UNIT, Night
from tests.core.story import CHAINS, DOWNSTREAM, DRIVER, GPU, GPUS, RULES, SWITCH
from xidwatch.core import hardware
from xidwatch.core.gate_model import Gate, GateSettings, GateState
from xidwatch.core.model import Missing, Moment, Status, Subject

NEIGHBOUR = "0000:00/01.2/00.0"


def gate(gpus: tuple[str, ...] = (), of: str = "") -> Gate:
    return Gate(UNIT, GateState.HELD, Moment(0.0, 0.0), gpus=gpus, gpus_of=of)


def place(subject: Subject) -> Subject:
    return Subject(subject.kind, CHAINS[subject])


def test_its_gpus_the_ports_above_them_and_the_driver() -> None:
    """The first card hangs on a port of its own, which the others do not."""
    first = hardware.under(Night().state, GateSettings(UNIT, (GPU.name,)))
    assert first.names == {GPU, SWITCH, DOWNSTREAM, DRIVER}
    assert first.known
    last = hardware.under(Night().state, GateSettings(UNIT, (GPUS[3].name,)))
    assert last.names == {GPUS[3], SWITCH, DRIVER}


def test_an_engine_nobody_knows_the_gpus_of_stands_on_all() -> None:
    """And that is not called known."""
    state = replace(Night().state, expected={})
    under = hardware.under(state, replace(SETTINGS, gpus="found"))
    assert set(under.gpus.values()) == set(GPUS)
    assert not under.known


def test_where_it_stood_is_remembered() -> None:
    """For the very setting it was known by; an address means whom it meant then."""
    state = replace(Night().state, expected={})
    kept = (CHAINS[GPUS[1]],)
    found = hardware.under(state, replace(SETTINGS, gpus="found"), gate(kept, "found"))
    assert set(found.gpus.values()) == {GPUS[1]}
    configured = GateSettings(UNIT, ("11:00.0",))
    assert set(hardware.under(state, configured, gate(kept, "0000:11:00.0")).gpus.values()) == {GPUS[1]}
    assert set(hardware.under(state, configured, gate(kept, "0000:14:00.0")).gpus.values()) == {GPU}


def test_an_address_at_which_nobody_ever_was_is_itself() -> None:
    """It proves nothing and is not forgotten."""
    stranger = Subject("gpu", "0000:99:00.0")
    assert dict(hardware.under(Night().state, GateSettings(UNIT, (stranger.name,))).gpus) == {stranger: stranger}


def test_who_is_missed_where_somebody_else_is_now_goes_by_his_place() -> None:
    """The other one's conditions are none of his."""
    night = Night()
    night.set(GPUS[3], {"chain": NEIGHBOUR})
    under = hardware.under(replace(night.state, readings=night.readings), GateSettings(UNIT, (GPUS[3].name,)))
    assert list(under.gpus.values()) == [place(GPUS[3])]


def test_what_is_bad_is_counted_and_what_sleeps_is_no_doubt() -> None:
    """In words that fit a line."""
    night = Night()
    for gpu in GPUS:
        night.set(gpu, {"nvml_status": 15})
    night.set(SWITCH, {"config_dword0": Missing.ASLEEP})
    night.set(DOWNSTREAM, {"config_dword0": Missing.DENIED})
    night.tick()
    names = hardware.under(night.state, SETTINGS).names
    lost, unclear, bad = hardware.standing(RULES, night.state.conditions, names)
    assert lost == ("GpuLost gpu:0000:11:00.0, gpu:0000:12:00.0 and 2 more",)
    assert unclear == (f"not known: ConfigSpaceAllOnes {DOWNSTREAM}",)
    assert bad == set(GPUS)
    assert night.status(SWITCH, "ConfigSpaceAllOnes") is Status.UNKNOWN


def test_what_all_the_lost_ones_share() -> None:
    """A card alone is its own parent; of a switch it is the switch, also when no card says a word; of the driver alone nobody."""
    under = hardware.under(Night().state, SETTINGS)
    assert hardware.shared_parent(under, frozenset({GPU})) == CHAINS[GPU]
    assert hardware.shared_parent(under, frozenset(GPUS)) == CHAINS[SWITCH]
    assert hardware.shared_parent(under, frozenset({SWITCH})) == CHAINS[SWITCH]
    assert hardware.shared_parent(under, frozenset({SWITCH, GPU})) == CHAINS[SWITCH]
    assert hardware.shared_parent(under, frozenset({DRIVER})) == ""


def test_of_what_is_bad_nothing_else_has_to_be_known() -> None:
    """That the lost card's configuration space cannot be read says nothing that its loss does not."""
    night = Night()
    night.set(GPU, {"nvml_status": 15, "config_dword0": Missing.DENIED})
    night.tick()
    lost, unclear, _ = hardware.standing(RULES, night.state.conditions, frozenset({GPU}))
    assert (lost, unclear) == ((f"GpuLost {GPU}",), ())
    assert night.status(GPU, "ConfigSpaceAllOnes") is Status.UNKNOWN


def test_a_place_has_the_name_that_people_know() -> None:
    """Of a port or a GPU under it; none where nobody is known."""
    under = hardware.under(Night().state, SETTINGS)
    assert hardware.name_of(under, CHAINS[SWITCH]) == str(SWITCH)
    assert hardware.name_of(under, CHAINS[GPU]) == str(GPU)
    assert hardware.name_of(under, NEIGHBOUR) == ""
