"""What cannot be seen is said once, plainly, and with what to do about it."""

from __future__ import annotations

from xidwatch.core import remarks
from xidwatch.core.model import HOST, Missing, Subject, Value
from xidwatch.core.ticks import Answer

PORT, GPU = Subject("port", "0000:0f:00.0"), Subject("gpu", "0000:11:00.0")
Inventory = dict[Subject, dict[str, Value]]


def test_a_probe_that_failed_as_a_whole_says_why() -> None:
    """One remark for each cause; the key changes with it, so that a new cause is said again."""
    answers = {
        "nvml": Answer("nvml", "failed", {}, why="no NVIDIA driver is loaded", failure="DriverNotLoaded"),
        "pci": Answer("pci", "done", {}),
        "host": Answer("host", "timeout", {}, why="no answer before the deadline"),
    }
    assert remarks.about_answers(answers) == {"nvml:DriverNotLoaded": "nvml: no NVIDIA driver is loaded"}


def test_a_healthy_host_needs_no_remark() -> None:
    """Ports, AER and sensors are there."""
    inventory: Inventory = {HOST: {"hwmon_chips": 3, "functions_elsewhere": 7}, PORT: {"aer": 1}, GPU: {"aer": 0}}
    assert remarks.about_pci(inventory) == {}
    assert remarks.about_host(inventory) == {}


def test_a_host_without_devices_says_that_there_is_nothing_to_watch() -> None:
    """With how many there are besides, when that is known, and never a reason in the place of a number."""
    assert "(7 other functions, not read)" in remarks.about_pci({HOST: {"functions_elsewhere": 7}})["pci:none"]
    for inventory in ({}, {HOST: {"functions_elsewhere": Missing.TIMED_OUT}}):
        text = remarks.about_pci(inventory)["pci:none"]
        assert "other functions" not in text
        assert "TIMED_OUT" not in text


def test_without_aer_a_reader_must_not_take_zero_errors_for_a_clean_link() -> None:
    """It names both usual causes."""
    for lack in (0, Missing.DENIED):
        text = remarks.about_pci({PORT: {"aer": lack}})["pci:aer"]
        assert "_OSC" in text
        assert "pci=noaer" in text


def test_without_ports_a_lost_parent_cannot_be_told_from_a_lost_device() -> None:
    """As in most virtual machines."""
    assert set(remarks.about_pci({GPU: {"aer": 1}})) == {"pci:ports"}


def test_without_sensors_it_says_which_driver_is_usually_missing() -> None:
    """Only when it is known that there are none."""
    assert "nct6775" in remarks.about_host({HOST: {"hwmon_chips": 0}})["hwmon:none"]
    assert remarks.about_host({HOST: {"hwmon_chips": Missing.TIMED_OUT}}) == remarks.about_host({}) == {}


def test_how_it_was_started_is_remarked_on() -> None:
    """By systemd and as root there is nothing to say."""
    assert remarks.about_start(systemd=True, root=True) == {}
    assert set(remarks.about_start(systemd=False, root=False)) == {"start:systemd", "start:root"}
