"""`xidwatch run`: the way in, the signals, and the way out."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xidwatch.clock import SystemClock
from xidwatch.config import DEFAULT_RUN, PROBES, Config, as_mapping
from xidwatch.core.messages import DriverRenewed
from xidwatch.daemon import gates, leftovers
from xidwatch.daemon.announcements import Announcements
from xidwatch.daemon.control import NAME, Control
from xidwatch.daemon.loop import Loop
from xidwatch.daemon.metrics import MetricsServer
from xidwatch.daemon.notify import Notifier
from xidwatch.daemon.probes import deadlines
from xidwatch.daemon.reload import Reload
from xidwatch.daemon.rundir import RunDir
from xidwatch.daemon.scribe import ERROR, NOTICE, WARNING
from xidwatch.daemon.service import Daemon
from xidwatch.daemon.settings import Settings

DRIVER_CALL_SECONDS = 8.0  # a driver call under way is waited for this long
LAST_WORDS_SECONDS = 2.0
GRACE_SECONDS = 0.7
LONGEST_LEAVE_SECONDS = DRIVER_CALL_SECONDS + LAST_WORDS_SECONDS + 2 * GRACE_SECONDS  # systemd is asked for it: TimeoutStopSec is less
ONCE_SECONDS = 5.0
CHECK_SECONDS = 0.02
RESTART_ONLY = ("kernel_log", "evidence_dirs", "rails", "engines", "recovery")

UNRECORDED = 1


def run(settings: Settings) -> int:
    """Until told to stop (or, with `once`, for one tick). Raises rundir.AlreadyRunning, OSError. Returns the exit status."""
    os.umask(0o022)  # the state file is for everyone; the recorder sets its own
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    rundir = RunDir(settings.run_dir)
    if settings.oneself.is_root:
        clock = SystemClock()
        leftovers.clear(DEFAULT_RUN.parent, clock.now().mono, clock.boot_id)
    return Run(settings, rundir).until_the_end()


class Run:
    """One daemon with its senses and its signals."""

    def __init__(self, settings: Settings, rundir: RunDir) -> None:
        self._settings = settings
        self._loop = Loop(SystemClock())
        self._notifier = Notifier()
        self._rundir = rundir
        self._leaving = False
        self._reloading: Reload | None = None
        self._exit_code = 0
        self._control: Control | None = None
        self._daemon = Daemon(settings, self._loop, self._notifier, rundir, self._begun, self._ticked)
        self._metrics = MetricsServer(self._daemon.collector)
        self._scribe = self._daemon.scribe
        self._announcements = Announcements(self._loop, self._scribe, self._daemon.take, self._daemon.inventory.want)
        self._catch_signals()
        self._daemon.start()

    def until_the_end(self) -> int:
        """The exit status: 0, or 1 when the last records did not reach the disk."""
        self._loop.run()
        return self._exit_code

    # -------------------------------------------------------------------------------------------------------- senses

    def _begun(self, history_until: int | None) -> None:
        self._listen()
        self._open_control()
        self._daemon.kernel.on_closed = lambda why: self._scribe.say("kernel-log", why)
        trouble = self._daemon.kernel.open(self._daemon.config.kernel_log, history_until)
        if trouble:
            self._scribe.say("kernel-log", trouble)
        self._daemon.kernel.catch_up()
        unheard = self._announcements.open()
        if unheard:
            self._scribe.say("uevents", unheard)

    def _listen(self) -> None:
        config = self._daemon.config
        if config.metrics_address is None or self._settings.once:
            return
        try:
            self._metrics.listen(*config.metrics_address)
            self._rundir.write_metrics_port(self._metrics.port)
            self._scribe.unsay("metrics")
            if not is_loopback(config.metrics_address[0]):
                self._scribe.say("metrics:open", f"/metrics: listening on {config.metrics}, which other machines can reach, as configured")
        except OSError as error:
            why = error.strerror or str(error)
            text = f"/metrics: cannot listen on {config.metrics}: {why}. Tried again at every tick; `ss -ltnp` tells who has it"
            self._scribe.say("metrics", text)

    def _open_control(self) -> None:
        try:
            self._control = Control(self._loop, self._rundir.path / NAME, self._command)
        except OSError as error:
            text = f"no control socket in {self._rundir.path}: {error.strerror or error}. `xidwatch note` will not work"
            self._scribe.say("control", text)

    def _ticked(self, _number: int) -> None:
        if self._metrics.port is None:
            self._listen()
        if self._settings.once:
            self._daemon.inventory.on_complete = self._once_done
            self._loop.after(ONCE_SECONDS, self._once_done)
            self._daemon.ticker.end()

    def _once_done(self) -> None:
        if not self._leaving:
            self.leave("one tick was asked for")

    # ------------------------------------------------------------------------------------------------------- requests

    def _command(self, request: Mapping[str, Any], uid: int) -> Mapping[str, object]:
        text = str(request.get("text", "")).strip()
        match request.get("do"):
            case "note" if text:
                self._scribe.record("note", {"text": text, "uid": uid})
                return {"ok": True, "text": "noted"}
            case "allow-driver" if text and not self._daemon.has_released:
                return {"ok": True, "text": "NVML is being asked: no driver-fatal Xid holds it back"}
            case "allow-driver" if text:
                self._scribe.record("note", {"text": f"NVML may be asked again: {text}", "uid": uid})
                self._daemon.take(DriverRenewed(self._loop.clock.now(), text))
                return {"ok": True, "text": "NVML will be asked again at the next tick"}
            case "baseline" | "accept-baseline":
                return self._daemon.baselines.answer(request, uid)
            case "maintenance-on" | "maintenance-off":
                return self._daemon.upkeep.answer(request, uid)
            case "gate-order":
                self._daemon.look_for_orders()
                self._daemon.show()
                return {"ok": True, "text": "journalled"}
            case "gate-reset":
                given = gates.reset(request, uid, self._daemon.gates, self._loop.clock.now())
                self._daemon.take(given)
                return {"ok": True, "text": gates.was_reset(given.unit)}
            case "note" | "allow-driver":
                raise ValueError("a text is needed, for whoever reads the journal later")
            case other:
                raise ValueError(f"no such request: {other!r}")

    def _reload(self) -> None:
        if self._reloading is not None and not self._reloading.is_over:
            self._scribe.log(WARNING, "the configuration is being read already; is its disk hanging?", event="reload")
            return
        seconds = self._notifier.watchdog_seconds
        path, rules = self._settings.config_path, self._settings.rule_places
        self._reloading = Reload(self._loop, self._daemon.nursery, path, seconds, self._reloaded, rules)

    def _reloaded(self, config: Config | None, problems: list[str]) -> None:
        if config is None:
            for problem in problems:
                self._scribe.log(ERROR, f"configuration refused, the old one stays: {problem}", event="reload")
            return
        old, self._daemon.config = self._daemon.config, config
        if self._reloading and self._reloading.rules:
            self._daemon.use(self._reloading.rules)
        for key in waiting_for_restart(self._settings.config, config):
            self._scribe.log(WARNING, f"{key} takes effect at the next start", event="reload")
        self._daemon.ticker.change(deadlines(tuple(self._daemon.workers.specs.values()), config), config.interval_seconds)
        if old.metrics != config.metrics:
            self._metrics.close()
            self._listen()
        self._scribe.record("settings", as_mapping(config))
        self._scribe.log(NOTICE, f"configuration taken: interval {config.interval}, metrics {config.metrics or 'off'}", event="reload")

    # -------------------------------------------------------------------------------------------------------- signals

    def _catch_signals(self) -> None:
        waker, self._wakee = socket.socketpair()
        for end in (waker, self._wakee):
            end.setblocking(False)
        self._waker = waker
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, lambda *_: None)
        self._loop.watch(self._wakee, self._signalled)

    def _signalled(self) -> None:
        for number in set(self._wakee.recv(64)):
            if number == signal.SIGHUP:
                self._reload()
            elif number in (signal.SIGTERM, signal.SIGINT):
                self.leave(signal.Signals(number).name)

    # -------------------------------------------------------------------------------------------------------- leaving

    def leave(self, why: str) -> None:
        """Workers first, records last. A second call changes nothing."""
        if self._leaving:
            return
        self._leaving = True
        self._why = why
        self._notifier.tell("STOPPING=1", f"EXTEND_TIMEOUT_USEC={LONGEST_LEAVE_SECONDS * 1e6:.0f}", f"STATUS=leaving: {why}")
        self._daemon.leave()
        if self._control:
            self._control.close()
        self._busy_driver = self._daemon.workers.is_in_driver()
        self._daemon.workers.finish()
        self._daemon.dumps.finish()
        now = self._loop.clock.now().mono
        self._patience = now + (DRIVER_CALL_SECONDS if self._busy_driver or self._daemon.dumps.is_running() else GRACE_SECONDS)
        self._wait_for_workers()

    def _wait_for_workers(self) -> None:
        self._daemon.workers.tend()
        waiting = self._daemon.workers.leaving() or self._daemon.dumps.is_running()
        if waiting and self._loop.clock.now().mono < self._patience:
            self._loop.after(CHECK_SECONDS, self._wait_for_workers)
        else:
            self._last_words()

    def _last_words(self) -> None:
        for process in self._daemon.workers.abandoned:
            where = f" at {process.at}" if process.at else ""
            text = f"{process.name}: process {process.pid} does not end{where}; it is left to the next run"
            self._scribe.log(WARNING, text, event="left")
        self._daemon.show(leaving=True)
        self._scribe.log(NOTICE, f"stopped: {self._why}", event="stopped")
        if not self._daemon.has_begun:
            self._recorded(durable=True)
            return
        self._daemon.checkpoint()
        number = self._scribe.record("stopped", {"why": self._why, "pid": self._settings.oneself.pid})
        if self._settings.once:
            self._daemon.evidence.when_everywhere(number, LAST_WORDS_SECONDS, self._recorded_but_in)
        else:
            self._daemon.evidence.when_durable(number, LAST_WORDS_SECONDS, self._recorded)

    def _recorded_but_in(self, lacking: list[Path]) -> None:
        """Of one tick that was asked for, all that was asked for is done or it is said what is not."""
        for directory in lacking:
            self._scribe.log(ERROR, f"this tick is not on disk in {directory}", event="unrecorded")
        self._end(UNRECORDED if lacking else 0)

    def _recorded(self, durable: bool) -> None:
        if not durable:
            self._scribe.log(ERROR, "the last records are not on disk; the recorder tries on by itself", event="unrecorded")
        self._end(0 if durable else UNRECORDED)

    def _end(self, exit_code: int) -> None:
        self._exit_code = exit_code
        self._daemon.evidence.finish(self._loop.stop)
        self._loop.after(GRACE_SECONDS, self._loop.stop)


def is_loopback(host: str) -> bool:
    """Nobody but this machine can reach it."""
    return ipaddress.ip_address(host).is_loopback


def waiting_for_restart(old: Config, new: Config) -> list[str]:
    """The settings that differ and that a running daemon does not take over."""
    keys = [key for key in RESTART_ONLY if getattr(old, key) != getattr(new, key)]
    for name in PROBES:
        before, after = getattr(old.probes, name), getattr(new.probes, name)
        keys += [f"probes.{name}.enabled"] if before.enabled != after.enabled else []
    keys += ["probes.hwmon.poll"] if old.probes.hwmon.poll != new.probes.hwmon.poll else []
    return keys + [f"probes.{name}.root" for name in PROBES if old.root(name) != new.root(name)]
