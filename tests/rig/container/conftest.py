"""What a test of the container stage asks for: `host`, booted, with xidwatch installed; or `new_host`, for one with something special.

Skipped, with the reason and the remedy, where no container can be booted. Whether one can is settled before process 1 exists:
what goes wrong after that is a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.harness import LoopDisk
from tests.rig.container import disk, machine
from tests.rig.container.host import Host


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This checkout as `make install` lays it out, once for all."""
    if reason := machine.why_not():
        pytest.skip(f"no container can be booted here: {reason}")
    return disk.install(tmp_path_factory.mktemp("stage"))


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[LoopDisk]:
    """A filesystem of its own that can be frozen, for `new_host(frozen)`."""
    loop_disk = LoopDisk(tmp_path / "loop")
    yield loop_disk
    loop_disk.thaw()
    loop_disk.unmount()


@pytest.fixture
def new_host(tmp_path: Path, stage: Path, nvml_built: Callable[..., Path]) -> Iterator[Callable[..., Host]]:
    """`new_host(frozen)`: with a disk in /rig/disk; `kernel_log=True`: with the machine's kernel log, `views=`: with folders, to read."""
    with ExitStack() as hosts:

        def new(frozen: LoopDisk | None = None, **more: Any) -> Host:
            try:
                return hosts.enter_context(Host(tmp_path / "host", stage, nvml_built(), frozen, **more))
            except machine.CannotBoot as error:
                pytest.skip(f"no container can be booted here: {error}")

        yield new


@pytest.fixture
def host(new_host: Callable[..., Host]) -> Host:
    return new_host()
