"""A configuration as a file for people: every key with what it means, what is as by default commented out.

    # Seconds between two ticks (at least "0.2s") ...
    # interval = "30s"

Reading it back gives the configuration it was made from; proposals are comments and change nothing.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from xidwatch.config.tables import Config, EngineConfig, RailConfig
from xidwatch.core.suspects import EngineSuspect, Suspect

WIDTH = 130

HEAD = """\
# Configuration of xidwatch, written by `xidwatch init`. What stands behind a "#" is as by default: take the "#" away to change it.
# Unknown keys and wrong values are refused, all of them at once, and nothing is stopped by that: the old configuration stays.
# After a change: `systemctl reload xidwatch`. What then needs a restart is said in the log.
"""

# What each key means. A test holds this against the tables: a key without a word here is not finished.
MEANING: Mapping[str, str] = {
    "interval": 'Between the beginnings of two ticks, at least "0.2s". More than half of the unit\'s WatchdogSec (120 s) is refused.',
    "metrics": 'Where /metrics listens: an IP address and a port, "" for not at all. What is not loopback can be read by other machines.',
    "kernel_log": "The kernel's log device. Takes a restart.",
    "evidence_dirs": "Further directories, best on another disk, for a second copy of all records and dumps. Each needs a drop-in of the "
    "service with ReadWritePaths=-/its/path. Takes a restart.",
    "probes": "The sources of facts. `enabled` takes a restart. `deadline`: a tick waits no longer for its answer (at most 0.8 intervals).",
    "probes.nvml": "The NVIDIA driver, through NVML: power, temperature, clocks, identity.",
    "probes.pci": "Configuration space, links, error counters. `root`: where sysfs is, if not at /sys.",
    "probes.hwmon": "Sensors of the board and of supplies. `root`: where sysfs is, if not at /sys. `poll`: drivers that are read although "
    'that is known to disturb them, as in ["corsair-psu"].',
    "probes.host": "Load, memory, pressure. `root`: where proc is, if not at /proc.",
    "probes.engine": "The engines below [[engines]]; without any it does not run.",
    "recovery": "What may be done by itself to bring hardware back for an engine that is held: nothing, unless it is switched on. Each at "
    "most once in a boot, least invasive first, when nobody holds the device. The service needs a drop-in for most of it: "
    "docs/recovery.md. Takes a restart.",
    "recovery.rescan": "PCI removal of what is gone, and rescan.",
    "recovery.slot_power": "Power of its slot off and on.",
    "recovery.gpu_reset": "By nvidia-smi, of a GPU that is still on the bus.",
    "recovery.module_reload": "Unload and load the NVIDIA modules.",
    "recovery.allow_reboot": "Warm reboot, once for an incident and once within `reboot_window`.",
    "recovery.wait": "Hardware has to have been gone for so long before the first step, and gets so long after each.",
    "recovery.reboot_after": "The engine has been held, and the host up, for so long before a reboot.",
    "recovery.reboot_window": "From one reboot by xidwatch to the next, at least an hour.",
    "rails": "Supply rails: which sensor input measures which, judged by RailOutOfRange and RailGone. `factor` = volts of the rail / volts "
    "at the pin, 1.0 where the driver gives real volts. `tolerance`: how far from nominal is still good. Takes a restart.",
    "engines": 'Inference engines, each a service of systemd. `gpus`: "found" (those that its processes are seen to use, remembered), '
    '"all", or PCI addresses. `metrics`: its own metrics page, `health`: a page that answers 200 when it serves, `probe`: the base of its '
    'OpenAI-compatible API; all on loopback, "" for none. `api_key_file`: holds the key of that API, if it wants one; read at a start. '
    "When hardware under it is lost it is stopped, and started once all is proven: "
    "`settle`: how long every proof has to hold; `ready_within`, `stop_within`: the time it has for that; `back_off`: after a failed "
    "attempt, doubled each time; after `most_starts` within `window` it waits for `xidwatch gate --reset`. `power_limit_watts`: what each "
    "of its GPUs is limited to at most, 0 for what was accepted with the baseline. `after_incident_unit`: a gentler service that is "
    'started in its stead after an incident, "" for itself. Takes a restart.',
}

EXAMPLE_RAIL = RailConfig(name="psu1_12v", chip="nct6798@platform/nct6775.656", input="in1", nominal_volts=12.0, factor=12.0)
EXAMPLE_ENGINE = EngineConfig(unit="vllm.service", gpus="found", metrics="http://127.0.0.1:8000/metrics", probe="http://127.0.0.1:8000/v1")


def text(config: Config, rails: Iterable[Suspect] = (), engines: Iterable[EngineSuspect] = ()) -> str:
    """The whole file. `rails`, `engines`: what could be one, proposed in comments unless it is configured already."""
    lines = [*HEAD.splitlines()]
    fields = {field.encode_name: getattr(config, field.name) for field in msgspec.structs.fields(Config)}
    for key, value in fields.items():
        if not _is_table(value) and key not in ("rails", "engines"):
            lines += ["", *_comment(MEANING.get(key, "")), _pair(key, value, getattr(Config(), key))]
    for key, value in fields.items():
        if isinstance(value, msgspec.Struct):
            lines += ["", *_comment(MEANING.get(key, "")), *_table(key, value, getattr(Config(), key))]
    lines += _rails(config, rails)
    lines += _engines(config, engines)
    return "\n".join(lines) + "\n"


def _is_table(value: object) -> bool:
    return isinstance(value, msgspec.Struct | Mapping) or (isinstance(value, tuple) and any(isinstance(v, msgspec.Struct) for v in value))


def _table(path: str, table: msgspec.Struct, default: msgspec.Struct) -> Iterator[str]:
    """Its keys, then the tables in it; one that holds nothing but tables needs no head of its own."""
    fields = {field.encode_name: getattr(table, field.name) for field in msgspec.structs.fields(type(table))}
    plain = {key: value for key, value in fields.items() if not isinstance(value, msgspec.Struct)}
    if plain:
        yield f"[{path}]"
        for key, value in plain.items():
            yield from _comment(MEANING.get(f"{path}.{key}", ""))
            yield _pair(key, value, getattr(default, key))
    for key, value in fields.items():
        if isinstance(value, msgspec.Struct):
            yield ""
            yield from _comment(MEANING.get(f"{path}.{key}", ""))
            yield from _table(f"{path}.{key}", value, getattr(default, key))


def _rails(config: Config, suspects: Iterable[Suspect]) -> Iterator[str]:
    yield from ("", *_comment(MEANING["rails"]))
    for rail in config.rails:
        yield from ("", "[[rails]]", *_pairs(rail))
    known = {(rail.chip, rail.input) for rail in config.rails}
    proposed = [each for each in suspects if (each.chip, each.input) not in known]
    for each in proposed:
        rail = RailConfig(name=each.name, chip=each.chip, input=each.input, nominal_volts=each.nominal_volts, factor=each.factor)
        yield from ("", *_comment(f"A guess: {each.why}. Name it after its supply once a meter or the board's manual says which it is."))
        yield from map(_off, ("[[rails]]", *_pairs(rail)))
    if not config.rails and not proposed:
        yield from ("", *map(_off, ("[[rails]]", *_pairs(EXAMPLE_RAIL))))


def _engines(config: Config, suspects: Iterable[EngineSuspect]) -> Iterator[str]:
    yield from ("", *_comment(MEANING["engines"]))
    for engine in config.engines:
        yield from ("", "[[engines]]", *_pairs(engine))
    known = {engine.unit for engine in config.engines}
    proposed = [each for each in suspects if each.unit not in known]
    for each in proposed:
        base = f"http://127.0.0.1:{each.port}" if each.port else ""
        engine = EngineConfig(each.unit, "found", f"{base}/metrics" if base else "", f"{base}/v1" if base else "")
        yield from ("", *_comment(f"Found: {each.why}."))
        yield from map(_off, ("[[engines]]", *_pairs(engine)))
    if not config.engines and not proposed:
        yield from ("", *map(_off, ("[[engines]]", *_pairs(EXAMPLE_ENGINE))))


def _pairs(table: msgspec.Struct) -> list[str]:
    return [f"{field.encode_name} = {_toml(getattr(table, field.name))}" for field in msgspec.structs.fields(type(table))]


def _pair(key: str, value: object, default: object) -> str:
    line = f"{key} = {_toml(value)}"
    return _off(line) if value == default else line


def _off(line: str) -> str:
    return f"# {line}"


def _comment(words: str) -> list[str]:
    """One that a sensor's label or a process's name cannot break out of."""
    clean = "".join(sign if sign.isprintable() else "?" for sign in words)
    return [f"# {line}" for line in textwrap.wrap(clean, WIDTH, break_on_hyphens=False)]


def _toml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case Mapping():
            return f"{{ {', '.join(f'{_toml(key)} = {_toml(each)}' for key, each in value.items())} }}"
        case _:
            return str(value)
