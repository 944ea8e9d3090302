r"""What a line has to hold for anybody to look at it: the words by which the families of `kernel` know their lines.

    needle              found in
    Bus Error: sev      nvidia 0000:07:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)

Law: a table. Every line that decides an event holds one of these, case and all; lines that only say more about it need not. The
longer and the rarer the better, best with a capital: each is looked for in every byte of a log. A family that learns a new line
adds its words here (one whose event waits for further lines, those of the first), and a test holds every line of the test data to it.
"""

from __future__ import annotations

# `NVRM` without its colon: in a paste it may have become `**NVRM**: `.
_NVIDIA = ("NVRM", "Xid (", "global fatal error", "failed with error -")
_PCI = ("AER: ", "Bus Error: sev", "error received", "recover", "DPC", "lot(", "Link Down", "Power fault", "power state", "ms after ")
_PCI_BLOCK = ("-Express Device Error ---",)  # its further lines are read because the block waits for them
_NVME = ("nvme ", "@ LBA ")
_HARDWARE = ("Hardware Error]", "mce: Uncorrected", "mce: CPUs not", "Machine Check", "Machine check events", "EDAC ", "BERT: Error")
_MEMORY = ("Memory failure: ", "MCE 0x")
_HOST = ("BUG: ", "Kernel panic - ", "LOCKUP", "NMI ", "Watchdog detected", "INFO: ")

# What says more about the lines around it, or may hide a needle: another boot, colours, text as a list of numbers.
_CLUES = ("-- Boot ", "-- Reboot --", "\x1b[", "#033[", '"MESSAGE":[', '"MESSAGE" : [', '"MESSAGE": [')

NEEDLES = tuple(needle.encode() for needle in (*_NVIDIA, *_PCI, *_PCI_BLOCK, *_NVME, *_HARDWARE, *_MEMORY, *_HOST, *_CLUES))
