"""What the loop and the recorder say to each other: one JSON object a line over a socket pair.

    -> {"n":17,"journal":{"v":1,"id":"t-000123",...}}
    -> {"n":18,"sample":{"time":"...","boot_id":"5f0c...","tick":120,"cells":{"host:load_1m":"0.21"}}}
    -> {"n":19,"baseline":{"v":1,"provisional":true,...}}
    -> {"n":0,"log":{"priority":6,"text":"tick 120 took 31 ms","fields":{"tick":120}}}
    -> {"n":0,"publish":{"path":"/var/lib/xidwatch/run/state.json","text":"..."}}
    <- {"recovered":{...}}          once, when the directory is open
    <- {"durable":18}               everything numbered up to 18 is on the disk
    <- {"durable":18,"journal_durable":40}   and of the journal everything up to 40: other files are in trouble
    <- {"trouble":{"what":"journal","errno":28,"text":"No space left on device: /.../2026-09-17.jsonl"}}
    <- {"trouble":null}             it works again

`n` grows; what is numbered is sent again to the next recorder until it is called durable, what has 0 is not. The
sender keeps at most `WINDOW` numbered frames in flight: so the recorder's queue is never full, it never has to stop
reading, and log lines get through while a disk is frozen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec

from xidwatch.records.baseline import Baseline
from xidwatch.records.recovery import RecoveredRecord
from xidwatch.records.samples import Row

T = TypeVar("T")
StreamName = Literal["journal", "samples", "baseline"]  # each has its own files and its own order

WINDOW = 4096  # numbered frames that may be on their way, not yet durable
MAX_LINE = 16 * 1024 * 1024  # bytes, in both directions: an inventory or the recovered state of a large host


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """For people. `priority` as in syslog, 0 to 7."""

    priority: int
    text: str
    fields: dict[str, Any] = {}


class Publish(msgspec.Struct, frozen=True, kw_only=True):
    """A small file to be replaced, not durably; only the latest text of a path matters."""

    path: str
    text: str


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One line to the recorder; one of the keys is set. Journal and baseline stay as they were sent, byte for byte."""

    n: int = 0
    journal: msgspec.Raw = msgspec.Raw()
    sample: Row | None = None
    baseline: msgspec.Raw = msgspec.Raw()
    log: LogLine | None = None
    publish: Publish | None = None

    @property
    def for_files(self) -> bool:
        """Has to become durable."""
        return bool(bytes(self.journal) or self.sample or bytes(self.baseline))

    @property
    def stream(self) -> StreamName:
        """Whose order it keeps, where it has to become durable."""
        if self.sample is not None:
            return "samples"
        return "baseline" if bytes(self.baseline) else "journal"


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing can be written at present."""

    what: str
    errno: int
    text: str


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line from the recorder; one of the keys is set (`journal_durable` beside `durable`). `trouble` None: over."""

    recovered: RecoveredRecord | None = None
    durable: int | None = None
    journal_durable: int | None = None
    trouble: Trouble | msgspec.UnsetType | None = msgspec.UNSET

    @property
    def about_trouble(self) -> bool:
        """It says that trouble began or is over; every other answer says nothing about it."""
        return self.trouble is not msgspec.UNSET


_encoder = msgspec.json.Encoder()
_frames = msgspec.json.Decoder(Frame)
_answers = msgspec.json.Decoder(Answer)


def journal(n: int, record: Mapping[str, object]) -> bytes:
    """A record for the journal."""
    return _line({"n": n, "journal": record})


def sample(n: int, row: Row) -> bytes:
    """A row for the samples."""
    return _line({"n": n, "sample": row})


def baseline(n: int, learnt: Baseline) -> bytes:
    """A new baseline."""
    return _line({"n": n, "baseline": learnt})


def log(priority: int, text: str, fields: Mapping[str, object] | None = None) -> bytes:
    """A line for people."""
    return _line({"n": 0, "log": {"priority": priority, "text": text, "fields": fields or {}}})


def publish(path: str, text: str) -> bytes:
    """A small file to be replaced."""
    return _line({"n": 0, "publish": {"path": path, "text": text}})


def answer(message: Answer) -> bytes:
    """A line from the recorder."""
    return _line(message)


def decode_frame(line: bytes) -> Frame:
    """Raises ValueError for what is no frame."""
    return _decode(_frames, line)


def decode_answer(line: bytes) -> Answer:
    """Raises ValueError for what is no answer."""
    return _decode(_answers, line)


def _line(message: object) -> bytes:
    try:
        return _encoder.encode(message) + b"\n"
    except UnicodeEncodeError:  # the name of a file may be any bytes
        return _encoder.encode(_writable(msgspec.to_builtins(message))) + b"\n"


def _writable(plain: object) -> object:
    """With what is no text shown as escapes: half of a surrogate pair stands for a byte that is none."""
    match plain:
        case str():
            return plain.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {_writable(key): _writable(value) for key, value in plain.items()}
        case list() | tuple():
            return [_writable(each) for each in plain]
    return plain


def _decode(decoder: msgspec.json.Decoder[T], line: bytes) -> T:
    try:
        return decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{error}: {line[:160]!r}") from error


class Lines:
    """Cuts a stream into lines. One that grows beyond `MAX_LINE` is thrown away up to its end."""

    def __init__(self) -> None:
        self.half = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are whole now, without their newlines."""
        *whole, self.half = (self.half + data).split(b"\n")
        if len(self.half) > MAX_LINE:
            self.half = self.half[:160]  # enough for the complaint about it
        return whole
