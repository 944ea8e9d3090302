"""Days of a device that comes and goes: what a night of forty steps is too short to show."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.story import GPU, REBOOT_ASKED, UVM_FATAL, Story, closed, dumps, opened, xid
from xidwatch.core.incidents import DUMPS_PER_DAY, SECONDS_PER_DAY
from xidwatch.core.messages import Closed, DumpFailed, Opened, Output
from xidwatch.core.model import Status, Transition

RECOVERY_TICKS = 4  # of 30 s: longer than any `clear` of what a switch takes with it


class Days:
    """The story over restarts and reboots, and everything that came out of it with its time."""

    def __init__(self) -> None:
        self.story = Story()
        self.story.ticks(2)
        self.out: list[Output] = []
        self.boots: list[int] = []  # how much had come out by then

    def flap(self) -> None:
        """The switch goes and comes back, for long enough to be believed."""
        self.story.lose_switch().ticks(2)
        self.story.mend().ticks(RECOVERY_TICKS)

    def worse(self) -> None:
        """A link error at first, a lost switch later: a further dump of the same incident."""
        self.story.set(GPU, {"aer_fatal": 1 + self.story.tick_number}).ticks(1)
        self.flap()

    def announced(self) -> None:
        """The driver says so as well, and is renewed."""
        self.story.kernel(xid(GPU, 79), UVM_FATAL, xid(GPU, 154, REBOOT_ASKED))
        self.flap()
        self.story.renew_driver()
        self.story.ticks(RECOVERY_TICKS)

    def refused(self) -> None:
        """The disk takes no dump, tick after tick."""
        self.story.lose_switch()
        for _ in range(5):
            self.story.tick()
            if self.story.state.incident is not None:
                self.story.give(DumpFailed(self.story.state.incident.id))
        self.story.mend().ticks(RECOVERY_TICKS)

    def restarted(self) -> None:
        """The daemon's successor knows what the journal holds."""
        self._succeed(new_boot=False)

    def rebooted(self) -> None:
        """In the middle of a loss."""
        self.story.lose_switch().ticks(1)
        self._succeed(new_boot=True)

    def hours(self) -> None:
        """Five of them, without a tick."""
        self.story.wait(5 * 3600.0)

    def _succeed(self, *, new_boot: bool) -> None:
        self.out += self.story.out
        self.boots += [len(self.out)] if new_boot else []
        self.story = self.story.restart(new_boot=new_boot)

    def all_out(self) -> list[Output]:
        return [*self.out, *self.story.out]


HAPPENS: dict[str, Callable[[Days], None]] = {
    "flap": Days.flap, "worse": Days.worse, "announced": Days.announced, "refused": Days.refused,
    "restarted": Days.restarted, "rebooted": Days.rebooted, "hours": Days.hours,
}  # fmt: skip
DAYS = st.lists(st.sampled_from([*HAPPENS, "flap", "worse", "announced"]), min_size=25, max_size=45)


def most_within_a_day(times: list[float]) -> int:
    """How many lie in the fullest day, wherever it begins."""
    return max((sum(1 for other in times if time <= other < time + SECONDS_PER_DAY) for time in times), default=0)


def happened(names: list[str]) -> Days:
    days = Days()
    for name in names:
        HAPPENS[name](days)
    return days


@pytest.mark.slow
def test_a_flapping_switch_uses_the_days_dumps_up_and_the_next_day_has_its_own() -> None:
    """The bound is reached, and told; then it holds; incidents go on being opened and closed."""
    days = happened(["flap"] * (DUMPS_PER_DAY + 5))
    assert len(dumps(days.all_out())) == DUMPS_PER_DAY
    assert len(opened(days.all_out())) == len(closed(days.all_out())) == DUMPS_PER_DAY + 5
    days.story.wait(SECONDS_PER_DAY)
    days.flap()
    assert len(dumps(days.all_out())) == DUMPS_PER_DAY + 1


@pytest.mark.slow
@settings(max_examples=12)
@given(names=DAYS)
def test_days_on_end_keep_their_bounds(names: list[str]) -> None:
    """By what is on record alone: dumps are bounded wherever the day begins; an incident lies between an edge and its members seen good."""
    days = happened(names)
    assert most_within_a_day([action.at.wall for action in dumps(days.all_out())]) <= DUMPS_PER_DAY
    edges: dict[str, Transition] = {}
    status: dict[tuple[str, str], Status] = {}
    current: str | None = None
    for number, output in enumerate(days.all_out()):
        if number in days.boots:  # what the boot before has seen says nothing about this one
            status = dict.fromkeys(status, Status.UNKNOWN)
        match output:
            case Transition():
                edges[output.id] = output
                status[str(output.subject), output.type] = output.after
            case Opened(incident=incident):
                assert current is None
                assert edges[incident.trigger].after is Status.TRUE
                assert edges[incident.trigger].incident == incident.id
                current = incident.id
            case Closed(incident=incident):
                assert incident.id == current
                left = {status[str(subject), type_] for subject, type_ in incident.members}
                assert left <= {Status.FALSE, Status.NOT_APPLICABLE}
                current = None
