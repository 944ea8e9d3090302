"""What every test may rely on: markers that explain their skips, cases that are the same every time, and an NVIDIA driver without GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from tests.fakes import nvml_library as fake

# Examples are derived from the test itself: what fails here fails everywhere, and a slow machine is not a failure.
settings.register_profile("project", derandomize=True, deadline=None)
settings.load_profile("project")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test marked `root` says so when it is skipped."""
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root")


@pytest.fixture(scope="session")
def nvml_built(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`nvml_built("nvmlDeviceGetTemperatureV")`: the folder of a library without that function, compiled on first use."""
    if not fake.compiler():
        pytest.skip("needs a C compiler, for the NVIDIA library without a GPU")

    @cache
    def built(*without: str) -> Path:
        return fake.build(tmp_path_factory.mktemp("nvml"), without)

    return built


@pytest.fixture
def nvml_library(nvml_built: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> fake.NvmlLibrary:
    """A driver with four GPUs that are well, loaded by every process with `nvml_library.environment`."""
    return fake.NvmlLibrary(nvml_built(), tmp_path_factory.mktemp("nvml-state"))
