"""Lockups, stalls and hung tasks, as kernels from 2.6 to 6.16 print them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.lines import block, read

SOFT_LOCKUP = """
    watchdog: BUG: soft lockup - CPU#18 stuck for 26s! [qm:41882]
    Modules linked in: nvidia_uvm(POE) nvidia(POE) vfio_pci
    CPU: 18 PID: 41882 Comm: qm Tainted: P           OE      6.8.12-13-pve #1
    RIP: 0010:pci_mmcfg_read+0xb1/0xe0
    Call Trace:
     <TASK>
     pci_bus_read_config_dword+0x4a/0x90
"""
STALL = """
    rcu: INFO: rcu_sched detected stalls on CPUs/tasks:
    rcu: \t8-...!: (1 GPs behind) idle=0b4/1/0x4000000000000000 softirq=1/1 fqs=0
    \t(detected by 3, t=60002 jiffies, g=7193, q=23)
    Sending NMI from CPU 3 to CPUs 8:
    rcu: rcu_sched kthread starved for 998 jiffies! g7193 f0x0 RCU_GP_DOING_FQS(6) ->state=0x0 ->cpu=8
    rcu: \tUnless rcu_sched kthread gets sufficient CPU time, OOM is now expected behavior.
    rcu: RCU grace-period kthread stack dump:
"""
HUNG = """
    INFO: task nvidia-smi:1369110 blocked for more than 120 seconds.
          Tainted: P           OE     5.15.0-67-generic #74-Ubuntu
    "echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.
    task:nvidia-smi      state:D stack:    0 pid:1369110 ppid:1369099 flags:0x00004006
    Call Trace:
     <TASK>
     rwsem_down_write_slowpath+0x243/0x580
    INFO: task nvidia-smi:1369110 is blocked on a mutex likely owned by task nvidia-smi:7.
