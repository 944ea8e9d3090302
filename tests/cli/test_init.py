"""`xidwatch init`: what is shown, what is written, what is refused; with a daemon and without.

XIDWATCH_BLESS=1 pytest tests/cli/test_init.py     writes golden/*.txt anew; then read the diff
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.harness import KernelPipe, Rig, Running, open_gate
from tests.fakes.hwmon import HwmonTree
from tests.fakes.nvml_library import NvmlLibrary
from tests.fakes.sysfs import SysfsTree, two_switch_host
from xidwatch.cli import main
from xidwatch.clock import BOOT_ID
from xidwatch.config import parse_config
from xidwatch.core.model import Readings, Subject
from xidwatch.records import baseline, journal
from xidwatch.records.state import CHILDREN_NAME, read_children

GOLDEN = Path(__file__).parent / "golden"
BLESS = bool(os.environ.get("XIDWATCH_BLESS"))
GPU = "0000:13:00.0"
ENGINES: Readings = {Subject("engine", "vllm.service"): {"pids": "4711 4712", "server": "vllm", "serving_port": 8000}}

pytestmark = pytest.mark.slow


class Host:
    """Four GPUs below a switch, a driver in C, a board with sensors, a kernel log, and a place to write."""

    def __init__(self, folder: Path, library: NvmlLibrary) -> None:
        self.folder = folder
        self.library = library
        self.tree: SysfsTree = two_switch_host(folder / "sys")
        HwmonTree(folder / "hwmon").board()
        self.kernel = KernelPipe(folder / "kmsg")
        self.config = folder / "etc/xidwatch/config.toml"
        self.state = folder / "state"
        self.settings = folder / "settings.toml"
        self.write(self.settings)

    def write(self, path: Path, more: str = "") -> None:
        """A configuration that points at this host."""
        path.parent.mkdir(parents=True, exist_ok=True)
        roots = f'[probes.pci]\nroot = "{self.folder}/sys"\n[probes.hwmon]\nroot = "{self.folder}/hwmon"\n'
        path.write_text(f'kernel_log = "{self.kernel.path}"\n{more}{roots}')

    def init(self, *words: str, asks: bool = False) -> int:
        """Run it on the configuration there is, as a script does that has looked."""
        yes = () if asks else ("--yes",)
        return main(["init", "--config", str(self.config), "--state-dir", str(self.state), *yes, *words])

    def baseline(self) -> baseline.Baseline:
        found = baseline.read(self.state / baseline.NAME)
        assert found is not None
        return found

    def notes(self) -> list[str]:
        return [str(e.body["text"]) for e in journal.read(self.state, since=None, problems=[]) if e.kind == "note"]

    def copies(self, path: Path) -> list[Path]:
        return sorted(path.parent.glob(f"{path.name}.*Z*"))


@pytest.fixture
def host(tmp_path: Path, nvml_library: NvmlLibrary, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setenv("SUDO_USER", "alice")
    monkeypatch.setattr("xidwatch.cli.init_source.search_engines", lambda *_: ENGINES)
    for name, value in nvml_library.environment.items():
        monkeypatch.setenv(name, value)
    host = Host(tmp_path, nvml_library)
    host.write(host.config)
    yield host
    host.kernel.close()


def masked(text: str, host: Host) -> str:
    """Without what differs from run to run."""
    text = text.replace(str(host.folder), "HOST")
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    return re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?=\")", "BOOT", text)


def golden(name: str, text: str) -> None:
    kept = GOLDEN / name
    if BLESS:
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(text)
    assert text == kept.read_text()


# ------------------------------------------------------------------------------------------------------ without a daemon


@pytest.mark.parametrize(("only", "other"), [("config", "baseline.json"), ("baseline", "config.toml")])
def test_a_dry_run_prints_no_more_than_is_asked_for(host: Host, capsys: pytest.CaptureFixture[str], only: str, other: str) -> None:
    """With `--only` the other part is not to be written, so it is not shown either."""
    assert host.init("--dry-run", "--force", "--only", only) == 0
    headings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# --- ")]
    assert len(headings) == 1
    assert not headings[0].endswith(other)


def test_a_dry_run_prints_and_writes_nothing(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """Table, configuration, and the baseline in a few words; the folder is as it was."""
    host.library.gpu(0, compute_pids="4711")
    host.library.every_gpu(nvmlDeviceGetSerial="error 3")
    before = sorted(host.folder.rglob("*"))
    assert host.init("--dry-run", "--force") == 0
    out, err = capsys.readouterr()
    golden("init-dry-run.txt", masked(out, host))
    assert err == "xidwatch: nothing was written\n"
    assert sorted(host.folder.rglob("*")) == before
    config = out.partition("# --- ")[2].partition("\n")[2].partition("# --- ")[0]
    assert parse_config(tomllib.loads(config)).kernel_log == str(host.kernel.path)


def test_a_dry_run_shows_only_what_would_be_written(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """What is there would stay, which is said; where all would, the exit status is the refusal's."""
    assert host.init("--dry-run") == 0
    out, err = capsys.readouterr()
    assert [line.rpartition("/")[2] for line in out.splitlines() if line.startswith("# --- ")] == [baseline.NAME]
    assert f"{host.config} is there already: it stays as it is" in err
    assert host.init("--only", "baseline") == 0
    assert host.init("--dry-run") == 73
    assert "a baseline was accepted on" in capsys.readouterr().err


