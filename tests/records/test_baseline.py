"""The baseline: what should be there, as it was learnt."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from xidwatch.core.model import Missing, Moment, Readings, Subject
from xidwatch.records import RecordError, baseline, values

PORT, GPU = Subject("port", "0000:0f:00.0"), Subject("gpu", "0000:11:00.0")
EXPECTED: Readings = {PORT: {"config_dword0": 0x1000C010, "driver": "pcieport"}}
MEMBERS: Readings = {Subject("gpu", "0000:00/03.1/00.0/08.0/00.0"): {"address": "0000:11:00.0", "link_width": 16}}
INVENTORY: Readings = {GPU: {"name": "NVIDIA H200", "serial": Missing.UNSUPPORTED, "max_link_gts": 32.0}}


def test_what_was_learnt_comes_back(tmp_path: Path) -> None:
    """Numbers, texts and lacks are what they were, under the names of the format."""
    learnt = baseline.learnt(Moment(1789646400.0, 1.0), "5f0c", EXPECTED, INVENTORY, MEMBERS)
    path = tmp_path / "baseline.json"
    path.write_bytes(baseline.encode(learnt))
    found = baseline.read(path)
    assert found == learnt
    assert found.readings_expected() == EXPECTED
    assert found.readings_inventory() == INVENTORY
    assert found.readings_members() == MEMBERS
    plain = msgspec.json.decode(path.read_bytes())
    assert (plain["v"], plain["provisional"], plain["time"]) == (1, True, "2026-09-17T12:00:00.000Z")
    assert plain["inventory"]["gpu:0000:11:00.0"]["serial"] == {"missing": "UNSUPPORTED"}


def test_none_yet_is_no_error(tmp_path: Path) -> None:
    """Before anything was learnt there is nothing to compare with."""
    assert baseline.read(tmp_path / "baseline.json") is None


HUGE = b'{"boot_id":"5f0c","time":"","expected":{"gpu:x":{"a":' + b"9" * 5000 + b"}}}"


@pytest.mark.parametrize("content", [b"", b"{}", b'{"boot_id":1}', b"\xff", HUGE])
def test_a_damaged_one_says_what_to_do(tmp_path: Path, content: bytes) -> None:
    """It is never taken for an empty one."""
    path = tmp_path / "baseline.json"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=r"damaged.*move it away"):
        baseline.read(path)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """A FIFO in its place is told as what it is."""
    os.mkfifo(tmp_path / "baseline.json")
    with pytest.raises(RecordError, match=r"a FIFO where a file should be \(move it away\)"):
        baseline.read(tmp_path / "baseline.json")


@pytest.mark.parametrize("odd", [None, True, [1], {}, {"missing": "WITCHCRAFT"}, {"missing": [1]}])
def test_what_is_neither_value_nor_reason_is_malformed(odd: object) -> None:
    """Never a number, never a guess; an entry that names no subject is left out."""
    assert values.to_readings({"gpu:x": {"name": odd}, ":x": {"name": 1}}) == {Subject("gpu", "x"): {"name": Missing.MALFORMED}}


def test_an_operators_word_is_kept_with_what_it_fixes(tmp_path: Path) -> None:
    """Who, when, by which version; what is not told and who is not managed; and since when it has been so."""
    word = baseline.Acceptance(at="2026-09-17T08:00:00.000Z", uid=0, user="alice", version="0.1.0")
    standing = baseline.Standing("2026-09-17T08:00:00.000Z", word, {"gpu:x": ("serial",)}, {"0000:21:00.0": "given away"})
    path = tmp_path / "baseline.json"
    path.write_bytes(baseline.encode(baseline.learnt(Moment(1789646400.0, 1.0), "5f0c", EXPECTED, INVENTORY, MEMBERS, standing)))
    found = baseline.read(path)
    assert found is not None
    assert (found.provisional, found.standing) == (False, standing)
    assert word.by == "alice (uid 0)"


def test_one_that_an_earlier_version_wrote_is_provisional(tmp_path: Path) -> None:
    """It has been learnt at least since it was written."""
    path = tmp_path / "baseline.json"
    path.write_bytes(b'{"v":1,"provisional":true,"boot_id":"5f0c","time":"2026-09-17T00:00:12.004Z","members":{}}')
    found = baseline.read(path)
    assert found is not None
    assert found.standing == baseline.Standing("2026-09-17T00:00:12.004Z")
