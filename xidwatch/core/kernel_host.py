"""Processors and tasks that do not come back: soft and hard lockups, stalls of RCU, hung tasks.

    watchdog: BUG: soft lockup - CPU#2 stuck for 23s! [kworker/2:1:25629]
    NMI watchdog: Watchdog detected hard LOCKUP on cpu 0
    rcu: INFO: rcu_sched detected stalls on CPUs/tasks:
    INFO: task kworker/u256:3:91234 blocked for more than 122 seconds.
    BUG: workqueue lockup - pool cpus=3 node=0 flags=0x0 nice=0 stuck for 32s!
    Kernel panic - not syncing: Hard LOCKUP

Law: a family of `kernel`, pure and total. Each report is one line that says all and a page of stacks, which says nothing of its own.
A panic is an event where its own words say of which kind, here or of the hardware; it is worse than the report before it.
A task's name may hold anything, colons and line breaks too; its pid stands behind the last colon. A report may hold another's words,
so nothing here is ever a reason to act.
Sources: kernel/watchdog.c, kernel/watchdog_perf.c, kernel/rcu/tree_stall.h (rcutree.c before 3.19), kernel/hung_task.c,
kernel/workqueue.c, arch/x86/kernel/cpu/mce/core.c, arch/x86/kernel/nmi.c, arch/arm64/kernel/traps.c, drivers/watchdog/hpwdt.c,
drivers/acpi/apei/ghes.c, drivers/edac/, Linux 2.6 to 6.16.
"""

from __future__ import annotations

import re

from xidwatch.core.model import KernelEvent, KernelMessage, Severity

_SOFT = re.compile(
    r"^(?:NMI )?(?:watchdog: )?BUG: soft lockup (?:- |detected on )CPU#(?P<cpu>[0-9]{1,5})"
    r"(?:!| stuck for [0-9]{1,9}s!)(?: \[(?P<who>.{0,64})\])?",
    re.ASCII | re.DOTALL,
)
# The oldest forms run straight on into the next print: "on cpu 1dModules linked in:".
_HARD = re.compile(
    r"^(?:BUG: )?(?:NMI )?(?:[Ww]atchdog: )?(?:CPU ?[0-9]{1,5}:? )?(?:Watchdog )?(?:self-)?detected (?:hard )?LOCKUP"
    r"(?: on (?:cpu|CPU|other CPUs) ?(?P<cpu>[0-9]{1,5})| @|$)",
    re.ASCII,
)
_STALL = re.compile(
    r"^(?:rcu: )?INFO: (?:[\w ]{1,40} (?:self-)?detected (?:expedited )?stalls? on\b|RCU detected CPU [0-9]{1,5} stall)"
    r"(?:.{0,9}\{ ?(?P<cpu>[0-9]{1,5}))?",
    re.ASCII | re.DOTALL,
)
_HUNG = re.compile(r"^INFO: task (?P<who>.{1,64}?) blocked(?: in I/O wait)? for more than [0-9]{1,9} seconds", re.ASCII | re.DOTALL)
_WORKQUEUE = re.compile(r"^BUG: workqueue lockup - pool(?: (?:bh )?cpus=(?P<cpu>[0-9]{1,5})(?= ))?", re.ASCII)
_PANIC = "Kernel panic - not syncing: "
_PANICS = (  # how the rest of the line begins, and of which kind that is
    (re.compile(r"(?:Watchdog detected )?[Hh]ard LOCKUP(?: on cpu (?P<cpu>[0-9]{1,5}))?", re.ASCII), "lockup"),
    (re.compile(r"soft ?lockup: ", re.IGNORECASE), "lockup"),
    (re.compile(r"(?:nmi|NMI) [Ww]atchdog"), "lockup"),
    (re.compile(r"hung_task: "), "hung_task"),
    (re.compile(r"RCU [Ss]tall"), "rcu"),
    (re.compile(r"(?:(?:Fatal |Uncorrected |Unrecoverable )?(?:local )?|Timeout synchronizing )[Mm]achine [Cc]heck"), "mce"),
    (re.compile(r"Timeout: Not all CPUs entered|Asynchronous SError Interrupt"), "mce"),
    (re.compile(r"NMI(?: IOCK error)?: Not continuing|An NMI occurred"), "mce"),
    (re.compile(r"Fatal hardware error"), "ghes"),
    (re.compile(r"EDAC "), "edac"),
)
_INIT = 1  # the pid on which every shutdown waits


class HostLines:
    """Reads one line at a time; remembers nothing."""

    begins = (
        r"(?:NMI )?watchdog: |NMI [wW]atchdog |Watchdog detected|BUG: (?:soft lockup|NMI |workqueue lockup)|(?:rcu: )?INFO: "
        r"|Kernel panic - "
    )

    def read(self, line: KernelMessage) -> KernelEvent | None:
        """The event of a report's first line; None for all others."""
        text = line.text
        if match := _HUNG.match(text):
            pid, process = _task(match["who"])
            severity = Severity.CRITICAL if pid == _INIT else Severity.ERROR
            return KernelEvent(line.seq, line.usec, "hung_task", severity, text, pid=pid, process=process)
        if match := _STALL.match(text):
            return KernelEvent(line.seq, line.usec, "rcu", Severity.ERROR, text, cpu=_cpu(match))
        if match := _SOFT.match(text):
            pid, process = _task(match["who"] or "")
            return KernelEvent(line.seq, line.usec, "lockup", Severity.ERROR, text, pid=pid, process=process, cpu=_cpu(match))
        if match := _HARD.match(text):
            return KernelEvent(line.seq, line.usec, "lockup", Severity.CRITICAL, text, cpu=_cpu(match))
        if match := _WORKQUEUE.match(text):
            return KernelEvent(line.seq, line.usec, "lockup", Severity.ERROR, text, cpu=_cpu(match))
        return _panic(line) if text.startswith(_PANIC) else None

    def is_one_sentence(self, _text: str) -> bool:
        """A name inside may hold a line break, so none is."""
        return False

    def finish(self) -> KernelEvent | None:
        """Nothing is ever held."""
        return None


def _panic(line: KernelMessage) -> KernelEvent | None:
    for pattern, kind in _PANICS:
        if match := pattern.match(line.text, len(_PANIC)):
            cpu = match.groupdict().get("cpu")
            return KernelEvent(line.seq, line.usec, kind, Severity.CRITICAL, line.text, cpu=int(cpu) if cpu else None)
    return None


def _task(who: str) -> tuple[int | None, str | None]:
    """(pid, name) of `kworker/2:1:25629`; a name alone has no pid."""
    name, colon, number = who.rpartition(":")
    if colon and number.isascii() and number.isdecimal() and len(number) <= 10:
        return int(number) or None, name.strip() or None
    return None, who.strip() or None


def _cpu(match: re.Match[str]) -> int | None:
    return int(match["cpu"]) if match["cpu"] else None
