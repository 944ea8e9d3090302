"""Everything that is written down, by way of the recorder: journal records, and lines for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from xidwatch.clock import Clock
from xidwatch.core.gate_model import GateMoved, GateState
from xidwatch.core.gate_view import CLOSED
from xidwatch.core.messages import Closed, Gap, KernelRecord, Opened, Output
from xidwatch.core.model import Action, Outcome, Severity, Status, Transition
from xidwatch.daemon import lines
from xidwatch.daemon.evidence import Evidence, Numbers
from xidwatch.records import journal

CRITICAL, ERROR, WARNING, NOTICE, INFO = 2, 3, 4, 5, 6  # syslog priorities


class Scribe:
    """`new_id(letter)` numbers the records that no step has numbered."""

    def __init__(self, evidence: Evidence, clock: Clock, new_id: Callable[[str], str]) -> None:
        self._evidence = evidence
        self._clock = clock
        self.new_id = new_id
        self._said: set[str] = set()

    def output(self, output: Output) -> Numbers:
        """What the watch wants on record; what to wait for, empty for what is no journal record."""
        record = journal.from_output(output, self._clock.boot_id)
        return self._evidence.journal(record) if record else ()

    def note(self, output: Output) -> None:
        """What no step has brought: on record and for people."""
        self.output(output)
        self.tell((output,))

    def tell(self, outputs: Sequence[Output]) -> None:
        """The same of one step for people."""
        for output in lines.causes_first(outputs):
            self._line(output)
        self._other_edges([output for output in outputs if isinstance(output, Transition)])

    def _line(self, output: Output) -> None:
        match output:
            case Transition(after=Status.TRUE):
                priority, text = lines.bad_edge(output)
                self.log(priority, text, event="transition", subject=str(output.subject), condition=output.type)
            case KernelRecord(event=event) if event.severity.rank >= Severity.WARNING.rank:
                again = f" (and {event.repeated} times more)" if event.repeated > 1 else ""
                by = "injected by a process, not acted on: " if event.injected else ""
                self.log(NOTICE, f"kernel log: {by}{event.text}{again}", event="kernel", kind=event.kind)
            case Gap(source=source, lost=lost):
                self.log(WARNING, f"{lost} records of {source} are missing from the journal", event="gap")
            case GateMoved(before=before, gate=gate) if before is not gate.state:
                priority = WARNING if gate.state in CLOSED else NOTICE
                self.log(priority, f"{gate.unit} {before} -> {gate.state}: {gate.why}", event="gate", unit=gate.unit, state=str(gate.state))
            case GateMoved(gate=gate) if gate.state is GateState.HELD:
                self.log(NOTICE, f"{gate.unit} {gate.state}: {gate.why}", event="gate", unit=gate.unit, state=str(gate.state))
            case Opened(incident=incident):
                self.log(CRITICAL, f"incident {incident.id} opened", event="opened", incident=incident.id)
            case Closed(incident=incident):
                self.log(NOTICE, f"incident {incident.id} closed: all it was about is good again", event="closed", incident=incident.id)

    def _other_edges(self, transitions: Sequence[Transition]) -> None:
        """A step's edges to anything but TRUE, together: a dead switch changes dozens of conditions at once."""
        for text in lines.other_edges(transitions):
            self.log(NOTICE, text, event="transition")

    def outcome(self, action: Action, result: str, took_ms: int, detail: str) -> None:
        """What became of an action."""
        outcome = Outcome(self.new_id("o"), self._clock.now(), action.id, result, took_ms, detail)
        self._evidence.journal(journal.outcome(outcome, self._clock.boot_id))
        about = action.unit or f"{action.step} {action.target}".strip() or f"for {action.cause}"
        text = f"{action.kind} {about}: {result} in {took_ms} ms{': ' + detail if detail else ''}"
        self.log(INFO if result == "ok" else WARNING, text, event="outcome", action=str(action.kind))

    def record(self, kind: str, body: Mapping[str, object], record_id: str = "") -> Numbers:
        """Any other journal record, under a number of its own unless it has one; what to wait for."""
        record_id = record_id or self.new_id("r")
        return self._evidence.journal(journal.record(kind, record_id, self._clock.now(), self._clock.boot_id, body))

    def say(self, key: str, text: str) -> None:
        """Once in this run: what cannot be seen, and what to do about it. It goes into the journal too, for the report."""
        if key not in self._said:
            self._said.add(key)
            self.record("note", {"remark": key, "text": text})
            self.log(WARNING, text, event="remark")

    def unsay(self, key: str) -> None:
        """It is no longer so; should it come back, it is said again."""
        self._said.discard(key)

    def log(self, priority: int, text: str, **fields: str) -> None:
        """A line for people, with fields for machines. Lost rather than late."""
        self._evidence.log(priority, text, fields)
