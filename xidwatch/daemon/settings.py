"""How a daemon was started."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from xidwatch.config import Config, Rules
from xidwatch.daemon.nursery import Nursery
from xidwatch.daemon.oneself import Oneself
from xidwatch.daemon.workers import ProbeSpec


@dataclass(frozen=True, slots=True)
class Settings:
    """How it was started. `specs` replaces the probes (tests and benchmarks bring their own)."""

    state_dir: Path
    run_dir: Path
    config: Config
    rules: Rules
    config_path: Path | None = None
    log: str = "terminal"  # terminal, plain or journal
    once: bool = False
    specs: tuple[ProbeSpec, ...] | None = None
    rule_places: tuple[Path, Path] | None = None  # the rules, and a site's own over them, to be read again at a reload
    oneself: Oneself = field(default_factory=Oneself.here)
    nursery: type[Nursery] = Nursery  # whose children do the work

    @property
    def evidence_dirs(self) -> tuple[Path, ...]:
        """The state directory first, then the further ones."""
        return tuple(dict.fromkeys((self.state_dir, *(Path(name) for name in self.config.evidence_dirs))))
