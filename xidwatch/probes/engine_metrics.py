"""What inference engines say of themselves on their metrics pages: a table of names, a reader, and rates.

    vllm:num_requests_running{engine="0",model_name="llama"} 3.0        vLLM; several engines of one server: summed
    sglang:num_running_reqs{model_name="llama",tp_rank="0"} 3.0         SGLang; every rank tells the same: counted once
    llamacpp:requests_processing 3                                      llama.cpp, started with --metrics

Read here rather than by a client library's parser: a page may be cut, wrong or hostile, and eight names are wanted of hundreds. Some
set-ups write `_` for `:`, and counters have been there with and without `_total`. `_created` and the parts of histograms have
names of their own and are never met.

Measured on llama.cpp (build 11549): its token counters move when a prompt has been read and when a request ends, and stand
still for as long as an answer is being written. So a counter that stands still is no proof that an engine does.

Sources: vLLM's metrics page (docs.vllm.ai, usage/metrics) and one recorded from 0.32; SGLang's production metrics
(docs.sglang.io, references/production_metrics); tools/server/README.md of llama.cpp; Prometheus' text exposition format.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from xidwatch.core.model import Missing, Value

RATE_WINDOW_SECONDS = 0.2  # over a shorter time a difference says little
WHOLE_UNTIL = 2.0**53

Names = tuple[str, ...]

# Quantity to the names it goes by, the newest first; `:` written as `_`, `_total` left out.
SERVERS: dict[str, tuple[str, Mapping[str, Names]]] = {
    "vllm": (
        "vllm",
        {
            "requests_running": ("num_requests_running",),
            "requests_waiting": ("num_requests_waiting",),
            "prompt_tokens": ("prompt_tokens",),
            "generated_tokens": ("generation_tokens",),
            "generation_throughput": ("avg_generation_throughput_toks_per_s",),
            "kv_cache_usage_ratio": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
        },
    ),
    "sglang": (
        "sglang",
        {
            "requests_running": ("num_running_reqs",),
            "requests_waiting": ("num_queue_reqs",),
            "prompt_tokens": ("prompt_tokens",),
            "generated_tokens": ("generation_tokens",),
            "generation_throughput": ("gen_throughput",),
            "kv_cache_usage_ratio": ("token_usage",),
        },
    ),
    "llama.cpp": (
        "llamacpp",
        {
            "requests_running": ("requests_processing",),
            "requests_waiting": ("requests_deferred",),
            "prompt_tokens": ("prompt_tokens",),
            "generated_tokens": ("tokens_predicted",),
            "kv_cache_usage_ratio": ("kv_cache_usage_ratio",),
        },
    ),
}
RATES = {"prompt_tokens_per_second": "prompt_tokens", "generated_tokens_per_second": "generated_tokens"}
READ = ("requests_running", "requests_waiting", "prompt_tokens", "generated_tokens", "generation_throughput", "kv_cache_usage_ratio")
QUANTITIES = (*READ, *RATES)
SHARES = frozenset({"kv_cache_usage_ratio"})  # of several the fullest; all else adds up
# Ranks of one model work on the same requests and each tell of them.
RANKS = frozenset({"tp_rank", "pp_rank", "ep_rank", "moe_ep_rank", "pid"})

_PREFIX = re.compile(rf"^(?:# (?:HELP|TYPE) )?({'|'.join(prefix for prefix, _ in SERVERS.values())})[:_]", re.MULTILINE)
_WANTED = {f"{prefix}_{name}" for prefix, table in SERVERS.values() for names in table.values() for name in names}
_BARE = "|".join(sorted({name.partition("_")[2] for name in _WANTED}, key=len, reverse=True))
_SAMPLE = re.compile(
    rf"^((?:{'|'.join(prefix for prefix, _ in SERVERS.values())})[:_](?:{_BARE}))(?:_total)?"
    r'(?:\{((?:[^"{}\n]|"(?:[^"\\\n]|\\.)*")*)\})?[ \t]+([^\s#]+)',
    re.MULTILINE,
)
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Page:
    """What a page says. `server`: "" when it is none that is known here."""

    server: str
    values: Mapping[str, Value]


def read(body: bytes) -> Page:
    """Every quantity of the table: ABSENT for one that this engine has and does not show (yet), UNSUPPORTED for one that it has not."""
    text = body.decode("utf-8", "replace").replace("\r", "")
    first = _PREFIX.search(text)
    if first is None:
        return Page("", dict.fromkeys(READ, Missing.UNSUPPORTED))
    server, (prefix, table) = next((name, row) for name, row in SERVERS.items() if row[0] == first[1])
    series: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for name, labels, number in _SAMPLE.findall(text):
        _add(series.setdefault(name.replace(":", "_"), {}), labels, number)
    found: dict[str, Value] = {}
    for quantity in READ:
        names = [f"{prefix}_{name}" for name in table.get(quantity, ())]
        shown = next((series[name] for name in names if name in series), None)
        absent = Missing.ABSENT if names else Missing.UNSUPPORTED
        found[quantity] = absent if shown is None else _together(quantity, list(shown.values()))
    return Page(server, found)


def _add(known: dict[frozenset[tuple[str, str]], float], labels: str, number: str) -> None:
    """Of those that differ in nothing but their rank the largest."""
    who = frozenset((name, value) for name, value in _LABEL.findall(labels) if name not in RANKS)
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    known[who] = max(known.get(who, value), value) if math.isfinite(value) else value


def _together(quantity: str, values: list[float]) -> Value:
    if not all(math.isfinite(value) and value >= 0 for value in values):
        return Missing.MALFORMED
    total = float(max(values) if quantity in SHARES else sum(values))
    return int(total) if total.is_integer() and total < WHOLE_UNTIL and quantity not in SHARES else total


@dataclass(frozen=True, slots=True)
class Mark:
    """The counters at one monotonic time, in one run of the unit."""

    mono: float
    invocation: str
    values: Mapping[str, Value]


def rates(before: Mark | None, after: Mark) -> dict[str, Value]:
    """Mean rates between two marks; NOT_ASKED without a first one, over too short a time, or when the engine was started anew."""
    found: dict[str, Value] = {}
    for rate, counter in RATES.items():
        now, then = after.values.get(counter, Missing.NOT_ASKED), before.values.get(counter) if before else None
        if isinstance(now, str):
            found[rate] = now  # why there is none
        elif before is None or not isinstance(then, int | float) or _has_begun_anew(before, after, then, now):
            found[rate] = Missing.NOT_ASKED
        else:
            found[rate] = (now - then) / (after.mono - before.mono)
    return found


def _has_begun_anew(before: Mark, after: Mark, then: float, now: float) -> bool:
    return now < then or before.invocation != after.invocation or after.mono - before.mono < RATE_WINDOW_SECONDS
