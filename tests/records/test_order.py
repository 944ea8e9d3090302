"""An order to open a gate: believed from root and the reader himself, over at its time, and never anybody else's word."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from xidwatch.records import RecordError, files, order
from xidwatch.records.order import Order

UNIT = "vllm.service"
GIVEN = Order(
    unit=UNIT,
    boot_id="5f0c",
    until_mono_ms=7_220_011,
    until="2026-09-17T04:10:08.412Z",
    at="2026-09-17T03:10:08.412Z",
    reason="the daemon does not start",
    by="alice (uid 0)",
)


def test_an_order_is_read_as_it_was_given(tmp_path: Path) -> None:
    """Also below a run directory that was not there; everybody may read it, only its owner may write."""
    place = tmp_path / "run"
    order.write(place, GIVEN)
    assert order.read(place, UNIT) == GIVEN
    assert list(order.units(place)) == [UNIT]
    assert order.place(place, UNIT).stat().st_mode & 0o777 == 0o644


def test_a_later_order_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    """One engine, one order; another engine's is its own."""
    order.write(tmp_path, GIVEN)
    order.write(tmp_path, GIVEN.taken_back("2026-09-17T03:30:00.000Z"))
    other = "llama@0.service"
    assert order.read(tmp_path, other) is None
    found = order.read(tmp_path, UNIT)
    assert found is not None
    assert found.withdrawn


def test_an_order_holds_until_its_time_and_in_its_boot() -> None:
    """By the clock that nobody can set; taken back it holds no more."""
    assert GIVEN.holds(7_220_010, "5f0c")
    assert not GIVEN.holds(7_220_011, "5f0c")
    assert not GIVEN.holds(0, "another")
    assert not GIVEN.taken_back("2026-09-17T03:30:00.000Z").holds(0, "5f0c")


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_file_that_others_can_write_does_not_count(tmp_path: Path, mode: int) -> None:
    """Nobody knows whose word it is."""
    order.write(tmp_path, GIVEN)
    order.place(tmp_path, UNIT).chmod(mode)
    with pytest.raises(RecordError, match="written by anybody"):
        order.read(tmp_path, UNIT)


@pytest.mark.root
def test_a_file_of_another_user_does_not_count(tmp_path: Path) -> None:
    """Root trusts nobody but root."""
    order.write(tmp_path, GIVEN)
    os.chown(order.place(tmp_path, UNIT), 1000, 1000)
    with pytest.raises(RecordError, match="written by anybody"):
        order.read(tmp_path, UNIT)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"v":1}', b"[" * 5000, b"\xff"])
def test_a_damaged_order_does_not_count(tmp_path: Path, content: bytes) -> None:
    """And what to do about it is said."""
    order.place(tmp_path, UNIT).write_bytes(content)
    with pytest.raises(RecordError, match=r"damaged.*open-for"):
        order.read(tmp_path, UNIT)


def test_an_order_under_another_engines_name_does_not_count(tmp_path: Path) -> None:
    """A copied file opens nothing."""
    order.write(tmp_path, GIVEN)
    order.place(tmp_path, UNIT).rename(order.place(tmp_path, "llama.service"))
    with pytest.raises(RecordError, match=r"is an order for 'vllm\.service'"):
        order.read(tmp_path, "llama.service")


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    """Neither waited for nor followed."""
    os.mkfifo(order.place(tmp_path, UNIT))
    order.place(tmp_path, "llama.service").symlink_to(tmp_path / "elsewhere")
    for unit in (UNIT, "llama.service"):
        with pytest.raises(RecordError, match="where a file should be"):
            order.read(tmp_path, unit)


def test_a_mark_is_for_one_order_and_its_words(tmp_path: Path) -> None:
    """One taken back is another. The mark touches no order, and goes with it."""
    order.write(tmp_path, GIVEN)
    order.mark(tmp_path, GIVEN)
    withdrawn = GIVEN.taken_back("2026-09-17T03:30:00.000Z")
    assert (order.is_marked(tmp_path, GIVEN), order.is_marked(tmp_path, withdrawn)) == (True, False)
    assert list(order.units(tmp_path)) == [UNIT]
    order.remove(tmp_path, UNIT)
    assert list(tmp_path.iterdir()) == []


def test_a_mark_that_anybody_could_have_made_is_none(tmp_path: Path) -> None:
    """Better told twice than not at all."""
    order.mark(tmp_path, GIVEN)
    next(tmp_path.iterdir()).chmod(0o666)
    assert not order.is_marked(tmp_path, GIVEN)


def test_of_too_many_orders_those_of_known_units_come_first(tmp_path: Path) -> None:
    """Whatever they are called."""
    for number in range(order.MOST_ORDERS + 1):
        order.place(tmp_path, f"a-{number:03}.service").touch()
    order.place(tmp_path, UNIT).touch()
    assert UNIT not in list(order.units(tmp_path))
    found = list(order.units(tmp_path, [UNIT]))
    assert (found[0], len(found)) == (UNIT, order.MOST_ORDERS)


def test_what_is_over_can_be_cleared_away_twice(tmp_path: Path) -> None:
    """Somebody else may have been quicker."""
    order.write(tmp_path, GIVEN)
    order.remove(tmp_path, UNIT)
    order.remove(tmp_path, UNIT)
    assert list(order.units(tmp_path)) == []


def test_two_who_give_an_order_at_once_do_not_disturb_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is told that it is done, the last one's stands, and nothing of either is left beside it."""
    rename = Path.rename
    second = msgspec.structs.replace(GIVEN, reason="the same, from another terminal")
    pids = iter((4711, 4712))
    monkeypatch.setattr(files, "lives", {4711, 4712}.__contains__)
    monkeypatch.setattr(os, "getpid", lambda: next(pids))

    def overtaken(beside: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        order.write(tmp_path, second)
        return rename(beside, target)

    monkeypatch.setattr(Path, "rename", overtaken)
    order.write(tmp_path, GIVEN)
    assert order.read(tmp_path, UNIT) == GIVEN
    assert list(tmp_path.iterdir()) == [order.place(tmp_path, UNIT)]


def test_what_a_killed_command_left_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the next order for this engine, and when an order is over; never what somebody who lives is writing, nor another's."""
    monkeypatch.setattr(files, "lives", {4711}.__contains__)
    dead, alive, other = (f".open-{name}.json.{pid}.tmp" for name, pid in ((UNIT, 4712), (UNIT, 4711), ("llama.service", 4712)))
    for name in (dead, alive, other, f".open-{UNIT}.json.x.tmp"):
        (tmp_path / name).touch()
    order.write(tmp_path, GIVEN)
    assert not (tmp_path / dead).exists()
    (tmp_path / dead).touch()
    order.remove(tmp_path, UNIT)
    assert {each.name for each in tmp_path.iterdir()} == {alive, other, f".open-{UNIT}.json.x.tmp"}
