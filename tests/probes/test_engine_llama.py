"""The probe against a real llama.cpp server with a prompt in flight; skipped where there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.daemon.harness import PATIENCE_SECONDS, ROOT, free_port, poll_until
from tests.fakes import llama
from tests.fakes.engine import EngineHost
from xidwatch.core.model import Missing, Subject, Value
from xidwatch.probes.base import Ask, Probe
from xidwatch.probes.engine import create

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(llama.why_not()), reason=llama.why_not())]

Facts = dict[str, Value]


class Heard:
    """The last reading of each quantity."""

    def __init__(self) -> None:
        self.facts: Facts = {}

    def at(self, subject: Subject) -> None:
        """Nothing."""

    def reading(self, _subject: Subject, quantity: str, value: Value) -> None:
        self.facts[quantity] = value


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Of a server on its way; it is gone at the end."""
    number = free_port()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.fakes.llama", str(tmp_path / "noise.gguf"), str(number)]
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=said, stderr=said)
    yield number
    process.kill()
    process.wait(PATIENCE_SECONDS)


def until(probe: Probe, what: str, wanted: Callable[[Facts], bool]) -> Facts:
    """The first sample of that kind."""

    def sample() -> Facts | None:
        heard = Heard()
        probe.sample(Ask(time.monotonic() + PATIENCE_SECONDS), heard)
        return heard.facts if wanted(heard.facts) else None

    return poll_until(what, sample, 3 * PATIENCE_SECONDS)


def complete(port: int, tokens: int) -> HTTPConnection:
    """A request under way."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    body = {"prompt": "a real prompt " * 50, "max_tokens": tokens, "stream": True, "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    return connection


def test_a_prompt_in_flight_is_seen(tmp_path: Path, port: int) -> None:
    """Loading, idle, reading a prompt, writing, hung up on; what it counts when; and then nobody there."""
    host = EngineHost(tmp_path / "host")
    host.unit("llama.service", [])
    url = f"http://127.0.0.1:{port}/metrics"
    probe = create({**host.options, "engines": [{"unit": "llama.service", "metrics": url}]})
    idle = until(probe, "it serves", lambda facts: facts["metrics_status"] == 200)
    assert (idle["server"], idle["requests_running"], idle["requests_waiting"], idle["generated_tokens"]) == ("llama.cpp", 0, 0, 0)
    assert idle["generation_throughput"] is Missing.UNSUPPORTED

    first = complete(port, 6000)
    until(probe, "it works", lambda facts: facts["requests_running"] == 1)
    second = complete(port, 5)  # one slot: it has to wait
    busy = until(probe, "the prompt has been read", lambda facts: facts["prompt_tokens"] != 0 and facts["requests_waiting"] == 1)
    assert (busy["requests_running"], busy["generated_tokens"]) == (1, 0)  # counted when the request ends

    first.close()
    done = until(probe, "the second is done", lambda facts: facts["requests_running"] == 0 and facts["requests_waiting"] == 0)
    assert b"[DONE]" in second.getresponse().read()
    assert isinstance(done["generated_tokens"], int)
    assert done["generated_tokens"] >= 5
    second.close()
