"""The host on paper with an engine on it: what systemd says of its unit, what an operator has accepted, what the daemon answers."""

from __future__ import annotations

from collections.abc import Iterable

from tests.core.story import GPUS, Readings, Story, healthy
from xidwatch.core.gate_model import Gate, GateMoved, GateSettings, GateState, Maintenance
from xidwatch.core.messages import (
    BaselineAccepted,
    DumpEnded,
    EngineSeen,
    EngineStarted,
    EngineStopped,
    GateReset,
    GatesOpened,
    MaintenanceSet,
    Output,
    Supervised,
)
from xidwatch.core.model import Action, ActionKind, Missing, Subject, Value

UNIT = "vllm.service"
GENTLE = "vllm-gentle.service"
ENGINE = Subject("engine", UNIT)
SETTINGS = GateSettings(UNIT, gpus="all")
BOOT = "boot-a"
PIDS = "100 101"


def unit(active: str = "active", **others: Value) -> dict[str, Value]:
    """A unit as the engine probe reads it."""
    sub = {"active": "running", "inactive": "dead", "activating": "start-pre", "deactivating": "stop-sigterm"}.get(active, active)
    runs = active == "active"
    known: dict[str, Value] = {
        "load_state": "loaded",
        "unit_file_state": "enabled",
        "active_state": active,
        "sub_state": sub,
        "invocation_id": "run-1" if runs else Missing.ABSENT,
        "restarts": 0,
        "result": "success",
        "state_seconds": 100.0,
        "processes": 2 if runs else 0,
        "pids": PIDS if runs else "",
        "requests_running": 0 if runs else Missing.ABSENT,
    }
    return known | others


def card(**others: Value) -> dict[str, Value]:
    """What a GPU on a good day tells besides."""
    told: dict[str, Value] = {"temperature_celsius": 40, "recovery_action": Missing.UNSUPPORTED, "compute_pids": PIDS}
    return told | {"power_limit_watts": 250.0, "utilisation_ratio": 0.0} | others


class Night(Story):
    """A story with one engine. Its baseline is accepted, and it runs, unless said otherwise."""

    def __init__(self, settings: GateSettings = SETTINGS, *, accepted: bool = True, runs: bool = True) -> None:
        host: Readings = healthy()
        for gpu in GPUS:
            host[gpu] = host[gpu] | card()
        super().__init__(readings=host | {ENGINE: unit() if runs else unit("inactive")})
        self.settings = settings
        self.boot_id = BOOT
        self.give(Supervised(self.now, BOOT, (settings,)))
        self.tick()
        self.name_all()
        if accepted:
            self.give(BaselineAccepted(self.now, anew=False))
        self.ticks(2)

    # ------------------------------------------------------------------------------------------------- what happens

    def name_all(self) -> None:
        """Everybody says who he is."""
        self.inventory({gpu: {"uuid": f"GPU-{gpu.name}", "serial": Missing.UNSUPPORTED} for gpu in GPUS})

    def unit(self, active: str = "active", **others: Value) -> Night:
        """From now on systemd says this of it, and its processes are on the GPUs only while it runs."""
        self.readings[ENGINE] = unit(active, **others)
        for gpu in GPUS:
            if gpu in self.readings:
                self.set(gpu, {"compute_pids": PIDS if active == "active" else ""})
        return self

    def works(self) -> Night:
        """It has requests, as the last tick shows."""
        self.set(ENGINE, {"requests_running": 3})
        self.tick()
        return self

    def mended(self) -> Night:
        """All is as on a good day again, with nobody on the GPUs; NVML is asked anew, and every proof can be had."""
        self.readings = {**self.readings, **healthy()}
        for gpu in GPUS:
            self.set(gpu, card(compute_pids=""))
        self.renew_driver()
        return self

    # -------------------------------------------------------------------------------------------- what the daemon says

    def dumped(self, result: str = "ok") -> list[Output]:
        """Stage one is over."""
        assert self.state.incident is not None
        return self.give(DumpEnded(self.now, self.state.incident.id, result))

    def stopped(self, result: str = "ok", leftovers: tuple[str, ...] = ()) -> list[Output]:
        """Our stop is over, and systemd says so at the next look."""
        self.wait(1.0)
        self.unit("inactive", processes=len(leftovers))
        return self.give(EngineStopped(self.now, UNIT, self.gate.asked, result, leftovers=leftovers))

    def started(self, result: str = "ready", run: str = "run-2") -> list[Output]:
        """Our start is over."""
        assert self.gate.lease is not None
        self.wait(1.0)
        if result == "ready":
            self.unit(invocation_id=run)
        return self.give(EngineStarted(self.now, UNIT, self.gate.lease.action, result, invocation_id=run))

    def seen(self) -> list[Output]:
        """A look at its unit between two ticks."""
        return self.wait(1.0).give(EngineSeen(self.now, UNIT, self.readings[ENGINE]))

    def reset(self) -> list[Output]:
        """An operator takes it out of its latch."""
        return self.give(GateReset(self.now, UNIT, "alice"))

    def open_by_hand(self, *units: str) -> list[Output]:
        """An operator's order."""
        return self.give(GatesOpened(self.now, frozenset(units)))

    def maintenance(self, seconds: float | None) -> list[Output]:
        """Begins for so long, or ends."""
        on = Maintenance(self.now, self.now.wall + seconds, "card swap", "alice") if seconds else None
        return self.give(MaintenanceSet(self.now, on, "alice"))

    def lose_and_stop(self) -> Night:
        """The switch goes, and with it the engine."""
        self.lose_switch()
        self.look()
        self.dumped()
        self.stopped()
        return self

    def again(self, *, new_boot: bool = False) -> Night:
        """A successor that knows what is on record."""
        before = self.state
        after = Night.__new__(Night)
        after.__dict__.update(self.restart(new_boot=new_boot).__dict__)
        after.settings, after.boot_id = self.settings, f"{self.boot_id}+" if new_boot else self.boot_id
        after.give(Supervised(after.now, after.boot_id, (self.settings,), tuple(before.gates.values()), before.maintenance))
        return after

    # ------------------------------------------------------------------------------------------------- what is held

    @property
    def gate(self) -> Gate:
        """Its gate."""
        return self.state.gates[UNIT]

    @property
    def at(self) -> GateState:
        """Where its gate stands."""
        return self.gate.state

    def settle(self, most: int = 8) -> list[Output]:
        """Ticks until a start is asked for, or none was by then."""
        for _ in range(most):
            outputs = self.tick()
            if orders(outputs):
                return outputs
        return []


def orders(outputs: Iterable[Output]) -> list[tuple[ActionKind, str]]:
    """What is to be done to engines."""
    kinds = (ActionKind.STOP_ENGINE, ActionKind.START_ENGINE)
    return [(output.kind, output.unit) for output in outputs if isinstance(output, Action) and output.kind in kinds]


def moves(outputs: Iterable[Output]) -> list[tuple[GateState | None, GateState]]:
    """From where to where; notes about a state that stays are left out."""
    gates = [(output.before, output.gate.state) for output in outputs if isinstance(output, GateMoved)]
    return [(before, after) for before, after in gates if before is not after]


STOP, START = (ActionKind.STOP_ENGINE, UNIT), (ActionKind.START_ENGINE, UNIT)
