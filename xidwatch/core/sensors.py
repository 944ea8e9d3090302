"""What is known about sensor drivers in the kernel: which must not be polled unasked, and which give real volts.

Law: two tables and their lookups. A driver is named as its module is; a chip may call itself something else.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reluctant:
    """A driver whose chips are read only when the operator names it. `chip`: what its chips call themselves."""

    driver: str
    chip: str
    why: str
    source: str


OPT_IN: tuple[Reluctant, ...] = (
    Reluctant(
        "asus_wmi_sensors",
        "asus_wmi_sensors",
        "on some boards the firmware stops fans or freezes readings when it is polled",
        "Documentation/hwmon/asus_wmi_sensors.rst, known issues",
    ),
    Reluctant(
        "corsair-cpro",
        "corsaircpro",
        "each reading is a request to USB firmware that may not answer",
        "drivers/hwmon/corsair-cpro.c, send_usb_cmd",
    ),
    Reluctant(
        "corsair-psu",
        "corsairpsu",
        "each reading is a request to the supply's USB firmware, which may not answer",
        "drivers/hwmon/corsair-psu.c, corsairpsu_usb_cmd",
    ),
    Reluctant(
        "drivetemp",
        "drivetemp",
        "each reading is a command to the disk, which may keep it from spinning down",
        "Documentation/hwmon/drivetemp.rst",
    ),
    Reluctant(
        "nvme",
        "nvme",
        "each reading is a command to the drive: it wakes one that saves power, and one that has left the bus keeps the reader waiting",
        "drivers/nvme/host/hwmon.c",
    ),
)

# Their in*_input is the voltage of the rail itself: a supply's own controller, or firmware that knows the board. Every other
# driver gives what stands at the chip's pin, behind whatever divider there is: a +12 V rail mostly reads about 1 V on a board.
# Source: of each driver its page in Documentation/hwmon; left out on purpose: ltc2945, ltc4151, ltc4245, which have raw pins too.
REAL_VOLTS = frozenset({
    "acbel-fsg032", "asus_wmi_sensors", "bel-pfe", "corsair-cpro", "corsair-psu", "dps920ab", "fsp-3y", "ibm-cffps", "inspur-ipsps1",
    "pmbus",
})  # fmt: skip

_BY_NAME = {name: row for row in OPT_IN for name in (row.driver, row.chip)}


def reluctant(chip: str, driver: str) -> Reluctant | None:
    """The row for a chip by what it calls itself or by its driver (drivetemp's chips belong to the disk's own driver)."""
    return _BY_NAME.get(chip) or _BY_NAME.get(driver)


def gives_real_volts(chip: str, driver: str) -> bool:
    """False also for what nobody knows: a pin must not be taken for a rail."""
    row = reluctant(chip, driver)
    return (row.driver if row else driver) in REAL_VOLTS
