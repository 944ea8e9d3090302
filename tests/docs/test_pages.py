"""The documentation says what the program does: nothing in it is stale, dead or made up."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs import diagrams, pages
from tests.docs.pages import ALERTS, DOCS, ROOT, RUNBOOKS
from xidwatch import cli
from xidwatch.core.incidents import DUMPS_PER_DAY
from xidwatch.core.quantities import BY_NAME

WRITTEN = (*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")))
LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^ {4}|`|\| )(?:sudo )?(?:\.venv/bin/)?(xidwatch [a-z][^`|\n#]*)", re.MULTILINE)
SECTIONS = ("What it means", "What it is not", "Check first", "What xidwatch does", "How to recover", "When to call the vendor")
OPTIONAL = "What xidwatch does"
# What a runbook may ask a person to run besides: reads, and asks no driver of a GPU.
HARMLESS = {"awk", "cat", "curl", "df", "findmnt", "journalctl", "ls", "lsblk", "ps", "systemctl", "tail", "uptime", "xidwatch"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def runbooks() -> list[Path]:
    return [path for path in sorted(RUNBOOKS.glob("*.md")) if path.stem != "README"]


def alerts() -> set[str]:
    return set(re.findall(r"- alert: (\w+)", ALERTS.read_text()))


def blocks(text: str) -> Iterator[list[str]]:
    """Every command of every shell block, in words, without what a pipe connects it to."""
    for language, body in FENCE.findall(text):
        for line in body.splitlines() if language == "sh" else ():
            words = shlex.split(line, comments=True)
            while "|" in words:
                yield words[: words.index("|")]
                words = words[words.index("|") + 1 :]
            yield words


@pytest.mark.parametrize("path", pages.pages(), ids=name)
def test_what_is_generated_is_up_to_date(path: Path) -> None:
    """A table or a diagram on a page is what the program would have it be."""
    text = path.read_text()
    assert text == pages.written(text), f"{name(path)} is stale: `make docs`"


def test_a_change_is_seen_and_written() -> None:
    """A line that somebody has put between the marks goes, and what stands around them stays, in a page and in YAML."""
    page = (DOCS / "metrics.md").read_text()
    assert pages.written(page.replace("xidwatch_verdict", "xidwatch_word")) == page
    rules = ALERTS.read_text()
    assert pages.written(rules.replace("GpuLost|", "")) == rules
    assert pages.written("no marks at all\n") == "no marks at all\n"


def test_a_mark_that_nobody_fills_is_a_mistake() -> None:
    """It does not stay empty in silence."""
    with pytest.raises(KeyError, match="metricks"):
        pages.written("<!-- generated: metricks -->\n<!-- end -->\n")


def test_every_metric_has_a_row_with_a_meaning() -> None:
    """So has the reading behind it, where there is one."""
    page = (DOCS / "metrics.md").read_text()
    for family in pages.families():
        assert family.documentation
        assert f"| `{pages.exposed(family)}` | {family.type} |" in page
    assert all(f"| `{quantity}` | {row.meaning}" in page.replace(r"\|", "|") for quantity, row in BY_NAME.items())


def test_every_condition_has_a_row() -> None:
    """None is left out, and its advice is in it."""
    page = (DOCS / "conditions.md").read_text()
    assert [rule.type for rule in pages.rules().values() if rule.type not in page or rule.advice not in page] == []


def test_every_condition_but_remarks_has_an_alert_and_a_runbook() -> None:
    """What opens an incident, or is worth a warning, wakes somebody who can read what to do."""
    said = ALERTS.read_text()
    named = {type_ for types in re.findall(r'xidwatch_condition\{type=~"([^"]*)"\}', said) for type_ in types.split("|")}
    wanted = {type_ for type_, rule in pages.rules().items() if rule.opens_incident or rule.severity != pages.NOT_ALERTED}
    assert named == wanted
    own = {alert for alert in alerts() if not alert.startswith("XidwatchCondition")}
    assert {path.stem for path in runbooks()} == wanted | own


def test_every_alert_names_its_runbook() -> None:
    """By its own name, or by that of the condition that is TRUE."""
    for alert, rest in re.findall(r"- alert: (\w+)(.*?)(?=- alert:|\Z)", ALERTS.read_text(), re.DOTALL):
        page = "{{ $labels.type }}" if alert.startswith("XidwatchCondition") else alert
        assert f'runbook: "docs/runbooks/{page}.md"' in rest, alert


def test_every_metric_of_an_alert_exists() -> None:
    """An alert on a name with a slip in it never fires."""
    shown = {pages.exposed(family) for family in pages.families()}
    asked = set(re.findall(r"\bxidwatch_\w+", "\n".join(re.findall(r"expr: (.*)", ALERTS.read_text()))))
    assert asked
    assert asked <= shown


@pytest.mark.parametrize("path", runbooks(), ids=lambda path: path.stem)
def test_a_runbook_answers_the_same_questions_in_the_same_order(path: Path) -> None:
    """At two in the morning nobody looks for the place; and it says at the top when it is the right page."""
    text = path.read_text()
    lines = text.splitlines()
    assert lines[0] == f"# {path.stem}"
    assert re.fullmatch(r"[^\n]{10,100}\.", lines[2])
    found = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert found == [title for title in SECTIONS if title in found or title != OPTIONAL]
    assert all(body.strip() for body in re.split(r"^## .+$", text, flags=re.MULTILINE))
    is_condition = path.stem in pages.rules()
    assert (f"<!-- generated: runbook {path.stem} -->" in text) is is_condition
    assert list(blocks(text)), "no command to begin with"


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_no_link_is_dead(path: Path) -> None:
    """Files and headings that a page refers to are there."""
    dead = []
    for target, anchor in LINK.findall(path.read_text()):
        page = (path.parent / target).resolve() if target else path
        if not page.exists() or (anchor and anchor not in headings(page)):
            dead.append(f"{target}#{anchor}")
    assert dead == []


def headings(page: Path) -> set[str]:
    """As a forge makes addresses of them."""
    text = FENCE.sub("", page.read_text())
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in HEADING.findall(text)}


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_every_command_shown_is_one(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its words and options are the parser's; what else a runbook asks to run only reads."""
    text = path.read_text()
    shown = [shlex.split(found.replace("[", "").replace("]", "")) for found in COMMAND.findall(text)]
    named = [[*words, "--help"] if len(words) == 2 else words for words in shown]  # `xidwatch note`: by its name alone
    for words in (*named, *blocks(text)):
        assert words[0] in HARMLESS, words
        if words[0] == "xidwatch":
            assert parses(words[1:]), f"{' '.join(words)}: {capsys.readouterr().err}"


