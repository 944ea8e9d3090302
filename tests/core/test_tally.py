"""Counting the kernel log: right to the line, bounded in what is written, deaf to what processes write."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core import tally
from xidwatch.core.model import KernelEvent, Missing, Moment, PciAddress, Severity, Subject
from xidwatch.core.tally import DRIVER, INJECTED_PER_TICK, MOST_HEADS, MOST_NAMED, RECORDS_PER_TICK, Tally

CARD = PciAddress.parse("0000:11:00.0")
GPU = Subject("gpu", str(CARD))
NOON = Moment(wall=1_789_600_000.0, mono=1000.0)
XID_79 = KernelEvent(1, 0, "xid", Severity.CRITICAL, "fallen", xid=79, pci=CARD, bus_lost=True, driver_fatal=True)
UVM = KernelEvent(2, 0, "uvm_fatal", Severity.CRITICAL, "uvm", driver_fatal=True)
XID_31 = KernelEvent(3, 0, "xid", Severity.ERROR, "fault", xid=31, pci=CARD)


def at(mono: float) -> Moment:
    return Moment(NOON.wall + mono - NOON.mono, mono)


def counted(*events: KernelEvent, begin: Tally | None = None, when: Moment = NOON) -> Tally:
    return tally.count(begin or Tally(), [(when, event) for event in events])[0]


def flags(*events: KernelEvent, begin: Tally | None = None) -> list[bool]:
    return list(tally.count(begin or Tally(), [(NOON, event) for event in events])[1])


def lines(books: Tally, subject: Subject) -> tuple[object, object]:
    seen = tally.device_readings(books, subject)
    return seen["driver_fatal_lines"], seen["bus_lost_lines"]


# ----------------------------------------------------------------------------------------------------------- counting


def test_what_a_gpu_asks_for_is_its_last_word() -> None:
    """Until a fresh driver is there; what an earlier run has dealt with counts where its verdict still stands."""
    asks = KernelEvent(4, 0, "xid", Severity.CRITICAL, "154", xid=154, pci=CARD, recovery="Node Reboot Required")
    books = counted(replace(asks, recovery="GPU Reset Required"), asks, replace(asks, injected=True, recovery="None"))
    assert books.asked == {GPU: "Node Reboot Required"}
    assert counted(replace(asks, recovery="None"), begin=books).asked == {GPU: "None"}
    assert tally.release(books).asked == {}
    assert tally.recall(Tally(), [(NOON, asks)], still_lost=frozenset()).asked == {}
    assert tally.recall(Tally(standing=frozenset({GPU})), [(NOON, asks)], still_lost=frozenset()).asked == {GPU: "Node Reboot Required"}


def test_a_fatal_line_counts_against_the_gpu_it_names() -> None:
    """And against no other."""
    books = counted(XID_79, XID_79)
    assert lines(books, GPU) == (2, 2)
    assert lines(books, Subject("gpu", "0000:12:00.0")) == (0, 0)
    assert lines(books, DRIVER) == (0, 0)


def test_a_fatal_line_without_an_address_counts_against_the_driver() -> None:
    """UVM's global fatal error names no GPU."""
    assert lines(counted(UVM), DRIVER) == (1, 0)


def test_xids_are_counted_by_gpu_and_number() -> None:
    """With the time of the latest, for people."""
    books = counted(XID_31, XID_31, XID_79, UVM)
    assert books.totals == {(CARD, 31): 2, (CARD, 79): 1}
    assert books.last_xid_wall == {CARD: NOON.wall}
    assert books.xids_since_tick == 3


def test_a_bus_loss_without_a_number_is_no_xid() -> None:
    """It accuses the GPU and adds to no Xid count."""
    books = counted(replace(XID_79, xid=None))
    assert (books.totals, books.xids_since_tick, lines(books, GPU)) == ({}, 0, (1, 1))


def test_what_a_process_wrote_counts_nowhere() -> None:
    """However it calls itself."""
    books = counted(replace(XID_79, injected=True), replace(UVM, injected=True))
    assert lines(books, GPU) == lines(books, DRIVER) == (0, 0)
    assert (books.totals, books.xids_since_tick, books.recent_xids) == ({}, 0, ())


def test_the_window_holds_the_last_45_seconds() -> None:
    """To the second, and across ticks."""
    books = counted(XID_31, when=at(1000.9))
    books = counted(XID_31, XID_31, begin=tally.flush(books)[0], when=at(1045.0))
    window = [tally.kernel_readings(books, at(mono))["xid_lines_45s"] for mono in (1045.0, 1045.8, 1046.0, 1090.9, 1091.0)]
    assert window == [3, 3, 2, 2, 0]


def test_a_backlog_that_reaches_back_does_not_spoil_the_window() -> None:
    """Records are counted where they belong in time, whatever the order they are told in."""
    books = counted(XID_31, when=at(1000))
    books = counted(XID_31, XID_31, begin=books, when=at(400))
    books = counted(XID_31, begin=books, when=at(990))
    assert tally.kernel_readings(books, at(1000))["xid_lines_45s"] == 2


