"""What cannot be seen on this host, said once, plainly, with what to do about it.

Law: pure sentences from inventory and answers. A remark is no alarm; it keeps a reader from taking silence for health.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from xidwatch.core import roster, sensors
from xidwatch.core.model import HOST, PCI_KINDS, Missing, PciAddress, Readings, Subject, Value
from xidwatch.core.power import TraceSource
from xidwatch.core.ticks import Answer


def about_tick(
    answers: Mapping[str, Answer], readings: Readings, named: Mapping[str, Sequence[str]], members: Collection[Subject]
) -> dict[str, str]:
    """What one tick has to say; `named` and `members` as for `about_named_gpus`."""
    return about_answers(answers) | about_engines(readings) | about_power(readings) | about_named_gpus(named, readings, members)


def about_answers(answers: Mapping[str, Answer]) -> dict[str, str]:
    """One remark for each probe that failed as a whole, by a key that changes with the reason."""
    return {f"{answer.probe}:{answer.failure}": f"{answer.probe}: {answer.why}" for answer in answers.values() if answer.ended == "failed"}


_POLLED = {
    TraceSource.POLL_INSTANT: "its sensor's latest reading (renewed about every 100 ms) is",
    TraceSource.POLL_AVERAGE: "the driver's power figure, which on most boards is the mean of a second and no instant, is",
}


def about_power(readings: Readings) -> dict[str, str]:
    """Whose power over time has holes, since the driver keeps no samples of it."""
    remarks = {}
    for source, what in _POLLED.items():
        gpus = sorted(subject.name for subject, values in readings.items() if values.get("power_trace_source") == source)
        if gpus:
            remarks[f"nvml:trace:{source}"] = (
                f"nvml: the driver gives no power samples for {', '.join(gpus)}; {what} polled instead, every 0.5 s under load and every "
                "2 s idle. Bursts between two polls stay unseen, and there is no power_peak_watts"
            )
    return remarks


def about_pci(inventory: Readings) -> dict[str, str]:
    """What the PCI devices found do not offer; to be asked when the pci probe has told its inventory."""
    functions = [subject for subject in inventory if subject.kind in PCI_KINDS]
    if not functions:
        others = inventory.get(HOST, {}).get("functions_elsewhere")
        counted = f" ({others} other functions, not read)" if isinstance(others, int) else ""
        return {
            "pci:none": f"pci: no PCIe port, NVIDIA GPU or NVMe drive here{counted}, so there is no configuration space or link to watch. "
            "Normal in a virtual machine; on a host, compare with lspci"
        }
    remarks: dict[str, str] = {}
    if unread := _number(inventory.get(HOST, {}).get("functions_unread")):
        remarks["pci:unread"] = (
            f"pci: {unread} PCIe ports and drives are neither read nor listed, since there are too many: only {len(functions)} are, "
            "GPUs and the ports above them first. Without the whole list none is called missing: GpuMissing and PortMissing stay UNKNOWN"
        )
    if not any(inventory[subject].get("aer") == 1 for subject in functions):
        remarks["pci:aer"] = (
            "pci: no device here has AER counters, so link errors stay UNSUPPORTED. "
            "Firmware may own AER (dmesg | grep _OSC), or the kernel runs with pci=noaer"
        )
    elif all(inventory[subject].get("aer_native") == 0 for subject in functions):
        remarks["pci:aer"] = (
            "pci: the kernel handles no AER messages here, so counters of link errors stay at 0 whatever happens, and that is no finding. "
            "Firmware may own AER (dmesg | grep _OSC), or the kernel runs with pci=noaer"
        )
    unbound = [subject.name for subject in functions if subject.kind == "gpu" and inventory[subject].get("driver") == ""]
    if unbound:
        remarks["pci:unbound"] = (
            f"pci: no driver is bound to {', '.join(sorted(unbound))}, so nothing is known of them but that the bus answers. "
            "Look at dmesg | grep -i nvrm, and at dkms status after a kernel update"
        )
    if not any(subject.kind == "port" for subject in functions):
        remarks["pci:ports"] = (
            "pci: no PCIe port above the devices is visible, so a lost parent cannot be told from a lost device. "
            "Normal in a virtual machine"
        )
    return remarks


def _number(value: Value | None) -> int:
    return value if isinstance(value, int) else 0


def about_hwmon(inventory: Readings) -> dict[str, str]:
    """What the sensors found do not tell; to be asked when the hwmon probe has told its inventory."""
    host = inventory.get(HOST, {})
    rails = {subject.name: values for subject, values in inventory.items() if subject.kind == "rail"}
    left_out = _left_out(inventory)
    remarks = {f"hwmon:left-out:{driver}": text for driver, text in _about_left_out(left_out).items()}
    if host.get("hwmon_chips") == 0:
        remarks["hwmon:none"] = (
            "hwmon: no sensor chip is registered, so board rails, fans and supplies cannot be read. "
            "Normal in a virtual machine; else load the board's driver (sensors-detect from lm-sensors names it, often nct6775)"
        )
    elif not rails and host.get("voltage_inputs") not in {None, 0}:
        remarks["hwmon:rails"] = _how_to_name_a_rail(host.get("voltage_inputs"), host.get("rail_proposal"))
    if host.get("rapl_zones") is Missing.DENIED:
        remarks["hwmon:rapl"] = "hwmon: the processors' energy counters may be read by root only, so their power stays DENIED"
    for name, values in rails.items():
        source = str(values.get("measured_by"))
        if values.get("present") == 0:
            remarks[f"hwmon:rail:{name}"] = (
                f"hwmon: rail {name} cannot be read, there is no {source} (chips here: {', '.join(_chips(inventory)) or 'none'})"
            )
        elif driver := left_out.get(source.rpartition("/")[0]):
            remarks[f"hwmon:rail:{name}"] = f'hwmon: rail {name} is not read before [probes.hwmon] has poll = ["{driver}"]'
    return remarks


def about_named_gpus(named: Mapping[str, Sequence[str]], readings: Readings, members: Collection[Subject]) -> dict[str, str]:
    """GPUs that the settings give an engine (`named`: by unit) and that are neither here nor known from before: a slip, most likely.

    One that should be here is no slip, and has a condition of its own.
    """
    if isinstance(roster.listing(readings), Missing):
        return {}
    here = sorted(subject.name for subject, values in readings.items() if subject.kind == "gpu" and values.get("present") == 1)
    known = {*here, *(subject.name for subject in members)}
    strange = {unit: [name for name in map(_spelt, gpus) if name not in known] for unit, gpus in named.items()}
    return {
        f"engine:gpus:{unit}": (
            f"engine: {unit}: its gpus name {', '.join(gpus)}, not found on this host (GPUs here: {', '.join(here) or 'none'})"
        )
        for unit, gpus in strange.items()
        if gpus
    }


def _spelt(address: str) -> str:
    return str(PciAddress.parse(address))


def about_engines(readings: Readings) -> dict[str, str]:
    """What is not known of the engines that are configured; to be asked at every tick, for they come and go."""
    remarks: dict[str, str] = {}
    for subject, values in readings.items():
        if subject.kind == "engine":
            remarks |= {f"{subject}:{key}": f"engine: {subject.name}: {text}" for key, text in _about_engine(values).items()}
    if any(values.get("load_state") is Missing.UNSUPPORTED for subject, values in readings.items() if subject.kind == "engine"):
        remarks["engine:systemd"] = "engine: systemd is not this host's init, so nothing is known of units and their processes"
    return remarks


def _about_engine(values: Mapping[str, Value]) -> dict[str, str]:
    """By what a reader would otherwise take for silence."""
    status = values.get("metrics_status")
    texts = {
        "not-found": (
            "systemd knows no such unit; `systemctl list-units --type=service` has those there are",
            values.get("load_state") == "not-found",
        ),
        "no-page": (f"no metrics there ({status}): llama.cpp has them with --metrics, SGLang with --enable-metrics", status in {404, 501}),
        "key": (f"its metrics ask for a key ({status}), which xidwatch has not", status in {401, 403}),
        "unknown": (
            "its metrics are none of vLLM, SGLang or llama.cpp, so requests and tokens stay UNSUPPORTED",
            status == 200 and values.get("server") is Missing.UNSUPPORTED,
        ),
    }
    return {key: text for key, (text, holds) in texts.items() if holds}


def _chips(inventory: Readings) -> list[str]:
    """Chips, without their inputs: only a chip has a driver."""
    return sorted(subject.name for subject, values in inventory.items() if subject.kind == "chip" and "driver" in values)


def _left_out(inventory: Readings) -> dict[str, str]:
    """Chip to the driver that has to be named before it is read."""
    return {subject.name: str(values["left_out"]) for subject, values in inventory.items() if "left_out" in values}


def _about_left_out(left_out: Mapping[str, str]) -> dict[str, str]:
    texts = {}
    for driver, count in sorted(Counter(left_out.values()).items()):
        row = sensors.reluctant("", driver)
        why = f": {row.why}" if row else ""
        chips = "1 chip" if count == 1 else f"{count} chips"
        texts[driver] = f'hwmon: {chips} of {driver} left alone{why}. To have it read: [probes.hwmon] poll = ["{driver}"]'
    return texts


def _how_to_name_a_rail(inputs: Value | None, proposal: Value | None) -> str:
    """`proposal` as the probe writes it, or nothing."""
    example = proposal if isinstance(proposal, str) and not isinstance(proposal, Missing) else ""
    example = example or 'chip = "...", input = "in1", factor = nominal volts / volts at the pin'
    return (
        f"hwmon: {inputs} voltage inputs are recorded as the chip's pins have them; none is named as a supply rail, so none is judged. "
        "To name one, once a meter or the board's manual says which it is, give it a table [[rails]] in the configuration, for instance: "
        f'name = "psu1_12v", nominal_volts = 12.0, {example}'
    )


def about_start(*, systemd: bool, root: bool) -> dict[str, str]:
    """How it was started."""
    remarks: dict[str, str] = {}
    if not systemd:
        remarks["start:systemd"] = (
            "not started by systemd: nothing restarts this process if it hangs or ends. Fine for a look; `make install` sets up the service"
        )
    if not root:
        remarks["start:root"] = (
            "not running as root: only the first 64 bytes of configuration space are readable, the kernel log may not be. "
            "State is kept under the state directory"
        )
    return remarks
