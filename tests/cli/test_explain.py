"""`xidwatch explain`: a number, a kind, or a pasted line, in words or as JSON."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from xidwatch import rulefiles
from xidwatch.cli import main

LOST = "Sep 16 08:01:02 host1 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid=4242, name=python3, GPU has fallen off the bus."


@pytest.fixture(autouse=True)
def _as_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rulefiles, "OVERRIDES", tmp_path / "rules.d")


def explain(*what: str) -> int:
    return main(["explain", *what])


def told(capsys: pytest.CaptureFixture[str], *what: str) -> dict[str, Any]:
    assert explain("--json", *what) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("what", [("79",), ("Xid 79",), ("xid", "79"), ("XID:79",), ("xid=79",), ("Xid", "#79."), (" 79 ",)])
def test_a_number_is_an_xid(what: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """However it is written; everything known comes with it."""
    found = told(capsys, *what)
    assert (found["kind"], found["xid"], found["mnemonic"]) == ("xid", 79, "GPU_HAS_FALLEN_OFF_THE_BUS")
    assert (found["class"], found["severity"], found["asks"], found["known"]) == ("link", "critical", "reboot", True)
    assert (found["driver_fatal"], found["bus_lost"], found["event"]) == (True, True, None)
    for part in ("meaning", "causes", "check", "is_not", "xidwatch_does", "source"):
        assert found[part], part


@pytest.mark.parametrize("what", ["SXid 22013", "sxid22013", "22013"])
def test_an_sxid_is_one_by_name_or_by_its_size(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether it is fatal stands in its line alone, so no severity is claimed."""
    found = told(capsys, what)
    assert (found["kind"], found["xid"], found["severity"], found["known"]) == ("sxid", 22013, None, True)
    assert "DLREQ" in found["meaning"]


def test_an_unknown_number_is_said_to_be_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    """A warning, never acted on; asking is no error."""
    assert explain("4711") == 0
    out = capsys.readouterr().out
    assert out.startswith("Xid 4711  (unknown to this version)\n  warning\n")
    for part in (
        "no row for this number",
        "never acted on",
        "they outrank it",
        "docs.nvidia.com/deploy/xid-errors",
        "the driver's release notes",
    ):
        assert part in " ".join(out.split())
    found = told(capsys, "SXid", "99999")
    assert (found["known"], found["meaning"], found["mnemonic"]) == (False, None, None)


def test_no_driver_prints_a_zero(capsys: pytest.CaptureFixture[str]) -> None:
    """Nor is one's severity claimed to stand in its line."""
    assert explain("0") == 0
    out = capsys.readouterr().out
    assert out.startswith("Xid 0  (unknown to this version)\n  warning\n  Xids begin at 1")


def test_an_unknown_switch_error_is_fatal_by_its_line_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Its number says nothing, and is looked up elsewhere."""
    assert explain("SXid", "99999") == 0
    out = " ".join(capsys.readouterr().out.split())
    for part in ("SXid 99999 (unknown to this version)", "critical where its line says Fatal", "fabric manager's user guide"):
        assert part in out


@pytest.mark.parametrize(
    ("what", "told_of"),
    [
        (("79", "31"), [("xid", 79), ("xid", 31)]),
        (("79,31",), [("xid", 79), ("xid", 31)]),
        (("Xid 79, SXid 22013", "aer;dpc"), [("xid", 79), ("sxid", 22013), ("aer", None), ("dpc", None)]),
        (("Xids", "63", "64", "63"), [("xid", 63), ("xid", 64)]),
        (("AER", "79.", "12028"), [("aer", None), ("xid", 79), ("sxid", 12028)]),
    ],
)
def test_several_are_explained_one_after_the_other(
    what: tuple[str, ...], told_of: list[tuple[str, int | None]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers and kinds in any order, each once."""
    assert explain("--json", *what) == 0
    assert [(each["kind"], each["xid"]) for each in json.loads(capsys.readouterr().out)] == told_of
    assert explain(*what) == 0
    out = capsys.readouterr().out
    assert out.count("What xidwatch does") == len(told_of)


def test_an_aer_line_names_the_conditions_that_count_such_errors(capsys: pytest.CaptureFixture[str]) -> None:
    """By how bad it is; the kind alone names them all."""
    line = "pcieport 0000:00:01.1: AER: {} error received: 0000:02:00.0"
    named = {
        "Corrected": ("AerCorrectableStorm",),
        "Uncorrected (Non-Fatal)": ("AerNonFatal",),
        "Uncorrected (Fatal)": ("AerFatal",),
    }
    for words, expected in named.items():
        does = " ".join(told(capsys, line.format(words))["xidwatch_does"])
        assert [name for (name,) in named.values() if name in does] == list(expected)
    does = " ".join(told(capsys, "aer")["xidwatch_does"])
    assert all(name in does for (name,) in named.values())
    assert "Aer" not in " ".join(told(capsys, "dpc")["xidwatch_does"])


