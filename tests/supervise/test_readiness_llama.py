"""Readiness against a real llama.cpp server; skipped where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.daemon.harness import PATIENCE_SECONDS, ROOT, free_port, poll_until
from tests.fakes import llama
from xidwatch.supervise.readiness import Pages

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(llama.why_not()), reason=llama.why_not())]


@pytest.mark.parametrize("key", ["", "sk-5c1d0f2b"], ids=["for everybody", "for whoever has the key"])
def test_an_engine_is_ready_when_a_token_has_come(tmp_path: Path, key: str) -> None:
    """Refused, or 503 while the model is loaded; then a token of the model that it names itself; refused again when it is gone."""
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    key_file = tmp_path / "api.key"
    key_file.write_text(key)
    pages = Pages(health=f"{base}/health", probe=f"{base}/v1", api_key_file=str(key_file) if key else "")
    assert not pages.ask(time.monotonic() + 5).ready
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
    command = [sys.executable, "-m", "tests.fakes.llama", str(tmp_path / "noise.gguf"), str(port), *filter(None, [key])]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        words = poll_until(
            "it is ready", lambda: (said := pages.ask(time.monotonic() + PATIENCE_SECONDS)).ready and said.words, 3 * PATIENCE_SECONDS
        )
        print(words)
        assert str(words).startswith(f"health page: 200; one token of {llama.NAME} in ")
        if key:
            key_file.write_text("another")
            assert pages.ask(time.monotonic() + PATIENCE_SECONDS).words.endswith("(and not the one in api_key_file): no token was made")
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)
    assert not pages.ask(time.monotonic() + 5).ready
