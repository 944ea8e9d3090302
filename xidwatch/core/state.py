"""What the watch knows, and one step under way.

Law: a state is replaced, never changed. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from xidwatch.core.aer import Errors
from xidwatch.core.gate_model import Gate, GateSettings, Maintenance
from xidwatch.core.health import Tracked
from xidwatch.core.messages import ConditionKey, Output
from xidwatch.core.model import Incident, Moment, Readings, Subject
from xidwatch.core.recovery_model import Recoveries
from xidwatch.core.roster import Roster
from xidwatch.core.rules import Rule
from xidwatch.core.tally import Tally


@dataclass(frozen=True, slots=True)
class State:
    """What the watch knows. Replaced, never changed."""

    conditions: Mapping[ConditionKey, Tracked] = field(default_factory=dict)
    readings: Readings = field(default_factory=dict)  # of the latest tick, and of looks since
    expected: Readings = field(default_factory=dict)  # as learnt while healthy
    inventory: Readings = field(default_factory=dict)  # of PCI devices: what does not change, as last told
    roster: Roster = field(default_factory=Roster)
    errors: Errors = field(default_factory=Errors)
    tally: Tally = field(default_factory=Tally)
    incident: Incident | None = None
    dumps: tuple[float, ...] = ()  # wall times of the last day's dumps
    driver_released: bool = False
    engines: tuple[GateSettings, ...] = ()
    gates: Mapping[str, Gate] = field(default_factory=dict)  # by unit
    opened: frozenset[str] = frozenset()  # units whose gate an operator has opened by hand
    dumping: frozenset[str] = frozenset()  # incidents whose stage one is being written
    xid_errors: Mapping[Subject, Moment] = field(default_factory=dict)  # when the driver last told of an error of it
    boot_id: str = ""
    maintenance: Maintenance | None = None
    recovery: Recoveries = field(default_factory=Recoveries)
    looked_at: float = float("-inf")  # monotonic time of the last immediate look asked for
    next_id: int = 1


@dataclass(slots=True)
class Step:
    """One step under way: the only mutable thing in the core, and it never outlives `step`."""

    rules: tuple[Rule, ...]
    state: State
    out: list[Output] = field(default_factory=list)
    own_conditions: dict[ConditionKey, Tracked] | None = None  # copied at the first change, so that most steps copy nothing

    def change(self, **changes: object) -> None:
        """Replace some of the state."""
        self.state = replace(self.state, **changes)  # type: ignore[arg-type]

    @property
    def conditions(self) -> Mapping[ConditionKey, Tracked]:
        """As they stand now."""
        return self.state.conditions if self.own_conditions is None else self.own_conditions

    def hold(self, key: ConditionKey, tracked: Tracked) -> None:
        """From now on the condition stands like this."""
        if self.own_conditions is None:
            self.own_conditions = dict(self.state.conditions)
        self.own_conditions[key] = tracked

    def id(self, letter: str) -> str:
        """A fresh record id."""
        number = self.state.next_id
        self.change(next_id=number + 1)
        return f"{letter}-{number:06d}"

    def done(self) -> tuple[State, tuple[Output, ...]]:
        """The next state, and what has to be written and done."""
        if self.own_conditions is not None:
            self.change(conditions=self.own_conditions)
        return self.state, tuple(self.out)
