"""`xidwatch allow-driver REASON`: ask NVML again after a driver-fatal Xid, at an operator's word."""

from __future__ import annotations

from typing import Any

from xidwatch.cli.note import EXIT_CODES, send

DESCRIPTION = "After a driver-fatal Xid NVML is left alone until a reboot or a reload of the module. This says that it may be asked again."


def add(commands: Any) -> None:
    """The command's options."""
    command = commands.add_parser(
        "allow-driver",
        help="ask NVML again after a driver-fatal Xid (you have reloaded or reset it)",
        description=DESCRIPTION,
        epilog=EXIT_CODES,
    )
    command.add_argument("text", nargs="+", metavar="REASON", help="what makes it safe again, for whoever reads the journal later")
    command.set_defaults(run=lambda arguments: send(arguments, "allow-driver"))