def test_a_tick_starts_a_fresh_page_and_keeps_the_totals() -> None:
    """What is per tick goes back to zero, what is per boot goes on."""
    fresh, _, _ = tally.flush(replace(counted(XID_79), lost_since_tick=5))
    assert (fresh.xids_since_tick, fresh.lost_since_tick) == (0, 0)
    assert fresh.totals == {(CARD, 79): 1}
    assert lines(fresh, GPU) == (1, 1)


def test_counting_leaves_the_earlier_tally_as_it_was() -> None:
    """State is replaced, never changed."""
    before = counted(XID_31)
    kept = replace(before, totals=dict(before.totals), folds=dict(before.folds))
    counted(XID_31, XID_79, UVM, begin=before)
    assert before == kept


# ------------------------------------------------------------------------------------------------------------ folding


def test_identical_lines_make_one_record_and_one_of_the_repeats() -> None:
    """The two together stand for every line; the second reaches as far in the log as the repeats did."""
    told = [replace(XID_31, seq=seq) for seq in range(10, 15)]
    assert flags(*told) == [True, False, False, False, False]
    _, repeats, suppressed = tally.flush(counted(*told))
    assert repeats == (replace(XID_31, seq=14, repeated=4),)
    assert suppressed == 0


def test_the_next_tick_writes_an_identical_line_again() -> None:
    """Folding is per tick: a line an hour later is news."""
    fresh, _, _ = tally.flush(counted(XID_31))
    assert flags(XID_31, begin=fresh) == [True]


def distinct(count: int, event: KernelEvent = XID_31) -> list[KernelEvent]:
    return [replace(event, seq=number, text=f"fault {number}") for number in range(count)]


def test_distinct_lines_beyond_the_limit_are_counted_and_not_written() -> None:
    """A flood fills no disk, and nobody pretends that it was not there."""
    flood = distinct(RECORDS_PER_TICK + 1000)
    assert sum(flags(*flood)) == RECORDS_PER_TICK
    books = counted(*flood)
    assert tally.flush(books)[2] == 1000
    assert books.totals == {(CARD, 31): RECORDS_PER_TICK + 1000}


def test_the_first_of_its_kind_is_written_in_any_flood() -> None:
    """One line of a loss among a hundred thousand faults: kind, number and device are what makes it a first."""
    books = counted(*distinct(RECORDS_PER_TICK + 10))
    elsewhere = replace(XID_31, pci=PciAddress.parse("0000:12:00.0"))
    assert flags(XID_79, UVM, elsewhere, replace(XID_79, text="again"), XID_31, begin=books) == [True, True, True, False, False]


def address(number: int) -> PciAddress:
    return PciAddress.parse(f"{number >> 13:04x}:{number >> 5 & 255:02x}:{number & 31:02x}.0")


def test_a_log_gone_mad_names_no_more_devices_than_a_host_can_have() -> None:
    """What it says of a further address it says of the driver; a GPU that is really there is named in any flood, and the text stays."""
    flood = [(NOON, replace(XID_79, seq=number, pci=address(number), text=f"fallen {number}")) for number in range(MOST_NAMED + 50)]
    real = (NOON, replace(XID_79, pci=PciAddress.parse("00ff:11:00.0")))
    books, events = tally.bounded(Tally(), [*flood, real], seen={Subject("gpu", "00ff:11:00.0")})
    named = [event.pci for _, event in events]
    assert named == [*(address(number) for number in range(MOST_NAMED)), *[None] * 50, real[1].pci]
    assert [event.text for _, event in events] == [event.text for _, event in (*flood, real)]
    assert tally.bounded(books, events, seen=()) == (books, events)
    counts, _ = tally.count(books, events)
    assert lines(counts, DRIVER) == (50, 0)
    assert lines(counts, Subject("gpu", "00ff:11:00.0")) == (1, 1)


def test_however_unlike_each_other_lines_are_written_up_to_a_limit() -> None:
    """Each the first of its kind: beyond the limit they are counted."""
    unlike = [replace(XID_31, seq=number, xid=number) for number in range(MOST_HEADS + 30)]
    books = counted(*unlike)
    assert (flags(*unlike).count(True), tally.flush(books)[2]) == (MOST_HEADS, 30)


def test_a_flood_from_a_process_crowds_out_no_line_of_the_kernel() -> None:
    """Its budget is its own, and its lines make the kernel's no repetition."""
    books = counted(*(replace(event, injected=True) for event in distinct(5000, XID_79)), replace(XID_79, injected=True))
    assert flags(*distinct(RECORDS_PER_TICK, XID_79), begin=books) == [True] * RECORDS_PER_TICK
    assert flags(XID_79, begin=books) == [True]


