"""What cannot be seen is said once, plainly, and with what to do about it."""

from __future__ import annotations

from xidwatch.core import remarks
from xidwatch.core.model import HOST, Missing, Readings, Subject, Value
from xidwatch.core.ticks import Answer

PORT, GPU = Subject("port", "0000:0f:00.0"), Subject("gpu", "0000:11:00.0")
RAIL = Subject("rail", "psu1_12v")
BOARD, SUPPLY = Subject("chip", "nct6798@platform/nct6775.656"), Subject("chip", "corsairpsu@usb1/1-5")
Inventory = dict[Subject, dict[str, Value]]


def test_a_probe_that_failed_as_a_whole_says_why() -> None:
    """One remark for each cause; the key changes with it, so that a new cause is said again."""
    answers = {
        "nvml": Answer("nvml", "failed", {}, why="no NVIDIA driver is loaded", failure="DriverNotLoaded"),
        "pci": Answer("pci", "done", {}),
        "host": Answer("host", "timeout", {}, why="no answer before the deadline"),
    }
    assert remarks.about_answers(answers) == {"nvml:DriverNotLoaded": "nvml: no NVIDIA driver is loaded"}


def test_power_that_is_polled_says_what_stays_unseen() -> None:
    """One remark for each source that is no buffer, with the GPUs it is about; a mean is not called an instant."""
    other, third, lost = (Subject("gpu", f"0000:{bus}:00.0") for bus in ("12", "13", "14"))
    readings: Inventory = {
        other: {"power_trace_source": "poll_instant"},
        GPU: {"power_trace_source": "poll_instant"},
        third: {"power_trace_source": "poll_average"},
        lost: {"power_trace_source": Missing.DEVICE_LOST},
    }
    found = remarks.about_power(readings)
    assert set(found) == {"nvml:trace:poll_instant", "nvml:trace:poll_average"}
    assert "0000:11:00.0, 0000:12:00.0; its sensor's latest reading" in found["nvml:trace:poll_instant"]
    assert "0000:13:00.0; the driver's power figure, which on most boards is the mean of a second" in found["nvml:trace:poll_average"]
    assert all("Bursts between two polls stay unseen" in text for text in found.values())
    assert remarks.about_power({GPU: {"power_trace_source": "buffer"}, lost: {}}) == {}


def test_a_healthy_host_needs_no_remark() -> None:
    """Ports, AER and sensors are there."""
    inventory: Inventory = {
        HOST: {"hwmon_chips": 3, "voltage_inputs": 15, "rapl_zones": 2, "functions_elsewhere": 7},
        PORT: {"aer": 1},
        GPU: {"aer": 0},
        RAIL: {"present": 1, "measured_by": f"{BOARD.name}/in1"},
        BOARD: {"driver": "nct6775"},
    }
    assert remarks.about_pci(inventory) == {}
    assert remarks.about_hwmon(inventory) == {}


def test_devices_that_are_too_many_to_be_read_are_no_silence() -> None:
    """How many are left out, which ones are not, and what that costs."""
    text = remarks.about_pci({HOST: {"functions_unread": 216}, PORT: {"aer": 1}, GPU: {"aer": 0}})["pci:unread"]
    assert "216 PCIe ports and drives are neither read nor listed" in text
    assert "only 2 are, GPUs and the ports above them first" in text
    assert "GpuMissing and PortMissing stay UNKNOWN" in text


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


def test_where_nobody_handles_aer_counters_at_zero_are_no_finding() -> None:
    """The files are there and stay at 0; one root port that is heard is enough to say nothing."""
    unheard = {PORT: {"aer": 1, "aer_native": 0}, GPU: {"aer": 1, "aer_native": 0}}
    assert "stay at 0 whatever happens" in remarks.about_pci(unheard)["pci:aer"]
    assert "pci:aer" not in remarks.about_pci({**unheard, PORT: {"aer": 1, "aer_native": 1}})


def test_without_ports_a_lost_parent_cannot_be_told_from_a_lost_device() -> None:
    """As in most virtual machines."""
    assert set(remarks.about_pci({GPU: {"aer": 1}})) == {"pci:ports"}


def test_without_sensors_it_says_which_driver_is_usually_missing() -> None:
    """Only when it is known that there are none."""
    assert "nct6775" in remarks.about_hwmon({HOST: {"hwmon_chips": 0, "voltage_inputs": 0}})["hwmon:none"]
    assert remarks.about_hwmon({HOST: {"hwmon_chips": Missing.TIMED_OUT}}) == remarks.about_hwmon({}) == {}


def test_pins_without_a_name_come_with_how_to_name_one() -> None:
    """With an input of this very host where one looks like a rail, and with a pattern where none does."""
    proposal = 'chip = "nct6798@platform/nct6775.656", input = "in1", factor = 11.9'
    host: dict[str, Value] = {"hwmon_chips": 1, "voltage_inputs": 15, "rail_proposal": proposal}
    text = remarks.about_hwmon({HOST: host})["hwmon:rails"]
    assert text.startswith("hwmon: 15 voltage inputs")
    assert "none is judged" in text
    assert text.endswith(proposal)
    for nothing in ("", Missing.TIMED_OUT):
        text = remarks.about_hwmon({HOST: {**host, "rail_proposal": nothing}})["hwmon:rails"]
        assert "factor = nominal volts / volts at the pin" in text
        assert "TIMED_OUT" not in text
    assert remarks.about_hwmon({HOST: {"hwmon_chips": 1, "voltage_inputs": 0}}) == {}


