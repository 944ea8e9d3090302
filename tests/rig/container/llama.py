"""A real llama.cpp server as the engine on the container's host, with the wheel of the environment that runs the tests.

    engine = Llama(new_host(views=llama.views()))

The model of noise is written outside, so that a server which is anybody's need only read it.
"""

from __future__ import annotations

import importlib.util
import json
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path

from tests.daemon.harness import PATIENCE_SECONDS
from tests.fakes import llama
from tests.rig.container.disk import ROOT
from tests.rig.container.engine import Engine
from tests.rig.container.host import Host

WHEELS = "/rig/wheels"
STOP_SECONDS = 20  # it ends streams between two of its pings, here a second
LONG_TOKENS = 7000  # seconds, on any machine


def views() -> dict[str, Path]:
    """What of this machine the container has to see."""
    found = importlib.util.find_spec(llama.MODULE)
    assert found
    assert found.origin
    return {f"{WHEELS}/{llama.MODULE}": Path(found.origin).parent}


class Llama(Engine):
    """`key`: what its API wants."""

    program = ROOT / "tests/fakes/llama.py"
    command = "/usr/bin/python3 /rig/llama.py /rig/noise.gguf {port} {manners}"
    ready_within = "3m"
    more_config = 'health = "http://127.0.0.1:{port}/health"\nmetrics = "http://127.0.0.1:{port}/metrics"\n'

    def __init__(self, host: Host, *, key: str = "", more: str = "", more_config: str = "") -> None:
        self.more_config += more_config
        llama.write_model(host.tree.root.parent / "noise.gguf")
        own = f"Environment=PYTHONPATH={WHEELS} PYTHONDONTWRITEBYTECODE=1\n"
        super().__init__(host, key, stop_seconds=STOP_SECONDS, more=own + more)

    def works(self, prompts: int = 3) -> ExitStack:
        """So many prompts under way, which it takes one at a time; leaving hangs up."""
        under_way = ExitStack()
        body = {"prompt": "Hello", "max_tokens": LONG_TOKENS, "stream": True, "ignore_eos": True}
        for _ in range(prompts):
            connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
            under_way.callback(connection.close)
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        return under_way