@pytest.mark.parametrize("known", [False, True])
def test_a_dry_run_shows_no_baseline_that_would_be_refused(host: Host, capsys: pytest.CaptureFixture[str], *, known: bool) -> None:
    """It says on standard error that it would be, why, and what would be there instead; the exit status is the refusal's."""
    if known:
        assert host.init("--only", "baseline") == 0
    host.tree.die("0000:0f:00.0")
    capsys.readouterr()
    assert host.init("--dry-run", "--force") == 2
    out, err = capsys.readouterr()
    assert baseline.NAME not in out
    assert "stands against accepting this: port:0000:0f:00.0: ConfigSpaceAllOnes TRUE" in err
    instead = "the one there is would stay as it is" if known else "it would be written as provisional, which proves nothing"
    assert err.endswith(f"xidwatch: the baseline would not be accepted: {instead}\nxidwatch: nothing was written\n")


def test_both_files_are_written_and_never_over_what_is_there(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """The first time they are made; then only when forced, with a copy, and with the settings that were there."""
    host.config.unlink()
    host.write(host.config, 'interval = "10s"\n')
    assert host.init("--force") == 0
    first = host.baseline()
    assert (first.provisional, first.accepted and first.accepted.by) == (False, f"alice (uid {os.getuid()})")
    assert host.notes() == ["baseline accepted: 4 GPUs, 9 ports, 1 drive"]
    assert parse_config(tomllib.loads(host.config.read_text())).interval == "10s"
    assert len(host.copies(host.config)) == 1
    texts = host.config.read_bytes(), (host.state / baseline.NAME).read_bytes()
    assert [path.stat().st_mode & 0o777 for path in (host.config, host.state / baseline.NAME)] == [0o644, 0o600]

    assert host.init() == 73
    assert (host.config.read_bytes(), (host.state / baseline.NAME).read_bytes()) == texts
    assert "a baseline was accepted on" in capsys.readouterr().err

    assert host.init("--only", "baseline", "--force") == 0
    (kept,) = host.copies(host.state / baseline.NAME)
    assert kept.read_bytes() == texts[1]
    assert host.config.read_bytes() == texts[0]


def test_a_card_that_was_known_and_is_not_here_is_not_accepted_in_passing(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """Three of four: refused, shown, and kept on record as four; beginning anew is a person's decision."""
    assert host.init("--only", "baseline") == 0
    provisional = {**json.loads((host.state / baseline.NAME).read_text()), "provisional": True, "accepted": None}
    (host.state / baseline.NAME).write_text(json.dumps(provisional))
    host.tree.remove(GPU)
    host.library.remove(2)
    capsys.readouterr()
    assert host.init("--only", "baseline") == 2
    out, err = capsys.readouterr()
    assert out.startswith("GPUs: 3 of 4\n")
    assert f"{GPU}  NOT HERE" in out
    assert f"stands against accepting this: gpu:{GPU}: GpuMissing TRUE" in err
    assert host.baseline().provisional
    assert len([place for place in host.baseline().members if place.startswith("gpu:")]) == 4
    assert host.init("--only", "baseline", "--force") == 0
    assert len([place for place in host.baseline().members if place.startswith("gpu:")]) == 3


@pytest.mark.parametrize("forced", [(), ("--force",)])
def test_a_dead_switch_is_not_accepted_and_the_configuration_is_written_all_the_same(
    host: Host, forced: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """2, with every reason; what was learnt is on record as provisional."""
    host.write(host.config)
    host.tree.die("0000:0f:00.0")
    assert host.init("--force", *forced) == 2
    err = capsys.readouterr().err
    assert "port:0000:0f:00.0: ConfigSpaceAllOnes TRUE" in err
    assert "baseline written as provisional" in err
    assert host.baseline().accepted is None
    assert "written by `xidwatch init`" in host.config.read_text()


def test_a_driver_that_lost_a_card_for_good_is_not_asked(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """The kernel log says so before anybody opens the driver."""
    host.kernel.says("NVRM: Xid (PCI:0000:13:00): 79, pid=1, name=x, GPU has fallen off the bus.")
    assert host.init("--dry-run") == 2
    assert "the NVIDIA driver is not asked since a driver-fatal Xid" in capsys.readouterr().err
    assert host.library.total() == 0


def test_a_driver_that_does_not_answer_is_not_waited_for(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The worker is left to itself, said, and written down for the next daemon; no second one is started beside it."""
    monkeypatch.setattr("xidwatch.daemon.probes.FIRST_NVML_SECONDS", 4.0)
    monkeypatch.setattr("xidwatch.daemon.survey.SECONDS", 4.0)
    monkeypatch.setattr("xidwatch.daemon.survey.LEAVING_SECONDS", 0.1)
    gate, run = host.folder / "gate", host.folder / "run"
    os.mkfifo(gate)
    run.mkdir()
    monkeypatch.setattr("xidwatch.cli.init_source.find_run_dir", lambda _state: run)
    host.library.driver(nvmlInitWithFlags=f"read {gate}")
    assert host.init("--dry-run") == 2
    assert "nvml did not answer in full" in capsys.readouterr().err
    (child,) = read_children(run / CHILDREN_NAME, BOOT_ID.read_text().strip())
    assert (child.name, child.holds_driver) == ("nvml", True)
    assert host.init("--dry-run") == 2
    assert f"nvml: process {child.pid} of this probe still holds the driver" in capsys.readouterr().err
    assert host.library.count("nvmlInitWithFlags") == 1
    open_gate(gate)


def test_json_is_one_document(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """For a script: what would be accepted, what stands against it, the engines."""
    host.tree.gpu("0000:21:00.0", host.tree.bridge("0000:00:05.1", secondary=0x21), driver="vfio-pci")
    assert host.init("--dry-run", "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (found["obstacles"], found["accepted"], found["engines"][0]["unit"]) == ([], "", "vllm.service")
    assert found["baseline"]["not_managed"] == {"0000:21:00.0": "given to virtual machines (vfio-pci)"}
    assert (found["baseline"]["provisional"], found["baseline"]["accepted"]["uid"]) == (False, os.getuid())
    assert parse_config(tomllib.loads(found["config"])).kernel_log == str(host.kernel.path)
    assert host.init("--dry-run", "--force") == 0
    assert "# not managed, and so never missed: 0000:21:00.0\n" in capsys.readouterr().out


def test_a_configuration_that_is_refused_is_78_and_stays(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """Its settings could not be carried over."""
    host.config.write_text('intervall = "30s"\n')
    assert host.init("--force") == 78
    assert "intervall: unknown key" in capsys.readouterr().err
    assert host.config.read_text() == 'intervall = "30s"\n'


def test_nothing_is_written_when_a_person_says_that_it_is_not_all(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asked on a terminal only; `--yes` has the answer."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdin.readline", lambda: "n\n", raising=False)
    assert host.init(asks=True) == 2
    assert "4 GPUs. Is that all that should be here" in capsys.readouterr().err
    assert not (host.state / baseline.NAME).exists()
    assert host.init("--only", "baseline") == 0


def test_without_a_terminal_nothing_is_accepted_unasked(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor is the configuration written: nobody has said that four are all."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    host.config.unlink()
    assert host.init("--config", str(host.settings), "--only", "baseline", asks=True) == 2
    assert "4 GPUs, and nobody is there to be asked whether that is all. Nothing was written" in capsys.readouterr().err
    assert not (host.state / baseline.NAME).exists()


# --------------------------------------------------------------------------------------------------------- with a daemon


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as rig:
        yield rig


def _knows_names(path: Path) -> bool:
    found = baseline.read(path)
    return found is not None and any("uuid" in kept for kept in found.members.values())


def running(rig: Rig, library: NvmlLibrary, *, until: str = "provisional") -> Running:
    started = rig.start(rig.pci(), rig.host(), rig.driver(library), interval="0.5s")
    started.tick(2)
    started.until("who they are", lambda: _knows_names(rig.state_dir / baseline.NAME))
    started.until(until, lambda: started.state()["baseline"]["provisional"] == (until == "provisional"))
    return started


def test_a_running_daemon_accepts_and_remembers(
    rig: Rig, nvml_library: NvmlLibrary, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is asked of the hardware a second time; it journals and writes; the next run knows; a card that comes is said."""
    monkeypatch.setattr("xidwatch.cli.init_source.find_run_dir", lambda _state: rig.run_dir)
    monkeypatch.setattr("xidwatch.cli.init_source.search_engines", lambda *_: {})
    monkeypatch.setattr("xidwatch.cli.status.find_run_dir", lambda _state: rig.run_dir)
    words = ["--config", str(rig.folder / "config.toml"), "--state-dir", str(rig.state_dir)]
    daemon = running(rig, nvml_library)
    assert main(["status", *words]) == 0
    assert "baseline provisional since" in capsys.readouterr().out
    opened = nvml_library.count("nvmlInitWithFlags")
    assert main(["init", "--yes", *words]) == 0
    assert "baseline accepted: 4 GPUs, 9 ports, 1 drive" in capsys.readouterr().err
    assert nvml_library.count("nvmlInitWithFlags") == opened
    daemon.until("accepted", lambda: not daemon.state()["baseline"]["provisional"])
    main(["status", *words])
    assert re.search(r"baseline accepted on \S+ by ", capsys.readouterr().out)
    assert main(["init", "--only", "baseline", *words]) == 73
    assert daemon.terminate()[0] == 0
    notes = [entry.body for entry in rig.journal() if entry.kind == "note" and "baseline" in str(entry.body["text"])]
    assert [(note["text"], note["uid"]) for note in notes] == [("baseline accepted: 4 GPUs, 9 ports, 1 drive", os.getuid())]

    rig.tree.gpu(
        "0000:21:00.0", rig.tree.bridge("0000:00:05.1", secondary=0x21), device=0x2684
    )  # of another make: it is not the one missed
    again = running(rig, nvml_library, until="accepted")
    again.line("GpuNotInBaseline TRUE gpu:0000:21:00.0")
    rig.tree.remove(GPU)
    again.until_condition("GpuMissing", f"gpu:{GPU}", "TRUE")
    assert again.ask({"do": "accept-baseline", "anew": False})["ok"] is False
    assert again.terminate()[0] == 0
    kept = baseline.read(rig.state_dir / baseline.NAME)
    assert kept is not None
    assert len([place for place in kept.members if place.startswith("gpu:")]) == 4


def test_what_has_changed_since_it_was_shown_is_not_accepted(rig: Rig, nvml_library: NvmlLibrary) -> None:
    """The digest is of what the operator has seen."""
    daemon = running(rig, nvml_library)
    offered = daemon.ask({"do": "baseline", "anew": True})
    assert (offered["ok"], offered["accepted"], offered["offer"]["obstacles"]) == (True, False, [])
    refused = daemon.ask({"do": "accept-baseline", "anew": True, "digest": "0" * 64})
    assert refused == {"ok": False, "text": "what is here has changed since it was shown; look again"}
    rig.tree.die("0000:0f:00.0")
    daemon.until_condition("ConfigSpaceAllOnes", "port:0000:0f:00.0", "TRUE")
    dead = daemon.ask({"do": "accept-baseline", "anew": True, "digest": "0" * 64})
    assert dead["ok"] is False
    assert "ConfigSpaceAllOnes TRUE" in dead["text"]
    assert daemon.terminate()[0] == 0
    kept = baseline.read(rig.state_dir / baseline.NAME)
    assert kept is not None
    assert kept.provisional
