"""The laws of the program's structure: who may import whom, what nobody may call, how large a thing may grow.

Each law is a function from parsed modules to a list of breaches, each naming file, line and rule; its docstring is the law.
To bend one, change its table here and say why. `test_architecture.py` holds the program to them.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "xidwatch"

# Who may import what inside the package. The longest prefix decides; `daemon` names probes by string.
MAY_IMPORT = {
    "xidwatch": (),
    "xidwatch.__main__": ("xidwatch.cli",),
    "xidwatch.core": ("xidwatch.core",),
    "xidwatch.clock": ("xidwatch.core",),
    "xidwatch.wire": ("xidwatch.core",),
    "xidwatch.rulefiles": ("xidwatch.core",),
    "xidwatch.places": (),
    "xidwatch.config": ("xidwatch.core", "xidwatch.clock", "xidwatch.places", "xidwatch.rulefiles", "xidwatch.config"),
    "xidwatch.probes": ("xidwatch.core", "xidwatch.wire", "xidwatch.probes"),
    "xidwatch.supervise": ("xidwatch.core", "xidwatch.probes", "xidwatch.supervise"),
    "xidwatch.records": ("xidwatch.core", "xidwatch.clock", "xidwatch.records"),
    "xidwatch.report": ("xidwatch.core", "xidwatch.clock", "xidwatch.records", "xidwatch.report"),
    "xidwatch.logs": ("xidwatch.core", "xidwatch.logs"),
    "xidwatch.daemon": (
        "xidwatch.core",
        "xidwatch.clock",
        "xidwatch.places",
        "xidwatch.wire",
        "xidwatch.config",
        "xidwatch.records",
        "xidwatch.daemon",
    ),
    "xidwatch.replay": (
        "xidwatch.core",
        "xidwatch.clock",
        "xidwatch.wire",
        "xidwatch.config",
        "xidwatch.records",
        "xidwatch.daemon",
        "xidwatch.probes",
        "xidwatch.supervise",
        "xidwatch.replay",
    ),
    "xidwatch.bundle": (  # what it writes is read by `replay`, whose words it takes from there
        "xidwatch.core",
        "xidwatch.clock",
        "xidwatch.records",
        "xidwatch.report",
        "xidwatch.replay",
        "xidwatch.bundle",
    ),
    "xidwatch.cli": ("xidwatch",),
}
ANYBODY_MAY_IMPORT = ("xidwatch.__version__",)

# All that the pure part may take from the standard library, builtins that reach outside, and what would read a clock.
CORE_STDLIB = frozenset({
    "__future__", "abc", "ast", "bisect", "collections", "dataclasses", "datetime", "enum", "functools", "heapq", "itertools", "json",
    "math", "operator", "re", "statistics", "string", "types", "typing",
})  # fmt: skip
CORE_FORBIDDEN_CALLS = frozenset({"open", "print", "input", "eval", "exec", "compile", "__import__"})
CLOCK_READS = frozenset({"now", "today", "utcnow"})

# Third-party modules and where they may be imported; a module is covered by its own name or a parent's.
IMPORT_SITES = {
    # The library of a replay raises the binding's own errors: the probe is to meet what it meets on a host.
    "pynvml": ("xidwatch.probes.nvml", "xidwatch.replay.nvml"),
    "psutil": ("xidwatch.probes.host",),
    "pyudev": ("xidwatch.daemon.uevents",),
    "prometheus_client": ("xidwatch.daemon.metrics",),
    "msgspec": ("xidwatch.config", "xidwatch.wire", "xidwatch.records", "xidwatch.daemon.frames"),
    "rich": ("xidwatch.cli", "xidwatch.report"),
    "systemd": ("xidwatch.daemon",),
    "hyperscan": ("xidwatch.logs.find",),
    "stringzilla": ("xidwatch.logs.find",),
    "zstandard": ("xidwatch.logs.unpack",),
}
AT_MOST_SITES = {"pynvml": 2, "psutil": 1, "pyudev": 1, "prometheus_client": 1, "systemd": 2}

# What is heavy, and meant for files that a person has: the service reads the kernel's own records, and is to stay small.
FOR_FILES_ONLY = "xidwatch.core.log"
READS_NO_FILES = ("xidwatch.daemon", "xidwatch.probes", "xidwatch.records")

# `subprocess.run(timeout=)` and its kin wait without bound for a child that a driver holds: processes are started, watched
# and abandoned, never waited for.
WAITING_CALLS = frozenset({"run", "call", "check_call", "check_output", "getoutput", "getstatusoutput", "communicate"})
# A killed client of the NVIDIA driver has wedged its firmware: nothing is killed but here, where it is known who holds what.
KILL_SITES = ("xidwatch.daemon.processes",)

MODULE_LINES = 400
FUNCTION_LINES = 40  # of code: docstring, comments and blank lines are free
NESTED_BLOCKS = 3
PACKAGE_LEVELS = 2
# Tables with a line for every row.
LONG_MODULES: dict[str, str] = {}
# Children that play a stuck or slow process have to wait for something.
SLEEPERS = ("tests.fakes", "tests.rig")


@dataclass(frozen=True)
class Module:
    """One parsed source file."""

    name: str
    path: str
    source: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.source, self.path)

    def within(self, prefixes: tuple[str, ...]) -> bool:
        return any(is_within(self.name, prefix) for prefix in prefixes)

    def breach(self, node: ast.AST | None, text: str) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 1)}: {text}"


Law = Callable[[list[Module]], list[str]]


def is_within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def load(folder: str) -> list[Module]:
    """Every source file below a folder of the checkout, packages under their own name."""
    modules = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        relative = path.relative_to(ROOT)
        parts = relative.with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules.append(Module(name, str(relative), path.read_text()))
    return modules


def _imports(module: Module) -> Iterator[tuple[ast.stmt, str]]:
    """Every absolute name a module imports, wherever in it the import stands; `from a import b` gives `a.b`."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node, f"{'.' * node.level}{node.module or ''}.{alias.name}") for alias in node.names)


