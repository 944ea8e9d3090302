"""An inference engine's outside: a server that answers a prompt, and worker processes. `engine.py [--deaf] [--stuck FILE] [--port N]`.

`--deaf`: the workers ignore TERM. `--stuck FILE`: one of them creates that file, which on a frozen filesystem takes for ever.
"""

import argparse
import http.server
import json
import os
import signal
import sys
from collections.abc import Mapping

PORT = 8000
ANSWER = {
    "id": "cmpl-1",
    "object": "text_completion",
    "model": "rig",
    "choices": [{"index": 0, "text": " world", "finish_reason": "length"}],
}


class Handler(http.server.BaseHTTPRequestHandler):
    """/health, /v1/models and /v1/completions."""

    def do_GET(self) -> None:
        """Well, and one model."""
        self._answer({"object": "list", "data": [{"id": "rig", "object": "model"}]})

    def do_POST(self) -> None:
        """One token for any prompt."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(ANSWER)

    def _answer(self, plain: Mapping[str, object]) -> None:
        data = json.dumps(plain).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def worker(*, deaf: bool, stuck: str) -> None:
    """In a process of its own, until told to go. Deaf from its first instruction on: it inherits that."""
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork():
        return
    if stuck:
        os.open(stuck, os.O_CREAT | os.O_WRONLY)
    while True:
        signal.pause()


def main() -> None:
    """Two workers, then the server."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--deaf", action="store_true")
    parser.add_argument("--stuck", default="")
    parser.add_argument("--port", type=int, default=PORT)
    given = parser.parse_args()
    worker(deaf=given.deaf, stuck="")
    worker(deaf=given.deaf, stuck=given.stuck)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    http.server.ThreadingHTTPServer(("127.0.0.1", given.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
