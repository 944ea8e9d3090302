"""What bytes are: text or not, and of which width.

Text in UTF-16 (as PowerShell and some journal viewers save it) becomes UTF-8; whatever else the bytes are, they are handed on as they are.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from itertools import chain

SAMPLE_BYTES = 4096  # of each chunk: is it text?
_TEXT = bytes({*range(0x20, 0x7F), *range(0x80, 0x100), 0, 7, 8, 9, 10, 12, 13, 27})
_MOST_CONTROL = 0.03  # the share of other bytes that text may hold; a random file has a tenth of them
_JOURNAL = b"LPKSHHRH"
JOURNAL_HINT = "a journal file of systemd, not text: use `journalctl --file FILE -o export | xidwatch decode -`"
_ZIP = b"PK\x03\x04"


def what_else(chunk: bytes, *, first: bool) -> str | None:
    """In words, when a chunk is not text."""
    if first and chunk.startswith(_JOURNAL):
        return JOURNAL_HINT
    if first and chunk.startswith(_ZIP):
        return "a zip archive, not text: unpack it first"
    sample = chunk[:SAMPLE_BYTES]
    control = len(sample.translate(None, _TEXT))
    return "not text, or damaged: only what looks like a log in it was read" if control > _MOST_CONTROL * len(sample) else None


def as_utf8(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The same text; UTF-16 becomes UTF-8."""
    first = next((chunk for chunk in chunks if chunk), b"")
    encoding = wide(first)
    if encoding is None:
        yield from chain([first.removeprefix(codecs.BOM_UTF8)], chunks)
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for chunk in chain([first], chunks):
        yield decoder.decode(chunk).lstrip("\ufeff").encode("utf-8", "replace")


def wide(head: bytes) -> str | None:
    """UTF-16 by its mark, or because every other byte of the beginning is zero."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16-le" if head.startswith(codecs.BOM_UTF16_LE) else "utf-16-be"
    sample = head[:SAMPLE_BYTES]
    for encoding, zeros in (("utf-16-le", sample[1::2]), ("utf-16-be", sample[::2])):
        if len(sample) > 16 and zeros.count(0) > 0.9 * len(zeros) and sample.count(0) < 0.6 * len(sample):
            return encoding
    return None
