"""What a fixture is written in: times, words, and mistakes with their place."""

from __future__ import annotations

import pytest

from xidwatch.clock import iso
from xidwatch.replay.script import FixtureError, events, lines


def test_times_are_told_in_three_ways() -> None:
    """Whole, as a time of day that comes next, and as so long after the line before; midnight is passed."""
    told = events("2026-09-16T23:59:00Z boot\n23:59:30.5 start\n+90s note hello\n00:42:00 end\n", "timeline.txt")
    assert [iso(event.at) for event in told] == [
        "2026-09-16T23:59:00.000Z",
        "2026-09-16T23:59:30.500Z",
        "2026-09-17T00:01:00.500Z",
        "2026-09-17T00:42:00.000Z",
    ]


def test_quotes_options_and_remarks() -> None:
    """As in a shell; blanks at the beginning are kept as depth, empty lines and remarks say nothing."""
    (line,) = lines('# above\n\n  0000:11:00.0 gpu name="RTX 3090"  # beside\n', "host.txt")
    assert (line.place, line.indent, line.words, dict(line.options)) == ("host.txt:3", 2, ("0000:11:00.0", "gpu"), {"name": "RTX 3090"})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("yesterday boot", "timeline.txt:1: 'yesterday' is no time"),
        ("00:42:00 boot", "timeline.txt:1: '00:42:00' is no time"),
        ("2026-09-16T23:59:00Z", "timeline.txt:1: expected a time and what happens then"),
        ("2026-09-16T23:59:00Z boot\n+fast start", "timeline.txt:2: '+fast' is no time"),
        ("2026-09-16T23:59:00Z boot\n2026-09-16T23:00:00Z start", "timeline.txt:2: 2026-09-16T23:00:00Z lies before the line above"),
        ('2026-09-16T23:59:00Z note "half', "timeline.txt:1: No closing quotation"),
    ],
)
def test_a_mistake_is_told_with_its_line(text: str, complaint: str) -> None:
    """Whoever wrote it finds it."""
    with pytest.raises(FixtureError) as caught:
        events(text, "timeline.txt")
    assert str(caught.value).startswith(complaint)
