r"""What a line has to hold for anybody to look at it: the words by which the families of `kernel` know their lines.

    needle              found in
    Bus Error: sev      nvidia 0000:07:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)

Law: a table. Every line that decides an event holds one of these, case and all; lines that only say more about it need not. The
longer and the rarer the better, best with a capital: each is looked for in every byte of a log. A family that learns a new line
adds its words here (one whose event waits for further lines, those of the first), and a test holds every line of the test data to
it. One that is in another, or in every line that holds another, is not needed: with a sixth fewer hyperscan took a quarter less.
"""

from __future__ import annotations

# `NVRM` without its colon: in a paste it may have become `**NVRM**: `.
_NVIDIA = ("NVRM", "Xid (", "global fatal error", "failed with error -")
# Of a slot's link: `Slot(0): Link Down`, before 4.19 `Link Down event queued on slot(0)`.
_PCI = ("AER: ", "Bus Error: sev", "error received", "recover", "DPC", "lot(", "Power fault", "power state", "ms after ")
# `Device config space inaccessible`, `invalid power transition (from D3cold to D3hot)`, `Data Link Layer Link Active not set`.
_PCI_POWER = ("Device config ", "(from D", "Data Link Layer Link A")
_PCI_BLOCK = ("-Express Device Error ---",)  # its further lines are read because the block waits for them
_NVME = ("nvme ", "@ LBA ")
# `MCE `: `MCE 0x1f3a: Killing ...` and `mce: CPUs not responding to MCE broadcast`.
_HARDWARE = ("Hardware Error]", "mce: Uncorrected", "MCE ", "Machine ", "EDAC ", "BERT: Error", "Memory failure: ", "NMI: ", "Uhhuh. ")
_HOST = ("BUG: ", "Kernel panic - ", "LOCKUP", "INFO: ")

# What says more about the lines around it, or may hide a needle: another boot, colours, text as a list of numbers.
_CLUES = ("-- Boot ", "-- Reboot --", "\x1b[", "#033[", '"MESSAGE":[', '"MESSAGE" : [', '"MESSAGE": [')

NEEDLES = tuple(needle.encode() for needle in (*_NVIDIA, *_PCI, *_PCI_POWER, *_PCI_BLOCK, *_NVME, *_HARDWARE, *_HOST, *_CLUES))
