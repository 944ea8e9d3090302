"""Whether an engine serves, asked of a page that answers as it is told."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.fakes.engine import Page
from xidwatch.core.model import Missing
from xidwatch.probes.engine_http import Answer
from xidwatch.supervise.readiness import Pages, Ready, made_a_token

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


def test_a_server_that_wants_a_key_is_not_asked_for_a_token(page: Page) -> None:
    """That none was asked for is said."""
    page.says("{}", status=401)
    assert ask(Pages(probe=page.url)) == Ready(ready=True, words="its API wants a key: no token was asked for")


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
