"""What cannot be seen on this host, said once, plainly, with what to do about it.

Law: pure sentences from inventory and answers. A remark is no alarm; it keeps a reader from taking silence for health.
"""

from __future__ import annotations

from collections.abc import Mapping

from xidwatch.core.model import HOST, PCI_KINDS, Readings
from xidwatch.core.ticks import Answer


def about_answers(answers: Mapping[str, Answer]) -> dict[str, str]:
    """One remark for each probe that failed as a whole, by a key that changes with the reason."""
    return {f"{answer.probe}:{answer.failure}": f"{answer.probe}: {answer.why}" for answer in answers.values() if answer.ended == "failed"}


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
    if not any(inventory[subject].get("aer") == 1 for subject in functions):
        remarks["pci:aer"] = (
            "pci: no device here has AER counters, so link errors stay UNSUPPORTED. "
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


def about_host(inventory: Readings) -> dict[str, str]:
    """What the host does not offer; to be asked when the host probe has told its inventory."""
    if inventory.get(HOST, {}).get("hwmon_chips") != 0:
        return {}
    return {
        "hwmon:none": "hwmon: no sensor chip is registered, so board rails, fans and supplies cannot be read. "
        "Normal in a virtual machine; else load the board's driver (sensors-detect from lm-sensors names it, often nct6775)"
    }


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
