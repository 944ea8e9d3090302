"""What `xidwatch gate UNIT` costs the start of an engine, from exec to its answer; beside an interpreter that does nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.daemon import CHECKOUT
from bench.figures import Figure, percentile
from bench.options import Options
from xidwatch.clock import SystemClock
from xidwatch.places import STATE_FILE, run_dir
from xidwatch.records import state
from xidwatch.records.state import ConditionState, EngineState, StateFile

NAME = "gate"
ROUNDS = 15
AIM_SECONDS = 0.2
CONDITIONS = 400  # of a host with 8 GPUs below four switches, all of which are dead
UNIT = "vllm.service"


def run(options: Options) -> list[Figure]:
    """Medians, and the longest."""
    rounds = options.rounds(ROUNDS)
    with TemporaryDirectory(dir="/dev/shm") as folder:
        place = run_dir(Path(folder))
        place.mkdir(parents=True)
        try:
            (place / STATE_FILE).write_bytes(state.encode(_shown()))
            answers = [_seconds("-m", "xidwatch", "--state-dir", folder, "gate", UNIT, expected=2) for _ in range(rounds)]
        finally:
            (place / STATE_FILE).unlink()
            place.rmdir()
    peers = [_seconds("-c", "pass", expected=0) for _ in range(rounds)]
    median, peer = percentile(answers, 50), percentile(peers, 50)
    note = f"median of {rounds}, longest {max(answers):.3f}"
    return [Figure(NAME, f"xidwatch gate {UNIT}", median, "s", AIM_SECONDS, ratio=median / peer, peer="python -c pass", note=note)]


def _shown() -> StateFile:
    clock = SystemClock()
    since = "2026-09-17T02:10:08.412Z"
    conditions = tuple(
        ConditionState(subject=f"gpu:0000:{n % 256:02x}:00.0", type="GpuLost", status="UNKNOWN", since=since, reason="not asked")
        for n in range(CONDITIONS)
    )
    engines = {UNIT: EngineState(state="HELD", since=since, may_start=False, why="8 of 8 GPUs lost")}
    mono_ms = int(clock.now().mono * 1000)
    return StateFile(
        boot_id=clock.boot_id, mono_ms=mono_ms, verdict="failed", interval_s=3600.0, conditions=conditions, engines=engines, pid=os.getpid()
    )


def _seconds(*words: str, expected: int) -> float:
    begun = time.monotonic()
    done = subprocess.run([sys.executable, *words], cwd=CHECKOUT, check=False, capture_output=True)
    assert done.returncode == expected, done
    return time.monotonic() - begun
