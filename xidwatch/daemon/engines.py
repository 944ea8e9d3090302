"""Engines in this run: which there are, what an earlier run left of their gates, and who carries out what the watch decides."""

from __future__ import annotations

from collections.abc import Callable, Collection

from xidwatch.clock import Clock
from xidwatch.config import EngineConfig
from xidwatch.core.messages import GatesOpened, Input, Supervised
from xidwatch.core.model import Action
from xidwatch.core.recovery_model import RecoverySettings
from xidwatch.daemon.loop import Loop
from xidwatch.daemon.nursery import Nursery
from xidwatch.daemon.processes import Abandoned
from xidwatch.daemon.supervisor import Supervisor, gate_settings
from xidwatch.records.recovery import Recovered

Outcome = Callable[[Action, str, int, str], None]


class Engines:
    """`take` is the way to tell the watch, `outcome` gets what became of an action, `stuck` a process that does not answer."""

    def __init__(
        self,
        loop: Loop,
        nursery: Nursery,
        configured: tuple[EngineConfig, ...],
        recovery: RecoverySettings,
        take: Callable[[Input], None],
        outcome: Outcome,
        stuck: Callable[[Abandoned], None],
    ) -> None:
        self._clock: Clock = loop.clock
        self._configured = configured
        self._recovery = recovery
        self._take = take
        self._outcome = outcome
        self._opened: frozenset[str] = frozenset()
        self._supervisor = Supervisor(loop, nursery, take, stuck)
        self.started = self._supervisor.started

    def begin(self, found: Recovered | None, *, knows_past: bool) -> None:
        """The past is known, or given up on (None): from here on they are supervised. `knows_past`: to the last step of recovery."""
        gates, maintenance, attempts = (found.gates, found.maintenance, found.attempts) if found else ((), None, ())
        self._take(
            Supervised(
                self._clock.now(),
                self._clock.boot_id,
                gate_settings(self._configured),
                gates,
                maintenance,
                self._recovery,
                attempts,
                knows_past=knows_past,
            )
        )

    def opened(self, units: Collection[str]) -> None:
        """Whose gate an operator has opened by hand, as of now."""
        if frozenset(units) != self._opened:
            self._opened = frozenset(units)
            self._take(GatesOpened(self._clock.now(), self._opened))

    def carry_out(self, action: Action, detail: str) -> None:
        """A stop or a start; `detail` is what there is to say of its record."""
        engine = next((each for each in self._configured if action.unit in (each.unit, each.after_incident_unit)), None)
        if engine is None:
            self._outcome(action, "failed", 0, f"{action.unit} is no engine of the configuration")
            return

        def ended(result: str, took_ms: int, text: str) -> None:
            self._outcome(action, result, took_ms, "; ".join(filter(None, (detail, text))))

        self._supervisor.carry_out(action, engine, ended)

    def finish(self) -> None:
        """The daemon leaves; engines go on."""
        self._supervisor.finish()
