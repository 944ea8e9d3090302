"""The NVIDIA library aborts at every call: only its worker dies, again and again; the rest goes on, and the host is not called healthy."""

from tests.rig.vm.guest import Guest


def scenario(guest: Guest) -> None:
    guest.nvml.driver(nvmlDeviceGetTemperatureV="abort", nvmlDeviceGetTemperature="abort")
    guest.until_condition("ProbeNotAnswering", "probe:nvml", "TRUE")
    assert guest.unit()["NRestarts"] == "0"
    assert guest.state()["verdict"] == "degraded"
    assert not guest.records().incidents
    guest.nvml.driver(nvmlDeviceGetTemperatureV=None, nvmlDeviceGetTemperature=None)
    guest.until_condition("ProbeNotAnswering", "probe:nvml", "FALSE")
    assert guest.records().is_whole()
