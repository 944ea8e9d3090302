"""README.txt of an archive: what it is, what was masked, what was reconstructed and what is not in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xidwatch import __version__
from xidwatch.bundle.gather import Gathered
from xidwatch.clock import iso

_PAGE = """\
Incident {incident}, as recorded by xidwatch and masked for others ({version}).

It began at {began} and is {state}; told from {begin} to {end}, one boot only. All times are UTC, as the host's clock showed them.
To run it again: `xidwatch replay FOLDER --state-dir DIR`, then `xidwatch report --state-dir DIR`.

Recorded, and masked
  records/   rows, journal, dump and baseline as they were written on the host
  kmsg.txt   the kernel log, from the dump and, after it, what the journal has of it; `[not on record]`
             stands for records that were not kept

Reconstructed from those, and no evidence
  host.txt      the PCI tree and the boards, from the inventory and the headers of the configuration space
  timeline.txt  what changed when, from the rows: a value is set right after the row before the one that shows it; what died, died just
                before the first word about it. Power within an interval is its mean and its peak, not the trace
  config.toml   the interval, the rails and the probes, from what the daemon said at its start
  Not told: registers beyond what makes a function answer, steps of the clock, answers that came late, engines, what was set outside this
  time, what the daemon knew from earlier boots. A replay learns its baseline at its start.

Masked, the same thing by the same mask everywhere
{masked}
  and, whole: what people noted, what programs wrote into the kernel log, command lines and prompts.
  PCI addresses, names and firmware of boards, process numbers and the names the kernel gives processes stay.

Left out
{left_out}

Files
{files}
"""


def text(found: Gathered, files: Sequence[str], used: Mapping[str, int]) -> str:
    """The page."""
    known = found.incident
    always = ("engines: units, models, requests", "checkpoints of the daemon's own state")
    return _PAGE.format(
        incident=known.id,
        version=__version__,
        began=iso(known.began),
        state=known.state,
        begin=iso(found.begin),
        end=iso(found.end),
        masked=_lines(f"{kind}: {count}" for kind, count in sorted(used.items())),
        left_out=_lines((*always, *dict.fromkeys(found.left_out))),
        files=_lines(files),
    )


def _lines(told: Iterable[str]) -> str:
    lines = [f"  {each}" for each in told]
    return "\n".join(lines) or "  nothing"