def _functions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _calls(module: Module) -> Iterator[tuple[ast.Call, str, str]]:
    """Every call as (node, what it is called on, name): `time.sleep(1)` gives `time`, `sleep`; `open(x)` gives ``, `open`."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            on, _, name = ast.unparse(node.func).rpartition(".")
            yield node, on, name


# --- who may import whom


def layers(modules: list[Module]) -> list[str]:
    """Imports inside the package follow MAY_IMPORT."""
    breaches = []
    for module in modules:
        layer = max((prefix for prefix in MAY_IMPORT if is_within(module.name, prefix)), key=len, default="")
        if layer == PACKAGE and module.name != PACKAGE:
            breaches.append(module.breach(None, "belongs to no layer; give it one in MAY_IMPORT"))
            continue
        for node, name in _imports(module):
            if name.startswith("."):
                breaches.append(module.breach(node, f"relative import of {name}"))
            elif is_within(name, PACKAGE) and not any(is_within(name, allowed) for allowed in MAY_IMPORT[layer] + ANYBODY_MAY_IMPORT):
                breaches.append(module.breach(node, f"{layer} must not import {name}"))
    return breaches


def core_is_pure(modules: list[Module]) -> list[str]:
    """`core` knows values only: no clock, no file, no process, nothing third-party."""
    breaches = []
    for module in (m for m in modules if m.within(("xidwatch.core",))):
        for node, name in _imports(module):
            top = name.split(".")[0]
            if top not in CORE_STDLIB | {PACKAGE}:
                breaches.append(module.breach(node, f"core must not import {top}"))
        for call, on, name in _calls(module):
            if (not on and name in CORE_FORBIDDEN_CALLS) or name in CLOCK_READS:
                breaches.append(module.breach(call, f"core must not call {name}()"))
    return breaches


def third_party_sites(modules: list[Module]) -> list[str]:
    """A third-party module is imported where IMPORT_SITES says, and in no more places than AT_MOST_SITES."""
    breaches = []
    sites: dict[str, set[str]] = {}
    for module in modules:
        for node, name in _imports(module):
            top = name.split(".")[0]
            if not top or top == PACKAGE or top in sys.stdlib_module_names:
                continue
            sites.setdefault(top, set()).add(module.path)
            if top not in IMPORT_SITES:
                breaches.append(module.breach(node, f"{top} is no dependency; give it a site in IMPORT_SITES"))
            elif not module.within(IMPORT_SITES[top]):
                breaches.append(module.breach(node, f"{top} may be imported in {', '.join(IMPORT_SITES[top])} only"))
    for top, limit in AT_MOST_SITES.items():
        if len(sites.get(top, ())) > limit:
            breaches.append(f"{', '.join(sorted(sites[top]))}: {top} may have {limit} import site(s)")
    return breaches


def sources_stand_alone(modules: list[Module]) -> list[str]:
    """A source of facts (a probe module with `create`) is imported by no other probe: it is named by string, in its own process."""
    offers = {m.name for m in modules if m.within(("xidwatch.probes",)) and any(f.name == "create" for f in _functions(m))}
    return [
        module.breach(node, f"probe {name} is a process of its own, not a library")
        for module in modules
        if module.within(("xidwatch.probes",))
        for node, name in _imports(module)
        if any(is_within(name, source) for source in offers - {module.name})
    ]


def the_service_reads_no_log_files(modules: list[Module]) -> list[str]:
    """What takes logs of any make apart is for commands."""
    return [
        module.breach(node, f"{name} is for files: the service reads records")
        for module in modules
        if module.within(READS_NO_FILES)
        for node, name in _imports(module)
        if name.startswith(FOR_FILES_ONLY)
    ]


# --- what may be called


def nobody_waits_for_a_child(modules: list[Module]) -> list[str]:
    """A deadline is not a kill: no call that waits for a child which may never end."""
    breaches = []
    for module in modules:
        for call, on, name in _calls(module):
            if (on == "subprocess" and name in WAITING_CALLS) or name == "communicate" or (on, name) == ("os", "system"):
                breaches.append(module.breach(call, f"{on}.{name}() waits without bound for a child that a driver holds"))
        for node in ast.walk(module.tree):
            if isinstance(node, ast.With) and any("Popen(" in ast.unparse(item.context_expr) for item in node.items):
                breaches.append(module.breach(node, "`with Popen` waits without bound when it is left"))
    return breaches


def killing_has_a_site(modules: list[Module]) -> list[str]:
    """SIGKILL is sent where it is known who holds the driver, and nowhere else."""
    breaches = []
    for module in (m for m in modules if not m.within(KILL_SITES)):
        for node in ast.walk(module.tree):
            names_it = isinstance(node, ast.Attribute | ast.Name) and ast.unparse(node).endswith("SIGKILL")
            kills = isinstance(node, ast.Call) and not node.args and ast.unparse(node.func).endswith(".kill")
            if names_it or kills:
                breaches.append(module.breach(node, f"kills; only {', '.join(KILL_SITES)} may"))
    return breaches


def nothing_sleeps(modules: list[Module]) -> list[str]:
    """The clock is a parameter."""
    return [
        module.breach(call, "a test must not sleep: pass a clock, or wait for the event")
        for module in modules
        if not module.within(SLEEPERS)
        for call, on, name in _calls(module)
        if name == "sleep" and on in {"", "time", "asyncio"}
    ]


# --- how large, how deep, how documented


def modules_stay_small(modules: list[Module]) -> list[str]:
    """At most MODULE_LINES."""
    sizes = [(module, module.source.count("\n")) for module in modules if module.name not in LONG_MODULES]
    return [module.breach(None, f"{lines} lines, at most {MODULE_LINES}") for module, lines in sizes if lines > MODULE_LINES]


def functions_stay_small(modules: list[Module]) -> list[str]:
    """At most FUNCTION_LINES of code."""
    breaches = []
    for module in modules:
        lines = module.source.splitlines()
        for function in _functions(module):
            body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
            if not body:
                continue
            text = (line.strip() for line in lines[body[0].lineno - 1 : function.end_lineno])
            length = sum(1 for line in text if line and not line.startswith("#"))
            if length > FUNCTION_LINES:
                breaches.append(module.breach(function, f"{function.name}: {length} lines of code, at most {FUNCTION_LINES}"))
    return breaches


_BLOCKS = ast.If | ast.For | ast.AsyncFor | ast.While | ast.With | ast.AsyncWith | ast.Try | ast.TryStar | ast.Match


def _depth(node: ast.AST) -> int:
    """Blocks within blocks below `node`; an `elif` is as deep as its `if`, a function in a function starts anew."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepest = max(deepest, _depth(child) + (isinstance(child, _BLOCKS) and not is_elif))
    return deepest


