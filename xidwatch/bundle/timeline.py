"""`timeline.txt` and `kmsg.txt` of a fixture, from the rows, the journal and the dump's kernel log.

A row says what was so at its tick, not since when. A value that differs from the row before is set right after that one, so that the
mean over the interval comes out. What dies between two rows dies just before the first thing that was said about it between them,
by the kernel or in the journal; with nothing said, a second before the row that shows it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from xidwatch.bundle.gather import Gathered
from xidwatch.bundle.scene import GIB, SPEED, functions, inputs
from xidwatch.clock import iso
from xidwatch.core.masking import HIDDEN
from xidwatch.core.model import Missing
from xidwatch.records.samples import Row

SETTLED_SECONDS = 0.25  # after a row: its looks are over
BEFORE_SECONDS = 0.005  # that something dies before it is heard of
LOOK_SECONDS = 2.0  # from what is heard to what is called lost for it
UNHEARD_SECONDS = 1.0  # before the row that shows it
MOST_BETWEEN = 10_000  # records
A_PROGRAMS = 14  # priority of a record that no rule reads: facility 1
UNRECORDED = "[not on record]"
ALL_ONES = "ffffffff"
LOST_STATUS = ("15", "16")
PEAK_RATIO = 1.03  # above the mean: more than a replay's samples vary by themselves
# What a board is set, by the column that says so, and the unit of the column in that of the board.
BOARD = {
    "power_limit_watts": ("limit_watts", 1.0),
    "temperature_celsius": ("celsius", 1.0),
    "temperature_memory_celsius": ("memory_celsius", 1.0),
    "clock_sm_mhz": ("sm_mhz", 1.0),
    "clock_memory_mhz": ("memory_mhz", 1.0),
    "utilisation_ratio": ("utilisation", 1.0),
    "memory_used_bytes": ("memory_used_gib", 1.0 / GIB),
    "performance_state": ("pstate", 1.0),
    "nvml_link_generation": ("generation", 1.0),
    "nvml_link_width": ("width", 1.0),
    "pcie_replays": ("replays", 1.0),
    "recovery_action": ("recovery_action", 1.0),
}
WATTS = ("power_mean_watts", "power_average_watts", "power_instant_watts")
FUNCTION = ("link_width", "aer_correctable", "aer_nonfatal", "aer_fatal")
PROC = {"load_1m": "load", "cpu_busy_ratio": "busy", "tasks_blocked": "blocked", "pressure_cpu_ratio": "pressure"}
_RECORD = re.compile(r"(?P<priority>\d+),(?P<seq>\d+),(?P<usec>\d+),(?P<rest>[^;\n]*);(?P<text>.*)")


@dataclass(slots=True)
class _Script:
    """The lines so far, and what the host is at this point of it."""

    found: Gathered
    lines: list[tuple[float, int, str]] = field(default_factory=list)
    told: dict[str, dict[str, str]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)

    def say(self, at: float, text: str) -> None:
        """Lines of one moment stay in the order they were said."""
        self.lines.append((round(at, 3), len(self.lines), text))


def timeline(found: Gathered) -> str:
    """timeline.txt."""
    script = _Script(found)
    script.say(found.boot_wall, "boot")
    before: Row | None = None
    for row in found.rows:
        settled = max(found.boot_wall, min(before.wall + SETTLED_SECONDS, row.wall)) if before else found.boot_wall
        _values(script, row.cells, settled)
        _fates(script, row.cells, _when(found, before, row))
        before = row
    _after_the_last(script, before)
    _runs(script)
    script.say(found.end + 2 * SETTLED_SECONDS, "end")
    return "".join(f"{iso(at)}  {text}\n" for at, _, text in sorted(script.lines))


def kernel_log(found: Gathered) -> str:
    """kmsg.txt: the dump's records, and those the journal alone has. What a program has said is there, without its words."""
    records: dict[int, tuple[int, str]] = {}
    until = (found.end + SETTLED_SECONDS - found.boot_wall) * 1e6
    for match in (match for text in found.kernel_texts for match in _whole(text)):
        ours = int(match["priority"]) < 8
        text = match["text"] if ours else HIDDEN
        records[int(match["seq"])] = (int(match["usec"]), f"{match['priority']},{match['seq']},{match['usec']},{match['rest']};{text}")
    for entry in found.entries:
        seq, usec = entry.body.get("seq"), entry.body.get("usec", entry.mono_us)
        if (
            entry.kind == "kernel"
            and isinstance(seq, int)
            and isinstance(usec, int)
            and seq not in records
            and not entry.body.get("injected")
        ):
            text = str(entry.body.get("text", "")).replace("\n", " ")
            records[seq] = (usec, f"4,{seq},{usec},-;{text}")
    kept = {seq: (usec, line) for seq, (usec, line) in sorted(records.items()) if usec <= until}
    filled = {**dict(_between(found, kept)), **kept}
    return "".join(f"{line}\n" for line in ("# boot", *(line for _, (_, line) in sorted(filled.items()))))


