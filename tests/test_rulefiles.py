"""The rule files as shipped, and what a site may change in them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from xidwatch import rulefiles
from xidwatch.core.model import Severity
from xidwatch.core.xids import Ask
from xidwatch.rulefiles import OVERRIDES, ConfigError, both, load_explanations, load_rules, overrides_dir, rule_tables, rules_dir

SHIPPED = Path(__file__).parent.parent / "rules"


def test_rules_are_those_of_the_package_or_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As given; else inside the installed package; else beside it in the checkout."""
    assert rules_dir(tmp_path) == tmp_path
    monkeypatch.setattr(rulefiles, "__file__", str(tmp_path / "xidwatch" / "rulefiles.py"))
    assert rules_dir(None) == tmp_path / "rules"
    (tmp_path / "xidwatch" / "_rules").mkdir(parents=True)
    assert rules_dir(None) == tmp_path / "xidwatch" / "_rules"


def test_the_shipped_rules_are_sound() -> None:
    """The conditions the program is built on are among them, and Xid 79 ends talk with the driver."""
    rules = load_rules(rules_dir(None))
    wanted = {"ConfigSpaceAllOnes", "ConfigSpaceReset", "GpuLost", "DriverFatalXid", "ProbeStuck", "KernelLogGap"}
    assert wanted <= {rule.type for rule in rules.conditions}
    assert rules.xids[79].driver_fatal


def test_every_mistake_in_both_rule_files_is_said_at_once(tmp_path: Path) -> None:
    """Each with its file and its row."""
    (tmp_path / "conditions.toml").write_text(
        '[A]\nabout = "gpu"\nwhen = "no_such_quantity > 0"\nseverity = "error"\nsource = "x"\n[B]\nabout = "moon"\n'
    )
    (tmp_path / "xid.toml").write_text('[xid]\n79 = { mnemonic = "X", class = "link", severity = "awful" }\nx = 1\n')
    with pytest.raises(ConfigError) as refused:
        load_rules(tmp_path)
    said = refused.value.problems
    assert {line.split(": ")[0] for line in said} == {str(tmp_path / "conditions.toml"), str(tmp_path / "xid.toml")}
    for part in ("A.when", "no_such_quantity", "B.about", "'moon'", "xid.79.severity", "xid.x"):
        assert any(part in line for line in said), part


def test_what_a_folder_does_not_hold_is_as_shipped(tmp_path: Path) -> None:
    """Whoever changes one file keeps a copy of one file; or none, only a rules.d."""
    before = rule_tables(SHIPPED)
    rows = (SHIPPED / "xid.toml").read_text().replace('severity = "error"', 'severity = "warning"')
    (tmp_path / "xid.toml").write_text(rows)
    after = rule_tables(tmp_path, overrides_dir(tmp_path))
    assert [after[name] == before[name] for name in ("conditions", "xid")] == [True, False]
    (tmp_path / "xid.toml").unlink()
    (tmp_path / "rules.d").mkdir()
    assert rule_tables(tmp_path, overrides_dir(tmp_path)) == before
    assert load_explanations(tmp_path) == load_explanations(SHIPPED)


def test_a_folder_that_holds_no_rules_is_the_wrong_one(tmp_path: Path) -> None:
    """Nobody names a folder to get what is shipped."""
    with pytest.raises(ConfigError) as refused:
        load_rules(tmp_path)
    assert refused.value.problems == [f"{tmp_path}: no folder of rules: it holds none of conditions.toml, xid.toml, explain.toml, rules.d"]
    with pytest.raises(ConfigError, match=r"nowhere: No such file or directory"):
        load_rules(tmp_path / "nowhere")


def test_a_rule_file_that_is_wrong_hides_nothing_in_the_others(tmp_path: Path) -> None:
    """Nor in a site's own: all of them are told in one go, and a file that changes a bad one is not blamed for it."""
    shutil.copy(SHIPPED / "conditions.toml", tmp_path)
    (tmp_path / "xid.toml").write_text("[")
    (tmp_path / "rules.d").mkdir()
    changed(tmp_path / "rules.d", a='[xid]\n79 = { severity = "error" }\n[conditions.GpuLost]\nhold = 5\n[sxid]\n')
    with pytest.raises(ConfigError) as refused:
        load_rules(tmp_path, overrides_dir(tmp_path))
    assert [line.removeprefix(f"{tmp_path}/").split(": ")[:2] for line in refused.value.problems] == [
        ["xid.toml", "not TOML"],
        ["rules.d/a.toml", "sxid"],
        ["rules.d/a.toml", "conditions.GpuLost.hold"],
    ]


