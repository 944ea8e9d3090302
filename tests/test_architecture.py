"""The program is held to the laws of its structure, and every law to lines that it must report."""

from __future__ import annotations

import pytest

from tests import laws
from tests.laws import PACKAGE_LAWS, TEST_LAWS, Law, Module

_DEEP = "def f():\n for a in b:\n  if a:\n   while a:\n    with a:\n     pass\n"

# For every law: the name of a module and lines in it that must be reported.
BREAKS: tuple[tuple[Law, str, str], ...] = (
    (laws.layers, "xidwatch.core.model", "import xidwatch.records"),
    (laws.layers, "xidwatch.daemon.loop", "def f():\n    from xidwatch.probes import pci"),
    (laws.layers, "xidwatch.daemon.loop", "from xidwatch import report"),
    (laws.layers, "xidwatch.probes.pci", "from xidwatch.clock import iso"),
    (laws.layers, "xidwatch.records.samples", "from xidwatch.config import Config"),
    (laws.layers, "xidwatch.cli.run", "from ..core import model"),
    (laws.layers, "xidwatch.misc", "import re"),
    (laws.core_is_pure, "xidwatch.core.model", "import os"),
    (laws.core_is_pure, "xidwatch.core.model", "from pathlib import Path"),
    (laws.core_is_pure, "xidwatch.core.model", "from rich import print"),
    (laws.core_is_pure, "xidwatch.core.model", "open('x')"),
    (laws.core_is_pure, "xidwatch.core.model", "datetime.now(UTC)"),
    (laws.third_party_sites, "xidwatch.daemon.loop", "import pynvml"),
    (laws.third_party_sites, "xidwatch.cli.run", "from numpy.linalg import norm"),
    (laws.sources_stand_alone, "xidwatch.probes.host", "from xidwatch.probes.pci import read"),
    (laws.the_service_reads_no_log_files, "xidwatch.daemon.loop", "from xidwatch.core import logtext"),
    (laws.the_service_reads_no_log_files, "xidwatch.daemon.loop", "from xidwatch.core.logscan import Reader"),
    (laws.nobody_waits_for_a_child, "xidwatch.daemon.loop", "subprocess.run(['true'], timeout=1)"),
    (laws.nobody_waits_for_a_child, "xidwatch.daemon.loop", "child.communicate()"),
    (laws.nobody_waits_for_a_child, "xidwatch.daemon.loop", "with subprocess.Popen(x) as child:\n    pass"),
    (laws.killing_has_a_site, "xidwatch.daemon.loop", "os.kill(1, signal.SIGKILL)"),
    (laws.killing_has_a_site, "xidwatch.daemon.loop", "child.kill()"),
    (laws.nothing_sleeps, "tests.test_x", "time.sleep(0.1)"),
    (laws.nothing_sleeps, "tests.test_x", "sleep(0.1)"),
    (laws.modules_stay_small, "xidwatch.core.model", "\n" * (laws.MODULE_LINES + 1)),
    (laws.functions_stay_small, "xidwatch.core.model", "def f():\n" + "    x = 1\n" * (laws.FUNCTION_LINES + 1)),
    (laws.blocks_stay_shallow, "xidwatch.core.model", _DEEP),
    (laws.packages_stay_flat, "xidwatch.probes.vendor.nvml", ""),
    (laws.public_things_are_described, "xidwatch.wire", "x = 1"),
    (laws.public_things_are_described, "xidwatch.wire", '"""Said."""\ndef f(): pass'),
    (laws.public_things_are_described, "xidwatch.core.model", '"""Said, but not what may live here."""'),
    (laws.a_test_says_what_it_shows, "tests.test_x", "def test_x(): pass"),
)


@pytest.fixture(scope="module")
def package() -> list[Module]:
    return laws.load(laws.PACKAGE)


@pytest.fixture(scope="module")
def tests() -> list[Module]:
    return laws.load("tests")


@pytest.mark.parametrize("law", PACKAGE_LAWS, ids=lambda law: law.__name__)
def test_the_package_keeps(law: Law, package: list[Module]) -> None:
    """Every law about the package holds for every module in it."""
    assert len(package) > 5
    breaches = law(package)
    assert not breaches, f"{law.__doc__}\n" + "\n".join(breaches)


@pytest.mark.parametrize("law", TEST_LAWS, ids=lambda law: law.__name__)
def test_the_tests_keep(law: Law, tests: list[Module]) -> None:
    """Every law about tests holds for every test."""
    breaches = law(tests)
    assert not breaches, f"{law.__doc__}\n" + "\n".join(breaches)


@pytest.mark.parametrize(("law", "name", "source"), BREAKS, ids=[f"{law.__name__}-{i}" for i, (law, _, _) in enumerate(BREAKS)])
def test_a_breach_is_seen(law: Law, name: str, source: str) -> None:
    """Lines that break a law are reported by it, with the file they stand in."""
    probe = Module("xidwatch.probes.pci", "xidwatch/probes/pci.py", "def create(options): ...")
    breaches = law([probe, Module(name, "the_culprit.py", source)])
    assert any("the_culprit.py" in breach for breach in breaches)


def test_every_law_has_a_breach_that_shows_it_works() -> None:
    """No law is left without lines that it must report."""
    assert {law for law, _, _ in BREAKS} == {*PACKAGE_LAWS, *TEST_LAWS}


@pytest.mark.parametrize(("top", "limit"), laws.AT_MOST_SITES.items())
def test_one_import_site_too_many_is_seen(top: str, limit: int) -> None:
    """The number of import sites is counted even where each single one would be allowed."""
    inside = laws.IMPORT_SITES[top][0]
    modules = [Module(f"{inside}.part{i}", f"part{i}.py", f"import {top}") for i in range(limit + 1)]
    assert laws.third_party_sites(modules[:limit]) == []
    assert laws.third_party_sites(modules)


def test_tests_mirror_the_package() -> None:
    """`tests/probes/test_pci*.py` tests `xidwatch/probes/pci.py`: no test of a part is left behind when its module moves."""
    parts = [p.name for p in (laws.ROOT / laws.PACKAGE).iterdir() if (p / "__init__.py").exists()]
    orphans = [
        str(test.relative_to(laws.ROOT))
        for part in parts
        for test in (laws.ROOT / "tests" / part).glob("test_*.py")
        if not any(_is_about(test.stem, module.stem) for module in (laws.ROOT / laws.PACKAGE / part).glob("*.py"))
    ]
    assert not orphans, "no module of that name in the package: " + ", ".join(orphans)


def _is_about(test: str, module: str) -> bool:
    return test == f"test_{module}" or test.startswith(f"test_{module}_")
