"""Does an engine serve? Its health page says so, and one real token where it offers an API that generates any.

    GET  http://127.0.0.1:8000/health               200; refused or 503 while it loads
    GET  http://127.0.0.1:8000/v1/models            {"data": [{"id": "tiny"}]}
    POST http://127.0.0.1:8000/v1/completions       {"model": "tiny", "prompt": "Hello", "max_tokens": 1}

A health page alone says little: engines have answered 200 with all their workers dead. Nor does the status of a completion: an
answer counts that has choices and no error, and says of itself that a token was made. An API that wants a key, and was given none
or another one, has said nothing about the engine either way: it counts as serving, and that no token was asked for is said.
Sources: OpenAI API reference (completions, chat); vLLM issues 11996, 39863.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xidwatch.core.loopback import Endpoint
from xidwatch.core.model import Missing
from xidwatch.probes import engine_http
from xidwatch.supervise import api_key

PAGE_SECONDS = 5.0
TOKEN_SECONDS = 60.0  # a first token may have kernels to compile before it
OK, SERVER_ERROR = 200, 500
WANTS_KEY = (401, 403)
HIDDEN = "[key]"
MOST_SAID = 120  # characters of what a server says is wrong
IN_WORDS: Mapping[Missing, str] = {
    Missing.ABSENT: "nobody answers",
    Missing.TIMED_OUT: "no answer in time",
    Missing.MALFORMED: "the answer is not HTTP",
}


@dataclass(frozen=True, slots=True)
class Ready:
    """The answer to the question, and what it rests on, in words."""

    ready: bool
    words: str


@dataclass(frozen=True, slots=True)
class Pages:
    """Where an engine is asked; "" for what it does not have. Raises ValueError for what is not on loopback when it is asked.

    `api_key_file`: where the key of its API stands.
    """

    health: str = ""
    metrics: str = ""
    probe: str = ""
    api_key_file: str = ""

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports that it listens on when it runs."""
        return tuple(sorted({Endpoint.parse(page).port for page in (self.health, self.metrics, self.probe) if page}))

    @property
    def has_any(self) -> bool:
        """Whether it can be asked at all."""
        return bool(self.health or self.metrics or self.probe)

    def ask(self, deadline: float, monotonic: Callable[[], float] = time.monotonic) -> Ready:
        """Once, by the deadline (monotonic) at the latest."""
        page = _page(self, deadline, monotonic)
        if not page.ready or not self.probe:
            return page
        key, why_not = _key(self.api_key_file)
        token = _Token(self.probe.rstrip("/"), key, why_not, deadline, monotonic).ask()
        return Ready(token.ready, "; ".join(filter(None, [page.words, token.words])))


def _page(pages: Pages, deadline: float, monotonic: Callable[[], float]) -> Ready:
    """Of a health page 200 is asked. A metrics page is a stand-in for it: any answer but an error of the server shows that it serves."""
    name, url = ("health", pages.health) if pages.health else ("metrics", pages.metrics)
    if not url:
        return Ready(ready=True, words="")
    answer = engine_http.ask(Endpoint.parse(url), min(deadline, monotonic() + PAGE_SECONDS), monotonic=monotonic)
    status = answer.status
    if isinstance(status, Missing):
        return Ready(ready=False, words=f"{name} page: {IN_WORDS.get(status, status)}")
    return Ready(status == OK or (name == "metrics" and status < SERVER_ERROR), f"{name} page: {status}")


def _key(path: str) -> tuple[str, str]:
    """The key, "" without one, and then why."""
    if not path:
        return "", "no api_key_file says which"
    try:
        return api_key.read(Path(path)), ""
    except api_key.NoKey as error:
        return "", str(error)


@dataclass(frozen=True, slots=True)
class _Token:
    """Asks for one, from the API below a base address. `key`: what is shown to it, "" for none, and `why_not` says why."""

    base: str
    key: str = field(repr=False)
    why_not: str
    deadline: float
    monotonic: Callable[[], float]

    def ask(self) -> Ready:
        began = self.monotonic()
        until = min(self.deadline, began + PAGE_SECONDS)
        models = engine_http.ask(Endpoint.parse(f"{self.base}/models"), until, key=self.key, monotonic=self.monotonic)
        if models.status in WANTS_KEY:
            return self._unproven()
        if isinstance(models.status, Missing) or models.status >= SERVER_ERROR:
            return Ready(ready=False, words=f"list of models: {self._said(models)}")
        model = self._without_key(_first_model(models.body))
        first = self._post("completions", {"model": model, "prompt": "Hello", "max_tokens": 1, "temperature": 0})
        if made_a_token(first):
            return Ready(ready=True, words=f"one token of {model} in {self.monotonic() - began:.2f} s")
        if first.status in WANTS_KEY:
            return self._unproven()
        if isinstance(first.status, Missing) or first.status >= SERVER_ERROR or first.status == OK:
            return Ready(ready=False, words=f"no token: {self._said(first)}")
        chat = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1, "temperature": 0}
        second = self._post("chat/completions", chat)
        if made_a_token(second):
            return Ready(ready=True, words=f"one token of {model} in {self.monotonic() - began:.2f} s, from chat")
        return Ready(ready=False, words=f"no token: completions {self._said(first)}, chat {self._said(second)}")

    def _post(self, path: str, body: Mapping[str, object]) -> engine_http.Answer:
        until = min(self.deadline, self.monotonic() + TOKEN_SECONDS)
        endpoint, data = Endpoint.parse(f"{self.base}/{path}"), json.dumps(body).encode()
        return engine_http.ask(endpoint, until, body=data, key=self.key, monotonic=self.monotonic)

    def _unproven(self) -> Ready:
        """Somebody is there, and asks who we are. A wrong key is nothing to stop an engine for."""
        why = self.why_not or "and not the one in api_key_file"
        return Ready(ready=True, words=f"its API wants a key ({why}): no token was made")

    def _said(self, answer: engine_http.Answer) -> str:
        if isinstance(answer.status, Missing):
            return IN_WORDS.get(answer.status, answer.status)
        error = _object(answer.body).get("error")
        text = error.get("message", "") if isinstance(error, dict) else error or ""
        return f"{answer.status} {self._without_key(' '.join(str(text).split()))[:MOST_SAID]}".rstrip()

    def _without_key(self, text: str) -> str:
        """Servers there are that repeat it."""
        return text.replace(self.key, HIDDEN) if self.key else text


def made_a_token(answer: engine_http.Answer) -> bool:
    """By what it says of itself. One that counts nothing is believed by its text, which may be empty: a special token has none."""
    if answer.status != OK:
        return False
    said = _object(answer.body)
    choices = said.get("choices")
    if "error" in said or not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return False
    usage = said.get("usage")
    counted = usage.get("completion_tokens") if isinstance(usage, dict) else None
    if isinstance(counted, int):
        return counted >= 1 and choices[0].get("finish_reason") not in {"abort", "error"}
    return isinstance(choices[0].get("text"), str) or isinstance(choices[0].get("message"), dict)


def _first_model(body: bytes) -> str:
    listed = _object(body).get("data")
    first = listed[0] if isinstance(listed, list) and listed else None
    return str(first.get("id", "")) if isinstance(first, dict) else ""


def _object(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
