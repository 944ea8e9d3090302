"""Events of records: floods folded, boots kept apart."""

from __future__ import annotations

import pytest

from xidwatch.config import load_rules, rules_dir
from xidwatch.core.kernel import XidClass
from xidwatch.core.logevents import FOLD_USEC, FOLDED_TOGETHER, Decoder, Found, class_of
from xidwatch.core.logtext import Record

XIDS = load_rules(rules_dir(None)).xids
LOST = "NVRM: Xid (PCI:0000:{:02x}:00): 79, GPU has fallen off the bus."


def record(number: int, text: str = LOST.format(15), usec: int | None = 0, *, kernel: bool = True, boot: str | None = None) -> Record:
    return Record(number, text, None if usec is None else f"{usec / 1e6:.6f}", usec, kernel, boot)


def decoded(*records: Record) -> list[Found]:
    decoder = Decoder(XIDS)
    return [found for each in records for found in decoder.feed(each)] + decoder.finish()


def test_the_same_again_is_counted() -> None:
    """Once, with the place and time of the first and of the last."""
    (found,) = decoded(*(record(number, usec=number * 1000) for number in range(1, 101)))
    assert (found.number, found.time, found.repeated) == (1, "0.001000", 100)
    assert (found.last_number, found.last_time) == (100, "0.100000")


def test_events_that_alternate_are_folded_too() -> None:
    """Several GPUs that say the same in turn, in the order of their first words."""
    found = decoded(*(record(number, LOST.format(number % 4)) for number in range(40)))
    assert [(each.number, each.repeated) for each in found] == [(0, 10), (1, 10), (2, 10), (3, 10)]


def test_after_a_silence_the_same_words_are_news() -> None:
    """Nobody must think that it went on all the time."""
    assert [each.number for each in decoded(record(1), record(2, usec=FOLD_USEC + 1))] == [1, 2]


def test_many_different_events_come_out_in_order() -> None:
    """However many there are, not one is lost."""
    found = decoded(*(record(number, LOST.format(number)) for number in range(FOLDED_TOGETHER * 3)))
    assert [each.number for each in found] == list(range(FOLDED_TOGETHER * 3))


def test_another_boot_is_another_event() -> None:
    """The same words of another boot are not a repetition."""
    found = decoded(record(1, boot="a"), record(2, boot="a"), record(3, boot="b"))
    assert [(each.number, each.boot, each.repeated) for each in found] == [(1, "a", 2), (3, "b", 1)]


def test_what_the_kernel_did_not_write_is_marked() -> None:
    """And never folded into what it did."""
    found = decoded(record(1), record(2, kernel=False), record(3))
    assert [(each.event.injected, each.repeated) for each in found] == [(False, 2), (True, 1)]


def test_a_record_without_a_time_stands_where_the_one_before_stood() -> None:
    """A lack of times keeps nothing from being folded."""
    (found,) = decoded(record(1, usec=None), record(2, usec=None))
    assert (found.time, found.repeated) == (None, 2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NVRM: Xid (PCI:0000:0f:00): 31, pid=1, name=x, MMU Fault", XidClass.APPLICATION),
        ("NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.", XidClass.LINK),
        ("NVRM: GPU 0000:0f:00.0: GPU has fallen off the bus.", XidClass.LINK),
        ("NVRM: Xid (PCI:0000:0f:00): 9999, what nobody knows yet", XidClass.INFORMATIONAL),
        ("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 31", XidClass.FABRIC),
        ("NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x65:1784)", XidClass.DRIVER),
    ],
)
def test_every_event_has_a_class(text: str, expected: XidClass) -> None:
    """By its number, or by its kind where it has none."""
    (found,) = decoded(record(1, text))
    assert class_of(found.event, XIDS) is expected
