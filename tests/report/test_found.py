"""The table that is held against what is in the machine."""

from __future__ import annotations

from tests.core.story import GPU, Story
from tests.core.test_watch_devices import known
from tests.records.test_offer import offered
from xidwatch.core.model import Missing, Subject
from xidwatch.core.suspects import EngineSuspect
from xidwatch.report import found

PORT = Subject("port", "0000:10:08.0")


def lines(story: Story) -> list[str]:
    return found.table(offered(story), [EngineSuspect("vllm\x1b[2J.service", "vllm", 8000, (GPU.name,), "it looks like vllm")])


def test_gpus_come_first_and_are_counted() -> None:
    """Each on a line of its own with what it is known by; what a process has written moves no cursor."""
    table = lines(known())
    assert table[0] == "GPUs: 4"
    assert table[1] == f"  {GPU.name}  10de:2204 1043:87c5  x16  GPU-0"
    assert "PCIe ports: 2, of which begin a switch: 0" in table
    assert "not reported by GPUs, hence not applicable: serial" in table
    assert not any("\x1b" in line for line in table)


def test_the_power_limit_is_accepted_with_the_card() -> None:
    """An engine is started under this one or a lower one."""
    story = known()
    story.set(GPU, {"power_limit_watts": 250.0}).tick()
    assert lines(story)[1] == f"  {GPU.name}  10de:2204 1043:87c5  x16  limited to 250 W  GPU-0"


def test_who_is_missing_is_shown_in_its_place() -> None:
    """Three of four, and which; ports too, though they are not listed otherwise."""
    table = lines_without(GPU, PORT)
    assert table[0] == "GPUs: 3 of 4"
    assert f"  {GPU.name}  NOT HERE  10de:2204 1043:87c5  x16  GPU-0" in table
    assert any(line.startswith("PCIe ports: 1 of 2") for line in table)
    assert any(line.startswith(f"  {PORT.name}  NOT HERE") for line in table)


def lines_without(*subjects: Subject) -> list[str]:
    story = known()
    story.take_out(*(subject for subject in subjects if subject in story.readings))
    story.tick()
    return lines(story)


def test_what_only_some_do_not_report_is_said_so() -> None:
    """A mixed host: one board without a memory sensor."""
    story = known()
    story.set(GPU, {"temperature_memory_celsius": Missing.UNSUPPORTED}).tick()
    assert "not reported by GPUs, hence not applicable: serial, temperature_memory_celsius (of 1)" in lines(story)


def test_cards_of_somebody_else_are_not_counted() -> None:
    """They are shown with whose they are."""
    story = known()
    story.set(GPU, {"driver": "vfio-pci"}).tick()
    table = lines(story)
    assert table[0] == "GPUs: 3"
    assert f"  {GPU.name}  not managed: given to virtual machines (vfio-pci)" in table