# --- what a site changes


def changed(folder: Path, **files: str) -> Path:
    """A rules.d with these files."""
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text)
    return folder


def refused(folder: Path, **files: str) -> list[str]:
    with pytest.raises(ConfigError) as wrong:
        load_rules(SHIPPED, changed(folder, **files))
    return [problem.removeprefix(f"{folder}/") for problem in wrong.value.problems]


def test_a_site_s_own_rules_are_beside_its_configuration() -> None:
    """Or below the folder that replaces all rules."""
    assert overrides_dir(None) == OVERRIDES == Path("/etc/xidwatch/rules.d")
    assert overrides_dir(Path("/srv/rules")) == Path("/srv/rules/rules.d")


def test_two_readings_tell_all_that_is_wrong_with_both(tmp_path: Path) -> None:
    """What both have found is told once."""
    folder = changed(tmp_path, a="[explain.xid.79]\ncheck = 1\n[xid]\n79 = { severity = 1 }\n")
    with pytest.raises(ConfigError) as refused:
        both(lambda: load_rules(SHIPPED, folder), lambda: load_explanations(SHIPPED, folder))
    assert [line.split(": ")[1] for line in refused.value.problems] == ["xid.79.severity", "explain.xid.79.check"]
    assert both(lambda: 1, lambda: "two") == (1, "two")


def test_one_key_of_a_row_is_changed_and_the_others_stay(tmp_path: Path) -> None:
    """Of an Xid, of a condition, of a text; every other row is as shipped."""
    text = """
        [xid]
        92 = { severity = "error", text = { storm = "critical" } }
        [conditions.RailOutOfRange]
        hold = "5m"
        [explain.xid.79]
        check = ["the blue cable"]
    """
    folder = changed(tmp_path, site=text)
    before, after = load_rules(SHIPPED), load_rules(SHIPPED, folder)
    assert (after.xids[92].severity, after.xids[92].severity_of("a storm")) == (Severity.ERROR, Severity.CRITICAL)
    assert (after.xids[92].mnemonic, after.xids[92].asks) == (before.xids[92].mnemonic, Ask.NOTHING)
    assert {number: rule for number, rule in after.xids.items() if number != 92} == {n: r for n, r in before.xids.items() if n != 92}
    rows = {rule.type: rule for rule in after.conditions}
    assert rows["RailOutOfRange"].hold_seconds == 300
    assert rows["RailOutOfRange"].severity is Severity.WARNING
    assert [rule.type for rule in after.conditions] == [rule.type for rule in before.conditions]
    told = load_explanations(SHIPPED, folder).of_number("xid", 79)
    assert told
    assert (told.check, bool(told.meaning)) == (("the blue cable",), True)


def test_a_site_adds_rows_of_its_own(tmp_path: Path) -> None:
    """An Xid that nobody knew, and a condition that is looked at last."""
    text = """
        [xid]
        500 = { mnemonic = "NEW", class = "link", severity = "critical" }
        [conditions.TooHot]
        about = "gpu"
        when = "temperature_celsius > 85"
        severity = "warning"
        source = "the manager of the machine room"
    """
    rules = load_rules(SHIPPED, changed(tmp_path, site=text))
    assert (rules.xids[500].mnemonic, rules.xids[500].driver_fatal) == ("NEW", False)
    assert rules.conditions[-1].type == "TooHot"


def test_the_later_file_has_the_last_word(tmp_path: Path) -> None:
    """In the order of their names; what is no TOML by name is not read."""
    row = '[xid]\n13 = {{ severity = "{}" }}\n'.format
    folder = changed(tmp_path, **{"10-a": row("info"), "20-b": row("critical")})
    (folder / "30-c.toml.rpmsave").write_text("[")
    (folder / ".hidden.toml").write_text("[")
    assert load_rules(SHIPPED, folder).xids[13].severity is Severity.CRITICAL


