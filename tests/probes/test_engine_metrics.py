"""Metrics pages of engines, recorded and made up: what is read of them, and what nobody can make of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core.model import Missing, Value
from xidwatch.core.quantities import BY_NAME
from xidwatch.probes.engine_metrics import QUANTITIES, READ, Mark, rates, read

PAGES = Path(__file__).resolve().parents[2] / "fixtures" / "engine-metrics"
NONE = dict.fromkeys(READ, Missing.ABSENT)

READINGS: dict[str, tuple[str, dict[str, Value]]] = {
    "llamacpp-busy": (
        "llama.cpp",
        {
            "requests_running": 2,
            "requests_waiting": 1,
            "prompt_tokens": 404,
            "generated_tokens": 0,
            "generation_throughput": Missing.UNSUPPORTED,
        },
    ),
    "llamacpp-after": (
        "llama.cpp",
        {"requests_running": 0, "requests_waiting": 0, "generated_tokens": 1000, "prompt_tokens": 405},
    ),
    "vllm": (
        "vllm",
        {
            "requests_running": 5,
            "requests_waiting": 4,
            "prompt_tokens": 383000,
            "generated_tokens": 5200,
            "kv_cache_usage_ratio": 0.8125,
            "generation_throughput": Missing.ABSENT,
        },
    ),
    "vllm-0.5": (
        "vllm",
        {
            "requests_running": 1,
            "requests_waiting": 7,
            "prompt_tokens": 100,
            "generated_tokens": 50,
            "kv_cache_usage_ratio": 0.5,
            "generation_throughput": 61.5,
        },
    ),
    "sglang": (
        "sglang",
        {
            "requests_running": 162,
            "requests_waiting": 2826,
            "prompt_tokens": 8128902,
            "generated_tokens": 7557572,
            "kv_cache_usage_ratio": 0.28,
            "generation_throughput": 86.5,
        },
    ),
}


@pytest.mark.parametrize("name", READINGS)
def test_a_page_is_read_by_the_names_of_its_engine(name: str) -> None:
    """Engines of one server add up, ranks of one model count once, of caches the fullest is told; histograms are left alone."""
    page = read((PAGES / f"{name}.txt").read_bytes())
    server, wanted = READINGS[name]
    assert page.server == server
    assert {quantity: page.values[quantity] for quantity in wanted} == wanted
    assert set(page.values) == set(READ)


@pytest.mark.parametrize("name", READINGS)
def test_underscores_for_colons_and_windows_line_ends_change_nothing(name: str) -> None:
    """Some set-ups rewrite the one, some proxies the other."""
    body = (PAGES / f"{name}.txt").read_bytes()
    server, _ = READINGS[name]
    for prefix in (b"vllm", b"sglang", b"llamacpp"):
        body = body.replace(prefix + b":", prefix + b"_")
    assert read(body.replace(b"\n", b"\r\n")) == read((PAGES / f"{name}.txt").read_bytes())
    assert read(body).server == server


def test_every_quantity_is_in_the_table() -> None:
    """With its meaning and source."""
    assert set(QUANTITIES) <= set(BY_NAME)


ODD: dict[str, tuple[bytes, Value]] = {
    "not a number": (b"vllm:num_requests_running NaN\n", Missing.MALFORMED),
    "infinite": (b"vllm:num_requests_running +Inf\n", Missing.MALFORMED),
    "negative": (b"vllm:num_requests_running -1\n", Missing.MALFORMED),
    "a word": (b"vllm:num_requests_running many\n", Missing.MALFORMED),
    "one of two is none": (b'vllm:num_requests_running{engine="0"} 1\nvllm:num_requests_running{engine="1"} NaN\n', Missing.MALFORMED),
    "one of two ranks is none": (
        b'vllm:num_requests_running{tp_rank="0"} NaN\nvllm:num_requests_running{tp_rank="1"} 1\n',
        Missing.MALFORMED,
    ),
    "braces and quotes in a label": (b'vllm:num_requests_running{model_name="a \\"}{\\" b, c=\\"d",engine="0"} 2\n', 2),
    "a time stamp": (b"vllm:num_requests_running 3 1796068602000\n", 3),
    "an exemplar": (b'vllm:num_requests_running{engine="0"} 3 # {trace_id="x"} 1.0\n', 3),
    "without its total": (b"vllm:num_requests_running 3\n", 3),
    "a longer name": (b"vllm:num_requests_running_ever 3\n", Missing.ABSENT),
    "a name within a line": (b"x vllm:num_requests_running 3\nvllm:other 1\n", Missing.ABSENT),
    "a label that never ends": (b'vllm:num_requests_running{model="' + b"x" * 100_000 + b"\n", Missing.ABSENT),
    "the last line cut": (b"vllm:num_requests_running{engine=", Missing.ABSENT),
    "no number": (b"vllm:num_requests_running \n", Missing.ABSENT),
    "only a help line": (b"# HELP vllm:num_requests_running x\n", Missing.ABSENT),
}


@pytest.mark.parametrize(("body", "value"), ODD.values(), ids=ODD)
def test_an_odd_line_is_read_or_called_malformed_and_never_guessed(body: bytes, value: Value) -> None:
    """A figure is what the page says, or there is none."""
    page = read(body)
    assert page.server == "vllm"
    assert page.values["requests_running"] == value


@pytest.mark.parametrize("body", [b"", b"<html>no</html>", b"\xff\xfe\x00", b"# EOF\n", b"node_load1 0.3\n"])
def test_a_page_of_nobody_known_says_so(body: bytes) -> None:
    """UNSUPPORTED, for all of it."""
    page = read(body)
    assert page.server == ""
    assert set(page.values.values()) == {Missing.UNSUPPORTED}


@pytest.mark.slow
def test_four_megabytes_are_read_in_a_second_whatever_is_in_them() -> None:
    """Empty lines, one endless line, a label without an end on every line."""
    size = 4 * 1024 * 1024
    for line in (b"\n", b"x", b'vllm:num_requests_running{a="\n', b"vllm:num_requests_running 1\n", b"vllm:"):
        began = time.process_time()
        read((line * (size // len(line) + 1))[:size])
        assert time.process_time() - began < 5


@given(st.binary(max_size=400))
def test_whatever_is_sent_is_a_page(body: bytes) -> None:
    """Never an error."""
    assert set(read(b"vllm:" + body).values) == set(READ)


# --- rates


def mark(mono: float, prompt: Value, generated: Value = 0, invocation: str = "a") -> Mark:
    return Mark(mono, invocation, {"prompt_tokens": prompt, "generated_tokens": generated})


def test_a_rate_is_the_mean_between_two_ticks() -> None:
    """Two minutes of prompts before a loss are worth more than a total."""
    assert rates(mark(100, 1000, 10), mark(130, 391000, 70)) == {"prompt_tokens_per_second": 13000, "generated_tokens_per_second": 2}


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (None, mark(130, 5), Missing.NOT_ASKED),
        (mark(100, 5), mark(130, 4), Missing.NOT_ASKED),
        (mark(100, 5), mark(130, 6, invocation="b"), Missing.NOT_ASKED),
        (mark(100, 5), mark(100.1, 6), Missing.NOT_ASKED),
        (mark(100, 5), mark(130, Missing.ABSENT), Missing.ABSENT),
        (mark(100, Missing.ABSENT), mark(130, 6), Missing.NOT_ASKED),
    ],
    ids=["first", "counter fell", "another run", "no time", "no counter", "no counter before"],
)
def test_without_two_counts_of_one_run_there_is_no_rate(before: Mark | None, after: Mark, reason: Missing) -> None:
    """A restart is no negative rate, and a start no huge one."""
    assert rates(before, after)["prompt_tokens_per_second"] is reason