def test_a_process_can_invent_no_endless_row_of_firsts() -> None:
    """Each of its lines may name another device: beyond its budget none is written."""
    invented = [replace(XID_79, injected=True, xid=number) for number in range(INJECTED_PER_TICK * 3)]
    assert sum(flags(*invented)) == INJECTED_PER_TICK
    assert tally.flush(counted(*invented))[2] == INJECTED_PER_TICK * 2


_events = st.lists(
    st.builds(
        lambda xid, text, injected: replace(XID_31, xid=xid, text=text, injected=injected),
        st.integers(1, 4),
        st.sampled_from("abc"),
        st.booleans(),
    ),
    max_size=60,
)


@given(_events, st.integers(0, 60))
def test_records_account_for_every_line_however_they_are_batched(events: list[KernelEvent], cut: int) -> None:
    """First records, repeats and what was suppressed add up to the lines that came."""
    first, worth_first = tally.count(Tally(), [(NOON, event) for event in events[:cut]])
    books, worth_then = tally.count(first, [(NOON, event) for event in events[cut:]])
    _, repeats, suppressed = tally.flush(books)
    assert sum(worth_first) + sum(worth_then) + sum(event.repeated for event in repeats) + suppressed == len(events)
    assert books == counted(*events)


# ------------------------------------------------------------------------------------- a log that cannot be read


def test_without_a_log_nothing_is_known() -> None:
    """Neither zero lines nor zero gaps."""
    books = Tally(unreadable=Missing.DENIED)
    assert set(tally.kernel_readings(books, NOON).values()) == {Missing.DENIED}
    assert lines(books, GPU) == (Missing.DENIED, Missing.DENIED)


def test_what_the_log_said_before_it_was_lost_stands() -> None:
    """A fatal line is not unsaid because nobody can read on."""
    assert lines(replace(counted(XID_79), unreadable=Missing.ABSENT), GPU) == (1, 1)


def test_before_the_first_record_its_number_is_not_known() -> None:
    """Zero would be the first record of the boot."""
    assert tally.kernel_readings(Tally(), NOON)["last_seq"] is Missing.NOT_ASKED
    assert tally.kernel_readings(Tally(last_seq=0), NOON)["last_seq"] == 0


# ----------------------------------------------------------------------------------- an earlier run, a fresh driver


def test_history_accuses_only_whom_the_verdict_still_stands_against() -> None:
    """What was cleared since does not come back with a restart."""
    books = replace(Tally(), standing=frozenset({GPU}))
    both = [(NOON, XID_79), (NOON, UVM)]
    after = tally.recall(books, both, still_lost=frozenset())
    assert lines(after, GPU) == (1, 0)
    assert lines(after, DRIVER) == (0, 0)
    assert lines(tally.recall(books, both, still_lost=frozenset({GPU})), GPU) == (1, 1)


def test_history_counts_and_writes_nothing_twice() -> None:
    """Totals are of the boot; records and the count since the last tick are the predecessor's."""
    after = tally.recall(Tally(), [(NOON, XID_31)], still_lost=frozenset())
    assert after.totals == {(CARD, 31): 1}
    assert tally.kernel_readings(after, NOON)["xid_lines_45s"] == 1
    assert after.xids_since_tick == 0
    assert flags(XID_31, begin=after) == [True]


def test_a_verdict_stands_even_when_the_log_has_forgotten_why() -> None:
    """The ring may have been overrun since: the lines are gone, the driver is no better for it."""
    assert lines(replace(Tally(), standing=frozenset({GPU})), GPU) == (1, 0)


def test_a_fresh_driver_starts_with_nothing_known_of_the_accused() -> None:
    """Neither guilty nor proven: unknown until it answers."""
    books = tally.release(replace(counted(XID_79, UVM), standing=frozenset({Subject("gpu", "0000:13:00.0")})))
    for subject in (GPU, DRIVER, Subject("gpu", "0000:13:00.0")):
        assert lines(books, subject) == (Missing.NOT_ASKED, Missing.NOT_ASKED)
    assert lines(books, Subject("gpu", "0000:12:00.0")) == (0, 0)


def test_who_answers_is_proven() -> None:
    """A GPU speaks for itself and for the driver, not for its neighbours."""
    other = Subject("gpu", "0000:12:00.0")
    books = tally.release(counted(XID_79, UVM, replace(XID_79, pci=PciAddress.parse(other.name))))
    after = tally.proven(books, frozenset({GPU}))
    assert lines(after, GPU) == lines(after, DRIVER) == (0, 0)
    assert lines(after, other) == (Missing.NOT_ASKED, Missing.NOT_ASKED)


def test_a_new_accusation_needs_no_proof() -> None:
    """The fresh driver may fail like the old one, before it ever answered."""
    assert lines(counted(XID_79, begin=tally.release(counted(XID_79))), GPU) == (1, 1)