def test_without_a_folder_the_rules_are_as_shipped(tmp_path: Path) -> None:
    """And with an empty one."""
    assert rule_tables(SHIPPED, tmp_path / "nowhere") == rule_tables(SHIPPED, tmp_path) == rule_tables(SHIPPED)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[xid]\n79 = { severity = 'awful' }", "a.toml: xid.79.severity: expected one of info, warning, error, critical, not 'awful'"),
        ("[xid]\n79 = { colour = 'red' }", "a.toml: xid.79.colour: unknown key (known here: mnemonic, class, "),
        ("[xid]\n79 = 7", "a.toml: xid.79: expected a table"),
        (
            "[xid]\n500 = { severity = 'error' }",
            "a.toml: xid.500: no Xid of this name is shipped. A new one needs mnemonic, class as well",
        ),
        ("[xid]\n79 = { asks = 'prayer' }", "a.toml: xid.79.asks: expected one of nothing, "),
        ("[conditions.GpuLost]\nhold = 5", "a.toml: conditions.GpuLost.hold: '5' is not a duration"),
        (
            "[conditions.GpuLots]\nhold = '5s'",
            "a.toml: conditions.GpuLots: no condition of this name is shipped; did you mean GpuLost? A new one needs about, when, ",
        ),
        (
            "[conditions.TooHot]\nabout = 'gpu'\nwhen = 'temperature_celsius > 85'\nseverity = 'error'",
            "a.toml: conditions.TooHot: no condition of this name is shipped. A new one needs source as well",
        ),
        ("[conditions]\nGpuLost = 7", "a.toml: conditions.GpuLost: expected a table"),
        ("[explain.xid.79]\ncheck = 'the cable'", "a.toml: explain.xid.79.check: expected a list of texts"),
        ("[explain.xid.cable]\nmeaning = 'x'", "a.toml: explain.xid.cable: neither a number nor a range"),
        ("[sxid]\n", "a.toml: sxid: unknown key (known here: xid, conditions, explain)"),
        ("xid = 7", "a.toml: xid: expected a table of rows"),
        ("[", "a.toml: not TOML"),
    ],
)
def test_a_bad_file_is_refused_with_its_name_and_its_key(tmp_path: Path, text: str, problem: str) -> None:
    """The daemon does not start with half of what a site wanted."""
    assert any(each.startswith(problem) for each in refused(tmp_path, a=text)), refused(tmp_path, a=text)


def test_a_name_that_was_mistyped_is_one_mistake(tmp_path: Path) -> None:
    """Not one for each key that the row would need if it were new; what else is wrong with it is told too."""
    wrong = refused(tmp_path, a="[conditions.RailOutOfRnge]\nhold = 5\nholt = '1s'")
    assert [problem.split(": ")[1] for problem in wrong] == [
        "conditions.RailOutOfRnge.holt",
        "conditions.RailOutOfRnge.hold",
        "conditions.RailOutOfRnge",
    ]


def test_each_file_answers_for_its_own_mistakes(tmp_path: Path) -> None:
    """All at once, and the good file between them is not blamed."""
    good = "[xid]\n13 = { severity = 'info' }"
    wrong = refused(tmp_path, a="[xid]\n79 = { severity = 1 }", b=good, c="[conditions.GpuLost]\nholt = '1s'")
    assert [problem.split(": ")[:2] for problem in wrong] == [["a.toml", "xid.79.severity"], ["c.toml", "conditions.GpuLost.holt"]]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """Rules that somebody wrote and that are not in force would be worse than none."""
    tmp_path.chmod(0)
    try:
        with pytest.raises(ConfigError, match="Permission denied"):
            load_rules(SHIPPED, tmp_path)
    finally:
        tmp_path.chmod(0o700)


def test_something_else_in_the_folder_s_place_is_said(tmp_path: Path) -> None:
    """A file where the folder should be."""
    (tmp_path / "rules.d").write_text("")
    with pytest.raises(ConfigError, match="Not a directory"):
        load_rules(SHIPPED, tmp_path / "rules.d")
