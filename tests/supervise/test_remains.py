"""What an engine leaves behind."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.fakes.engine import EngineHost
from xidwatch.supervise import remains


def test_a_process_is_named_with_the_stack_of_the_thread_that_does_not_return(tmp_path: Path) -> None:
    """Innermost first, without addresses."""
    host = EngineHost(tmp_path)
    host.process(4711, "VLLM::Worker TP", waits_in="os_acquire_rwlock_write")
    stack = host.proc_root / "4711/task/14711/stack"
    stack.write_text("[<0>] os_acquire_rwlock_write+0x35/0x50 [nvidia]\n[<0>] rm_ioctl+0x1/0x2 [nvidia]\n")
    assert remains.describe([4711], host.proc_root) == (
        "process 4711 (VLLM::Worker TP) thread 14711 state D in os_acquire_rwlock_write: os_acquire_rwlock_write < rm_ioctl",
    )


def test_one_that_spins_in_the_kernel_is_named_too(tmp_path: Path) -> None:
    """State R: it takes no signal either."""
    host = EngineHost(tmp_path)
    host.process(4711, "python3", state="R")
    assert remains.describe([4711, 4712], host.proc_root) == ("process 4711 (python3) state R",)


def test_a_port_is_held_while_somebody_listens() -> None:
    """Of whatever family; one that is merely connected to is not."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert remains.held_ports([port], Path("/proc")) == [port]
    assert remains.held_ports([port], Path("/proc")) == []
    assert remains.held_ports([], Path("/proc")) == []
