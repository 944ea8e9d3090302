#!/bin/sh
# Set up .venv from a lock with hashes and link this checkout into it; a .venv that is already so is left alone.
# Usage: venv.sh run|dev        PYTHON=/path/to/python3 overrides the choice of interpreter.
set -eu

kind=${1:-}
root=$(cd "$(dirname "$0")/.." && pwd)
venv=$root/.venv

say() { printf '%s\n' "$*" >&2; }

die() {
    say "xidwatch: $*"
    exit 1
}

suits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

has_pip() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

find_python() {
    without_pip=
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3}; do
        suits "$candidate" || continue
        if has_pip "$candidate"; then
            echo "$candidate"
            return
        fi
        without_pip=$candidate
    done
    [ -z "$without_pip" ] || die "$without_pip cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv"
    die "no Python 3.11 or later found${PYTHON:+ at $PYTHON} (set PYTHON=/path/to/python3)"
}

# With pip: a set-up that was interrupted leaves an interpreter without.
works() { [ "$("$venv/bin/python" -c 'import pip, sys; print(sys.prefix)' 2>/dev/null)" = "$venv" ]; }

fingerprint() { cksum <"$root/$1"; }

is_done() { [ "$(cat "$venv/.$1" 2>/dev/null)" = "$(fingerprint "$2")" ]; }

pip_install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes "$@"; }

link_checkout() {
    site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo "$root" >"$site/xidwatch-checkout.pth"
    printf '#!/bin/sh\nexec "%s/bin/python" -m xidwatch "$@"\n' "$venv" >"$venv/bin/xidwatch"
    chmod 755 "$venv/bin/xidwatch"
}

case $kind in
    run) lock=requirements.lock ;;
    dev) lock=requirements-dev.lock ;;
    *) die "usage: venv.sh run|dev" ;;
esac

# Real parts instead of stand-ins, for the tests, which say so and go on without. Wheels alone; each lock is tried once.
add_real_parts() {
    for part in fast engine; do
        ! is_done "tried-$part" "requirements-$part.lock" || continue
        say "adding requirements-$part.lock, without which some tests are skipped"
        pip_install --only-binary :all: --retries 1 -r "$root/requirements-$part.lock" ||
            say "going on without; it is tried again after \`make clean\`"
        fingerprint "requirements-$part.lock" >"$venv/.tried-$part"
    done
}

if ! works; then
    python=$(find_python)
    say "setting up .venv with $("$python" --version) (once, about half a minute)"
    "$python" -m venv --clear "$venv"
elif ! is_done "installed-$kind" $lock; then
    say "bringing .venv up to $lock"
fi
if ! is_done "installed-$kind" $lock; then
    pip_install -r "$root/$lock"
    link_checkout
    fingerprint $lock >"$venv/.installed-$kind"
    # What serves the tests serves the program: the larger lock holds the smaller one.
    [ "$kind" = run ] || fingerprint requirements.lock >"$venv/.installed-run"
fi
[ "$kind" = run ] || add_real_parts
