"""Every proof: what makes it hold, fail, unknown or not applicable."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.engine_story import SETTINGS, Night, card
from tests.core.story import DOWNSTREAM, GPU, GPUS, SWITCH, xid
from xidwatch.core import hardware, proof
from xidwatch.core.gate_model import GateSettings
from xidwatch.core.messages import BaselineAccepted
from xidwatch.core.model import Missing, Status, Subject, Value

TRUE, FALSE, UNKNOWN, NOT_APPLICABLE = Status


def judged(night: Night, settings: GateSettings = SETTINGS, shared: tuple[str, ...] = ()) -> tuple[proof.Proof, ...]:
    night.tick()
    under = hardware.under(night.state, settings)
    return proof.proofs(settings, night.state, under, night.now, shared)


def held() -> Night:
    return Night().lose_and_stop().mended()


def of(found: tuple[proof.Proof, ...], name: str, subject: Subject = GPU) -> Status:
    """The one about a device; or about the host, which names none."""
    return next(each.status for each in found if each.name == name and (each.text.startswith(f"{subject}:") or ":" not in each.text[:5]))


def test_on_a_good_day_every_proof_holds() -> None:
    """Of every card and every port above; what the hardware does not report does not apply."""
    found = judged(held())
    assert proof.lacking(found) == ()
    assert {each.name for each in found if each.status is NOT_APPLICABLE} == {"recovery-action", "p2p"}
    assert sum(each.name == "present" for each in found) == len(GPUS) + 2
    assert {each.text.partition(": ")[0] for each in found if each.name == "identity"} == {str(gpu) for gpu in GPUS}


@pytest.mark.parametrize(
    ("name", "quantity", "value", "status"),
    [
        ("nvml", "nvml_status", 15, FALSE),
        ("nvml", "nvml_status", Missing.NOT_ASKED, UNKNOWN),
        ("config-space", "config_dword0", 0xFFFFFFFF, FALSE),
        ("config-space", "config_dword0", 0xFFFF0001, FALSE),
        ("config-space", "config_dword0", 0x268410DE, FALSE),  # another device than the kernel knows there
        ("config-space", "config_dword0", Missing.BEHIND_DEAD_PARENT, UNKNOWN),
        ("config-space", "config_dword0", Missing.ASLEEP, NOT_APPLICABLE),
        ("width", "link_width", 8, FALSE),
        ("width", "link_width", 0, FALSE),
        ("width", "link_width", Missing.DEVICE_LOST, UNKNOWN),
        ("width", "link_width", Missing.ASLEEP, NOT_APPLICABLE),
        ("recovery-action", "recovery_action", 0, TRUE),
        ("recovery-action", "recovery_action", 2, FALSE),
        ("recovery-action", "recovery_action", Missing.TIMED_OUT, UNKNOWN),
        ("power-limit", "power_limit_watts", 350.0, FALSE),
        ("power-limit", "power_limit_watts", 250.4, TRUE),
        ("power-limit", "power_limit_watts", 200.0, TRUE),
        ("power-limit", "power_limit_watts", Missing.TIMED_OUT, UNKNOWN),
        ("temperature", "temperature_celsius", 91, FALSE),
        ("temperature", "temperature_celsius", Missing.TIMED_OUT, UNKNOWN),
        ("temperature", "temperature_celsius", Missing.UNSUPPORTED, NOT_APPLICABLE),
        ("memory", "compute_pids", "4711 4712", FALSE),
        ("memory", "compute_pids", Missing.TIMED_OUT, UNKNOWN),
        ("memory", "compute_pids", Missing.UNSUPPORTED, NOT_APPLICABLE),
    ],
)
def test_one_reading_of_one_card(name: str, quantity: str, value: Value, status: Status) -> None:
    """What it makes of the proof it belongs to; the limit is the one that was accepted."""
    night = held()
    night.set(GPU, {quantity: value})
    assert of(judged(night), name) is status


@pytest.mark.parametrize(
    ("now", "status"),
    [(3, TRUE), (4, TRUE), (2, FALSE), (0, FALSE), (Missing.DEVICE_LOST, UNKNOWN), (Missing.UNSUPPORTED, UNKNOWN)],
)
def test_whom_a_card_reached_when_it_was_accepted_it_reaches_now(now: Value, status: Status) -> None:
    """By the reading of this tick: what was accepted is learnt with the baseline, and no later word lowers it."""
    night = Night(accepted=False)
    night.set(GPU, {"p2p_peers": 3})
    night.ticks(2)
    night.give(BaselineAccepted(night.now, anew=False))
    night.set(GPU, {"p2p_peers": now})
    found = judged(night)
    assert of(found, "p2p") is status
    assert of(found, "p2p", GPUS[1]) is NOT_APPLICABLE


def test_peers_are_accepted_anew() -> None:
    """The card that was to reach three reaches one for good: whoever accepts that has a proof again."""
    night = Night(accepted=False)
    night.set(GPU, {"p2p_peers": 3})
    night.ticks(2)
    night.give(BaselineAccepted(night.now, anew=False))
    night.set(GPU, {"p2p_peers": 1})
    assert of(judged(night), "p2p") is FALSE
    night.give(BaselineAccepted(night.now, anew=False))
    assert of(judged(night), "p2p") is TRUE


def test_a_link_at_rest_may_have_put_lanes_to_sleep() -> None:
    """At the lowest speed fewer are no fault; none at all is one."""
    night = held()
    night.set(GPU, {"link_width": 4, "link_gts": 2.5})
    assert of(judged(night), "width") is NOT_APPLICABLE
    night.set(GPU, {"link_width": 0, "link_gts": 2.5})
    assert of(judged(night), "width") is FALSE


def test_the_configured_limit_outranks_the_learnt_one() -> None:
    """And is needed even where none was learnt."""
    night = held()
    assert of(judged(night, replace(SETTINGS, power_limit_watts=220.0)), "power-limit") is FALSE
    assert of(judged(night, replace(SETTINGS, power_limit_watts=300.0)), "power-limit") is TRUE


def test_the_limit_that_counts_is_the_accepted_one() -> None:
    """It is lost at a reboot: the card comes back with what it left the factory with."""
    morning = held().again(new_boot=True)
    morning.name_all()
    assert of(judged(morning), "power-limit") is TRUE
    morning.set(GPU, {"power_limit_watts": 350.0})
    found = judged(morning)
    assert of(found, "power-limit") is FALSE
    assert any("limited to 350 W, is to be 250 W" in text for text in proof.lacking(found))


def test_another_card_in_its_place_proves_nothing() -> None:
    """Nor does one that has not said yet who it is."""
    morning = held().again(new_boot=True)
    assert of(judged(morning), "identity") is UNKNOWN
    morning.inventory({GPU: {"uuid": "GPU-another", "serial": Missing.UNSUPPORTED}})
    assert of(judged(morning), "identity") is FALSE


def test_a_port_above_counts_like_a_card() -> None:
    """Its own first dword, and its lanes where it is the lower end of a link."""
    night = held()
    night.set(SWITCH, {"config_dword0": Missing.TIMED_OUT, "link_width": 8})
    found = judged(night)
    assert of(found, "config-space", SWITCH) is UNKNOWN
    assert of(found, "width", SWITCH) is FALSE
    assert not [each for each in found if each.name == "width" and each.text.startswith(str(DOWNSTREAM))]


def test_who_shares_a_card_is_no_leftover() -> None:
    """Neither another supervised engine, nor who computed there before."""
    night = held()
    night.set(GPU, {"compute_pids": "900"})
    place = next(place for place, subject in hardware.under(night.state, SETTINGS).gpus.items() if subject == GPU)
    assert of(judged(night), "memory") is FALSE
    assert of(judged(night, shared=(place.name,)), "memory") is NOT_APPLICABLE
    night.set(Subject("engine", "other.service"), {"pids": "900"})
    assert of(judged(night), "memory") is TRUE


def test_a_quiet_log_that_can_be_read() -> None:
    """A new Xid of its own cards, for the settle time; a log nobody can read is no quiet one."""
    night = held()
    night.kernel(xid(GPU, 43, "an application's doing"))
    assert of(judged(night), "xids") is FALSE
    night.ticks(2)
    assert of(judged(night), "xids") is TRUE
    night.no_kernel_log()
    assert of(judged(night), "kernel-log") is UNKNOWN
    assert any("kernel log cannot be read" in text for text in proof.obstacles(night.state))


def test_no_gpu_is_no_proof() -> None:
    """An engine without any stands on nothing."""
    night = held()
    night.state = replace(night.state, roster=replace(night.state.roster, members={}))
    under = hardware.under(night.state, SETTINGS)
    assert any("no GPU" in text for text in proof.lacking(proof.proofs(SETTINGS, night.state, under, night.now)))
    assert card()["compute_pids"]


def test_a_gpu_that_is_gone_beside_it_is_no_lack_of_its_own() -> None:
    """Of three peers two are reached: a lack when all four are its own, none when the third belongs to another engine and is gone."""
    assert proof._peers(2, 3, 0)[1] is Status.FALSE
    assert proof._peers(2, 3, 1)[1] is Status.TRUE
