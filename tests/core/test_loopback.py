"""Which addresses may be asked: this host's own, by number."""

from __future__ import annotations

import pytest

from xidwatch.core.loopback import Endpoint


@pytest.mark.parametrize(
    ("text", "endpoint", "authority"),
    [
        ("http://127.0.0.1:8000/metrics", Endpoint("127.0.0.1", 8000, "/metrics"), "127.0.0.1:8000"),
        ("http://127.0.0.53:8000", Endpoint("127.0.0.53", 8000, "/"), "127.0.0.53:8000"),
        ("http://localhost:30000/metrics?x=1", Endpoint("127.0.0.1", 30000, "/metrics?x=1"), "127.0.0.1:30000"),
        ("http://[::1]:8080/v1", Endpoint("::1", 8080, "/v1"), "[::1]:8080"),
        ("http://127.0.0.1/", Endpoint("127.0.0.1", 80, "/"), "127.0.0.1:80"),
    ],
)
def test_an_address_on_loopback_is_taken(text: str, endpoint: Endpoint, authority: str) -> None:
    """A name that everybody knows stands for its number: nothing is resolved."""
    assert Endpoint.parse(text) == endpoint
    assert endpoint.authority == authority


ELSEWHERE = [
    "http://10.0.0.1:8000/metrics",
    "http://example.org/metrics",
    "http://0.0.0.0:8000/",
    "http://[::]:8000/",
    "http://[2001:db8::1]/x",
]
ELSEWHERE += ["http://localhost.example.org/", "http://user@10.0.0.1/"]
ODD = ["", "127.0.0.1:8000", "https://127.0.0.1:8000/metrics", "unix:///run/x", "http://127.0.0.1:0/", "http://127.0.0.1:65536/"]
ODD += [
    "http://127.0.0.1:8000/a b",
    "http://127.0.0.1:8000/\r\nX: y",
    "http://127.0.0.256:1/",
    "http://127.0.0.1:8000/é",
    "http://127.0.0.1:8000metrics",
]
ODD += ["http://127.0.0.1@10.0.0.1/", "http://user@127.0.0.1:8000/"]


@pytest.mark.parametrize("text", ELSEWHERE)
def test_another_host_is_refused_as_such(text: str) -> None:
    """With what would be right, whatever stands before its name."""
    with pytest.raises(ValueError, match=r"127\.0\.0\.1"):
        Endpoint.parse(text)


@pytest.mark.parametrize("text", ODD)
def test_what_is_no_such_address_is_refused(text: str) -> None:
    """Among them what would smuggle a line into the request."""
    with pytest.raises(ValueError, match=r"127\.0\.0\.1"):
        Endpoint.parse(text)
