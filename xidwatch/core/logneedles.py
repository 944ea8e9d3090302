r"""What a line has to hold for anybody to look at it: the words by which the families of `kernel` know their lines.

    needle              found in
    Bus Error: sev      nvidia 0000:07:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)

Law: a table. Every line that decides an event holds one of these, case and all; lines that only say more about it need not. The
rarer the better, best with a capital: each is looked for in every byte of a log. A family that learns a new line adds its words here
(one whose event waits for further lines, those of the first), and a test holds every line of the test data to it. One that is in another,
or in every line that holds another, is not needed: with a sixth fewer hyperscan took a quarter less. One of more than eight
letters is found no quicker, and takes it fifty times as long to be made ready.
"""

from __future__ import annotations

# `NVRM` without its colon: in a paste it may have become `**NVRM**: `. `global fatal error`, `failed with error -`.
_NVIDIA = ("NVRM", "Xid (", "global f", " error -")
# `PCIe Bus Error: severity=`, `error received:`, `Power fault`, `power state`, `5 ms after bus reset`.
# Of a slot's link: `Slot(0): Link Down`, before 4.19 `Link Down event queued on slot(0)`.
_PCI = ("AER: ", "Bus Erro", "error re", "recover", "DPC", "lot(", "Power fa", "power st", "ms after")
# `Device config space inaccessible`, `invalid power transition (from D3cold to D3hot)`, `Data Link Layer Link Active not set`.
_PCI_POWER = ("Device c", "(from D", "Data Lin")
_PCI_BLOCK = ("Device E",)  # `-Express Device Error ---`; its further lines are read because the block waits for them
_NVME = ("nvme ", "@ LBA ")
# `[Hardware Error]`, `mce: Uncorrected`, `BERT: Error`, `Memory failure: `.
# `MCE `: `MCE 0x1f3a: Killing ...` and `mce: CPUs not responding to MCE broadcast`.
_HARDWARE = ("Hardware", "mce: Unc", "MCE ", "Machine ", "EDAC ", "BERT: Er", "Memory f", "NMI: ", "Uhhuh. ")
_HOST = ("BUG: ", "Kernel p", "LOCKUP", "INFO: ")  # `Kernel panic - `

# What says more about the lines around it, or may hide a needle: another boot, colours, text as a list of numbers
# (`"MESSAGE":[`, with or without spaces).
_CLUES = ("-- Boot ", "Reboot -", "\x1b[", "#033[", 'SAGE":[', 'AGE" : [', 'AGE": [')

NEEDLES = tuple(needle.encode() for needle in (*_NVIDIA, *_PCI, *_PCI_POWER, *_PCI_BLOCK, *_NVME, *_HARDWARE, *_HOST, *_CLUES))
