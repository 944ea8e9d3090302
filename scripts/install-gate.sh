#!/bin/bash
# Put an engine behind the gate, or take it away: a drop-in beside its unit, and nothing else. Starts, stops and reloads nothing.
# May be run again.
#
#   scripts/install-gate.sh UNIT             scripts/install-gate.sh --remove UNIT
#   BINDIR=/usr/local/bin  DESTDIR=
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
bindir=${BINDIR:-/usr/local/bin}
destdir=${DESTDIR:+$(realpath -m "$DESTDIR")}
mark="# Written by xidwatch"

say() { printf '%s\n' "$*" >&2; }

die() {
    say "$call: $*"
    exit 1
}

# As in systemd.unit(5); above all no slash.
check_name() {
    case $unit in
        "") die "which engine? make $call UNIT=vllm.service" ;;
        *[!a-zA-Z0-9:_.\\@-]* | .*) die "'$unit' is not the name of a unit" ;;
        xidwatch.service) die "xidwatch is no engine" ;;
        *.service) ;;
        *) die "'$unit' is no service: a container or a scope is gated through the service that starts it" ;;
    esac
}

# What the wheel cannot know: is there such a unit, and who else could start what is in it?
look() {
    systemctl cat "$unit" >/dev/null 2>&1 || die "systemd knows no $unit (systemctl list-unit-files '*.service' tells what there is)"
    case $(systemctl show --property Type --value "$unit") in
        oneshot) say "$unit is of Type=oneshot: if it only starts a container, gate what keeps that container running" ;;
    esac
    if [ -x "$bindir/xidwatch" ]; then
        "$bindir/xidwatch" check --only engines --only containers >&2 || true
    else
        say "xidwatch is not installed in $bindir (make install): until it is, $unit starts without being gated, and says so"
    fi
}

# Without systemd to ask, only files can tell.
look_at_files() {
    template=${unit%%@*}@.service
    for place in etc/systemd/system run/systemd/system usr/local/lib/systemd/system usr/lib/systemd/system lib/systemd/system; do
        [ ! -e "$destdir/$place/$unit" ] || return 0
        case $unit in *@*) [ ! -e "$destdir/$place/$template" ] || return 0 ;; esac
    done
    say "warning: there is no $unit below ${destdir:-/}: is the name right?"
}

systemd_runs() { [ -z "$destdir" ] && [ -d /run/systemd/system ]; }

install_gate() {
    if [ -e "$gate" ] && ! grep -q "^$mark" "$gate"; then
        die "$gate is there and was not written by this; move it away first"
    fi
    mkdir -p "$(dirname "$gate")"
    sed "s|/usr/local/bin/xidwatch|$bindir/xidwatch|" "$root/systemd/engine-gate.conf" >"$gate.new"
    chmod 644 "$gate.new"
    mv "$gate.new" "$gate"
    say "$gate is written"
    say "an engine that runs is left alone; its next start is gated once systemd knows of this"
}

remove_gate() {
    [ -e "$gate" ] || {
        say "$gate is not there: $unit is not gated"
        return
    }
    grep -q "^$mark" "$gate" || die "$gate was not written by this; left alone"
    rm -f "$gate"
    rmdir --ignore-fail-on-non-empty "$(dirname "$gate")"
    say "$gate is removed"
}

say_reload() {
    systemd_runs || return 0
    say "next: systemctl daemon-reload"
    say "(not done here: with some container runtimes it takes the GPUs away from containers that run)"
}

call=install-gate
if [ "${1:-}" = --remove ]; then
    call=uninstall-gate
    shift
fi
unit=${1:-}
case $unit in "" | *.*) ;; *) unit=$unit.service ;; esac
check_name
[ -n "$destdir" ] || [ "$(id -u)" = 0 ] || die "needs root (or DESTDIR=/some/folder to look at the result first)"
gate=$destdir/etc/systemd/system/$unit.d/50-xidwatch.conf

if [ "$call" = uninstall-gate ]; then
    remove_gate
else
    if systemd_runs; then look; else look_at_files; fi
    install_gate
fi
say_reload
