"""An incident goes out masked, and comes back as a fixture that says the same."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.replay import stage
from xidwatch.bundle import archive, gather
from xidwatch.cli import main
from xidwatch.core.masking import Masker
from xidwatch.report import ledger, load

pytestmark = pytest.mark.slow  # a whole night is replayed first
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
NIGHT = f"+20m die {stage.SWITCH}\n+0s lost gpus\n+3m end\n"
KMSG = (
    "# boot\n5,0,0,-;Linux version 6.12 (qbuilder@qbuildhost)\n6,1,1000,-;quiet\n"
    + stage.XID.format(seq=2, usec=1225 * 10**6 + 1000)
    + "12,3,1225002000,-;a program said qsecretword\n"
)
SECRETS = {
    "uuid": "5f0c1a2b-3c4d-4e5f-8a9b-0c1d2e3f4a5b",
    "serial": "1322621004711",
    "four": "10.20.30.40",
    "six": "fd12:3456::789a",
    "mac": "3c:ec:ef:12:34:56",
    "host": "qgpubox7",
    "user": "qalice",
    "prompt": "qwhat is the meaning",
}


def replayed(folder: Path, state_dir: Path) -> Path:
    """The state directory it leaves."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert main(["replay", str(folder), "--state-dir", str(state_dir)]) == 0
    return state_dir


def bundle(state_dir: Path, output: Path, *words: str) -> int:
    """The command's exit code."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return main(["bundle", *words, "-o", str(output), "--state-dir", str(state_dir)])


def unpacked(file: Path, place: Path) -> Path:
    """The folder in an archive."""
    with tarfile.open(file) as tar:
        tar.extractall(place, filter="data")
    (folder,) = place.iterdir()
    return folder


def said(state_dir: Path, incident: str) -> dict[str, Any]:
    """The report, without what is about the place of its records."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main(["report", incident, "--format", "json", "--state-dir", str(state_dir)])
    text = re.sub(r"(?<=0{8}-0000-4000-8000-)\d{12}", "BOOT", out.getvalue())  # the first of a replay is 1
    text = re.sub(r'"([a-z])-\d{6,}"', r'"\1-ID"', text)  # and so is its first record
    # What an earlier boot left behind is not in an archive: a condition then begins as nobody knows.
    text = text.replace('"before": "UNKNOWN"', '"before": "FALSE"').replace('"before":"UNKNOWN"', '"before":"FALSE"')
    told: dict[str, Any] = json.loads(text)
    return {name: told[name] for name in ("incident", "subjects", "timeline", "observations", "missing")}