def _between(found: Gathered, kept: Mapping[int, tuple[int, str]]) -> Iterator[tuple[int, tuple[int, str]]]:
    """In place of records that meant nothing, and so are not on record: else a replay would miss them. Really lost ones stay lost."""
    lost_at = [entry.mono_us or 0 for entry in found.entries if entry.kind == "gap"]
    for (seq, (usec, _)), (following, (until, _)) in pairwise(kept.items()):
        if following - seq > MOST_BETWEEN or any(usec <= at <= until + LOOK_SECONDS * 1e6 for at in lost_at):
            continue
        yield from ((each, (until, f"{A_PROGRAMS},{each},{until},-;{UNRECORDED}")) for each in range(seq + 1, following))


def _whole(text: str) -> Iterator[re.Match[str]]:
    """A last line without its end was cut off."""
    for line in text.splitlines(keepends=True):
        if line.endswith("\n") and (match := _RECORD.fullmatch(line.rstrip("\n"))):
            yield match


# ------------------------------------------------------------------------------------------------------------ values


def _values(script: _Script, cells: Mapping[str, str], at: float) -> None:
    """What differs from what was told, devices with the same news in one line."""
    news: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for address, (kind, _) in functions(script.found).items():
        subject = f"port:{address}" if kind in ("root", "upstream", "downstream") else f"{kind}:{address}"
        wanted = {**_function(subject, cells), **(_board(subject, cells) if kind == "gpu" else {})}
        if fresh := _fresh(script, address, wanted):
            news.setdefault(tuple(fresh.items()), []).append(address)
    for options, addresses in news.items():
        script.say(at, f"set {' '.join(addresses)} {_words(dict(options))}")
    for chip, files in inputs(script.found, cells).items():
        if fresh := _fresh(script, chip, files):
            script.say(at, f"chip {shlex.quote(chip.partition('@')[0])} {_words(fresh)}")
    proc = {name: cell for column, name in PROC.items() if (cell := cells.get(f"host:{column}"))}
    if cell := cells.get("host:memory_available_bytes"):
        proc["available_gib"] = f"{float(cell) / GIB:.6f}"
    if fresh := _fresh(script, "proc", proc):
        script.say(at, f"proc {_words(fresh)}")


def _fresh(script: _Script, who: str, wanted: Mapping[str, str]) -> dict[str, str]:
    known = script.told.setdefault(who, {})
    fresh = {name: text for name, text in wanted.items() if known.get(name) != text}
    known.update(fresh)
    return fresh


def _function(subject: str, cells: Mapping[str, str]) -> dict[str, str]:
    told = {name: cell for name in FUNCTION if (cell := cells.get(f"{subject}:{name}"))}
    if speed := cells.get(f"{subject}:link_gts"):
        told["link_speed"] = SPEED.format(float(speed))
    return told


def _board(subject: str, cells: Mapping[str, str]) -> dict[str, str]:
    """Nothing of a board that did not answer."""
    if cells.get(f"{subject}:nvml_status") != "0":
        return {}
    told: dict[str, str] = {}
    for column, (name, factor) in BOARD.items():
        if cell := cells.get(f"{subject}:{column}"):
            told[name] = cell if factor == 1.0 else repr(float(cell) * factor)
    if reasons := cells.get(f"{subject}:clock_event_reasons"):
        told["reasons"] = str(int(reasons, 16))
    watts = next((cell for name in WATTS if (cell := cells.get(f"{subject}:{name}"))), "")
    if watts:
        told["watts"] = watts
        peak = cells.get(f"{subject}:power_peak_watts", "")
        told["peak_watts"] = peak if peak and float(peak) > float(watts) * PEAK_RATIO else "0"
    return told


def _words(options: Mapping[str, str]) -> str:
    return " ".join(f"{name}={shlex.quote(text)}" for name, text in options.items())


# ------------------------------------------------------------------------------------------------------------- fates


def _fates(script: _Script, cells: Mapping[str, str], at: float) -> None:
    """Who died, came back, fell asleep or left; of a tree that died, only its head is told."""
    told = functions(script.found)
    died: list[str] = []
    for address, (kind, facts) in sorted(told.items(), key=lambda each: str(each[1][1].get("chain", each[0])).count("/")):
        subject = f"port:{address}" if kind in ("root", "upstream", "downstream") else f"{kind}:{address}"
        state, before = _state(script, subject, cells), script.states.get(address, "well")
        if state in ("", before) or (state == "dead" and str(facts.get("parent", "")) in died):
            continue
        script.states[address] = state
        script.say(at, f"{_VERBS[before, state]} {address}" if (before, state) in _VERBS else f"{_VERBS['well', state]} {address}")
        died += [address] if state == "dead" else []
    for address, (kind, _) in told.items():
        if kind == "gpu":
            gone = _is_below(told, address, died) or address in _reported_lost(script.found, at)
            _driver_says(script, address, cells.get(f"gpu:{address}:nvml_status", ""), at, gone=gone)


