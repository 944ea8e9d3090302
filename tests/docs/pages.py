"""What is generated in the documentation, and where it stands: between two marks, so that a person writes around it.

    <!-- generated: metrics -->          # generated: types critical            (the latter in YAML)
    ...                                  ...
    <!-- end -->                         # end

`python -m tests.docs` (`make docs`) writes it; a test says when what is committed is not what would be written.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from prometheus_client.metrics_core import Metric

from tests.docs.diagrams import DIAGRAMS
from xidwatch import rulefiles
from xidwatch.clock import SystemClock
from xidwatch.core import quantities
from xidwatch.core.model import Severity
from xidwatch.core.rules import Rule
from xidwatch.daemon import metrics
from xidwatch.records import journal

ROOT = Path(__file__).resolve().parents[2]
DOCS, RUNBOOKS, ALERTS = ROOT / "docs", ROOT / "docs/runbooks", ROOT / "rules/prometheus/xidwatch.rules.yml"
RULES = ROOT / "rules"
NOT_ALERTED = Severity.INFO  # a remark wakes nobody, and needs no runbook
UNITS = ("seconds", "watts", "celsius", "bytes", "volts", "ratio", "tokens_per_second", "transfers_per_second")
GAUGES = metrics.GPU_GAUGES + metrics.PORT_GAUGES + metrics.RAIL_GAUGES + metrics.ENGINE_GAUGES
MARK = re.compile(
    r"(?P<begin>^(?P<indent>[ \t]*)(?:<!--|#) generated: (?P<what>[^\n]*?)(?: -->)?\n)(?P<old>.*?)(?P<end>^[ \t]*(?:<!-- end -->|# end)$)",
    re.MULTILINE | re.DOTALL,
)
# What the records say that the watch does not make, for their writers have no function of their own.
OTHER_KINDS = {
    "uevent": "The kernel has announced that a device came, went or changed its driver.",
    "note": "A person's remark (`xidwatch note`).",
    "started": "A run of the daemon begins: version, boot, what it took over.",
    "stopped": "It took its leave. A run without one was killed, or the power went.",
    "settings": "A changed configuration, or changed rules, were taken over or refused.",
    "gate": "The gate of one engine has changed its state, or the reason for it.",
    "maintenance": "Somebody works on the host, or has finished: until when, and why.",
}


def written(text: str) -> str:
    """A page with everything between its marks as it should be. Raises KeyError for a mark that nobody fills."""
    return MARK.sub(lambda found: found["begin"] + _indented(generated(found["what"]), found["indent"]) + found["end"], text)


def pages() -> list[Path]:
    """Every file that has marks."""
    return [path for path in sorted((*DOCS.rglob("*.md"), ALERTS)) if MARK.search(path.read_text())]


def generated(what: str) -> str:
    """The text for one mark: a word, and what it is about where there are several of a kind."""
    kind, _, of = what.partition(" ")
    return MAKERS[kind](of).strip("\n") + "\n"


def _indented(text: str, indent: str) -> str:
    return "".join(f"{indent}{line}" if line.strip() else line for line in text.splitlines(keepends=True))


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; a bar within a cell does not end it."""
    head = tuple(head)
    lines = [head, ("---",) * len(head), *(tuple(cell.replace("|", r"\|") for cell in row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# ------------------------------------------------------------------------------------------------------------- conditions


@lru_cache
def rules() -> dict[str, Rule]:
    """As shipped, by type."""
    return {rule.type: rule for rule in rulefiles.load_rules(RULES).conditions}


@lru_cache
def _rows() -> Mapping[str, Any]:
    return tomllib.loads((RULES / "conditions.toml").read_text())


def _conditions(_of: str) -> str:
    head = ("condition", "of", "when", "hold / clear", "severity", "opens an incident", "stops an engine", "advice", "source")
    return table(head, (_condition(name, row) for name, row in _rows().items()))


def _condition(name: str, row: Mapping[str, Any]) -> list[str]:
    when = row["when"] if isinstance(row["when"], dict) else {"": row["when"]}
    tests = [f"{kind + ': ' if kind else ''}`{text}`" for kind, text in when.items()]
    tests += [f"only if `{row['only_if']}`"] if "only_if" in row else []
    flags = ("yes" if row.get(flag) else "" for flag in ("opens_incident", "stops_engine"))
    title = name if row["severity"] == NOT_ALERTED else f"[{name}](runbooks/{name}.md)"
    return [title, _about(row), "<br/>".join(tests), _times(row), row["severity"], *flags, row.get("advice", ""), row["source"]]


def _about(row: Mapping[str, Any]) -> str:
    return ", ".join(row["about"]) if isinstance(row["about"], list) else str(row["about"])


def _times(row: Mapping[str, Any]) -> str:
    return f"{row.get('hold', '0s')} / {row.get('clear', 'two good ticks')}"


def _runbook(name: str) -> str:
    """The head of a runbook, and what xidwatch does: what the rule says."""
    row, rule = _rows()[name], rules()[name]
    does = ["writes the change into the journal, with the readings behind it"]
    does += [f"opens an incident `...-{rule.label}-...` and saves the evidence at once"] if rule.opens_incident else []
    does += ["takes it as a reason to stop an engine that uses the device"] if rule.stops_engine else []
    does += ["opens no incident: the rows and the dumps of other incidents hold it anyway"] if not rule.opens_incident else []
    does += ["makes the host *failed*" if rule.severity is Severity.CRITICAL else "makes the host *degraded*"]
    when = row["when"] if isinstance(row["when"], dict) else {_about(row): row["when"]}
    return "\n".join([
        f"**{rule.severity}**, of: {_about(row)}. Hold / clear: {_times(row)}. xidwatch {'; '.join(does)}.",
        "",
        *(f"- {kind}: `{text}`" for kind, text in when.items()),
        *([f"- only if `{row['only_if']}`"] if "only_if" in row else []),
    ])  # fmt: skip


def _types(severity: str) -> str:
    """The expression of an alert: every condition of one severity, by name."""
    names = [name for name, rule in rules().items() if rule.severity == severity]
    return f'expr: xidwatch_condition{{type=~"{"|".join(names)}"}} == 1'


# ---------------------------------------------------------------------------------------------------------------- metrics


def families() -> list[Metric]:
    """Every family that a scrape can show: they come empty, too."""
    collector = metrics.SnapshotCollector(SystemClock())
    collector.snapshot = metrics.Snapshot(sampled_mono=0.0)
    return list(collector.collect())


def exposed(family: Metric) -> str:
    """The name in the page: the format adds an end to counters and facts."""
    return family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")


def _metrics(_of: str) -> str:
    quantity = {name: quantities.BY_NAME[of] for of, name, _ in GAUGES}
    rows = []
    for family in families():
        labels = getattr(family, "_labelnames", ())
        source = quantity.get(family.name)
        from_where = f"`{source.name}`: {source.source}" if source else ""
        rows.append((f"`{exposed(family)}`", family.type, ", ".join(labels), _unit(family.name), family.documentation, from_where))
    return table(("metric", "type", "labels", "unit", "meaning", "the reading behind it"), rows)


def _unit(name: str) -> str:
    return next((unit.replace("_", " ") for unit in UNITS if name.endswith("_" + unit)), "")


# ---------------------------------------------------------------------------------------------------------- other tables


def _quantities(_of: str) -> str:
    rows = ((f"`{row.name}`", row.meaning, row.source, "fact" if row.fact else "column") for row in quantities.TABLE)
    return table(("quantity", "meaning", "source", "kept as"), rows)


def _journal(_of: str) -> str:
    writers = {kind: getattr(journal, kind, None) for kind in journal.KINDS}
    said = {kind: OTHER_KINDS.get(kind) or getattr(writer, "__doc__", None) for kind, writer in writers.items()}
    if silent := [kind for kind, text in said.items() if not text]:
        raise KeyError(f"nobody says what these records are; a line in OTHER_KINDS: {', '.join(silent)}")
    return table(("kind", "what it says"), ((f"`{kind}`", str(text).splitlines()[0]) for kind, text in said.items()))


def _xids(_of: str) -> str:
    texts = rulefiles.load_explanations(RULES)
    rows = []
    for number, rule in sorted(rulefiles.load_rules(RULES).xids.items()):
        flags = ", ".join(name for name, is_so in (("driver-fatal", rule.driver_fatal), ("bus lost", rule.bus_lost)) if is_so)
        explained = texts.of_number("xid", number)
        rows.append((str(number), rule.mnemonic, rule.xid_class, rule.severity, rule.asks, flags, explained.meaning if explained else ""))
    return table(("Xid", "name", "class", "severity", "asks for", "flags", "what it means"), rows)


def _runbooks(_of: str) -> str:
    titles = ((path.stem, path.read_text().splitlines()[2]) for path in sorted(RUNBOOKS.glob("*.md")) if path.stem != "README")
    return table(("page", "when"), ((f"[{name}]({name}.md)", line) for name, line in titles))


MAKERS: dict[str, Callable[[str], str]] = {
    "diagram": lambda of: DIAGRAMS[of](),
    "conditions": _conditions,
    "runbook": _runbook,
    "runbooks": _runbooks,
    "types": _types,
    "metrics": _metrics,
    "quantities": _quantities,
    "journal": _journal,
    "xids": _xids,
}