def bytes_of(state_dir: Path, masker: Masker | None = None) -> bytes:
    """Everything that would go out, names of files included."""
    book = ledger.read(state_dir)
    known = load.choose(book)
    assert known
    told = archive.contents(gather.gather(state_dir, known), masker or Masker())
    return "".join(f"{name}\n{text}" for name, text in told.items()).encode()


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A switch dies, and with it two GPUs."""
    place = tmp_path_factory.mktemp("night")
    folder = stage.write(place / "fixture", NIGHT, kmsg=KMSG)
    return replayed(folder, place / "state")


ABOUT_ENGINES = {"gate", "action", "outcome"}  # they stay at home, and with them what was done to them


def test_of_an_incident_over_several_boots_the_first_is_in_the_archive(tmp_path: Path) -> None:
    """What happened from the loss to the end of that boot replays as it was, engines aside."""
    before = replayed(FIXTURES / "2026-09-17-switch-supply-trip", tmp_path / "before")
    assert bundle(before, tmp_path / "a.tar.gz", "latest") == 0
    folder = unpacked(tmp_path / "a.tar.gz", tmp_path / "unpacked")
    after = replayed(folder, tmp_path / "after")
    told, again = (
        [each for each in said(place, folder.name)["timeline"] if each["source"] not in ABOUT_ENGINES] for place in (before, after)
    )
    assert len(again) > 40
    assert again == told[: len(again)]


def test_an_unpacked_archive_replays_to_the_same_report(tmp_path: Path) -> None:
    """Incident, conditions, timeline, what could not be seen: word for word, to the millisecond."""
    before = replayed(FIXTURES / "one-gpu-of-eight", tmp_path / "before")
    assert bundle(before, tmp_path / "a.tar.gz", "latest") == 0
    folder = unpacked(tmp_path / "a.tar.gz", tmp_path / "unpacked")
    after = replayed(folder, tmp_path / "after")
    assert said(after, folder.name) == said(before, folder.name)
    again = unpacked_again(after, tmp_path)
    assert (again / "host.txt").read_text() == (folder / "host.txt").read_text()
    assert (again / "kmsg.txt").read_text() == (folder / "kmsg.txt").read_text()


def unpacked_again(state_dir: Path, place: Path) -> Path:
    """What was replayed, bundled once more."""
    assert bundle(state_dir, place / "b.tar.gz") == 0
    return unpacked(place / "b.tar.gz", place / "again")


def test_the_same_records_give_the_same_bytes(night: Path, tmp_path: Path) -> None:
    """Whoever makes it, whenever; readable by its owner alone."""
    assert [bundle(night, tmp_path / name) for name in ("a.tar.gz", "b.tar.gz")] == [0, 0]
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()
    assert (tmp_path / "a.tar.gz").stat().st_mode & 0o777 == 0o600


def test_zstandard_where_this_python_has_it(night: Path, tmp_path: Path) -> None:
    """By the name of the file; without it that is said, and nothing is written."""
    file = tmp_path / "a.tar.zst"
    code = bundle(night, file)
    assert (code, file.exists()) in ((0, True), (73, False))
    assert code == 73 or file.read_bytes()[:4] == b"\x28\xb5\x2f\xfd"


def test_nothing_is_overwritten_unless_one_says_so(night: Path, tmp_path: Path) -> None:
    """The file that was there is as it was."""
    file = tmp_path / "a.tar.gz"
    file.write_text("mine")
    assert bundle(night, file) == 73
    assert file.read_text() == "mine"
    assert bundle(night, file, "--force") == 0
    assert tarfile.is_tarfile(file)


def test_what_would_go_in_is_listed_and_not_written(night: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line a file, with its size."""
    assert main(["bundle", "--list", "--state-dir", str(night)]) == 0
    assert {line.split("/", 1)[1] for line in capsys.readouterr().out.splitlines()} >= {
        "README.txt",
        "host.txt",
        "kmsg.txt",
        "records/samples.csv",
    }


