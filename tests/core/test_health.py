"""One condition through time: holding, clearing, and the interval in which it turned."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.story import RULES
from xidwatch.core import health
from xidwatch.core.health import Tracked
from xidwatch.core.model import Condition, Missing, Moment, Severity, Status, Subject
from xidwatch.core.rules import Judgement, Rule

T, F, U, N = Status.TRUE, Status.FALSE, Status.UNKNOWN, Status.NOT_APPLICABLE
SUBJECT = Subject("port", "0000:0f:00.0")
BASE = replace(RULES[0], hold_seconds=0.0, clear_seconds=None)


def rule(hold: float = 0.0, clear: float | None = None) -> Rule:
    return replace(BASE, hold_seconds=hold, clear_seconds=clear)


def at(mono: float) -> Moment:
    return Moment(wall=1_000_000.0 + mono, mono=mono)


def live(chosen: Rule, *judged: tuple[float, Status], begin: Tracked | None = None, polled: bool = True) -> list[Tracked]:
    """The condition after each judgement."""
    tracked = begin or health.begin(SUBJECT, chosen, at(0))
    history = []
    for mono, status in judged:
        tracked = health.advance(chosen, tracked, Judgement(status, str(status)), at(mono), polled=polled)
        history.append(tracked)
    return history


def statuses(chosen: Rule, *judged: tuple[float, Status], polled: bool = True) -> list[Status]:
    return [tracked.condition.status for tracked in live(chosen, *judged, polled=polled)]


def test_it_begins_unknown() -> None:
    """Nobody has looked yet, and that is what it says."""
    condition = health.begin(SUBJECT, BASE, at(5)).condition
    assert (condition.status, condition.since, condition.reason) == (U, at(5), "not looked at yet")


@pytest.mark.parametrize("status", [T, F, U, N])
def test_the_first_look_is_believed(status: Status) -> None:
    """Without hold and with nothing to clear, a condition is what it is judged to be."""
    assert statuses(rule(), (0, status)) == [status]


def test_it_must_hold_before_it_is_true() -> None:
    """Short of the hold time it stays what it was; a good judgement in between starts the wait over."""
    assert statuses(rule(hold=45), (0, F), (30, T), (60, T), (75, T)) == [F, F, F, T]
    assert statuses(rule(hold=45), (0, F), (30, T), (60, F), (90, T), (130, T), (135, T)) == [F, F, F, F, F, T]


def test_an_unknown_in_between_starts_the_hold_over() -> None:
    """Nobody knows whether it held meanwhile."""
    assert statuses(rule(hold=45), (0, F), (30, T), (60, U), (90, T), (120, T), (135, T)) == [F, F, U, U, U, T]


def test_what_never_became_true_is_good_again_at_once() -> None:
    """Only TRUE has to be cleared."""
    assert statuses(rule(hold=45, clear=60), (0, F), (30, T), (40, F)) == [F, F, F]
    assert statuses(rule(clear=60), (0, U), (30, F)) == [U, F]


def test_it_clears_after_its_time() -> None:
    """Good without a break for `clear`, measured from the first good judgement."""
    assert statuses(rule(clear=60), (0, T), (30, F), (60, F), (89, F), (90, F)) == [T, T, T, T, F]
    assert statuses(rule(clear=60), (0, T), (30, F), (60, T), (90, F), (120, F), (150, F)) == [T, T, T, T, T, F]


def test_without_a_time_two_good_ticks_clear_it() -> None:
    """One good tick may be luck."""
    assert statuses(rule(), (0, T), (30, F), (60, F)) == [T, T, F]
    assert statuses(rule(), (0, T), (30, F), (60, T), (90, F), (120, F)) == [T, T, T, T, F]


def test_looks_are_no_ticks() -> None:
    """Ten looks within a second do not clear what two ticks must."""
    assert statuses(rule(), *((mono / 10, F) for mono in range(10)), polled=False) == [F] * 10
    assert statuses(rule(), (0, T), (0.1, F), (0.2, F), (0.3, F), polled=False) == [T] * 4


def test_unknown_interrupts_clearing() -> None:
    """TRUE, UNKNOWN, FALSE still needs the whole clearing time: what was bad and then unseen is not good at first sight."""
    assert statuses(rule(clear=60), (0, T), (30, U), (60, F), (90, F), (119, F), (120, F)) == [T, U, U, U, U, F]
    assert statuses(rule(clear=60), (0, T), (30, F), (60, U), (90, F), (149, F), (150, F)) == [T, T, U, U, U, F]
    assert statuses(rule(), (0, T), (30, F), (60, U), (90, F), (120, F)) == [T, T, U, U, F]


def test_not_applicable_has_to_be_cleared_too() -> None:
    """A device that is bound to another driver right after its loss has not recovered at that instant."""
    assert statuses(rule(clear=60), (0, T), (30, N), (60, N), (90, N)) == [T, T, T, N]
    assert statuses(rule(clear=60), (0, T), (30, N), (60, F), (90, F)) == [T, T, T, F]


def test_after_it_was_cleared_nothing_is_left_to_clear() -> None:
    """Once good, UNKNOWN and back to good is no recovery."""
    assert statuses(rule(clear=60), (0, T), (30, N), (90, N), (120, U), (150, F)) == [T, T, N, U, F]


def test_a_condition_known_from_the_journal_needs_clearing_if_it_was_bad() -> None:
    """The successor's first good look does not undo what its predecessor saw."""
    restored = Tracked(Condition(SUBJECT, "X", U, at(0), "host restarted"), was_true=True)
    history = live(rule(clear=60), (10, F), (69, F), (70, F), begin=restored)
    assert [tracked.condition.status for tracked in history] == [U, U, F]