@pytest.mark.parametrize(
    "what",
    [
        "hello",
        "79 gpus",
        "79 31 of",
        "79x",
        "79.5",
        "12345678",
        "eth0: link is up",
        "-1x",
        "r8169 0000:06:00.0 eth0: RTL8168h, XID 541, IRQ 1",
    ],
)
def test_what_is_neither_is_refused(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With what was given, made harmless for a terminal."""
    assert explain("--", f"{what}\x1b[2J") == 64
    err = capsys.readouterr().err
    assert "neither a number nor a line" in err
    assert "\x1b" not in err


@pytest.mark.parametrize(
    "before", ["", "> ", "**", "[12345.678901] ", "Sep 16 08:01:02 host1 kernel: ", '"', '{"pri":4,"msg":"', "3,4471,3023054882,-;"]
)
def test_a_pasted_line_is_explained_by_what_it_says(before: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever stands before the driver's words; device and process are read from it."""
    found = told(capsys, before + LOST.partition("kernel: ")[2])
    assert (found["xid"], found["event"]["pci"], found["event"]["process"]) == (79, "0000:0f:00.0", "python3")


def test_a_line_of_another_kind_is_explained_too(capsys: pytest.CaptureFixture[str]) -> None:
    """By its kind, with its own severity."""
    found = told(capsys, "[  34.1] pcieport 0000:00:01.1: pciehp: Slot(0): Link Down")
    assert (found["kind"], found["xid"], found["severity"], found["event"]["pci"]) == ("pciehp", None, "critical", "0000:00:01.1")
    assert told(capsys, "AER")["kind"] == "aer"


def test_what_a_line_says_outranks_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    """An Xid 154 that asks for a reboot is critical and ends talk with the driver; one that asks for a reset is neither."""
    line = "NVRM: Xid (PCI:0000:0f:00): 154, GPU recovery action changed from 0x0 (None) to {}"
    reboot, reset = told(capsys, line.format("0x2 (Node Reboot Required)")), told(capsys, line.format("0x1 (GPU Reset Required)"))
    assert (reboot["severity"], reboot["driver_fatal"], reboot["event"]["recovery"]) == ("critical", True, "Node Reboot Required")
    assert (reset["severity"], reset["driver_fatal"]) == ("error", False)
    assert any("asks for a reboot" in each for each in told(capsys, "154")["xidwatch_does"])


def test_lines_from_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each sort of event once, in the order of the log; a record of several lines is one."""
    firmware = "[1.0] {1}[Hardware Error]: "
    record = f"{firmware}Hardware error from APEI Generic Hardware Error Source: 1\n{firmware}event severity: fatal\n"
    text = f"{LOST}\nnoise\n{LOST.replace('4242', '7')}\n{record}"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode() + b"\xff")))
    assert explain("-", "--json") == 0
    assert [(each["kind"], each["severity"]) for each in json.loads(capsys.readouterr().out)] == [("xid", "critical"), ("ghes", "critical")]


def test_nothing_on_standard_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing to explain."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert explain("-") == 64


def test_in_words_the_event_comes_first_and_what_xidwatch_does_last(capsys: pytest.CaptureFixture[str]) -> None:
    """Title, line, what is read in it, meaning, causes, checks; within the width, without colour in a pipe."""
    assert explain(LOST + "\x1b[2J") == 0
    out = capsys.readouterr().out
    parts = [
        "Xid 79",
        "GPU has fallen",
        "device 0000:0f:00.0",
        "critical, link; asks for: reboot the host",
        "Usual causes",
        "Look at first",
    ]
    parts += ["What it is not", "What xidwatch does", "Source"]
    places = [out.find(part) for part in parts]
    assert places == sorted(places)
    assert -1 not in places
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 100


def test_a_site_s_texts_and_rules_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is in force there; a bad file is refused with its name."""
    folder = tmp_path / "rules.d"
    folder.mkdir()
    (folder / "site.toml").write_text('[xid]\n79 = { severity = "warning" }\n[explain.xid.79]\ncheck = ["the blue cable"]\n')
    found = told(capsys, "79")
    assert (found["severity"], found["check"]) == ("warning", ["the blue cable"])
    (folder / "bad.toml").write_text("[explain.xid.79]\ncolour = 1\n")
    assert explain("79") == 78
    assert "bad.toml: explain.xid.79.colour: unknown key" in capsys.readouterr().err


PASTED = """
[  100.000001] pcieport 0000:00:01.1: AER: Corrected error received: 0000:02:00.0
[  200.000001] pcieport 0000:00:01.1: pciehp: Slot(0): Link Down
[  200.000002] pcieport 0000:00:01.1: pciehp: Slot(0): Card not present
[  200.100000] NVRM: Xid (PCI:0000:02:00): 79, pid=4242, name=python3, GPU has
fallen off the bus.
[  200.100001] NVRM: GPU 0000:02:00.0: GPU has fallen off the bus.
[  201.000000] NVRM: Xid (PCI:0000:02:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)
[  900.000000] pcieport 0000:00:01.1: AER: Uncorrected (Fatal) error received: 0000:02:00.0
"""


@pytest.mark.parametrize("edit", ["", "quoted", "one argument for each line", "one argument for each word"])
def test_each_sort_of_event_in_a_pasted_log_is_explained(edit: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of the log and with its times: what belongs to one report is one, what comes later is another."""
    text = "\n".join(f"> {line}" for line in PASTED.splitlines()) if edit == "quoted" else PASTED
    parts = {"one argument for each line": text.splitlines(), "one argument for each word": text.split()}
    assert explain("--json", "--", *parts.get(edit, [text])) == 0
    found = [(each["kind"], each["xid"], each["severity"]) for each in json.loads(capsys.readouterr().out)]
    assert found == [
        ("aer", None, "info"),
        ("pciehp", None, "critical"),
        ("xid", 79, "critical"),
        ("xid", 154, "error"),
        ("aer", None, "critical"),
    ]


def test_what_somebody_else_wrote_is_explained_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    """The line of another programme is nobody's hardware."""
    found = told(capsys, LOST.replace("kernel:", "app[42]:"))
    assert (found["xid"], found["driver_fatal"]) == (79, False)
    assert "a process wrote it" in found["xidwatch_does"][0]
