#!/bin/bash
# Take the service out again, with every drop-in it may have put beside other units. Evidence and configuration stay.
# May be run again. Variables as for install.sh.
set -eu

prefix=${PREFIX:-/opt/xidwatch}
prefix=${prefix%/}
bindir=${BINDIR:-/usr/local/bin}
unitdir=${UNITDIR:-/usr/local/lib/systemd/system}
destdir=${DESTDIR:+$(realpath -m "$DESTDIR")}
shopt -s nullglob

say() { printf '%s\n' "$*" >&2; }

die() {
    say "make uninstall: $*"
    exit 1
}

systemd_runs() { [ -z "$destdir" ] && [ -d /run/systemd/system ]; }

# A worker inside a stuck driver call cannot be ended by anybody: say so and go on.
stop_service() {
    local group stuck
    systemd_runs && systemctl cat xidwatch.service >/dev/null 2>&1 || return 0
    systemctl disable --quiet xidwatch.service 2>/dev/null || true
    timeout 120 systemctl stop xidwatch.service || say "xidwatch did not stop; going on"
    group=$(systemctl show --property ControlGroup --value xidwatch.service)
    stuck=$([ -z "$group" ] || tr '\n' ' ' <"/sys/fs/cgroup$group/cgroup.procs") 2>/dev/null || true
    [ -z "$stuck" ] || say "does not end, perhaps stuck in a driver call; leave it alone: process $stuck"
}

# Before the program goes: a gate whose program is missing would keep its engine from ever starting.
remove_gates() {
    local base gate
    for base in /etc/systemd/system /run/systemd/system "$unitdir"; do
        for gate in "$destdir$base"/*.d/50-xidwatch.conf; do
            grep -q xidwatch "$gate" || {
                say "left alone, since it does not speak of xidwatch: $gate"
                continue
            }
            rm -f "$gate"
            rmdir --ignore-fail-on-non-empty "$(dirname "$gate")"
            say "removed $gate"
        done
    done
}

remove_unit() {
    local base
    for base in "$unitdir" /etc/systemd/system /run/systemd/system; do
        rm -f "$destdir$base/xidwatch.service" "$destdir$base"/*.wants/xidwatch.service
        [ -e "$destdir$base/xidwatch.service.d" ] || continue
        rm -rf "$destdir$base/xidwatch.service.d"
        say "removed $destdir$base/xidwatch.service.d"
    done
}

# Only what install.sh made: never somebody's own folder that PREFIX happens to name.
remove_program() {
    local link=$destdir$bindir/xidwatch
    if [ -L "$link" ] && [ "$(readlink "$link")" = "$prefix/bin/xidwatch" ]; then
        rm -f "$link"
    fi
    [ -e "$destdir$prefix" ] || return 0
    [ -f "$destdir$prefix/pyvenv.cfg" ] || die "$destdir$prefix is no environment of xidwatch; left alone"
    rm -rf "$destdir$prefix" "$destdir$prefix.new" "$destdir$prefix.old"
}

# No daemon-reload: with some container runtimes it takes the GPUs away from containers that run.
forget_runtime() {
    if systemd_runs; then
        systemctl reset-failed xidwatch.service 2>/dev/null || true
        say "next: systemctl daemon-reload (until then systemd remembers the unit and the gates; a gate without a program stops nobody)"
    fi
    rm -rf "$destdir/run/xidwatch"
}

[ -n "$destdir" ] || [ "$(id -u)" = 0 ] || die "needs root"
stop_service
remove_gates
remove_unit
remove_program
forget_runtime
say "removed. Kept, because it is evidence: $destdir/var/lib/xidwatch. Kept, because it is yours: $destdir/etc/xidwatch."
