"""What the kernel announces, from a real netlink socket and from a monitor that plays a storm."""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from xidwatch.daemon.uevents import MOST_PER_TURN, Uevent, Uevents


class Device:
    """What pyudev makes of one announcement; it has no attributes, since reading those would touch hardware."""

    def __init__(self, action: str, subsystem: str, sys_name: str, **properties: str) -> None:
        self.action = action
        self.subsystem = subsystem
        self.sys_name = sys_name
        self.properties = {"ACTION": action, "SUBSYSTEM": subsystem, **properties}


class Monitor:
    """Announces what it was given; an OSError among it is raised."""

    def __init__(self, *told: Device | OSError) -> None:
        self.told = list(told)

    def poll(self, timeout: float) -> Device | None:
        assert timeout == 0
        if not self.told:
            return None
        told = self.told.pop(0)
        if isinstance(told, OSError):
            raise told
        return told


REMOVED = Device("remove", "pci", "0000:0f:00.0", PCI_SLOT_NAME="0000:0f:00.0", DRIVER="pcieport")
LOADED = Device("add", "module", "nvidia")


@pytest.fixture
def real() -> Iterator[Uevents]:
    try:
        source = Uevents()
    except (OSError, ImportError) as error:
        pytest.skip(f"no netlink here: {error}")
    yield source
    del source._monitor


def with_monitor(*told: Device | OSError) -> Uevents:
    source = Uevents.__new__(Uevents)
    source._monitor = Monitor(*told)
    return source


def test_an_announcement_is_known_by_its_address_or_its_name() -> None:
    """With all that the kernel said about it, and nothing that would have to be read."""
    events, lost = with_monitor(REMOVED, LOADED).read()
    assert not lost
    assert [(event.action, event.subsystem, event.name) for event in events] == [
        ("remove", "pci", "0000:0f:00.0"),
        ("add", "module", "nvidia"),
    ]
    assert events[0].properties["DRIVER"] == "pcieport"


@pytest.mark.parametrize(
    ("action", "subsystem", "name", "expected"),
    [
        ("add", "module", "nvidia", True),
        ("remove", "module", "nvidia", False),
        ("add", "module", "nvidia_uvm", False),
        ("add", "pci", "nvidia", False),
    ],
)
def test_only_the_nvidia_module_itself_is_a_driver_load(action: str, subsystem: str, name: str, expected: bool) -> None:
    """Its going and its companions say nothing about the devices."""
    assert Uevent(action, subsystem, name, {}).is_driver_load is expected


def test_a_storm_is_read_a_piece_a_turn() -> None:
    """The rest waits in the socket, which stays readable."""
    source = with_monitor(*[REMOVED] * (MOST_PER_TURN + 5))
    assert [len(source.read()[0]) for _ in range(3)] == [MOST_PER_TURN, 5, 0]


def test_what_the_socket_could_not_hold_is_lost_and_said() -> None:
    """What came before is still given; afterwards it goes on as ever."""
    source = with_monitor(REMOVED, OSError(errno.ENOBUFS, "No buffer space available"), LOADED)
    events, lost = source.read()
    assert (len(events), lost) == (1, True)
    events, lost = source.read()
    assert ([event.name for event in events], lost) == (["nvidia"], False)


def test_a_real_monitor_has_a_descriptor_for_the_loop(real: Uevents) -> None:
    """A netlink socket, for root and others; with nothing announced, reading gives nothing and waits for nothing."""
    assert real.fileno() >= 0
    with socket.socket(fileno=os.dup(real.fileno())) as sock:
        assert sock.family == socket.AF_NETLINK
    if not select.select([real.fileno()], [], [], 0)[0]:
        assert real.read() == ([], False)


def test_only_two_subsystems_are_listened_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Straight from the kernel: udevd may be stuck on the very device."""
    asked: list[Any] = []

    class Recorded:
        @staticmethod
        def from_netlink(_context: object, source: str) -> Recorded:
            asked.append(source)
            return Recorded()

        def filter_by(self, subsystem: str) -> None:
            asked.append(subsystem)

        def start(self) -> None:
            asked.append("start")

    monkeypatch.setattr("pyudev.Monitor", Recorded)
    Uevents()
    assert asked == ["kernel", "pci", "module", "start"]
