"""What every test may rely on: markers that explain their skips, and a Hypothesis profile that gives the same cases every time."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# Examples are derived from the test itself: what fails here fails everywhere, and a slow machine is not a failure.
settings.register_profile("project", derandomize=True, deadline=None)
settings.load_profile("project")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test marked `root` says so when it is skipped."""
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root")
