"""The tables an operator may write, with their defaults. What a value has to be is `checks`."""

from __future__ import annotations

import msgspec

from xidwatch.config.values import percent
from xidwatch.core.recovery_model import RecoveryStep
from xidwatch.core.rules import seconds

LONGEST_SHARE = 0.8  # of the interval, for a deadline
PROBES = ("nvml", "pci", "hwmon", "host", "engine")
GPUS_FOUND, GPUS_ALL = "found", "all"


class ProbeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One probe. `deadline`: a tick waits no longer for its answer."""

    enabled: bool = True
    deadline: str = "4s"


class TreeProbeConfig(ProbeConfig, frozen=True, forbid_unknown_fields=True):
    """A probe that reads a tree of files. `root`: where that is mounted, "" for where it always is."""

    root: str = ""


class HwmonProbeConfig(TreeProbeConfig, frozen=True, forbid_unknown_fields=True):
    """The sensors. `poll`: drivers whose chips are read although that is known to disturb them."""

    poll: tuple[str, ...] = ()


class ProbesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All probes. The root of `pci` and `hwmon` is sysfs, that of `host` proc."""

    nvml: ProbeConfig = ProbeConfig(deadline="5s")
    pci: TreeProbeConfig = TreeProbeConfig()
    hwmon: HwmonProbeConfig = HwmonProbeConfig()
    host: TreeProbeConfig = TreeProbeConfig(deadline="2s")
    engine: ProbeConfig = ProbeConfig()


class RailConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One supply rail and the sensor input that measures it.

    `factor` makes volts of the rail from volts at the pin. `tolerance`: how far from nominal is still good. The default is
    that of +12, +5 and +3.3 V in Intel's ATX12V design guide 2.0, table 2 (-12 V: 10 %; +12 V may go to 10 % at peak load).
    """

    name: str
    chip: str
    input: str
    nominal_volts: float
    factor: float = 1.0
    tolerance: str = "5%"

    @property
    def tolerance_ratio(self) -> float:
        """0.05 for "5%"."""
        return percent(self.tolerance)


class EngineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One inference engine, run by systemd.

    `gpus`: "found", those that its processes are seen to use, remembered; "all" of the host; or PCI addresses. `metrics`: its
    own metrics page; `health`: a page that answers 200 when it serves; `probe`: the base of its OpenAI-compatible API, "" for
    none. All on loopback. `api_key_file`: holds the key of that API, "" where it wants none. `after_incident_unit`: started in
    its stead after an incident. `settle`: how long every proof has to hold before a start; `ready_within`: the time it has to
    answer; `back_off`: between starts, doubled every time; more than `most_starts` within `window` latch it.
    `power_limit_watts`: what each of its GPUs has to be limited to, 0 for what was learnt.
    """

    unit: str
    gpus: str | tuple[str, ...] = GPUS_FOUND
    metrics: str = ""
    probe: str = ""
    health: str = ""
    api_key_file: str = ""
    after_incident_unit: str = ""
    settle: str = "60s"
    ready_within: str = "15m"
    stop_within: str = "2m"
    back_off: str = "1m"
    most_starts: int = 3
    window: str = "1h"
    power_limit_watts: float = 0.0


class RecoveryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What may be done to bring lost hardware back: nothing, unless it is switched on.

    `wait`: how long it has to have been gone before the first step, and what it is given after each. A reboot waits for `reboot_after`,
    since the engine is held and since the host came up, and is made once within `reboot_window`.
    """

    rescan: bool = False
    slot_power: bool = False
    gpu_reset: bool = False
    module_reload: bool = False
    allow_reboot: bool = False
    wait: str = "2m"
    reboot_after: str = "15m"
    reboot_window: str = "1d"

    @property
    def enabled(self) -> tuple[RecoveryStep, ...]:
        """Those that are switched on, least invasive first."""
        flags = (self.rescan, self.slot_power, self.gpu_reset, self.module_reload, self.allow_reboot)
        return tuple(step for step, is_on in zip(RecoveryStep, flags, strict=True) if is_on)


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    interval: str = "30s"
    metrics: str = "127.0.0.1:20079"
    kernel_log: str = "/dev/kmsg"
    evidence_dirs: tuple[str, ...] = ()
    rails: tuple[RailConfig, ...] = ()
    engines: tuple[EngineConfig, ...] = ()
    probes: ProbesConfig = ProbesConfig()
    recovery: RecoveryConfig = RecoveryConfig()

    @property
    def interval_seconds(self) -> float:
        """Between the beginnings of two ticks."""
        return seconds(self.interval)

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host and port to listen on, None for not at all."""
        if not self.metrics:
            return None
        host, _, port = self.metrics.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def named_gpus(self) -> dict[str, tuple[str, ...]]:
        """The GPUs of engines that have a list of them, by unit."""
        return {engine.unit: engine.gpus for engine in self.engines if not isinstance(engine.gpus, str)}

    def deadline_seconds(self, probe: str) -> float:
        """How long a tick waits for a probe: never so long that it runs into the next."""
        chosen: ProbeConfig = getattr(self.probes, probe)
        return min(seconds(chosen.deadline), self.longest_deadline_seconds)

    @property
    def longest_deadline_seconds(self) -> float:
        """Beyond it the answer of one tick would come in the next."""
        return LONGEST_SHARE * self.interval_seconds

    def root(self, probe: str) -> str:
        """Where the tree is that a probe reads, "" for where it always is, or when it reads none."""
        chosen: ProbeConfig = getattr(self.probes, probe)
        return chosen.root if isinstance(chosen, TreeProbeConfig) else ""
