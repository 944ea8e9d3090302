r"""What a line has to hold for anybody to look at it: the words by which the families of `kernel` know their lines.

    needle              found in
    PCIe Bus Error      nvidia 0000:07:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)

Law: a table. Every line that decides an event holds one of these, case and all; lines that only say more about it need not. The
longer and the rarer the better: each is looked for in every byte of a log. A family that learns a new line adds its words here, and
a test holds every line of the test data to it.
"""

from __future__ import annotations

# `NVRM` without its colon: in a paste it may have become `**NVRM**: `.
_NVIDIA = ("NVRM", "nvidia-nvswitch", "nvidia-uvm: ", "global fatal error")
_PCI = (
    *("PCIe Bus Error", "error received", "message received", "recovery failed", "can't recover", "device reset failed"),
    *("containment event", "DPC: ", "dpc 0", "Slot(", "on slot", "Link Down", "Card not present", "power state", "ms after "),
)
_NVME = ("nvme nvme", "nvme 0", "nvme 1")
_HARDWARE = ("Hardware Error]", "mce: Uncorrected", "mce: CPUs not", "Machine Check", "Machine check events", "EDAC ", "BERT: Error")
_MEMORY = ("Memory failure: ",)
_HOST = ("soft lockup", "LOCKUP", "BUG: NMI", "NMI watchdog", "NMI Watchdog", "Watchdog detected", " stall", "INFO: task ")

# What says more about the lines around it, or may hide a needle: another boot, colours, text as a list of numbers.
_CLUES = ("-- Boot ", "-- Reboot --", "\x1b[", "#033[", '"MESSAGE":[', '"MESSAGE" : [')

NEEDLES = tuple(needle.encode() for needle in (*_NVIDIA, *_PCI, *_NVME, *_HARDWARE, *_MEMORY, *_HOST, *_CLUES))
