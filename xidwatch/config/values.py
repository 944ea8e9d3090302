"""What a single value may be. Each check raises ValueError with words that say what is wanted and what was found."""

from __future__ import annotations

import ipaddress
import math
import re

from xidwatch.core import sensors
from xidwatch.core.loopback import Endpoint
from xidwatch.core.model import PciAddress
from xidwatch.core.rules import seconds

MOST_WATTS = 5000.0  # of one GPU, with room for what is to come
_PERCENT = re.compile(r"([0-9]{1,2}(?:\.[0-9]{1,4})?)%")


def at_least(duration: str, least: float) -> None:
    """A duration of at least so many seconds."""
    if seconds(duration) < least:
        raise ValueError(f'must be at least "{least:g}s", not "{duration}"')


def between(duration: str, least: float, most: float) -> None:
    """A duration of so many seconds."""
    at_least(duration, least)
    if seconds(duration) > most:
        raise ValueError(f'must be at most "{most:g}s", not "{duration}"')


def at_least_one(number: int, most: int) -> None:
    """A count."""
    if not 1 <= number <= most:
        raise ValueError(f"must be at least 1 and at most {most}, not {number}")


def watts(limit: float) -> None:
    """Of one GPU; 0 for what was learnt."""
    if not math.isfinite(limit) or not 0 <= limit <= MOST_WATTS:
        raise ValueError(f"must be watts, or 0 for those that were accepted with the baseline, not {limit:g}")


def absolute(path: str) -> None:
    """A full path."""
    if not path.startswith("/"):
        raise ValueError(f'must be a full path, beginning with "/", not "{path}"')


def address(text: str) -> None:
    """Where to listen: an IP address and a port; empty for nowhere."""
    if not text:
        return
    host, _, port = text.rpartition(":")
    try:
        ipaddress.ip_address(host.strip("[]"))
        good = port.isdecimal() and int(port) < 65536
    except ValueError:
        good = False
    if not good:
        raise ValueError(f'"{text}" is not an address to listen on (an IP address and a port, as in "127.0.0.1:20079", or "" for none)')


def loopback(text: str) -> None:
    """Something to ask on this host; empty for nothing."""
    if text:
        Endpoint.parse(text)


def gpus(chosen: str | tuple[str, ...]) -> None:
    """Those found, all of them, or a list of addresses with each once."""
    if isinstance(chosen, str):
        if chosen not in {"found", "all"}:
            raise ValueError(f'must be "found", "all" or a list of PCI addresses, not "{chosen}"')
        return
    if not chosen:
        raise ValueError('an engine without GPUs needs no list: leave `gpus` out, or write "found"')
    names = [str(PciAddress.parse(each)) for each in chosen]
    if len(set(names)) < len(names):
        raise ValueError("a GPU is named twice")


def percent(text: str) -> float:
    """A share with its sign (`5%`, more than 0 and less than 50) as a ratio. Raises ValueError."""
    found = _PERCENT.fullmatch(text)
    if not found or not 0 < float(found[1]) < 50:
        raise ValueError(f'must be a share above 0 and below 50 with its sign, as in "5%", not "{text}"')
    return float(found[1]) / 100


def match(pattern: re.Pattern[str], words: str, text: str) -> None:
    """A text of this shape; `words` say which."""
    if not pattern.fullmatch(text):
        raise ValueError(f'{words}, not "{text}"')


def not_zero(number: float) -> None:
    """A factor, or a voltage."""
    if not math.isfinite(number) or number == 0:
        raise ValueError(f"must be a number other than 0, not {number:g}")


def driver(name: str) -> None:
    """A driver of sensor chips that are left alone otherwise."""
    known = sorted(row.driver for row in sensors.OPT_IN)
    if name not in known:
        raise ValueError(f'"{name}" is no driver that is left alone (those are: {", ".join(known)}); all others are read anyway')