@pytest.mark.parametrize(
    ("words", "code"), [((), 64), (("-o", "a.zip"), 64), (("nosuch", "-o", "a.tar.gz"), 66), (("-o", "/nonexistent/a.tar.gz"), 73)]
)
def test_what_cannot_be_done_is_said(night: Path, words: tuple[str, ...], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, with the exit code that all commands use for it."""
    assert main(["bundle", *words, "--state-dir", str(night)]) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("xidwatch: ")


def test_an_incident_of_several_has_to_be_named(night: Path, tmp_path: Path) -> None:
    """`latest` is a name."""
    state = tmp_path / "state"
    shutil.copytree(night, state)
    shutil.copytree(next((state / "incidents").iterdir()), state / "incidents/20260102T000500Z-gpu-lost-12")
    assert bundle(state, tmp_path / "a.tar.gz") == 66
    assert bundle(state, tmp_path / "a.tar.gz", "latest") == 0


# ---------------------------------------------------------------------------------------------------------- what leaves


@contextlib.contextmanager
def seeded(night: Path, place: Path, secrets: dict[str, str]) -> Iterator[Path]:
    """A copy of its records with these secrets wherever records can hold them."""
    state = place / "seeded"
    shutil.copytree(night, state)
    folder = next((state / "incidents").iterdir())
    line = f"usb: {secrets['user']}@{secrets['host']} {secrets['four']} {secrets['mac']} {secrets['six']} GPU-{secrets['uuid']}"
    with (folder / "020-kernel.txt").open("a") as kernel:
        kernel.write(f"4,900,1225003000,-;NVRM: GPU serial number is {secrets['serial']}, {line}\n")
        kernel.write(f"5,901,1225003001,-;Command line: quiet {secrets['prompt']}\n14,902,1225003002,-;{secrets['prompt']}\n")
        kernel.write(f"6,903,1225003003,-;again {secrets['host']} and {secrets['user']} torn {secrets['four']}")
    (folder / "050-engine.txt").write_text(str(secrets))
    inventory = json.loads((folder / "030-inventory.json").read_text())
    inventory["gpu:0000:11:00.0"] |= {"uuid": f"GPU-{secrets['uuid']}", "serial": secrets["serial"], "cmdline": secrets["prompt"]}
    inventory["engine:x.service"] = {"model": secrets["prompt"]}
    (folder / "030-inventory.json").write_text(json.dumps(inventory))
    (day,) = (state / "journal").glob("*.jsonl")
    head = json.loads(day.read_text().splitlines()[-1])
    plain = {name: head[name] for name in ("v", "time", "boot_id", "mono_us")}
    bodies: list[dict[str, Any]] = [
        {"note": {"text": secrets["prompt"], "uid": 0}},
        {"note": {"remark": "engine:x", "text": secrets["prompt"]}},
        {"transition": {"subject": "probe:engine", "type": "X", "before": "FALSE", "after": "UNKNOWN", "reason": secrets["prompt"]}},
        {"note": {"remark": "x", "text": f"/home/{secrets['user']}/x {line}"}},
        {"inventory": {"gpu:0000:11:00.0": {"serial": secrets["serial"]}, "engine:a": {"model": secrets["prompt"]}}},
        {"kernel": {"seq": 950, "usec": 1225003000, "kind": "xid", "severity": "info", "text": secrets["prompt"], "injected": True}},
        {"outcome": {"for": "a", "result": "failed", "took_ms": 1, "detail": f"{secrets['host']}: {line}"}},
    ]
    with day.open("a") as file:
        file.writelines(json.dumps({**plain, "id": f"r-9{number}", **body}) + "\n" for number, body in enumerate(bodies))
        file.write(f'{{"v":1,"id":"torn {secrets["prompt"]} {secrets["host"]}')
    baseline = json.loads((state / "baseline.json").read_text())
    baseline["inventory"]["gpu:0000:12:00.0"] |= {"serial": secrets["serial"], "uuid": f"GPU-{secrets['uuid']}"}
    (state / "baseline.json").write_text(json.dumps(baseline))
    try:
        yield state
    finally:
        shutil.rmtree(state)


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(
    st.fixed_dictionaries({
        "uuid": st.uuids(version=4).map(str),
        "serial": st.integers(10**12, 10**13 - 1).map(str),
        "four": st.ip_addresses(v=4, network="10.0.0.0/8").map(str),
        "six": st.ip_addresses(v=6, network="fd00::/8").map(lambda address: address.exploded),
        "mac": st.binary(min_size=6, max_size=6).map(lambda data: data.hex(":")),
        "host": st.text("bcdfgjklmnpqrtvwxz", min_size=7, max_size=9).map(lambda text: f"qh{text}"),
        "user": st.text("bcdfgjklmnpqrtvwxz", min_size=7, max_size=9).map(lambda text: f"qu{text}"),
        "prompt": st.text("abcdefghijklmnop ", min_size=12, max_size=30).map(lambda text: f"q{text}q"),
    })
)  # fmt: skip
def test_no_secret_survives_in_any_byte(night: Path, tmp_path: Path, secrets: dict[str, str]) -> None:
    """Wherever records may hold one: kernel log, inventory, journal, baseline, torn lines, parts that are nobody's."""
    with seeded(night, tmp_path, secrets) as state:
        out = bytes_of(state).decode().lower()
    assert [name for name, secret in secrets.items() if secret.lower() in out] == []


def test_what_was_left_out_is_named(night: Path, tmp_path: Path) -> None:
    """In the archive itself: the part of an engine, and the line that a crash tore."""
    with seeded(night, tmp_path, SECRETS) as state:
        out = bytes_of(state).decode()
    assert "050-engine.txt: may hold words of engines or users" in out
    assert "no end of line" in out


def test_a_program_that_wrote_to_the_kernel_log_loses_its_words(night: Path) -> None:
    """The record is there, since its number and time are evidence."""
    out = bytes_of(night).decode()
    assert "qsecretword" not in out
    assert "NVRM: Xid (PCI:0000:11:00): 79, pid=7, name=python3, GPU has fallen off the bus." in out


def test_a_word_may_be_masked_by_hand(night: Path) -> None:
    """Whatever the program would not know."""
    assert b"python3" not in bytes_of(night, Masker(words=["python3"]))


@pytest.mark.parametrize("missing", ["incidents", "samples", "baseline.json"])
def test_what_is_not_there_is_no_reason_to_give_nothing(night: Path, tmp_path: Path, missing: str) -> None:
    """After a crash, or when a disk was lost."""
    state = tmp_path / "state"
    shutil.copytree(night, state)
    gone = state / missing
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    assert bundle(state, tmp_path / "a.tar.gz") == 0
    assert main(["replay", str(unpacked(tmp_path / "a.tar.gz", tmp_path / "u")), "--state-dir", str(tmp_path / "n")]) == 0
