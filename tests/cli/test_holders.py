"""Who is still on the GPUs of an engine, told to people by name and control group."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.engine import EngineHost
from xidwatch.cli.holders import named

WHY = "not proven yet: gpu:0000:11:00.0: process 4711, 4712 is still on it; gpu:0000:12:00.0: process 4711 is still on it"


def test_who_is_still_on_a_gpu_is_named_with_its_group(tmp_path: Path) -> None:
    """Once, however many GPUs it holds, by files that no stuck process keeps locked; who has gone since is not."""
    host = EngineHost(tmp_path)
    host.process(4711, "VLLM::Worker TP", state="D")
    (host.proc_root / "4711/cgroup").write_text("1:name=systemd:/system.slice/docker-5f0c.scope\n0::/\n")
    assert list(named([WHY], host.proc_root)) == ["process 4711 is VLLM::Worker TP, state D, in system.slice/docker-5f0c.scope"]
    host.process(4712)
    assert list(named([WHY], host.proc_root))[1] == "process 4712 is python3, state S"


def test_other_reasons_name_nobody(tmp_path: Path) -> None:
    """Nor does a number that is no process."""
    assert list(named(["4 of 4 GPUs lost", "process 4711 (VLLM::Worker) state D"], tmp_path)) == []