def blocks_stay_shallow(modules: list[Module]) -> list[str]:
    """At most NESTED_BLOCKS."""
    return [
        module.breach(function, f"{function.name}: blocks {depth} deep, at most {NESTED_BLOCKS}")
        for module in modules
        for function in _functions(module)
        if (depth := _depth(function)) > NESTED_BLOCKS
    ]


def packages_stay_flat(modules: list[Module]) -> list[str]:
    """`xidwatch.probes.pci` is as deep as it gets."""
    return [
        module.breach(None, f"{PACKAGE_LEVELS} package levels at most") for module in modules if module.name.count(".") > PACKAGE_LEVELS
    ]


def public_things_are_described(modules: list[Module]) -> list[str]:
    """Every module, and every public class and function at its top level, has a docstring; a core module opens with its law."""
    breaches = []
    for module in modules:
        tree = module.tree
        if not ast.get_docstring(tree):
            breaches.append(module.breach(None, "module without a docstring"))
        elif module.within(("xidwatch.core",)) and module.name != "xidwatch.core" and "Law:" not in (ast.get_docstring(tree) or ""):
            breaches.append(module.breach(None, 'a core module says what may live in it: "Law: ..."'))
        breaches.extend(
            module.breach(node, f"{node.name} without a docstring")
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and not node.name.startswith("_")
            and not ast.get_docstring(node)
        )
    return breaches


def a_test_says_what_it_shows(modules: list[Module]) -> list[str]:
    """A test's docstring is a sentence of behaviour."""
    return [
        module.breach(function, f"{function.name}: its docstring should be a sentence")
        for module in modules
        for function in _functions(module)
        if function.name.startswith("test_") and not (ast.get_docstring(function) or "").rstrip().endswith((".", "?", "!"))
    ]


PACKAGE_LAWS: tuple[Law, ...] = (
    layers,
    core_is_pure,
    third_party_sites,
    sources_stand_alone,
    the_service_reads_no_log_files,
    nobody_waits_for_a_child,
    killing_has_a_site,
    modules_stay_small,
    functions_stay_small,
    blocks_stay_shallow,
    packages_stay_flat,
    public_things_are_described,
)
TEST_LAWS: tuple[Law, ...] = (nothing_sleeps, a_test_says_what_it_shows, functions_stay_small, blocks_stay_shallow)
