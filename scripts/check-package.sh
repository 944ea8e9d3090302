#!/bin/bash
# The wheel works in an empty environment and carries its rules; install, install again and uninstall leave what they should.
# Touches nothing outside a scratch folder. Needs dist/ (make wheel).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

die() {
    echo "check-package: $*" >&2
    exit 1
}

carries_rules() {
    (cd / && "$1" -B -c '
import importlib.resources, pathlib, sys, tomllib
import xidwatch.cli
rules = importlib.resources.files("xidwatch") / "_rules"
assert pathlib.Path(xidwatch.__file__).is_relative_to(sys.prefix), xidwatch.__file__
assert tomllib.loads((rules / "conditions.toml").read_text()), "no conditions"
assert "XidwatchConditionCritical" in (rules / "prometheus/xidwatch.rules.yml").read_text(), "no alerts"
') || die "$2: not importable, or without its rules"
}

wheel=$(find "$root/dist" -name 'xidwatch-*.whl' -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2)
"$root/.venv/bin/python" -m venv "$scratch/empty"
"$scratch/empty/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$root/requirements.lock"
"$scratch/empty/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-index "$wheel"
carries_rules "$scratch/empty/bin/python" "wheel"
"$scratch/empty/bin/xidwatch" --help >/dev/null || die "the installed command does not start"
echo "wheel: $(basename "$wheel") works in an empty environment" >&2

export DESTDIR=$scratch/host PREFIX=/opt/xidwatch BINDIR=/usr/local/bin UNITDIR=/usr/local/lib/systemd/system
gate=$DESTDIR/etc/systemd/system/engine.service.d/50-xidwatch.conf
mkdir -p "$DESTDIR/var/lib/xidwatch"
touch "$DESTDIR/var/lib/xidwatch/evidence"
"$root/scripts/install.sh"
"$root/scripts/install.sh"
"$root/scripts/install-gate.sh" engine.service
grep -q '^ExecCondition=+' "$gate" || die "make install-gate: no gate"
"$root/scripts/install-gate.sh" --remove engine
[ ! -e "$(dirname "$gate")" ] || die "make uninstall-gate: left something behind"
"$root/scripts/install-gate.sh" engine
carries_rules "$DESTDIR$PREFIX/bin/python" "make install"
[ -f "$DESTDIR$UNITDIR/xidwatch.service" ] || die "make install: no unit"
[ "$(readlink "$DESTDIR$BINDIR/xidwatch")" = "$PREFIX/bin/xidwatch" ] || die "make install: no link"
if grep -rqF "$scratch" "$DESTDIR$PREFIX"; then
    die "make install: the scratch folder's path is left in $(grep -rlF "$scratch" "$DESTDIR$PREFIX" | head -n 3)"
fi
"$root/scripts/uninstall.sh"
"$root/scripts/uninstall.sh"
left=$(cd "$DESTDIR" && find . ! -type d)
[ "$left" = ./var/lib/xidwatch/evidence ] || die "make uninstall: left behind $left"
[ ! -e "$DESTDIR$PREFIX" ] || die "make uninstall: left $PREFIX"
echo "install, install again, uninstall: nothing left but the evidence" >&2
