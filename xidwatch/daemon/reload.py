"""Reading the configuration again is reading a disk: a child does it, and the loop takes the answer or does without."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from xidwatch.config import (
    Config,
    ConfigError,
    Rules,
    as_mapping,
    both,
    load_checked_config,
    parse_config,
    parse_rules,
    rule_tables,
)
from xidwatch.daemon import frames
from xidwatch.daemon.channel import Channel
from xidwatch.daemon.loop import Loop
from xidwatch.daemon.nursery import Nursery

SECONDS = 5.0
MAX_LINE = 4 * 1024 * 1024  # bytes: the rules take about 50 KB


def main(channel: socket.socket, options: Mapping[str, Any]) -> None:
    """As a child of the nursery: read, check, tell."""
    try:
        path, places = options.get("path"), [Path(place) for place in options.get("rules", ())]
        config, tables = both(
            lambda: load_checked_config(Path(path) if path else None, float(options["watchdog_seconds"])),
            lambda: rule_tables(*places) if places else None,
        )
        answer: dict[str, object] = {"config": as_mapping(config), **({"rules": tables} if tables is not None else {})}
    except ConfigError as error:
        answer = {"problems": error.problems}
    channel.sendall(frames.encode(answer))


class Reload:
    """One reading under way. `on_end(config, problems)` is called once; exactly one of the two is set.

    `rules`: where they are and where a site changes them; by the time of `on_end` what they hold, None when that was not asked.
    """

    def __init__(
        self,
        loop: Loop,
        nursery: Nursery,
        path: Path | None,
        watchdog_seconds: float,
        on_end: Callable[[Config | None, list[str]], None],
        rules: tuple[Path, Path] | None = None,
    ) -> None:
        self._on_end: Callable[[Config | None, list[str]], None] | None = on_end
        self.rules: Rules | None = None
        options: dict[str, object] = {"path": str(path) if path else "", "watchdog_seconds": watchdog_seconds}
        if rules:
            options["rules"] = [str(place) for place in rules]
        _, sock = nursery.start("xidwatch.daemon.reload:main", "reload", options)
        ended = "the reader ended without an answer"
        self._channel = Channel(loop, sock, self._line, lambda why: self._end(None, [f"{ended} {why}".strip()]), max_line=MAX_LINE)
        loop.after(SECONDS, lambda: self._end(None, [f"no answer within {SECONDS:g} s: is the disk hanging?"]))

    def _line(self, line: bytes) -> None:
        answer = frames.decode(line)
        if "config" in answer:
            self.rules = parse_rules(answer["rules"]) if "rules" in answer else None
            self._end(parse_config(answer["config"]), [])
        else:
            self._end(None, list(answer["problems"]))

    def _end(self, config: Config | None, problems: list[str]) -> None:
        callback, self._on_end = self._on_end, None
        if callback:
            callback(config, problems)

    @property
    def is_over(self) -> bool:
        """The reader has ended; one that hangs on a disk has not, and another would hang beside it."""
        return not self._channel.open
