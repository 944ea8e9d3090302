"""The daemon under measurement: `python -m bench.launch SETTINGS.json`. Everything is the shipped one but what the file replaces."""

from __future__ import annotations

import cProfile
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from xidwatch.config import load_rules, parse_config, rules_dir
from xidwatch.daemon.main import run
from xidwatch.daemon.probes import specs
from xidwatch.daemon.settings import Settings
from xidwatch.daemon.workers import ProbeSpec


def settings_from(given: dict[str, Any]) -> Settings:
    """`fake_gpus` None: the real NVML; `rules_dir` None: the shipped rules."""
    config = parse_config(given["config"])
    rules = load_rules(rules_dir(Path(given["rules_dir"]) if given["rules_dir"] else None))
    chosen = tuple(_faked(spec, given["fake_gpus"], working=given["working"]) for spec in specs(config))
    return Settings(Path(given["state_dir"]), Path(given["run_dir"]), config, rules, log="plain", specs=chosen)


def _faked(spec: ProbeSpec, gpus: int | None, *, working: bool) -> ProbeSpec:
    if spec.name != "nvml" or gpus is None:
        return spec
    return replace(spec, target="bench.host:create", options={"gpus": gpus, "working": working})


def main(path: str) -> int:
    """The daemon's exit status. With `profile` the loop's own work is profiled into that file."""
    given = json.loads(Path(path).read_text())
    settings = settings_from(given)
    if not given["profile"]:
        return run(settings)
    profile = cProfile.Profile()
    try:
        return profile.runcall(run, settings)
    finally:
        profile.dump_stats(given["profile"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