def test_an_edge_lies_between_the_last_good_tick_and_the_first_bad_one() -> None:
    """A sampled edge is an interval; what was unknown in between widens it."""
    history = live(rule(), (0, F), (30, F), (60, U), (90, T))
    assert history[-1].last_good == at(30)
    assert history[-1].condition.since == at(90)


def test_what_does_not_apply_was_not_good() -> None:
    """The lower end of the interval is a tick that saw the thing good."""
    assert live(rule(), (0, F), (30, N), (60, T))[-1].last_good == at(0)


def test_only_a_tick_is_a_last_good() -> None:
    """A kernel line or a look moves nothing."""
    tracked = live(rule(), (0, F))[0]
    assert live(rule(), (10, F), begin=tracked, polled=False)[0].last_good == at(0)


def test_since_is_when_the_status_began_and_the_reason_is_the_latest() -> None:
    """Judged the same again, a condition keeps its age and renews its words."""
    tracked = live(rule(), (0, T))[0]
    again = health.advance(rule(), tracked, Judgement(T, "still"), at(30), polled=True)
    assert (again.condition.since, again.condition.reason) == (at(0), "still")


def test_an_unknown_says_which_lack_made_it_so_and_forgets_it_afterwards() -> None:
    """`missing` is of the present status only."""
    unknown = health.advance(rule(), health.begin(SUBJECT, BASE, at(0)), Judgement(U, "asleep", Missing.ASLEEP), at(0), polled=True)
    assert unknown.condition.missing is Missing.ASLEEP
    assert live(rule(), (30, F), begin=unknown)[0].condition.missing is None


@given(
    st.lists(st.tuples(st.integers(1, 100), st.sampled_from([T, F, U, N])), max_size=30),
    st.sampled_from([0.0, 45.0]),
    st.sampled_from([None, 0.0, 60.0]),
)
def test_it_never_looks_better_than_it_is_judged(steps: list[tuple[int, Status]], hold: float, clear: float | None) -> None:
    """UNKNOWN is shown at once; good is shown only when judged so now; TRUE is never shown before it was judged."""
    mono, judged = 0.0, []
    for after, status in steps:
        mono += after
        judged.append((mono, status))
    for count, shown in enumerate(statuses(rule(hold, clear), *judged), start=1):
        seen = [status for _, status in judged[:count]]
        if seen[-1] is U:
            assert shown is U
        if shown in (F, N) and seen[-1] is not T:
            assert seen[-1] is shown
        if shown is T:
            assert T in seen


# ---------------------------------------------------------------------------------------------------------- verdict


def verdict(*conditions: tuple[Status, Severity] | tuple[Status, Severity, Missing]) -> str:
    return health.verdict(
        (Condition(SUBJECT, "X", entry[0], at(0), "", entry[2] if len(entry) == 3 else None), entry[1]) for entry in conditions
    )


CRITICAL, ERROR, INFO = Severity.CRITICAL, Severity.ERROR, Severity.INFO


@pytest.mark.parametrize(
    ("conditions", "word"),
    [
        ([], "healthy"),
        ([(F, CRITICAL), (N, CRITICAL)], "healthy"),
        ([(F, CRITICAL), (U, CRITICAL)], "unknown"),
        ([(U, CRITICAL), (T, ERROR)], "degraded"),
        ([(T, ERROR), (U, CRITICAL)], "degraded"),
        ([(U, ERROR), (T, ERROR), (T, CRITICAL)], "failed"),
        ([(U, CRITICAL, Missing.ASLEEP)], "healthy"),
        ([(U, CRITICAL, Missing.ASLEEP), (U, CRITICAL, Missing.TIMED_OUT)], "unknown"),
        ([(T, INFO)], "healthy"),
        ([(T, INFO), (U, CRITICAL)], "unknown"),
    ],
)
def test_the_host_in_one_word(conditions: list[tuple[Status, Severity]], word: str) -> None:
    """Bad news outranks ignorance, ignorance outranks health, and a device that sleeps is neither."""
    assert verdict(*conditions) == word
