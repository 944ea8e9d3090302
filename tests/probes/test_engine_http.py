"""Questions over HTTP on loopback: whole answers, and every way a server can withhold one."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from tests.fakes.engine import Page
from xidwatch.core.loopback import Endpoint
from xidwatch.core.model import Missing
from xidwatch.probes.engine_http import MOST_BYTES, Answer, ask_all

SECONDS = 60.0  # nobody needs them
SHORT_SECONDS = 0.15  # nobody answers in them
ENOUGH_SECONDS = 1.0  # whoever answers does, on a busy machine too
BODY = "vllm:num_requests_running 3\n"


@pytest.fixture
def page() -> Iterator[Page]:
    with Page() as page:
        yield page


def ask(page: Page, seconds: float = SECONDS) -> Answer:
    return ask_all({"it": Endpoint.parse(page.url)}, time.monotonic() + seconds)["it"]


def test_a_page_is_asked_for_plainly(page: Page) -> None:
    """One request, with the host it is for, and no word that keeps the connection."""
    page.says(BODY)
    assert ask(page) == Answer(200, BODY.encode())
    (request,) = page.requests
    port = page.url.split(":")[2].split("/")[0]
    assert request.startswith(f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode())
    assert b"\r\nConnection: close\r\n" in request


def test_either_version_of_ip_will_do() -> None:
    """As configured, by number."""
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        six = Page("::1")
    except OSError:
        pytest.skip("no IPv6 loopback here")
    with six as page:
        page.says(BODY)
        assert ask(page).body == BODY.encode()


WHOLE = {
    "until the end": b"HTTP/1.0 200 OK\r\n\r\n" + BODY.encode(),
    "in chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nvllm\r\n18\r\n:num_requests_running 3\n\r\n0\r\n\r\n",
    "after a greeting": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 28\r\n\r\n" + BODY.encode(),
}


@pytest.mark.parametrize("data", WHOLE.values(), ids=WHOLE)
def test_however_a_body_ends_it_is_read(page: Page, data: bytes) -> None:
    """By its length, by its chunks, by the end of the connection."""
    page.sends(data)
    assert ask(page) == Answer(200, BODY.encode())


@pytest.mark.parametrize("status", [204, 302, 401, 404, 500, 503])
def test_the_status_is_told_and_no_redirect_followed(page: Page, status: int) -> None:
    """What it means is for others to say; the way to another host is not taken."""
    page.says("" if status == 204 else "x", status, "Location: http://127.0.0.1:1/elsewhere")
    assert ask(page).status == status
    assert len(page.requests) == 1


def test_a_connection_that_stays_open_is_not_waited_for(page: Page) -> None:
    """The announced length is there: that is all."""
    page.keeps_open(BODY)
    began = time.monotonic()
    assert ask(page) == Answer(200, BODY.encode())
    assert time.monotonic() - began < SECONDS / 2


@pytest.mark.parametrize(
    ("deed", "status"),
    [("half", Missing.MALFORMED), ("rubbish", Missing.MALFORMED), ("reset", Missing.ABSENT), ("flood", Missing.MALFORMED)],
)
def test_less_or_more_than_an_answer_is_none(page: Page, deed: str, status: Missing) -> None:
    """Half a page would pass for a whole one, and an endless one for patience; nothing of it is kept."""
    page.does(deed)
    assert ask(page) == Answer(status)


def test_an_answer_of_the_longest_kind_is_taken(page: Page) -> None:
    """The bound is on what is too much, not on what is much."""
    page.says("#" * MOST_BYTES)
    assert len(ask(page).body) == MOST_BYTES


@pytest.mark.parametrize("deed", ["silent", "drip"])
def test_the_deadline_is_absolute(page: Page, deed: str) -> None:
    """A byte now and then buys no time."""
    page.does(deed)
    began = time.monotonic()
    assert ask(page, SHORT_SECONDS) == Answer(Missing.TIMED_OUT)
    assert time.monotonic() - began < SECONDS


def test_nobody_listening_is_no_answer_at_once() -> None:
    """Refused: the engine is not there, or not yet."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can take it
        port = taken.getsockname()[1]
        answers = ask_all({"it": Endpoint("127.0.0.1", port, "/")}, time.monotonic() + SECONDS)
    assert answers == {"it": Answer(Missing.ABSENT)}


def test_one_that_hangs_costs_the_others_nothing(page: Page) -> None:
    """They are asked at the same time, and all have answered when it has not."""
    page.does("silent")
    with Page() as good:
        good.says(BODY)
        endpoints = {"hangs": Endpoint.parse(page.url), **{f"good{n}": Endpoint.parse(good.url) for n in range(5)}}
        answers = ask_all(endpoints, time.monotonic() + ENOUGH_SECONDS)
    assert answers.pop("hangs") == Answer(Missing.TIMED_OUT)
    assert answers == {f"good{n}": Answer(200, BODY.encode()) for n in range(5)}


def test_without_anybody_to_ask_there_is_nothing_to_wait_for() -> None:
    """And a deadline that has passed is no error."""
    assert ask_all({}, time.monotonic() + SECONDS) == {}
    assert ask_all({"it": Endpoint("127.0.0.1", 9, "/")}, 0.0)["it"].status in {Missing.ABSENT, Missing.TIMED_OUT}
