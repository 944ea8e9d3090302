"""Is an engine ready? Its health page says 200, and where it speaks OpenAI's API it gives one real token.

    GET  /health HTTP/1.1                                   200; 503 while a model is loaded
    GET  /v1/models                                         {"object":"list","data":[{"id":"meta-llama/Llama-3.1-70B",...}]}
    POST /v1/completions  {"model":"...","prompt":"Hello","max_tokens":1,"temperature":0}
                                                            {"choices":[{"text":" world",...}],...}
    POST /v1/chat/completions, for a server that has no /completions

A health page proves that a front end lives; only a token goes through the GPUs.
Sources: OpenAI's API reference (completions, chat, models); vLLM, SGLang and llama.cpp serve all three.
"""

from __future__ import annotations

import http.client
import json
from typing import Any

from xidwatch.core.loopback import Endpoint

OK = 200
NOT_THERE = (404, 405, 501)
PAGE_SECONDS = 5.0
TOKEN_SECONDS = 120.0  # the first one may compile kernels
MOST_BYTES = 4 * 1024 * 1024
PROMPT = "Hello"


def page(endpoint: Endpoint) -> str:
    """What it says instead of 200; empty when it says that."""
    status, _ = _ask(endpoint, endpoint.path, None, PAGE_SECONDS)
    return "" if status == OK else f"{endpoint.path}: {status}"


def token(base: Endpoint) -> tuple[str, str]:
    """The token it gave, and why there is none, of which one is empty."""
    root = base.path.rstrip("/")
    status, listed = _ask(base, f"{root}/models", None, PAGE_SECONDS)
    names = [str(each.get("id", "")) for each in _list(listed, "data")]
    if status != OK or not names:
        return "", f"{root}/models: {status if status != OK else 'names no model'}"
    status, said = _ask(
        base, f"{root}/completions", {"model": names[0], "prompt": PROMPT, "max_tokens": 1, "temperature": 0}, TOKEN_SECONDS
    )
    if status in NOT_THERE:
        message = {"role": "user", "content": PROMPT}
        asked = {"model": names[0], "messages": [message], "max_tokens": 1, "temperature": 0}
        status, said = _ask(base, f"{root}/chat/completions", asked, TOKEN_SECONDS)
    if status != OK:
        return "", f"completions: {status}"
    choices = _list(said, "choices")
    return (_text(choices[0]), "") if choices else ("", "completions: an answer without a choice")


def _text(choice: dict[str, Any]) -> str:
    """One token may be nothing that can be seen, and is one."""
    message = choice.get("message")
    return str((message.get("content") if isinstance(message, dict) else choice.get("text")) or "")


def _list(answer: Any, key: str) -> list[dict[str, Any]]:
    found = answer.get(key) if isinstance(answer, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _ask(endpoint: Endpoint, path: str, body: object, seconds: float) -> tuple[int | str, Any]:
    """Status, and the answer where it is JSON; a word instead of a status when there was no answer."""
    connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=seconds)
    try:
        data = None if body is None else json.dumps(body)
        connection.request("GET" if data is None else "POST", path, data, {"Content-Type": "application/json", "Connection": "close"})
        response = connection.getresponse()
        return response.status, _json(response.read(MOST_BYTES))
    except TimeoutError:
        return "no answer in time", None
    except (OSError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__, None
    finally:
        connection.close()


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