def test_what_is_left_alone_is_said_once_for_each_driver() -> None:
    """How many chips, why, and what to write to have them read."""
    disks: Inventory = {Subject("chip", f"drivetemp@{number}"): {"driver": "sd", "left_out": "drivetemp"} for number in range(2)}
    said = remarks.about_hwmon({HOST: {"hwmon_chips": 3}, SUPPLY: {"driver": "corsair-psu", "left_out": "corsair-psu"}, **disks})
    assert set(said) == {"hwmon:left-out:corsair-psu", "hwmon:left-out:drivetemp"}
    assert said["hwmon:left-out:drivetemp"].startswith("hwmon: 2 chips of drivetemp left alone: each reading is a command to the disk")
    assert said["hwmon:left-out:corsair-psu"].endswith('[probes.hwmon] poll = ["corsair-psu"]')


def test_a_rail_that_cannot_be_read_says_why() -> None:
    """Its chip is not there, with what is; or it is one of those that are left alone."""
    lost: Inventory = {RAIL: {"present": 0, "measured_by": "nct6799@platform/nct6775.656/in1"}, BOARD: {"driver": "nct6775"}}
    text = remarks.about_hwmon({HOST: {"hwmon_chips": 1}, **lost})["hwmon:rail:psu1_12v"]
    assert "there is no nct6799@platform/nct6775.656/in1 (chips here: nct6798@platform/nct6775.656)" in text
    left: Inventory = {
        RAIL: {"present": 1, "measured_by": f"{SUPPLY.name}/in1"},
        SUPPLY: {"driver": "corsair-psu", "left_out": "corsair-psu"},
    }
    assert 'poll = ["corsair-psu"]' in remarks.about_hwmon({HOST: {"hwmon_chips": 1}, **left})["hwmon:rail:psu1_12v"]


def test_power_that_only_root_may_read_is_said() -> None:
    """A processor without such a meter is none of it."""
    assert "root only" in remarks.about_hwmon({HOST: {"rapl_zones": Missing.DENIED}})["hwmon:rapl"]
    assert remarks.about_hwmon({HOST: {"rapl_zones": 0}}) == {}


def test_how_it_was_started_is_remarked_on() -> None:
    """By systemd and as root there is nothing to say."""
    assert remarks.about_start(systemd=True, root=True) == {}
    assert set(remarks.about_start(systemd=False, root=False)) == {"start:systemd", "start:root"}


GONE = Subject("gpu", "0000:12:00.0")
HERE: Readings = {HOST: {"pci_functions": 2}, GPU: {"present": 1}, GONE: {"present": 0}}


def test_a_gpu_that_is_named_for_an_engine_and_not_here_is_said() -> None:
    """With those that are: most likely a slip. However it is spelt, a GPU that is here is here."""
    named = {"vllm.service": ("0000:11:00.0", "11:00.0", "0000:99:00.0"), "other.service": ("0000:11:00.0",)}
    (said,) = remarks.about_named_gpus(named, HERE, ()).values()
    assert said == "engine: vllm.service: its gpus name 0000:99:00.0, not found on this host (GPUs here: 0000:11:00.0)"


def test_a_gpu_that_should_be_here_is_no_slip_of_the_settings() -> None:
    """It is missed by name elsewhere; and where the list of devices is not whole nobody is called missing."""
    assert remarks.about_named_gpus({"vllm.service": (GONE.name,)}, HERE, {GONE}) == {}
    assert remarks.about_named_gpus({"vllm.service": ("0000:99:00.0",)}, {**HERE, HOST: {"pci_functions": Missing.TIMED_OUT}}, ()) == {}


def test_what_is_not_known_of_an_engine_is_said_with_the_cure() -> None:
    """A misspelt unit, metrics that are off, locked, or of another kind; an engine that is well or merely down needs no remark."""

    def about(**values: Value) -> list[str]:
        return list(remarks.about_engines({Subject("engine", "vllm.service"): values}).values())

    assert about(load_state="loaded", active_state="inactive", metrics_status=Missing.ABSENT) == []
    assert about(load_state="loaded", metrics_status=200, server="vllm") == []
    assert about(load_state=Missing.TIMED_OUT, metrics_status=503) == []
    for values, word in (
        ({"load_state": "not-found"}, "list-units"),
        ({"metrics_status": 404}, "--enable-metrics"),
        ({"metrics_status": 501}, "--metrics"),
        ({"metrics_status": 401}, "key"),
        ({"metrics_status": 200, "server": Missing.UNSUPPORTED}, "none of vLLM"),
        ({"load_state": Missing.UNSUPPORTED}, "init"),
    ):
        (said,) = about(**values)
        assert said.startswith("engine: ")
        assert word in said
