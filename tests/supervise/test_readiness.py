"""Whether an engine serves, asked of a page that answers as it is told."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.engine import Page
from xidwatch.core.model import Missing
from xidwatch.probes import engine_http
from xidwatch.probes.engine_http import Answer
from xidwatch.supervise.readiness import MOST_SAID, Pages, Ready, _Token, made_a_token

BOTH = {"data": [{"id": "tiny"}], "choices": [{"text": " world", "finish_reason": "length"}], "usage": {"completion_tokens": 1}}


@pytest.fixture
def page() -> Iterator[Page]:
    with Page() as page:
        yield page


def ask(pages: Pages, seconds: float = 20.0) -> Ready:
    return pages.ask(time.monotonic() + seconds)


def test_a_token_is_asked_for_by_the_name_of_the_first_model(page: Page) -> None:
    """One, of a short prompt."""
    page.says(json.dumps(BOTH))
    base = page.url.removesuffix("/metrics") + "/v1"
    answer = ask(Pages(probe=base))
    assert answer.ready
    assert answer.words.startswith("one token of tiny in ")
    models, completion = page.requests
    assert models.startswith(b"GET /v1/models ")
    head, _, body = completion.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/completions ")
    asked = json.loads(body)
    assert (asked["model"], asked["max_tokens"]) == ("tiny", 1)


def test_a_metrics_page_stands_in_for_a_health_page(page: Page) -> None:
    """A server that has none answers 404, and serves; one that loads answers 503."""
    page.says("", status=404)
    assert ask(Pages(metrics=page.url)) == Ready(ready=True, words="metrics page: 404")
    assert ask(Pages(health=page.url)) == Ready(ready=False, words="health page: 404")
    page.says("", status=503)
    assert not ask(Pages(metrics=page.url)).ready


KEY = "sk-5c1d0f2b"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "api.key"
    path.write_text(f"{KEY}\n")
    return path


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_wants_a_key_serves_and_no_token_is_claimed(page: Page, status: int) -> None:
    """Its answer is no fault of the engine's, and no proof of a token."""
    page.says("{}", status=status)
    assert ask(Pages(probe=page.url)) == Ready(ready=True, words="its API wants a key (no api_key_file says which): no token was made")
    assert b"authorization" not in b"".join(page.requests).lower()


def test_a_key_is_shown_to_the_api_and_to_no_other_page(page: Page, key_file: Path) -> None:
    """Both times: to the list of models and to the completion."""
    page.says(json.dumps(BOTH))
    answer = ask(Pages(health=page.url, probe=page.url, api_key_file=str(key_file)))
    assert answer.ready
    assert "one token of tiny" in answer.words
    health, models, completion = (request.partition(b"\r\n\r\n")[0].split(b"\r\n") for request in page.requests)
    shown = f"Authorization: Bearer {KEY}".encode()
    assert (shown in health, shown in models, shown in completion) == (False, True, True)


def test_a_key_that_is_refused_is_nothing_to_stop_an_engine_for(page: Page, key_file: Path) -> None:
    """It may have been changed in one place and not in the other."""
    page.says(json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}"}}), status=401)
    words = "its API wants a key (and not the one in api_key_file): no token was made"
    assert ask(Pages(probe=page.url, api_key_file=str(key_file))) == Ready(ready=True, words=words)


def test_a_key_that_cannot_be_read_is_said_where_one_is_wanted(page: Page, tmp_path: Path) -> None:
    """An API that asks for none gives its token all the same."""
    pages = Pages(probe=page.url, api_key_file=str(tmp_path / "none"))
    page.says("{}", status=401)
    words = f"its API wants a key ({tmp_path / 'none'}: no such file or directory): no token was made"
    assert ask(pages) == Ready(ready=True, words=words)
    page.says(json.dumps(BOTH))
    assert "one token of tiny" in ask(pages).words


def test_an_api_that_asks_for_the_key_at_the_token_alone_is_no_other(page: Page) -> None:
    """Its list of models is open."""
    unproven = _Token(page.url, "", "why", time.monotonic() + 20.0, time.monotonic)
    answers = iter([Answer(200, json.dumps(BOTH).encode()), Answer(401)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_http, "ask", lambda *_, **__: next(answers))
        assert unproven.ask() == Ready(ready=True, words="its API wants a key (why): no token was made")


@pytest.mark.parametrize("padding", [0, MOST_SAID - 30], ids=["whole", "over the edge of what is said"])
def test_the_key_is_in_no_word_of_the_answer(page: Page, key_file: Path, padding: int) -> None:
    """Whatever the server repeats, and wherever that is cut off; nor in what Python shows of the asker."""
    pages = Pages(probe=page.url, api_key_file=str(key_file))
    page.says(json.dumps({"error": {"message": f"{'x' * padding} in the header Bearer {KEY}"}}), status=500)
    failed = ask(pages)
    page.says(json.dumps({**BOTH, "data": [{"id": f"model-of-{KEY}"}]}))
    ready = ask(pages)
    assert (failed.ready, ready.ready) == (False, True)
    shown = f"{failed.words} {ready.words} {pages} {_Token('http://127.0.0.1/v1', KEY, '', 0.0, time.monotonic)}"
    assert "model-of-[key]" in ready.words
    assert KEY[:4] not in shown


def test_an_engine_that_takes_the_request_and_says_nothing_is_not_ready(page: Page) -> None:
    """As one whose workers are dead; the deadline holds."""
    page.does("silent")
    began = time.monotonic()
    assert ask(Pages(probe=page.url), 0.1) == Ready(ready=False, words="list of models: no answer in time")
    assert time.monotonic() - began < 5


def test_nobody_there_is_not_ready() -> None:
    """As while vLLM loads."""
    assert ask(Pages(health="http://127.0.0.1:1/health")) == Ready(ready=False, words="health page: nobody answers")


def test_the_ports_of_all_pages_are_known() -> None:
    """Each once."""
    pages = Pages("http://127.0.0.1:8000/health", "http://127.0.0.1:9/metrics", "http://localhost:8000/v1")
    assert pages.ports == (9, 8000)


@pytest.mark.parametrize(
    ("said", "made"),
    [
        ({"choices": [{"text": " world"}]}, True),
        ({"choices": [{"text": ""}], "usage": {"completion_tokens": 1}}, True),
        ({"choices": [{"message": {"content": None}}], "usage": {"completion_tokens": 1}}, True),
        ({"choices": [{"text": ""}], "usage": {"completion_tokens": 0}}, False),
        ({"choices": [{"text": "x", "finish_reason": "abort"}], "usage": {"completion_tokens": 1}}, False),
        ({"choices": []}, False),
        ({"choices": [{"text": "x"}], "error": {"message": "EngineCore encountered an issue"}}, False),
        ([], False),
        ("rubbish", False),
    ],
)
def test_an_answer_counts_by_what_it_says(said: object, made: bool) -> None:
    """Status 200 is no proof."""
    assert made_a_token(Answer(200, json.dumps(said).encode())) is made
    assert not made_a_token(Answer(500, json.dumps(said).encode()))
    assert not made_a_token(Answer(Missing.TIMED_OUT))