_VERBS = {
    ("well", "dead"): "die", ("well", "asleep"): "sleep", ("well", "reset"): "clear", ("well", "removed"): "remove",
    ("dead", "well"): "revive", ("asleep", "well"): "wake", ("reset", "well"): "revive", ("removed", "well"): "add",
    ("well", "well"): "revive",
}  # fmt: skip


def _state(script: _Script, subject: str, cells: Mapping[str, str]) -> str:
    """Empty where the row does not say."""
    if cells.get(f"{subject}:present") == "0":
        return "removed"
    dword = cells.get(f"{subject}:config_dword0", "")
    if not dword:
        return "asleep" if f"{subject}:config_dword0" in _asleep(script.found) else ""
    if dword == ALL_ONES:
        return "dead"
    return "reset" if cells.get(f"{subject}:command") == "0000" else "well"


def _asleep(found: Gathered) -> set[str]:
    """Columns that were ever missing because the device slept."""
    told = (entry.body for entry in found.entries if entry.kind == "missing" and entry.body.get("reason") == Missing.ASLEEP)
    return {str(column) for body in told for column in body.get("columns", ())}


def _reported_lost(found: Gathered, at: float) -> set[str]:
    """GPUs called lost within a look of that moment: the driver is not asked about them afterwards, so no row says it."""
    told = (entry for entry in found.entries if entry.kind == "transition" and 0 <= entry.wall - at <= LOOK_SECONDS)
    lost = (entry.body for entry in told if entry.body.get("type") == "GpuLost" and entry.body.get("after") == "TRUE")
    return {str(body.get("subject", "")).partition(":")[2] for body in lost}


def _is_below(told: Mapping[str, tuple[str, Mapping[str, object]]], address: str, died: list[str]) -> bool:
    seen: set[str] = set()
    while address in told and address not in seen:
        if address in died:
            return True
        seen.add(address)
        address = str(told[address][1].get("parent", ""))
    return False


def _driver_says(script: _Script, address: str, status: str, at: float, *, gone: bool) -> None:
    if address not in script.lost and (gone or status in LOST_STATUS):
        script.lost.add(address)
        script.say(at, f"set {address} lost=16" if status == "16" else f"lost {address}")
    elif address in script.lost and status == "0":
        script.lost.discard(address)
        script.say(at, f"found {address}")


def _when(found: Gathered, before: Row | None, row: Row) -> float:
    """Between the two rows; at the beginning what was so all along."""
    if before is None:
        return found.boot_wall
    heard = _heard(found, before.wall, row.wall)
    return max(before.wall + SETTLED_SECONDS, heard - BEFORE_SECONDS if heard else row.wall - UNHEARD_SECONDS)


def _heard(found: Gathered, after: float, until: float) -> float | None:
    """When something bad was first said between two rows, by the kernel at its own time."""
    times = [entry.wall for entry in found.entries if entry.kind == "transition" and entry.body.get("after") == "TRUE"]
    told = [entry.body.get("usec") for entry in found.entries if entry.kind == "kernel" and not entry.body.get("injected")]
    times += [found.boot_wall + usec / 1e6 for usec in told if isinstance(usec, int)]
    return min((time for time in times if after < time < until), default=None)


def _after_the_last(script: _Script, last: Row | None) -> None:
    """What the journal alone says: the daemon or the machine ended before the next row."""
    found = script.found
    after = last.wall if last else found.begin
    for entry in found.entries:
        if entry.kind != "transition" or entry.wall <= after or entry.body.get("after") != "TRUE":
            continue
        address = str(entry.body.get("subject", "")).partition(":")[2]
        heard = _heard(found, after, found.end + 1.0) or entry.wall
        at = max(after + SETTLED_SECONDS, heard - BEFORE_SECONDS)
        if entry.body.get("type") == "ConfigSpaceAllOnes" and script.states.get(address, "well") == "well" and address in functions(found):
            _fates(script, {f"{entry.body['subject']}:config_dword0": ALL_ONES}, at)


def _runs(script: _Script) -> None:
    """Starts and ends of the daemon; one that ended without a word was killed, nobody knows when."""
    running = False
    for entry in script.found.entries:
        if entry.kind == "started":
            if running:
                script.say(entry.wall - 0.001, "kill")
            script.say(entry.wall, "start")
            running = True
        elif entry.kind == "stopped" and running:
            script.say(entry.wall, "stop")
            running = False
        elif entry.kind == "uevent" and running:
            words = {"subsystem": str(entry.body.get("subsystem", "pci"))}
            script.say(
                entry.wall,
                f"uevent {shlex.quote(str(entry.body.get('action')))} {shlex.quote(str(entry.body.get('name')))} {_words(words)}",
            )
    if not any(text == "start" for _, _, text in script.lines):
        script.say(script.found.begin, "start")
