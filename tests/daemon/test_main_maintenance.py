"""The real daemon while somebody works on the host, and when somebody has gone past it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.harness import Rig, Running, has_ended
from tests.fakes.nvml_library import NvmlLibrary
from xidwatch.clock import SystemClock
from xidwatch.records import order
from xidwatch.records.journal import Entry
from xidwatch.records.order import Order

SWITCH = "0000:0f:00.0"
ON = {"do": "maintenance-on", "for": "30m", "reason": "card swap", "user": "alice"}
OFF = {"do": "maintenance-off", "user": "alice"}

pytestmark = pytest.mark.slow


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as rig:
        yield rig


def start(rig: Rig, library: NvmlLibrary) -> Running:
    """Until everybody has answered, and the inventory is known."""
    running = rig.start(rig.pci(), rig.driver(library))
    running.settle()
    running.until("the inventory", lambda: any(entry.kind == "inventory" and "GPU-" in str(entry.body) for entry in rig.journal()))
    return running


def dumps(rig: Rig) -> list[Entry]:
    return [entry for entry in rig.journal() if entry.kind == "action" and entry.body["kind"] == "TAKE_DUMP"]


def test_the_driver_is_let_go_and_nothing_is_acted_on(rig: Rig, nvml_library: NvmlLibrary) -> None:
    """The process that held it ends; a switch that goes is recorded, and no more. What is still bad in the end is acted on then."""
    running = start(rig, nvml_library)
    (holder,) = rig.processes("nvml")
    assert running.ask(ON)["ok"]
    running.until("nobody holds the driver", lambda: has_ended(holder.pid, 0.02))
    rig.tree.die(SWITCH)
    running.until_condition("ConfigSpaceAllOnes", f"port:{SWITCH}", "TRUE")
    running.ticks_more(3)
    assert rig.processes("nvml") == []
    assert dumps(rig) == []
    assert running.ask(OFF)["ok"]
    running.until("the driver is asked again", lambda: rig.processes("nvml"))
    running.line("TAKE_DUMP .* ok")
    assert running.terminate()[0] == 0
    assert len(dumps(rig)) == 1


def test_what_was_taken_out_is_said_afterwards(rig: Rig, nvml_library: NvmlLibrary) -> None:
    """By the name that people know it by."""
    running = start(rig, nvml_library)
    assert running.ask(ON)["ok"]
    rig.tree.remove("0000:14:00.0")
    running.ticks_more(2)
    assert running.ask(OFF)["ok"]
    running.line(r"after maintenance: .*gpu:0000:14:00\.0 is not there any more")
    assert running.terminate()[0] == 0


def test_an_order_that_was_given_without_a_daemon_is_on_record_once_it_is_back(rig: Rig) -> None:
    """Once, by whichever daemon finds it; told of one at once, it writes it down at once."""
    clock = SystemClock()
    until_ms = int((clock.now().mono + 3600) * 1000)
    given = Order(
        unit="vllm.service", boot_id=clock.boot_id, until_mono_ms=until_ms, until="then", at="now", reason="broken daemon", by="alice"
    )
    order.write(rig.run_dir, given)
    running = rig.start(rig.host())
    running.line("the gate of vllm.service is open until then")
    order.write(rig.run_dir, given.taken_back("later"))
    assert running.ask({"do": "gate-order", "unit": "vllm.service"})["ok"]
    running.ticks_more(2)
    assert running.terminate()[0] == 0
    texts = [str(entry.body["text"]) for entry in rig.journal() if entry.kind == "note"]
    assert len([text for text in texts if "vllm.service is open until then" in text]) == 1
    assert len([text for text in texts if "was open until later" in text]) == 1


def test_a_gate_that_is_not_there_is_not_reset(rig: Rig) -> None:
    """The refusal says what there is."""
    running = rig.start(rig.host())
    running.tick(1)
    reply = running.ask({"do": "gate-reset", "unit": "vllm.service"})
    assert not reply["ok"]
    assert "no engine" in reply["text"]
    assert running.terminate()[0] == 0


def test_an_order_of_which_nobody_can_write_the_name_ends_no_daemon(rig: Rig) -> None:
    """Whatever bytes it has: it is said, and the ticks go on."""
    running = rig.start(rig.host(), interval="0.5s")
    running.tick(2)
    Path(os.fsdecode(os.fsencode(running.run_dir) + b"/open-\xff.json")).write_bytes(b"{")
    running.line("an order to open a gate that does not count")
    running.ticks_more(2)
    assert running.terminate()[0] == 0
