"""The host of a fixture: what it is built of (`host.txt`), and what can happen to it (the verbs of `timeline.txt`).

    driver version=580.95.05
    proc   memory_gib=256 load=3.1 busy=0.1
    chip   nct6798 platform/nct6775.656 driver=nct6775 in5_input=1008
    unit   vllm.service pids=4700,4711,4712                see `units`
    0000:00:03.1 root 1022:1453 aer=firmware               see `bus` for the tree, `nvml` for what a GPU can be told
      0000:11:00.0 gpu 10de:2204 1458:403b name="NVIDIA GeForce RTX 3090" limit_watts=350

Law: builds and changes, at once; when is `player`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from xidwatch.core.model import PciAddress
from xidwatch.replay import bus as tree
from xidwatch.replay import nvml
from xidwatch.replay.bus import Bus, Function
from xidwatch.replay.clock import VirtualClock
from xidwatch.replay.nvml import Board, Library
from xidwatch.replay.script import Event, FixtureError, Words, lines
from xidwatch.replay.sensors import PROC, Proc, Sensors
from xidwatch.replay.units import Units

LOST, RESET_REQUIRED = 15, 16
ALL_GPUS = "gpus"
NO_AER = "none"  # the function has no such counters; `firmware`: it keeps all of them for itself
FUNCTION_OPTIONS = ("class", "driver", "slot", "aer", *tree.ATTRIBUTES, *tree.COUNTERS)


class Host:
    """Built below `place`: `sys`, `proc`, and a driver library. Raises FixtureError for what it cannot be told."""

    def __init__(self, text: str, place: Path) -> None:
        self.sysfs, self.procfs = place / "sys", place / "proc"
        self.sensors = Sensors(self.sysfs)
        self.proc = Proc(self.procfs, dict(PROC))
        self.library = Library("580.95.05")
        self.units = Units(place)
        self.library.holders = lambda board: self.units.holders(str(PciAddress.parse(board.bus_id)))
        self._clock: VirtualClock | None = None
        told = list(lines(text, "host.txt"))
        functions, aer = _functions(line for line in told if line.words[0] not in _ABOUT)
        self.bus = Bus(self.sysfs, {function.address: function for function, _ in functions}, native_aer=aer)
        for number, (function, line) in enumerate(found for found in functions if found[0].kind == "gpu"):
            self._add_board(number, function, line)
        for line in told:
            if line.words[0] in _ABOUT:
                _ABOUT[line.words[0]](self, line)

    def begin(self, clock: VirtualClock) -> None:
        """The machine has started."""
        self._clock = clock
        self.library.begin(clock)
        self.units.begin(clock)
        self.proc.begin()

    def apply(self, event: Event) -> bool:
        """Let it happen; False for a verb that is not about the host. Raises FixtureError."""
        happen = _VERBS.get(event.verb)
        if happen is None:
            return False
        try:
            happen(self, event.line)
        except (KeyError, ValueError, IndexError, OSError) as error:
            raise event.line.error(f"{event.verb}: {type(error).__name__}: {error}") from error
        return True

    # ------------------------------------------------------------------------------------------------------- building

    def _add_board(self, number: int, function: Function, line: Words) -> None:
        if function.driver != "nvidia":
            return
        address = PciAddress.parse(function.address)
        bus_id = f"{address.domain:08X}:{address.bus:02X}:{address.device:02X}.{address.function:X}"
        board = Board(bus_id, f"GPU-00000000-0000-0000-0000-{number + 1:012d}", number)
        self.library.boards.append(board)
        for name, value in line.options.items():
            if name in nvml.SETTABLE:
                self.library.set(board, name, value)

    def _board(self, address: str) -> Board:
        wanted = PciAddress.parse(address)
        return next(board for board in self.library.boards if PciAddress.parse(board.bus_id) == wanted)

    def _add_chip(self, line: Words) -> None:
        _, name, place = line.words
        self.sensors.add(name, place, line.options.get("driver", ""), {key: text for key, text in line.options.items() if key != "driver"})

    def _add_unit(self, line: Words) -> None:
        try:
            self.units.add(line, [function.address for function in self.bus.gpus])
        except ValueError as error:
            raise line.error(str(error)) from error

    # --------------------------------------------------------------------------------------------------------- events

    def _who(self, line: Words) -> list[str]:
        """The functions a line is about."""
        if not line.words:
            raise line.error("about which function? an address, several, or `gpus`")
        found = [function.address for function in self.bus.gpus] if line.words == (ALL_GPUS,) else list(line.words)
        strangers = [address for address in found if address not in self.bus]
        if strangers:
            raise line.error(f"not in host.txt: {' '.join(strangers)}")
        return found

    def _set(self, line: Words) -> None:
        for address in self._who(line):
            for name, value in line.options.items():
                if name in (*tree.ATTRIBUTES, *tree.COUNTERS):
                    self.bus.set(address, name, value)
                elif name in nvml.SETTABLE:
                    self.library.set(self._board(address), name, value)
                else:
                    raise line.error(f"{name}: not known; a function has {', '.join((*tree.ATTRIBUTES, *tree.COUNTERS, *nvml.SETTABLE))}")

    def _lose(self, line: Words) -> None:
        for address in self._who(line):
            self.library.set(self._board(address), "lost", str(LOST))

    def _find(self, line: Words) -> None:
        for address in self._who(line):
            self.library.set(self._board(address), "lost", "0")

    def _swap(self, line: Words) -> None:
        (address,) = self._who(line)
        self.bus.replace(address, ids=line.options.get("ids", ""), board=line.options.get("board", ""))
        for name, value in line.options.items():
            if name in nvml.SETTABLE:
                self.library.set(self._board(address), name, value)

    def _driver(self, line: Words) -> None:
        self.library.version = line.options.get("version", self.library.version)
        self.library.error = int(line.options.get("error", self.library.error))

    def _chip(self, line: Words) -> None:
        self.sensors.set(line.words[-1], line.options)

    def _proc(self, line: Words) -> None:
        for name, value in line.options.items():
            if name not in PROC:
                raise line.error(f"{name}: not known; proc has {', '.join(PROC)}")
            self.proc.set(name, float(value), self._clock.mono() if self._clock else 0.0)


def _each(happen: Callable[[Bus, str], None]) -> Callable[[Host, Words], None]:
    def apply(host: Host, line: Words) -> None:
        for address in host._who(line):  # noqa: SLF001  part of the host, for its table
            happen(host.bus, address)

    return apply


def _functions(told: Iterable[Words]) -> tuple[list[tuple[Function, Words]], bool]:
    """The tree, and whether the kernel handles AER."""
    found: list[tuple[Function, Words]] = []
    above: list[tuple[int, str]] = []  # indent and address of the bridges this line may be below
    aer = True
    for line in told:
        address, kind, *ids = [*line.words, ""][: max(2, len(line.words))]
        if PciAddress.try_parse(address) is None or kind not in tree.CLASSES:
            raise line.error(f"expected an address and one of {', '.join(tree.CLASSES)}; or {', '.join(_ABOUT)}")
        above = [bridge for bridge in above if bridge[0] < line.indent]
        function = _function(line, address, kind, ids, above[-1][1] if above else "")
        aer = aer and line.options.get("aer") != "firmware"
        above.append((line.indent, address))
        found.append((function, line))
    return found, aer


def _function(line: Words, address: str, kind: str, ids: list[str], parent: str) -> Function:
    strange = [name for name in line.options if name not in (*FUNCTION_OPTIONS, *nvml.SETTABLE)]
    if strange:
        raise line.error(f"{', '.join(strange)}: not known; a function has {', '.join((*FUNCTION_OPTIONS, *nvml.SETTABLE))}")
    try:
        files = {tree.ATTRIBUTES[name]: value for name, value in line.options.items() if name in tree.ATTRIBUTES}
        class_code = int(line.options.get("class", "0"), 16)
        driver = line.options.get("driver", tree.DRIVERS[kind])
        first, second = [*ids, "", ""][:2]
        function = Function(address, kind, parent, first, second, class_code, driver, line.options.get("slot", ""), files)
    except ValueError as error:
        raise line.error(str(error)) from error
    if line.options.get("aer") == NO_AER:
        function.files = {name: text for name, text in function.files.items() if not name.startswith("aer_")}
    return function


_ABOUT: dict[str, Callable[[Host, Words], None]] = {
    "driver": Host._driver,  # noqa: SLF001
    "proc": Host._proc,  # noqa: SLF001
    "chip": Host._add_chip,  # noqa: SLF001
    "unit": Host._add_unit,  # noqa: SLF001
}
_VERBS: dict[str, Callable[[Host, Words], None]] = {
    "set": Host._set,  # noqa: SLF001
    "lost": Host._lose,  # noqa: SLF001
    "found": Host._find,  # noqa: SLF001
    "swap": Host._swap,  # noqa: SLF001
    "driver": Host._driver,  # noqa: SLF001
    "proc": Host._proc,  # noqa: SLF001
    "chip": Host._chip,  # noqa: SLF001
    "unit": lambda host, line: host.units.tell(line),
    "engine": lambda host, line: host.units.temper(line),
    "die": _each(Bus.die),
    "revive": _each(Bus.revive),
    "clear": _each(Bus.clear),
    "sleep": _each(Bus.sleep),
    "wake": _each(Bus.revive),
    "remove": _each(Bus.remove),
    "add": _each(Bus.add),
}
VERBS = tuple(_VERBS)

__all__ = ["VERBS", "FixtureError", "Host"]