"""


@pytest.mark.parametrize(("report", "kind"), [(SOFT_LOCKUP, "lockup"), (STALL, "rcu"), (HUNG, "hung_task")])
def test_one_report_is_one_event(report: str, kind: str) -> None:
    """Its stacks say nothing of their own."""
    records = block(report)
    (event,) = read(records)
    assert (event.kind, str(event.severity), event.text, event.seq) == (kind, "error", records[0], 0)


@pytest.mark.parametrize(
    ("line", "kind", "severity", "pid", "process", "cpu"),
    [
        ("watchdog: BUG: soft lockup - CPU#0 stuck for 27s! [cuda-EvtHandlr:2255424]", "lockup", "error", 2255424, "cuda-EvtHandlr", 0),
        ("NMI watchdog: BUG: soft lockup - CPU#2 stuck for 22s! [Simple:8140]", "lockup", "error", 8140, "Simple", 2),
        ("BUG: soft lockup - CPU#3 stuck for 61s! [kworker/2:1:25629]", "lockup", "error", 25629, "kworker/2:1", 3),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 61s! [swapper/3:0]", "lockup", "error", None, "swapper/3", 3),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 61s!", "lockup", "error", None, None, 3),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 61s! [a] b:[c]:9]", "lockup", "error", 9, "a] b:[c]", 3),
        ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 0", "lockup", "critical", None, None, 0),
        ("watchdog: Watchdog detected hard LOCKUP on cpu 127", "lockup", "critical", None, None, 127),
        ("watchdog: CPU7: Watchdog detected hard LOCKUP on cpu 12", "lockup", "critical", None, None, 12),
        ("Watchdog detected hard LOCKUP on cpu 1dModules linked in:", "lockup", "critical", None, None, 1),
        ("BUG: NMI Watchdog detected LOCKUP on CPU1, ip c01a2b3c, registers:", "lockup", "critical", None, None, 1),
        ("watchdog: CPU 12 self-detected hard LOCKUP @ plpar_hcall+0x38/0x58", "lockup", "critical", None, None, None),
        ("watchdog: CPU 0 detected hard LOCKUP on other CPUs 5", "lockup", "critical", None, None, 5),
        ("rcu: INFO: rcu_preempt self-detected stall on CPU", "rcu", "error", None, None, None),
        ("INFO: rcu_sched self-detected stall on CPU { 3}  (t=15000 jiffies g=1 c=0 q=9)", "rcu", "error", None, None, 3),
        ("INFO: rcu_sched_state detected stalls on CPUs/tasks: { 2} (detected by 7, t=15002 jiffies)", "rcu", "error", None, None, None),
        ("rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 4-.... } 21 jiffies", "rcu", "error", None, None, None),
        ("rcu: INFO: rcu_tasks detected stalls on tasks:", "rcu", "error", None, None, None),
        ("INFO: RCU detected CPU 5 stall (t=2500 jiffies)", "rcu", "error", None, None, None),
        ("INFO: task systemd:1 blocked for more than 120 seconds.", "hung_task", "critical", 1, "systemd", None),
        ("INFO: task kworker/u256:3:91234 blocked for more than 122 seconds.", "hung_task", "error", 91234, "kworker/u256:3", None),
        ("INFO: task dd:77 blocked in I/O wait for more than 122 seconds.", "hung_task", "error", 77, "dd", None),
        ("BUG: workqueue lockup - pool cpus=3 node=0 flags=0x0 nice=0 stuck for 32s!", "lockup", "error", None, None, 3),
        ("BUG: workqueue lockup - pool cpus=0-63 flags=0x4 nice=0 stuck for 197s!", "lockup", "error", None, None, None),
        ("BUG: workqueue lockup - pool bh cpus=12 node=0 flags=0x0 nice=0 stuck for 5s!", "lockup", "error", None, None, 12),
        ("BUG: workqueue lockup - pool", "lockup", "error", None, None, None),
        ("Kernel panic - not syncing: Hard LOCKUP", "lockup", "critical", None, None, None),
        ("Kernel panic - not syncing: hard LOCKUP", "lockup", "critical", None, None, None),
        ("Kernel panic - not syncing: Watchdog detected hard LOCKUP on cpu 7", "lockup", "critical", None, None, 7),
        ("Kernel panic - not syncing: softlockup: hung tasks", "lockup", "critical", None, None, None),
        ("Kernel panic - not syncing: hung_task: blocked tasks", "hung_task", "critical", None, None, None),
        ("Kernel panic - not syncing: RCU Stall", "rcu", "critical", None, None, None),
        ("Kernel panic - not syncing: Fatal machine check", "mce", "critical", None, None, None),
        ("Kernel panic - not syncing: Fatal local machine check", "mce", "critical", None, None, None),
        ("Kernel panic - not syncing: Machine check: Processor context corrupt", "mce", "critical", None, None, None),
        ("Kernel panic - not syncing: Timeout: Not all CPUs entered broadcast exception handler", "mce", "critical", None, None, None),
        ("Kernel panic - not syncing: Fatal hardware error!", "ghes", "critical", None, None, None),
        ("Kernel panic - not syncing: NMI: Not continuing", "mce", "critical", None, None, None),
        ("Kernel panic - not syncing: NMI IOCK error: Not continuing", "mce", "critical", None, None, None),
        ("Kernel panic - not syncing: An NMI occurred. Depending on your system the reason", "mce", "critical", None, None, None),
        ("Kernel panic - not syncing: Unrecoverable Machine check", "mce", "critical", None, None, None),
        ("Kernel panic - not syncing: EDAC MC0: UE page 0x0, offset 0x0", "edac", "critical", None, None, None),
        ("INFO: task xyz blocked for more than 60 seconds.", "hung_task", "error", None, "xyz", None),
        ("INFO: task a\n\nb:7 blocked for more than 60 seconds.", "hung_task", "error", 7, "a  b", None),
    ],
)
def test_single_lines(line: str, kind: str, severity: str, pid: int | None, process: str | None, cpu: int | None) -> None:
    """Kind, severity, whom and which processor."""
    (event,) = read([line])
    assert (event.kind, str(event.severity), event.pid, event.process) == (kind, severity, pid, process)
    assert event.cpu == cpu or kind == "rcu"
    assert (event.pci, event.driver_fatal) == (None, False)


@pytest.mark.parametrize(
    "line",
    [
        "NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",
        "watchdog: watchdog0: watchdog did not stop!",
        "INFO: NMI handler (perf_event_nmi_handler) took too long to run: 1.5 msecs",
        "INFO: lockdep is turned off.",
        "rcu: Hierarchical RCU implementation.",
        "rcu: INFO: Stall ended before state dump start",
        "workqueue: drm_fb_helper_damage_work hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND",
        "Future hung task reports are suppressed, see sysctl kernel.hung_task_warnings",
        "BUG: workqueue leaked lock or atomic: kworker/0:2/0xffffffff/4586",
        "Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)",
        "Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000009",
        "Kernel panic - not syncing: Fatal exception in interrupt",
        "BUG: kernel NULL pointer dereference, address: 0000000000000008",
        "BUG: unable to handle page fault for address: ffffffffffffffd0",
        "Oops: 0000 [#1] PREEMPT SMP NOPTI",
        "general protection fault, probably for non-canonical address 0xdead000000000100: 0000 [#1] SMP",
        "---[ end Kernel panic - not syncing: Hard LOCKUP ]---",
        "kernel panic: Hard LOCKUP",
        "somebody says BUG: soft lockup - CPU#0 stuck for 27s! [x:1]",
    ],
)
def test_what_is_no_event(line: str) -> None:
    """Boot lines, notes, and words of others."""
    assert read([line]) == []


@given(st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1, max_size=15), st.integers(1, 4_194_304))
def test_any_name_leaves_the_pid_readable(name: str, pid: int) -> None:
    """The pid stands behind the last colon, whatever the name holds."""
    lines = (
        f"watchdog: BUG: soft lockup - CPU#0 stuck for 27s! [{name}:{pid}]",
        f"INFO: task {name}:{pid} blocked for more than 60 seconds.",
    )
    for line in lines:
        (event,) = read([line])
        assert event.pid == pid
        assert event.process == (name.strip() or None)
