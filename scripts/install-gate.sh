#!/bin/bash
# Put an engine behind the gate, or take it away: a drop-in beside its unit, and nothing else. Starts, stops and reloads nothing.
# May be run again.
#
#   scripts/install-gate.sh UNIT             scripts/install-gate.sh --remove UNIT
#   BINDIR=/usr/local/bin  DESTDIR=
#
# Exit status: 0 done, 64 no name of a service, 66 no such unit, 73 it may not be written there.
set -eu
LC_ALL=C # or a range of letters holds those of every language

root=$(cd "$(dirname "$0")/.." && pwd)
bindir=${BINDIR:-/usr/local/bin}
destdir=${DESTDIR:+$(realpath -m "$DESTDIR")}
mark="# Written by xidwatch"

say() { printf '%s\n' "$*" >&2; }

EX_USAGE=64 EX_NOINPUT=66 EX_CANTCREAT=73

die() {
    status=$1
    shift
    say "$call: $*"
    exit "$status"
}

# As in systemd.unit(5); above all no slash. A name without an ending is a service's, whatever dots are in it.
check_name() {
    [ -n "$given" ] || die $EX_USAGE "which engine? make $call UNIT=vllm.service"
    case $given in
        *.service) unit=$given ;;
        *.socket | *.target | *.timer | *.mount | *.automount | *.swap | *.path | *.device | *.scope | *.slice)
            die $EX_USAGE "'$given' is no service: a container, a scope or a socket is gated through the service that it starts or is started by"
            ;;
        *) unit=$given.service ;;
    esac
    case $unit in
        *[!a-zA-Z0-9:_.\\@-]*) die $EX_USAGE "'$unit' is not the name of a unit, which has letters, digits and : - _ . \\ @ alone" ;;
        .* | @*) die $EX_USAGE "'$unit' is not the name of a unit" ;;
        xidwatch.service) die $EX_USAGE "xidwatch is no engine" ;;
    esac
    [ "${#unit}" -lt 256 ] || die $EX_USAGE "'$unit' is not the name of a unit: it is too long"
}

# It stands in a command line of the unit and in a shell's.
check_bindir() {
    case $bindir in
        *[!a-zA-Z0-9/_.+-]* | [!/]*) die $EX_USAGE "BINDIR=$bindir: an absolute path of letters, digits and / _ . + - is needed" ;;
    esac
}

# What the wheel cannot know: is there such a unit, and who else could start what is in it?
look() {
    systemctl cat -- "$unit" >/dev/null 2>&1 || die $EX_NOINPUT "systemd knows no $unit: nothing is written." \
        "Is the name right (systemctl list-unit-files '*.service' tells what there is), and did systemctl daemon-reload follow its installation?"
    case $unit in *@.service)
        say "$unit is a template: each of its instances is gated, and each needs an [[engines]] table of its own"
        return
        ;;
    esac
    case $(systemctl show --property Type --value -- "$unit") in
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
    say "warning: there is no $unit below ${destdir:-/} yet: is the name right? The gate waits for it"
}

systemd_runs() { [ -z "$destdir" ] && [ -d /run/systemd/system ]; }

install_gate() {
    if [ -e "$gate" ] && ! grep -q "^$mark" "$gate"; then
        die $EX_CANTCREAT "$gate is there and was not written by this; move it away first"
    fi
    mkdir -p "$(dirname "$gate")"
    sed "s|/usr/local/bin/xidwatch|$bindir/xidwatch|g" "$root/systemd/engine-gate.conf" >"$gate.new"
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
    grep -q "^$mark" "$gate" || die $EX_CANTCREAT "$gate was not written by this; left alone"
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
given=${1:-}
check_name
check_bindir
[ -n "$destdir" ] || [ "$(id -u)" = 0 ] || die $EX_CANTCREAT "needs root (or DESTDIR=/some/folder to look at the result first)"
gate=$destdir/etc/systemd/system/$unit.d/50-xidwatch.conf

if [ "$call" = uninstall-gate ]; then
    remove_gate
else
    if systemd_runs; then look; else look_at_files; fi
    install_gate
fi
say_reload