def parses(words: list[str]) -> bool:
    try:
        cli.parser().parse_args(words)
    except SystemExit as ended:
        return ended.code == 0
    return True


def test_a_command_that_is_none_is_found() -> None:
    """A subcommand that is not there, or an option that is another command's, does not pass for one."""
    assert parses(["status", "--json"])
    assert not parses(["rewind"])
    assert not parses(["status", "--follow"])
    assert list(blocks("```sh\njournalctl -k | xidwatch decode --json  # all\n```\n")) == [
        ["journalctl", "-k"],
        ["xidwatch", "decode", "--json"],
    ]
    assert COMMAND.findall("say `xidwatch note TEXT` or\n    sudo xidwatch init # now\nxidwatch is") == [
        "xidwatch note TEXT",
        "xidwatch init ",
    ]


def test_a_condition_is_drawn_as_it_moves() -> None:
    """Leaving TRUE for good takes the clearing time; not knowing is immediate, and no way out of it is shorter for having been bad."""
    drawn = diagrams.condition()
    assert "TRUE --> FALSE: judged FALSE for clear\n" in drawn
    assert "TRUE --> UNKNOWN: judged UNKNOWN\n" in drawn
    assert "UNKNOWN --> FALSE: judged FALSE<br/>or judged FALSE for clear, if it was TRUE before\n" in drawn
    assert "--> TRUE: judged TRUE\n" not in drawn


def test_an_incident_is_drawn_as_it_ends() -> None:
    """Neither TRUE nor UNKNOWN is a way out."""
    drawn = diagrams.incident()
    assert "open --> none: every member FALSE, no other TRUE<br/>or every member NOT_APPLICABLE, no other TRUE\n" in drawn
    assert f"At most {DUMPS_PER_DAY} a day" in (DOCS / "how-it-works.md").read_text()


def test_a_machine_that_is_a_table_is_drawn_from_it() -> None:
    """One arrow between two states, with every event and what is done at it."""
    table = {("HELD", "proven"): ("OPEN", "start it"), ("HELD", "forced"): ("OPEN", ""), ("OPEN", "lost"): ("HELD", "")}
    assert diagrams.of_table(table).splitlines() == [
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> HELD",
        "    HELD --> OPEN: proven (start it)<br/>or forced",
        "    OPEN --> HELD: lost",
        "```",
    ]
